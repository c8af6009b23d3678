"""A compiled operator as a function of arrays: what ``cleave.emit`` returns.

f(q, k, v)                 NumPy in, NumPy out; CuPy in, CuPy out; torch in, torch out
f(q, k, v, out=o)          results into arrays of the caller: one, a tuple of all, or a dict by name
f(q, k, v, n=77)           a dim that no shape gives
f.prepare(q, k, v, out=o)  a call of these arrays, checked once: ``call()``
f.kernels, f.source, f.resources, f.compiles, f.host_source
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from threading import RLock
from typing import Any, cast

import numpy as np

from cleave.errors import ArgumentError
from cleave.kernel import Compiled, KernelSource, OperatorSource, Resources, Variant
from cleave.runtime import arguments as checks
from cleave.runtime import cuda
from cleave.runtime.arrays import ArrayView
from cleave.runtime.call import (
    Call,
    Planned,
    Result,
    common_device,
    given_outputs,
    output_strides,
    place_of,
    results_of,
    scalar,
    signature,
    views_of,
)
from cleave.runtime.launch import POINTER, Launches, LoadedOperator, layout_of
from cleave.runtime.match import Values, facts_of, matcher
from cleave.runtime.pattern import Pattern, pattern_of
from cleave.runtime.plan import Plan, choose, make_plan, packed
from cleave.runtime.route import Route, route_of, see
from cleave.runtime.sizes import Found, structure

_KEPT = 512
"""Plans and routes of one operator that are remembered, those used last."""

_PATTERNS_KEPT = 16

_MET_KEPT = 64
"""Sizes that were met once, the newest: those that come again are worth a route."""

_STREAMS_KEPT = 64

_REMATCHED = 4
"""How often the match of a form is made anew: it takes as long as several calls."""

Compiler = Callable[[Sequence[KernelSource]], Sequence[Compiled]]


class PreparedCall:
    """A call of fixed arrays on one stream, checked and packed: ``call()`` launches and returns ``result``."""

    __slots__ = ("_device", "_kept", "_plan", "_repeat", "result", "stream")

    def __init__(self, launches: Launches, plan: Callable[[], Plan], result: Any, kept: tuple[Any, ...]) -> None:
        self.result = result
        self.stream = launches.stream
        self._device = None if cuda.device_count() == 1 else launches.device
        self._repeat = launches.repeat
        self._plan = plan
        self._kept = kept

    @property
    def plan(self) -> Plan:
        """What it launches."""
        return self._plan()

    def __call__(self) -> Any:
        """Nothing about the arrays is checked. Errors: LaunchError."""
        if self._device is None or cuda.current_device() == self._device:
            self._repeat()
        else:
            with cuda.on_device(self._device):
                self._repeat()
        return self.result


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
        self._plans: dict[tuple[object, ...], Planned] = {}
        self._routes: dict[tuple[object, ...], Route] = {}
        self._latest: Route | None = None
        self._patterns: dict[tuple[object, ...], Pattern] = {}
        self._met: dict[tuple[object, ...], None] = {}
        self._lock = RLock()

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
    def host_source(self) -> str:
        """Python text of the functions that calls of new sizes go through, one for each form that was called."""
        return "\n".join(pattern.text for pattern in self._patterns.values())

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

        Returns one array, or a tuple if there are several outputs. A number may be passed for an input without axes.
        A call whose form was seen before takes a short way with the same checks (``cleave.runtime.route``), one of the
        form of the last call the shortest (``cleave.runtime.match``); one of new sizes goes through one function
        (``cleave.runtime.sizes``). Errors: arguments that do not fit (ArgumentError,
        with the input and axis), no GPU, a kernel that can't be launched (LaunchError).
        """
        outputs = self._listed(out)
        arguments, names = inputs + outputs, ()
        if named:
            arguments, names = (*inputs, *named.values(), *outputs), tuple(named)
        latest, done = self._latest, None
        counts = len(inputs), len(outputs)
        if latest is not None and latest.counts == counts and latest.names == names:
            try:
                values = latest.match(arguments)
            except RuntimeError:  # a tensor without an address
                values = None
            if values is not None:
                done = latest.run(values, outputs, stream)
        if done is None:
            done = self._unlike_the_last(inputs, named, outputs, out, stream)
        return done[0] if len(done) == 1 else done

    def _listed(self, out: Any) -> tuple[Any, ...]:
        """Outputs in their order; a dict in which one is missing as it is."""
        if out is None:
            return ()
        if type(out) is dict:
            by_name, names = cast("dict[str, Any]", out), [b.name for b in self.operator.outputs]
            return tuple([by_name[n] for n in names]) if by_name.keys() == {*names} else (by_name,)
        return tuple(out) if type(out) in (tuple, list) else (out,)

    def _unlike_the_last(
        self, inputs: tuple[Any, ...], named: dict[str, Any], outputs: tuple[Any, ...], out: Any, stream: int | None
    ) -> tuple[Any, ...]:
        """A call of another form than the one before: the short way if any call had this form, else the long way."""
        given, arguments = (len(inputs), *named), (*inputs, *named.values(), *outputs)
        for pattern in tuple(self._patterns.values()):
            found = pattern.found(arguments, given)
            if found is not None:
                done = self._of_sizes(pattern, found, arguments, outputs, stream)
                break
        else:
            done = self._of_form(arguments, given, outputs, stream)
        if done is not None:
            return done
        call = self._checked(inputs, named, out, stream)
        with cuda.on_device(call.place.device):
            launches = self._launches(call)
            returned = self._run(call, launches)
            self._learn(arguments, given, call, launches)
        return returned

    def _of_form(
        self, arguments: tuple[Any, ...], given: tuple[object, ...], outputs: tuple[Any, ...], stream: int | None
    ) -> tuple[Any, ...] | None:
        """A call that no pattern takes, of a form that was seen before; else None."""
        form, values = see(arguments, given)
        route = self._routes.get(form)
        return route and self._by(route, form, route.ordered(values), arguments, outputs, stream)

    def _of_sizes(
        self, pattern: Pattern, found: Found, arguments: tuple[Any, ...], outputs: tuple[Any, ...], stream: int | None
    ) -> tuple[Any, ...] | None:
        """A call that a pattern takes; None where a number does not fit after all."""
        key = (pattern, found.sizes, found.shapes, found.bytes)
        route = self._routes.get(key)
        if route is None:
            with self._lock:
                if key not in self._met:
                    _keep(self._met, key, None, _MET_KEPT)
                    return pattern.run(found, outputs, stream)
                route = pattern.at(found, arguments, stream)
                if route is None:
                    return None
                _keep(self._routes, key, route, _KEPT)
        return self._by(route, key, found.values, arguments, outputs, stream)

    def _by(
        self,
        route: Route,
        key: tuple[object, ...],
        values: Values,
        arguments: tuple[Any, ...],
        outputs: tuple[Any, ...],
        stream: int | None,
    ) -> tuple[Any, ...] | None:
        done = route.run(values, outputs, stream)
        if done is not None:
            if route is self._latest and route.rematched < _REMATCHED:  # torch may have been in another mode
                route.match = matcher(arguments, facts_of(arguments), route.order)
                route.rematched += 1
            self._latest = route
            with self._lock:
                if key in self._routes:  # the newest from here on
                    self._routes[key] = self._routes.pop(key)
        return done

    def prepare(
        self, *inputs: Any, out: Any = None, stream: int | None = None, early: bool = True, **named: Any
    ) -> PreparedCall:
        """Check a call once and pack its arguments: ``call()`` launches it again and again, also into a CUDA graph.

        Arrays must be on the device; missing outputs are allocated. The result keeps the arrays, and the stream that
        was current or given. ``early=False``: its first block starts when everything before on the stream is over, not
        when places become free, e.g. to time the call alone. Nothing is launched here. Errors: as for a call; an array
        on the host, or a number that lies on the device.
        """
        outs = self._listed(out)
        given, arguments = (len(inputs), *named), (*inputs, *named.values(), *outs)
        for pattern in tuple(self._patterns.values()) if early else ():
            found = pattern.found(arguments, given)
            if found is not None:
                with self._lock:
                    ready = pattern.prepared(found, outs, stream)
                if ready is not None:
                    launches, arrays = ready
                    result = arrays[0] if len(arrays) == 1 else arrays
                    plan = partial(self.plan, *inputs, **named)
                    return PreparedCall(launches, plan, result, (self, inputs, named, arrays))
        call = self._checked(inputs, named, out, stream)
        with cuda.on_device(call.place.device):
            launches = self._new_launches(call, early=early)
            _refuse_host(call, self.operator, launches)
            results = results_of(self._source(call), call)
            values, copies = self._values(call, launches, results)
            launches.write(values)
            if early:
                self._learn_pattern(arguments, given, call, launches, route=None)
        arrays = tuple(r.array for r in results)
        kept = (self, copies, *(v.owner for v in call.views.values()))
        result = arrays[0] if len(arrays) == 1 else arrays
        return PreparedCall(launches, lambda: call.planned.plan, result, kept)

    def plan(self, *inputs: Any, **named: Any) -> Plan:
        """What a call with these arguments would launch; needs no GPU for NumPy arrays."""
        arrays, given = checks.match_arguments(self.operator, inputs, named)
        return self._planned(views_of(self.operator, arrays, None), {}, given).plan

    # ---- checks ----------------------------------------------------------------------------------------------------

    def _checked(self, inputs: Sequence[Any], named: Mapping[str, Any], out: Any, stream: int | None) -> Call:
        operator = self.operator
        arrays, given = checks.match_arguments(operator, inputs, named)
        from_dlpack = None if cuda.why_not() else cuda.from_dlpack
        views = views_of(operator, arrays, from_dlpack)
        outs = given_outputs(operator, out, from_dlpack)
        planned = self._planned(views, outs, given)
        checks.check_outputs(operator.outputs, outs, planned.dims, views)
        cuda.require(operator.name)
        device = common_device([*views.items(), *outs.items()])
        with cuda.on_device(device):
            place = place_of(device, [*views.values(), *outs.values()], stream)
        return Call(planned, views, outs, place)

    def _planned(
        self, views: Mapping[str, ArrayView], outs: Mapping[str, ArrayView], given: Mapping[str, int]
    ) -> Planned:
        key = (signature(self.operator, views), signature(self.operator, outs), tuple(sorted(given.items())))
        with self._lock:
            found = self._plans.get(key)
            if found is None:
                found = self._make_plan(views, outs, given)
            self._plans.pop(key, None)
            _keep(self._plans, key, found, _KEPT)
        return found

    def _make_plan(
        self, views: Mapping[str, ArrayView], outs: Mapping[str, ArrayView], given: Mapping[str, int]
    ) -> Planned:
        operator = self.operator
        checks.check_types(operator.inputs, views)
        checks.check_types([b for b in operator.outputs if b.name in outs], outs, role="output")
        strides = {b.name: checks.check_layout(b, views[b.name]) for b in operator.inputs}
        shapes = {name: array.shape for name, array in views.items()}
        number = choose(self.variants, checks.solve_dims(operator, shapes, given)) if len(self.variants) > 1 else 0
        chosen = self.variants[number].operator
        dims = checks.solve_dims(chosen, shapes, given)
        strides |= {b.name: output_strides(chosen, b.name, outs, dims) for b in operator.outputs}
        return Planned(number, dims, make_plan(chosen, dims, strides))

    # ---- kernels ---------------------------------------------------------------------------------------------------

    def _all_compiled(self) -> tuple[tuple[Compiled, ...], ...]:
        with self._lock:
            if self._compiled is None:
                sources = self.kernels
                results = iter(self._compile(sources))
                self.compiles += len(sources)
                self._compiled = tuple(tuple(next(results) for _ in v.operator.kernels) for v in self.variants)
            return self._compiled

    def _operators(self) -> tuple[LoadedOperator, ...]:
        if self._loaded is None:
            groups = zip(self.variants, self._all_compiled(), strict=True)
            self._loaded = tuple(LoadedOperator(v.operator, compiled) for v, compiled in groups)
        return self._loaded

    def _launches(self, call: Call) -> Launches:
        """Those of the plan on this device and stream, made once."""
        key = (call.place.device, call.place.stream)
        with self._lock:
            found = call.planned.launches.get(key)
            if found is None:
                found = self._new_launches(call)
                _keep(call.planned.launches, key, found, _STREAMS_KEPT)
        return found

    def _new_launches(self, call: Call, *, early: bool = True) -> Launches:
        with self._lock:
            names = [b.name for b in (*self.operator.inputs, *self.operator.outputs)]
            loaded, place = self._operators()[call.planned.variant], call.place
            layout, sizes = layout_of(call.planned.plan, names)
            return loaded.launches(layout, sizes, device=place.device, stream=place.stream, early=early)

    def _source(self, call: Call) -> OperatorSource:
        return self.variants[call.planned.variant].operator

    # ---- the call --------------------------------------------------------------------------------------------------

    def _run(self, call: Call, launches: Launches) -> tuple[Any, ...]:
        results = results_of(self._source(call), call)
        values, _copies = self._values(call, launches, results)  # copies live until the launches are queued
        launches.run(values)
        return tuple(r.delivered(call.place) for r in results)

    def _values(
        self, call: Call, launches: Launches, results: Sequence[Result]
    ) -> tuple[list[float], list[cuda.DeviceMemory]]:
        """Addresses and numbers in the order of inputs and outputs, and the copies of host arrays among them."""
        values: list[float] = []
        copies: list[cuda.DeviceMemory] = []
        for buffer, kind in zip(self.operator.inputs, launches.kinds, strict=False):
            array = call.views[buffer.name]
            if kind != POINTER:
                values.append(packed(self.operator.name, buffer.name, kind, scalar(array)).item())
            elif array.on_host:
                copies.append(cuda.to_device(cast("np.ndarray[Any, Any]", array.owner), call.place.stream))
                values.append(copies[-1].pointer)
            else:
                values.append(array.pointer)
        return values + [r.pointer for r in results], copies

    def _learn(self, arguments: tuple[Any, ...], given: tuple[object, ...], call: Call, launches: Launches) -> None:
        """Remember the form of a call, so that the next one goes the short way, if that can serve it."""
        form, _ = see(arguments, given)
        if not form:
            return
        with self._lock:
            route = route_of(self._source(call), arguments, given, form, call, launches)
            if route is None:
                return
            pattern = self._learn_pattern(arguments, given, call, launches, route)
            found = pattern and pattern.found(arguments, given)
            key = form if pattern is None or found is None else (pattern, found.sizes, found.shapes, found.bytes)
            route = self._routes.setdefault(key, route)
            _keep(self._routes, key, route, _KEPT)
            _keep(route.launches, call.place.stream, launches, _STREAMS_KEPT)
            self._latest = route

    def _learn_pattern(
        self,
        arguments: tuple[Any, ...],
        given: tuple[object, ...],
        call: Call,
        launches: Launches,
        route: Route | None,
    ) -> Pattern | None:
        """What calls of other sizes have in common with this one; None if such calls go the long way."""
        form, _ = see(arguments, given)
        if not form:
            return None
        with self._lock:
            number = call.planned.variant
            key = (number, *structure(arguments, given, form[len(given) :]))
            found = self._patterns.get(key)
            if found is None:
                route = route or route_of(self._source(call), arguments, given, form, call, launches)
                loaded, layout = self._operators()[number], launches.layout
                found = route and pattern_of(self.variants, loaded, arguments, call, route, layout)
                if found is not None:
                    _keep(self._patterns, key, found, _PATTERNS_KEPT)
            return found


def _keep(found: dict[Any, Any], key: object, value: object, most: int) -> None:
    if len(found) >= most and key not in found:
        del found[next(iter(found))]
    found[key] = value


def _refuse_host(call: Call, operator: OperatorSource, launches: Launches) -> None:
    """What a prepared call can't hold: arrays on the host, and numbers that lie on the device."""
    for name, array in call.outs.items():
        if array.on_host:
            raise ArgumentError("it is on the host; a prepared call needs it on the GPU", location=f"output {name}")
    for buffer, kind in zip(operator.inputs, launches.kinds, strict=False):
        array, location = call.views[buffer.name], f"input {buffer.name}"
        if array.on_host and kind == POINTER and array.shape != ():
            raise ArgumentError("it is on the host; a prepared call needs it on the GPU", location=location)
        if not array.on_host and kind != POINTER:
            raise ArgumentError("it is passed by value; a prepared call needs a number", location=location)
