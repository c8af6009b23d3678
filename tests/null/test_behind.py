"""A maximum that a loop only subtracts may stay behind: emulated kernels, mutants, and which maxima may."""

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cleave.codegen import behind
from cleave.codegen.emulator import emulate
from cleave.codegen.generate import generate
from cleave.codegen.prelude import KERNEL_MARK
from cleave.ir.bind import bind_dims
from cleave.ir.graph import Map, Ref, Term
from cleave.ir.index import evaluate
from cleave.ir.op import round_to
from cleave.kernel import OperatorSource
from cleave.tile.program import Accumulator, Let, Loop, Stmt, Update
from tests.null import codegen_cases as cases
from tests.null.codegen_cases import Case
from tests.null.test_codegen_mutants import passes
from tests.null.test_specialised import LATENT, latent, specialised
from tests.null.test_warpgroups import attention

Array = np.ndarray[Any, np.dtype[Any]]


def rising(case: Case, sizes: cases.Sizes, rng: np.random.Generator) -> dict[str, Array]:
    """Inputs whose scores grow along the keys: in some trips by more than ``BEHIND``, in others by less."""
    out: dict[str, Array] = {}
    dims = bind_dims(case.schedule.graph, {}, sizes)
    for i in case.schedule.graph.inputs:
        shape = tuple(int(evaluate(e, dims)) for e in i.shape)
        out[i.name] = rng.normal(size=shape) * (4 if i.name == "q" else 0.5)
    for name in out.keys() & {"k", "c"}:
        keys = out[name].shape[-2]
        out[name] = out[name] * (0.2 + 3 * rng.random(keys) * np.arange(keys) / max(keys, 1))[:, None]
    return {name: round_to(a, "float16") for name, a in out.items()}


def wide() -> Case:
    """Of a wide head two warpgroups have 64 registers each; its log sum exp shows the maximum itself."""
    text = LATENT.replace("r = 128", "r = 256")
    return latent(text, t=32)


CASES: dict[str, Callable[[], Case]] = {
    "one warpgroup": lambda: attention("full", head=128),
    "two warpgroups, causal": lambda: attention("causal", head=128, rows=128),
    "columns in two parts, the maximum is read later": wide,
}


def own_text(operator: OperatorSource) -> str:
    return operator.kernels[0].text.split(KERNEL_MARK)[1]


@pytest.mark.parametrize("name", CASES)
def test_sums_are_right_whether_the_number_has_moved_or_not(name: str, rng: np.random.Generator) -> None:
    case = specialised(CASES[name]())
    operator = generate(case.schedule)
    assert "if (m1_moved" in own_text(operator)
    for sizes in case.sizes:
        assert passes(operator, case, sizes, rng, drawn=rising), sizes


