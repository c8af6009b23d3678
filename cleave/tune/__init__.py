"""Autotuning: schedules of all candidates of a graph, compiled beside one another, and what is told of them."""
