"""Views, parts, concatenations, and reads through tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from cleave.errors import GraphError
from cleave.frontend.tensor import PREDICATES
from cleave.frontend.torch import layout
from cleave.frontend.torch.array import Array, extent
from cleave.frontend.torch.aten.call import Call, handles
from cleave.frontend.torch.layout import ranks
from cleave.ir.index import Index, index

# ---- layout


@handles(
    "view", "_unsafe_view", "reshape", "_reshape_copy", "view_copy", "flatten", "unflatten", "squeeze", "unsqueeze"
)
def _view(call: Call) -> Array:
    return layout.view(call["self"], call.kind.shape)


@handles("permute", "permute_copy")
def _permute(call: Call) -> Array:
    x: Array = call["self"]
    return layout.permute(x, [ranks(d, len(x.dims)) for d in call["dims"]])


@handles("transpose", "transpose_copy", "swapdims")
def _transpose(call: Call) -> Array:
    x: Array = call["self"]
    return layout.transpose(x, call.dim("dim0", x), call.dim("dim1", x))


@handles("swapaxes")
def _swapaxes(call: Call) -> Array:
    x: Array = call["self"]
    return layout.transpose(x, call.dim("axis0", x), call.dim("axis1", x))


@handles("t", "mT", "numpy_T")
def _t(call: Call) -> Array:
    x: Array = call["self"]
    return x if len(x.dims) < 2 else layout.transpose(x, -2, -1)


@handles("movedim")
def _movedim(call: Call) -> Array:
    x: Array = call["self"]
    rank = len(x.dims)
    sources, targets = ([ranks(d, rank) for d in _listed(call[n])] for n in ("source", "destination"))
    rest = [n for n in range(rank) if n not in sources]
    order = [sources[targets.index(n)] if n in targets else rest.pop(0) for n in range(rank)]
    return layout.permute(x, order)


def _listed(x: int | Sequence[int]) -> list[int]:
    return [x] if isinstance(x, int) else list(x)


@handles("expand", "expand_copy", "broadcast_to", "expand_as")
def _expand(call: Call) -> Array:
    return layout.expand(call["self"], call.kind.shape)


@handles("repeat")
def _repeat(call: Call) -> Array:
    return layout.repeat(call["self"], call.kind.shape)


@handles("repeat_interleave")
def _repeat_interleave(call: Call) -> Array:
    x: Array = call["self"]
    if call.get("dim") is None or isinstance(call.get("repeats"), Array):
        raise GraphError("repeat_interleave without a dimension, or by a tensor")
    dim = call.dim("dim", x)
    return layout.repeat_interleave(x, dim, call.kind.shape[dim])


@handles("slice", "narrow", "slice_copy")
def _slice(call: Call) -> Array:
    x: Array = call["self"]
    dim = call.dim("dim", x)
    size = extent(x.dims[dim])
    start = index(call.get("start", 0))
    if (start.constant or 0) < 0:
        start = size + start
    if start.constant is not None and size.constant is not None:
        start = index(min(max(start.constant, 0), size.constant))
    return layout.cut(x, dim, start, int(call.get("step", 1)), call.kind.shape[dim])


@handles("select", "select_copy")
def _select(call: Call) -> Array:
    x: Array = call["self"]
    dim = call.dim("dim", x)
    place = index(call["index"])
    if (place.constant or 0) < 0:
        place = extent(x.dims[dim]) + place
    return layout.select(x, dim, place)


@handles("split", "split_with_sizes", "chunk", "unbind", "unsafe_split", "unsafe_chunk", "split_with_sizes_copy")
def _split(call: Call) -> list[Array]:
    x: Array = call["self"]
    dim = call.dim("dim", x)
    start, out = index(0), list[Array]()
    for kind in call.kinds:
        if len(kind.shape) < len(x.dims):  # unbind
            out.append(layout.select(x, dim, start))
            start = start + 1
        else:
            out.append(layout.cut(x, dim, start, 1, kind.shape[dim]))
            start = start + kind.shape[dim]
    return out


@handles("cat", "concat", "concatenate")
def _cat(call: Call) -> Array:
    xs: list[Array] = call["tensors"]
    return layout.concatenate(xs, call.dim("dim", xs[0]))


@handles("stack")
def _stack(call: Call) -> Array:
    xs: list[Array] = call["tensors"]
    dim = ranks(int(call.get("dim", 0)), len(xs[0].dims) + 1)
    return layout.concatenate([replace(x, dims=(*x.dims[:dim], (), *x.dims[dim:])) for x in xs], dim)


# ---- tables


@handles("embedding")
def _embedding(call: Call) -> Array:
    weight, ids = call["weight"], call["indices"]
    rank = len(ids.dims)
    names = [("index", n - rank) for n in range(rank)]
    return layout.take(weight, [ids, None], [None, "column"], [*names, "column"])


@handles("index_select")
def _index_select(call: Call) -> Array:
    x: Array = call["self"]
    dim = call.dim("dim", x)
    indices = [call["index"] if n == dim else None for n in range(len(x.dims))]
    names = [None if n == dim else n for n in range(len(x.dims))]
    return layout.take(x, indices, names, [("index", -1) if n == dim else n for n in range(len(x.dims))])


@handles("index")
def _index(call: Call) -> Array:
    x: Array = call["self"]
    given: list[Array | None] = list(call["indices"])
    given += [None] * (len(x.dims) - len(given))
    for i in given:
        if i is not None and not isinstance(i.value, Index):
            raise GraphError("an index that is a mask" if isinstance(i.value, PREDICATES) else "an index of floats")
    places = [n for n, i in enumerate(given) if i is not None]
    rank = max(len(i.dims) for i in given if i is not None)
    names = [None if n in places else n for n in range(len(x.dims))]
    kept = [n for n in names if n is not None]
    front = places[0] if places == list(range(places[0], places[-1] + 1)) else 0
    dims: list[Any] = list(kept)
    dims[front:front] = [("index", n - rank) for n in range(rank)]
    return layout.take(x, given, names, dims)
