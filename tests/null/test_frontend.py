"""Tracing: values against NumPy, graphs as expected, and errors as part of the interface."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import cleave
from cleave import ops
from cleave.errors import ShapeError
from cleave.ir.graph import Cast, IndexValue, Load, reductions, walk
from cleave.ir.interp import interpret
from cleave.ir.text import parse_graph

Array = NDArray[Any]
Program = Callable[..., Any]


def run(fn: Program, arrays: dict[str, Array], dims: dict[str, int] | None = None, **specs: Any) -> Array:
    """The one output of a traced function on some arrays."""
    options = {"dtype": "float32", **specs}
    g = cleave.trace(fn, **options)
    assert parse_graph(g.text()) == g
    return interpret(g, arrays, dims)["out"]


def normal(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape)


# ---- the example of the documentation


def attention(q: Any, k: Any, v: Any) -> Any:
    p = ops.softmax(ops.einsum("hsd,htd->hst", q, k) * 0.125, axis="t")
    return ops.einsum("hst,hte->hse", p, v)


def test_attention(rng: np.random.Generator) -> None:
    g = cleave.trace(attention, q="h s d=64", k="h t d", v="h t e=64", dtype="float16")
    assert g.name == "attention"
    assert [(i.name, i.dtype, len(i.shape)) for i in g.inputs] == [
        ("q", "float16", 3),
        ("k", "float16", 3),
        ("v", "float16", 3),
    ]
    assert {s.name: s.value for s in g.symbols} == {"h": None, "s": None, "t": None, "d": 64, "e": 64}
    assert [r.op for r in reductions(*g.terms)] == ["sum", "max", "sum", "sum"]
    q, k, v = normal(rng, 2, 3, 64), normal(rng, 2, 5, 64), normal(rng, 2, 5, 64)
    scores = np.einsum("hsd,htd->hst", q, k) * 0.125
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    expected = np.einsum("hst,hte->hse", weights / weights.sum(-1, keepdims=True), v)
    np.testing.assert_allclose(interpret(g, {"q": q, "k": k, "v": v})["out"], expected, rtol=1e-10)


def test_names_of_axes_do_not_change_the_graph() -> None:
    def other(q: Any, k: Any, v: Any) -> Any:
        p = ops.softmax(ops.einsum("xyz,xwz->xyw", q, k) * 0.125)
        return ops.einsum("abc,acd->abd", p, v)

    first = cleave.trace(attention, q="h s d=64", k="h t d", v="h t e=64")
    second = cleave.trace(other, name="attention", q="h s d=64", k="h t d", v="h t e=64")
    assert first == second


# ---- einsum and matmul


EINSUMS = [
    ("ij,jk->ik", ["a b", "b c"]),
    ("ij,jk", ["a b", "b c"]),
    ("ba,cb", ["a b", "c a"]),
    ("ij->ji", ["a b"]),
    ("ij->", ["a b"]),
    ("ij", ["b a"]),
    ("ii->i", ["a a2=a"]),
    ("ii", ["a a2=a"]),
    ("ij,ij->ij", ["a b", "a b"]),
    ("i,j->ij", ["a", "b"]),
    ("i,i->", ["a", "a"]),
    ("...ij,...jk->...ik", ["c a b", "c b a"]),
    ("...ij,...jk->...ik", ["c a b", "b a"]),
    ("...ij,...j->...i", ["a b c", "c"]),
    ("...i", ["a b"]),
    ("obk,ijk->ioj", ["a b c", "a b c"]),
    ("ijk,ilm,njm,nlk,abc->", ["a b c"] * 5),
    ("i j, j k -> i k", ["a b", "b c"]),
    ("row inner, inner column -> column row", ["a b", "b c"]),
]
SIZES = {"a": 2, "b": 3, "c": 4}


@pytest.mark.parametrize(("subscripts", "specs"), EINSUMS)
def test_einsum_is_that_of_numpy(subscripts: str, specs: list[str], rng: np.random.Generator) -> None:
    def einsum(**operands: Any) -> Any:
        return ops.einsum(subscripts, *operands.values())

    shapes = [[SIZES[w.partition("=")[2] or w] for w in spec.split()] for spec in specs]
    arrays = {f"x{n}": normal(rng, *shape) for n, shape in enumerate(shapes)}
    plain = subscripts
    for number, word in enumerate(("row", "inner", "column")):
        plain = plain.replace(word, "xyz"[number])
    expected = np.einsum(plain, *arrays.values())
    got = run(einsum, arrays, **{f"x{n}": spec for n, spec in enumerate(specs)})
    np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-12)


@st.composite
def subscripts(draw: st.DrawFn) -> str:
    """Up to three operands over four letters, some of them twice in one; any order of any of the letters comes out."""
    operands = draw(st.lists(st.text("abcd", min_size=0, max_size=3), min_size=1, max_size=3))
    letters = sorted(set("".join(operands)))
    implicit = draw(st.booleans())
    if implicit:
        return ",".join(operands)
    out = draw(st.permutations(letters))[: draw(st.integers(0, len(letters)))]
    return f"{','.join(operands)}->{''.join(out)}"


@given(subscripts(), st.integers(0, 2**16))
def test_any_einsum_is_that_of_numpy(text: str, seed: int) -> None:
    operands = text.split("->")[0].split(",")
    sizes = {"a": 2, "b": 3, "c": 4, "d": 1}
    rng = np.random.default_rng(seed)
    arrays = {f"x{n}": normal(rng, *(sizes[c] for c in letters)) for n, letters in enumerate(operands)}
    # A letter twice in one operand needs two axes of one extent; what they are called does not matter.
    specs = {f"x{n}": " ".join(f"p{k}=n_{c}" for k, c in enumerate(letters)) for n, letters in enumerate(operands)}
    specs = {n: spec.replace("p", f"{n}_") for n, spec in specs.items()}
    got = run(lambda **xs: ops.einsum(text, *xs.values()), arrays, **specs)
    np.testing.assert_allclose(got, np.einsum(text, *arrays.values()), rtol=1e-9, atol=1e-12)


def test_what_is_written_names_the_axes() -> None:
    seen: list[tuple[str, ...]] = []

    def names(q: Any, k: Any) -> Any:
        scores = ops.einsum("xyz,xwz->xyw", q, k)
        seen.extend([scores.axes, ops.einsum("...d,hd", q, q[0]).axes, (q @ k[0].T).axes, q.T.axes])
        return scores

    cleave.trace(names, q="h s d", k="h t d")
    assert seen == [("x", "y", "w"), ("h", "s", "h1")] or seen[0] == ("x", "y", "w")
    assert seen[2:] == [("h", "s", "t"), ("d", "s", "h")]


MATMULS = [
    ("m k", "k n"),
    ("b m k", "k n"),
    ("b m k", "b k n"),
    ("m k", "b k n"),
    ("k", "k n"),
    ("m k", "k"),
    ("k", "k"),
]


@pytest.mark.parametrize(("left", "right"), MATMULS)
def test_matmul_is_that_of_numpy(left: str, right: str, rng: np.random.Generator) -> None:
    sizes = {"b": 2, "m": 3, "k": 4, "n": 5}
    x, y = (normal(rng, *(sizes[w] for w in spec.split())) for spec in (left, right))
    np.testing.assert_allclose(run(lambda x, y: x @ y, {"x": x, "y": y}, x=left, y=right), x @ y, rtol=1e-12)


# ---- elementwise


ELEMENTWISE: list[Program] = [
    lambda x, y: x + y,
    lambda x, y: x - y * 2,
    lambda x, y: 1 - x / y,
    lambda x, y: x / 4 + 3 / y,
    lambda x, y: -x * +y,
    lambda x, y: x**2 + y**-1 + abs(y) ** 0.5 + abs(y) ** -0.5 + x**1 + x**4 + y**-2,
]


@pytest.mark.parametrize("fn", ELEMENTWISE)
def test_arithmetic(fn: Program, rng: np.random.Generator) -> None:
    x, y = normal(rng, 3, 4), normal(rng, 4)
    np.testing.assert_allclose(run(fn, {"x": x, "y": y}, x="m n", y="n"), fn(x, y), rtol=1e-12)


FUNCTIONS: list[tuple[Program, Program]] = [
    (lambda x: ops.exp(x) + ops.log(ops.abs(x)), lambda x: np.exp(x) + np.log(np.abs(x))),
    (lambda x: ops.sqrt(ops.square(x)) + ops.tanh(x), lambda x: np.abs(x) + np.tanh(x)),
    (lambda x: ops.rsqrt(ops.exp(x)) + ops.reciprocal(x), lambda x: np.exp(-x / 2) + 1 / x),
    (lambda x: ops.sigmoid(x) * ops.silu(x), lambda x: x / (1 + np.exp(-x)) ** 2),
    (lambda x: ops.maximum(x, 0) - ops.minimum(x, 0.5), lambda x: np.maximum(x, 0) - np.minimum(x, 0.5)),
    (lambda x: ops.sum(x, "n") - ops.max(x, 1) * ops.min(x, -1), lambda x: x.sum(1) - x.max(1) * x.min(1)),
    (lambda x: ops.mean(x, ("m", "n")), lambda x: x.mean()),
    (lambda x: x.mean() + x.sum() + x.max() + x.min(), lambda x: x.mean() + x.sum() + x.max() + x.min()),
    (lambda x: x / x.sum(axis="m", keepdims=True), lambda x: x / x.sum(axis=0, keepdims=True)),
    (lambda x: x / x.sum(axis="n"), lambda x: x / x.sum(axis=1)[:, None]),
    (lambda x: ops.logsumexp(x, "n"), lambda x: np.log(np.exp(x).sum(1))),
    (lambda x: ops.logsumexp(x, keepdims=True), lambda x: np.log(np.exp(x).sum(keepdims=True))),
    (lambda x: ops.softmax(x, axis="m"), lambda x: np.exp(x) / np.exp(x).sum(0)),
    (lambda x: ops.softmax(x, axis=(0, 1)), lambda x: np.exp(x) / np.exp(x).sum()),
    (lambda x: ops.sum(x, ()), lambda x: x),
]


@pytest.mark.parametrize(("traced", "expected"), FUNCTIONS)
def test_functions(traced: Program, expected: Program, rng: np.random.Generator) -> None:
    x = normal(rng, 3, 4)
    np.testing.assert_allclose(run(traced, {"x": x}, x="m n"), expected(x), rtol=1e-9)


BROADCASTS = [
    ("m n", "n", lambda x, y: x + y),
    ("m n", "m", lambda x, y: x + y[:, None]),
    ("m n", "n m", lambda x, y: x + y.T),
    ("m n", "1 n", lambda x, y: x + y),
    ("m n", "m 1", lambda x, y: x + y),
    ("m 1", "1 n", lambda x, y: x + y),
    ("m n", "1", lambda x, y: x + y),
    ("1 1", "n", lambda x, y: x + y),
    ("m n", "", lambda x, y: x + y),
    ("3 4", "4", lambda x, y: x + y),
    ("b m n", "m b", lambda x, y: x + y.T[:, :, None]),
]


@pytest.mark.parametrize(("left", "right", "expected"), BROADCASTS)
def test_broadcasting(left: str, right: str, expected: Program, rng: np.random.Generator) -> None:
    sizes = {"b": 2, "m": 3, "n": 4}
    x, y = (normal(rng, *(sizes.get(w) or int(w) for w in spec.split())) for spec in (left, right))
    got = run(lambda x, y: x + y, {"x": x, "y": y}, x=left, y=right)
    np.testing.assert_allclose(got, expected(x, y), rtol=1e-12)


def test_new_axes_make_an_outer_sum(rng: np.random.Generator) -> None:
    x, y = normal(rng, 3), normal(rng, 4)
    np.testing.assert_allclose(
        run(lambda x, y: x[:, None] + y, {"x": x, "y": y}, x="m", y="n"), x[:, None] + y, rtol=1e-12
    )


# ---- positions and masks


def test_causal_mask_is_aligned_at_the_last_query(rng: np.random.Generator) -> None:
    x = normal(rng, 3, 7)
    got = run(lambda x: ops.where(ops.causal(x), x, 0.0), {"x": x}, x="s t")
    np.testing.assert_array_equal(got, np.tril(x, 7 - 3))


def test_masks_from_positions_integers_and_booleans(rng: np.random.Generator) -> None:
    def fn(x: Any, keep: Any, lengths: Any) -> Any:
        i, j = ops.position("b"), ops.position("t")
        seen = (j < lengths) & ~(j == i) & keep | (j != 2) & (i * 2 >= j + 1)
        return ops.where(seen, x, -1.0)

    x, keep, lengths = normal(rng, 3, 5), rng.random((3, 5)) < 0.5, np.array([5, 0, 2])
    i, j = np.arange(3)[:, None], np.arange(5)
    seen = (j < lengths[:, None]) & ~(j == i) & keep | (j != 2) & (i * 2 >= j + 1)
    got = run(fn, {"x": x, "keep": keep, "lengths": lengths}, x="b t", keep="bool[b t]", lengths="int32[b]")
    np.testing.assert_array_equal(got, np.where(seen, x, -1.0))


def test_positions_as_numbers(rng: np.random.Generator) -> None:
    x = normal(rng, 3, 5)
    got = run(lambda x: x + (ops.position("s") - ops.position("t")) * 0.5, {"x": x}, x="s t")
    np.testing.assert_allclose(got, x + (np.arange(3)[:, None] - np.arange(5)) * 0.5)


def test_a_mask_as_a_number(rng: np.random.Generator) -> None:
    x = normal(rng, 3, 3)
    np.testing.assert_allclose(run(lambda x: x * ops.causal(x), {"x": x}, x="s t"), np.tril(x))


def test_self_attention_takes_positions_of_its_own_axis(rng: np.random.Generator) -> None:
    def fn(x: Any) -> Any:
        scores = ops.einsum("sd,td->st", x, x)
        return ops.where(scores.position("t") <= scores.position("s"), scores, 0)

    x = normal(rng, 4, 3)
    np.testing.assert_allclose(run(fn, {"x": x}, x="s d"), np.tril(x @ x.T))


def test_dims_are_numbers(rng: np.random.Generator) -> None:
    def fn(x: Any) -> Any:
        d = x.shape[-1]
        return x * ops.rsqrt(d) + ops.value(d * 2 + 1) + (d + ops.position("d"))

    x = normal(rng, 2, 9)
    expected = x / 3 + 19 + 9 + np.arange(9)
    np.testing.assert_allclose(run(fn, {"x": x}, x="n d"), expected)
    g = cleave.trace(fn, x="n d=9")
    assert not any(isinstance(t, IndexValue) and not t.index.atoms() for t in walk(*g.terms))


# ---- views


VIEWS: list[Program] = [
    lambda x: x[1],
    lambda x: x[-1, 2],
    lambda x: x[:, 1:3],
    lambda x: x[1:, :-1],
    lambda x: x[..., ::2],
    lambda x: x[:, None, -2:],
    lambda x: x[2:1],
    lambda x: x[5:9],
    lambda x: x.T,
    lambda x: x.transpose(1, 0),
    lambda x: x.transpose(),
    lambda x: x[0, ...],
]


@pytest.mark.parametrize("spec", ["m n", "m=4 n=6"])
@pytest.mark.parametrize("view", VIEWS)
def test_views_are_those_of_numpy(view: Program, spec: str, rng: np.random.Generator) -> None:
    x = normal(rng, 4, 6)
    np.testing.assert_array_equal(run(view, {"x": x}, x=spec), view(x))


def test_views_of_computed_tensors(rng: np.random.Generator) -> None:
    """The halves of a row after a reduction: an index expression in the place of an axis, down to the loads."""

    def fn(x: Any) -> Any:
        y = x / x.sum(axis="n", keepdims=True)
        return y[:, 3:] * y[:, :3]

    x = normal(rng, 4, 6)
    y = x / x.sum(1, keepdims=True)
    np.testing.assert_allclose(run(fn, {"x": x}, x="m n=6"), y[:, 3:] * y[:, :3], rtol=1e-10)


def test_reshape(rng: np.random.Generator) -> None:
    x = normal(rng, 3, 2, 4)
    for shape in ((1, 24), (4, 6), (24,), (3, 8), (2, 3, 4)):
        np.testing.assert_array_equal(run(lambda x, s=shape: x.reshape(*s), {"x": x}, x="3 2 4"), x.reshape(shape))
    got = run(lambda x: x.reshape("a=6 b=4").sum("a"), {"x": x}, x="3 2 4")
    np.testing.assert_allclose(got, x.reshape(6, 4).sum(0))


def test_reshape_of_symbolic_extents(rng: np.random.Generator) -> None:
    x = normal(rng, 3, 8)
    got = run(lambda x: x.reshape(x.shape[0], 2, 4).max(1), {"x": x}, x="m n=8")
    np.testing.assert_array_equal(got, x.reshape(3, 2, 4).max(1))


def test_a_reshape_within_fixed_extents_is_affine() -> None:
    text = cleave.trace(lambda x: x.reshape("2 4 m"), x="8 m").text()
    assert "//" not in text
    assert "%" not in text


def test_pages_are_found_through_a_table(rng: np.random.Generator) -> None:
    def fn(q: Any, pages: Any, table: Any, lengths: Any) -> Any:
        b, t = ops.position("b"), ops.arange(table.shape[1] * 4, "t")
        k = pages[table[b, t // 4], t % 4]
        scores = ops.einsum("bd,btd->bt", q, k)
        return ops.logsumexp(ops.where(t < lengths, scores, -np.inf), "t")

    q, pages = normal(rng, 2, 5), normal(rng, 6, 4, 5)
    table, lengths = rng.integers(0, 6, (2, 3)), np.array([9, 3])
    specs = {"q": "b d", "pages": "pool page=4 d", "table": "int32[b p]", "lengths": "int32[b]"}
    arrays = {"q": q, "pages": pages, "table": table, "lengths": lengths}
    k = pages[table].reshape(2, 12, 5)
    expected = [np.log(np.exp(k[b, :n] @ q[b]).sum()) for b, n in enumerate(lengths)]
    np.testing.assert_allclose(run(fn, arrays, **specs), expected, rtol=1e-10)


def test_rows_of_requests_are_read_and_stored_where_they_begin(rng: np.random.Generator) -> None:
    def fn(x: Any, starts: Any) -> Any:
        b = ops.arange(starts.shape[0] - 1, "b")
        rows = starts[b] + ops.arange(starts[b + 1] - starts[b], "i")
        mine = x[rows]
        return {"out": ops.place(mine / ops.sum(mine, "i", keepdims=True), row=rows)}

    x, starts = normal(rng, 6, 2), np.array([0, 2, 2, 5])
    g = cleave.trace(fn, x="row d", starts="int32[b1]", outputs={"out": "row d"})
    expected = np.concatenate([x[:2] / x[:2].sum(0), x[2:5] / x[2:5].sum(0), np.full((1, 2), np.nan)])
    np.testing.assert_allclose(interpret(g, {"x": x, "starts": starts})["out"], expected)


def test_arange(rng: np.random.Generator) -> None:
    x = normal(rng, 3)
    got = run(lambda x: x[:, None] * ops.arange(4, "t") + ops.arange(x.shape[0])[:, None], {"x": x}, x="n")
    np.testing.assert_allclose(got, x[:, None] * np.arange(4) + np.arange(3)[:, None])


def test_rename(rng: np.random.Generator) -> None:
    x = normal(rng, 3, 3)
    got = run(lambda x: x + x.rename(a="b", b="a"), {"x": x}, x="a b=a")
    np.testing.assert_allclose(got, x + x.T)


# ---- specifications of inputs and outputs


def test_heads_as_two_axes_of_one_dimension(rng: np.random.Generator) -> None:
    def fn(q: Any, k: Any) -> Any:
        return ops.einsum("kv group d, kv d -> kv group", q, k)

    q, k = normal(rng, 6, 4), normal(rng, 2, 4)
    got = run(fn, {"q": q, "k": k}, {"group": 3}, q="(kv group) d", k="kv d", outputs="(kv group)")
    np.testing.assert_allclose(got, np.einsum("kgd,kd->kg", q.reshape(2, 3, 4), k).reshape(6), rtol=1e-12)


def test_outputs_are_stored_as_told(rng: np.random.Generator) -> None:
    x = normal(rng, 3, 4)
    g = cleave.trace(lambda x: x * 2, x="m n", outputs="float32[n m]")
    assert g.outputs[0].dtype == "float32"
    np.testing.assert_allclose(interpret(g, {"x": x})["out"], 2 * x.T)
    g = cleave.trace(lambda x: x * 2, x="m n", outputs="1 n 1 m")
    np.testing.assert_allclose(interpret(g, {"x": x})["out"], 2 * x.T[None, :, None])


def test_tuples_of_dims() -> None:
    b, t = cleave.dims("b t", minimum=1)
    g = cleave.trace(lambda x, y: x + y, x=(b, t, 4), y="b t 1")
    assert [s.minimum for s in g.symbols] == [1, 1]
    assert g.text() == cleave.trace(lambda x, y: x + y, x="b t 4", y=(b, t, 1)).text()


def test_one_name_is_one_extent_wherever_it_is_fixed() -> None:
    first = cleave.trace(lambda x, y: x + y, x="m n=4", y="m n")
    second = cleave.trace(lambda x, y: x + y, x="m n", y="m, n=4")
    assert first == second


class Pair(NamedTuple):
    total: Any
    peak: Any


def test_names_of_outputs() -> None:
    def outputs(fn: Program) -> list[str]:
        return [o.name for o in cleave.trace(fn, x="m n").outputs]

    assert outputs(lambda x: x) == ["out"]
    assert outputs(lambda x: (x, x.sum())) == ["out0", "out1"]
    assert outputs(lambda x: {"a": x, "b": x.sum()}) == ["a", "b"]
    assert outputs(lambda x: Pair(x.sum(), x.max())) == ["total", "peak"]


def test_parameters_with_defaults_need_no_axes() -> None:
    def scaled(x: Any, scale: float = 0.5) -> Any:
        return x * scale

    assert "0.5" in cleave.trace(scaled, x="n").text()


def test_storage_types() -> None:
    def dtypes(fn: Program, **specs: Any) -> list[str]:
        return [o.dtype for o in cleave.trace(fn, **specs).outputs]

    def total(x: Any, y: Any) -> Any:
        return x + y

    assert dtypes(total, x="n", y="n") == ["float16"]
    assert dtypes(total, x="n", y="n", dtype="bfloat16") == ["bfloat16"]
    assert dtypes(total, x="n", y="n", dtype={"x": np.float32}) == ["float32"]
    assert dtypes(total, x="n", y="n", dtype={"x": "bfloat16"}) == ["float32"]
    assert dtypes(total, x="n", y="int32[n]") == ["float16"]
    assert dtypes(total, x="float64[n]", y="float32[n]") == ["float64"]
    assert dtypes(lambda x: (x.sum().astype("float32"), x), x="n") == ["float32", "float16"]


def test_casts() -> None:
    def casts(fn: Program, **specs: Any) -> list[str]:
        return [t.dtype for t in walk(*cleave.trace(fn, **specs).terms) if isinstance(t, Cast)]

    assert casts(lambda x: (x * x).astype("float16") * 2, x="n", dtype="float32") == ["float16"]
    assert casts(lambda x: x.astype("float32") * 2, x="n") == []
    assert casts(lambda x: x.astype("float16") * 2, x="n", dtype="bfloat16") == ["float16"]
    assert casts(lambda x: (x * x).astype(np.float32), x="n") == []


def test_an_unused_input_stays() -> None:
    g = cleave.trace(lambda x, y: x, x="n", y="m")
    assert [i.name for i in g.inputs] == ["x", "y"]


def test_constraints() -> None:
    s, t = cleave.dims("s t")
    g = cleave.trace(lambda x, y: x.sum() + y.sum(), x=(s,), y=(t,), constraints=[s <= t])
    with pytest.raises(ShapeError, match=r"constraint dim\.s <= dim\.t does not hold for s = 3, t = 2"):
        interpret(g, {"x": np.zeros(3), "y": np.zeros(2)})


def test_division_is_multiplication_by_a_reciprocal() -> None:
    text = cleave.trace(lambda x, y: x / y + 1 / y + x / 4, x="n", y="n").text()
    assert "v0[n] = recip(y[n])" in text
    assert "(((x[n] * v0) + v0) + (x[n] * 0.25))" in text


def test_numbers_are_computed_at_once() -> None:
    assert "6.0" in cleave.trace(lambda x: x + ops.sqrt(9.0) * 2.0, x="n").text()


def test_a_reduction_over_an_axis_of_extent_one_is_nothing() -> None:
    g = cleave.trace(lambda x: x.sum(-1).max("k").mean(0), x="n k=1 1")
    assert [r.op for r in reductions(*g.terms)] == ["sum"]
    assert any(isinstance(t, Load) for t in walk(*g.terms))


def test_repr_of_a_tensor() -> None:
    seen: list[str] = []

    def look(x: Any) -> Any:
        seen.extend([repr(x), repr(x.sum("n")), str(x.shape), str(x.axes), str(x.ndim), x.dtype])
        return x

    cleave.trace(look, x="m n=4 1")
    assert seen == [
        "Tensor(float16[m, n = 4, x.2: 1])",
        "Tensor(float16[m, x.2: 1])",
        "(m, n, 1)",
        "('m', 'n', 'x.2')",
        "3",
        "float16",
    ]


def test_new_axes_may_be_added_twice(rng: np.random.Generator) -> None:
    def twice(x):
        y = x[None][None]
        return y + y[:, :, None, 0] + x[:, None][:, 0][None, None, :]

    x = rng.standard_normal(5)
    assert np.array_equal(interpret(cleave.trace(twice, x="a", name="twice"), {"x": x})["out"], twice(x))
