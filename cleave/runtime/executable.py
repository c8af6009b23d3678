"""A compiled operator as a function of arrays: what ``cleave.emit`` returns.

f(q, k, v)                 NumPy in, NumPy out; CuPy in, CuPy out; torch in, torch out
f(q, k, v, out=o)          results into arrays of the caller
f(q, k, v, n=77)           a dim that no shape gives
f.kernels, f.source, f.resources, f.compiles
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from cleave.errors import ArgumentError, LaunchError
from cleave.ir.index import evaluate
from cleave.kernel import Compiled, KernelSource, OperatorSource, Resources, Scalar, Variant
from cleave.runtime import arguments as checks
from cleave.runtime import cuda
from cleave.runtime.arrays import ArrayView, Library, contiguous_strides, view
from cleave.runtime.launch import LoadedOperator
from cleave.runtime.plan import Plan, choose, make_plan

_PLANS_KEPT = 512

Compiler = Callable[[Sequence[KernelSource]], Sequence[Compiled]]


@dataclass(frozen=True, slots=True)
class _Prepared:
    """What shapes and strides decide about a call."""

    variant: int
    dims: Mapping[str, int]
    plan: Plan


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a call runs and whose arrays come back."""

    device: int
    stream: int
    library: Library


class Executable:
    """An operator for one architecture: one or more variants, compiled together at the first need, and their launch.

    ``compile`` turns kernel sources into cubins (from the cache or by NVRTC); it is asked once. ``compiles`` counts the
    kernels that it was asked for, so it does not move after the first call.
    """

    def __init__(self, variants: Sequence[Variant], arch: str, compile: Compiler) -> None:
        self.variants = tuple(variants)
        self.arch = arch
        self.compiles = 0
        self._compile = compile
        self._compiled: tuple[tuple[Compiled, ...], ...] | None = None
        self._loaded: tuple[LoadedOperator, ...] | None = None
        self._plans: dict[tuple[object, ...], _Prepared] = {}

    @property
    def operator(self) -> OperatorSource:
        """Inputs, outputs and kernels of the first variant; inputs and outputs are those of all."""
        return self.variants[0].operator

    @property
    def kernels(self) -> tuple[KernelSource, ...]:
        """Sources of all kernels, variant by variant in launch order."""
        return tuple(kernel for variant in self.variants for kernel in variant.operator.kernels)

    @property
    def source(self) -> str:
        """The CUDA text of all kernels."""
        return "\n".join(dict.fromkeys(kernel.text for kernel in self.kernels))

    @property
    def compiled(self) -> tuple[Compiled, ...]:
        """Machine code of each of ``kernels``; compiles if that was not done."""
        return tuple(c for group in self._all_compiled() for c in group)

    @property
    def resources(self) -> tuple[Resources, ...]:
        """Registers, shared memory and spills of each of ``kernels``; compiles if that was not done, without a GPU."""
        return tuple(c.resources for c in self.compiled)

    def __repr__(self) -> str:
        kernels = "; ".join(f"{k.entry} ({k.skeleton}, {k.threads} threads)" for k in self.kernels)
        return f"<Executable {self.operator.name} for {self.arch}: {kernels}>"

    def __call__(self, *inputs: Any, out: Any = None, stream: int | None = None, **named: Any) -> Any:
        """Run on the caller's stream: torch's current one if a tensor was passed, else CuPy's, or the handle given.

        Returns one array, or a tuple if there are several outputs. Errors: arguments that do not fit (ArgumentError,
        with the input and axis), no GPU, a kernel that can't be launched (LaunchError).
        """
        operator = self.operator
        arrays, given = checks.match_arguments(operator, inputs, named)
        cuda_or_none = None if cuda.why_not() else cuda.from_dlpack
        views = {b.name: view(f"input {b.name}", arrays[b.name], cuda_or_none) for b in operator.inputs}
        outs = _given_outputs(operator, out, cuda_or_none)
        prepared = self._prepared(views, outs, given)
        for buffer in operator.outputs:
            if buffer.name in outs:
                checks.check_output(buffer, outs[buffer.name], prepared.dims, views)
        cuda.require(operator.name)
        device = _common_device([*views.items(), *outs.items()])
        with cuda.on_device(device):
            place = _place(device, [*views.values(), *outs.values()], stream)
            return self._run(prepared, views, outs, place)

    def plan(self, *inputs: Any, **named: Any) -> Plan:
        """What a call with these arguments would launch; needs no GPU for NumPy arrays."""
        arrays, given = checks.match_arguments(self.operator, inputs, named)
        views = {b.name: view(f"input {b.name}", arrays[b.name]) for b in self.operator.inputs}
        return self._prepared(views, {}, given).plan

    # ---- preparation -----------------------------------------------------------------------------------------------

    def _prepared(
        self, views: Mapping[str, ArrayView], outs: Mapping[str, ArrayView], given: Mapping[str, int]
    ) -> _Prepared:
        key = (_signature(self.operator, views), _signature(self.operator, outs), tuple(sorted(given.items())))
        found = self._plans.get(key)
        if found is None:
            found = self._prepare(views, outs, given)
            if len(self._plans) >= _PLANS_KEPT:
                del self._plans[next(iter(self._plans))]
            self._plans[key] = found
        return found

    def _prepare(
        self, views: Mapping[str, ArrayView], outs: Mapping[str, ArrayView], given: Mapping[str, int]
    ) -> _Prepared:
        operator = self.operator
        checks.check_types(operator.inputs, views)
        checks.check_types([b for b in operator.outputs if b.name in outs], outs, role="output")
        strides = {b.name: checks.check_layout(b, views[b.name]) for b in operator.inputs}
        shapes = {name: array.shape for name, array in views.items()}
        number = choose(self.variants, checks.solve_dims(operator, shapes, given)) if len(self.variants) > 1 else 0
        chosen = self.variants[number].operator
        dims = checks.solve_dims(chosen, shapes, given)
        strides |= {b.name: _output_strides(chosen, b.name, outs, dims) for b in operator.outputs}
        return _Prepared(number, dims, make_plan(chosen, dims, strides))

    def _all_compiled(self) -> tuple[tuple[Compiled, ...], ...]:
        if self._compiled is None:
            sources = self.kernels
            results = iter(self._compile(sources))
            self.compiles += len(sources)
            self._compiled = tuple(tuple(next(results) for _ in v.operator.kernels) for v in self.variants)
        return self._compiled

    def _operators(self) -> tuple[LoadedOperator, ...]:
        if self._loaded is None:
            groups = zip(self.variants, self._all_compiled(), strict=True)
            self._loaded = tuple(LoadedOperator(v.operator.kernels, compiled) for v, compiled in groups)
        return self._loaded

    # ---- the call --------------------------------------------------------------------------------------------------

    def _run(
        self, prepared: _Prepared, views: Mapping[str, ArrayView], outs: Mapping[str, ArrayView], place: _Place
    ) -> Any:
        operator = self.variants[prepared.variant].operator
        by_value = {p.source.input for k in operator.kernels for p in k.parameters if isinstance(p.source, Scalar)}
        scalars = {name: _scalar(views[name]) for name in by_value}
        pointers: dict[str, int] = {}
        kept: list[cuda.DeviceMemory] = []  # copies of host arrays live until the launches are queued
        for buffer in operator.inputs:
            array = views[buffer.name]
            if array.on_host and buffer.name not in by_value:
                kept.append(cuda.to_device(cast("np.ndarray[Any, Any]", array.owner), place.stream))
                pointers[buffer.name] = kept[-1].pointer
            else:
                pointers[buffer.name] = array.pointer
        results = [_Result(operator, n, prepared.plan, outs, place) for n in range(len(operator.outputs))]
        pointers |= {r.name: r.pointer for r in results}
        self._operators()[prepared.variant].run(
            prepared.plan, pointers, scalars, device=place.device, stream=place.stream
        )
        returned = tuple(r.delivered(place) for r in results)
        return returned[0] if len(returned) == 1 else returned


