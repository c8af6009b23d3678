"""Merges that the blocks divide, in a cluster or waiting for one another: right for every split candidate."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from cleave import nn
from cleave.candidate import load_candidates
from cleave.codegen.emulator import emulate
from cleave.codegen.generate import generate
from cleave.codegen.prelude import KERNEL_MARK
from cleave.errors import CleaveError, CodegenError, ScheduleError
from cleave.kernel import OperatorSource
from cleave.schedule import schedule
from cleave.target import Target
from cleave.tile.check import check_sent
from cleave.tile.plan import Merge, Schedule
from cleave.tile.program import Store, statements
from experiments.e04_decode.search import candidate_of
from tests.null.scheduled_candidates import CASES, Case
from tests.null.searched import searched
from tests.null.test_codegen_scheduled import SPLIT, agrees

H200 = Target("sm_90a")


def clustered(
    case: Case, count: int, skeleton: str = "warp-ring", merge: Merge = "cluster", **tile: int
) -> tuple[Schedule, ...]:
    base = case.candidate.splits[0].base
    return schedule(case.candidate, H200, case.shape, merge=merge, split={base: count}, skeleton=skeleton, tile=tile)


@pytest.mark.parametrize("skeleton", ["cta-ring", "warp-ring"])
@pytest.mark.parametrize("name", SPLIT)
def test_blocks_of_a_cluster_merge_right(name: str, skeleton: str, rng: np.random.Generator) -> None:
    case = CASES[name]()
    for count in (3, 8) if skeleton == "warp-ring" else (2,):
        plan = clustered(case, count, skeleton)[-1 if count == 3 else 0]
        (kernel,) = generate(plan).kernels
        assert kernel.cluster == count and kernel.architectures == ("sm_90a",)
        assert not [w for w in generate(plan).workspaces if w.zeroed], "a cluster needs no counter"
        for least in (0, 1):
            sizes = case.suiting(plan, case.draw(rng, least=least))
            assert agrees(case, plan, sizes, rng), f"{sizes}\n{plan}"


def split_matmul() -> Case:
    g = nn.matmul(n=192, k=456)
    split = next(c for c in searched(g).candidates if c.splits)
    return Case(split, {"m": 100}, {"m": 150})


@pytest.mark.parametrize("count", [2, 3, 8])
@pytest.mark.parametrize("make", [CASES["flash decoding of any group"], split_matmul])
def test_blocks_whose_loaders_go_first_merge_right(
    make: Callable[[], Case], count: int, rng: np.random.Generator
) -> None:
    case = make()
    plan = clustered(case, count, "specialised")[-1 if count == 3 else 0]
    first, second = plan.kernels
    assert first.binding.loaders and not second.binding.loaders
    (kernel,) = generate(plan).kernels
    assert kernel.cluster == count
    own = kernel.text.split(KERNEL_MARK)[1]
    assert "gridDim" not in own, "a block has one tile: those of a cluster are the chunks of one"
    for least in (0, 1):
        sizes = case.suiting(plan, case.draw(rng, least=least))
        assert agrees(case, plan, sizes, rng), f"{sizes}\n{plan}"


def test_loaders_allow_no_merge_but_in_a_cluster() -> None:
    case = CASES["flash decoding of any group"]()
    for merge in ("last-arriving", "spread"):
        with pytest.raises(
            ScheduleError, match=f"specialised has no merge '{merge}': allowed are none, second-launch, cluster"
        ):
            clustered(case, 2, "specialised", merge)


@pytest.mark.parametrize("skeleton", ["cta-ring", "warp-ring"])
@pytest.mark.parametrize("name", SPLIT)
def test_blocks_that_wait_for_one_another_merge_right(name: str, skeleton: str, rng: np.random.Generator) -> None:
    case = CASES[name]()
    for count in (3, 11) if skeleton == "warp-ring" else (2,):
        plan = clustered(case, count, skeleton, "spread")[-1 if count == 3 else 0]
        (kernel,) = generate(plan).kernels
        assert (kernel.cluster, kernel.together) == (1, count)
        for least in (0, 1):
            sizes = case.suiting(plan, case.draw(rng, least=least))
            assert agrees(case, plan, sizes, rng), f"{sizes}\n{plan}"


def test_slices_of_wide_outputs_are_shared_among_blocks_and_teams(rng: np.random.Generator) -> None:
    case = CASES["matmul split"]()
    plan = next(p for p in clustered(case, 2, n=64) if p.kernels[0].binding.teams == 4)
    first, second = plan.kernels
    column = next(a for a in second.program.grid if a.name == "n")
    assert (first.binding.tile(column), second.binding.tile(column)) == (64, 8)
    text = generate(plan).kernels[0].text
    assert re.search(r"int slice = \w+_o_tile \+ team \* 2; slice < 8; slice \+= 8", text)
    assert agrees(case, plan, case.suiting(plan, {"m": 19, "n": 83, "k": 150}), rng)


def test_blocks_send_their_parts_and_read_nobody_elses_memory() -> None:
    """Who reads keeps the other from ending. As many bytes are expected as are sent: rows that exist, by eights."""
    case = CASES["matmul split"]()
    for count in (2, 3):
        own = generate(clustered(case, count, n=64)[0]).kernels[0].text.split(KERNEL_MARK)[1]
        assert "cluster_send_two(" in own and "cluster_barrier" not in own
        assert own.index("mbarrier_expect(arrived") < own.index("cluster_arrive();") < own.index("cluster_wait();")
        assert own.index("cluster_wait();") < own.index("cluster_send_two(") < own.index("mbarrier_wait(arrived, 0);")
        (expected,) = re.findall(r"mbarrier_expect\(arrived, (.*)\);", own)
        assert expected.startswith(f"{count} * (") and "8 * greatest(least(" in expected


def test_more_chunks_than_a_cluster_has_blocks_are_refused() -> None:
    case = CASES["matmul split"]()
    with pytest.raises(ScheduleError, match="split count 9 in a cluster: allowed is at most 8 on sm_90a"):
        clustered(case, 9)
    with pytest.raises(ScheduleError, match="split count 2 in a cluster: allowed is none on sm_80"):
        schedule(case.candidate, Target("sm_80"), case.shape, merge="cluster", split={"k": 2})
    with pytest.raises(ScheduleError, match="merge in a cluster: allowed is none on sm_80"):
        schedule(case.candidate, Target("sm_80"), case.shape, merge="cluster")
    plan = clustered(case, 8)[0]
    with pytest.raises(CodegenError, match="a cluster of 8 blocks: sm_80 allows at most 1"):
        generate(dataclasses.replace(plan, target=Target("sm_80")))


def test_every_schedule_in_a_cluster_can_be_emitted() -> None:
    """Memory for what blocks send one another is counted as it is taken, also where slices are fewer than blocks."""
    candidate, shape = candidate_of("matmul", "k"), {"m": 64, "n": 4096, "k": 4096}
    for count in (2, 6):
        plans = schedule(
            candidate, H200, shape, merge="cluster", split={"k": count}, tile={"n": 256}, mma="wgmma", keep=24
        )
        assert plans
        for plan in plans:
            generate(plan)


MUTANTS: dict[str, tuple[Merge, str, str]] = {
    "nobody waits for what is sent": ("cluster", r"mbarrier_wait\(arrived, 0\);", ""),
    "mbarriers may not be open yet": ("cluster", r"cluster_wait\(\);", ""),
    "one block's bytes are not expected": ("cluster", r"(mbarrier_expect\(arrived, )3 \*", r"\1 2 *"),
    "more bytes are expected than come": ("cluster", r"(mbarrier_expect\(arrived, )3 \*", r"\1 4 *"),
    "everything goes to the first block": ("cluster", r", [^,;]* % 3\)", ", 0)"),
    "every part takes the first one's place": ("cluster", r"\(\(\w+_o_tile\) \*", "((0) *"),
    "parts are merged in another turn": ("cluster", r"slice / 3\)", "0)"),
    "slices of one block only": ("cluster", r"int slice = (\w+)[^;]*;", r"int slice = 8 * \1;"),
    "nobody waits": ("spread", r"wait_for\([^;]*\);", ""),
    "one block is not waited for": ("spread", r"(wait_for\([^;]*), 3\);", r"\1, 2);"),
    "the counter stays": ("spread", r"if \(arrive\(.*reset\(.*;", ""),
    "the counter is reset by who comes last": ("spread", r"== 2 \* 3 - 1", "== 3"),
    "others are read before the block has waited": ("spread", r"(?<=reset)(\(.*;\n *\}\n) *block_barrier\(\);", r"\1"),
}


@cache
def joined(merge: Merge) -> tuple[Schedule, OperatorSource]:
    """What is made wrong."""
    plan = clustered(CASES["matmul split"](), 3, merge=merge, n=64)[0]
    return plan, generate(plan)


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_of_the_merge_are_caught(name: str, rng: np.random.Generator) -> None:
    case = CASES["matmul split"]()
    merge, pattern, new = MUTANTS[name]
    plan, operator = joined(merge)
    head, own = operator.kernels[0].text.split(KERNEL_MARK)
    changed, count = re.subn(pattern, new, own)
    assert count and changed != own
    kernel = dataclasses.replace(operator.kernels[0], text=head + KERNEL_MARK + changed)
    mutant = dataclasses.replace(operator, kernels=(kernel,))
    sizes = {"m": 16, "n": 128, "k": 600, **plan.bind}
    inputs = case.inputs(rng, sizes)
    wanted = emulate(operator, inputs, sizes)

    def passes() -> bool:
        try:
            found = emulate(mutant, inputs, sizes, int(rng.integers(2**31)))
        except CleaveError:
            return False
        return all(np.array_equal(found[n], wanted[n]) for n in wanted)

    assert not all(passes() for _ in range(12))


@pytest.mark.parametrize("merge", ["cluster", "spread", "last-arriving"])
@pytest.mark.parametrize("n", [80, 8, 120])
def test_a_slice_beyond_the_end_of_a_known_axis_is_left_out(n: int, merge: Merge, rng: np.random.Generator) -> None:
    """An axis that ends inside a tile may end where a slice of it begins."""
    found = searched(nn.matmul(n=n)).candidates
    shape = {"m": 16, "k": 2048}
    case = Case(next(c for c in found if [x.base for x in c.splits] == ["k"]), shape, {})
    plan = clustered(case, 2, merge=merge, **({"n": 64} if n > 64 else {}))[0]
    for m in (1, 21):
        sizes = case.suiting(plan, {"m": m, "k": 150, **plan.bind})
        assert agrees(case, plan, sizes, rng), f"{sizes}\n{plan}"


def test_partials_stored_in_a_loop_are_not_sent() -> None:
    """Latent attention whose columns a loop takes tile by tile: the next tile would come where the first one lies."""
    path = Path(__file__).parents[2] / "experiments" / "e02_dynamic" / "candidates"
    every = load_candidates(path / "mla_paged_decode_h16_ckv512_kpe64_ps1.json")
    c = next(c for c in every if c.splits)
    dims, split = {"b": 5, "num_pages": 900, "num_kv_indices": 900}, {c.splits[0].base: 4}

    plan = schedule(c, H200, dims, skeleton="warp-ring", merge="last-arriving", split=split)[0]
    (first, coarse), (second, fine) = ((k.program, k.binding) for k in plan.kernels)
    assert any(s not in first.body for s in statements(first.body) if isinstance(s, Store))
    generate(plan)
    with pytest.raises(ScheduleError, match="part2 is stored in a loop, tile by tile: allowed is once"):
        check_sent(first, coarse, second, fine)
    with pytest.raises(ScheduleError, match="no kernel of warp-ring can run it"):
        schedule(c, H200, dims, skeleton="warp-ring", merge="cluster", split=split)
