"""What a block reads from tables and computes from that, once: lengths of its request, how many chunks it has."""

from __future__ import annotations

from collections.abc import Iterator

from cleave.codegen.emission import Emission
from cleave.codegen.expression import At, index_text
from cleave.ir.axis import Axis
from cleave.ir.graph import term_indices, walk
from cleave.ir.index import Atom, Floor, Index, Max, Min, Mod, Position, Read, axes_of, inputs_of, of, parts
from cleave.tile.program import Contract, Let, Loop, Store, Update, program_axes, statements

_NAMES: dict[type[object], str] = {Floor: "quotient", Mod: "remainder", Min: "least_of", Max: "greatest_of"}


def name_values(em: Emission) -> None:
    """Constants for what depends on tables and on the open axes of the grid alone."""
    known = frozenset(em.units)
    for atom in dict.fromkeys(a for i in _expressions(em) for a in _atoms(em.fix(i))):
        if atom in em.named or not inputs_of(of(atom)) or not axes_of(of(atom)) <= known:
            continue
        text = index_text(em, of(atom), At())
        wish = f"{atom.input}_at" if isinstance(atom, Read) else _NAMES[type(atom)]
        name = em.names.fresh(wish)
        em.writer.line(f"const int {name} = {text};")
        em.named[atom] = name


def _atoms(expression: Index) -> Iterator[Atom]:
    """Those of an expression, the ones inside others first."""
    for atom in expression.atoms():
        if not isinstance(atom, Position):
            for part in parts(atom):
                yield from _atoms(part)
        yield atom


def _expressions(em: Emission) -> Iterator[Index]:
    axes: tuple[Axis, ...] = program_axes(em.program)
    yield from (a.extent for a in axes)
    for s in statements(em.program.body):
        match s:
            case Loop(_, lower, upper, _, _):
                yield from (lower, upper)
            case Store(_, indices, _, _, _):
                yield from indices
            case Let() | Update():
                terms = () if isinstance(s.term, Contract) else walk(s.term)
                yield from (i for t in terms for i in term_indices(t))
