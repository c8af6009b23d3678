"""Proofs of rewrite rules for all sizes: lemmas about folds by induction in z3, and a normal form built on them."""

from cleave.testing.proof.lemmas import Lemma, lemmas, prove_lemma
from cleave.testing.proof.prove import Proof, prove_rule

__all__ = ["Lemma", "Proof", "lemmas", "prove_lemma", "prove_rule"]
