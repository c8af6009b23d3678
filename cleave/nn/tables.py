"""Tables of a batch of requests, looked at where they are made: on the host.

A kernel has no way to complain; see ``cleave.nn.paged`` for what it does with tables that are refused here.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cleave.errors import ArgumentError

Table = NDArray[np.int64]

_NAMES = ("qo_indptr", "kv_indptr", "kv_indices", "kv_last_page_len")


def check_tables(
    tables: Mapping[str, Any],
    *,
    page: int = 1,
    num_pages: int | None = None,
    total_q: int | None = None,
    total_kv: int | None = None,
) -> None:
    """Refuse tables that name what is not there; an operator of ``cleave.nn.paged`` says which it has.

    ``tables``: ``qo_indptr``, ``kv_indptr``, ``kv_indices``, ``kv_last_page_len`` by name, as far as there are any, in
    arrays on the host. ``page``: keys in a page; ``num_pages``, ``total_q``, ``total_kv``: extents of the cache, of
    queries and of packed keys, unchecked if not given. Tables and arrays may be longer than what pointers say.

    Errors: pointers that do not begin with 0, fall, or end beyond the table or array that they point into; a page that
    the cache lacks; a last page of a request with other than 1 to ``page`` keys; tables of different requests; a table
    of another name, or one that pages of several keys need and that is missing; what 32 bits do not hold: numbers, and
    all keys of all requests; an extent that is no integer.
    """
    unknown = next((name for name in tables if name not in _NAMES), None)
    if unknown is not None:
        raise ArgumentError(f"table {unknown!r}: allowed are {', '.join(_NAMES)}", location="tables")
    _integer("page", page, 1)
    for name, extent in (("num_pages", num_pages), ("total_q", total_q), ("total_kv", total_kv)):
        if extent is not None:
            _integer(name, extent, 0)
    found = {name: _integers(name, table) for name, table in tables.items()}
    if page > 1 and "kv_last_page_len" not in found:
        raise ArgumentError(f"table kv_last_page_len is missing, of pages of {page} keys", location="tables")
    ids = found.get("kv_indices")
    pages = _pointers(found, "kv_indptr", total_kv if ids is None else len(ids))
    queries = _pointers(found, "qo_indptr", total_q)
    if pages is None:
        raise ArgumentError("table kv_indptr is missing", location="tables")
    most = (2**31 - 1) // page
    _refuse_first(pages > most, pages, "kv_indptr", f"<= {most}, pages of {page} keys in all")
    if queries is not None and len(queries) != len(pages):
        raise ArgumentError(f"{len(queries) - 1} requests, kv_indptr has {len(pages) - 1}", location="table qo_indptr")
    if ids is not None:
        own, end = ids[: pages[-1]], 2**31 if num_pages is None else num_pages
        _refuse_first((own < 0) | (own >= end), own, "kv_indices", f"0 <= page < {end}")
    _check_last_pages(found.get("kv_last_page_len"), np.diff(pages), page)


def _integer(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < least:
        raise ArgumentError(f"{name} {value!r}: an integer from {least} is expected", location="tables")


def _integers(name: str, table: Any) -> Table:
    """Of an empty list NumPy would make floats."""
    if isinstance(table, np.ma.MaskedArray):
        raise ArgumentError("masked arrays are not supported", location=f"table {name}")
    try:
        array: NDArray[Any] = np.asarray(table) if np.size(table) else np.asarray(table, dtype=np.int64)
    except ValueError:
        why = "rows of different lengths, expected one axis of integers"
        raise ArgumentError(why, location=f"table {name}") from None
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ArgumentError(
            f"shape {array.shape} of {array.dtype}, expected one axis of integers", location=f"table {name}"
        )
    return array.astype(np.int64)


def _pointers(found: Mapping[str, Table], name: str, end: int | None) -> Table | None:
    table = found.get(name)
    if table is None:
        return None
    if not len(table) or table[0] != 0:
        first = table[0] if len(table) else "nothing"
        raise ArgumentError(f"it begins with {first}, expected 0", location=f"table {name}")
    _refuse_first(table >= 2**31, table, name, "< 2147483648")
    falls = np.diff(table, prepend=0) < 0
    _refuse_first(falls, table, name, "at least the one before")
    if end is not None and table[-1] > end:
        raise ArgumentError(f"it ends with {table[-1]}, allowed is <= {end}", location=f"table {name}")
    return table


def _check_last_pages(last: Table | None, pages: Table, page: int) -> None:
    if last is None:
        return
    if len(last) != len(pages):
        raise ArgumentError(f"{len(last)} requests, kv_indptr has {len(pages)}", location="table kv_last_page_len")
    allowed = f"1 <= keys <= {page}, the page size"
    _refuse_first((last > page) | (last < np.minimum(pages, 1)), last, "kv_last_page_len", allowed)


def _refuse_first(wrong: NDArray[np.bool_], values: Table, name: str, allowed: str) -> None:
    if wrong.any():
        place = int(wrong.argmax())
        raise ArgumentError(f"{values[place]} at {place}, allowed is {allowed}", location=f"table {name}")
