"""Lines of C++ with indentation, and names that do not clash."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache

from cleave.codegen.prelude import device_prelude

_KEYWORDS = """
alignas alignof and asm auto bool break case catch char class const constexpr continue default delete do double else
enum explicit export extern false float for friend goto if inline int long mutable namespace new noexcept not nullptr
operator or private protected public register return short signed sizeof static struct switch template this throw true
try typedef typename union unsigned using virtual void volatile while xor
"""
_LOCALS = """
lane warp thread team rank member row pair q block shared shared_base arrived_last r c n e h p w x a b kk nn left
place present bytes slice u threadIdx blockIdx gridDim
"""


@cache
def _reserved() -> frozenset[str]:
    """Keywords, what the skeletons call their own, and every name of the prelude; those of more than one word of what
    only some kernels have."""
    code, more = (re.sub(r"//.*", "", device_prelude("tma", rows=rows)) for rows in (False, True))
    names = [*re.findall(r"[A-Za-z_]\w*", code), *re.findall(r"[A-Za-z]\w*_\w*", more)]
    return frozenset([*_KEYWORDS.split(), *_LOCALS.split(), *names])


class Writer:
    """Collects lines; ``block`` writes a header, braces and what is inside."""

    def __init__(self, depth: int = 1) -> None:
        self.text_lines: list[str] = []
        self.depth = self._indent = depth

    def line(self, text: str) -> None:
        self.text_lines.append("  " * self._indent + text)

    def lines(self, texts: list[str]) -> None:
        for text in texts:
            self.line(text)

    def extend(self, other: Writer) -> None:
        """Lines that were collected apart, at the depth of this place."""
        self.text_lines += ["  " * (self._indent - other.depth) + text for text in other.text_lines]

    @contextmanager
    def block(self, header: str) -> Generator[None]:
        self.line(f"{header} {{" if header else "{")
        self._indent += 1
        yield
        self._indent -= 1
        self.line("}")

    @contextmanager
    def unrolled(self, variable: str, count: int, *, at_once: int | None = None) -> Generator[None]:
        """A loop with a fixed count whose indices become constants, so that arrays stay in registers.

        ``at_once``: fewer trips side by side than all, where nothing in registers is indexed by the variable.
        """
        self.line("#pragma unroll" if at_once is None or at_once >= count else f"#pragma unroll {at_once}")
        with self.block(f"for (int {variable} = 0; {variable} < {count}; {variable}++)"):
            yield

    def text(self) -> str:
        return "\n".join(self.text_lines) + "\n"


@dataclass
class Names:
    """C++ identifiers: one for each key, made from the wish and a number if it is taken."""

    taken: set[str] = field(default_factory=lambda: set(_reserved()))
    known: dict[object, str] = field(default_factory=dict[object, str])

    def of(self, key: object, wish: str) -> str:
        if key not in self.known:
            self.known[key] = self.fresh(wish)
        return self.known[key]

    def fresh(self, wish: str) -> str:
        base = re.sub(r"\W+", "_", wish.replace("~", "_before")).strip("_") or "value"
        base = f"v{base}" if base[0].isdigit() else base
        name, number = base, 1
        while name in self.taken:
            number += 1
            name = f"{base}_{number}"
        self.taken.add(name)
        return name
