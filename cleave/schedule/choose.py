"""Choosing schedules: partitions, placements and bindings of one candidate at one shape, ranked by modelled time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from cleave.candidate import Candidate
from cleave.config import Config
from cleave.cost.time import modelled, resident_blocks
from cleave.errors import ScheduleError
from cleave.ir.dim import is_dim
from cleave.ir.index import Index, Pred, compare, index, of, symbols_of
from cleave.schedule.choice import Alternative, Choice, summarised
from cleave.schedule.kernels import Kernel, Setting, kernels, one_launch
from cleave.schedule.request import Forced, Request, make_request
from cleave.schedule.splits import base_extent, chunk_of
from cleave.schedule.variants import Variant, variants
from cleave.target import Target
from cleave.tile.check import check_merge, merged_pairs
from cleave.tile.plan import ONE_LAUNCH, Chunk, Feed, KernelPlan, Merge, Mma, Schedule
from cleave.tile.program import Store, outer_axes, statements

KEPT = 8
"""Schedules returned, unless more are asked for."""

ALIKE = 1.01
"""Modelled times whose ratio is at most this are alike."""


def schedule(
    candidate: Candidate,
    target: Target,
    bind: Mapping[str, int],
    config: Config | None = None,
    *,
    tile: Mapping[str, int] | None = None,
    skeleton: str | None = None,
    merge: Merge | None = None,
    split: Mapping[str, int] | None = None,
    feed: Feed | None = None,
    multicast: int = 1,
    mma: Mma | None = None,
    keep: int = KEPT,
) -> tuple[Schedule, ...]:
    """Schedules of a candidate, best first by modelled time.

    bind      representative value of every dim without a fixed one. Lengths stay run-time; extents that a block holds
              whole (head sizes) and split counts are compiled in, see ``Schedule.bind``
    tile      forces tile sizes, by axis name
    skeleton  forces a skeleton, by name
    merge     forces how partials of a split are joined
    split     forces the count of a split, by the name of the axis that was split
    feed      forces how tiles of loops are loaded; "tma" is where it exists the default, and for boxes of arrays only.
              Where rows of an array have a run-time length that is a multiple of 8 in ``bind``, it has to be one in
              every call (``Schedule.constraints``); "cp.async" takes any length
    multicast  blocks of a cluster that fetch for one another the boxes that all of them read; 1: each its own
    mma       forces the instructions of matmuls; "wgmma" reads tiles of boxes, so it comes with feed "tma"
    keep      how many schedules to return; half as many bindings of each first kernel are considered

    Errors: a dim without value, an unknown name, a size that the axis can't have; no skeleton that can express the
    candidate.
    """
    forced = Forced(tile or {}, skeleton, merge, split or {}, feed, multicast, mma)
    return choose(candidate, target, bind, config, forced, keep=keep).schedules


def choose(
    candidate: Candidate,
    target: Target,
    bind: Mapping[str, int],
    config: Config | None = None,
    forced: Forced | None = None,
    *,
    keep: int = KEPT,
) -> Choice:
    """The schedules of a candidate as ``schedule`` returns them, with what they were chosen from. Errors: as there."""
    if keep < 1:
        raise ScheduleError(f"keep {keep}: allowed is >= 1", location=candidate.name)
    request = make_request(candidate, target, bind, config or Config(), forced or Forced())
    found: list[Schedule] = []
    alternatives: list[Alternative] = []
    for variant in variants(request):
        for count in variant.counts:
            made = list(_schedules(Setting(request, variant, count), max(keep // 2, 1)))
            axis = None if variant.split is None else variant.split.base
            best = _ranked(made)[0] if made else None
            alternatives.append(Alternative(variant.partition.note, variant.merge, axis, count, best))
            found += made
    if not found:
        raise request.failure()
    request.check_tiles_used()
    return Choice(tuple(_ranked(found)[:keep]), tuple(alternatives), summarised(request.refused))


def _ranked(found: Sequence[Schedule]) -> list[Schedule]:
    """By modelled time; of those that the model can't tell from the first, rings with fewer slots come first."""

    def microseconds(s: Schedule) -> float:
        return s.modelled.microseconds if s.modelled else 0.0

    ranked = sorted(found, key=microseconds)
    near = sum(microseconds(s) <= ALIKE * microseconds(ranked[0]) for s in ranked)
    return [*sorted(ranked[:near], key=lambda s: s.kernels[0].binding.stages), *ranked[near:]]


def _schedules(s: Setting, tried: int) -> Iterator[Schedule]:
    """So many of the best kernels of the piece that divides the split axis, or of the first, each with what follows
    from it; what runs before does not depend on it."""
    pieces = s.variant.partition.pieces
    lead = next((n for n, p in enumerate(pieces) if s.is_split(p)), 0)
    before = [kernels(s, p) for p in pieces[:lead]]
    rest = pieces[lead + 1 :]
    followers: dict[int, list[list[Kernel]]] = {}
    for kernel in kernels(s, pieces[lead])[:tried] if all(before) else ():
        bound = Setting(s.request, s.variant, s.count, kernel.chunk)
        if s.variant.merge in ONE_LAUNCH:
            made, after = one_launch(bound, rest[0], kernel), [kernels(bound, piece) for piece in rest[1:]]
            if made is not None and all(after):
                yield from _single_launch(_assembled(bound, [*made, *(found[0] for found in after)]), s.request)
            continue
        if kernel.chunk not in followers:
            followers[kernel.chunk] = [kernels(bound, piece) for piece in rest]
        if all(followers[kernel.chunk]):
            after = [found[0] for found in followers[kernel.chunk]]
            yield _assembled(bound, [*(found[0] for found in before), kernel, *after])


