"""Equality saturation: equivalent graphs of a graph, with derivations and folds.

    found = search(graph)            candidates, best first; a report with the reason why it stopped; the e-graph
    found.pick(split="t")            the best candidate that splits axis t

Nothing heavy is loaded before the first search, and egglog only in the child process that saturates.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cleave.search.engine import Round, Stop
    from cleave.search.found import Found
    from cleave.search.reducibility import ReducibilityTable, reducibility_table
    from cleave.search.report import Report
    from cleave.search.run import search

__all__ = ["Found", "ReducibilityTable", "Report", "Round", "Stop", "reducibility_table", "search"]

_HOME = {
    "Found": "found",
    "ReducibilityTable": "reducibility",
    "Report": "report",
    "Round": "engine",
    "Stop": "engine",
    "reducibility_table": "reducibility",
    "search": "run",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
