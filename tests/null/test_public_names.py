"""The public names: all there, none loaded before it is used, and functions that keep the names of their folders."""

from __future__ import annotations

import subprocess
import sys
import types
from pathlib import Path

import pytest

import cleave

HEAVY = ("sympy", "egglog", "cupy", "torch", "rich", "numpy", "msgspec")
ROUNDS = 5
LIMIT = 0.15
"""Seconds that importing cleave may add."""


def python(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_version_is_that_of_the_distribution() -> None:
    text = (Path(cleave.__file__).parents[1] / "pyproject.toml").read_text()
    assert f'\nversion = "{cleave.__version__}"\n' in text


@pytest.mark.parametrize("name", sorted(cleave.PUBLIC))
def test_every_public_name_is_there(name: str) -> None:
    found = getattr(cleave, name)
    assert isinstance(found, types.ModuleType) == (name in {"export", "nn", "ops", "testing"})
    assert name in dir(cleave)


def test_nothing_heavy_is_loaded_by_the_import() -> None:
    loaded = python(f"import sys, cleave; print([m for m in {HEAVY} if m in sys.modules])")
    assert loaded == "[]"


def test_making_a_graph_loads_no_engine_and_no_gpu() -> None:
    program = "import sys, cleave; cleave.nn.attention(causal=True).text(); "
    loaded = python(program + "print([m for m in ('sympy', 'egglog', 'cupy', 'torch', 'rich') if m in sys.modules])")
    assert loaded == "[]"


def test_import_is_quick() -> None:
    """The best of some runs: the machine may be busy."""
    timed = "import time; start = time.perf_counter(); import cleave; print(time.perf_counter() - start)"
    assert min(float(python(timed)) for _ in range(ROUNDS)) < LIMIT


@pytest.mark.parametrize("name", sorted(cleave.PHASES))
def test_a_phase_is_a_function_before_and_after_its_folder_is_imported(name: str) -> None:
    lines = [
        "import cleave, sys, importlib",
        f"import cleave.{name}",
        f"assert callable(cleave.{name}) and not isinstance(cleave.{name}, type(sys)), cleave.{name}",
        f"from cleave import {name}",
        f"from cleave.{name} import {name} as same",
        f"assert {name} is same is cleave.{name}",
        f"module = importlib.import_module('cleave.{name}')",
        f"assert module is sys.modules['cleave.{name}'] and module.{name} is same",
        "import pickle",
        "assert pickle.loads(pickle.dumps(same)) is same",
        "print('ok')",
    ]
    assert python("\n".join(lines)) == "ok"
    assert python("\n".join([lines[0], f"from cleave.{name} import {name} as same", *lines[2:]])) == "ok"
    assert (
        python(
            "\n".join(
                [lines[0], f"first = cleave.{name}", *lines[1:-1], f"assert first is cleave.{name}", "print('ok')"]
            )
        )
        == "ok"
    )


@pytest.mark.parametrize("name", ["search.found", "verify.verdict", "schedule.splits"])
@pytest.mark.parametrize("first", ["", "import cleave.{phase}", "from cleave import {phase}", "import cleave.{name}"])
def test_a_module_of_a_phase_is_imported_under_another_name(name: str, first: str) -> None:
    phase, _, module = name.partition(".")
    lines = [
        first.format(phase=phase, name=name),
        f"import cleave.{name} as found",
        "import cleave, sys",
        f"assert found is sys.modules['cleave.{name}'] is cleave.{name}",
        f"from cleave.{phase} import {module} as same, {phase} as function",
        f"assert same is found and function is cleave.{phase}",
        "print('ok')",
    ]
    assert python("\n".join(lines)) == "ok"


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="module 'cleave' has no attribute 'serach'"):
        _ = cleave.serach  # type: ignore[attr-defined]


def test_star_import_brings_the_public_names() -> None:
    assert set(cleave.__all__) == set(cleave.PUBLIC)
