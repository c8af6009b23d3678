"""The experiment e02 without a GPU: its data is whole, its points are those of the issue, its candidates current."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from cleave.candidate import load_candidates
from cleave.codegen.emulator import emulate
from cleave.codegen.generate import generate
from cleave.errors import CleaveError
from cleave.ir.hash import graph_hash
from cleave.ir.op import round_to
from cleave.schedule import schedule
from cleave.target import Target
from experiments.candidates import with_splits
from experiments.e02_dynamic.config import CANDIDATES, DATA, TARGET, graph_of
from experiments.e02_dynamic.search import middle
from experiments.e02_dynamic.workloads import operators, points, read_traces
from tests.null.paged_references import Requests, batch, multi_head

POINTS = points()
OPERATORS = operators(POINTS)


def test_the_data_is_what_its_page_names() -> None:
    named = set(re.findall(r"`(\w+\.(?:json|csv))`", (DATA / "README.md").read_text(encoding="utf-8")))
    assert named == {path.name for path in DATA.iterdir()} - {"README.md"}
    for name in named:
        text = (DATA / name).read_text(encoding="utf-8")
        assert json.loads(text) if name.endswith(".json") else len(list(csv.DictReader(text.splitlines()))) > 250


def test_points_are_all_captured_shapes_and_the_stand_ins() -> None:
    counted = Counter(p.lengths for p in POINTS)
    assert counted == {"exact": 137, "completed": 151, "synthetic": 15}
    assert len(OPERATORS) == 9 and len({(p.operator, p.uuid) for p in POINTS}) == 303
    assert {p.operator for p in POINTS if p.lengths == "synthetic"} == {"mla_ragged_prefill_causal_h16_qk192_vo128"}


def test_lengths_meet_the_published_totals() -> None:
    for p in POINTS:
        assert len(p.keys) == len(p.queries) == p.requests
        assert sum(p.keys) == p.axes.get("num_kv_indices", p.axes.get("total_kv"))
        assert sum(p.queries) == p.axes.get("total_q", p.requests)
        assert min(p.keys) >= 0 and min(p.queries) >= 0 and np.isfinite(p.scale)
        assert p.pages >= p.axes.get("num_kv_indices", 0)


@pytest.mark.parametrize("name", OPERATORS)
def test_candidates_are_those_of_the_operators(name: str) -> None:
    g = graph_of(OPERATORS[name])
    assert {c.origin for c in load_candidates(CANDIDATES / f"{name}.json")} == {g}
    dims = {s.name for s in g.symbols if s.value is None}
    assert all(set(p.dims) == dims for p in POINTS if p.operator == name)
    assert graph_hash(g) != graph_hash(graph_of(OPERATORS[name], "float16"))


def test_a_schedule_is_right_for_other_lengths(rng: np.random.Generator) -> None:
    """No key, no query, fewer keys than queries, and NaN in what no request uses."""
    name = "gqa_paged_prefill_causal_h32_kv4_d128_ps1"
    candidate = with_splits(CANDIDATES / f"{name}.json", ())
    plan = schedule(candidate, Target(TARGET), middle(POINTS, name).dims)[0]
    sizes = {"kv_heads": 4, "group": 8, "d": 128}
    requests = Requests(keys=(7, 0, 1, 40, 3), queries=(3, 4, 1, 0, 9), unused=3, sizes=sizes)
    x = batch("paged_prefill", requests, rng, scalar=True)
    x |= {n: round_to(x[n], "bfloat16") for n in ("q", "k_cache", "v_cache")}
    expected = multi_head(x, causal=True)
    for output, value in emulate(generate(plan), x).items():
        np.testing.assert_allclose(value, expected[output], rtol=2e-2, atol=1e-2, err_msg=output)


LINE = {
    "definition": "decode",
    "solution": None,
    "workload": {
        "uuid": "a-b",
        "axes": {"batch_size": 1, "num_pages": 8, "len_indptr": 2, "num_kv_indices": 7},
        "inputs": {
            "q": {"type": "random"},
            "kv_indptr": {"type": "safetensors", "path": "x.safetensors", "tensor_key": "kv_indptr"},
            "sm_scale": {"type": "scalar", "value": 0.125},
        },
    },
    "evaluation": None,
}


def test_workloads_of_flashinfer_bench_are_read(tmp_path: Path) -> None:
    path = tmp_path / "decode.jsonl"
    more = json.loads(json.dumps(LINE))
    more["workload"]["axes"] |= {"len_indptr": 17, "batch_size": 16}
    path.write_text(f"{json.dumps(LINE)}\n\n{json.dumps(more)}\n")
    one, many = read_traces(path, next(iter(OPERATORS.values())))
    assert (one.keys, one.queries, one.lengths, one.scale) == ((7,), (1,), "exact", 0.125)
    assert (many.keys, many.lengths, many.requests) == ((), "totals", 16)
    path.write_text(f"{json.dumps(LINE)}\n{{}}\n")
    with pytest.raises(CleaveError, match=r"decode.jsonl:2: is no workload"):
        read_traces(path, {})
