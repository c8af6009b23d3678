"""Property tests: strategies for dims, terms, graphs; tests and proofs of rules. Proofs with z3: extra `test`."""

from cleave.testing.graph_check import GraphReport, examine_graph
from cleave.testing.mutants import Fate, Mutant, Trial, mutants, try_mutant
from cleave.testing.proof import Proof, prove_rule
from cleave.testing.rule_check import Outcome, RuleReport, check_rule, examine_rule, examine_rulebook
from cleave.testing.strategies import arrays, dims, graphs, sizes_of, terms

__all__ = [
    "Fate",
    "GraphReport",
    "Mutant",
    "Outcome",
    "Proof",
    "RuleReport",
    "Trial",
    "arrays",
    "check_rule",
    "dims",
    "examine_graph",
    "examine_rule",
    "examine_rulebook",
    "graphs",
    "mutants",
    "prove_rule",
    "sizes_of",
    "terms",
    "try_mutant",
]
