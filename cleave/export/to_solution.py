"""A schedule as a Solution of FlashInfer-Bench: Python that compiles and calls it.

Source: https://github.com/flashinfer-ai/flashinfer-bench
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cleave.errors import GraphError
from cleave.ir.definition import check_array
from cleave.tile.plan import Schedule
from cleave.tile.saved import save_schedules

DEAD_LSE = -5e4
"""What stands for -inf in the log-sum-exp of a row that sees nothing: the checker there refuses every infinity."""
ENTRY, SCHEDULE = "main.py", "schedule.json"

_PROGRAM = '''"""{name}, found by cleave: compiled at the first call, for any lengths."""

from functools import cache
from pathlib import Path


@cache
def compiled():
    import cleave
    from cleave.tile.saved import load_schedules

    (schedule,) = load_schedules(Path(__file__).with_name("{schedule}"))
    return cleave.emit(schedule)


def run({inputs}, {outputs}):
    compiled()({inputs}, out=({outputs},))
{after}'''


def to_solution(
    schedule: Schedule, definition: Mapping[str, Any], *, name: str | None = None, author: str = "cleave"
) -> dict[str, Any]:
    """The Solution of a definition, to be written as JSON: a Python file and the schedule beside it.

    ``to_solution(cleave.schedule(candidate, target, bind)[0], definition)``, or the ``schedule`` that ``cleave.tune``
    found: what runs there is what was chosen here. Outputs are the last arguments, in the order of the definition; the
    log-sum-exp of a row that sees no key is -5e4 there (cleave itself gives -inf). Errors (GraphError): inputs or
    outputs that are not those of the schedule, by name, number, dtype, rank or fixed extents.
    """
    title, graph = str(definition["name"]), schedule.graph
    ours, theirs = [i.name for i in graph.inputs], list(definition["inputs"])
    if ours != theirs:
        raise GraphError(f"inputs {', '.join(theirs)}: the schedule has {', '.join(ours)}", location=title)
    outputs = list(definition["outputs"])
    if len(outputs) != len(graph.outputs):
        have = ", ".join(o.name for o in graph.outputs)
        raise GraphError(f"outputs {', '.join(outputs)}: the schedule has {have}", location=title)
    named = list(zip(outputs, graph.outputs, strict=True))
    for i in graph.inputs:
        check_array(definition, "input", i.name, i)
    for n, o in named:
        check_array(definition, "output", n, o)
    after = "".join(f"    {n}.clamp_(min={DEAD_LSE})\n" for n, o in named if o.name == "lse")
    program = _PROGRAM.format(
        name=title, schedule=SCHEDULE, inputs=", ".join(ours), outputs=", ".join(outputs), after=after
    )
    return {
        "name": name or f"cleave_{title}",
        "definition": title,
        "author": author,
        "description": f"candidate {schedule.candidate} of cleave, scheduled for {schedule.target.arch}",
        "spec": {
            "language": "python",
            "target_hardware": ["cuda"],
            "entry_point": f"{ENTRY}::run",
            "dependencies": ["cleave"],
            "destination_passing_style": True,
        },
        "sources": [{"path": ENTRY, "content": program}, {"path": SCHEDULE, "content": _saved(schedule)}],
    }


def _saved(schedule: Schedule) -> str:
    with TemporaryDirectory() as folder:
        path = Path(folder) / SCHEDULE
        save_schedules([schedule], path)
        return path.read_text(encoding="utf-8")
