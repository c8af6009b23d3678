"""A baseline: a function of tensors by name, and what is laid side by side before it is called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Given = Mapping[str, Any]
Function = Callable[[Given], Any]
"""Of inputs by name, and of what ``before`` made; returns the output, or a tuple of all in the graph's order."""


@dataclass(frozen=True)
class Baseline:
    """``before`` lays weights or caches side by side, at no cost. ``compiled``: by torch.compile too."""

    run: Function
    before: Callable[[Given], Given] | None = None
    compiled: bool = False


def side_by_side(name: str, *parts: str, flat: bool = False) -> Callable[[Given], Given]:
    """Weights or caches in one tensor, along their last axis; ``flat``: along all but the first together."""

    def made(x: Given) -> Given:
        import torch

        tensors = [x[p].flatten(1) if flat else x[p] for p in parts]
        return {name: torch.cat(tensors, dim=-1)}

    return made
