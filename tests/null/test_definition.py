"""Definitions of FlashInfer-Bench as graphs, and schedules as its Solutions."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cleave
from cleave import nn
from cleave.candidate import as_written
from cleave.errors import CleaveError
from cleave.export import to_solution
from cleave.ir.graph import Graph
from cleave.ir.hash import graph_hash
from cleave.ir.interp import interpret
from cleave.tile.plan import Schedule
from cleave.tile.saved import load_schedules
from tests.null.paged_references import Requests, batch, latent, multi_head

KV = {"kv_indptr": ["len_indptr"], "kv_indices": ["num_kv_indices"]}
QO = {"qo_indptr": ["len_indptr"]}


def definition(name: str, op_type: str, const: Mapping[str, int], arrays: Mapping[str, list[str]]) -> dict[str, Any]:
    """A definition as it is published, without its reference."""
    axes = {a for shape in arrays.values() for a in shape}
    inputs = {n: {"shape": s, "dtype": "int32" if "ind" in n else "bfloat16"} for n, s in arrays.items()}
    rows, heads, last = arrays.get("q_nope") or [*arrays["q"][:2], arrays.get("v", arrays["q"])[-1]]
    return {
        "name": name,
        "op_type": op_type,
        "axes": {a: {"type": "const", "value": const[a]} if a in const else {"type": "var"} for a in sorted(axes)},
        "inputs": {**inputs, "sm_scale": {"shape": None, "dtype": "float32"}},
        "outputs": {
            "output": {"shape": [rows, heads, last], "dtype": "bfloat16"},
            "lse": {"shape": [rows, heads], "dtype": "float32"},
        },
        "reference": "def run(): ...",
    }


def gqa(kv_heads: int, kind: str, head: int = 128, page: int = 1) -> dict[str, Any]:
    rows, last = "batch_size" if kind == "decode" else "total_q", ["num_kv_heads", "head_dim"]
    cache = ["num_pages", "page_size", *last]
    arrays: dict[str, list[str]] = {"q": [rows, "num_qo_heads", "head_dim"]}
    if kind == "ragged":
        arrays |= {"k": ["total_kv", *last], "v": ["total_kv", *last], **QO, "kv_indptr": ["len_indptr"]}
    else:
        arrays |= {"k_cache": cache, "v_cache": cache, **(QO if kind == "prefill" else {}), **KV}
    const = {"num_qo_heads": 32, "num_kv_heads": kv_heads, "head_dim": head, "page_size": page}
    title = f"{kind}{'' if kind == 'decode' else ' causal'}"
    return definition(title, "gqa_ragged" if kind == "ragged" else "gqa_paged", const, arrays)


def mla(kind: str, rank: int = 512, rotated: int = 64) -> dict[str, Any]:
    rows = "batch_size" if kind == "decode" else "total_q"
    arrays = {
        "q_nope": [rows, "num_qo_heads", "ckv"],
        "q_pe": [rows, "num_qo_heads", "kpe"],
        "ckv_cache": ["num_pages", "page_size", "ckv"],
        "kpe_cache": ["num_pages", "page_size", "kpe"],
        **(QO if kind == "prefill" else {}),
        **KV,
    }
    const = {"num_qo_heads": 16, "ckv": rank, "kpe": rotated, "page_size": 1}
    return definition(f"{kind} causal", "mla_paged", const, arrays)


def mla_ragged() -> dict[str, Any]:
    arrays = {
        "q": ["total_q", "num_qo_heads", "qk"],
        "k": ["total_kv", "num_kv_heads", "qk"],
        "v": ["total_kv", "num_kv_heads", "vo"],
        **QO,
        "kv_indptr": ["len_indptr"],
    }
    const = {"num_qo_heads": 16, "num_kv_heads": 16, "qk": 192, "vo": 128}
    return definition("ragged causal", "mla_ragged", const, arrays)


GIVEN: Mapping[str, Any] = {"dtype": "bfloat16", "scale": "sm_scale"}
NINE = {
    **{
        f"decode {n}": (gqa(n, "decode"), nn.paged_decode(kv_heads=n, group=32 // n, d=128, page=1, **GIVEN))
        for n in (4, 8)
    },
    **{
        f"prefill {n}": (
            gqa(n, "prefill"),
            nn.paged_prefill(causal=True, kv_heads=n, group=32 // n, d=128, page=1, **GIVEN),
        )
        for n in (4, 8)
    },
    **{
        f"ragged {n}": (
            gqa(n, "ragged"),
            nn.ragged_prefill(causal=True, kv_heads=n, group=32 // n, d=128, e=128, **GIVEN),
        )
        for n in (4, 8)
    },
    "mla ragged": (mla_ragged(), nn.ragged_prefill(causal=True, kv_heads=16, group=1, d=192, e=128, **GIVEN)),
}


@pytest.mark.parametrize("name", NINE)
def test_a_definition_is_the_graph_of_its_operator(name: str) -> None:
    given, expected = NINE[name]
    assert graph_hash(nn.from_definition(given)) == graph_hash(expected)


@pytest.mark.parametrize("kind", ["decode", "prefill"])
def test_a_latent_definition_has_its_value(kind: str, rng: np.random.Generator) -> None:
    g = nn.from_definition(mla(kind, rank=4, rotated=2))
    requests = Requests(keys=(3, 0, 5), queries=(2, 1, 1), sizes={"h": 16})
    x = batch(f"mla_paged_{kind}", requests, rng, scalar=True)
    expected = latent(x, causal=kind == "prefill")
    for output, value in interpret(g, x).items():
        np.testing.assert_allclose(value, expected[output], rtol=1e-9, err_msg=output)


def test_a_definition_is_read_from_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from cleave.cli import main

    path = tmp_path / "any_name.json"
    path.write_text(json.dumps(gqa(4, "decode")))
    assert nn.from_definition(path) == nn.from_definition(gqa(4, "decode"))
    assert main(["search", str(path), "--json"]) == 0
    assert "paged_decode" in capsys.readouterr().out
    assert main(["search", str(path), "--causal"]) == 2
    assert "--causal is an option of operators; a definition says it all" in capsys.readouterr().err


def changed(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    out = gqa(4, "decode")
    change(out)
    return out


ALLOWED = "allowed are gqa_paged, gqa_ragged, mla_paged, mla_ragged"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (changed(lambda d: d.update(op_type="gemm")), f"decode: op_type 'gemm': {ALLOWED}"),
        (changed(lambda d: d.pop("axes")), "definition: is no definition: axes is missing"),
        (changed(lambda d: d["inputs"].pop("q")), "decode: an input of gqa_paged is missing or has another rank: 'q'"),
        (
            changed(lambda d: d["inputs"].pop("sm_scale")),
            "decode: inputs q, k_cache, v_cache, kv_indptr, kv_indices: q, k_cache, v_cache, kv_indptr, kv_indices, "
            "sm_scale are expected",
        ),
        (
            changed(lambda d: d["axes"].update(num_kv_heads={"type": "const", "value": 5})),
            "decode: 32 query heads are not divisible by 5 key heads",
        ),
        (
            changed(lambda d: d["axes"].update(head_dim={"type": "var"})),
            "decode: axis head_dim of input q varies: it has to be constant",
        ),
        (
            changed(lambda d: d["inputs"]["v_cache"].update(dtype="float16")),
            "decode, input v_cache: dtype float16, bfloat16 is expected",
        ),
        (
            changed(lambda d: d["inputs"]["kv_indices"].update(shape=["batch_size", "num_kv_indices"])),
            "decode, input kv_indices: rank 2, [num_kv_indices] is expected",
        ),
        (
            changed(
                lambda d: d["inputs"]["v_cache"].update(
                    shape=["num_pages", "page_size", "num_kv_heads", "num_qo_heads"]
                )
            ),
            "decode, input v_cache: extent 32, 128 is expected",
        ),
        (changed(lambda d: d.update(axes=["batch_size"])), "decode: axis 'num_qo_heads' is in no list of axes"),
        (
            changed(lambda d: d["axes"].update(num_kv_heads=4)),
            "decode: axis num_kv_heads is 4: its type has to be const or var",
        ),
        *(
            (
                changed(lambda d, value=value: d["axes"].update(num_kv_heads={"type": "const", "value": value})),
                f"decode: axis num_kv_heads = {value!r}: an integer from 1 is expected",
            )
            for value in (0, -4, 4.5, "4", True, None)
        ),
        (
            changed(
                lambda d: (
                    d["axes"].update(wide={"type": "var"}),
                    d["inputs"]["v_cache"].update(shape=["num_pages", "page_size", "num_kv_heads", "wide"]),
                )
            ),
            "decode, input v_cache: axis wide varies, 128 is expected",
        ),
        (changed(lambda d: d.update(op_type="gqa_paged_window")), f"decode: op_type 'gqa_paged_window': {ALLOWED}"),
    ],
)
def test_definitions_that_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(CleaveError) as caught:
        nn.from_definition(given)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("said", "causal"),
    [
        ({"name": "prefill"}, False),
        ({"name": "prefill_causal", "description": "queries that are not causal are another definition's"}, True),
        ({"name": "prefill_noncausal"}, False),
        ({"name": "prefill", "tags": ["mask:causal"]}, True),
        ({"name": "prefill", "description": "Non-causal attention"}, False),
        ({"name": "prefill", "reference": "return attended(q, k, v, is_causal=False)"}, False),
        ({"name": "prefill", "reference": "return attended(q, k, v, causal=True)"}, True),
    ],
)
def test_whether_prefill_is_causal_is_said_in_words(said: dict[str, Any], *, causal: bool) -> None:
    expected = nn.paged_prefill(causal=causal, kv_heads=4, group=8, d=128, page=1, **GIVEN)
    assert graph_hash(nn.from_definition({**gqa(4, "prefill"), **said})) == graph_hash(expected)


def test_a_file_that_is_no_definition(tmp_path: Path) -> None:
    path = tmp_path / "d.json"
    path.write_text("{")
    with pytest.raises(CleaveError, match=r"d.json: is no JSON that can be read"):
        nn.from_definition(path)


class Written(np.ndarray):
    """An array with the method of a torch tensor that a Solution calls."""

    def clamp_(self, min: float) -> None:
        np.maximum(self, min, out=self)


def scheduled(graph: Graph, **dims: int) -> Schedule:
    return cleave.schedule(as_written(graph), cleave.Target("sm_90a"), dims)[0]


def test_a_solution_calls_the_saved_schedule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    given = gqa(4, "decode", head=16)
    schedule = scheduled(nn.from_definition(given), b=2, num_kv_indices=7, num_pages=9)
    solution = json.loads(json.dumps(to_solution(schedule, given)))
    assert solution["definition"] == given["name"] and solution["spec"]["entry_point"] == "main.py::run"
    for source in solution["sources"]:
        (tmp_path / source["path"]).write_text(source["content"])
    assert load_schedules(tmp_path / "schedule.json") == (schedule,)

    def emit(schedule: Any) -> Callable[..., None]:
        def call(*inputs: Any, out: tuple[Any, ...]) -> None:
            names = [i.name for i in schedule.graph.inputs]
            for buffer, value in zip(
                out, interpret(schedule.graph, dict(zip(names, inputs, strict=True))).values(), strict=True
            ):
                buffer[...] = value

        return call

    monkeypatch.setattr(cleave, "emit", emit)
    module: dict[str, Any] = {"__file__": str(tmp_path / "main.py")}
    exec((tmp_path / "main.py").read_text(), module)
    x = batch("paged_decode", Requests(keys=(4, 0), sizes={"kv_heads": 4, "group": 8, "d": 16}), rng, scalar=True)
    out, lse = np.empty((2, 32, 16)), np.empty((2, 32)).view(Written)
    module["run"](*(x[name] for name in given["inputs"]), out, lse)
    expected = multi_head(x)
    np.testing.assert_allclose(out, expected["out"], rtol=1e-9)
    np.testing.assert_allclose(lse[0], expected["lse"][0], rtol=1e-9)
    assert np.isinf(expected["lse"][1]).all() and (lse[1] == -5e4).all()


def test_a_solution_of_another_definition_is_refused() -> None:
    schedule = scheduled(nn.from_definition(gqa(4, "decode")), b=2, num_kv_indices=7, num_pages=9)
    with pytest.raises(CleaveError, match=r"prefill causal: inputs q, .* the schedule has q, "):
        to_solution(schedule, gqa(4, "prefill"))
    given = gqa(4, "decode")
    del given["outputs"]["lse"]
    with pytest.raises(CleaveError, match=r"decode: outputs output: the schedule has out, lse"):
        to_solution(schedule, given)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (gqa(8, "decode"), "decode, input k_cache: extent 8, 4 is expected"),
        (changed(lambda d: d["inputs"]["q"].update(dtype="float16")), "input q: dtype float16, bfloat16 is expected"),
        (
            changed(lambda d: d.update(outputs=dict(reversed(d["outputs"].items())))),
            "decode, output lse: dtype float32, bfloat16 is expected",
        ),
    ],
)
def test_a_solution_that_does_not_fit_its_definition_is_refused(other: dict[str, Any], message: str) -> None:
    schedule = scheduled(nn.from_definition(gqa(4, "decode")), b=2, num_kv_indices=7, num_pages=9)
    with pytest.raises(CleaveError, match=message):
        to_solution(schedule, other)
