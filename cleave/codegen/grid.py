"""Where a block is: the number of its tile on every grid axis from its own number, and the positions in the tile."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from math import prod

from cleave.codegen import team
from cleave.codegen.emission import Emission
from cleave.codegen.expression import At, index_text, row_positions
from cleave.codegen.range import extreme
from cleave.codegen.uniform import name_values
from cleave.ir.axis import Axis
from cleave.ir.graph import Load, free
from cleave.ir.index import Index, axes_of, index, maximum, minimum, symbols_of
from cleave.ir.op import DTYPES
from cleave.tile.packed import Packed
from cleave.tile.program import Let, Loop, statements

STRIP = 8
"""Tiles of one axis that are worked on for each one of another: blocks at work at once then share most of what they
read, and those beside each other the larger part. Measured for matmuls of 128 x 256 on an H200."""


def prologue(em: Emission) -> None:
    """Names of the thread's place, the same for every program of a kernel."""
    em.writer.line("SHARED_MEMORY(shared);")
    em.writer.line("const u32 shared_base = shared_address(shared);")
    warp = "of_warp(thread >> 5)" if em.binding.mma == "wgmma" else "thread >> 5"
    em.writer.line(f"const int thread = threadIdx.x, warp = {warp}, lane = thread & 31;")
    em.writer.lines(team.places(em.binding))


def decode(
    em: Emission,
    counts: Sequence[Index],
    fastest: Collection[Axis] = (),
    number: str = "blockIdx.x",
    pair: tuple[Axis, Axis] | None = None,
    section: Index | None = None,
    packed: Packed | None = None,
    leave: str = "return;",
) -> list[str]:
    """Number of the tile on every grid axis. Axes that decide how long a loop runs go slowest, longest first.

    ``pair``: axes that go fastest together, in strips: ``STRIP`` tiles of the first for each one of the second.
    ``section``: so many tiles of the other axes together are worked on at every length, before the next ones.
    ``packed``: an axis whose tiles lie one behind the other, and of which ``counts`` has places, 1 for its owner;
    ``leave``: what is done at a place before the first one.
    """
    grid = em.program.grid
    names = [em.names.fresh(f"{a.name}_tile") for a in grid]
    work = {a: _grows(em, a) for a in grid}
    order = sorted(range(len(names)), key=lambda n: (grid[n] not in fastest, work[grid[n]] is not None, -n))
    backward = {names[n] for n in order if work[grid[n]] is True}
    em.writer.line(f"int block = {number};")
    if packed is not None:
        owner, along = grid.index(packed.packing.owner), grid.index(packed.axis)
        places = [em.names.fresh("place") if n == along else name for n, name in enumerate(names)]
        reversed_ = {places[along]} if names[along] in backward else set[str]()
        _digits(em, places, counts, [n for n in order if n != owner], reversed_)
        _find(em, packed, places[along], names[owner], names[along])
        em.writer.line(f"if ({names[along]} < 0) {leave}")
        return names
    if pair is not None:
        first, second = (grid.index(a) for a in pair)
        order = [n for n in order if n not in (first, second)]
        both = (names[first], names[second]), (counts[first], counts[second])
        _strips(em, *both, index(STRIP), [counts[n] for n in order])
    slow = [n for n in order if work[grid[n]] is not None]
    fast = [n for n in order if n not in slow]
    if section is None or not slow or not fast:
        _digits(em, names, counts, order, backward)
        return names
    numbers = em.names.fresh("unit"), em.names.fresh("length")
    _strips(em, numbers, (tiles_of(counts[n] for n in fast), tiles_of(counts[n] for n in slow)), section, [])
    for part, place in zip((fast, slow), numbers, strict=True):
        em.writer.line(f"block = {place};")
        _digits(em, names, counts, part, backward)
    return names


def _find(em: Emission, packed: Packed, place: str, owner: str, tile: str) -> None:
    """The request that has a place, the last one that begins there or before, and which of its tiles it is.

    A warp looks at 32 requests at a time, so that up to 1024 take two turns; a thread that loads for others, at one.
    """
    w, a, alone = em.writer, packed.packing.owner, em.binding.loaders > 0
    size = count_text(em, em.extent(a), f"{a.name}_tiles")
    w.line(f"int {owner} = 0;")
    with w.block(f"for (int open = {size}, step; open > 1; open = least(open, step))"):
        w.line(f"step = (open + {'1) >> 1' if alone else '31) >> 5'};")
        w.line(f"const int probe = {owner} + {'step' if alone else 'least(lane * step, open - 1)'};")
        em.units[a] = "probe"
        test = f"{first_place(em, packed)} <= {place}"
        passed = f"{test} ? step : 0" if alone else f"greatest(votes(lane * step < open && {test}) - 1, 0) * step"
        w.line(f"const int passed = {passed};")
        w.line(f"{owner} += passed;")
        w.line("open -= passed;")
    em.units[a] = owner
    name_values(em)
    w.line(f"const int {tile} = {place} - {first_place(em, packed)};")


