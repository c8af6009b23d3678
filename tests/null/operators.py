"""Operators written in graph IR by hand, with sizes at which they have a value: material of the search tests.

Every dim of an operator is different and divides nothing; ``sizes`` lists several assignments, dead rows among them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from cleave.ir.axis import Axis, axis
from cleave.ir.dim import dims
from cleave.ir.graph import Const, Graph, IndexValue, Input, Output, Term, Where, apply, const, fold, graph, load
from cleave.ir.index import Index, Pred, compare, index, read
from tests.null.terms import Array, drawn, mul, softmax_weights

NINF = const(-np.inf)


@dataclass(frozen=True)
class Operator:
    """A graph, dims at which to try it, and what its integer inputs hold (by name, given the dims)."""

    graph: Graph
    sizes: tuple[Mapping[str, int], ...]
    tables: Mapping[str, Callable[[Mapping[str, int]], Array]] = field(default_factory=dict)

    def inputs(self, sizes: Mapping[str, int], rng: np.random.Generator) -> dict[str, Array]:
        """Fresh random inputs, with negative numbers and a few zeros."""
        return drawn(self.graph, sizes, rng, 0.05) | {name: table(sizes) for name, table in self.tables.items()}


def softmax_times(score: Term, v: Term, t: Axis) -> tuple[Term, Term]:
    """Attention as everybody writes it, and its log-sum-exp."""
    m, e, total = softmax_weights(score, t)
    weights = apply("mul", e, apply("recip0", total))
    return fold("sum", t, apply("mul", weights, v)), apply("add", m, apply("log", total))


# ---- attention over whole tensors

Mask = Callable[[Term, Axis, Axis, Index, Index], Term]


def full(score: Term, i: Axis, t: Axis, s: Index, n: Index) -> Term:
    return score


def causal(score: Term, i: Axis, t: Axis, s: Index, n: Index) -> Term:
    return Where(compare("<=", t.position, i.position + n - s), score, NINF)


def window(score: Term, i: Axis, t: Axis, s: Index, n: Index) -> Term:
    last = i.position + n - s
    seen: Pred = compare("<=", t.position, last) & compare("<", last, t.position + 3)
    return Where(seen, score, NINF)


def soft_cap(score: Term, i: Axis, t: Axis, s: Index, n: Index) -> Term:
    capped = mul(apply("tanh", mul(score, const(1 / 1.3))), const(1.3))
    return causal(capped, i, t, s, n)


def alibi(score: Term, i: Axis, t: Axis, s: Index, n: Index) -> Term:
    return causal(apply("add", score, mul(IndexValue(t.position - i.position), const(-0.2))), i, t, s, n)


def bias(score: Term, i: Axis, t: Axis, s: Index, n: Index) -> Term:
    return apply("add", score, load("B", i, t))


def attention(mask: Mask = full, *, lse: bool = False, scale: float = 0.3) -> Operator:
    """Grouped heads as the axes (kv, group): O[kv * r + g, i, e]."""
    kv, r, s, t, d, e = dims("kv r s t d=4 e=3")
    k_, g_, i_, t_, d_, e_ = (axis(n, x) for n, x in zip("kgitde", (kv, r, s, t, d, e), strict=True))
    head = k_.position * r + g_.position
    score = mul(fold("sum", d_, mul(load("Q", head, i_, d_), load("K", k_, t_, d_))), const(scale))
    out, log_sum = softmax_times(mask(score, i_, t_, s, t), load("V", k_, t_, e_), t_)
    inputs = [
        Input("Q", "float16", (kv * r, s, d)),
        Input("K", "float16", (kv, t, d)),
        Input("V", "float16", (kv, t, e)),
    ]
    if mask is bias:
        inputs.append(Input("B", "float16", (s, t)))
    outputs = [Output("O", "float16", (kv * r, s, e), (head, i_.position, e_.position), out)]
    if lse:
        outputs.append(Output("L", "float32", (kv * r, s), (head, i_.position), log_sum))
    sizes = ({"kv": 2, "r": 3, "s": 5, "t": 7}, {"kv": 1, "r": 2, "s": 6, "t": 4}, {"kv": 2, "r": 1, "s": 1, "t": 5})
    return Operator(graph("attention", inputs, outputs), tuple({**x, "d": 4, "e": 3} for x in sizes))


def self_attention() -> Operator:
    """One tensor read under two axes: X[i] and X[j]."""
    s, d = dims("s d=4")
    i, j, d_, e_ = axis("i", s), axis("j", s), axis("d", d), axis("e", d)
    score = fold("sum", d_, mul(load("X", i, d_), load("X", j, d_)))
    out, _ = softmax_times(score, load("X", j, e_), j)
    made = graph(
        "self", [Input("X", "float32", (s, d))], [Output("O", "float32", (s, d), (i.position, e_.position), out)]
    )
    return Operator(made, ({"s": 5, "d": 4}, {"s": 7, "d": 4}))


def qk_norm_attention() -> Operator:
    """RMS norm over the head axis on queries and keys, causal, with log-sum-exp."""
    s, t, d, e = dims("s t d=5 e=3")
    i_, t_, d_, e_ = (axis(n, x) for n, x in zip("itde", (s, t, d, e), strict=True))

    def normed(x: Term, gain: str) -> Term:
        mean = mul(fold("sum", d_, apply("sq", x)), apply("recip", IndexValue(d)))
        return mul(mul(x, apply("rsqrt", apply("add", mean, const(0.1)))), load(gain, d_))

    score = fold("sum", d_, mul(normed(load("Q", i_, d_), "G"), normed(load("K", t_, d_), "H")))
    out, log_sum = softmax_times(causal(score, i_, t_, s, t), load("V", t_, e_), t_)
    inputs = [Input("Q", "float16", (s, d)), Input("K", "float16", (t, d)), Input("V", "float16", (t, e))]
    inputs += [Input("G", "float16", (d,)), Input("H", "float16", (d,))]
    outputs = [Output("O", "float16", (s, e), (i_.position, e_.position), out)]
    outputs.append(Output("L", "float32", (s,), (i_.position,), log_sum))
    return Operator(
        graph("qk_norm", inputs, outputs), ({"s": 4, "t": 7, "d": 5, "e": 3}, {"s": 6, "t": 2, "d": 5, "e": 3})
    )


# ---- ragged and paged


def _lengths(sizes: Mapping[str, int]) -> Array:
    return np.array([sizes["t"], 0, max(sizes["t"] - 3, 1)])[: sizes["b"]]


def paged_decode() -> Operator:
    """One query a request; keys in pages of two, a length for each request, heads in groups, log-sum-exp."""
    b, kv, r, n, m, t, d, e = dims("b kv r n m t d=3 e=2")
    b_, k_, g_ = axis("b", b), axis("kv", kv), axis("g", r)
    t_ = axis("t", read("kv_len", b_))
    d_, e_ = axis("d", d), axis("e", e)
    head = k_.position * r + g_.position
    page, two = read("pages", b_.position, t_.position // 2), index(2)

    def cached(name: str, last: Axis) -> Term:
        return load(name, page, t_.position % 2, k_, last)

    score = mul(fold("sum", d_, mul(load("Q", b_, head, d_), cached("K", d_))), const(0.5))
    out, log_sum = softmax_times(score, cached("V", e_), t_)
    inputs = [
        Input("Q", "float16", (b, kv * r, d)),
        Input("K", "float16", (n, two, kv, d)),
        Input("V", "float16", (n, two, kv, e)),
    ]
    inputs += [Input("kv_len", "int32", (b,)), Input("pages", "int32", (b, m)), Input("T", "float16", (t,))]
    outputs = [Output("O", "float16", (b, kv * r, e), (b_.position, head, e_.position), out)]
    outputs.append(Output("L", "float32", (b, kv * r), (b_.position, head), log_sum))
    tables = {
        "kv_len": _lengths,
        "pages": lambda x: np.arange(x["b"] * x["m"]).reshape(x["b"], x["m"])[:, ::-1] % x["n"],
    }
    sizes = {"b": 3, "kv": 2, "r": 2, "n": 12, "m": 4, "t": 7, "d": 3, "e": 2}
    return Operator(graph("decode", inputs, outputs), (sizes, {**sizes, "t": 5, "n": 11}), tables)


def ragged_prefill() -> Operator:
    """Rows of all requests packed one after another, both lengths ragged, causal from the bottom right."""
    b, n, m, d, e, t = dims("b n m d=3 e=2 t")
    b_ = axis("b", b)
    i_ = axis("i", read("q_ptr", b_.position + 1) - read("q_ptr", b_))
    t_ = axis("t", read("k_ptr", b_.position + 1) - read("k_ptr", b_))
    d_, e_ = axis("d", d), axis("e", e)
    row, key = read("q_ptr", b_) + i_.position, read("k_ptr", b_) + t_.position
    score = mul(fold("sum", d_, mul(load("Q", row, d_), load("K", key, d_))), const(0.4))
    masked = Where(compare("<=", t_.position, i_.position + t_.extent - i_.extent), score, NINF)
    out, log_sum = softmax_times(masked, load("V", key, e_), t_)
    inputs = [Input("Q", "float16", (n, d)), Input("K", "float16", (m, d)), Input("V", "float16", (m, e))]
    inputs += [Input("q_ptr", "int32", (b + 1,)), Input("k_ptr", "int32", (b + 1,)), Input("T", "float16", (t,))]
    outputs = [Output("O", "float16", (n, e), (row, e_.position), out), Output("L", "float32", (n,), (row,), log_sum)]
    tables = {"q_ptr": lambda x: np.array([0, 3, 5, 10]), "k_ptr": lambda x: np.array([0, 7, 7, 11])}
    return Operator(graph("prefill", inputs, outputs), ({"b": 3, "n": 10, "m": 11, "d": 3, "e": 2, "t": 7},), tables)


def latent_decode() -> Operator:
    """MLA decode: one cached tensor is K under axis r and V under axis e, the score is the sum of two contractions."""
    b, h, t, r, p = dims("b h t r=4 p=2")
    b_, h_, t_, r_, p_, e_ = (axis(n, x) for n, x in zip("bhtrpe", (b, h, t, r, p, r), strict=True))
    latent = fold("sum", r_, mul(load("Q", b_, h_, r_), load("C", b_, t_, r_)))
    rotary = fold("sum", p_, mul(load("P", b_, h_, p_), load("R", b_, t_, p_)))
    score = mul(apply("add", latent, rotary), const(0.5))
    out, _ = softmax_times(score, load("C", b_, t_, e_), t_)
    inputs = [Input("Q", "float16", (b, h, r)), Input("P", "float16", (b, h, p))]
    inputs += [Input("C", "float16", (b, t, r)), Input("R", "float16", (b, t, p))]
    outputs = [Output("O", "float16", (b, h, r), (b_.position, h_.position, e_.position), out)]
    return Operator(graph("latent", inputs, outputs), ({"b": 2, "h": 3, "t": 7, "r": 4, "p": 2},))


# ---- matmuls and norms


def matmul() -> Operator:
    m, n, k = dims("m n k")
    m_, n_, k_ = axis("m", m), axis("n", n), axis("k", k)
    out = fold("sum", k_, mul(load("A", m_, k_), load("B", k_, n_)))
    inputs = [Input("A", "float16", (m, k)), Input("B", "float16", (k, n))]
    made = graph("matmul", inputs, [Output("C", "float16", (m, n), (m_.position, n_.position), out)])
    return Operator(made, ({"m": 3, "n": 4, "k": 7}, {"m": 2, "n": 1, "k": 5}))


def rms_norm_matmul() -> Operator:
    """The row scale inside the contraction, as it is written."""
    m, n, k = dims("m n k")
    m_, n_, k_ = axis("m", m), axis("n", n), axis("k", k)
    x = load("X", m_, k_)
    mean = mul(fold("sum", k_, apply("sq", x)), apply("recip", IndexValue(k)))
    normed = mul(mul(x, apply("rsqrt", apply("add", mean, const(1e-2)))), load("G", k_))
    out = fold("sum", k_, mul(normed, load("W", k_, n_)))
    inputs = [Input("X", "float16", (m, k)), Input("G", "float16", (k,)), Input("W", "float16", (k, n))]
    made = graph("rms_norm_matmul", inputs, [Output("Y", "float16", (m, n), (m_.position, n_.position), out)])
    return Operator(made, ({"m": 3, "n": 4, "k": 7}, {"m": 2, "n": 6, "k": 5}))


def variance() -> Operator:
    """Two passes: no chunk can start before the mean of all chunks is known."""
    m, k = dims("m k")
    m_, k_ = axis("m", m), axis("k", k)
    x = load("X", m_, k_)
    mean = mul(apply("recip", IndexValue(k)), fold("sum", k_, x))
    out = fold("sum", k_, apply("sq", apply("sub", x, mean)))
    made = graph("variance", [Input("X", "float32", (m, k))], [Output("Y", "float32", (m,), (m_.position,), out)])
    return Operator(made, ({"m": 3, "k": 7},))


def swiglu() -> Operator:
    m, n, k = dims("m n k")
    m_, n_, k_ = axis("m", m), axis("n", n), axis("k", k)
    x = load("X", m_, k_)
    gate, up = (fold("sum", k_, mul(x, load(w, k_, n_))) for w in ("G", "U"))
    inputs = [Input("X", "float16", (m, k)), Input("G", "float16", (k, n)), Input("U", "float16", (k, n))]
    out = mul(apply("silu", gate), up)
    made = graph("swiglu", inputs, [Output("Y", "float16", (m, n), (m_.position, n_.position), out)])
    return Operator(made, ({"m": 3, "n": 4, "k": 7},))


def chain(length: int) -> Operator:
    """A product of several matrices, all dims different."""
    names = [f"n{i}" for i in range(length + 1)]
    extents = dims(" ".join(names))
    axes = [axis(n, x) for n, x in zip(names, extents, strict=True)]
    out: Term = load("M0", axes[0], axes[1])
    for i in range(1, length):
        out = fold("sum", axes[i], mul(out, load(f"M{i}", axes[i], axes[i + 1])))
    inputs = [Input(f"M{i}", "float32", (extents[i], extents[i + 1])) for i in range(length)]
    stored = (axes[0].position, axes[-1].position)
    made = graph("chain", inputs, [Output("P", "float32", (extents[0], extents[-1]), stored, out)])
    return Operator(made, ({n: 2 + i % 5 for i, n in enumerate(names)},))


def sum_of(count: int) -> Operator:
    """t0 + t1 + ... over one axis."""
    n, m = dims("n m")
    i, j = axis("i", n), axis("j", m)
    out: Term = load("T0", i, j)
    for number in range(1, count):
        out = apply("add", out, load(f"T{number}", i, j))
    inputs = [Input(f"T{number}", "float32", (n, m)) for number in range(count)]
    made = graph("sum", inputs, [Output("S", "float32", (n, m), (i.position, j.position), out)])
    return Operator(made, ({"n": 3, "m": 4},))


def cast_weights() -> Operator:
    """A cast that the user wrote on the weights: nothing may cross it."""
    s, t, e = dims("s t e=3")
    i, t_, e_ = axis("i", s), axis("t", t), axis("e", e)
    from cleave.ir.graph import Cast

    _, w, total = softmax_weights(load("S", i, t_), t_)
    weights = Cast("float16", mul(w, apply("recip0", total)))
    out = fold("sum", t_, mul(weights, load("V", t_, e_)))
    inputs = [Input("S", "float32", (s, t)), Input("V", "float16", (t, e))]
    made = graph("cast", inputs, [Output("O", "float16", (s, e), (i.position, e_.position), out)])
    return Operator(made, ({"s": 3, "t": 7, "e": 3},))


ATTENTION: Sequence[tuple[str, Callable[[], Operator]]] = (
    ("full", attention),
    ("causal", lambda: attention(causal)),
    ("causal lse", lambda: attention(causal, lse=True)),
    ("window", lambda: attention(window, lse=True)),
    ("soft cap", lambda: attention(soft_cap)),
    ("alibi", lambda: attention(alibi)),
    ("bias", lambda: attention(bias)),
    ("negative scale", lambda: attention(causal, scale=-0.7)),
    ("self", self_attention),
    ("latent", latent_decode),
    ("qk norm", qk_norm_attention),
    ("paged decode", paged_decode),
    ("ragged prefill", ragged_prefill),
)

OTHERS: Sequence[tuple[str, Callable[[], Operator]]] = (
    ("matmul", matmul),
    ("rms norm and matmul", rms_norm_matmul),
    ("variance", variance),
    ("swiglu", swiglu),
    ("chain", lambda: chain(3)),
    ("cast", cast_weights),
)

__all__ = ["ATTENTION", "OTHERS", "Const", "Operator", "alibi", "attention", "causal", "chain", "matmul", "window"]
