"""Kernels compiled without spills."""

from __future__ import annotations

from collections.abc import Iterable

from cleave.codegen.compile import Failed, compile_many
from cleave.kernel import OperatorSource


def check_compiles(operators: Iterable[OperatorSource], *, newest: bool = False) -> None:
    """For every architecture that a kernel declares, or the newest. One call compiles all: the compilers start once."""
    kernels = [k for o in operators for k in o.kernels]
    jobs = [(k, arch) for k in kernels for arch in (k.architectures[-1:] if newest else k.architectures)]
    for (kernel, arch), made in zip(jobs, compile_many(jobs), strict=True):
        assert not isinstance(made, Failed), f"{kernel.entry} for {arch}: {made}"
        r = made.resources
        assert (r.spill_stores, r.spill_loads, r.local_bytes) == (0, 0, 0), f"{kernel.entry} for {arch}: {r}"
