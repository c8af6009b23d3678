"""Running exported programs on NumPy arrays, to be compared with the interpreter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cleave.candidate import Candidate
from cleave.export import to_onnx, to_torch
from cleave.ir.graph import Graph, Input

Array = NDArray[Any]
Arrays = Mapping[str, Array]
Source = Graph | Candidate


def graph_of(source: Source) -> Graph:
    return source if isinstance(source, Graph) else source.graph


def stored(source: Input, value: Array) -> Array:
    """Values as an input's type has them; NumPy has no bfloat16."""
    return np.asarray(value).astype("float32" if source.dtype == "bfloat16" else source.dtype)


def storable(g: Graph, inputs: Arrays) -> dict[str, Array]:
    return {i.name: stored(i, inputs[i.name]) for i in g.inputs}


def with_torch(source: Source, inputs: Arrays, dims: Mapping[str, int]) -> list[Array]:
    """Outputs of the torch module, called by names."""
    import torch

    module = to_torch(source, precision="float64")
    names = [n.target for n in module.graph.nodes if n.op == "placeholder"]
    arguments = {n: torch.as_tensor(inputs[n]) if n in inputs else dims[n] for n in names}
    out = module(**arguments)
    return [x.to(torch.float64).numpy() for x in (out if isinstance(out, tuple) else (out,))]


def with_onnx_reference(source: Source, inputs: Arrays, dims: Mapping[str, int]) -> list[Array]:
    from onnx.reference import ReferenceEvaluator

    model = to_onnx(source, precision="float64")
    with np.errstate(all="ignore"):
        return _floats(ReferenceEvaluator(model).run(None, _feed(model, inputs, dims)))


def with_onnx_runtime(source: Source, inputs: Arrays, dims: Mapping[str, int]) -> list[Array]:
    import onnxruntime

    model = to_onnx(source, precision="float64")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return _floats(session.run(None, _feed(model, inputs, dims)))


def _feed(model: Any, inputs: Arrays, dims: Mapping[str, int]) -> dict[str, Array]:
    names = [i.name for i in model.graph.input]
    return {n: inputs[n] if n in inputs else np.asarray(dims[n], dtype=np.int64) for n in names}


def _floats(results: Sequence[Any]) -> list[Array]:
    return [np.asarray(x).astype(np.float64) for x in results]
