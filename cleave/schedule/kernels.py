"""Kernels of one piece of a partition: placed, lowered, bound, and kept if skeleton and target can run them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as replaced
from math import prod

from cleave.cost.lanes import counter_of
from cleave.cost.program import Work, parts_bytes
from cleave.cost.time import modelled, refusal
from cleave.errors import ScheduleError
from cleave.ir.axis import Axis, owners
from cleave.ir.dim import is_dim
from cleave.ir.index import evaluate
from cleave.schedule.bindings import SLICE, WARP_COLUMNS, bindings
from cleave.schedule.lanes import shared_row_bindings
from cleave.schedule.lower import Lowered, lower
from cleave.schedule.partition import Piece
from cleave.schedule.placement import Placement, Sizes, has_matmul, placements, shared_row_placements
from cleave.schedule.request import Request
from cleave.schedule.roles import Plan, Role, stored_axes
from cleave.schedule.sharers import multicast
from cleave.schedule.splits import base_extent, merge_roles
from cleave.schedule.variants import Variant
from cleave.tile.check import check_sent, finer_tiles
from cleave.tile.plan import Binding, Mma
from cleave.tile.program import Contract, Program, program_axes, tile_terms
from cleave.tile.skeleton import ALONE, PIECE, SKELETONS, TEAMS, Skeleton, has_warpgroups, refusals

MANY_ROWS = 512
"""Rows of one batch element above which dividing the reduction among warps is not considered."""

USUAL_CHUNK = 64
"""Tile of a chunk axis while none is chosen yet; only sizes of other axes are read off it."""


TOO_LONG = "reductions too long to be read whole are loops, none of which needs the result of another"
NO_ROWS = "no output has an axis for the rows of tiles (an extent of 1 is none): give it one of symbolic extent"


@dataclass(frozen=True)
class Kernel:
    """One kernel under one binding, with what it costs. ``chunk``: elements that chunk lengths are multiples of."""

    program: Program
    placement: Placement
    binding: Binding
    skeleton: Skeleton
    notes: tuple[str, ...]
    work: Work
    chunk: int = 1


@dataclass(frozen=True)
class Setting:
    """A variant with its split count; ``chunk`` is the multiple of chunk lengths, None while the kernel may choose."""

    request: Request
    variant: Variant
    count: int
    chunk: int | None = None

    def dims(self, chunk: int) -> dict[str, int]:
        """All dims, with the count and chunk length of the split."""
        split, measured = self.variant.split, self.variant.ragged
        if split is None:
            return self.request.dims
        if measured is not None:
            length = measured.length(self.count, chunk, self.request.dims)
            more = {split.count: self.count, split.chunk: length, measured.granule.name: chunk}
            return {**self.request.dims, **more}
        if not is_dim(base_extent(self.request.candidate, split)):
            return self.request.dims  # in one chunk
        extent = int(evaluate(base_extent(self.request.candidate, split), self.request.dims))
        length = -(-extent // (self.count * chunk)) * chunk
        return {**self.request.dims, split.count: self.count, split.chunk: length}

    def is_split(self, piece: Piece) -> bool:
        """Whether a piece has chunks of the split."""
        split = self.variant.split
        return split is not None and any(a is split.outer or a is split.inner for a in piece.graph.axes)

    @property
    def fixed(self) -> frozenset[str]:
        return frozenset() if self.variant.split is None else frozenset({self.variant.split.count})


def kernels(s: Setting, piece: Piece) -> list[Kernel]:
    """Kernels of a piece, fastest first; they do not depend on how partials are merged, so they are made once. Without
    chunks they do not depend on their number either."""
    key = (piece, s.count, s.chunk) if s.is_split(piece) else (piece, 1, None)
    if key not in s.request.made:
        s.request.made[key] = _kernels(s, piece)
    return s.request.made[key]


def _kernels(s: Setting, piece: Piece) -> list[Kernel]:
    """With iterative tiling off a reduction that no block holds whole is a loop: cut as the pieces are, none needs the
    result of another."""
    if s.request.config.ablation.iterative_tiling:
        return _tried(s, piece, tiled=True)
    whole = _tried(s, piece, tiled=False)
    return whole or [replaced(k, notes=(*k.notes, TOO_LONG)) for k in _tried(s, piece, tiled=True)]


def _tried(s: Setting, piece: Piece, *, tiled: bool) -> list[Kernel]:
    """A later choice of rows is tried only if an earlier one gives none."""
    r = s.request
    sizes = r.sizes(s.dims(s.chunk or USUAL_CHUNK), s.fixed)
    out: list[Kernel] = []
    if not stored_axes(piece.graph.outputs):
        r.reject(NO_ROWS)
    for placement in placements(piece.graph, sizes, tiled=tiled):
        if out and placement.rank > out[0].placement.rank:
            _pass_over_rows(r, placement, out[0].placement)
            break
        out += _placed(s, piece, placement, [k for k in r.skeletons if not k.lanes])
    sharing = [k for k in r.skeletons if k.lanes]
    if has_matmul(piece.graph, sizes):
        for skeleton in sharing:
            r.reject(f"{skeleton.name} has no matmul", skeleton.name)
        sharing = []
    for placement in shared_row_placements(piece.graph, sizes, tiled=tiled) if sharing else ():
        out += _placed(s, piece, placement, sharing)
    return sorted(out, key=lambda k: modelled([(k.work, k.binding)], r.target).microseconds)


def _pass_over_rows(r: Request, later: Placement, earlier: Placement) -> None:
    names, before = (", ".join(a.name for a in p.rows) or "none" for p in (later, earlier))
    if names != before:
        r.pass_over(f"rows {names}: tried only where rows {before} give no kernel")


def _placed(s: Setting, piece: Piece, placement: Placement, skeletons: Sequence[Skeleton]) -> Iterator[Kernel]:
    """Kernels under one placement."""
    r = s.request
    sizes = r.sizes(s.dims(s.chunk or USUAL_CHUNK), s.fixed)
    lowered = _lowered(r, piece, placement.roles) if skeletons else None
    if lowered is None:
        return
    r.tiled_names |= {a.name for a in program_axes(lowered.program) if a not in lowered.program.unit}
    differing = _chunks_differ(s, lowered.program)
    if differing:
        r.reject(f"chunks differ within a tile: {', '.join(a.name for a in differing)} has to be a unit axis")
        return
    for skeleton in (k for k in skeletons if _worth_trying(k, r, placement, sizes)):
        for binding in _bindings(s, piece, lowered.program, placement, skeleton):
            key = (piece, frozenset(placement.roles.items()), skeleton.name, binding.key)
            if key in r.impossible:
                r.reject(*r.impossible[key])
                continue
            made = _costed(s, lowered, placement, binding, skeleton)
            if isinstance(made, Kernel):
                yield made
            elif made is not None and not binding.lanes:
                r.impossible[key] = (made, skeleton.name)


def _chunks_differ(s: Setting, program: Program) -> list[Axis]:
    """Tiled axes that the length of a chunk depends on: a block measures one."""
    split = s.variant.split
    if s.variant.ragged is None or split is None:
        return []
    read = owners(split.inner) | owners(split.outer)
    return [a for a in program_axes(program) if a in read - {split.outer} and a not in program.unit]


def _lowered(r: Request, piece: Piece, roles: Mapping[Axis, Role]) -> Lowered | None:
    """The program of a piece under some roles; roles that it can't have cost that one try, with the reason."""
    try:
        return lower(piece.graph, Plan(roles, fuse=r.config.ablation.horizontal_fusion), piece.folds)
    except ScheduleError as error:
        r.reject(str(error))
        return None


