"""Machine code of schedules that an experiment chooses among, made before it is needed."""

from __future__ import annotations

from collections.abc import Sequence

from cleave.tile.plan import Schedule
from cleave.tune.plan import prepared


def compiled(plans: Sequence[Schedule]) -> None:
    """Fill the cache; what does not compile is found again, and named, where it is used."""
    for plan in plans:
        prepared(plan)
