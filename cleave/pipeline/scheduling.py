"""Why the scheduler chose what it chose, for people: splits, loops, alternatives, refusals, shares of roofline.

which axes were split, into how many chunks, and what that was worth; every way to cut and merge, with modelled times;
of the chosen schedule: why each reduction was fused into a loop or not, its loop nest, what limits each kernel;
which plans were refused, a line for each kind of reason
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cleave import document
from cleave.candidate import Candidate
from cleave.config import Config
from cleave.cost.roofline import PARTS, Roofline, roofline
from cleave.document import Block, Code, Heading, Lines, Picture, Table
from cleave.errors import CleaveError
from cleave.ir.index import symbols_of
from cleave.pipeline.phases import forced_choice
from cleave.pipeline.result import Forced, Trial
from cleave.schedule.choice import Alternative, Choice
from cleave.schedule.variants import LEAST_CHUNK
from cleave.search import ReducibilityTable, reducibility_table
from cleave.target import Target
from cleave.tile.plan import KernelPlan, Schedule
from cleave.tile.program import loops
from cleave.tile.skeleton import SKELETONS

SHOWN = 16
"""Alternatives that are printed, the best ones."""

ONE_KERNEL = "one kernel"
"""What the table calls a candidate that is not cut."""


@dataclass(frozen=True)
class Scheduled:
    """A candidate at a shape: what the scheduler chose and from what, or why it can't be scheduled."""

    number: int
    candidate: Candidate
    choice: Choice | None
    refusal: str = ""

    @property
    def best(self) -> Schedule | None:
        return None if self.choice is None else self.choice.schedules[0]


@dataclass(frozen=True)
class Scheduling:
    """Of candidates of one graph on one target at one shape.

    ``detailed`` is the candidate that is explained in full; ``kept`` are the trials of a saved result, best first.
    """

    target: Target
    dims: Mapping[str, int]
    axes: ReducibilityTable
    candidates: tuple[Scheduled, ...]
    kept: tuple[Trial, ...] = ()
    forced: Forced = field(default_factory=Forced)

    @property
    def detailed(self) -> Scheduled | None:
        """The one whose schedule was kept, else the one with the best modelled time."""
        found = [s for s in self.candidates if s.best is not None]
        kept = [s for t in self.kept[:1] for s in found if s.candidate.name == t.schedule.candidate]
        return min(kept or found, key=lambda s: _microseconds(s.best), default=None)

    @property
    def schedule(self) -> Schedule | None:
        """The schedule that is explained: what a saved result kept, else the best one."""
        chosen = self.detailed
        for trial in self.kept:
            if chosen is not None and trial.schedule.candidate == chosen.candidate.name:
                return trial.schedule
        return None if chosen is None else chosen.best

    @property
    def _measured(self) -> float | None:
        """Microseconds of the schedule that is explained, if it was kept and timed."""
        schedule = self.schedule
        return next((t.measured for t in self.kept if t.schedule is schedule), None)

    @property
    def alternatives(self) -> list[tuple[int, Alternative]]:
        """With the number of their candidate, best first; those of which no plan was left come last."""
        every = [(s.number, a) for s in self.candidates for a in (s.choice.alternatives if s.choice else ())]
        return sorted(every, key=lambda pair: (_time(pair[1]), pair[1].chunks))

    def blocks(self) -> Iterator[Block]:
        at = ", ".join(f"{name} = {size}" for name, size in self.dims.items())
        yield Heading(f"schedules for {self.target.arch}" + (f" at {at}" if at else ""))
        yield Lines(tuple(self._said()))
        yield Heading("splits", 2)
        yield Lines(tuple(self.split_lines()) or ("nothing is reduced",))
        if self.alternatives:
            yield Heading("alternatives", 2)
            yield _alternatives_table(self.alternatives[:SHOWN])
            yield from _rest(self.alternatives)
        chosen, schedule = self.detailed, self.schedule
        if chosen is not None and chosen.choice is not None and schedule is not None:
            yield from _schedule_blocks(chosen, schedule, self._measured)
            yield Heading("refused", 2)
            yield _refusals_table(chosen.choice, self.target)

    def text(self) -> str:
        return document.text(self.blocks())

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"Scheduling({len(self.candidates)} candidates for {self.target.arch})"

    def _repr_html_(self) -> str:
        return document.html(self.blocks())

    def as_dict(self) -> dict[str, Any]:
        schedule = self.schedule
        return {
            "target": self.target.arch,
            "dims": dict(self.dims),
            "splits": list(self.split_lines()),
            "candidates": [_scheduled_dict(s) for s in self.candidates],
            "kept": [{"name": t.name, "outcome": str(t.outcome), "time": t.time} for t in self.kept],
            "schedule": None if schedule is None else _schedule_dict(schedule),
        }

    def split_lines(self) -> Iterator[str]:
        """For each axis that is reduced: split or not, why, and what the other way would take."""
        for row in self.axes.rows:
            if row.reducible:
                yield f"{row.axis.name}: {self._split_line(row.axis.name, row.why, possible=row.splittable)}"

    def _split_line(self, axis: str, why: str, *, possible: bool) -> str:
        ours = [a for _, a in self.alternatives if a.axis == axis and a.chunks > 1]
        tried = [a for a in ours if a.best is not None]
        whole = next((a for _, a in self.alternatives if a.chunks == 1 and a.best is not None), None)
        if not possible:
            return f"not split: {why}"
        if not ours:
            return "not split: " + self._untried(axis)
        if not tried:
            return "not split: every plan of a split was refused"
        schedule = self.schedule
        if schedule is not None and schedule.chunks and self._split_axis(schedule) == axis:
            other = f"the best without it takes {_us(whole)}" if whole else "without it no plan was left"
            return f"split into {_counts(schedule)} chunks, merge {schedule.merge}: {_modelled(schedule)}; {other}"
        best = tried[0]
        return f"not split: the best split of it, into {best.chunks} chunks, merge {best.merge}, takes {_us(best)}"

    def _split_axis(self, schedule: Schedule) -> str | None:
        found = next((s.candidate for s in self.candidates if s.candidate.name == schedule.candidate), None)
        return None if found is None or schedule.merge == "none" else found.splits[0].base

    def _untried(self, axis: str) -> str:
        """Why no candidate was scheduled in chunks of an axis."""
        split = [c for c in self.candidates if any(s.base == axis for s in c.candidate.splits)]
        if not split:
            short = axis not in {a.name for a in self.axes.worth_splitting}
            whose = "the candidate does not split it" if len(self.candidates) == 1 else "no candidate splits it"
            return whose + (": its extent is fixed and short" if short else "")
        if all(c.choice is None for c in split):
            return "the candidates that split it can't be scheduled"
        if self.forced.merge == "none" or axis in (self.forced.split or {}):
            return "one chunk was asked for"
        return f"it has not two chunks of {LEAST_CHUNK} elements"

    def _said(self) -> Iterator[str]:
        yield "times are the cost model's at this shape, not measured" + (
            "; those that say so were measured" if any(t.measured for t in self.kept) else ""
        )
        asked = {n: v for n, v in vars(self.forced).items() if v != vars(Forced())[n]}
        if asked:
            yield "forced: " + ", ".join(f"{name} {value}" for name, value in asked.items())
        yield from (f"kept: {t.name}: {t.outcome}, {t.time}" for t in self.kept)
        for s in self.candidates:
            if s.refusal:
                yield f"candidate {s.number} ({s.candidate.name}) can't be scheduled: {s.refusal}"
        yield from self._changed()

    def _changed(self) -> Iterator[str]:
        """What was kept is compared with what the scheduler gives now."""
        chosen, schedule = self.detailed, self.schedule
        if not self.kept or chosen is None or chosen.choice is None or schedule is None:
            return
        texts = [s.text() for s in chosen.choice.schedules]
        if schedule.text() not in texts:
            yield "the schedule that was kept is not among those that the scheduler gives today"
        elif texts[0] != schedule.text():
            place = texts.index(schedule.text()) + 1
            yield f"what was kept comes {place}. in modelled time: those before it spilled registers or failed"


