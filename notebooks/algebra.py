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
# # The algebra: search, explain, compare, and a rule of your own
#
# The first half of cleave stands alone: a graph goes in, equal graphs come out, each with the steps that lead to it.
# Nothing below needs a GPU.

# %%
from pathlib import Path

import cleave
from cleave import nn, ops

# %% [markdown]
# ## 1. Search
#
# Softmax over scores, then a product with values, written the plain way.


# %%
def weighted(s: "m n", v: "n e"):  # noqa: F722
    return ops.einsum("mn,ne->me", ops.softmax(s, axis="n"), v)


g = cleave.trace(weighted, s="m n", v="n e", dtype="float16")
found = cleave.search(g)
found

# %% [markdown]
# All candidates come from one e-graph: a box is a class of equal terms, a line in it is one way to compute them. A
# drawing that leaves something out says how much.

# %%
found.egraph

# %% [markdown]
# ## 2. Explain
#
# How a candidate follows: numbered steps, each a rule at a place. Every step is evaluated on several small instances; a
# step that is false stands at the top as an error. The table says which axes may be reduced in pieces, and why.

# %%
split = found.pick(split="n")
e = cleave.explain(found, candidate=found.candidates.index(split))
print(e.text())

# %% [markdown]
# The same with drawings, as a notebook shows it, and as Markdown.

# %%
e

# %%
print(e.markdown().partition("## derivation")[2][:1000])

# %% [markdown]
# Where an axis can't be split, the operator that blocks it is named. Rounding to whole numbers needs the maximum of the
# whole row, and no rule takes a factor through `round`:

# %%
cleave.search(nn.quantised_matmul()).report.reducibility

# %% [markdown]
# ## 3. Equal or not
#
# Two graphs are equal if the rules lead from one to the other:


# %%
def unsafe(s, v):
    p = ops.exp(s)
    return ops.einsum("mn,ne->me", p / ops.sum(p, axis="n"), v)


cleave.equal(g, cleave.trace(unsafe, s="m n", v="n e", dtype="float16"))


# %% [markdown]
# A small instance tells graphs apart that are not equal:


# %%
def unnormalised(s, v):
    return ops.einsum("mn,ne->me", ops.exp(s), v)


cleave.equal(g, cleave.trace(unnormalised, s="m n", v="n e", dtype="float16"))


# %% [markdown]
# Where neither is found, the answer says what is left to show, and which guard stood nearest. A gain can be folded into
# a weight, but that pays only if both are known beforehand, so the rule asks for that:


# %%
def scaled(x, g, w):
    return ops.einsum("mk,kn->mn", x * g, w)


def folded(x, g, w):
    return ops.einsum("mk,kn->mn", x, g[:, None] * w)


one, two = (cleave.trace(f, x="m k", g="k", w="k n") for f in (scaled, folded))
cleave.equal(one, two)

# %% [markdown]
# Say that they are weights, and the graphs are equal.

# %%
cleave.equal(one, two, weights=("g", "w"))

# %% [markdown]
# ## 4. A rule of your own
#
# The rulebook does not know that the hyperbolic tangent is odd. A rule file is egglog text with a comment above each
# rule that says what it is, what it assumes and where it comes from.

# %%
Path("own.egg").write_text("""(ruleset own)

; tanh-odd
;   tanh(-a)  =  -tanh(a)
; class:   exact
; assumes: nothing
; source:  the hyperbolic tangent is odd
; guards:  none
(rewrite (Tanh (Neg a)) (Neg (Tanh a)) :ruleset own :name "tanh-odd")
""")
book = cleave.Rulebook.default().with_files("own.egg")
mirrored = cleave.trace(lambda x: ops.sum(ops.tanh(-x), axis="n"), x="m n")
plain = cleave.trace(lambda x: ops.sum(-ops.tanh(x), axis="n"), x="m n")
cleave.equal(mirrored, plain, rules=book)

# %%
cleave.explain(cleave.search(mirrored, book), rules=book)

# %% [markdown]
# A wrong rule is refused before it can do harm, with an instance that shows why.

# %%
Path("wrong.egg").write_text("""(ruleset wrong)

; log-of-sum
;   log(a + b)  =  log(a) + log(b)
; class:   exact
; assumes: nothing
; source:  a mistake
; guards:  none
(rewrite (Log (Add a b)) (Add (Log a) (Log b)) :ruleset wrong :name "log-of-sum")
""")
try:
    cleave.equal(mirrored, plain, rules=cleave.Rulebook.default().with_files("wrong.egg"))
except cleave.CleaveError as error:
    print(error)
