"""One rewrite rule as data: the equation, its conditions, and what the comment above it says.

; factor                                      name, as in :name
;   sum_k (a * b)  =  a * sum_k b             the algebra, indented
; class:   reassociates                       exact | reassociates | numerically-unsafe
; assumes: finite                             nothing, or of: finite, finite x, nonzero x, nonnegative x
; source:  distributivity
; guards:  a does not depend on k             in words; none if there are none
; proof:   proved                             or tested only: REASON; tested only if it is left out
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TypeAlias, TypeVar

from cleave.errors import RuleError, location_of
from cleave.rewrite.sexp import Command, Sexp, atoms, show, transform

Signature = Mapping[str, tuple[str, tuple[str, ...]]]
"""Constructor -> its sort and the sorts of its arguments, read off the datatypes."""

FIELDS = ("class", "assumes", "source", "guards")
OPTIONAL_FIELDS = ("proof",)
PROVED, TESTED_ONLY = "proved", "tested only"
_FIELD = re.compile(r"(?P<key>[a-z]+):\s*(?P<value>.*)")
_ASSUMPTION = re.compile(r"finite|(finite|nonzero|nonnegative) \S.*")
_PROOF = re.compile(rf"{PROVED}|{TESTED_ONLY}(: \S.*)?")
_VARIABLE = re.compile(r"[A-Za-z_]\w*")


class Exactness(StrEnum):
    """What a rule does to rounding.

    exact: no rounding changes. reassociates: equal over the reals, rounds in another order.
    numerically-unsafe: equal over the reals, may cancel or overflow.
    """

    EXACT = "exact"
    REASSOCIATES = "reassociates"
    UNSAFE = "numerically-unsafe"


@dataclass(frozen=True, slots=True)
class Rule:
    """lhs -> rhs with the body's definitions put in; ``conditions`` are the remaining facts of the body."""

    name: str
    family: str
    algebra: str
    exactness: Exactness
    assumes: tuple[str, ...]
    source: str
    guards: str
    proof: str  # PROVED for all sizes, or TESTED_ONLY and why; the tests of cleave hold its own rules to it
    lhs: Sexp
    rhs: Sexp
    variables: tuple[tuple[str, str], ...]  # (name, sort) of lhs and rhs, sorted by name
    conditions: tuple[Sexp, ...]
    definitions: tuple[tuple[str, Sexp], ...]  # what the body names, put into both sides; guards may speak of it
    command: Command
    file: Path

    @property
    def line(self) -> int:
        return self.command.line

    @property
    def location(self) -> str:
        return location_of(self.file, self.line)

    @property
    def text(self) -> str:
        """The egglog command, without its comment."""
        return self.command.text

    @property
    def kinds(self) -> frozenset[str]:
        """What is assumed, without of what: finite, nonzero, nonnegative."""
        return frozenset(assumption.split()[0] for assumption in self.assumes)

    @property
    def is_proved(self) -> bool:
        return self.proof == PROVED

    @property
    def fired(self) -> str:
        """Name of the relation in which the instrumented rule records its matches: one column a variable."""
        return f"Fired-{self.name}"


def signature_of(commands: Iterable[Command]) -> Signature:
    out: dict[str, tuple[str, tuple[str, ...]]] = {}
    for command in commands:
        if command.head == "datatype":
            sort, *variants = command.expression[1:]
            for variant in variants:
                constructor, *arguments = (show(part) for part in variant)
                out[constructor] = (show(sort), tuple(a for a in arguments if not a.startswith(":")))
    return out


def declared(command: Command) -> tuple[str, ...]:
    """Names of the functions, relations and constructors that a command declares."""
    match command.expression:
        case ("datatype", _, *variants):
            return tuple(show(variant[0]) for variant in variants)
        case ("constructor" | "function" | "relation", str(name), *_):
            return (name,)
        case _:
            return ()


def options_of(command: Command) -> dict[str, Sexp]:
    """`:key value` pairs of a command."""
    parts = command.expression
    return {part: parts[i + 1] for i, part in enumerate(parts[:-1]) if isinstance(part, str) and part.startswith(":")}


def read_rule(command: Command, family: str, file: Path, signature: Signature) -> Rule:
    """The rule that a named `rule` or `rewrite` command states. Raises RuleError with the place and every fault."""
    name = show(options_of(command)[":name"]).strip('"')
    faults: list[str] = []
    equation = _read(faults, lambda: _equation(command, signature))
    algebra, fields = _comment(command.comment, name, faults)
    exactness = _read(faults, lambda: _exactness(fields["class"])) if fields.get("class") else None
    assumes = _read(faults, lambda: _assumptions(fields["assumes"])) if fields.get("assumes") else None
    proof = _read(faults, lambda: _proof(fields.get("proof", TESTED_ONLY)))
    if faults or equation is None or exactness is None or assumes is None or proof is None:
        raise RuleError(f"rule {name}: {'; '.join(faults)}", location=location_of(file, command.line))
    lhs, rhs, conditions, definitions = equation
    return Rule(
        name=name,
        family=family,
        algebra=algebra,
        exactness=exactness,
        assumes=assumes,
        source=fields["source"],
        guards=fields["guards"],
        proof=proof,
        lhs=lhs,
        rhs=rhs,
        variables=_variables((lhs, rhs), signature),
        conditions=conditions,
        definitions=definitions,
        command=command,
        file=file,
    )


_T = TypeVar("_T")


