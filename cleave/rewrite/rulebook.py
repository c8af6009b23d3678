"""The rulebook: rule files read as data, and which of their rules are on."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from hashlib import sha256
from pathlib import Path

from cleave.config import ASSUMPTIONS
from cleave.errors import RuleError, location_of
from cleave.rewrite import discover, instrument, parser, table
from cleave.rewrite.rule import Exactness, Rule, Signature, declared, options_of, read_rule, signature_of
from cleave.rewrite.sexp import Command, read, show

REWRITING = frozenset({"rule", "rewrite", "birewrite"})
DECLARING = frozenset({"ruleset", "sort", "datatype", "constructor", "function", "relation"})
"""With ``REWRITING`` what a rule file may say. Others act: they run, state facts, read and write files."""

_UNION = re.compile(r"\(\s*union\b")
_ASSUMES = re.compile(r"; assumes: .*")
_NUMBER = re.compile(r"[1-9]\d*")
ANALYSIS = "analysis"


@dataclass(frozen=True, slots=True)
class RuleFile:
    """One .egg file: a family of named rules with what supports them, or declarations only."""

    path: Path
    text: str
    commands: tuple[Command, ...]
    rules: tuple[Rule, ...]

    @property
    def family(self) -> str:
        return self.path.stem


@dataclass(frozen=True, slots=True, repr=False)
class Rulebook:
    """Frozen; ``without`` and ``only`` give another one.

    book = Rulebook.default().without("reassoc")        names of rules or of families
    book.text()                                         what egglog loads
    """

    files: tuple[RuleFile, ...]
    disabled: frozenset[str] = frozenset()

    @staticmethod
    def installed() -> Rulebook:
        """Every rule of every registered package, numerically unsafe ones too."""
        return _installed()

    @staticmethod
    def default() -> Rulebook:
        """The installed rules that are not numerically unsafe."""
        book = Rulebook.installed()
        return replace(book, disabled=frozenset(r.name for r in book.rules if r.exactness is Exactness.UNSAFE))

    @staticmethod
    def from_files(paths: Iterable[str | Path]) -> Rulebook:
        """The rules of these files only, checked by egglog.

        Language and analysis are the built-in ones, unless a lang.egg or analysis.egg is among the files.
        """
        given = {path.stem: path for path in map(Path, paths)}
        support = {file.family: file.path for file in Rulebook.installed().files if not file.rules}
        return Rulebook(()).with_files(*sorted({**support, **given}.values(), key=discover.order))

    def with_files(self, *paths: str | Path) -> Rulebook:
        """Add rule files, checked by egglog. Raises RuleError or ParseError with file, line and column."""
        files = _read_files((Path(p) for p in paths), self.files)
        parser.check((file.path, file.text) for file in files)
        return replace(self, files=files)

    def with_rule(self, name: str, text: str, assumes: str | None = None) -> Rulebook:
        """The book in which the command of one rule reads ``text``, and its comment says that it ``assumes`` that.

        For tests of what tests rules: read as every rule is, and not checked by egglog.
        """
        rule, files = self.rule(name), list(self.files)
        for number, file in enumerate(files):
            if rule in file.rules:
                above, below = file.text[: rule.command.start], file.text[rule.command.end :]
                if assumes is not None:
                    *before, comment = above.rpartition(f"; {name}\n")
                    above = "".join([*before, _ASSUMES.sub(f"; assumes: {assumes}", comment, count=1)])
                others = (command for other in files if other is not file for command in other.commands)
                files[number] = _parsed(file.path, above + text + below, others)
        return replace(self, files=tuple(files))

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules that are on, in file order."""
        return tuple(rule for file in self.files for rule in file.rules if rule.name not in self.disabled)

    @property
    def families(self) -> tuple[str, ...]:
        """Families with a rule that is on; each is an egglog ruleset of the same name."""
        return tuple(dict.fromkeys(rule.family for rule in self.rules))

    @property
    def signature(self) -> Signature:
        return signature_of(command for file in self.files for command in file.commands)

    @property
    def hash(self) -> str:
        """Content hash of what is loaded, comments included."""
        return sha256(self.text().encode()).hexdigest()

    def rule(self, name: str) -> Rule:
        """The rule of that name, on or off."""
        self._names(name)
        found = [rule for rule in self._all() if rule.name == name]
        if not found:
            raise RuleError(f"{name} is a family, not a rule; its rules are {', '.join(sorted(self._names(name)))}")
        return found[0]

    def without(self, *names: str) -> Rulebook:
        """Switch rules or whole families off. Raises RuleError at a name that is neither."""
        return replace(self, disabled=self.disabled.union(*(self._names(name) for name in names)))

    def only(self, *names: str) -> Rulebook:
        """Switch everything off but these rules or families, which are switched on."""
        kept = frozenset[str]().union(*(self._names(name) for name in names))
        return replace(self, disabled=frozenset(rule.name for rule in self._all()) - kept)

    def assuming(self, kinds: Iterable[str]) -> Rulebook:
        """Switch off the rules that assume anything but these kinds: finite, nonzero, nonnegative."""
        allowed = frozenset(kinds)
        for kind in sorted(allowed - set(ASSUMPTIONS)):
            raise RuleError(f"no assumption {kind!r}; there are {', '.join(ASSUMPTIONS)}")
        return replace(self, disabled=self.disabled | {rule.name for rule in self._all() if not rule.kinds <= allowed})

    def everything(self) -> Rulebook:
        """Every rule of the book switched on."""
        return replace(self, disabled=frozenset())

    def with_text(self, name: str, text: str) -> Rulebook:
        """The book with another command in the place of a rule, under the same name and comment."""
        rule = self.rule(name)
        before: list[RuleFile] = []
        for file in self.files:
            if rule in file.rules:
                changed = file.text[: rule.command.start] + text + file.text[rule.command.end :]
                file = _parsed(file.path, changed, [c for f in before for c in f.commands])
            before.append(file)
        return replace(self, files=tuple(before))

    def text(self) -> str:
        """The egglog program: declarations, analysis, and the rules that are on."""
        return "\n".join("".join(self._pieces(file, instrumented=False)) for file in self.files)

    def instrumented_text(self) -> str:
        """As ``text``, and each named rule also records its match: (Fired-name variable ...)."""
        return "\n".join("".join(self._pieces(file, instrumented=True)) for file in self.files)

    def tick_text(self, number: int) -> str:
        """Program to run after round ``number``: dates new matches, (At-Fired-name variable ...) = number."""
        return instrument.tick(self.rules, number)

    def table(self) -> str:
        """Documentation of the rules that are on: equation, class, assumptions, guards, source."""
        return table.render(self.rules)

    def __repr__(self) -> str:
        off = f", off: {', '.join(sorted(self.disabled))}" if self.disabled else ""
        return f"Rulebook({len(self.rules)} rules in {', '.join(self.families)}{off})"

    def _all(self) -> Iterator[Rule]:
        return (rule for file in self.files for rule in file.rules)

    def _names(self, name: str) -> frozenset[str]:
        """Names of the rules that a rule or family name stands for."""
        found = frozenset(rule.name for rule in self._all() if name in (rule.name, rule.family))
        if not found:
            known = sorted({rule.name for rule in self._all()} | {rule.family for rule in self._all()})
            near = get_close_matches(name, known, n=3)
            hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(known)}"
            raise RuleError(f"no rule or family {name!r}; {hint}")
        return found

    def _pieces(self, file: RuleFile, *, instrumented: bool) -> Iterator[str]:
        """The file's text, with rules that are off left out and, if asked, rules replaced by recording ones."""
        by_start = {rule.command.start: rule for rule in file.rules}
        idle = bool(file.rules) and all(rule.name in self.disabled for rule in file.rules)
        at = 0
        for command in file.commands:
            rule = by_start.get(command.start)
            off = rule.name in self.disabled if rule else idle and command.head in REWRITING
            if off or (rule and instrumented):
                yield file.text[at : command.start]
                yield instrument.recording(rule) if rule and not off else ""
                at = command.end
        yield file.text[at:]