def _worth_trying(skeleton: Skeleton, r: Request, placement: Placement, sizes: Sizes) -> bool:
    """Teams along the reduction are for rows that do not fill the device; who asks for them gets them anyway."""
    if placement.is_wide and max(skeleton.divisions) == 1:
        return False
    rows = prod(sizes.extent(a) or 1 for a in placement.rows)
    if len(r.skeletons) == 1 or max(skeleton.teams) == 1 or rows <= MANY_ROWS:
        return True
    r.pass_over(f"{rows} rows: teams that divide a loop are tried up to {MANY_ROWS}", skeleton.name)
    return False


def one_launch(s: Setting, piece: Piece, first: Kernel) -> list[Kernel] | None:
    """The kernel that makes the partials, and their merge in its launch: roles, rows and tiles follow.

    What the first kernel holds whole is divided in slices, each with the whole reduction over chunks; where something
    reduces over it, a loop takes it piece by piece. In a cluster the partials take shared memory too.
    """
    for whole in ("grid", "loop"):
        made = _merge_kernel(s, piece, first, (whole,))
        if made is not None:
            return _with_parts(s, first, made)
    return None


def _with_parts(s: Setting, first: Kernel, merge: Kernel) -> list[Kernel] | None:
    """Both kernels, if there is memory for what blocks of a cluster send one another."""
    if s.variant.merge == "cluster":
        try:
            slices = check_sent(first.program, first.binding, merge.program, merge.binding)
        except ScheduleError as error:
            s.request.reject(str(error), first.skeleton.name)
            return None
        held = first.work.shared_bytes + parts_bytes(first.program, first.binding, slices, s.count)
        first = replaced(first, work=replaced(first.work, shared_bytes=held))
        too_much = refusal(first.work, s.request.target, first.binding)
        if too_much is not None:
            s.request.reject(too_much, first.skeleton.name)
            return None
    return [first, merge]


