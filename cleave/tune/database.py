"""What was measured before: records of a file, one a configuration, found by a key.

    key ::= graph, dims, target, CUDA text and launch, GPU, driver, compiler

The text is the honest version of cleave: what changes the kernel changes the key, and nothing else does.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cleave.codegen.compile import compiler
from cleave.environment import driver_version, environment
from cleave.errors import SavedFileError
from cleave.ir.hash import graph_hash, text_hash
from cleave.ir.index import show
from cleave.kernel import KernelSource, OperatorSource
from cleave.records import Outcome, Record, append_all, mend, read
from cleave.runtime.watchdog import Limited
from cleave.runtime.watchdog import Outcome as Ended
from cleave.tune.bench import Problem

METHOD = 1
"""How times are taken: raised when they are no longer comparable."""

Machine = Mapping[str, Any]
"""What a time depends on besides the kernel."""


def machine_of(gpu: Mapping[str, Any]) -> Machine:
    """Of a GPU as the runtime describes it."""
    names = ("name", "multiprocessors", "driver_cuda")
    return {**{n: gpu.get(n) for n in names}, "driver": driver_version(), "compiler": compiler(), "method": METHOD}


def kernel_hash(k: KernelSource) -> str:
    """Of the text and of everything that a launch adds to it."""
    launch = (k.entry, k.threads, k.shared_bytes, [show(n) for n in k.grid], k.cluster, k.together)
    return text_hash(f"{k.text}\n{launch}")


def source_hash(source: OperatorSource) -> str:
    return text_hash("\n".join(map(kernel_hash, source.kernels)))


def key_of(problem: Problem, source: OperatorSource, arch: str, machine: Machine) -> str:
    parts = [graph_hash(problem.origin), dict(problem.dims), arch, source_hash(source), dict(machine)]
    return text_hash(json.dumps(parts, sort_keys=True))


def recorded(ended: Limited) -> Outcome:
    """How a call in a worker ended, as a record says it."""
    if ended.outcome is Ended.RAISED and ended.message.startswith("ArgumentError"):
        return Outcome.REFUSED
    known = {
        Ended.OK: Outcome.OK,
        Ended.TIMEOUT: Outcome.TIMEOUT,
        Ended.OUT_OF_MEMORY: Outcome.OUT_OF_MEMORY,
    }
    return known.get(ended.outcome, Outcome.CRASHED)


def is_final(ended: Limited) -> bool:
    """Whether an end says something of the schedule: not of the memory that was left, nor of a fault of cleave."""
    return recorded(ended) is not Outcome.OUT_OF_MEMORY and (
        ended.outcome is not Ended.RAISED or recorded(ended) is Outcome.REFUSED
    )


class Database:
    """The records of a file by their keys; a file that does not exist is made by the first ``add``."""

    def __init__(self, path: Path, gpu: Mapping[str, Any]) -> None:
        self.path = path
        self._environment = environment(gpu)
        _check_place(path)
        mend(path)
        records = read(path) if path.exists() else ()
        self._known = {str(r.details["key"]): r for r in records if "key" in r.details}

    def find(self, key: str) -> Record | None:
        return self._known.get(key)

    def add(self, records: Sequence[tuple[str, Record]]) -> None:
        """Append records under their keys. Errors: a file that can't be written."""
        made: list[Record] = []
        for key, record in records:
            record.details["key"] = key
            record.environment.update(self._environment)
            made.append(record)
            self._known[key] = record
        append_all(self.path, made)


def _check_place(path: Path) -> None:
    """Refuse a place that records can't be added to, before anything is measured."""
    above = next(p for p in path.absolute().parents if p.exists())
    where = path if path.exists() else above
    if path.is_dir() or not above.is_dir() or not os.access(where, os.W_OK):
        raise SavedFileError("is no file that can be written", location=str(path))


def usual_file() -> Path:
    """Where records go unless somebody says otherwise: data of the user, not of the working directory."""
    import platformdirs

    return Path(platformdirs.user_data_dir("cleave")) / "tune.jsonl"
