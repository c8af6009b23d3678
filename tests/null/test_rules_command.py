"""The command ``rules``, and packages of rules that register themselves, from installation to the message."""

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cleave_rules
import pytest

from tests.null.test_cli import Run
from tests.null.test_cli import cleave as cleave

SPLIT = Path(next(iter(cleave_rules.__path__))) / "split.egg"


def test_rules_are_listed(cleave: Callable[..., Run]) -> None:
    found = cleave("rules")
    assert found.code == 0 and "| telescope | shift |" in found.out
    assert "| guards | proof | source |" in found.out and " | proved | " in found.out
    assert (
        "\nassumes finite: every value inside is a number: no -inf of a mask or of a maximum over nothing" in found.out
    )
    rows = {r["name"]: r for r in cleave("rules --json").json}
    assert rows["factor"]["proof"] == rows["split-red"]["proof"] == "proved"


def test_rules_are_checked(cleave: Callable[..., Run], tmp_path: Path) -> None:
    found = cleave(f"rules check {SPLIT}")
    assert found.code == 0 and found.out.startswith("split-red: no counterexample in ")
    assert "split-red: proved, by normal form in " in found.out
    wrong = tmp_path / "wrong.egg"
    wrong.write_text(f"(ruleset wrong)\n{rule('always-zero', '(Exp a)', 'a', 'wrong')}")
    found = cleave(f"rules check {wrong}")
    assert found.code == 1 and "always-zero: counterexample" in found.out
    assert "always-zero: not proved, Exp(a)  is not  a, as for a = " in found.out
    for command in ("search", "explain"):
        found = cleave(f"{command} matmul --rules {wrong}")
        assert found.code == 2 and "counterexample" in found.err


def test_mutants_of_rules_are_tried(cleave: Callable[..., Run]) -> None:
    found = cleave(f"rules check {SPLIT} --mutants")
    assert found.code == 0 and "split-red: 9 mutants: 9 refuted" in found.out
    (row,) = cleave(f"rules check {SPLIT} --mutants --json").json
    assert row["proved"] is True and len(row["mutants"]) == 9
    assert {m["outcome"] for m in row["mutants"]} == {"refuted"} and row["mutants"][0]["change"]


