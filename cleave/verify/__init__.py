"""Equivalence checking: is a candidate what it claims to be? Gets graphs and callables, never a kernel.

1. Small instantiations in float64: every relation of sizes, nothing divides, S = 1, 1 < S < extent, S > extent; and
   folds on random chunkings, joined in any order and absorbed. Large literal extents are freed for that.
   The same instances in finite fields, where equality is exact: outputs that they leave open are named.
2. Medium shapes in float64, with adversarial values.
3. The final test. Graph half: the user's shapes at sampled points. Kernel half: the operator on whole rows.
"""

from __future__ import annotations

from cleave.verify.check import verify
from cleave.verify.final import check_executable, compare_rows, draw_rounded
from cleave.verify.metric import Comparison, Tolerance, compare, graph_tolerance, magnitude, storage, with_magnitudes
from cleave.verify.reference import References
from cleave.verify.verdict import Check, Outcome, Step, Verdict

__all__ = [
    "Check",
    "Comparison",
    "Outcome",
    "References",
    "Step",
    "Tolerance",
    "Verdict",
    "check_executable",
    "compare",
    "compare_rows",
    "draw_rounded",
    "graph_tolerance",
    "magnitude",
    "storage",
    "verify",
    "with_magnitudes",
]
