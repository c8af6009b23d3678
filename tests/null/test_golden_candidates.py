"""Candidates that tests/gpu reads, since a machine with a GPU needs no egglog: kept equal to what the search finds."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from cleave.candidate import save_candidates
from cleave.search import search
from tests.cases.lengths import attention_by_length


def test_attention_by_length(golden: Callable[[str, str], None], tmp_path: Path) -> None:
    path = tmp_path / "candidates.json"
    save_candidates(search(attention_by_length()).candidates, path)
    text = path.read_text(encoding="utf-8")
    # The last digits of what was measured depend on the machine.
    golden("attention_by_length.json", re.sub(r'"difference": [0-9.e+-]+', '"difference": 0.0', text))
