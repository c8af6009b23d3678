"""The arithmetic of timing; the timing itself needs a GPU."""

import pytest

from cleave.errors import LaunchError
from cleave.runtime import cuda
from cleave.runtime.timing import COLD_BYTES, Contender, Timing, calls_per_sample, rotation, time_contenders


@pytest.mark.parametrize("size", [1, 1000, 4_200_000, 34_000_000, 299_999_999, 300_000_000, 2_000_000_000])
def test_a_rotation_is_larger_than_any_cache(size):
    sets = rotation(size)
    assert 1 <= sets <= 128
    assert sets * size >= COLD_BYTES or sets == 128
    assert (sets - 1) * size < COLD_BYTES


def test_a_rotation_leaves_room_on_the_device():
    assert rotation(100_000_000, memory_bytes=800_000_000) == 2
    assert rotation(10**12, memory_bytes=10**9) == 1


@pytest.mark.parametrize("sets", [1, 3, 128])
@pytest.mark.parametrize("seconds", [0.0, 5e-6, 2e-4, 1.0])
def test_every_set_is_called_equally_often(seconds, sets):
    count = calls_per_sample(seconds, sets)
    assert count % sets == 0 and sets <= count <= 512


def test_quantiles_and_text():
    timing = Timing("ours", "burst", 12, tuple(1e-6 * n for n in range(1, 102)))
    assert timing.median == pytest.approx(51e-6) and timing.quantile(0.25) == pytest.approx(26e-6)
    assert str(timing) == "ours: 51.00 us [26.00, 76.00] (burst, 101 samples)"
    record = timing.as_dict()
    assert record["q50"] == pytest.approx(51e-6) and record["q05"] == pytest.approx(6e-6)
    assert (record["regime"], record["calls_per_sample"], record["count"]) == ("burst", 12, 101)


def test_without_a_gpu_it_says_so(monkeypatch):
    monkeypatch.setattr(cuda, "why_not", lambda: "there is no GPU")
    with pytest.raises(LaunchError, match=r"^timing: there is no GPU$"):
        time_contenders([Contender("nothing", [lambda: None])])