@cache
def _installed() -> Rulebook:
    names = discover.packages()
    book = Rulebook(_read_files(path for name in names for path in discover.rule_files(name)))
    if len(names) > 1:  # ours are checked by the tests
        parser.check((file.path, file.text) for file in book.files)
    return book


def _read_files(paths: Iterable[Path], before: tuple[RuleFile, ...] = ()) -> tuple[RuleFile, ...]:
    files = list(before)
    for path in paths:
        commands = [command for file in files for command in file.commands]
        files.append(_read_file(path, commands))
        _refuse_twice(files)
    _refuse_confused(files)
    return tuple(files)


def _read_file(path: Path, earlier: Iterable[Command]) -> RuleFile:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RuleError(f"can't be read as a rule file ({error})", location=str(path)) from None
    return _parsed(path, text, earlier)


def _parsed(path: Path, text: str, earlier: Iterable[Command]) -> RuleFile:
    commands = read(text, path)
    signature = signature_of([*earlier, *commands])
    rules: list[Rule] = []
    faults: list[RuleError] = []
    for command in commands:
        try:
            if _is_named(command, path):
                rules.append(read_rule(command, path.stem, path, signature))
        except RuleError as error:
            faults.append(error)
    if faults:
        first, *more = faults
        raise RuleError("; and at ".join([first.message, *map(str, more)]), location=first.location)
    return RuleFile(path, text, commands, tuple(rules))


def _is_named(command: Command, path: Path) -> bool:
    """Whether a command is a rule of the book; supporting rules (analysis, demand) have no name and no equation."""
    where = location_of(path, command.line)
    if command.head in DECLARING:
        return False
    if command.head not in REWRITING:
        allowed = ", ".join(sorted(DECLARING | REWRITING - {"birewrite"}))
        raise RuleError(f"{command.head} is not read; allowed are {allowed}", location=where)
    options = options_of(command)
    if command.head == "birewrite":
        raise RuleError("birewrite is not read; state the two directions as two named rules", location=where)
    rewrites = command.head == "rewrite" or _UNION.search(command.text) is not None
    if ":name" not in options:
        if rewrites:
            raise RuleError("a rule that rewrites needs a :name and a comment", location=where)
        return False
    ruleset = show(options.get(":ruleset", "()"))
    if ruleset != path.stem:
        name = show(options[":name"])
        raise RuleError(f"rule {name} has ruleset {ruleset}; in this file it must be {path.stem}", location=where)
    return True


def _refuse_confused(files: list[RuleFile]) -> None:
    """A name that is another one followed by a number: egglog makes such names itself, and takes one for the other."""
    places = {
        name: location_of(file.path, command.line)
        for file in files
        for command in file.commands
        for name in declared(command)
    }
    for name, where in places.items():
        for cut in range(1, len(name)):
            if name[:cut] in places and _NUMBER.fullmatch(name[cut:]):
                what = f"{name} is {name[:cut]} and a number, which egglog may take for one another"
                raise RuleError(f"{what}: another name is needed", location=where)


def _refuse_twice(files: list[RuleFile]) -> None:
    seen: dict[str, Rule] = {}
    for rule in (rule for file in files for rule in file.rules):
        if rule.name in seen:
            first = seen[rule.name].location
            raise RuleError(f"rule {rule.name} is already defined at {first}", location=rule.location)
        seen[rule.name] = rule
