"""Index expressions, predicates and elements as C++ text, printed from their trees: every operation in parentheses."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from cleave.codegen.emission import C_TYPES, Emission
from cleave.codegen.layout import (
    ClusterPart,
    Fragment,
    Inline,
    Rounded,
    RowVector,
    Scaled,
    SharedTile,
    SharedVector,
    Uniform,
)
from cleave.codegen.matrix import held_element
from cleave.codegen.range import beyond_int
from cleave.errors import CodegenError
from cleave.ir.axis import Axis
from cleave.ir.graph import Cast, Const, IndexValue, Load, Map, Ref, Term, Where, free
from cleave.ir.index import (
    And,
    Atom,
    BoolRead,
    Compare,
    Floor,
    Index,
    Max,
    Min,
    Mod,
    Monomial,
    Not,
    Or,
    Position,
    Pred,
    Read,
    Symbol,
    axes_of,
    inputs_of,
    nonnegative,
    of,
    pred_inputs,
    symbols_of,
)
from cleave.tile.box import covered
from cleave.tile.program import TileTerm

_MAPS = {
    "add": "({} + {})",
    "sub": "({} - {})",
    "mul": "({} * {})",
    "maximum": "maximum({}, {})",
    "minimum": "minimum({}, {})",
    "neg": "(-{})",
    "abs": "fabsf({})",
    "sq": "square({})",
    "round": "rintf({})",
    "exp": "exp_of({})",
    "exp_diff": "exp_diff({}, {})",
    "log": "log_of({})",
    "recip": "recip_of({})",
    "recip0": "recip0({})",
    "sqrt": "sqrt_of({})",
    "rsqrt": "rsqrt_of({})",
    "tanh": "tanh_of({})",
    "sigmoid": "sigmoid({})",
    "silu": "silu({})",
}
_PRECISE = {
    **_MAPS,
    "exp": "exp_precise({})",
    "exp_diff": "exp_diff_precise({}, {})",
    "sigmoid": "sigmoid_precise({})",
    "silu": "silu_precise({})",
}
LOG2_E = 1.4426950408889634


@dataclass(frozen=True)
class At:
    """Where an element is: positions of tiled axes, indices inside their tiles, the row of the block, its registers.

    ``half``: which of a thread's two rows; ``group``, ``entry``: which of a fragment's registers.
    """

    positions: Mapping[Axis, str] = field(default_factory=dict[Axis, str])
    local: Mapping[Axis, str] = field(default_factory=dict[Axis, str])
    row: str | None = None
    half: str | None = None
    group: str = "n"
    entry: str = "e"


def row_positions(em: Emission, row: str) -> dict[Axis, str]:
    """Positions of the row axes at a row of the block."""
    out: dict[Axis, str] = {}
    inner = 1
    for number, a in reversed(list(enumerate(em.rows))):
        part = row if inner == 1 else f"({row} / {inner})"
        out[a] = f"({em.starts[a]} + {part if number == 0 else f'({part} % {em.size(a)})'})"
        inner *= em.size(a)
    return out


def fragment_at(em: Emission, column: Axis, group: str = "n", entry: str = "e", half: str = "e >> 1") -> At:
    """The place of register ``[group][entry]`` of a fragment."""
    local, half = em.local(column, group, entry), "0" if em.lanes else half
    positions = {a: f"{em.axis_name(a)}_row[{half}]" for a in em.rows}
    positions[column] = em.inside(column, local)
    return At(positions, {column: local}, f"(row + 8 * ({half}))", half, group, entry)


def row_at(em: Emission, half: str = "h") -> At:
    return At({a: f"{em.axis_name(a)}_row[{half}]" for a in em.rows}, {}, f"(row + 8 * ({half}))", half)


# ---- indices


def index_text(em: Emission, expression: Index, at: At) -> str:
    """A 32-bit value."""
    return _sum(em, em.fix(expression), at, "")


def _number_text(em: Emission, expression: Index, at: At) -> str:
    """An index as a number: computed by the host in 64 bits if it depends on dims alone."""
    i = em.fix(expression)
    symbols = symbols_of(i)
    if axes_of(i) or inputs_of(i) or not symbols or any(s.name.startswith("%") for s in symbols):
        return index_text(em, i, at)
    return em.parameters.wide(i, "number_" + "_".join(sorted(s.name for s in symbols)))


def offset_text(em: Emission, expression: Index, at: At) -> str:
    """A 64-bit value: each product is widened before it is multiplied out."""
    return _sum(em, em.fix(expression), at, "(i64)")


def _sum(em: Emission, expression: Index, at: At, widen: str) -> str:
    """Products that are added, then those that are taken away."""
    text = ""
    for monomial, factor in sorted(expression.terms, key=lambda term: term[1] < 0):
        product = _product(em, monomial, abs(factor), at, widen)
        sign = "-" if factor < 0 else ""
        text = f"{text} {sign or '+'} {product}" if text else f"{sign}{product}"
    return f"({text})" if " " in text or text.startswith("-") else text or "0"


def _product(em: Emission, monomial: Monomial, factor: int, at: At, widen: str) -> str:
    dims = tuple(part for part in monomial if _is_dim(part))
    rest = tuple(part for part in monomial if not _is_dim(part))
    many = factor * sum(power for _, power in dims) > 1
    if dims and many and (widen or not rest):
        # computed by the host, which refuses what does not fit: the extent of a merged axis, the stride of an offset
        coefficient = Index(((dims, factor),))
        names = "_".join(atom.name for atom, _ in dims if isinstance(atom, Symbol))
        make = em.parameters.wide if widen else em.parameters.value
        factors = [make(coefficient, f"{'stride' if widen else 'product'}_{names}")]
        factors += [_atom(em, atom, at) for atom, power in rest for _ in range(power)]
        return factors[0] if len(factors) == 1 else f"({' * '.join(factors)})"
    factors = [_atom(em, atom, at) for atom, power in monomial for _ in range(power)]
    if factor != 1 or not factors:
        factors.append(str(factor) if factor < 2**31 else f"{factor}LL")
    if len(factors) == 1:
        return factors[0]
    return f"({widen}{' * '.join(factors)})"


def _is_dim(part: tuple[Atom, int]) -> bool:
    return isinstance(part[0], Symbol) and not part[0].name.startswith("%")


def _atom(em: Emission, atom: Atom, at: At) -> str:
    if atom in em.named:
        return em.named[atom]
    match atom:
        case Symbol(name):
            return em.corners[name] if name.startswith("%") else em.parameters.value(of(atom), f"dim_{name}")
        case Position(axis):
            return _position(em, axis, at)
        case Read(name, indices):
            return _table_read(em, name, indices, at)
        case Floor(a, b) | Mod(a, b):
            return _division(em, atom, a, b, at)
        case Min(a, b):
            return f"least({index_text(em, a, at)}, {index_text(em, b, at)})"
        case Max(a, b):
            return f"greatest({index_text(em, a, at)}, {index_text(em, b, at)})"


def _position(em: Emission, a: Axis, at: At) -> str:
    if a in at.positions:
        return at.positions[a]
    if a in em.units:
        return em.units[a]
    raise CodegenError(f"axis {a} has no position here", location=em.location)


def _division(em: Emission, atom: Floor | Mod, a: Index, b: Index, at: At) -> str:
    """The quotient is a position, what is divided may count the elements of a whole array."""
    wide = beyond_int(em, a) or beyond_int(em, b)
    text = offset_text if wide else index_text
    left, right = text(em, a, at), text(em, b, at)
    if nonnegative(em.fix(a)) and nonnegative(em.fix(b)):
        found = f"({left} {'/' if isinstance(atom, Floor) else '%'} {right})"
    elif wide:
        found = f"{'floor_divide' if isinstance(atom, Floor) else 'floor_modulo'}((i64){left}, (i64){right})"
    else:
        found = f"{'floor_divide' if isinstance(atom, Floor) else 'floor_modulo'}({left}, {right})"
    return f"(int){found}" if wide else found


def _table_read(em: Emission, name: str, indices: tuple[Index, ...], at: At) -> str:
    """An element of an integer or boolean input; outside it the read gives 0, and whoever uses that is masked."""
    memory = em.memory[name]
    pointer = em.parameters.pointer(memory)
    inside = [
        f"{text} >= 0 && {text} < {index_text(em, n, at)}"
        for text, n, i in ((index_text(em, i, at), n, i) for i, n in zip(indices, memory.shape, strict=True))
        if not axes_of(i) <= em.program.unit or inputs_of(i)
    ]
    return f"read_index({pointer} + {offset_text(em, em.offset(name, indices), at)}, {' && '.join(inside) or 'true'})"


def pred_text(em: Emission, pred: Pred, at: At) -> str:
    """A condition. Both sides of what reads no table are evaluated: a jump for each element costs more than a test."""
    both = "&&" if pred_inputs(pred) else "&"
    either = both.replace("&", "|")
    match pred:
        case Compare(op, a, b):
            wide = beyond_int(em, a) or beyond_int(em, b)
            moved = None if wide else _against_place(em, op, a, b, at)
            text = offset_text if wide else index_text
            return moved or f"({text(em, a, at)} {op} {text(em, b, at)})"
        case BoolRead(name, indices):
            return f"({_table_read(em, name, indices, at)} != 0)"
        case And(p, q):
            return f"({pred_text(em, p, at)} {both} {pred_text(em, q, at)})"
        case Or(p, q):
            return f"({pred_text(em, p, at)} {either} {pred_text(em, q, at)})"
        case Not(p):
            return f"(!{pred_text(em, p, at)})"


def _against_place(em: Emission, op: str, a: Index, b: Index, at: At) -> str | None:
    """A comparison of a fragment's column with what is the same in all of a row: with a number known when compiling on
    one side, and one that is computed once for a tile on the other. None: it is no such comparison."""
    columns = [x for x in at.local if at.local[x] == em.local(x, at.group, at.entry)]
    linear = (em.fix(a) - em.fix(b)).linear_in(Position(columns[0])) if len(columns) == 1 else None
    if linear is None or linear[0].constant not in (1, -1) or inputs_of(linear[1]):
        return None
    first, start = linear[0].constant == 1, em.starts[columns[0]]
    place, own = em.places(columns[0], at.group, at.entry)
    bound = index_text(em, -linear[1] if first else linear[1], at)
    for distance in (*([start] if start != "0" else []), own):
        bound = f"less({bound}, {distance})"
    return f"(({place}) {op} {bound})" if first else f"({bound} {op} ({place}))"


def exists(em: Emission, axes: list[Axis], at: At) -> str:
    """Whether the positions of some axes exist at a place: below the extent, and a row that is used."""
    tests = [
        f"{_position(em, a, at)} < {index_text(em, em.extent(a), at)}"
        for a in axes
        if not covered(em, a) and (a not in em.program.unit or not axes_of(em.extent(a)) <= em.program.unit)
    ]
    if em.used_rows < em.block_rows and at.row is not None and em.has_rows(axes):
        tests.append(f"{at.row} < {em.used_rows}")
    return " && ".join(tests) or "true"


def present(em: Emission, name: str, indices: tuple[Index, ...], axes: list[Axis], at: At) -> str:
    """Whether an element of an array is there: its positions exist, and what tables say of its place, which may be
    anything, lies in the array. Said of a row, only what is the same in all of it."""
    known = {*at.positions, *em.units}
    tests = [
        f"(u32){index_text(em, i, at)} < (u32){index_text(em, n, at)}"
        for i, n in zip(map(em.fix, indices), em.memory[name].shape, strict=True)
        if inputs_of(i) and axes_of(i) <= known
    ]
    return " && ".join(t for t in (exists(em, axes, at), *tests) if t != "true") or "true"


def number(value: float) -> str:
    """A float literal."""
    if math.isnan(value):
        return "NOT_A_NUMBER"
    if math.isinf(value):
        return "POS_INF" if value > 0 else "NEG_INF"
    text = f"{value:.9g}"
    text = f"{text}f" if "." in text or "e" in text else f"{text}.f"
    return f"({text})" if value < 0 else text


# ---- elements


@dataclass
class Printer:
    """Prints elements of terms at one place.

    What depends on rows alone is computed once a row, in lines written at once: print first, then open the loop.
    """

    em: Emission
    at: At
    hoisted: dict[Term, str] = field(default_factory=dict[Term, str])
    bases: dict[tuple[Term, bool], str] = field(default_factory=dict[tuple[Term, bool], str])

    def element(self, term: TileTerm) -> str:
        match term:
            case Ref(name, axes):
                return self.reference(name, axes)
            case Const(value):
                return number(value)
            case IndexValue(i):
                return f"((float){_number_text(self.em, i, self.at)})"
            case Load():
                return self.load(term)
            case Cast(dtype, operand):
                inner = self.element(operand)
                return inner if dtype in ("float32", "float64") else f"round_to<{C_TYPES[dtype]}>({inner})"
            case Where() | Map():
                return self.composed(term)
            case _:
                raise CodegenError(f"{term!r} is no element of a tile", location=self.em.location)

    def composed(self, term: Where | Map) -> str:
        if self.is_per_row(term):
            return self.per_row(term)
        match term:
            case Where(pred, a, b):
                return f"({pred_text(self.em, pred, self.at)} ? {self.element(a)} : {self.element(b)})"
            case Map("exp_diff", (a, b)) if self.is_per_row(b):
                return self.exponential(a, b)
            case Map(op, args):
                return (_PRECISE if self.em.precise else _MAPS)[op].format(*(self.element(a) for a in args))

    def exponential(self, a: Term, b: Term) -> str:
        """exp(a - b) at an element, b being of the row. A finite mask such as -1e9 is subtracted before it is scaled.

        Where a constant scale of a was left to the reader, values are scores or -inf: one multiply-add in base 2.
        """
        em = self.em
        layout = em.layouts.get(a.name) if isinstance(a, Ref) else None
        scaled = isinstance(layout, Scaled)
        text = self.fragment(layout.base.name) if scaled else self.element(a)
        if (b, scaled) not in self.bases:
            self.bases[b, scaled] = self.row_values("base", b, "exp2_base({})" if scaled else "exp_base({})")
        base = f"{self.bases[b, scaled]}[{self.at.half}]"
        if scaled:
            return f"exp2_of(fmaf({text}, {number(layout.factor * LOG2_E)}, -{base}))"
        return f"{'exp_precise' if em.precise else 'exp_of'}({text} - {base})"

    def is_per_row(self, term: Term) -> bool:
        """At an element of a fragment, a term that all columns share."""
        return self.at.half is not None and bool(self.at.local) and not self.em.columns(free(term))

    def per_row(self, term: Term) -> str:
        if term not in self.hoisted:
            self.hoisted[term] = self.row_values("factor", term, "{}")
        return f"{self.hoisted[term]}[{self.at.half}]"

    def row_values(self, wish: str, term: Term, form: str) -> str:
        """Compute a term for both rows of the thread, in a variable of its own."""
        em = self.em
        text = Printer(em, row_at(em)).element(term)
        name = em.names.fresh(wish)
        em.writer.line(f"float {name}[{em.halves}];")
        with em.writer.unrolled("h", em.halves):
            em.writer.line(f"{name}[h] = {form.format(text)};")
        return name

    def fragment(self, name: str) -> str:
        return f"{name}[{self.at.group}][{self.at.entry}]"

    def reference(self, name: str, axes: tuple[Axis, ...]) -> str:
        em, at = self.em, self.at
        match em.layouts.get(name):
            case Fragment(text, column) if column in at.local:
                return self.fragment(text)
            case Fragment(_, column):
                return em.refuse(name, axes, f"it lies along {column} in registers, and is read along another axis")
            case Scaled(base, factor):
                return f"({self.fragment(base.name)} * {number(factor)})"
            case Rounded(operand, dtype, _):
                return f"round_to<{C_TYPES[dtype]}>({self.element(operand)})"
            case RowVector(text):
                return f"{text}[{at.half}]"
            case SharedTile() | Inline(Load()) as layout if (held := self.held(name, layout)) is not None:
                return held
            case SharedTile() as tile:
                return self.shared_element(name, tile)
            case SharedVector() | Uniform() | Inline() as layout:
                return self.without_rows(layout)
            case None:
                return em.refuse(name, axes)

    def held(self, name: str, layout: SharedTile | Inline) -> str | None:
        """An element of what is held in words along the columns of this place."""
        em, at = self.em, self.at
        rows, vector = em.held.get(name), em.words.get(name)
        if rows is not None and isinstance(layout, SharedTile) and list(at.local) == [rows.column]:
            return held_element(em, rows, C_TYPES[layout.dtype], at.group, at.entry)
        if vector is not None and isinstance(layout, Inline) and list(at.local) == [vector.column]:
            assert isinstance(layout.term, Load)
            dtype = C_TYPES[em.memory[layout.term.input].dtype]
            return f"half_of<{dtype}>({vector.name}[{at.group}], ({at.entry}) & 1)"
        return None

    def without_rows(self, layout: SharedVector | Uniform | Inline) -> str:
        match layout:
            case Uniform(text):
                return text
            case SharedVector(address, axis):
                return f"shared_read_float({address} + 4 * {self.at.local[axis]})"
            case Inline(term):
                return self.element(term)

    def shared_element(self, name: str, tile: SharedTile) -> str:
        self.em.need(name)
        row = self.at.row if tile.row is None else self.at.local.get(tile.row)
        column = self.at.row if tile.column is None else self.at.local.get(tile.column)
        if row is None or column is None:
            self.em.refuse(name, [a for a in (tile.row, tile.column) if a], "the tile is read along an axis it lacks")
        return tile.element(C_TYPES[tile.dtype], row, column)

    def load(self, load: Load) -> str:
        em = self.em
        if load.input in em.parts:
            return self.part(load, em.parts[load.input])
        memory = em.memory[load.input]
        if not memory.shape and not memory.fresh:
            return em.parameters.scalar(memory)
        pointer = em.parameters.pointer(memory)
        if memory.dtype not in C_TYPES:
            raise CodegenError(
                f"dtype {memory.dtype} of {load.input}: kernels read {', '.join(C_TYPES)}", location=em.location
            )
        function = "read_fresh" if memory.fresh else "read"
        where = offset_text(em, em.offset(load.input, load.indices), self.at)
        return f"{function}({pointer} + {where}, {present(em, load.input, load.indices, em.load_axes(load), self.at)})"

    def part(self, load: Load, part: ClusterPart) -> str:
        """An element of what another block of the cluster has sent."""
        em, at = self.em, self.at
        columns = em.columns(em.load_axes(load))
        if len(columns) > 1:
            em.refuse(load.input, em.load_axes(load))
        column = at.local[columns[0]] if columns else "0"
        test = exists(em, columns, at)
        text = f"shared_read_float({part_place(em, load, part, column, at)})"
        return text if test == "true" else f"where({test}, {text})"


def part_place(em: Emission, load: Load, part: ClusterPart, column: str, at: At) -> str:
    """The address of an element of what another block has sent; ``column`` counts from the start of the slice."""
    rows = [a for a in em.load_axes(load) if a in em.rows]
    if rows and at.row is None:
        em.refuse("a part", rows)
    return part.place(index_text(em, load.indices[part.outer], at), em.turn, at.row if rows and at.row else "0", column)
