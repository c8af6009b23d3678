"""All phases in order: search, verify, schedule, emit; and on a GPU a check of the kernel and a measurement."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cleave.candidate import Candidate, as_written
from cleave.config import Config
from cleave.cost.graph import Cost
from cleave.errors import CleaveError
from cleave.ir.bind import bind_dims
from cleave.ir.graph import Graph
from cleave.pipeline.phases import check_choices, check_usable, forced_schedules, meant
from cleave.pipeline.program import Program, graph_of
from cleave.pipeline.result import MODELLED, Forced, Report, Result, Trial
from cleave.pipeline.rulebooks import check_rulebook
from cleave.pipeline.saved import check_folder
from cleave.pipeline.show import numerics_notes
from cleave.pipeline.trial import make_trial, measured
from cleave.records import Outcome
from cleave.rewrite.rulebook import Rulebook
from cleave.target import Target
from cleave.tile.plan import Schedule
from cleave.verify import References, Verdict, verify

Progress = Callable[[str], None]

_CANDIDATES = 3
"""Candidates of which a schedule is checked, compiled and, on a GPU, timed; those with the best modelled times."""

_ATTEMPTS = 4
"""Schedules of one candidate that are compiled, the next as long as registers spill: the model only estimates them."""

_SPILLED = 1.5
"""What spills are taken to cost, as a factor on modelled time."""


@dataclass
class _State:
    """What was found so far: enough for a result whenever the user stops."""

    graph: Graph
    config: Config
    forced: Forced
    candidates: tuple[Candidate, ...] = ()
    verdicts: list[Verdict] = field(default_factory=list[Verdict])
    trials: list[Trial] = field(default_factory=list[Trial])
    search: Mapping[str, Any] = field(default_factory=dict[str, Any])
    search_text: str = ""
    seconds: dict[str, float] = field(default_factory=dict[str, float])
    notes: list[str] = field(default_factory=list[str])
    refusals: list[CleaveError] = field(default_factory=list[CleaveError])
    faults: list[str] = field(default_factory=list[str])
    gpu: str | None = None
    interrupted: bool = False

    @contextmanager
    def phase(self, name: str, progress: Progress | None) -> Generator[None]:
        if progress is not None:
            progress(name)
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began

    def result(self) -> Result:
        notes, faults = tuple(dict.fromkeys(self.notes)), tuple(self.faults)
        report = Report(self.search, self.search_text, self.seconds, self.gpu, self.interrupted, notes, faults)
        trials = sorted(self.trials, key=_rank)
        return Result(
            self.graph, self.candidates, tuple(self.verdicts), tuple(trials), report, self.config, self.forced
        )


def _rank(t: Trial) -> tuple[bool, float, float]:
    """What passed first; by measured time, then by modelled time, which knows nothing of spills."""
    clocked, modelled = (float("inf") if v is None else v for v in (t.measured, t.modelled))
    return t.outcome is not Outcome.OK, clocked, modelled * (_SPILLED if t.spilled else 1.0)


def optimize(
    program: Program,
    bind: Mapping[str, int] | None = None,
    target: Target | str | None = None,
    config: Config | None = None,
    *,
    rules: Rulebook | None = None,
    save: str | Path | None = None,
    progress: Progress | None = None,
    forced: Forced | None = None,
    cost: Cost | None = None,
) -> Result:
    """Search, verify, schedule and compile a program for one binding of its dims; check and time it where a GPU is.

    ``program``: a graph, or a function (see ``cleave.pipeline.program``). ``bind``: the shape that schedules are chosen
    for; extents that callers may vary stay run-time arguments. ``target``: the GPU found here, else sm_90a. ``forced``:
    tiles, skeleton, merge, split counts, feed, multicast and mma that the cost model does not choose. ``save``: a
    folder for the result. ``cost`` ranks candidates, see ``cleave.search``. ``progress`` is told the phase that begins.
    What fails is a row of the result. Ctrl-C ends with what was found. Errors: bad input (CleaveError), a ``cost`` that
    fails.
    """
    if save is not None:
        check_folder(save)
    state = _State(graph_of(program), config or Config(), forced or Forced())
    check_choices(state.forced)
    book = Rulebook.default() if rules is None else rules
    state.notes += check_rulebook(book)
    dims = bind_dims(state.graph, {}, bind)
    where = _target(Target(target) if isinstance(target, str) else target, state)
    try:
        _search(state, book, dims, progress, cost)
        if not state.interrupted:
            check_usable(state.forced, state.candidates, dims)
            _verify(state, dims, progress)
            _schedule(state, where, dims, progress)
            _measure(state, dims, progress)
    except KeyboardInterrupt:
        state.interrupted = True
    result = state.result()
    if save is not None:
        result.save(save)
    return result


def _target(given: Target | None, state: _State) -> Target:
    from cleave.runtime import device

    if device.available():
        state.gpu = device.properties().name
        return given or device.target()
    state.notes += [device.why_not_available(), MODELLED]
    return given or Target("sm_90a")


def _search(
    state: _State, book: Rulebook, bind: Mapping[str, int], progress: Progress | None, cost: Cost | None
) -> None:
    from cleave.search import search

    with state.phase("search", progress):
        found = search(state.graph, book, state.config, sizes=bind, cost=cost)
    state.candidates = found.candidates
    report = found.report
    state.search = {
        "stop": str(report.stop),
        "rounds": len(report.rounds),
        "nodes": report.rounds[-1].nodes if report.rounds else 0,
        "seconds": report.seconds.total,
        "matches": {name: count for name, count in report.matches.items() if count},
        "dropped": list(report.dropped),
        "notes": list(report.notes),
    }
    state.search_text = report.text()
    state.interrupted = str(report.stop) == "interrupted"


def _verify(state: _State, bind: Mapping[str, int], progress: Progress | None) -> None:
    references = References(state.graph, state.config.seed)
    for c in state.candidates:
        with state.phase("verify", progress):
            try:
                state.verdicts.append(verify(c, state.config, bind=bind, references=references))
                state.notes += numerics_notes([c]) if state.verdicts[-1].passed else []
            except Exception as error:  # a fault of the verifier costs its candidate, not the others
                state.faults.append(f"verifying candidate {c.name}: {shown_fault(error)}")


def _schedule(state: _State, target: Target, bind: Mapping[str, int], progress: Progress | None) -> None:
    chosen: list[Schedule] = []
    with state.phase("schedule", progress):
        for c in meant(_sound(state), state.forced):
            chosen += _schedules(c, target, bind, state)
        chosen = list(_different(chosen))
    if not chosen and state.refusals and state.forced != Forced():
        raise state.refusals[0]  # what was forced fits no candidate
    for group in _by_candidate(chosen)[:_CANDIDATES]:
        for s in group[:_ATTEMPTS]:
            with state.phase("tile program and compile", progress):
                state.trials.append(_tried(s, state))
            if state.trials[-1].outcome is Outcome.OK and not state.trials[-1].spilled:
                break


def _tried(s: Schedule, state: _State) -> Trial:
    try:
        return make_trial(s, state.graph, state.config)
    except Exception as error:  # a fault of the interpreter or of an emitter costs its schedule, not the others
        made = Trial(s, Outcome.CRASHED, shown_fault(error))
        state.faults.append(f"schedule {made.name}: {made.detail}")
        return made


def shown_fault(error: Exception) -> str:
    """An exception in one line, with the place of cleave where it was raised."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {' '.join(str(error).split())} ({Path(last.filename).name}:{last.lineno})"


