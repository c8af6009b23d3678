"""Equivalence checking: is a candidate what it claims to be? Gets graphs and callables, never a kernel.

1. Small instantiations in float64: every relation of sizes, nothing divides, S = 1, 1 < S < extent, S > extent; and
   folds on random chunkings, joined in any order and absorbed. Large literal extents are freed for that.
   The same instances in finite fields, where equality is exact: outputs that they leave open are named.
2. Medium shapes in float64, with adversarial values.
3. The final test. Graph half: the user's shapes at sampled points. Kernel half: the operator on whole rows.

Of 87 planted candidates that are right at every small size (``tests/null/plants.py``: wrong beyond a position, at an
end, in a tail tile, in one head, row or element, for a split that does not divide, in one chunk, in one term of a sum)
the graph half finds all. What passes although it is wrong:

* a mistake at sizes that are neither small nor bound, or for a count of chunks that is not bound: with ``bind`` at
  the size and the count it is found;
* a mistake that depends on values which no draw has: a minimum with 1e6 where |x| < 2e4;
* a mistake below 1e-7 of the sum of |terms|, where the finite field leaves the output open;
* in the kernel, a single element in a row that is not among those that are compared.
"""

from __future__ import annotations

from cleave.verify.check import verify
from cleave.verify.kernel_half import check_executable, check_outputs, draw_rounded, expected_rows, poisoned
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
    "check_outputs",
    "compare",
    "draw_rounded",
    "expected_rows",
    "graph_tolerance",
    "magnitude",
    "poisoned",
    "storage",
    "verify",
    "with_magnitudes",
]
