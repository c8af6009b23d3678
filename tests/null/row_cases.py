"""Programs without a matmul for the skeleton whose threads share rows: roles, tiles and threads by hand, odd sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from cleave import nn
from cleave.ir.axis import Axis
from cleave.ir.graph import Graph
from cleave.ir.text import parse_graph
from cleave.schedule.lower import lower
from cleave.schedule.roles import Plan
from cleave.target import Target
from cleave.tile.plan import Binding, KernelPlan, Schedule
from tests.null.codegen_cases import SOFTMAX, Case, Sizes, inputs
from tests.null.terms import softmax_folds

__all__ = ["CASES", "inputs"]

SIZES = (
    {"m": 3, "n": 1},
    {"m": 9, "n": 7},
    {"m": 1, "n": 33},
    {"m": 5, "n": 1000},
    {"m": 2, "n": 4099},
    {"m": 3, "n": 2056},
    {"m": 4, "n": 0},
)
"""Rows that no tile divides, that are no whole vectors, and that end inside, at and beyond a tile."""

SHORT = ({"m": 37, "n": 1}, {"m": 65, "n": 40}, {"m": 130, "n": 64}, {"m": 33, "n": 67})


def row(
    text: str | Graph,
    roles: str,
    tiles: Mapping[str, int],
    rows: str = "m",
    *,
    lanes: int,
    sizes: Sequence[Sizes] = SIZES,
    bind: Sizes | None = None,
    tables: Mapping[str, Sequence[int]] | None = None,
    absorb: bool = True,
) -> Case:
    """``roles``: ``"m grid, n loop"``; axes that are not named are whole."""
    g = text if isinstance(text, Graph) else parse_graph(text)
    axes: dict[str, Axis] = {a.name: a for a in g.axes}
    given = {axes[w.split()[0]]: (w.split()[1],) for w in roles.split(",")}
    lowered = lower(g, Plan({a: given.get(a, ("whole",)) for a in g.axes}, absorb=absorb), softmax_folds(g))  # type: ignore[arg-type]
    together = 1
    for name in rows.split():
        together *= tiles[name]
    sized = {axes[n]: size for n, size in tiles.items()}
    binding = Binding(sized, tuple(axes[n] for n in rows.split()), lanes * together // 32, 1, lanes=lanes)
    plan = KernelPlan(lowered.program, binding, "row", lowered.notes)
    return Case(Schedule("test", g, Target("sm_80"), (plan,), bind=dict(bind or {})), tuple(sizes), tables or {})


def normed(name: str, lanes: int, rows: int, tile: int, sizes: Sequence[Sizes] = SIZES, **options: str) -> Case:
    return row(getattr(nn, name)(**options), "m grid, n loop", {"m": rows, "n": tile}, lanes=lanes, sizes=sizes)


def softmax(lanes: int, rows: int, tile: int, dtype: str = "float16", **options: bool) -> Case:
    text = SOFTMAX.replace("float16", dtype)
    return row(text, "m grid, n loop", {"m": rows, "n": tile}, lanes=lanes, **options)


def softmax_known(n: int, tile: int) -> Case:
    """A length that is compiled in: no tests of it, and no second trip where the tile covers it."""
    text = SOFTMAX.replace("dims m, n", f"dims m, n = {n}")
    g = parse_graph(text)
    last = next(a.name for a in g.axes if a.name != "m")
    return row(g, f"m grid, {last} loop", {"m": 2, last: tile}, lanes=64, sizes=({"m": 5}, {"m": 1}))


MASKED = """
graph masked
dims b, s, t
input x: float16[b, s, t]
input keep: bool[s, t]
axis b: dim.b
axis s: dim.s
axis t: dim.t
y[b, s, t] = where(PRED, x[b, s, t] * 0.5, const('-inf'))
mx[b, s] = max(t, y)
p[b, s, t] = exp_diff(y, mx)
total[b, s] = sum(t, p)
output out: float16[b, s, t] @ [b, s, t] = p * recip0(total)
output lse: float32[b, s] @ [b, s] = mx + log(total)
"""
PREDICATES = {
    "causal": "t <= s + dim.t - dim.s",
    "window": "(t <= s + dim.t - dim.s) & (s + dim.t - dim.s < t + 20)",
    "read": "keep[s, t]",
}
MASK_SIZES = (
    {"b": 2, "s": 11, "t": 300},
    {"b": 1, "s": 70, "t": 40},
    {"b": 1, "s": 8, "t": 264},
    {"b": 1, "s": 3, "t": 0},
)


def masked(mask: str, lanes: int = 32, rows: int = 4, tile: int = 256) -> Case:
    """Rows with few or no elements left, some of them -inf everywhere; a second output without the row's axis."""
    text = MASKED.replace("PRED", PREDICATES[mask])
    if mask != "read":
        text = text.replace("input keep: bool[s, t]\n", "")
    return row(text, "b unit, s grid, t loop", {"b": 1, "s": rows, "t": tile}, "s", lanes=lanes, sizes=MASK_SIZES)


