"""What holds for the repository as a whole: a light import, short files, one version, README's example."""

import ast
import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import cleave

ROOT = Path(__file__).parents[2]
HEAVY = ("sympy", "egglog", "cupy", "torch", "jax", "rich")
FOLDERS = ("cleave", "rules", "experiments", "paper_figs", "tests")
MOST_SECONDS = 0.15
MOST_LINES = 600

IMPORT = """
import json, sys, time
begin = time.perf_counter()
import cleave
print(json.dumps([time.perf_counter() - begin, sorted(sys.modules)]))
"""


def test_import_is_quick_and_loads_nothing_heavy() -> None:
    # The best of a few: the machine may be busy.
    command = [sys.executable, "-c", IMPORT]
    runs = [subprocess.run(command, capture_output=True, text=True, check=True) for _ in range(3)]
    seconds, modules = zip(*(json.loads(run.stdout) for run in runs), strict=True)
    assert not set(HEAVY) & set(modules[0])
    assert min(seconds) < MOST_SECONDS


def test_rules_are_found_under_their_import_name() -> None:
    (default,) = entry_points(group="cleave.rules", name="default")
    assert default.value == "cleave_rules"
    assert Path(default.load().__file__).parent.joinpath("lang.egg").is_file()


EXTRAS = {"cupy": "gpu", "torch": "torch", "onnx": "onnx", "z3": "test"}
"""What is met in a border module that asks whether it is there."""
DISTRIBUTIONS = {"cupy": "cupy-cuda13x", "z3": "z3-solver"}


def test_what_the_toolkit_imports_is_a_dependency_of_every_installation() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = {None: project["dependencies"], **project["optional-dependencies"]}
    missing: list[str] = []
    for name in sorted(imported(ROOT / "cleave") - sys.stdlib_module_names - {"cleave"}):
        requirements = [re.match(r"[\w-]+", text) for text in declared[EXTRAS.get(name)]]
        if DISTRIBUTIONS.get(name, name) not in [found[0] for found in requirements if found]:
            missing.append(name)
    assert not missing


def imported(folder: Path) -> set[str]:
    """Top-level names that the modules of a folder import, wherever in them."""
    out: set[str] = set()
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                out |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
                out.add(node.module.split(".")[0])
    return out


def test_no_file_is_too_long() -> None:
    code = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    lengths = {str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines()) for path in code}
    assert not {path: length for path, length in lengths.items() if length > MOST_LINES}


def test_no_conflict_was_left_in_a_text() -> None:
    kinds = ("*.md", "*.py", "*.egg", "*.toml", "*.h", "*.cuh", "*.cpp")
    folders = [ROOT / name for name in (*FOLDERS, "notebooks", ".ci")]
    texts = [*ROOT.glob("*.*"), *(path for folder in folders for kind in kinds for path in folder.rglob(kind))]
    marks = re.compile(r"^(<{7}|={7}|>{7})( |$)", flags=re.MULTILINE)
    assert not [path for path in texts if path.is_file() and marks.search(path.read_text(encoding="utf-8"))]


def test_version_is_the_same_everywhere() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert cleave.__version__ == version
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()


def run_example(number: int, before: str, after: str) -> str:
    """What one of README's examples prints."""
    examples = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(examples) == 2
    script = f"{before}\n{examples[number]}\n{after}"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_example_of_the_readme_runs_as_printed() -> None:
    assert "__global__" in run_example(0, "import cleave\nfrom cleave import ops", "print(f.source)")


def test_example_with_torch_runs_as_printed() -> None:
    pytest.importorskip("torch")
    assert run_example(1, "import cleave\nimport torch", "") == "True\n"
