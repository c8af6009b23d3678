"""Folds: what they say is checked here from their definition, on fresh data, for every candidate that brings one."""

from collections.abc import Mapping, Sequence
from dataclasses import replace as with_field
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from cleave.candidate import Candidate, Fold
from cleave.frontend import ops
from cleave.frontend.trace import trace
from cleave.ir.axis import SplitAxis, split_axis
from cleave.ir.bind import bind_dims
from cleave.ir.dim import dim
from cleave.ir.graph import Reduce, Ref, Term, axes_in, fold, free, load, reductions, replace, substitute_axes, walk
from cleave.ir.graph import apply as pointwise
from cleave.ir.interp import Space, make_space, value
from cleave.ir.op import MONOIDS
from cleave.ir.text import show_term
from cleave.search import search
from cleave.search.folds import dependent_passes
from cleave.verify import verify
from tests.null.operators import ATTENTION, OTHERS
from tests.null.searched import QUICK, found, operator

Array = NDArray[Any]


def test_attention_folds_maximum_sum_and_accumulator() -> None:
    f = found("causal lse")
    whole = f.pick()
    (over_t,) = whole.folds
    assert over_t.axis.name == "t" and over_t.absorbing
    assert [m.op for m in over_t.members] == ["max", "sum", "sum"]
    assert [show_term(c) for c in over_t.carry] == [
        "ref('old0', kv, r, s)",
        "(exp_diff(ref('old0', kv, r, s), ref('new0', kv, r, s)) * ref('old1', kv, r, s))",
        "(exp_diff(ref('old0', kv, r, s), ref('new0', kv, r, s)) * ref('old2', e, kv, r, s))",
    ]
    assert set(over_t.members) <= set(walk(*whole.graph.terms))


def masked_attention(q, k, v, seen):
    scores = ops.where(seen[None, None], ops.einsum("hsd,htd->hst", q, k) * 0.3, -np.inf)
    return ops.einsum("hst,hte->hse", ops.softmax(scores, axis="t"), v), ops.logsumexp(scores, axis="t")


@pytest.mark.parametrize("seen", ["bool[t]", "bool[1]"])
def test_one_instance_does_not_vouch_for_a_fold(seen: str) -> None:
    """Where a mask leaves a single key the sum is 1, and a fold that divides by it at every join looks right."""
    g = trace(masked_attention, q="h s d=8", k="h t d", v="h t e=16", seen=seen)
    candidates = search(g, config=QUICK).candidates
    assert any(c.splits for c in candidates) and any(len(f.members) == 3 for c in candidates for f in c.folds)
    for c in candidates:
        assert verify(c).passed, f"{verify(c).summary()}\n{c.text()}"


def windowed(q, k, v):
    scores = ops.einsum("hsd,htd->hst", q, k) * 0.3
    i, j = scores.position("s"), scores.position("t")
    scores = ops.where((j <= i) & (j + 5 > i), scores, -np.inf)
    return ops.einsum("hst,hte->hse", ops.softmax(scores, axis="t"), v)


def test_a_wrong_join_is_caught_where_a_mask_leaves_few_keys() -> None:
    """A row that sees one chunk only says nothing about joining two."""
    g = trace(windowed, q="h s d=8", k="h t d", v="h t e=16")
    (c, *_) = (c for c in search(g, config=QUICK).candidates if c.splits)
    assert verify(c).passed
    for n, f in enumerate(c.folds):
        for k in range(1, len(f.members)):
            old = next(t for t in walk(f.carry[k]) if isinstance(t, Ref) and t.name == f"old{k}")
            carry = tuple(old if j == k else t for j, t in enumerate(f.carry))
            folds = tuple(with_field(f, carry=carry) if j == n else other for j, other in enumerate(c.folds))
            assert not verify(with_field(c, folds=folds)).passed, (f.axis, k)


def test_flash_decoding_folds_within_a_chunk_and_over_chunks() -> None:
    split = found("causal lse").pick(split="t")
    inner, outer = sorted(split.folds, key=lambda f: f.axis.kind)
    assert (inner.axis, outer.axis) == (split.splits[0].inner, split.splits[0].outer)
    assert len(inner.members) == len(outer.members) == 3 and inner.absorbing and outer.absorbing
    assert all(split.splits[0].outer in free(m) for m in inner.members)


