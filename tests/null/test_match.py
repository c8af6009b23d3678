"""Recognising a call like the last one: never without the facts that the readers give, by either way for torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cleave.runtime import arrays, match
from cleave.runtime.arrays import READERS
from cleave.runtime.match import matcher
from tests.null.fake_gpu import Quick


def of(*arguments: Any, order: tuple[int, ...] | None = None) -> Callable[..., Any]:
    facts = [READERS[type(a)](a)[1] for a in arguments]
    found = matcher(arguments, facts, range(len(arguments)) if order is None else order)
    return lambda *others: found(others)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(READERS, Quick, arrays.cupy_facts)


def test_values_come_in_the_order_of_the_operator() -> None:
    x, y = Quick(np.zeros((2, 3))), Quick(np.zeros(4))
    f = of(x, 0.5, 7, y, order=(3, 0, 1))
    assert f(x, 0.5, 7, y) == [y.data.ptr, x.data.ptr, 0.5]
    assert f(x, float("inf"), 7, y) == [y.data.ptr, x.data.ptr, float("inf")]
    assert of()() == []


@pytest.mark.parametrize(
    "other",
    [
        Quick(np.zeros((3, 2))),
        Quick(np.zeros((2, 3, 1))),
        Quick(np.zeros((2, 6))[:, ::2]),
        Quick(np.zeros((3, 2)).T),
        Quick(np.zeros((2, 3), np.float32)),
        Quick(np.zeros((2, 3)), device=1),
        np.zeros((2, 3)),
        None,
        "text",
        1.0,
    ],
)
def test_other_facts_are_refused(other: Any) -> None:
    f = of(Quick(np.zeros((2, 3))))
    assert f(Quick(np.ones((2, 3)))) is not None and f(other) is None


def test_strides_of_arrays_with_gaps_decide() -> None:
    f = of(Quick(np.zeros((4, 6))[::2, ::2]))
    assert f(Quick(np.ones((4, 6))[::2, ::2])) is not None and f(Quick(np.zeros((2, 3)))) is None
    assert f(Quick(np.zeros((2, 3, 2))[..., 0])) is None


def test_arrays_that_do_not_say_whether_they_have_gaps() -> None:
    silent, other = Quick(np.zeros((2, 3))), Quick(np.zeros((3, 2)).T)
    del silent._c_contiguous
    f = of(silent)
    assert f(silent) is not None and f(Quick(np.ones((2, 3)))) is not None and f(other) is None


def test_numbers_decide_by_their_type_and_integers_by_their_value() -> None:
    f = of(1, 1.0, np.float32(1))
    assert f(1, 2.0, np.float32(3)) == [1, 2.0, 3.0]
    for other in ((2, 2.0, np.float32(3)), (True, 2.0, np.float32(3)), (1, 2, np.float32(3)), (1, 2.0, 3.0)):
        assert f(*other) is None


# ---- torch's own tensors


@pytest.fixture(params=["guards", "attributes"])
def torch(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    found: Any = pytest.importorskip("torch")
    match._guards.cache_clear()
    if request.param == "attributes":
        monkeypatch.setattr(match, "_guards", lambda: None)
    elif match._guards() is None:
        pytest.skip("torch of another version than those whose guards were tested")
    monkeypatch.setitem(READERS, found.Tensor, arrays.torch_facts)
    return found


OTHERS: dict[str, Callable[[Any, Any], Any]] = {
    "shape": lambda _, t: t.new_zeros(4, 7),
    "rank": lambda _, t: t.new_zeros(24),
    "dtype": lambda torch, t: t.to(torch.int32),
    "half": lambda torch, t: t.to(torch.float16),
    "strides": lambda _, t: t.new_zeros(6, 4).T,
    "a slice": lambda _, t: t.new_zeros(4, 12)[:, ::2],
    "an expanded row": lambda _, t: t.new_zeros(1, 6).expand(4, 6),
    "a negated view": lambda torch, t: torch._neg_view(t),
    "an imaginary part": lambda torch, t: torch.zeros(4, 6, dtype=torch.complex64).conj().imag,
    "another device": lambda _, t: t.to("meta"),
    "sparse": lambda _, t: t.to_sparse(),
    "a parameter": lambda torch, t: torch.nn.Parameter(t),
    "a subclass": lambda torch, t: t.as_subclass(type("Other", (torch.Tensor,), {})),
    "NumPy": lambda _, t: t.numpy(),
    "none": lambda *_: None,
}


@pytest.mark.parametrize("other", OTHERS)
def test_other_tensors_are_refused(torch: Any, other: str) -> None:
    a, b = torch.zeros(4, 6), torch.zeros(3)
    f = of(a, 1.0, b)
    c, d = torch.ones(4, 6), torch.ones(3)
    assert f(c, 2.0, d) == [c.data_ptr(), 2.0, d.data_ptr()]
    if other == "another device" and match._guards() is None:
        pytest.skip("the processor and the device that holds nothing have one number; those of CUDA have others")
    found = OTHERS[other](torch, torch.zeros(4, 6))
    try:
        assert f(found, 2.0, d) is None
    except RuntimeError:  # no strides, no address: the caller takes it for a call of another form
        assert other == "sparse"
    assert f(c, 2.0, found) is None


def test_a_tensor_that_is_changed_in_place_is_refused(torch: Any) -> None:
    a, b = torch.zeros(4, 6), torch.zeros(4, 6)
    f = of(a, b)
    a.resize_(2, 12)
    assert f(a, b) is None and f(b, b.clone()) is not None
    a.resize_(4, 6).t_()
    assert f(a, b) is None
    a.t_().data = torch.zeros(4, 6, dtype=torch.int32)
    assert f(a, b) is None


def test_one_tensor_twice(torch: Any) -> None:
    a, b = torch.zeros(4, 6), torch.zeros(4, 6)
    twice = of(a, a)
    assert twice(a, a) == [a.data_ptr()] * 2 and twice(a, b) == [a.data_ptr(), b.data_ptr()]
    assert of(a, b)(a, a) in (None, [a.data_ptr()] * 2)
