"""Rings of tiles: one block walks its tiles; loads of a loop go through a ring of slots in shared memory.

Skeleton ``cta-ring`` has one team, the block; ``warp-ring`` has several (``team.py``): each fills a ring of its own and
takes every so-manieth trip. Discipline of a ring, with S slots and the copies of one trip in one group:

    before the loop   S - 1 groups are issued (empty ones beyond the end)
    each trip         wait until at most S - 2 groups are open; barrier; issue the group of trip + S - 1; compute
    after the loop    wait for everything; barrier

The barrier of a trip is the team's, and it is what frees the slot that this trip refills: it was read in the trip
before, by everyone in the team. The barrier after the loop frees all slots, so the next loop may take the same memory.
Tiles that the copy engine can fetch follow ``bulk.py`` instead, in the same slots.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from math import ceil, gcd

from cleave.codegen import (
    accumulator,
    bulk,
    cluster,
    contract,
    elementwise,
    feed,
    first,
    join,
    lookup,
    matrix,
    order,
    reduction,
    refill,
)
from cleave.codegen.dependence import deferrable, is_pointwise, live, ordered
from cleave.codegen.emission import Emission
from cleave.codegen.expression import At, index_text
from cleave.codegen.layout import Fragment, Layout, RowVector, SharedTile
from cleave.codegen.range import extreme, multiple_of, varies
from cleave.codegen.store import store
from cleave.codegen.team import Team
from cleave.errors import CodegenError
from cleave.ir.axis import Axis
from cleave.ir.graph import Load, Reduce
from cleave.ir.index import Index
from cleave.tile.box import ALIGNMENT
from cleave.tile.plan import Feed
from cleave.tile.program import Contract, Let, Loop, Stmt, Store, Update

ARCHITECTURES: dict[Feed, tuple[str, ...]] = {"cp.async": ("sm_80", "sm_90a"), "tma": ("sm_90a",)}
_STEPS_TOGETHER = 8
"""Trips of a loop by single elements whose loads go out together: such loops read partials, one latency a trip."""

_LOADED_REGISTERS = 136
"""Registers of a thread for the values that such trips have loaded: two times 64, and their rows."""

_HELD_REGISTERS = 128
"""Fragments of a loop up to which an operand may be held in registers: a thread has 255, addresses take up to 90."""


def body(
    em: Emission,
    walk: Walk | None = None,
    box_of: BoxOf = lambda tile: None,
    before_stores: Callable[[], None] | None = None,
) -> None:
    """The whole program: its first tiles are under way before anything is computed.

    ``walk``: see ``loop``; ``box_of``: which of the first tiles whoever walks the loops fetches in boxes.
    ``before_stores`` writes what comes when everything is computed.
    """
    for tile, layout, box in _allocate(em, em.program.body, 1, box_of):
        if box is not None:
            continue
        source = feed.source(em, tile, ())
        with em.writer.block(feed.needed_if(em, tile.name)), em.loading(rows=tile.row is None):
            feed.fill(em, source, layout)
        em.pending.add(tile.name)
    if em.pending:
        em.writer.line("copies_commit();")
    todo = ordered(em.program.body)
    stores: list[Stmt] = [] if before_stores is None else [s for s in todo if isinstance(s, Store)]
    _statements(em, [s for s in todo if s not in stores], walk)
    if before_stores is not None:
        before_stores()
        _statements(em, stores, walk)


def _statements(em: Emission, todo: Sequence[Stmt], walk: Walk | None) -> None:
    for s in todo:
        order.before(em, s)
        cluster.meet(em, s)
        if isinstance(s, Loop):
            loop(em, s, walk)
        else:
            statement(em, s)


def _allocate(
    em: Emission, body: Sequence[Stmt], slots: int, box_of: BoxOf
) -> Iterator[tuple[feed.Tile, SharedTile, bulk.Box | None]]:
    """Shared memory for the loaded tiles of a scope; loads of one region share a tile."""
    known: dict[object, SharedTile] = {}
    for let in (s for s in body if isinstance(s, Let)):
        tile = feed.tile_of(em, let)
        if tile is None:
            continue
        key = feed.region(em, tile)
        if key in known:
            em.layouts[let.name] = replace(known[key], row=tile.row, column=tile.column)
            continue
        address, box = em.names.fresh(f"{let.name}_tile"), box_of(tile)
        plain = feed.shared_tile(em, tile, address)
        in_slabs = box is not None or plain.slabs is not None
        em.fences |= box is None and in_slabs
        place = em.allot(tile.bytes * slots, *((ALIGNMENT,) if in_slabs else ()))
        em.constant(f"const u32 {address}{'_ring' if slots > 1 or box is not None else ''} = {place};")
        known[key] = plain if box is None else bulk.layout(box, plain)
        em.layouts[let.name] = known[key]
        yield tile, known[key], box


# ---- statements


def statement(em: Emission, s: Stmt) -> None:
    match s:
        case Let(name) if name in em.layouts:
            return  # a tile that its scope has loaded already
        case Let():
            comment(em, s)
            _let(em, s)
        case Update():
            comment(em, s)
            _update(em, s)
        case Store(output, indices, value, _, _):
            em.writer.line(f"// {output}[{', '.join(map(repr, indices))}] = {value.name}")
            store(em, s)
        case Loop():
            loop(em, s)


def comment(em: Emission, s: Stmt) -> None:
    match s:
        case Let(name, axes, term):
            em.writer.line(f"// {name}[{', '.join(a.name for a in axes)}] = {term!r}")
        case Update(acc, term):
            carried = "" if acc.carry is None else f"{acc.carry!r}, "
            em.writer.line(f"// {acc.name} = {acc.op}({carried or acc.name + '~, '}{term!r})")
        case _:
            pass


def _let(em: Emission, s: Let) -> None:
    match s.term:
        case Contract() as term:
            contract.value(em, s, term)
        case Reduce() as term:
            reduction.reduction(em, s, term)
        case term:
            elementwise.elementwise(em, s, term)


def _update(em: Emission, s: Update) -> None:
    acc = s.accumulator
    if not isinstance(s.term, Contract):
        accumulator.update(em, acc, s.term)
        return
    layout = em.layouts[acc.name]
    if not isinstance(layout, Fragment):
        em.refuse(acc.name, acc.axes, "a matmul adds to rows x one axis")
    accumulator.carry(em, acc)
    if acc.op == "sum":
        contract.accumulate(em, s.term, layout.name)
        return
    result = Let(f"{acc.name}_part", acc.axes, s.term)
    contract.value(em, result, s.term)
    part = em.layouts[result.name]
    assert isinstance(part, Fragment)
    joined = reduction.combine(acc.op, f"{layout.name}[n][e]", f"{part.name}[n][e]")
    elementwise.for_elements(em, layout.column, f"{layout.name}[n][e] = {joined};")


# ---- loops


@dataclass(frozen=True)
class Ring:
    """What one loop loads: sources and the addresses of their slots; and what of it comes in boxes.

    ``tile`` is the loop variable, ``place`` the position that it sets; ``stride`` leads to the team's next trip.
    ``lags``: matmuls of a trip that go on while the next trip begins; 0: a trip ends with its matmuls.
    """

    tiles: tuple[tuple[feed.Source, SharedTile], ...]
    tile: str
    place: str
    first: str
    high: str
    stride: int
    slots: int
    boxes: bulk.Boxes | None
    lags: int = 0
    lookups: tuple[lookup.Lookup, ...] = ()
    columns: Mapping[str, lookup.Column] = field(default_factory=dict[str, lookup.Column])

    @property
    def open_groups(self) -> int:
        """Groups of copies under way before a trip."""
        return self.slots - 1 if self.tiles else 0

    @property
    def places(self) -> tuple[tuple[feed.Tile, SharedTile], ...]:
        boxes = () if self.boxes is None else self.boxes.parts
        return (*((source.tile, at) for source, at in self.tiles), *((box.tile, at) for box, at in boxes))


def loop(em: Emission, s: Loop, walk: Walk | None = None) -> None:
    """``walk`` writes the trips; by default the team loads them itself."""
    names = ", ".join(f"{c.name}[{', '.join(a.name for a in c.axes)}]" for c in s.accumulators)
    em.writer.line(f"// for {s.axis} in [{s.lower}, {s.upper})" + (f" carry {names}" if names else ""))
    whole = em.team
    with em.divided() as parts:
        for c in s.accumulators:
            accumulator.declare(em, c)
            if deferrable(em, c, s):
                em.deferred.add(c.name)
        mark, taken = em.shared.top, em.shared.taken
        low, high = limits(em, s)
        with _open(em, s, low) as place:
            ring = _ring(em, s, place, (low, high), parts=parts)
            if em.vectors and em.lanes and s in em.program.body and s.axis not in em.program.unit:
                rest = replace(ring, first=f"{ring.first} + {ring.stride}", stride=first.further(em, s))
                first.trips(
                    em, s, place, ring.first, partial(statement, em), partial(trip, em, s), partial(_trips, em, s, rest)
                )
            elif walk is None or ring.boxes is None:
                _begin(em, s, ring, whole, parts=parts)
                _trips(em, s, ring)
                _end(em, ring)
            else:
                walk(em, s, ring, ring.boxes)
            if em.roles is not None:
                mark = em.shared.top  # loaders may be far ahead: nobody else takes memory that their boxes may have
    if em.shared.top != mark or (parts and (s.accumulators or em.shared.taken > taken)):
        em.writer.line(em.team.barrier)  # also for what loops inside took, each team for itself
    em.shared.top = mark
    _join_parts(em, s)
    if parts:
        join.teams(em, s)


def _join_parts(em: Emission, s: Loop) -> None:
    """What each lane has kept of a row, in all of them."""
    kept = [c for c in s.accumulators if c.name in em.deferred]
    em.deferred -= {c.name for c in kept}
    layouts = ((c, em.layouts[c.name]) for c in kept)
    reduction.join_rows(em, [(x.name if isinstance(x, RowVector) else c.name, c.op) for c, x in layouts], s.axis)


def _begin(em: Emission, s: Loop, ring: Ring, whole: Team, *, parts: bool) -> None:
    """The first trips are under way; what was loaded before and is not in the ring has landed."""
    if em.pending and not ring.places:
        em.landed(0, whole.barrier)
    _start(em, ring)
    _hold(em, s, ring, whole)
    if em.pending and (parts or not ring.tiles):
        em.landed(ring.open_groups, whole.barrier)  # what all have loaded, before each goes its way


Walk = Callable[[Emission, Loop, Ring, bulk.Boxes], None]
BoxOf = Callable[[feed.Tile], bulk.Box | None]


def _end(em: Emission, ring: Ring) -> None:
    if ring.tiles:
        em.writer.line("copies_wait<0>();")
        em.pending.clear()
    if ring.boxes is not None:
        bulk.close_ring(em, ring.boxes)


def limits(em: Emission, s: Loop) -> tuple[str, str]:
    """Variables with the least lower and the greatest upper bound over the rows of the block."""
    out: list[str] = []
    for bound, way, wish in ((s.lower, "least", "low"), (s.upper, "greatest", "high")):
        found = extreme(em, em.fix(bound), "least" if way == "least" else "greatest")
        if found is None or varies(em, found):
            raise CodegenError(
                f"loop over {s.axis}: the {way} value of {bound} over the rows of a block is not known; "
                "bounds may be affine in row positions, with min, max and division by positive dims",
                location=em.location,
            )
        name, text = em.names.fresh(f"{s.axis.name}_{wish}"), index_text(em, found, At())
        if way == "least" and _starts_between(em, s, found):
            text = f"({text} & -{em.vector})"  # what lies before the bound is the identity, as what lies beyond it
        em.bound(f"const int {name} = {text};")
        out.append(name)
    return out[0], out[1]


def _starts_between(em: Emission, s: Loop, least: Index) -> bool:
    """Whether a loop over the columns of shared rows may begin inside a vector."""
    return em.lanes > 0 and s.axis not in em.program.unit and multiple_of(em, least) % em.vector != 0


@contextmanager
def _open(em: Emission, s: Loop, low: str) -> Generator[str]:
    """The loop's axis has a position inside."""
    if s.axis in em.program.unit:
        place = em.names.fresh(f"{s.axis.name}_at")
        em.units[s.axis] = place
        yield place
        del em.units[s.axis]
        return
    place, size = em.names.fresh(f"{s.axis.name}_start"), em.size(s.axis)
    least = extreme(em, em.fix(s.lower), "least")
    known = 0 if least is None else multiple_of(em, least)
    multiple = gcd(size, em.vector if least is not None and _starts_between(em, s, least) else known)
    em.open_tile(s.axis, place, f"({place} + {size - 1})", multiple)
    yield place
    del em.starts[s.axis]


