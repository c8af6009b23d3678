"""Records as tables: the last row of each part and workload counts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cleave.records import Outcome, Record
from experiments.e03_search.config import CASES, FIRST

Rows = Mapping[tuple[str, str], Sequence[Record]]
"""By part and name of the workload: the records of its last measurement."""

LEFT_OUT = ("extraction met its limit", "no time was left")
"""How the notes of a search begin that did not do all of its work."""

BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"


def latest(records: Iterable[Record]) -> dict[tuple[str, str], list[Record]]:
    """The last row of each part, workload and candidate, by part and workload; the last commit alone."""
    out: dict[tuple[str, str], list[Record]] = {}
    for r in records:
        key = (r.workload["part"], r.workload["name"])
        known = [k for k in out.get(key, []) if commit_of(k) == commit_of(r)]
        out[key] = [k for k in known if k.candidate.get("name") != r.candidate.get("name")] + [r]
    return out


def commit_of(r: Record) -> str:
    stamp = r.environment.get("commit") or {"id": "unknown", "dirty": False}
    return str(stamp["id"])[:7] + ("+" if stamp["dirty"] else "")


def tables(records: Iterable[Record]) -> str:
    """All tables, and what they were measured on."""
    rows = latest(records)
    parts = [text for text in (make(rows) for make in (searched, reducible, enumerated, verified)) if text]
    return "\n\n".join([*parts, _stamps(rows)]) + "\n" if parts else "Nothing is recorded yet.\n"


def _stamps(rows: Rows) -> str:
    last = [r for found in rows.values() for r in found]
    commits = ", ".join(sorted({commit_of(r) for r in last}))
    cores = ", ".join(sorted({str(r.environment.get("cores")) for r in last}))
    loads = [r.details["load"] for r in last if "load" in r.details]
    load = f"; load of the machine {min(loads)} to {max(loads)}" if loads else ""
    return f"Commit {commits} (+: changed); {cores} cores{load}."


def _grid(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    body = ["| " + " | ".join(cells) + " |" for cells in lines]
    return "\n".join(["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *body])


def _table(rows: Rows, part: str, title: str, head: Sequence[str], cells: Callable[[Record], Sequence[str]]) -> str:
    """One line a record in the order of the workloads; what failed gives its reason in the first cell."""
    lines: list[Sequence[str]] = []
    for name in CASES:
        for r in rows.get((part, name), ()):
            error = _error(r)
            lines.append([name, *([error, *[""] * (len(head) - 2)] if error else cells(r))])
    return f"### {title}\n\n{_grid(head, lines)}" if lines else ""


def _error(r: Record) -> str:
    """Why there are no figures, or nothing."""
    error = str(r.check.get("error", ""))
    return error if not error or error.startswith(str(r.outcome)) else f"{r.outcome}: {error}"


# ---- one table a part


def searched(rows: Rows) -> str:
    head = ("workload", "e-nodes", "rounds", "stop", "seconds", "candidates", "expected form: its place", "goals")
    found = _table(rows, "search", "Searches", head, _searched)
    return "\n\n".join(text for text in (found, _missed(rows), _greedy(rows)) if text) if found else ""


def _searched(r: Record) -> Sequence[str]:
    d, expected = r.details, r.check["expected"]
    places = ", ".join(f"{title}: {place or 'missing'}" for title, place in expected.items()) or "none"
    size = (str(d["e-nodes"]), str(d["rounds"]), d["stop"])
    return *size, f"{d['seconds']['total']:.2f}", str(len(d["candidates"])), places, "; ".join(faults(r)) or "met"


def faults(r: Record) -> list[str]:
    """What a search has missed, in words."""
    if "error" in r.check:
        return [_error(r)]
    out = [] if r.check["within goal"] else [f"above {r.check['goal']:g} s"]
    out += [f"stopped: {r.details['stop']}"] if r.outcome is not Outcome.OK else []
    for title, place in r.check["expected"].items():
        if place is None or place > FIRST:
            out.append(f"{title} is {'missing' if place is None else f'number {place}'}")
    return out


def _missed(rows: Rows) -> str:
    searches = [r for (part, _), found in rows.items() if part == "search" for r in found]
    bad = {r.workload["name"]: faults(r) for r in searches if faults(r)}
    if not bad:
        return f"All {len(searches)} searches meet their goals."
    said = "; ".join(f"{name} ({', '.join(why)})" for name, why in bad.items())
    return f"{len(bad)} of {len(searches)} searches miss a goal: {said}."


def _greedy(rows: Rows) -> str:
    """Searches that did not look at all graphs of their e-graph."""
    searches = {name: r for (part, name), found in rows.items() if part == "search" for r in found}
    cut = [name for name, r in searches.items() if any(n.startswith(LEFT_OUT) for n in r.details.get("notes", ()))]
    return f"Extraction met a limit, so that a better graph may be missing: {', '.join(cut)}." if cut else ""


def reducible(rows: Rows) -> str:
    head = ("workload", "e-nodes: on", "off", "candidates: on", "off", "with a split: on", "off", "seconds: on", "off")
    return _table(rows, "reducibility", "The reducibility constraint on and off", head, _reducible)


def _reducible(r: Record) -> Sequence[str]:
    on, off = r.details["on"], r.details["off"]
    more = {"e-nodes": "", "candidates": "+", "split": "+"}
    sizes = [f"{s[what]}{plus if s['cut'] else ''}" for what, plus in more.items() for s in (on, off)]
    return *sizes, *(f"{side['seconds']:.2f}" + _limited(side) for side in (on, off))


def _limited(side: Mapping[str, Any]) -> str:
    return "" if side["stop"] == "saturated" else f" ({side['stop']})"


def enumerated(rows: Rows) -> str:
    head = ("workload", "split", "nodes", "complete to", "graphs", "seconds", "equal", "verified", "expected form")
    return _table(rows, "enumeration", "Plain enumeration", head, _enumerated)


def _enumerated(r: Record) -> Sequence[str]:
    d = r.details
    said = ", ".join(f"{t} ({n} nodes): {'found' if f else 'not found'}" for t, (f, n) in d["expected"].items())
    limited = "" if d["stop"] == "complete" else " (limit)"
    figures = (str(d["nodes"]), str(d["complete"]), f"{d['graphs']:,}", f"{d['seconds']:.1f}{limited}")
    return d["split"] or "none", *figures, str(d["equal"]), str(d["verified"]), said or "none"


def verified(rows: Rows) -> str:
    head = ("workload", "candidate", "small shapes", "seconds", "full shapes", "seconds")
    return _table(rows, "verification", "Verification", head, _verified)


def _verified(r: Record) -> Sequence[str]:
    c, d = r.check, r.details
    why = f": {c['detail']}" if c.get("detail") else ""  # of one that passed: at which smaller sizes, and why
    return r.candidate["name"], c["small"], f"{d['small']:.2f}", c["full"] + why, f"{d['full']:.2f}"


# ---- the page


def with_tables(page: str, text: str) -> str:
    """A page with tables between its two marks."""
    return re.sub(f"{BEGIN}.*{END}", lambda _: f"{BEGIN}\n{text}{END}", page, flags=re.DOTALL)


def write_page(path: Path, text: str) -> None:
    path.write_text(with_tables(path.read_text(encoding="utf-8"), text), encoding="utf-8")
