"""A pinned schedule: a small file from which exactly that schedule is made again, whatever is chosen by then.

    tuned.pin("attention.pin")
    f = cleave.replay("attention.pin")

The file holds the schedule as ``cleave.tile.saved`` writes it, in words, and hashes of what was generated and compiled
from it. Other text than was pinned is an error that names the kernel.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import msgspec

from cleave.codegen.compile import compile_all, compiler
from cleave.codegen.generate import generate
from cleave.errors import CleaveWarning, SavedFileError
from cleave.ir.graph import Graph
from cleave.ir.hash import graph_hash
from cleave.kernel import Compiled, OperatorSource
from cleave.runtime.executable import Executable
from cleave.saved import Saved, read_saved, write_saved
from cleave.tile.plan import Schedule
from cleave.tile.saved import Packed, pack, unpack
from cleave.tune.database import kernel_hash
from cleave.tune.description import described
from cleave.tune.executable import executable_from

FORM = ("cleave-pin", 1)


class _PinnedKernel(msgspec.Struct, forbid_unknown_fields=True):
    entry: str
    text: str
    cubin: str


class _SavedPin(Saved):
    graph: str
    """Hash of the input graph."""
    candidate: str
    target: str
    dims: dict[str, int]
    plan: str
    compiler: str
    kernels: list[_PinnedKernel]
    schedule: Packed


@dataclass(frozen=True)
class Pinned:
    """A schedule that was made again, and whose text is the one that was pinned."""

    schedule: Schedule
    source: OperatorSource
    dims: dict[str, int]

    @property
    def executable(self) -> Executable:
        return executable_from(self.source, self.schedule.target.arch)


def write_pin(path: str | Path, schedule: Schedule, origin: Graph, dims: dict[str, int]) -> None:
    """Pin a schedule of a graph that was chosen at a shape. Errors: a place that can't be written, text that does not
    compile."""
    source = generate(schedule)
    made = compile_all(source.kernels, schedule.target.arch)
    hashes = [_PinnedKernel(k.entry, kernel_hash(k), _hash(c)) for k, c in zip(source.kernels, made, strict=True)]
    saved = _SavedPin(
        *FORM,
        graph_hash(origin),
        schedule.candidate,
        schedule.target.arch,
        dims,
        described(schedule),
        compiler(),
        hashes,
        pack([schedule]),
    )
    write_saved(saved, path, indent=-1)


def read_pin(path: str | Path, origin: Graph | None = None) -> Pinned:
    """The schedule of a pin, generated and compiled again.

    ``origin``: the graph that it has to be of. Errors: a file that is no pin, a pin of another graph, and text that is
    not the one that was pinned (SavedFileError). Other machine code of the same text is a warning: another compiler's.
    """
    where = Path(path).name
    saved = read_saved(path, _SavedPin, FORM, what="pin")
    if origin is not None and graph_hash(origin) != saved.graph:
        raise SavedFileError(f"pins a schedule of another graph than {origin.name}", location=where)
    found = unpack(saved.schedule, where)
    if len(found) != 1:
        raise SavedFileError(f"is no saved pin: holds {len(found)} schedules, expected one", location=where)
    (schedule,) = found
    source = generate(schedule)
    _check_text(source, saved.kernels, where)
    _compare_code(compile_all(source.kernels, schedule.target.arch), saved, where)
    return Pinned(schedule, source, saved.dims)


def replay(path: str | Path) -> Executable:
    """The operator that a pin stands for, checked to be of the same text. Errors: as ``read_pin``."""
    return read_pin(path).executable


def _check_text(source: OperatorSource, pinned: Sequence[_PinnedKernel], where: str) -> None:
    entries, wanted = [k.entry for k in source.kernels], [k.entry for k in pinned]
    if entries != wanted:
        raise SavedFileError(f"pins the kernels {', '.join(wanted)}; now {', '.join(entries)} are made", location=where)
    for kernel, expected in zip(source.kernels, pinned, strict=True):
        if (found := kernel_hash(kernel)) != expected.text:
            raise SavedFileError(
                f"kernel {kernel.entry}: its text has the hash {found[:12]}, pinned is {expected.text[:12]}: "
                "cleave writes another kernel now; tune again",
                location=where,
            )


def _compare_code(made: Sequence[Compiled], saved: _SavedPin, where: str) -> None:
    for found, expected in zip(made, saved.kernels, strict=True):
        if _hash(found) != expected.cubin:
            warnings.warn(
                f"{where}: kernel {expected.entry}: the same text gives other machine code: pinned with "
                f"{saved.compiler}, here is {compiler()}",
                CleaveWarning,
                stacklevel=3,
            )
            return


def _hash(compiled: Compiled) -> str:
    return sha256(compiled.cubin).hexdigest()
