"""Content hashes: stable across processes and machines, so that records and caches can key on graphs."""

from __future__ import annotations

import hashlib

from cleave.ir.graph import Graph


def graph_hash(g: Graph) -> str:
    """SHA-256 of the canonical text: equal graphs up to axis names have equal hashes."""
    return text_hash(g.text())


def text_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
