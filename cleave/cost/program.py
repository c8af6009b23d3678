"""Work of a tile program under a binding: operations, traffic, resources (``time.py`` makes times of them)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from math import ceil, prod
from typing import Any

import numpy as np

from cleave.cost.boxes import Answers, Boxes, compiled_in
from cleave.cost.liveness import alive, names, refs
from cleave.cost.overlap import overlaps
from cleave.cost.scattered import SECTOR_BYTES, is_scattered
from cleave.cost.tables import longest, representative_tables
from cleave.ir.axis import Axis
from cleave.ir.dim import is_dim
from cleave.ir.graph import Load, Map, Reduce, Ref, Term, Where, walk
from cleave.ir.index import Index, Symbol, axes_of, evaluate, inputs_of
from cleave.ir.op import DTYPES, MAPS
from cleave.tile.box import ALIGNMENT as BOX_ALIGNMENT
from cleave.tile.packed import packed_axis
from cleave.tile.plan import Binding, Feed
from cleave.tile.program import (
    Contract,
    Let,
    Loop,
    Program,
    Stmt,
    Store,
    TileTerm,
    Update,
    is_uneven,
    outer_axes,
    program_axes,
    statements,
)
from cleave.tile.skeleton import CROWDED_REGISTERS, WARPGROUP, is_crowded

SAMPLES = (0.1, 0.5, 0.9)
"""Places on the grid, as fractions, whose loop bounds stand for all (causal bounds differ from block to block)."""

FEW_TILES = 8
"""Tiles of an axis up to which all of them are counted: the last chunk of a split may be short."""

ADDRESS_REGISTERS = 40
"""Registers for addresses, operands and indices on top of the values that are alive; measured 20 to 90."""

CHUNKS_HELD = 8
"""16-byte copies of one tile that a thread makes at no extra cost; beyond it each takes ``REGISTERS_A_CHUNK`` more."""

REGISTERS_A_CHUNK = 5
"""Registers for the addresses of a further copy, fitted to where kernels of one warp began to spill."""

SPARED_REGISTERS = 12
"""Registers for addresses that a kernel does without before it spills the rows that its late matmuls read: fitted to
where attention of head sizes 16 to 192 began to."""

ALIGNMENT = 128
"""Bytes at multiples of which arrays in shared memory begin that are no tiles of boxes."""

MBARRIER_BYTES, FLAG_BYTES, TAKEN_BYTES = 8, 16, 24
"""Of a slot of a ring of boxes; of what says which block arrived last; of what tells which tile is next."""

PART_PADDING = 8
"""Floats added to a row of a slice that blocks of a cluster send one another, if it has more."""


@dataclass
class Work:
    """Counted over the whole grid, in operations and bytes; ``repeats``: how often a reduction is computed, by name.

    ``early``: tiles that a ring has asked for when it begins to wait for one, besides that one. ``spare_bytes``: shared
    memory that is lost where the kernel's begins. ``overlaps``: tensor cores work beside everything else; ``lags``: and
    there is nothing else. ``boxed``, ``copied``: tiles of loops that the copy engine fetches, and the others;
    ``unboxed``: operands of matmuls without rows that it does not fetch. ``multiples``: what run-time dims have to be
    multiples of for it. ``rounds``: how often a block loads and waits, where threads share rows. ``scattered``:
    elements of tiles that come one by one. ``longest``: the longest block, in averages. ``crowded``: see
    ``tile.skeleton.is_crowded``.
    """

    blocks: int = 1
    matmul_flops: float = 0.0
    special: float = 0.0
    other: float = 0.0
    loaded_bytes: float = 0.0
    distinct_bytes: float = 0.0
    stored_bytes: float = 0.0
    registers: int = 0
    crowded: bool = False
    shared_bytes: int = 0
    trips: float = 0.0
    joins: float = 0.0
    joined_bytes: float = 0.0
    read_bytes: float = 0.0
    early: int = 0
    overlaps: bool = False
    lags: bool = False
    spare_bytes: int = 0
    repeats: dict[str, int] = field(default_factory=dict[str, int])
    unboxed: tuple[str, ...] = ()
    boxed: tuple[str, ...] = ()
    copied: tuple[str, ...] = ()
    multiples: dict[Symbol, int] = field(default_factory=dict[Symbol, int])
    rounds: int = 0
    scattered: float = 0.0
    longest: float = 1.0


def parts_bytes(program: Program, binding: Binding, slices: Mapping[Axis, int], blocks: int) -> int:
    """Shared memory for what the blocks of a cluster send to one of them. ``slices``: axis -> into how many a merge
    divides its tile; slice n is the (n mod ``blocks``)-th block's."""
    total = _aligned(MBARRIER_BYTES, ALIGNMENT)
    for s in statements(program.body):
        if not isinstance(s, Store):
            continue
        rows = prod(binding.tile(a) for a in s.axes if a in binding.rows)
        columns = [a for a in s.axes if a not in binding.rows and a not in program.unit]
        count = prod(slices.get(a, 1) for a in columns)
        width = prod(binding.tile(a) for a in columns) // count
        stride = width + PART_PADDING if rows > 1 and width > PART_PADDING else width
        total += _aligned(4 * rows * stride * ceil(count / blocks) * blocks, ALIGNMENT)
    return _aligned(total, BOX_ALIGNMENT)


