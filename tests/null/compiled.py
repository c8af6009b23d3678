"""Kernels compiled without spills: of many that are alike, those that have text which none before them has."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from cleave.codegen.compile import Failed, compile_many
from cleave.codegen.prelude import KERNEL_MARK
from cleave.kernel import KernelSource, OperatorSource


def kernels_of(operators: Iterable[OperatorSource]) -> list[KernelSource]:
    return [k for o in operators for k in o.kernels]


def new_text(kernels: Iterable[KernelSource], known: Iterable[KernelSource] = ()) -> Iterator[tuple[KernelSource, str]]:
    """(kernel, architecture): kernels with a line that neither the known ones nor those before them have.

    Numbers and indentation aside. They are for the newest architecture. Only functions of the prelude have instructions
    that an older one may lack: a kernel with a new one of them is for all.
    """
    functions, lines = set[str](), set[str]()
    for k in known:
        prelude, own = k.text.split(KERNEL_MARK)
        functions |= _lines(prelude)
        lines |= _lines(own)
    for k in kernels:
        prelude, own = k.text.split(KERNEL_MARK)
        if not _lines(prelude) <= functions:
            yield from ((k, arch) for arch in k.architectures)
        elif not _lines(own) <= lines:
            yield k, k.architectures[-1]
        functions |= _lines(prelude)
        lines |= _lines(own)


def _lines(text: str) -> set[str]:
    return {re.sub(r"\d+", "0", line.strip()) for line in text.splitlines()}


def everywhere(kernels: Iterable[KernelSource]) -> Iterator[tuple[KernelSource, str]]:
    return ((k, arch) for k in kernels for arch in k.architectures)


def check_compiles(jobs: Iterable[tuple[KernelSource, str]]) -> None:
    """One call compiles all, so that the compilers start once."""
    jobs = list(jobs)
    for (kernel, arch), made in zip(jobs, compile_many(jobs), strict=True):
        assert not isinstance(made, Failed), f"{kernel.entry} for {arch}: {made}"
        r = made.resources
        assert (r.spill_stores, r.spill_loads, r.local_bytes) == (0, 0, 0), f"{kernel.entry} for {arch}: {r}"
