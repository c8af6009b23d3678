"""Trouble with arguments of calls, and with caches."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

import cleave
from cleave import ops
from tests.cases.reference import f64, rn
from tests.cases.stages import run_case

ROOT = Path(__file__).parents[2]


def test_t04_numbers_at_run_time(rng: np.random.Generator) -> None:
    """A Python float bound to a scalar input, and a dim above 2**31."""
    (big,) = cleave.dims("big")

    def program(x: Any, scale: Any) -> Any:
        return {"out": x * scale, "size": ops.value(big)}

    g = cleave.trace(program, x="m n", scale="float32[]", outputs={"size": "float32[]"})
    x = {"x": rn(rng, 4, 8), "scale": np.asarray(0.125)}
    expected = {"out": f64(x["x"]) * 0.125, "size": np.asarray(float(2**31 + 5))}
    run_case(g, [(x, expected)], dims={"big": 2**31 + 5}, rtol=1e-3)


BUILD = """
import json, sys
import cleave
from cleave.codegen import cache, compile as compiler, nvrtc
from cleave.codegen.generate import generate

compiles = 0
original = nvrtc.compile_program
def counted(*arguments):
    global compiles
    compiles += 1
    return original(*arguments)
nvrtc.compile_program = counted

def build(factor):
    def program(x):
        return x * factor + 1.0
    g = cleave.trace(program, x="m n")
    c = cleave.search(g).pick()
    s = cleave.schedule(c, cleave.Target("sm_80"), bind={"m": 3, "n": 8})[0]
    return [compiler.compile_cubin(k, "sm_80").entry for k in generate(s).kernels]

for factor in json.loads(sys.argv[1]):
    before = {p.name for p in cache.folder().rglob("*") if p.is_file()}
    build(factor)
    made = sorted(p.name for p in cache.folder().rglob("*") if p.is_file() and p.name not in before)
print(json.dumps({"compiles": compiles, "made": made}))
"""


def _built(factors: list[float], folder: Path) -> dict[str, Any]:
    """Graphs of one name, built one after another in a process of their own; what the last one left in the cache."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", BUILD, json.dumps(factors)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_k03_a_cache_key_depends_on_the_graph_alone(tmp_path: Path) -> None:
    alone = _built([1.0], tmp_path / "alone")
    after = _built([3.0, 1.0], tmp_path / "after")
    assert alone["made"]
    assert alone["made"] == after["made"]
    assert alone["compiles"] == 1
    assert after["compiles"] == 2
    again = _built([1.0], tmp_path / "alone")
    assert again == {"compiles": 0, "made": []}


def test_k03_value(rng: np.random.Generator) -> None:
    x = {"x": rn(rng, 3, 8)}
    run_case(cleave.trace(lambda x: x + 1, x="m n"), [(x, {"out": f64(x["x"]) + 1})])
