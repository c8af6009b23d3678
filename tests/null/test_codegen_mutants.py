"""Wrong kernels, made by changing emitted text: the emulator must catch each, by value or by refusal."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

import numpy as np
import pytest

from cleave.codegen.emulator import emulate
from cleave.codegen.prelude import KERNEL_MARK
from cleave.errors import CleaveError
from cleave.verify import check_executable
from cleave.verify.verdict import Outcome
from tests.null import codegen_cases as cases
from tests.null.codegen_cases import CASES

CHAIN = r"a\[1\] = pack<f16>\(\w+\[2 \* kk\]\[2\], (\w+)\[2 \* kk\]\[3\]\);"
MUTANTS = {
    "no wait for the copies of a trip": (
        "attention, causal",
        r"copies_wait<0>\(\);(?=\n *block_barrier\(\);\n *\{)",
        "",
    ),
    "no barrier in a trip": ("attention, causal", r"(copies_wait<0>\(\);)\n *block_barrier\(\);(?=\n *\{)", r"\1"),
    "no barrier after a loop whose slots are used again": (
        "softmax",
        r"(copies_wait<0>\(\);)\n *block_barrier\(\);(?=\n *(#pragma|//))",
        r"\1",
    ),
    "ring one slot short": ("attention, causal", r"\(slot == 0 \? 1 : slot - 1\)", "slot"),
    "values not transposed": ("attention, causal", r"load_matrices_transposed\(", "load_matrices("),
    "fragments chained in the order of C": (
        "attention, causal",
        CHAIN,
        r"a[1] = pack<f16>(\1[2 * kk + 1][2], \1[2 * kk][3]);",
    ),
    "second rows are the first": ("attention, causal", r"\(s_start \+ \(row \+ 8\)\)", "(s_start + row)"),
    "rescale dropped": ("attention, causal", r"(factor\w*)\[h\] = exp_diff\(.*\);", r"\1[h] = 1.f;"),
    "no causal mask": ("attention, causal", r"if \(!\(.*<= 0\)\) \{", "if (false) {"),
    "no mask in the tail": ("attention", r"if \(!\(.*< 0\)\) \{", "if (false) {"),
    "scale applied twice": ("attention", r"0\.4328085\w*f?", "0.1298425f"),
    "quad not joined": ("attention, causal", r"quad_sum\((\w+\[h\])\)", r"\1"),
    "maximum of two lanes": ("attention, causal", r"quad_max\((\w+\[h\])\)", r"maximum(\1, shuffle_xor(\1, 1))"),
    "rows beyond the end stored": ("matmul", r"if \(m_row\[h\] < dim_m\)", "if (true)"),
    "columns beyond the end stored": ("matmul", r"if \(\(n_start \+ n \* 8 \+ pair\) < dim_n\) ", ""),
    "keys beyond the end read": ("attention", r"\(present \? (.*) : 0\), present \? 16 : 0", r"\1, 16"),
    "vector copies of unaligned rows": (
        "matmul",
        r"copy_elements\((.*), left\);",
        r"copy_chunk(\1, left > 0 ? 16 : 0);",
    ),
    "counter not reset": ("matmul, split, last arriving", r"if \(arrived_last\) reset\(.*\);", ""),
    "merge before the last block": ("matmul, split, last arriving", r"== 3 - 1;", "== 3 - 2;"),
    "arrives before the other warps wrote": (
        "matmul, split, last arriving",
        r"block_barrier\(\);(?=\n *if \(thread == 0\) \{\n *arrived_last)",
        "",
    ),
    "merges while it arrives": ("matmul, split, last arriving", r"block_barrier\(\);(?=\n *if \(!arrived_last)", ""),
    "accumulator never started": ("matmul", r"s1\[n\]\[e\] = 0\.f;", ""),
    "copies not committed": ("matmul, aligned", r"copies_commit\(\);", ""),
    "copies of misaligned chunks": ("matmul, aligned", r"\(present \? ", "(present ? 1 + "),
    "chained rows read before they are written": (
        "attention, chain through shared memory",
        r"warp_barrier\(\);(?=\n *#pragma unroll\n *for \(int kk)",
        "",
    ),
    "one warp skips a barrier": ("softmax", r"block_barrier\(\);(?=\n *\{)", "if (warp) block_barrier();"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_is_caught(name, rng):
    case_name, pattern, new = MUTANTS[name]
    assert is_caught(CASES[case_name](), pattern, new, rng)


def is_caught(
    case: cases.Case, pattern: str, new: str, rng: np.random.Generator, alignments: Sequence[int] = (1,)
) -> bool:
    """Whether the first kernel, changed in its own text, fails at one of the sizes of its case, and addresses."""
    operator = case.operator
    head, own = operator.kernels[0].text.split(KERNEL_MARK)
    changed, count = re.subn(pattern, new, own)
    assert count and changed != own, "the mutant changes nothing"
    kernel = dataclasses.replace(operator.kernels[0], text=head + KERNEL_MARK + changed)
    mutant = dataclasses.replace(operator, kernels=(kernel, *operator.kernels[1:]))
    return any(not passes(mutant, case, sizes, rng, n) for sizes in case.sizes for n in alignments)


def passes(
    operator, case: cases.Case, sizes: cases.Sizes, rng: np.random.Generator, alignment: int = 1, drawn=cases.inputs
) -> bool:
    """``drawn``: gives the inputs."""

    def run(inputs, outputs):
        seed = int(rng.integers(2**31))
        for name, found in emulate(operator, inputs, sizes, seed, alignment=alignment).items():
            outputs[name][...] = found

    try:
        result = check_executable(run, case.schedule.graph, drawn(case, sizes, rng), sizes)
    except CleaveError:
        return False
    return result.outcome is Outcome.PASSED
