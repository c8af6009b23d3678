"""Terms of the rule language (``rules/lang.egg``) as hash-consed nodes.

    ETerm   ::= op [Plain ..] [ETerm ..]       constructor, its arguments that are no terms, its operands
    Plain   ::= AxisRef | integer | float | name
    AxisRef ::= name, part of it               the axis itself, its chunk index (outer), its position in a chunk (inner)

Leaves and predicates are numbers here; what they stand for is in the ``Encoding``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from cleave.ir.intern import Interned, Node

Part = Literal["whole", "outer", "inner"]


class AxisRef(NamedTuple):
    """An axis of the rule language by its name in the encoding."""

    name: str
    part: Part = "whole"


Plain = AxisRef | int | float | str

CONSTRUCTORS = {"sum": "Sum", "max": "MaxOf", "min": "MinOf"}
"""Monoids of ``cleave.ir.op`` in the rule language."""

MONOIDS = {constructor: name for name, constructor in CONSTRUCTORS.items()}

COMMUTATIVE = frozenset({"Add", "Mul"})
"""Operators whose operands are kept sorted: they have a rule of commutativity."""


@dataclass(frozen=True, eq=False, repr=False)
class ETerm(Node, metaclass=Interned):
    op: str
    plain: tuple[Plain, ...]
    operands: tuple[ETerm, ...]

    def __repr__(self) -> str:
        inside = [*(str(p) for p in self.plain), *(repr(t) for t in self.operands)]
        return f"{self.op}({', '.join(inside)})"


def camel(name: str) -> str:
    """exp_diff -> ExpDiff."""
    return "".join(word.capitalize() for word in name.split("_"))


def walk(*roots: ETerm) -> list[ETerm]:
    """Every distinct term, operands first."""
    seen: set[ETerm] = set()
    out: list[ETerm] = []
    stack = [(root, 0) for root in reversed(roots)]
    while stack:
        term, at = stack.pop()
        if at == 0:
            if term in seen:
                continue
            seen.add(term)
        if at < len(term.operands):
            stack.append((term, at + 1))
            if term.operands[at] not in seen:
                stack.append((term.operands[at], 0))
        else:
            out.append(term)
    return out