MUTANTS = {
    "sums are not restated when the number moves": (r"if \(m1_moved\w*\)", "if (false)"),
    "the number never follows": (r"if \(!\(m1\[h\] - m1_subtracted", "if (false && !(m1[h] - m1_subtracted"),
    "a sum does not catch up with the maximum": (r"exp_diff\(m1_subtracted\[h\], m1\[h\]\) \* ", ""),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught(name: str, rng: np.random.Generator) -> None:
    case = specialised(CASES["columns in two parts, the maximum is read later"]())
    operator = generate(case.schedule)
    head, own = operator.kernels[0].text.split(KERNEL_MARK)
    changed = re.sub(MUTANTS[name][0], MUTANTS[name][1], own)
    assert changed != own, "the mutant changes nothing"
    kernel = dataclasses.replace(operator.kernels[0], text=head + KERNEL_MARK + changed)
    mutant = dataclasses.replace(operator, kernels=(kernel,))
    assert not all(passes(mutant, case, case.sizes[0], rng, drawn=rising) for _ in range(4))


def test_nan_is_followed(rng: np.random.Generator) -> None:
    case = specialised(attention("full", head=128))
    sizes = {"b": 1, "kv": 1, "s": 3, "t": 75}
    values = rising(case, sizes, rng)
    values["q"][0, 0, 1, 5] = np.nan
    found = emulate(generate(case.schedule), values, sizes)["out"]
    assert np.isnan(found[0, 0, 1]).all() and np.isfinite(np.delete(found[0, 0], 1, axis=0)).all()


def test_narrow_sums_are_multiplied_in_every_trip() -> None:
    assert "m1_moved" not in own_text(generate(specialised(attention("full")).schedule))


# ---- which maxima


def loop_of_attention() -> Loop:
    return next(s for s in attention("full", head=128).schedule.kernels[0].program.body if isinstance(s, Loop))


def changed(change: Callable[[Loop, Accumulator], Loop]) -> bool:
    """Whether the maximum of attention may stay behind in a loop that was changed."""
    loop = loop_of_attention()
    m = next(c for c in loop.accumulators if c.op == "max")
    return behind.is_only_subtracted(change(loop, m), m)


def more(loop: Loop, *statements: Stmt) -> Loop:
    return dataclasses.replace(loop, body=(*loop.body, *statements))


def with_carry(loop: Loop, name: str, change: Callable[[Term], Term | None]) -> Loop:
    def carried(c: Accumulator) -> Accumulator:
        assert c.carry is not None or c.name != name
        return dataclasses.replace(c, carry=change(c.carry)) if c.name == name and c.carry is not None else c

    accumulators = tuple(map(carried, loop.accumulators))
    by_name = {c.name: c for c in accumulators}
    body = tuple(
        dataclasses.replace(s, accumulator=by_name[s.accumulator.name]) if isinstance(s, Update) else s
        for s in loop.body
    )
    return dataclasses.replace(loop, accumulators=accumulators, body=body)


def test_a_maximum_that_is_only_subtracted_may() -> None:
    assert changed(lambda loop, m: loop)


def test_one_that_is_read_for_itself_may_not() -> None:
    def doubled(loop: Loop, m: Accumulator) -> Loop:
        return more(loop, Let("twice", m.axes, Map("add", (Ref(m.name, m.axes), Ref(m.name, m.axes)))))

    def subtracted_from_more(loop: Loop, m: Accumulator) -> Loop:
        twice = Map("add", (Ref(m.name, m.axes), Ref(m.name, m.axes)))
        return more(loop, Let("x", m.axes, Map("exp_diff", (twice, Ref(m.name, m.axes)))))

    assert not changed(doubled) and not changed(subtracted_from_more)


def test_one_relative_to_which_something_else_is_carried_may_not() -> None:
    """A sum that is not restated, a maximum, and a sum that is restated by something else."""
    lets = [s for s in loop_of_attention().body if isinstance(s, Let)]
    weights = next(s for s in lets if isinstance(s.term, Map) and s.term.op == "exp_diff")

    def carried(op: str) -> Callable[[Loop, Accumulator], Loop]:
        def change(loop: Loop, m: Accumulator) -> Loop:
            other = Accumulator("other", op, weights.axes)
            loop = dataclasses.replace(loop, accumulators=(*loop.accumulators, other))
            return more(loop, Update(other, Ref(weights.name, weights.axes)))

        return change

    assert not changed(carried("sum")) and not changed(carried("max"))
    assert not changed(lambda loop, m: with_carry(loop, "s1", lambda c: None))


def test_a_carry_that_multiplies_by_more_is_done_in_every_trip() -> None:
    """Only where it is the difference of the two numbers alone does it change nothing while they are alike."""
    wide_sum = next(c for c in loop_of_attention().accumulators if c.name == "s2")
    emission = type("Emission", (), {"behind": {"m1": behind.Behind("m1", "m1_moved")}})()
    assert behind.moved(emission, wide_sum) == "m1_moved"
    assert wide_sum.carry is not None
    twice = dataclasses.replace(wide_sum, carry=Map("mul", (wide_sum.carry, wide_sum.carry)))
    assert behind.moved(emission, twice) == ""
