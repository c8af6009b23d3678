"""Schedules whose warps lie along the reduction: the shared cases with their trips divided, and decode shapes."""

from __future__ import annotations

import dataclasses
from functools import cache

from cleave.ir.text import parse_graph
from cleave.tile.plan import Merge
from tests.null import codegen_cases as cases
from tests.null.codegen_cases import Case


def divided(case: Case, teams: int) -> Case:
    """The same programs and tiles; so many teams take turns."""
    kernels = tuple(
        dataclasses.replace(
            k,
            skeleton="warp-ring",
            binding=dataclasses.replace(k.binding, warps=k.binding.warps * teams, teams=teams),
        )
        for k in case.schedule.kernels
    )
    return dataclasses.replace(case, schedule=dataclasses.replace(case.schedule, kernels=kernels))


LENGTHS = (0, 1, 31, 100, 333)


def grouped(text: str, group: int) -> str:
    """The text for another count of query heads a key head; without the axis of the group for one."""
    if group == 1:
        for old, new in (("kv*2 + g", "kv"), ("2*kv", "kv"), ("axis g: 2\n", ""), (", g, ", ", ")):
            text = text.replace(old, new)
        return text
    for old, new in (("2*kv", f"{group}*kv"), ("kv*2", f"kv*{group}"), ("axis g: 2", f"axis g: {group}")):
        text = text.replace(old, new)
    return text.replace("kv, 2, s", f"kv, {group}, s")


def decode(
    group: int = 4, head: int = 32, mask: str = "full", *, teams: int = 4, stages: int = 3, queries: int = 1
) -> Case:
    """Rows are (query, head of the group); every warp has all of them and every so-manieth tile of keys."""
    g = parse_graph(grouped(cases.attention_text(mask, head=head), group))
    n = f"n{group}"
    by_name = {a.name: a for a in g.axes}
    rows = f"s {n}" if n in by_name else "s"
    tiles = {"s": 16 // group, "t": 32} | {a.name: head for a in g.axes if a.extent.constant == head}
    tiles |= {n: group} if n in by_name else {}
    roles = "b unit, kv unit, s grid, t loop" + (f", {n} grid" if n in by_name else "")
    plan = cases.kernel(g, roles, tiles, rows, warps=teams, stages=stages, teams=teams)
    sizes = tuple({"b": 1 + (t == 31), "kv": 2, "s": queries, "t": t} for t in LENGTHS)
    return Case(cases.schedule(g, plan), sizes)


def decode_split(merge: Merge, mask: str = "causal", *, count: int = 3, queries: int = 3) -> Case:
    """Splits over blocks on top: partials of a group of two heads, merged by either way."""
    scores = cases.MASKS[mask].replace("t <=", "t_o*dim.C + t_i <=").replace("kv, t, d", "kv, t_o*dim.C + t_i, d")
    part = parse_graph(cases.ATTENTION_PART.replace("SCORES", scores))
    join = parse_graph(cases.ATTENTION_JOIN)
    heads = {a.name: 32 for a in part.axes if a.extent.constant == 32}
    roles = "b unit, kv unit, n2 grid, s grid, t_o unit, t_i loop"
    tiles = {"s": 8, "n2": 2, "t_i": 32, **heads}
    first = cases.kernel(part, roles, tiles, "s n2", warps=4, stages=3, teams=4)
    merge_roles = "b unit, kv unit, n2 grid, s grid, t_o step, n32 loop"
    second = cases.kernel(join, merge_roles, {"s": 8, "n2": 2, "n32": 16}, "s n2", warps=4, stages=3, teams=4)
    cut = cases.chunk("t", count, 32)
    made = cases.split_schedule(cases.attention_text(mask), first, second, merge, cut)
    return Case(made, tuple({"b": 1, "kv": 2, "s": queries, "t": t} for t in LENGTHS))


def without_loop() -> Case:
    """No trips for the teams to divide; rows of whole chunks of 16 bytes, of which one team stores each."""
    text = cases.MATMUL.replace("dims m, n, k", "dims m, n = 64, k = 32")
    plan = cases.kernel(text, "m grid, n grid", {"m": 32, "n": 64, "k": 32}, "m", warps=8, teams=4)
    return Case(cases.schedule(text, plan), ({"m": 45}, {"m": 1}, {"m": 64}))


def few_rows(text: str = cases.MATMUL, *, teams: int = 4, rows: int = 16) -> Case:
    """A matmul whose weights dominate: all rows in each team, the sum divided."""
    tiles = {"m": rows, "n": 32, "k": 32}
    plan = cases.kernel(text, "m grid, n grid, k loop", tiles, "m", warps=teams * rows // 16, stages=3, teams=teams)
    sizes = ((1, 37, 333), (15, 7, 0), (19, 66, 75), (16, 33, 31))
    return Case(cases.schedule(text, plan), tuple({"m": m, "n": n, "k": k} for m, n, k in sizes))


TRANSPOSED = cases.MATMUL.replace("b: float16[k, n]", "b: float16[n, k]").replace("b[k, n]", "b[n, k]")

CASES = {
    **{f"decode, group {g}": lambda g=g: decode(g) for g in (1, 4, 8)},
    "decode, three queries, causal": lambda: decode(4, mask="causal", queries=3),
    "decode, head 64": lambda: decode(8, 64, "causal", queries=3),
    "decode, two stages, two teams": lambda: decode(4, teams=2, stages=2),
    "decode, window": lambda: decode(1, mask="window", queries=3),
    "decode, split, two launches": lambda: decode_split("second-launch"),
    "decode, split, last arriving": lambda: decode_split("last-arriving"),
    "decode, more chunks than keys": lambda: decode_split("last-arriving", count=7, queries=1),
    "few rows": few_rows,
    "few rows, weights stored otherwise": lambda: few_rows(TRANSPOSED),
    "32 rows": lambda: few_rows(rows=32, teams=2),
    "no loop: every team has all columns": without_loop,
    "few rows, more teams than groups of columns": lambda: few_rows(teams=8),
    "decode, more teams than groups of columns": lambda: decode(4, teams=8),
}
CASES = {name: cache(make) for name, make in CASES.items()}
"""Each made once: what is generated of it is, too."""
SHARED = [name for name in cases.CASES if name != "matmul, four stages"]


def real_decode(head: int, group: int = 4, *, queries: int = 1) -> Case:
    """Decode at tiles that pay on a GPU."""
    mask = "causal" if queries > 1 else "full"
    return decode(group, head, mask, teams=4, stages=3, queries=queries)
