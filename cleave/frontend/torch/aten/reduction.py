"""Reductions, norms, contractions and attention."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cleave.errors import GraphError
from cleave.frontend.torch import elementwise as ew
from cleave.frontend.torch import reductions
from cleave.frontend.torch.array import Array
from cleave.frontend.torch.aten.call import HANDLERS, Call, Handler, handles
from cleave.frontend.torch.elementwise import apply

# ---- reductions


def _reduction(op: str) -> Handler:
    def handler(call: Call) -> Array:
        x = call.operand()
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
    x = call.operand()
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
    return replace(reductions.softmax(call.operand(), call["dim"]), storage=call.storage)


@handles("log_softmax", "_log_softmax")
def _log_softmax(call: Call) -> Array:
    return replace(reductions.log_softmax(call.operand(), call["dim"]), storage=call.storage)


@handles("logsumexp")
def _logsumexp(call: Call) -> Array:
    x: Array = call["self"]
    return reductions.logsumexp(x, reductions.dims_of(x, call["dim"]), keepdim=call.get("keepdim", False))


_SMALLEST, _SMALLEST_DOUBLE = 2**-23, 2**-52
"""What torch adds if no eps is given: the spacing of the type that it computes in."""


@handles("rms_norm", "_fused_rms_norm")
def _rms_norm(call: Call) -> Any:
    x: Array = call.get("input", call.get("self"))
    eps = call.get("eps", _SMALLEST_DOUBLE if x.storage == "float64" else _SMALLEST)
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
