"""Invariants of tile programs, checked where one is made.

    names      defined once, before use, where the loops they depend on are open
    axes       an axis is the grid's, whole, or one open loop's; bounds mention no axis that is not placed yet
    folds      over a whole axis or the tiles of an open loop; a block has a single tile of a grid axis
    loops      each accumulator is updated once, in its own loop, after those that it needs; ``m~`` is read in that
    loop only matmuls    both operands are loads of a narrow type or visible casts to one
    stores     every stored axis is placed; only the first tile stores along grid axes that the output lacks, and what
               it stores does not depend on them

    merges     the blocks of a merge in one launch read what the blocks that they waited for have stored, nothing else

That reductions see the identity beyond the axis they sum is what running the program shows (``interp.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from cleave.errors import ScheduleError
from cleave.ir.axis import Axis, owners
from cleave.ir.graph import Cast, Load, Reduce, Ref, Term, term_indices, walk
from cleave.ir.index import Atom, Index, Position, axes_of, evaluate, show, substitute, symbols_of
from cleave.tile.dependence import Dependences, dependences
from cleave.tile.plan import ONE_LAUNCH, Binding, KernelPlan, Schedule
from cleave.tile.program import (
    Accumulator,
    Contract,
    Let,
    Loop,
    Program,
    Stmt,
    Store,
    TileTerm,
    Update,
    outer_axes,
    statements,
    tile_terms,
)

NARROW = frozenset({"float16", "bfloat16"})


def check_program(program: Program) -> Program:
    """The program itself if it keeps the invariants; else an error that names the first statement that does not."""
    placed = dict.fromkeys((*program.grid, *program.whole))
    if len(placed) != len(program.grid) + len(program.whole):
        raise ScheduleError("an axis is placed twice", location=program.name)
    checker = _Checker(program, dependences(program))
    for n, a in enumerate((*program.grid, *program.whole)):
        if not owners(a) <= set((*program.grid, *program.whole)[:n]):
            raise ScheduleError(f"axis {a} is placed before what its extent reads", location=program.name)
    checker.body(program.body, _Open(frozenset(placed)))
    return program


def check_schedule(s: Schedule) -> Schedule:
    """The schedule itself if its programs, and the pairs of a merge in one launch, keep the invariants."""
    for k in s.kernels:
        check_program(k.program)
    for first, second in merged_pairs(s):
        check_merge(first, second, s.bind)
        if s.merge == "cluster":
            check_sent(first.program, first.binding, second.program, second.binding)
    return s


def merged_pairs(s: Schedule) -> Iterator[tuple[KernelPlan, KernelPlan]]:
    """(partials, merge) of each launch that merges."""
    plans = iter(s.kernels if s.merge in ONE_LAUNCH else ())
    for first in plans:
        if outer_axes(first.program):
            second = next(plans, None)
            if second is not None:
                yield first, second


def check_merge(first: KernelPlan, second: KernelPlan, bind: Mapping[str, int]) -> None:
    """A block that merges has waited for the blocks of its own tile, one for each chunk, and for no others.

    Run one after the other, as the interpreter does, a program that reads the tiles of others looks right. ``bind``:
    sizes that are compiled in; an axis that is one tile has no others.
    """
    parts = finer_tiles(first.program, first.binding, second.program, second.binding)
    ours = {a: b for a, (b, _) in parts.items() if b in first.program.grid}
    stored = {s.output: s for s in statements(first.program.body) if isinstance(s, Store)}
    for term in tile_terms(second.program):
        if isinstance(term, Load) and term.input in stored:
            store = stored[term.input]
            once = [a for a in store.once if a.kind != "outer" and not _is_one_tile(a, first.binding, bind)]
            _check_partial(second.program, term, store, once, ours)


def _is_one_tile(a: Axis, binding: Binding, bind: Mapping[str, int]) -> bool:
    known = all(s.name in bind for s in symbols_of(a.extent)) and not axes_of(a.extent)
    return known and evaluate(a.extent, bind) <= binding.tile(a)


def finer_tiles(first: Program, coarse: Binding, second: Program, fine: Binding) -> dict[Axis, tuple[Axis, int]]:
    """For every grid axis of a merge: the axis of the partials that it follows, and how many tiles it makes of one.

    Errors: another grid than that of the partials; tiles that do not divide theirs; rows that are divided.
    """
    grid = [a for a in first.grid if a.kind != "outer"]
    kept = [a for a in second.grid if a not in first.whole]
    if [a.extent for a in kept] != [a.extent for a in grid]:
        has, needed = (", ".join(a.name for a in axes) for axes in (second.grid, grid))
        raise ScheduleError(
            f"the merge has the grid [{has}], the blocks of the partials have [{needed}]", location=second.name
        )
    follows = {**dict(zip(kept, grid, strict=True)), **{a: a for a in second.grid if a in first.whole}}
    out: dict[Axis, tuple[Axis, int]] = {}
    for a in second.grid:
        b = follows[a]
        whole = 1 if b in first.unit else coarse.tile(b)
        part = 1 if a in second.unit else fine.tile(a)
        if whole % part or (a in fine.rows and whole != part):
            raise ScheduleError(
                f"tiles of {part} along {a} do not divide the {whole} of the partials", location=second.name
            )
        out[a] = (b, whole // part)
    return out


def divided_axes(first: Program, coarse: Binding, second: Program, fine: Binding) -> dict[Axis, int]:
    """Axes of the partials whose tiles a merge divides, and into how many. Errors: as ``finer_tiles``."""
    return {b: n for b, n in finer_tiles(first, coarse, second, fine).values() if n > 1}


def check_sent(first: Program, coarse: Binding, second: Program, fine: Binding) -> dict[Axis, int]:
    """What blocks of a cluster send one another, in shared memory that is reserved for it: of every partial one tile of
    FP32 for each chunk, once, in slices along one axis at most. Gives that axis, and the slices of its tile.

    Errors: other partials; as ``finer_tiles``.
    """
    slices = divided_axes(first, coarse, second, fine)
    why = next(_not_sent(first, slices), None)
    if why is not None:
        raise ScheduleError(f"a merge in a cluster: {why}", location=f"program {first.name}")
    return slices


def _not_sent(first: Program, slices: Mapping[Axis, int]) -> Iterator[str]:
    if len(slices) > 1:
        yield f"slices along {', '.join(a.name for a in slices)}, allowed is one axis"
    dtypes = {b.name: b.dtype for b in first.outputs}
    for s in (s for s in statements(first.body) if isinstance(s, Store)):
        if sum(any(a.kind == "outer" for a in axes_of(i)) for i in s.indices) != 1:
            yield f"{s.output} has no part for each block"
        if dtypes[s.output] != "float32":
            yield f"{s.output} of {dtypes[s.output]}, allowed is float32"
        if s not in first.body:
            yield f"{s.output} is stored in a loop, tile by tile: allowed is once"


def _check_partial(merge: Program, load: Load, store: Store, once: Sequence[Axis], ours: Mapping[Axis, Axis]) -> None:
    if once:
        names = ", ".join(a.name for a in once)
        raise ScheduleError(
            f"{load.input} is stored in the first tile of {names}, and the blocks of other tiles do not wait for it",
            location=f"program {merge.name}",
        )
    moved: dict[Atom, Index] = {Position(a): b.position for a, b in ours.items()}
    for read, written in zip(load.indices, store.indices, strict=True):
        if axes_of(written) & frozenset(ours.values()) and substitute(read, moved) is not written:
            raise ScheduleError(
                f"{load.input} is read at {show(read)} by a block that waited for {show(written)}",
                location=f"program {merge.name}",
            )


@dataclass(frozen=True)
class _Open:
    """What is visible at a place: axes with a position, names, and the accumulators of the loop around."""

    axes: frozenset[Axis]
    names: frozenset[str] = frozenset()
    carried: frozenset[str] = frozenset()


@dataclass
class _Checker:
    program: Program
    depends: Dependences
    defined: dict[str, TileTerm | None] = field(default_factory=dict[str, "TileTerm | None"])

    def fail(self, text: str) -> ScheduleError:
        return ScheduleError(text, location=f"program {self.program.name}")

    def body(self, body: tuple[Stmt, ...], here: _Open) -> frozenset[str]:
        """Names that are visible after some statements."""
        names = here.names
        for s in body:
            now = _Open(here.axes, names, here.carried)
            match s:
                case Let(name, axes, term):
                    self.define(name, term)
                    self.term(name, term, now)
                    self.positions(name, axes, now)
                    self.extent(name, axes)
                    names |= {name}
                case Update(accumulator, term):
                    self.update(accumulator, term, now)
                    names |= {accumulator.name}
                case Store():
                    self.store(s, now)
                case Loop():
                    self.loop(s, now)
                    names |= {c.name for c in s.accumulators}
        return names

    def define(self, name: str, term: TileTerm | None) -> None:
        if name in self.defined:
            raise self.fail(f"{name} is defined twice")
        self.defined[name] = term

    def extent(self, name: str, axes: Iterable[Axis]) -> None:
        """A mask along an axis that the value lacks makes another value, which must not stand in for the first."""
        lacking = self.depends[name] - self.program.unit - set(axes)
        if lacking:
            names = ", ".join(sorted(a.name for a in lacking))
            raise self.fail(f"{name} depends on {names}, which its tile lacks")

    def positions(self, name: str, axes: Iterable[Axis], here: _Open) -> None:
        for a in axes:
            if a not in here.axes:
                raise self.fail(f"{name} depends on {a}, which has no position there")

    def index(self, what: str, i: Index, here: _Open) -> None:
        self.positions(what, axes_of(i), here)

    def term(self, name: str, term: TileTerm, here: _Open) -> None:
        if isinstance(term, Contract | Reduce):
            self.positions(name, (term.axis,), here)
            if term.axis in self.program.grid:
                raise self.fail(f"{name} folds over {term.axis}, of which a block has one tile")
        if isinstance(term, Contract):
            for r in (term.left, term.right):
                self.ref(name, r, here)
                self.operand(name, r)
            if term.onto is not None:
                self.ref(name, term.onto, here)
            return
        for t in walk(term):
            if isinstance(t, Ref):
                self.ref(name, t, here)
            for i in term_indices(t):
                self.index(name, i, here)
        if not isinstance(term, Load) and any(isinstance(t, Load) for t in walk(term)):
            raise self.fail(f"{name} loads inside an expression")

    def ref(self, name: str, r: Ref, here: _Open) -> None:
        if r.name.endswith("~"):
            if r.name[:-1] not in here.carried:
                raise self.fail(f"{name} reads {r.name} outside the loop that carries it")
        elif r.name not in here.names:
            raise self.fail(f"{name} reads {r.name}, which is not defined there")

    def operand(self, name: str, r: Ref) -> None:
        made = self.defined.get(r.name)
        dtypes = {i.name: i.dtype for i in self.program.inputs}
        narrow = dtypes[made.input] if isinstance(made, Load) else made.dtype if isinstance(made, Cast) else None
        if narrow not in NARROW:
            raise self.fail(f"{name} multiplies {r.name}, which is neither a narrow load nor a cast to a narrow type")

    def update(self, c: Accumulator, term: TileTerm, here: _Open) -> None:
        if c.name not in here.carried:
            raise self.fail(f"{c.name} is updated outside its loop")
        if c.name in here.names:
            raise self.fail(f"{c.name} is updated twice in one trip")
        self.term(c.name, term, here)
        if c.carry is None:
            return
        for t in walk(c.carry):
            if isinstance(t, Ref):
                self.ref(c.name, t, here)
        running = {t.name for t in _refs(c.carry) if t.name in here.carried}
        if not running <= set(c.needs):
            raise self.fail(
                f"{c.name} is restated by {', '.join(sorted(running - set(c.needs)))}, which it does not declare"
            )

    def store(self, s: Store, here: _Open) -> None:
        self.ref(f"store to {s.output}", s.value, here)
        stored = frozenset[Axis]().union(*(axes_of(i) for i in s.indices))
        if stored != frozenset(s.axes):
            raise self.fail(f"store to {s.output} guards other axes than its indices mention")
        self.positions(f"store to {s.output}", s.axes, here)
        lacking = tuple(a for a in self.program.grid if a not in stored)
        depends = self.depends[s.value.name] & set(lacking)
        if depends:
            names = ", ".join(sorted(a.name for a in depends))
            raise self.fail(f"the first tile of {names} stores {s.value.name} for all, which depends on it")
        if set(s.once) != set(lacking):
            raise self.fail(f"store to {s.output} runs in every tile of {', '.join(a.name for a in lacking)}")

    def loop(self, s: Loop, here: _Open) -> None:
        if s.axis in here.axes:
            raise self.fail(f"axis {s.axis} is open twice")
        for i in (s.lower, s.upper, s.axis.extent):
            self.index(f"loop over {s.axis}", i, here)
        for c in s.accumulators:
            self.define(c.name, None)
        inside = _Open(here.axes | {s.axis}, here.names, frozenset(c.name for c in s.accumulators) | here.carried)
        after = self.body(s.body, inside)
        for c in s.accumulators:
            if c.name not in after:
                raise self.fail(f"{c.name} is carried and never updated")
            self.extent(c.name, c.axes)


def _refs(term: Term) -> list[Ref]:
    return [t for t in walk(term) if isinstance(t, Ref)]