def _sound(state: _State) -> list[Candidate]:
    """Candidates that passed. The graph as written needs no proof: there is something to run when all else fails."""
    passed = {v.candidate for v in state.verdicts if v.passed}
    return [c for c in state.candidates if c.name in passed] or [as_written(state.graph)]


def _schedules(c: Candidate, target: Target, bind: Mapping[str, int], state: _State) -> Sequence[Schedule]:
    """Schedules of a candidate, best first; a candidate that can't be scheduled is a note."""
    try:
        return forced_schedules(c, target, bind, state.config, state.forced)
    except CleaveError as error:
        state.refusals.append(error)
        state.notes.append(f"candidate {c.name} was not scheduled: {error}")
    except Exception as error:  # a fault of the scheduler costs its candidate, not the others
        state.faults.append(f"scheduling candidate {c.name}: {shown_fault(error)}")
    return ()


def _different(schedules: Sequence[Schedule]) -> Iterator[Schedule]:
    """Candidates that give the same loops are one after scheduling."""
    seen: set[tuple[object, ...]] = set()
    for s in schedules:
        programs = tuple(k.program.text() for k in s.kernels)
        bindings = tuple(tuple(sorted((a.name, n) for a, n in k.binding.tiles.items())) for k in s.kernels)
        orders = tuple((k.chain, k.feed) for k in s.kernels)
        key = (programs, bindings, s.merge, tuple(sorted(s.bind.items())), orders)
        if key not in seen:
            seen.add(key)
            yield s


def _by_candidate(schedules: Sequence[Schedule]) -> list[list[Schedule]]:
    """Schedules of each candidate, best first, by modelled time."""
    groups: dict[str, list[Schedule]] = {}
    for s in sorted(schedules, key=lambda s: float("inf") if s.modelled is None else s.modelled.microseconds):
        groups.setdefault(s.candidate, []).append(s)
    return list(groups.values())


def _measure(state: _State, bind: Mapping[str, int], progress: Progress | None) -> None:
    if state.gpu is None:
        return
    for number, trial in enumerate(state.trials):
        if trial.outcome is Outcome.OK and not (trial.spilled and _has_better(state.trials, trial)):
            with state.phase("check and time on the GPU", progress):
                state.trials[number] = measured(trial, state.graph, bind, state.config)
    state.verdicts = [_with_kernel(v, state.trials) for v in state.verdicts]


def _has_better(trials: Sequence[Trial], spilled: Trial) -> bool:
    """Whether the same candidate has a schedule that does not spill: the one that does is not worth the GPU's time."""
    same = [t for t in trials if t.schedule.candidate == spilled.schedule.candidate]
    return any(t.outcome is Outcome.OK and not t.spilled for t in same)


def _with_kernel(v: Verdict, trials: Sequence[Trial]) -> Verdict:
    """The verdict with the kernel half of the final test: the worst of the candidate's trials."""
    found = [t.kernel for t in trials if t.schedule.candidate == v.candidate and t.kernel is not None]
    worst = max(found, key=lambda c: (c.outcome.failed, c.worst), default=None)
    return v if worst is None else v.with_check(replace(worst, instances=sum(c.instances for c in found)))
