"""Expected forms: what the search must find, as graphs, one function an operator.

    expected_forms(operator, graph)  ->  {title: graphs}

Each form is written down by hand over the parts of the workload's own graph, with splits of symbolic count, and is
compared by identity (``identity.py``). Where a title has several graphs, any of them will do; a workload is found when
all of its titles are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import reduce

from cleave.candidate import Split
from cleave.ir.axis import Axis, SplitAxis, split_axis
from cleave.ir.dim import dim
from cleave.ir.graph import Graph, Load, Map, Reduce, Term, apply, const, fold, graph, reductions, substitute_axes, walk
from cleave.ir.graph import replace as replace_terms
from cleave.ir.index import compare

Form = tuple[Graph, ...]
Forms = dict[str, Form]
AS_WRITTEN = "as written"


@dataclass(frozen=True)
class Source:
    """A graph of one output, with words for its parts."""

    graph: Graph

    def load(self, name: str) -> Load:
        """The only place that reads an input."""
        (found,) = (t for t in walk(*self.graph.terms) if isinstance(t, Load) and t.input == name)
        return found

    def axis(self, name: str) -> Axis:
        (found,) = (a for a in self.graph.axes if a.name == name)
        return found

    def pieces(self, name: str) -> SplitAxis:
        """An axis split into S chunks of C, S * C >= its extent."""
        a = self.axis(name)
        return split_axis(Axis(a.name, a.extent), dim(f"S_{name}", minimum=1), dim(f"C_{name}", minimum=1))

    def only(self, op: str, axis: str) -> Reduce:
        """The only reduction with a monoid over an axis."""
        (found,) = (r for r in reductions(*self.graph.terms) if r.op == op and r.axis.name == axis)
        return found

    def form(self, term: Term, *splits: SplitAxis) -> Form:
        """The graph with another term in the place of its output's."""
        (output,) = self.graph.outputs
        room = [compare("<=", s.base.extent, s.outer.extent * s.chunk) for s in splits]
        outputs = [replace(output, term=term)]
        return (graph(self.graph.name, self.graph.inputs, outputs, [*self.graph.constraints, *room]),)

    def node(self, op: str) -> Map:
        """The only pointwise operation of a kind."""
        (found,) = (t for t in walk(*self.graph.terms) if isinstance(t, Map) and t.op == op)
        return found


def mul(*factors: Term) -> Term:
    return reduce(lambda a, b: apply("mul", a, b), factors)


def total(axis: Axis, body: Term) -> Term:
    return fold("sum", axis, body)


def greatest(axis: Axis, body: Term) -> Term:
    return fold("max", axis, body)


def quotient(a: Term, b: Term) -> Term:
    return mul(a, apply("recip0", b))


def in_chunks(term: Term, *splits: SplitAxis) -> Term:
    """The term at position o * C + i of each split axis."""
    return substitute_axes(term, {s.base: s.position for s in splits})


def chunked_sum(split: SplitAxis, body: Term) -> Term:
    """sum over chunks of the sum within a chunk."""
    return total(split.outer, total(split.inner, in_chunks(body, split)))


# ---- softmax(scores) values


def weighted(scores: Term, t: Axis, values: Term) -> Term:
    """The division behind the second product: sum_t(p v) / sum_t p, p = exp(scores − max_t scores)."""
    p = apply("exp_diff", scores, greatest(t, scores))
    return quotient(total(t, mul(p, values)), total(t, p))


def weighted_in_chunks(scores: Term, split: SplitAxis, values: Term) -> Term:
    """Flash-decoding: maximum, sum and product within a chunk, rescaled to the maximum of all and added up."""
    scores, values = in_chunks(scores, split), in_chunks(values, split)
    best = greatest(split.inner, scores)
    p, rescale = apply("exp_diff", scores, best), apply("exp_diff", best, greatest(split.outer, best))

    def joined(body: Term) -> Term:
        return total(split.outer, mul(rescale, total(split.inner, body)))

    return quotient(joined(mul(p, values)), joined(p))


