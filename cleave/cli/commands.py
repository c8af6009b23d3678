"""What each command does. Every function returns an exit code."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from cleave.candidate import FORM, Candidate, save_candidates
from cleave.cli.inputs import (
    Loaded,
    bindings,
    read_config,
    read_cost,
    read_program,
    read_rules,
    split_counts,
)
from cleave.cli.operators import operators as operators
from cleave.cli.output import Progress, complain, print_json, print_text, progress
from cleave.cli.parser import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, EXIT_UNKNOWN, BadInput, parse
from cleave.cli.rulebook import rules as rules
from cleave.errors import SearchError
from cleave.ir.graph import Graph
from cleave.records import Outcome
from cleave.saved import check_place

if TYPE_CHECKING:
    from cleave.pipeline.explanation import Explanation
    from cleave.pipeline.scheduling import Scheduling
    from cleave.search import Round

# ---- optimize


def optimize(options: argparse.Namespace) -> int:
    from cleave.pipeline import Forced
    from cleave.pipeline import optimize as run
    from cleave.target import Target

    loaded, config, rules = read_program(options), read_config(options), read_rules(options)
    target = Target(options.target) if options.target else None
    tiles = bindings(options.tile, "--tile") if options.tile else None
    split = split_counts(options.split, loaded.graph)
    forced = Forced(tiles, options.skeleton, options.merge, split, options.feed, options.multicast, options.mma)
    with progress(quiet=options.json) as told:
        result = run(
            loaded.graph,
            loaded.dims,
            target,
            config,
            rules=rules,
            save=options.save,
            progress=told,
            forced=forced,
            cost=read_cost(options),
        )
    print_json(result.as_dict()) if options.json else print_text(result.text())
    if result.report.interrupted:
        return EXIT_INTERRUPTED
    return EXIT_OK if result.passed else EXIT_FAILED


# ---- search and explain

_VERIFICATION_SECONDS = 2.0
"""What verification has at least: a search takes up to twice its limit, and verification what that leaves and this."""


def search(options: argparse.Namespace) -> int:
    from cleave.pipeline.rulebooks import check_rulebook
    from cleave.pipeline.verification import Verified, verified
    from cleave.search import search as run
    from cleave.search.deadline import Deadline

    loaded, config, rules = read_program(options), read_config(options), read_rules(options)
    cost = read_cost(options)
    if options.save is not None:
        check_place(options.save, FORM[0])
    notes = check_rulebook(rules)
    with progress(quiet=options.json) as told:
        dims = loaded.dims if _is_bound(loaded.graph, loaded.dims) else None
        deadline = Deadline.after(2 * config.limits.seconds + _VERIFICATION_SECONDS)
        found = run(loaded.graph, rules, config, _round_teller(told), sizes=dims, weights=loaded.weights, cost=cost)
        if told:
            told("verify")
        if str(found.report.stop) == "interrupted":
            checked = Verified(found.candidates, interrupted=True)
        else:
            checked = verified(loaded.graph, found.candidates, config, dims, deadline)
    if options.save is not None:
        save_candidates(checked.candidates, options.save)
    _print_found(options, replace(found, candidates=checked.candidates), checked.verdicts, [*notes, *checked.notes])
    if checked.interrupted:
        return EXIT_INTERRUPTED
    return EXIT_OK if checked.passed else EXIT_FAILED


def _round_teller(told: Progress | None) -> Callable[[Round], None] | None:
    return None if told is None else lambda r: told(f"round {r.number}, {r.nodes} e-nodes")


def _is_bound(g: Graph, dims: dict[str, int]) -> bool:
    return all(s.value is not None or s.name in dims for s in g.symbols)


def _print_found(options: argparse.Namespace, found: Any, verdicts: Sequence[Any], notes: Sequence[str]) -> None:
    from cleave.pipeline.explanation import candidate_dict
    from cleave.pipeline.show import leading, show_derivation

    if options.json:
        print_json(
            {
                "stop": str(found.report.stop),
                "seconds": found.report.seconds.total,
                "matches": found.report.matches,
                "axes": found.report.reducibility.as_dicts(),
                "candidates": [candidate_dict(c) for c in found.candidates],
                "dropped": list(found.report.dropped),
                "verdicts": [v.as_dict() for v in verdicts],
                "notes": [*found.report.notes, *notes],
            }
        )
        return
    print_text(found.text())
    for v in verdicts:
        print_text(f"{v.candidate}: {v.summary()}")
    for c in leading(found.candidates):
        print_text("\n".join(show_derivation(c)))
    for note in notes:
        print_text(f"note: {note}")


def explain(options: argparse.Namespace) -> int:
    found = _explanation(options)
    if options.json:
        print_json(found.as_dict())
    else:
        print_text({"text": found.text, "markdown": found.markdown, "html": found.html}[options.format]())
    for error in found.errors:
        complain(f"error: {error}")
    return EXIT_FAILED if found.errors else EXIT_OK


def _explanation(options: argparse.Namespace) -> Explanation:
    """Of a saved result or search, or of a search that is done now."""
    from cleave.pipeline import explain as run
    from cleave.pipeline.explanation import UNKNOWN, explain_saved

    if options.json and options.format != "text":
        raise BadInput(f"--json and --format {options.format}: one of them is expected")
    if Path(options.program).is_dir() or options.program.endswith(".json"):
        from cleave.pipeline.saved import load_parts

        _refuse_settings(options)
        candidates, report = load_parts(options.program)
        if not candidates:
            raise SearchError("holds no candidates", location=options.program)
        stop = str(report.search.get("stop", UNKNOWN))
        notes, dropped = (map(str, report.search.get(name, ())) for name in ("notes", "dropped"))
        made = explain_saved(candidates, stop, candidate=options.candidate, notes=notes, dropped=dropped)
        return replace(made, schedules=_kept_schedules(options.program, made.candidates))
    from cleave.pipeline.rulebooks import check_rulebook
    from cleave.search import search as search_now

    loaded, rules = read_program(options), read_rules(options)
    notes = check_rulebook(rules)
    found = search_now(loaded.graph, rules, read_config(options), weights=loaded.weights, cost=read_cost(options))
    if str(found.report.stop) == "interrupted":
        raise KeyboardInterrupt
    made = run(found, rules=rules, candidate=options.candidate)
    schedules = _schedules_now(loaded, made.candidates, options)
    if schedules is None:
        missing = [s.name for s in loaded.graph.symbols if s.value is None and s.name not in loaded.dims]
        notes = [*notes, f"--bind {'=.. --bind '.join(missing)}=.. explains schedules too"]
    return replace(made, notes=(*made.notes, *notes), schedules=schedules)


def _schedules_now(
    loaded: Loaded, candidates: Sequence[tuple[int, Candidate]], options: argparse.Namespace
) -> Scheduling | None:
    """Why schedules are what they are, if every dim has a value."""
    from cleave.ir.bind import bind_dims
    from cleave.pipeline.scheduling import explain_schedules
    from cleave.target import Target

    if not _is_bound(loaded.graph, loaded.dims):
        return None
    dims = bind_dims(loaded.graph, {}, loaded.dims)
    return explain_schedules(candidates, Target(options.target or "sm_90a"), dims, read_config(options))


def _kept_schedules(place: str, candidates: Sequence[tuple[int, Candidate]]) -> Scheduling | None:
    """The same of a saved result, beside the schedules that were kept; None where none was."""
    from cleave.pipeline.saved import load_tried
    from cleave.pipeline.scheduling import explain_schedules

    if not Path(place).is_dir():
        return None
    tried = load_tried(place)
    names = {t.schedule.candidate for t in tried.trials} | tried.passed
    sound = [(number, c) for number, c in candidates if c.name in names]
    if not tried.trials or not sound:
        return None
    first = tried.trials[0].schedule
    known = {s.name for s in candidates[0][1].origin.symbols}
    dims = {**first.shape, **{n: v for n, v in first.bind.items() if n in known}}
    kept = [t for t in tried.trials if t.outcome is Outcome.OK]
    return explain_schedules(sound, first.target, dims, tried.config, tried.forced, kept)


def _refuse_settings(options: argparse.Namespace) -> None:
    """A saved result was searched before: an option of the search would do nothing."""
    usual = vars(parse(["explain", options.program]))
    for name, value in vars(options).items():
        if name not in ("json", "format", "candidate") and value != usual[name]:
            raise BadInput(f"--{name.replace('_', '-')} is for a program; {options.program} is a saved result")


# ---- equal


def equal(options: argparse.Namespace) -> int:
    from cleave.pipeline import equal as run
    from cleave.pipeline.equality import Verdict

    a, b = (read_program(options, name).graph for name in (options.a, options.b))
    names = (options.a, options.b) if options.a != options.b else ("A", "B")
    config, rules = read_config(options), read_rules(options)
    with progress(quiet=options.json) as told:
        teller = _round_teller(told)
        found = run(a, b, rules=rules, config=config, weights=options.weights, names=names, progress=teller)
    print_json(found.as_dict()) if options.json else print_text(found.text())
    if found.stop == "interrupted":
        return EXIT_INTERRUPTED
    return {Verdict.EQUAL: EXIT_OK, Verdict.DIFFERENT: EXIT_FAILED, Verdict.UNKNOWN: EXIT_UNKNOWN}[found.verdict]


# ---- run


def run(options: argparse.Namespace) -> int:
    from cleave.cli.rerun import rerun

    if options.pin is not None and options.candidate is not None:
        raise BadInput("--pin and --candidate: one of them is expected")
    trial, dims = rerun(options.folder, options.candidate, bindings(options.bind, "--bind"), options.pin)
    if options.json:
        print_json({"dims": dims, **trial.as_dict()})
    else:
        print_text("\n".join(trial.lines()))
        print_text("sizes: " + ", ".join(f"{k}={v}" for k, v in dims.items()))
    return EXIT_OK if trial.outcome is Outcome.OK else EXIT_FAILED


# ---- tune


def tune(options: argparse.Namespace) -> int:
    from cleave.pipeline.tuning import tune_saved
    from cleave.tune.pin import FORM as PIN

    if options.pin is not None:
        check_place(options.pin, PIN[0])
    asked = {n: getattr(options, n) for n in ("budget", "seconds", "records") if getattr(options, n) is not None}
    with progress(quiet=options.json) as told:
        found = tune_saved(options.source, bindings(options.bind, "--bind"), progress=told, **asked)
    if options.pin is not None and found.best is not None:
        found.pin(options.pin)
    print_json(found.as_dict()) if options.json else print_text(found.text())
    return EXIT_OK if found.passed else EXIT_FAILED


# ---- environment and cache


def environment(options: argparse.Namespace) -> int:
    from cleave.codegen import cache as kernels
    from cleave.environment import environment as stamp
    from cleave.runtime import device

    gpu = device.properties().as_dict() if device.available() else None
    found = {**stamp(gpu), "cache": str(kernels.folder())}
    if gpu is None:
        found["why_no_gpu"] = device.why_not_available()
    if options.json:
        print_json(found)
        return EXIT_OK
    for name, value in found.items():
        print_text(f"{name}: {_shown(value)}")
    return EXIT_OK


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k} {v}" for k, v in cast("dict[str, Any]", value).items())
    return "none" if value is None else str(value)


def cache(options: argparse.Namespace) -> int:
    from cleave.codegen import cache as kernels
    from cleave.pipeline.rulebooks import forget
    from cleave.tune.remembered import forget as forget_plans

    if options.action == "clear":
        removed = kernels.clear() + forget() + forget_plans()
        if options.json:
            print_json({"removed": removed})
        else:
            print_text(f"removed {removed} entries")
        return EXIT_OK
    summary = kernels.summary()
    if options.json:
        print_json({"folder": str(summary.folder), "entries": summary.entries, "bytes": summary.bytes})
    else:
        print_text(f"{summary.folder}: {summary.entries} kernels, {summary.bytes / 1e6:.1f} MB")
    return EXIT_OK
