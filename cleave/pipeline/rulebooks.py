"""Rulebooks are checked before they are used: rules that did not come with cleave, once for each content hash
of rulebook and tests.
"""

from __future__ import annotations

import functools
import os
from hashlib import sha256
from pathlib import Path

from cleave.codegen import cache
from cleave.errors import RuleError
from cleave.rewrite import discover
from cleave.rewrite.rule import Rule
from cleave.rewrite.rulebook import Rulebook

SUFFIX = ".rules"


def check_rulebook(book: Rulebook) -> tuple[str, ...]:
    """Property-test every rule of the user's, unless this very rulebook passed before; notes for the report.

    Errors: a rule with a counterexample, or one that never fires (RuleError with its place).
    """
    new = new_rules(book)
    if not new:
        return ()
    marker = cache.folder() / f"{sha256(f'{book.hash} {tests_hash()}'.encode()).hexdigest()}{SUFFIX}"
    if marker.exists():
        return (f"{_named(new)}: tested before (rulebook {book.hash[:12]})",)
    keep_out_of_the_working_directory()
    from cleave.testing import check_rule

    for rule in new:
        try:
            check_rule(rule, book)
        except RuleError as error:
            message = f"{error.message}; --without {rule.name} leaves it out"
            raise RuleError(message, location=rule.location) from None
    _remember(marker)
    return (f"{_named(new)}: no counterexample found",)


@functools.cache
def tests_hash() -> str:
    """Content hash of what tests rules: a rule that passed before is tested again once the tests are better."""
    folder = Path(__file__).parents[1] / "testing"
    return sha256(b"".join(path.read_bytes() for path in sorted(folder.rglob("*.py")))).hexdigest()


def new_rules(book: Rulebook) -> tuple[Rule, ...]:
    """Rules that are on and did not come with cleave (those are tested when it is)."""
    own = {path.resolve() for path in discover.rule_files(discover.BUILT_IN)}
    return tuple(rule for rule in book.rules if rule.file.resolve() not in own)


def keep_out_of_the_working_directory() -> None:
    """Hypothesis tests rules, and would leave a folder where the user happens to be."""
    os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", str(cache.folder().parent / "hypothesis"))


def forget() -> int:
    """Forget which rulebooks passed; how many that were."""
    markers = list(cache.folder().glob(f"*{SUFFIX}")) if cache.folder().is_dir() else []
    for marker in markers:
        marker.unlink(missing_ok=True)
    return len(markers)


def _named(rules: tuple[Rule, ...]) -> str:
    return f"rule{'s' * (len(rules) > 1)} {', '.join(rule.name for rule in rules)}"


def _remember(marker: Path) -> None:
    """A folder that can't be written costs the memory, not the result."""
    try:
        marker.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(marker, os.O_CREAT | os.O_WRONLY))
    except OSError:
        pass
