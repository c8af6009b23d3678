"""Candidates that are right at every small size and wrong at the user's, one a kind of mistake: for the final test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce

from cleave.candidate import Candidate, as_written
from cleave.frontend.trace import trace
from cleave.ir.axis import Axis
from cleave.ir.graph import Load, Term, Where, apply, const, free, graph, reductions, walk
from cleave.ir.graph import replace as replaced
from cleave.ir.index import Index, Not, Pred, axes_of, both, compare, evaluate, index
from tests.null.scheduled_candidates import flash_decoding, rmsnorm_matmul, swiglu_split

LARGE = 60
"""Sizes that no small or medium instance has."""


@dataclass(frozen=True)
class Plant:
    name: str
    candidate: Candidate
    bind: Mapping[str, int]


def plants() -> list[Plant]:
    """Plants in four programs, literal extents among them."""
    decode = flash_decoding(causal=True).candidate
    matmul = as_written(trace(lambda a, b: a @ b, a="m k=1100", b="k n=1500", dtype="float16", name="matmul"))
    cases = {
        "decode": (decode, {"kv": 20, "s": 200, "t": 500}),
        "matmul": (matmul, {"m": 70}),
        "norm": (rmsnorm_matmul().candidate, {"m": 200, "n": 700, "k": 1000}),
        "gated split": (swiglu_split().candidate, {"m": 100, "n": 600, "k": 800}),
    }
    found: list[Plant] = []
    for name, (c, bind) in cases.items():
        made = [*_stored(c, bind), *_reduced(c, bind), *_split(c)]
        found += [Plant(f"{name}: {kind}", replace(p, name=kind), bind) for kind, p in made]
    return found


# ---- kinds of mistakes


def _stored(c: Candidate, bind: Mapping[str, int]) -> Iterator[tuple[str, Candidate]]:
    """Outputs that are a little off: all, one position, the ends, a tail tile, beyond a position, of each axis."""
    root = c.graph.outputs[0].term
    dims = {**{s.name: s.value for s in c.graph.symbols if s.value is not None}, **bind}
    axes = sorted({a for i in c.graph.outputs[0].indices for a in axes_of(i)}, key=lambda a: a.name)
    far = {a: _equal(a.position, max(int(evaluate(a.extent, dims)) - 7, 0)) for a in axes}
    yield "one element", _spoilt(c, reduce(both, (_long(c), *far.values())), _scaled, {root})
    for a in axes:
        n, size, at = int(evaluate(a.extent, dims)), a.extent, a.position
        where = {
            "beyond in": compare("<=", max(3 * n // 4, LARGE), at),
            "last": both(compare("<", LARGE, size), _equal(at, size - 1)),
            "first": both(compare("<", LARGE, size), _equal(at, 0)),
            "tail tile of": both(compare("<", LARGE, size), compare("<=", size // 64 * 64, at)),
            "odd": both(compare("<", LARGE, size), _equal(at % 2, 1)),
            "one far": both(compare("<", LARGE, size), far[a]),
            "every 64th": both(compare("<", LARGE, size), _equal(at % 64, 37)),
            "an eighth of": both(compare("<=", n // 2, at), compare("<", at, n // 2 + max(n // 8, 8))),
        }
        where["an eighth of"] = both(where["an eighth of"], compare("<", LARGE, size))
        if n > LARGE:
            yield from ((f"{kind} {a.name}", _spoilt(c, w, _scaled, {root})) for kind, w in where.items())
        else:  # heads and the like: wrong in one of them, where a reduction is long
            one = both(_equal(at, n // 2), _long(c))
            yield f"one {a.name}", _spoilt(c, one, _scaled, {root})


def _reduced(c: Candidate, bind: Mapping[str, int]) -> Iterator[tuple[str, Candidate]]:
    """What a loop leaves out: its ends, its tail, one element, all beyond a position."""
    axes = {r.axis for r in reductions(*c.graph.terms) if r.axis.kind == "plain"}
    dims = {**{s.name: s.value for s in c.graph.symbols if s.value is not None}, **bind}
    for a in sorted(axes, key=lambda a: a.name):
        size, at, n = a.extent, a.position, int(evaluate(a.extent, dims))
        if n <= 128:
            continue
        loads = {t for t in walk(*c.graph.terms) if isinstance(t, Load) and any(a in axes_of(i) for i in t.indices)}
        where = {
            "last of": _equal(at, size - 1),
            "first of": _equal(at, 0),
            "one of": _equal(at, 77),
            "beyond in sum over": compare("<=", n * 3 // 4, at),
            "tail of": compare("<=", size // 128 * 128, at),
        }
        for kind, w in where.items():
            yield f"{kind} {a.name}", _spoilt(c, both(compare("<", LARGE, size), w), _dropped, loads)
        rows = {b for t in loads for b in free(t) if b is not a and int(evaluate(b.extent, dims)) > LARGE}
        for b in sorted(rows, key=lambda b: b.name):
            one = both(_equal(at, 77), _equal(b.position, int(evaluate(b.extent, dims)) - 7))
            yield f"one of {a.name} in one {b.name}", _spoilt(c, one, _dropped, {t for t in loads if b in free(t)})


def _split(c: Candidate) -> Iterator[tuple[str, Candidate]]:
    """Wrong for some counts of chunks only, where chunks are long."""
    for s in c.splits:
        count, at = s.outer.extent, s.outer.position
        size = next(a.extent for a in c.origin.axes if a.name == s.base)
        parts: set[Term] = {t for t in reductions(*c.graph.terms) if t.op == "sum" and t.axis is s.inner}
        several = both(compare("<", LARGE, size), compare("<", 1, count))
        where = {
            "S that does not divide": both(several, Not(_equal(size % count, 0))),
            "S that divides": both(several, _equal(size % count, 0)),
            "last chunk": both(several, _equal(at, count - 1)),
            "second chunk": both(several, _equal(at, 1)),
            "any split": several,
        }
        for kind, w in where.items():
            yield f"{kind} of {s.base}", _spoilt(c, w, _scaled, parts)


def spoilt_count(c: Candidate, count: int) -> Candidate:
    """A candidate with one split that is wrong for one count of chunks only, where chunks are long."""
    (split,) = c.splits
    parts: set[Term] = {t for t in reductions(*c.graph.terms) if t.op == "sum" and t.axis is split.inner}
    size = next(a.extent for a in c.origin.axes if a.name == split.base)
    return _spoilt(c, both(compare("<", LARGE, size), _equal(split.outer.extent, count)), _scaled, parts)


def _equal(a: Index, b: Index | int) -> Pred:
    return compare("==", a, index(b))


def _long(c: Candidate) -> Pred:
    """A reduction of the input graph that is long at the user's shape."""
    sizes = [r.axis.extent for r in reductions(*c.origin.terms) if r.axis.extent.constant is None]
    return compare("<", LARGE, sizes[-1])


def _scaled(t: Term) -> Term:
    return apply("mul", t, const(1.001))


def _dropped(_: Term) -> Term:
    return const(0.0)


def _spoilt(c: Candidate, where: Pred, wrong: Callable[[Term], Term], at: set[Term]) -> Candidate:
    """Some terms become wrong where a predicate holds; folds are left out, since it is not they that are tried."""
    mapping: dict[Term, Term] = {t: Where(where, wrong(t), t) for t in at}
    outputs = [replace(o, term=replaced(o.term, mapping)) for o in c.graph.outputs]
    made = graph(c.graph.name, c.graph.inputs, outputs, c.graph.constraints)
    named: dict[str, Axis] = {a.name: a for a in made.axes}
    splits = tuple(replace(s, outer=named[s.outer.name], inner=named[s.inner.name]) for s in c.splits)
    return replace(c, graph=made, folds=(), splits=splits)


__all__ = ["Plant", "plants", "spoilt_count"]
