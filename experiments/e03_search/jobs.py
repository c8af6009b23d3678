"""What is measured of one workload, a function a part; each runs in a child process, so that a hang or a crash is a
row."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from cleave.candidate import Candidate
from cleave.config import Config, SearchLimits
from cleave.errors import CleaveError
from cleave.ir.generic import generic_graph, literals
from cleave.ir.graph import Graph
from cleave.records import Outcome, Record
from cleave.search import Found, Stop
from experiments.e03_search.config import (
    CASES,
    CHECK_SECONDS,
    ENUMERATION_SECONDS,
    FIRST,
    MOST_CANDIDATES,
    MOST_CHECKED,
    NODES,
    Case,
)
from experiments.e03_search.enumerate import Bounds, End, enumerated
from experiments.e03_search.forms import Source, expected_forms, splits_of
from experiments.e03_search.identity import identity, ranks
from experiments.e03_search.vocabulary import Vocabulary, node_count
from experiments.tally import Checked

_LIMITED = (Stop.ROUNDS, Stop.NODES, Stop.SECONDS, Stop.MEMORY)


def workload_of(part: str, case: Case) -> dict[str, Any]:
    return {"name": case.name, "group": case.group, "part": part}


def row(part: str, case: Case, outcome: Outcome, check: dict[str, Any], **details: Any) -> Record:
    """A record of one part of one workload, with the load of the machine at the end."""
    load = round(os.getloadavg()[0], 1)
    return Record(workload=workload_of(part, case), outcome=outcome, check=check, details={**details, "load": load})


def measure_search(name: str) -> Checked:
    """One search: its size, why it stopped, seconds, and where the expected forms are among the candidates."""
    case = CASES[name]
    found, seconds = _searched(case, Config(ablation=case.ablation))
    expected = _expected(case, found)
    outcome = Outcome.TIMEOUT if found.report.stop in _LIMITED else Outcome.OK
    check = {
        "expected": expected,
        "found": all(place is not None and place <= FIRST for place in expected.values()) if expected else None,
        "goal": case.goal,
        "within goal": seconds <= case.goal,
    }
    details = {**_size(found), "seconds": _seconds(found, seconds), "notes": list(found.report.notes)}
    made = row("search", case, outcome, check, **details, candidates=[c.name for c in found.candidates])
    return Checked([made], [f"{name}: {_said(found, seconds)}, expected {_places(expected)}"])


def _searched(case: Case, config: Config) -> tuple[Found, float]:
    from cleave.search import search

    graph, sizes = case.build(None)
    began = time.perf_counter()
    found = search(graph, config=config, sizes=sizes, weights=case.weights)
    return found, time.perf_counter() - began


def _size(found: Found) -> dict[str, Any]:
    rounds = found.report.rounds
    last = {"e-nodes": rounds[-1].nodes, "classes": rounds[-1].classes} if rounds else {"e-nodes": 0, "classes": 0}
    return {**last, "rounds": len(rounds), "stop": str(found.report.stop)}


def _seconds(found: Found, total: float) -> dict[str, float]:
    s = found.report.seconds
    parts = {"saturation": s.saturation, "extraction": s.extraction, "derivation": s.derivation}
    return {"total": round(total, 3), **{name: round(value, 3) for name, value in parts.items()}}


def _expected(case: Case, found: Found) -> dict[str, int | None]:
    forms = expected_forms(case.operator, found.candidates[0].origin)
    return ranks(forms, (c.graph for c in found.candidates))


def _said(found: Found, seconds: float) -> str:
    size = _size(found)
    return f"{size['e-nodes']} e-nodes, {size['rounds']} rounds, {size['stop']}, {seconds:.2f} s"


def _places(expected: dict[str, int | None]) -> str:
    return ", ".join(f"{title} {place or 'missing'}" for title, place in expected.items()) or "none"


def measure_reducibility(name: str) -> Checked:
    """The same search with the reducibility constraint and without: candidates are counted, so their derivations are
    no part of the seconds."""
    case = CASES[name]
    limits = SearchLimits() if case.group == "layers" else SearchLimits(candidates=MOST_CANDIDATES)
    sides: dict[str, Any] = {}
    for side, on in (("on", True), ("off", False)):
        config = Config(limits=limits, ablation=replace(case.ablation, reducibility=on))
        found, seconds = _searched(case, config)
        counts = {"candidates": len(found.candidates), "split": sum(bool(c.splits) for c in found.candidates)}
        cut = len(found.candidates) == limits.candidates
        spent = _seconds(found, seconds)
        sides[side] = {**_size(found), **counts, "cut": cut, "seconds": spent["saturation"] + spent["extraction"]}
    limited = any(side["stop"] in _LIMITED for side in sides.values())
    made = row("reducibility", case, Outcome.TIMEOUT if limited else Outcome.OK, {}, **sides)
    shown = "; ".join(
        f"{side} {s['e-nodes']} e-nodes, {s['candidates']} candidates, {s['seconds']:.2f} s"
        for side, s in sides.items()
    )
    return Checked([made], [f"{name}: {shown}"])


def measure_verification(name: str) -> Checked:
    """Seconds of checking the first two candidates that are not as written: at small sizes, and at the largest."""
    case = CASES[name]
    found, _ = _searched(case, Config(ablation=case.ablation))
    chosen = [c for c in found.candidates if c.steps][:2] or list(found.candidates[:1])
    _, largest = case.build(-1)
    out = Checked()
    for c in chosen:
        out.records.append(_verified(case, c, largest))
    out.lines = [
        f"{name}, {r.candidate['name']}: {r.check['small']}, {r.details['small']:.2f} s; "
        f"at full shapes {r.check['full']}, {r.details['full']:.2f} s"
        for r in out.records
    ]
    return out


def _verified(case: Case, c: Candidate, sizes: dict[str, int]) -> Record:
    from cleave.verify import verify
    from cleave.verify.final import check_at_shape

    began = time.perf_counter()
    verdict = verify(c)
    between = time.perf_counter()
    full = check_at_shape(c, sizes, np.random.default_rng(0))
    ended = time.perf_counter()
    good = verdict.passed and not full.outcome.failed
    check = {"small": str(verdict.outcome), "full": str(full.outcome), "detail": full.detail}
    if not verdict.passed:
        check["fault"] = verdict.summary()
    made = row(
        "verification",
        case,
        Outcome.OK if good else Outcome.WRONG,
        check,
        small=round(between - began, 3),
        full=round(ended - between, 3),
        sizes=sizes,
    )
    made.candidate.update(name=c.name, rules=list(c.rules))
    return made


def measure_enumeration(name: str) -> Checked:
    """Plain enumeration beside the search: unsplit, and for each axis that an expected form splits."""
    case = CASES[name]
    literal = case.build(None)[0]
    source = Source(generic_graph(literal, literals(literal)))
    out = Checked()
    try:
        if len(literal.outputs) != 1:
            raise CleaveError(f"{len(literal.outputs)} outputs: graphs of one are enumerated", location=literal.name)
        forms = {title: [g for g in graphs] for title, graphs in expected_forms(case.operator, source.graph).items()}
        for split in dict.fromkeys((None, *(split_of(g) for graphs in forms.values() for g in graphs))):
            mine = {title: [g for g in graphs if split_of(g) == split] for title, graphs in forms.items()}
            made = _enumerated(case, source, split, {title: graphs for title, graphs in mine.items() if graphs})
            out.records.append(made)
            out.lines.append(f"{name}, split {split or 'none'}: {made.check or made.details}")
    except CleaveError as error:
        out.records.append(row("enumeration", case, Outcome.SKIPPED, {"error": str(error)}))
    return out


def split_of(g: Graph) -> str | None:
    """The axis that a form splits."""
    return next((a.name.removesuffix("_o") for a in g.axes if a.kind == "outer"), None)


def _enumerated(case: Case, source: Source, split: str | None, forms: dict[str, list[Graph]]) -> Record:
    pieces = () if split is None else (source.pieces(split),)
    vocabulary = Vocabulary(source.graph, *pieces)
    sizes = {title: min(node_count(g.terms[0]) for g in graphs) for title, graphs in forms.items()}
    own = {} if split is not None else {"the graph": node_count(vocabulary.term)}
    smallest = min((own | sizes).values())
    name = {"name": f"split {split}" if split else "unsplit"}
    if smallest > NODES:
        error = f"{smallest} operators or more in {', '.join(own | sizes)}; the bound is {NODES}"
        made = row("enumeration", case, Outcome.SKIPPED, {"error": error}, split=split)
        return msgspec.structs.replace(made, candidate=name)
    found = enumerated(vocabulary, Bounds(NODES, ENUMERATION_SECONDS))
    graphs = {identity(g): g for g in (source.form(t, *pieces)[0] for t in found.equal)}
    wanted = {t: (any(identity(g) in graphs for g in forms[t]), sizes[t]) for t in forms}
    passed, checked = _checked(source.graph, list(graphs.values()))
    details = {
        "split": split,
        "nodes": node_count(vocabulary.term),
        "bound": NODES,
        "complete": found.complete,
        "graphs": found.graphs,
        "tested": found.tested,
        "seconds": round(found.seconds, 2),
        "stop": str(found.end),
        "equal": len(graphs),
        "verified": f"{passed} of {checked}",
        "expected": wanted,
    }
    outcome = Outcome.TIMEOUT if found.end is End.SECONDS else Outcome.OK
    return msgspec.structs.replace(row("enumeration", case, outcome, {}, **details), candidate=name)


def _checked(origin: Graph, graphs: list[Graph]) -> tuple[int, int]:
    """How many of the first few graphs verification passes, and how many were tried in the time there is."""
    from cleave.verify import References, verify

    known, began, passed, tried = References(origin), time.perf_counter(), 0, 0
    for g in graphs[:MOST_CHECKED]:
        if time.perf_counter() - began > CHECK_SECONDS:
            break
        splits = splits_of(g)
        passed += verify(
            Candidate("enumerated", g, origin, splits=splits, assumptions=("finite",)), references=known
        ).passed
        tried += 1
    return passed, tried


def measured(part: str, name: str) -> Checked:
    """One part of one workload."""
    return _PARTS[part](name)


_PARTS: dict[str, Any] = {
    "search": measure_search,
    "reducibility": measure_reducibility,
    "enumeration": measure_enumeration,
    "verification": measure_verification,
}
