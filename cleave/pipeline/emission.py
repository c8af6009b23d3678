"""From a schedule to something that can be called: CUDA text, machine code, launch."""

from __future__ import annotations

from collections.abc import Sequence

from cleave.codegen.compile import Failed, compile_many
from cleave.codegen.generate import generate
from cleave.kernel import OperatorSource
from cleave.pipeline.result import Build, Trial
from cleave.runtime.executable import Executable
from cleave.target import TARGETS
from cleave.tile.plan import Schedule
from cleave.tune.executable import executable_from, executable_of_variants
from cleave.tune.variants import Variants, variants_of


def emit(schedule: Schedule | Variants) -> Executable:
    """Generate CUDA C++ for a schedule and compile it for its target, from the cache if it is there; no GPU is needed.

    ``f = emit(schedule)``: ``f.source``, ``f.resources``, ``f(q, k, v)``. Of variants all are compiled, and each call
    runs the first one whose comparisons hold for its dims. Errors: a schedule that its skeleton can't express, CUDA
    that does not compile (CodegenError); a call without a GPU (LaunchError).
    """
    if isinstance(schedule, Variants):
        found = variants_of([generate(s) for s in schedule.schedules], schedule.when)
        executable = executable_of_variants(found, schedule.schedules[0].target.arch)
    else:
        executable = executable_from(generate(schedule), schedule.target.arch)
    _ = executable.compiled  # what does not compile is an error here, not at the first call
    return executable


def executable_of(trial: Trial) -> Executable:
    """The executable of a trial that was generated before."""
    if trial.source is None:
        return emit(trial.schedule)
    return executable_from(trial.source, trial.schedule.target.arch)


def build(source: OperatorSource, archs: Sequence[str]) -> tuple[Build, ...]:
    """Compile every kernel for every architecture that its skeleton declares; what fails is a row."""
    jobs = [(kernel, arch) for kernel in source.kernels for arch in archs if arch in kernel.architectures]
    rows: list[Build] = []
    for (kernel, arch), made in zip(jobs, compile_many(jobs), strict=True):
        if isinstance(made, Failed):
            rows.append(Build(kernel.entry, arch, None, made.reason))
        else:
            rows.append(Build(kernel.entry, arch, made.resources, cubin=made.cubin))
    return tuple(rows)


def architectures(source: OperatorSource) -> tuple[str, ...]:
    """Those that every kernel of an operator exists for."""
    return tuple(a for a in TARGETS if all(a in k.architectures for k in source.kernels))