def _read(faults: list[str], read: Callable[[], _T]) -> _T | None:
    """What is read; None with one more fault."""
    try:
        return read()
    except RuleError as error:
        faults.append(error.message)
        return None


# ---- comments ---------------------------------------------------------------------------------------------------


def _comment(lines: tuple[str, ...], name: str, faults: list[str]) -> tuple[str, dict[str, str]]:
    """The algebra and the fields; what is wrong with them goes to the faults."""
    algebra: list[str] = []
    fields: dict[str, str] = {}
    if not lines or lines[0] != name:
        found = repr(lines[0]) if lines else "nothing"
        faults.append(f"the comment above it must begin with its name, found {found}")
        if not lines:
            return "", fields
    latest = ""
    for line in lines[1:]:
        field = _FIELD.fullmatch(line)
        if field is not None:
            latest = field["key"]
            fields[latest] = field["value"].strip()
        elif not latest:
            algebra.append(line.strip())
        else:
            fields[latest] += " " + line.strip()
    allowed = FIELDS + OPTIONAL_FIELDS
    unknown = [repr(field) for field in fields if field not in allowed]
    if unknown:
        words = f"unknown field{'s' * (len(unknown) > 1)} {', '.join(unknown)}"
        faults.append(f"{words} in its comment; allowed are {', '.join(allowed)}")
    missing = ["the algebra"] * (not algebra) + [f"{field}:" for field in FIELDS if not fields.get(field)]
    if missing:
        faults.append(f"its comment lacks {', '.join(missing)}")
    return "\n".join(algebra), fields


def _exactness(word: str) -> Exactness:
    try:
        return Exactness(word)
    except ValueError:
        raise RuleError(f"class {word!r}; allowed are {', '.join(Exactness)}") from None


def _assumptions(words: str) -> tuple[str, ...]:
    if words == "nothing":
        return ()
    out = tuple(word.strip() for word in words.split(","))
    wrong = [repr(word) for word in out if not _ASSUMPTION.fullmatch(word)]
    if wrong:
        allowed = "nothing, finite, finite x, nonzero x, nonnegative x"
        raise RuleError(f"assumes {', '.join(wrong)}; allowed are {allowed}")
    return out


def _proof(words: str) -> str:
    if not _PROOF.fullmatch(words):
        raise RuleError(f"proof {words!r}; allowed are {PROVED}, {TESTED_ONLY}, {TESTED_ONLY}: REASON")
    return words


# ---- equations --------------------------------------------------------------------------------------------------


_Equation: TypeAlias = "tuple[Sexp, Sexp, tuple[Sexp, ...], tuple[tuple[str, Sexp], ...]]"


def _equation(command: Command, signature: Signature) -> _Equation:
    """(lhs, rhs, conditions, definitions). A variable that names a subterm is replaced by that subterm."""
    if command.head == "rewrite":
        conditions = options_of(command).get(":when", ())
        if isinstance(conditions, str):
            raise RuleError(":when takes a list of facts")
        return command.expression[1], command.expression[2], conditions, ()
    body, head = command.expression[1], command.expression[2]
    if isinstance(body, str) or isinstance(head, str):
        raise RuleError("a rule is (rule (fact ...) (action ...) ...)")
    definitions = dict(pair for fact in body if (pair := _definition(fact, signature)) is not None)
    lets = {show(action[1]): action[2] for action in head if isinstance(action, tuple) and action[0] == "let"}
    unions = [action for action in head if isinstance(action, tuple) and action[0] == "union"]
    if len(unions) != 1:
        raise RuleError(f"has {len(unions)} unions; one rule states one equation")
    lhs, rhs = (_inline(side, {**definitions, **lets}) for side in unions[0][1:])
    if isinstance(lhs, str):
        raise RuleError(f"its left side {lhs} is no pattern: the body must define it")
    conditions = tuple(fact for fact in body if _definition(fact, signature) is None)
    return lhs, rhs, conditions, tuple((name, _inline(definitions[name], definitions)) for name in definitions)


def _definition(fact: Sexp, signature: Signature) -> tuple[str, Sexp] | None:
    """(= x (Constructor ...)) -> (x, pattern)."""
    match fact:
        case ("=", str(name), tuple(pattern)) | ("=", tuple(pattern), str(name)) if pattern and pattern[0] in signature:
            return name, pattern
        case _:
            return None


def _inline(side: Sexp, definitions: Mapping[str, Sexp], depth: int = 0) -> Sexp:
    if depth > len(definitions):
        raise RuleError("its body defines a variable by itself")
    if not any(atom in definitions for atom in atoms(side)):
        return side
    return _inline(transform(side, lambda atom: definitions.get(atom, atom)), definitions, depth + 1)


def _variables(sides: Iterable[Sexp], signature: Signature) -> tuple[tuple[str, str], ...]:
    found: dict[str, str] = {}
    for side in sides:
        _collect(side, "E", signature, found)
    return tuple(sorted(found.items()))


def _collect(pattern: Sexp, sort: str, signature: Signature, found: dict[str, str]) -> None:
    if isinstance(pattern, str):
        if _VARIABLE.fullmatch(pattern):
            found.setdefault(pattern, sort)
        return
    _, sorts = signature.get(show(pattern[0]), ("", ()))  # egglog's check names unknown functions and wrong arities
    for part, expected in zip(pattern[1:], sorts, strict=False):
        _collect(part, expected, signature, found)