def first_place(em: Emission, packed: Packed) -> str:
    """C++ text: the first place of the open request."""
    return f"({index_text(em, em.fix(packed.packing.first), At())})"


def _digits(
    em: Emission, names: Sequence[str], counts: Sequence[Index], order: Sequence[int], backward: Collection[str]
) -> None:
    """Numbers of tiles from the block's, the first of the order going fastest."""
    open_ = [n for n in order if counts[n].constant != 1]
    for n in order:
        count = count_text(em, counts[n], f"{em.program.grid[n].name}_tiles")
        if n not in open_:
            em.writer.line(f"const int {names[n]} = 0;")
            continue
        rest = "0"
        if n != open_[-1]:
            rest = em.names.fresh("rest")
            em.writer.line(f"const int {rest} = {_quotient(em, 'block', counts[n], count)};")
        digit = "block" if rest == "0" else f"block - {rest} * {count}"
        em.writer.line(f"const int {names[n]} = {f'{count} - 1 - ({digit})' if names[n] in backward else digit};")
        if rest != "0":
            em.writer.line(f"block = {rest};")


def _strips(
    em: Emission, names: tuple[str, str], counts: tuple[Index, Index], size: Index, others: Sequence[Index]
) -> None:
    """Numbers of two tiles from the block's, which keeps what is left for the others: ``size`` of the first for each
    one of the second.

    The last strip may be narrower: it has the tiles that are left of the first axis.
    """
    first, w = count_text(em, counts[0], f"{names[0]}s"), em.writer
    place, strip, left = "block", em.names.fresh("strip"), em.names.fresh("width")
    if any(n.constant != 1 for n in others):
        both, rest, place = counts[0] * counts[1], em.names.fresh("rest"), em.names.fresh("place")
        text = count_text(em, both, f"{names[0]}s_{names[1]}s")
        w.line(f"const int {rest} = {_quotient(em, 'block', both, text)}, {place} = block - {rest} * {text};")
        w.line(f"block = {rest};")
    a_strip = count_text(em, counts[1] * size, f"strip_of_{names[1]}s")
    most = count_text(em, size, f"{names[0]}s_of_strip")
    w.line(f"const int {strip} = {_quotient(em, place, counts[1] * size, a_strip)};")
    w.line(f"const int {left} = least({most}, {first} - {strip} * {most});")
    w.line(f"const int {names[1]} = ({place} - {strip} * {a_strip}) / {left};")
    w.line(f"const int {names[0]} = {strip} * {most} + {place} - {strip} * {a_strip} - {names[1]} * {left};")