def _single_launch(plan: Schedule, r: Request) -> Iterator[Schedule]:
    """The plan, unless its merge would read what the block did not wait for: a second launch waits for everything."""
    first = plan.kernels[0]
    try:
        for pair in merged_pairs(plan):
            check_merge(*pair, plan.bind)
    except ScheduleError as error:
        r.reject(str(error), first.skeleton)
        return
    yield plan


def _assembled(s: Setting, chosen: Sequence[Kernel]) -> Schedule:
    r, v = s.request, s.variant
    bound = {**_compiled_in(r, v, chosen), **_split_values(s)}
    return Schedule(
        candidate=r.candidate.name,
        graph=r.candidate.graph if v.ragged is None else v.ragged.graph,
        target=r.target,
        kernels=tuple(
            KernelPlan(k.program, k.binding, k.skeleton.name, _notes(k), r.chain, r.feed(k.skeleton, k.binding))
            for k in chosen
        ),
        temporaries=v.partition.temporaries,
        merge=v.merge,
        bind=bound,
        shape=r.shape,
        chunks=_chunks(s, chosen),
        constraints=_constraints(chosen, bound),
        modelled=modelled([(k.work, k.binding) for k in chosen], r.target, merge=v.merge, chunks=s.count),
        notes=(v.partition.note,) if v.partition.note else (),
    )


def _split_values(s: Setting) -> dict[str, int]:
    """What is compiled in of a split: its count, and the tiles of chunks that the device measures."""
    v = s.variant
    if v.split is None:
        return {}
    return {v.split.count: s.count} | ({} if v.ragged is None else {v.ragged.granule.name: s.chunk or 1})


def _chunks(s: Setting, chosen: Sequence[Kernel]) -> tuple[Chunk, ...]:
    """The length of chunks that the host computes in a call; an axis whose extent is read, in one chunk, has none."""
    r, v = s.request, s.variant
    if v.split is None:
        return ()
    if v.ragged is not None:
        first = next(k for k in chosen if outer_axes(k.program))
        places = r.target.facts.multiprocessors * resident_blocks(first.work, first.binding, r.target.facts)
        dims = s.dims(s.chunk or 1)
        return (v.ragged.chunk(s.count, s.chunk or 1, dims, first.program, first.binding, places),)
    return (chunk_of(r.candidate, v.split, s.chunk or 1),) if is_dim(base_extent(r.candidate, v.split)) else ()


def _compiled_in(r: Request, v: Variant, chosen: Sequence[Kernel]) -> dict[str, int]:
    """Fixed dims, and those in extents that have to be known: of whole axes.

    With reductions read whole the tile only limits the extent, see ``_constraints``: lengths stay run-time.
    """
    names = dict(r.fixed)
    if not r.config.ablation.iterative_tiling:
        return names
    chunk = frozenset[str]() if v.split is None else frozenset({v.split.chunk})
    known = [a for k in chosen for a in k.program.whole if is_dim(a.extent)]
    needed = {s.name for a in known for s in symbols_of(a.extent)} - chunk
    return {**names, **{n: v for n, v in r.dims.items() if n in needed}}


def _constraints(chosen: Sequence[Kernel], bound: Mapping[str, int]) -> tuple[Pred, ...]:
    """What dims have to meet: whole axes fit their tiles; an axis whose first tile alone stores is not empty; rows of
    arrays that come in boxes are whole vectors."""
    out: dict[Pred, None] = {}
    for k in chosen:
        for symbol in sorted(k.work.multiples.keys(), key=lambda s: s.name):
            out.setdefault(compare("==", of(symbol) % k.work.multiples[symbol], 0))
        for a in k.program.whole:
            if not _is_known(a.extent, bound):
                out.setdefault(compare("<=", a.extent, index(k.binding.tile(a))))
        if k.binding.multicast is not None:
            a = k.binding.multicast.axis
            out.setdefault(k.binding.multicast.condition(1 if a in k.program.unit else k.binding.tile(a)))
        for s in statements(k.program.body):
            for a in s.once if isinstance(s, Store) else ():
                if is_dim(a.extent) and not _is_known(a.extent, bound):
                    out.setdefault(compare("<", index(0), a.extent))
    return tuple(out)


def _is_known(extent: Index, bound: Mapping[str, int]) -> bool:
    return is_dim(extent) and all(s.name in bound for s in symbols_of(extent))


def _notes(k: Kernel) -> tuple[str, ...]:
    repeats = tuple(f"{name} is recomputed in each of {n} tiles" for name, n in k.work.repeats.items())
    resources = f"{k.work.registers} registers and {k.work.shared_bytes} bytes of shared memory, estimated"
    return (*k.notes, *repeats, resources)
