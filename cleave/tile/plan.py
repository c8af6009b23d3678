"""Schedules: tile programs in order, and the values that bind their symbols.

A ``Binding`` holds what may change without changing the program: tile sizes, warps, stages. A ``Schedule`` is one
way to run a candidate: kernels, the temporaries between them, how split partials are merged, and the shape it was
chosen for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from math import lcm
from pathlib import Path
from typing import Literal

from cleave.ir.axis import Axis
from cleave.ir.graph import Graph
from cleave.ir.index import Compare, Index, Mod, Pred, Symbol, ceildiv, compare
from cleave.target import Target
from cleave.tile.program import Buffer, Program

Merge = Literal["none", "second-launch", "last-arriving", "spread", "cluster"]
"""How the partials of a split are joined: by a second kernel; by its body run in the block that arrives last; by its
body divided among the blocks, which wait for one another; or so in a cluster, whose shared memory holds them.

"spread" is never chosen unasked: its blocks need the device for themselves. Two such launches at once, or a share of
the multiprocessors that holds fewer blocks than there are chunks, may wait for ever; and the meeting takes 4.5 us.
"""

ONE_LAUNCH: frozenset[Merge] = frozenset({"last-arriving", "spread", "cluster"})
"""Merges that run in the launch that makes the partials."""


Chain = Literal["registers", "shared"]
"""How a computed operand reaches the next matmul: its fragment repacked in place, or through shared memory."""


Feed = Literal["cp.async", "tma"]
"""How tiles of loops reach shared memory: each thread copies chunks, or one asks the copy engine for boxes."""


Mma = Literal["mma.sync", "wgmma"]
"""Instructions of a matmul: a warp's, of fragments in registers; or a warpgroup's, which read tiles of boxes."""


@dataclass(frozen=True)
class Chunk:
    """The chunk length of a split, computed by the host at each call: whole tiles, and ``count * length >= extent``.

    length = multiple * ceil(extent / (count * multiple)), so that count * length >= extent even when chunks stay empty.
    """

    symbol: Symbol
    extent: Index
    count: Index
    multiple: int

    @property
    def length(self) -> Index:
        return ceildiv(self.extent, self.count * self.multiple) * self.multiple


@dataclass(frozen=True)
class Multicast:
    """Blocks of a cluster, neighbours along a grid axis, that fetch together the boxes that do not depend on it.

    Each asks for its share of a box, which lands in all of them: the cache is read once for ``blocks`` of them.
    """

    axis: Axis
    blocks: int

    def condition(self, tile: int) -> Pred:
        """Clusters are full: the number of tiles of the axis, of so many elements each, is a multiple of ``blocks``."""
        return compare("==", ceildiv(self.axis.extent, tile) % self.blocks, 0)


@dataclass(frozen=True)
class Division:
    """Warpgroups, or warps, side by side along a wide axis that a block holds whole: all have the same rows, and each
    its own neighbouring columns of that axis. What lacks the axis each of them computes for itself; or, of a tile of
    the axis ``loop``, its own columns as well: rows of parts meet in shared memory."""

    axis: Axis
    parts: int
    loop: Axis | None = None

    @property
    def axes(self) -> tuple[Axis, ...]:
        return (self.axis,) if self.loop is None else (self.axis, self.loop)


@dataclass(frozen=True)
class Binding:
    """``tiles``: axis -> elements a tile (unit axes 1); ``rows``: grid axes that form the rows of matmul tiles,
    slowest first.

    ``teams``: groups of warps that divide the trips of the outermost loops; each has all rows of the block.
    ``row_tiles``: sets of sixteen rows that each warp owns. ``multicast``: what blocks fetch for one another.
    ``mma``: the instructions of every matmul. ``loaders``: warps besides ``warps`` that only ask for boxes. ``lanes``:
    threads that share a row and hold its columns in registers, where there are no matmuls; 0: rows of matmul tiles.
    ``division``: how warpgroups, or warps, share columns that are too many for one of them.
    """

    tiles: Mapping[Axis, int]
    rows: tuple[Axis, ...]
    warps: int = 4
    stages: int = 2
    teams: int = 1
    row_tiles: int = 1
    multicast: Multicast | None = None
    mma: Mma = "mma.sync"
    loaders: int = 0
    lanes: int = 0
    division: Division | None = None

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for equal bindings, and hashable."""
        return tuple(
            frozenset(self.tiles.items()) if f.name == "tiles" else getattr(self, f.name) for f in fields(self)
        )

    @property
    def warps_a_team(self) -> int:
        return self.warps // self.teams

    @property
    def parts(self) -> int:
        """Into how many parts columns are divided."""
        return 1 if self.division is None else self.division.parts

    @property
    def row_warps(self) -> int:
        """Warps of a team that lie along the rows."""
        return self.warps_a_team // self.parts

    def columns(self, axis: Axis) -> int:
        """Columns of a tile that one warp has."""
        divided = self.division is not None and axis in self.division.axes
        return self.tiles[axis] // (self.division.parts if divided and self.division is not None else 1)

    def tile(self, axis: Axis) -> int:
        return self.tiles[axis]


