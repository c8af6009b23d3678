"""The table of operators, and one of them with its shapes, options and sizes."""

from __future__ import annotations

import argparse
from typing import Any

from cleave.cli.output import print_json, print_text
from cleave.cli.parser import EXIT_OK
from cleave.ir.index import show
from cleave.nn import OPERATORS, WORKLOADS, Operator, instantiate


def operators(options: argparse.Namespace) -> int:
    if options.name is not None:
        graph, _ = instantiate(options.name, {})  # an unknown name is refused here
        operator = OPERATORS[options.name]
        print_json(_as_dict(operator)) if options.json else print_text(_detail(operator, graph.text()))
    elif options.json:
        print_json([_as_dict(operator) for operator in OPERATORS.values()])
    else:
        width = max(map(len, OPERATORS))
        print_text("\n".join(f"{name:{width}}  {o.summary}" for name, o in OPERATORS.items()))
    return EXIT_OK


def _as_dict(operator: Operator) -> dict[str, Any]:
    graph, _ = instantiate(operator.name, {})
    return {
        "name": operator.name,
        "summary": operator.summary,
        "dims": list(operator.dims),
        "fixed": [dim for dim in operator.fixed if dim in operator.dims],
        "options": operator.options,
        "weights": list(operator.weights),
        "inputs": {i.name: f"{i.dtype}[{', '.join(map(show, i.shape))}]" for i in graph.inputs},
        "outputs": {o.name: f"{o.dtype}[{', '.join(map(show, o.shape))}]" for o in graph.outputs},
        "workloads": [
            {"name": str(w), "options": dict(w.options), "sizes": [dict(sizes) for sizes in w.sizes]}
            for w in WORKLOADS
            if w.operator == operator.name
        ],
    }


def _detail(operator: Operator, graph: str) -> str:
    found = _as_dict(operator)
    lines = [f"{operator.name}: {operator.summary}", ""]
    lines += [f"{kind[:-1]} {name}: {what}" for kind in ("inputs", "outputs") for name, what in found[kind].items()]
    lines.append("dims (--bind NAME=N): " + ", ".join(operator.dims))
    if found["fixed"]:
        lines.append("compiled in where they are bound: " + ", ".join(found["fixed"]))
    lines.append("options: " + ", ".join(f"{_word(name)} ({value})" for name, value in operator.options.items()))
    if operator.weights:
        lines.append("weights: " + ", ".join(operator.weights))
    for w in found["workloads"]:
        options = "".join(f" {_word(name)} {value}" for name, value in w["options"].items())
        sizes = [",".join(f"{k}={v}" for k, v in sizes.items()) for sizes in w["sizes"]]
        lines.append(f"workload {w['name']}{':' + options if options else ''}")
        lines += [f"  {size}" for size in sizes]
    return "\n".join([*lines, "", graph])


def _word(option: str) -> str:
    return f"--{option.replace('_', '-')}"
