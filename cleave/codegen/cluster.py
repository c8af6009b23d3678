"""Partials that the blocks of a cluster send to the block that merges them, into its shared memory.

    store part[t_o, ...]   -> to the block whose slice it is, or to all that merge, at the place of this block's rank
    load  part[t_o, ...]   -> own shared memory                                        (``layout.ClusterPart``)

The outer axis of the split lies along the cluster: block t_o has rank t_o. The other indices of a load are those of the
store (``tile.check.check_merge``), so a place in the tile is all that it needs.

    at the start      open an mbarrier and say how many bytes will come; arrive at the barrier of the cluster
    before stores     wait for that barrier: all mbarriers are open
    stores            asynchronous; each counts its bytes at the mbarrier of the block that it goes to
    merge             wait until all bytes are there

A block that merges nothing may end before the others: nobody reads its memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

from cleave.codegen.emission import Delivery, Emission
from cleave.codegen.expression import At, Printer, fragment_at, row_at
from cleave.codegen.layout import ClusterPart
from cleave.ir.axis import Axis
from cleave.ir.index import axes_of
from cleave.tile.program import Stmt, Store, statements

_BANKS_APART = 8
"""Floats added to a row of more than eight, so that a warp's eight rows meet different banks."""


def reserve(em: Emission, divided: Mapping[Axis, int], blocks: int, rank: str) -> None:
    """Memory for what the blocks send one another, as long as the kernel runs. ``divided``: axis -> its slices.

    What a program may send: ``tile.check.check_sent``.
    """
    arrived = em.names.fresh("arrived")
    em.writer.line(f"const u32 {arrived} = shared_base + {em.shared.take(8)};")
    em.delivery = Delivery(blocks, max([1, *divided.values()]), rank, arrived)
    for s in statements(em.program.body):
        if isinstance(s, Store):
            em.parts[s.output] = _reserved(em, s, divided, em.delivery)