def test_rules_are_checked_on_workloads(cleave: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> None:
    from cleave.nn import workloads

    monkeypatch.setattr(workloads, "WORKLOADS", workloads.WORKLOADS[:1])
    found = cleave(f"rules check {SPLIT} --workloads")
    lines = [line for line in found.out.splitlines() if line.startswith("matmul prefill")]
    assert found.code == 0 and len(lines) == 2 and ", all rules and splits: " in lines[1]
    assert all("every e-node has the value of its class; " in line for line in lines), found.out
    rows = cleave(f"rules check {SPLIT} --workloads --json").json
    assert [row["faults"] for row in rows if "workload" in row] == [[], []]


def test_without_z3_rules_are_tested_and_claims_of_proofs_are_refused(
    cleave: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plain installation tests what it is given; what it can't look at is said, and nothing goes on unsaid."""
    monkeypatch.setitem(sys.modules, "z3", None)
    own = tmp_path / "odd.egg"
    own.write_text(f"(ruleset odd)\n\n{SOUND}{UNSOUND}")
    found = cleave(f"rules check {own}")
    assert found.code == 1 and "tanh-odd: no counterexample" in found.out and "tanh-even: counterexample" in found.out
    shifted = rule("shifted", "(ExpDiff (Add a c) (Add b c))", "(ExpDiff a b)").replace("nothing", "finite")
    own.write_text(f"(ruleset odd)\n\n{shifted}")
    found = cleave(f"rules check {own}")
    assert found.code == 0 and "shifted: proved assuming finite, by normal form" in found.out, found.err
    claimed = cleave(f"rules check {SPLIT}")
    assert claimed.code == 2 and claimed.out == ""
    assert "the proof of split-red needs z3-solver, which is not installed (pip install cleave[test])" in claimed.err
    mutants = cleave(f"rules check {own} --mutants")
    assert mutants.code == 2 and "--mutants needs z3-solver" in mutants.err


def test_rules_check_leaves_nothing_behind(tmp_path: Path) -> None:
    found = command("rules", "check", str(SPLIT), cwd=tmp_path, CLEAVE_CACHE=str(tmp_path / "c" / "kernels"))
    assert found.returncode == 0 and {p.name for p in tmp_path.iterdir()} <= {"c"}


# ---- packages that register rules


def rule(name: str, left: str, right: str, family: str = "odd") -> str:
    comment = f"; {name}\n;   x  =  y\n; class:   exact\n; assumes: nothing\n; source:  none\n; guards:  none\n"
    return f'{comment}(rewrite {left} {right} :ruleset {family} :name "{name}")\n\n'


SOUND = rule("tanh-odd", "(Tanh (Neg a))", "(Neg (Tanh a))")
UNSOUND = rule("tanh-even", "(Neg (Tanh a))", "(Tanh a)")
PROGRAM = """
from cleave import ops

def odd(x: "m k", y: "k n"):
    return ops.einsum("mk,kn->mn", ops.tanh(-x), y)
"""


def install(folder: Path, text: str | None, package: str = "odd_rules") -> None:
    """What ``pip install`` leaves of a package that registers rules: its files and its metadata."""
    if text is not None:
        (folder / "odd_rules").mkdir()
        (folder / "odd_rules" / "__init__.py").touch()
        (folder / "odd_rules" / "odd.egg").write_text(text)
    info = folder / "odd_rules-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: odd_rules\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[cleave.rules]\nodd = {package}\n")


def command(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command line in a process that sees the packages installed in ``cwd``."""
    seen: dict[str, Any] = {**os.environ, "PYTHONPATH": str(cwd), **environment}
    line = [sys.executable, "-m", "cleave.cli", *arguments]
    return subprocess.run(line, capture_output=True, text=True, cwd=cwd, env=seen, check=False)


def seconds_of_children() -> float:
    """Of CPU; of those that have ended."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime


def test_of_a_registered_file_the_sound_rule_fires_and_the_unsound_one_is_refused(tmp_path: Path) -> None:
    install(tmp_path, f"(ruleset odd)\n\n{SOUND}{UNSOUND}")
    (tmp_path / "program.py").write_text(PROGRAM)
    cache = str(tmp_path / "cache" / "kernels")
    began = seconds_of_children()
    refused = command("search", "program.py:odd", cwd=tmp_path, CLEAVE_CACHE=cache)
    refused_at = seconds_of_children()
    assert refused.returncode == 2 and refused.stdout == ""
    assert refused.stderr.startswith("cleave: odd_rules/odd.egg:17: tanh-even: counterexample in ")
    assert ": off by " in refused.stderr and ", in (Neg (Tanh " in refused.stderr
    assert refused.stderr.endswith("; --without tanh-even leaves it out\n") and refused.stderr.count("\n") == 1
    accepted = command("search", "program.py:odd", "--without", "tanh-even", cwd=tmp_path, CLEAVE_CACHE=cache)
    assert refused_at - began < 2 * (seconds_of_children() - refused_at), "the counterexample takes long to be found"
    assert accepted.returncode == 0 and "tanh-odd" in accepted.stdout, accepted.stderr
    assert "rule tanh-odd: no counterexample found" in accepted.stdout + accepted.stderr
    listed = command("rules", cwd=tmp_path)
    assert "| tanh-odd | odd | x = y | exact | nothing | none | tested only | none |" in listed.stdout


# text of the file: what stands on stderr after "cleave: " and the path of the file
BAD = {
    f"(ruleset odd)\n\n{SOUND})": ":11:1: unmatched )",
    f"(ruleset odd)\n\n{SOUND}{SOUND}": ":17: rule tanh-odd is already defined at ",
    f"(ruleset odd)\n\n{rule('factor', '(Tanh (Neg a))', '(Neg (Tanh a))')}": ":9: rule factor is already defined at ",
    f"(ruleset odd)\n\n{SOUND}".replace("; source:", "; origin:"): ":9: rule tanh-odd: unknown field 'origin' in its",
    f"(ruleset odd)\n\n{SOUND}".replace("Neg", "Minus"): ":9:16: Unbound function Minus in (Minus a)",
}


@pytest.mark.parametrize("text", BAD, ids=["syntax", "twice", "name in use", "metadata", "function"])
def test_a_bad_registered_file_is_one_line_with_its_place(text: str, tmp_path: Path) -> None:
    install(tmp_path, text)
    found = command("rules", cwd=tmp_path)
    assert found.returncode == 2 and found.stdout == "" and found.stderr.count("\n") == 1, found.stderr
    assert found.stderr.startswith(f"cleave: odd_rules/odd.egg{BAD[text]}"), found.stderr


def test_a_registered_package_that_is_not_there_is_named(tmp_path: Path) -> None:
    install(tmp_path, None, "absent_rules")
    found = command("rules", cwd=tmp_path)
    assert found.returncode == 2 and found.stdout == ""
    assert found.stderr == (
        "cleave: the rules of package absent_rules can't be imported (No module named 'absent_rules')\n"
    )
