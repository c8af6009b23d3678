"""Teams: the threads that share a ring of tiles, and how the trips of a loop fall to them.

    one team      the whole block: its warps lie along the rows, every trip is everyone's
    several       each has all rows of the block, a ring and accumulators of its own, and every so-manieth trip of the
                  outermost loops; the states are joined afterwards (``join.py``)

A team of one warp waits for its lanes only; larger teams wait at a named barrier.
"""

from __future__ import annotations

from dataclasses import dataclass

from cleave.tile.plan import Binding
from cleave.tile.skeleton import WARPGROUP

_ALL = 14
"""The barrier of all who compute where others only load. Warpgroups have 0, 1, 2: while some of the threads of one wait
at its own barrier, those of another may have come to that of all, which counts other threads."""


@dataclass(frozen=True)
class Team:
    """``thread``: C++ text of a thread's number in the team; ``copies``: how many such teams a block has.

    ``share``: of the rows of the block, the first one (C++ text) and how many, where the team is there for some only.
    """

    thread: str
    threads: int
    barrier: str
    copies: int = 1
    share: tuple[str, int] | None = None


def whole_block(binding: Binding) -> Team:
    """All warps that compute; those that only load do not wait with them."""
    threads = 32 * binding.warps
    return Team("thread", threads, f"team_barrier<{threads}>({_ALL});" if binding.loaders else "block_barrier();")


def warpgroup() -> Team:
    """One of the warpgroups of a block, with the 64 rows that it multiplies."""
    threads = 32 * WARPGROUP
    return Team(
        f"(thread % {threads})",
        threads,
        f"team_barrier<{threads}>(warp / {WARPGROUP});",
        share=(f"warp / {WARPGROUP} * {16 * WARPGROUP}", 16 * WARPGROUP),
    )


def turn_wait() -> str:
    """A line: this warpgroup's turn has come."""
    return f"turn_wait<{2 * 32 * WARPGROUP}>(warp / {WARPGROUP});"


def turn_pass(binding: Binding) -> str:
    """A line: the next warpgroup's has."""
    next_one = f"(warp / {WARPGROUP} + 1) % {binding.warps // WARPGROUP}"
    return f"turn_pass<{2 * 32 * WARPGROUP}>({next_one});"


def part_of_block(binding: Binding) -> Team:
    """One of several teams."""
    threads = 32 * binding.warps // binding.teams
    if threads == 32:
        return Team("lane", threads, "warp_barrier();", binding.teams)
    return Team("member", threads, f"team_barrier<{threads}>(team);", binding.teams)


def places(binding: Binding) -> list[str]:
    """Lines that name a thread's team, its place in it, and the first of the rows that it owns.

    Where threads share a row: the row, and the thread's place among them.
    """
    if binding.lanes:
        return [f"const int row = thread / {binding.lanes}, place = thread % {binding.lanes};"]
    rows = 16 * binding.row_tiles
    if binding.teams == 1:
        warp = "warp" if binding.division is None else f"warp % {binding.row_warps}"
        return [f"const int row = {warp} * {rows} + (lane >> 2), pair = (lane & 3) * 2;"]
    return [members(binding), f"const int row = rank * {rows} + (lane >> 2), pair = (lane & 3) * 2;"]


def members(binding: Binding) -> str:
    """A line that names a thread's team, and its place in it."""
    warps = binding.warps // binding.teams
    which = "team = warp, rank = 0" if warps == 1 else f"team = warp / {warps}, rank = warp % {warps}"
    return f"const int {which}, member = rank * 32 + lane;"