def explain_schedules(
    candidates: Sequence[tuple[int, Candidate]],
    target: Target,
    dims: Mapping[str, int],
    config: Config | None = None,
    forced: Forced | None = None,
    kept: Sequence[Trial] = (),
) -> Scheduling:
    """Schedule numbered candidates, and keep what is needed to say why. Errors: dims that no candidate can have."""
    made: list[Scheduled] = []
    asked = forced or Forced()
    for number, c in candidates:
        try:
            made.append(Scheduled(number, c, forced_choice(c, target, dims, config or Config(), asked)))
        except CleaveError as error:
            made.append(Scheduled(number, c, None, str(error)))
    axes = reducibility_table(candidates[0][1].origin)
    return Scheduling(target, dict(dims), axes, tuple(made), tuple(kept), asked)


# ---- one schedule


def _schedule_blocks(chosen: Scheduled, schedule: Schedule, measured: float | None) -> Iterator[Block]:
    yield Heading(f"schedule of candidate {chosen.number}: {chosen.candidate.name}")
    yield Heading("loops", 2)
    yield Lines(tuple(loop_lines(schedule)) or ("no loop: every reduction is in one tile",))
    yield Heading("shares of roofline", 2)
    rows = roofline(schedule)
    yield _roofline_table(rows)
    if measured is not None:
        yield Lines((measured_line(rows, measured),))
    yield Heading("loop nest", 2)
    yield Code(schedule.text())
    yield Picture("loop nest", schedule.svg(), open=True)


def loop_lines(schedule: Schedule) -> Iterator[str]:
    """Why there are so many kernels, and why each reduction has the loop that it has."""
    yield from (f"{len(schedule.kernels)} kernels: {note}" for note in schedule.notes)
    if schedule.merge != "none":
        yield f"{len(schedule.kernels)} kernels: partials of chunks, and their merge ({schedule.merge})"
    for k in schedule.kernels:
        yield from (f"{k.program.name}: {line}" for line in (*k.notes, *_whole(k), *_storing(k)))


