"""Graphs from functions: what ``optimize`` and ``cleave optimize FILE.py:FUNCTION`` take.

def build(): ...                    no parameters: returns a Graph
def f(q: "h s d=64", k: "h t d"):   every parameter annotated with its axes: traced
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from cleave.errors import GraphError
from cleave.ir.graph import Graph

Program = Graph | Callable[..., Any]


def graph_of(program: Program, *, dtype: str = "float16") -> Graph:
    """The graph itself; what a function without parameters returns; or the trace of a function.

    The annotations of a traced function are specifications of ``cleave.trace``: ``q: "h s d=64"``, ``len: "int32[b]"``.
    Errors: a parameter without such an annotation, a function that returns no graph.
    """
    if isinstance(program, Graph):
        return program
    name = getattr(program, "__name__", "the function")
    if not callable(program):
        raise GraphError(f"is {type(program).__name__}, no graph and no function", location=str(name))
    parameters = inspect.signature(program).parameters
    if not parameters:
        return _returned(program(), name)
    if inspect.iscoroutinefunction(program):
        raise GraphError("is a coroutine function; a plain function is expected", location=name)
    specs: dict[str, Any] = {}
    for p in parameters.values():
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            raise GraphError(f"parameter {p}: inputs have names of their own", location=name)
        spec = _specification(p)
        if spec is not None:
            specs[p.name] = spec
        elif p.default is p.empty:
            message = f'parameter {p.name} has no axes: annotate it, such as {p.name}: "b t d=64"'
            raise GraphError(message, location=name)
    from cleave.frontend.trace import trace

    return trace(program, dtype=dtype, **specs)


def _specification(p: inspect.Parameter) -> str | None:
    """The annotation as text. With ``from __future__ import annotations`` a string is quoted once more."""
    written = p.annotation
    if not isinstance(written, str):
        return None
    return written[1:-1] if len(written) > 1 and written[0] == written[-1] and written[0] in "'\"" else written


def _returned(value: object, name: str) -> Graph:
    if not isinstance(value, Graph):
        raise GraphError(
            f"returns {type(value).__name__}, a function without parameters returns a Graph", location=name
        )
    return value
