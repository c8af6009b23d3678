"""A result on disk: a folder that is written whole or not at all, and read back with every part checked.

    graph.txt         the input graph
    candidates.json   candidates with derivations and folds
    schedule.json     for each trial what the scheduler needs to make it again, and its text
    N_entry.cu        CUDA text of kernel entry of trial N;  N_entry.ARCH.cubin, its machine code
    report.json       verdicts, trials, times, environment

A schedule is stored as the choices that lead to it. Loading makes it again from the saved candidate and compares the
text, so that what runs is what was saved, or an error says that it is not. Kernels are made again as well: their files
are for other readers, and report.json has their checksums.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from cleave.candidate import Candidate, load_candidates, save_candidates
from cleave.config import Config
from cleave.environment import environment
from cleave.errors import CleaveError, SavedFileError
from cleave.ir.graph import Graph
from cleave.ir.text import parse_graph
from cleave.pipeline.phases import forced_schedules
from cleave.pipeline.result import Forced, Report, Result, Trial
from cleave.records import Outcome
from cleave.saved import Saved, read_saved, write_saved
from cleave.target import Target
from cleave.tile.plan import Schedule
from cleave.verify import Check, Step, Verdict
from cleave.verify import Outcome as Checked

FORM = ("cleave-result", 1)
GRAPH, CANDIDATES, SCHEDULES, REPORT = "graph.txt", "candidates.json", "schedule.json", "report.json"
_DAMAGED = (KeyError, TypeError, ValueError, msgspec.MsgspecError)
"""What reading a report without its structure raises."""


class _SavedSchedule(msgspec.Struct, forbid_unknown_fields=True):
    """One schedule: of which candidate, for what, and what it says."""

    candidate: str
    arch: str
    shape: dict[str, int]
    bind: dict[str, int]
    text: str


class _SavedSchedules(Saved):
    config: Config
    forced: Forced
    schedules: list[_SavedSchedule]


class _SavedReport(Saved):
    environment: dict[str, Any]
    files: dict[str, str]
    """sha256 of every kernel file."""
    result: dict[str, Any]


# ---- writing


def save_result(result: Result, folder: str | Path) -> None:
    """Write everything into a new folder beside the wanted one, then put it in its place.

    Errors: a path that exists and is no saved result, a folder that can't be written.
    """
    check_folder(folder)
    target = Path(folder).resolve()  # a link stays a link
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    except OSError as error:
        raise SavedFileError(f"can't be written: {error.strerror}", location=str(folder)) from None
    try:
        _write(result, fresh)
        fresh.chmod(0o755)
        _put_in_place(fresh, target)
    except OSError as error:
        raise SavedFileError(f"can't be written: {error.strerror}", location=str(folder)) from None
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def check_folder(folder: str | Path) -> None:
    """Refuse a place that a result can't be saved to, before hours are spent on one."""
    target = Path(folder)
    try:
        if target.exists() and not _is_result(target):
            raise SavedFileError("exists and is no saved result; nothing was written", location=str(target))
        if target.exists() and target.samefile(Path.cwd()):
            raise SavedFileError("is the working directory; name a folder in it", location=str(target))
        above = next(p for p in target.absolute().parents if p.exists())
    except OSError as error:
        raise SavedFileError(f"can't be written: {error.strerror}", location=str(target)) from None
    if not above.is_dir() or not os.access(above, os.W_OK):
        raise SavedFileError(f"can't be written: {above} is no folder that may be written", location=str(target))


def _is_result(folder: Path) -> bool:
    """An empty folder, or one that holds what an earlier save wrote and nothing else: it will be replaced."""
    if not folder.is_dir():
        return False
    found = {p.name for p in folder.iterdir()}
    ours = {n for n in found if n in (GRAPH, CANDIDATES, SCHEDULES, REPORT) or n.endswith((".cu", ".cubin"))}
    return not found or (found == ours and {GRAPH, REPORT} <= found)


def _put_in_place(fresh: Path, target: Path) -> None:
    if not target.exists():
        fresh.rename(target)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        target.rename(old / "replaced")
        try:
            fresh.rename(target)
        except BaseException:
            (old / "replaced").rename(target)
            raise
    finally:
        shutil.rmtree(old, ignore_errors=True)


def _write(result: Result, folder: Path) -> None:
    (folder / GRAPH).write_text(result.input.text(), encoding="utf-8")
    if result.candidates:
        save_candidates(result.candidates, folder / CANDIDATES)
    schedules = [_saved_schedule(t.schedule) for t in result.trials]
    write_saved(_SavedSchedules(*FORM, result.config, result.forced, schedules), folder / SCHEDULES)
    files = {
        name: content for number, trial in enumerate(result.trials) for name, content in _kernel_files(number, trial)
    }
    for name, content in files.items():
        (folder / name).write_bytes(content)
    sums = {name: sha256(content).hexdigest() for name, content in files.items()}
    write_saved(_SavedReport(*FORM, environment(), sums, result.as_dict()), folder / REPORT)


def _kernel_files(number: int, trial: Trial) -> Iterator[tuple[str, bytes]]:
    for kernel in trial.source.kernels if trial.source is not None else ():
        yield f"{number}_{kernel.entry}.cu", kernel.text.encode()
    for b in trial.builds:
        if b.cubin:
            yield f"{number}_{b.entry}.{b.arch}.cubin", b.cubin


def _saved_schedule(s: Schedule) -> _SavedSchedule:
    return _SavedSchedule(s.candidate, s.target.arch, dict(s.shape), dict(s.bind), s.text())


# ---- reading


