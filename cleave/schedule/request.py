"""What was asked of the scheduler, checked: dims have values, names are known, what is forced is allowed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import TYPE_CHECKING, get_args

from cleave.candidate import Candidate, Fold
from cleave.config import Config
from cleave.errors import ScheduleError
from cleave.ir.dim import check_binding
from cleave.ir.graph import TopK, walk
from cleave.ir.index import evaluate
from cleave.schedule.placement import Sizes
from cleave.schedule.ragged import average_extent
from cleave.schedule.splits import base_extent
from cleave.target import Target
from cleave.tile.plan import Binding, Chain, Feed, Merge, Mma
from cleave.tile.skeleton import SKELETONS, Skeleton

if TYPE_CHECKING:
    from cleave.schedule.kernels import Kernel
    from cleave.schedule.partition import Piece

    MadeKey = tuple[Piece, int, int | None]


@dataclass(frozen=True)
class Forced:
    """Choices that the caller made: tiles by axis name, a skeleton, a merge, split counts by axis or symbol name, and
    how tiles of loops are loaded, and by how many blocks at once; the instructions of matmuls."""

    tile: Mapping[str, int] = field(default_factory=dict[str, int])
    skeleton: str | None = None
    merge: Merge | None = None
    split: Mapping[str, int] = field(default_factory=dict[str, int])
    feed: Feed | None = None
    multicast: int = 1
    mma: Mma | None = None

    def of(self, c: Candidate) -> Forced:
        """What of it concerns a candidate: a merge and split counts are for those that have the split."""
        names = {n for s in c.splits for n in (s.base, s.count)}
        split = {n: count for n, count in self.split.items() if n in names}
        return replace(self, merge=self.merge if c.splits else None, split=split)


@dataclass
class Request:
    """A candidate, a target and a shape; and what is learnt while plans are tried.

    dims      values of all symbols but those of splits: ``shape``, the representative ones, and ``fixed``
    reasons   why plans were refused, for the error if none is left
    refused   how many plans of a skeleton were refused or passed over for a reason
    errors    of forced tiles; they count if no placement can take them
    made      kernels of pieces, which several ways to merge share
    impossible  why a binding of a piece can't be run, and by which skeleton, whatever the count of a split is
    """

    candidate: Candidate
    target: Target
    shape: dict[str, int]
    fixed: dict[str, int]
    config: Config
    forced: Forced
    skeletons: tuple[Skeleton, ...]
    folds: tuple[Fold, ...]
    reasons: dict[str, None] = field(default_factory=dict[str, None])
    refused: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    errors: list[ScheduleError] = field(default_factory=list[ScheduleError])
    tiled_names: set[str] = field(default_factory=set[str])
    impossible: dict[object, tuple[str, str]] = field(default_factory=dict[object, tuple[str, str]])
    made: dict[MadeKey, list[Kernel]] = field(default_factory=dict["MadeKey", "list[Kernel]"])

    @property
    def dims(self) -> dict[str, int]:
        return {**self.shape, **self.fixed}

    @property
    def chain(self) -> Chain:
        return "registers" if self.config.ablation.layout_propagation else "shared"

    def feed(self, skeleton: Skeleton, binding: Binding) -> Feed:
        """How the tiles of loops are to be loaded: as forced, or the best way that the target has."""
        allowed = self.target.facts.features
        if self.forced.multicast > 1 or binding.mma == "wgmma":
            return "tma"
        return self.forced.feed or next(f for f in skeleton.feeds if f in allowed)

    def sizes(self, more: Mapping[str, int], fixed: frozenset[str] = frozenset()) -> Sizes:
        """Extents with further symbols bound; ``fixed`` ones among them have one value in every call."""
        return Sizes({**self.dims, **more}, frozenset(self.fixed) | fixed)

    def reject(self, reason: str, skeleton: str = "") -> None:
        """Note why a plan can't be; ``skeleton``: the one that it was for."""
        self.reasons.setdefault(reason)
        self.pass_over(reason, skeleton)

    def pass_over(self, reason: str, skeleton: str = "") -> None:
        """Note why a plan is not looked at: no fault of its own."""
        self.refused[skeleton, reason] += 1

    def failure(self) -> ScheduleError:
        """Why no plan is left."""
        if self.errors:
            return self.errors[0]
        reasons = "; ".join(list(self.reasons)[:4]) or "no placement of its axes"
        names = ", ".join(k.name for k in self.skeletons)
        return ScheduleError(f"no kernel of {names} can run it: {reasons}", location=self.candidate.name)

    def check_tiles_used(self) -> None:
        """A forced tile whose axis no kernel tiles is a mistake, not a wish."""
        for name in self.forced.tile:
            if name not in self.tiled_names:
                allowed = ", ".join(sorted(self.tiled_names))
                raise ScheduleError(f"tile for {name!r}: allowed are {allowed}", location=self.candidate.name)