def chain_bytes(program: Program, binding: Binding) -> int:
    """Shared memory for rows that are computed between matmuls, where they don't stay in registers: of each matmul that
    reads such rows."""
    every = list(statements(program.body))
    lets = {s.name: s.term for s in every if isinstance(s, Let)}
    rows = prod(binding.tile(a) for a in binding.rows)
    products = [s.term for s in every if isinstance(s, Let | Update) and isinstance(s.term, Contract)]
    computed = [
        x
        for x in products
        for r in (x.left, x.right)
        if set(r.axes) & set(binding.rows) and not isinstance(lets.get(r.name), Load)
    ]
    return sum(_aligned(2 * rows * binding.tile(x.axis), ALIGNMENT) * binding.teams for x in computed)


def _aligned(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment


def _places(tiles: int) -> list[int]:
    """Tiles that stand for all of an axis: every one of few."""
    return list(range(tiles)) or [0] if tiles <= FEW_TILES else [int(fraction * tiles) for fraction in SAMPLES]


class _Reading:
    """What a program says under every binding: read off it once, counted many times."""

    def __init__(self, program: Program) -> None:
        self.dtypes = {b.name: b.dtype for b in (*program.inputs, *program.outputs)}
        self.axes, self.unit = program_axes(program), program.unit
        self.every = tuple(statements(program.body))
        self.shared_names = {later for later, _ in program.same}
        self.operands = {
            r.name
            for s in self.every
            if isinstance(s, Let | Update) and isinstance(s.term, Contract)
            for r in (s.term.left, s.term.right)
        }
        self.fed = [s for s in self.every if isinstance(s, Let) and self.is_fed(s)]
        self.looked_up = {s.name for s in self.fed if self.is_looked_up(s)}
        self.scattered = {s.term for s in self.every if isinstance(s, Let) and self.is_scattered(s)}
        self.loads = {s.name for s in self.every if isinstance(s, Let) and isinstance(s.term, Load)}
        pointwise = (s.term for s in self.every if isinstance(s, Let | Update) and not isinstance(s.term, Contract))
        self.pointwise = frozenset[str]().union(*map(refs, pointwise))
        self.loaded = {s.term.input for s in self.every if isinstance(s, Let) and isinstance(s.term, Load)}
        self.boxes: Answers = {}
        self.alive = {*alive(program.body)}
        self.read_in_loops = [names((s,)) for s in program.body if isinstance(s, Loop)]

    def is_fed(self, s: Let) -> bool:
        """Whether a Let is a tile that comes through shared memory."""
        return isinstance(s.term, Load) and len(s.axes) >= 2 and self.dtypes[s.term.input] in ("float16", "bfloat16")

    def is_looked_up(self, s: Let) -> bool:
        """Whether a table says where rows of a tile lie, whose elements lie side by side."""
        if not isinstance(s.term, Load) or self.is_scattered(s):
            return False
        beside = axes_of(s.term.indices[-1])
        return any(inputs_of(i) and axes_of(i) & {*s.axes} - beside - self.unit for i in s.term.indices[:-1])

    def is_scattered(self, s: Let) -> bool:
        """Whether a tile that is fed comes element by element."""
        tiled = [a for a in s.axes if a not in self.unit]
        return isinstance(s.term, Load) and self.is_fed(s) and len(tiled) > 1 and is_scattered(s.term, tiled)


reading_of = lru_cache(maxsize=256)(_Reading)


class Counter:
    """What a program does under a binding, counted statement by statement."""

    def __init__(self, program: Program, binding: Binding, dims: Mapping[str, int], feed: Feed) -> None:
        self.program, self.binding, self.dims = program, binding, dict(dims)
        self.reading = reading_of(program)
        self.axes, self.every, self.dtypes = self.reading.axes, self.reading.every, self.reading.dtypes
        self.shared_names, self.operands = self.reading.shared_names, self.reading.operands
        self.tables = representative_tables(program, dims)
        self.at_zero: dict[Any, Any] = {**self.dims, **{a: 0 for a in self.axes}}
        self.extents = {a: self.extent(a, self.dims) for a in self.axes if is_dim(a.extent)}
        self.places = Boxes(program, binding, self.dims, compiled_in(program), self.reading.boxes)
        self.work = Work(multiples=self.places.multiples)
        self.walked: list[tuple[Loop, list[int]]] = []  # loops of blocks, and their trips at each place
        self.boxes = self.fetched() if feed == "tma" else frozenset[str]()

    def needs(self) -> None:
        """What a block takes of its multiprocessor, and which tiles come in boxes: many kernels need too much, and are
        not counted."""
        work = self.work
        work.unboxed = tuple(sorted(self.second_operands() - self.boxes - self.reading.looked_up))
        inside = [i for s in self.every if isinstance(s, Loop) for i in s.body if isinstance(i, Let)]
        fed = {i.name for i in inside if self.reading.is_fed(i)}
        work.boxed, work.copied = tuple(sorted(self.boxes)), tuple(sorted(fed - self.boxes))
        self.shared(self.program.body, inside=False)
        self.meetings()
        work.spare_bytes = BOX_ALIGNMENT if self.boxes else FLAG_BYTES
        work.registers = self.live() + ADDRESS_REGISTERS + self.copy_registers()
        work.registers += self.late_registers()
        work.crowded = is_crowded(self.program, self.binding)
        if work.crowded:
            work.registers = min(work.registers, CROWDED_REGISTERS)

    def count(self) -> Work:
        """And what it does. Asked after ``needs``."""
        work, environments = self.work, self.environments()
        work.blocks = self.blocks(environments[0])
        self.body(self.program.body, [work.blocks / len(environments)] * len(environments), environments)
        work.distinct_bytes = min(self.distinct(), work.loaded_bytes)
        work.lags = self.lags()
        at_once = self.boxes and self.binding.multicast is None and not work.lags
        work.early = self.binding.stages - (1 if at_once else 2)
        work.overlaps = overlaps(self.program, self.binding)
        work.longest = longest(self.program, self.binding, self.extents) * self.longest_chunk()
        self.count_repeats(environments[0])
        return work

    def blocks(self, environment: Mapping[Any, Any]) -> int:
        packed = packed_axis(self.program, self.binding)
        own = () if packed is None else (packed.axis, packed.packing.owner)
        places = 1 if packed is None else self.value(packed.packing.total, self.dims)
        others = (a for a in self.program.grid if a not in own)
        return places * prod(ceil(self.extent(a, environment) / self.tile(a)) for a in others)

    def distinct(self) -> int:
        """Bytes of the arrays that are loaded."""
        arrays = (i for i in self.program.inputs if i.name in self.reading.loaded)
        return sum(prod((max(self.value(n, self.dims), 0) for n in i.shape), start=DTYPES[i.dtype]) for i in arrays)

    def lags(self) -> bool:
        """Whether matmuls of warpgroups go on while the next trip begins: loops do nothing else with what they load."""
        inside = [i for s in self.every if isinstance(s, Loop) for i in s.body]
        return self.binding.mma == "wgmma" and all(
            isinstance(i.term, Load) if isinstance(i, Let) else isinstance(i, Update) and isinstance(i.term, Contract)
            for i in inside
        )

    def second_operands(self) -> set[str]:
        """Operands of matmuls that have no rows."""
        products = (s.term for s in self.every if isinstance(s, Let | Update) and isinstance(s.term, Contract))
        return {r.name for p in products for r in (p.left, p.right) if not self.has_rows(r.axes)}

    def tile(self, a: Axis) -> int:
        return 1 if a in self.program.unit else self.binding.tile(a)

    def value(self, i: Index, environment: Mapping[Any, Any]) -> int:
        if i.constant is not None:
            return i.constant
        found = evaluate(i, environment, self.tables)
        return found if isinstance(found, int) else int(np.max(found))

    def extent(self, a: Axis, environment: Mapping[Any, Any]) -> int:
        return max(self.value(a.extent, environment), 0)

    def environments(self) -> list[dict[Any, Any]]:
        """The first element of a tile at several places of the grid; axes inside the block at 0.

        Axes that bounds of loops read are sampled independently: a chunk and a row bound one another.
        """
        bounds = [axes_of(i) for s in self.every if isinstance(s, Loop) for i in (s.lower, s.upper)]
        varying = {a for a in self.program.grid if any(a in axes for axes in bounds)}
        out: list[dict[Any, Any]] = [{**self.dims, **dict.fromkeys(self.axes, 0)}]
        for a in self.program.grid:
            found: list[dict[Any, Any]] = []
            for environment in out:
                tiles = ceil(self.extent(a, environment) / self.tile(a))
                places = _places(tiles) if a in varying else _places(tiles)[:1]
                found += [{**environment, a: place * self.tile(a)} for place in places]
            out = found
        return out

    # ---- counting operations

    def body(self, body: tuple[Stmt, ...], each: Sequence[float], environments: Sequence[Mapping[Any, Any]]) -> None:
        """``each``: how often statements run at each of the environments, of which only trips of loops depend."""
        times = sum(each)
        for s in body:
            match s:
                case Loop():
                    counted = self.trips_at(s, environments)
                    if body is self.program.body:
                        self.walked.append((s, counted))
                    trips = [n * m for n, m in zip(each, counted, strict=True)]
                    self.work.trips += sum(trips) / self.binding.teams
                    self.join(s, times if s in self.program.body else 0)
                    self.body(s.body, trips, environments)
                case Let(name, axes, term):
                    self.term(term, axes, times, is_shared=name in self.shared_names)
                case Update(accumulator, term):
                    volume = self.volume(accumulator.axes)
                    self.term(term, accumulator.axes, times, is_shared=False)
                    if accumulator.carry is not None:
                        self.pointwise(accumulator.carry, self.volume(accumulator.axes[:-1] or accumulator.axes), times)
                        self.work.other += volume * times
                case Store():
                    self.store(s, times)

    def longest_chunk(self) -> float:
        """Trips of the longest chunk of a split, in averages: chunks are whole tiles, the last ones short or empty."""
        outer = {*outer_axes(self.program)}
        if not outer or packed_axis(self.program, self.binding) is not None:
            return 1.0
        trips = [sum(each) for each in zip(*(n for s, n in self.walked if outer & axes_of(s.upper)), strict=True)]
        return max(trips) * len(trips) / sum(trips) if any(trips) else 1.0

    def trips_at(self, s: Loop, environments: Sequence[Mapping[Any, Any]]) -> list[int]:
        """Environments differ in places of the grid alone, and of these bounds read few."""
        read = [a for a in self.program.grid if a in axes_of(s.lower) | axes_of(s.upper)]
        places = [tuple(e[a] for a in read) for e in environments]
        known = {place: self.trips(s, e) for place, e in dict(zip(places, environments, strict=True)).items()}
        return [known[place] for place in places]

    def trips(self, s: Loop, environment: Mapping[Any, Any]) -> int:
        last = {a: environment[a] + self.tile(a) - 1 for a in self.program.grid}
        corners = [environment, {**environment, **last}]
        lower = min(self.value(s.lower, c) for c in corners)
        upper = max(self.value(s.upper, c) for c in corners)
        return max(0, ceil((upper - lower) / self.tile(s.axis)))

    def join(self, s: Loop, times: float) -> None:
        """States of the teams through shared memory: each is written once, and read once by all teams together."""
        if self.binding.teams > 1 and s.accumulators:
            self.work.joins += times
            state = 4 * sum(self.present(c.axes) for c in s.accumulators)
            self.work.joined_bytes += 2 * state * self.binding.teams * times

    def volume(self, axes: Iterable[Axis]) -> int:
        return prod(self.tile(a) for a in axes)

    def present(self, axes: Iterable[Axis]) -> int:
        """Elements of a tile that exist: rows that pad a short axis are neither read nor written."""
        return prod(min(self.tile(a), self.extents[a]) if a in self.extents else self.tile(a) for a in axes)

    def term(self, term: TileTerm, axes: tuple[Axis, ...], times: float, *, is_shared: bool) -> None:
        volume = self.volume(axes) * self.copies(axes)
        match term:
            case Contract(axis, left, right):
                self.work.matmul_flops += 2.0 * volume * self.tile(axis) * times
                self.work.read_bytes += 2.0 * self.read_volume(axis, left, right) * times
            case Load(name, indices):
                if not is_shared:
                    elements, size = self.present(axes), DTYPES[self.dtypes[name]]
                    if term in self.reading.scattered:
                        size = SECTOR_BYTES
                        self.work.scattered += elements * times
                    self.work.loaded_bytes += elements * size / self.readers(axes, indices) * times
            case Reduce(_, axis, body):
                self.work.other += volume * self.tile(axis) * times
                self.pointwise(body, volume * self.tile(axis), times)
            case _:
                self.pointwise(term, volume, times)

    def readers(self, axes: tuple[Axis, ...], indices: tuple[Index, ...]) -> int:
        """Blocks that receive what one of them asks for."""
        multicast = self.binding.multicast
        if multicast is None or multicast.axis in frozenset(axes).union(*map(axes_of, indices)):
            return 1
        return multicast.blocks

    def read_volume(self, axis: Axis, left: Ref, right: Ref) -> int:
        """Elements that a matmul reads from shared memory: every warp all of the operand without rows, and its rows of
        the other one where that changes from trip to trip."""
        rows, other = (left, right) if self.has_rows(left.axes) else (right, left)
        changes = axis not in self.program.whole and rows.name in self.reading.loads
        readers = self.binding.row_warps // (WARPGROUP if self.binding.mma == "wgmma" else 1)
        readers *= self.parts(()) // self.parts([a for a in other.axes if a is not axis])
        return self.volume(other.axes) * readers + (self.volume(rows.axes) if changes else 0)

    def parts(self, axes: Iterable[Axis]) -> int:
        """Into how many parts warpgroups divide columns along some axes; along none: how many there are."""
        division, known = self.binding.division, tuple(axes)
        return 1 if division is None or (known and not {*known} & {*division.axes}) else division.parts

    def copies(self, axes: tuple[Axis, ...]) -> int:
        """How many warpgroups compute the same."""
        return self.parts(()) // self.parts(axes) if self.has_rows(axes) else 1

    def pointwise(self, term: Term, volume: int, times: float) -> None:
        special, other = _operations(term)
        self.work.special += special * volume * times
        self.work.other += other * volume * times

    def store(self, s: Store, times: float) -> None:
        once = prod(ceil(self.extent(a, self.at_zero) / self.tile(a)) for a in s.once)
        volume = self.present(a for a in s.axes if a in self.axes)
        self.work.stored_bytes += volume * DTYPES[self.dtypes[s.output]] * times / max(once, 1)

    def count_repeats(self, environment: Mapping[Any, Any]) -> None:
        """A reduction that lacks a tiled axis of the grid is recomputed in every tile of it."""
        tiled = [a for a in self.program.grid if a not in self.program.unit]
        for s in self.every:
            if isinstance(s, Update):
                missing = [a for a in tiled if a not in s.accumulator.axes]
                times = prod(ceil(self.extent(a, environment) / self.tile(a)) for a in missing)
                if times > 1:
                    self.work.repeats[s.accumulator.name] = times

    # ---- resources

    def shared(self, body: tuple[Stmt, ...], *, inside: bool) -> None:
        """Tiles of two axes are fed through shared memory, in a loop with one slot a stage; boxes with mbarriers."""
        slots, teams = (max(self.binding.stages, 2), self.binding.teams) if inside else (1, 1)
        for s in body:
            if isinstance(s, Let) and self.reading.is_fed(s) and s.name not in self.shared_names:
                for_cores = self.binding.mma == "wgmma" and (not inside or s.name in self.reading.looked_up)
                in_slabs = for_cores or (inside and s.name in self.boxes)
                alignment = BOX_ALIGNMENT if in_slabs else ALIGNMENT
                self.take(2 * self.volume(s.axes) * slots, teams, alignment)
            elif isinstance(s, Let) and s.name in self.operands and not self.has_rows(s.axes):
                self.take(2 * self.volume(s.axes))
        if inside and any(isinstance(s, Let) and s.name in self.boxes for s in body):
            self.mbarriers(body, slots, teams)
        before = self.work.shared_bytes
        for s in body:
            if isinstance(s, Loop):
                self.shared(s.body, inside=True)
        if not inside and self.binding.loaders and is_uneven(self.program):
            self.take(TAKEN_BYTES)
        if not inside:
            sides = max((self.sides_bytes(s) for s in body if isinstance(s, Loop)), default=0)
            self.work.shared_bytes = max(self.work.shared_bytes, _aligned(before, ALIGNMENT) + sides)

    def meetings(self) -> None:
        """Memory where warpgroups that divide the columns of a loop meet: for operands of matmuls, and rows of sums."""
        division = self.binding.division
        if division is None or division.loop is None:
            return
        rows = 16 * self.binding.row_warps
        for s in self.every:
            term = s.term if isinstance(s, Let | Update) else None
            if isinstance(term, Contract) and term.axis is division.loop:
                self.take(2 * rows * self.tile(division.loop), alignment=BOX_ALIGNMENT)
            elif isinstance(term, Reduce) and term.axis is division.loop:
                self.take(4 * rows * division.parts)

    def sides_bytes(self, s: Loop) -> int:
        """Memory for the states of the teams of a loop while they are joined; its tiles have given theirs back."""
        teams = self.binding.teams
        return 0 if teams == 1 else teams * sum(_aligned(4 * self.volume(c.axes), ALIGNMENT) for c in s.accumulators)

    def mbarriers(self, body: tuple[Stmt, ...], slots: int, teams: int) -> None:
        """Of a ring; where others load, full and empty ones of what a trip reads, the next trip, and every trip."""
        if not self.binding.loaders:
            self.take(MBARRIER_BYTES * slots, teams)
            return
        late = self.late(body)
        for count in (slots, 1) if late is None else (slots, slots, 1):
            self.take(MBARRIER_BYTES * count)
            self.take(MBARRIER_BYTES * count)
        if late is not None:
            self.take(4 * 32 * self.binding.warps)

    def late(self, body: tuple[Stmt, ...]) -> Contract | None:
        """The matmul that a trip leaves to the next one, where others load: of what the only other one gave."""
        products = [s for s in body if isinstance(s, Let | Update) and isinstance(s.term, Contract)]
        sums = [s.term for s in products if isinstance(s, Update) and isinstance(s.term, Contract)]
        division = self.binding.division
        whole = division is None or division.loop is None
        alone = self.binding.loaders > 0 and whole and not any(isinstance(s, Loop) for s in body)
        return sums[0] if alone and len(products) == 2 and len(sums) == 1 else None

    def late_registers(self) -> int:
        """Registers of the rows that late matmuls read while the next trip's values are alive."""
        late = [x for s in self.every if isinstance(s, Loop) and (x := self.late(s.body)) is not None]
        rows = [axes for x in late for axes in (x.left.axes, x.right.axes) if self.has_rows(axes)]
        words = max((self.volume(axes) // (64 * self.binding.row_warps) for axes in rows), default=0)
        return max(words - SPARED_REGISTERS, 0)

    def take(self, size: int, copies: int = 1, alignment: int = ALIGNMENT) -> None:
        """Memory for an array of each team. Loops after one another are counted as if none gave its memory back."""
        self.work.shared_bytes = _aligned(self.work.shared_bytes, alignment) + _aligned(size, ALIGNMENT) * copies

    def copy_registers(self) -> int:
        """Registers for the addresses of the largest tile that the threads copy."""
        tiles = [self.volume(s.axes) * 2 for s in self.reading.fed if s.name not in self.boxes | self.held()]
        chunks = max(tiles, default=0) // (16 * 32 * self.binding.warps_a_team)
        return REGISTERS_A_CHUNK * max(0, chunks - CHUNKS_HELD)

    def fetched(self) -> frozenset[str]:
        """Tiles of loops that the copy engine fetches, as far as their loads tell; loaders walk no loop in a loop."""
        loops = [s for s in (self.program.body if self.binding.loaders else self.every) if isinstance(s, Loop)]
        return frozenset(i.name for s in loops for i in s.body if isinstance(i, Let) and self.is_box(i, s))

    def is_box(self, s: Let, loop: Loop | None) -> bool:
        return self.reading.is_fed(s) and self.places.holds(s, loop)

    def held(self) -> frozenset[str]:
        """Tiles before the loops that loaders fetch: one loop alone reads them."""
        if not self.binding.loaders or not self.boxes:
            return frozenset()
        before = [s for s in self.program.body if isinstance(s, Let) and self.is_box(s, None)]
        return frozenset(s.name for s in before if sum(s.name in read for read in self.reading.read_in_loops) == 1)

    def has_rows(self, axes: Iterable[Axis]) -> bool:
        return any(a in self.binding.rows for a in axes)

    def size(self, name: str, axes: tuple[Axis, ...], term: TileTerm | None) -> int:
        """Registers of a thread for a value: its share of a fragment, two for a row value, none outside registers. What
        is computed from a tile holds its rows as words of two elements."""
        if not self.has_rows(axes) or (isinstance(term, Load) and name not in self.reading.pointwise):
            return 0
        if isinstance(term, Load):
            return ceil(self.volume(axes) / (64 * self.binding.row_warps)) if len(axes) > 1 else 0
        if all(a in self.binding.rows for a in axes):
            return 2 * self.binding.row_tiles
        registers = ceil(self.volume(axes) / (32 * self.binding.row_warps * self.parts(axes)))
        return ceil(registers / 2) if name in self.program.narrowed else registers

    def live(self) -> int:
        """Most registers alive at once."""
        sizes = self.sizes
        return max((sum([sizes.get(n, 0) for n in together]) for together in self.reading.alive), default=0)

    @cached_property
    def sizes(self) -> dict[str, int]:
        out: dict[str, int] = {}
        for s in self.every:
            if isinstance(s, Let):
                out[s.name] = self.size(s.name, s.axes, s.term)
            elif isinstance(s, Loop):
                out |= {c.name: self.size(c.name, c.axes, None) for c in s.accumulators}
        return out


@lru_cache(maxsize=4096)
def _operations(term: Term) -> tuple[int, int]:
    """(transcendental ones, all of them) an element."""
    found = [t for t in walk(term) if isinstance(t, Map | Where)]
    return sum(isinstance(t, Map) and MAPS[t.op].transcendental for t in found), len(found)