@dataclass(frozen=True)
class KernelPlan:
    """One kernel: program, binding, and the skeleton that will express it.

    ``chain`` is an order to the emitter, not a hint. ``feed`` "tma": tiles that are no boxes of an array are copied.
    """

    program: Program
    binding: Binding
    skeleton: str
    notes: tuple[str, ...] = ()
    chain: Chain = "registers"
    feed: Feed = "cp.async"


@dataclass(frozen=True)
class Modelled:
    """What the cost model says of a schedule at its representative shape; times in microseconds, marked as modelled
    everywhere."""

    microseconds: float
    terms: Mapping[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True)
class Schedule:
    """Kernels in order, and everything that a caller of them has to know.

    bind         compile-time values: fixed dims, extents of whole axes, split counts
    shape        the representative shape that the choice was made for; it binds nothing
    chunks       chunk lengths of splits, which the host computes from the dims of a call
    constraints  what the dims of a call must meet besides the graph's own constraints (a whole axis fits its tile)
    merge        of ``ONE_LAUNCH``: kernels come in pairs (partials, merge); the grid of the second is that of the first
                 without the outer axis, in the same order, perhaps in finer tiles, and what the first holds whole may
                 be divided in it
    """

    candidate: str
    graph: Graph
    target: Target
    kernels: tuple[KernelPlan, ...]
    temporaries: tuple[Buffer, ...] = ()
    merge: Merge = "none"
    bind: Mapping[str, int] = field(default_factory=dict[str, int])
    shape: Mapping[str, int] = field(default_factory=dict[str, int])
    chunks: tuple[Chunk, ...] = ()
    constraints: tuple[Pred, ...] = ()
    modelled: Modelled | None = None
    notes: tuple[str, ...] = ()

    @property
    def multiples(self) -> dict[str, int]:
        """What dims are multiples of in every call, by name: lengths of chunks, and what the constraints say."""
        out = {c.symbol.name: c.multiple for c in self.chunks}
        for pred in self.constraints:
            match pred:
                case Compare("==", Index(atom=Mod(Index(atom=Symbol() as s), n)), zero) if zero.constant == 0:
                    out[s.name] = lcm(out.get(s.name, s.multiple), n.constant or 1)
                case _:
                    pass
        return out

    def text(self) -> str:
        from cleave.tile.text import show_schedule

        return show_schedule(self)

    def svg(self) -> str:
        """The loop nest of every kernel as SVG."""
        from cleave.tile.drawing import schedule_svg

        return schedule_svg(self)

    def save(self, path: str | Path) -> None:
        """Write this schedule to a file that ``cleave.tile.saved.load_schedules`` reads."""
        from cleave.tile.saved import save_schedules

        save_schedules([self], path)

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"Schedule({self.candidate!r} for {self.target.arch}, {len(self.kernels)} kernels, merge {self.merge})"

    def _repr_html_(self) -> str:
        from cleave.display import preformatted

        return f"{self.svg()}<details><summary>text</summary>{preformatted(self.text())}</details>"
