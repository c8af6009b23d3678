"""From CUDA text to something that can be called."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from cleave.codegen.compile import compile_all
from cleave.kernel import OperatorSource, Variant
from cleave.runtime.executable import Executable


def executable_from(source: OperatorSource, arch: str) -> Executable:
    """Compiled at its first need, from the cache if it is there."""
    return executable_of_variants((Variant(source),), arch)


def executable_of_variants(variants: Sequence[Variant], arch: str) -> Executable:
    """All variants are compiled together, so that no call compiles after the first."""
    return Executable(variants, arch, partial(compile_all, arch=arch))
