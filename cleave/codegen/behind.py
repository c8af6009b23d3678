"""A maximum that is only subtracted may stay behind: what a loop sums relative to it is seldom restated.

    m = max(m~, max(k));  s = exp(m~ - m) s~ + sum(exp(k - m) v)

The sums are right relative to any number in the place of m, as long as what was summed relative to the old one is
restated. So threads keep the maximum and, beside it, the number that they subtract, which follows once the maximum is
``BEHIND`` above it. In most trips it does not, and the factor of s~, many registers, is not multiplied at all. When the
loop is over everything is restated relative to the maximum: what comes after knows nothing of this.
"""

from __future__ import annotations

from cleave.codegen.emission import Behind, Emission
from cleave.codegen.layout import Fragment, RowVector
from cleave.codegen.reduction import rows_of
from cleave.ir.graph import Map, Reduce, Ref, children
from cleave.tile.program import Accumulator, Contract, Let, Loop, TileTerm, Update, names_read

BEHIND = 5.5
"""How far, in natural exponents: weights stay below exp(5.5) = 245 where they were below one, far from the end of FP16.
Of rows that one weight dominates that weight, no longer one, is rounded as the others are: errors grew by a quarter."""

WORTH = 64
"""Registers a thread of a sum from which a test costs less than its product. Measured on an H200: with 64 (prefill,
heads of 128) 1.5 to 3 % faster, with 128 (latent decode) 1 to 2 %; with 32 (heads of 64) 3 to 7 % slower."""


def maxima(em: Emission, s: Loop) -> list[Accumulator]:
    """Maxima of rows that a loop only subtracts, and relative to which it sums enough."""
    updates = [i for i in s.body if isinstance(i, Update) and i.accumulator.op == "max" and isinstance(i.term, Reduce)]
    found = [i.accumulator for i in updates if isinstance(em.layouts[i.accumulator.name], RowVector)]
    return [m for m in found if is_only_subtracted(s, m) and any(_is_large(em, c) for c in restated(s, m))]


def restated(s: Loop, m: Accumulator) -> list[Accumulator]:
    """What a loop carries relative to a maximum."""
    return [c for c in s.accumulators if c is not m and c.carry is not None and m.name + "~" in names_read(c.carry)]


def _is_large(em: Emission, c: Accumulator) -> bool:
    layout = em.layouts[c.name]
    return isinstance(layout, Fragment) and em.groups(layout.column) * em.entries >= WORTH


def is_only_subtracted(s: Loop, m: Accumulator) -> bool:
    """It is read in differences from it alone, and what is made of these is read by sums that are restated."""
    own, body = m.name + "~", [i for i in s.body if isinstance(i, Let | Update)]
    if len(body) != len(s.body):
        return False
    terms: list[TileTerm] = [i.term for i in body]
    terms += [c.carry for c in s.accumulators if c is not m and c.carry is not None]
    if m.carry not in (None, Ref(own, m.axes)) or not all(_subtracts(t, m) for t in terms):
        return False
    sums, relative = restated(s, m), {m.name, own}
    for i in (*body, *body):  # what a sum reads of itself comes before it is read
        if not relative & {*names_read(i.term)}:
            continue
        if isinstance(i, Let):
            relative.add(i.name)
        elif i.accumulator.op != "sum" or i.accumulator not in sums:
            return False
        else:
            relative |= {i.accumulator.name, i.accumulator.name + "~"}
    return True


def _subtracts(term: TileTerm, m: Accumulator) -> bool:
    names = {m.name, m.name + "~"}
    match term:
        case Contract():
            return not names & {*names_read(term)}
        case Map("exp_diff", (a, Ref(name))) if name == m.name:
            return isinstance(a, Ref) or not names & {*names_read(a)}
        case Ref(name):
            return name not in names
        case _:
            return all(_subtracts(c, m) for c in children(term))


def begin(em: Emission, m: Accumulator) -> None:
    """Before the loop: both are the identity."""
    layout = em.layouts[m.name]
    assert isinstance(layout, RowVector)
    name = em.names.fresh(f"{m.name}_subtracted")
    em.writer.line(f"float {name}[{em.halves}] = {{{rows_of(em, layout)}}};")
    em.behind[m.name] = Behind(layout.name)
    em.layouts[m.name] = RowVector(name)


def follow(em: Emission, m: Accumulator, subtracted: str) -> None:
    """In a trip, when the maximum is known. NaN is followed, and infinity."""
    behind, before = em.behind[m.name], em.layouts[m.name + "~"]
    assert isinstance(before, RowVector)
    top, behind.moved = behind.maximum, em.names.fresh(f"{m.name}_moved")
    with em.writer.unrolled("h", em.halves):
        em.writer.line(f"if (!({top}[h] - {subtracted}[h] <= {BEHIND}f)) {subtracted}[h] = {top}[h];")
    moved = " || ".join(f"{subtracted}[{h}] != {before.name}[{h}]" for h in range(em.halves))
    em.writer.line(f"const bool {behind.moved} = warp_any({moved});")


def moved(em: Emission, c: Accumulator) -> str:
    """C++ text of whether a carry may change anything: where it only multiplies by how far the number that is
    subtracted has moved; empty: it always may."""
    match c.carry:
        case Map("mul", (Map("exp_diff", (Ref(before), Ref(now))), Ref(own))):
            known = now in em.behind and before == now + "~" and own == c.name + "~"
            return em.behind[now].moved if known else ""
        case _:
            return ""
