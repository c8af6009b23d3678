"""Lowering: a graph and a plan -> one tile program.

The home rule does iterative tiling and hoisting in one: a term is emitted in the outermost open scope whose loops it
depends on, and a loop joins its parent's statements only when it is complete, so what it needs there lands before it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from dataclasses import replace as replaced

from cleave.candidate import Fold
from cleave.errors import ScheduleError
from cleave.ir.axis import Axis, owners
from cleave.ir.graph import (
    Cast,
    Const,
    Graph,
    IndexValue,
    Load,
    Output,
    Reduce,
    Ref,
    Term,
    Where,
    axes_in,
    children,
    free,
    rebuild,
    replace,
    term_indices,
    walk,
)
from cleave.ir.index import Index, axes_of, compare, index
from cleave.ir.op import MONOIDS
from cleave.schedule.bounds import loop_bounds
from cleave.schedule.carry import before, carry_needs, carry_term, is_restated
from cleave.schedule.clashes import fresh_name, rebind_reduce, separate
from cleave.schedule.contraction import Sides, narrow_type, product, split_sides
from cleave.schedule.grouping import Group, group
from cleave.schedule.masks import Fact, Facts, beyond, is_finite, is_identity
from cleave.schedule.partition import inputs_read
from cleave.schedule.roles import LOOPS, Plan, program_order, stored_axes, with_owners
from cleave.schedule.scope import Scope
from cleave.schedule.sharing import shared_loads
from cleave.schedule.sums import continued
from cleave.tile.check import check_program
from cleave.tile.program import Accumulator, Buffer, Contract, Let, Loop, Program, Store, TileTerm, Update


@dataclass(frozen=True)
class Lowered:
    """A program and what was decided on the way, in words."""

    program: Program
    notes: tuple[str, ...]


def lower(g: Graph, plan: Plan, folds: Sequence[Fold] = (), name: str | None = None) -> Lowered:
    """The tile program of a graph under a plan.

    Only folds let dependent reductions share a loop, absorbing ones at the least cost. Errors: a role of two levels, a
    value that is needed outside its loop.
    """
    usable = tuple(sorted(folds, key=lambda f: not f.absorbing)) if plan.absorb else ()
    outputs, usable, roles = separate(g, plan, usable)
    return _Lowering(g, outputs, replaced(plan, roles=roles), usable).program(name or g.name)


class _Lowering:
    """One program while it is written."""

    def __init__(self, g: Graph, outputs: tuple[Output, ...], plan: Plan, folds: Sequence[Fold]) -> None:
        self.g, self.outputs, self.plan, self.folds = g, outputs, plan, folds
        self.dtypes = {i.name: i.dtype for i in g.inputs}
        self.order = list(program_order(outputs))
        self.unit = frozenset(a for a in self.order if plan.level(a) in ("unit", "step"))
        self.scope = Scope()
        self.counts: dict[str, int] = {}
        self.loops: dict[Term, frozenset[Axis]] = {}
        self.facts = Facts()
        self.narrowed: set[str] = set()
        self.notes: dict[str, None] = {}

    # ---- the whole program

    def program(self, name: str) -> Lowered:
        self.group(self.scope, [o.term for o in self.outputs])
        for o in self.outputs:
            self.store(o)
        whole = tuple(a for a in self.order if self.plan.level(a) == "whole")
        used = inputs_read(self.outputs)
        program = Program(
            name,
            tuple(i for i in self.g.inputs if i.name in used),
            tuple(Buffer(o.name, o.dtype, o.shape) for o in self.outputs),
            self.grid(),
            self.unit,
            whole,
            continued(tuple(self.scope.statements)),
            self.g.constraints,
            frozenset(self.narrowed),
            tuple(shared_loads(tuple(self.scope.statements), frozenset(whole))),
        )
        return Lowered(check_program(program), tuple(self.notes))

    def grid(self) -> tuple[Axis, ...]:
        return tuple(a for a in self.order if self.plan.level(a) in ("grid", "unit"))

    def is_loop(self, a: Axis) -> bool:
        return self.plan.level(a) in LOOPS

    def is_divided(self, a: Axis) -> bool:
        return self.plan.level(a) == "grid"

    # ---- where a term lives

    def loops_of(self, t: Term) -> frozenset[Axis]:
        """Loops that the value of a term changes with."""
        found = self.loops.get(t)
        if found is None:
            found = frozenset[Axis]().union(*(self.loops_of(c) for c in children(t)))
            found |= self.loops_among(with_owners(a for i in term_indices(t) for a in axes_of(i)))
            if isinstance(t, Reduce):
                found = (found - {t.axis}) | self.loops_among(owners(t.axis))
            self.loops[t] = found
        return found

    def loops_among(self, axes: Iterable[Axis]) -> frozenset[Axis]:
        return frozenset(a for a in axes if self.is_loop(a))

    def home(self, t: Term) -> Scope:
        """The outermost open scope with all loops of a term."""
        wanted = self.loops_of(t)
        fitting = [scope for scope in self.scope.chain() if wanted <= scope.open]
        if not fitting:
            names = ", ".join(sorted(a.name for a in wanted - self.scope.open))
            raise ScheduleError(f"a value of the loop over {names} is needed outside it", location=self.g.name)
        return fitting[-1]

    @contextmanager
    def within(self, scope: Scope) -> Generator[None]:
        saved, self.scope = self.scope, scope
        try:
            yield
        finally:
            self.scope = saved

    def axes(self, t: Term) -> tuple[Axis, ...]:
        """Tiled axes of a value, owners of ragged extents included: beyond them its tile is zero."""
        own = with_owners(free(t))
        return tuple(a for a in self.order if a in own and a not in self.unit)

    def axis_set(self, t: Term) -> frozenset[Axis]:
        return frozenset(self.axes(t))

    # ---- emitting values

    def fresh(self, base: str) -> str:
        base = "".join(c if c.isalnum() else "_" for c in base)
        self.counts[base] = self.counts.get(base, 0) + 1
        return f"{base}{self.counts[base]}"

    def let(self, term: TileTerm, like: Term, base: str) -> Ref:
        """Emit a value here; ``like`` is the graph term that says which axes it has."""
        ref = Ref(self.fresh(base), self.axes(like))
        self.scope.statements.append(Let(ref.name, ref.axes, term))
        for a in self.order:
            self.facts.set(ref.name, a, self.facts.derive(term, a))
        return ref

    def fact(self, t: Term, a: Axis) -> Fact:
        """What the value of a graph term, as it stands emitted, is beyond the end of an axis."""

        def known(u: Term) -> Fact | None:
            for scope in self.scope.chain():
                if u in scope.known:
                    emitted = scope.known[u]
                    return self.facts.of(emitted, a) if isinstance(emitted, Ref) else beyond(emitted, a, known)
            return self.facts.of(u, a)

        found = known(t)
        return beyond(t, a, known) if found is None else found

    def need(self, t: Term) -> Term:
        """The emitted value of a term: found on the way out to its home, or emitted there."""
        home = self.home(t)
        for scope in self.scope.out_to(home):
            if t in scope.known:
                return scope.known[t]
        with self.within(home):
            made = self.emit(t)
        return home.known.setdefault(t, made)

    def need_ref(self, t: Term) -> Ref:
        made = self.need(t)
        return made if isinstance(made, Ref) else self.let(made, t, "v")

    def emit(self, t: Term) -> Term:
        match t:
            case Const() | IndexValue() | Ref():
                return t
            case Load(name, _):
                return self.let(t, t, f"{name.lower()}_")
            case Reduce(op, a, body) if not self.is_loop(a):
                return self.let(self.reduced(t, body), t, op)
            case Reduce():
                return self.emit_loop(t)
            case _:
                base = "w" if isinstance(t, Where) else "c" if isinstance(t, Cast) else "e"
                return self.let(rebuild(t, [self.need(c) for c in children(t)]), t, base)

    def emit_loop(self, r: Reduce) -> Term:
        if r not in self.scope.groups:
            self.group(self.scope, [r])
        wanted = self.scope.groups[r]
        if r.axis in self.scope.open:
            self.renamed_loop(wanted)
        else:
            self.loop(wanted)
        return self.scope.known[r]

    # ---- reductions over a tile

    def reduced(self, r: Reduce, body: Term) -> TileTerm:
        """The reduction of a body over the tile of an axis: Contract if its factors fall in two sides, else Reduce."""
        a, identity = r.axis, MONOIDS[r.op].identity
        if a in self.unit:  # one element a trip; rows of a tile may still end at different trips
            if owners(a) - self.unit:
                self.mask(body, a, identity)
            return self.need(body)
        sides = split_sides(body, a, self.axis_set, self.is_divided) if r.op == "sum" else None
        dtype = narrow_type(body, self.dtypes.__getitem__) or self.narrow_input()
        if sides is None or dtype is None:
            self.mask(body, a, identity)
            return Reduce(r.op, a, self.need(body))
        return self.contract(a, sides, dtype)

    def narrow_input(self) -> str | None:
        return next((d for d in self.dtypes.values() if d in ("float16", "bfloat16")), None)

    def contract(self, a: Axis, sides: Sides, dtype: str) -> Contract:
        """A matmul of two tiles: beyond the summed axis one side has to be 0 and the other finite."""
        left, right = product(sides.left), product(sides.right)
        if not is_identity(self.fact(left, a), "sum") and not is_identity(self.fact(right, a), "sum"):
            self.mask(left if isinstance(right, Load) else right, a, 0.0)
        for one, other in ((left, right), (right, left)):
            if is_identity(self.fact(one, a), "sum") and not is_finite(self.fact(other, a)):
                self.mask(other, a, 0.0)
        return Contract(a, self.operand(left, dtype), self.operand(right, dtype))

    def operand(self, t: Term, dtype: str) -> Ref:
        """A matmul operand in its storage type: a load as it is, a computed value through a visible cast."""
        value = self.need_ref(t)
        stored_as = self.dtypes.get(t.input) if isinstance(t, Load) else t.dtype if isinstance(t, Cast) else None
        if stored_as == dtype:
            return value
        home = self.home(t)
        for scope in self.scope.out_to(home):
            if value.name in scope.narrow:
                return scope.narrow[value.name]
        with self.within(home):
            cast = self.let(Cast(dtype, value), t, "n")
        for a in self.order:
            self.facts.set(cast.name, a, self.facts.derive(value, a))
        self.narrowed.add(cast.name)
        home.narrow[value.name] = cast
        return cast

    def mask(self, t: Term, a: Axis, identity: float) -> None:
        """Make a value the identity beyond the end of an axis; every later use sees the masked value."""
        if self.fact(t, a) == identity:
            return
        value = self.need(t)
        masked = Where(compare("<", a.position, a.extent), t, Const(identity))
        home = self.home(masked)
        with self.within(home):
            ref = self.let(Where(masked.pred, value, masked.otherwise), masked, "k")
        home.known[t] = ref
        self.facts.set(ref.name, a, identity)

    # ---- loops

    def group(self, scope: Scope, targets: Iterable[Term]) -> None:
        """Assign the reductions whose home is this scope to loops."""
        found = group(self.pending(scope, targets), self.folds, fuse=self.plan.fuse, note=self.note)
        for g in found:
            for r in g.members:
                scope.groups[r] = g

    def pending(self, scope: Scope, targets: Iterable[Term]) -> list[Reduce]:
        """Reductions below some terms that belong to this scope and have no value and no loop yet."""
        chain = list(scope.chain())
        around = chain[1].open if len(chain) > 1 else None
        return [
            t
            for t in walk(*targets)
            if isinstance(t, Reduce)
            and self.is_loop(t.axis)
            and self.loops_of(t) <= scope.open
            and not any(t in s.known or t in s.groups for s in chain)
            and (around is None or not self.loops_of(t) <= around)
        ]

    def note(self, text: str) -> None:
        self.notes.setdefault(text)

    def renamed_loop(self, g: Group) -> None:
        """The axis is open already: the loop runs over a copy of it."""
        a = g.axis
        b = Axis(fresh_name(a.name, (c.name for c in self.order)), a.extent, a.kind)
        copies = tuple(rebind_reduce(r, a, b) for r in g.members)
        self.adopt(b, a)
        for c in axes_in(copies):
            old = next((o for o in self.order if o.name == c.name), None)
            if c not in self.order and old is not None:  # its extent reads the renamed axis
                d = Axis(fresh_name(c.name, (e.name for e in self.order)), c.extent, c.kind)
                copies = tuple(rebind_reduce(r, c, d) for r in copies)
                self.adopt(d, old)
        self.loop(Group(copies, g.fold, g.places))
        for r, copy in zip(g.members, copies, strict=True):
            self.scope.known[r] = self.scope.known[copy]

    def adopt(self, new: Axis, like: Axis) -> None:
        """Give an axis made on the way the role of another."""
        self.plan = replaced(self.plan, roles={**self.plan.roles, new: (self.plan.level(like),)})
        self.order.insert(self.order.index(like) + 1, new)
        if like in self.unit:
            self.unit |= {new}

    def loop(self, g: Group) -> None:
        a, outer = g.axis, self.scope
        inner = outer.inside(a)
        running = {r: self.running(r, "s" if r.op == "sum" else "m") for r in g.members}
        local = running if g.absorbs else {r: self.running(r, "t") for r in g.members}
        values: dict[Term, Term] = {**local}
        bodies = {r: replace(r.body, values) for r in g.members}
        accumulators = self.accumulators(g, running)
        lower, upper = self.bounds(a, bodies)
        with self.within(inner):
            self.group(inner, bodies.values())
            for number, r in enumerate(g.members):
                term = self.reduced(r, bodies[r])
                if not g.absorbs:
                    term = self.joined(g, number, term, local, running)
                inner.statements.append(Update(accumulators[r], term))
                self.record(accumulators[r], term)
        outer.statements.append(Loop(a, lower, upper, tuple(accumulators.values()), tuple(inner.statements)))
        for r in g.members:
            outer.known[r] = running[r]

    def running(self, r: Reduce, base: str) -> Ref:
        """A value of a reduction inside its loop: the accumulator, known outside once the loop is done, or a tile's."""
        ref = Ref(self.fresh(base), self.axes(r))
        self.loops[ref] = self.loops_of(r) | {r.axis}
        return ref

    def joined(
        self, g: Group, number: int, term: TileTerm, local: Mapping[Reduce, Ref], running: Mapping[Reduce, Ref]
    ) -> TileTerm:
        """What one tile contributes to the joint state, its members being computed relative to the tile alone."""
        ref = local[g.members[number]]
        self.scope.statements.append(Let(ref.name, ref.axes, term))
        for a in self.order:
            self.facts.set(ref.name, a, self.facts.derive(term, a))
        place = g.places[number]
        if g.fold is None or place is None or not is_restated(g, number):
            return ref
        return self.flat(carry_term(g, g.fold, place, local, running, self.need))

    def flat(self, t: Term) -> Term:
        """A term over emitted values, emitted operation by operation but for the last."""
        inner = [self.flat(c) for c in children(t)]
        named = [self.let(c, c, "e") if children(c) else c for c in inner]
        return rebuild(t, named) if named else t

    def bounds(self, a: Axis, bodies: Mapping[Reduce, Term]) -> tuple[Index, Index]:
        """Bounds of a loop that opens here; they may move with the grid and with steps around, not with tiles."""
        if not self.plan.prune:
            return index(0), a.extent
        fixed = frozenset(b for b in self.order if not self.is_loop(b) or (b in self.scope.open and b in self.unit))
        return loop_bounds(a, bodies.items(), fixed)

    def record(self, c: Accumulator, term: TileTerm) -> None:
        """What an accumulator is beyond each axis: the identity, if every contribution is and nothing restates it."""
        for a in self.order:
            if c.carry is None and is_identity(self.facts.derive(term, a), c.op):
                self.facts.set(c.name, a, MONOIDS[c.op].identity)

    def accumulators(self, g: Group, running: Mapping[Reduce, Ref]) -> dict[Reduce, Accumulator]:
        """Declarations; members that depend on others of the group are restated by the fold's carry terms."""
        out: dict[Reduce, Accumulator] = {}
        for number, r in enumerate(g.members):
            carry, needs = self.carry(g, number, running)
            out[r] = Accumulator(running[r].name, r.op, running[r].axes, carry, needs)
        return out

    def carry(self, g: Group, number: int, running: Mapping[Reduce, Ref]) -> tuple[Term | None, tuple[str, ...]]:
        """How the running value of a member is restated, and what that reads; None if it is kept as it is."""
        place = g.places[number]
        if g.fold is None or place is None or not is_restated(g, number):
            return None, ()
        old = {r: before(ref) for r, ref in running.items()}
        term = carry_term(g, g.fold, place, old, running, self.need)
        return (None, ()) if isinstance(term, Ref) else (term, carry_needs(g, g.fold, place, running))

    # ---- outputs

    def store(self, o: Output) -> None:
        """Store an output; an axis of it with the role of a loop gets a loop that only stores, after its reductions."""
        stored = stored_axes([o])
        base, opened = self.scope, list[Scope]()
        for a in (a for a in stored if self.is_loop(a)):
            self.group(self.scope, [o.term])
            self.scope = self.scope.inside(a)
            opened.append(self.scope)
        self.group(self.scope, [o.term])
        value = self.need_ref(o.term)
        once = tuple(a for a in self.grid() if a not in stored)
        self.scope.statements.append(Store(o.name, o.indices, value, stored, once))
        for scope in reversed(opened):
            assert scope.parent is not None and scope.axis is not None
            scope.parent.statements.append(Loop(scope.axis, index(0), scope.axis.extent, (), tuple(scope.statements)))
        self.scope = base
