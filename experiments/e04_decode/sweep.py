"""Split counts: at a few shapes the model's best schedules of each count are timed against one another, and torch.

One interleaved run a shape; of each count the best schedule of each merge, the unsplit one at count 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import product

from cleave.errors import CleaveError, ScheduleError
from cleave.records import Outcome, Record
from cleave.runtime.timing import Contender, time_contenders
from cleave.schedule import schedule
from cleave.target import Target
from cleave.tile.plan import Merge, Schedule
from cleave.tune.description import described, row, split_counts
from experiments.e04_decode.config import COUNTS, TARGET, Shape, Timed
from experiments.e04_decode.search import candidate_of
from experiments.e04_decode.timing import Baselines, Ours, decode_baselines, kept, matmul_baselines
from experiments.schedules import compiled
from experiments.tally import Checked

MERGES: tuple[Merge, ...] = ("second-launch", "last-arriving", "cluster")


def plan_sweep(graph: str, axis: str, dims: Shape) -> tuple[Schedule, ...] | str:
    """Plans of one shape, by count, compiled into the cache; or why there are none. A count that no schedule has is
    left out."""
    target, plans = Target(TARGET), list[Schedule]()
    try:
        plans += schedule(candidate_of(graph), target, dims)[:1]
        for count, merge in product(COUNTS, MERGES):
            with suppress(ScheduleError):  # a cluster has 8 blocks at most
                plans += schedule(candidate_of(graph, axis), target, dims, split={axis: count}, merge=merge)[:1]
    except CleaveError as error:
        return str(error)
    compiled(plans)
    return tuple(plans)


def sweep_decode(point: Timed, plans: Sequence[Schedule]) -> Checked:
    return swept(point.name, point.dims, plans, decode_baselines(point))


def sweep_matmul(dims: Shape, plans: Sequence[Schedule]) -> Checked:
    return swept(f"matmul m{dims['m']} n{dims['n']} k{dims['k']}", dims, plans, matmul_baselines(dims))


def swept(name: str, dims: Shape, plans: Sequence[Schedule], baselines: Baselines) -> Checked:
    """One record a schedule, with its ``splits`` (1: unsplit), and one a baseline."""
    out = Checked()
    made = [kept(name, plan, dims, baselines, out) for plan in plans]
    ours: dict[str, Ours] = {}
    for o in (o for o in made if o is not None):
        ours.setdefault(f"{o.plan.merge} x {count_of(o.plan)}", o)
    calls: dict[str, Sequence[Callable[[], object]]] = {label: o.calls for label, o in ours.items()}
    calls |= {n: [partial(f, s) for s in baselines.sets] for n, f in baselines.functions.items()}
    if not ours:
        return out
    times = time_contenders([Contender(n, c) for n, c in calls.items()])
    for contender, t in times.items():
        o = ours.get(contender)
        workload: dict[str, object] = {"operator": name, "contender": contender, "cold": True, **dims}
        record = Record(
            workload=workload if o is None else {**workload, "splits": count_of(o.plan)},
            outcome=Outcome.OK,
            candidate={} if o is None else {"name": o.plan.candidate},
            schedule={} if o is None else row(o.plan),
            check={} if o is None else {"distance": o.error},
            quantiles={q: 1e6 * v for q, v in t.as_dict().items() if q.startswith("q")},
            details={"regime": t.regime},
        )
        out.records.append(record)
    least = min(times[n].median for n in baselines.functions)
    out.lines.append(_line(name, {label: times[label].median for label in ours}, ours, least))
    out.lines += [f"    {1e6 * times[label].median:7.2f} {described(o.plan)}" for label, o in ours.items()]
    return out


def count_of(s: Schedule) -> int:
    return next(iter(split_counts(s)), 1)


def _line(name: str, seconds: Mapping[str, float], ours: Mapping[str, Ours], baseline: float) -> str:
    by_count: dict[int, float] = {}
    for label, o in ours.items():
        by_count[count_of(o.plan)] = min(seconds[label], by_count.get(count_of(o.plan), seconds[label]))
    columns = ", ".join(f"{count}: {1e6 * s:.2f}" for count, s in sorted(by_count.items()))
    return f"{name:26} us by split count {columns} | best baseline {1e6 * baseline:.2f}"
