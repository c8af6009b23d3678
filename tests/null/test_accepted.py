"""What the scheduler returns, code generation accepts: both ask one predicate what a skeleton can do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from cleave import nn
from cleave.candidate import Candidate, load_candidates
from cleave.codegen import bulk
from cleave.codegen.emission import Emission
from cleave.codegen.feed import Tile
from cleave.codegen.generate import generate
from cleave.cost.program import Counter
from cleave.errors import ScheduleError
from cleave.ir.generic import fixed_graph
from cleave.ir.index import Symbol
from cleave.schedule import schedule
from cleave.target import Target
from cleave.tile.plan import Schedule
from cleave.tile.program import Loop
from cleave.tune.distinct import different
from tests.null.searched import searched

H200 = Target("sm_90a")
EXPERIMENTS = Path(__file__).parents[2] / "experiments"
FILES = sorted(EXPERIMENTS.glob("e0[124]_*/candidates/*.json"))
FOLDERS = ("e01_ablation", "e02_dynamic", "e04_decode")
DRAWN = 1
"""Files of each folder that a run looks at, another one in every run."""
EACH = 8
"""Plans of a candidate, as different as there are."""
SKELETONS = ("cta-ring", "warp-ring", "specialised")
HEADS = (64, 96, 128)
FEW, LENGTHS = (1, 2, 3, 5, 8, 16, 17), (1, 17, 40, 100, 128, 1000, 1024, 1032, 4096)


def kinds(plans: tuple[Schedule, ...]) -> list[Schedule]:
    """One of each kind first."""

    def kind(s: Schedule) -> tuple[object, ...]:
        first = s.kernels[0].binding
        return s.merge, tuple(k.skeleton for k in s.kernels), first.mma, first.parts, first.teams, first.row_tiles

    return different(plans, kind)


def drawn(c: Candidate, rng: np.random.Generator) -> dict[str, int]:
    """Sizes of a call, most of which divide nothing; rows of values are as long as those of keys."""

    def size(s: Symbol) -> int:
        usual = HEADS if s.name in "der" else FEW if s.name in ("b", "h", "kv_heads", "group", "s") else LENGTHS
        return -(-int(rng.choice(usual)) // max(s.multiple, 1)) * max(s.multiple, 1)

    found = {s.name: size(s) for s in c.origin.symbols if s.value is None}
    return found | ({"e": found["d"]} if {"d", "e"} <= found.keys() else {})


@pytest.mark.parametrize("folder", FOLDERS)
def test_returned_schedules_are_accepted(folder: str, rng: np.random.Generator, boxes: Boxes) -> None:
    files = [f for f in FILES if f.is_relative_to(EXPERIMENTS / folder)]
    for path in rng.choice(np.array(files, object), min(DRAWN, len(files)), replace=False):
        every = [c for c in load_candidates(path) if len(c.splits) <= 1]
        c = every[int(rng.integers(len(every)))]
        dims = drawn(c, rng)
        try:
            plans = schedule(c, H200, dims, skeleton=str(rng.choice(SKELETONS)), keep=100)
        except ScheduleError:
            continue  # sizes for which there is no kernel
        for plan in kinds(plans)[:EACH]:
            boxes.accepted(plan, dims, f"{path.stem}, {c.name} at {dims}")


@pytest.mark.parametrize("skeleton", ["specialised", "cta-ring"])
def test_rows_that_end_inside_an_array_do_not_come_in_boxes(skeleton: str, boxes: Boxes) -> None:
    """Tiles of 64 heads of a group that has four: the next ones are another group's, and the scheduler knows."""
    dims = {"b": 1, "kv_heads": 8, "group": 4, "s": 1, "d": 128, "e": 128, "t": 1024}
    for c in load_candidates(EXPERIMENTS / "e04_decode" / "candidates" / "attention.json")[:3]:
        for plan in kinds(schedule(c, H200, dims, skeleton=skeleton, keep=400)):
            boxes.accepted(plan, dims, f"{c.name}, {plan.kernels}")


def test_eight_columns_in_a_warp_are_for_sums_of_two_steps(boxes: Boxes) -> None:
    """Latent attention whose rotated part has 16 elements, columns divided between four warps."""
    c = next(c for c in searched(fixed_graph(*nn.instantiate("mla_paged_decode", MLA))).candidates if not c.splits)
    dims = {"b": 3, "h": 3, "num_pages": 200, "num_kv_indices": 200}
    plans = schedule(c, H200, dims, skeleton="cta-ring", keep=400)
    divided = [p for p in plans if p.kernels[0].binding.division is not None]
    assert divided
    for plan in divided:
        boxes.accepted(plan, dims, str(plan.kernels[0].binding))


MLA = {"r": 512, "p": 16, "page": 1}


class Boxes:
    """Which tiles of loops the emitter fetches in boxes, by kernel."""

    def __init__(self) -> None:
        self.asked: dict[tuple[str, str], bool] = {}

    def accepted(self, plan: Schedule, dims: dict[str, int], what: str) -> None:
        """Code is generated, and fetches in boxes what the cost model says."""
        self.asked.clear()
        assert generate(plan).kernels, what
        for k in plan.kernels:
            if k.feed == "tma" and not k.binding.lanes:
                values = {**{s.name: 1 for s in plan.graph.symbols}, **dims, **plan.bind}
                modelled = Counter(k.program, k.binding, values, k.feed).fetched()
                own = {tile: found for (name, tile), found in self.asked.items() if name == k.program.name}
                assert {t for t, found in own.items() if found} == modelled & own.keys(), what


@pytest.fixture
def boxes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Boxes]:
    seen, box_of = Boxes(), bulk.box_of

    def watched(em: Emission, tile: Tile, s: Loop | None) -> bulk.Box | None:
        found = box_of(em, tile, s)
        if s is not None:
            seen.asked[em.program.name, tile.name] = found is not None
        return found

    monkeypatch.setattr(bulk, "box_of", watched)
    yield seen
