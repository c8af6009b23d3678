"""Binding dims: what the shapes of arrays, and the caller, say about the symbols of a graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from cleave.errors import ShapeError
from cleave.ir.dim import check_binding
from cleave.ir.graph import Graph, Input
from cleave.ir.index import Index, Pred, Symbol, evaluate, evaluate_pred, indices_of, show, symbols_of


def bind_dims(g: Graph, shapes: Mapping[str, Sequence[int]], given: Mapping[str, int] | None = None) -> dict[str, int]:
    """Values of all symbols of a graph from input shapes and explicit bindings.

    Shapes fix a symbol where an extent is that symbol or affine in it with the rest known. Everything is then checked:
    extents against shapes, ranges, divisibility, constraints. Errors name the input, the axis, the extent found and the
    one expected.
    """
    values = dict(given or {})
    known = {s.name: s for s in g.symbols}
    for name in values:
        if name not in known:
            raise ShapeError(f"no dim {name!r}: the graph has {', '.join(known) or 'none'}", location=g.name)
    for symbol in known.values():
        if symbol.value is not None:
            values.setdefault(symbol.name, symbol.value)
    _check_ranks(g, shapes)
    learn_dims(
        (
            (extent, int(size), b.name)
            for b in g.inputs
            for extent, size in zip(b.shape, shapes.get(b.name, ()), strict=False)
        ),
        values,
    )
    missing = [name for name in known if name not in values]
    if missing:
        raise ShapeError(f"dim {missing[0]} has no value: bind it ({missing[0]}=...)", location=g.name)
    check_dims(g, shapes, values)
    return values


def _check_ranks(g: Graph, shapes: Mapping[str, Sequence[int]]) -> None:
    for buffer in g.inputs:
        if buffer.name in shapes and len(shapes[buffer.name]) != len(buffer.shape):
            wanted = ", ".join(map(show, buffer.shape))
            got = tuple(shapes[buffer.name])
            raise ShapeError(f"rank {len(got)} (shape {got}), expected [{wanted}]", location=f"input {buffer.name}")


def learn_dims(extents: Iterable[tuple[Index, int, str]], values: dict[str, int]) -> dict[str, str]:
    """Take symbols out of (extent, size, origin) until nothing new is learnt; the origin of each that was.

    A size gives a symbol where the extent is that symbol, or affine in it with the rest known.
    """
    equations, origins = list(extents), dict[str, str]()
    learnt = True
    while learnt:
        learnt = False
        for extent, size, origin in equations:
            found = _solved(extent, size, values)
            if found is not None:
                name, values[found[0]] = found
                origins[name] = origin
                learnt = True
    return origins


def _solved(extent: Index, size: int, values: Mapping[str, int]) -> tuple[str, int] | None:
    unknown = [s for s in symbols_of(extent) if s.name not in values]
    if len(unknown) != 1:
        return None
    linear = extent.linear_in(unknown[0])
    if linear is None:
        return None
    factor, rest = int(evaluate(linear[0], values)), size - int(evaluate(linear[1], values))
    return (unknown[0].name, rest // factor) if factor and rest % factor == 0 else None


def broken_constraint(constraints: Iterable[Pred], values: Mapping[str, int]) -> tuple[Pred, str] | None:
    """The first constraint that does not hold, and ``a = 1, b = 2``: what it mentions."""
    for pred in constraints:
        if not bool(evaluate_pred(pred, values)):
            mentioned = sorted({s.name for i in indices_of(pred) for s in symbols_of(i)})
            return pred, ", ".join(f"{name} = {values[name]}" for name in mentioned)
    return None


def check_dims(g: Graph, shapes: Mapping[str, Sequence[int]], values: Mapping[str, int]) -> None:
    for buffer in g.inputs:
        for position, (extent, size) in enumerate(zip(buffer.shape, shapes.get(buffer.name, ()), strict=False)):
            wanted = int(evaluate(extent, values))
            if wanted != size:
                where = f"input {buffer.name}, axis {position}"
                known = extent.constant is not None
                because = "" if known else f" ({show(extent)}{_origin(g, shapes, buffer, extent)})"
                raise ShapeError(f"extent {size}, expected {wanted}{because}", location=where)
    for symbol in g.symbols:
        check_binding(symbol, values[symbol.name])
    broken = broken_constraint(g.constraints, values)
    if broken is not None:
        raise ShapeError("constraint {} does not hold for {}".format(*broken), location=g.name)


def _origin(g: Graph, shapes: Mapping[str, Sequence[int]], here: Input, extent: Index) -> str:
    """Which other argument has that extent, for messages."""
    for buffer in g.inputs:
        if buffer.name in shapes and buffer is not here:
            for position, other in enumerate(buffer.shape):
                if other is extent:
                    return f", as axis {position} of input {buffer.name}"
    return ""


def dims_of_callers(g: Graph) -> tuple[Symbol, ...]:
    """Symbols that a call may name: all but the count and the length of chunks, which the search made up."""
    shapes = [n for b in (*g.inputs, *g.outputs) for n in b.shape]
    made_up = {s for a in g.axes if a.kind in ("outer", "inner") for s in symbols_of(a.extent)}
    own = {s for n in (*shapes, *(a.extent for a in g.axes if a.kind == "plain")) for s in symbols_of(n)}
    return tuple(s for s in g.symbols if s in own or s not in made_up)