def make_request(
    candidate: Candidate, target: Target, bind: Mapping[str, int], config: Config, forced: Forced
) -> Request:
    _check_target(candidate, target)
    shape, fixed = _bound_dims(candidate, bind)
    _check_tiles(forced)
    _check_split(candidate, config, forced)
    _check_operations(candidate)
    _check_extents(candidate)
    _check_counts(candidate, forced, {**shape, **fixed})
    folds = candidate.folds if config.ablation.algebra else ()
    skeletons = _skeletons(candidate, target, forced.skeleton)
    _check_feed(candidate, target, forced.feed, skeletons)
    _check_multicast(candidate, target, forced)
    _check_mma(candidate, target, forced, skeletons)
    return Request(candidate, target, shape, fixed, config, forced, skeletons, folds)


def _skeletons(c: Candidate, target: Target, wanted: str | None) -> tuple[Skeleton, ...]:
    if wanted is not None and wanted not in SKELETONS:
        raise ScheduleError(f"skeleton {wanted!r}: allowed are {', '.join(SKELETONS)}", location=c.name)
    chosen = tuple(k for k in SKELETONS.values() if wanted in (None, k.name) and target.arch in k.architectures)
    if not chosen:
        found = ", ".join(k.name for k in SKELETONS.values() if target.arch in k.architectures) or "none"
        raise ScheduleError(f"skeleton {wanted!r} on {target.arch}: allowed are {found}", location=c.name)
    return chosen


def _check_feed(c: Candidate, target: Target, wanted: str | None, skeletons: tuple[Skeleton, ...]) -> None:
    allowed = [f for f in dict.fromkeys(f for k in skeletons for f in k.feeds) if f in target.facts.features]
    if wanted is not None and wanted not in allowed:
        raise ScheduleError(f"feed {wanted!r} on {target.arch}: allowed are {', '.join(allowed)}", location=c.name)


def _check_multicast(c: Candidate, target: Target, forced: Forced) -> None:
    _check_integer("multicast", forced.multicast, c.name)
    most = target.facts.cluster_blocks if "tma" in target.facts.features else 1
    if not 1 <= forced.multicast <= most:
        raise ScheduleError(
            f"multicast to {forced.multicast} blocks: {target.arch} allows 1 to {most}", location=c.name
        )
    if forced.multicast == 1:
        return
    if forced.feed not in (None, "tma"):
        raise ScheduleError(f"multicast with feed {forced.feed!r}: allowed is 'tma'", location=c.name)
    if forced.merge in ("cluster", "spread"):
        raise ScheduleError(
            f"multicast with merge {forced.merge!r}: allowed are second-launch, last-arriving", location=c.name
        )


def _check_mma(c: Candidate, target: Target, forced: Forced, skeletons: tuple[Skeleton, ...]) -> None:
    allowed = [m for m in dict.fromkeys(m for k in skeletons for m in k.mmas) if m in target.facts.features]
    if forced.mma is not None and forced.mma not in allowed:
        raise ScheduleError(f"mma {forced.mma!r} on {target.arch}: allowed are {', '.join(allowed)}", location=c.name)
    if forced.mma == "wgmma" and forced.feed not in (None, "tma"):
        raise ScheduleError(f"wgmma with feed {forced.feed!r}: allowed is 'tma'", location=c.name)