class _Result:
    """One output of a call: the caller's array, or a new one of the caller's library."""

    def __init__(
        self, operator: OperatorSource, number: int, plan: Plan, outs: Mapping[str, ArrayView], place: _Place
    ) -> None:
        buffer = operator.outputs[number]
        self.name, self._dtype, self._shape = buffer.name, buffer.dtype, plan.outputs[buffer.name]
        self._given = outs.get(self.name)
        self._memory: cuda.DeviceMemory | None = None
        self._array: Any = None
        if self._given is not None and not self._given.on_host:
            self._array, self.pointer = self._given.owner, self._given.pointer
        elif self._given is not None or place.library is Library.NUMPY:
            size = int(np.prod(self._shape, dtype=np.int64)) * buffer.item_bytes
            self._memory = cuda.allocate(size, zeroed=False, stream=place.stream)
            self.pointer = self._memory.pointer
        else:
            self._array = _new_array(self._shape, self._dtype, place)
            self.pointer = view(f"output {self.name}", self._array).pointer

    def delivered(self, place: _Place) -> Any:
        """The array to return; results for the host are copied, which waits for the kernels."""
        if self._memory is None:
            return self._array
        host = cuda.to_host(self._memory, self._shape, self._dtype, place.stream)
        if self._given is None:
            return host
        np.copyto(self._given.owner, host)
        return self._given.owner


