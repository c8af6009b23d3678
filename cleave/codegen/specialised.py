"""Skeleton ``specialised``: a warpgroup of loaders, and warpgroups that compute; mbarriers are all that they share.

    loaders    one thread, for each trip: waits until the slot is empty; asks for its boxes
    others     for each trip: wait until the slot is full; compute; each warp tells that it has read the slot

Registers move from the loaders to the others. With a matmul whose result is worked on and multiplied again, trips
overlap: while the tensor cores add P V of the trip before and then make S = Q K of this one, the threads work on what
they have. Warpgroups issue these in turns; where columns are divided they meet, and wait for one another nowhere else.

    the first trip    S;  P and its carries
    each trip         issue S; issue O += P V of the trip before; wait for S; all but O; wait for O; carry O; P
    after the loop    O += P V

Boxes that the late matmul reads have mbarriers of their own: their slots stay full for a trip longer.

Blocks of a cluster that read the same boxes fetch them together (``Binding.multicast``), as ``bulk`` says: a warp tells
all of them that it has read a slot. They walk in step, so their tiles differ along that axis alone. Nobody leaves while
a neighbour may still send: loaders wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from cleave.codegen import accumulator, behind, bulk, contract, feed, grid, order, persistent, ring
from cleave.codegen.dependence import ordered, values_read
from cleave.codegen.emission import Emission, Roles
from cleave.codegen.layout import Fragment, Rounded, RowVector, SharedTile
from cleave.codegen.ring import Ring
from cleave.codegen.team import turn_pass, turn_wait, warpgroup
from cleave.codegen.writer import Writer
from cleave.errors import CodegenError
from cleave.ir.graph import Reduce
from cleave.ir.index import Index
from cleave.kernel import Workspace
from cleave.target import Facts
from cleave.tile.packed import Packed
from cleave.tile.plan import Binding
from cleave.tile.program import Contract, Let, Loop, Stmt, Update, names_read
from cleave.tile.skeleton import LOADERS_REGISTERS, WARPGROUP, takes_all_registers

NAME = "specialised"
CACHE_SHARE = 4
"""The part of the second-level cache that what tiles at work share may fill. Measured for causal attention on an H200:
a quarter to a half are alike, all heads at once are 4 % slower."""


def body(em: Emission, counts: Sequence[Index], facts: Facts, packed: Packed | None = None) -> tuple[Workspace, ...]:
    """The whole program, as two texts for two roles; each walks the tiles of the grid that fall to the block.

    There are fewer blocks than tiles: the boxes of a tile are asked for while the one before is computed. Gives the
    counters that blocks share.
    """
    outer, tile = em.writer, Writer()
    number = em.names.fresh("number")
    multicast = em.binding.multicast
    if multicast is not None:
        em.rank = em.names.fresh("sharer")
        outer.line(f"const int {em.rank} = blockIdx.x % {multicast.blocks};")
    counts = counts if packed is None else packed.merged(em.program.grid, counts)
    walk = persistent.tiles(em, counts, number)
    in_sections = walk.counters and packed is None
    section = grid.units_of_section(em, counts, facts.l2_bytes // CACHE_SHARE) if in_sections else None
    em.writer = tile
    pair = grid.sharing_pair(em) if packed is None else None
    if multicast is not None and pair is not None and multicast.axis is not pair[0]:
        pair = None  # those who fetch together are neighbours
    together = () if multicast is None else (multicast.axis,)
    places = grid.decode(em, counts, together, number, pair, section, packed, "continue;")
    grid.open_grid(em, places, "continue;")
    roles, computing = _texts(em)
    em.writer = outer
    opened = persistent.open_places(em, walk)
    free = Writer()  # what the tile before has read may be overwritten
    free.line(em.team.barrier if em.team.barrier in computing.text() else warpgroup().barrier)
    with _roles(em, roles, opened) as (loads, computes):
        with loads():
            _for_tiles(outer, roles.counters, walk.loader, (tile, roles.bounds, roles.loaders))
        with computes():
            _for_tiles(outer, roles.computing, walk.others, (tile, roles.bounds, free, computing))
            _leave(em)
    return walk.counters


def one_tile(em: Emission, merge: Callable[[], None]) -> None:
    """The same for a block that has one tile, whose place is known; then those who compute ``merge``."""
    outer = em.writer
    em.writer = Writer()
    roles, computing = _texts(em)
    em.writer = outer
    outer.extend(roles.bounds)
    with _roles(em, roles, ()) as (loads, computes):
        with loads():
            outer.lines(roles.counters)
            outer.extend(roles.loaders)
        with computes():
            with outer.block(""):
                outer.lines(roles.computing)
                outer.extend(computing)
            _leave(em)
            merge()


def _texts(em: Emission) -> tuple[Roles, Writer]:
    """What both roles know and what loaders do; what the others do in a tile."""
    roles = Roles()
    em.roles, em.writer = roles, Writer()
    before: dict[str, bulk.Box] = {}
    ring.body(em, walk=partial(_walk, before), box_of=partial(_box_before, em, before))
    computing, em.roles = em.writer, None
    if not roles.opened:
        raise CodegenError(f"no tile of a loop comes in boxes: {NAME} has nothing to load", location=em.location)
    return roles, computing


Branch: TypeAlias = Callable[[], AbstractContextManager[None]]


@contextmanager
def _roles(em: Emission, roles: Roles, opened: Sequence[str]) -> Generator[tuple[Branch, Branch]]:
    """All open the mbarriers; then the branch of the one thread that asks for boxes, and that of those who compute."""
    outer = em.writer
    outer.extend(roles.constants)
    with outer.block("if (thread == 0)"):
        outer.lines([*opened, *roles.opened])
        outer.line("boxes_may_follow();")
    outer.line("block_barrier();" if em.binding.multicast is None else "cluster_barrier();")
    order.wait(em)
    few, many = LOADERS_REGISTERS.get(em.binding.warps, (0, 0))

    @contextmanager
    def loads() -> Generator[None]:
        with outer.block(f"if (warp >= {em.binding.warps})"):
            if few:
                outer.line(f"registers_leave<{few}>();")
            with outer.block(f"if (thread == {32 * em.binding.warps})"):
                yield
            _leave(em)
            if em.binding.multicast is not None:
                outer.line("cluster_wait();")

    @contextmanager
    def computes() -> Generator[None]:
        with outer.block("else"):
            if many:
                outer.line(f"registers_take<{many}>();")
            yield

    yield loads, computes


def _leave(em: Emission) -> None:
    """This thread has told all that neighbours wait for, and asked for all that they read."""
    if em.binding.multicast is not None:
        em.writer.line("cluster_arrive();")


def blocks_at_once(binding: Binding, shared_bytes: int, facts: Facts) -> int:
    """Blocks that a device runs together, as far as shared memory and registers tell."""
    each = 1 if takes_all_registers(binding) else max(1, facts.blocks_by_shared(shared_bytes))
    sharers = 1 if binding.multicast is None else binding.multicast.blocks
    return facts.multiprocessors * each // sharers * sharers


def _for_tiles(outer: Writer, counters: list[str], every: tuple[str, Writer], parts: Sequence[Writer]) -> None:
    head, start = every
    outer.lines(counters)
    with outer.block(head):
        for part in (start, *parts):
            outer.extend(part)


@dataclass(frozen=True)
class _Overlap:
    """The matmul that a trip begins with, and the sum that it leaves to the next one."""

    first: Let
    late: Update


def _box_before(em: Emission, before: dict[str, bulk.Box], tile: feed.Tile) -> bulk.Box | None:
    """A tile before all loops that one loop alone reads: it comes with the first trip, and goes with the last."""
    readers = [s for s in em.program.body if tile.name in values_read(s)]
    if len(readers) != 1 or not isinstance(readers[0], Loop):
        return None
    box = bulk.box_of(em, tile, None)
    if box is not None:
        before[tile.name] = box
    return box


def _walk(before: Mapping[str, bulk.Box], em: Emission, s: Loop, r: Ring, boxes: bulk.Boxes) -> None:
    if r.tiles:
        names = ", ".join(source.tile.name for source, _ in r.tiles)
        raise CodegenError(
            f"{names} in the loop over {s.axis} can't be fetched in boxes: {NAME} loads no others", location=em.location
        )
    overlap = _overlap(em, s, r)
    early, late = _groups(em, s, boxes, overlap)
    own = [(box, x) for n, box in before.items() if n in values_read(s) and isinstance(x := em.layouts[n], SharedTile)]
    held = _Held(bulk.with_empty(em, own, 1, s.axis.name), em.names.fresh("held"))
    for group in (g for g in (early, late, held.boxes) if g.parts):
        _open(em, group)
    _load(em, r, early, late, held)
    if em.pending:
        alone = em.binding.division is None and all(
            isinstance(x, SharedTile) and x.row is None for x in map(em.layouts.get, em.pending)
        )
        em.landed(0, warpgroup().barrier if alone else em.team.barrier)
    for m in behind.maxima(em, s):
        behind.begin(em, m)
    with em.writer.block(f"if ({r.first} < {r.high})"):
        _wait_for_held(em, held)
        if overlap is None:
            _in_turn(em, s, r, early, held)
        else:
            _overlapped(em, s, r, overlap, early, late, held)
        accumulator.catch_up(em, s)
    ring.forget(em, s)


# ---- tiles that stay for all trips


@dataclass(frozen=True)
class _Held:
    """Boxes that come with the first trip and stay; ``phase``: C++ name of what counts the loops that had trips."""

    boxes: bulk.Boxes
    phase: str


def _wait_for_held(em: Emission, held: _Held) -> None:
    if held.boxes.parts:
        assert em.roles is not None
        em.roles.computing.append(f"int {held.phase} = 0;")
        bulk.wait(em, held.boxes, "0", held.phase)
        _at(em, held.boxes, "0")
        bulk.clear_beyond(em, held.boxes)


def _release_held(em: Emission, r: Ring, held: _Held) -> None:
    """No trip follows that reads what stays for all of them: the next tile's may come."""
    if held.boxes.parts:
        with em.writer.block(f"if ({r.place} + {r.stride} >= {r.high})"):
            _release(em, held.boxes, "0")


