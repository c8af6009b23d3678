"""Elementwise operators, masks, casts, and arrays that are made."""

from __future__ import annotations

from dataclasses import replace

from cleave.errors import GraphError
from cleave.frontend.tensor import Tensor, quotient
from cleave.frontend.torch import elementwise as ew
from cleave.frontend.torch.array import Array
from cleave.frontend.torch.aten.call import HANDLERS, Call, Handler, handles
from cleave.frontend.torch.aten.emptiness import Emptiness, any_of, guarded, is_empty, negated
from cleave.frontend.torch.elementwise import apply, array
from cleave.frontend.torch.pairs import rotated_halves
from cleave.frontend.torch.reductions import dims_of
from cleave.ir.graph import Map
from cleave.ir.op import FLOATS

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
    "square": "sq",
    "reciprocal": "recip",
}.items():
    HANDLERS[_name] = _of_one(ew.elementwise(_op))
HANDLERS["relu"] = _of_one(ew.relu)
HANDLERS["abs"] = _of_one(ew.magnitude)

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
            return _as_rotation(ew.binary(op)(left, ew.scaled(right, alpha)))

        return apply(function, call.storage, call["self"], call["other"])

    return handler


def _as_rotation(x: Tensor) -> Tensor:
    match x.value:
        case Map("add", (a, b)):
            found = rotated_halves(a, b) or rotated_halves(b, a)
            return x if found is None else replace(x, value=found)
        case _:
            return x


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


@handles("round")
def _round(call: Call) -> Array:
    if call.get("decimals", 0):
        raise GraphError("decimals")
    return apply(ew.elementwise("round"), call.storage, call["self"])


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


@handles("eq")
def _eq(call: Call) -> Array | Emptiness:
    x = array(call["self"])
    found = is_empty(x, call["other"]) if x.storage in FLOATS else None
    return found or apply(ew.compared("=="), call.storage, x, call["other"])


@handles("any")
def _any(call: Call) -> Emptiness:
    x = call["self"]
    if not isinstance(x, Emptiness):
        raise GraphError("")
    return any_of(x, tuple(dims_of(x.source, call["dim"])))


@handles("logical_not", "bitwise_not")
def _not(call: Call) -> Array | Emptiness:
    if isinstance(call["self"], Emptiness):
        return negated(call["self"])
    return apply(ew.negated, call.storage, call["self"])


@handles("where")
def _where(call: Call) -> Array:
    if isinstance(call["condition"], Emptiness):
        return guarded(call["condition"], call["self"], call["other"])
    return apply(ew.chosen, call.storage, call["condition"], call["self"], call["other"])


@handles("masked_fill")
def _masked_fill(call: Call) -> Array:
    return apply(ew.chosen, call.storage, call["mask"], call["value"], call["self"])


HANDLERS["tril"] = lambda call: ew.triangle(call["self"], call.get("diagonal", 0), upper=False)
HANDLERS["triu"] = lambda call: ew.triangle(call["self"], call.get("diagonal", 0), upper=True)


@handles("to", "_to_copy", "type_as")
def _to(call: Call) -> Array:
    return call.cast(call["self"], call.storage)


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