def _reserved(em: Emission, s: Store, divided: Mapping[Axis, int], d: Delivery) -> ClusterPart:
    outer = [n for n, i in enumerate(s.indices) if any(a.kind == "outer" for a in axes_of(i))]
    columns = em.columns(s.axes)
    if len(columns) > 1:
        em.refuse(s.value.name, s.axes)
    sliced = bool(columns) and columns[0] in divided
    width = em.size(columns[0]) // (divided[columns[0]] if sliced else 1) if columns else 1
    rows = em.block_rows if em.has_rows(s.axes) else 1
    stride = width + _BANKS_APART if rows > 1 and width > 8 else width
    turns = -(-d.slices // d.blocks) if sliced else 1
    part = ClusterPart(em.names.fresh(f"{s.output}_parts"), turns, rows, width, stride, sliced, outer[0])
    em.writer.line(f"const u32 {part.address} = shared_base + {em.shared.take(part.bytes * d.blocks)};")
    return part


def announce(em: Emission) -> None:
    """Say how much will come: from every block, this one among them, as many bytes."""
    d, row_count = em.delivery, em.existing_row_count()
    assert d is not None
    parts = [(p, row_count if p.rows > 1 else "1") for p in em.parts.values()]
    each = [f"{4 * p.width} * {rows}" for p, rows in parts if p.sliced]
    once = [f"{4 * p.width} * {rows}" for p, rows in parts if not p.sliced]
    turns = f"({d.slices + d.blocks - 1} - {d.rank}) / {d.blocks}"
    terms = [*([f"{turns} * ({' + '.join(each)})"] if each else []), *once]
    with em.writer.block("if (thread == 0)"):
        em.writer.line(f"mbarrier_open({d.arrived});")
        em.writer.line("boxes_may_follow();")
        merges = "" if d.owners == d.blocks else f"if ({d.rank} < {d.owners}) "
        em.writer.line(f"{merges}mbarrier_expect({d.arrived}, {d.blocks} * ({' + '.join(terms)}));")
    em.writer.line("cluster_arrive();")


def meet(em: Emission, s: Stmt) -> None:
    """Before the first statement that sends anything."""
    d, inside = em.delivery, statements((s,))
    if d is not None and not d.met and any(isinstance(i, Store) and i.output in em.parts for i in inside):
        em.writer.line("cluster_wait();")
        d.met = True


def receive(em: Emission) -> None:
    """Before the merge; blocks that merge nothing end."""
    d = em.delivery
    assert d is not None
    if d.owners < d.blocks:
        em.writer.line(f"if ({d.rank} >= {d.owners}) return;")
    em.writer.line(f"mbarrier_wait({d.arrived}, 0);")


def store(em: Emission, s: Store, part: ClusterPart) -> None:
    """Send a value to whoever merges it, with rows that pad the tile: nobody stores them, and none needs a test."""
    columns = em.columns(s.axes)
    if not em.has_rows(s.axes):
        _without_rows(em, s, columns, part)
        return
    if not columns:
        text = Printer(em, row_at(em)).element(s.value)
        with em.writer.unrolled("h", em.halves), em.existing_rows(), _owners(em):
            _send(em, part, _all(em.only_one_of("w"), "pair == 0"), "w", "0", "row + 8 * h", "0", [text])
        return
    column, group = columns[0], em.group_number(columns[0])
    first = Printer(em, fragment_at(em, column, "n", "2 * h", "h"))
    low = first.element(s.value)
    high = Printer(em, fragment_at(em, column, "n", "2 * h + 1", "h"), first.hoisted, first.bases).element(s.value)
    test = _all(em.only_one_holder(column))
    with em.writer.unrolled("h", em.halves), em.existing_rows(), em.writer.unrolled("n", em.groups(column)):
        if part.sliced:
            blocks, each = _delivery(em).blocks, part.width // 8
            piece = group if each == 1 else f"{group} / {each}"
            place = "pair" if each == 1 else f"{group} % {each} * 8 + pair"
            _send(em, part, test, f"({piece}) % {blocks}", f"({piece}) / {blocks}", "row + 8 * h", place, [low, high])
        else:
            with _owners(em):
                _send(em, part, test, "w", "0", "row + 8 * h", f"{group} * 8 + pair", [low, high])


def _delivery(em: Emission) -> Delivery:
    assert em.delivery is not None
    return em.delivery


def _owners(em: Emission) -> AbstractContextManager[None]:
    """For every block that merges anything, the w-th."""
    return em.writer.unrolled("w", _delivery(em).owners)


def _send(
    em: Emission, part: ClusterPart, test: str, owner: str, turn: str, row: str, column: str, values: Sequence[str]
) -> None:
    d = _delivery(em)
    to = f"cluster_address({part.place(d.rank, turn, row, column)}, {owner})"
    guard = "" if test == "true" else f"if ({test}) "
    call = "cluster_send" if len(values) == 1 else "cluster_send_two"
    em.writer.line(f"{guard}{call}({to}, cluster_address({d.arrived}, {owner}), {', '.join(values)});")


def _without_rows(em: Emission, s: Store, columns: list[Axis], part: ClusterPart) -> None:
    d = _delivery(em)
    if not columns:
        text = Printer(em, At()).element(s.value)
        with _owners(em):
            _send(em, part, f"{em.team.thread} == 0", "w", "0", "0", "0", [text])
        return
    at = At({columns[0]: em.inside(columns[0], "r")}, {columns[0]: "r"})
    text = Printer(em, at).element(s.value)
    with em.writer.block(f"for (int r = {em.team.thread}; r < {em.size(columns[0])}; r += {em.team.threads})"):
        if part.sliced:
            piece = f"r / {part.width}"
            _send(em, part, "true", f"{piece} % {d.blocks}", f"{piece} / {d.blocks}", "0", f"r % {part.width}", [text])
        else:
            with _owners(em):
                _send(em, part, "true", "w", "0", "0", "r", [text])


def _all(*tests: str) -> str:
    return " && ".join(t for t in tests if t and t != "true") or "true"
