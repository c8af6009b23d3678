"""Lowering: a graph and a plan -> one tile program.

The home rule does iterative tiling and hoisting in one: a term is emitted in the outermost open scope whose loops it depends on,
and a loop joins its parent's statements only when it is complete, so whatever it needs from there lands before it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

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
    replace,
    term_indices,
    walk,
)
from cleave.ir.index import axes_of, compare, index, maximum, minimum
from cleave.ir.op import MONOIDS
from cleave.schedule.bounds import bounds
from cleave.schedule.clashes import fresh_name, rebind_reduce, separate
from cleave.schedule.contraction import Sides, narrow_type, product, split_sides
from cleave.schedule.grouping import Group, carry_reads, group
from cleave.schedule.masks import ANY, Fact, beyond, is_finite, is_identity, with_children
from cleave.schedule.partition import inputs_read
from cleave.schedule.roles import LOOPS, Plan, stored_axes
from cleave.schedule.sharing import shared_loads
from cleave.tile.check import check_program
from cleave.tile.program import Accumulator, Buffer, Contract, Let, Loop, Program, Stmt, Store, TileTerm, Update


@dataclass(frozen=True)
class Lowered:
    """A program and what was decided on the way, in words."""

    program: Program
    notes: tuple[str, ...]


def lower(g: Graph, plan: Plan, folds: Sequence[Fold] = (), name: str | None = None) -> Lowered:
    """The tile program of a graph under a plan.

    Only absorbing folds let dependent reductions share a loop. Errors: a role of two levels, a value needed outside
    its loop.
    """
    outputs, folds, roles = separate(g, plan, folds if plan.absorb else ())
    lowering = _Lowering(g, outputs, Plan(roles, plan.fuse, plan.absorb, plan.prune), folds)
    return lowering.program(name or g.name)


@dataclass(eq=False)
class _Scope:
    """The body of the kernel or of a loop while it is written."""

    parent: _Scope | None = None
    axis: Axis | None = None
    statements: list[Stmt] = field(default_factory=list[Stmt])
    known: dict[Term, Term] = field(default_factory=dict[Term, Term])
    groups: dict[Reduce, Group] = field(default_factory=dict[Reduce, Group])
    narrow: dict[str, Ref] = field(default_factory=dict[str, Ref])
    open: frozenset[Axis] = frozenset()

    def chain(self) -> Iterator[_Scope]:
        """From this scope outward."""
        scope: _Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent

    def inside(self, a: Axis) -> _Scope:
        return _Scope(self, a, open=self.open | {a})


class _Lowering:
    def __init__(self, g: Graph, outputs: tuple[Output, ...], plan: Plan, folds: Sequence[Fold]) -> None:
        self.g, self.outputs, self.plan, self.folds = g, outputs, plan, folds
        self.dtypes = {i.name: i.dtype for i in g.inputs}
        self.order = list(_program_order(outputs))
        self.unit = frozenset(a for a in self.order if plan.level(a) in ("unit", "step"))
        self.scope = _Scope()
        self.counts: dict[str, int] = {}
        self.loops: dict[Term, frozenset[Axis]] = {}
        self.facts: dict[tuple[str, Axis], Fact] = {}
        self.narrowed: set[str] = set()
        self.notes: dict[str, None] = {}

    # ---- the whole program

    def program(self, name: str) -> Lowered:
        self.group(self.scope, [o.term for o in self.outputs])
        for o in self.outputs:
            self.store(o)
        grid = tuple(a for a in self.order if self.plan.level(a) in ("grid", "unit"))
        whole = tuple(a for a in self.order if self.plan.level(a) == "whole")
        used = inputs_read(self.outputs)
        program = Program(
            name,
            tuple(i for i in self.g.inputs if i.name in used),
            tuple(Buffer(o.name, o.dtype, o.shape) for o in self.outputs),
            grid,
            self.unit,
            whole,
            tuple(self.scope.statements),
            self.g.constraints,
            frozenset(self.narrowed),
            tuple(shared_loads(tuple(self.scope.statements), frozenset(whole))),
        )
        return Lowered(check_program(program), tuple(self.notes))

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
            found |= frozenset(a for a in _with_owners(*(axes_of(i) for i in term_indices(t))) if self.is_loop(a))
            if isinstance(t, Reduce):
                found = (found - {t.axis}) | frozenset(a for a in owners(t.axis) if self.is_loop(a))
            self.loops[t] = found
        return found

    def home(self, t: Term) -> _Scope:
        """The outermost open scope with all loops of a term."""
        best: _Scope | None = None
        for scope in self.scope.chain():
            if self.loops_of(t) <= scope.open:
                best = scope
        if best is None:
            names = ", ".join(sorted(a.name for a in self.loops_of(t) - self.scope.open))
            raise ScheduleError(f"a value of the loop over {names} is needed outside it", location=self.g.name)
        return best

    @contextmanager
    def within(self, scope: _Scope) -> Generator[None]:
        saved, self.scope = self.scope, scope
        try:
            yield
        finally:
            self.scope = saved

    def axes(self, t: Term) -> tuple[Axis, ...]:
        """Tiled axes of a value, owners of ragged extents included: beyond them its tile is zero."""
        own = _with_owners(free(t))
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
            self.facts[ref.name, a] = beyond(term, a, lambda t, a=a: self.fact_of_ref(t, a))
        return ref

    def fact_of_ref(self, t: Term, a: Axis) -> Fact | None:
        return self.facts.get((t.name, a), ANY) if isinstance(t, Ref) else None

    def fact(self, t: Term, a: Axis) -> Fact:
        """What the value of a graph term, as it stands emitted, is beyond the end of an axis."""

        def known(u: Term) -> Fact | None:
            if isinstance(u, Ref):
                return self.fact_of_ref(u, a)
            for scope in self.scope.chain():
                if u in scope.known:
                    emitted = scope.known[u]
                    return self.fact_of_ref(emitted, a) if isinstance(emitted, Ref) else beyond(emitted, a, known)
            return None

        found = known(t)
        return beyond(t, a, known) if found is None else found

    def need(self, t: Term) -> Term:
        """The emitted value of a term: found on the way out to its home, or emitted there."""
        home = self.home(t)
        for scope in self.scope.chain():
            if t in scope.known:
                return scope.known[t]
            if scope is home:
                break
        with self.within(home):
            made = self.emit(t)
        home.known.setdefault(t, made)
        return home.known[t]

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
                return self.let(with_children(t, [self.need(c) for c in children(t)]), t, _letter(t))

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
        """The reduction of a body over the tile of an axis: Contract if its factors fall into two sides, else
        Reduce."""
        a, identity = r.axis, MONOIDS[r.op].identity
        if a in self.unit:  # one element a trip; rows of a tile may still end at different trips
            if owners(a) - self.unit:
                self.mask(body, a, identity)
            return self.need(body)
        sides, dtype = None, None
        if r.op == "sum":
            sides = split_sides(body, a, self.axis_set, self.is_divided)
            dtype = narrow_type(body, self.dtypes.__getitem__) or self.narrow_input()
        if sides is None or dtype is None:
            self.mask(body, a, identity)
            return Reduce(r.op, a, self.need(body))
        return self.contract(a, sides, dtype)

    def narrow_input(self) -> str | None:
        return next((d for d in self.dtypes.values() if d in ("float16", "bfloat16")), None)

    def contract(self, a: Axis, sides: Sides, dtype: str) -> Contract:
        """Beyond the summed axis one side has to be 0 and the other finite."""
        left, right = product(sides.left), product(sides.right)
        if not is_identity(self.fact(left, a), "sum") and not is_identity(self.fact(right, a), "sum"):
            self.mask(right if len(sides.right) > 1 or not isinstance(right, Load) else left, a, 0.0)
        for one, other in ((left, right), (right, left)):
            if is_identity(self.fact(one, a), "sum") and not is_finite(self.fact(other, a)):
                self.mask(other, a, 0.0)
        return Contract(a, self.operand(left, dtype), self.operand(right, dtype))

    def operand(self, t: Term, dtype: str) -> Ref:
        """A matmul operand in its storage type: a load as it is, a computed value through a visible cast."""
        value = self.need_ref(t)
        if (isinstance(t, Load) and self.dtypes.get(t.input) == dtype) or (isinstance(t, Cast) and t.dtype == dtype):
            return value
        home = self.home(t)
        for scope in self.scope.chain():
            if value.name in scope.narrow:
                return scope.narrow[value.name]
            if scope is home:
                break
        with self.within(home):
            cast = self.let(Cast(dtype, value), t, "n")
        for a in self.order:
            self.facts[cast.name, a] = self.facts.get((value.name, a), ANY)
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
        self.facts[ref.name, a] = identity

    # ---- loops

    def group(self, scope: _Scope, targets: Iterable[Term]) -> None:
        """Assign the reductions whose home is this scope to loops."""
        known = [set(s.known) for s in scope.chain()]
        taken = [set(s.groups) for s in scope.chain()]
        pending = [
            t
            for t in walk(*targets)
            if isinstance(t, Reduce)
            and self.is_loop(t.axis)
            and self.loops_of(t) <= scope.open
            and not any(t in s for s in (*known, *taken))
            and (scope.parent is None or not self.loops_of(t) <= scope.parent.open)
        ]
        for found in group(pending, self.folds, fuse=self.plan.fuse, note=self.note):
            for r in found.members:
                scope.groups[r] = found

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
        roles = {**self.plan.roles, new: (self.plan.level(like),)}
        self.plan = Plan(roles, self.plan.fuse, self.plan.absorb, self.plan.prune)
        self.order.insert(self.order.index(like) + 1, new)
        if like in self.unit:
            self.unit |= {new}

    def loop(self, g: Group) -> None:
        a, outer = g.axis, self.scope
        inner = outer.inside(a)
        running: dict[Term, Term] = {}
        for r in g.members:
            ref = Ref(self.fresh({"sum": "s", "max": "m", "min": "m"}.get(r.op, "a")), self.axes(r))
            running[r] = ref
            self.loops[ref] = self.loops_of(r) | {a}
        bodies = {r: replace(r.body, running) for r in g.members}
        accumulators = self.accumulators(g, running)
        lower, upper = index(0), a.extent
        if self.plan.prune:
            fixed = frozenset(b for b in self.order if not self.is_loop(b) or (b in outer.open and b in self.unit))
            for bound in bounds(a, bodies.items(), fixed):
                lower = maximum(lower, bound.value) if bound.side == "lower" else lower
                upper = minimum(upper, bound.value) if bound.side == "upper" else upper
        with self.within(inner):
            self.group(inner, bodies.values())
            for r in g.members:
                accumulator = accumulators[r]
                term = self.reduced(r, bodies[r])
                inner.statements.append(Update(accumulator, term))
                self.record(accumulator, term)
        outer.statements.append(Loop(a, lower, upper, tuple(accumulators.values()), tuple(inner.statements)))
        for r in g.members:
            outer.known[r] = running[r]

    def record(self, c: Accumulator, term: TileTerm) -> None:
        """What an accumulator is beyond each axis: the identity, if every contribution is and nothing restates it."""
        for a in self.order:
            fact = beyond(term, a, lambda t, a=a: self.fact_of_ref(t, a))
            if c.carry is None and is_identity(fact, c.op):
                self.facts[c.name, a] = MONOIDS[c.op].identity

    def accumulators(self, g: Group, running: Mapping[Term, Term]) -> dict[Reduce, Accumulator]:
        """Declarations; members that depend on others of the group are restated by the fold's carry terms."""
        out: dict[Reduce, Accumulator] = {}
        for r, place in zip(g.members, g.places, strict=True):
            ref = running[r]
            assert isinstance(ref, Ref)
            below = set(walk(r.body))
            carry, needs = None, ()
            if g.fold is not None and place is not None and any(u in below for u in g.members):
                carry, needs = self.carry(g, g.fold, place, running)
            out[r] = Accumulator(ref.name, r.op, ref.axes, carry, needs)
        return out

    def carry(
        self, g: Group, fold: Fold, place: int, running: Mapping[Term, Term]
    ) -> tuple[Term | None, tuple[str, ...]]:
        """The fold's carry term of one member over the accumulators of the loop."""
        at: dict[int, Ref] = {}
        for r, k in zip(g.members, g.places, strict=True):
            ref = running[r]
            if k is not None and isinstance(ref, Ref):
                at[k] = ref
        term = fold.carry[place]
        mapping: dict[Term, Term] = {}
        for t in walk(term):
            if isinstance(t, Ref):
                ref = at[int(t.name[3:])]
                mapping[t] = Ref(ref.name + "~", ref.axes) if t.name.startswith("old") else ref
            elif not isinstance(t, Const | IndexValue) and not any(isinstance(u, Ref) for u in walk(t)):
                mapping[t] = self.need(t)
        made = replace(term, mapping)
        if isinstance(made, Ref):
            return None, ()
        return made, tuple(at[k].name for k in sorted(carry_reads(term)) if k != place)

    # ---- outputs

    def store(self, o: Output) -> None:
        """Store an output; an output axis with the role of a loop gets a loop that only stores, after its
        reductions."""
        stored = stored_axes([o])
        base, opened = self.scope, list[_Scope]()
        for a in (a for a in stored if self.is_loop(a)):
            self.group(self.scope, [o.term])
            self.scope = self.scope.inside(a)
            opened.append(self.scope)
        self.group(self.scope, [o.term])
        value = self.need_ref(o.term)
        tiled = [a for a in self.order if self.plan.level(a) in ("grid", "unit")]
        once = tuple(a for a in tiled if a not in stored)
        self.scope.statements.append(Store(o.name, o.indices, value, stored, once))
        for scope in reversed(opened):
            assert scope.parent is not None and scope.axis is not None
            scope.parent.statements.append(Loop(scope.axis, index(0), scope.axis.extent, (), tuple(scope.statements)))
        self.scope = base


def _letter(t: Term) -> str:
    """What names of a kind of value begin with."""
    return {"Where": "w", "Cast": "c"}.get(type(t).__name__, "e")


def _with_owners(*axes: Iterable[Axis]) -> frozenset[Axis]:
    own = frozenset(a for group_ in axes for a in group_)
    return own.union(*(owners(a) for a in own))


def _program_order(outputs: Sequence[Output]) -> tuple[Axis, ...]:
    """Output axes as they are stored (slowest first), then the others by name; owners of ragged extents before what
    they own."""
    found: dict[Axis, None] = {}

    def add(a: Axis) -> None:
        for owner in sorted(axes_of(a.extent), key=lambda b: b.name):
            add(owner)
        found.setdefault(a)

    for a in (*stored_axes(outputs), *axes_in([o.term for o in outputs])):
        add(a)
    return tuple(found)
