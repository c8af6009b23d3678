"""State of one kernel while it is emitted: names, parameters, shared memory, open axes, layouts of values."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, NoReturn

from cleave.codegen.layout import ALLOWED, ClusterPart, Fragment, Layout
from cleave.codegen.order import Order
from cleave.codegen.team import Team, part_of_block, warpgroup, whole_block
from cleave.codegen.writer import Names, Writer
from cleave.errors import CodegenError
from cleave.ir.axis import Axis
from cleave.ir.graph import Load, free
from cleave.ir.index import Atom, Index, Symbol, ceildiv, index, of, substitute, symbols_of
from cleave.kernel import Parameter, Pointer, Scalar, TensorMap, Value
from cleave.tile.plan import Binding, Chain, Feed
from cleave.tile.program import Let, Program, Store, statements
from cleave.tile.skeleton import vector_elements

C_TYPES = {
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "float",
    "int32": "int",
    "int64": "i64",
    "bool": "unsigned char",
}
STORAGE_16 = frozenset({"float16", "bfloat16"})
Corner = Literal["first", "last"]
WARP_ROWS = 16
CHUNK = 8
"""Elements of 16 bits in one asynchronous copy."""


@dataclass(frozen=True)
class Memory:
    """An array in global memory as one kernel sees it. ``fresh``: other blocks write it, so no read-only path."""

    name: str
    dtype: str
    shape: tuple[Index, ...]
    fresh: bool = False


@dataclass
class Parameters:
    """Parameters in the order of first use; pointers are declared before tensor maps, those before values."""

    names: Names
    pointers: dict[str, Parameter] = field(default_factory=dict[str, Parameter])
    maps: dict[str, Parameter] = field(default_factory=dict[str, Parameter])
    values: dict[str, Parameter] = field(default_factory=dict[str, Parameter])
    alignments: dict[str, int] = field(default_factory=dict[str, int])

    def require(self, pointer: str, alignment: int) -> None:
        """Vector accesses rest on an address that is a multiple of ``alignment`` bytes."""
        self.alignments[pointer] = max(self.alignments.get(pointer, 1), alignment)

    def pointer(self, memory: Memory) -> str:
        name = self.names.of(("buffer", memory.name), memory.name)
        found = self.pointers.get(name)
        writable = memory.fresh or (found is not None and found.writable)
        self.pointers[name] = Parameter(name, "pointer", memory.dtype, writable, Pointer(memory.name))
        return name

    def output(self, memory: Memory) -> str:
        name = self.names.of(("buffer", memory.name), memory.name)
        self.pointers[name] = Parameter(name, "pointer", memory.dtype, True, Pointer(memory.name))
        return name

    def is_written(self, memory: Memory) -> bool:
        """Whether the launch writes it, as far as it has been emitted."""
        found = self.pointers.get(self.names.of(("buffer", memory.name), memory.name))
        return memory.fresh or (found is not None and found.writable)

    def map(self, source: TensorMap) -> str:
        name = self.names.of(("map", source), f"{source.buffer}_map")
        self.maps.setdefault(name, Parameter(name, "tensor_map", source.dtype, False, source))
        return name

    def value(self, expression: Index, wish: str) -> str:
        atom = expression.atom
        name = self.names.of(("value", expression), f"dim_{atom.name}" if isinstance(atom, Symbol) else wish)
        self.values.setdefault(name, Parameter(name, "int32", "int32", False, Value(expression)))
        return name

    def wide(self, expression: Index, wish: str) -> str:
        """An integer that is no position, so 32 bits need not hold it."""
        name = self.names.of(("wide", expression), wish)
        self.values.setdefault(name, Parameter(name, "int64", "int64", False, Value(expression)))
        return name

    def scalar(self, memory: Memory) -> str:
        name = self.names.of(("buffer", memory.name), memory.name)
        self.values.setdefault(name, Parameter(name, "float32", memory.dtype, False, Scalar(memory.name)))
        return name

    @property
    def ordered(self) -> tuple[Parameter, ...]:
        return (*self.pointers.values(), *self.maps.values(), *self.values.values())

    def signature(self) -> str:
        return ", ".join(_declared(p) for p in self.ordered)


def _declared(p: Parameter) -> str:
    if p.kind == "tensor_map":
        return f"const __grid_constant__ TensorMap {p.name}"
    if p.kind != "pointer":
        return f"{C_TYPES[p.kind]} {p.name}"
    # A workspace is written and read in one launch: neither const nor restrict may be claimed.
    return f"{C_TYPES[p.dtype]}* {p.name}" if p.writable else f"const {C_TYPES[p.dtype]}* __restrict__ {p.name}"


@dataclass
class SharedMemory:
    """Offsets in dynamic shared memory, given back like a stack once a scope is drained; ``taken`` counts the uses."""

    top: int = 0
    most: int = 0
    taken: int = 0

    def take(self, size: int, copies: int = 1, alignment: int = 128) -> int:
        offset = -(-self.top // alignment) * alignment
        self.top = offset + aligned(size) * copies
        self.most = max(self.most, self.top)
        self.taken += 1
        return offset


def aligned(size: int) -> int:
    """Bytes that an array of shared memory takes."""
    return -(-size // 128) * 128


@dataclass
class Delivery:
    """Who merges what in a cluster: slice n is the (n mod ``blocks``)-th block's.

    ``rank``: C++ name of a block's number; ``arrived``: of the address of the mbarrier that counts what has come;
    ``met``: whether the blocks know that the others' mbarriers are open.
    """

    blocks: int
    slices: int
    rank: str
    arrived: str
    met: bool = False

    @property
    def owners(self) -> int:
        """Blocks that merge anything."""
        return min(self.blocks, self.slices)


@dataclass
class Behind:
    """A maximum of which another number is subtracted (``behind.py``): C++ names of the maximum, and of whether that
    number is another one than in the trip before; empty while it is not known or all is restated."""

    maximum: str
    moved: str = ""


@dataclass
class Roles:
    """What warps of different roles are told, as lines of their own.

    constants  what both sides know of the whole block: addresses
    bounds     what both sides know of a tile of the grid
    opened     lines that open the mbarriers before anyone uses them
    loaders    lines of the one thread that asks for boxes, for a tile; ``counters``: what it counts from tile to tile
    computing  what the others count from tile to tile
    """

    constants: Writer = field(default_factory=Writer)
    bounds: Writer = field(default_factory=Writer)
    opened: list[str] = field(default_factory=list[str])
    loaders: Writer = field(default_factory=Writer)
    counters: list[str] = field(default_factory=list[str])
    computing: list[str] = field(default_factory=list[str])


@dataclass
class Emission:
    """One program on its way to text. ``corners`` are C++ names of pseudo-symbols: first and last positions of tiles.

    order      what the kernel's text has said to those before and after it
    pending    shared tiles whose copies were issued and are not known to have landed
    deferred   accumulators of which each lane keeps a part until their loop is over
    held       shared tiles whose rows are in registers as well: the A fragments, along an axis
    words      vectors whose elements along a fragment are in registers, two in a word
    team       who runs the statements that are written now
    met        whether the warpgroups of divided columns have met in this trip
    parts      temporaries that the blocks of a cluster send one another
    delivery   how they are sent
    behind     maxima of which another number is subtracted
    turn       C++ text: which of the block's slices is merged
    spread     axes whose columns the teams have divided: group n of a fragment is the team's n-th
    feed       how tiles of loops are to be loaded
    fences     whether tensor cores read tiles that threads have copied
    lags       whether the matmuls that are written now go on beyond their trip
    meanwhile  writes what threads do while the first matmul of a trip goes on
    rank       C++ name of a block's number among those that fetch boxes together
    roles      where some warps only load: what each side is told
    vectors    where threads share a row: each has elements that lie side by side in memory; else every so-manieth one
    repeats    loops around what is written now that may run several times
    narrow     axes of loops of which threads that share a row take so many elements a trip, instead of a tile
    named      C++ names of what the block has read from tables, or computed from that
    """

    program: Program
    binding: Binding
    chain: Chain
    fixed: Mapping[str, int]
    memory: Mapping[str, Memory]
    multiples: Mapping[str, int]
    writer: Writer
    names: Names
    parameters: Parameters
    shared: SharedMemory
    order: Order
    lets: dict[str, Let] = field(default_factory=dict[str, Let])
    layouts: dict[str, Layout] = field(default_factory=dict[str, Layout])
    units: dict[Axis, str] = field(default_factory=dict[Axis, str])
    starts: dict[Axis, str] = field(default_factory=dict[Axis, str])
    start_multiples: dict[Axis, int] = field(default_factory=dict[Axis, int])
    corners: dict[str, str] = field(default_factory=dict[str, str])
    pending: set[str] = field(default_factory=set[str])
    deferred: set[str] = field(default_factory=set[str])
    held: dict[str, Fragment] = field(default_factory=dict[str, Fragment])
    words: dict[str, Fragment] = field(default_factory=dict[str, Fragment])
    met: bool = False
    parts: dict[str, ClusterPart] = field(default_factory=dict[str, ClusterPart])
    delivery: Delivery | None = None
    behind: dict[str, Behind] = field(default_factory=dict[str, Behind])
    turn: str = "0"
    spread: set[Axis] = field(default_factory=set[Axis])
    feed: Feed = "cp.async"
    fences: bool = False
    lags: bool = False
    meanwhile: Callable[[], None] | None = None
    rank: str = "0"
    roles: Roles | None = None
    vectors: bool = True
    repeats: int = 0
    narrow: dict[Axis, int] = field(default_factory=dict[Axis, int])
    named: dict[Atom, str] = field(default_factory=dict[Atom, str])

    def __post_init__(self) -> None:
        self.team: Team = whole_block(self.binding)
        self.vector = vector_elements(self.program)
        self.lets.update((s.name, s) for s in statements(self.program.body) if isinstance(s, Let))

    def constant(self, line: str) -> None:
        """A constant of the block, which warps of every role know."""
        (self.writer if self.roles is None else self.roles.constants).line(line)

    def bound(self, line: str) -> None:
        """A number of the tile, which warps of every role know."""
        (self.writer if self.roles is None else self.roles.bounds).line(line)

    # ---- axes

    @property
    def rows(self) -> tuple[Axis, ...]:
        return self.binding.rows

    @property
    def lanes(self) -> int:
        """Threads that share a row; 0: rows are those of matmul tiles."""
        return self.binding.lanes

    @property
    def precise(self) -> bool:
        """Whether results are stored in FP32, element by element, where threads share rows: they show all roundings."""
        stores = (s for s in statements(self.program.body) if isinstance(s, Store))
        return self.lanes > 0 and any(self.memory[s.output].dtype == "float32" and self.columns(s.axes) for s in stores)

    @property
    def block_rows(self) -> int:
        if self.lanes:
            return 32 * self.binding.warps // self.lanes
        return WARP_ROWS * self.row_tiles * self.binding.row_warps

    @property
    def row_tiles(self) -> int:
        """Sets of sixteen rows that a warp owns."""
        return self.binding.row_tiles

    @property
    def halves(self) -> int:
        """Rows of a thread, every eighth of its warp's: entries 2h and 2h + 1 of a fragment's group lie in row h.

        One where threads share a row.
        """
        return 1 if self.lanes else 2 * self.row_tiles

    @property
    def entries(self) -> int:
        """Registers of a thread for a group of a fragment's columns."""
        return self.vector if self.lanes else 2 * self.halves

    @property
    def row_warp(self) -> str:
        """C++ text: which sixteen rows of the block are this warp's."""
        if self.binding.division is not None:
            return f"(warp % {self.binding.row_warps})"
        return "warp" if self.binding.teams == 1 else "rank"

    @property
    def used_rows(self) -> int:
        product = 1
        for a in self.rows:
            product *= self.size(a)
        return product

    def size(self, a: Axis) -> int:
        if a in self.narrow:
            return self.narrow[a]
        return 1 if a in self.program.unit else self.binding.tile(a)

    def tiled(self, axes: Iterable[Axis]) -> list[Axis]:
        """Axes with more than a single position in the block, by name."""
        return sorted((a for a in axes if a not in self.program.unit), key=lambda a: a.name)

    def columns(self, axes: Iterable[Axis]) -> list[Axis]:
        return [a for a in self.tiled(axes) if a not in self.rows]

    def has_rows(self, axes: Iterable[Axis]) -> bool:
        """Whether a value differs from row to row; where threads share a row, each row has what all have in common."""
        return self.lanes > 0 or any(a in self.rows for a in axes)

    def extent(self, a: Axis) -> Index:
        return self.fix(a.extent)

    def fix(self, expression: Index) -> Index:
        """The expression with compile-time symbols replaced by their values."""
        known: dict[Atom, Index] = {}
        for s in symbols_of(expression):
            value = self.fixed.get(s.name, s.value)
            if value is not None:
                known[s] = index(value)
        return substitute(expression, known)

    def axis_name(self, a: Axis) -> str:
        return self.names.of(("axis", a), a.name)

    def tiles(self, a: Axis, longest: Index) -> Index:
        """Tiles of a grid axis whose extent is at most ``longest``."""
        return ceildiv(longest, self.size(a))

    def corner(self, a: Axis, which: Corner) -> Index:
        """Pseudo-symbol for the first or last position of an axis in the tile; ``corners`` holds its C++ text."""
        return of(Symbol(f"%{which}:{self.axis_name(a)}"))

    def open_tile(self, a: Axis, start: str, last: str, multiple: int) -> None:
        """A tile of an axis begins: C++ texts of its first and last position, and what divides the first."""
        self.starts[a], self.start_multiples[a] = start, multiple
        self.corners[f"%first:{self.axis_name(a)}"] = start
        self.corners[f"%last:{self.axis_name(a)}"] = last

    def start_multiple(self, a: Axis) -> int:
        """What divides the first position of an axis in the tile."""
        return self.start_multiples.get(a, 1)

    def inside(self, a: Axis, local: str) -> str:
        """Position of an index within the tile of an axis."""
        start = self.starts[a]
        return f"({local})" if start == "0" else f"({start} + {local})"

    @contextmanager
    def existing_rows(self) -> Generator[None]:
        """Statements for row h of a thread that a whole warp leaves out where none of its rows h exists.

        Half of a tile of 16 rows of which 4 exist is empty, and only the GPU knows. What is left out is set before.
        """
        a = self._partly_empty()
        if a is None:
            yield
            return
        several = self.binding.row_warps > 1
        first = self.inside(a, f"{self.row_warp} * {WARP_ROWS * self.row_tiles} + 8 * h" if several else "8 * h")
        test = f"{first} <= {self.corners[f'%last:{self.axis_name(a)}']}"
        with self.writer.block(f"if ({test})" if several else f"if (h == 0 || {test})"):
            yield

    def existing_row_count(self) -> str:
        """C++ text: how many rows those statements are executed for, eight for each row h of a warp."""
        a = self._partly_empty()
        if a is None:
            return str(self.block_rows)
        count = (
            f"least({self.block_rows // 8}, ({self.corners[f'%last:{self.axis_name(a)}']} - {self.starts[a]} + 8) / 8)"
        )
        return f"8 * {count}" if self.binding.row_warps > 1 else f"8 * greatest({count}, 1)"

    def _partly_empty(self) -> Axis | None:
        """The row axis of which a tile may have fewer rows, if it is the only one."""
        tiled = [a for a in self.rows if self.size(a) > 1]
        known = self.extent(tiled[0]).constant if len(tiled) == 1 else None
        if len(tiled) != 1 or (known is not None and known % self.size(tiled[0]) == 0):
            return None
        return tiled[0]

    # ---- memory

    def offset(self, name: str, indices: tuple[Index, ...]) -> Index:
        """Distance in elements from the start of an array in C order."""
        total = index(0)
        for i, n in zip(indices, self.memory[name].shape, strict=True):
            total = total * n + i
        return self.fix(total)

    def load_axes(self, load: Load) -> list[Axis]:
        return self.tiled(free(load))

    def symbol_multiple(self, s: Symbol) -> int:
        return self.multiples.get(s.name, s.multiple)

    def allot(self, size: int, alignment: int = 128) -> str:
        """Shared memory of the team that runs; the address as C++ text."""
        return self._allotted(size, self.team.copies, alignment)

    def allot_rows(self, size: int) -> str:
        """Shared memory for rows of the block, which every team has, whoever runs."""
        return self._allotted(size, self.binding.teams)

    def _allotted(self, size: int, copies: int, alignment: int = 128) -> str:
        offset = self.shared.take(size, copies, alignment)
        return f"shared_base + {offset}" + (f" + team * {aligned(size)}" if copies > 1 else "")

    # ---- who runs

    @contextmanager
    def divided(self) -> Generator[bool]:
        """Teams part ways, if the block is still together and has several; gives whether they did."""
        before = self.team
        parts = before.copies == 1 and self.binding.teams > 1
        if parts:
            self.team = part_of_block(self.binding)
        yield parts
        self.team = before

    @contextmanager
    def trip(self) -> Generator[None]:
        """Statements of one trip: what they hold in registers ends with it."""
        held, words = dict(self.held), dict(self.words)
        self.met = False
        yield
        self.held, self.words = held, words

    @contextmanager
    def loading(self, *, rows: bool) -> Generator[None]:
        """A tile is copied: where warps have roles each warpgroup copies the rows that it multiplies, if no other one
        has the same."""
        before = self.team
        if rows and self.roles is not None and self.binding.division is None:
            self.team = warpgroup()
        yield
        self.team = before

    @property
    def together(self) -> bool:
        """Whether several teams run the same statements on the same values."""
        return self.team.copies == 1 and self.binding.teams > 1

    def only_one_of(self, which: str) -> str:
        """A test that one team passes for each value of an index, where all of them hold the same; else nothing."""
        if self.binding.division is not None:
            return f"warp < {self.binding.row_warps}"
        if not self.together:
            return ""
        return "team == 0" if which == "0" else f"{which} % {self.binding.teams} == team"

    def only_one_holder(self, column: Axis, which: str = "n") -> str:
        """A test that one team passes for each value of an index of what a fragment holds, group n by default; nothing
        where no other team holds it."""
        if self.is_divided(column):
            return ""
        if column not in self.spread:
            return self.only_one_of(which)
        shares = self.shares(column)
        return "" if shares == self.binding.teams else f"team < {shares}"

    def is_divided(self, column: Axis) -> bool:
        """Whether warpgroups have a part each of the columns."""
        return self.binding.division is not None and column in self.binding.division.axes

    @property
    def part(self) -> str:
        """C++ text: which part of divided columns is this warp's."""
        return f"(warp / {self.binding.row_warps})"

    def shares(self, column: Axis) -> int:
        """Into how many parts the teams divide a spread column. Where teams are more, the first of each part stores."""
        return min(self.binding.teams, self.size(column) // 8)

    def group_number(self, column: Axis, group: str = "n") -> str:
        """Which eight columns of a tile a group of registers holds."""
        if self.is_divided(column):
            return f"({group} + {self.part} * {self.groups(column)})"
        if column not in self.spread:
            return group
        shares = self.shares(column)
        return f"({group} * {shares} + {'team' if shares == self.binding.teams else f'team % {shares}'})"

    def groups(self, column: Axis) -> int:
        """Groups of columns in a thread's fragment. Errors: a tile that is not made of such groups."""
        size = self.size(column)
        if self.lanes:
            width = self.lanes * self.vector
            if size % width:
                self.refuse(
                    f"along {column}", [column], f"tile of {size} elements: {width} is what a row's threads hold"
                )
            return size // width
        if size % 8:
            self.refuse(f"along {column}", [column], f"tile of {size} elements: fragments need multiples of 8")
        return self.binding.columns(column) // 8 // (self.shares(column) if column in self.spread else 1)

    def local(self, column: Axis, group: str, entry: str) -> str:
        """C++ text: which column of a tile a register of a fragment holds."""
        same, own = self.places(column, group, entry)
        return f"({same} + {own})"

    def places(self, column: Axis, group: str, entry: str) -> tuple[str, str]:
        """That column as a sum: what is the same in all threads of a row, and what is the thread's own."""
        if not self.lanes:
            return f"{self.group_number(column, group)} * 8 + ({entry} & 1)", "pair"
        if self.vectors:
            return f"{group} * {self.lanes * self.vector} + {entry}", f"place * {self.vector}"
        return f"({group} * {self.vector} + {entry}) * {self.lanes}", "place"

    # ---- synchronisation

    @contextmanager
    def repeated(self) -> Generator[None]:
        """Statements that may run several times."""
        self.repeats += 1
        yield
        self.repeats -= 1

    def settle(self) -> None:
        """Copies issued so far have landed and every thread may read them."""
        if self.pending:
            self.landed(0, self.team.barrier)

    def landed(self, open_groups: int, barrier: str) -> None:
        """Wait until at most so many groups of copies are under way, and for the others' copies."""
        self.writer.line(f"copies_wait<{open_groups}>();")
        if self.fences:
            self.writer.line("tensor_cores_may_read();")
        self.writer.line(barrier)
        self.pending.clear()

    def need(self, name: str) -> None:
        """A shared tile is about to be read."""
        if name in self.pending:
            self.settle()

    # ---- refusals

    @property
    def location(self) -> str:
        return f"kernel {self.program.name}"

    def refuse(self, name: str, axes: Iterable[Axis], why: str = ALLOWED) -> NoReturn:
        shown = ", ".join(a.name for a in sorted(axes, key=lambda a: a.name))
        raise CodegenError(f"value {name}[{shown}] is not expressible: {why}", location=self.location)
