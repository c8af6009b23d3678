"""Which operator of aten is what: ``aten.NAME.OVERLOAD`` by its name, arguments by the names in its schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cleave.errors import GraphError
from cleave.frontend.tensor import PREDICATES, Tensor, quotient
from cleave.frontend.torch import elementwise as ew
from cleave.frontend.torch import layout, reductions
from cleave.frontend.torch.array import Array, extent
from cleave.frontend.torch.border import Kind
from cleave.frontend.torch.elementwise import apply, array
from cleave.frontend.torch.layout import ranks
from cleave.ir.index import Index, index


@dataclass(frozen=True)
class Call:
    """A call of an operator: its arguments by name (arrays, dims, numbers, lists of them), and what torch gives it."""

    arguments: Mapping[str, Any]
    kinds: Sequence[Kind]

    def __getitem__(self, name: str) -> Any:
        return self.arguments[name]

    def get(self, name: str, default: Any = None) -> Any:
        found = self.arguments.get(name)
        return default if found is None else found

    @property
    def kind(self) -> Kind:
        return self.kinds[0]

    @property
    def storage(self) -> str:
        return self.kind.storage

    def dim(self, name: str, x: Array, default: int = 0) -> int:
        return ranks(int(self.get(name, default)), len(x.dims))


Handler = Callable[[Call], Any]
HANDLERS: dict[str, Handler] = {}


def handles(*names: str) -> Callable[[Handler], Handler]:
    def register(handler: Handler) -> Handler:
        for name in names:
            HANDLERS[name] = handler
        return handler

    return register


# ---- elementwise


def _of_one(function: ew.Function) -> Handler:
    return lambda call: apply(function, call.storage, call["self"])


def _of_two(function: ew.Function) -> Handler:
    return lambda call: apply(function, call.storage, call["self"], call["other"])


for _name, _op in {
    "exp": "exp",
    "log": "log",
    "sqrt": "sqrt",
    "rsqrt": "rsqrt",
    "tanh": "tanh",
    "sigmoid": "sigmoid",
    "silu": "silu",
    "neg": "neg",
    "abs": "abs",
    "square": "sq",
    "reciprocal": "recip",
    "round": "round",
}.items():
    HANDLERS[_name] = _of_one(ew.elementwise(_op))
HANDLERS["relu"] = _of_one(ew.relu)

for _name, _function in {
    "mul": ew.binary("mul"),
    "maximum": ew.extreme("maximum"),
    "minimum": ew.extreme("minimum"),
    "floor_divide": ew.floor_quotient,
    "remainder": ew.remainder,
    "lt": ew.compared("<"),
    "le": ew.compared("<="),
    "gt": ew.compared("<", swapped=True),
    "ge": ew.compared("<=", swapped=True),
    "eq": ew.compared("=="),
    "ne": ew.compared("==", negated=True),
    "logical_and": ew.joined("&"),
    "bitwise_and": ew.joined("&"),
    "__and__": ew.joined("&"),
    "logical_or": ew.joined("|"),
    "bitwise_or": ew.joined("|"),
    "__or__": ew.joined("|"),
}.items():
    HANDLERS[_name] = _of_two(_function)


def _additive(op: str, *, swapped: bool) -> Handler:
    def handler(call: Call) -> Array:
        alpha = call.get("alpha", 1)

        def function(x: Tensor, y: Tensor) -> Tensor:
            left, right = (y, x) if swapped else (x, y)
            return ew.binary(op)(left, ew.scaled(right, alpha))

        return apply(function, call.storage, call["self"], call["other"])

    return handler


HANDLERS["add"] = _additive("add", swapped=False)
HANDLERS["sub"] = _additive("sub", swapped=False)
HANDLERS["rsub"] = _additive("sub", swapped=True)


@handles("div")
def _div(call: Call) -> Array:
    mode = call.get("rounding_mode")
    if mode not in (None, "floor"):
        raise GraphError(f"rounding_mode {mode!r}")
    return apply(ew.floor_quotient if mode else quotient, call.storage, call["self"], call["other"])


@handles("neg")
def _neg(call: Call) -> Array:
    x: Array = call["self"]
    return replace(x, value=(-Tensor(x.value)).value, storage=call.storage)


@handles("pow")
def _pow(call: Call) -> Array:
    exponent = call["exponent"]
    if not isinstance(exponent, (int, float)):
        raise GraphError("a power whose exponent is no number")
    return apply(ew.raised_to(exponent), call.storage, call["self"])


@handles("gelu")
def _gelu(call: Call) -> Array:
    if call.get("approximate", "none") != "tanh":
        raise GraphError("gelu with erf: approximate='tanh' is known")
    return apply(ew.gelu_tanh, call.storage, call["self"])


@handles("clamp", "clamp_min", "clamp_max")
def _clamp(call: Call) -> Array:
    out = array(call["self"])
    for op, bound in (("maximum", call.get("min")), ("minimum", call.get("max"))):
        if bound is not None:
            out = apply(ew.extreme(op), call.storage, out, bound)
    return out


@handles("logical_not", "bitwise_not")
def _not(call: Call) -> Array:
    return apply(ew.negated, call.storage, call["self"])


@handles("where")
def _where(call: Call) -> Array:
    return apply(ew.chosen, call.storage, call["condition"], call["self"], call["other"])


@handles("masked_fill")
def _masked_fill(call: Call) -> Array:
    return apply(ew.chosen, call.storage, call["mask"], call["value"], call["self"])


HANDLERS["tril"] = lambda call: ew.triangle(call["self"], call.get("diagonal", 0), upper=False)
HANDLERS["triu"] = lambda call: ew.triangle(call["self"], call.get("diagonal", 0), upper=True)


@handles("to", "_to_copy", "type_as")
def _to(call: Call) -> Array:
    return ew.cast(call["self"], call.storage)


@handles(
    "clone", "contiguous", "alias", "detach", "detach_", "lift_fresh_copy", "lift_fresh", "positive", "_safe_clone"
)
def _same(call: Call) -> Array:
    return call["self"]


@handles("dropout")
def _dropout(call: Call) -> Array:
    if call.get("train", False) and call.get("p", 0.0):
        raise GraphError("dropout in training: call .eval() first")
    return call["input"]


# ---- arrays that are made


@handles("full", "full_like", "new_full")
def _full(call: Call) -> Array:
    return ew.filled(call["fill_value"], call.kind.shape, call.storage)


for _name in ("zeros", "zeros_like", "new_zeros"):
    HANDLERS[_name] = lambda call: ew.filled(0, call.kind.shape, call.storage)
for _name in ("ones", "ones_like", "new_ones"):
    HANDLERS[_name] = lambda call: ew.filled(1, call.kind.shape, call.storage)


@handles("scalar_tensor")
def _scalar(call: Call) -> Array:
    return ew.filled(call["s"], (), call.storage)


@handles("arange")
def _arange(call: Call) -> Array:
    return ew.arange(call.get("start", 0), call.get("step", 1), call.kind.shape, call.storage)


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


@handles("transpose", "transpose_copy", "swapaxes")
def _transpose(call: Call) -> Array:
    x: Array = call["self"]
    return layout.transpose(x, call.dim("dim0", x), call.dim("dim1", x))


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


# ---- reductions


def _reduction(op: str) -> Handler:
    def handler(call: Call) -> Array:
        x: Array = call["self"]
        dims = reductions.dims_of(x, call.get("dim"))
        return replace(reductions.reduced(op, x, dims, keepdim=call.get("keepdim", False)), storage=call.storage)

    return handler


HANDLERS["sum"] = _reduction("sum")
HANDLERS["amax"] = _reduction("max")
HANDLERS["amin"] = _reduction("min")


def _extreme(op: str) -> Handler:
    """max(dim) gives values and places; of these only the values are known. max(a, b) is elementwise."""

    def handler(call: Call) -> Any:
        if call.get("other") is not None:
            return apply(ew.extreme(f"{op}imum"), call.storage, call["self"], call["other"])
        values = _reduction(op)(call)
        return [values, None] if len(call.kinds) > 1 else values

    return handler


HANDLERS["max"] = _extreme("max")
HANDLERS["min"] = _extreme("min")


@handles("mean")
def _mean(call: Call) -> Array:
    x: Array = call["self"]
    dims = reductions.dims_of(x, call.get("dim"))
    return replace(reductions.mean(x, dims, keepdim=call.get("keepdim", False)), storage=call.storage)


@handles("var")
def _var(call: Call) -> Array:
    x: Array = call["self"]
    correction = call.get("correction", int(call.get("unbiased", True)))
    if correction != int(correction):
        raise GraphError(f"correction {correction}")
    dims = reductions.dims_of(x, call.get("dim"))
    return reductions.variance(x, dims, correction=int(correction), keepdim=call.get("keepdim", False))


@handles("softmax", "_softmax", "_safe_softmax")
def _softmax(call: Call) -> Array:
    return replace(reductions.softmax(call["self"], call["dim"]), storage=call.storage)


@handles("log_softmax", "_log_softmax")
def _log_softmax(call: Call) -> Array:
    return replace(reductions.log_softmax(call["self"], call["dim"]), storage=call.storage)


@handles("logsumexp")
def _logsumexp(call: Call) -> Array:
    x: Array = call["self"]
    return reductions.logsumexp(x, reductions.dims_of(x, call["dim"]), keepdim=call.get("keepdim", False))


_EPSILON = {"float16": 2**-10, "bfloat16": 2**-7, "float32": 2**-23, "float64": 2**-52}


@handles("rms_norm", "_fused_rms_norm")
def _rms_norm(call: Call) -> Any:
    x: Array = call.get("input", call.get("self"))
    eps = call.get("eps", _EPSILON[x.storage])
    out = reductions.rms_norm(x, len(call["normalized_shape"]), call.get("weight"), eps)
    return [out, None] if len(call.kinds) > 1 else out


@handles("layer_norm", "native_layer_norm")
def _layer_norm(call: Call) -> Any:
    last = len(call["normalized_shape"])
    out = reductions.layer_norm(call["input"], last, call.get("weight"), call.get("bias"), call.get("eps", 1e-5))
    return [out, None, None] if len(call.kinds) > 1 else out


# ---- contractions


@handles("matmul", "mm", "bmm", "mv", "dot")
def _matmul(call: Call) -> Array:
    other = next(call[n] for n in ("other", "mat2", "vec", "tensor") if n in call.arguments)
    return reductions.matmul(call["self"], other, call.storage)


@handles("linear")
def _linear(call: Call) -> Array:
    return reductions.linear(call["input"], call["weight"], call.get("bias"), call.storage)


@handles("addmm", "baddbmm")
def _addmm(call: Call) -> Array:
    if call.get("alpha", 1) != 1 or call.get("beta", 1) != 1:
        raise GraphError("addmm with alpha or beta other than 1")
    left, right = ("mat1", "mat2") if "mat1" in call.arguments else ("batch1", "batch2")
    product = reductions.matmul(call[left], call[right], call.storage)
    return apply(ew.binary("add"), call.storage, product, call["self"])


@handles("einsum")
def _einsum(call: Call) -> Array:
    return reductions.einsum(call["equation"], call["tensors"], call.storage)


@handles("outer")
def _outer(call: Call) -> Array:
    other = call.get("vec2", call.get("mat2"))
    return reductions.contract([call["self"], other], [["i"], ["j"]], ["i", "j"], call.storage)


@handles("scaled_dot_product_attention")
def _attention(call: Call) -> Array:
    if call.get("dropout_p", 0.0):
        raise GraphError("attention with dropout")
    return reductions.attention(
        call["query"],
        call["key"],
        call["value"],
        call.get("attn_mask"),
        causal=call.get("is_causal", False),
        scale=call.get("scale"),
        grouped=call.get("enable_gqa", False),
        storage=call.storage,
    )


def name_of(operator: str) -> str:
    """``aten.add.Tensor`` -> ``add``; "" if it is none of aten."""
    family, _, rest = operator.partition(".")
    return rest.split(".")[0] if family == "aten" else ""
