"""Candidates written by hand, with the folds that the search would bring: what the scheduler's tests run on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator

from cleave.candidate import Candidate, Fold, Split
from cleave.ir.axis import Axis, axis, split_axis
from cleave.ir.dim import dims
from cleave.ir.graph import (
    Graph,
    IndexValue,
    Input,
    Output,
    Reduce,
    Ref,
    Term,
    Where,
    apply,
    const,
    fold,
    free,
    graph,
    load,
    reductions,
    substitute_axes,
)
from cleave.ir.index import Index, IndexLike, both, compare, index, read
from cleave.tile.plan import Schedule
from tests.null.terms import drawn, mul, over, softmax_fold

D, E = 8, 16
OLD, NEW = tuple(Ref(f"old{k}", ()) for k in range(4)), tuple(Ref(f"new{k}", ()) for k in range(4))
Shape = Mapping[str, int]


@dataclass(frozen=True)
class Case:
    """A candidate, a representative shape, and greatest values of random ones (fixed dims are in the graph)."""

    candidate: Candidate
    shape: Shape
    at_most: Shape
    given: tuple[str, ...] = ()

    def draw(self, rng: Generator, *, least: int = 1) -> dict[str, int]:
        return {name: int(rng.integers(least, most + 1)) for name, most in self.at_most.items()}

    def suiting(self, s: Schedule, sizes: Shape) -> dict[str, int]:
        """Sizes that a schedule takes: those compiled in, the others rounded up to what boxes need."""
        rounded = {n: -(-size // s.multiples.get(n, 1)) * s.multiples.get(n, 1) for n, size in sizes.items()}
        return {**rounded, **{n: v for n, v in s.bind.items() if n in self.at_most}}

    def inputs(self, rng: Generator, sizes: Shape, scale: float = 2.0) -> dict[str, np.ndarray]:
        """Random arrays for the inputs; zeros, negative and large values among them."""
        longest = sizes.get("t", 1)
        arrays = drawn(self.candidate.graph, sizes, rng, 0.1, lambda: scale * (50.0 if rng.random() < 0.2 else 1.0))
        return {n: rng.integers(0, longest + 1, a.shape) if a.dtype.kind == "i" else a for n, a in arrays.items()}


def output(name: str, term: Term, shape: Sequence[IndexLike], *indices: IndexLike, dtype: str = "float32") -> Output:
    return Output(name, dtype, tuple(map(index, shape)), tuple(map(index, indices)), term)


def half(name: str, *shape: IndexLike) -> Input:
    return Input(name, "float16", tuple(map(index, shape)))


def found(g: Graph, axis_name: str, *wanted: Callable[[Reduce], bool]) -> tuple[Reduce, ...]:
    """Reductions of a graph over an axis that meet conditions, in the order of the conditions."""
    every = [r for r in reductions(*g.terms) if r.axis.name == axis_name]
    return tuple(next(r for r in every if test(r)) for test in wanted)


def is_max(r: Reduce) -> bool:
    return r.op == "max"


def weights(extra: int) -> Callable[[Reduce], bool]:
    """The sum with so many free axes more than the maximum has."""
    return lambda r: r.op == "sum" and len(free(r)) == extra


# ---- attention


@dataclass(frozen=True)
class Attention:
    """Axes and terms of attention with head groups; ``scores`` are masked and scaled."""

    q_heads: Index
    i: Axis
    t: Axis
    e: Axis
    value: Term
    scores: Term
    inputs: tuple[Input, ...]
    rest: tuple[Index, ...]


def attention_parts(
    *,
    causal: bool = False,
    window: bool = False,
    grouped: bool = True,
    head: int = D,
    value: int = E,
    ratio: str = "r=3",
) -> Attention:
    kv, s, t, r = *dims("kv s t"), *dims(ratio)
    h, i, tt, d, e = axis("h", kv), axis("i", s), axis("t", t), axis("d", head), axis("e", value)
    g = axis("g", r)
    heads = h.position * r + g.position if grouped else h.position
    total = kv * r if grouped else kv
    scores = mul(fold("sum", d, mul(load("Q", heads, i, d), load("K", h, tt, d))), const(0.3))
    diagonal = i.position + t - s
    if causal:
        scores = Where(compare("<=", tt, diagonal), scores, const(-np.inf))
    if window:
        inside = both(compare("<=", tt, diagonal), compare("<=", diagonal - 5, tt))
        scores = Where(inside, scores, const(-np.inf))
    inputs = (half("Q", total, s, head), half("K", kv, t, head), half("V", kv, t, value))
    return Attention(heads, i, tt, e, load("V", h, tt, e), scores, inputs, (total, s, index(value)))


def attention_outputs(a: Attention, o: Term, lse: Term) -> list[Output]:
    total, s, e = a.rest
    return [
        output("O", o, (total, s, e), a.q_heads, a.i, a.e, dtype="float16"),
        output("L", lse, (total, s), a.q_heads, a.i),
    ]


ATTENTION_SHAPE = {"kv": 2, "s": 40, "t": 70}
ATTENTION_MOST = {"kv": 2, "s": 20, "t": 40}


def attention(*, naive: bool = False, folds: bool = True, **options: int | str) -> Case:
    """Softmax attention: the division inside (naive) or behind the second matmul."""
    a = attention_parts(**options)  # type: ignore[arg-type]
    m = fold("max", a.t, a.scores)
    p = apply("exp_diff", a.scores, m)
    total = fold("sum", a.t, p)
    o = fold("sum", a.t, mul(over(p, total), a.value)) if naive else over(fold("sum", a.t, mul(p, a.value)), total)
    lse = apply("add", m, apply("log", total))
    g = graph("attention", a.inputs, attention_outputs(a, o, lse))
    axes = len(free(reductions_over(g, "t", "max")))
    members = found(g, "t", is_max, weights(axes), weights(axes + 1))
    brought = (softmax_fold(members, normalised=naive),) if folds else ()
    return Case(Candidate("naive" if naive else "moved", g, g, folds=brought), ATTENTION_SHAPE, ATTENTION_MOST)


def reductions_over(g: Graph, axis_name: str, op: str) -> Reduce:
    return next(r for r in reductions(*g.terms) if r.axis.name == axis_name and r.op == op)


def flash_decoding(**options: int | str) -> Case:
    """Attention with t split: partial maximum, sum and accumulator of each chunk, then the rescaled combination."""
    a = attention_parts(**options)  # type: ignore[arg-type]
    origin = attention(**options).candidate.graph
    chunks = split_axis(a.t, dims("S")[0], dims("C")[0])
    to, ti = chunks.outer, chunks.inner
    scores, value = (substitute_axes(x, {a.t: chunks.position}) for x in (a.scores, a.value))
    m = fold("max", ti, scores)
    p = apply("exp_diff", scores, m)
    part, acc = fold("sum", ti, p), fold("sum", ti, mul(p, value))
    top = fold("max", to, m)
    w = apply("exp_diff", m, top)
    total = fold("sum", to, mul(w, part))
    o = over(fold("sum", to, mul(w, acc)), total)
    g = graph("flash", a.inputs, attention_outputs(a, o, apply("add", top, apply("log", total))))
    inner = next(r.axis for r in reductions(*g.terms) if r.axis.kind == "inner")
    outer = next(r.axis for r in reductions(*g.terms) if r.axis.kind == "outer")
    axes = len(free(reductions_over(g, inner.name, "max")))
    members = found(g, inner.name, is_max, weights(axes), weights(axes + 1))
    c = Candidate("flash", g, origin, folds=(softmax_fold(members),), splits=(Split("t", outer, inner, "S", "C"),))
    return Case(c, {"kv": 2, "s": 1, "t": 1024}, ATTENTION_MOST)


def any_group(case: Case) -> Case:
    """Query heads a key head are a dim of the call, and rows of a tile together with the queries."""
    return replace(case, shape={"kv": 2, "s": 6, "r": 5, "t": 1024}, at_most={**case.at_most, "r": 9})


def qk_norm() -> Case:
    """Attention whose scores are divided by norms of both sides: a vector over keys without rows."""
    s, t = dims("s t")
    i, tt, d, e = axis("i", s), axis("t", t), axis("d", D), axis("e", E)
    q, k, v = load("Q", i, d), load("K", tt, d), load("V", tt, e)
    norm = [apply("rsqrt", apply("add", fold("sum", d, apply("sq", x)), const(1e-3))) for x in (q, k)]
    scores = mul(fold("sum", d, mul(q, k)), *norm)
    m = fold("max", tt, scores)
    p = apply("exp_diff", scores, m)
    total = fold("sum", tt, p)
    inputs = (half("Q", s, D), half("K", t, D), half("V", t, E))
    g = graph("qk_norm", inputs, [output("O", over(fold("sum", tt, mul(p, v)), total), (s, E), i, e)])
    members = found(g, "t", is_max, weights(1), weights(2))
    return Case(Candidate("qk-norm", g, g, folds=(softmax_fold(members),)), {"s": 40, "t": 70}, {"s": 20, "t": 40})


def latent_attention() -> Case:
    """One cache is key and value: two readings of one tile."""
    s, t = dims("s t")
    h, i, tt, r, e = axis("h", dims("h")[0]), axis("i", s), axis("t", t), axis("r", E), axis("e", E)
    scores = mul(fold("sum", r, mul(load("Q", i, h, r), load("C", i, tt, r))), const(0.2))
    m = fold("max", tt, scores)
    p = apply("exp_diff", scores, m)
    total = fold("sum", tt, p)
    o = over(fold("sum", tt, mul(p, load("C", i, tt, e))), total)
    inputs = (half("Q", s, dims("h")[0], E), half("C", s, t, E))
    g = graph("latent", inputs, [output("O", o, (s, dims("h")[0], E), i, h, e)])
    members = found(g, "t", is_max, weights(2), weights(3))
    return Case(
        Candidate("latent", g, g, folds=(softmax_fold(members),)),
        {"s": 4, "h": 40, "t": 70},
        {"s": 3, "h": 20, "t": 40},
    )


def ragged_attention() -> Case:
    """Batches of different lengths, the lengths read from an input."""
    b, s, t = dims("b s t")
    bb, i, d, e = axis("b", b), axis("i", s), axis("d", D), axis("e", E)
    tt = axis("u", read("len", bb))
    scores = fold("sum", d, mul(load("Q", bb, i, d), load("K", bb, tt, d)))
    m = fold("max", tt, scores)
    p = apply("exp_diff", scores, m)
    total = fold("sum", tt, p)
    inputs = (half("Q", b, s, D), half("K", b, t, D), half("V", b, t, E), Input("len", "int32", (b,)))
    o = over(fold("sum", tt, mul(p, load("V", bb, tt, e))), total)
    g = graph("ragged", inputs, [output("O", o, (b, s, E), bb, i, e)])
    name = next(
        a.name
        for a in g.axes
        if a.name not in ("b", "s", "n8", "n16") and a.kind == "plain" and str(a.extent).startswith("len")
    )
    members = found(g, name, is_max, weights(2), weights(3))
    return Case(
        Candidate("ragged", g, g, folds=(softmax_fold(members),)),
        {"b": 3, "s": 40, "t": 70},
        {"b": 3, "s": 20, "t": 40},
    )


def self_attention() -> Case:
    """Projections inside: two matmuls that carry no rows, which have to be kernels of their own."""
    s, c = dims("s c")
    i, t, cc, d, e = axis("i", s), axis("t", s), axis("c", c), axis("d", D), axis("e", E)
    q = fold("sum", cc, mul(load("X", i, cc), load("A", cc, d)))
    k = fold("sum", cc, mul(load("X", t, cc), load("B", cc, d)))
    v = fold("sum", cc, mul(load("X", t, cc), load("C", cc, e)))
    scores = fold("sum", d, mul(q, k))
    m = fold("max", t, scores)
    p = apply("exp_diff", scores, m)
    o = over(fold("sum", t, mul(p, v)), fold("sum", t, p))
    inputs = (half("X", s, c), half("A", c, D), half("B", c, D), half("C", c, E))
    g = graph("self_attention", inputs, [output("O", o, (s, E), i, e)])
    return Case(Candidate("self-attention", g, g), {"s": 70, "c": 40}, {"s": 20, "c": 20})


# ---- linear layers

LINEAR_SHAPE, LINEAR_MOST = {"m": 70, "n": 50, "k": 90}, {"m": 20, "n": 20, "k": 40}


def linear_axes() -> tuple[Index, Index, Index, Axis, Axis, Axis]:
    m, n, k = dims("m n k")
    return m, n, k, axis("i", m), axis("j", n), axis("l", k)


def split_k(
    name: str, origin: Graph, rebuilt: Callable[[Axis, Index, Callable[[Term], Term]], Sequence[Output]]
) -> Case:
    """A candidate with k split: ``rebuilt`` makes outputs from the inner axis, the position and the two-stage sum."""
    chunks = split_axis(linear_axes()[-1], dims("S")[0], dims("C")[0])
    outputs = rebuilt(chunks.inner, chunks.position, lambda t: fold("sum", chunks.outer, fold("sum", chunks.inner, t)))
    g = graph(name, origin.inputs, outputs)
    inner = next(a for a in g.axes if a.kind == "inner")
    outer = next(a for a in g.axes if a.kind == "outer")
    return Case(
        Candidate(name, g, origin, splits=(Split("k", outer, inner, "S", "C"),)),
        {"m": 16, "n": 64, "k": 2048},
        LINEAR_MOST,
    )


def matmul() -> Case:
    m, n, k, i, j, q = linear_axes()
    inputs = (half("X", m, k), half("W", k, n))
    y = fold("sum", q, mul(load("X", i, q), load("W", q, j)))
    g = graph("matmul", inputs, [output("Y", y, (m, n), i, j, dtype="float16")])
    return Case(Candidate("matmul", g, g), LINEAR_SHAPE, LINEAR_MOST)


def matmul_split() -> Case:
    m, n, _, i, j, _ = linear_axes()
    return split_k(
        "matmul_split",
        matmul().candidate.graph,
        lambda inner, at, both_sums: [
            output("Y", both_sums(mul(load("X", i, at), load("W", at, j))), (m, n), i, j, dtype="float16")
        ],
    )


def swiglu() -> Case:
    m, n, k, i, j, q = linear_axes()
    inputs = (half("X", m, k), half("A", k, n), half("B", k, n))
    a, b = (fold("sum", q, mul(load("X", i, q), load(w, q, j))) for w in "AB")
    g = graph("swiglu", inputs, [output("Y", mul(apply("silu", a), b), (m, n), i, j)])
    return Case(Candidate("swiglu", g, g), LINEAR_SHAPE, LINEAR_MOST)


def swiglu_split() -> Case:
    m, n, _, i, j, _ = linear_axes()

    def outputs(_: Axis, at: Index, both_sums: Callable[[Term], Term]) -> Sequence[Output]:
        a, b = (both_sums(mul(load("X", i, at), load(w, at, j))) for w in "AB")
        return [output("Y", mul(apply("silu", a), b), (m, n), i, j)]

    return split_k("swiglu_split", swiglu().candidate.graph, outputs)


def rmsnorm_matmul(*, naive: bool = False) -> Case:
    """The row scale inside the sum, with a fold that restates it, or behind the sum."""
    m, n, k, i, j, q = linear_axes()
    x, w, eps = load("X", i, q), load("W", q, j), const(1e-3)
    squares = fold("sum", q, apply("sq", x))

    def scale(of_squares: Term) -> Term:
        return apply("add", mul(of_squares, apply("recip0", IndexValue(k))), eps)

    r = apply("rsqrt", scale(squares))
    y = fold("sum", q, mul(x, r, w)) if naive else mul(fold("sum", q, mul(x, w)), r)
    g = graph("rmsnorm", (half("X", m, k), half("W", k, n)), [output("Y", y, (m, n), i, j)])
    folds = ()
    if naive:
        members = found(g, "k", weights(1), weights(2))
        carry = (OLD[0], mul(OLD[1], apply("sqrt", scale(OLD[0])), apply("rsqrt", scale(NEW[0]))))
        folds = (Fold(members[0].axis, members, carry, True),)
    return Case(Candidate("rmsnorm naive" if naive else "rmsnorm moved", g, g, folds=folds), LINEAR_SHAPE, LINEAR_MOST)


def layernorm_matmul() -> Case:
    """Centred: three passes, and no fold to join them."""
    m, n, k, i, j, q = linear_axes()
    x = load("X", i, q)
    count = apply("recip0", IndexValue(k))
    mean = mul(fold("sum", q, x), count)
    centred = apply("sub", x, mean)
    variance = mul(fold("sum", q, apply("sq", centred)), count)
    y = fold("sum", q, mul(centred, apply("rsqrt", apply("add", variance, const(1e-3))), load("W", q, j)))
    g = graph("layernorm", (half("X", m, k), half("W", k, n)), [output("Y", y, (m, n), i, j)])
    return Case(Candidate("layernorm", g, g), LINEAR_SHAPE, LINEAR_MOST)


def matmul_rowsum() -> Case:
    m, n, k, i, j, q = linear_axes()
    y = fold("sum", j, fold("sum", q, mul(load("X", i, q), load("W", q, j))))
    g = graph("rowsum", (half("X", m, k), half("W", k, n)), [output("Y", y, (m,), i)])
    return Case(Candidate("matmul-rowsum", g, g), LINEAR_SHAPE, LINEAR_MOST)


def softmax_rows(*, folds: bool = True) -> Case:
    """The summed axis is stored as well: a reducing loop, then a loop that only stores."""
    m, t = dims("m t")
    i, tt = axis("i", m), axis("t", t)
    x = load("X", i, tt)
    top = fold("max", tt, x)
    p = apply("exp_diff", x, top)
    g = graph("softmax", (half("X", m, t),), [output("Y", over(p, fold("sum", tt, p)), (m, t), i, tt)])
    members = found(g, "t", is_max, weights(1))
    return Case(
        Candidate("softmax", g, g, folds=(softmax_fold(members),) if folds else ()),
        {"m": 70, "t": 300},
        {"m": 20, "t": 40},
    )


CASES: dict[str, Callable[[], Case]] = {
    "attention": attention,
    "attention causal": lambda: attention(causal=True),
    "attention window": lambda: attention(window=True),
    "attention naive": lambda: attention(naive=True),
    "attention naive causal": lambda: attention(naive=True, causal=True),
    "attention ungrouped": lambda: attention(grouped=False, causal=True),
    "attention without folds": lambda: attention(folds=False, causal=True),
    "attention of any group": lambda: any_group(attention(causal=True, ratio="r")),
    "flash decoding": flash_decoding,
    "flash decoding causal": lambda: flash_decoding(causal=True),
    "flash decoding of any group": lambda: any_group(flash_decoding(causal=True, ratio="r")),
    "qk-norm": qk_norm,
    "latent attention": latent_attention,
    "ragged attention": ragged_attention,
    "self-attention": self_attention,
    "matmul": matmul,
    "matmul split": matmul_split,
    "swiglu": swiglu,
    "swiglu split": swiglu_split,
    "rmsnorm moved": rmsnorm_matmul,
    "rmsnorm naive": lambda: rmsnorm_matmul(naive=True),
    "layernorm": layernorm_matmul,
    "matmul-rowsum": matmul_rowsum,
    "softmax rows": softmax_rows,
}


def reference_symbols(g: Graph, sizes: Shape) -> dict[str, int]:
    """Values of the symbols that a graph has."""
    known = {s.name for s in g.symbols}
    return {k: v for k, v in sizes.items() if k in known}