def _bound_dims(c: Candidate, bind: Mapping[str, int]) -> tuple[dict[str, int], dict[str, int]]:
    """The representative shape and the fixed values; symbols of splits are not the caller's to bind."""
    if not isinstance(bind, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ScheduleError(f"bind {bind!r}: values of dims by name are expected", location=c.name)
    ours = {n for s in c.splits for n in (s.count, s.chunk)}
    known = {s.name: s for s in (*c.origin.symbols, *c.graph.symbols) if s.name not in ours}
    for name in bind:
        if name not in known:
            raise ScheduleError(f"no dim {name!r}: the graph has {', '.join(sorted(known))}", location=c.name)
    fixed = {s.name: s.value for s in known.values() if s.value is not None}
    for name, symbol in known.items():
        if fixed.get(name, bind.get(name)) != bind.get(name, fixed.get(name)):
            raise ScheduleError(f"dim {name} = {bind[name]}: allowed is {fixed[name]}", location=c.name)
        if name not in bind and name not in fixed:
            raise ScheduleError(f"dim {name} has no value: bind it ({name}=...)", location=c.name)
        if name in bind:
            check_binding(symbol, bind[name])
    return {n: v for n, v in bind.items() if n not in fixed}, fixed


def _check_target(c: Candidate, target: object) -> None:
    if not isinstance(target, Target):
        raise ScheduleError(f"target {target!r}: a Target is expected, such as Target('sm_90a')", location=c.name)


def _check_tiles(forced: Forced) -> None:
    for name, size in forced.tile.items():
        _check_integer("tile", size, f"axis {name}")


def _check_integer(what: str, value: object, location: str) -> None:
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise ScheduleError(f"{what} {value!r}: an integer is expected", location=location)


def _check_operations(c: Candidate) -> None:
    for t in walk(*c.graph.terms):
        if isinstance(t, TopK):
            raise ScheduleError(f"top-k over axis {t.axis}: no kernel selects by rank yet", location=c.name)


def _check_extents(c: Candidate) -> None:
    """The length of chunks is computed before a call, or on the device from dims that say how much there is in all."""
    for s in c.splits:
        average_extent(c, s.base, base_extent(c, s))


def _check_counts(c: Candidate, forced: Forced, dims: Mapping[str, int]) -> None:
    """A chunk without elements would be a mistake in every call; at other lengths of a call chunks may stay empty."""
    for name, count in forced.split.items():
        split = next(s for s in c.splits if name in (s.base, s.count))
        _check_integer("split count", count, f"axis {split.base}")
        extent = base_extent(c, split)
        most = max(int(evaluate(average_extent(c, split.base, extent), dims)), 1)
        if not 1 <= count <= most:
            raise ScheduleError(
                f"split count {count}: allowed are 1 to {most}, its extent", location=f"axis {split.base}"
            )


def _check_split(c: Candidate, config: Config, forced: Forced) -> None:
    ablation = config.ablation
    if c.splits and not (ablation.split and ablation.algebra):
        raise ScheduleError("the candidate is split, and splitting is switched off", location=c.name)
    if len(c.splits) > 1:
        names = ", ".join(s.base for s in c.splits)
        raise ScheduleError(f"splits of {names}: one split a candidate is allowed", location=c.name)
    for name in forced.split:
        if name not in {n for s in c.splits for n in (s.base, s.count)}:
            allowed = ", ".join(s.base for s in c.splits) or "none: the candidate has no split"
            raise ScheduleError(f"split of {name!r}: allowed are {allowed}", location=c.name)
    if forced.merge not in (None, *get_args(Merge)):
        raise ScheduleError(f"merge {forced.merge!r}: allowed are {', '.join(get_args(Merge))}", location=c.name)
    if forced.merge not in (None, "none") and not c.splits:
        raise ScheduleError(f"merge {forced.merge!r}: the candidate has no split", location=c.name)
