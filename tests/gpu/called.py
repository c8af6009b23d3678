"""Executables as ``check_executable`` calls them: arrays of NumPy, each in the storage type of its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cleave.ir.graph import Graph
from cleave.runtime.executable import Executable
from cleave.tune.bench import problem_of, storage


def exact_allocations() -> None:
    """From now on every array is an allocation of its own, of exactly its bytes: a sanitizer sees where it ends."""
    import cupy

    cupy.cuda.set_allocator(None)


def as_operator(run: Executable, origin: Graph, sizes: Mapping[str, int]) -> Callable[..., None]:
    """``run`` on copies in float16, bfloat16 and so on, with the dims that no shape mentions."""
    given = problem_of(origin, sizes, 0).unshaped

    def operator(arrays: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
        stored = {o.name: outputs[o.name].astype(storage(o.dtype)) for o in origin.outputs}
        inputs = {i.name: arrays[i.name].astype(storage(i.dtype)) for i in origin.inputs}
        run(**inputs, **given, out=stored)
        for name, array in outputs.items():
            array[...] = stored[name]

    return operator
