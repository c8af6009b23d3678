"""Property tests: strategies for dims, terms and graphs, and tests of rewrite rules. Needs the extra `test`."""

from cleave.testing.rule_check import Outcome, RuleReport, check_rule, examine_rule, examine_rulebook
from cleave.testing.strategies import arrays, dims, graphs, sizes_of, terms

__all__ = [
    "Outcome",
    "RuleReport",
    "arrays",
    "check_rule",
    "dims",
    "examine_rule",
    "examine_rulebook",
    "graphs",
    "sizes_of",
    "terms",
]