def softmax_product(s: Source, axis: str, values: Term, *scores: Term) -> Forms:
    """softmax(scores) values; ``scores`` as the graph has them unless given."""
    scores, split = scores or (s.only("max", axis).body,), s.pieces(axis)
    behind = [s.form(weighted(x, s.axis(axis), values)) for x in scores]
    chunked = [s.form(weighted_in_chunks(x, split, values), split) for x in scores]
    return {"division behind": sum(behind, ()), f"split {axis}": sum(chunked, ())}


def attention(s: Source) -> Forms:
    return softmax_product(s, "t", s.load("v"))


def mla_decode(s: Source) -> Forms:
    """The latent cache is keys and values."""
    return softmax_product(s, "t", s.load("kv"))


def softmax_matmul(s: Source) -> Forms:
    return softmax_product(s, "k", s.load("w"))


def paper_attention(s: Source) -> Forms:
    """Nothing is subtracted from the scores, so that chunks are added up as they are."""
    p, v, t, split = s.node("exp"), s.load("v"), s.axis("t"), s.pieces("t")
    chunked = quotient(chunked_sum(split, mul(p, v)), chunked_sum(split, p))
    return {
        "division behind": s.form(quotient(total(t, mul(p, v)), total(t, p))),
        "split t": s.form(chunked, split),
    }


def qkv_attention(s: Source) -> Forms:
    """Queries, keys and values are made once, as written; or, with few queries, only the queries are made."""
    wv, y, m, d = s.load("wv"), s.load("y"), s.axis("m"), s.axis("d")
    scores = s.only("max", "t").body
    (values,) = (r for r in reductions(*s.graph.terms) if isinstance(r.body, Map) and wv in r.body.args)
    assert isinstance(scores, Map)
    scale = next(c for c in scores.args if not isinstance(c, Reduce))
    query = total(m, mul(s.load("x"), s.load("wq")))
    absorbed = mul(total(m, mul(total(d, mul(query, s.load("wk"))), y)), scale)
    made, latent = softmax_product(s, "t", values), projected_behind(s, absorbed, y, m, wv)
    return {title: graphs + latent[title] for title, graphs in made.items()}


def qk_norm_attention(s: Source) -> Forms:
    """The norm of a key scales it, or its scores."""
    scores = s.only("max", "t").body
    (product,) = (r for r in reductions(scores) if r.axis.name == "d" and len(reductions(r)) > 1)
    assert isinstance(product.body, Map)
    query, key = product.body.args
    (norm,) = (t for t in walk(key) if isinstance(t, Map) and t.op == "rsqrt")
    behind = mul(norm, total(s.axis("d"), mul(query, mul(s.load("k"), s.load("gain_k")))))
    return softmax_product(s, "t", s.load("v"), scores, replace_terms(scores, {product: behind}))


def mla_projected(s: Source) -> Forms:
    """Absorbed: neither keys nor values are made; the output is projected."""
    q, wk, kv, wv = (s.load(name) for name in ("q", "wk", "kv", "wv"))
    d, r, p = (s.axis(name) for name in ("d", "r", "p"))
    scale = next(c for c in s.only("max", "t").body.args if not isinstance(c, Map))  # type: ignore[union-attr]
    latent = total(r, mul(total(d, mul(q, wk)), kv))
    rotated = total(p, mul(s.load("q_pe"), s.load("k_pe")))
    found = projected_behind(s, mul(apply("add", latent, rotated), scale), kv, r, wv)
    return {"absorbed": found["division behind"], "split t": found["split t"]}


def projected_behind(s: Source, scores: Term, y: Term, m: Axis, wv: Term) -> Forms:
    """softmax(scores) y wv with sums of y, projected at the end: values are never made."""
    t, split = s.axis("t"), s.pieces("t")
    weights = apply("exp_diff", scores, greatest(t, scores))
    out = total(m, mul(total(t, mul(weights, y)), wv))
    cut, latents = in_chunks(scores, split), in_chunks(y, split)
    best = greatest(split.inner, cut)
    chunk_weights, rescale = apply("exp_diff", cut, best), apply("exp_diff", best, greatest(split.outer, best))
    joined = [
        total(split.outer, mul(rescale, total(split.inner, body)))
        for body in (mul(chunk_weights, latents), chunk_weights)
    ]
    return {
        "division behind": s.form(quotient(out, total(t, weights))),
        "split t": s.form(quotient(total(m, mul(joined[0], wv)), joined[1]), split),
    }


