"""A result on disk: a folder that is written whole or not at all, and read back with every part checked.

    graph.txt         the input graph
    candidates.json   candidates with derivations and folds, as a search writes them (cleave.candidate)
    schedule.json     the schedule of each trial (cleave.tile.saved)
    N_entry.cu        CUDA text of kernel entry of trial N;  N_entry.ARCH.cubin, its machine code
    report.json       settings, verdicts, trials, times, environment, checksums

Kernels are made again from their schedules: their files are for other readers.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from cleave.candidate import Candidate, as_written, load_candidates, save_candidates
from cleave.config import Config
from cleave.environment import environment
from cleave.errors import CleaveError, SavedFileError
from cleave.ir.graph import Graph
from cleave.ir.text import parse_graph
from cleave.pipeline.result import Forced, Report, Result, Trial
from cleave.records import Outcome
from cleave.saved import Saved, format_of, read_saved, write_saved
from cleave.tile.plan import Schedule
from cleave.tile.saved import FORM as OF_SCHEDULES
from cleave.tile.saved import load_schedules, save_schedules
from cleave.verify import Check, Step, Verdict
from cleave.verify import Outcome as Checked

FORM = ("cleave-result", 2)
GRAPH, CANDIDATES, SCHEDULES, REPORT = "graph.txt", "candidates.json", "schedule.json", "report.json"
_DAMAGED = (KeyError, TypeError, ValueError, msgspec.MsgspecError)
"""What reading a report without its structure raises."""


class _SavedReport(Saved):
    config: Config
    forced: Forced
    environment: dict[str, Any]
    files: dict[str, str]
    """sha256 of the schedules and of every kernel file."""
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
    save_schedules(result.schedules, folder / SCHEDULES)
    files = {
        name: content for number, trial in enumerate(result.trials) for name, content in _kernel_files(number, trial)
    }
    for name, content in files.items():
        (folder / name).write_bytes(content)
    sums = {name: sha256((folder / name).read_bytes()).hexdigest() for name in (SCHEDULES, *files)}
    report = _SavedReport(*FORM, result.config, result.forced, environment(), sums, result.as_dict())
    write_saved(report, folder / REPORT)


def _kernel_files(number: int, trial: Trial) -> Iterator[tuple[str, bytes]]:
    for kernel in trial.source.kernels if trial.source is not None else ():
        yield f"{number}_{kernel.entry}.cu", kernel.text.encode()
    for b in trial.builds:
        if b.cubin:
            yield f"{number}_{b.entry}.{b.arch}.cubin", b.cubin


# ---- reading


def load(path: str | Path) -> Result:
    """Read the folder that ``Result.save`` wrote, or the file of candidates that a search wrote.

    Candidates alone make a result without verdicts and trials: ``load(path).candidates`` can be verified and scheduled.
    Errors: anything that is missing, damaged, or of another format or version (SavedFileError).
    """
    if not Path(path).is_dir():
        candidates, report = _of_search(Path(path))
        return Result(candidates[0].origin, candidates, (), (), report)
    source = Path(path)
    g, candidates, report = _parts(source)
    schedules = load_schedules(source / SCHEDULES)
    rows: list[dict[str, Any]] = _list(report.result, "trials")
    if len(rows) != len(schedules):
        raise SavedFileError(f"{len(rows)} trials, {len(schedules)} schedules in {SCHEDULES}", location=REPORT)
    known = {c.name for c in (*candidates, as_written(g))}
    for s in schedules:
        if s.candidate not in known:
            raise SavedFileError(f"candidate {s.candidate!r} is not in {CANDIDATES}", location=SCHEDULES)
    _check_files(source, report.files)
    try:
        return Result(
            g,
            candidates,
            tuple(map(_verdict, _list(report.result, "verdicts"))),
            tuple(_trial(row, s) for row, s in zip(rows, schedules, strict=True)),
            _report(report),
            report.config,
            report.forced,
        )
    except _DAMAGED as error:
        raise SavedFileError(f"is no saved result: {error}", location=REPORT) from None


def _of_search(file: Path) -> tuple[tuple[Candidate, ...], Report]:
    """Candidates that a search wrote, and a report that knows no more."""
    if not file.exists():
        raise SavedFileError("is no saved result: there is no such file or folder", location=str(file))
    form = format_of(file)
    if form == OF_SCHEDULES[0]:
        raise SavedFileError("holds schedules: cleave.tile.saved.load_schedules reads them", location=str(file))
    if form == FORM[0]:
        raise SavedFileError("is part of a saved result: load its folder", location=str(file))
    candidates = load_candidates(file)
    if not candidates:
        raise SavedFileError("holds no candidates", location=str(file))
    note = f"{file.name} holds candidates of a search: none was verified or scheduled"
    return candidates, Report({"stop": "unknown"}, "", {}, notes=(note,))


def _check_files(source: Path, sums: Mapping[str, str]) -> None:
    """Kernel files that are gone or not what was written."""
    for name, expected in sums.items():
        try:
            found = sha256((source / name).read_bytes()).hexdigest()
        except (OSError, ValueError) as error:
            raise SavedFileError(f"can't be read: {getattr(error, 'strerror', error)}", location=name) from None
        if found != expected:
            raise SavedFileError("is not what was saved: its checksum differs", location=name)


def load_parts(path: str | Path) -> tuple[tuple[Candidate, ...], Report]:
    """Candidates and report of a saved result or search, without schedules."""
    if not Path(path).is_dir():
        return _of_search(Path(path))
    _, candidates, report = _parts(Path(path))
    try:
        return candidates, _report(report)
    except _DAMAGED as error:
        raise SavedFileError(f"is no saved result: {error}", location=REPORT) from None


@dataclass(frozen=True)
class Tried:
    """What a saved result says of its schedules: settings, candidates that passed, and trials without their CUDA."""

    config: Config
    forced: Forced
    passed: frozenset[str]
    trials: tuple[Trial, ...]


def load_tried(folder: str | Path) -> Tried:
    """The schedules of a saved result, in order, without generating their kernels again. Errors: as ``load``."""
    source = Path(folder)
    _, _, report = _parts(source)
    schedules = load_schedules(source / SCHEDULES)
    rows: list[dict[str, Any]] = _list(report.result, "trials")
    if len(rows) != len(schedules):
        raise SavedFileError(f"{len(rows)} trials, {len(schedules)} schedules in {SCHEDULES}", location=REPORT)
    try:
        verdicts = map(_verdict, _list(report.result, "verdicts"))
        trials = tuple(_bare_trial(row, s) for row, s in zip(rows, schedules, strict=True))
        return Tried(report.config, report.forced, frozenset(v.candidate for v in verdicts if v.passed), trials)
    except _DAMAGED as error:
        raise SavedFileError(f"is no saved result: {error}", location=REPORT) from None


def _parts(source: Path) -> tuple[Graph, tuple[Candidate, ...], _SavedReport]:
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


def _verdict(row: dict[str, Any]) -> Verdict:
    return Verdict(str(row["candidate"]), tuple(_check(c) for c in row["checks"]))


def _check(row: dict[str, Any]) -> Check:
    worst = float("inf") if row["worst"] is None else float(row["worst"])
    return Check(Step(row["step"]), Checked(row["outcome"]), int(row["instances"]), worst, str(row["detail"]))


def _trial(row: dict[str, Any], s: Schedule) -> Trial:
    """The trial with its CUDA text generated again; builds come from the compiler's cache when they are asked for."""
    from cleave.pipeline.trial import compiled

    trial = _bare_trial(row, s)
    return compiled(trial) if trial.outcome is Outcome.OK else trial


def _bare_trial(row: dict[str, Any], s: Schedule) -> Trial:
    tile, kernel = (None if row[k] is None else _check(row[k]) for k in ("tile", "kernel"))
    times = msgspec.convert(row["measured_s"], dict[str, float | str])
    if "q50" in times:
        msgspec.convert(times["q50"], float)
    return Trial(s, Outcome(row["outcome"]), str(row["detail"]), tile, kernel=kernel, times=times)
