"""The messages of the frontend are part of its interface: one line, the line of the program first."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cleave
from cleave import nn, ops
from cleave.errors import CleaveError
from cleave.ir.graph import Graph

Program = Callable[..., Any]


def attention(q: Any, k: Any, v: Any) -> Any:
    p = ops.softmax(ops.einsum("hsd,htd->hst", q, k) * 0.125, axis="t")
    return ops.einsum("hst,hte->hse", p, v)


def einsum(subscripts: str) -> Program:
    return lambda q, k: ops.einsum(subscripts, q, k)


QK = {"q": "h s d=64", "k": "h t e=80"}
XY = {"x": "m n", "y": "p"}

HINT = "give them one name if they are one axis, or add an axis with None"

ERRORS: list[tuple[Program, dict[str, Any], str]] = [
    # einsum and matmul
    (einsum("hsd,htd->hst"), QK, "axis d: extent d = 64 of q, e = 80 of k"),
    (einsum("hsd,htd->hstt"), QK, "einsum 'hsd,htd->hstt': label t appears twice in the output"),
    (einsum("hsd,hte->hsx"), QK, "einsum 'hsd,hte->hsx': label x of the output is in no operand"),
    (einsum("hs,hte->hst"), QK, "einsum 'hs,hte->hst': q has rank 3 (h s d), written as h s"),
    (einsum("hsd->hs"), QK, "einsum 'hsd->hs': 1 operands are written, 2 given"),
    (einsum("hs1,htd"), QK, "einsum 'hs1,htd': '1' is no label; letters are, or names with spaces between them"),
    (
        einsum("...d,hte->h"),
        QK,
        "einsum '...d,hte->h': operands have axes under ..., the output has no ...: sum over them with ops.sum",
    ),
    (lambda q, k: q @ k, QK, "matmul: axis d of q has extent d = 64, axis t of k t"),
    (lambda x: x @ 2.0, {"x": "n"}, "matmul: a scalar operand; use *"),
    (
        lambda q: q @ q.T,
        {"q": "s d"},
        "matmul: two axes of the product would be called s: use ops.einsum, which names them, or .rename",
    ),
    # elementwise
    (
        lambda x, y: x + y,
        {"x": "2 n", "y": "3"},
        "axis n (extent n) of x and axis y.0 (extent 3) of y do not match: " + HINT,
    ),
    (
        lambda x, y: x * y,
        XY,
        "axis n (extent n) of x and axis p (extent p) of y do not match: " + HINT,
    ),
    (lambda x, y: x + y.rename(p="n"), XY, "axis n: extent n of x, p of the tensor [n]"),
    (lambda x: x**3, {"x": "n"}, "power 3 of x: allowed are 1, 2, 0.5, -0.5, -1, -2, 4"),
    (lambda x: x + np.ones(3), {"x": "n"}, "a NumPy array in a traced function: make it an input of the graph"),
    (lambda x: x + "1", {"x": "n"}, "'1' is no tensor, dim or number"),
    (lambda x: x * True, {"x": "n"}, "True is no number"),
    # reductions
    (lambda x: x.sum("t"), {"x": "m n"}, "x has no axis 't': its axes are m, n"),
    (lambda x: x.sum(2), {"x": "m n"}, "x has no axis 2: its axes are m, n"),
    (lambda x: x.sum((0, "m")), {"x": "m n"}, "axis 0 of x is given twice"),
    (lambda x: ops.softmax(x, "t"), {"x": ""}, "x has no axis 't': its axes are none"),
    # masks
    (
        lambda x: ops.where(x < 0, x, 0),
        {"x": "n"},
        "comparison <: x is a floating value; positions, dims and integer inputs are needed",
    ),
    (
        lambda x: ops.where(x, x, 0),
        {"x": "n"},
        "x is float16, no mask; comparisons of positions and boolean inputs are",
    ),
    (
        lambda x: ops.position("t"),
        {"x": "n"},
        "no axis 't' among those of the inputs, n; x.position('t') takes the axis of a tensor",
    ),
    (lambda x: x + ops.arange(4), {"x": "n"}, "arange(4): give the axis a name, such as arange(4, 't')"),
    (lambda x: x if x else -x, {"x": "n"}, "x has no truth value while it is traced; use & | ~ and ops.where"),
    (lambda x: sum(x), {"x": "n"}, "x can't be iterated over while it is traced: its extents are symbols"),
    (lambda x: np.exp(x), {"x": "n"}, "x is no NumPy array; use the functions of cleave.ops"),
    (lambda x: ops.position("n") // 0, {"x": "n"}, "the tensor [n] // 0: division by zero"),
    # axes whose extent is read, and places
    (
        lambda x: x + ops.arange(x, "t"),
        {"x": "n"},
        "arange: x is a floating value; positions, dims and integer inputs are needed",
    ),
    (
        lambda x, n: ops.einsum("c t -> c t", x[:, ops.arange(n, "t")]),
        {"x": "b m", "n": "int32[b]"},
        "axis b of the tensor [b, t] can't change: the extent of axis t depends on it",
    ),
    (lambda x: ops.place(x, n=ops.position("n")), {"x": "n"}, "place: 'n' is no name for a new axis of x"),
    (
        lambda x, y: ops.place(x, row=ops.position("n") + ops.position("p")),
        XY,
        "place: row lies along axis p, which x has not",
    ),
    # views
    (lambda x: x[4], {"x": "m=4 n"}, "axis m of x: index 4, allowed is -4 <= index < 4"),
    (lambda x: x[0, 0, 0], {"x": "m n"}, "indexing x: 3 indices for 2 axes (m, n)"),
    (lambda x: x["m"], {"x": "m n"}, "indexing x with 'm': integers, slices, None and integer tensors are allowed"),
    (lambda x: x[::-1], {"x": "m n"}, "axis m of x: step -1, allowed is a positive integer"),
    (lambda x: x[x], {"x": "m"}, "indexing x with x, which is float16: an integer tensor is needed"),
    (lambda x: x.reshape(5, 5), {"x": "4 6"}, "reshape: x has 24 elements, the new shape 25"),
    (lambda x: x.transpose("m"), {"x": "m n"}, "transpose: m are not all axes of x: m, n"),
    (lambda x: x.rename(m="n"), {"x": "m n"}, "rename: two axes of x would be called n"),
    (
        lambda x: x.astype("int32"),
        {"x": "n"},
        "astype: int32 is no floating type: allowed are bfloat16, float16, float32, float64",
    ),
]


@pytest.mark.parametrize(("fn", "specs", "message"), ERRORS)
def test_errors_in_the_program(fn: Program, specs: dict[str, Any], message: str) -> None:
    with pytest.raises(CleaveError) as caught:
        cleave.trace(fn, **specs)
    location, text = str(caught.value).split(": ", 1)
    assert text == message
    assert location == _line_of(caught)


def _line_of(caught: pytest.ExceptionInfo[CleaveError]) -> str:
    """file:line of the innermost frame of this file."""
    mine = [entry for entry in caught.traceback if Path(str(entry.path)) == Path(__file__)]
    return f"{Path(__file__).relative_to(Path.cwd())}:{mine[-1].lineno + 1}"


SPEC_ERRORS: list[tuple[dict[str, Any], str]] = [
    ({"x": "m n", "y": "p", "z": "q"}, "<lambda> has no parameter 'z': it has x, y"),
    ({"x": "m n"}, 'parameter y of <lambda> has no axes: give them, such as y="b t d=64"'),
    ({"x": "m 2n", "y": ""}, "x: '2n' is no axis; a name such as t, t=64, t=s or a number is"),
    ({"x": "m (n", "y": ""}, "x: parentheses in 'm (n' do not match, or stand in one another"),
    ({"x": "n n", "y": ""}, "x: axis n twice; give the second a name of its own, such as n2=n"),
    (
        {"x": "float8[n]", "y": ""},
        "x: dtype 'float8': allowed are float16, bfloat16, float32, float64, int32, int64, bool",
    ),
    (
        {"x": "n", "y": "", "dtype": "half"},
        "dtype 'half': allowed are float16, bfloat16, float32, float64, int32, int64, bool",
    ),
    ({"x": "n", "y": "", "dtype": {"z": "float16"}}, "dtype of 'z': the inputs are x, y"),
    ({"x": "m n=64", "y": "n=80"}, "axis n: extent n = 64 of x, n = 80 of y"),
    ({"x": "m t=n", "y": "t=m"}, "axis t: extent n of x, m of y"),
    ({"x": 5, "y": ""}, 'x: 5 is no specification; a string such as "b h s d=64" or a tuple of dims is'),
    ({"x": (1.5,), "y": ""}, "x: 1.5 is no extent; a dim, a non-negative integer or a word such as 't' is"),
    ({"x": "n", "y": "m", "outputs": "m"}, "output out has axes n; stored as m"),
    ({"x": "n", "y": "", "outputs": "m"}, "output out: no axis or dim is called m: there are n"),
    (
        {"x": "n", "y": "", "outputs": "int32[n]"},
        "output out: dtype int32: allowed are bfloat16, float16, float32, float64",
    ),
    ({"x": "n", "y": "", "outputs": {"y": "n"}}, "outputs: no output 'y', the function returns out"),
]


@pytest.mark.parametrize(("specs", "message"), SPEC_ERRORS)
def test_errors_in_specifications(specs: dict[str, Any], message: str) -> None:
    with pytest.raises(CleaveError) as caught:
        cleave.trace(lambda x, y: x, **specs)
    location, text = str(caught.value).split(": ", 1)
    assert text == message
    assert location == _line_of(caught)


RESULTS: list[tuple[Program, str]] = [
    (lambda x: None, "<lambda> returns None as out: outputs are traced tensors"),
    (lambda x: 1.5, "<lambda> returns float 1.5 as out: outputs are traced tensors"),
    (lambda x: {"a": x, "b": 2}, "<lambda> returns int 2 as b: outputs are traced tensors"),
    (lambda x: (), "<lambda> returns no output"),
    (lambda x: ops.value(3) * 2.0, "output out depends on no input"),
]


@pytest.mark.parametrize(("fn", "message"), RESULTS)
def test_errors_in_results(fn: Program, message: str) -> None:
    with pytest.raises(CleaveError) as caught:
        cleave.trace(fn, x="n")
    assert str(caught.value).split(": ", 1)[1] == message


def test_output_names_must_not_be_those_of_inputs() -> None:
    with pytest.raises(CleaveError) as caught:
        cleave.trace(lambda x: {"x": x}, name="g", x="n")
    assert str(caught.value) == "g: two buffers are called 'x'"


def test_ops_outside_a_trace() -> None:
    with pytest.raises(CleaveError, match="there is no trace here: call this in a function given to cleave"):
        ops.position("n")


def test_every_error_is_one_line_and_names_a_place() -> None:
    with pytest.raises(CleaveError) as caught:
        cleave.trace(attention, q="h s d=64", k="h t d=80", v="h t e")
    assert re.fullmatch(r"\S+test_frontend_errors\.py:\d+: axis d: extent d = 64 of q, d = 80 of k", str(caught.value))


def test_errors_of_cleaves_own_graphs_name_the_operator() -> None:
    with pytest.raises(CleaveError) as caught:
        nn.attention(dtype="float8")
    types = "float16, bfloat16, float32, float64, int32, int64, bool"
    assert str(caught.value) == f"attention: dtype 'float8': allowed are {types}"


def test_errors_in_annotations_name_the_function() -> None:
    """Where another part of cleave calls trace, nobody wrote the line that called it."""
    from cleave.pipeline.program import graph_of

    def program(x: "m 2n") -> Any:  # type: ignore[valid-type]  # noqa: F722
        return x

    with pytest.raises(CleaveError) as caught:
        graph_of(program)
    line = program.__code__.co_firstlineno
    assert str(caught.value).startswith(f"{Path(__file__).relative_to(Path.cwd())}:{line}: x: '2n' is no axis")


def test_a_program_that_is_nested_too_deeply() -> None:
    def deep(x: Any, number: int) -> Any:
        for _ in range(number):
            x = ops.tanh(x)
        return x

    said = "operations in one another: allowed are 200, so a longer program is several graphs"
    for number in (201, 3000):
        with pytest.raises(CleaveError, match=f"test_frontend_errors.py:\\d+: {number} {said}"):
            cleave.trace(lambda x, number=number: deep(x, number), x="n")
    with pytest.raises(CleaveError, match=f"too many {said}"):  # where tracing itself ends
        cleave.trace(lambda x: ops.sum(deep(x, 500)), x="n")
    assert cleave.trace(lambda x: deep(x, 200), x="n").outputs


def test_traces_do_not_leak_into_one_another() -> None:
    with pytest.raises(CleaveError):
        cleave.trace(lambda x: x.sum("q"), x="n")
    with pytest.raises(CleaveError, match="there is no trace here"):
        ops.position("n")
    nested: list[Graph] = []

    def outer(x: Any) -> Any:
        nested.append(cleave.trace(lambda y: y * ops.position("m"), y="m"))
        return x * ops.position("n")

    g = cleave.trace(outer, x="n")
    assert [i.name for i in g.inputs] == ["x"]
    assert [i.name for i in nested[0].inputs] == ["y"]