def _ring(em: Emission, s: Loop, place: str, limits: tuple[str, str], *, parts: bool) -> Ring:
    slots, step = max(em.binding.stages, 2), em.size(s.axis)
    copied: list[tuple[feed.Source, SharedTile]] = []
    fetched: list[tuple[bulk.Box, SharedTile]] = []
    for tile, layout, box in _allocate(em, s.body, slots, lambda tile: bulk.box_of(em, tile, s)):
        if box is None:
            copied.append((feed.source(em, tile, (s.axis,)), layout))
        else:
            fetched.append((box, layout))
    boxes = bulk.boxes(em, fetched, slots, s.axis.name) if fetched else None
    first, stride = (f"{limits[0]} + team * {step}", em.binding.teams * step) if parts else (limits[0], step)
    name = em.names.fresh(f"{s.axis.name}_tile")
    words = lookup.lookups(em, [source for source, _ in copied], s.axis, slots)
    columns = lookup.columns(em, copied, words)
    made = Ring(tuple(copied), name, place, first, limits[1], stride, slots, boxes, lookups=words, columns=columns)
    return replace(made, lags=_lag(em, s, made))


def _lag(em: Emission, s: Loop, ring: Ring) -> int:
    """Sums of matmuls of warpgroups whose operands are all boxes, and nothing else: nobody needs them in the loop."""
    if em.binding.mma != "wgmma" or ring.boxes is None or ring.tiles or ring.boxes.sharers > 1:
        return 0
    inside = {tile.name for tile, _ in ring.places}
    others = [i for i in s.body if not (isinstance(i, Let) and i.name in inside)]
    sums = [i for i in others if isinstance(i, Update) and i.accumulator.op == "sum" and i.accumulator.carry is None]
    if len(sums) != len(others) or not all(contract.is_of_boxes(em, i.term) for i in sums):
        return 0
    return len(sums)


