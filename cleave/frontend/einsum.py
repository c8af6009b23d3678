"""Einstein summation in NumPy's notation, and the matrix product.

What is written names the axes of the result: ``einsum("hsd,htd->hst", q, k)`` has axes h, s and t, whatever those of
q and k are called. Names of several letters are written with spaces: ``einsum("group s d, t d -> group s t", q, k)``.
A letter twice in one operand is the diagonal. An axis of extent 1 fits any extent, as in NumPy. With ``...`` in an
operand the output must have it too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cleave.errors import ShapeError
from cleave.frontend.context import fail
from cleave.frontend.spec import describe, is_unit, same_extent
from cleave.frontend.tensor import Tensor, TensorLike, check_owners, promoted, replaced, tensor, term
from cleave.ir.axis import Axis
from cleave.ir.dim import is_name
from cleave.ir.graph import Term, apply

DOTS = "..."


@dataclass(frozen=True)
class Subscripts:
    """Names per operand and of the result, ``...`` among them; ``result`` is None for the implicit form."""

    operands: tuple[tuple[str, ...], ...]
    result: tuple[str, ...] | None


def parse_subscripts(text: str) -> Subscripts:
    left, arrow, right = text.partition("->")
    parts = left.split(",")
    spaced = any(" " in p.strip() for p in (*parts, right))
    operands = tuple(_names(p, text, spaced=spaced) for p in parts)
    result = _names(right, text, spaced=spaced) if arrow else None
    for name in result or ():
        if (result or ()).count(name) > 1:
            fail(f"einsum {text!r}: label {name} appears twice in the output")
        if name != DOTS and not any(name in names for names in operands):
            fail(f"einsum {text!r}: label {name} of the output is in no operand")
    return Subscripts(operands, result)


def _names(part: str, text: str, *, spaced: bool) -> tuple[str, ...]:
    part = part.replace(DOTS, " ... " if spaced else "…").strip()
    names = tuple(part.split()) if spaced else tuple(DOTS if c == "…" else c for c in part if c != " ")
    for name in names:
        if name != DOTS and not is_name(name):
            fail(f"einsum {text!r}: {name!r} is no label; letters are, or names with spaces between them")
    if names.count(DOTS) > 1:
        fail(f"einsum {text!r}: ... twice in one operand")
    return names


def einsum(subscripts: str, *operands: TensorLike) -> Tensor:
    """Sum of products over the axes that the output does not name.

    Without ``->`` the output has the labels that occur once, in alphabetical order, after the axes under ``...``.
    """
    xs = [tensor(x) for x in operands]
    parsed = parse_subscripts(subscripts)
    if len(parsed.operands) != len(xs):
        fail(f"einsum {subscripts!r}: {len(parsed.operands)} operands are written, {len(xs)} given")
    labels, dots = _expand(parsed, xs, subscripts)
    axes = _axes_of_labels(labels, xs)
    output = _output(parsed, labels, dots, subscripts)
    product: Term | None = None
    for x, names in zip(xs, labels, strict=True):
        mapping = {a: axes[n].position for a, n in zip(x.slots, names, strict=True) if not is_unit(a)}
        check_owners(x, mapping)
        factor = term(Tensor(replaced(x.value, mapping)))
        product = factor if product is None else apply("mul", product, factor)
    assert product is not None
    return Tensor(
        _contracted(product, [axes[n] for n in axes if n not in output]), tuple(axes[n] for n in output), promoted(*xs)
    )


def _contracted(product: Term, axes: Sequence[Axis]) -> Term:
    from cleave.frontend.reduce import bind

    for a in axes:
        product = bind("sum", a, product)
    return product


def _expand(parsed: Subscripts, xs: Sequence[Tensor], text: str) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """One label per slot; what ``...`` stands for gets the numbers of its axes from the right, -1 the last."""
    labels: list[tuple[str, ...]] = []
    longest = 0
    for x, names in zip(xs, parsed.operands, strict=True):
        more = x.ndim - (len(names) - (DOTS in names))
        if more < 0 or (more > 0 and DOTS not in names):
            written = " ".join(names) or "nothing"
            fail(f"einsum {text!r}: {x.name} has rank {x.ndim} ({' '.join(x.axes)}), written as {written}", ShapeError)
        longest = max(longest, more)
        inside = tuple(str(n) for n in range(-more, 0))
        at = names.index(DOTS) if DOTS in names else len(names)
        labels.append((*names[:at], *inside, *names[at + 1 :]))
    return labels, tuple(str(n) for n in range(-longest, 0))


def _axes_of_labels(labels: Sequence[tuple[str, ...]], xs: Sequence[Tensor]) -> dict[str, Axis]:
    """The axis of each label: called like the label, its extent that of the first operand that has not 1."""
    out: dict[str, Axis] = {}
    owner: dict[str, str] = {}
    for x, names in zip(xs, labels, strict=True):
        for a, label in zip(x.slots, names, strict=True):
            name = label if is_name(label) else a.name
            if label not in out or (is_unit(out[label]) and not is_unit(a)):
                out[label], owner[label] = Axis(name, a.extent), x.name
            elif not is_unit(a) and not same_extent(out[label].extent, a.extent):
                extents = f"extent {describe(out[label].extent)} of {owner[label]}, {describe(a.extent)} of {x.name}"
                fail(f"axis {name}: {extents}", ShapeError)
    return out


def _output(parsed: Subscripts, labels: Sequence[tuple[str, ...]], dots: tuple[str, ...], text: str) -> tuple[str, ...]:
    if parsed.result is None:
        flat = [n for names in parsed.operands for n in names]
        return (*dots, *sorted(n for n in set(flat) if n != DOTS and flat.count(n) == 1))
    if DOTS in parsed.result:
        at = parsed.result.index(DOTS)
        return (*parsed.result[:at], *dots, *parsed.result[at + 1 :])
    if dots:
        fail(f"einsum {text!r}: operands have axes under ..., the output has no ...: sum over them with ops.sum")
    return parsed.result


def matmul(a: TensorLike, b: TensorLike) -> Tensor:
    """NumPy's ``@``: the last axis of a with the last but one of b, or the only one; those in front broadcast."""
    x, y = tensor(a), tensor(b)
    if not x.ndim or not y.ndim:
        fail("matmul: a scalar operand; use *", ShapeError)
    inner, other = x.slots[-1], y.slots[-2] if y.ndim > 1 else y.slots[0]
    if not same_extent(inner.extent, other.extent):
        extents = f"axis {inner.name} of {x.name} has extent {describe(inner.extent)}, "
        fail(f"matmul: {extents}axis {other.name} of {y.name} {describe(other.extent)}", ShapeError)
    rows, columns = ("row",) if x.ndim > 1 else (), ("column",) if y.ndim > 1 else ()
    left, right = (DOTS, *rows, "inner"), (DOTS, "inner", *columns)
    subscripts = f"{' '.join(left)} , {' '.join(right)} -> {' '.join((DOTS, *rows, *columns))}"
    product = einsum(subscripts, x, y)
    names = [*x.axes[-2:-1], *y.axes[-1:]] if columns else [*x.axes[-2:-1]]
    return _renamed_last(product, names)


def _renamed_last(product: Tensor, names: Sequence[str]) -> Tensor:
    """The last axes under the names that they had in the operands."""
    from cleave.frontend.view import rename_slots

    first = product.ndim - len(names)
    taken = [*product.axes[:first], *names]
    for name in names:
        if taken.count(name) > 1:
            fail(
                f"matmul: two axes of the product would be called {name}: use ops.einsum, which names them, or .rename"
            )
    return rename_slots(product, dict(enumerate(names, first)))