def test_the_divided_sum_as_written_gets_no_fold() -> None:
    """Online softmax comes from the algebra: with the division inside only maximum and sum fold."""
    written = found("causal lse").candidates[-1]
    assert written.name == "as written"
    (f,) = written.folds
    assert [m.op for m in f.members] == ["max", "sum"]
    divided = [r for r in reductions(*written.graph.terms) if r.axis is f.axis and r not in f.members]
    assert len(divided) == 1 and dependent_passes(written.graph, written.folds) == 2


def test_an_outer_stage_that_divides_is_dropped_for_one_that_folds() -> None:
    f = found("causal lse")
    assert [dependent_passes(c.graph, c.folds) for c in f.candidates if c.splits] == [1]
    assert any(line.startswith("split t 2: dominated by split t: ") for line in f.report.dropped)
    assert all("1 more passes over t_o" in line for line in f.report.dropped if line.startswith("split"))


@pytest.mark.parametrize("name", ["matmul", "swiglu", "variance", "chain"])
def test_independent_reductions_need_no_fold(name: str) -> None:
    assert all(not c.folds for c in found(name).candidates)


def test_without_the_telescoping_rule_nothing_folds() -> None:
    from cleave.rewrite import Rulebook

    f = search(operator("causal").graph, rules=Rulebook.default().without("telescope"), config=QUICK)
    assert all(not c.folds for c in f.candidates)


# ---- the law, from the definition


def parts(f: Fold, pieces: SplitAxis) -> list[Reduce]:
    """The members over one piece of the axis each, in terms of one another."""
    out: list[Reduce] = []
    for m in f.members:
        marked = replace(m.body, {u: Ref(f"part{j}", ()) for j, u in enumerate(f.members) if u is not m})
        body = substitute_axes(marked, {f.axis: pieces.position})
        body = replace(body, {Ref(f"part{j}", ()): p for j, p in enumerate(out)})
        out.append(Reduce(m.op, pieces.inner, body))
    return out


def tiles(f: Fold, pieces: SplitAxis) -> list[Reduce]:
    """Members over one piece, relative to the joint state."""
    out: list[Reduce] = []
    for m in f.members:
        marked = {u: Ref(f"new{j}", refs(f)[j]) for j, u in enumerate(f.members) if u is not m}
        body = substitute_axes(replace(m.body, dict(marked)), {f.axis: pieces.position})
        out.append(Reduce(m.op, pieces.inner, body))
    return out


def refs(f: Fold) -> list[tuple[Any, ...]]:
    """Axes of the references, as the carries name them."""
    return [tuple(sorted(free(m), key=lambda a: a.name)) for m in f.members]


def dims_of(c: Candidate, sizes: Mapping[str, int], inputs: Mapping[str, Array]) -> dict[str, int]:
    known = {s.name for s in c.graph.symbols}
    given = {n: v for n, v in sizes.items() if n in known}
    for s in c.splits:
        given |= {s.count: 4, s.chunk: 3}
    return bind_dims(c.graph, {n: a.shape for n, a in inputs.items()}, given)


def state_at(values: Sequence[Array], number: int, position: int) -> list[Array]:
    return [v if v.shape[number] == 1 else np.take(v, [position], axis=number) for v in values]


def joined(f: Fold, space: Space, x: Sequence[Array], y: Sequence[Array] | int, pieces: SplitAxis) -> list[Array]:
    """Join of two states, or of a state with the tile of that number in the absorbing form."""
    axes = refs(f)
    new: dict[Term, Array] = {}
    for k, m in enumerate(f.members):
        mine = value(f.carry[k], space, {**new, **{Ref(f"old{j}", axes[j]): v for j, v in enumerate(x)}})
        if isinstance(y, int):
            tile = value(tiles(f, pieces)[k], space, dict(new))
            theirs = state_at([tile], space.number(pieces.outer), y)[0]
        else:
            theirs = value(f.carry[k], space, {**new, **{Ref(f"old{j}", axes[j]): v for j, v in enumerate(y)}})
        new[Ref(f"new{k}", axes[k])] = MONOIDS[m.op].combine(mine, theirs)
    return list(new.values())


def assert_equal_where_valid(space: Space, f: Fold, got: Sequence[Array], wanted: Sequence[Array]) -> None:
    for m, a, b in zip(f.members, got, wanted, strict=True):
        a, b, inside = np.broadcast_arrays(a, b, space.valid_for(free(m)))
        np.testing.assert_allclose(a[inside], b[inside], 1e-9, 1e-12)