def _start(em: Emission, ring: Ring) -> None:
    if ring.boxes is not None:
        with em.writer.block(bulk.one_thread(em)):
            bulk.open_ring(em, ring.boxes)
            if ring.boxes.sharers == 1:
                _ask_first(em, ring, ring.boxes)
        em.writer.line("cluster_barrier();" if ring.boxes.sharers > 1 else em.team.barrier)
        if ring.boxes.sharers > 1:
            with em.writer.block(bulk.one_thread(em)):
                _ask_first(em, ring, ring.boxes)
    if ring.lookups:
        with em.writer.unrolled("p", ring.slots - 1):
            _look_up(em, ring, f"{ring.first} + p * {ring.stride}", "p")
        em.writer.lines(["copies_commit();", "copies_wait<0>();", em.team.barrier])
    if ring.tiles:
        with em.writer.unrolled("p", ring.slots - 1):
            _fetch(em, ring, f"{ring.first} + p * {ring.stride}", "p", f"(p == 0 ? {ring.slots - 1} : p - 1)")


def _ask_first(em: Emission, ring: Ring, boxes: bulk.Boxes) -> None:
    with em.writer.unrolled("p", ring.slots):
        _ask(em, ring, boxes, f"{ring.first} + p * {ring.stride}", "p")


def _ask_next(em: Emission, ring: Ring, boxes: bulk.Boxes, slot: str, phase: str) -> None:
    """After a trip: ask for the one that takes its slot; or that of the trip before, where others read this one too, or
    the tensor cores still do."""
    if boxes.sharers == 1 and not ring.lags:
        _ask(em, ring, boxes, f"{ring.tile} + {ring.slots * ring.stride}", slot)
        return
    if boxes.sharers > 1:
        bulk.tell(em, boxes, slot)
    em.writer.line(f"const int {ring.place} = {ring.tile} + {(ring.slots - 1) * ring.stride};")
    with em.writer.block(f"if ({ring.tile} > {ring.first} && {ring.place} < {ring.high})"):
        before = em.names.fresh("before")
        em.writer.line(f"const int {before} = {slot} == 0 ? {ring.slots - 1} : {slot} - 1;")
        if boxes.sharers > 1:
            bulk.wait_empty(em, boxes, before, f"{phase} ^ ({slot} == 0)")
        bulk.ask(em, boxes, before)


