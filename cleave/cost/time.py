"""Modelled time of kernels on a target, from the work that ``program.py`` counts.

    arithmetic = (matmul + special + other) / (share of multiprocessors, and of their schedulers, kept busy) + waiting
    memory     = max(distinct bytes / memory, all bytes / second-level cache, all bytes / what is in flight) + idle
    kernel     = waves x wave_seconds + max(arithmetic, memory) + exposed x min(arithmetic, memory)
    time       = launches + kernels + merge

Matmul and exponentials add up, as measured for kernels of this structure on the H200; where trips overlap the longer
counts. idle is what every trip of a loop waits for loads that its ring did not ask for early enough. Bank conflicts and
clocks under load are not modelled. Constants without another source were fitted to 844 timed schedules of decode
attention and of matmuls with few rows (one H200, cold inputs). On 1200, those among them, the rank correlation within a
workload is 0.60 to 0.96, and one of the eleven that come first is within 2 % of the best. All times are in seconds
inside.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from cleave.cost.constants import H200, Constants
from cleave.cost.program import Work
from cleave.target import Facts, Target
from cleave.tile.plan import ONE_LAUNCH, Binding, Merge, Modelled
from cleave.tile.skeleton import LOADERS_REGISTERS, takes_all_registers

SHARED_BYTES_A_CYCLE = 128
"""What a multiprocessor moves to or from shared memory in a cycle."""

SCATTERED_CYCLES = 1
"""Cycles of a multiprocessor for an element that comes alone: its first-level cache looks up one place a cycle. With
it three kernels one of which reads 134 M of them are modelled at 858 us, without at 272; they took 1008."""

SCHEDULERS = 4
"""Warps that issue in one cycle on a multiprocessor: fewer resident warps leave some of its rates unused."""

LEAST_EARLY = 0.5
"""Tiles under way on average where a ring asks for a tile only when the trip before it is over."""

LOADS_A_WARP = 2048
"""Bytes that a warp has under way when it loads into registers."""

SLOWEST, _RAMP_MICROSECONDS = 1000, 10.0
"""How many times as long as a launch and its memory take a kernel may run whose threads share rows."""

CLUSTER_SHARE = {1: 1.0, 2: 1.0, 3: 0.9, 4: 0.77, 5: 0.75, 6: 0.75, 7: 0.75, 8: 0.75}
"""Part of the multiprocessors that blocks of clusters of so many can fill at once: a cluster lies in one group of them.
Those of 2, 4 and 8 were fitted, the others lie between."""


def refusal(work: Work, target: Target, binding: Binding) -> str | None:
    """Why a kernel can't run on a target: registers or shared memory."""
    facts, warps = target.facts, binding.warps
    most = facts.registers_per_thread
    if takes_all_registers(binding):
        most = LOADERS_REGISTERS[warps][1]
    if work.registers > most:
        return f"{work.registers} registers a thread, allowed are {most}"
    if work.registers * 32 * warps > facts.registers:
        return f"{work.registers} registers for {warps} warps, a multiprocessor has {facts.registers}"
    if work.shared_bytes + work.spare_bytes > facts.shared_per_block:
        return f"{work.shared_bytes} bytes of shared memory, allowed are {facts.shared_per_block - work.spare_bytes}"
    return _serialised(work, target, binding) if binding.lanes else None


def _serialised(work: Work, target: Target, binding: Binding) -> str | None:
    """Why nobody should wait for a kernel: few threads compute everything, or the same again and again."""
    needed = _RAMP_MICROSECONDS + 1e6 * (work.distinct_bytes + work.stored_bytes) / target.facts.read_bandwidth
    taken = modelled([(work, binding)], target).microseconds
    if taken <= SLOWEST * needed:
        return None
    return f"{taken / 1e3:.0f} ms, modelled, {taken / needed:.0f} times what its memory takes: allowed are {SLOWEST}"


