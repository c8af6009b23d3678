"""Step functions behind a reduction: on which side of a jump they end, the rounding of a sum decides.

    step(a)         a rounded to an integer, or cast to a coarser type; a holds a reduction
    its jump        |step(a + w) - step(a - w)|, w the rounding error that a may have
    top_index(a)    the position of the element of a rank: it jumps where another element is as large, but for w

Either side is an honest rounding. Where nothing of an output is away from its jumps, a comparison of values decides
nothing: floor(sum(softmax(x))) is 0 or 1 for a sum of 1 - 1e-16 or of 1.
"""

from __future__ import annotations

from collections.abc import Mapping

from cleave.ir.graph import Cast, Const, IndexValue, Map, Reduce, Term, TopK, is_position, walk
from cleave.ir.op import MAPS

_LEAST = 1e-280
"""Numbers that are smaller may be 0 in another form: exponentials underflow."""


def is_step_of_sum(t: Term) -> bool:
    """Whether a term is a step function of something that is reduced."""
    argument = _argument(t)
    return argument is not None and any(isinstance(u, Reduce) for u in walk(argument))


def steps_of_sums(*roots: Term) -> tuple[str, ...]:
    """Names of the step functions that follow a reduction, in the order of their names."""
    return tuple(sorted({_name(t) for t in walk(*roots) if is_step_of_sum(t)}))


def jump(t: Term, sizes: Mapping[Term, Term], width: float) -> Term:
    """The jump of a step within ``width`` times the magnitude of its argument, as a magnitude for that tolerance."""
    argument = _argument(t)
    assert argument is not None
    error = Map("mul", (Const(width), sizes[argument]))
    if isinstance(t, TopK):
        return Map("mul", (Const(1.0 / width), _room_of_ties(t, error)))
    up, down = (_applied(t, Map(side, (argument, error))) for side in ("add", "sub"))
    return Map("mul", (Const(1.0 / width), Map("abs", (Map("sub", (up, down)),))))


def _room_of_ties(t: TopK, error: Term) -> Term:
    """The whole extent for each further element whose difference from the chosen one is no more than its error."""
    chosen = TopK("value", t.axis, t.rank, t.body)
    gap = Map("abs", (Map("sub", (t.body, chosen)),))
    share = Map("mul", (gap, Map("recip", (Map("add", (error, Const(_LEAST))),))))
    near = Map("minimum", (Map("maximum", (Map("sub", (Const(2.0), share)), Const(0.0))), Const(1.0)))
    others = Map("sub", (Reduce("sum", t.axis, near), Const(1.0)))
    return Map("mul", (Map("maximum", (others, Const(0.0))), IndexValue(t.axis.extent)))


def _name(t: Term) -> str:
    if isinstance(t, TopK):
        return "top-k"
    return f"cast to {t.dtype}" if isinstance(t, Cast) else t.op if isinstance(t, Map) else ""


def _argument(t: Term) -> Term | None:
    match t:
        case Cast(_, a):
            return a
        case Map(op, (a,)) if MAPS[op].step:
            return a
        case TopK() if is_position(t):
            return t.body
        case _:
            return None


def _applied(t: Term, argument: Term) -> Term:
    """The step function of a term, at another argument."""
    return Cast(t.dtype, argument) if isinstance(t, Cast) else Map(t.op, (argument,)) if isinstance(t, Map) else t
