"""The border to egglog: whether it accepts rule files, and a small session for testing rules. Imported when called."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

from cleave.errors import RuleError, location_of

_MESSAGE = re.compile(r"In (?P<line>\d+):(?P<column>\d+)-.*? of [^\n]*?:\s(?P<rest>.*)", re.DOTALL)


def check(files: Iterable[tuple[Path, str]]) -> None:
    """Load the texts one after another. Raises RuleError with file, line and column where egglog refuses one."""
    from egglog import bindings

    with Session() as session:
        for path, text in files:
            try:
                session.execute(text, str(path))
            except bindings.EggSmolError as error:
                raise _located(str(error), path) from None


def accepts(session: Session, text: str) -> bool:
    """Whether egglog takes a text after what a session holds, which stays as it was."""
    from egglog import bindings

    try:
        session.push(text)
    except bindings.EggSmolError:
        return False
    finally:
        session.pop()
    return True


class Session:
    """An e-graph loaded once and used for many small experiments, each forgotten by ``pop``.

    Loading all rules takes 20-40 ms, a push and a pop together under 1 ms. egglog's e-graph must die in the thread
    that made it, so ``with`` (or ``close``) drops it there: left to a traceback or another cycle, the garbage
    collector may find it from any thread.
    """

    def __init__(self, text: str = "") -> None:
        from egglog import bindings

        self._egraph: Any = bindings.EGraph()
        try:
            self.execute(text)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Forget the e-graph; the session is of no more use."""
        self._egraph = None

    def push(self, program: str) -> None:
        """Remember this point, then add declarations, facts and terms."""
        self.execute(f"(push)\n{program}")

    def execute(self, program: str, name: str | None = None) -> list[Any]:
        """Run a program, called ``name`` in messages; gives egglog's outputs."""
        return self._egraph.run_program(*self._egraph.parse_program(program, name))

    def pop(self) -> None:
        self.execute("(pop)")

    def run(self, schedule: str) -> dict[str, int]:
        """Run a schedule; gives the matches of every rule that has a name."""
        matches: dict[str, int] = dict(self.execute(f"(run-schedule {schedule})")[0].report.num_matches_per_rule)
        return {name: count for name, count in matches.items() if "(" not in name}

    def equal(self, left: str, right: str) -> bool:
        """Whether two terms are in the e-graph and in one class."""
        from egglog import bindings

        try:
            self.execute(f"(check (= {left} {right}))")
        except bindings.EggSmolError as error:
            if "Check failed" not in str(error):
                raise
            return False
        return True

    def nodes(self) -> dict[str, dict[str, Any]]:
        """Every node as egglog serializes it: op, children (names of nodes), eclass."""
        return json.loads(self.serialized())["nodes"]

    def serialized(self) -> str:
        """The e-graph as egglog's JSON."""
        return self._egraph.serialize([]).to_json()


def _located(message: str, path: Path) -> RuleError:
    found = _MESSAGE.search(message)
    if found is None:
        return RuleError(_one_line(message), location=str(path))
    *context, reason = [line.strip() for line in found["rest"].splitlines() if line.strip()] or ["refused by egglog"]
    shown = f"{reason} in {context[0]}" if context else reason
    return RuleError(_one_line(shown), location=location_of(path, int(found["line"]), int(found["column"])))


def _one_line(message: str) -> str:
    return " ".join(message.split())
