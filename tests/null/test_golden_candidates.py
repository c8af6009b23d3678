"""Candidates that tests/gpu reads, since a machine with a GPU needs no egglog: kept equal to what the search finds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cleave.candidate import save_candidates
from cleave.search import search
from tests.cases.lengths import attention_by_length


def test_attention_by_length(golden: Callable[[str, str], None], tmp_path: Path) -> None:
    path = tmp_path / "candidates.json"
    save_candidates(search(attention_by_length()).candidates, path)
    golden("attention_by_length.json", path.read_text(encoding="utf-8"))
