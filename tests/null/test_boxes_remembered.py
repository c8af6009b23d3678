"""What the cost model remembers of a program's boxes under one binding is what it would find out under another."""

import dataclasses

import pytest

from cleave import Target, nn
from cleave.candidate import as_written
from cleave.cost.lanes import kernel_work
from cleave.cost.program import reading_of
from cleave.schedule import schedule
from cleave.tile.program import loops

MATMULS = [{"m": 77, "n": 96, "k": 264}, {"m": 77, "n": 100, "k": 264}, {"m": 77, "n": 96, "k": 261}]
"""Rows that are whole vectors, and columns or sums that are not: what a call has to meet depends on the dims."""


@pytest.mark.parametrize("operator", ["matmul", "attention"])
def test_an_answer_is_that_of_a_program_that_was_asked_nothing(operator: str) -> None:
    shapes = MATMULS
    if operator == "attention":
        shapes = [
            {"b": 1, "kv_heads": 2, "group": 3, "s": s, "t": t, "d": 64, "e": 72} for s, t in ((64, 136), (9, 45))
        ]
    c = as_written(nn.matmul() if operator == "matmul" else nn.attention(causal=True))
    asked = [
        (k.program, dataclasses.replace(k.binding, tiles={**k.binding.tiles, **other}), {**s.bind, **dims})
        for dims in shapes
        for s in schedule(c, Target("sm_90a"), dims, keep=24)
        for k in s.kernels
        for other in ({}, {a.axis: 12 for a in loops(k.program)})  # no whole vectors: such tiles come in no box
    ]
    assert len({binding.key for _, binding, _ in asked}) > 10
    reading_of.cache_clear()
    together = [kernel_work(*one, "tma") for one in asked if not one[1].lanes]
    alone = []
    for one in asked:
        reading_of.cache_clear()
        if not one[1].lanes:
            alone.append(kernel_work(*one, "tma"))
    assert together == alone
    assert len({frozenset(w.multiples.items()) for w in together}) > (operator == "matmul")
