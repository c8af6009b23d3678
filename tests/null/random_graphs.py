"""Random graphs of ``cleave.testing``, searched: the same ones for the emulator here and for a GPU elsewhere.

The graphs are drawn by hypothesis and searched where egglog is (``write``); files hold what was found, so that a
machine with a GPU needs neither egglog nor the same version of hypothesis. Inputs are of the storage types of kernels:
the metric leaves float32 inputs no room for sums in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from numpy.typing import NDArray

from cleave.candidate import Candidate, as_written, load_candidates, save_candidates
from cleave.config import Config
from cleave.errors import CleaveError
from cleave.ir.bind import bind_dims
from cleave.ir.graph import Graph, reductions, walk
from cleave.schedule import schedule
from cleave.schedule.rows import structure
from cleave.target import Target
from cleave.testing.strategies import graphs
from cleave.tile.plan import Schedule
from cleave.tile.program import Contract, tile_terms
from cleave.verify import Check, check_executable

Array = NDArray[Any]
Operator = Callable[[Mapping[str, Array], Mapping[str, Array]], None]

FOLDER = Path(__file__).parent.parent / "golden" / "random_graphs"
COUNT = 30
SEED = 20261130
TRIED = 12
"""Graphs of one seed that are looked at."""

DTYPES = ("float16", "bfloat16")
"""Of the inputs of a graph, in turn."""

SIZES = ({"m": 33, "n": 21, "p": 70}, {"m": 5, "n": 130, "p": 64}, {"m": 200, "n": 64, "p": 259})
"""Of a call; the first one chooses the schedule, and is what the emulator runs."""


@dataclass(frozen=True)
class Drawn:
    """A candidate of a random graph, as a file holds it."""

    number: int
    candidate: Candidate

    def __str__(self) -> str:
        return f"{self.number} {self.candidate.name}"

    def schedule(self, target: Target) -> Schedule:
        """The best one, in three chunks of what is split; lengths stay run-time."""
        return schedule(self.candidate, target, self.dims(0), split=chunks(self.candidate))[0]

    def dims(self, number: int) -> dict[str, int]:
        names = {s.name for s in self.candidate.origin.symbols}
        return {n: v for n, v in SIZES[number].items() if n in names}

    def suiting(self, s: Schedule, number: int) -> dict[str, int]:
        """Sizes that a schedule takes: those compiled in, others rounded up to what it needs."""
        wanted = {**self.dims(number), **{n: v for n, v in s.bind.items() if n in self.dims(number)}}
        return {n: -(-v // s.multiples.get(n, 1)) * s.multiples.get(n, 1) for n, v in wanted.items()}

    def check(self, operator: Operator, sizes: Mapping[str, int]) -> Check:
        """Whole rows against the graph as drawn, in float64, under the metric."""
        return check_executable(operator, self.candidate.origin, dims=bind_dims(self.candidate.origin, {}, sizes))


def chunks(c: Candidate) -> dict[str, int]:
    return {s.base: 3 for s in c.splits}


def saved() -> list[Drawn]:
    files = sorted(FOLDER.glob("*.json"))
    return [Drawn(int(f.stem), c) for f in files for c in load_candidates(f)]


# ---- where egglog is


def drawn(count: int = COUNT) -> list[Graph]:
    """Graphs that can be scheduled, one a seed (those of one seed are alike), in the dtypes in turn; a third multiplies
    matrices."""
    found: list[Graph] = []
    number = SEED
    while len(found) < count:
        dtype, matmul = DTYPES[len(found) % len(DTYPES)], len(found) % 3 == 0
        wanted = (g for g in (stored_as(g, dtype) for g in of_seed(number)) if is_wanted(g, matmul=matmul))
        found += list(islice((g for g in wanted if g not in found), 1))
        number += 1
    return found


def is_wanted(g: Graph, *, matmul: bool) -> bool:
    """Whether it can be scheduled, with a matmul of tiles if one is wanted."""
    if (matmul and not structure(g).contractions) or not is_scheduled(as_written(g)):
        return False
    s = Drawn(0, as_written(g)).schedule(Target("sm_80"))
    return not matmul or any(isinstance(t, Contract) for k in s.kernels for t in tile_terms(k.program))


def of_seed(number: int) -> list[Graph]:
    """Graphs with two reductions or more, those with most operations first."""
    every: dict[str, Graph] = {}

    @seed(number)
    @settings(
        max_examples=60, database=None, deadline=None, phases=(Phase.generate,), suppress_health_check=list(HealthCheck)
    )
    @given(graphs(size=6))
    def collect(g: Graph) -> None:
        if len(reductions(*g.terms)) > 1:
            every[g.text()] = g

    collect()
    return sorted(every.values(), key=lambda g: -len(list(walk(*g.terms))))[:TRIED]


def stored_as(g: Graph, dtype: str) -> Graph:
    """The graph with inputs of another storage type; outputs keep theirs, so that their error is seen."""
    inputs = tuple(replace(i, dtype=dtype) if i.dtype == "float32" else i for i in g.inputs)
    return replace(g, inputs=inputs)


def is_scheduled(c: Candidate) -> bool:
    dims = {n: v for n, v in SIZES[0].items() if n in {s.name for s in c.origin.symbols}}
    try:
        return all(schedule(c, Target(arch), dims, split=chunks(c)) for arch in ("sm_80", "sm_90a"))
    except CleaveError:
        return False


def searched(g: Graph) -> Iterator[Candidate]:
    """The best candidate without a split and the best with one, of those that can be scheduled; without derivations."""
    from cleave.search import search

    found = [c for c in search(g, config=Config(isolate=False)).candidates if is_scheduled(c)]
    for kind in (False, True):
        yield from [replace(c, steps=(), notes=()) for c in found if bool(c.splits) == kind][:1]


def write() -> None:
    """Draw and search again. What differs then is only the data of tests: kernels and files go together."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for number, g in enumerate(drawn()):
        save_candidates(list(searched(g)), FOLDER / f"{number:02}.json")


if __name__ == "__main__":
    write()
