"""Experiments: one folder a question, each with a run.py, its configuration and a README that states the claim."""
