"""Programs of PyTorch as graphs: what torch.export reads off a function or a module, operator by operator.

border.py       torch itself: exporting, nodes; sizes.py its sizes as dims
array.py        arrays whose dimensions are made of axes; layout.py views of them, pairs.py rotations in them
elementwise.py, reductions.py   what is computed
aten/           which operator of ATen is which
convert.py      from nodes to a graph
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cleave.errors import GraphError
from cleave.ir.graph import Graph


@dataclass(frozen=True)
class Imported:
    """A graph, and the tensors that the program brought along: parameters, buffers, constants, by input name."""

    graph: Graph
    values: Mapping[str, Any] = field(repr=False)


def from_torch(
    source: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    name: str | None = None,
    rounding: bool = True,
) -> Imported:
    """The graph of a torch function, of a module (a torch.fx.GraphModule is one) or of an ExportedProgram.

    ``args`` and ``kwargs`` are example inputs, ``dynamic_shapes`` says which of their sizes are symbols, as for
    torch.export.export: ``{"x": {1: torch.export.Dim("seq", min=1, max=4096)}}`` gives the dim ``seq`` in [1, 4096].
    The arguments become inputs under their names, parameters, buffers and constants under their paths (dots as
    underscores); a result becomes ``out``, a tuple ``out0``, ``out1``, .., a dict has names of its own.

    Numbers are real numbers, whatever types torch computes in: a cast to a narrower type is a rounding that no rewrite
    moves, a cast to a wider one says nothing. With ``rounding=False`` the former say nothing either: models in half
    precision cast every softmax and norm back, which splits what could be one kernel. A softmax over a row that is −inf
    everywhere is 0, where torch gives NaN. Integer tensors that index count from 0.

    torch.export traces with the example inputs: it takes a size of 0 or 1 in them as a constant, and does not see what
    a program does at such sizes only.

    At most 200 operations may be in one another (``cleave.ir.check.MOST_NESTED``): many layers are several graphs.

    Errors: what torch.export refuses, contradictory dims among it (ShapeError, GraphError); operators that are not
    supported, all of them at once with the lines that they come from (GraphError).
    """
    from cleave.frontend.torch import border
    from cleave.frontend.torch.convert import convert

    if not border.is_installed():
        raise GraphError("PyTorch is not installed (pip install cleave[torch])", location="from_torch")
    if hasattr(args, "shape"):
        raise GraphError("args is one tensor: a tuple of example inputs is expected", location="from_torch")
    if not callable(source) and not hasattr(source, "graph_signature"):
        raise GraphError(f"{source!r} is no function, module or exported program", location="from_torch")
    program = border.program_of(source, args, kwargs or {}, dynamic_shapes)
    return Imported(*convert(program, name or border.name_of(source), rounding=rounding))


__all__ = ["Imported", "from_torch"]
