"""The driver: the phases in order, and what they give together. The only part that knows the order.

search, verify, schedule    one phase each, from the parts that do them
variants                    schedules for calls of many shapes, and the rule that picks one
emit                        schedule, or variants -> executable
optimize                    all of these and, on a GPU, a check of the kernel and a measurement
explain                     how candidates follow from a graph, for people
equal                       are two graphs equal, and why
load                        a saved result
"""

from __future__ import annotations

from cleave.pipeline.emission import emit
from cleave.pipeline.equality import Equality, equal
from cleave.pipeline.explanation import Explanation, explain
from cleave.pipeline.optimizer import optimize
from cleave.pipeline.result import Build, Forced, Report, Result, Trial
from cleave.pipeline.saved import load
from cleave.pipeline.varying import variants

__all__ = [
    "Build",
    "Equality",
    "Explanation",
    "Forced",
    "Report",
    "Result",
    "Trial",
    "emit",
    "equal",
    "explain",
    "load",
    "optimize",
    "variants",
]