def _new_array(shape: tuple[int, ...], dtype: str, place: _Place) -> Any:
    if place.library is Library.TORCH:
        torch: Any = sys.modules["torch"]
        return torch.empty(shape, dtype=getattr(torch, dtype), device=f"cuda:{place.device}")
    with cuda.on_stream(place.stream):
        return cuda.empty(shape, dtype)


def _signature(operator: OperatorSource, views: Mapping[str, ArrayView]) -> tuple[object, ...]:
    """What decides a plan, and whether the checks pass: names, facts and the alignment of each address."""
    alignments = {b.name: b.alignment for b in (*operator.inputs, *operator.outputs)}
    return tuple(
        (n, a.shape, a.strides, a.dtype, a.on_host, a.pointer % alignments.get(n, 1) == 0) for n, a in views.items()
    )


def _given_outputs(
    operator: OperatorSource, out: Any, from_dlpack: Callable[[Any], Any] | None
) -> dict[str, ArrayView]:
    """``out`` as an array, a sequence in the order of the outputs (None: allocate), or a mapping by name."""
    names = [b.name for b in operator.outputs]
    given: Mapping[str, Any]
    match out:
        case None:
            given = {}
        case Mapping():
            given = cast("Mapping[str, Any]", out)
        case tuple() | list():
            listed = cast("Sequence[Any]", out)
            if len(listed) != len(names):
                raise ArgumentError(f"out has {len(listed)} arrays for {len(names)} outputs", location=operator.name)
            given = dict(zip(names, listed, strict=True))
        case _ if len(names) == 1:
            given = {names[0]: out}
        case _:
            raise ArgumentError(f"out must name or list the outputs {', '.join(names)}", location=operator.name)
    for name in given:
        if name not in names:
            raise ArgumentError(f"out: no output {name!r}; there are {', '.join(names)}", location=operator.name)
    return {n: view(f"output {n}", array, from_dlpack) for n, array in given.items() if array is not None}


def _output_strides(
    operator: OperatorSource, name: str, outs: Mapping[str, ArrayView], dims: Mapping[str, int]
) -> tuple[int, ...]:
    buffer = next(b for b in operator.outputs if b.name == name)
    if name in outs:
        checks.check_output(buffer, outs[name], dims, {})
        return checks.check_layout(buffer, outs[name], role="output")
    return contiguous_strides(tuple(int(evaluate(e, dims)) for e in buffer.shape))


def _common_device(views: Sequence[tuple[str, ArrayView]]) -> int:
    """The device that all arrays are on; the current one for host arrays and for arrays that do not say."""
    places = {array.device: name for name, array in views if array.device is not None}
    if len(places) > 1:
        (a, first), (b, second) = list(places.items())[:2]
        raise ArgumentError(f"{first} is on device {a}, {second} on device {b}", location="arguments")
    return next(iter(places)) if places else cuda.current_device()


def _place(device: int, views: Sequence[ArrayView], stream: int | None) -> _Place:
    libraries = [v.library for v in views if not v.on_host]
    library = libraries[0] if libraries else Library.NUMPY
    if stream is None:
        torch: Any = sys.modules.get("torch") if Library.TORCH in libraries else None
        stream = cuda.current_stream() if torch is None else int(torch.cuda.current_stream(device).cuda_stream)
    return _Place(device, stream, library)


def _scalar(array: ArrayView) -> float:
    if array.on_host:
        return cast("np.ndarray[Any, Any]", array.owner).item()
    if array.shape != ():
        raise LaunchError(f"shape {array.shape} for a value", location="scalar")
    return cuda.read_scalar(array.owner)
