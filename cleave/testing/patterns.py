"""Random terms made from a rule's own left-hand side, so that its side conditions hold and it fires."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import permutations, product

from hypothesis import reject
from hypothesis import strategies as st

from cleave.rewrite.rule import Rule
from cleave.rewrite.sexp import Sexp, show
from cleave.testing.world import (
    AXES,
    LEAVES,
    OWNER,
    PREDICATES,
    SPLIT,
    Leaf,
    Sizes,
    axis,
    base_of,
    extent_axes,
    pieces,
    places,
    whole,
)

Draw = Callable[[st.SearchStrategy[object]], object]
ALL_AXES: tuple[Sexp, ...] = tuple(ax for name in AXES for ax in whole(name))


@dataclass(frozen=True, slots=True)
class Need:
    """What a term must and must not depend on, and which values its leaves may have.

    ``chunked``: axes of which only the chunk index may be free, because the chunk index is going to be reduced.
    ``positive``: mostly not negative, because an operation around it has no value where it is. ``varies``: along some
    axis, whichever.
    """

    must: frozenset[Sexp] = frozenset()
    must_not: frozenset[Sexp] = frozenset()
    masked: bool = False
    param: bool = False
    chunked: tuple[str, ...] = ()
    positive: bool = False
    varies: bool = False


@dataclass
class _Conditions:
    """The guards of a rule that say something about single variables."""

    rule: Rule
    sets: dict[str, tuple[str, str]] = field(
        default_factory=dict[str, tuple[str, str]]
    )  # name -> (axes | whole | exts, variable)
    params: set[str] = field(default_factory=set[str])
    wanted: list[str] = field(default_factory=list[str])
    varying: set[str] = field(default_factory=set[str])  # names of sets that are not empty
    swapped: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])  # wanted in the other order

    def __post_init__(self) -> None:
        for fact in self.rule.conditions:
            match fact:
                case ("=", str(name), (str(function), str(variable))) if function in ("axes", "whole", "exts"):
                    self.sets[name] = function, variable
                case ("Param", str(variable)):
                    self.params.add(variable)
                case ("Want", str(variable), _):
                    self.wanted.append(variable)
                case ("Swap", str(outer), str(inner), _):
                    self.swapped.append((outer, inner))
                case ("!=", str(name), ("set-empty",)):
                    self.varying.add(name)
                case _:
                    pass

    def memberships(self) -> Iterator[tuple[str, str, Sexp, bool]]:
        """(axes | whole | exts, variable, axis, whether it must be in)."""
        for fact in self.rule.conditions:
            if not isinstance(fact, str) and fact[0] in ("set-contains", "set-not-contains"):
                function, variable = self.sets[show(fact[1])]
                yield function, variable, fact[2], fact[0] == "set-contains"

    def axis_variables(self) -> tuple[str, ...]:
        named = [name for name, sort in self.rule.variables if sort == "Ax"]
        guarded = [ax for _, _, ax, _ in self.memberships() if isinstance(ax, str)]
        return tuple(dict.fromkeys([*named, *guarded, *self.wanted]))

    def split_variables(self) -> frozenset[str]:
        """Axis variables that must be splittable: under Outer or Inner in a pattern, or said to be."""
        found = {
            show(fact[1]) for fact in self.rule.conditions if not isinstance(fact, str) and fact[0] == "Splittable"
        }
        return frozenset(found | set(_under_pieces(self.rule.lhs)))

    def base_variables(self) -> frozenset[str]:
        return frozenset(show(f[1]) for f in self.rule.conditions if not isinstance(f, str) and f[0] == "Axis")

    def allow(self, axes: Mapping[str, Sexp]) -> bool:
        """Whether guards about the axes alone hold."""
        for function, variable, ax, inside in self.memberships():
            if function != "axes" and variable in axes:
                known = whole_of(axes[variable]) if function == "whole" else extent_axes(axes[variable])
                if (put(ax, axes) in known) is not inside:
                    return False
        order = places()
        return all(order.index(axes[outer]) < order.index(axes[inner]) for outer, inner in self.swapped)

    def need(self, variable: str, bindings: Mapping[str, Sexp], *, masked: bool) -> Need:
        """What the guards ask of a term variable."""
        known = [(put(ax, bindings), inside) for f, v, ax, inside in self.memberships() if (f, v) == ("axes", variable)]
        must = frozenset(ax for ax, inside in known if inside)
        must_not = frozenset(ax for ax, inside in known if not inside)
        open_chunks = tuple(sorted(_open_chunks(put(self.instance(), bindings), variable)))
        positive = variable in _under_roots(self.rule.lhs)
        varies = any(self.sets.get(name) == ("axes", variable) for name in self.varying)
        return Need(must, must_not, masked and not positive, variable in self.params, open_chunks, positive, varies)

    def instance(self) -> Sexp:
        """The left side below the sums that its demand asks for."""
        term = self.rule.lhs
        for name in self.wanted:
            term = ("Red", ("Sum",), name, term)
        return term


def whole_of(ax: Sexp) -> tuple[Sexp, ...]:
    return whole(show(ax[1]).strip('"')) if ax[0] == "A" else (ax,)


def put(pattern: Sexp, bindings: Mapping[str, Sexp]) -> Sexp:
    """Substitute variables."""
    if isinstance(pattern, str):
        return bindings.get(pattern, pattern)
    return tuple(put(part, bindings) for part in pattern)


def _under_pieces(pattern: Sexp) -> Iterator[str]:
    if isinstance(pattern, str):
        return
    if pattern[0] in ("Outer", "Inner") and isinstance(pattern[1], str):
        yield pattern[1]
    for part in pattern:
        yield from _under_pieces(part)


def _open_chunks(pattern: Sexp, variable: str, around: frozenset[str] = frozenset()) -> frozenset[str]:
    """Axes whose chunk index is reduced around a variable, and whose position in the chunk is not."""
    if isinstance(pattern, str):
        return around if pattern == variable else frozenset()
    if pattern[0] == "Red" and pattern[2][0] in ("Outer", "Inner"):
        name = {base_of(pattern[2])}
        around = around | name if pattern[2][0] == "Outer" else around - name
    return frozenset[str]().union(*(_open_chunks(part, variable, around) for part in pattern))


def _under_roots(pattern: Sexp, *, inside: bool = False) -> Iterator[str]:
    """Variables of which a root or a logarithm is taken, as they are or in a product or a sum."""
    if isinstance(pattern, str):
        yield from (pattern,) * inside
        return
    inside = pattern[0] in ("Sqrt", "Rsqrt", "Log") or (inside and pattern[0] in ("Mul", "Add", "Recip", "Recip0"))
    for part in pattern[1:]:
        yield from _under_roots(part, inside=inside)


# ---- strategies -------------------------------------------------------------------------------------------------


@st.composite
def sizes(draw: st.DrawFn) -> Sizes:
    """All plain extents different; counts that do not divide; short, empty and ragged chunks."""
    plain = draw(st.permutations([2, 3, 4, 5]))
    lengths = st.lists(st.sampled_from([0, 1, 2, 3, 5]), min_size=plain[3], max_size=plain[3]).map(tuple)
    extents = dict(zip(("t", "n", "r", "b"), plain, strict=True)) | {"k": draw(st.sampled_from([5, 7, 3, 1, 0]))}
    counts = {name: draw(st.sampled_from([3, 2, 4])) for name in SPLIT.values()}
    return Sizes(extents, {name: draw(lengths) for name in OWNER}, counts, draw(st.sampled_from([0, 0, 1, 3])))


@st.composite
def terms_from(draw: st.DrawFn, rule: Rule, *, masked: bool) -> Sexp:
    """An instance of the rule's left side, sometimes below another operation. ``masked`` allows values of -inf."""
    conditions = _Conditions(rule)
    axes = draw(_axes(conditions))
    bindings: dict[str, Sexp] = dict(axes)
    for name, sort in sorted(rule.variables, key=lambda variable: variable[1] == "E"):
        if sort == "E":
            finite = f"finite {name}" in rule.assumes
            bindings[name] = draw(small_terms(conditions.need(name, bindings, masked=masked and not finite)))
        elif sort == "Dim":
            bindings[name] = _count_of(conditions, axes)
        elif sort != "Ax":
            bindings[name] = draw(_PLAIN[sort])
    term = put(conditions.instance(), bindings)
    return draw(st.sampled_from([term, term, ("Mul", term, ("Leaf", "3")), ("Red", ("Sum",), axis("n"), term)]))


