"""Autotuning: schedules of all candidates of a graph, compiled beside one another, checked, and timed in turn.

tune      candidates -> the fastest schedule and a table of what was tried, kept in a file of records
replay    a pinned schedule -> the operator that it stands for, checked to be of the same text
"""

from __future__ import annotations

from cleave.tune.pin import replay
from cleave.tune.tuned import Row, Tuned
from cleave.tune.tuner import tune

__all__ = ["Row", "Tuned", "replay", "tune"]
