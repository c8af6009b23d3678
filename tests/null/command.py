"""Commands of the command line, run in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from cleave.cli import main


class Run:
    """What a command printed, and its exit code."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def runner(capsys: pytest.CaptureFixture[str]) -> Callable[..., Run]:
    """A function that runs the words of a command."""

    def run(command: str) -> Run:
        capsys.readouterr()
        code = main(command.split())
        captured = capsys.readouterr()
        return Run(code, captured.out, captured.err)

    return run