def _ask(em: Emission, ring: Ring, boxes: bulk.Boxes, position: str, slot: str) -> None:
    """Ask for the boxes of one trip, unless it lies beyond the end."""
    em.writer.line(f"const int {ring.place} = {position};")
    with em.writer.block(f"if ({ring.place} < {ring.high})"):
        bulk.ask(em, boxes, slot)


def _fetch(em: Emission, ring: Ring, position: str, slot: str, before: str, *, again: bool = False) -> None:
    """Issue the group of one trip; an empty group beyond the end keeps the count of groups right.

    With it goes what is looked up for the trip that comes slots - 1 later, to the slot ``before`` this one, which the
    trip before has read.
    """
    with em.writer.block(""):
        em.writer.line(f"const int {ring.place} = {position};")
        with em.writer.block(f"if ({ring.place} < {ring.high})"):
            places = [f"{to.address}_ring + {slot} * {source.tile.bytes}" for source, to in ring.tiles]
            tiles = [(x, replace(to, address=at)) for (x, to), at in zip(ring.tiles, places, strict=True)]
            lookup.fill(em, ring.lookups, slot, tiles, ring.columns)
        if ring.lookups and not again:
            em.writer.line(em.team.barrier)
        if ring.lookups:
            _look_up(em, ring, f"{position} + {(ring.slots - 1) * ring.stride}", before)
        em.writer.line("copies_commit();")