def units_of_section(em: Emission, counts: Sequence[Index], most_bytes: int) -> Index | None:
    """Tiles of the axes that do not decide how long loops run, of which the loops together read about so many bytes.

    They find in the cache what they share. As many sections as would each read as much, and what is left over spread
    over them, so that each reads less than twice as much: long tiles of a narrow one at the end would keep few blocks
    busy. None: the size of what they read is known on the device only.
    """
    grid = em.program.grid
    units = {a: n for a, n in zip(grid, counts, strict=True) if _grows(em, a) is None}
    inside = [i for s in em.program.body if isinstance(s, Loop) for i in s.body if isinstance(i, Let)]
    loads = [i for i in inside if isinstance(i.term, Load) and not {*em.load_axes(i.term)} & {*grid} - {*units}]
    a_unit, apart = index(0), {*units}
    for let in loads:
        assert isinstance(let.term, Load)
        extents = [em.extent(a) for a in let.axes if a not in grid]
        if any(axes_of(n) for n in extents):
            return None
        a_unit = a_unit + tiles_of([*extents, index(DTYPES[em.memory[let.term.input].dtype])])
        apart -= free(let.term)
    alike = tiles_of(n for a, n in units.items() if a in apart)
    different = tiles_of(n for a, n in units.items() if a not in apart)
    sections = maximum(different // maximum(index(most_bytes) // maximum(a_unit, 1), 1), 1)
    return (different + sections - 1) // sections * alike


def sharing_pair(em: Emission) -> tuple[Axis, Axis] | None:
    """Two tiled axes of the grid that tiles of loops lie along, each along one of them: what neighbours along the first
    share is the larger part. None: there are no such two, or they decide how long loops run."""
    sizes: dict[Axis, int] = {}
    inside = [i for s in em.program.body if isinstance(s, Loop) for i in s.body]
    for load in (i for i in inside if isinstance(i, Let) and isinstance(i.term, Load)):
        tiled = [a for a in load.axes if a in em.program.grid and a not in em.program.unit]
        if len(tiled) > 1:
            return None
        for a in tiled:
            sizes[a] = sizes.get(a, 0) + prod(em.size(x) for x in load.axes)
    axes = sorted(sizes, key=lambda a: sizes[a])
    if len(axes) != 2 or any(_grows(em, a) is not None or axes_of(a.extent) for a in axes):
        return None
    return axes[0], axes[1]


def tiles_of(counts: Iterable[Index]) -> Index:
    """Tiles of a grid, from those along its axes."""
    total = index(1)
    for n in counts:
        total = total * n
    return total


def count_text(em: Emission, count: Index, wish: str) -> str:
    """C++ text of a number of tiles."""
    known = count.constant
    return str(known) if known is not None else em.parameters.value(count, wish)


def _quotient(em: Emission, dividend: str, divisor: Index, text: str) -> str:
    """A quotient by a dim: a product with its reciprocal, which the host rounds, and one step of correction."""
    if divisor.constant is not None:
        return f"{dividend} / {divisor.constant}"
    most = 2**31
    reciprocal = minimum(index(most - 1), index(most) // maximum(divisor, 1))
    return f"quotient({dividend}, {text}, {em.parameters.value(reciprocal, f'reciprocal_{text}')})"


def _grows(em: Emission, a: Axis) -> bool | None:
    """Whether loops run longer at higher positions of a tiled axis; None if their bounds do not depend on it."""
    if a in em.program.unit:
        return None
    for s in statements(em.program.body):
        if isinstance(s, Loop) and a in axes_of(em.fix(s.upper)):
            upper = extreme(em, em.fix(s.upper), "greatest")
            named = {x.name for x in symbols_of(upper)} if upper is not None else set[str]()
            return f"%last:{em.axis_name(a)}" in named
    return None


def open_grid(em: Emission, tiles: Sequence[str], leave: str = "return;", finer: Collection[Axis] = ()) -> None:
    """Positions of the block from its tile numbers; the axes that extents read come first.

    ``leave`` is what it does if its tile lies beyond the end: of a row's own extent, or of an axis in ``finer``, whose
    tiles are parts of others.
    """
    open_units(em, tiles, leave)
    for a, tile in _by_depth(em, tiles):
        if a in em.program.unit:
            continue
        size, start, last = em.size(a), em.names.fresh(f"{a.name}_start"), em.names.fresh(f"{a.name}_last")
        extent = index_text(em, em.extent(a), At())
        em.writer.line(f"const int {start} = {tile} * {size};")
        if axes_of(em.extent(a)) or a in finer:
            em.writer.line(f"if ({start} >= {extent}) {leave}")
        em.writer.line(f"const int {last} = least({start} + {size}, {extent}) - 1;")
        em.open_tile(a, start, last, size)
    for a in em.program.whole:
        em.open_tile(a, "0", str(em.size(a) - 1), em.size(a))
    places = [row_positions(em, "row" if h == 0 else f"(row + {8 * h})") for h in range(em.halves)]
    for a in em.rows:
        positions = ", ".join(place[a] for place in places)
        em.writer.line(f"const int {em.axis_name(a)}_row[{em.halves}] = {{{positions}}};")


def open_units(em: Emission, tiles: Sequence[str], leave: str = "return;") -> None:
    """Positions of a block on axes of single elements, once, and what it knows of them from tables."""
    for a, tile in _by_depth(em, tiles):
        if a in em.program.unit and a not in em.units:
            em.units[a] = tile
            name_values(em)
            if axes_of(em.extent(a)):
                em.writer.line(f"if ({tile} >= {index_text(em, em.extent(a), At())}) {leave}")


def _by_depth(em: Emission, tiles: Sequence[str]) -> list[tuple[Axis, str]]:
    return sorted(zip(em.program.grid, tiles, strict=True), key=lambda pair: _depth(pair[0]))


def _depth(a: Axis) -> int:
    return 1 + max((_depth(b) for b in axes_of(a.extent)), default=0)