RAGGED = """
graph ragged
dims b, h, t
input x: float16[b, h, t]
input length: int32[b]
axis b: dim.b
axis h: dim.h
axis t: length[b]
mx[b, h] = max(t, x[b, h, t])
p[b, h, t] = exp_diff(x[b, h, t], mx)
output out: float16[b, h, t] @ [b, h, t] = p * recip0(sum(t, p))
output total: float32[b, h] @ [b, h] = sum(t, x[b, h, t])
"""


def ragged(lanes: int, rows: int) -> Case:
    """Lengths that are read: rows end inside a vector; what lies beyond them in the output is not written."""
    g = parse_graph(RAGGED.split("output out")[0] + "output total" + RAGGED.split("output total")[1])
    t = next(a.name for a in g.axes if a.name.startswith("length"))
    return row(
        g,
        f"b unit, h grid, {t} loop",
        {"b": 1, "h": rows, t: lanes * 16},
        "h",
        lanes=lanes,
        sizes=({"b": 4, "h": 5, "t": 600}, {"b": 4, "h": 1, "t": 601}),
        tables={"length": (600, 0, 37, 513)},
    )


ABSMAX = """
graph absmax
dims m, n
input x: DTYPE[m, n]
input scale: float32[m]
axis m: dim.m
axis n: dim.n
largest[m] = max(n, abs(x[m, n] * scale[m]))
output high: float32[m] @ [m] = largest
output low: float32[m] @ [m] = min(n, x[m, n])
output total: float32[m] @ [m] = sum(n, x[m, n])
output scaled: float16[m, n] @ [m, n] = x[m, n] * scale[m] * 127.0 * recip0(largest)
"""
CHAIN = """
graph chain
dims b, s, n
input x: bfloat16[b, s, n]
input y: float32[b, s, n]
input gain: bfloat16[n]
input bias: float32[s, n]
input alpha: float32[]
axis b: dim.b
axis s: dim.s
axis n: dim.n
total[b, s, n] = x[b, s, n] + alpha[] * y[b, s, n]
first[b, s, n] = total * rsqrt(sum(n, sq(total)) * recip(value(dim.n)) + 0.001) * gain[n]
second[b, s, n] = silu(first + bias[s, n])
output sum: bfloat16[b, s, n] @ [b, s, n] = total
output out: float32[b, s, n] @ [b, s, n] = second - max(n, second)
output moved: bfloat16[s, b, n] @ [s, b, n] = first
output transposed: float16[b, n, s] @ [b, n, s] = second
"""
POINTWISE = """
graph pointwise
dims m, n
input x: float16[m, n]
input y: float16[n, m]
input r: float32[m]
axis m: dim.m
axis n: dim.n
output out: float16[m, n] @ [m, n] = tanh(x[m, n]) * r[m] + y[n, m]
output only: float32[m, n] @ [m, n] = r[m] * value(n)
"""
ONE_ROW = """
graph onerow
dims n
input x: float32[n]
axis n: dim.n
mx[] = max(n, x[n])
output out: float16[n] @ [n] = exp_diff(x[n], mx) * recip0(sum(n, exp_diff(x[n], mx)))
"""
COLUMNS = """
graph columns
dims m, n
input x: float16[m, n]
axis m: dim.m
axis n: dim.n
output total: float32[n] @ [n] = sum(m, x[m, n])
output high: float16[n] @ [n] = max(m, sq(x[m, n]))
"""
HEADS = """
graph heads
dims m, h, n
input x: float16[m, h, n]
input y: float16[m, n]
axis m: dim.m
axis h: dim.h
axis n: dim.n
r[m] = rsqrt(sum(h, sum(n, sq(x[m, h, n]))) + 0.01)
output out: float16[m, h, n] @ [m, h, n] = x[m, h, n] * r * sum(n, y[m, n])
"""
JOIN = """
graph join
dims m, n, S
input p: float32[S, m, n]
input l: float32[S, m]
axis m: dim.m
axis n: dim.n
axis o: dim.S outer
top[m] = max(o, l[o, m])
output out: float16[m, n] @ [m, n] = sum(o, p[o, m, n] * exp_diff(l[o, m], top))
"""
COLUMN_SIZES = ({"m": 45, "n": 70}, {"m": 1, "n": 1030}, {"m": 9, "n": 8}, {"m": 0, "n": 5})


