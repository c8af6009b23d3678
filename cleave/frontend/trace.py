"""From a Python function to a graph."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from cleave.errors import GraphError, ShapeError
from cleave.frontend.context import CURRENT, HOME, Trace, fail, home_of
from cleave.frontend.placed import Placed
from cleave.frontend.spec import (
    SpecLike,
    collect_dims,
    describe,
    dtype_name,
    is_anonymous,
    is_unit,
    merged_extent,
    merged_position,
    parse_spec,
    resolve,
    same_extent,
)
from cleave.frontend.tensor import Tensor, Value, promoted, term
from cleave.ir import index as ix
from cleave.ir.axis import Axis
from cleave.ir.check import MOST_NESTED, check_nesting
from cleave.ir.dim import Dim
from cleave.ir.graph import Cast, Graph, IndexValue, Input, Load, Output, Term, Where, graph, is_position, walk
from cleave.ir.index import Index, Pred
from cleave.ir.op import FLOATS, INTEGERS

DEFAULT = "float16"


def trace(
    fn: Callable[..., Any],
    *,
    dtype: object = DEFAULT,
    outputs: SpecLike | Mapping[str, SpecLike] | None = None,
    constraints: Sequence[Pred] = (),
    name: str | None = None,
    **inputs: SpecLike,
) -> Graph:
    """The graph that a function of named tensors computes.

    ::

        def attention(q, k, v):
            p = ops.softmax(ops.einsum("hsd,htd->hst", q, k) * 0.125, axis="t")
            return ops.einsum("hst,hte->hse", p, v)

        cleave.trace(attention, q="h s d=64", k="h t d", v="h t e=64", dtype="float16")

    Inputs are given by the names of the function's parameters. An axis is a name; one name is one extent in all
    inputs. Written as ``d=64`` it is fixed; ``(kv_heads group)`` are two axes along one dimension of the buffer;
    ``int32[b]`` and ``bool[s t]`` have a storage type of their own; a tuple of dims (``cleave.dims``) does as well.
    See ``cleave.frontend.spec``.

    ``dtype`` is the storage type of inputs and outputs, or a mapping from input names to types (float16 for the
    rest). An output has the widest type of the inputs that it is made of, another after ``astype``.

    What the function returns are the outputs: one tensor is called ``out``, a tuple ``out0``, ``out1``, .., a dict or a
    NamedTuple has names of its own. ``outputs`` says how they are stored, as for inputs: ``"b (kv_heads group) s e"``.

    At most 200 operations may be in one another (``cleave.ir.check.MOST_NESTED``): many layers are several graphs.

    Errors are ``GraphError`` or ``ShapeError``, with the line of the program in front.
    """
    place = home_of(fn, name)
    home = HOME.set(place)
    try:
        return _traced(fn, dtype, outputs, constraints, name, inputs)
    except RecursionError:
        what = f"too many operations in one another: allowed are {MOST_NESTED}"
        raise GraphError(f"{what}, so a longer program is several graphs", location=place) from None
    finally:
        HOME.reset(home)


def _traced(
    fn: Callable[..., Any],
    dtype: object,
    outputs: SpecLike | Mapping[str, SpecLike] | None,
    constraints: Sequence[Pred],
    name: str | None,
    inputs: Mapping[str, SpecLike],
) -> Graph:
    default, types = _types(dtype, inputs)
    _check_parameters(fn, inputs)
    specs = {n: parse_spec(s, n) for n, s in inputs.items()}
    dims = collect_dims(specs)
    shapes = {n: resolve(s, dims, n) for n, s in specs.items()}
    made = {n: Input(n, specs[n].dtype or types.get(n, default), tuple(map(merged_extent, shapes[n]))) for n in specs}
    state = Trace(dims, _axes(shapes), default)
    token = CURRENT.set(state)
    try:
        result = fn(**{n: _input_tensor(made[n], shapes[n]) for n in inputs})
        named = _named_outputs(result, fn)
        stored = _output_specs(outputs, named)
        out = [_output(n, x, stored.get(n), state) for n, x in named.items()]
    finally:
        CURRENT.reset(token)
    check_nesting(HOME.get(), out)
    return graph(name or getattr(fn, "__name__", "graph").strip("<>"), list(made.values()), out, constraints)


# ---- inputs


def _types(dtype: object, inputs: Mapping[str, SpecLike]) -> tuple[str, dict[str, str]]:
    if not isinstance(dtype, Mapping):
        return dtype_name(dtype), {}
    types = {str(n): dtype_name(d, str(n)) for n, d in cast("Mapping[str, object]", dtype).items()}
    for n in types:
        if n not in inputs:
            fail(f"dtype of {n!r}: the inputs are {', '.join(inputs) or 'none'}")
    return DEFAULT, types


def _check_parameters(fn: Callable[..., Any], inputs: Mapping[str, SpecLike]) -> None:
    parameters = inspect.signature(fn).parameters
    title = getattr(fn, "__name__", "the function")
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    for n in inputs:
        if n not in parameters and not open_ended:
            fail(f"{title} has no parameter {n!r}: it has {', '.join(parameters) or 'none'}")
    for n, p in parameters.items():
        needed = p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
        if needed and n not in inputs:
            fail(f'parameter {n} of {title} has no axes: give them, such as {n}="b t d=64"')


def _axes(shapes: Mapping[str, tuple[tuple[Axis, ...], ...]]) -> dict[str, Axis]:
    """Axes of the inputs by name; one name has one extent."""
    found: dict[str, Axis] = {}
    owner: dict[str, str] = {}
    for n, groups in shapes.items():
        for a in (a for group in groups for a in group if not is_anonymous(a)):
            other = found.setdefault(a.name, a)
            if not same_extent(a.extent, other.extent):
                extents = f"extent {describe(other.extent)} of {owner[a.name]}, {describe(a.extent)} of {n}"
                fail(f"axis {a.name}: {extents}", ShapeError)
            owner.setdefault(a.name, n)
    return found


def _input_tensor(source: Input, shape: tuple[tuple[Axis, ...], ...]) -> Tensor:
    indices = tuple(map(merged_position, shape))
    value: Value
    if source.dtype == "bool":
        value = ix.BoolRead(source.name, indices)
    elif source.dtype in INTEGERS:
        value = ix.of(ix.Read(source.name, indices))
    else:
        value = Load(source.name, indices)
    return Tensor(value, tuple(a for group in shape for a in group), source.dtype, source.name)


# ---- outputs


def _named_outputs(result: object, fn: Callable[..., Any]) -> dict[str, Placed]:
    title = getattr(fn, "__name__", "the function")
    if isinstance(result, Mapping):
        named = dict(cast("Mapping[str, object]", result))
    elif isinstance(result, tuple) and hasattr(cast("Any", result), "_fields"):
        named = dict(cast("Any", result)._asdict())
    elif isinstance(result, (tuple, list)):
        named = {f"out{n}": x for n, x in enumerate(cast("Sequence[object]", result))}
    else:
        named = {"out": result}
    if not named:
        fail(f"{title} returns no output")
    out: dict[str, Placed] = {}
    for n, x in named.items():
        if not isinstance(x, Tensor | Placed):
            fail(f"{title} returns {_kind(x)} as {n}: outputs are traced tensors")
        out[n] = x if isinstance(x, Placed) else Placed(x, {})
    return out


def _kind(x: object) -> str:
    return "None" if x is None else f"{type(x).__name__} {x!r}"


def _output_specs(
    outputs: SpecLike | Mapping[str, SpecLike] | None, named: Mapping[str, Placed]
) -> dict[str, SpecLike]:
    if outputs is None:
        return {}
    if isinstance(outputs, Mapping):
        for n in outputs:
            if n not in named:
                fail(f"outputs: no output {n!r}, the function returns {', '.join(named)}")
        return dict(outputs)
    if len(named) > 1:
        fail(f"outputs: the function returns {', '.join(named)}; give a mapping from these names")
    return dict.fromkeys(named, outputs)


def _output(name: str, what: Placed, spec: SpecLike | None, state: Trace) -> Output:
    """One output: its buffer, and where each element goes."""
    x = what.tensor
    value = term(x)
    whole = x.storage if is_position(value) else None
    dtype = whole or promoted(x) or (state.dtype if state.dtype in FLOATS else DEFAULT)
    if not any(isinstance(t, (Load, IndexValue, Where)) for t in walk(value)):
        fail(f"output {name} depends on no input")
    groups = [(a,) for a in x.slots]
    if spec is None and what.places:
        fail(f"output {name} has places for {', '.join(what.places)}: say in outputs how it is stored")
    if spec is not None:
        parsed = parse_spec(spec, f"output {name}")
        dtype = parsed.dtype or dtype
        groups = [tuple(group) for group in resolve(parsed, _known(x, state), f"output {name}")]
        _check_output_axes(name, what, [a for group in groups for a in group])
    allowed = FLOATS if whole is None else FLOATS | INTEGERS
    if dtype not in allowed:
        fail(f"output {name}: dtype {dtype}: allowed are {', '.join(sorted(allowed))}")
    extents: list[Dim] = [merged_extent(group) for group in groups]
    places: dict[ix.Atom, Index] = {
        ix.Position(a): what.places[a.name] for group in groups for a in group if a.name in what.places
    }
    indices: list[Index] = [ix.substitute(merged_position(group), places) for group in groups]
    return Output(name, dtype, tuple(extents), tuple(indices), _without_last_cast(value, dtype))


def _known(x: Tensor, state: Trace) -> dict[str, Dim]:
    return {**state.dims, **{a.name: a.extent for a in x.slots}}


def _check_output_axes(name: str, what: Placed, axes: Sequence[Axis]) -> None:
    theirs = {a.name: a for a in what.tensor.slots if not is_unit(a) and a.name in what.left}
    ours = {a.name: a for a in axes if not is_unit(a)}
    if ours.keys() != {*theirs, *what.places}:
        has = ", ".join((*theirs, *what.places)) or "none"
        fail(f"output {name} has axes {has}; stored as {', '.join(ours) or 'none'}", ShapeError)
    for n, a in theirs.items():
        if a is not ours[n]:
            fail(
                f"axis {n}: extent {describe(a.extent)} of output {name}, stored as {describe(ours[n].extent)}",
                ShapeError,
            )


def _without_last_cast(value: Term, dtype: str) -> Term:
    """Storing rounds anyway: a last cast to the type of the buffer says nothing."""
    return value.operand if isinstance(value, Cast) and value.dtype == dtype else value
