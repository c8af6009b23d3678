"""Random graphs under random roles, tiles and sizes: the tile program equals the graph, in float64.

Every batch draws graphs over plain axes, a ragged one (its extent is read per row) and a split one (outer axis,
chunks that do not divide). Folds are those of softmax-like cascades, read off the graph. Sizes divide nothing and
may be zero.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.random import Generator, default_rng

from cleave.candidate import Fold
from cleave.ir.axis import Axis, axis, split_axis
from cleave.ir.graph import (
    Graph,
    Input,
    Map,
    Output,
    Reduce,
    Ref,
    Term,
    Where,
    apply,
    const,
    fold,
    free,
    graph,
    load,
    product_factors,
    reductions,
    walk,
)
from cleave.ir.index import Pred, axes_of, both, compare, index, read
from cleave.ir.interp import interpret
from cleave.schedule.lower import lower
from cleave.schedule.roles import Plan, Role
from cleave.tile.interp import run_program
from cleave.tile.program import Store, loops, program_axes, statements

BATCHES, GRAPHS = 12, 100
ROWS = 8
"""Extent of the table of ragged lengths, and the largest size of anything."""

ROW, N, K, T = (axis(name, name.upper()) for name in "inkt")
RAGGED = axis("u", read("len", ROW))
CHUNKED = split_axis(T, "S", "C")
PLAIN = {a: (a.position, a.extent) for a in (ROW, N, K, T)}


def random_load(rng: Generator, inputs: dict[str, Input]) -> Term:
    """A read of a fresh input along some axes; T either whole or as a pair of chunk axes."""
    chunked = rng.random() < 0.4
    positions, shape = list[object](), list[object]()
    for a in (ROW, N, K, T):
        if rng.random() < 0.45:
            positions.append(CHUNKED.position if a is T and chunked else a.position)
            shape.append(a.extent)
    if rng.random() < 0.3:
        positions.append(RAGGED.position)
        shape.append(index(ROWS))
    name = f"x{len(inputs)}"
    inputs[name] = Input(name, str(rng.choice(["float16", "float32"])), tuple(shape))  # type: ignore[arg-type]
    return load(name, *positions)  # type: ignore[arg-type]


def choose(rng: Generator, items: Sequence[Any]) -> Any:
    return items[int(rng.integers(len(items)))]


def bindable(t: Term) -> list[Axis]:
    """Axes that a reduction may bind now: an outer axis only once its chunks are folded."""
    out = [a for a in free(t) if a in (K, T, RAGGED, CHUNKED.inner)]
    if CHUNKED.outer in free(t) and CHUNKED.inner not in free(t):
        out.append(CHUNKED.outer)
    return sorted(out, key=lambda a: a.name)


def random_cascade(rng: Generator, t: Term, a: Axis, pool: list[Term]) -> Term:
    """Weights relative to a maximum, and reductions of them, masked first at times."""
    if rng.random() < 0.6:
        t = Where(random_pred(rng), t, const(-np.inf))
    weight = apply("exp_diff", t, fold("max", a, t))
    total, mean = fold("sum", a, weight), fold("sum", a, apply("mul", weight, choose(rng, pool)))
    pool.append(total)
    quotient = apply("mul", mean, apply("recip0", total))
    return choose(rng, [weight, mean, quotient, quotient])


def random_pred(rng: Generator) -> Pred:
    return choose(
        rng,
        [
            compare("<=", K, ROW.position + 2),
            compare("<", ROW.position, K),
            compare("<=", CHUNKED.position, ROW),
            both(compare("<=", K, ROW), compare("<=", ROW.position - 3, K)),
            compare("<=", RAGGED, ROW.position + N.position),
        ],
    )


def random_step(rng: Generator, pool: list[Term]) -> Term | None:
    t, draw = choose(rng, pool), rng.random()
    axes = bindable(t)
    if draw < 0.40:
        return fold(str(rng.choice(["sum", "sum", "max", "min"])), choose(rng, axes), t) if axes else None
    if draw < 0.60:
        return apply("mul", t, choose(rng, pool))
    if draw < 0.70:
        return apply(str(rng.choice(["add", "sub", "maximum"])), t, choose(rng, pool))
    if draw < 0.85 and axes:
        return random_cascade(rng, t, choose(rng, axes), pool)
    if draw < 0.90:
        return apply("recip0", apply("add", apply("sq", t), const(1.0)))
    if draw < 0.93:
        return apply("exp", apply("minimum", t, const(2.0)))
    return Where(random_pred(rng), t, const(float(rng.choice([0.0, -np.inf]))))


def random_graph(rng: Generator) -> Graph | None:
    inputs = {"len": Input("len", "int32", (index(ROWS),))}
    pool = [random_load(rng, inputs) for _ in range(int(rng.integers(2, 5)))]
    for _ in range(int(rng.integers(4, 12))):
        made = random_step(rng, pool)
        if made is not None:
            pool.append(made)
    usable = [t for t in pool if free(t) and free(t) <= {ROW, N, K} and reductions(t)]
    if not usable:
        return None
    outputs = list[Output]()
    for number, t in enumerate(usable[-2:]):
        stored = tuple(a for a in (ROW, N, K) if a in free(t))
        shape = tuple(a.extent for a in stored)
        outputs.append(Output(f"Y{number}", "float32", shape, tuple(a.position for a in stored), t))
    # symbols that only extents mention have to be bound by a shape or by the caller: all are, by the caller
    return graph("random", tuple(inputs.values()), outputs)


def folds_of(g: Graph, *, absorbing: bool = True) -> list[Fold]:
    """(max, sums of exp_diff(x, max) * rest): restated by exp_diff(old max, new max)."""
    found = list[Fold]()
    for m in reductions(*g.terms):
        if m.op != "max":
            continue
        weight = Map("exp_diff", (m.body, m))
        sums = [r for r in reductions(*g.terms) if r.op == "sum" and r.axis is m.axis and _is_weighted(r, weight, m)]
        rescale = apply("exp_diff", Ref("old0", ()), Ref("new0", ()))
        carry = [apply("mul", rescale, Ref(f"old{k}", ())) for k in range(1, len(sums) + 1)]
        if sums:
            found.append(Fold(m.axis, (m, *sums), (Ref("old0", ()), *carry), absorbing))
    return found


def _is_weighted(r: Reduce, weight: Term, m: Reduce) -> bool:
    parts = product_factors(r.body)
    return parts.count(weight) == 1 and not any(m in walk(p) for p in parts if p is not weight)


def random_roles(rng: Generator, g: Graph) -> dict[Axis, Role]:
    stored = {a for o in g.outputs for i in o.indices for a in axes_of(i)}
    bound = {r.axis for r in reductions(*g.terms)}
    roles = dict[Axis, Role]()
    for a in g.axes:
        if a in stored and a in bound:
            allowed = ["loop", "grid", "whole", "step"]
        elif a in stored:
            allowed = ["unit", "grid", "whole", "loop"]
        else:
            allowed = ["loop", "whole", "step"]
        roles[a] = (str(rng.choice(allowed)),)  # type: ignore[assignment]
    for a in g.axes:  # what a ragged extent reads is placed before what it owns
        for owner in axes_of(a.extent):
            inside = roles[a][0] == "whole" and roles[owner][0] in ("loop", "step")
            if inside:
                roles[a] = ("loop",)
    return roles


def outcome(rng: Generator, seen: Counter[str]) -> None:
    g = random_graph(rng)
    if g is None:
        seen["no output"] += 1
        return
    plan = Plan(random_roles(rng, g), *(bool(rng.random() < 0.8) for _ in range(3)))
    program = lower(g, plan, folds_of(g, absorbing=bool(rng.random() < 0.7)) if rng.random() < 0.8 else ()).program
    dims = {name: int(rng.integers(0 if rng.random() < 0.2 else 1, ROWS)) for name in "INKT"}
    for a in (a for s in statements(program.body) if isinstance(s, Store) for a in s.once):
        dims[str(a.extent)] = max(dims[str(a.extent)], 1)  # an empty grid stores nothing: schedules require this extent
    dims |= {"S": int(rng.integers(1, 5))}
    dims["C"] = -(-dims["T"] // dims["S"]) + int(rng.integers(0, 3))
    arrays: dict[str, np.ndarray] = {"len": rng.integers(0, ROWS + 1, ROWS)}
    for i in g.inputs:
        if i.name != "len":
            shape = [dims[str(n)] if n.constant is None else n.constant for n in i.shape]
            arrays[i.name] = rng.standard_normal(shape)  # type: ignore[arg-type]
    known = {s.name for s in g.symbols}
    reference = interpret(g, arrays, {k: v for k, v in dims.items() if k in known})
    tiles = {a: ROWS + 1 if a in program.whole else int(rng.integers(1, 5)) for a in program_axes(program)}
    buffers = dict(arrays) | {o.name: np.full(reference[o.name].shape, np.nan) for o in g.outputs}
    run_program(program, tiles, buffers, dims)
    for o in g.outputs:
        wanted, got = reference[o.name], buffers[o.name]
        scale = 1 + float(np.max(np.abs(np.where(np.isfinite(wanted), wanted, 0)), initial=0))
        if not np.allclose(got, wanted, rtol=1e-6, atol=1e-9 * scale, equal_nan=True):
            if not np.isfinite(wanted).all():
                seen["reference not finite"] += 1
                return
            names = {a.name: r[0] for a, r in plan.roles.items()}
            pytest.fail(
                f"{o.name} differs\n{g.text()}{program}\nroles {names} dims {dims} tiles {tiles}\n{got - wanted}"
            )
    seen["equal"] += 1
    seen["carried"] += any(c.carry is not None for s in loops(program) for c in s.accumulators)
    seen["shortened"] += any(s.upper is not s.axis.extent or s.lower is not index(0) for s in loops(program))


@pytest.mark.parametrize("batch", range(BATCHES))
def test_random_graphs_under_random_plans_equal_the_graph(batch: int) -> None:
    rng, seen = default_rng(1000 + batch), Counter[str]()
    with np.errstate(all="ignore"):
        while seen["equal"] < GRAPHS:
            outcome(rng, seen)
    assert seen["reference not finite"] <= GRAPHS // 20, seen
    assert seen["carried"] >= 5 and seen["shortened"] >= 1, seen
