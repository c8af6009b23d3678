"""A candidate as a Solution of FlashInfer-Bench: Python that schedules, compiles and calls it.

Source: https://github.com/flashinfer-ai/flashinfer-bench
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cleave.candidate import Candidate, save_candidates
from cleave.errors import GraphError
from cleave.target import Target

DEAD_LSE = -5e4
"""What stands for -inf in the log-sum-exp of a row that sees nothing: the checker there refuses every infinity."""
ENTRY, CANDIDATE = "main.py", "candidate.json"

_PROGRAM = '''"""{name}, found by cleave: scheduled and compiled at the first call, for any lengths."""

from functools import cache
from pathlib import Path


@cache
def compiled():
    import cleave
    from cleave.candidate import load_candidates

    (candidate,) = load_candidates(Path(__file__).with_name("{candidate}"))
    return cleave.emit(cleave.schedule(candidate, cleave.Target("{target}"), {bind})[0])


def run({inputs}, {outputs}):
    compiled()({inputs}, out=({outputs},))
{after}'''


def to_solution(
    candidate: Candidate,
    definition: Mapping[str, Any],
    bind: Mapping[str, int],
    *,
    target: str = "sm_90a",
    name: str | None = None,
    author: str = "cleave",
) -> dict[str, Any]:
    """The Solution of a definition, to be written as JSON: a Python file and the candidate beside it.

    ``bind``: the representative shape that the schedule is chosen for, as in ``cleave.schedule``. Outputs are the last
    arguments, in the order of the definition; the log-sum-exp of a row that sees no key is -5e4 there (cleave itself
    gives -inf). Errors: inputs or outputs that are not those of the candidate (GraphError), an unknown target.
    """
    title, graph = str(definition["name"]), candidate.graph
    ours, theirs = [i.name for i in candidate.origin.inputs], list(definition["inputs"])
    if ours != theirs:
        raise GraphError(f"inputs {', '.join(theirs)}: the candidate has {', '.join(ours)}", location=title)
    outputs = list(definition["outputs"])
    if len(outputs) != len(graph.outputs):
        have = ", ".join(o.name for o in graph.outputs)
        raise GraphError(f"outputs {', '.join(outputs)}: the candidate has {have}", location=title)
    named = zip(outputs, graph.outputs, strict=True)
    after = "".join(f"    {n}.clamp_(min={DEAD_LSE})\n" for n, o in named if o.name == "lse")
    program = _PROGRAM.format(
        name=title,
        candidate=CANDIDATE,
        target=Target(target).arch,
        bind=dict(bind),
        inputs=", ".join(ours),
        outputs=", ".join(outputs),
        after=after,
    )
    return {
        "name": name or f"cleave_{title}",
        "definition": title,
        "author": author,
        "description": f"candidate {candidate.name} of cleave",
        "spec": {
            "language": "python",
            "target_hardware": ["cuda"],
            "entry_point": f"{ENTRY}::run",
            "dependencies": ["cleave"],
            "destination_passing_style": True,
        },
        "sources": [{"path": ENTRY, "content": program}, {"path": CANDIDATE, "content": _saved(candidate)}],
    }


def _saved(candidate: Candidate) -> str:
    with TemporaryDirectory() as folder:
        path = Path(folder) / CANDIDATE
        save_candidates([candidate], path)
        return path.read_text(encoding="utf-8")
