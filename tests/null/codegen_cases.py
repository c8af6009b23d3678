"""Schedules that the tests of code generation share: graphs as text, roles and tiles by hand, odd sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property

import numpy as np

from cleave.codegen.generate import generate
from cleave.ir.axis import Axis
from cleave.ir.graph import Graph
from cleave.ir.index import Symbol, evaluate, index
from cleave.ir.op import round_to
from cleave.ir.text import parse_graph
from cleave.kernel import OperatorSource
from cleave.schedule.lower import lower
from cleave.schedule.roles import Plan
from cleave.target import Target
from cleave.tile.plan import Binding, Chain, Chunk, KernelPlan, Merge, Schedule
from cleave.tile.program import Buffer
from tests.null.terms import drawn, softmax_folds

Sizes = Mapping[str, int]


@dataclass(frozen=True)
class Case:
    """A schedule, the sizes it is run at, and integer inputs as functions of the sizes."""

    schedule: Schedule
    sizes: tuple[Sizes, ...]
    tables: Mapping[str, Sequence[int]] = field(default_factory=dict)

    @cached_property
    def operator(self) -> OperatorSource:
        return generate(self.schedule)


def kernel(
    text: str | Graph,
    roles: str,
    tiles: Mapping[str, int],
    rows: str = "",
    *,
    warps: int = 2,
    stages: int = 2,
    chain: Chain = "registers",
    absorb: bool = True,
    teams: int = 1,
) -> KernelPlan:
    """``roles``: ``"b unit, s grid, t loop"``; axes that are not named are whole."""
    g = text if isinstance(text, Graph) else parse_graph(text)
    axes: dict[str, Axis] = {a.name: a for a in g.axes}
    given = {axes[w.split()[0]]: (w.split()[1],) for w in roles.split(",") if w.split()}
    plan = Plan({a: given.get(a, ("whole",)) for a in g.axes}, absorb=absorb)  # type: ignore[arg-type]
    lowered = lower(g, plan, softmax_folds(g))
    binding = Binding(
        {axes[n]: size for n, size in tiles.items()}, tuple(axes[r] for r in rows.split()), warps, stages, teams
    )
    skeleton = "cta-ring" if teams == 1 else "warp-ring"
    return KernelPlan(lowered.program, binding, skeleton, lowered.notes, chain)


def schedule(
    g: str | Graph,
    *kernels: KernelPlan,
    bind: Sizes | None = None,
    temporaries: tuple[Buffer, ...] = (),
    merge: Merge = "none",
    chunks: tuple[Chunk, ...] = (),
) -> Schedule:
    whole = g if isinstance(g, Graph) else parse_graph(g)
    return Schedule("test", whole, Target("sm_80"), kernels, temporaries, merge, bind=dict(bind or {}), chunks=chunks)


# ---- matmuls

MATMUL = """
graph matmul
dims m, n, k
input a: float16[m, k]
input b: float16[k, n]
axis m: dim.m
axis n: dim.n
axis k: dim.k
output out: float16[m, n] @ [m, n] = sum(k, a[m, k] * b[k, n])
"""
ODD = ({"m": 45, "n": 37, "k": 50}, {"m": 1, "n": 7, "k": 0}, {"m": 33, "n": 66, "k": 75}, {"m": 64, "n": 40, "k": 24})
TILES = {"m": 32, "n": 32, "k": 32}


def matmul(**options: object) -> Case:
    return Case(schedule(MATMUL, kernel(MATMUL, "m grid, n grid, k loop", TILES, "m", **options)), ODD)  # type: ignore[arg-type]


def matmul_stored_otherwise() -> Case:
    """A with its rows contiguous, B with its summed axis contiguous, the output transposed."""
    text = MATMUL.replace("a: float16[m, k]", "a: float16[k, m]").replace("a[m, k]", "a[k, m]")
    text = text.replace("b: float16[k, n]", "b: float16[n, k]").replace("b[k, n]", "b[n, k]")
    text = text.replace("out: float16[m, n] @ [m, n]", "out: float16[n, m] @ [n, m]")
    return Case(schedule(text, kernel(text, "m grid, n grid, k loop", TILES, "m")), ODD)


def matmul_aligned() -> Case:
    """Extents known when compiling: every copy is a whole chunk, every store a pair."""
    text = MATMUL.replace("dims m, n, k", "dims m, n = 64, k = 96")
    return Case(schedule(text, kernel(text, "m grid, n grid, k loop", TILES, "m")), ({"m": 45}, {"m": 1}))


def matmul_bfloat16() -> Case:
    text = MATMUL.replace("float16", "bfloat16")
    return Case(schedule(text, kernel(text, "m grid, n grid, k loop", TILES, "m")), ODD[:2])


SPLIT_PART = """
graph part
dims m, n, k, S, C
input a: float16[m, k]
input b: float16[k, n]
axis m: dim.m
axis n: dim.n
axis k_o: dim.S outer
axis k_i: max(min(dim.C, dim.k - k_o*dim.C), 0) inner
output p: float32[S, m, n] @ [k_o, m, n] = sum(k_i, a[m, k_o*dim.C + k_i] * b[k_o*dim.C + k_i, n])
"""
SPLIT_MERGE = """
graph join
dims m, n, S
input p: float32[S, m, n]
axis m: dim.m
axis n: dim.n
axis k_o: dim.S outer
output out: float16[m, n] @ [m, n] = sum(k_o, p[k_o, m, n])
"""


def chunk(base: str, count: int, multiple: int) -> Chunk:
    return Chunk(Symbol("C"), index(base), index(count), multiple)


def split_schedule(g: str, first: KernelPlan, second: KernelPlan, merge: Merge, cut: Chunk) -> Schedule:
    """Partial results of each chunk, and the kernel that joins them."""
    bind = {"S": int(evaluate(cut.count, {}))}
    return schedule(g, first, second, bind=bind, temporaries=first.program.outputs, merge=merge, chunks=(cut,))


def matmul_split(merge: Merge, count: int = 3) -> Case:
    first = kernel(SPLIT_PART, "m grid, n grid, k_o unit, k_i loop", {"m": 32, "n": 32, "k_i": 32}, "m")
    second = kernel(SPLIT_MERGE, "m grid, n grid, k_o step", {"m": 32, "n": 32}, "m")
    made = split_schedule(MATMUL, first, second, merge, chunk("k", count, 32))
    return Case(made, (*ODD, {"m": 20, "n": 18, "k": 130}))


# ---- attention

ATTENTION = """
graph attention
dims b, kv, s, t, d = HEAD, e = HEAD
input q: float16[b, 2*kv, s, d]
input k: float16[b, kv, t, d]
input v: float16[b, kv, t, e]
axis b: dim.b
axis kv: dim.kv
axis g: 2
axis s: dim.s
axis t: dim.t
axis d: HEAD
axis e: HEAD
x[b, kv, g, s, t] = SCORES
m[b, kv, g, s] = max(t, x)
p[b, kv, g, s, t] = exp_diff(x, m)
l[b, kv, g, s] = sum(t, p)
o[b, kv, g, s, e] = sum(t, p * v[b, kv, t, e])
output out: float16[b, 2*kv, s, e] @ [b, kv*2 + g, s, e] = o * recip0(l)
output lse: float32[b, 2*kv, s] @ [b, kv*2 + g, s] = m + log(l)
"""
SCORE = "sum(d, q[b, kv*2 + g, s, d] * k[b, kv, t, d]) * 0.3"
MASKS = {
    "full": SCORE,
    "causal": f"where(t <= s + dim.t - dim.s, {SCORE}, const('-inf'))",
    "window": f"where((t <= s + dim.t - dim.s) & (s + dim.t - dim.s < t + 20), {SCORE}, const('-inf'))",
    "negative": SCORE.replace("0.3", "-0.3"),
}
SHAPES = (
    {"b": 2, "kv": 1, "s": 45, "t": 70},
    {"b": 1, "kv": 2, "s": 1, "t": 33},
    {"b": 1, "kv": 1, "s": 40, "t": 0},
    {"b": 1, "kv": 1, "s": 70, "t": 40},
    {"b": 1, "kv": 1, "s": 64, "t": 64},
)


def attention_text(mask: str = "full", dtype: str = "float16", head: int = 32) -> str:
    return ATTENTION.replace("SCORES", MASKS[mask]).replace("float16", dtype).replace("HEAD", str(head))


def attention(mask: str = "full", dtype: str = "float16", **options: object) -> Case:
    """One query head a block, axes by canonical name: the group is called n2, d and e are n32 and n321."""
    g = parse_graph(attention_text(mask, dtype))
    roles, tiles = "b unit, kv unit, n2 unit, s grid, t loop", {"s": 32, "t": 32, **_heads(g)}
    return Case(schedule(g, kernel(g, roles, tiles, "s", **options)), SHAPES)  # type: ignore[arg-type]


def attention_three_heads() -> Case:
    """Thirty rows of thirty-two: ten queries of three heads; the scale comes with the call, and a mask is an input."""
    text = attention_text().replace("2*kv", "3*kv").replace("kv*2", "kv*3").replace("axis g: 2", "axis g: 3")
    text = text.replace("* 0.3", "* scale[]").replace(
        "input q", "input scale: float32[]\ninput keep: bool[s, t]\ninput q"
    )
    text = text.replace("= sum(d,", "= where(keep[s, t], sum(d,").replace("scale[]\n", "scale[], const('-inf'))\n")
    g = parse_graph(text)
    tiles = {"s": 10, "n3": 3, "t": 32, **_heads(g)}
    return Case(schedule(g, kernel(g, "b unit, kv unit, n3 grid, s grid, t loop", tiles, "s n3")), SHAPES)


def attention_grouped(mask: str = "causal") -> Case:
    """Rows are (query, head of the group): both heads read one tile of keys."""
    g = parse_graph(attention_text(mask))
    roles, tiles = "b unit, kv unit, n2 grid, s grid, t loop", {"s": 16, "n2": 2, "t": 32, **_heads(g)}
    return Case(schedule(g, kernel(g, roles, tiles, "s n2")), SHAPES)


def _heads(g: Graph) -> dict[str, int]:
    return {a.name: 32 for a in g.axes if a.extent.constant == 32}


ATTENTION_PART = """
graph part
dims b, kv, s, t, S, C
input q: float16[b, 2*kv, s, 32]
input k: float16[b, kv, t, 32]
input v: float16[b, kv, t, 32]
axis b: dim.b
axis kv: dim.kv
axis g: 2
axis s: dim.s
axis t_o: dim.S outer
axis t_i: max(min(dim.C, dim.t - t_o*dim.C), 0) inner
axis d: 32
axis e: 32
x[b, kv, g, s, t_o, t_i] = SCORES
m[b, kv, g, s, t_o] = max(t_i, x)
p[b, kv, g, s, t_o, t_i] = exp_diff(x, m)
output pm: float32[S, b, kv, 2, s] @ [t_o, b, kv, g, s] = m
output pl: float32[S, b, kv, 2, s] @ [t_o, b, kv, g, s] = sum(t_i, p)
output po: float32[S, b, kv, 2, s, 32] @ [t_o, b, kv, g, s, e] = sum(t_i, p * v[b, kv, t_o*dim.C + t_i, e])
"""
ATTENTION_JOIN = """
graph join
dims b, kv, s, S
input pm: float32[S, b, kv, 2, s]
input pl: float32[S, b, kv, 2, s]
input po: float32[S, b, kv, 2, s, 32]
axis b: dim.b
axis kv: dim.kv
axis g: 2
axis s: dim.s
axis t_o: dim.S outer
axis e: 32
m[b, kv, g, s] = max(t_o, pm[t_o, b, kv, g, s])
w[b, kv, g, s, t_o] = exp_diff(pm[t_o, b, kv, g, s], m)
l[b, kv, g, s] = sum(t_o, w * pl[t_o, b, kv, g, s])
o[b, kv, g, s, e] = sum(t_o, w * po[t_o, b, kv, g, s, e])
output out: float16[b, 2*kv, s, 32] @ [b, kv*2 + g, s, e] = o * recip0(l)
output lse: float32[b, 2*kv, s] @ [b, kv*2 + g, s] = m + log(l)
"""


def attention_split(merge: Merge, mask: str = "causal", *, sliced: bool = False, count: int = 3) -> Case:
    """Flash-decoding: partial (max, sum, accumulator) for each chunk; ``sliced``: the merge walks the value axis."""
    scores = MASKS[mask].replace("t <=", "t_o*dim.C + t_i <=").replace("kv, t, d", "kv, t_o*dim.C + t_i, d")
    part = parse_graph(ATTENTION_PART.replace("SCORES", scores))
    join = parse_graph(ATTENTION_JOIN)
    roles = "b unit, kv unit, n2 unit, s grid, t_o unit, t_i loop"
    first = kernel(part, roles, {"s": 32, "t_i": 32, **_heads(part)}, "s")
    second_roles = "b unit, kv unit, n2 unit, s grid, t_o step" + (", n32 loop" if sliced else "")
    second = kernel(join, second_roles, {"s": 32, "n32": 16 if sliced else 32}, "s")
    made = split_schedule(attention_text(mask), first, second, merge, chunk("t", count, 32))
    return Case(made, (*SHAPES, {"b": 1, "kv": 1, "s": 3, "t": 200}))


# ---- other operators

SOFTMAX = """
graph softmax
dims m, n
input x: float16[m, n]
axis m: dim.m
axis n: dim.n
mx[m] = max(n, x[m, n])
p[m, n] = exp_diff(x[m, n], mx)
output out: float16[m, n] @ [m, n] = p * recip0(sum(n, p))
"""


def softmax() -> Case:
    """A reducing loop, then a storing loop over the same tiles."""
    return Case(
        schedule(SOFTMAX, kernel(SOFTMAX, "m grid, n loop", {"m": 64, "n": 32}, "m", warps=4)),
        ({"m": 45, "n": 70}, {"m": 1, "n": 5}, {"m": 80, "n": 200}, {"m": 64, "n": 96}),
    )


RMSNORM = """
graph rmsnorm
dims m, n, k
input x: float16[m, k]
input g: float16[k]
input w: float16[k, n]
axis m: dim.m
axis n: dim.n
axis k: dim.k
r[m] = rsqrt(sum(k, sq(x[m, k])) * 0.1 + 0.001)
output out: float16[m, n] @ [m, n] = sum(k, x[m, k] * g[k] * w[k, n]) * r
"""


def rmsnorm_linear(chain: Chain = "registers") -> Case:
    """The A operand is computed; two accumulators share the tile of x."""
    return Case(schedule(RMSNORM, kernel(RMSNORM, "m grid, n grid, k loop", TILES, "m", chain=chain)), ODD)


GATED = """
graph gated
dims m, n, k
input x: float16[m, k]
input u: float16[k, n]
input w: float16[k, n]
axis m: dim.m
axis n: dim.n
axis k: dim.k
a[m, n] = sum(k, x[m, k] * u[k, n])
output out: float16[m, n] @ [m, n] = silu(a) * sum(k, x[m, k] * w[k, n])
"""


def gated() -> Case:
    return Case(schedule(GATED, kernel(GATED, "m grid, n grid, k loop", TILES, "m", stages=3)), ODD)


KEY_NORM = """
graph keynorm
dims s, t
input q: float16[s, 32]
input k: float16[t, 32]
axis s: dim.s
axis t: dim.t
axis d: 32
r[t] = rsqrt(sum(d, sq(k[t, d])) + 0.01)
output out: float32[s] @ [s] = max(t, sum(d, q[s, d] * k[t, d]) * r)
"""


def key_norm() -> Case:
    """A vector along a loop axis without rows, and a maximum that no one reads in the loop."""
    g = parse_graph(KEY_NORM)
    return Case(
        schedule(g, kernel(g, "s grid, t loop", {"s": 32, "t": 32, "n32": 32}, "s")),
        ({"s": 45, "t": 70}, {"s": 1, "t": 5}, {"s": 10, "t": 0}),
    )


PAGED = """
graph paged
dims b, s, pages, slots
input q: float16[b, s, 32]
input k: float16[pages, 16, 32]
input table: int32[b, slots]
input length: int32[b]
axis b: dim.b
axis s: dim.s
axis t: length[b]
axis d: 32
x[b, s, t] = sum(d, q[b, s, d] * k[table[b, t // 16], t % 16, d])
output out: float32[b, s] @ [b, s] = sum(t, exp(x * 0.1))
"""


def paged() -> Case:
    """Lengths and page numbers are read from tables."""
    g = parse_graph(PAGED)
    names = {a.name for a in g.axes}
    t = next(n for n in names if n.startswith("length"))
    return Case(
        schedule(g, kernel(g, f"b unit, s grid, {t} loop", {"s": 32, t: 32, "n32": 32}, "s")),
        ({"b": 3, "s": 20, "pages": 12, "slots": 4},),
        {"length": (50, 0, 37), "table": (3, 1, 7, 11, 0, 2, 4, 5, 9, 8, 10, 6)},
    )


CASES = {
    "matmul": matmul,
    "matmul, four stages": lambda: matmul(stages=4),
    "matmul, other storage orders": matmul_stored_otherwise,
    "matmul, aligned": matmul_aligned,
    "matmul, bfloat16": matmul_bfloat16,
    "matmul, split, two launches": lambda: matmul_split("second-launch"),
    "matmul, split, last arriving": lambda: matmul_split("last-arriving"),
    "attention": attention,
    "attention, causal": lambda: attention("causal"),
    "attention, window": lambda: attention("window"),
    "attention, negative scale": lambda: attention("negative"),
    "attention, bfloat16": lambda: attention("causal", "bfloat16"),
    "attention, chain through shared memory": lambda: attention("causal", chain="shared"),
    "attention, several passes": lambda: attention("causal", absorb=False),
    "attention, grouped rows": attention_grouped,
    "attention, three heads, a scale and a mask from outside": attention_three_heads,
    "attention, split, two launches": lambda: attention_split("second-launch"),
    "attention, split, last arriving": lambda: attention_split("last-arriving", sliced=True),
    "softmax": softmax,
    "rmsnorm and linear": rmsnorm_linear,
    "rmsnorm and linear, through shared memory": lambda: rmsnorm_linear("shared"),
    "gated": gated,
    "normalised keys": key_norm,
    "paged": paged,
}
CASES = {name: cache(make) for name, make in CASES.items()}
"""Each made once: what is generated of it is, too."""


def inputs(case: Case, sizes: Sizes, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Fresh values of every input, negative ones and zeros among them."""
    g = case.schedule.graph
    arrays = drawn(g, sizes, rng, 0.1)
    for i in g.inputs:
        if i.name in case.tables:
            arrays[i.name] = np.asarray(case.tables[i.name], dtype=i.dtype).reshape(arrays[i.name].shape)
        elif i.dtype != "bool":
            # A scalar scales scores: weights below the least normal float16 lose bits that the metric does not allow.
            arrays[i.name] = round_to(arrays[i.name] * (1.0 if i.shape else 0.2), i.dtype)
    return arrays
