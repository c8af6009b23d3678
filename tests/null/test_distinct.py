"""Which schedules are measured: the first by modelled time, and the first ones of every form."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from cleave.candidate import load_candidates
from cleave.schedule import schedule
from cleave.target import Target
from cleave.tile.plan import Schedule
from cleave.tune.description import microseconds
from cleave.tune.distinct import OTHERWISE, SAME_FAMILY, SAME_MATMULS, best

STORED = Path(__file__).parents[2] / "experiments" / "e01_ablation" / "candidates"
CANDIDATES = STORED / "matmul_matmul_prefill.json"
BIND = {"s": 256, "t": 4096}


@pytest.fixture(scope="module")
def found() -> list[Schedule]:
    cs = [c for c in load_candidates(CANDIDATES) if c.name in ("unsplit", "split t")]
    return [s for c in cs for s in schedule(c, Target("sm_90a"), BIND, keep=12)]


def form(s: Schedule) -> tuple[Any, ...]:
    return s.merge, len(s.kernels)


def test_every_form_that_may_be_the_best_has_places(found: list[Schedule]) -> None:
    chosen, least = best(found, 8), min(map(microseconds, found))
    assert len(chosen) == 8 and microseconds(chosen[0]) == least
    assert all(microseconds(a) <= microseconds(b) for a, b in pairwise(chosen[:4]))
    forms = {form(s): microseconds(s) for s in sorted(found, key=microseconds, reverse=True)}
    near = sorted((us, f) for f, us in forms.items() if us <= OTHERWISE * least)
    assert len(near) > 1 and {form(s) for s in chosen} >= {f for _, f in near[:2]}
    assert all(microseconds(s) <= OTHERWISE * least for s in chosen[4:] if form(s) != form(chosen[0]))


def test_one_place_is_for_the_first(found: list[Schedule]) -> None:
    assert [microseconds(s) for s in best(found, 1)] == [min(map(microseconds, found))]
    assert best([], 3) == [] and SAME_FAMILY == 2
    assert len({id(s) for s in best(found, 12)}) == len(best(found, 12))


def test_kernels_of_rows_beside_the_same_matmul_do_not_take_all_places() -> None:
    (c,) = (c for c in load_candidates(STORED / "rmsnorm_matmul_decode.json") if c.name == "as written")
    found = schedule(c, Target("sm_90a"), {"m": 128}, keep=40)
    chosen = best(found, 10)
    matmuls = Counter(str([(k.skeleton, k.binding) for k in s.kernels if k.skeleton != "row"]) for s in chosen)
    rows = Counter(s.kernels[0].skeleton for s in chosen)
    assert len(chosen) == 10 and rows["row"] >= 5, "the kernel of rows and the matmul, mostly"
    assert max(matmuls.values()) <= SAME_MATMULS and len(matmuls) >= 4
