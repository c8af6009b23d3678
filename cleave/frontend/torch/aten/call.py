"""A call of an operator, and the table of those that are known: ``aten.NAME.OVERLOAD`` by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cleave.errors import GraphError
from cleave.frontend.torch.array import Array
from cleave.frontend.torch.border import Kind, storage_of
from cleave.frontend.torch.elementwise import cast
from cleave.frontend.torch.layout import ranks


@dataclass(frozen=True)
class Call:
    """A call of an operator: its arguments by name (arrays, dims, numbers, lists of them), and what torch gives it.

    ``rounding``: whether casts to narrower types round.
    """

    arguments: Mapping[str, Any]
    kinds: Sequence[Kind]
    rounding: bool = True

    def __getitem__(self, name: str) -> Any:
        if name not in self.arguments:
            raise GraphError(f"this overload, which has no argument {name}")
        return self.arguments[name]

    def get(self, name: str, default: Any = None) -> Any:
        """An argument that only some overloads have, or that may be None."""
        found = self.arguments.get(name)
        return default if found is None else found

    @property
    def kind(self) -> Kind:
        return self.kinds[0]

    @property
    def storage(self) -> str:
        return self.kind.storage

    def operand(self, name: str = "self") -> Array:
        """An array, converted first if the operator is given a ``dtype``."""
        dtype = self.get("dtype")
        return self[name] if dtype is None else self.cast(self[name], storage_of(dtype))

    def cast(self, x: Array, storage: str) -> Array:
        return cast(x, storage, rounding=self.rounding)

    def dim(self, name: str, x: Array) -> int:
        return ranks(int(self[name]), len(x.dims))


Handler = Callable[[Call], Any]
HANDLERS: dict[str, Handler] = {}


def handles(*names: str) -> Callable[[Handler], Handler]:
    def register(handler: Handler) -> Handler:
        for name in names:
            HANDLERS[name] = handler
        return handler

    return register


def name_of(operator: str) -> str:
    """``aten.add.Tensor`` -> ``add``; "" if it is none of aten."""
    family, _, rest = operator.partition(".")
    return rest.split(".")[0] if family == "aten" else ""
