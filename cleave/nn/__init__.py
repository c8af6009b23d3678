"""The usual operators as plain graphs, and the table that the command line finds them in.

attention   softmax(q kᵀ · scale) v, with grouped heads and a causal mask
matmul      a b
softmax     along the last axis
"""

from cleave.nn.attention import attention
from cleave.nn.elementary import matmul, softmax
from cleave.nn.operators import OPERATORS, Operator, instantiate

__all__ = ["OPERATORS", "Operator", "attention", "instantiate", "matmul", "softmax"]
