"""A small world for terms of the rule language: axes, opaque leaves and masks, and random numbers for them.

    t, n, r, b   plain axes
    k            splittable, the pair (Outer k S, Inner k S)
    u            ragged: its extent is read per b
    j            ragged per b and splittable, count R

Leaves are opaque for the rules, so a leaf simply is an array over its axes. A split axis takes two dimensions of every
array, chunk and position in the chunk; positions beyond an extent hold NaN, so that whatever reads one shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cleave.rewrite.sexp import Sexp, show

Array = NDArray[Any]

PLAIN = ("t", "n", "r", "b")
SPLIT = {"k": "S", "j": "R"}
OWNER = {"u": "b", "j": "b"}
AXES = (*PLAIN, "k", "u", "j")


@dataclass(frozen=True, slots=True)
class Leaf:
    """``masked``: some values are -inf, as in an additive mask. ``param``: depends on weights only."""

    axes: tuple[str, ...]
    masked: bool = False
    param: bool = False


LEAVES = (
    Leaf(("t", "k")),
    Leaf(("k",)),
    Leaf(("k", "n")),
    Leaf(("t",)),
    Leaf(()),
    Leaf(("n",)),
    Leaf(("t", "r")),
    Leaf(("b",)),
    Leaf(("b", "u")),
    Leaf(("u",)),
    Leaf(("b", "j")),
    Leaf(("b", "j", "n")),
    Leaf(("k",), param=True),
    Leaf(("k", "n"), param=True),
    Leaf(("k", "r"), param=True),
    Leaf(("r", "n"), param=True),
    Leaf(("t", "k"), masked=True),
    Leaf(("k",), masked=True),
    Leaf(("b", "j"), masked=True),
)

PREDICATES: tuple[tuple[str, ...], ...] = (("t", "k"), ("k",), ("n",), ("b", "u"), ("b", "j"))


def axis(name: str) -> Sexp:
    return ("A", f'"{name}"')


def pieces(name: str) -> tuple[Sexp, Sexp]:
    """(Outer, Inner) of a split axis."""
    count: Sexp = ("DSym", f'"{SPLIT[name]}"')
    return ("Outer", axis(name), count), ("Inner", axis(name), count)


def whole(name: str) -> tuple[Sexp, ...]:
    """What a reader of the index depends on."""
    return (axis(name), *pieces(name)) if name in SPLIT else (axis(name),)


def base_of(ax: Sexp) -> str:
    """Name of the base axis of an axis expression."""
    return base_of(ax[1]) if not isinstance(ax, str) and ax[0] in ("Outer", "Inner") else show(ax[1]).strip('"')


def extent_axes(ax: Sexp) -> tuple[Sexp, ...]:
    """What the extent of an axis depends on."""
    name = base_of(ax)
    owners = whole(OWNER[name]) if name in OWNER else ()
    match ax[0]:
        case "A":
            return owners
        case "Inner":
            return (axis(name), pieces(name)[0], *owners)
        case _:
            return ()


def facts() -> str:
    """What the encoder of a graph states about axes, leaves and predicates."""
    lines: list[str] = []
    for name in AXES:
        lines += [f"(Axis {show(axis(name))})", f"(set (whole {show(axis(name))}) {_set(whole(name))})"]
        for ax in whole(name):
            lines.append(f"(set (exts {show(ax)}) {_set(extent_axes(ax))})")
        if name in SPLIT:
            outer, inner = pieces(name)
            lines += [f"(set (whole {show(piece)}) {_set((piece,))})" for piece in (outer, inner)]
            lines.append(f"(Splittable {show(axis(name))} {show(outer[2])})")
    for number, leaf in enumerate(LEAVES):
        lines.append(f"(set (axes (Leaf {number})) {_set(_refined(leaf.axes))})")
        lines += [f"(Param (Leaf {number}))"] * leaf.param
    lines += [f"(set (paxes {number}) {_set(_refined(axes))})" for number, axes in enumerate(PREDICATES)]
    lines += [f"(set (place {show(ax)}) {number})" for number, ax in enumerate(places())]
    return "\n".join(lines)


def places() -> list[Sexp]:
    """All axes in the order in which nests of reductions are wanted, inner ones first."""
    return _refined(AXES)


def _refined(names: Iterable[str]) -> list[Sexp]:
    return [ax for name in names for ax in whole(name)]


def _set(axes: Iterable[Sexp]) -> str:
    inside = " ".join(show(ax) for ax in axes)
    return f"(set-of {inside})" if inside else "(set-empty)"


# ---- numbers ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sizes:
    """Extents of the plain axes and of k, lengths of u and j for each b, the split counts S and R.

    ``slack`` makes chunks longer than they must be, so that some are empty. An array dimension of size 1 means that a
    value does not depend on it, so counts are at least 2, and an axis of extent 0 or 1 has positions that do not exist.
    """

    extents: dict[str, int]
    lengths: dict[str, tuple[int, ...]]
    counts: dict[str, int]
    slack: int = 0

    def greatest(self, name: str) -> int:
        return max(self.lengths[name], default=0) if name in OWNER else self.extents[name]

    def chunk(self, name: str) -> int:
        return max(-(-self.greatest(name) // self.counts[SPLIT[name]]) + self.slack, 2)

    def __str__(self) -> str:
        parts = {**self.extents, **self.lengths, **self.counts}
        chunks = ", ".join(f"chunks of {name}: {self.chunk(name)}" for name in SPLIT)
        return ", ".join(f"{name}={value}" for name, value in parts.items()) + f", {chunks}"


@cache
def dimensions(ax: Sexp) -> tuple[int, ...]:
    """Array dimensions of an axis: two for a split base axis."""
    name = base_of(ax)
    first = sum(2 if other in SPLIT else 1 for other in AXES[: AXES.index(name)])
    match ax[0]:
        case "Outer":
            return (first,)
        case "Inner":
            return (first + 1,)
        case _:
            return (first, first + 1) if name in SPLIT else (first,)


DIMENSIONS: tuple[Sexp, ...] = tuple(ax for name in AXES for ax in (pieces(name) if name in SPLIT else (axis(name),)))
RANK = len(DIMENSIONS)


class Drawn:
    """Arrays by number, each made when it is first asked for: a term has two or three of all leaves."""

    def __init__(self, draw: Callable[[int], Array]) -> None:
        self._draw = cache(draw)

    def __getitem__(self, number: int, /) -> Array:
        return self._draw(number)


def resized(at: Sizes, folded: Sequence[str], rng: np.random.Generator) -> Sizes:
    """The same with axes of equal extents, or with some that have one position or none, a folded one above all."""
    if rng.random() < EQUAL:
        extent = int(rng.integers(2, 5))
        return replace(at, extents=dict.fromkeys(at.extents, extent), lengths=dict.fromkeys(OWNER, (extent,) * extent))
    extents = {name: int(rng.choice([0, 1, extent], p=ODD)) for name, extent in at.extents.items()}
    chosen, odd = str(rng.choice(folded)) if folded else "", int(rng.integers(2))
    if chosen in extents:
        extents[chosen] = odd
    lengths = {name: at.lengths[name][: extents[owner]] for name, owner in OWNER.items()}
    if chosen in OWNER:
        lengths[chosen] = tuple(odd if rng.random() < EQUAL else length for length in lengths[chosen])
    return replace(at, extents=extents, lengths=lengths)


EQUAL, ODD = 0.3, (0.15, 0.3, 0.55)
"""Share of equal extents among odd sizes; of the others that of no position, one position, and as many as before."""
SCALES, HUGE_SCALES = (1.0, 1.0, 1.0, 8.0), (1.0, 1e4, 1e8)
ZEROS = (0.0, 0.0, 0.0, 0.3)
"""Of each leaf: how large its values are, and the share of zeros. Rules may be wrong at 0 or far from it alone."""


@dataclass
class Numbers:
    """Values of the leaves and masks of a world of given sizes."""

    sizes: Sizes
    seed: int
    is_huge: bool = False
    positions: dict[str, Array] = field(default_factory=dict[str, Array])  # along the dimensions of each axis
    existing: dict[str, Array] = field(default_factory=dict[str, Array])  # position < extent, per owner if ragged
    masks: dict[tuple[bool, ...], Array] = field(default_factory=dict[tuple[bool, ...], Array])

    def __post_init__(self) -> None:
        self.positions = {name: self._position(name) for name in AXES}
        self.existing = {name: self.positions[name] < self._extent(name) for name in AXES}
        self.leaves = Drawn(self._leaf)
        self.predicates = Drawn(self._predicate)

    @property
    def slots(self) -> tuple[Sexp, ...]:
        return DIMENSIONS

    def dimensions(self, ax: Sexp) -> tuple[int, ...]:
        return dimensions(ax)

    def exists_for(self, shape: tuple[int, ...]) -> Array:
        """Where a value of that shape has a meaning: at positions that exist, as far as the value tells them apart."""
        key = tuple(n > 1 for n in shape)
        if key not in self.masks:
            self.masks[key] = self._mask(key)
        return self.masks[key]

    def _mask(self, present: tuple[bool, ...]) -> Array:
        out: Array = np.ones([1] * RANK, dtype=bool)
        for name in AXES:
            if all(present[d] for d in dimensions(axis(name))):
                out = out & (self.positions[name] < self.sizes.greatest(name))
                if name in OWNER and present[dimensions(axis(OWNER[name]))[0]]:
                    out = out & self.existing[name]
        return out

    def _position(self, name: str) -> Array:
        if name in SPLIT:
            count, chunk = self.sizes.counts[SPLIT[name]], self.sizes.chunk(name)
            grid = np.arange(count)[:, None] * chunk + np.arange(chunk)[None, :]
        else:
            grid = np.arange(max(self.sizes.greatest(name), 2))
        return _along(grid, dimensions(axis(name)))

    def _extent(self, name: str) -> Array:
        if name in OWNER:
            owners = np.zeros(self.positions[OWNER[name]].size, dtype=int)  # more than there are, of an axis of 0 or 1
            owners[: len(self.sizes.lengths[name])] = self.sizes.lengths[name]
            return _along(owners, dimensions(axis(OWNER[name])))
        return _along(np.asarray(self.sizes.extents[name]), ())

    def _shape(self, names: Iterable[str]) -> tuple[int, ...]:
        shape = [1] * RANK
        for name in names:
            for d in dimensions(axis(name)):
                shape[d] = self.positions[name].shape[d]
        return tuple(shape)

    def _predicate(self, number: int) -> Array:
        return np.random.default_rng([self.seed, number, 1]).random(self._shape(PREDICATES[number])) < 0.6

    def _leaf(self, number: int) -> Array:
        leaf, rng = LEAVES[number], np.random.default_rng([self.seed, number, 0])
        shape = self._shape(leaf.axes)
        scale = rng.choice(HUGE_SCALES if self.is_huge else SCALES)
        values = rng.uniform(0.3, 1.6, shape) * rng.choice([-1.0, 1.0], shape) * scale
        values = np.where(rng.random(shape) < rng.choice(ZEROS), 0.0, values)
        if leaf.masked:
            values = np.where(rng.random(shape) < 0.4, -np.inf, values)
        for name in leaf.axes:
            owned = OWNER.get(name) in leaf.axes
            inside = self.existing[name] if owned else self.positions[name] < self.sizes.greatest(name)
            values = np.where(inside, values, np.nan)
        return values


def _along(values: Array, dims: tuple[int, ...]) -> Array:
    shape = [1] * RANK
    for d, n in zip(dims, values.shape, strict=True):
        shape[d] = n
    return values.reshape(shape)
