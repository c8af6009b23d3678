"""Graphs as text, and back.

    graph attention
    dims b, h, s, t, d = 64
    input Q: float16[b, h, s, d]
    axis t: t
    v0[h, s, t] = sum(d, Q[b, h, s, d] * K[b, h, t, d])
    output O: float16[b, h, s, e] @ [b, h, s, e] = v7

Expressions are Python syntax and are read with ``ast``. A term used more than once gets a name, and so do reductions
and what is nested deeply; the axes in brackets after it are for the reader. ``parse_graph(show_graph(g))`` equals g,
terms being the same objects.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import TypeVar

from cleave.display import Box, Kind
from cleave.errors import GraphError, ParseError
from cleave.ir import index as ix
from cleave.ir.axis import Axis, AxisKind
from cleave.ir.check import MOST_REWRITTEN, check_nesting
from cleave.ir.dim import dim, facts
from cleave.ir.graph import (
    Cast,
    Const,
    Graph,
    IndexValue,
    Input,
    Load,
    Map,
    Output,
    Reduce,
    Ref,
    Term,
    TopK,
    Where,
    axes_in,
    children,
    free,
    graph,
    walk,
)
from cleave.ir.index import Index, Pred, show, show_pred, spell, substitute
from cleave.ir.op import DTYPES, MAPS, MONOIDS
from cleave.ir.renaming import renamed

# ---- printing


def show_term(term: Term, names: Mapping[Term, str] | None = None) -> str:
    """One term; subterms in ``names`` are printed as those."""
    named = {t: name for t, name in (names or {}).items() if t is not term}
    made: dict[Term, str] = {}
    for t in walk(term, below=lambda t: () if t in named else children(t)):
        made[t] = named[t] if t in named else _expression(t, made.__getitem__)
    return made[term]


def _expression(term: Term, sub: Callable[[Term], str]) -> str:
    match term:
        case Load() | Const() | IndexValue() | Ref():
            return _leaf(term)
        case Map(op, (a, b)) if MAPS[op].symbol:
            return f"({sub(a)} {MAPS[op].symbol} {sub(b)})"
        case Map(op, args):
            return f"{op}({', '.join(map(sub, args))})"
        case Reduce(op, axis, body):
            return f"{op}({axis.name}, {sub(body)})"
        case TopK(part, axis, rank, body):
            return f"top_{part}({axis.name}, {spell(rank)}, {sub(body)})"
        case Where(pred, a, b):
            return f"where({show_pred(pred)}, {sub(a)}, {sub(b)})"
        case Cast(dtype, a):
            return f"cast({dtype}, {sub(a)})"


def _leaf(term: Load | Const | IndexValue | Ref) -> str:
    match term:
        case Load(name, indices):
            return f"{name}[{', '.join(map(spell, indices))}]"
        case Const(value):
            return repr(value) if isfinite(value) else f"const('{value}')"
        case IndexValue(i):
            return f"value({spell(i)})"
        case Ref(name, axes):
            return f"ref({', '.join([repr(name), *(a.name for a in axes)])})"


def show_graph(g: Graph) -> str:
    """The whole graph, line by line; deterministic."""
    labels = _axis_labels(g)
    shown = _relabelled(g, labels)
    own_names = {label: a.name for a, label in labels.items()}
    lines = [f"graph {g.name}"]
    if g.symbols:
        lines.append("dims " + ", ".join(s.name + facts(s) for s in g.symbols))
    lines += [f"constraint {show_pred(p)}" for p in g.constraints]
    lines += [f"input {i.name}: {i.dtype}[{', '.join(map(show, i.shape))}]" for i in g.inputs]
    for a in axes_in([o.term for o in shown], (i for o in shown for i in o.indices)):
        lines.append(f"axis {a.name}: {spell(a.extent)}{_kind(a, own_names)}")
    names = _shared_names(shown, {b.name for b in (*g.inputs, *g.outputs)} | set(labels.values()))
    made: dict[Term, str] = {}
    for t, name in names.items():
        axes = ", ".join(sorted(a.name for a in free(t)))
        lines.append(f"{name}[{axes}] = {show_term(t, made)}")
        made[t] = name
    for o in shown:
        target = f"{o.name}: {o.dtype}[{', '.join(map(show, o.shape))}] @ [{', '.join(map(spell, o.indices))}]"
        lines.append(f"output {target} = {made[o.term] if o.term in made else show_term(o.term, made)}")
    return "\n".join(lines) + "\n"


def term_text(g: Graph, term: Term) -> str:
    """One term of a graph, under the axis names that ``g.text()`` uses; ``parse_term`` reads it back."""
    labels = _axis_labels(g)
    if all(a.name == label for a, label in labels.items()):
        return show_term(term)
    made = _label_axes(g, labels)
    return show_term(_relabelled_terms((term,), made, _atoms(made))[term])


def shared_names(g: Graph) -> dict[Term, str]:
    """The names that ``g.text()`` gives to terms used more than once and to reductions (v0, v1, ..)."""
    if any(a.name != label for a, label in _axis_labels(g).items()):
        return {}
    return _shared_names(g.outputs, {b.name for b in (*g.inputs, *g.outputs)} | {a.name for a in g.axes})


def _kind(a: Axis, own_names: Mapping[str, str]) -> str:
    """`` inner``, and the name of the axis where another one has it too: the axes of a split keep theirs."""
    if a.kind == "plain":
        return ""
    return f" {a.kind}" + ("" if own_names[a.name] == a.name else f" {own_names[a.name]}")


def boxes(g: Graph) -> list[Box]:
    """The graph as boxes of a drawing, leaves first; numbers and index values are written where they are used."""
    made: list[Box] = []
    number: dict[Term, int] = {}
    for t in walk(*g.terms):
        if isinstance(t, (Const, IndexValue)):
            continue
        kind, label = _box(t)
        axes = ", ".join(sorted(a.name for a in free(t)))
        label = label if isinstance(t, Load) else f"{label}  [{axes}]"
        number[t] = len(made)
        made.append(Box(label, kind, tuple(dict.fromkeys(number[c] for c in children(t) if c in number))))
    for o in g.outputs:
        made.append(Box(f"{o.name}: {o.dtype}", "output", (number[o.term],) if o.term in number else ()))
    return made


def _box(t: Term) -> tuple[Kind, str]:
    def operand(c: Term) -> str:
        return _leaf(c) if isinstance(c, (Const, IndexValue)) else "."

    match t:
        case Load() | Const() | IndexValue() | Ref():
            return "input", _leaf(t)
        case Reduce(op, axis, _):
            return "reduce", f"{op} {axis.name}"
        case TopK(part, axis, rank, _):
            return "reduce", f"top {part} {axis.name}, rank {spell(rank)}"
        case Where(pred, a, b):
            return "where", f"where({show_pred(pred)}, {operand(a)}, {operand(b)})"
        case Cast(dtype, _):
            return "cast", dtype
        case Map(op, args):
            names = ", ".join(map(operand, args))
            return "map", f"{op}({names})" if any(isinstance(a, (Const, IndexValue)) for a in args) else op


NESTED = 50
"""Operations of a line in one another, beyond which one gets a name: Python reads 200 parentheses, people fewer."""


def _shared_names(outputs: Sequence[Output], taken: set[str]) -> dict[Term, str]:
    uses: Counter[Term] = Counter(o.term for o in outputs)
    order = walk(*(o.term for o in outputs))
    for t in order:
        uses.update(children(t))
    out: dict[Term, str] = {}
    height: dict[Term, int] = {}
    number = 0
    for t in order:
        height[t] = max((1 + height[c] for c in children(t)), default=0)
        if not children(t) or not (uses[t] > 1 or isinstance(t, Reduce | TopK) or height[t] > NESTED):
            continue
        height[t] = 0
        while f"v{number}" in taken:
            number += 1
        out[t] = f"v{number}"
        number += 1
    return out


def _axis_labels(g: Graph) -> dict[Axis, str]:
    """A label per axis; two axes of one name and different extents get different ones."""
    out: dict[Axis, str] = {}
    used: set[str] = {b.name for b in (*g.inputs, *g.outputs)}
    for a in g.axes:
        label, number = a.name, 1
        while label in used:
            number += 1
            label = f"{a.name}_{number}"
        used.add(label)
        out[a] = label
    return out


def _relabelled(g: Graph, labels: Mapping[Axis, str]) -> tuple[Output, ...]:
    """Outputs with every axis under its label (an axis extent that reads axes follows)."""
    if all(a.name == label for a, label in labels.items()):
        return g.outputs
    made = _label_axes(g, labels)
    atoms = _atoms(made)
    memo = _relabelled_terms(g.terms, made, atoms)
    stores = [tuple(substitute(i, atoms) for i in o.indices) for o in g.outputs]
    return tuple(Output(o.name, o.dtype, o.shape, i, memo[o.term]) for o, i in zip(g.outputs, stores, strict=True))


def _relabelled_terms(
    roots: Sequence[Term], made: Mapping[Axis, Axis], atoms: Mapping[ix.Atom, Index]
) -> dict[Term, Term]:
    memo: dict[Term, Term] = {}
    for t in walk(*roots):
        memo[t] = renamed(t, [memo[c] for c in children(t)], lambda a: made.get(a, a), atoms)
    return memo


def _label_axes(g: Graph, labels: Mapping[Axis, str]) -> dict[Axis, Axis]:
    made: dict[Axis, Axis] = {}
    for a in g.axes:
        made[a] = Axis(labels[a], substitute(a.extent, _atoms(made)), a.kind)
    return made


def _atoms(made: Mapping[Axis, Axis]) -> dict[ix.Atom, Index]:
    return {ix.Position(a): b.position for a, b in made.items()}


# ---- parsing


@dataclass
class _Scope:
    symbols: dict[str, Index] = field(default_factory=dict[str, Index])
    axes: dict[str, Axis] = field(default_factory=dict[str, Axis])
    terms: dict[str, Term] = field(default_factory=dict[str, Term])
    inputs: dict[str, Input] = field(default_factory=dict[str, Input])
    outputs: list[Output] = field(default_factory=list[Output])
    constraints: list[Pred] = field(default_factory=list[Pred])
    name: str = "graph"


def parse_graph(text: str, source: str = "graph") -> Graph:
    """The graph of a text; errors name source, line and what was expected."""
    scope = _Scope()
    for number, line in enumerate(text.splitlines(), 1):
        line = line.split("#", 1)[0].strip()
        if line:
            try:
                _statement(line, scope)
            except (GraphError, ParseError, SyntaxError, KeyError, ValueError) as error:
                what = error.msg if isinstance(error, SyntaxError) else str(error)
                raise ParseError(f"{what}, in {line!r}", location=f"{source}:{number}") from None
    check_nesting(source, scope.outputs, MOST_REWRITTEN)
    return graph(scope.name, tuple(scope.inputs.values()), scope.outputs, scope.constraints)


def parse_term(g: Graph, text: str, source: str = "term") -> Term:
    """A term over the axes and inputs of a graph, see ``term_text``."""
    return _reading(text, source, lambda: _term(_parse(text), _scope_of(g)))


def parse_index(g: Graph, text: str, source: str = "index") -> Index:
    """An index expression over the dims, axes and inputs of a graph."""
    return _reading(text, source, lambda: _index(_parse(text), _scope_of(g)))


_Read = TypeVar("_Read", Term, Index)


def _reading(text: str, source: str, read: Callable[[], _Read]) -> _Read:
    try:
        return read()
    except (GraphError, ParseError, SyntaxError, KeyError, ValueError) as error:
        what = error.msg if isinstance(error, SyntaxError) else str(error)
        raise ParseError(f"{what}, in {text!r}", location=source) from None


def _scope_of(g: Graph) -> _Scope:
    """What a term of the graph may mention: its dims, axes by the names that ``g.text()`` uses, and inputs."""
    return _Scope(
        symbols={s.name: ix.of(s) for s in g.symbols},
        axes={label: a for a, label in _axis_labels(g).items()},
        inputs={i.name: i for i in g.inputs},
    )


_NAMED_TERM = re.compile(r"(\w+)\[[\w, ]*\] = (.*)")


def _statement(line: str, scope: _Scope) -> None:
    word, _, rest = line.partition(" ")
    match word:
        case "graph":
            scope.name = rest.strip()
        case "dims":
            for item in _split_commas(rest):
                _declare_dim(item, scope)
        case "constraint":
            scope.constraints.append(_pred(_parse(rest), _Scope(symbols=scope.symbols)))
        case "input":
            name, _, shape = rest.partition(":")
            dtype, extents = _typed(shape.strip(), scope)
            scope.inputs[name.strip()] = Input(name.strip(), dtype, extents)
        case "axis":
            name, _, extent = rest.partition(":")
            scope.axes[name.strip()] = _axis(name.strip(), extent.strip(), scope)
        case "output":
            scope.outputs.append(_output(rest, scope))
        case _:
            named = _NAMED_TERM.fullmatch(line)
            if named is None:
                raise ParseError("expected graph, dims, constraint, input, axis, output or `name[axes] = term`")
            scope.terms[named[1]] = _term(_parse(named[2]), scope)


def _split_commas(text: str) -> list[str]:
    """Split at commas outside brackets."""
    out, depth = [""], 0
    for c in text:
        depth += (c in "[(") - (c in "])")
        if c == "," and depth == 0:
            out.append("")
        else:
            out[-1] += c
    return [part.strip() for part in out]


def _declare_dim(item: str, scope: _Scope) -> None:
    head, _, multiple = item.partition("%")
    minimum, maximum = 0, None
    if " in " in head:
        head, _, limits = head.partition(" in ")
        low, high = limits.strip().strip("[]").split(",")
        minimum, maximum = int(low), int(high)
    elif ">=" in head:
        head, _, low = head.partition(">=")
        minimum = int(low)
    word = head.replace(" ", "")
    name = word.split("=")[0]
    scope.symbols[name] = dim(word, minimum=minimum, maximum=maximum, multiple_of=int(multiple or 1))


def _typed(text: str, scope: _Scope) -> tuple[str, tuple[Index, ...]]:
    dtype, _, shape = text.partition("[")
    if dtype.strip() not in DTYPES:
        raise ParseError(f"dtype {dtype.strip()!r}: allowed are {', '.join(DTYPES)}")
    dims_only = _Scope(symbols=scope.symbols)
    return dtype.strip(), _indices(shape.rstrip().removesuffix("]"), dims_only)


def _indices(text: str, scope: _Scope) -> tuple[Index, ...]:
    return tuple(_index(_parse(part), scope) for part in _split_commas(text) if part)


_SPLIT_AXIS = re.compile(r"(.*) (outer|inner)(?: (\w+))?")


def _axis(name: str, extent: str, scope: _Scope) -> Axis:
    split = _SPLIT_AXIS.fullmatch(extent)
    if split is None:
        return Axis(name, _index(_parse(extent), scope))
    kind: AxisKind = "outer" if split[2] == "outer" else "inner"
    return Axis(split[3] or name, _index(_parse(split[1]), scope), kind)


def _output(text: str, scope: _Scope) -> Output:
    name, _, rest = text.partition(":")
    shape, _, rest = rest.partition(" @ ")
    store, equals, body = rest.partition("] = ")
    if not equals:
        raise ParseError("expected `output name: dtype[shape] @ [indices] = term`")
    dtype, extents = _typed(shape.strip(), scope)
    indices = _indices(store.strip().removeprefix("["), scope)
    return Output(name.strip(), dtype, extents, indices, _term(_parse(body), scope))


def _parse(text: str) -> ast.expr:
    return ast.parse(text.strip().replace("[]", "[()]"), mode="eval").body  # an input without axes is read as x[]


def _unknown(e: ast.expr, wanted: str) -> ParseError:
    return ParseError(f"{ast.unparse(e)!r} is no {wanted}")


_ARITHMETIC: dict[type[ast.operator], Callable[[Index, Index], Index]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
}


def _index(e: ast.expr, scope: _Scope) -> Index:
    match e:
        case ast.Constant(value=int(number)):
            return ix.index(number)
        case ast.Name(id=name) if name in scope.axes:
            return scope.axes[name].position
        case ast.Attribute(value=ast.Name(id="dim"), attr=name) if name in scope.symbols:
            return scope.symbols[name]
        case ast.Name(id=name) if name in scope.symbols:
            return scope.symbols[name]
        case ast.UnaryOp(op=ast.USub(), operand=a):
            return -_index(a, scope)
        case ast.BinOp(left=a, op=op, right=b) if type(op) in _ARITHMETIC:
            return _ARITHMETIC[type(op)](_index(a, scope), _index(b, scope))
        case ast.Call(func=ast.Name(id="min"), args=[a, b]):
            return ix.minimum(_index(a, scope), _index(b, scope))
        case ast.Call(func=ast.Name(id="max"), args=[a, b]):
            return ix.maximum(_index(a, scope), _index(b, scope))
        case ast.Subscript(value=ast.Name(id=name)):
            return ix.read(name, *_subscripts(e, scope))
        case _:
            raise _unknown(e, "index expression of the declared dims and axes")


def _subscripts(e: ast.Subscript, scope: _Scope) -> tuple[Index, ...]:
    inside = e.slice.elts if isinstance(e.slice, ast.Tuple) else [e.slice]
    return tuple(_index(i, scope) for i in inside)


_COMPARISONS: dict[type[ast.cmpop], str] = {ast.Lt: "<", ast.LtE: "<=", ast.Eq: "=="}


def _pred(e: ast.expr, scope: _Scope) -> Pred:
    match e:
        case ast.Compare(left=a, ops=[op], comparators=[b]) if type(op) in _COMPARISONS:
            return ix.compare(_COMPARISONS[type(op)], _index(a, scope), _index(b, scope))
        case ast.Subscript(value=ast.Name(id=name)):
            return ix.BoolRead(name, _subscripts(e, scope))
        case ast.BinOp(left=a, op=ast.BitAnd(), right=b):
            return ix.both(_pred(a, scope), _pred(b, scope))
        case ast.BinOp(left=a, op=ast.BitOr(), right=b):
            return ix.Or(_pred(a, scope), _pred(b, scope))
        case ast.UnaryOp(op=ast.Invert(), operand=a):
            return ix.Not(_pred(a, scope))
        case _:
            raise _unknown(e, "predicate")


_SYMBOLS: dict[type[ast.operator], str] = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul"}


def _term(e: ast.expr, scope: _Scope) -> Term:
    match e:
        case ast.Constant(value=int() | float() as number):
            return Const(float(number))
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return Const(-float(number))
        case ast.Name(id=name) if name in scope.terms:
            return scope.terms[name]
        case ast.Subscript(value=ast.Name(id=name)) if name in scope.inputs:
            return Load(name, _subscripts(e, scope))
        case ast.BinOp(left=a, op=op, right=b) if type(op) in _SYMBOLS:
            return Map(_SYMBOLS[type(op)], (_term(a, scope), _term(b, scope)))
        case ast.Call(func=ast.Name(id=name), args=args):
            return _call(e, name, args, scope)
        case _:
            raise _unknown(e, "term")


def _call(e: ast.expr, name: str, args: list[ast.expr], scope: _Scope) -> Term:
    match name, args:
        case "where", [p, a, b]:
            return Where(_pred(p, scope), _term(a, scope), _term(b, scope))
        case "cast", [ast.Name(id=dtype), a]:
            return Cast(dtype, _term(a, scope))
        case "value", [i]:
            return IndexValue(_index(i, scope))
        case "ref", [ast.Constant(value=str(ref)), *axes]:
            return Ref(ref, tuple(scope.axes[ast.unparse(a)] for a in axes))
        case "const", [ast.Constant(value=str(number))]:
            return Const(float(number))
        case _, [ast.Name(id=axis), body] if name in MONOIDS and axis in scope.axes:
            return Reduce(name, scope.axes[axis], _term(body, scope))
        case "top_value" | "top_index", [ast.Name(id=axis), rank, body] if axis in scope.axes:
            return TopK(name.removeprefix("top_"), scope.axes[axis], _index(rank, scope), _term(body, scope))
        case _ if name in MAPS and len(args) == MAPS[name].arity:
            return Map(name, tuple(_term(a, scope) for a in args))
        case _:
            raise _unknown(e, "term")
