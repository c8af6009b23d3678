"""Property tests: strategies for dims, terms and graphs, and tests of rewrite rules. Needs the extra `test`."""

from cleave.testing.rule_check import Outcome, RuleReport, check_rule, examine_rule, examine_rulebook

__all__ = ["Outcome", "RuleReport", "check_rule", "examine_rule", "examine_rulebook"]