_PLAIN: dict[str, st.SearchStrategy[Sexp]] = {
    "Op": st.sampled_from([("Sum",), ("MaxOf",), ("MinOf",)]),
    "i64": st.sampled_from([str(number) for number in range(len(PREDICATES))]),
    "f64": st.sampled_from(["0.5", "-2.0"]),
    "String": st.sampled_from(['"float16"', '"float32"']),
}


def _count_of(conditions: _Conditions, axes: Mapping[str, Sexp]) -> Sexp:
    names = [name for name in conditions.split_variables() if name in axes]
    base = show(axes[names[0]][1]).strip('"') if names else "k"
    return pieces(base)[0][2]


@st.composite
def _axes(draw: st.DrawFn, conditions: _Conditions) -> dict[str, Sexp]:
    """Axes for the axis variables of a rule: distinct where they can be, and as the guards want them."""
    names = conditions.axis_variables()
    split, base = conditions.split_variables(), conditions.base_variables()
    choices: list[tuple[Sexp, ...]] = []
    for name in names:
        allowed = SPLIT if name in split else AXES
        choices.append(tuple(map(axis, allowed)) if name in split | base else ALL_AXES)
    fitting = [dict(zip(names, axes, strict=True)) for axes in product(*choices)]
    fitting = [axes for axes in fitting if len(set(axes.values())) == len(axes) and conditions.allow(axes)]
    if not fitting:
        reject()  # the guards contradict each other
    related = [axes for axes in fitting if any(_related(a, b) for a, b in permutations(axes.values(), 2))]
    return draw(st.sampled_from(related if related and draw(st.booleans()) else fitting))


