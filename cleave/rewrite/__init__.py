"""Rewrite rules: the rulebook that search, property tests, the documentation table and the ablation switches read."""

from cleave.rewrite.rule import Exactness, Rule
from cleave.rewrite.rulebook import Rulebook

__all__ = ["Exactness", "Rule", "Rulebook"]