@pytest.mark.parametrize("name", [name for name, _ in (*ATTENTION, *OTHERS)])
def test_folding_any_chunking_in_any_order_gives_the_whole(name: str, rng: np.random.Generator) -> None:
    op = operator(name)
    sizes = op.sizes[0]
    inputs = op.inputs(sizes, rng)
    for c in found(name).candidates:
        for f in c.folds:
            count, chunk = int(rng.integers(2, 6)), int(rng.integers(1, 4))
            pieces = split_axis(f.axis, dim("many", minimum=1), dim("length", minimum=1))
            pieces_of_members = parts(f, pieces)
            order = axes_in([*pieces_of_members, *f.members, *c.graph.terms, *f.carry])
            longest = 12
            known = dims_of(c, sizes, inputs) | {"many": max(count, -(-longest // chunk)), "length": chunk}
            space = make_space(order, inputs, known)
            with np.errstate(all="ignore"):
                wanted = [value(m, space) for m in f.members]
                states = [value(p, space) for p in pieces_of_members]
                number = space.number(pieces.outer)
                chunks = rng.permutation(known["many"])
                joint = identity = [np.full([1] * len(order), MONOIDS[m.op].identity) for m in f.members]
                tree = [state_at(states, number, o) for o in chunks]
                absorbed = identity
                for o in chunks:
                    joint = joined(f, space, joint, state_at(states, number, o), pieces)
                    if f.absorbing:
                        absorbed = joined(f, space, absorbed, int(o), pieces)
                while len(tree) > 1:  # any tree, too
                    tree = [
                        joined(f, space, tree[i], tree[i + 1], pieces) if i + 1 < len(tree) else tree[i]
                        for i in range(0, len(tree), 2)
                    ]
            assert_equal_where_valid(space, f, joint, wanted)
            assert_equal_where_valid(space, f, tree[0], wanted)
            if f.absorbing:
                assert_equal_where_valid(space, f, absorbed, wanted)


def test_a_total_that_is_no_fold_is_refused() -> None:
    """A division under the outer sum restates a normalised sum as if it were none: caught by trying it."""
    every = search(operator("causal").graph, config=QUICK, cost=lambda c, e: e.work)  # nothing is dropped
    second = [c for c in every.candidates if c.splits][1]
    outer = next(f for f in second.folds if f.axis.kind == "outer")
    assert [m.op for m in outer.members] == ["max", "sum"]


def test_a_product_of_partials_is_no_state() -> None:
    """sum_t a * (max_t b) has no restatement, so it stays two passes."""
    from cleave.ir.axis import axis
    from cleave.ir.dim import dims
    from cleave.ir.graph import Input, Output, graph

    s, t = dims("s t")
    i, t_ = axis("i", s), axis("t", t)
    a, b = load("A", i, t_), load("B", i, t_)
    m = fold("max", t_, b)
    out = fold("sum", t_, pointwise("sq", pointwise("sub", a, m)))
    inputs = [Input("A", "float32", (s, t)), Input("B", "float32", (s, t))]
    g = graph("no_state", inputs, [Output("Y", "float32", (s,), (i.position,), out)])
    f = search(g, config=QUICK)
    assert all(not c.folds for c in f.candidates)
    assert dependent_passes(g, ()) == 2


def test_the_check_of_this_page_sees_a_forgotten_rescale(rng: np.random.Generator) -> None:
    c = found("causal").pick()
    (f,) = c.folds
    wrong = Fold(f.axis, f.members, (*f.carry[:2], Ref("old2", refs(f)[2])), f.absorbing)
    op = operator("causal")
    inputs = op.inputs(op.sizes[0], rng)
    pieces = split_axis(f.axis, dim("many", minimum=1), dim("length", minimum=1))
    members = parts(wrong, pieces)
    space = make_space(
        axes_in([*members, *f.members, *c.graph.terms]),
        inputs,
        dims_of(c, op.sizes[0], inputs) | {"many": 3, "length": 3},
    )
    with np.errstate(all="ignore"):
        states, number = [value(p, space) for p in members], space.number(pieces.outer)
        joint = state_at(states, number, 0)
        for o in (1, 2):
            joint = joined(wrong, space, joint, state_at(states, number, o), pieces)
        wanted = [value(m, space) for m in f.members]
    with pytest.raises(AssertionError):
        assert_equal_where_valid(space, f, joint, wanted)
