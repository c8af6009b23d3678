"""Plans that were made before: which schedules a request led to, kept beside the compiled kernels.

Scheduling all candidates takes seconds, and gives the same for the same request and the same code of cleave; so the
code is part of the name of a plan. What can't be read or written costs the reuse, not the result.
"""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from pathlib import Path

import msgspec

from cleave.candidate import Candidate
from cleave.codegen import cache as kernels
from cleave.errors import SavedFileError
from cleave.saved import Saved, read_saved, write_saved
from cleave.tile.saved import Packed, pack, unpack
from cleave.tune.plan import Chosen, Request

FORM = ("cleave-plan", 1)
SUFFIX = ".plan"


class _SavedPlan(Saved):
    plan: Packed
    fewest: dict[str, int]
    refused: list[str]


def recall(r: Request) -> Chosen | None:
    """The plan of a request, if it was made before by this very code."""
    path = _path(r)
    if not path.exists():
        return None
    try:
        saved = read_saved(path, _SavedPlan, FORM, what="plan")
        return Chosen(unpack(saved.plan, path.name), saved.fewest, tuple(saved.refused))
    except SavedFileError:
        return None


def remember(r: Request, chosen: Chosen) -> None:
    path = _path(r)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        saved = _SavedPlan(*FORM, pack(chosen.schedules), dict(chosen.fewest), list(chosen.refused))
        write_saved(saved, path, indent=-1)
    except (OSError, SavedFileError):
        return


def forget() -> int:
    """Forget all plans; how many there were."""
    found = list(kernels.folder().glob(f"*{SUFFIX}"))
    for path in found:
        path.unlink(missing_ok=True)
    return len(found)


def _path(r: Request) -> Path:
    """The name says everything that decides a plan."""
    digest = sha256(code_hash().encode())
    settings = (r.target.arch, dict(r.dims), r.count, r.config.ablation, r.forced)
    digest.update(msgspec.json.encode(settings, order="deterministic"))
    for c in r.candidates:
        digest.update(_written(c).encode())
    return kernels.folder() / f"{digest.hexdigest()}{SUFFIX}"


def _written(c: Candidate) -> str:
    """Everything of a candidate that the scheduler reads."""
    splits = [f"{s.base} {s.outer.name} {s.inner.name} {s.count} {s.chunk}" for s in c.splits]
    return "\n".join([c.origin.text(), c.text(), *splits])


@cache
def code_hash() -> str:
    """Content hash of cleave's code."""
    folder = Path(__file__).parents[1]
    files = sorted(p for p in folder.rglob("*") if p.suffix in (".py", ".cuh", ".h", ".cpp"))
    return sha256(b"".join(p.relative_to(folder).as_posix().encode() + p.read_bytes() for p in files)).hexdigest()
