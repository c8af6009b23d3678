"""Searches that several test files look at, each done once in a process: the default rules, in this process."""

from __future__ import annotations

from functools import cache

from cleave.config import Config
from cleave.ir.graph import Graph
from cleave.search import Found, search
from tests.null.operators import ATTENTION, OTHERS, Operator

QUICK = Config(isolate=False)


@cache
def operator(name: str) -> Operator:
    return dict((*ATTENTION, *OTHERS))[name]()


@cache
def searched(g: Graph) -> Found:
    return search(g, config=QUICK)


def found(name: str) -> Found:
    """Of an operator of ``tests.null.operators``."""
    return searched(operator(name).graph)
