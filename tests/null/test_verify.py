"""Verification: sound candidates pass, and each kind of wrong one fails at the step that is there for it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pytest

from cleave.candidate import Candidate, Fold, Split, as_written
from cleave.config import Config
from cleave.ir.axis import Axis, axis, split_axis
from cleave.ir.dim import dim, dims
from cleave.ir.graph import (
    Cast,
    Const,
    Graph,
    IndexValue,
    Input,
    Map,
    Output,
    Term,
    Where,
    apply,
    const,
    fold,
    free,
    graph,
    load,
    reductions,
)
from cleave.ir.index import Index, Symbol, both, compare, of, read
from cleave.ir.interp import interpret
from cleave.ir.op import round_to
from cleave.verify import (
    Check,
    Outcome,
    References,
    Step,
    Verdict,
    check_executable,
    graph_tolerance,
    magnitude,
    storage,
    verify,
    with_magnitudes,
)
from cleave.verify import compare as compare_values
from cleave.verify.equivalence import check_equivalence
from cleave.verify.final import check_at_shape
from cleave.verify.fold_check import check_folds
from cleave.verify.instantiate import SMALL_CHUNKS, prime_dims, small_sizes, split_values
from cleave.verify.reference import references
from cleave.verify.sample import Drawn, edge_positions, stored, values_at
from tests.null.terms import ref, softmax_fold

B, H, S, T = dims("b h s t")
D = dim("d=8")
COUNT, CHUNK = of(Symbol("S", 1)), of(Symbol("C", 1))
LOWEST = const(float("-inf"))


@dataclass(frozen=True)
class Attention:
    """Softmax attention as three graphs: as written, division behind the second matmul, split with a symbolic count."""

    origin: Graph
    unsplit: Candidate
    split: Candidate


def attention(weight: Callable[[Term, Term], Term] | None = None) -> Attention:
    """Causal (bottom-right) attention; ``weight(m_chunk, m)`` rescales a chunk, by default exp_diff."""
    rescale = weight or (lambda m, joint: apply("exp_diff", m, joint))
    b, h, i, j, k, e = (axis(n, x) for n, x in zip("bhijke", (B, H, S, T, D, D), strict=True))
    inputs = [
        Input("Q", "float16", (B, H, S, D)),
        Input("K", "float16", (B, H, T, D)),
        Input("V", "float16", (B, H, T, D)),
        Input("scale", "float32", ()),
    ]

    def score(position: Index) -> Term:
        product = fold("sum", k, apply("mul", load("Q", b, h, i, k), load("K", b, h, position, k)))
        visible = compare("<=", position, i.position + T - S)
        return Where(visible, apply("mul", product, load("scale")), LOWEST)

    def value(position: Index) -> Term:
        return load("V", b, h, position, e)

    def made(term: Term, *constraints: object) -> Graph:
        out = Output("O", "float16", (B, H, S, D), (b.position, h.position, i.position, e.position), term)
        return graph("attention", inputs, [out], constraints)  # type: ignore[arg-type]

    s = score(j.position)
    p = apply("exp_diff", s, fold("max", j, s))
    inverse = apply("recip0", fold("sum", j, p))
    origin = made(fold("sum", j, apply("mul", apply("mul", p, inverse), value(j.position))))
    unsplit = made(apply("mul", fold("sum", j, apply("mul", p, value(j.position))), inverse))
    base = next(a for a in origin.axes if a.name == "t")
    cut = split_axis(base, COUNT, CHUNK)
    s = score(cut.position)
    m = fold("max", cut.inner, s)
    p = apply("exp_diff", s, m)
    w = rescale(m, fold("max", cut.outer, m))
    total = fold("sum", cut.outer, apply("mul", w, fold("sum", cut.inner, p)))
    chunk = fold("sum", cut.inner, apply("mul", p, value(cut.position)))
    combined = fold("sum", cut.outer, apply("mul", w, chunk))
    split = made(apply("mul", combined, apply("recip0", total)), compare("<=", T, COUNT * CHUNK))
    outer, inner = (next(a for a in split.axes if a.kind == kind) for kind in ("outer", "inner"))
    return Attention(
        origin,
        Candidate("unsplit", unsplit, origin, folds=(state_fold(unsplit, base),)),
        Candidate(
            "flash",
            split,
            origin,
            folds=(state_fold(split, inner),),
            splits=(Split(base.name, outer, inner, "S", "C"),),
        ),
    )


def state_fold(g: Graph, over: Axis) -> Fold:
    """The state (m, l, acc) of softmax attention: the maximum, the sum, and the weighted sum of values."""
    found = [r for r in reductions(*g.terms) if r.axis is over]
    return softmax_fold(sorted(found, key=lambda r: (r.op != "max", len(free(r)))))


def row_sum(term: Callable[[Axis, Axis], Term], *, rows: Index = S, columns: Index = T) -> Graph:
    """y[i] = term(i, j) over x[i, j]."""
    i, j = axis("i", rows), axis("j", columns)
    x = Input("x", "float16", (rows, columns))
    return graph("row", [x], [Output("y", "float16", (rows,), (i.position,), term(i, j))])


def failing(verdict: Verdict) -> Check:
    return next(c for c in verdict.checks if c.outcome.failed)


# ---- sound candidates


def test_attention_passes_every_step_that_needs_no_gpu() -> None:
    made = attention()
    for candidate in (made.unsplit, made.split):
        verdict = verify(candidate, Config(seed=3), bind={"b": 1, "h": 32, "s": 2048, "t": 2048})
        assert verdict.passed, verdict.text()
        ran = [c.step for c in verdict.checks if c.outcome is Outcome.PASSED]
        assert ran == [Step.SCOPE, Step.SMALL, Step.FIELD, Step.FOLDS, Step.MEDIUM, Step.GRAPH_HALF]
        assert verdict.summary().endswith("(final test, kernel half skipped: no compiled kernel was run)")


def test_without_a_shape_the_final_test_is_skipped_and_says_so() -> None:
    verdict = verify(as_written(attention().origin))
    assert verdict.passed
    assert "final test, graph half skipped: no shape is bound" in verdict.summary()
    assert "folds skipped: the candidate brings none" in verdict.summary()


def test_sizes_cover_every_relation(rng: np.random.Generator) -> None:
    made = attention()
    sizes = list(small_sizes(made.origin, rng))
    dims_seen = [s.dims for s in sizes]
    assert any(d["s"] < d["t"] for d in dims_seen) and any(d["t"] < d["s"] for d in dims_seen)
    for name in ("b", "h", "s", "t"):
        assert {0, 1} <= {d[name] for d in dims_seen}
    for d in prime_dims(made.origin, rng, (2, 3, 5, 7)):
        assert len(set(d.values())) == len(d)
    counts = [(s, split_values(made.split, s, {}, rng)) for s in sizes if s.dims["t"] > 2]
    assert any(c["S"] == 1 for _, c in counts)
    assert any(c["S"] > s.dims["t"] for s, c in counts)
    assert any(s.dims["t"] % c["S"] and 1 < c["S"] < s.dims["t"] for s, c in counts)
    assert all(c["S"] * c["C"] >= s.dims["t"] for s, c in counts)


def test_constraints_and_facts_of_dims_hold(rng: np.random.Generator) -> None:
    heads, groups = of(Symbol("heads", 4, None, 4)), of(Symbol("groups", 1, 6))
    i, j = axis("i", heads), axis("j", groups)
    x = Input("x", "float32", (heads, groups))
    total = fold("sum", j, load("x", i, j))
    g = graph("g", [x], [Output("y", "float32", (heads,), (i.position,), total)], [compare("==", heads, groups * 4)])
    found = list(small_sizes(g, rng))
    assert found and all(s.dims["heads"] == 4 * s.dims["groups"] <= 24 for s in found)


def test_ragged_lengths_are_drawn_until_they_fit() -> None:
    lengths = Input("len", "int32", (B,))
    x = Input("x", "float16", (B, T))
    b = axis("b", B)
    j = Axis("j", read("len", b))
    o = Output("y", "float16", (B,), (b.position,), fold("sum", j, load("x", b, j)))
    g = graph("ragged", [lengths, x], [o])
    assert verify(as_written(g), bind={"b": 5, "t": 300}).passed


# ---- wrong candidates


@pytest.mark.parametrize(
    ("weight", "outcome"),
    [
        (lambda m, joint: apply("exp_diff", joint, m), Outcome.WRONG_NON_FINITE),  # telescope with the wrong sign
        (lambda m, joint: const(1.0), Outcome.WRONG_VALUE),  # the rescale is dropped
        (lambda m, joint: apply("exp", apply("sub", m, joint)), Outcome.WRONG_NON_FINITE),  # NaN on masked rows
    ],
    ids=["sign", "dropped", "not total"],
)
def test_a_wrong_rescale_is_caught(weight: Callable[[Term, Term], Term], outcome: Outcome) -> None:
    verdict = verify(attention(weight).split)
    assert failing(verdict).step is Step.SMALL
    assert failing(verdict).outcome is outcome
    assert "S=" in failing(verdict).detail and "C=" in failing(verdict).detail


def test_a_mean_of_part_means_is_rejected() -> None:
    """Case V06: right only where the parts are equal."""
    origin = row_sum(lambda i, j: _mean(j, load("x", i, j)))
    base = next(a for a in origin.axes if a.name == "t")
    cut = split_axis(base, COUNT, CHUNK)
    i, x = axis("i", S), Input("x", "float16", (S, T))
    parts = _mean(cut.outer, _mean(cut.inner, load("x", i, cut.position)))
    o = Output("y", "float16", (S,), (i.position,), parts)
    split = graph("row", [x], [o], [compare("<=", T, COUNT * CHUNK)])
    outer, inner = (next(a for a in split.axes if a.kind == kind) for kind in ("outer", "inner"))
    verdict = verify(Candidate("means", split, origin, splits=(Split("t", outer, inner, "S", "C"),)))
    assert failing(verdict).step is Step.SMALL


def _mean(over: Axis, body: Term) -> Term:
    return apply("mul", fold("sum", over, body), apply("recip0", IndexValue(over.extent)))


@pytest.mark.parametrize("bound", ["reduced", "stored"])
def test_right_at_small_sizes_and_wrong_at_the_users(bound: str) -> None:
    origin = row_sum(lambda i, j: fold("sum", j, load("x", i, j)))

    def planted(i: Axis, j: Axis) -> Term:
        far = compare("<", j if bound == "reduced" else i.position, 1500)  # type: ignore[arg-type]
        return fold("sum", j, Where(far, load("x", i, j), const(0.0)))

    verdict = verify(Candidate("planted", row_sum(planted), origin), bind={"s": 2048, "t": 2048})
    assert failing(verdict).step is Step.GRAPH_HALF
    assert failing(verdict).outcome is Outcome.WRONG_VALUE
    assert "s=2048" in failing(verdict).detail


def test_zero_is_awkward_enough() -> None:
    """x * (1 / x) is 1 but for x = 0, and |x| is x but for negative x."""
    origin = row_sum(lambda i, j: fold("sum", j, apply("mul", load("x", i, j), apply("recip0", load("x", i, j)))))
    ones = row_sum(lambda i, j: fold("sum", j, Where(compare("<", j, T), const(1.0), load("x", i, j))))
    assert verify(Candidate("ones", ones, origin)).outcome is Outcome.WRONG_VALUE
    plain = row_sum(lambda i, j: fold("sum", j, load("x", i, j)))
    absolute = row_sum(lambda i, j: fold("sum", j, apply("abs", load("x", i, j))))
    assert verify(Candidate("absolute", absolute, plain)).outcome is Outcome.WRONG_VALUE


def test_a_graph_without_values_is_not_evaluable() -> None:
    lost = row_sum(lambda i, j: fold("sum", j, apply("log", apply("sub", const(-1.0), apply("sq", load("x", i, j))))))
    sizes = [z for z in small_sizes(lost, np.random.default_rng(0)) if z.dims["t"]]
    known = references(lost, sizes, np.random.default_rng(0))
    found = check_equivalence(as_written(lost), Step.SMALL, known, np.random.default_rng(0))
    assert found.outcome is Outcome.NOT_EVALUABLE and "the input graph has no value" in found.detail


def test_a_candidate_that_reads_beyond_its_input_is_not_evaluable() -> None:
    beyond = row_sum(lambda i, j: fold("sum", j, load("x", i, j.position + 1)))
    verdict = verify(Candidate("beyond", beyond, row_sum(lambda i, j: fold("sum", j, load("x", i, j)))))
    assert verdict.outcome is Outcome.NOT_EVALUABLE
    assert "the candidate has no value" in failing(verdict).detail


def test_scope_names_what_is_not_the_input_graphs() -> None:
    origin = row_sum(lambda i, j: fold("sum", j, load("x", i, j)))
    other = row_sum(lambda i, j: fold("sum", j, load("x", i, j)), columns=H)
    verdict = verify(Candidate("other", other, origin))
    assert verdict.outcome is Outcome.OUT_OF_SCOPE
    assert verdict.summary() == "scope: out of scope: input x is not one of the input graph's"
    unsplit = attention().split
    assert verify(replace(unsplit, splits=())).summary().startswith("scope: out of scope: dim C is neither")


# ---- folds


def _with_fold(**changes: object) -> Candidate:
    c = attention().split
    return replace(c, folds=(replace(c.folds[0], **changes),))  # type: ignore[arg-type]


def _fold_outcome(c: Candidate) -> Check:
    return check_folds(c, References(c.origin, 1).small(), np.random.default_rng(1))


def test_folds_of_attention_hold_on_every_chunking() -> None:
    made = attention()
    for c in (made.unsplit, made.split):
        found = _fold_outcome(c)
        assert found.outcome is Outcome.PASSED, found
        assert found.instances >= 8


@pytest.mark.parametrize("wrong", ["sign", "dropped", "not total"])
def test_wrong_folds_are_caught(wrong: str) -> None:
    f = attention().split.folds[0]
    m, total, acc = f.members
    old, new = ref("old", 0, m), ref("new", 0, m)
    w = {
        "sign": apply("exp_diff", new, old),
        "dropped": const(1.0),
        "not total": apply("exp", apply("sub", old, new)),
    }[wrong]
    carry = (old, apply("mul", w, ref("old", 1, total)), apply("mul", w, ref("old", 2, acc)))
    found = _fold_outcome(_with_fold(carry=carry))
    assert found.outcome is Outcome.WRONG_FOLD
    assert "fold over t_i" in found.detail


def test_the_absorbing_form_is_tested_by_itself() -> None:
    """State (a, w), both sum_j x. The carry w + a - a_new / 2 cancels when two states are joined, and not in a loop."""
    i, j = axis("i", S), axis("j", T)
    twice = apply("add", load("x", i, j), apply("mul", const(0.0), fold("sum", j, load("x", i, j))))
    origin = row_sum(lambda a, b: fold("sum", j, twice))
    first, second = reductions(*origin.terms)
    shift = apply("sub", ref("old", 0, first), apply("mul", const(0.5), ref("new", 0, first)))
    carry = (ref("old", 0, first), apply("add", ref("old", 1, second), shift))
    joins = Fold(first.axis, (first, second), carry, absorbing=False)
    assert _fold_outcome(replace(as_written(origin), folds=(joins,))).outcome is Outcome.PASSED
    found = _fold_outcome(replace(as_written(origin), folds=(replace(joins, absorbing=True),)))
    assert found.outcome is Outcome.WRONG_FOLD and "absorbed from chunks of" in found.detail


def test_a_carry_that_forgets_a_cross_term_is_caught() -> None:
    """State (a, w) with w = sum_j x_j * a: a join needs w * a_new / a."""
    i, j = axis("i", S), axis("j", T)
    x = load("x", i, j)
    origin = row_sum(lambda a, b: fold("sum", j, apply("mul", x, fold("sum", j, x))))
    first, second = reductions(*origin.terms)
    a, w = ref("old", 0, first), ref("old", 1, second)
    plain = Fold(first.axis, (first, second), (a, w), absorbing=False)
    assert _fold_outcome(replace(as_written(origin), folds=(plain,))).outcome is Outcome.WRONG_FOLD


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"carry": ()}, "3 members, 0 carries"),
        ({"axis": axis("other", T)}, "reduces over t_i"),
    ],
)
def test_a_fold_without_meaning_is_wrong(changes: Mapping[str, object], message: str) -> None:
    found = _fold_outcome(_with_fold(**changes))
    assert found.outcome is Outcome.WRONG_FOLD and message in found.detail


def test_a_state_that_lacks_a_reduction_is_wrong() -> None:
    f = attention().split.folds[0]
    found = _fold_outcome(_with_fold(members=f.members[1:], carry=(ref("old", 0, f.members[1]),) * 2))
    assert found.outcome is Outcome.WRONG_FOLD and "needs a max that the state before it lacks" in found.detail


# ---- final test


def test_the_graph_half_is_bounded_in_memory() -> None:
    made = attention()
    bind = {"b": 64, "h": 64, "s": 4096, "t": 4096}
    found = check_at_shape(made.split, bind, np.random.default_rng(0), limit=300_000)
    assert found.outcome is Outcome.PASSED, found
    assert found.instances > 2  # the positions did not fit into one evaluation
    small = check_at_shape(made.split, bind, np.random.default_rng(0), limit=100)
    assert small.outcome is Outcome.SKIPPED and "too much memory" in small.detail


def test_the_graph_half_says_which_dim_is_not_bound() -> None:
    found = check_at_shape(attention().split, {"b": 1}, np.random.default_rng(0))
    assert found.outcome is Outcome.SKIPPED and "dim h has no value" in found.detail


def test_values_at_positions_are_those_of_the_whole(rng: np.random.Generator) -> None:
    g = attention().origin
    sizes = {"b": 2, "h": 3, "s": 7, "t": 5, "d": 8}
    inputs = {i.name: rng.standard_normal([sizes[n] for n in _names(i)]) for i in g.inputs}
    whole = interpret(g, inputs)["O"]
    s = stored(g.outputs[0])
    at = {a: np.array([0, sizes[a.name.rstrip("@")] - 1]) for a in s.axes}
    found = values_at(s, inputs, sizes, at)
    assert len(found.where) == 16
    np.testing.assert_allclose(found.values[0], whole[tuple(found.where.T)], rtol=1e-12)


def _names(i: Input) -> list[str]:
    return [str(e) for e in i.shape]


def test_choosing_positions_restricts_no_reduction() -> None:
    """y[i] = x[i] * sum_i x[i]: one canonical name for a stored axis and a reduced one."""
    i, j = axis("i", T), axis("j", T)
    x = Input("x", "float16", (T,))
    g = graph(
        "norm",
        [x],
        [Output("y", "float16", (T,), (i.position,), apply("mul", load("x", i), fold("sum", j, load("x", j))))],
    )
    s = stored(g.outputs[0])
    data = np.array([1.0, 2.0, 4.0])
    found = values_at(s, {"x": data}, {"t": 3}, {s.axes[0]: np.array([2])})
    assert found.values[0].tolist() == [28.0]


def test_drawn_inputs_are_random_and_repeat() -> None:
    x = Drawn((1 << 40, 7), seed=5, scale=2.0, zeros=0.25)
    rows, columns = np.arange(4000)[:, None] * 12345, np.arange(7)[None, :]
    values = x[rows, columns]
    np.testing.assert_array_equal(values, x[rows, columns])
    assert 0.2 < np.mean(values == 0) < 0.3
    assert abs(np.mean(values > 0) - np.mean(values < 0)) < 0.05
    assert np.abs(values).max() < 3.2 and len(np.unique(np.abs(values))) > 15_000


def test_edge_positions_have_both_sides_of_the_tail_tile(rng: np.random.Generator) -> None:
    found = set(edge_positions(1000, rng, tiles=(64,)).tolist())
    assert {0, 999, 959, 960, 63} <= found
    assert edge_positions(0, rng).size == 0 and edge_positions(1, rng, tiles=(64,)).tolist() == [0]


# ---- kernel half and metric


def _rounded(g: Graph, spoil: Callable[[dict[str, np.ndarray]], None] | None = None) -> Callable[..., None]:
    """An operator: the interpreter, rounded to the output type, with something done to its outputs."""

    def operator(inputs: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]) -> None:
        made = {n: np.array(round_to(v, "float16")) for n, v in interpret(g, inputs, FULL).items()}
        if spoil is not None:
            spoil(made)
        for name, value in made.items():
            outputs[name][...] = value

    return operator


FULL = {"b": 1, "h": 2, "s": 129, "t": 77}


def _set(where: tuple[int, ...], value: float) -> Callable[[dict[str, np.ndarray]], None]:
    def spoil(made: dict[str, np.ndarray]) -> None:
        made["O"][where] = value

    return spoil


def test_an_operator_that_rounds_its_output_passes() -> None:
    g = attention().origin
    found = check_executable(_rounded(g), g, dims=FULL)
    assert found.step is Step.KERNEL_HALF and found.outcome is Outcome.PASSED
    assert 0 < found.worst < 1


@pytest.mark.parametrize(
    ("spoil", "outcome"),
    [
        (_set((0, 1, 128, 7), 0.5), Outcome.WRONG_VALUE),
        (_set((0, 0, 128, 0), np.nan), Outcome.WRONG_NON_FINITE),
        (_set((0, 0, 60, 0), np.inf), Outcome.WRONG_NON_FINITE),
        (lambda made: made.clear(), Outcome.WRONG_NON_FINITE),  # nothing is written: the poison stays
        (lambda made: made.update(O=made["O"] * 1.002), Outcome.WRONG_VALUE),  # small everywhere: Frobenius
    ],
    ids=["element", "nan", "inf", "unwritten", "everywhere"],
)
def test_wrong_operators_are_caught(spoil: Callable[[dict[str, np.ndarray]], None], outcome: Outcome) -> None:
    g = attention().origin
    assert check_executable(_rounded(g, spoil), g, dims=FULL).outcome is outcome


def test_large_outputs_are_compared_at_edges_and_tails() -> None:
    i, j = axis("i", S), axis("j", T)
    x = Input("x", "float16", (S, T))
    g = graph(
        "double",
        [x],
        [Output("y", "float16", (S, T), (i.position, j.position), apply("mul", load("x", i, j), const(2.0)))],
    )

    def operator(inputs: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]) -> None:
        outputs["y"][...] = inputs["x"] * 2
        outputs["y"][bad] = 99.0

    for bad in (0, 2998, 2944, 63):  # first row, last row, first row of the tail tile of 128, last of the first tile
        found = check_executable(operator, g, dims={"s": 2999, "t": 500})
        assert found.outcome is Outcome.WRONG_VALUE, bad


def test_the_metric_at_its_borders() -> None:
    expected, size = np.array([1.0, -2.0, 0.0]), np.array([4.0, 4.0, 4.0])
    allowed = storage(["float16"], "float16")
    assert allowed.frobenius == 1e-3 and allowed.relative == 8 * 2.0**-11
    element = allowed.relative * 4.0 + 2 * 2.0**-10
    loose = replace(allowed, frobenius=1.0)
    assert compare_values(expected + np.array([0.99 * element, 0, 0]), expected, size, loose).passed
    assert not compare_values(expected + np.array([1.01 * element, 0, 0]), expected, size, loose).passed
    assert compare_values(expected * 1.0009, expected, size, allowed).passed
    assert compare_values(expected * 1.0011, expected, size, allowed).outcome is Outcome.WRONG_VALUE
    assert storage(["bfloat16"], "float32").frobenius == 8e-3
    assert storage(["float32"], "float32").relative == 8 * 2.0**-24


def test_overflow_of_the_output_type_is_the_references_infinity() -> None:
    expected, size = np.array([70000.0, 1.0]), np.array([70000.0, 1.0])
    allowed = storage(["float16"], "float16")
    assert compare_values(np.array([np.inf, 1.0]), expected, size, allowed).passed
    assert compare_values(np.array([65504.0, 1.0]), expected, size, allowed).outcome is Outcome.WRONG_NON_FINITE
    assert compare_values(np.array([-np.inf, 1.0]), expected, size, allowed).outcome is Outcome.WRONG_NON_FINITE


def test_empty_outputs_compare_as_equal() -> None:
    nothing = np.zeros((0, 4))
    assert compare_values(nothing, nothing, nothing, storage(["float16"], "float16")).passed


def test_magnitudes_are_sums_of_absolute_terms(rng: np.random.Generator) -> None:
    g = row_sum(lambda i, j: fold("sum", j, apply("mul", load("x", i, j), apply("sub", load("x", i, j), const(1.5)))))
    data = rng.standard_normal((3, 5))
    found = interpret(with_magnitudes(g), {"x": data})
    np.testing.assert_allclose(found["y__magnitude"], (np.abs(data) * (np.abs(data) + 1.5)).sum(1))
    assert magnitude(Const(-2.0)) is Map("abs", (Const(-2.0),))
    assert magnitude(Cast("float16", Const(1.0))) is Map("abs", (Const(1.0),))


def test_a_written_cast_is_part_of_the_bound() -> None:
    g = row_sum(lambda i, j: fold("sum", j, Cast("bfloat16", load("x", i, j))))
    assert graph_tolerance(g, "y").relative == 8 * 2.0**-8


# ---- verdicts


def test_the_kernel_half_is_added_later() -> None:
    verdict = verify(as_written(row_sum(lambda i, j: fold("sum", j, load("x", i, j)))))
    wrong = verdict.with_check(Check(Step.KERNEL_HALF, Outcome.WRONG_VALUE, 1, 3.0, "output y at (0,)"))
    assert verdict.passed and not wrong.passed
    assert wrong.summary() == "final test, kernel half: wrong value (1 instance): output y at (0,)"
    assert wrong.as_dict()["outcome"] == "wrong value"
    assert [c["step"] for c in wrong.as_dict()["checks"]].count("final test, kernel half") == 1


def test_masks_of_two_predicates_and_chunks_cover_the_enum() -> None:
    window = row_sum(
        lambda i, j: fold(
            "max",
            j,
            Where(
                both(compare("<=", j, i.position), compare("<", i.position, j.position + 3)), load("x", i, j), LOWEST
            ),
        )
    )
    assert verify(as_written(window), bind={"s": 500, "t": 300}).passed
    assert {s.chunks for s in small_sizes(window, np.random.default_rng(0))} == set(SMALL_CHUNKS)
