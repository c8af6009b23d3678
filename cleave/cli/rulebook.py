"""The command ``rules``: the table of the rulebook, and its checks."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cleave.cli.output import print_json, print_text
from cleave.cli.parser import EXIT_FAILED, EXIT_OK, BadInput
from cleave.config import meanings
from cleave.rewrite.rule import Rule
from cleave.rewrite.rulebook import Rulebook

if TYPE_CHECKING:
    from cleave.testing import GraphReport, Proof, RuleReport, Trial


_HOLDS = "proofs and tests of a rule say that it holds where what it assumes does"


def rules(options: argparse.Namespace) -> int:
    if options.action == "check":
        return _check(options)
    book = Rulebook.installed()
    if options.json:
        print_json([_row(rule) for rule in book.rules])
    else:
        print_text("\n".join([book.table(), "", *meanings(a for rule in book.rules for a in rule.assumes), _HOLDS]))
    return EXIT_OK


def _row(rule: Rule) -> dict[str, Any]:
    return {
        "name": rule.name,
        "family": rule.family,
        "says": rule.algebra,
        "class": str(rule.exactness),
        "assumes": list(rule.assumes),
        "guards": rule.guards,
        "proof": rule.proof,
        "source": rule.source,
    }


# ---- check


def _check(options: argparse.Namespace) -> int:
    """Test and try to prove each rule by itself; on request its mutants as well."""
    book, chosen = _chosen(options.files)
    _need_z3(chosen, mutants=options.mutants)
    from cleave.pipeline.rulebooks import keep_out_of_the_working_directory
    from cleave.testing import Outcome, examine_rule, prove_rule

    keep_out_of_the_working_directory()

    shown: list[dict[str, Any]] = []
    right = True
    for rule in chosen:
        tested, proof = examine_rule(rule, book), prove_rule(rule, book)
        trials = tuple(_trials(rule, book)) if options.mutants else ()
        right &= tested.outcome is Outcome.SOUND and not _overstated(rule, proof)
        right &= not any(trial.fate.is_fault for trial in trials)
        if options.json:
            shown.append(_as_dict(tested, proof) | ({"mutants": _mutants_dict(trials)} if options.mutants else {}))
        else:
            lines = [str(tested), f"{proof}{_overstated(rule, proof)}"]
            print_text("\n".join([*lines, *(_mutants_text(rule, trials) if options.mutants else ())]))
    for workload, report in _on_workloads(book) if options.workloads else ():
        right &= report.is_right
        if options.json:
            shown.append({"workload": workload, "faults": [str(f) for f in report.faults], "text": str(report)})
        else:
            print_text(f"{workload}: {report}")
    if options.json:
        print_json(shown)
    return EXIT_OK if right else EXIT_FAILED


def _on_workloads(book: Rulebook) -> Iterator[tuple[str, GraphReport]]:
    """Each workload under the rules and splits of a search; but for whole layers under all rules and splits, too."""
    from cleave.config import ASSUMPTIONS, Ablation, Config
    from cleave.nn.workloads import LAYERS, WORKLOADS
    from cleave.testing import examine_graph

    everything = Config(unsafe=True, assume=frozenset(ASSUMPTIONS), ablation=Ablation(reducibility=False))
    for workload in WORKLOADS:
        graph, _ = workload.build()
        yield str(workload), examine_graph(graph, book, weights=workload.weights)
        if workload not in LAYERS:
            report = examine_graph(graph, book, everything, weights=workload.weights)
            yield f"{workload}, all rules and splits", report


def _chosen(names: list[str]) -> tuple[Rulebook, list[Rule]]:
    """The rules of some files, beside all that is installed; without files those that are installed."""
    book = Rulebook.installed()
    if not names:
        return book, list(book.rules)
    files = {Path(f).resolve() for f in names}
    own = {f.path.resolve() for f in book.files}
    book = book.with_files(*(f for f in names if Path(f).resolve() not in own))
    chosen = [r for r in book.rules if r.file.resolve() in files]
    if not chosen:
        raise BadInput(f"{names[0]}: holds no rule")
    return book, chosen


def _need_z3(chosen: list[Rule], *, mutants: bool) -> None:
    """Rules are tested in every installation; claims of proofs, and mutants, are looked at only with z3."""
    from importlib.util import find_spec

    if find_spec("z3") is not None:
        return
    why = "--mutants" if mutants else next((f"the proof of {r.name}" for r in chosen if r.is_proved), None)
    if why is not None:
        raise BadInput(f"rules check: {why} needs z3-solver, which is not installed (pip install cleave[test])")


def _trials(rule: Rule, book: Rulebook) -> Iterator[Trial]:
    from cleave.testing import mutants, try_mutant

    return (try_mutant(mutant, book) for mutant in mutants(rule, book))


def _overstated(rule: Rule, proof: Proof) -> str:
    """What to say of a rule whose comment claims a proof that is none."""
    return f"; its comment says {rule.proof}" if rule.is_proved and not proof.proved else ""


# ---- what is printed


def _as_dict(tested: RuleReport, proof: Proof) -> dict[str, Any]:
    return {
        "rule": tested.subject,
        "outcome": str(tested.outcome),
        "instances": tested.instances,
        "text": str(tested),
        "proved": proof.proved,
        "proof": str(proof),
    }


def _mutants_dict(trials: tuple[Trial, ...]) -> list[dict[str, Any]]:
    return [{"change": t.mutant.change, "outcome": str(t.fate), "text": str(t)} for t in trials]


def _mutants_text(rule: Rule, trials: tuple[Trial, ...]) -> Iterator[str]:
    """How many met which fate, and one by one those that were not caught, with the reason."""
    counted = Counter(trial.fate for trial in trials)
    yield f"{rule.name}: {len(trials)} mutants: " + ", ".join(f"{n} {fate}" for fate, n in sorted(counted.items()))
    for trial in trials:
        if not trial.fate.is_caught:
            yield f"    {trial}"
