"""Points of e02: an operator at one batch of requests, read from the files in data/ or from FlashInfer-Bench's own."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from cleave.errors import SavedFileError
from experiments.e02_dynamic.config import CAPTURED, COMPLETED, Const

Lengths = Literal["exact", "completed", "synthetic", "totals"]
"""Captured; captured totals with made-up lengths; all made up; not known."""

PRODUCTS_A_NUMBER = 170
"""Multiplications that an H200's tensor cores do while two bytes are read: 395e12 and 2.3e12 a second."""


@dataclass(frozen=True)
class Point:
    """One shape of an operator. ``queries``: of each request, one in decode; both lengths are empty if not known."""

    operator: str
    const: Const
    uuid: str
    axes: Mapping[str, int]
    scale: float
    lengths: Lengths
    keys: tuple[int, ...] = ()
    queries: tuple[int, ...] = ()

    @property
    def requests(self) -> int:
        return self.axes["len_indptr"] - 1

    @property
    def page(self) -> int:
        """Keys in a page."""
        return self.const.get("page_size", 1)

    @property
    def pages_of_requests(self) -> tuple[int, ...]:
        return tuple(-(-k // self.page) for k in self.keys)

    @property
    def pages(self) -> int:
        """Of the cache: two records have fewer than they read."""
        return max(self.axes["num_pages"], self.axes["num_kv_indices"] + 1) if "num_pages" in self.axes else 0

    @property
    def name(self) -> str:
        return f"{self.operator} {self.uuid}"

    @property
    def row(self) -> dict[str, object]:
        """What a record says of the point."""
        return {
            "operator": self.operator,
            "uuid": self.uuid,
            "lengths": self.lengths,
            "requests": self.requests,
            "queries": sum(self.queries),
            "keys": sum(self.keys),
            "pages": self.pages,
        }

    @property
    def work(self) -> float:
        """Numbers that have to be moved, where a multiplication of tensor cores counts as a part of one.

        Keys and rows of the batch are moved once; every query meets the keys that it sees.
        """
        c = self.const
        heads = c["num_qo_heads"]
        if "head_dim_ckv" in c:
            key, row = c["head_dim_ckv"] + c["head_dim_kpe"], heads * (2 * c["head_dim_ckv"] + c["head_dim_kpe"])
            pair = heads * (2 * c["head_dim_ckv"] + c["head_dim_kpe"])
        else:
            d, e = c.get("head_dim_qk", c.get("head_dim")), c.get("head_dim_vo", c.get("head_dim"))
            key, row, pair = c["num_kv_heads"] * (d + e), heads * (d + e), heads * (d + e)
        return key * sum(self.keys) + row * sum(self.queries) + pair * self.pairs / PRODUCTS_A_NUMBER

    @property
    def pairs(self) -> int:
        """Queries with each of the keys that they see: the last of ``q`` queries sees all ``k`` keys of its request."""
        seen = 0
        for q, k in zip(self.queries, self.keys, strict=True):
            rows = min(q, k)
            seen += rows * k - rows * (rows - 1) // 2
        return seen

    @property
    def dims(self) -> dict[str, int]:
        """Values of the dims of the operator's graph."""
        out = {"b": self.requests}
        out |= {n: self.axes[n] for n in ("total_q", "total_kv", "num_kv_indices", "t") if n in self.axes}
        return out | ({"num_pages": self.pages} if self.pages else {})


def points() -> tuple[Point, ...]:
    """The captured operators at every captured shape, then the stand-in operator."""
    completed = _json(COMPLETED)
    found = [p for n, o in _json(CAPTURED)["operators"].items() for p in _points(n, o, completed["lengths"].get(n, {}))]
    return (*found, *(p for n, o in completed["extra_operators"].items() for p in _points(n, o, {})))


def operators(found: tuple[Point, ...]) -> dict[str, Const]:
    """Constant extents of each operator, by name."""
    return {p.operator: p.const for p in found}


def _points(operator: str, entry: Mapping[str, Any], completed: Mapping[str, Any]) -> Iterator[Point]:
    for w in entry["workloads"]:
        said = str(w["lengths"]).split(":")[0]
        known = w if said != "unknown" else completed[w["uuid"]]
        lengths: Lengths = "completed" if said == "unknown" else "exact" if said == "exact" else "synthetic"
        keys = tuple(known["kv_lens"])
        queries = tuple(known.get("qo_lens", ())) or (1,) * len(keys)
        yield Point(operator, entry["const"], w["uuid"], w["axes"], w["sm_scale"], lengths, keys, queries)


def _json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def read_traces(path: Path, const: Const) -> tuple[Point, ...]:
    """The workloads of a JSONL file of FlashInfer-Bench: axes and scales; lengths are in tensors that it names.

    Errors: a line that is no workload (SavedFileError, with its number).
    """
    found: list[Point] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.strip():
            try:
                found.append(_traced(json.loads(line), const))
            except (ValueError, KeyError, TypeError) as error:
                raise SavedFileError(f"is no workload: {error!r}", location=f"{path.name}:{number}") from None
    return tuple(found)


def _traced(trace: Mapping[str, Any], const: Const) -> Point:
    w = trace["workload"]
    axes = {str(n): int(v) for n, v in w["axes"].items()}
    scale = float(w["inputs"]["sm_scale"]["value"])
    keys, queries = _only(axes)
    return Point(trace["definition"], const, w["uuid"], axes, scale, "exact" if keys else "totals", keys, queries)


def _only(axes: Mapping[str, int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """A batch of one request has the totals as lengths."""
    if axes["len_indptr"] != 2:
        return (), ()
    return (axes.get("num_kv_indices", axes.get("total_kv", 0)),), (axes.get("total_q", 1),)
