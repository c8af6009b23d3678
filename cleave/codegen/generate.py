"""Schedule -> CUDA text: each kernel plan through its skeleton, with launch, parameters and workspaces as data."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from cleave.codegen import alone, cluster, grid, merge, order, prelude, ring, row, specialised, warpgroup
from cleave.codegen.emission import Emission, Memory, Parameters, SharedMemory
from cleave.codegen.order import Order
from cleave.codegen.team import members
from cleave.codegen.writer import Names, Writer
from cleave.errors import CodegenError
from cleave.ir.axis import Axis
from cleave.ir.bind import dims_of_callers
from cleave.ir.graph import Input, Output
from cleave.ir.index import (
    Index,
    Max,
    Min,
    Monomial,
    Position,
    Pred,
    Symbol,
    axes_of,
    ceildiv,
    index,
    maximum,
    minimum,
    show,
)
from cleave.kernel import Buffer, KernelSource, OperatorSource, Pointer, TensorMap, Workspace
from cleave.target import TARGETS, Facts
from cleave.tile.box import ALIGNMENT, UNIT_BYTES
from cleave.tile.check import check_merge, check_sent
from cleave.tile.packed import Packed, packed_axis
from cleave.tile.plan import ONE_LAUNCH, KernelPlan, Merge, Multicast, Schedule
from cleave.tile.program import Loop, Program, outer_axes, statements
from cleave.tile.skeleton import CROWDED_REGISTERS, SKELETONS, is_crowded

_STATIC_SHARED = 16
"""Bytes besides the tiles: the flag of a last-arriving merge; in a kernel with boxes, a multiple of their alignment."""


def generate(schedule: Schedule) -> OperatorSource:
    """CUDA for every kernel of a schedule.

    Kernels of a merge in one launch come in pairs and become one. Errors (``CodegenError``): a skeleton that is
    unknown, a value that the skeleton can't hold (named, with its axes and what is allowed), more shared memory than a
    block may have.
    """
    memory = _memory(schedule)
    kernels: list[KernelSource] = []
    counters: list[Workspace] = []
    alignments: dict[str, int] = {}
    plans = list(schedule.kernels)
    while plans:
        group = [plans.pop(0)]
        if schedule.merge in ONE_LAUNCH and plans and outer_axes(group[0].program):
            group.append(plans.pop(0))
            check_merge(group[0], group[1], schedule.bind)
        source, counter, needs = _kernel(schedule, group, memory)
        kernels.append(source)
        counters += counter
        for name, bytes_ in needs.items():
            alignments[name] = max(alignments.get(name, 1), bytes_)
    graph = schedule.graph
    return OperatorSource(
        name=graph.name,
        inputs=tuple(_buffer(b, alignments) for b in graph.inputs),
        outputs=tuple(_buffer(b, alignments) for b in graph.outputs),
        workspaces=(*(Workspace(t.name, t.dtype, t.shape) for t in schedule.temporaries), *counters),
        kernels=tuple(kernels),
        fixed=dict(schedule.bind),
        derived=tuple((c.symbol, c.length) for c in schedule.chunks),
        constraints=(*graph.constraints, *schedule.constraints),
        dims=dims_of_callers(graph),
    )


def _memory(schedule: Schedule) -> dict[str, Memory]:
    graph = schedule.graph
    out = {b.name: Memory(b.name, b.dtype, b.shape) for b in (*graph.inputs, *graph.outputs)}
    # 16-bit temporaries go through copies that bypass the first-level cache anyway
    out.update((t.name, Memory(t.name, t.dtype, t.shape, fresh=t.dtype == "float32")) for t in schedule.temporaries)
    return out


def _buffer(b: Input | Output, alignments: Mapping[str, int]) -> Buffer:
    return Buffer(b.name, b.dtype, b.shape, tuple(show(n) for n in b.shape), "contiguous", alignments.get(b.name, 1))


def _kernel(
    schedule: Schedule, group: Sequence[KernelPlan], memory: Mapping[str, Memory]
) -> tuple[KernelSource, list[Workspace], dict[str, int]]:
    first = group[0]
    names, writer, shared = Names(), Writer(), SharedMemory()
    parameters = Parameters(names)
    said = Order(schedule.target.facts)
    emissions = [_emission(schedule, p, memory, writer, names, parameters, shared, said) for p in group]
    em = emissions[0]
    entry = _identifier(names, first.program.name)
    packed = packed_axis(first.program, first.binding)
    counts = [
        em.fix(packed.packing.total)
        if packed and a is packed.axis
        else ceildiv(_longest(em, a, em.extent(a)), em.size(a))
        for a in first.program.grid
    ]
    grid.prologue(em)
    counters: list[Workspace] = []
    in_cluster = together = 1
    if len(group) > 1 and schedule.merge not in SKELETONS[first.skeleton].merges:
        raise CodegenError(f"merge {schedule.merge!r}: {first.skeleton} has none in its launch", location=em.location)
    walks = first.binding.loaders > 0 and len(group) == 1
    if walks:
        multicast = _multicast(em, counts, "none", schedule.constraints)
        in_cluster = 1 if multicast is None else multicast.blocks
        em.order.cluster = in_cluster
        counters += specialised.body(em, counts, schedule.target.facts, packed)
    else:
        in_cluster, together, counters = _one_tile_a_block(schedule, emissions, counts, packed)
    own = order.start(em) + writer.text()
    feed = "tma" if prelude.has_mbarriers(own) else "cp.async"
    _check_shared(schedule, em, shared, ALIGNMENT if feed == "tma" else _STATIC_SHARED)
    threads = 32 * (first.binding.warps + first.binding.loaders)
    shape = f"__cluster_dims__({in_cluster}, 1, 1) " if in_cluster > 1 else ""
    least = _least_blocks(group, schedule.target.facts, threads, shared.most)
    text = (
        prelude.device_prelude(
            feed,
            warpgroup.definitions(own),
            rows=em.lanes > 0,
            tables=prelude.has_lookups(own),
        )
        + f'extern "C" __global__ void {shape}__launch_bounds__({threads}, {least}) {entry}'
        + f"({parameters.signature()}) {{\n"
        + own
        + "}\n"
    )
    blocks = grid.tiles_of(counts if packed is None else packed.merged(first.program.grid, counts))
    if walks:
        blocks = minimum(blocks, specialised.blocks_at_once(first.binding, shared.most, schedule.target.facts))
    architectures = tuple(a for a in ring.ARCHITECTURES[feed] if in_cluster <= TARGETS[a].cluster_blocks)
    source = KernelSource(
        text,
        entry,
        parameters.ordered,
        threads,
        shared.most,
        (blocks,),
        architectures,
        first.skeleton,
        in_cluster,
        together,
        waits=True,
    )
    return source, counters, _alignments(parameters)


def _least_blocks(group: Sequence[KernelPlan], facts: Facts, threads: int, shared_bytes: int) -> int:
    """Blocks that a multiprocessor has to have registers for: many of those without loops, as far as there is shared
    memory for them."""
    if len(group) > 1 or not is_crowded(group[0].program, group[0].binding):
        return 1
    return max(1, min(facts.blocks_by_shared(shared_bytes), facts.registers // (CROWDED_REGISTERS * threads)))


def _one_tile_a_block(
    schedule: Schedule, emissions: Sequence[Emission], counts: Sequence[Index], packed: Packed | None
) -> tuple[int, int, list[Workspace]]:
    """The text of a kernel of which each block has one tile, and merges in the same launch.

    Gives the blocks of a cluster, the blocks that wait for one another, and the counters.
    """
    em, first, writer, shared = emissions[0], emissions[0].program, emissions[0].writer, emissions[0].shared
    counters: list[Workspace] = []
    way = schedule.merge if len(emissions) > 1 else "none"
    blocks = _divided(schedule, first, counts) if way in ("cluster", "spread") else 1
    multicast = _multicast(em, counts, way, schedule.constraints)
    in_cluster = multicast.blocks if multicast is not None else blocks if way == "cluster" else 1
    em.order.cluster = in_cluster
    neighbours = [multicast.axis] if multicast is not None else outer_axes(first) if blocks > 1 else ()
    places = counts if packed is None else packed.merged(first.grid, counts)
    tiles = grid.decode(em, places, neighbours, packed=packed)
    if multicast is not None:
        em.rank = em.names.fresh("sharer")
        tile = tiles[first.grid.index(multicast.axis)]
        writer.line(f"const int {em.rank} = {tile} % {multicast.blocks};")
    if way == "cluster":
        second = emissions[1]
        divided = check_sent(first, em.binding, second.program, second.binding)
        cluster.reserve(em, divided, blocks, _chunk_number(first, tiles))
    floor = shared.top
    grid.open_units(em, tiles)

    def merges() -> None:
        shared.top = floor
        counters.extend(_merge(way, emissions, tiles, counts, blocks, packed))

    with writer.block(""):
        grid.open_grid(em, tiles)
        if way == "cluster":
            cluster.announce(em)
        if not em.binding.loaders:
            order.wait(em)
        _body(em, emissions, packed, merges)
    if not em.binding.loaders:
        merges()
    return in_cluster, blocks if way == "spread" else 1, counters


def _body(em: Emission, emissions: Sequence[Emission], packed: Packed | None, merges: Callable[[], None]) -> None:
    """The first program of a block with one tile; where others load, those who compute go on with the merge."""
    if em.binding.loaders:
        specialised.one_tile(em, merges)
    elif em.lanes:
        row.body(em)
    else:
        ring.body(em, before_stores=_short_way(em, emissions, packed))


def _merge(
    way: Merge,
    emissions: Sequence[Emission],
    tiles: Sequence[str],
    counts: Sequence[Index],
    blocks: int,
    packed: Packed | None,
) -> list[Workspace]:
    """The second program of a merge in one launch, if there is one, by those who computed; gives its counters."""
    counters: list[Workspace] = []
    em, first = emissions[0], emissions[0].program
    for second in emissions[1:]:
        second.team = em.team
        if second.binding.teams > em.binding.teams:
            em.writer.line(members(second.binding))
        if way == "cluster":
            cluster.receive(em)
            second.parts, second.turn = em.parts, f"slice / {blocks}"
        else:
            which, places = _counted(em, tiles, counts, packed)
            texts = [grid.count_text(em, n, f"{a.name}_tiles") for a, n in zip(first.grid, places, strict=True)]
            (merge.meet if way == "spread" else merge.arrive)(em, which, texts)
            counters.append(merge.counter(first, places))
        with merge.slices(em, second, tiles, blocks, _chunk_number(first, tiles)) as (here, leave, finer):
            grid.open_grid(second, here, leave, finer)
            ring.body(second)
    return counters


def _counted(
    em: Emission, tiles: Sequence[str], counts: Sequence[Index], packed: Packed | None
) -> tuple[Sequence[str], Sequence[Index]]:
    """Tiles of the grid as their blocks count them, and how many there are: by place, if their rows are packed."""
    grid_axes = em.program.grid
    if packed is None or packed.axis.kind == "outer":
        return tiles, counts
    place = f"({grid.first_place(em, packed)} + {tiles[grid_axes.index(packed.axis)]})"
    known = {packed.axis: place, packed.packing.owner: "0"}
    return [known.get(a, x) for a, x in zip(grid_axes, tiles, strict=True)], packed.merged(grid_axes, counts)


def _short_way(em: Emission, emissions: Sequence[Emission], packed: Packed | None) -> Callable[[], None] | None:
    """What a block does whose chunk is the only one of its request, if that is less than a merge."""
    if packed is None or len(emissions) == 1 or not alone.has_short_way(em, emissions[1], packed.axis):
        return None
    merged, state = emissions[1], (em.writer, em.names, em.parameters, em.shared, em.order)
    second = Emission(merged.program, em.binding, em.chain, em.fixed, em.memory, em.multiples, *state)
    return lambda: alone.short_way(em, second, packed.axis)


def _emission(
    schedule: Schedule,
    plan: KernelPlan,
    memory: Mapping[str, Memory],
    writer: Writer,
    names: Names,
    parameters: Parameters,
    shared: SharedMemory,
    said: Order,
) -> Emission:
    if plan.skeleton not in SKELETONS:
        raise CodegenError(
            f"skeleton {plan.skeleton!r}: emitted are {', '.join(SKELETONS)}", location=f"kernel {plan.program.name}"
        )
    facts = schedule.bind, memory, schedule.multiples
    em = Emission(plan.program, plan.binding, plan.chain, *facts, writer, names, parameters, shared, said)
    em.feed = plan.feed
    teams = plan.binding.teams
    if em.used_rows > em.block_rows:
        raise CodegenError(
            f"{em.used_rows} rows ({', '.join(a.name for a in em.rows)}) in a {'block' if teams == 1 else 'team'} "
            f"of {plan.binding.warps_a_team} warps: "
            f"at most {em.block_rows}, sixteen a warp",
            location=em.location,
        )
    return em


def _identifier(names: Names, wish: str) -> str:
    """A name of ours in the end, so that a graph may be called like a function of the C library."""
    return names.fresh(re.sub(r"\W+", "_", f"{wish}_kernel"))


def _divided(schedule: Schedule, first: Program, counts: Sequence[Index]) -> int:
    """Blocks that divide a merge: one for each chunk. Errors: more than can run together, or not one axis of chunks."""
    outer = [n.constant for a, n in zip(first.grid, counts, strict=True) if a.kind == "outer"]
    facts = schedule.target.facts
    what, most = (
        ("a cluster", facts.cluster_blocks) if schedule.merge == "cluster" else ("a merge", facts.multiprocessors)
    )
    if len(outer) != 1 or outer[0] is None or not 1 <= outer[0] <= most:
        raise CodegenError(
            f"{what} of {' x '.join(map(str, outer))} blocks: {schedule.target.arch} allows at most {most}",
            location=f"kernel {first.name}",
        )
    return outer[0]


def _multicast(em: Emission, counts: Sequence[Index], way: Merge, constraints: Sequence[Pred]) -> Multicast | None:
    """What a binding orders. Errors: blocks that are no neighbours in every cluster, or whose trips differ."""
    multicast = em.binding.multicast
    if multicast is None:
        return None
    a = multicast.axis
    count = counts[em.program.grid.index(a)] if a in em.program.grid else index(1)
    differ = [s.axis.name for s in statements(em.program.body) if isinstance(s, Loop) and a in _bounds_read(em, s)]
    if em.feed != "tma" or way in ("cluster", "spread"):
        why = "boxes are fetched by tma, and the cluster is not used for a merge"
    elif not _is_multiple(em, multicast, count, constraints):
        why = f"a number of tiles that is a multiple, or a constraint that it is, not {show(count)}"
    elif differ:
        why = f"trips over {', '.join(differ)} that do not depend on it"
    else:
        return multicast
    raise CodegenError(f"{multicast.blocks} blocks along {a} fetch together: needed are {why}", location=em.location)


def _is_multiple(em: Emission, multicast: Multicast, count: Index, constraints: Sequence[Pred]) -> bool:
    if count.constant is not None:
        return count.constant % multicast.blocks == 0
    a = multicast.axis
    return a in em.program.grid and multicast.condition(1 if a in em.program.unit else em.size(a)) in constraints


def _bounds_read(em: Emission, s: Loop) -> frozenset[Axis]:
    return frozenset(axes_of(em.fix(s.lower)) | axes_of(em.fix(s.upper)))


def _chunk_number(first: Program, tiles: Sequence[str]) -> str:
    return next((tile for a, tile in zip(first.grid, tiles, strict=True) if a.kind == "outer"), "0")


def _longest(em: Emission, a: Axis, extent: Index) -> Index:
    """What the host knows of the extent of a grid axis: a dim that no row of it exceeds."""
    total = index(0)
    for monomial, factor in extent.terms:
        part = _longest_part(em, a, monomial, factor)
        if part is None:
            raise CodegenError(
                f"grid axis {a} of extent {show(extent)}: the host can't bound it; the minimum with a dim would",
                location=em.location,
            )
        total = total + part
    return total


def _longest_part(em: Emission, a: Axis, monomial: Monomial, factor: int) -> Index | None:
    whole = Index(((monomial, factor),))
    atom = whole.atom if factor == 1 else None
    match atom:
        case Min(left, right):
            known = [x for x in (_attempt(em, a, left), _attempt(em, a, right)) if x is not None]
            return minimum(known[0], known[-1]) if known else None
        case Max(left, right):
            known = [x for x in (_attempt(em, a, left), _attempt(em, a, right)) if x is not None]
            return maximum(known[0], known[1]) if len(known) == 2 else None
        case _:
            pass
    if all(isinstance(x, Symbol) for x, _ in monomial):
        return whole
    # a falling term is greatest at position 0; everything else is unknown to the host
    return index(0) if factor < 0 and all(isinstance(x, (Symbol, Position)) for x, _ in monomial) else None


def _attempt(em: Emission, a: Axis, extent: Index) -> Index | None:
    try:
        return _longest(em, a, extent)
    except CodegenError:
        return None


def _check_shared(schedule: Schedule, em: Emission, shared: SharedMemory, static: int) -> None:
    allowed = schedule.target.facts.shared_per_block
    if shared.most + static > allowed:
        raise CodegenError(
            f"{shared.most} bytes of shared memory, {schedule.target.arch} allows {allowed}: "
            "smaller tiles or fewer stages",
            location=em.location,
        )


def _alignments(parameters: Parameters) -> dict[str, int]:
    out: dict[str, int] = {}
    for name, needed in parameters.alignments.items():
        source = parameters.pointers[name].source
        if isinstance(source, Pointer):
            out[source.buffer] = max(out.get(source.buffer, 1), needed)
    for source in (p.source for p in parameters.maps.values()):
        if isinstance(source, TensorMap):
            out[source.buffer] = max(out.get(source.buffer, 1), UNIT_BYTES)
    return out
