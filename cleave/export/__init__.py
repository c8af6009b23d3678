"""Graphs and candidates as programs of other libraries: PyTorch and ONNX, each imported when it is asked for.

lower.py      the graph, walked once: sums of products as einsum, positions that do not exist masked
builder.py    what a library must offer
to_torch.py   torch.fx
to_onnx.py    ONNX
"""

from cleave.export.to_onnx import to_onnx
from cleave.export.to_torch import to_torch

__all__ = ["to_onnx", "to_torch"]