def _held_are_released(em: Emission, held: _Held) -> None:
    if held.boxes.parts:
        em.writer.line(f"{held.phase} ^= 1;")


# ---- slots


def _groups(em: Emission, s: Loop, boxes: bulk.Boxes, overlap: _Overlap | None) -> tuple[bulk.Boxes, bulk.Boxes]:
    """Boxes that are read in their own trip only, and those that the late matmul reads."""
    late = set[str]() if overlap is None else {_address(em, name) for name in names_read(overlap.late.term)}
    now = tuple(p for p in boxes.parts if p[1].address not in late)
    after = tuple(p for p in boxes.parts if p[1].address in late)
    slots, axis = boxes.slots, s.axis.name
    return bulk.with_empty(em, now, slots, axis), bulk.with_empty(em, after, slots, axis)


def _address(em: Emission, name: str) -> str:
    layout = em.layouts.get(name)
    return layout.address if isinstance(layout, SharedTile) else ""


def _open(em: Emission, boxes: bulk.Boxes) -> None:
    assert em.roles is not None
    for slot in range(boxes.slots):
        em.roles.opened.append(f"mbarrier_open({boxes.full} + {8 * slot});")
        em.roles.opened.append(f"mbarrier_open({boxes.empty} + {8 * slot}, {em.binding.warps * boxes.sharers});")