def _fetch_next(em: Emission, ring: Ring, slot: str) -> None:
    """To the slot that the trip before has read."""
    free = f"({slot} == 0 ? {ring.slots - 1} : {slot} - 1)"
    before = f"({free} == 0 ? {ring.slots - 1} : {free} - 1)"
    _fetch(em, ring, f"{ring.tile} + {(ring.slots - 1) * ring.stride}", free, before, again=True)


def _look_up(em: Emission, ring: Ring, position: str, slot: str) -> None:
    with em.writer.block(""):
        em.writer.line(f"const int {ring.place} = {position};")
        with em.writer.block(f"if ({ring.place} < {ring.high})"):
            lookup.fetch(em, ring.lookups, slot)


def _trips(em: Emission, s: Loop, ring: Ring) -> None:
    if not ring.places and s.axis in em.program.unit:
        with em.repeated():
            _steps(em, s, ring)
        return
    slot, phase = em.names.fresh("slot"), em.names.fresh("phase") if ring.boxes is not None else ""
    after = f"{slot} = {slot} == {ring.slots - 1} ? 0 : {slot} + 1"
    head = f"int {ring.tile} = {ring.first}" + (f", {slot} = 0" if ring.places else "")
    advance = f"{ring.tile} += {ring.stride}"
    if ring.boxes is not None:
        head, advance = f"{head}, {phase} = 0", f"{advance}, {phase} ^= {slot} == {ring.slots - 1}"
    if ring.places:
        advance = f"{advance}, {after}"
    overlapped = bool(ring.tiles) and ring.boxes is None and refill.is_overlapped(em, s)
    with em.writer.block(f"for ({head}; {ring.tile} < {ring.high}; {advance})"), em.repeated():
        if ring.tiles:
            em.landed(ring.slots - 2, em.team.barrier)
            if not overlapped:
                _fetch_next(em, ring, slot)
        if ring.boxes is not None:
            bulk.wait(em, ring.boxes, slot, phase)
        em.writer.line(f"const int {ring.place} = {ring.tile};")
        for tile, layout in ring.places:
            em.writer.line(f"const u32 {layout.address} = {layout.address}_ring + {slot} * {tile.bytes};")
        if ring.boxes is not None:
            bulk.clear_beyond(em, ring.boxes)
        with refill.meanwhile(em, partial(_fetch_next, em, ring, slot)) if overlapped else lagging(em, ring):
            trip(em, s)
        if ring.boxes is not None:
            em.writer.line(em.team.barrier)
            with em.writer.block(bulk.one_thread(em)):
                _ask_next(em, ring, ring.boxes, slot, phase)
    settle_sums(em, s, ring)
    forget(em, s)


def settle_sums(em: Emission, s: Loop, ring: Ring) -> None:
    """After a loop whose matmuls lag: they are over."""
    if ring.lags:
        em.writer.line("warpgroup_wait<0>();")
        sums = (em.layouts[c.name] for c in s.accumulators)
        em.writer.lines([f"registers_settle({x.name});" for x in sums if isinstance(x, Fragment)])


@contextmanager
def lagging(em: Emission, ring: Ring) -> Generator[None]:
    """The matmuls of a trip go on when it ends; those of the trip before are over then."""
    em.lags = ring.lags > 0
    yield
    em.lags = False
    if ring.lags:
        em.writer.line(f"warpgroup_wait<{ring.lags}>();  // for the trip before")


