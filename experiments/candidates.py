"""Candidates of an experiment, in files between a search without a GPU and a measurement without egglog."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from cleave.candidate import Candidate, load_candidates, save_candidates
from cleave.config import Config
from cleave.errors import CleaveError
from cleave.ir.graph import Graph


def search_and_save(
    graph: Graph,
    path: Path,
    sizes: Mapping[str, int] | None = None,
    weights: Iterable[str] = (),
    *,
    config: Config | None = None,
) -> None:
    """Search one graph, write its candidates, print one line. What else is given: as in ``cleave.search``."""
    from cleave.search import search

    path.parent.mkdir(parents=True, exist_ok=True)
    found = search(graph, sizes=sizes, weights=weights, config=config)
    save_candidates(found.candidates, path)
    print(f"{path.stem}: {found.report.stop}, {len(found.candidates)} candidates, {found.report.seconds.total:.2f} s")


def with_splits(path: Path, splits: Iterable[str]) -> Candidate:
    """The best candidate of a file with exactly these splits."""
    wanted = set(splits)
    for c in load_candidates(path):
        if {s.base for s in c.splits} == wanted:
            return c
    raise CleaveError(f"no candidate that splits {', '.join(wanted) or 'nothing'}", location=path.stem)