def _load(em: Emission, r: Ring, early: bulk.Boxes, late: bulk.Boxes, held: _Held) -> None:
    """Lines of the thread that asks, in the order in which slots become empty: late ones do so a trip after early ones
    of the same trip."""
    assert em.roles is not None
    before, em.writer = em.writer, em.roles.loaders
    slot, phase = em.names.fresh("slot"), em.names.fresh("phase")
    em.roles.counters.append(f"int {slot} = 0, {phase} = 0;")
    first, last = (early, late) if early.parts else (late, early)
    with em.writer.block(f"if ({r.first} < {r.high})"):
        _ask(em, r, first, r.first, slot, phase)
        if held.boxes.parts:
            em.roles.counters.append(f"int {held.phase} = 0;")
            bulk.wait_empty(em, held.boxes, "0", f"{held.phase} ^ 1")
            bulk.ask(em, held.boxes, "0")
            em.writer.line(f"{held.phase} ^= 1;")
    with _trips(em, r, slot, phase):
        with em.writer.block(f"if ({r.tile} + {r.stride} < {r.high})"):
            turn = f"{slot} == {r.slots - 1}"
            _ask(em, r, first, f"{r.tile} + {r.stride}", f"({turn} ? 0 : {slot} + 1)", f"({phase} ^ ({turn}))")
        if last.parts:
            with em.writer.block(""):
                _ask(em, r, last, r.tile, slot, phase)
    em.writer = before


