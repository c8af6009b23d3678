"""Tracing: a Python function over named tensors, in the manner of NumPy, becomes a graph.

spec.py     what inputs and outputs look like: "b (kv_heads group) s d=64", "int32[b t]"
tensor.py   the traced tensor: float terms, integer expressions and predicates over named axes
align.py    which axes of two operands are one axis
einsum.py, view.py, ops.py   what can be done with tensors
trace.py    from a function to a graph
"""
