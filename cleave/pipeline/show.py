"""The text of a result: search, candidates with derivations, verdicts, schedules, resources."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from cleave.candidate import Candidate, Step, promise
from cleave.config import meanings
from cleave.pipeline.equality import Equality, Verdict
from cleave.pipeline.explanation import fold_lines, split_lines
from cleave.pipeline.result import Result, Trial


def show_result(result: Result) -> str:
    parts = [_search_lines(result), _candidate_lines(result), _trial_lines(result), _ending(result)]
    return "\n".join("\n".join(part).rstrip() for part in parts if part) + "\n"


def _search_lines(result: Result) -> list[str]:
    return ["== search", result.input.text().rstrip(), result.report.search_text.rstrip()]


# ---- candidates


def _candidate_lines(result: Result) -> list[str]:
    lines = ["== candidates"]
    verdicts = {v.candidate: v for v in result.verdicts}
    for number, c in enumerate(result.candidates):
        cost = f"; {c.cost}" if c.cost is not None else ""
        lines.append(f"{number} {c.name}: {', '.join(c.rules) or 'no rule'}; {c.promise}{cost}")
        verdict = verdicts.get(c.name)
        lines.append(f"  verification: {verdict.summary()}" if verdict is not None else "  not verified")
        if verdict is not None and verdict.passed:
            lines += [f"  {line}" for line in show_numerics(c)]
        lines += [f"  note: {note}" for note in c.notes]
    for c in leading(result.candidates):
        lines += show_derivation(c)
    return lines


def show_numerics(c: Candidate) -> list[str]:
    """Rounding errors beside those of the graph as written, with a warning where they are much worse."""
    return str(c.numerics or "no instance to measure errors on").splitlines()


def numerics_notes(candidates: Iterable[Candidate]) -> list[str]:
    """A note for each candidate that rounding harms much more than the graph as written."""
    measured = ((c.name, c.numerics) for c in candidates)
    return [f"candidate {name}: {found.warning}" for name, found in measured if found is not None and found.warning]


def leading(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The best candidate of each set of split axes, those that a rule changed first."""
    first: dict[frozenset[str], Candidate] = {}
    for c in sorted(candidates, key=lambda c: not c.steps):
        first.setdefault(frozenset(s.base for s in c.splits), c)
    return list(first.values())


def show_derivation(c: Candidate) -> list[str]:
    """The candidate's graph, its steps (rule, place, before, after) and its folds."""
    lines = [f"-- {c.name}", *_indented(c.graph.text())]
    none = "none, the graph as written" if c.graph == c.origin else "none was found"
    lines.append("  derivation:" if c.steps else f"  derivation: {none}")
    lines += show_steps(c.steps)
    lines += [f"  {line}" for line in (*split_lines(c), *fold_lines(c))]
    return lines


def show_steps(steps: Sequence[Step]) -> list[str]:
    """Numbered: rule, place, before, after."""
    lines: list[str] = []
    for number, s in enumerate(steps, 1):
        way = " (backward)" if s.backward else ""
        lines += [f"   {number:2d} {s.rule}{way} at {s.place}", f"        {s.before}", f"     -> {s.after}"]
        lines += [f"        {s.check}"] * s.is_false
    return lines


def _indented(text: str) -> Iterator[str]:
    return (f"  {line}" for line in text.rstrip().splitlines())


# ---- schedules


def _trial_lines(result: Result) -> list[str]:
    lines = ["== schedules"]
    for t in result.trials:
        lines += t.lines()
    if result.best is not None:
        lines += ["-- chosen", result.best.schedule.text().rstrip()]
    return lines


def _ending(result: Result) -> list[str]:
    lines = ["== result"]
    best = result.best
    lines.append("no schedule passed" if best is None else f"{best.name}: {best.time}")
    if best is not None:
        lines += _compiled_for(best)
    if result.report.seconds:
        spent = ", ".join(f"{phase} {seconds:.2f}" for phase, seconds in result.report.seconds.items())
        lines.append(f"seconds: {spent}")
    if result.report.gpu is not None:
        lines.append(f"GPU: {result.report.gpu}")
    lines += [f"note: {note}" for note in result.report.notes]
    lines += [f"fault: {fault}" for fault in result.report.faults]
    if result.report.interrupted:
        lines.append("interrupted: this is what was found until then")
    return lines


def _compiled_for(t: Trial) -> Iterator[str]:
    for arch in dict.fromkeys(b.arch for b in t.builds):
        kernels = [b for b in t.builds if b.arch == arch]
        yield f"compiled for {arch}: {'; '.join(str(b.resources) for b in kernels)}"


# ---- equality


def show_equality(e: Equality) -> str:
    """The verdict first, then what it rests on."""
    lines = [_verdict_line(e)]
    if e.counterexample is not None:
        lines += [f"  {line}" for line in e.counterexample.lines(e.names)]
    if e.steps:
        lines += ["  both graphs:", *(f"    {line}" for line in e.graph.text().rstrip().splitlines())]
        tried = ", each step tried and true" if all(s.check and not s.is_false for s in e.steps) else ""
        lines += [f"  derivation ({promise(e.exactness, e.assumptions)}{tried}):", *show_steps(e.steps)]
        lines += [f"  {line}" for line in meanings(e.assumptions)]
    if e.verdict is Verdict.UNKNOWN:
        lines += _unknown_lines(e)
    if e.beyond is not None:
        lines.append("  where a value inside is not finite they differ (--assume nothing makes this count):")
        lines += [f"    {line}" for line in e.beyond.lines(e.names)]
    lines += [f"note: {note}" for note in e.notes]
    return "\n".join(lines) + "\n"


def _verdict_line(e: Equality) -> str:
    agree = f"{e.instances} instance{'s' * (e.instances != 1)} agree"
    match e.verdict:
        case Verdict.EQUAL if e.steps:
            steps = "1 equation leads" if len(e.steps) == 1 else f"{len(e.steps)} different equations lead"
            return f"equal: {steps} from {e.names[0]} to {e.names[1]}; {agree}"
        case Verdict.EQUAL if any("no derivation" in note for note in e.notes):
            return f"equal: both are one class of the e-graph, but the steps were not found; {agree}"
        case Verdict.EQUAL if e.stop and not e.size.startswith("no round"):
            return f"equal: the same up to the order of operands; {agree}"
        case Verdict.EQUAL:
            return f"equal: {e.names[0]} and {e.names[1]} are the same graph up to names of axes"
        case Verdict.DIFFERENT:
            return "different: this instance tells them apart"
        case Verdict.UNKNOWN:
            return f"not found: no derivation ({e.stop}, {e.size}), and no instance tells them apart ({agree})"


def _unknown_lines(e: Equality) -> list[str]:
    lines = ["  both graphs:", *(f"    {line}" for line in e.graph.text().rstrip().splitlines())]
    for left, right in e.left:
        lines += ["  left to show:", f"    {left}", f"    =  {right}"]
    for n in e.near:
        how = f"rule {n.rule} is off ({n.why})" if n.kind == "off" else f"the guard of {n.rule}: {n.why}"
        lines.append(f"  nearest: {how}; otherwise they would be equal")
        if n.step is not None:
            truth = (
                "" if n.holds is None else ", true on a small instance" if n.holds else ", false on a small instance"
            )
            lines += [f"    at {n.step.place}{truth}", f"        {n.step.before}", f"     -> {n.step.after}"]
    if not e.near and e.stop == "saturated":
        lines.append("  nearest: nothing; no rule that is off and no single guard would make them equal")
    return lines
