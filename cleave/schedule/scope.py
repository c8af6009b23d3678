"""Scopes of a program while it is written: the kernel's body and the bodies of its open loops."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from cleave.ir.axis import Axis
from cleave.ir.graph import Reduce, Ref, Term
from cleave.schedule.grouping import Group
from cleave.tile.program import Stmt


@dataclass(eq=False)
class Scope:
    """Statements so far, and what is known in them.

    known    graph term -> its emitted value
    groups   reductions whose home this is -> the loop that will compute them
    narrow   name of a value -> its cast to the storage type of matmuls
    open     axes of the loops around
    """

    parent: Scope | None = None
    axis: Axis | None = None
    statements: list[Stmt] = field(default_factory=list[Stmt])
    known: dict[Term, Term] = field(default_factory=dict[Term, Term])
    groups: dict[Reduce, Group] = field(default_factory=dict[Reduce, Group])
    narrow: dict[str, Ref] = field(default_factory=dict[str, Ref])
    open: frozenset[Axis] = frozenset()

    def chain(self) -> Iterator[Scope]:
        """From this scope outward."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent

    def out_to(self, home: Scope) -> Iterator[Scope]:
        """From this scope outward, ``home`` included and no further."""
        for scope in self.chain():
            yield scope
            if scope is home:
                return

    def inside(self, a: Axis) -> Scope:
        return Scope(self, a, open=self.open | {a})
