"""Tile programs: their NumPy meaning, their text, their invariants, the skeletons' limits, and their files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.random import default_rng

from cleave.candidate import Fold
from cleave.cost.lanes import kernel_work
from cleave.cost.time import modelled, refusal
from cleave.errors import CleaveError, GraphError, SavedFileError, ScheduleError
from cleave.ir.axis import Axis, axis
from cleave.ir.graph import Cast, Const, Input, Load, Map, Reduce, Ref, Where, load
from cleave.ir.index import compare, index
from cleave.schedule import schedule
from cleave.schedule.lower import lower
from cleave.schedule.roles import Plan
from cleave.target import Target
from cleave.tile.check import check_program
from cleave.tile.interp import run_program, run_schedule
from cleave.tile.plan import Binding
from cleave.tile.program import Accumulator, Buffer, Contract, Let, Loop, Program, Stmt, Store, Update
from cleave.tile.saved import load_schedules, save_schedules
from cleave.tile.skeleton import SKELETONS, refusals
from tests.null.scheduled_candidates import CASES, attention, matmul, softmax_rows

ROW, K, J = axis("i", "m"), axis("k", "n"), axis("j", 4)
CTA_RING = SKELETONS["cta-ring"]


def program(*body: Stmt, whole: tuple[Axis, ...] = ()) -> Program:
    """X[m, n] -> Y[m], rows on the grid."""
    x = Input("X", "float16", (index("m"), index("n")))
    return Program("p", (x,), (Buffer("Y", "float32", (index("m"),)),), (ROW,), frozenset(), whole, body)


def row_sum(*, masked: bool = True, identity: float = 0.0, op: str = "sum") -> Program:
    """Rows folded in a loop over tiles of k; exp of what is read, so that tails matter."""
    acc = Accumulator("s1", op, (ROW,))
    e = Ref("e1", (ROW, K))
    body: list[Stmt] = [
        Let("x_1", (ROW, K), load("X", ROW, K)),
        Let("e1", (ROW, K), Map("exp", (Ref("x_1", (ROW, K)),))),
    ]
    if masked:
        body.append(Let("k1", (ROW, K), Where(compare("<", K, K.extent), e, Const(identity))))
        e = Ref("k1", (ROW, K))
    body.append(Update(acc, Reduce(op, K, e)))
    loop = Loop(K, index(0), K.extent, (acc,), tuple(body))
    return program(loop, Store("Y", (ROW.position,), Ref("s1", (ROW,)), (ROW,)))


def run(p: Program, m: int, n: int, tiles: dict[Axis, int]) -> tuple[np.ndarray, np.ndarray]:
    x = default_rng(0).standard_normal((m, n))
    buffers = {"X": x, "Y": np.full(m, np.nan)}
    run_program(p, tiles, buffers, {"m": m, "n": n})
    return buffers["Y"], x


# ---- meaning


@pytest.mark.parametrize(("m", "n"), [(5, 7), (1, 1), (6, 8), (3, 0)])
def test_blocks_and_loops_cover_extents_that_tiles_do_not_divide(m: int, n: int) -> None:
    y, x = run(row_sum(), m, n, {ROW: 2, K: 3})
    np.testing.assert_allclose(y, np.exp(x).sum(1))


def test_reads_beyond_an_axis_are_zero_and_show_without_a_mask() -> None:
    y, x = run(row_sum(masked=False), 2, 4, {ROW: 2, K: 3})
    np.testing.assert_allclose(y, np.exp(x).sum(1) + 2)


def test_accumulators_start_at_the_identity_of_their_monoid() -> None:
    y, x = run(row_sum(identity=-np.inf, op="max"), 3, 5, {ROW: 2, K: 2})
    np.testing.assert_allclose(y, np.exp(x).max(1))
    y, _ = run(row_sum(identity=-np.inf, op="max"), 3, 0, {ROW: 2, K: 2})
    assert np.isneginf(y).all()


def test_a_position_that_exists_and_lies_outside_is_an_error() -> None:
    shifted = Let("x_1", (ROW, K), Load("X", (ROW.position, K.position + 1)))
    body = list(row_sum().body)
    loop = body[0]
    assert isinstance(loop, Loop)
    wrong = program(replace(loop, body=(shifted, *loop.body[1:])), *body[1:])
    with pytest.raises(GraphError, match=r"input X, axis 1: index 5, allowed is 0 <= index < 5"):
        run(wrong, 2, 5, {ROW: 2, K: 2})


def test_a_whole_axis_longer_than_its_tile_is_an_error() -> None:
    x = Ref("x_1", (ROW, K))
    p = program(
        Let("x_1", (ROW, K), load("X", ROW, K)),
        Let("sum1", (ROW,), Reduce("sum", K, x)),
        Store("Y", (ROW.position,), Ref("sum1", (ROW,)), (ROW,)),
        whole=(K,),
    )
    np.testing.assert_allclose(*(lambda y, x: (y, x.sum(1)))(*run(p, 3, 5, {ROW: 2, K: 8})))
    with pytest.raises(ScheduleError, match=r"axis k: extent 5: held whole in a tile of 4"):
        run(p, 3, 5, {ROW: 2, K: 4})


def test_casts_that_the_scheduler_wrote_round_only_when_asked() -> None:
    x = Ref("x_1", (ROW, K))
    p = program(
        Let("x_1", (ROW, K), load("X", ROW, K)),
        Let("n1", (ROW, K), Cast("float16", x)),
        Let("sum1", (ROW,), Reduce("sum", K, Ref("n1", (ROW, K)))),
        Store("Y", (ROW.position,), Ref("sum1", (ROW,)), (ROW,)),
        whole=(K,),
    )
    values = np.full((1, 3), 1 / 3)
    outcomes: dict[tuple[bool, str], float] = {}
    for narrowed in (False, True):
        for rounding in ("none", "storage"):
            buffers = {"X": values, "Y": np.zeros(1)}
            made = replace(p, narrowed=frozenset({"n1"} if narrowed else ()))
            run_program(made, {ROW: 1, K: 3}, buffers, {"m": 1, "n": 3}, rounding)  # type: ignore[arg-type]
            outcomes[narrowed, rounding] = float(buffers["Y"][0])
    assert outcomes[True, "none"] == pytest.approx(1.0, abs=1e-15)
    assert all(abs(v - 1.0) > 1e-5 for key, v in outcomes.items() if key != (True, "none"))


# ---- text


def test_programs_print_like_loop_nests() -> None:
    case = softmax_rows()
    g = case.candidate.graph
    m, t = g.axes
    p = lower(g, Plan({m: ("grid",), t: ("loop",)}), case.candidate.folds).program
    assert p.text() == (
        "kernel softmax: grid m/Bm\n"
        "  for t in [0, t) step Bt  carry m1[m], s1[m]\n"
        "    x_2[m, t] = X[m, t]\n"
        "    k1[m, t] = where(t < dim.t, x_2, const('-inf'))\n"
        "    m1 = max(m1~, max[t](k1))\n"
        "    e1[m, t] = exp_diff(k1, m1)\n"
        "    s1 = sum(mul(exp_diff(m1~, m1), s1~), sum[t](e1))\n"
        "  e3[m] = recip0(s1)\n"
        "  for t in [0, t) step Bt\n"
        "    x_1[m, t] = X[m, t]\n"
        "    e2[m, t] = exp_diff(x_1, m1)\n"
        "    e4[m, t] = mul(e2, e3)\n"
        "    store Y[m, t] = e4\n"
    )


def test_schedules_print_their_bindings_and_say_that_times_are_modelled() -> None:
    s = schedule(matmul().candidate, Target("sm_80"), {"m": 300, "n": 200, "k": 500})[0]
    text = s.text()
    assert text.startswith("schedule of matmul for sm_80: 1 kernel, merge none\n")
    assert "mma[k](x_1, w_1)" in text and "rows m; " in text and "modelled " in text
    assert s._repr_html_().startswith("<svg") and "modelled " in s._repr_html_()


# ---- invariants


def broken(change: str) -> Program:
    p = row_sum()
    loop, store = p.body
    assert isinstance(loop, Loop) and isinstance(store, Store)
    x, e, k, update = loop.body
    assert isinstance(update, Update) and isinstance(x, Let) and isinstance(e, Let) and isinstance(k, Let)
    acc = update.accumulator
    old = Ref("s1~", (ROW,))
    changes: dict[str, Program] = {
        "use before definition": program(replace(loop, body=(e, x, k, update)), store),
        "defined twice": program(replace(loop, body=(x, x, e, k, update)), store),
        "never updated": program(replace(loop, body=(x, e, k)), store),
        "updated twice": program(replace(loop, body=(*loop.body, update)), store),
        "outside its loop": program(loop, Let("o1", (ROW,), old), store),
        "axis twice": program(replace(loop, body=(loop,)), store),
        "no position": program(loop, replace(store, value=Ref("k1", (ROW, K)))),
        "every tile": replace(program(loop, store), grid=(ROW, J)),
        "wrong guard": program(loop, replace(store, axes=())),
        "wide operand": program(
            replace(loop, body=(x, e, k, Update(acc, Contract(K, Ref("k1", (ROW, K)), Ref("x_1", (ROW, K)))))), store
        ),
        "undeclared need": program(
            replace(
                loop,
                accumulators=(replace(acc, carry=old),),
                body=(x, e, k, Update(replace(acc, carry=Ref("e1", ())), update.term)),
            ),
            store,
        ),
        "nested load": program(
            replace(loop, body=(x, Let("e1", (ROW, K), Map("exp", (load("X", ROW, K),))), k, update)), store
        ),
        "bound of a later axis": program(replace(loop, upper=J.position), store),
        "hidden axis": program(replace(loop, body=(x, e, replace(k, axes=(ROW,)), update)), store),
        "fold over the grid": program(
            replace(loop, body=(x, e, k, Update(acc, Reduce("sum", ROW, Ref("k1", (ROW, K)))))), store
        ),
        "stored for others": replace(
            program(loop, Store("Y", (J.position,), Ref("s1", (ROW,)), (J,), once=(ROW,))), grid=(ROW, J)
        ),
    }
    return changes[change]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("use before definition", "e1 reads x_1, which is not defined there"),
        ("defined twice", "x_1 is defined twice"),
        ("never updated", "s1 is carried and never updated"),
        ("updated twice", "s1 is updated twice in one trip"),
        ("outside its loop", "o1 reads s1~ outside the loop that carries it"),
        ("axis twice", "axis k is open twice"),
        ("no position", "store to Y reads k1, which is not defined there"),
        ("every tile", "store to Y runs in every tile of j"),
        ("wrong guard", "store to Y guards other axes than its indices mention"),
        ("wide operand", "s1 multiplies k1, which is neither a narrow load nor a cast to a narrow type"),
        ("nested load", "e1 loads inside an expression"),
        ("bound of a later axis", "loop over k depends on j, which has no position there"),
        ("hidden axis", "k1 depends on k, which its tile lacks"),
        ("fold over the grid", "s1 folds over i, of which a block has one tile"),
        ("stored for others", "the first tile of i stores s1 for all, which depends on it"),
    ],
)
def test_broken_programs_are_refused_with_the_reason(change: str, message: str) -> None:
    check_program(row_sum())
    with pytest.raises(ScheduleError, match="^program p: " + message.replace("[", r"\[") + "$"):
        check_program(broken(change))


# ---- skeletons


def test_the_skeleton_says_what_it_can_not_express() -> None:
    shape = {"m": 300, "n": 200, "k": 500}
    s = schedule(matmul().candidate, Target("sm_90a"), shape, skeleton="cta-ring", mma="mma.sync")[0]
    p, b = s.kernels[0].program, s.kernels[0].binding
    m, n = p.grid
    assert refusals(CTA_RING, p, b) == ()
    assert refusals(CTA_RING, p, replace(b, warps=3)) == (
        "3 warps, allowed are 1, 2, 4, 8",
        f"{b.tile(m)} rows for 3 warps of 16",
    )
    assert refusals(CTA_RING, p, replace(b, tiles={**b.tiles, n: 24})) == ("tile 24 of n is no multiple of 16",)
    swapped = replace(b, rows=(n,), tiles={**b.tiles, n: b.tile(m), m: b.tile(n)})
    assert any("left operand of a matmul carries the rows" in r for r in refusals(CTA_RING, p, swapped))
    assert refusals(CTA_RING, p, replace(b, teams=2)) == (f"{b.warps} warps in 2 teams, allowed are 1 teams",)


def test_skeletons_exist_on_known_targets_only() -> None:
    for skeleton in SKELETONS.values():
        for arch in skeleton.architectures:
            features = Target(arch).facts.features
            assert "mma.sync" in features and features & set(skeleton.feeds)


# ---- cost


def attention_binding(rows: int, keys: int) -> tuple[Program, Binding]:
    s = schedule(
        attention(head=128, value=128, grouped=False).candidate,
        Target("sm_90a"),
        {"kv": 32, "s": 2048, "t": 2048},
        tile={"s": rows, "t": keys},
    )[0]
    return s.kernels[0].program, s.kernels[0].binding


def test_the_cost_model_counts_work_traffic_and_resources() -> None:
    p, b = attention_binding(128, 64)
    work = kernel_work(p, b, {"kv": 32, "s": 2048, "t": 2048, "r": 1})
    assert work.blocks == 32 * 16
    assert work.matmul_flops == 4 * 32 * 2048 * 2048 * 128
    assert 1.0 <= work.special / (32 * 2048 * 2048) < 1.05
    tiles = 2 * 32 * 16 * 2048 * 128 * 2  # K and V once for each block of rows
    assert work.loaded_bytes == tiles + 2048 * 32 * 128 * 2
    assert work.distinct_bytes == 3 * 32 * 2048 * 128 * 2
    assert work.shared_bytes == (128 * 128 + b.stages * 2 * 64 * 128) * 2
    assert 128 <= work.registers <= 200


def test_causal_attention_costs_about_half() -> None:
    full, causal = (
        schedule(attention(head=128, value=128, causal=c).candidate, Target("sm_90a"), {"kv": 8, "s": 4096, "t": 4096})[
            0
        ]
        for c in (False, True)
    )
    assert full.modelled is not None and causal.modelled is not None
    assert 0.48 < causal.modelled.microseconds / full.modelled.microseconds < 0.62


def test_kernels_that_do_not_fit_are_refused_with_the_number() -> None:
    p, b = attention_binding(128, 64)
    wide = replace(b, tiles={a: 512 if a.name == "t" else n for a, n in b.tiles.items()})
    work = kernel_work(p, wide, {"kv": 32, "s": 2048, "t": 2048, "r": 1})
    assert "registers a thread, allowed are 232" in str(refusal(work, Target("sm_90a"), b))
    fewer = replace(work, registers=100)
    assert "bytes of shared memory, allowed are 232432" in str(refusal(fewer, Target("sm_90a"), b))
    assert refusal(replace(fewer, shared_bytes=1), Target("sm_90a"), b) is None


def test_times_are_positive_and_a_launch_is_never_free() -> None:
    p, b = attention_binding(128, 64)
    work = kernel_work(p, b, {"kv": 0, "s": 0, "t": 0, "r": 1})
    assert modelled([(work, b)], Target("sm_90a")).microseconds == pytest.approx(0.35)  # after another call
    assert modelled([(work, b)], Target("sm_80")).microseconds == pytest.approx(2.35)


# ---- files


@pytest.mark.parametrize("name", ["attention causal", "flash decoding", "self-attention", "ragged attention"])
def test_schedules_come_back_from_a_file_as_the_same_objects(name: str, tmp_path: Path) -> None:
    case = CASES[name]()
    found = schedule(case.candidate, Target("sm_90a"), case.shape)
    save_schedules(found, tmp_path / "schedule.json")
    loaded = load_schedules(tmp_path / "schedule.json")
    assert loaded == found
    assert loaded[0].graph == case.candidate.graph
    rng = default_rng(0)
    sizes = case.suiting(found[0], case.draw(rng))
    inputs = case.inputs(rng, sizes)
    first, second = (run_schedule(s, inputs, sizes) for s in (found[0], loaded[0]))
    assert all(np.array_equal(first[n], second[n], equal_nan=True) for n in first)


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "schedule.json"
    case = matmul()
    schedule(case.candidate, Target("sm_90a"), case.shape)[0].save(path)
    whole = path.read_text()
    damages = {
        "nothing": "",
        "truncated": whole[: len(whole) // 2],
        "version": whole.replace('"version":1', '"version":9'),
        "class": whole.replace('["Loop",', '["Loup",'),
        "field": whole.replace('["Let",', '["Let",1,'),
        "name": whole.replace('"x_1"', '"x_9"', 1),
        "not json": "schedule of matmul",
    }
    for damage, text in damages.items():
        path.write_text(text)
        with pytest.raises(SavedFileError, match=r"^schedule\.json: is "):
            load_schedules(path)
            pytest.fail(damage)
    with pytest.raises(SavedFileError, match="can't be read"):
        load_schedules(tmp_path / "missing.json")


def test_only_nodes_of_schedules_are_saved(tmp_path: Path) -> None:
    with pytest.raises(CleaveError, match="a Fold can't be saved"):
        save_schedules([Fold(ROW, (), (), True)], tmp_path / "x.json")  # type: ignore[list-item]
