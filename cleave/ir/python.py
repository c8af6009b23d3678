"""Integer expressions and predicates over dims as lines of Python, which are compiled once and then evaluated often.

    Lines({"t": "n0"})   .value(ceildiv(t, 16) * 2) -> "-2*_0"   .lines == ["_0 = (-1*n0) // (16)"]

Python's integers are those of ``cleave.ir.index``: exact, with floor division and a remainder of the divisor's sign.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from cleave.errors import GraphError
from cleave.ir.polynomial import (
    And,
    Atom,
    BoolRead,
    Compare,
    Floor,
    Index,
    Max,
    Min,
    Mod,
    Monomial,
    Not,
    Or,
    Position,
    Pred,
    Read,
    Symbol,
)


class Lines:
    """Lines that compute what was asked for, in order; an atom that comes again is computed once.

    ``names``: what stands for the value of each symbol, a variable or a number.
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        self.lines: list[str] = []
        self.names = dict(names)
        self._atoms: dict[Atom, str] = {}

    def value(self, expression: Index) -> str:
        """Text of an integer, in parentheses unless it is a name, a number or a product.

        Errors: positions and reads, which only kernels know; a symbol without a value.
        """
        return total([product(c, self._factors(monomial)) for monomial, c in expression.terms])

    def holds(self, pred: Pred) -> str:
        """Text of a truth value. Errors: as for values."""
        match pred:
            case Compare(op, a, b):
                return f"{self.value(a)} {op} {self.value(b)}"
            case And(p, q):
                return f"({self.holds(p)} and {self.holds(q)})"
            case Or(p, q):
                return f"({self.holds(p)} or {self.holds(q)})"
            case Not(p):
                return f"(not {self.holds(p)})"
            case BoolRead():
                raise GraphError(f"{pred} is no matter of dims alone")

    def keep(self, text: str) -> str:
        """A variable that holds this from here on; names and numbers are themselves."""
        if text.lstrip("-").replace("_", "").isalnum():
            return text
        name = f"_{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        return name

    def _factors(self, monomial: Monomial) -> list[str]:
        return [self._atom(a) for a, power in monomial for _ in range(power)]

    def _atom(self, atom: Atom) -> str:
        found = self._atoms.get(atom)
        if found is None:
            found = self._atoms[atom] = self.keep(self._spelt(atom))
        return found

    def _spelt(self, atom: Atom) -> str:
        match atom:
            case Symbol(name):
                if name not in self.names and atom.value is None:
                    raise GraphError(f"dim {name} has no value: bind it ({name}=...)")
                return self.names.get(name, str(atom.value))
            case Floor(a, b):
                return f"({self.value(a)}) // ({self.value(b)})"
            case Mod(a, b):
                return f"({self.value(a)}) % ({self.value(b)})"
            case Min(a, b) | Max(a, b):
                left, right = self.keep(self.value(a)), self.keep(self.value(b))
                return f"{left} if {left} {'<' if isinstance(atom, Min) else '>'} {right} else {right}"
            case Position() | Read():
                raise GraphError(f"{atom} is no matter of dims alone")


def is_number(text: str) -> bool:
    return text.lstrip("-").isdigit()


def product(c: int, factors: Sequence[str]) -> str:
    """Text of a product; numbers among the factors are multiplied here."""
    names = [f for f in factors if not is_number(f)]
    c = prod((int(f) for f in factors if is_number(f)), start=c)
    return "*".join(names if names and c == 1 else [str(c), *names]) if c else "0"


def total(terms: Sequence[str]) -> str:
    """Text of a sum, in parentheses if there is more than one term; numbers are added here."""
    names = [t for t in terms if not is_number(t)]
    number = sum(int(t) for t in terms if is_number(t))
    terms = [*names, *([str(number)] if number or not names else [])]
    return terms[0] if len(terms) == 1 else f"({' + '.join(terms)})"
