"""Numbers of the cost model that no data sheet gives: they are measured, or fitted to schedules that were timed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Constants:
    """Those of one kind of device. Seconds, bytes a second, cycles; what is a part of something has no unit.

    cache_over_memory     bandwidth of the second-level cache over the memory's: no schedule was found that it limits
                          below this
    exposed               part of the shorter of arithmetic and memory time that the other does not hide
    hardly_exposed        the same of moving rows that threads share, and of waiting for them: most of it is hidden. It
                          tells blocks apart that memory limits alike
    trip_cycles           what a block waits at the barriers of a loop trip; other resident blocks fill them
    idle_seconds          latency of a load that the transfer of tiles asked for earlier can hide
    idle_share            the part of the rest that shows
    hiding_share          part of a trip's arithmetic that hides the latency of the next tile
    joined_share          passes through shared memory, at its full rate, that a joined byte costs
    read_share            the same of a byte that a matmul reads
    load_latency          from asking for a tile to having it, under load
    store_seconds         from the last value of a block whose threads share rows to its end
    ramp_seconds          what even an empty kernel takes from launch to result, besides the launch
    early_seconds         what a kernel saves that begins while the one before it ends: two kernels of 7 to 16 us were
                          modelled 1 to 3 us too slow without it, beside single ones
    wave_seconds          from the start of a block to its first tile, and from its last one to its end
    start_seconds         what each block of a multiprocessor takes that only loads, computes and stores
    warp_seconds          what each of its warps adds: of 4.2 MB in and out, 128 rows a block took 6.1 us, 64 took 5.1,
                          32 took 4.3, 16 took 4.9
    last_seconds          what a merge in the block that arrives last takes at least
    last_trip_seconds     what a team of that block takes for the partials of a chunk at least: in merges of 24 to 64
                          chunks 0.28 to 0.35 us with one team, with two 0.15 to 0.17 of all, with four 0.04 to 0.07
    last_bandwidth        what a warp of that block reads: 30 chunks of 32 KB took 15 us longer than in a second launch
    meeting_seconds       what it takes longer if the blocks wait for one another, and divide the merge; the median of
                          88 timed schedules
    cluster_seconds       the barriers of a merge in a cluster
    cluster_bandwidth     what a block sends to the shared memory of others, and they add up: merges of tiles of 16, 32
                          and 64 KB took 0.5, 1.1 and 4 us longer than those of 8 KB
    """

    cache_over_memory: float = 4.0
    exposed: float = 0.15
    hardly_exposed: float = 0.05
    trip_cycles: float = 275
    idle_seconds: float = 0.4e-6
    idle_share: float = 0.54
    hiding_share: float = 0.5
    joined_share: float = 6.0
    read_share: float = 0.4
    load_latency: float = 0.8e-6
    store_seconds: float = 0.4e-6
    ramp_seconds: float = 0.85e-6
    early_seconds: float = 1.5e-6
    wave_seconds: float = 2.2e-6
    start_seconds: float = 0.07e-6
    warp_seconds: float = 0.3e-6
    last_seconds: float = 1.35e-6
    last_trip_seconds: float = 0.3e-6
    last_bandwidth: float = 16e9
    meeting_seconds: float = 4.5e-6
    cluster_seconds: float = 0.25e-6
    cluster_bandwidth: float = 25e9


H200 = Constants()
"""Most were fitted to 844 schedules of decode attention and of matmuls with few rows; ``python -m experiments run e01
calibrate`` says how well they order others, and what a fit to those would give."""
