"""What torch.export relies on: relations of sizes, as predicates of dims.

A fresh program has them as SymPy relations, one that was saved and loaded as Python text.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from math import lcm
from typing import Any, NoReturn

from cleave.errors import GraphError
from cleave.ir.dim import Dim
from cleave.ir.index import Not, Pred, Symbol, compare, index

RESERVED = 2
"""torch.export traces with sizes of at least 2 where nothing is declared; a lower bound of 2 is no fact."""

_COMPARISONS: dict[str, Callable[[Dim, Dim], Pred]] = {
    "Equality": lambda a, b: compare("==", a, b),
    "Unequality": lambda a, b: Not(compare("==", a, b)),
    "LessThan": lambda a, b: compare("<=", a, b),
    "StrictLessThan": lambda a, b: compare("<", a, b),
    "GreaterThan": lambda a, b: compare("<=", b, a),
    "StrictGreaterThan": lambda a, b: compare("<", b, a),
}
_FROM_PYTHON = {
    "Eq": "Equality",
    "NotEq": "Unequality",
    "LtE": "LessThan",
    "Lt": "StrictLessThan",
    "GtE": "GreaterThan",
    "Gt": "StrictGreaterThan",
}


def guards_of(exported: Any) -> list[Any]:
    """Relations that hold in a fresh program, as SymPy has them."""
    environments = (
        getattr(getattr(node.meta.get("val"), "fake_mode", None), "shape_env", None) for node in exported.graph.nodes
    )
    environment = next(filter(None, environments), None)
    # Symbols that turned out to be equal have been replaced by one of them since.
    return [environment.replace(guard.expr) for guard in environment.guards] if environment is not None else []


def multiples(guards: Sequence[Any]) -> dict[str, int]:
    """``s % 4 == 0`` as 4, by the symbol's name."""
    out: dict[str, int] = {}
    for guard in guards:
        if type(guard).__name__ == "Equality" and guard.args[1] == 0 and type(guard.args[0]).__name__ == "Mod":
            symbol, divisor = guard.args[0].args
            if symbol.is_Symbol and divisor.is_Integer:
                out[str(symbol)] = lcm(out.get(str(symbol), 1), int(divisor))
    return out


def predicate(guard: Any, dim_of: Callable[[Any], Dim]) -> Pred | None:
    """A relation of SymPy; None for one that says nothing beyond the ranges of symbols."""
    kind = type(guard).__name__
    if kind == "BooleanTrue":
        return None
    if kind not in _COMPARISONS:
        _refuse(str(guard))
    return _told(kind, *map(dim_of, guard.args))


def _told(kind: str, left: Dim, right: Dim) -> Pred | None:
    return None if left is right or _is_known(kind, left, right) else _COMPARISONS[kind](left, right)


def _is_known(kind: str, left: Dim, right: Dim) -> bool:
    """Whether it is the range of a symbol, or torch's own fear of sizes 0 and 1."""
    number, other = (left, right) if left.constant is not None else (right, left)
    if number.constant is None or kind == "Equality":
        return False
    if kind == "Unequality":
        return number.constant in (0, 1)
    is_lower = (number is right) == kind.endswith("GreaterThan")
    return isinstance(other.atom, Symbol) or (is_lower and number.constant <= RESERVED - kind.startswith("Strict"))


def _refuse(guard: str) -> NoReturn:
    raise GraphError(f"torch.export relies on {guard}: comparisons of sizes are known", location="from_torch")


# ---- as text

_SIZE = re.compile(r"L\['(\w+)'\]((?:\[[^]]*\])*)\.size\(\)\[(\d+)\]")


def saved_predicates(exported: Any, shapes: Mapping[str, Sequence[Dim]]) -> list[Pred]:
    """Relations of a program that was saved; ``shapes`` of its arguments by their names."""
    out: list[Pred] = []
    for text in getattr(exported, "_guards_code", ()):
        sizes: dict[str, Dim] = {}

        def named(found: re.Match[str], sizes: dict[str, Dim] = sizes) -> str:
            argument = "_".join([found[1], *re.findall(r"\w+", found[2])])
            name = f"{argument}__{found[3]}"
            if argument in shapes:
                sizes[name] = shapes[argument][int(found[3])]
            return name

        tree = ast.parse(_SIZE.sub(named, text), mode="eval").body
        if not isinstance(tree, ast.Compare) or len(tree.ops) != 1:
            _refuse(text)
        left, right = (_parsed(e, sizes, text) for e in (tree.left, tree.comparators[0]))
        pred = _told(_FROM_PYTHON.get(type(tree.ops[0]).__name__) or _refuse(text), left, right)
        out += [] if pred is None else [pred]
    return out


def _parsed(e: ast.expr, sizes: Mapping[str, Dim], text: str) -> Dim:
    match e:
        case ast.Constant(int(value)):
            return index(value)
        case ast.Name(name) if name in sizes:
            return sizes[name]
        case ast.UnaryOp(ast.USub(), a):
            return -_parsed(a, sizes, text)
        case ast.BinOp(a, op, b) if type(op) in _ARITHMETIC:
            return _ARITHMETIC[type(op)](_parsed(a, sizes, text), _parsed(b, sizes, text))
        case _:
            _refuse(text)


_ARITHMETIC: dict[type[ast.operator], Callable[[Dim, Dim], Dim]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
}