def chain() -> Case:
    sizes = ({"b": 2, "s": 5, "n": 70}, {"b": 1, "s": 3, "n": 600}, {"b": 3, "s": 1, "n": 512})
    return row(CHAIN, "b unit, s grid, n loop", {"b": 1, "s": 2, "n": 512}, "s", lanes=64, sizes=sizes)


def heads() -> Case:
    """A loop in a loop, whose threads join in every trip of the outer one."""
    sizes = ({"m": 5, "h": 3, "n": 70}, {"m": 2, "h": 1, "n": 1030}, {"m": 3, "h": 4, "n": 64})
    return row(HEADS, "m grid, h step, n loop", {"m": 1, "h": 1, "n": 512}, lanes=64, sizes=sizes)


CASES = {
    "softmax, a warp a row": lambda: softmax(32, 4, 1024),
    "softmax, a quarter of a warp a row": lambda: normed("softmax", 8, 16, 64, SHORT),
    "softmax, two warps a row": lambda: softmax(64, 2, 1024, absorb=False),
    "softmax, eight warps a row": lambda: softmax(256, 1, 2048, absorb=False),
    "softmax, sixteen warps a row": lambda: softmax(512, 1, 4096),
    "softmax, one loop": lambda: softmax(64, 2, 512, absorb=True),
    "softmax, bfloat16": lambda: normed("softmax", 128, 1, 1024, dtype="bfloat16"),
    "softmax, float32": lambda: softmax(128, 1, 2048, "float32"),
    "softmax, known length": lambda: softmax_known(1000, 1024),
    "softmax, known length of several tiles": lambda: softmax_known(1032, 512),
    "softmax, known odd length": lambda: softmax_known(1001, 1024),
    "softmax, no elements": lambda: softmax_known(0, 1024),
    "softmax, whole": lambda: row(
        SOFTMAX, "m grid", {"m": 2, "n": 1024}, lanes=64, sizes=({"m": 5, "n": 1000}, {"m": 3, "n": 67})
    ),
    "rmsnorm": lambda: normed("rmsnorm", 32, 4, 512),
    "layernorm": lambda: normed("layernorm", 128, 2, 2048),
    "layernorm, half a warp a row": lambda: normed("layernorm", 16, 8, 128, SHORT),
    "residual and rmsnorm": lambda: normed("residual_rmsnorm", 64, 2, 1024),
    "norm, residual and norm": lambda: normed("norm_residual_norm", 256, 1, 2048),
    "causal": lambda: masked("causal"),
    "causal, two warps a row": lambda: masked("causal", 64, 2, 512),
    "window": lambda: masked("window"),
    "mask that is read": lambda: masked("read"),
    "ragged": lambda: ragged(32, 4),
    "ragged, four warps a row": lambda: ragged(128, 1),
    "largest, least and scaled": lambda: row(
        ABSMAX.replace("DTYPE", "float16"), "m grid, n loop", {"m": 4, "n": 512}, lanes=32
    ),
    "largest, least and scaled, float32": lambda: row(
        ABSMAX.replace("DTYPE", "float32"), "m grid, n loop", {"m": 1, "n": 1024}, lanes=128
    ),
    "chain": chain,
    "pointwise": lambda: row(POINTWISE, "m grid, n grid", {"m": 4, "n": 512}, lanes=32, sizes=COLUMN_SIZES),
    "one row": lambda: row(
        ONE_ROW, "n loop", {"n": 2048}, "", lanes=256, sizes=({"n": 5}, {"n": 4100}, {"n": 2048}, {"n": 0})
    ),
    "columns": lambda: row(COLUMNS, "n grid, m step", {"m": 1, "n": 512}, "", lanes=64, sizes=COLUMN_SIZES),
    "heads": heads,
    "partials": lambda: row(
        JOIN,
        "m grid, n grid, o step",
        {"m": 2, "n": 512, "o": 1},
        lanes=64,
        sizes=({"m": 5, "n": 70, "S": 3}, {"m": 2, "n": 640, "S": 9}, {"m": 3, "n": 8, "S": 1}),
    ),
}
CASES = {name: cache(make) for name, make in CASES.items()}
"""Each made once: what is generated of it is, too."""
