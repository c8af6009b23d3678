"""From CUDA text to something that can be called."""

from __future__ import annotations

from functools import partial

from cleave.codegen.compile import compile_all
from cleave.kernel import OperatorSource, Variant
from cleave.runtime.executable import Executable


def executable_from(source: OperatorSource, arch: str) -> Executable:
    """Compiled at its first need, from the cache if it is there."""
    return Executable((Variant(source),), arch, partial(compile_all, arch=arch))
