"""Sizes of torch as dims: names and ranges from what the caller declared, facts from the guards of torch.export.

torch has sizes as SymPy expressions over symbols of its own (``2*s10``); they are read here, without SymPy.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, cast

from cleave.errors import GraphError
from cleave.frontend.torch.guards import RESERVED, guards_of, multiples, predicate, saved_predicates
from cleave.ir.dim import Dim
from cleave.ir.index import Pred, Symbol, index, maximum, minimum, of


@dataclass
class Sizes:
    """The dim that stands for each symbol of torch, and what must hold between dims."""

    dims: dict[str, Dim] = field(default_factory=dict[str, Dim])
    constraints: list[Pred] = field(default_factory=list[Pred])

    def dim_of(self, size: Any) -> Dim:
        """A size of torch: an integer or an expression over its symbols.

        Errors: a symbol that comes from values of tensors, a function that dims do not have (GraphError).
        """
        if isinstance(size, int):
            return index(size)
        expression = getattr(getattr(size, "node", None), "expr", size)
        return self._expression(expression)

    def check(self, size: Any) -> None:
        """Refuse a size or number, or a condition on sizes, that comes from values of tensors."""
        for symbol in _free_symbols(size):
            self._expression(symbol)

    def _expression(self, e: Any) -> Dim:
        if e.is_Integer:
            return index(int(e))
        if e.is_Symbol:
            if str(e) not in self.dims:
                raise GraphError("a size or number that depends on values of tensors")
            return self.dims[str(e)]
        kind = type(e).__name__
        if kind == "Pow" and e.args[1].is_Integer and int(e.args[1]) > 0:
            base = self._expression(e.args[0])
            return reduce(lambda a, b: a * b, [base] * int(e.args[1]))
        if kind not in _BINARY:
            raise GraphError(f"a size {e}: sums, products, quotients, remainders and extremes of dims are known")
        return reduce(_BINARY[kind], map(self._expression, e.args))


_BINARY: dict[str, Callable[[Dim, Dim], Dim]] = {
    "Add": lambda a, b: a + b,
    "Mul": lambda a, b: a * b,
    "FloorDiv": lambda a, b: a // b,
    "CleanDiv": lambda a, b: a // b,
    "Mod": lambda a, b: a % b,
    "PythonMod": lambda a, b: a % b,
    "Max": maximum,
    "Min": minimum,
}


def sizes_of(exported: Any, source: Any, args: Sequence[Any], kwargs: Mapping[str, Any], dynamic_shapes: Any) -> Sizes:
    """The dims of an exported program.

    A symbol that a ``torch.export.Dim`` stands for is called like that; others after the first input
    and dimension whose size they are: ``x_0``. A size that torch found to be a multiple of 4, with nothing declared,
    is 4 times a dim ``x_0_by_4``.
    """
    arguments = [n for n in exported.graph.nodes if n.name in exported.graph_signature.user_inputs]
    declared: dict[str, Any] = {}
    for node, wanted in zip(arguments, _leaves(source, args, kwargs, dynamic_shapes), strict=False):
        for number, dim in _per_dimension(wanted):
            _declare(node.meta.get("val"), number, dim, declared)
    guards = guards_of(exported)
    factors = multiples(guards)
    out = Sizes()
    for symbol, name in _symbols(arguments).items():
        limits = exported.range_constraints.get(symbol)
        out.dims[str(symbol)] = _dim(name, limits, declared.get(str(symbol)), factors.get(str(symbol), 1))
    found = [predicate(guard, out.dim_of) for guard in guards]
    if not guards:
        shapes = {n.name: tuple(map(out.dim_of, getattr(n.meta.get("val"), "shape", ()))) for n in arguments}
        found += saved_predicates(exported, shapes)
    out.constraints = list(dict.fromkeys(pred for pred in found if pred is not None))
    return out


def _symbols(arguments: Sequence[Any]) -> dict[Any, str]:
    """Symbols of the sizes of arguments, and what to call each if nothing is declared."""
    found: dict[Any, str] = {}
    for node in arguments:
        for number, size in enumerate(getattr(node.meta.get("val"), "shape", ())):
            for symbol in _free_symbols(size):
                found.setdefault(symbol, f"{node.name}_{number}")
    return found


def _free_symbols(size: Any) -> list[Any]:
    symbols = getattr(getattr(getattr(size, "node", None), "expr", None), "free_symbols", ())
    return sorted(symbols, key=str)


def _declare(value: Any, number: int, dim: Any, declared: dict[str, Any]) -> None:
    root = getattr(dim, "root", dim)
    shape = getattr(value, "shape", ())
    symbols = _free_symbols(shape[number]) if number < len(shape) else []
    if len(symbols) == 1 and hasattr(root, "__name__"):
        declared[str(symbols[0])] = root


def _dim(name: str, limits: Any, declared: Any, multiple: int) -> Dim:
    low, high = _bound(getattr(limits, "lower", None)), _bound(getattr(limits, "upper", None))
    smallest = low if low is not None and low > RESERVED else 0
    if declared is not None:
        name = str(declared.__name__)
        smallest = max(_bound(getattr(declared, "min", None)) or 0, smallest)
    if multiple > 1:
        name, smallest = f"{name}_by_{multiple}", -(-smallest // multiple)
        high = None if high is None else high // multiple
    return of(Symbol(re.sub(r"\W", "_", name), smallest, high)) * multiple


def _bound(limit: Any) -> int | None:
    try:
        value = int(limit)
    except (TypeError, ValueError, OverflowError, AttributeError):
        return None
    return value if abs(value) < 2**60 else None


# ---- what the caller declared


def _leaves(source: Any, args: Sequence[Any], kwargs: Mapping[str, Any], shapes: Any) -> Iterator[Any]:
    """What ``dynamic_shapes`` says of each argument that is no container, in the order of the arguments."""
    if shapes is None:
        return
    if hasattr(shapes, "dynamic_shapes"):  # a ShapesCollection
        shapes = shapes.dynamic_shapes(source, tuple(args), dict(kwargs))
    if isinstance(shapes, Mapping):
        named = _named(source, args, kwargs)
        yield from _paired(list(named.values()), [_mapping(shapes).get(name) for name in named])
    else:
        yield from _paired([*args, *kwargs.values()], shapes)


def _named(source: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by the names of parameters; those of ``**kwargs`` by their own."""
    signature = inspect.signature(getattr(source, "forward", source))
    out: dict[str, Any] = {}
    for name, value in signature.bind(*args, **kwargs).arguments.items():
        open_ended = signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD
        out |= value if open_ended else {name: value}
    return out


def _paired(value: Any, spec: Any) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        inner = _sequence(value)
        for v, s in zip(inner, _sequence(spec) if spec is not None else [None] * len(inner), strict=False):
            yield from _paired(v, s)
    elif isinstance(value, Mapping):
        for k, v in _mapping(value).items():
            yield from _paired(v, _mapping(spec).get(k) if spec is not None else None)
    else:
        yield spec


def _per_dimension(spec: Any) -> list[tuple[int, Any]]:
    if isinstance(spec, Mapping):
        return [(int(k), v) for k, v in _mapping(spec).items()]
    return list(enumerate(_sequence(spec))) if isinstance(spec, (list, tuple)) else []


def _sequence(x: Any) -> list[Any]:
    return list(cast("Sequence[Any]", x))


def _mapping(x: Any) -> Mapping[Any, Any]:
    return cast("Mapping[Any, Any]", x)
