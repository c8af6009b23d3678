"""Work of programs whose threads share rows: what first trips have loaded is not loaded again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from typing import Any

from cleave.cost.program import Counter, Work, chain_bytes
from cleave.ir.axis import Axis
from cleave.ir.graph import Load, free
from cleave.ir.index import axes_of
from cleave.ir.op import DTYPES
from cleave.tile.box import is_beside
from cleave.tile.plan import Binding, Chain, Feed
from cleave.tile.program import Let, Loop, Program, Stmt, Store, TileTerm, Update, names_read, statements
from cleave.tile.same import column_loops, loaded_ahead, same_values

SCATTERED = 8
"""Times the bytes that elements which do not lie side by side take of the memory's transfers."""

BASE_REGISTERS, LEAST_REGISTERS = 28, 24
"""Registers of a thread besides its share of rows, and for the trips of loops that follow the first one: fitted to what
compiled kernels of 8, 16, 32 and 64 elements a thread take."""

NEAR = 8
"""Blocks that find in the first-level cache of their multiprocessor what all rows read: an assumption."""

JOIN_BYTES = 128
"""Shared memory of values that the warps of a row join."""


def kernel_work(
    program: Program, binding: Binding, dims: Mapping[str, int], feed: Feed = "cp.async", chain: Chain = "registers"
) -> Work:
    """What a kernel does at one shape, whatever its threads share.

    ``dims`` holds every symbol; ``chain``: where computed rows wait for a matmul.
    """
    return counter_of(program, binding, dims, feed, chain).count()


def counter_of(program: Program, binding: Binding, dims: Mapping[str, int], feed: Feed, chain: Chain) -> Counter:
    """The same before it is counted: its ``work`` says what a block needs; where threads share rows, everything."""
    counter = (_Counter if binding.lanes else Counter)(program, binding, dims, feed)
    counter.needs()
    if chain == "shared":
        counter.work.shared_bytes += chain_bytes(program, binding)
    return counter


class _Counter(Counter):
    def __init__(self, program: Program, binding: Binding, dims: Mapping[str, int], feed: Feed) -> None:
        super().__init__(program, binding, dims, feed)
        self.loops, self.same = column_loops(program), same_values(program)

    def needs(self) -> None:
        """What it does as well: few are tried, and whether one is refused depends on its time."""
        work = self.work
        environments = self.environments()
        work.blocks = self.blocks(environments[0])
        self.body(self.program.body, [work.blocks / len(environments)] * len(environments), environments)
        work.distinct_bytes = min(self.distinct(), work.loaded_bytes)
        work.trips = self.joined() * work.blocks if self.binding.lanes > 32 else 0
        work.shared_bytes = JOIN_BYTES * self.joined() if self.binding.lanes > 32 else 0
        work.rounds = self.rounds(environments[0])
        work.registers = self.registers()
        self.count_repeats(environments[0])

    def count(self) -> Work:
        return self.work

    def joined(self) -> int:
        """Values that the threads of a row join."""
        return sum(len(s.accumulators) for s in self.every if isinstance(s, Loop) and s.axis not in self.program.unit)

    def body(self, body: tuple[Stmt, ...], each: Sequence[float], environments: Sequence[Mapping[Any, Any]]) -> None:
        """What a loop before has left of the first tile is not computed again."""
        for s in body:
            if s not in self.loops:
                super().body((s,), each, environments)
                continue
            assert isinstance(s, Loop)
            trips = [min(self.trips(s, e), max(self.extent(s.axis, e) / self.tile(s.axis), 1.0)) for e in environments]
            again = tuple(i for i in s.body if isinstance(i, Let) and self.same.get(i.name, i.name) != i.name)
            fresh = tuple(i for i in s.body if i not in again)
            super().body(fresh, [n * t for n, t in zip(each, trips, strict=True)], environments)
            super().body(again, [n * max(t - 1, 0) for n, t in zip(each, trips, strict=True)], environments)

    def term(self, term: TileTerm, axes: tuple[Axis, ...], times: float, *, is_shared: bool) -> None:
        """Elements that lie scattered cost whole transfers."""
        if isinstance(term, Load):
            size = self.present(axes) * DTYPES[self.dtypes[term.input]] * times
            size /= 1 if self.program.unit & free(term) or super().has_rows(axes) else NEAR
            self.work.loaded_bytes += size * (1 if self.is_beside(term, axes) else SCATTERED)
            return
        super().term(term, axes, times, is_shared=is_shared)

    def is_beside(self, load: Load, axes: tuple[Axis, ...]) -> bool:
        columns = [a for a in axes if a not in self.binding.rows]
        if not columns or not load.indices:
            return True
        before = frozenset[Axis]().union(*(axes_of(i) for i in load.indices[:-1]))
        return is_beside(load.indices[-1], columns[0]) and columns[0] not in before

    def rounds(self, environment: Mapping[Any, Any]) -> int:
        """How often a block loads something and waits for it."""
        found = 1 if any(isinstance(s, Let) and isinstance(s.term, Load) for s in self.program.body) else 0
        ahead = loaded_ahead(self.program, self.binding)
        for s in (s for s in self.program.body if isinstance(s, Loop)):
            loads = [i for i in statements(s.body) if isinstance(i, Let) and isinstance(i.term, Load)]
            fresh = any(self.same.get(i.name, i.name) == i.name for i in loads if i not in ahead)
            found += self.trips(s, environment) - (not fresh) if loads else 0
        return max(found, 1)

    def size(self, name: str, axes: tuple[Axis, ...], term: TileTerm | None) -> int:
        """Registers of a thread for a value: its share of the columns, one for a value of the row."""
        columns = [a for a in axes if a not in self.binding.rows]
        return max(ceil(self.volume(columns) / self.binding.lanes), 1) if columns else 1

    def registers(self) -> int:
        """Of a thread: what loops leave to later ones, a value that is computed, and accumulators; most values live no
        longer than one of their elements."""
        sizes = {i.name: self.size(i.name, i.axes, None) for i in self.every if isinstance(i, Let)}
        carried = max((sum(self.size(c.name, c.axes, None) for c in s.accumulators) for s in self.loops), default=0)
        held = max((sum(sizes[name] for name in names) for names in self.left()), default=0)
        widest = max(sizes.values(), default=1)
        return BASE_REGISTERS + max(max(held, widest) + widest + carried, LEAST_REGISTERS)

    def left(self) -> Iterator[set[str]]:
        """For every loop, what it and those after it read of what those before it have computed."""
        made = [{i.name for i in s.body if isinstance(i, Let) and self.same.get(i.name) == i.name} for s in self.loops]
        read = [self.read(s) for s in self.loops]
        ahead = {i.name for i in loaded_ahead(self.program, self.binding)}
        made = [names | ahead if n == 0 else names - ahead for n, names in enumerate(made)]
        for n in range(1, len(self.loops)):
            yield set().union(*made[:n]) & set().union(*read[n:])

    def read(self, s: Loop) -> set[str]:
        """Values that a loop reads, the first ones that are the same: only for what it computes itself."""
        terms = [i.term for i in s.body if isinstance(i, Update)]
        terms += [i.term for i in s.body if isinstance(i, Let) and self.same.get(i.name, i.name) == i.name]
        names = {name for t in terms for name in names_read(t)} | {i.value.name for i in s.body if isinstance(i, Store)}
        return {self.same.get(name, name) for name in names}
