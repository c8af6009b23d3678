"""The rulebook: what is read from the rule files, selection, what egglog loads, and errors with their place."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from cleave.errors import CleaveError, ParseError, RuleError
from cleave.ir.op import MAPS
from cleave.rewrite import Exactness, Rulebook
from cleave.rewrite.parser import Session, check
from cleave.rewrite.sexp import read, show
from cleave.testing import check_rule
from cleave.testing.meaning import map_name
from cleave.testing.world import facts

GOOD = """\
; A family of one rule.
(ruleset extra)

; square
;   a * a  =  a^2
; class:   exact
; assumes: nothing
; source:  definition of the square
; guards:  none
(rewrite (Mul a a) (Sq a) :ruleset extra :name "square")
"""


def family(folder: Path, text: str) -> Path:
    path = folder / "extra.egg"
    path.write_text(text)
    return path


# ---- what is read -----------------------------------------------------------------------------------------------


def test_the_default_rulebook_has_the_families_and_no_unsafe_rule() -> None:
    book = Rulebook.default()
    assert book.families == ("contract", "definitions", "gather", "products", "reductions", "shift", "split")
    assert {rule.exactness for rule in book.rules} == {Exactness.EXACT, Exactness.REASSOCIATES}
    unsafe = {rule.name for rule in Rulebook.installed().rules} - {rule.name for rule in book.rules}
    assert unsafe == {"square-diff", "centred-sum", "linear-sub", "exp-sum"}


def test_a_rule_is_read_with_its_comment_and_its_equation() -> None:
    rule = Rulebook.default().rule("factor")
    assert (rule.family, rule.algebra) == ("products", "sum_k (a * b)  =  a * sum_k b")
    assert (rule.exactness, rule.assumes) == (Exactness.REASSOCIATES, ("finite",))
    assert rule.source.startswith("distributivity") and rule.guards == "a does not depend on k"
    assert rule.variables == (("a", "E"), ("b", "E"), ("k", "Ax"))
    assert show(rule.lhs) == "(Red (Sum) k (Mul a b))"
    assert show(rule.rhs) == "(Mul a (Red (Sum) k b))"
    assert [show(fact) for fact in rule.conditions] == ["(= sa (axes a))", "(set-not-contains sa k)"]
    assert rule.file.read_text().splitlines()[rule.line - 1].startswith("(rule")


def test_a_rule_that_says_nothing_of_a_proof_is_tested_only(tmp_path: Path) -> None:
    for line, proof, proved in (
        ("", "tested only", False),
        ("\n; proof:   proved", "proved", True),
        ("\n; proof:   tested only: no lemma\n;          about squares", "tested only: no lemma about squares", False),
    ):
        text = GOOD.replace("; guards:  none", f"; guards:  none{line}")
        rule = Rulebook.from_files([family(tmp_path, text)]).rule("square")
        assert (rule.proof, rule.is_proved) == (proof, proved)


def test_definitions_of_the_body_are_put_into_both_sides() -> None:
    rule = Rulebook.default().rule("telescope")
    chunk = "(Red (MaxOf) (Inner k S) s)"
    total = f"(Red (MaxOf) (Outer k S) {chunk})"
    assert show(rule.lhs) == f"(ExpDiff s {total})"
    assert show(rule.rhs) == f"(Mul (ExpDiff s {chunk}) (ExpDiff {chunk} {total}))"
    assert rule.variables == (("S", "Dim"), ("k", "Ax"), ("s", "E"))


def test_every_map_of_the_graph_has_its_constructor_and_the_other_way_round() -> None:
    other = {"Leaf", "Const", "NegInf", "Size", "Cast", "Where", "TopK", "Red"}
    constructors = {name for name, (sort, _) in Rulebook.default().signature.items() if sort == "E"}
    assert {map_name(name) for name in constructors - other} == set(MAPS)


def test_every_constructor_has_a_line_in_the_analysis() -> None:
    analysis = next(file for file in Rulebook.default().files if file.family == "analysis")
    for name, (sort, _) in Rulebook.default().signature.items():
        if sort == "E" and name != "Leaf":  # the axes of a leaf are a fact
            assert f"({name}" in analysis.text, name


def test_the_rules_are_read_without_egglog() -> None:
    code = "import sys, cleave.rewrite as r; r.Rulebook.default().table(); print('egglog' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_the_installed_files_load() -> None:
    check((file.path, file.text) for file in Rulebook.installed().files)


# ---- selection --------------------------------------------------------------------------------------------------


def test_without_takes_rules_and_families() -> None:
    book = Rulebook.default()
    names = {rule.name for rule in book.rules}
    assert {rule.name for rule in book.without("telescope").rules} == names - {"telescope"}
    assert book.without("shift", "split").families == ("contract", "definitions", "gather", "products", "reductions")
    assert '"telescope"' not in book.without("shift").text() and '"telescope"' in book.text()


def test_only_takes_rules_and_families_and_switches_them_on() -> None:
    book = Rulebook.default().only("split", "factor", "centred-sum")
    assert [rule.name for rule in book.rules] == ["centred-sum", "factor", "split-red"]
    assert book.families == ("expand", "products", "split")


def test_assuming_takes_what_assumes_no_more() -> None:
    book = Rulebook.installed()
    assert {rule.name for rule in book.rules} - {rule.name for rule in book.assuming({"finite"}).rules} == {
        "centred-sum"
    }
    without = {rule.name for rule in book.assuming(()).rules}
    products = {"comm-mul", "comm-add", "bring-out", "param-fold", "abs-rsqrt"}
    sums = {"linear-sum", "merge-sums", "exchange"}
    assert without == products | sums | {"split-red", "telescope", "mul-self", "mul-one", "add-zero"}
    assert book.rule("max-shift").assumes == ("finite c",) and book.rule("max-shift").kinds == {"finite"}
    assert len(book.assuming({"finite", "nonzero"}).rules) == len(book.rules)


def test_a_family_without_rules_takes_its_supporting_rules_with_it(tmp_path: Path) -> None:
    support = "(relation Square (E))\n(rule ((= e (Sq a))) ((Square e)) :ruleset extra)\n"
    book = Rulebook.default().with_files(family(tmp_path, GOOD.replace("\n; square", support + "\n; square")))
    assert "((Square e)" in book.text()
    without = book.without("extra").text()
    assert "((Square e)" not in without and "(ruleset extra)" in without


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("telescop", "no rule or family 'telescop'; did you mean telescope?"),
        ("prodcts", "no rule or family 'prodcts'; did you mean products?"),
        ("xyzzy", "no rule or family 'xyzzy'; there are "),
    ],
)
def test_an_unknown_name_is_answered_with_near_ones(name: str, message: str) -> None:
    for choose in (Rulebook.default().without, Rulebook.default().only, Rulebook.default().rule):
        with pytest.raises(RuleError) as error:
            choose(name)
        assert str(error.value).startswith(message)


def test_a_family_is_no_rule() -> None:
    with pytest.raises(RuleError, match="split is a family, not a rule; its rules are split-red"):
        Rulebook.default().rule("split")


def test_the_hash_follows_the_content() -> None:
    book = Rulebook.default()
    assert book.hash == Rulebook.default().hash != book.without("factor").hash
    assert book.without("factor").hash == book.without("factor", "factor").hash
    assert len(book.hash) == 64


def test_a_rulebook_shows_what_is_on() -> None:
    assert repr(Rulebook.default().only("split")).startswith("Rulebook(1 rules in split, off: abs-mul, ")


# ---- what egglog loads ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["default", "installed"])
def test_plain_and_instrumented_text_load(name: str) -> None:
    book: Rulebook = getattr(Rulebook, name)()
    for selected in (
        book,
        *(book.without(family) for family in book.families),
        *(book.only(r.name) for r in book.rules),
    ):
        check([(Path("plain.egg"), selected.text())])
        check([(Path("recording.egg"), selected.instrumented_text() + selected.tick_text(1))])


def test_an_instrumented_rule_records_its_variables_and_the_round() -> None:
    book = Rulebook.default().only("split", "shift")
    with Session(book.instrumented_text() + facts()) as session:
        session.push('(let $root (ExpDiff (Leaf 0) (Red (MaxOf) (A "k") (Leaf 0))))')
        for number in (1, 2, 3):
            session.run("(seq (saturate (run analysis)) (run shift) (run split) (saturate (run analysis)))")
            session.execute(book.tick_text(number))
        nodes = session.nodes()
        records = {node["op"]: node for node in nodes.values() if "Fired-" in node["op"]}
        (fired,) = [node for op, node in records.items() if op == "Fired-telescope"]
        assert [nodes[child]["op"] for child in fired["children"]] == ["DSym", "A", "Leaf"]  # S, k, s
        numbers = {node["eclass"]: node["op"] for node in nodes.values() if node["op"].isdigit()}
        rounds = {op: numbers[node["eclass"]] for op, node in records.items() if op.startswith("At-")}
        assert rounds["At-Fired-split-red"] == "1"
        assert rounds["At-Fired-telescope"] == "2"


def test_recording_changes_nothing_else() -> None:
    def classes(text: str) -> dict[str, int]:
        with Session(text + facts()) as session:
            session.push('(let $root (Red (Sum) (A "k") (Mul (Mul (Leaf 3) (Leaf 1)) (Leaf 2))))')
            schedule = "(seq (saturate (run analysis)) (run products) (run split) (saturate (run analysis)))"
            for _ in range(4):
                session.run(schedule)
            nodes = session.nodes().values()
            return {op: len({n["eclass"] for n in nodes if n["op"] == op}) for op in ("Mul", "Red", "Leaf")}

    book = Rulebook.default()
    assert classes(book.text()) == classes(book.instrumented_text())


# ---- documentation ----------------------------------------------------------------------------------------------


def test_the_table_has_a_line_a_rule() -> None:
    book = Rulebook.installed()
    lines = book.table().splitlines()
    assert lines[0] == "| rule | family | says | class | assumes | guards | proof | source |"
    assert len(lines) == 2 + len(book.rules)
    (factor,) = [line for line in lines if line.startswith("| factor |")]
    assert "| sum_k (a * b) = a * sum_k b | reassociates | finite | a does not depend on k | proved |" in factor
    cells = {line.replace("\\|", "").count("|") for line in lines}
    assert cells == {9}


# ---- files of users ---------------------------------------------------------------------------------------------


def test_a_users_file_is_added_and_selected(tmp_path: Path) -> None:
    book = Rulebook.default().with_files(family(tmp_path, GOOD))
    assert book.families[-1] == "extra" and book.rule("square").location.endswith("extra.egg:10")
    alone = Rulebook.from_files([family(tmp_path, GOOD)])
    assert [rule.name for rule in alone.rules] == ["square"]
    check([(Path("alone.egg"), alone.instrumented_text())])


WRONG = {
    "never closed": (GOOD + "(rule ((= e (Mul a b))", ParseError, r"extra\.egg:11:1: \( is never closed"),
    "one too many": (GOOD + "  )", ParseError, r"extra\.egg:11:3: unmatched \)"),
    "an open string": (GOOD.replace('"square")', '"square)'), ParseError, r'extra\.egg:10:\d+: " is never closed'),
    "a bare word": ("ruleset extra", ParseError, r"extra\.egg:1:1: ruleset stands outside every command"),
    "an unbound function in an equation": (
        GOOD.replace("(Sq a)", "(Square a)"),
        RuleError,
        r"extra\.egg:10:\d+: Unbound function Square in \(Square a\)",
    ),
    "an unbound function in a guard": (
        GOOD.replace("(Sq a) :ruleset", "(Sq a) :when ((Nice a)) :ruleset"),
        RuleError,
        r"extra\.egg:10:\d+: Unbound function Nice in \(Nice a\)",
    ),
    "an unbound variable": (
        GOOD.replace("(Sq a)", "(Sq b)"),
        RuleError,
        r"extra\.egg:10:\d+: Unbound symbol b",
    ),
    "a wrong arity": (GOOD.replace("(Sq a)", "(Sq a a)"), RuleError, r"extra\.egg:10:\d+: .*\(Sq a a\)"),
    "a wrong sort": (GOOD.replace("(Sq a)", "(Size a)"), RuleError, r"extra\.egg:10:\d+: .*a"),
    "no comment": ("(ruleset extra)\n" + GOOD.splitlines()[-1], RuleError, r"extra\.egg:2: rule square: .*begin with"),
    "another name above": (GOOD.replace("; square", "; cube"), RuleError, r"begin with its name, found 'cube'"),
    "no algebra": (GOOD.replace(";   a * a  =  a^2\n", ""), RuleError, r"extra\.egg:9: .*lacks the algebra"),
    "no class": (
        GOOD.replace("; class:   exact\n", ""),
        RuleError,
        r"extra\.egg:9: rule square: its comment lacks class:",
    ),
    "no assumption": (GOOD.replace("; assumes: nothing\n", ""), RuleError, r"lacks assumes:"),
    "no source": (GOOD.replace("definition of the square", ""), RuleError, r"lacks source:"),
    "no guards": (GOOD.replace("; guards:  none\n", ""), RuleError, r"lacks guards:"),
    "an unknown class": (
        GOOD.replace("exact", "right"),
        RuleError,
        r"class 'right'; allowed are exact, reassociates, ",
    ),
    "an unknown assumption": (
        GOOD.replace("nothing", "luck"),
        RuleError,
        r"assumes 'luck'; allowed are nothing, finite",
    ),
    "an unknown field": (
        GOOD.replace("; source:", "; origin:"),
        RuleError,
        r"unknown field 'origin' in its comment; allowed are class",
    ),
    "an unknown proof": (
        GOOD.replace("; guards:  none", "; guards:  none\n; proof:   surely"),
        RuleError,
        r"rule square: proof 'surely'; allowed are proved, tested only, tested only: REASON",
    ),
    "several faults": (
        GOOD.replace("exact", "right").replace("nothing", "luck, fate").replace("; source:", "; origin:"),
        RuleError,
        r"extra\.egg:10: rule square: unknown field 'origin' in its comment; allowed are class, assumes, .*, "
        r"proof; its comment lacks source:; class 'right'; allowed are .*; assumes 'luck', 'fate'; allowed are nothing",
    ),
    "faults of two rules": (
        GOOD.replace("exact", "right") + GOOD.replace("square", "cube").replace("nothing", "luck"),
        RuleError,
        r"extra\.egg:10: rule square: class 'right'; allowed .*; and at .*extra\.egg:\d+: rule cube: assumes 'luck'",
    ),
    "another ruleset": (
        GOOD.replace(":ruleset extra", ":ruleset products"),
        RuleError,
        r"extra\.egg:10: rule \"square\" has ruleset products; in this file it must be extra",
    ),
    "no name": (GOOD.replace(' :name "square"', ""), RuleError, r"extra\.egg:10: a rule that rewrites needs a :name"),
    "both directions": (GOOD.replace("(rewrite", "(birewrite"), RuleError, r"extra\.egg:10: birewrite is not read"),
    "a file that is written": (
        GOOD + '(output "stolen.txt" (Neg (NegInf)))',
        RuleError,
        r"extra\.egg:11: output is not read; allowed are constructor, ",
    ),
    "a file that is read": (GOOD + '(include "other.egg")', RuleError, r"extra\.egg:11: include is not read"),
    "a run": (GOOD + "(run 10)", RuleError, r"extra\.egg:11: run is not read"),
    "a fact": (GOOD + "(union (NegInf) (Neg (NegInf)))", RuleError, r"extra\.egg:11: union is not read"),
    "a rule without a name, laid out": (
        "(ruleset extra)\n(rule ((= e (Exp a))) ((union\n e a)) :ruleset extra)",
        RuleError,
        r"extra\.egg:2: a rule that rewrites needs a :name",
    ),
    "a name in use": (GOOD.replace("square", "factor"), RuleError, r"extra\.egg:10: rule factor is already defined at"),
    "two equations": (
        GOOD.replace("(rewrite (Mul a a) (Sq a)", "(rule ((= e (Mul a a))) ((union e (Sq a)) (union e (Mul a a)))"),
        RuleError,
        r"has 2 unions; one rule states one equation",
    ),
    "a left side that nothing defines": (
        GOOD.replace("(rewrite (Mul a a) (Sq a)", "(rule ((Param a)) ((union a (Sq a)))"),
        RuleError,
        r"its left side a is no pattern",
    ),
    "a name that egglog would confuse": (
        GOOD + "(relation Seen (E))\n(constructor Sq12 (E) E)",
        RuleError,
        r"extra\.egg:12: Sq12 is Sq and a number, which egglog may take for one another",
    ),
    "not enough parts": ('(rule :ruleset extra :name "square")', RuleError, r"a rule is \(rule \(fact"),
}


@pytest.mark.parametrize("title", WRONG)
def test_a_wrong_file_is_refused_with_its_place(title: str, tmp_path: Path) -> None:
    text, kind, message = WRONG[title]
    with pytest.raises(CleaveError, match=message) as error:
        Rulebook.default().with_files(family(tmp_path, text))
    assert isinstance(error.value, kind)
    assert "\n" not in str(error.value) and "extra.egg:" in str(error.value)


def test_a_missing_file_and_a_binary_one_are_named(tmp_path: Path) -> None:
    with pytest.raises(RuleError, match=r"none\.egg: can't be read as a rule file"):
        Rulebook.from_files([tmp_path / "none.egg"])
    binary = tmp_path / "binary.egg"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RuleError, match=r"binary\.egg: can't be read as a rule file"):
        Rulebook.from_files([binary])


def test_expressions_print_as_they_were_read() -> None:
    text = '(rule ((= e (Cast "float 16" x))) ((union e x)) :name "a;b")'
    (command,) = read(f"; above\n{text} ; beside\n", Path("x.egg"))
    assert show(command.expression) == text
    assert (command.line, command.comment, command.text) == (2, ("above",), text)


def test_an_e_graph_ends_in_its_own_thread() -> None:
    """egglog complains from the garbage collector where an e-graph dies in another thread than it was made in."""
    held: list[object] = []
    with pytest.raises(RuleError) as refused:
        check([(Path("wrong.egg"), "(rule () ((no-such-thing)))")])
    with pytest.raises(ZeroDivisionError) as failed, Session(Rulebook.default().text()):
        _ = 1 // 0
    report = check_rule("split-red", examples=3, seed=1)
    held += [refused, failed, report, held]  # a cycle, which only the collector ends
    refused, failed, report = None, None, None
    complaints: list[object] = []
    hook, sys.unraisablehook = sys.unraisablehook, lambda unraisable: complaints.append(unraisable.exc_value)
    try:
        held = []
        collector = threading.Thread(target=gc.collect)
        collector.start()
        collector.join()
    finally:
        sys.unraisablehook = hook
    assert not complaints
