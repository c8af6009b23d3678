"""Notebooks run from their first cell to the last, and every stage shows something."""

import html
import os
from pathlib import Path
from typing import Any

import jupytext
import nbclient
import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.py"))

SHOWN = {
    "attention": (
        "graph attention",
        "stop reason: saturated",
        "fold over t",
        "final test, graph half: passed",
        "0 spills",
    ),
    "algebra": (
        "telescope at out",
        "holds on 3 instances",
        "1. **",
        "which no rule takes through round",
        "equal: 3 different equations lead from a to b",
        "different: this instance tells them apart",
        "nearest: the guard of param-fold: b depends on weights only",
        "1 tanh-odd at out",
        "log-of-sum",
    ),
}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("default")  # those of Jupyter's own machinery
def test_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONWARNINGS", "ignore::DeprecationWarning")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(path.parents[1]), os.environ.get("PYTHONPATH", "")]))
    notebook = jupytext.read(path)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = "\n".join(_text(output) for cell in notebook.cells for output in cell.get("outputs", ()))
    for words in SHOWN[path.stem]:
        assert words in shown, f"{words!r} is not shown"


def _text(output: Any) -> str:
    """What a cell printed or displayed."""
    data = output.get("data", {})
    return str(output.get("text", "")) + str(data.get("text/plain", "")) + html.unescape(str(data.get("text/html", "")))


def test_there_are_notebooks() -> None:
    assert {path.stem for path in NOTEBOOKS} == set(SHOWN)