def _merge_kernel(s: Setting, piece: Piece, first: Kernel, whole: Role) -> Kernel | None:
    r, split = s.request, s.variant.split
    assert split is not None
    if not _merges(s, first.skeleton):
        return None
    roles = merge_roles(first.placement.roles, piece.graph, split.outer, whole)
    lowered = _lowered(r, piece, roles)
    if lowered is None:
        return None
    program, teams = lowered.program, first.binding.teams * first.binding.parts
    tiles = {a: first.binding.tiles.get(a, SLICE) for a in program_axes(program)} | {a: 1 for a in program.unit}
    tiles |= {a: SLICE * (1 + (teams > 1)) for a in tiles if roles.get(a) == ("loop",)}
    workers = teams * (1 if s.variant.merge == "last-arriving" else s.count)
    for a in program.grid:
        if a not in program.unit and a not in first.placement.rows:
            tiles[a] = _slice(tiles[a], workers)
    try:
        finer_tiles(first.program, first.binding, program, replaced(first.binding, tiles=tiles))
    except ScheduleError as error:
        r.reject(str(error), first.skeleton.name)
        return None
    # warps that divided columns are as many teams: each has all rows, and takes slices of its own
    skeleton = first.skeleton if first.binding.division is None else SKELETONS[TEAMS]
    binding = replaced(first.binding, tiles=tiles, multicast=None, division=None, teams=teams)
    if binding.loaders:  # nothing is left to be loaded by them, or to be multiplied
        skeleton = SKELETONS[TEAMS if teams > 1 else ALONE]
        binding = replaced(binding, loaders=0, mma="mma.sync")
    made = _costed(s, lowered, first.placement, binding, skeleton)
    return made if isinstance(made, Kernel) else None


def _merges(s: Setting, skeleton: Skeleton) -> bool:
    """Whether kernels of a skeleton take part in the variant's merge; that they do not is a reason against it."""
    if s.variant.merge in skeleton.merges:
        return True
    allowed = ", ".join(skeleton.merges)
    s.request.reject(f"{skeleton.name} has no merge {s.variant.merge!r}: allowed are {allowed}", skeleton.name)
    return False