def _ask(em: Emission, r: Ring, group: bulk.Boxes, position: str, slot: str, phase: str) -> None:
    em.writer.line(f"const int {r.place} = {position};")
    bulk.wait_empty(em, group, slot, f"{phase} ^ 1")
    bulk.ask(em, group, slot)


@contextmanager
def _trips(em: Emission, r: Ring, slot: str, phase: str) -> Generator[None]:
    """The slot and its phase go on from tile to tile."""
    advance = f"{r.tile} += {r.stride}, {_advance(r, slot, phase)}"
    with em.writer.block(f"for (int {r.tile} = {r.first}; {r.tile} < {r.high}; {advance})"):
        yield


def _advance(r: Ring, slot: str, phase: str) -> str:
    return f"{phase} ^= {slot} == {r.slots - 1}, {slot} = {slot} == {r.slots - 1} ? 0 : {slot} + 1"


def _at(em: Emission, boxes: bulk.Boxes, slot: str) -> None:
    for box, layout in boxes.parts:
        em.writer.line(f"const u32 {layout.address} = {layout.address}_ring + {slot} * {box.tile.bytes};")


@contextmanager
def _tiles_at(em: Emission, boxes: bulk.Boxes, slot: str) -> Generator[None]:
    """Tiles are read in a slot, without names of their own."""
    places = {layout.address: f"({layout.address}_ring + {slot} * {box.tile.bytes})" for box, layout in boxes.parts}
    held = {n: x for n, x in em.layouts.items() if isinstance(x, SharedTile) and x.address in places}
    em.layouts.update((n, replace(x, address=places[x.address])) for n, x in held.items())
    yield
    em.layouts.update(held)


@contextmanager
def _issuing(em: Emission) -> Generator[None]:
    """Matmuls begin, and nobody waits for them."""
    em.lags = True
    yield
    em.lags = False


def _reads(em: Emission, statements: Sequence[Stmt], boxes: bulk.Boxes) -> bool:
    addresses = {layout.address for _, layout in boxes.parts}
    carries = (i.accumulator.carry for i in statements if isinstance(i, Update))
    names = {n for t in carries if t is not None for n in names_read(t)}.union(*map(values_read, statements))
    return any(_address(em, n) in addresses for n in names)


def _release(em: Emission, boxes: bulk.Boxes, slot: str) -> None:
    """This warp has read a slot."""
    if not boxes.parts:
        return
    em.writer.line("warp_barrier();")
    empty = f"{boxes.empty} + {slot} * 8"
    if boxes.sharers == 1:
        em.writer.line(f"if (lane == 0) mbarrier_arrive({empty});")
    else:
        em.writer.line(f"if (lane < {boxes.sharers}) mbarrier_arrive_at(cluster_address({empty}, lane));")


# ---- trips one after the other


def _in_turn(em: Emission, s: Loop, r: Ring, boxes: bulk.Boxes, held: _Held) -> None:
    """What stays is released when the last statement that reads it is done, or all matmuls are, where they go on."""
    readers = [i for i in ordered(s.body) if _reads(em, [i], held.boxes)]

    def release(done: Stmt) -> None:
        if not r.lags and readers and done is readers[-1]:
            _release_held(em, r, held)

    slot, phase = _counters(em)
    before = em.names.fresh("before")
    last = f"{slot} == 0 ? {r.slots - 1} : {slot} - 1"
    with _trips(em, r, slot, phase):
        bulk.wait(em, boxes, slot, phase)
        em.writer.line(f"const int {r.place} = {r.tile};")
        _at(em, boxes, slot)
        bulk.clear_beyond(em, boxes)
        with ring.lagging(em, r):
            ring.trip(em, s, release)
        if r.lags:
            em.writer.line(f"const int {before} = {last};")
            with em.writer.block(f"if ({r.tile} > {r.first})"):
                _release(em, boxes, before)
        else:
            _release(em, boxes, slot)
    ring.settle_sums(em, s, r)
    if r.lags:
        em.writer.line(f"const int {before} = {last};")
        _release(em, boxes, before)
        _release(em, held.boxes, "0")
    _held_are_released(em, held)


def _counters(em: Emission) -> tuple[str, str]:
    """C++ names of the slot and phase of those who compute."""
    assert em.roles is not None
    slot, phase = em.names.fresh("slot"), em.names.fresh("phase")
    em.roles.computing.append(f"int {slot} = 0, {phase} = 0;")
    return slot, phase


