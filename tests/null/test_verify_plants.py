"""The final test catches what is right at every small size: one plant for each kind of mistake, in four programs."""

from collections.abc import Callable

import numpy as np
import pytest

from cleave.candidate import Candidate, as_written
from cleave.config import Config
from cleave.ir.axis import axis
from cleave.ir.dim import dims
from cleave.ir.graph import Graph, IndexValue, Input, Term, Where, apply, const, fold, graph, load
from cleave.ir.index import compare
from cleave.verify import Outcome, References, Step, verify
from cleave.verify.borders import border_positions, conditions
from cleave.verify.sample import spread, stored, sweeps
from tests.null.plants import plants, spoilt_count
from tests.null.scheduled_candidates import flash_decoding, output, rmsnorm_matmul, swiglu_split

PLANTS = plants()
PROGRAMS = sorted({p.name.partition(":")[0] for p in PLANTS})


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_plant_is_caught_by_the_final_test(program: str) -> None:
    known: dict[object, References] = {}
    chosen = [p for p in PLANTS if p.name.startswith(program)]
    assert len(chosen) >= 10
    for p in chosen:
        references = known.setdefault(p.candidate.origin, References(p.candidate.origin, 1))
        verdict = verify(p.candidate, Config(seed=1), bind=p.bind, references=references)
        failed = [c for c in verdict.checks if c.outcome.failed]
        assert [c.step for c in failed] == [Step.GRAPH_HALF], p.name
        assert failed[0].outcome is Outcome.WRONG_VALUE, p.name


def test_what_the_plants_grow_in_passes() -> None:
    c = flash_decoding(causal=True).candidate
    bind = {"kv": 20, "s": 200, "t": 500}
    assert verify(c, bind=bind).passed
    assert verify(c, bind={**bind, "S": 4, "C": 125}).passed
    assert verify(as_written(c.origin), bind=bind).passed


def test_conditions_of_their_own_are_what_sound_candidates_lack() -> None:
    """So that looking for their borders costs nothing."""
    for c in (flash_decoding(causal=True).candidate, swiglu_split().candidate, rmsnorm_matmul().candidate):
        own = conditions(stored(c.graph.outputs[0])) - conditions(stored(c.origin.outputs[0]))
        assert not border_positions(stored(c.graph.outputs[0]), own, {}, {**DIMS, "S": 3, "C": 200})


DIMS = {"kv": 20, "r": 4, "d": 64, "e": 64, "s": 200, "t": 500, "m": 100, "n": 600, "k": 800}


def sums(term: Callable[[Term], Term]) -> Graph:
    """y[i] = a term of sum_j x[i, j]."""
    (n, m), x = dims("n m"), Input("x", "float32", tuple(dims("n m")))
    i, j = axis("i", n), axis("j", m)
    return graph("sums", [x], [output("y", term(fold("sum", j, load("x", i, j))), (n,), i)])


def test_both_sides_of_kinks_and_of_conditions_on_two_axes_are_tried() -> None:
    i = axis("i", dims("n")[0])
    jumps = sums(lambda t: Where(compare("<=", i.position // 900 * 3, 3), t, const(0.0)))
    reads = sums(lambda t: apply("add", t, IndexValue(i.position // 1000)))
    for g, at in ((jumps, 1800), (reads, 1000)):
        s = stored(g.outputs[0])
        (found,) = border_positions(s, conditions(s), {}, {"n": 3000, "m": 5}).values()
        assert {0, at - 1, at, 2999} <= set(found.tolist())


def test_what_is_not_caught() -> None:
    """As the documentation of the package says; a count of chunks is found where it is bound."""
    clamped = Candidate("clamped", sums(lambda t: apply("minimum", t, const(1e9))), sums(lambda t: t))
    assert verify(clamped, bind={"n": 300, "m": 500}).passed
    near = Candidate("clamped", sums(lambda t: apply("minimum", t, const(1e4))), sums(lambda t: t))
    assert verify(near, bind={"n": 300, "m": 500}).outcome is Outcome.WRONG_VALUE
    elsewhere = sums(lambda t: Where(compare("==", dims("n")[0], 299), const(0.0), t))
    assert verify(Candidate("elsewhere", elsewhere, sums(lambda t: t)), bind={"n": 300, "m": 500}).passed
    c = flash_decoding(causal=True).candidate
    some = spoilt_count(c, 13)
    bind = {"kv": 2, "s": 70, "t": 500}
    assert verify(some, bind=bind).passed
    assert verify(some, bind={**bind, "S": 13}).outcome is Outcome.WRONG_VALUE


def test_wrong_for_square_or_even_sizes_only_is_caught_at_small_ones() -> None:
    n, m = dims("n m")
    for wrong in (compare("==", n, m), compare("==", m % 4, 0), compare("==", m % 16, 0)):
        made = sums(lambda t, wrong=wrong: Where(wrong, const(0.0), t))  # type: ignore[misc]
        verdict = verify(Candidate("square", made, sums(lambda t: t)))
        assert verdict.outcome is Outcome.WRONG_VALUE


def test_literal_sizes_alone_catch_what_no_shape_is_bound_for() -> None:
    """Plants in literal extents need no final test."""
    literal = [p for p in PLANTS if p.name.startswith("matmul") and p.name.endswith((" k", " n"))]
    assert len(literal) >= 10
    for p in literal:
        assert verify(p.candidate).outcome is Outcome.WRONG_VALUE, p.name


def test_spread_positions_leave_no_gap(rng: np.random.Generator) -> None:
    found = spread(4096, 128, rng)
    assert found[0] == 0 and found[-1] == 4095 and np.diff(found).max() <= 64
    assert spread(7, 9, rng).tolist() == list(range(7))
    assert spread(0, 9, rng).size == 0


def test_sweeps_reach_all_heads_and_cost_no_more_than_they_may(rng: np.random.Generator) -> None:
    g = flash_decoding().candidate.origin
    dims = {"kv": 8, "r": 3, "s": 2000, "t": 2000}
    s = stored(g.outputs[0])
    inputs = {i.name: np.zeros((0,) * len(i.shape)) for i in g.inputs}
    found = sweeps(s, inputs, dims, rng)
    reached = {a.name.rstrip("@"): max(len(at[a]) for at in found) for a in s.axes}
    assert (reached["kv"], reached["r"]) == (8, 3)
    assert 100 < reached["s"] < 1000
    assert all(np.prod([len(p) for p in at.values()]) * 2000 < 40e6 for at in found)
