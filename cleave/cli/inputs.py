"""From words of the command line to graphs, bindings, rulebooks and configurations."""

from __future__ import annotations

import argparse
import importlib.util
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from cleave.cli.parser import ABLATIONS, NOTHING, OPERATOR_OPTIONS, BadInput
from cleave.config import Config, SearchLimits
from cleave.cost.graph import Cost
from cleave.errors import CleaveError, ScheduleError, location_of
from cleave.ir.graph import Graph
from cleave.rewrite.rulebook import Rulebook


@dataclass(frozen=True)
class Loaded:
    """A program with the values of its dims; of an operator also the inputs that are parameters."""

    graph: Graph
    dims: dict[str, int]
    weights: tuple[str, ...] = ()


def read_program(options: argparse.Namespace, name: str | None = None) -> Loaded:
    """The graph of an operator, of a function in a file, or of a file with its text or a FlashInfer-Bench definition.

    ``name`` instead of PROGRAM.
    """
    name = str(options.program) if name is None else name
    bind = bindings(options.bind, "--bind")
    given = {o: getattr(options, o) for o in OPERATOR_OPTIONS if getattr(options, o) is not None}
    if ".py" in name:
        return _from_file(name, bind, given)
    from cleave.nn import OPERATORS, instantiate

    if Path(name).suffix == ".json":
        return _from_definition(Path(name), bind, given)
    if name not in OPERATORS and (Path(name).suffix or Path(name).is_file()):
        return _from_text(Path(name), bind, given)
    graph, dims = instantiate(name, bind, **given)
    return Loaded(graph, dims, OPERATORS[name].weights)


def bindings(words: Sequence[str], option: str) -> dict[str, int]:
    """``["b=1", "s=2048"]`` -> values by name; ``["s=1,t=2"]`` does as well."""
    out: dict[str, int] = {}
    for word in (part for w in words for part in w.split(",")):
        name, equals, value = word.partition("=")
        number = value.strip().removeprefix("-")
        if not equals or not name.strip() or not number.isdecimal():
            raise BadInput(f"{option} {word}: NAME=NUMBER is expected, such as t=2048")
        if out.setdefault(name.strip(), int(value)) != int(value):
            raise BadInput(f"{option} {word}: {name.strip()} was {out[name.strip()]} before")
    return out


def split_counts(words: Sequence[str] | None, graph: Graph) -> dict[str, int] | None:
    """``["t=4"]``, or ``["4"]`` for every axis that can be split."""
    from cleave.search import reducibility_table

    if not words:
        return None
    pairs: list[str] = []
    for word in words:
        every = [a.name for a in reducibility_table(graph).worth_splitting] if word.isdecimal() else []
        if word.isdecimal() and not every:
            raise ScheduleError("no axis can be split", location=f"--split {word}")
        pairs += [f"{name}={word}" for name in every] or [word]
    out = bindings(pairs, "--split")
    for name, count in out.items():
        if name not in {a.name for a in graph.axes}:
            raise ScheduleError(
                f"no axis {name!r}: there are {', '.join(a.name for a in graph.axes)}", location="--split"
            )
        if count < 1:
            raise ScheduleError(f"{count} chunks: allowed is >= 1", location=f"--split {name}")
    return out


# ---- files


def _from_text(path: Path, bind: dict[str, int], given: dict[str, Any]) -> Loaded:
    from cleave.ir.text import parse_graph

    if given:
        raise BadInput(f"--{next(iter(given))} is an option of operators; the text of a graph says it all")
    if not path.is_file():
        raise BadInput(f"{path}: no such file")
    try:
        return Loaded(parse_graph(path.read_text(encoding="utf-8"), path.name), bind)
    except UnicodeDecodeError:
        raise BadInput(f"{path}: is no text") from None


def _from_definition(path: Path, bind: dict[str, int], given: dict[str, Any]) -> Loaded:
    from cleave.nn import from_definition

    if given:
        raise BadInput(f"--{next(iter(given))} is an option of operators; a definition says it all")
    return Loaded(from_definition(path), bind)


def _from_file(name: str, bind: dict[str, int], given: dict[str, Any]) -> Loaded:
    from cleave.pipeline.program import graph_of

    file, colon, function = name.rpartition(":")
    if not colon or not function.isidentifier():
        raise BadInput(f"{name}: FILE.py:FUNCTION is expected")
    other = [o for o in given if o != "dtype"]
    if other:
        raise BadInput(f"--{other[0].replace('_', '-')} is an option of operators; a function of a file has its own")
    path = Path(file)
    module = _module(path)
    found = getattr(module, function, None)
    if found is None:
        raise BadInput(f"{file}: has no {function!r}")
    try:
        return Loaded(graph_of(found, **given), bind)
    except CleaveError:
        raise
    except (Exception, SystemExit) as error:
        raise BadInput(f"{_where(error, path)}: {_one_line(error)}") from None


def _module(path: Path) -> ModuleType:
    """The file, run as a module."""
    if not path.is_file():
        raise BadInput(f"{path}: no such file")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.resolve().parent))  # so that it can import its neighbours
    try:
        spec.loader.exec_module(module)
    except CleaveError:
        raise
    except SyntaxError as error:
        where = Path(error.filename) if error.filename else path
        raise BadInput(f"{location_of(where, error.lineno or 1)}: {_one_line(error.msg)}") from None
    except (Exception, SystemExit) as error:
        raise BadInput(f"{_where(error, path)}: {_one_line(error)}") from None
    finally:
        sys.path.remove(str(path.resolve().parent))
    return module


def _where(error: BaseException, path: Path) -> str:
    """The line of the user's file at which an exception left it."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).resolve() == path.resolve()]
    return location_of(path, frames[-1].lineno or 1) if frames else str(path)


def _one_line(error: object) -> str:
    text = f"{type(error).__name__}: {error}" if isinstance(error, BaseException) else str(error)
    return " ".join(text.split())


# ---- settings


def read_rules(options: argparse.Namespace) -> Rulebook:
    book = Rulebook.installed() if options.unsafe else Rulebook.default()
    if options.rules:
        before = len(book.rules)
        book = book.with_files(*options.rules)
        if len(book.rules) == before:
            raise BadInput(f"--rules {options.rules[0]}: holds no rule")
    return book.without(*options.without) if options.without else book


def read_cost(options: argparse.Namespace) -> Cost | None:
    """The user's own cost of a candidate: ``cost(candidate, estimate)``."""
    if options.cost is None:
        return None
    file, colon, function = options.cost.rpartition(":")
    if not colon or not function.isidentifier():
        raise BadInput(f"--cost {options.cost}: FILE.py:FUNCTION is expected")
    found = getattr(_module(Path(file)), function, None)
    if not callable(found):
        raise BadInput(f"--cost {file}: has no function {function!r}")
    return cast("Cost", found)


def read_config(options: argparse.Namespace) -> Config:
    config = Config(seed=options.seed, unsafe=options.unsafe)
    if options.assume is not None:
        config = replace(config, assume=frozenset(options.assume) - {NOTHING})
    limits = {n: getattr(options, n) for n in ("rounds", "nodes", "seconds", "candidates", "memory")}
    chosen = {n: v for n, v in limits.items() if v is not None}
    off = {name: False for name in ABLATIONS if getattr(options, f"no_{name}")}
    return replace(config, limits=replace(SearchLimits(), **chosen), ablation=replace(config.ablation, **off))
