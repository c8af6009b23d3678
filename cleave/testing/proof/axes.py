"""How the axes of a rule can be related, and what its terms see of them.

An axis variable stands for a base axis or for a piece of one, and two of them may be distinct, equal, one a piece of
the other, or two pieces of one axis; the extent of one may depend on the position along another. A *case* is one such
choice that the guards of the rule allow. A rule is proved if it is proved in every case.

A base axis of which some piece is named is the pair of its pieces, so binding it binds both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, product
from typing import Literal

from cleave.rewrite.sexp import Sexp, show
from cleave.testing.proof.arithmetic import Outside
from cleave.testing.proof.guards import Guards, under_pieces

Part = Literal["whole", "outer", "inner"]
PARTS: tuple[Part, ...] = ("whole", "outer", "inner")
MOST_VARIABLES = 3


@dataclass(frozen=True, slots=True)
class Ax:
    base: str
    part: Part = "whole"

    def __str__(self) -> str:
        return self.base if self.part == "whole" else f"{self.base}.{self.part}"


@dataclass(frozen=True, slots=True)
class Case:
    """What each axis variable stands for; ``owners``: the base axes that the extent of a base axis depends on."""

    axes: Mapping[str, Ax]
    owners: Mapping[str, tuple[str, ...]]
    split: frozenset[str]

    def __str__(self) -> str:
        by_itself = {name: Ax(name) for name in self.axes}
        said = [f"{name} is {_phrase(name, ax)}" for name, ax in self.axes.items() if by_itself[name] != ax]
        said += [f"the extent of {base} depends on {', '.join(by)}" for base, by in self.owners.items() if by]
        return "; ".join(said) or "distinct axes"

    def resolve(self, ax: Sexp) -> Ax:
        match ax:
            case str(name) if name in self.axes:
                return self.axes[name]
            case ("Outer" | "Inner" as piece, inside, _):
                found = self.resolve(inside)
                if found.part == "whole":
                    return Ax(found.base, "outer" if piece == "Outer" else "inner")
            case _:
                pass
        raise Outside(f"the axis {show(ax)}")

    def slots(self, ax: Ax) -> tuple[Ax, ...]:
        """The positions that make up the position along an axis, owners first."""
        if ax.part == "whole" and ax.base in self.split:
            return Ax(ax.base, "outer"), Ax(ax.base, "inner")
        return (ax,)

    def extent_slots(self, ax: Ax) -> tuple[Ax, ...]:
        """The positions that the extent of a slot depends on."""
        if ax.part == "outer":
            return ()
        owners = tuple(slot for base in self.owners.get(ax.base, ()) for slot in self.slots(Ax(base)))
        return (Ax(ax.base, "outer"), *owners) if ax.part == "inner" else owners

    def whole(self, ax: Ax) -> frozenset[Ax]:
        """As the fact of that name: what a reader of the index depends on."""
        return frozenset({ax} | set(self.slots(ax)))

    def extent_axes(self, ax: Ax) -> frozenset[Ax]:
        """As the fact ``exts``."""
        if ax.part == "outer":
            return frozenset()
        owned_by = frozenset[Ax]().union(*(self.whole(Ax(base)) for base in self.owners.get(ax.base, ())))
        return owned_by | {Ax(ax.base), Ax(ax.base, "outer")} if ax.part == "inner" else owned_by

    def allowed_by(self, guards: Guards) -> bool:
        for m in guards.memberships:
            if m.subject != "axes" and m.variable in self.axes:
                ax = self.axes[m.variable]
                known = self.whole(ax) if m.subject == "whole" else self.extent_axes(ax)
                if (self.resolve(m.ax) in known) is not m.inside:
                    return False
        return all(self.resolve(a) != self.resolve(b) for a, b in guards.different if _are_axes(a, b, self.axes))


def cases(variables: tuple[str, ...], sides: tuple[Sexp, ...], guards: Guards) -> Iterator[Case]:
    """Every case that the guards allow, distinct base axes first. Outside: too many axes to list them."""
    if len(variables) > MOST_VARIABLES:
        raise Outside(f"{len(variables)} axis variables; it lists the cases of {MOST_VARIABLES}")
    named_pieces = frozenset(name for side in sides for name in under_pieces(side))
    for axes in _choices(variables, guards.bases):
        pieces = {ax.base for ax in axes.values() if ax.part != "whole"}
        split = frozenset(pieces | {axes[name].base for name in named_pieces if name in axes})
        for owners in _ownerships(tuple(dict.fromkeys(ax.base for ax in axes.values()))):
            case = Case(axes, owners, split)
            if case.allowed_by(guards):
                yield case


def _choices(variables: tuple[str, ...], bases: frozenset[str]) -> Iterator[dict[str, Ax]]:
    for groups in _partitions(variables):
        parts: list[tuple[Part, ...]] = [("whole",) if v in bases else PARTS for v in variables]
        for chosen in product(*parts):
            yield {v: Ax(groups[v], part) for v, part in zip(variables, chosen, strict=True)}


def _partitions(variables: tuple[str, ...]) -> Iterator[dict[str, str]]:
    """Each variable -> the first variable of its group; all apart comes first."""
    if not variables:
        yield {}
        return
    *before, last = variables
    for groups in _partitions(tuple(before)):
        for representative in (last, *dict.fromkeys(groups.values())):
            yield {**groups, last: representative}


def _ownerships(bases: tuple[str, ...]) -> Iterator[dict[str, tuple[str, ...]]]:
    """Every way in which extents may depend on other axes, without circles, and with the owners of owners."""
    pairs = [(a, b) for a in bases for b in bases if a != b]
    for size in range(len(bases) * (len(bases) - 1) // 2 + 1):
        for chosen in combinations(pairs, size):
            owners = {a: tuple(b for x, b in chosen if x == a) for a in bases}
            if all(a not in owners[b] and set(owners[b]) <= set(owners[a]) for a in bases for b in owners[a]):
                yield owners


def _are_axes(a: Sexp, b: Sexp, axes: Mapping[str, Ax]) -> bool:
    return all(ax in axes if isinstance(ax, str) else ax[0] in ("Outer", "Inner") for ax in (a, b))


def _phrase(name: str, ax: Ax) -> str:
    base = "an axis" if ax.base == name else ax.base
    return {"whole": base, "outer": f"the chunk index of {base}", "inner": f"the place in a chunk of {base}"}[ax.part]
