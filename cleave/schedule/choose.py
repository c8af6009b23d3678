"""Choosing schedules: partitions, placements and bindings of one candidate at one representative shape, ranked by
modelled time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from dataclasses import replace as replaced

from cleave.candidate import Candidate, Fold, Split
from cleave.config import Config
from cleave.cost.program import Work, modelled, program_work, refusal
from cleave.errors import ScheduleError
from cleave.ir.axis import Axis
from cleave.ir.dim import check_binding, is_dim
from cleave.ir.graph import Reduce, free
from cleave.ir.index import Index, Pred, compare, evaluate, index, symbols_of
from cleave.schedule.bindings import SLICE, bindings
from cleave.schedule.lower import lower
from cleave.schedule.partition import Partition, Piece, cut, inner_contractions, uncut, waves_of_reductions
from cleave.schedule.placement import Placement, Sizes, placements
from cleave.schedule.roles import Plan
from cleave.schedule.rows import row_sets, rowless, structure
from cleave.schedule.splits import base_extent, chunk_of, collapse, cut_at_partials, merge_roles
from cleave.target import Target
from cleave.tile.plan import Binding, Chain, KernelPlan, Merge, Schedule
from cleave.tile.program import Program, Store, program_axes, statements
from cleave.tile.skeleton import SKELETONS, Skeleton, refusals

KEPT = 8
"""Schedules returned."""

KEPT_A_KERNEL = 4
"""Bindings of one kernel that are combined with others."""

SPLIT_COUNTS = (1, 2, 4, 8, 16, 32, 64)
LEAST_CHUNK = 64
"""Elements of an axis that are worth a block of their own."""


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
) -> tuple[Schedule, ...]:
    """Schedules of a candidate, best first by modelled time.

    bind      representative value of every dim without a fixed one. Lengths stay run-time; extents that a block
    holds whole
              (head sizes) and split counts are compiled in, see ``Schedule.bind``
    tile      forces tile sizes, by axis name
    skeleton  forces a skeleton, by name
    merge     forces how partials of a split are joined
    split     forces the count of a split, by the name of the axis that was split

    Errors: a dim without value, an unknown name, a size that the axis can't have; no skeleton that can express the
    candidate.
    """
    request = _request(candidate, target, bind, config or Config(), tile or {}, skeleton, merge, split or {})
    found: list[Schedule] = []
    for variant in _variants(request):
        found += _schedules(request, variant)
    if not found:
        if request.forced:
            raise request.forced[0]
        reasons = "; ".join(list(request.reasons)[:4]) or "no placement of its axes"
        raise ScheduleError(
            f"no kernel of {', '.join(k.name for k in request.skeletons)} can run it: {reasons}",
            location=candidate.name,
        )
    unused = set(request.tile) - request.used_tiles
    if unused:
        raise ScheduleError(
            f"tile for {sorted(unused)[0]!r}: allowed are {', '.join(sorted(request.axis_names))}",
            location=candidate.name,
        )
    found.sort(key=lambda s: s.modelled.microseconds if s.modelled else 0.0)
    return tuple(found[:KEPT])


@dataclass
class _Request:
    candidate: Candidate
    target: Target
    dims: dict[str, int]
    fixed: dict[str, int]
    shape: dict[str, int]
    config: Config
    tile: Mapping[str, int]
    skeletons: tuple[Skeleton, ...]
    merge: Merge | None
    split: Mapping[str, int]
    folds: tuple[Fold, ...]
    reasons: dict[str, None] = field(default_factory=dict[str, None])
    used_tiles: set[str] = field(default_factory=set[str])
    axis_names: set[str] = field(default_factory=set[str])
    forced: list[ScheduleError] = field(default_factory=list[ScheduleError])
    """Errors about forced tiles; they count if no placement can take them."""

    def reject(self, reason: str) -> None:
        self.reasons.setdefault(reason)

    @property
    def chain(self) -> Chain:
        return "registers" if self.config.ablation.layout_propagation else "shared"


@dataclass(frozen=True)
class _Variant:
    """A partition with the split bound: ``split`` None means that no chunk is left in the graph."""

    partition: Partition
    merge: Merge = "none"
    split: Split | None = None
    counts: tuple[int, ...] = (1,)
    bound: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True)
class _Kernel:
    """One kernel under one binding, with what it costs."""

    program: Program
    placement: Placement
    binding: Binding
    skeleton: Skeleton
    notes: tuple[str, ...]
    work: Work


# ---- the request


def _request(
    candidate: Candidate,
    target: Target,
    bind: Mapping[str, int],
    config: Config,
    tile: Mapping[str, int],
    skeleton: str | None,
    merge: Merge | None,
    split: Mapping[str, int],
) -> _Request:
    if skeleton is not None and skeleton not in SKELETONS:
        raise ScheduleError(f"skeleton {skeleton!r}: allowed are {', '.join(SKELETONS)}", location=candidate.name)
    chosen = tuple(k for k in SKELETONS.values() if skeleton in (None, k.name) and target.arch in k.architectures)
    if not chosen:
        raise ScheduleError(
            f"no skeleton for {target.arch}: {skeleton or 'any'} does not exist there", location=candidate.name
        )
    dims, shape, fixed = _bound_dims(candidate, bind)
    _check_split(candidate, config, merge, split)
    folds = tuple(f for f in candidate.folds if f.absorbing) if config.ablation.algebra else ()
    return _Request(candidate, target, dims, fixed, shape, config, tile, chosen, merge, split, folds)


def _bound_dims(c: Candidate, bind: Mapping[str, int]) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
    """Values of all symbols but those of splits; the representative shape; the fixed values."""
    ours = {n for s in c.splits for n in (s.count, s.chunk)}
    known = {s.name: s for s in (*c.origin.symbols, *c.graph.symbols)}
    for name in bind:
        if name not in known:
            raise ScheduleError(
                f"no dim {name!r}: the graph has {', '.join(sorted(set(known) - ours))}", location=c.name
            )
    fixed = {s.name: s.value for s in known.values() if s.value is not None}
    for name, symbol in known.items():
        if name in ours or name in fixed:
            continue
        if name not in bind:
            raise ScheduleError(f"dim {name} has no value: bind it ({name}=...)", location=c.name)
        check_binding(symbol, bind[name])
    for name, value in bind.items():
        if fixed.get(name, value) != value:
            raise ScheduleError(f"dim {name} = {value}: allowed is {fixed[name]}", location=c.name)
    shape = {n: v for n, v in bind.items() if n not in fixed and n not in ours}
    return {**shape, **fixed}, shape, fixed


def _check_split(c: Candidate, config: Config, merge: Merge | None, split: Mapping[str, int]) -> None:
    ablation = config.ablation
    if c.splits and not (ablation.split and ablation.algebra):
        raise ScheduleError("the candidate is split, and splitting is switched off", location=c.name)
    if len(c.splits) > 1:
        names = ", ".join(s.base for s in c.splits)
        raise ScheduleError(f"splits of {names}: one split a candidate is allowed", location=c.name)
    for name, count in split.items():
        if name not in {n for s in c.splits for n in (s.base, s.count)}:
            allowed = ", ".join(s.base for s in c.splits) or "none: the candidate has no split"
            raise ScheduleError(f"split of {name!r}: allowed are {allowed}", location=c.name)
        if count < 1:
            raise ScheduleError(f"split count {count}: allowed is >= 1", location=f"axis {name}")
    if merge is not None and merge != "none" and not c.splits:
        raise ScheduleError(f"merge {merge!r}: the candidate has no split", location=c.name)


# ---- partitions


def _variants(r: _Request) -> Iterator[_Variant]:
    c = r.candidate
    if not r.config.ablation.iterative_tiling:
        yield from _untiled(r)
        return
    if not c.splits:
        for partition in _partitions(r, Piece(c.graph, r.folds)):
            yield _Variant(partition)
        return
    bound = c.splits[0]
    forced = r.split.get(bound.base, r.split.get(bound.count))
    extent = int(evaluate(chunk_of(c, bound, 1).extent, r.dims))
    counts = (forced,) if forced is not None else tuple(n for n in SPLIT_COUNTS if n == 1 or n <= extent // LEAST_CHUNK)
    if 1 in counts and r.merge in (None, "none"):
        one = {bound.count: 1}
        for partition in _partitions(r, collapse(c, r.folds, bound)):
            yield _Variant(partition, "none", bound, (1,), one)
    if r.merge == "none" and counts != (1,):
        r.reject(f"split count {counts[0]} needs a merge")
        return
    counts = tuple(n for n in counts if n > 1 or r.merge is not None)
    for merge in ("second-launch", "last-arriving"):
        if counts and r.merge in (None, merge):
            yield _Variant(cut_at_partials(c, r.folds, bound), merge, bound, counts)


def _untiled(r: _Request) -> Iterator[_Variant]:
    """No loop over tiles: every reduction reads its whole axis, and what another reduction needs is stored."""
    c = r.candidate
    piece, bound = Piece(c.graph, ()), None
    if c.splits:
        bound = c.splits[0]
        piece = collapse(c, (), bound)
    waves = waves_of_reductions(piece.graph)
    parted = cut(piece.graph, (), waves, c.splits, "reductions read whole, kernels cut between them")
    yield _Variant(parted, "none", bound, (1,), {bound.count: 1} if bound else {})


def _partitions(r: _Request, piece: Piece) -> Iterator[Partition]:
    """Fused, and cut: at reductions that tiles would repeat, at matmuls inside, at matmuls that carry no rows."""
    g, c = piece.graph, r.candidate
    s = structure(g)
    sets = row_sets(g, s)
    lost = rowless(sets[0], s.contractions) if sets else []
    if not lost:
        yield uncut(g, piece.folds)
    else:
        yield from _tried_cut(r, piece, [lost], "cut at matmuls that carry no rows")
    repeated = _repeated(g, r)
    if repeated:
        yield from _tried_cut(
            r, piece, [[*lost], repeated] if lost else [repeated], "cut at reductions that tiles repeat"
        )
    inner = [q for q in inner_contractions(g, [x.reduce for x in s.contractions]) if q not in lost]
    if inner:
        yield from _tried_cut(r, piece, [[*lost], inner] if lost else [inner], "cut at matmuls inside other reductions")
    _ = c


def _tried_cut(r: _Request, piece: Piece, waves: list[list[Reduce]], note: str) -> Iterator[Partition]:
    try:
        yield cut(piece.graph, piece.folds, waves, r.candidate.splits, note)
    except ScheduleError as error:
        r.reject(str(error))


def _repeated(g: object, r: _Request) -> list[Reduce]:
    """Reductions without a matmul that lack an axis of the outputs: with that axis tiled, each tile computes them
    again."""
    from cleave.ir.graph import Graph, reductions

    assert isinstance(g, Graph)
    s = structure(g)
    contractions = {x.reduce for x in s.contractions}
    stored = frozenset(s.stored)
    sizes = _sizes(r, {})
    columns = {a for p in placements(g, sizes) for a in p.columns if p.roles[a] == ("grid",)}
    return [
        q
        for q in reductions(*g.terms)
        if q not in contractions and free(q) <= stored and columns - free(q) and not _feeds_itself(q, g)
    ]


def _feeds_itself(q: Reduce, g: object) -> bool:
    return any(a.kind == "outer" for a in free(q)) or g is None


# ---- kernels


def _sizes(r: _Request, more: Mapping[str, int]) -> Sizes:
    return Sizes({**r.dims, **more}, frozenset(r.fixed) | frozenset(more))


def _schedules(r: _Request, v: _Variant) -> Iterator[Schedule]:
    for count in v.counts:
        if v.merge == "last-arriving":
            yield from _single_launch(r, v, count)
        else:
            yield from _separate_launches(r, v, count)


def _values(r: _Request, v: _Variant, count: int, tile: int) -> dict[str, int]:
    """Dims with the count and chunk length of the split."""
    if v.split is None:
        return dict(r.dims)
    extent = int(evaluate(base_extent(r.candidate, v.split), r.dims))
    return {**r.dims, v.split.count: count, v.split.chunk: -(-extent // (count * tile)) * tile}


def _separate_launches(r: _Request, v: _Variant, count: int) -> Iterator[Schedule]:
    first = _kernels(r, v, v.partition.pieces[0], count)
    if not first:
        return
    others: dict[int, list[list[_Kernel]]] = {}
    for kernel in first[:KEPT_A_KERNEL]:
        tile = _chunk_tile(v, kernel)
        if tile not in others:
            others[tile] = [_kernels(r, v, p, count, tile) for p in v.partition.pieces[1:]]
        if all(others[tile]):
            yield _assembled(r, v, count, tile, [kernel, *(found[0] for found in others[tile])])


def _single_launch(r: _Request, v: _Variant, count: int) -> Iterator[Schedule]:
    """The merge runs in the blocks of the first kernel: its roles and tiles follow."""
    assert v.split is not None
    partial, merge = v.partition.pieces
    for kernel in _kernels(r, v, partial, count)[:KEPT_A_KERNEL]:
        roles = merge_roles(kernel.placement.roles, merge.graph, v.split.outer)
        lowered = lower(merge.graph, Plan(roles, fuse=r.config.ablation.horizontal_fusion), merge.folds)
        tile = _chunk_tile(v, kernel)
        tiles = {a: kernel.binding.tiles.get(a, SLICE) for a in program_axes(lowered.program)}
        tiles |= {a: 1 for a in lowered.program.unit}
        tiles |= {a: SLICE for a in tiles if roles.get(a) == ("loop",)}
        binding = replaced(kernel.binding, tiles=tiles)
        own = tuple(a for a in kernel.program.grid if a is not v.split.outer)
        if lowered.program.grid != own:
            r.reject("the merge has another grid than the partials")
            continue
        made = _costed(r, v, lowered.program, kernel.placement, binding, kernel.skeleton, lowered.notes, count, tile)
        if made is not None:
            yield _assembled(r, v, count, tile, [kernel, made])


def _chunk_tile(v: _Variant, kernel: _Kernel) -> int:
    """Elements that a chunk is a multiple of: the tile of its axis in the kernel that reads it."""
    if v.split is None:
        return 1
    for a, n in kernel.binding.tiles.items():
        if a.kind == "inner":
            return n
    return 1


def _kernels(r: _Request, v: _Variant, piece: Piece, count: int, chunk_tile: int | None = None) -> list[_Kernel]:
    """Bindings of one piece that the skeleton and the target accept, fastest first."""
    tiled = r.config.ablation.iterative_tiling
    sizes = Sizes(
        _values(r, v, count, chunk_tile or 64),
        frozenset(r.fixed) | ({v.split.count} if v.split is not None else frozenset()),
    )
    out: list[_Kernel] = []
    for placement in placements(piece.graph, sizes, tiled=tiled):
        if out and placement.rank > out[0].placement.rank:
            break
        plan = Plan(placement.roles, fuse=r.config.ablation.horizontal_fusion)
        lowered = lower(piece.graph, plan, piece.folds)
        names = {a.name for a in program_axes(lowered.program)}
        r.axis_names |= {a.name for a in program_axes(lowered.program) if a not in lowered.program.unit}
        r.used_tiles |= names & set(r.tile)
        for skeleton in r.skeletons:
            for binding in _bindings(r, lowered.program, placement, sizes, skeleton):
                tile = chunk_tile or next((n for a, n in binding.tiles.items() if a.kind == "inner"), 1)
                made = _costed(r, v, lowered.program, placement, binding, skeleton, lowered.notes, count, tile)
                if made is not None:
                    out.append(made)
    return sorted(out, key=lambda k: modelled([(k.work, k.binding)], r.target, 1).microseconds)


def _bindings(
    r: _Request, program: Program, placement: Placement, sizes: Sizes, skeleton: Skeleton
) -> tuple[Binding, ...]:
    try:
        return tuple(bindings(program, placement, sizes, skeleton, r.tile))
    except ScheduleError as error:
        r.forced.append(error)
        return ()


def _costed(
    r: _Request,
    v: _Variant,
    program: Program,
    placement: Placement,
    binding: Binding,
    skeleton: Skeleton,
    notes: tuple[str, ...],
    count: int,
    tile: int,
) -> _Kernel | None:
    why = refusals(skeleton, program, binding)
    if why:
        r.reject(why[0])
        return None
    work = program_work(program, binding, _values(r, v, count, tile))
    too_much = refusal(work, r.target, binding.warps)
    if too_much is not None:
        r.reject(too_much)
        return None
    return _Kernel(program, placement, binding, skeleton, notes, work)


# ---- assembling


def _assembled(r: _Request, v: _Variant, count: int, tile: int, kernels: list[_Kernel]) -> Schedule:
    c = r.candidate
    launches = 1 if v.merge == "last-arriving" else len(kernels)
    bound = {**_compiled_in(r, v, kernels), **({v.split.count: count} if v.split is not None else {})}
    plans = tuple(KernelPlan(k.program, k.binding, k.skeleton.name, _kernel_notes(k), r.chain) for k in kernels)
    notes = (v.partition.note,) if v.partition.note else ()
    return Schedule(
        candidate=c.name,
        graph=c.graph,
        target=r.target,
        kernels=plans,
        temporaries=v.partition.temporaries,
        merge=v.merge,
        bind=bound,
        shape=r.shape,
        chunks=(chunk_of(c, v.split, tile),) if v.split is not None else (),
        constraints=_constraints(kernels, bound),
        modelled=modelled([(k.work, k.binding) for k in kernels], r.target, launches),
        notes=notes,
    )


def _compiled_in(r: _Request, v: _Variant, kernels: list[_Kernel]) -> dict[str, int]:
    """Fixed dims, and those in extents that have to be known: of whole axes and of all row axes but the first."""
    names = dict(r.fixed)
    chunk = {v.split.chunk} if v.split is not None else set[str]()
    for k in kernels:
        for a in (*k.program.whole, *k.binding.rows[1:]):
            if r.config.ablation.iterative_tiling and is_dim(a.extent):
                names |= {
                    s.name: r.dims[s.name] for s in symbols_of(a.extent) if s.name in r.dims and s.name not in chunk
                }
    return names


def _constraints(kernels: list[_Kernel], bound: Mapping[str, int]) -> tuple[Pred, ...]:
    """What dims have to meet: whole axes fit their tiles; an axis whose first tile alone stores something is not
    empty."""
    out: dict[Pred, None] = {}
    for k in kernels:
        for a in (*k.program.whole, *k.binding.rows[1:]):
            if not _is_known(a.extent, bound):
                out.setdefault(compare("<=", a.extent, index(k.binding.tile(a))))
        for s in statements(k.program.body):
            if isinstance(s, Store):
                for a in s.once:
                    if is_dim(a.extent) and not _is_known(a.extent, bound):
                        out.setdefault(compare("<", index(0), a.extent))
    return tuple(out)


def _is_known(extent: Index, bound: Mapping[str, int]) -> bool:
    return is_dim(extent) and all(s.name in bound for s in symbols_of(extent))


def _kernel_notes(k: _Kernel) -> tuple[str, ...]:
    repeats = tuple(f"{name} is recomputed in each of {n} tiles" for name, n in k.work.repeats.items())
    resources = f"{k.work.registers} registers and {k.work.shared_bytes} bytes of shared memory, estimated"
    return (*k.notes, *repeats, resources)


def axis_of(names: Mapping[str, int], a: Axis) -> int | None:
    return names.get(a.name)