def _related(a: Sexp, b: Sexp) -> bool:
    """One is a piece of the other, or its extent depends on it: where rules go wrong when binders change places."""
    return a in whole_of(b) or a in extent_axes(b)


@st.composite
def small_terms(draw: st.DrawFn, need: Need) -> Sexp:
    """A leaf, or a few of them; reductions over a ragged axis among them, whose result depends on the owner."""
    term = draw(_signed_terms(need))
    return ("Abs", term) if need.positive and draw(st.sampled_from([True] * 7 + [False])) else term


@st.composite
def _signed_terms(draw: st.DrawFn, need: Need) -> Sexp:
    first, other = draw(_leaf(need)), _leaf(replace(need, must=frozenset(), masked=False))
    forms = ["leaf", "leaf", "leaf", "Mul", "Add"]
    forms += [] if need.param else ["Sub", "Sq", "Red", "Where"]
    match draw(st.sampled_from(forms)):
        case "Mul" | "Add" | "Sub" as operation:
            return (operation, first, draw(other))
        case "Sq":
            return ("Sq", first)
        case "Red":
            operation = draw(st.sampled_from(["Sum", "MaxOf"])) if need.masked else "Sum"  # an empty maximum is -inf
            return ("Add", first, ("Red", (operation,), axis(draw(st.sampled_from("nuk"))), draw(_leaf(Need()))))
        case "Where":
            return draw(_masked(first, need))
        case _:
            return first


@st.composite
def _leaf(draw: st.DrawFn, need: Need) -> Sexp:
    found = [
        number
        for number, leaf in enumerate(LEAVES)
        if need.param <= leaf.param
        and leaf.masked <= need.masked
        and need.varies <= bool(leaf.axes)
        and _fits(leaf.axes, need.must, need.must_not)
    ]
    masked = [number for number in found if LEAVES[number].masked]
    found = masked if masked and draw(st.booleans()) else found
    number = draw(st.sampled_from(found)) if found else LEAVES.index(Leaf(()))
    term: Sexp = ("Leaf", str(number))
    for name in (*need.chunked, *_only_chunks(need)):
        if name in LEAVES[number].axes and (name in need.chunked or draw(st.booleans())):
            term = ("Red", ("Sum",), pieces(name)[1], term)
    return term


def _only_chunks(need: Need) -> list[str]:
    """Axes whose chunk index a term must depend on, and may be the same all over a chunk."""
    return [name for name in SPLIT if pieces(name)[0] in need.must and pieces(name)[1] not in need.must]


@st.composite
def _masked(draw: st.DrawFn, term: Sexp, need: Need) -> Sexp:
    found = [
        number
        for number, axes in enumerate(PREDICATES)
        if _fits(axes, frozenset(), need.must_not) and not set(need.chunked) & set(axes)
    ]
    if not found:
        return term
    hidden: Sexp = ("NegInf",) if need.masked and draw(st.booleans()) else ("Const", "0.0")
    return ("Where", str(draw(st.sampled_from(found))), term, hidden)


def _fits(names: tuple[str, ...], must: frozenset[Sexp], must_not: frozenset[Sexp]) -> bool:
    refined = {ax for name in names for ax in whole(name)}
    return must <= refined and not must_not & refined


@st.composite
def programs(draw: st.DrawFn) -> Sexp:
    """A masked softmax over k or j and what is made of it, as whole rulebooks meet it; no NaN in any of them."""
    name = draw(st.sampled_from("kkj"))
    ax, plain = axis(name), Need()
    score = draw(small_terms(Need(must=frozenset({ax}), masked=True)))
    weight: Sexp = ("ExpDiff", score, ("Red", ("MaxOf",), ax, score))
    total: Sexp = ("Red", ("Sum",), ax, weight)
    value = draw(small_terms(plain))
    return draw(
        st.sampled_from(
            [
                ("Red", ("Sum",), ax, ("Mul", ("Mul", weight, ("Recip0", total)), value)),
                ("Mul", ("Red", ("Sum",), ax, ("Mul", value, weight)), ("Recip0", total)),
                ("Red", ("Sum",), axis("n"), ("Mul", ("Red", ("Sum",), ax, ("Mul", weight, ("Leaf", "13"))), value)),
                ("Red", ("Sum",), ax, ("Mul", ("Sub", value, ("Leaf", "1")), ("Mul", weight, ("Leaf", "3")))),
                ("Add", ("Red", ("Sum",), ax, weight), ("Red", ("Sum",), ax, ("Sq", value))),
            ]
        )
    )