# ---- trips that overlap


def _overlap(em: Emission, s: Loop, r: Ring) -> _Overlap | None:
    """Two matmuls by warpgroups: one of tiles alone, and a sum that multiplies what was made of it by a box, and that
    nothing in the loop reads."""
    found = [i for i in ordered(s.body) if isinstance(i, Let | Update) and isinstance(i.term, Contract)]
    if len(found) != 2 or r.boxes is None or any(isinstance(i, Loop) for i in s.body) or em.is_divided(s.axis):
        return None
    first, late = found
    if not isinstance(first, Let) or not contract.is_of_boxes(em, first.term) or not isinstance(late, Update):
        return None
    boxes = {layout.address for _, layout in r.places}
    if late.accumulator.op != "sum" or not isinstance(late.term, Contract):
        return None
    a, b = contract.operands(em, late.term)
    if _address(em, a.name) or _address(em, b.name) not in boxes or em.chain != "registers":
        return None
    if any(box.beyond is not None for box, layout in r.boxes.parts if layout.address == _address(em, b.name)):
        return None  # rows that have to be cleared belong to the trip before
    names = {late.accumulator.name, f"{late.accumulator.name}~"}
    others = [c.carry for c in s.accumulators if c is not late.accumulator and c.carry is not None]
    read = [n for i in s.body if isinstance(i, Let | Update) for n in names_read(i.term)] + [
        n for t in others for n in names_read(t)
    ]
    return None if names & set(read) else _Overlap(first, late)


@dataclass(frozen=True)
class _Pipeline:
    """One loop whose trips overlap.

    ``rows``: C++ name of the fragments that the late matmul of a trip multiplies; ``apart``: of memory that nobody
    reads, four bytes a thread.
    """

    s: Loop
    ring: Ring
    overlap: _Overlap
    early: bulk.Boxes
    late: bulk.Boxes
    held: _Held
    rows: str
    sum: Fragment
    apart: str


def _overlapped(
    em: Emission, s: Loop, r: Ring, overlap: _Overlap, early: bulk.Boxes, late: bulk.Boxes, held: _Held
) -> None:
    term, layout = overlap.late.term, em.layouts[overlap.late.accumulator.name]
    assert isinstance(term, Contract) and isinstance(layout, Fragment)
    rows = em.names.fresh(f"{contract.operands(em, term)[0].name}_rows")
    apart = em.names.fresh("apart")
    em.constant(f"const u32 {apart} = {em.allot(4 * em.team.threads)};")
    p = _Pipeline(s, r, overlap, early, late, held, rows, layout, apart)
    slot, phase = _counters(em)
    before, phase_before = em.names.fresh("before"), em.names.fresh("phase_before")
    em.writer.line(f"u32 {rows}[{em.size(term.axis) // 16}][4];")
    known = set(em.layouts)
    with em.writer.block(""):
        em.writer.line(f"const int {r.place} = {r.first};")
        _round(em, p, slot, phase, None)
    for name in set(em.layouts) - known:  # what a trip makes ends with it
        del em.layouts[name]
    head = f"int {r.tile} = {r.first} + {r.stride}"
    with em.writer.block(f"for ({head}; {r.tile} < {r.high}; {r.tile} += {r.stride})"):
        em.writer.line(f"const int {r.place} = {r.tile}, {before} = {slot}, {phase_before} = {phase};")
        em.writer.line(f"{_advance(r, slot, phase)};")
        _round(em, p, slot, phase, (before, phase_before))
    _held_are_released(em, held)
    _late_matmul(em, p, slot, phase)
    em.writer.line("warpgroup_wait<0>();")
    em.writer.line(f"registers_settle({layout.name});")
    _release(em, late, slot)
    em.writer.line(f"{_advance(r, slot, phase)};")


def _round(em: Emission, p: _Pipeline, slot: str, phase: str, before: tuple[str, str] | None) -> None:
    """One trip; ``before``: C++ names of the slot and phase of the trip whose late matmul runs beside it."""
    accumulator.remember_read(em, p.s)
    with em.trip():
        _beside(em, p, slot, phase, before)


