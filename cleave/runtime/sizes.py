"""Everything that the sizes of a call's arrays decide, checks included, as one function: its text is compiled once.

    def find(arguments):                                 y = x + b, of x [n, m] and b [m], on torch's tensors
        a0, a1, a2, = arguments
        if not (type(a0) is t0 and a0.dtype is f0_2 and ..): return None
        n0_0, n0_1, = a0.shape
        ..
        if not (n0_0 > 0 and n0_1 > 0 and n1_0 == n0_1 and n2_0 == n0_0 and ..): return None
        return Found([p0, p1, p2], Sizes((n0_0, n0_1), ((n0_0, 1, 1),), (), ()), (), (4*n0_0*n0_1, ..))

It finds what ``arguments.solve_dims`` and ``plan.make_plan`` do, of arrays that pass every check that those and
``arguments`` make. Whatever does not pass, arrays without elements, and sizes at which a kernel has no block, are not
found: the checks one by one say what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

from cleave.errors import GraphError
from cleave.ir.dim import LARGEST, check_binding
from cleave.ir.index import Index, Symbol, symbols_of
from cleave.ir.op import DTYPES
from cleave.ir.python import Lines, is_number, product
from cleave.kernel import Buffer, OperatorSource, Stride, TensorMap, Value, Variant
from cleave.runtime.arguments import symbols
from cleave.runtime.arrays import READERS, Reader, as_dim, as_number, cupy_facts, torch_facts
from cleave.runtime.launch import Layout, Sizes
from cleave.runtime.match import KINDS, VALUES, Values, made
from cleave.runtime.plan import GRID_LIMITS

_STRIDES: dict[Reader, str] = {torch_facts: "a{n}.stride()", cupy_facts: "a{n}.strides"}
_NUMBERS: dict[str, tuple[Reader, ...]] = {
    "float32": (as_number, as_dim),
    "int32": (as_dim,),
    "int64": (as_dim,),
}
"""What may be passed for an input without axes, as it is."""


class Found(NamedTuple):
    """A call that passed.

    values   addresses and numbers, in the order of inputs and outputs
    sizes    what the launches are made of
    shapes   of the outputs, if new ones are to be made
    bytes    of inputs and outputs; 0 for numbers
    """

    values: Values
    sizes: Sizes
    shapes: tuple[tuple[int, ...], ...]
    bytes: tuple[int, ...]


Find = Callable[[tuple[Any, ...]], Found | None]
"""Errors: RuntimeError for tensors without an address or strides; ValueError, ZeroDivisionError: it does not pass."""


def finder(
    variants: Sequence[Variant],
    number: int,
    came: Sequence[str],
    arguments: Sequence[Any],
    facts: Sequence[object],
    layout: Layout,
) -> tuple[str, Find] | None:
    """Text and function for calls like this one, at other sizes. None: it has what the function does not know.

    That is: strides that kernels read, rows with gaps, kernels without a block at these sizes, arrays without elements.
    ``number``: of the variant that serves it; calls of sizes that others serve are not found. ``came``: the input,
    output or dim that each argument is. ``facts``: those of the readers.
    """
    operator = variants[number].operator
    buffers = (*operator.inputs, *operator.outputs)
    sources = [p.source for kernel in operator.kernels for p in kernel.parameters]
    known = all(b.layout == "contiguous" for b in buffers) and not any(isinstance(s, Stride) for s in sources)
    if not known or len(layout.launches) != len(operator.kernels):
        return None
    try:
        text, names = _Text(operator, came, arguments, facts, layout).whole(variants, number)
    except GraphError:  # a dim that is no matter of shapes
        return None
    find = cast("Find", made(text, "find", **names, Found=Found, Sizes=Sizes, alike=_alike))
    return None if find(tuple(arguments)) is None else (text, find)


def _alike(shape: tuple[int, ...], strides: tuple[int, ...], regular: tuple[int, ...]) -> bool:
    """Whether strides are regular on all axes with more than one element."""
    return all(n <= 1 or s == r for n, s, r in zip(shape, strides, regular, strict=True))


class _Text:
    """The function of one operator and form, written line by line."""

    def __init__(
        self,
        operator: OperatorSource,
        came: Sequence[str],
        arguments: Sequence[Any],
        facts: Sequence[object],
        layout: Layout,
    ) -> None:
        self.operator, self.came, self.layout = operator, came, layout
        self.place = {name: n for n, name in enumerate(came)}
        self.types: list[type] = [type(a) for a in arguments]
        self.readers = [READERS[kind] for kind in self.types]
        self.facts = facts
        self.made = [b for b in operator.outputs if b.name not in self.place]
        self.arrays = [
            b
            for b in (*operator.inputs, *operator.outputs)
            if b.name in self.place and self.readers[self.place[b.name]] in KINDS
        ]
        self.lines = Lines({})
        self.wanted: dict[str, str] = {}

    def whole(self, variants: Sequence[Variant], number: int) -> tuple[str, dict[str, Any]]:
        names = self._forms()
        self._shapes()
        self._dims(variants[0].operator)
        for earlier in variants[:number]:
            self._demand(f"(not ({' and '.join(map(self.lines.holds, earlier.when))}))")
        self._demand(*map(self.lines.holds, variants[number].when))
        if number:  # the dims of the first one choose, its own are what it gets
            written = self.lines.lines
            self.lines, self.wanted = Lines({}), {}
            self.lines.lines = written
            self._dims(self.operator)
        self._memory()
        result = self._result()
        body = "\n    ".join([*self.lines.lines, f"return {result}"])
        return f"def find(arguments):\n    {body}\n", names

    def _write(self, line: str) -> None:
        self.lines.lines.append(line)

    def _demand(self, *tests: str) -> None:
        if tests:
            self._write(f"if not ({' and '.join(dict.fromkeys(tests))}): return None")

    # ---- facts that are no sizes

    def _forms(self) -> dict[str, Any]:
        """Arguments by name, and their facts but for sizes; values of the names that the text has for facts."""
        names: dict[str, Any] = {}
        tests: list[str] = []
        self._write("".join(f"a{n}, " for n in range(len(self.came))) + "= arguments")
        for n, (reader, fact) in enumerate(zip(self.readers, self.facts, strict=True)):
            names[f"t{n}"] = self.types[n]
            tests.append(f"type(a{n}) is t{n}")
            if reader in KINDS:
                names |= {f"f{n}_{k}": part for k, part in enumerate(cast("tuple[object, ...]", fact)) if k > 1}
                tests.append(KINDS[reader].format(a=f"a{n}", f=f"f{n}_"))
        self._demand(*tests)
        for buffer, kind in zip((*self.operator.inputs, *self.operator.outputs), self.layout.kinds, strict=True):
            n = self.place.get(buffer.name)
            reader = None if n is None else self.readers[n]
            if n is not None and reader not in KINDS and (kind != buffer.dtype or reader not in _NUMBERS.get(kind, ())):
                raise GraphError(f"input {buffer.name} is passed as {kind}")
        return names

    # ---- dims

    def _shapes(self) -> None:
        for b in self.arrays:
            n = self.place[b.name]
            extents = ", ".join(self._extents(b))
            self._write(f"{extents}, = a{n}.shape" if b.shape else f"() = a{n}.shape")

    def _dims(self, operator: OperatorSource) -> None:
        """Values of all symbols, as ``arguments.solve_dims`` finds and checks them."""
        names = self.lines.names
        buffers = {b.name for b in (*operator.inputs, *operator.outputs)}
        known = symbols(operator)
        names |= {name: f"a{n}" for name, n in self.place.items() if name not in buffers}
        self._demand(*(f"{names[s]} == {value}" for s, value in operator.fixed.items() if s in names))
        names |= {name: str(value) for name, value in operator.fixed.items()}
        names |= {s.name: str(s.value) for s in known.values() if s.value is not None and s.name not in names}
        self._learn()
        missing = [name for name in known if name not in names]
        if missing:
            raise GraphError(f"dim {missing[0]} has no value")
        wanted = {s: self.lines.value(e) for b in self.arrays for e, s in zip(b.shape, self._extents(b), strict=True)}
        positive = [want for want in wanted.values() if not is_number(want)]
        if any(int(want) < 1 for want in wanted.values() if is_number(want)):
            raise GraphError("an array without elements")
        self._demand(
            *(f"{size} == {want}" for size, want in wanted.items() if size != want),
            *(test for s in known.values() for test in _binding(s, names[s.name], positive)),
            *(f"{want} > 0" for want in positive if want not in names.values()),
        )
        self.wanted = wanted
        for symbol, expression in operator.derived:
            names[symbol.name] = self.lines.keep(self.lines.value(expression))
        self._demand(*[f"({self.lines.holds(p)})" for p in operator.constraints])

    def _extents(self, b: Buffer) -> list[str]:
        """What shapes are read into; numbers where they were found to be those."""
        names = [f"n{self.place[b.name]}_{axis}" for axis in range(len(b.shape))]
        return [self.wanted[n] if is_number(self.wanted.get(n, "")) else n for n in names]

    def _learn(self) -> None:
        """Symbols out of the inputs' shapes, in the order of ``bind.learn_dims``."""
        inputs = [b for b in self.arrays if b in self.operator.inputs]
        equations = [(e, size) for b in inputs for e, size in zip(b.shape, self._extents(b), strict=True)]
        names, learnt = self.lines.names, True
        while learnt:
            learnt = False
            for extent, size in equations:
                unknown = [s for s in symbols_of(extent) if s.name not in names]
                linear = extent.linear_in(unknown[0]) if len(unknown) == 1 else None
                if linear is not None:
                    names[unknown[0].name] = self._solved(size, *linear)
                    learnt = True

    def _solved(self, size: str, factor: Index, rest: Index) -> str:
        if factor.constant == 1 and rest.constant == 0:
            return size
        return self.lines.keep(f"({size} - {self.lines.value(rest)}) // ({self.lines.value(factor)})")

    # ---- memory

    def _memory(self) -> None:
        """Strides and addresses of arrays; outputs share no memory with others."""
        given = {b.name for b in self.operator.outputs}
        tests: list[str] = []
        for b in self.arrays:
            n = self.place[b.name]
            self._regular(b, n)
            self._write(f"p{n} = {VALUES[self.readers[n]].format(a=f'a{n}')}")
            self._write(f"b{n} = {product(DTYPES[b.dtype], self._extents(b))}")
            tests += [f"p{n} % {b.alignment} == 0"] if b.alignment > 1 else []
        for number, b in enumerate(self.arrays):
            if b.name in given:
                o, others = self.place[b.name], [self.place[other.name] for other in self.arrays[:number]]
                tests += [f"(p{o} >= p{x} + b{x} or p{x} >= p{o} + b{o})" for x in others]
        self._demand(*tests)

    def _regular(self, b: Buffer, n: int) -> None:
        unit = DTYPES[b.dtype] if self.readers[n] is cupy_facts else 1
        extents = self._extents(b)
        regular = [product(unit, extents[axis + 1 :]) for axis in range(len(extents))]
        if regular:
            self._write(f"s{n} = {_STRIDES[self.readers[n]].format(n=n)}")
            self._write(f"r{n} = {_tuple(regular)}")
            self._write(f"if s{n} != r{n} and not alike(a{n}.shape, s{n}, r{n}): return None")

    # ---- launches

    def _result(self) -> str:
        value, operator = self.lines.value, self.operator
        sources = [p.source for kernel in operator.kernels for p in kernel.parameters]
        numbers = [value(s.expression) for s in sources if isinstance(s, Value)]
        maps = [s for s in sources if isinstance(s, TensorMap)]
        facts = [_tuple([self._tuple(m.dims), self._tuple(m.strides)]) for m in maps]
        memory = [product(DTYPES[w.dtype], [value(e) for e in w.shape]) for w in operator.workspaces]
        grids = [_tuple(self._grid(kernel.grid)) for kernel in operator.kernels]
        shapes = [self._shape(b) for b in self.made]
        buffers = [b for b in (*operator.inputs, *operator.outputs) if b.name in self.place]
        places = [(self.place[b.name], b in self.arrays) for b in buffers]
        values = ", ".join(f"p{n}" if is_array else f"a{n}" for n, is_array in places)
        sizes = [f"b{n}" if is_array else "0" for n, is_array in places]
        launches = f"Sizes({_tuple(numbers)}, {_tuple(grids)}, {_tuple(memory)}, {_tuple(facts)})"
        return f"Found([{values}], {launches}, {_tuple(shapes)}, {_tuple(sizes)})"

    def _tuple(self, expressions: Sequence[Index]) -> str:
        return _tuple([self.lines.value(e) for e in expressions])

    def _shape(self, b: Buffer) -> str:
        extents = [self.lines.keep(self.lines.value(e)) for e in b.shape]
        self._demand(*(f"{extent} > 0" for extent in extents))
        return _tuple(extents)

    def _grid(self, grid: Sequence[Index]) -> list[str]:
        counts = [self.lines.keep(self.lines.value(e)) for e in grid]
        self._demand(*(f"0 < {n} <= {limit}" for n, limit in zip(counts, GRID_LIMITS, strict=False)))
        return [*counts, "1", "1"][:3]


def _tuple(items: Sequence[str]) -> str:
    return f"({''.join(f'{item}, ' for item in items)})"


def _binding(symbol: Symbol, value: str, positive: Sequence[str]) -> list[str]:
    """What ``check_binding`` demands of a variable. Errors: GraphError for a number that it refuses."""
    if is_number(value):
        check_binding(symbol, int(value))
        return []
    most = LARGEST if symbol.maximum is None else min(symbol.maximum, LARGEST)
    multiple = [f"{value} % {symbol.multiple} == 0"] if symbol.multiple != 1 else []
    return [f"{max(symbol.minimum, int(value in positive))} <= {value} <= {most}", *multiple]


def structure(arguments: Sequence[object], given: Sequence[object], facts: Sequence[object]) -> tuple[object, ...]:
    """What calls have in common for which one function does."""
    kinds: list[object] = [*given]
    for argument, fact in zip(arguments, facts, strict=True):
        kind = cast("type", type(argument))
        kinds += (kind, cast("tuple[object, ...]", fact)[2:] if READERS[kind] in KINDS else None)
    return tuple(kinds)
