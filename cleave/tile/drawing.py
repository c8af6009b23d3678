"""Loop nests as drawings: a frame for each kernel, and in it one for each loop, with the statements between them."""

from __future__ import annotations

from collections.abc import Iterator

from cleave.display import Frame, nested
from cleave.ir.axis import Axis
from cleave.tile.plan import KernelPlan, Schedule
from cleave.tile.program import Loop, Stmt
from cleave.tile.text import binding_line, heading, statement_lines


def schedule_svg(s: Schedule) -> str:
    """The loop nest of every kernel of a schedule, in order of execution, as SVG."""
    return nested([_kernel(k) for k in s.kernels])


def _kernel(k: KernelPlan) -> Frame:
    parts = (*binding_line(k).split("; "), *_parts(k.program.body, k.program.unit))
    return Frame(heading(k.program), parts, "input")


def _parts(body: tuple[Stmt, ...], unit: frozenset[Axis]) -> Iterator[str | Frame]:
    for s in body:
        if isinstance(s, Loop):
            (title,) = statement_lines(s, unit)
            yield Frame(title, tuple(_parts(s.body, unit)), "reduce" if s.accumulators else "map")
        else:
            yield from statement_lines(s, unit)