def _beside(em: Emission, p: _Pipeline, slot: str, phase: str, before: tuple[str, str] | None) -> None:
    others = [i for i in ordered(p.s.body) if i is not p.overlap.first and not _is_loaded(em, i)]
    _issue(em, p, slot, phase, before)
    kept, held = _reads(em, others, p.early), _reads(em, others, p.held.boxes)
    if not kept:
        _release(em, p.early, slot)
    if not held:
        _release_held(em, p.ring, p.held)
    for i in others:
        if i is p.overlap.late:
            _finish(em, p, before)
            continue
        with _tiles_at(em, p.late, slot):
            ring.statement(em, i)
    if kept:
        _release(em, p.early, slot)
    if held:
        _release_held(em, p.ring, p.held)


def _is_loaded(em: Emission, s: Stmt) -> bool:
    return isinstance(s, Let) and s.name in em.layouts


def _issue(em: Emission, p: _Pipeline, slot: str, phase: str, before: tuple[str, str] | None) -> None:
    """The first matmul of a trip, and the late one of the trip before: until the first one is over."""
    first = p.overlap.first
    if p.early.parts:
        bulk.wait(em, p.early, slot, phase)
        _at(em, p.early, slot)
        bulk.clear_beyond(em, p.early)
    if _reads(em, [first], p.late):
        bulk.wait(em, p.late, slot, phase)
    with _turn(em, p.ring, is_first=before is None):
        with _issuing(em), _tiles_at(em, p.late, slot):
            ring.statement(em, first)
        if before is not None:
            _late_matmul(em, p, *before)
    em.writer.line(f"warpgroup_wait<{0 if before is None else 1}>();")
    made = em.layouts[first.name]
    assert isinstance(made, Fragment)
    em.writer.line(f"registers_settle({made.name});")


@contextmanager
def _turn(em: Emission, r: Ring, *, is_first: bool) -> Generator[None]:
    """Warpgroups issue their matmuls in turns: while those of one run, the others work on what theirs have made. The
    first one begins, in the first trip of a tile; the last one passes nothing on in the last. On an H200 prefill is
    1.7 % faster with heads of 64 and of 192, with others within 0.5 %."""
    last = em.binding.warps // WARPGROUP - 1
    if last == 0:
        yield
        return
    with em.writer.block(f"if (warp >= {WARPGROUP})") if is_first else nullcontext():
        em.writer.line(turn_wait())
    yield
    with em.writer.block(f"if (warp < {last * WARPGROUP} || {r.place} + {r.stride} < {r.high})"):
        em.writer.line(turn_pass(em.binding))


def _finish(em: Emission, p: _Pipeline, before: tuple[str, str] | None) -> None:
    """The late sum of the trip before is complete; it is restated for this one, whose factors are laid out."""
    late = p.overlap.late
    assert isinstance(late.term, Contract)
    if before is not None:
        _work_before(em, p, late.term)
        em.writer.line("warpgroup_wait<0>();")
        em.writer.line(f"registers_settle({p.sum.name});")
        _release(em, p.late, before[0])
    ring.comment(em, late)
    accumulator.carry(em, late.accumulator)
    contract.lay_out(em, late.term, p.rows)


def _work_before(em: Emission, p: _Pipeline, term: Contract) -> None:
    """What is written now is computed now. ptxas moves arithmetic beyond a wait, and nothing would run beside the
    matmul; what a store to memory needs it computes before, and a sum of all that the rows are made of needs all."""
    a, _ = contract.operands(em, term)
    layout = em.layouts.get(a.name)
    sources = {*names_read(layout.operand)} if isinstance(layout, Rounded) else {a.name}
    for i in p.s.body:
        if not isinstance(i, Update) or not isinstance(i.term, Reduce) or i.accumulator.op != "sum":
            continue
        value = em.layouts.get(i.accumulator.name)
        if sources & {*names_read(i.term)} and isinstance(value, RowVector):
            total = " + ".join(f"{value.name}[{h}]" for h in range(em.halves))
            em.writer.line(f"shared_write_float({p.apart} + thread * 4, {total});  // done before the wait")
            return


def _late_matmul(em: Emission, p: _Pipeline, slot: str, phase: str) -> None:
    assert isinstance(p.overlap.late.term, Contract)
    bulk.wait(em, p.late, slot, phase)
    with _issuing(em), _tiles_at(em, p.late, slot):
        contract.multiply_laid_out(em, p.overlap.late.term, p.sum.name, p.rows)