def modelled(
    kernels: Sequence[tuple[Work, Binding]],
    target: Target,
    *,
    merge: Merge = "none",
    chunks: int = 1,
    constants: Constants = H200,
) -> Modelled:
    """Time of kernels one after the other, with its parts in microseconds.

    With a merge in one launch the second kernel is what the launch of the first does at its end, for so many chunks.
    """
    c = constants
    facts, parts, total = target.facts, dict[str, float](), 0.0
    launched = [*kernels[:1], *kernels[2:]] if merge in ONE_LAUNCH else kernels
    for n, (work, binding) in enumerate(launched):
        alone = 1 if binding.multicast is None else binding.multicast.blocks
        cluster = chunks if merge == "cluster" and n == 0 else alone
        seconds, terms = _kernel_seconds(work, binding, facts, c, cluster)
        total += seconds
        for name, value in terms.items():
            parts[name] = parts.get(name, 0.0) + value
    if merge in ONE_LAUNCH:
        parts["merge"] = _merge_seconds(kernels[0], kernels[1][0], merge, chunks, c)
    parts["launch"] = _launch_seconds(len(launched), facts, c)
    total += parts["launch"] + parts.get("merge", 0.0)
    return Modelled(total * 1e6, {name: value * 1e6 for name, value in parts.items()})


def _launch_seconds(kernels: int, facts: Facts, c: Constants) -> float:
    """Kernels save some of it where they begin while the one before them on the stream ends."""
    early = c.early_seconds if "early launch" in facts.features else 0.0
    return kernels * (facts.launch_seconds + c.ramp_seconds - early)


