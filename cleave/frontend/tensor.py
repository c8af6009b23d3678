"""The traced tensor: a value over an ordered list of named axes.

The value is a float term, an integer expression (positions, dims, integer inputs) or a predicate (comparisons of
those, boolean inputs). Arithmetic of integers stays an integer expression, so it can index and be compared; with
floats it becomes a number. ``a / b`` is a times the reciprocal of b. Floats are real numbers here: storage types are
those of inputs and outputs, and ``astype`` is a rounding that no rewrite moves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import EllipsisType
from typing import Any, NoReturn, TypeAlias

import numpy as np

from cleave.frontend.align import join
from cleave.frontend.context import CURRENT, fail
from cleave.frontend.spec import describe, dtype_name, fixed_value, is_unit
from cleave.ir import index as ix
from cleave.ir.axis import Axis
from cleave.ir.dim import Dim
from cleave.ir.graph import (
    Cast,
    Const,
    IndexValue,
    Load,
    Term,
    Where,
    apply,
    substitute_axes,
)
from cleave.ir.index import And, BoolRead, Compare, Index, Not, Or, Pred
from cleave.ir.op import FLOATS, INTEGERS, MANTISSA_BITS, MAPS

PREDICATES = (Compare, BoolRead, And, Or, Not)

Value: TypeAlias = Term | Index | Pred
TensorLike: TypeAlias = "Tensor | Dim | int | float"
Item: TypeAlias = "int | Dim | slice | EllipsisType | Tensor | None"


@dataclass(frozen=True, eq=False, repr=False)
class Tensor:
    """``slots``: its axes in order; one of extent 1 holds a place and nothing depends on it.

    ``storage``: the type that NumPy would give it; None for numbers that take the type of what they meet. ``label``:
    what messages call it.
    """

    value: Value
    slots: tuple[Axis, ...] = ()
    storage: str | None = None
    label: str = ""

    # ---- what it is

    @property
    def axes(self) -> tuple[str, ...]:
        """Names of the axes, in order."""
        return tuple(a.name for a in self.slots)

    @property
    def shape(self) -> tuple[Dim, ...]:
        return tuple(a.extent for a in self.slots)

    @property
    def ndim(self) -> int:
        return len(self.slots)

    @property
    def dtype(self) -> str:
        trace = CURRENT.get()
        return self.storage or (trace.dtype if trace else "float32")

    @property
    def name(self) -> str:
        """For messages."""
        return self.label or f"the tensor [{', '.join(self.axes)}]"

    def __repr__(self) -> str:
        return f"Tensor({self.dtype}[{', '.join(map(_slot_text, self.slots))}])"

    # ---- what messages are better about than Python

    def __bool__(self) -> NoReturn:
        fail(f"{self.name} has no truth value while it is traced; use & | ~ and ops.where")

    def __iter__(self) -> NoReturn:
        fail(f"{self.name} can't be iterated over while it is traced: its extents are symbols")

    def __len__(self) -> NoReturn:
        fail(f"{self.name} has no len() while it is traced; .shape[0] is its first extent")

    def __float__(self) -> NoReturn:
        fail(f"{self.name} is no number while it is traced")

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        fail(f"{self.name} is no NumPy array; use the functions of cleave.ops")

    # ---- arithmetic

    def __add__(self, other: TensorLike) -> Tensor:
        return arithmetic("add", self, other)

    def __radd__(self, other: TensorLike) -> Tensor:
        return arithmetic("add", other, self)

    def __sub__(self, other: TensorLike) -> Tensor:
        return arithmetic("sub", self, other)

    def __rsub__(self, other: TensorLike) -> Tensor:
        return arithmetic("sub", other, self)

    def __mul__(self, other: TensorLike) -> Tensor:
        return arithmetic("mul", self, other)

    def __rmul__(self, other: TensorLike) -> Tensor:
        return arithmetic("mul", other, self)

    def __truediv__(self, other: TensorLike) -> Tensor:
        return quotient(self, other)

    def __rtruediv__(self, other: TensorLike) -> Tensor:
        return quotient(other, self)

    def __floordiv__(self, other: TensorLike) -> Tensor:
        return integers("//", self, other)

    def __rfloordiv__(self, other: TensorLike) -> Tensor:
        return integers("//", other, self)

    def __mod__(self, other: TensorLike) -> Tensor:
        return integers("%", self, other)

    def __rmod__(self, other: TensorLike) -> Tensor:
        return integers("%", other, self)

    def __neg__(self) -> Tensor:
        if isinstance(self.value, Index):
            return replace(self, value=-self.value, label="")
        return unary("neg", self)

    def __pos__(self) -> Tensor:
        return self

    def __abs__(self) -> Tensor:
        return unary("abs", self)

    def __pow__(self, exponent: object) -> Tensor:
        return power(self, exponent)

    def __matmul__(self, other: Tensor) -> Tensor:
        from cleave.frontend.einsum import matmul

        return matmul(self, other)

    # ---- masks

    def __lt__(self, other: TensorLike) -> Tensor:
        return comparison("<", self, other)

    def __le__(self, other: TensorLike) -> Tensor:
        return comparison("<=", self, other)

    def __gt__(self, other: TensorLike) -> Tensor:
        return comparison("<", other, self)

    def __ge__(self, other: TensorLike) -> Tensor:
        return comparison("<=", other, self)

    def __eq__(self, other: TensorLike) -> Tensor:  # type: ignore[override]
        return comparison("==", self, other)

    def __ne__(self, other: TensorLike) -> Tensor:  # type: ignore[override]
        return ~comparison("==", self, other)

    __hash__ = None  # type: ignore[assignment]

    def __and__(self, other: Tensor) -> Tensor:
        return logic("&", self, other)

    def __or__(self, other: Tensor) -> Tensor:
        return logic("|", self, other)

    def __invert__(self) -> Tensor:
        return replace(self, value=Not(predicate(self)), label="")

    # ---- methods that NumPy arrays have

    def astype(self, dtype: object) -> Tensor:
        """Round to a storage type; no rounding where every value has it already, as after loading a narrower one."""
        name = dtype_name(dtype, "astype")
        if name not in FLOATS:
            fail(f"astype: {name} is no floating type: allowed are {', '.join(sorted(FLOATS))}")
        value = term(self)
        if _is_exact(self, name):
            return replace(self, value=value, storage=name)
        return Tensor(Cast(name, value), self.slots, name)

    def sum(self, axis: AxisLike = None, *, keepdims: bool = False) -> Tensor:
        return _reduced("sum", self, axis, keepdims=keepdims)

    def max(self, axis: AxisLike = None, *, keepdims: bool = False) -> Tensor:
        return _reduced("max", self, axis, keepdims=keepdims)

    def min(self, axis: AxisLike = None, *, keepdims: bool = False) -> Tensor:
        return _reduced("min", self, axis, keepdims=keepdims)

    def mean(self, axis: AxisLike = None, *, keepdims: bool = False) -> Tensor:
        from cleave.frontend.reduce import mean

        return mean(self, axis, keepdims=keepdims)

    @property
    def T(self) -> Tensor:
        """All axes in reverse order."""
        return replace(self, slots=self.slots[::-1])

    def transpose(self, *axes: str | int) -> Tensor:
        """The axes in another order, by name or position; all of them reversed if none is given."""
        from cleave.frontend.view import transpose

        return transpose(self, axes)

    def reshape(self, *shape: str | int | Dim) -> Tensor:
        """Other axes over the same elements in row-major order: ``x.reshape("n 2")`` or ``x.reshape(1, 54)``."""
        from cleave.frontend.view import reshape

        return reshape(self, shape)

    def rename(self, **names: str) -> Tensor:
        """Other names for axes: ``x.rename(s="t")``."""
        from cleave.frontend.view import rename

        return rename(self, names)

    def position(self, axis: str | int) -> Tensor:
        """The position along an axis of this tensor, as an integer tensor over that axis."""
        a = self.slots[slot_number(self, axis)]
        return Tensor(ix.index(0) if is_unit(a) else a.position, (a,), "int64")

    def __getitem__(self, items: Item | tuple[Item, ...]) -> Tensor:
        from cleave.frontend.view import take

        return take(self, items if isinstance(items, tuple) else (items,))


AxisLike: TypeAlias = "str | int | Sequence[str | int] | None"


def _reduced(op: str, x: Tensor, axis: AxisLike, *, keepdims: bool) -> Tensor:
    from cleave.frontend.reduce import reduction

    return reduction(op, x, axis, keepdims=keepdims)


def _slot_text(a: Axis) -> str:
    extent = describe(a.extent)
    return extent if a.name == extent.split(" ")[0] else f"{a.name}: {extent}"


# ---- values


def tensor(value: object) -> Tensor:
    """A traced tensor from one, from a dim or from a number."""
    match value:
        case Tensor():
            return value
        case Index():
            return Tensor(value, (), "int64", f"dim {value}")
        case bool() | np.bool_():
            fail(f"{value} is no number")
        case int() | np.integer():
            return Tensor(ix.index(int(value)), (), "int64", str(value))
        case float() | np.floating():
            return Tensor(Const(float(value)), (), None, str(value))
        case np.ndarray():
            fail("a NumPy array in a traced function: make it an input of the graph")
        case _:
            fail(f"{value!r} is no tensor, dim or number")


def is_integer(x: Tensor) -> bool:
    return isinstance(x.value, Index)


def is_mask(x: Tensor) -> bool:
    return isinstance(x.value, PREDICATES)


def term(x: Tensor) -> Term:
    """The value as a real number."""
    match x.value:
        case Index():
            fixed = fixed_value(x.value)
            return IndexValue(x.value) if fixed is None else Const(float(fixed))
        case Compare() | BoolRead() | And() | Or() | Not():
            return Where(x.value, Const(1.0), Const(0.0))
        case _:
            return x.value


def expression(x: Tensor, use: str) -> Index:
    if not isinstance(x.value, Index):
        what = "a mask" if is_mask(x) else "a floating value"
        fail(f"{use}: {x.name} is {what}; positions, dims and integer inputs are needed")
    return x.value


def predicate(x: Tensor) -> Pred:
    if not isinstance(x.value, PREDICATES):
        fail(f"{x.name} is {x.dtype}, no mask; comparisons of positions and boolean inputs are")
    return x.value


def replaced(value: Value, mapping: dict[Axis, Index]) -> Value:
    """A value with index expressions in the place of axes. Bound axes have names of their own: nothing is captured."""
    mapping = {a: i for a, i in mapping.items() if i is not a.position}
    if not mapping:
        return value
    atoms: dict[ix.Atom, Index] = {ix.Position(a): i for a, i in mapping.items()}
    match value:
        case Index():
            return ix.substitute(value, atoms)
        case Compare() | BoolRead() | And() | Or() | Not():
            return ix.substitute_pred(value, atoms)
        case _:
            return substitute_axes(value, mapping)


def check_owners(x: Tensor, mapping: Mapping[Axis, Index]) -> None:
    """Refuse to put something in the place of an axis that the extent of another axis reads."""
    for a in x.slots:
        for owner in ix.axes_of(a.extent):
            if owner in mapping and mapping[owner] is not owner.position:
                fail(f"axis {owner.name} of {x.name} can't change: the extent of axis {a.name} depends on it")


def promoted(*xs: Tensor) -> str | None:
    """The storage type of a result, as in NumPy: the wider one; integers, masks and numbers take that of the floats."""
    floats = {x.storage for x in xs if x.storage in FLOATS}
    if floats == {"float16", "bfloat16"}:
        return "float32"
    return max(floats, key=lambda d: MANTISSA_BITS[str(d)], default=None)


def _is_exact(x: Tensor, dtype: str) -> bool:
    """Whether every value has the type already: a load of one that it contains, or a number."""
    if not isinstance(x.value, (Load, Cast)) or x.storage not in FLOATS:
        return False
    return x.storage == dtype or dtype == "float64" or (dtype == "float32" and x.storage != "float64")


# ---- elementwise


def aligned(a: TensorLike, b: TensorLike, *, positions: bool = False) -> tuple[Tensor, Tensor, tuple[Axis, ...]]:
    """Both operands over the axes of the result."""
    left, right = tensor(a), tensor(b)
    joint = join(left.slots, right.slots, (left.name, right.name), positions=positions)
    mapping = {old: new.position for old, new in joint.renamed.items()}
    check_owners(right, mapping)
    return left, replace(right, value=replaced(right.value, mapping)), joint.slots


def arithmetic(op: str, a: TensorLike, b: TensorLike) -> Tensor:
    """A binary map of ``ir.op.MAPS``; of integers, an integer expression."""
    left, right = tensor(a), tensor(b)
    if is_integer(left) and is_integer(right):
        return integers(op, left, right)
    x, y, slots = aligned(left, right)
    return Tensor(_binary(op, term(x), term(y)), slots, promoted(x, y))


def _binary(op: str, a: Term, b: Term) -> Term:
    if isinstance(a, Const) and isinstance(b, Const):
        with np.errstate(all="ignore"):
            return Const(float(MAPS[op].meaning(a.value, b.value)))
    return apply(op, a, b)


_INTEGER: dict[str, Callable[[Index, Index], Index]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "minimum": ix.minimum,
    "maximum": ix.maximum,
}


def integers(op: str, a: TensorLike, b: TensorLike) -> Tensor:
    """Arithmetic of positions, dims and integer inputs."""
    x, y, slots = aligned(a, b, positions=True)
    left, right = expression(x, op), expression(y, op)
    if op in ("//", "%") and fixed_value(right) == 0:
        fail(f"{x.name} {op} 0: division by zero")
    return Tensor(_INTEGER[op](left, right), slots, "int64")


def quotient(a: TensorLike, b: TensorLike) -> Tensor:
    """a / b as a · (1 / b); a Python number is inverted at once."""
    x, y, slots = aligned(a, b)
    over, under = term(x), term(y)
    if isinstance(under, Const) and under.value:
        inverse: Term = Const(1.0 / under.value)
    else:
        inverse = apply("recip", under)
    result = inverse if over is Const(1.0) else _binary("mul", over, inverse)
    return Tensor(result, slots, promoted(x, y))


def unary(op: str, a: TensorLike) -> Tensor:
    x = tensor(a)
    operand = term(x)
    if isinstance(operand, Const):
        with np.errstate(all="ignore"):
            return Tensor(Const(float(MAPS[op].meaning(np.float64(operand.value)))), x.slots, x.storage)
    return Tensor(apply(op, operand), x.slots, promoted(x))


_POWERS: dict[float, tuple[str, ...]] = {
    1: (),
    2: ("sq",),
    0.5: ("sqrt",),
    -0.5: ("rsqrt",),
    -1: ("recip",),
    -2: ("sq", "recip"),
    4: ("sq", "sq"),
}


def power(x: Tensor, exponent: object) -> Tensor:
    """x**e for the exponents that are operations of their own."""
    allowed = {float(e): ops for e, ops in _POWERS.items()}
    if not isinstance(exponent, (int, float)) or float(exponent) not in allowed:
        fail(f"power {exponent!r} of {x.name}: allowed are {', '.join(map(str, _POWERS))}")
    for op in allowed[float(exponent)]:
        x = unary(op, x)
    return x


# ---- masks


def comparison(op: str, a: TensorLike, b: TensorLike) -> Tensor:
    """A mask from two integer expressions."""
    x, y, slots = aligned(a, b, positions=True)
    use = f"comparison {op}"
    return Tensor(ix.compare(op, expression(x, use), expression(y, use)), slots, "bool")


def logic(op: str, a: Tensor, b: Tensor) -> Tensor:
    x, y, slots = aligned(a, b, positions=True)
    p, q = predicate(x), predicate(y)
    return Tensor(p & q if op == "&" else p | q, slots, "bool")


def where(mask: Tensor, then: TensorLike, otherwise: TensorLike) -> Tensor:
    """``then`` where the mask holds, else ``otherwise``; integers only where both are."""
    x, y, slots = aligned(then, otherwise)
    choice = tensor(mask)
    pred = predicate(choice)
    joint = join(slots, choice.slots, (Tensor(x.value, slots).name, choice.label or "the mask"))
    mapping = {old: new.position for old, new in joint.renamed.items()}
    condition = replaced(pred, mapping)
    assert isinstance(condition, PREDICATES)
    return Tensor(Where(condition, term(x), term(y)), joint.slots, promoted(x, y))


# ---- axes by name or position


def slot_number(x: Tensor, axis: str | int) -> int:
    """Which slot is meant; negative positions count from the end."""
    match axis:
        case str() if axis in x.axes:
            return x.axes.index(axis)
        case int() if not isinstance(axis, bool) and -x.ndim <= axis < x.ndim:
            return axis % x.ndim
        case _:
            known = ", ".join(x.axes) or "none"
            fail(f"{x.name} has no axis {axis!r}: its axes are {known}")


def slot_numbers(x: Tensor, axis: AxisLike) -> list[int]:
    """The slots that a reduction is over, all of them for None."""
    if axis is None:
        return list(range(x.ndim))
    wanted = [axis] if isinstance(axis, (str, int)) else list(axis)
    numbers = [slot_number(x, a) for a in wanted]
    for a, n in zip(wanted, numbers, strict=True):
        if numbers.count(n) > 1:
            fail(f"axis {a!r} of {x.name} is given twice")
    return numbers


__all__ = ["INTEGERS", "AxisLike", "Item", "Tensor", "TensorLike"]
