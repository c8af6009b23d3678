from collections.abc import Callable, Mapping
from typing import Any

from numpy.typing import ArrayLike

class Bounds:
    def __init__(self, lb: ArrayLike, ub: ArrayLike) -> None: ...

class LinearConstraint:
    def __init__(self, A: Any, lb: ArrayLike, ub: ArrayLike) -> None: ...

class OptimizeResult:
    success: bool
    fun: float
    x: Any

def milp(c: ArrayLike, *, integrality: ArrayLike, bounds: Bounds, constraints: LinearConstraint) -> OptimizeResult: ...
def minimize_scalar(
    fun: Callable[[float], float], *, bounds: tuple[float, float], options: Mapping[str, int]
) -> OptimizeResult: ...