def _steps(em: Emission, s: Loop, ring: Ring) -> None:
    """A loop by single elements, which reads partials: several trips load, then compute, then fold together."""
    loads = [i for i in s.body if isinstance(i, Let) and _is_loaded(em, i.term)]
    count = _trips_at_once(em, s, ring, loads) if all(map(is_pointwise, s.body)) else 1
    step = count * ring.stride
    with em.writer.block(f"for (int {ring.tile} = {ring.first}; {ring.tile} < {ring.high}; {ring.tile} += {step})"):
        if count == 1:
            em.writer.line(f"const int {ring.place} = {ring.tile};")
            trip(em, s)
        else:
            _trips_together(em, s, ring, loads, count)
    forget(em, s)


def _trips_at_once(em: Emission, s: Loop, ring: Ring, loads: Sequence[Let]) -> int:
    """As many as there are, if that is known; beyond the registers or the limit in several equal turns."""
    most = _STEPS_TOGETHER
    while most > 1 and most * sum(elementwise.registers(em, i) for i in loads) > _LOADED_REGISTERS:
        most //= 2
    extent = em.fix(s.upper - s.lower).constant
    if extent is None:
        return most
    trips = max(ceil(extent / ring.stride), 1)
    return ceil(trips / ceil(trips / most))


def _trips_together(em: Emission, s: Loop, ring: Ring, loads: Sequence[Let], count: int) -> None:
    """What a tile of the axis would do: each statement for all trips, and one carry for their joint contribution."""
    trips = [_Trip(f"{ring.tile} + {u * ring.stride}", em.names.fresh(ring.place)) for u in range(count)]
    for t in trips:  # beyond the end the last one again: read, and not folded
        em.writer.line(f"const int {t.place} = least({t.number}, {ring.high} - 1);")
    accumulator.remember_read(em, s)
    for i in [*loads, *(i for i in ordered(s.body) if i not in loads)]:
        comment(em, i)
        if isinstance(i, Update):
            accumulator.carry(em, i.accumulator)
        for u, t in enumerate(trips):
            with t.open(em, s.axis):
                if isinstance(i, Let):
                    _let(em, i)
                elif isinstance(i, Update) and not isinstance(i.term, Contract):
                    with em.writer.block(f"if ({t.number} < {ring.high})" if u else ""):
                        accumulator.add(em, i.accumulator, i.term)


@dataclass
class _Trip:
    """One of several trips that run together: its number and place as C++ text, and the values that are its own."""

    number: str
    place: str
    own: dict[str, Layout] = field(default_factory=dict[str, Layout])

    @contextmanager
    def open(self, em: Emission, axis: Axis) -> Generator[None]:
        shared, place = em.layouts, em.units[axis]
        em.units[axis], em.layouts = self.place, {**shared, **self.own}
        yield
        self.own |= {name: layout for name, layout in em.layouts.items() if name not in shared}
        em.units[axis], em.layouts = place, shared


def _is_loaded(em: Emission, term: object) -> bool:
    """Into registers: a temporary, or anything where threads share a row."""
    return isinstance(term, Load) and (em.lanes > 0 or em.memory[term.input].fresh)


def forget(em: Emission, s: Loop) -> None:
    for c in s.accumulators:
        em.layouts.pop(c.name + "~", None)


def trip(em: Emission, s: Loop, after: Callable[[Stmt], None] = lambda done: None) -> None:
    """``after`` writes what comes after each statement."""
    accumulator.remember_read(em, s)
    with em.trip():
        for inner in ordered(s.body):
            statement(em, inner)
            after(inner)


# ---- operands that stay


def _hold(em: Emission, s: Loop, ring: Ring, whole: Team) -> None:
    """Keep the fragments of a tile that every trip multiplies, if the loop's own fragments leave room.

    Not for wgmma: ptxas 13.0 gives registers that it reads in every trip of a loop to other values of the loop.
    """
    if em.binding.mma == "wgmma":
        return
    inside = {tile.name for tile, _ in ring.places} | {i.name for i in s.body if isinstance(i, Let)}
    room = _HELD_REGISTERS - live(em, s)
    for term in (i.term for i in s.body if isinstance(i, (Let, Update))):
        if not isinstance(term, Contract):
            continue
        a, _ = contract.operands(em, term)
        layout, size = em.layouts.get(a.name), em.size(term.axis)
        taken = size * em.row_tiles // 4
        if a.name in inside or a.name in em.held or not isinstance(layout, SharedTile) or taken > room:
            continue
        if a.name in em.pending:
            em.landed(ring.open_groups, whole.barrier)
        matrix.hold(em, a.name, term.axis, "held")
        room -= taken
