"""What happens to attention scores between q kᵀ and the softmax: scale, soft cap, biases, masks."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any, TypeAlias, cast

from cleave.errors import GraphError
from cleave.frontend import ops
from cleave.frontend.tensor import Tensor
from cleave.ir.dim import Dim
from cleave.nn.spec import finite, positive

Window: TypeAlias = int | tuple[int, int] | None
"""w keys that end with the query's own, or (left, right): so many before and behind it."""


Scale: TypeAlias = float | str | None
"""A number, the name of a float32 input, or None for 1/√ of the size of a head."""


@dataclass(frozen=True)
class ScoreOptions:
    """Checked when made; ``operator`` is what messages start with. See ``attention`` for what each one means."""

    operator: str
    scale: Scale = None
    causal: bool = False
    window: Window = None
    soft_cap: float | None = None
    bias: bool = False
    alibi: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.scale, float | int):
            finite(self.operator, "scale", self.scale)
        if self.soft_cap is not None:
            positive(self.operator, "soft_cap", self.soft_cap)
        self._sides()

    def inputs(self, heads: str) -> dict[str, str]:
        """Specifications of the inputs that the options bring."""
        scale = {self.scale: "float32[]"} if isinstance(self.scale, str) else {}
        return scale | ({"slopes": heads} if self.alibi else {}) | ({"bias": f"{heads} s t"} if self.bias else {})

    def applied(self, scores: Tensor, head: Dim, **more: Tensor) -> Tensor:
        """Scores over axes that end in s and t; ``head`` is the extent that the default scale is made of."""
        scores = scores * (more[self.scale] if isinstance(self.scale, str) else self.factor(head))
        if self.soft_cap is not None:
            scores = ops.tanh(scores / self.soft_cap) * self.soft_cap
        if self.alibi:
            scores = scores + more["slopes"][..., None, None] * ops.value(_distance(scores))
        if self.bias:
            scores = scores + more["bias"]
        mask = self._mask(scores)
        return scores if mask is None else ops.where(mask, scores, -inf)

    def factor(self, head: Dim) -> Tensor:
        return ops.rsqrt(head) if self.scale is None else ops.value(float(self.scale))

    def _mask(self, scores: Tensor) -> Tensor | None:
        left, right = self._sides()
        mask = ops.causal(scores, "s", "t") if self.causal or right == 0 else None
        tests = [] if right in (None, 0) else [_distance(scores) <= right]
        tests += [] if left is None else [-left <= _distance(scores)]
        for test in tests:
            mask = test if mask is None else mask & test
        return mask

    def _sides(self) -> tuple[int | None, int | None]:
        """How many keys before and behind its own a query sees; None for all."""
        match self.window:
            case None:
                return None, None
            case int(width) if not isinstance(width, bool) and width >= 1:
                return width - 1, 0
            case tuple((int(left), int(right))) if left >= 0 and right >= 0:
                return left, right
            case other:
                allowed = "a whole number >= 1, or two >= 0 (left, right)"
                raise GraphError(f"window = {cast(Any, other)!r}: {allowed} is expected", location=self.operator)


def _distance(scores: Tensor) -> Tensor:
    """Position of the key minus that of the query, aligned at the last query."""
    queries, keys = scores.position("s"), scores.position("t")
    return keys - (queries + (keys.shape[0] - queries.shape[0]))