# ---- products


def matmul(s: Source) -> Forms:
    split = s.pieces("k")
    return {"split k": s.form(chunked_sum(split, mul(s.load("a"), s.load("b"))), split)}


def matmul_matmul(s: Source) -> Forms:
    """In either order of the products; (q k') v is what is left where reassociation is off."""
    q, k, v = (s.load(name) for name in "qkv")
    d, t, split = s.axis("d"), s.axis("t"), s.pieces("t")
    return {
        "q (k' v)": s.form(total(d, mul(q, total(t, mul(k, v))))),
        "split t": s.form(total(d, mul(q, chunked_sum(split, mul(k, v)))), split)
        + s.form(chunked_sum(split, mul(total(d, mul(q, k)), v)), split),
    }


def matmul_rowsum(s: Source) -> Forms:
    return {"x rowsum(w)": s.form(total(s.axis("k"), mul(s.load("x"), total(s.axis("n"), s.load("w")))))}


def swiglu(s: Source) -> Forms:
    split, x = s.pieces("k"), s.load("x")
    gate, up = (chunked_sum(split, mul(x, s.load(w))) for w in ("w1", "w2"))
    return {AS_WRITTEN: (s.graph,), "split k": s.form(mul(apply("silu", gate), up), split)}


def rmsnorm_matmul(s: Source) -> Forms:
    """The row scale behind the product, the gain in the weight."""
    k, x = s.axis("k"), s.load("x")
    return {"scale behind": s.form(mul(s.node("rsqrt"), total(k, mul(x, mul(s.load("gain"), s.load("w"))))))}


def layernorm_linear(s: Source) -> Forms:
    """(x − mean) w' / σ + shift w + bias, w' = gain · w."""
    k, w, centred = s.axis("k"), s.load("w"), s.node("sub")
    product = mul(s.node("rsqrt"), total(k, mul(centred, mul(s.load("gain"), w))))
    shifted = apply("add", product, total(k, mul(s.load("shift"), w)))
    return {"scale behind": s.form(apply("add", shifted, s.load("bias")))}


def layernorm_in_one_pass(s: Source) -> Forms:
    """(x w' − mean · sum_k w') / σ + shift w + bias, σ from sum_k x and sum_k x²: both differences may cancel."""
    split, x, w = s.pieces("k"), s.load("x"), s.load("w")
    folded, one_over = mul(s.load("gain"), w), s.node("recip")
    (centred,) = (r for r in reductions(*s.graph.terms) if isinstance(r.body, Map) and r.body.op == "sq")
    first = chunked_sum(split, x)
    mean = mul(first, one_over)
    rest = apply("add", mul(first, mean, const(-2.0)), mul(apply("sq", mean), one_over.args[0]))
    squares = apply("add", chunked_sum(split, apply("sq", x)), rest)
    scale = replace_terms(s.node("rsqrt"), {centred: squares})
    product = apply("sub", chunked_sum(split, mul(x, folded)), mul(mean, chunked_sum(split, folded)))
    shifted = apply("add", mul(scale, product), chunked_sum(split, mul(s.load("shift"), w)))
    return {"one pass, split k": s.form(apply("add", shifted, s.load("bias")), split)}


def lora(s: Source) -> Forms:
    """Merged for any number of rows: weights are merged once, not in each call."""
    k, r = s.axis("k"), s.axis("r")
    merged = apply("add", s.load("w"), total(r, mul(s.load("a"), s.load("b"))))
    return {"merged weight": s.form(total(k, mul(s.load("x"), merged)))}