def _slice(size: int, workers: int) -> int:
    """Columns of a tile that each of so many workers merges: whole pieces, all alike."""
    pieces = size // PIECE
    most = next(n for n in range(-(-pieces // workers), pieces + 1) if pieces % n == 0)
    return PIECE * most


def _bindings(
    s: Setting, piece: Piece, program: Program, placement: Placement, skeleton: Skeleton
) -> Iterator[Binding]:
    """With a multicast forced, the first piece has it, and the others where they can."""
    r = s.request
    sizes, blocks = r.sizes(s.dims(s.chunk or USUAL_CHUNK), s.fixed), r.forced.multicast
    possible = shared_row_bindings if skeleton.lanes else bindings
    try:
        for binding in possible(program, placement, sizes, skeleton, r.forced.tile):
            shared = multicast(program, binding, sizes, blocks) if blocks > 1 else None
            if shared is None and blocks > 1 and piece == s.variant.partition.pieces[0]:
                r.reject(
                    f"multicast to {blocks} blocks: no grid axis has a number of tiles that is a multiple of "
                    f"{blocks}, and a tile of a loop that does not depend on it",
                    skeleton.name,
                )
                continue
            for mma in _instructions(r, program, binding, skeleton):
                yield replaced(binding, mma=mma, multicast=shared)
    except ScheduleError as error:
        r.errors.append(error)


def _instructions(r: Request, program: Program, binding: Binding, skeleton: Skeleton) -> Iterator[Mma]:
    """Those forced; else all that the target has, those of warpgroups only where boxes may be asked for."""
    if not any(isinstance(t, Contract) for t in tile_terms(program)):
        yield "mma.sync"
    elif r.forced.mma is not None:
        yield r.forced.mma
    else:
        widest = max((binding.tile(a) for a in program.grid if a not in binding.rows), default=1)
        for mma in skeleton.mmas:
            if mma == "mma.sync" and max(widest, _columns_of_a_part(binding)) > WARP_COLUMNS:
                continue
            if mma == "wgmma" and (r.forced.feed not in (None, "tma") or not has_warpgroups(binding)):
                continue
            if mma in r.target.facts.features:
                yield mma


def _columns_of_a_part(binding: Binding) -> int:
    """Columns of the divided axis that a warp has, or a warpgroup."""
    return 0 if binding.division is None else binding.columns(binding.division.axis)


def _costed(
    s: Setting, lowered: Lowered, placement: Placement, binding: Binding, skeleton: Skeleton
) -> Kernel | str | None:
    """The kernel; why there is none whatever the count of a split is; None: there is none for this way to merge."""
    r = s.request
    why = refusals(skeleton, lowered.program, binding)
    if why:
        r.reject(why[0], skeleton.name)
        return why[0]
    if not _merges(s, skeleton):
        return None
    chunk = s.chunk or next((n for a, n in binding.tiles.items() if a.kind == "inner"), 1)
    dims, feed = s.dims(chunk), r.feed(skeleton, binding)
    counter = counter_of(lowered.program, binding, dims, feed, r.chain)
    why_not = _feed_refusal(skeleton, binding, counter.work) or refusal(counter.work, r.target, binding)
    if why_not is not None:
        r.reject(why_not, skeleton.name)
        return why_not
    return Kernel(lowered.program, placement, binding, skeleton, lowered.notes, counter.count(), chunk)


def _feed_refusal(skeleton: Skeleton, binding: Binding, work: Work) -> str | None:
    """Why a kernel can't have its tiles as its instructions or loaders need them."""
    if binding.mma == "wgmma" and work.unboxed:
        names = ", ".join(work.unboxed)
        return f"wgmma reads its second operand from boxes: {names} does not come in boxes, nor rows from a table"
    if binding.mma == "wgmma" and binding.division is not None and not binding.loaders and not work.copied:
        return "columns in parts by wgmma: where all tiles come in boxes, others load them"
    if binding.loaders and not work.boxed:
        return f"{skeleton.name} loads boxes of loops, and there are none"
    if binding.loaders and work.copied:
        return f"{skeleton.name} loads boxes: {', '.join(work.copied)} in a loop does not come in boxes"
    return None
