# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Attention, stage by stage
#
# A tensor program goes through five stages: a graph, equal forms of it, proof by test, tiles, CUDA. Each stage takes
# and returns data that can be looked at, saved and changed. Nothing below needs a GPU.

# %%
import numpy as np

import cleave
from cleave import ops

# %% [markdown]
# ## 1. A graph
#
# Axes have names, extents are symbols. Only the two head sizes are fixed, so a compiled kernel takes any number of
# heads, queries and keys.


# %%
def attention(q, k, v):
    p = ops.softmax(ops.einsum("hsd,htd->hst", q, k) * 0.125, axis="t")
    return ops.einsum("hst,hte->hse", p, v)


g = cleave.trace(attention, q="h s d=64", k="h t d", v="h t e=64", dtype="float16")
g

# %% [markdown]
# The same as text. It parses back, and equal graphs are the same whatever their axes are called.

# %%
print(g.text())

# %% [markdown]
# The meaning of a graph is its value in float64; everything later is compared with it.

# %%
from cleave.ir.interp import interpret

rng = np.random.default_rng(0)
q, k, v = rng.standard_normal((2, 3, 64)), rng.standard_normal((2, 5, 64)), rng.standard_normal((2, 5, 64))
scores = np.einsum("hsd,htd->hst", q, k) * 0.125
weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
np.abs(interpret(g, {"q": q, "k": k, "v": v})["out"] - np.einsum("hst,hte->hse", weights, v)).max()

# %% [markdown]
# The usual operators are in `cleave.nn`, as graphs of the same primitives: attention with masks and a log-sum-exp,
# norms, SwiGLU, LoRA, routing to experts, whole decoder layers. `cleave operators` lists them on the command line.

# %%
from cleave import nn

for name, operator in nn.OPERATORS.items():
    print(f"{name:20}{operator.summary}")

# %% [markdown]
# ## 2. Equal forms
#
# Rules rewrite the graph in an e-graph until nothing new appears. Here one of them is switched off. The report says why
# the search stopped, how often each rule matched, and which axes may be reduced in pieces.

# %%
found = cleave.search(g, rules=cleave.Rulebook.default().without("reassoc"))
found.report

# %%
found

# %% [markdown]
# The best candidate that splits axis `t`: partial maxima, sums and accumulators for each chunk of keys, and a combine
# that rescales them. Nobody wrote that down; it follows by these rewrites.

# %%
c = found.pick(split="t")
c

# %%
for step in c.steps:
    print(f"{step.rule:12s} at {step.place}\n    {step.before}\n ->  {step.after}")

# %% [markdown]
# The combine gives the candidate *folds*: how a state is restated when it meets another one. A fold lets dependent
# reductions run in one loop.

# %%
for fold in c.folds:
    print(
        f"over {fold.axis}:",
        *(f"  {member.op}: {carry}" for member, carry in zip(fold.members, fold.carry, strict=True)),
        sep="\n",
    )

# %% [markdown]
# ## 3. Proof by test
#
# Every candidate is compared with the input graph in float64: at sizes that divide nothing, with one chunk, some, and
# more chunks than keys, with awkward data, and at sampled points of the shape that is wanted.

# %%
cleave.verify(c, bind={"h": 32, "s": 16, "t": 4096})

# %% [markdown]
# Equal over the reals is not equal in float32. What rounding does to the candidate, beside what it does to the graph as
# it was written, over a few draws:

# %%
print(c.numerics)

# %% [markdown]
# ## 4. Tiles
#
# One binding of the symbols chooses tiles and the number of chunks. The program below is what one block of threads
# does; the loop over tiles with its carried state comes from the fold. The time is the cost model's.

# %%
plan = cleave.schedule(c, cleave.Target("sm_90a"), bind={"h": 32, "s": 16, "t": 4096})[0]
plan

# %% [markdown]
# Why is it so? The explanation lists the other ways to cut and merge with their modelled times, the loops and why each
# reduction is where it is, what was refused, and how near each kernel is to the ceilings of the device.

# %%
why = cleave.explain(c, bind={"h": 32, "s": 16, "t": 4096}).schedules
print(*why.split_lines(), sep="\n")
why

# %% [markdown]
# A tile program runs on an interpreter, here at sizes that divide nothing.

# %%
from cleave.tile.interp import run_schedule

q, k, v = rng.standard_normal((2, 7, 64)), rng.standard_normal((2, 333, 64)), rng.standard_normal((2, 333, 64))
tiled = run_schedule(plan, {"q": q, "k": k, "v": v})["out"]
np.abs(tiled - interpret(g, {"q": q, "k": k, "v": v})["out"]).max()

# %% [markdown]
# ## 5. CUDA
#
# The schedule becomes CUDA C++ and is compiled for its target. Registers, shared memory and spills are read from the
# machine code. With a GPU, `f(q, k, v)` runs it.

# %%
f = cleave.emit(plan)
print(*f.resources, sep="\n")

# %%
print("\n".join(f.source.splitlines()[-60:]))

# %% [markdown]
# ## All of it at once
#
# `optimize` does the same in order, with every candidate, and on a GPU checks and times the kernels. The result can be
# saved to a folder and loaded again.

# %%
result = cleave.optimize(g, {"h": 4, "s": 16, "t": 256})
result
