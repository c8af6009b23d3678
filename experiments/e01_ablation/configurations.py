"""Configurations of the ablation: the full system, and what is left of it when a part is switched off."""

from __future__ import annotations

from dataclasses import dataclass

from cleave.config import Ablation, Config


@dataclass(frozen=True)
class Configuration:
    """A name and its switches. ``paper``: the change against the full system that the paper reports, as a fraction;
    None where it reports none."""

    name: str
    ablation: Ablation
    paper: float | None = None

    @property
    def config(self) -> Config:
        return Config(ablation=self.ablation)

    @property
    def is_searched(self) -> bool:
        """Whether its candidates come from a search of its own; else they are among those of the full system."""
        return not (self.ablation.split and self.ablation.reassociation)


FULL = Configuration("full", Ablation())
CONFIGURATIONS = (
    FULL,
    Configuration("no algebra", Ablation(algebra=False), -0.44),
    Configuration("no iterative tiling", Ablation(iterative_tiling=False), -0.40),
    Configuration("neither", Ablation(algebra=False, iterative_tiling=False), -0.47),
    Configuration("no layout propagation", Ablation(layout_propagation=False), -0.06),
    Configuration("no split", Ablation(split=False)),
    Configuration("no reassociation", Ablation(reassociation=False)),
)
SEARCHED = tuple(c for c in CONFIGURATIONS if c.is_searched)
