"""The border to egglog: whether it accepts rule files. Imported here only, when called."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cleave.errors import RuleError, location_of

_MESSAGE = re.compile(r"In (?P<line>\d+):(?P<column>\d+)-.*? of [^\n]*?:\s(?P<rest>.*)", re.DOTALL)


def check(files: Iterable[tuple[Path, str]]) -> None:
    """Load the texts one after another. Raises RuleError with file, line and column where egglog refuses one."""
    from egglog import bindings

    egraph: Any = bindings.EGraph()
    for path, text in files:
        try:
            egraph.run_program(*egraph.parse_program(text, str(path)))
        except bindings.EggSmolError as error:
            raise _located(str(error), path) from None


def _located(message: str, path: Path) -> RuleError:
    found = _MESSAGE.search(message)
    if found is None:
        return RuleError(_one_line(message), location=str(path))
    *context, reason = [line.strip() for line in found["rest"].splitlines() if line.strip()] or ["refused by egglog"]
    shown = f"{reason} in {context[0]}" if context else reason
    return RuleError(_one_line(shown), location=location_of(path, int(found["line"]), int(found["column"])))


def _one_line(message: str) -> str:
    return " ".join(message.split())