def _whole(k: KernelPlan) -> Iterator[str]:
    if k.program.whole:
        names = ", ".join(f"{a.name} ({k.binding.tile(a)})" for a in k.program.whole)
        yield f"{names} in one tile, no loop: extents that a block holds whole"


def _storing(k: KernelPlan) -> Iterator[str]:
    axes = dict.fromkeys(loop.axis.name for loop in loops(k.program) if not loop.accumulators)
    yield from (f"a loop over {name} stores what is known once the reductions over it are done" for name in axes)


def _roofline_table(rows: Sequence[Roofline]) -> Table:
    head = ("kernel", "modelled us", "MB", "GFLOP", *(f"{part} %" for part in PARTS), "nearest ceiling")
    return Table(head, tuple(_roofline_cells(r) for r in rows))


def measured_line(rows: Sequence[Roofline], microseconds: float) -> str:
    """The ceilings of all kernels together in the measured time of one call."""
    least = {part: sum(r.shares[part] * r.microseconds for r in rows if r.shares) for part in PARTS}
    shares = ", ".join(f"{part} {100 * least[part] / microseconds:.0f} %" for part in PARTS)
    return f"in the {microseconds:.1f} us that were measured, launches and merges among them: {shares}"


def _roofline_cells(r: Roofline) -> tuple[str, ...]:
    shares = tuple(f"{100 * r.shares[part]:.0f}" if r.shares else "-" for part in PARTS)
    limit = r.limit or "at the end of the launch before"
    return (r.kernel, f"{r.microseconds:.1f}", f"{r.bytes / 1e6:.2f}", f"{r.matmul_flops / 1e9:.3f}", *shares, limit)


# ---- tables


def _alternatives_table(rows: Iterable[tuple[int, Alternative]]) -> Table:
    head = ("candidate", "kernels", "axis", "chunks", "merge", "skeletons", "modelled us")
    return Table(head, tuple(_alternative_cells(number, a) for number, a in rows))


def _alternative_cells(number: int, a: Alternative) -> tuple[str, ...]:
    split = (a.axis or "-", str(a.chunks) if a.axis else "-", a.merge)
    what = a.partition or ("partials and merge" if a.merge != "none" else ONE_KERNEL)
    if a.best is None:
        return (str(number), what, *split, "-", "every plan was refused")
    return (str(number), what, *split, _skeletons(a.best), f"{_microseconds(a.best):.1f}")


def _rest(every: Sequence[tuple[int, Alternative]]) -> Iterator[Block]:
    left = [a for _, a in every[SHOWN:]]
    slow = [a for a in left if a.best is not None]
    said = [f"and {len(slow)} more, up to {_us(slow[-1])}"] if slow else []
    said += [f"{len(left) - len(slow)} more of which every plan was refused"] if len(left) > len(slow) else []
    if said:
        yield Lines(tuple(said))


def _refusals_table(choice: Choice, target: Target) -> Table:
    rows = [(r.skeleton or "any", str(r.plans), r.why) for r in choice.refusals]
    rows += [
        (k.name, "all", f"it is for {', '.join(k.architectures)}")
        for k in SKELETONS.values()
        if target.arch not in k.architectures
    ]
    return Table(("skeleton", "plans", "why"), tuple(rows))


def _skeletons(s: Schedule) -> str:
    return ", ".join(dict.fromkeys(k.skeleton for k in s.kernels))


def _counts(s: Schedule) -> str:
    return ", ".join(str(s.bind[x.name]) for c in s.chunks for x in symbols_of(c.count))


def _microseconds(s: Schedule | None) -> float:
    return float("inf") if s is None or s.modelled is None else s.modelled.microseconds


def _time(a: Alternative) -> float:
    return _microseconds(a.best)


def _modelled(s: Schedule) -> str:
    return f"{_microseconds(s):.1f} us"


def _us(a: Alternative) -> str:
    return f"{_time(a):.1f} us"


# ---- for JSON


def _scheduled_dict(s: Scheduled) -> dict[str, Any]:
    found: dict[str, Any] = {"number": s.number, "name": s.candidate.name, "refusal": s.refusal or None}
    choice = s.choice
    return {
        **found,
        "modelled_us": None if s.best is None else _microseconds(s.best),
        "alternatives": [_alternative_dict(a) for a in choice.alternatives] if choice else [],
        "refused": [vars(r) for r in choice.refusals] if choice else [],
    }


def _alternative_dict(a: Alternative) -> dict[str, Any]:
    best = a.best
    return {
        "partition": a.partition,
        "axis": a.axis,
        "chunks": a.chunks,
        "merge": a.merge,
        "skeletons": [] if best is None else [k.skeleton for k in best.kernels],
        "modelled_us": a.microseconds,
    }


def _schedule_dict(s: Schedule) -> dict[str, Any]:
    return {
        "candidate": s.candidate,
        "merge": s.merge,
        "modelled_us": None if s.modelled is None else s.modelled.microseconds,
        "loops": list(loop_lines(s)),
        "roofline": [r.as_dict() for r in roofline(s)],
        "text": s.text(),
    }