def _merge_seconds(first: tuple[Work, Binding], joined: Work, merge: Merge, chunks: int, c: Constants) -> float:
    partials, binding = first
    if merge == "cluster":
        return c.cluster_seconds + partials.stored_bytes / max(partials.blocks, 1) / c.cluster_bandwidth
    tiles = max(partials.blocks // chunks, 1)
    most, size = chunks * joined.longest, joined.loaded_bytes / tiles * joined.longest  # the request with most chunks
    if merge == "last-arriving":
        return c.last_seconds + _joining_seconds(binding, size, most, c)
    share = max(min(chunks, joined.blocks // tiles), 1)
    return c.last_seconds + c.meeting_seconds + _joining_seconds(binding, size / share, most, c)


def _joining_seconds(binding: Binding, size: float, chunks: float, c: Constants) -> float:
    """Partials of one tile, read chunk by chunk by the teams of a block, which take turns."""
    return max(chunks * c.last_trip_seconds / binding.teams, size / (binding.warps * c.last_bandwidth))


def resident_blocks(work: Work, binding: Binding, facts: Facts) -> int:
    """Blocks that fit on one multiprocessor at once."""
    threads = 32 * (binding.warps + binding.loaders)
    if takes_all_registers(binding):
        return 1
    return max(
        1,
        min(
            facts.blocks_per_multiprocessor,
            facts.threads_per_multiprocessor // threads,
            facts.registers // (max(work.registers, 1) * threads),
            facts.blocks_by_shared(work.shared_bytes),
        ),
    )


def _kernel_seconds(
    work: Work, binding: Binding, facts: Facts, c: Constants, cluster: int
) -> tuple[float, dict[str, float]]:
    units, resident = facts.multiprocessors, resident_blocks(work, binding, facts)
    places = max(1, int(units * resident * CLUSTER_SHARE[cluster]))
    waves = ceil(work.blocks / places)
    together = max(min(work.blocks, places), 1)
    used = min(units, together)
    beside = min(resident, max(1.0, together / units))
    busy = used / units * (work.blocks / (waves * together) if waves else 1.0)
    rate = facts.clock * units
    matmul = work.matmul_flops / (facts.matmul_rate if binding.mma == "wgmma" else facts.mma_rate)
    special = work.special / (facts.exp_rate * rate)
    other = work.other / (facts.fma_rate * rate)
    shared = c.joined_share * work.joined_bytes + c.read_share * work.read_bytes
    barriers = work.trips * c.trip_cycles / (rate * beside)
    waiting = barriers + shared / (SHARED_BYTES_A_CYCLE * rate) + work.scattered * SCATTERED_CYCLES / rate
    issuing = min(1.0, beside * binding.warps / SCHEDULERS)
    arithmetic = ((matmul + special + other) / issuing + waiting) / busy
    if work.overlaps:
        arithmetic = (max(matmul, special + other) + (0.0 if work.lags else barriers)) / busy
    trips = work.trips / max(work.blocks, 1) * waves
    last = max(1.0, work.longest * places / max(work.blocks, places))  # others of its wave are over long before
    arithmetic *= last
    memory = _memory_seconds(work, binding, facts, c, together=together / last, used=used)
    if binding.lanes or work.crowded:
        waves = min(waves, 1)  # blocks are short: one begins while others end
        memory += _crowd_seconds(work, binding, units, c) if work.crowded else 0.0
    else:
        memory += trips * _idle_seconds(work, facts, c, together, arithmetic / max(trips, 1.0))
    terms = {
        "matmul": matmul,
        "special": special,
        "other": other,
        "waiting": waiting,
        "memory": memory,
        "idle": arithmetic * (1 - busy),
        "waves": waves * c.wave_seconds,
    }
    return terms["waves"] + max(arithmetic, memory) + c.exposed * min(arithmetic, memory), terms


def _crowd_seconds(work: Work, binding: Binding, units: int, c: Constants) -> float:
    """What blocks without loops add to what they move: each has to start, and its warps wait for one another."""
    return work.blocks / units * c.start_seconds + binding.warps * c.warp_seconds


def _idle_seconds(work: Work, facts: Facts, c: Constants, together: int, trip: float) -> float:
    """What a trip waits for its tile: the latency that neither tiles asked for earlier nor a trip's work hide."""
    tile = work.loaded_bytes / max(work.trips, 1.0)
    hidden = max(work.early, 0) * tile * together / facts.read_bandwidth
    return max(0.0, c.idle_seconds - hidden - c.hiding_share * trip) * c.idle_share


def _memory_seconds(work: Work, binding: Binding, facts: Facts, c: Constants, *, together: float, used: int) -> float:
    """``together``: blocks that run at once, on ``used`` multiprocessors."""
    bandwidth = facts.read_bandwidth
    moved = work.loaded_bytes + work.stored_bytes
    ring = work.shared_bytes * max(work.early, LEAST_EARLY) / binding.stages
    in_flight = together * max(ring, LOADS_A_WARP * binding.warps)
    if binding.lanes:
        return _shared_row_seconds(work, facts, c, together)
    if not work.matmul_flops:
        bandwidth_seconds = _moving_seconds(work, facts, c, together)
    else:
        bandwidth_seconds = (work.distinct_bytes + work.stored_bytes) / bandwidth
    return max(
        bandwidth_seconds,
        moved / (bandwidth * c.cache_over_memory * used / facts.multiprocessors),
        moved / (in_flight / c.load_latency),
    )


def _shared_row_seconds(work: Work, facts: Facts, c: Constants, together: float) -> float:
    """What is moved, and what blocks that run at once wait for loads and for one another's threads.

    ``wave_seconds`` has the first load of the first block, and the last store of the last one.
    """
    joins = work.trips / max(work.blocks, 1) * c.trip_cycles / facts.clock
    alone = work.rounds * c.load_latency + joins + c.store_seconds
    waiting = max(work.blocks / together, 1.0) * alone - c.load_latency - c.store_seconds
    moving = _moving_seconds(work, facts, c, together)
    return max(moving, waiting) + c.hardly_exposed * min(moving, waiting)


def _moving_seconds(work: Work, facts: Facts, c: Constants, together: float) -> float:
    """Everything from memory once; what is read again comes from the second-level cache, and takes the same paths.

    As far as it is there: what blocks that run at once have read may be more than half of it.
    """
    again = work.loaded_bytes - work.distinct_bytes
    held = together / max(work.blocks, 1) * work.distinct_bytes
    there = min(1.0, facts.l2_bytes / 2 / max(held, 1.0))
    cost = there / c.cache_over_memory + 1 - there
    return (work.distinct_bytes + work.stored_bytes + again * cost) / facts.read_bandwidth
