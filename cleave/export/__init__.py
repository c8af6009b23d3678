"""Graphs, candidates and schedules as programs of others: PyTorch, ONNX (each imported when it is asked for), and
FlashInfer-Bench.

lower.py      the graph, walked once: sums of products as einsum, positions that do not exist masked
builder.py    what a library must offer
to_torch.py   torch.fx
to_onnx.py    ONNX
to_solution.py  a schedule as a Solution of FlashInfer-Bench
"""

from cleave.export.to_onnx import to_onnx
from cleave.export.to_solution import to_solution
from cleave.export.to_torch import to_torch

__all__ = ["to_onnx", "to_solution", "to_torch"]