def load(folder: str | Path) -> Result:
    """Read what ``Result.save`` wrote.

    Errors: anything that is missing, damaged, or of another version (SavedFileError).
    """
    source = Path(folder)
    g, candidates, report = _parts(source)
    saved = read_saved(source / SCHEDULES, _SavedSchedules, FORM)
    rows: list[dict[str, Any]] = _list(report.result, "trials")
    if len(rows) != len(saved.schedules):
        raise SavedFileError(f"{len(rows)} trials, {len(saved.schedules)} schedules in {SCHEDULES}", location=REPORT)
    _check_files(source, report.files)
    schedules = _remade(saved, candidates)
    try:
        return Result(
            g,
            candidates,
            tuple(map(_verdict, _list(report.result, "verdicts"))),
            tuple(_trial(row, s) for row, s in zip(rows, schedules, strict=True)),
            _report(report),
            saved.config,
            saved.forced,
        )
    except _DAMAGED as error:
        raise SavedFileError(f"is no saved result: {error}", location=REPORT) from None


def _check_files(source: Path, sums: Mapping[str, str]) -> None:
    """Kernel files that are gone or not what was written."""
    for name, expected in sums.items():
        try:
            found = sha256((source / name).read_bytes()).hexdigest()
        except (OSError, ValueError) as error:
            raise SavedFileError(f"can't be read: {getattr(error, 'strerror', error)}", location=name) from None
        if found != expected:
            raise SavedFileError("is not what was saved: its checksum differs", location=name)


def load_parts(folder: str | Path) -> tuple[tuple[Candidate, ...], Report]:
    """Candidates and report of a saved result, without its schedules."""
    _, candidates, report = _parts(Path(folder))
    try:
        return candidates, _report(report)
    except _DAMAGED as error:
        raise SavedFileError(f"is no saved result: {error}", location=REPORT) from None


def _parts(source: Path) -> tuple[Graph, tuple[Candidate, ...], _SavedReport]:
    if not source.is_dir():
        raise SavedFileError("is no folder with a saved result", location=str(source))
    g = _graph(source)
    candidates = load_candidates(source / CANDIDATES) if (source / CANDIDATES).exists() else ()
    if any(c.origin != g for c in candidates):
        raise SavedFileError(f"belongs to another graph than {GRAPH}", location=CANDIDATES)
    return g, candidates, read_saved(source / REPORT, _SavedReport, FORM)


def _report(saved: _SavedReport) -> Report:
    return msgspec.convert(saved.result["report"], Report)


def _graph(source: Path) -> Graph:
    try:
        return parse_graph((source / GRAPH).read_text(encoding="utf-8"), GRAPH)
    except OSError as error:
        raise SavedFileError(f"no saved result: {GRAPH}: {error.strerror}", location=str(source)) from None
    except UnicodeDecodeError:
        raise SavedFileError("is no text", location=GRAPH) from None
    except CleaveError as error:
        if (error.location or "").startswith(GRAPH):
            raise
        raise SavedFileError(f"is no graph: {error}", location=GRAPH) from None


def _list(result: dict[str, Any], key: str) -> list[dict[str, Any]]:
    rows = result.get(key)
    if not isinstance(rows, list):
        raise SavedFileError(f"has no list of {key}", location=REPORT)
    return rows  # pyright: ignore[reportUnknownVariableType]


def _remade(saved: _SavedSchedules, candidates: Sequence[Candidate]) -> list[Schedule]:
    """The saved schedules, made again by the same choices; what comes out must be what was saved."""
    made: dict[str, Schedule] = {}
    for s in saved.schedules:
        if s.text not in made:
            made.update({other.text(): other for other in _siblings(s, saved, candidates)})
        if s.text not in made:
            raise SavedFileError("a schedule differs from its saved text: another version wrote it", location=SCHEDULES)
    return [made[s.text] for s in saved.schedules]


def _siblings(s: _SavedSchedule, saved: _SavedSchedules, candidates: Sequence[Candidate]) -> Sequence[Schedule]:
    """All schedules of the candidate that a saved one belongs to."""
    found = [c for c in candidates if c.name == s.candidate]
    if not found:
        raise SavedFileError(f"candidate {s.candidate!r} is not in {CANDIDATES}", location=SCHEDULES)
    counts = {split.count for split in found[0].splits}
    bind = {**s.shape, **{n: v for n, v in s.bind.items() if n not in counts}}
    try:
        return forced_schedules(found[0], Target(s.arch), bind, saved.config, saved.forced)
    except CleaveError as error:
        raise SavedFileError(f"a schedule can't be made again: {error}", location=SCHEDULES) from None


def _verdict(row: dict[str, Any]) -> Verdict:
    return Verdict(str(row["candidate"]), tuple(_check(c) for c in row["checks"]))


def _check(row: dict[str, Any]) -> Check:
    worst = float("inf") if row["worst"] is None else float(row["worst"])
    return Check(Step(row["step"]), Checked(row["outcome"]), int(row["instances"]), worst, str(row["detail"]))


def _trial(row: dict[str, Any], s: Schedule) -> Trial:
    """The trial with its CUDA text generated again; builds come from the compiler's cache when they are asked for."""
    from cleave.pipeline.trial import compiled

    tile, kernel = (None if row[k] is None else _check(row[k]) for k in ("tile", "kernel"))
    times = msgspec.convert(row["measured_s"], dict[str, float | str])
    if "q50" in times:
        msgspec.convert(times["q50"], float)
    trial = Trial(s, Outcome(row["outcome"]), str(row["detail"]), tile, kernel=kernel, times=times)
    return compiled(trial) if trial.outcome is Outcome.OK else trial