def linear_attention(s: Source) -> Forms:
    """Numerator and normaliser by way of d: q (k' v) / q (sum_t k)."""
    (scores,) = (r for r in reductions(*s.graph.terms) if r.axis.name == "d")
    assert isinstance(scores.body, Map)
    q, k = scores.body.args
    d, t = s.axis("d"), s.axis("t")
    numerator = total(d, mul(q, total(t, mul(k, s.load("v")))))
    return {"q (k' v)": s.form(quotient(numerator, total(d, mul(q, total(t, k)))))}


def quantised_matmul(s: Source) -> Forms:
    """Scales of token and column behind the product of what is rounded."""
    rounded = s.node("round")
    (token,) = (t for t in walk(*s.graph.terms) if isinstance(t, Map) and rounded in t.args)
    product = total(s.axis("k"), mul(rounded, s.load("w")))
    token_scale = next(a for a in token.args if a is not rounded)
    scale = s.load("scale")
    one, other = mul(mul(token_scale, product), scale), mul(token_scale, mul(product, scale))
    return {"scales behind": s.form(one) + s.form(other)}


def as_written(s: Source) -> Forms:
    """Nothing better is known than the graph itself: what is left is to share its loops."""
    return {AS_WRITTEN: (s.graph,)}


EXPECTED: Mapping[str, Callable[[Source], Forms]] = {
    **dict.fromkeys(("mha", "gqa", "mqa", "mla", "attention", "rope_attention"), attention),
    "paper_attention": paper_attention,
    "qk_norm_attention": qk_norm_attention,
    "mla_decode": mla_decode,
    "mla_projected": mla_projected,
    "qkv_attention": qkv_attention,
    "softmax_matmul": softmax_matmul,
    "softmax": as_written,
    "matmul": matmul,
    "matmul_matmul": matmul_matmul,
    "matmul_rowsum": matmul_rowsum,
    "swiglu": swiglu,
    "rmsnorm_matmul": rmsnorm_matmul,
    "layernorm_linear": layernorm_linear,
    "norm_residual_norm": as_written,
    "residual_rmsnorm": as_written,
    "lora": lora,
    "linear_attention": linear_attention,
    "quantised_matmul": quantised_matmul,
    "moe_routing": as_written,
}
"""By operator. Whole layers have none: they are too large to be written down."""

UNSAFE: Mapping[str, Callable[[Source], Forms]] = {"layernorm_linear": layernorm_in_one_pass}
"""Forms that rules of class numerically-unsafe lead to, where they are on."""


def matmul_matmul_in_order(s: Source) -> Forms:
    """The paper's form: the scores stay where they are."""
    q, k, v = (s.load(name) for name in "qkv")
    split = s.pieces("t")
    return {"split t": s.form(chunked_sum(split, mul(total(s.axis("d"), mul(q, k)), v)), split)}


def matmul_rowsum_in_order(s: Source) -> Forms:
    """The row sum in the loop of the product, and that loop in chunks."""
    split = s.pieces("n")
    product = total(s.axis("k"), mul(s.load("x"), s.load("w")))
    return {AS_WRITTEN: (s.graph,), "split n": s.form(chunked_sum(split, product), split)}


IN_ORDER: Mapping[str, Callable[[Source], Forms]] = {
    "matmul_matmul_in_order": matmul_matmul_in_order,
    "matmul_rowsum_in_order": matmul_rowsum_in_order,
}
"""Where reassociation is off."""


def expected_forms(operator: str, g: Graph) -> Forms:
    """The forms of an operator, over one of its graphs; none for a whole layer."""
    known = {**EXPECTED, **IN_ORDER}
    return known[operator](Source(g)) if operator in known else {}


def splits_of(g: Graph) -> tuple[Split, ...]:
    """The splits of a form, read off the names that ``Source.pieces`` gives."""
    pieces = {a.name: a for a in g.axes if a.kind != "plain"}
    bases = sorted(name.removesuffix("_o") for name, a in pieces.items() if a.kind == "outer")
    return tuple(Split(b, pieces[f"{b}_o"], pieces[f"{b}_i"], f"S_{b}", f"C_{b}") for b in bases)
