"""Views: the same elements under other dimensions. Extents of results are those that torch computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cleave.errors import GraphError
from cleave.frontend.context import current
from cleave.frontend.tensor import PREDICATES, Tensor, Value, replaced, term, where
from cleave.frontend.torch.array import (
    Array,
    Axes,
    Group,
    digits,
    divides,
    extent,
    moved,
    new_axes,
    new_axis,
    position,
)
from cleave.frontend.torch.pairs import repeated, rotated_pair
from cleave.ir.axis import Axis
from cleave.ir.dim import Dim
from cleave.ir.graph import Term
from cleave.ir.index import Compare, Index, Position, Symbol, compare, index, maximum, minimum, substitute


def view(x: Array, shape: Sequence[Dim]) -> Array:
    """Row-major: dimensions taken apart and put together, in whole axes where the extents allow it."""
    found = _whole_axes(x, shape)
    if found is not None:
        return found
    dims = [new_axes(n) for n in shape]
    flat = position(tuple(a for axes in dims for a in axes))
    return moved(x, digits(flat, x.axes), dims)


def _whole_axes(x: Array, shape: Sequence[Dim]) -> Array | None:
    """From the last dimension on, take axes until they have its extent, cutting the last one if it is too long."""
    rest, dims = list(x.axes), list[Axes]()
    mapping: dict[Axis, Index] = {}
    for size in reversed(shape):
        taken: list[Axis] = []
        while size.constant != 1:
            if not rest:
                return None
            a = rest.pop()
            if divides(a.extent, size):
                taken.insert(0, a)
                size = size // a.extent
            elif divides(size, a.extent):
                high, low = new_axis(a.extent // size), new_axis(size)
                place = high.position * size + low.position
                mapping = {b: substitute(i, {Position(a): place}) for b, i in mapping.items()}
                mapping.setdefault(a, place)
                rest.append(high)
                taken.insert(0, low)
                size = index(1)
            else:
                return None
        dims.insert(0, tuple(taken))
    return None if rest else moved(x, mapping, dims)


def permute(x: Array, order: Sequence[int]) -> Array:
    return replace(x, dims=tuple(x.dims[n] for n in order))


def transpose(x: Array, a: int, b: int) -> Array:
    order = list(range(len(x.dims)))
    order[a], order[b] = order[b], order[a]
    return permute(x, order)


def expand(x: Array, shape: Sequence[Dim]) -> Array:
    """Dimensions of extent 1, and new ones in front, get the extents of the shape."""
    dims: list[Axes] = [()] * (len(shape) - len(x.dims)) + list(x.dims)
    return replace(x, dims=tuple(axes or new_axes(n) for axes, n in zip(dims, shape, strict=True)))


def repeat(x: Array, shape: Sequence[Dim]) -> Array:
    """Each dimension over and over: dimension n of extent r · (its own) reads its own axes."""
    dims: list[Axes] = [()] * (len(shape) - len(x.dims)) + list(x.dims)
    out: list[Axes] = []
    for axes, n in zip(dims, shape, strict=True):
        out.append((*new_axes(n // extent(axes)), *axes))
    return replace(x, dims=tuple(out))


def repeat_interleave(x: Array, dim: int, size: Dim) -> Array:
    """Each element of a dimension several times, one after the other."""
    dims = list(x.dims)
    dims[dim] = (*dims[dim], *new_axes(size // extent(dims[dim])))
    return replace(x, dims=tuple(dims))


# ---- parts


def cut(x: Array, dim: int, start: Dim, step: int, size: Dim) -> Array:
    """``size`` positions of a dimension from ``start`` on, every ``step``-th."""
    axes = x.dims[dim]
    if size is extent(axes):
        return x
    dims = list(x.dims)
    high, low = _cut_point(axes, start, size) if step == 1 else (axes, ())
    kept = new_axes(size // extent(low))
    place = position(kept) * step + start // extent(low)
    dims[dim] = (*kept, *low)
    return moved(x, digits(place, high), dims)


def _cut_point(axes: Axes, start: Dim, size: Dim) -> tuple[Axes, Axes]:
    """Axes before and after a point: those after stay whole, as start and size are multiples of their extent."""
    for n in range(1, len(axes)):
        low = axes[n:]
        if divides(extent(low), size) and divides(extent(low), start):
            return axes[:n], low
    return axes, ()


def select(x: Array, dim: int, place: Index) -> Array:
    dims = list(x.dims)
    axes = dims.pop(dim)
    return moved(x, digits(place, axes), dims)


def take(x: Array, indices: Sequence[Array | None], names: Sequence[object], dims: Sequence[object]) -> Array:
    """Integer arrays as positions along dimensions of x, None for those that stay.

    ``names`` are those of the dimensions of x that stay (None elsewhere), ``dims`` those of the result, of which the
    last ones of each index array are called 0, 1, .. from their right.
    """
    group = Group([], {})
    kept = [n for n, i in zip(names, indices, strict=True) if i is None]
    group.add(replace(x, dims=tuple(a for a, i in zip(x.dims, indices, strict=True) if i is None)), kept)
    for i in indices:
        if i is not None:
            group.add(i, [("index", n - len(i.dims)) for n in range(len(i.dims))])
    value, *positions = group.values
    mapping: dict[Axis, Index] = {}
    for axes, i in zip(x.dims, indices, strict=True):
        if i is not None:
            place = positions.pop(0)
            if not isinstance(place, Index):
                raise GraphError("an index that is no integer expression")
            mapping |= digits(place, axes)
    return Array(replaced(value, mapping), tuple(group.axes.get(n, ()) for n in dims), x.storage)


# ---- concatenation


def concatenate(xs: Sequence[Array], dim: int) -> Array:
    """Pieces of one extent become an axis of their own, (piece, position); others ``where(i < n, a[i], b[i - n])``."""
    xs = [x for x in xs if x.shape[dim].constant != 0] or list(xs[:1])
    if len(xs) == 1:
        return xs[0]
    if all(x.shape[dim] is xs[0].shape[dim] for x in xs):
        group = Group([], {})
        for x in xs:
            group.add(x, range(len(x.dims)))
        piece = new_axis(index(len(xs)))
        dims = [group.axes.get(n, ()) for n in range(len(xs[0].dims))]
        dims[dim] = (piece, *dims[dim])
        tests = [compare("==", piece.position, n) for n in range(len(xs) - 1)]
        value = _pieces_of_one(group.values, piece) or _chosen(group.values, tests)
        return Array(value, tuple(dims), xs[0].storage)
    return _in_a_row(xs, dim)


def _pieces_of_one(values: Sequence[Value], piece: Axis) -> Term | None:
    """The value if the pieces are one tensor at several places, rotated perhaps."""
    terms = [v for v in values if not isinstance(v, (Index, *PREDICATES))]
    return rotated_pair(terms, piece) or repeated(terms, piece) if len(terms) == len(values) else None


def _in_a_row(xs: Sequence[Array], dim: int) -> Array:
    whole = new_axis(sum((x.shape[dim] for x in xs), index(0)))
    offset, tests, pieces = index(0), list[Compare](), list[Array]()
    for x in xs:
        size = x.shape[dim]
        # A position in another piece reads the nearest element, which is not used: there has to be one.
        if not _has_elements(size):
            current().conditions.append(compare("<=", 1, size))
        place = maximum(minimum(whole.position - offset, size - 1), 0)
        dims = list(x.dims)
        dims[dim] = ()
        pieces.append(moved(x, digits(place, x.dims[dim]), dims))
        offset = offset + size
        test = compare("<", whole.position, offset)
        assert isinstance(test, Compare)
        tests.append(test)
    group = Group([], {})
    for x in pieces:
        group.add(x, range(len(x.dims)))
    dims = [group.axes.get(n, ()) for n in range(len(xs[0].dims))]
    dims[dim] = (whole,)
    return Array(_chosen(group.values, tests[:-1]), tuple(dims), xs[0].storage)


def _has_elements(size: Dim) -> bool:
    atom = size.atom
    return (size.constant or 0) > 0 or (isinstance(atom, Symbol) and atom.minimum > 0)


def _chosen(values: Sequence[Value], tests: Sequence[object]) -> Value:
    """values[0] if the first test holds, else values[1] if the second does, .., else the last."""
    if all(v is values[0] for v in values):
        return values[0]
    if any(isinstance(v, (Index, *PREDICATES)) for v in values):
        raise GraphError("integers and masks can't be concatenated")
    out = Tensor(values[-1])
    for value, test in reversed(list(zip(values, tests, strict=False))):
        assert isinstance(test, PREDICATES)
        same = term(out) is value
        out = out if same else where(Tensor(test), Tensor(value), out)
    return out.value


def ranks(dim: int, rank: int) -> int:
    """A dimension counted from the start."""
    if not -max(rank, 1) <= dim < max(rank, 1):
        raise GraphError(f"dimension {dim} of an array of rank {rank}")
    return dim % max(rank, 1)
