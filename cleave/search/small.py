"""The generic form of the input graph at small sizes, at which folds and steps are tried.

A rule knows no size: an equation between terms of a graph over 4096 x 4096 weights is one between the same terms of its
generic form, where 4096 is a free dim.
"""

from __future__ import annotations

from dataclasses import dataclass

from cleave.ir.generic import Freed, generic_graph, literals
from cleave.ir.graph import Graph
from cleave.ir.instance import Instance, fixed_dims, largest, small_instance, small_instances

MOST_ELEMENTS = 1 << 22
"""Of an array in an instance with literal extents."""

_FREE = 7
"""About what a free dim has in an instance."""
_NARROW = (3, 2)
"""What free dims have where many axes stand together."""


@dataclass(frozen=True)
class Small:
    """Instances of the input graph with the extents in ``freed`` as free dims."""

    freed: Freed
    instances: tuple[Instance, ...]


def small_form(g: Graph) -> Small:
    """Instances of the generic form; of the graph itself where it has no other, and is no larger than memory takes."""
    freed = literals(g)
    found = tuple(small_instances(generic_graph(g, freed), most=MOST_ELEMENTS)) if freed else ()
    if found:
        return Small(freed, found)
    as_it_is = Freed({}, {})
    known = {**{s.name: max(s.minimum, _FREE) for s in g.symbols}, **fixed_dims(g)}
    if largest(g, known) > MOST_ELEMENTS:
        return Small(as_it_is, ())
    return Small(as_it_is, tuple(small_instances(g, most=MOST_ELEMENTS)))


def narrow_form(g: Graph) -> Small:
    """As narrow as tells axes apart, for terms over many of them: short literal extents are free dims as well. Without
    instances where there are so many axes that even those are large.
    """
    freed = literals(g, above=1)
    generic = generic_graph(g, freed)
    drawn = (small_instance(generic, seed, sizes=_NARROW, most=MOST_ELEMENTS) for seed in range(2))
    return Small(freed, tuple(at for at in drawn if at is not None))
