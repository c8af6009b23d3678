"""Fused GPU kernels from tensor programs by equality saturation.

    dims, trace, ops, nn, from_torch           make graphs
    search, verify, schedule, emit, optimize   the phases, and all of them in order
    tune, replay                               schedules chosen by measuring; one that was pinned
    variants                                   a few schedules for calls of many shapes, and the rule that picks one
    export                                     graphs and candidates as programs of PyTorch and ONNX
    explain, equal                             how candidates follow from a graph; are two graphs equal, and why
    Rulebook, Target, Config, load             rules, GPUs, settings, saved results
    CleaveError                                every error that a caller can mend
    testing                                    strategies for property tests of rules and graphs

Every name is loaded when it is first used: importing cleave is quick and needs no GPU.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cleave import export as export
    from cleave import nn as nn
    from cleave import testing as testing
    from cleave.config import Config as Config
    from cleave.errors import CleaveError as CleaveError
    from cleave.frontend import ops as ops
    from cleave.frontend.torch import from_torch as from_torch
    from cleave.frontend.trace import trace as trace
    from cleave.ir.dim import dims as dims
    from cleave.pipeline import emit as emit
    from cleave.pipeline import equal as equal
    from cleave.pipeline import explain as explain
    from cleave.pipeline import load as load
    from cleave.pipeline import optimize as optimize
    from cleave.pipeline import variants as variants
    from cleave.rewrite.rulebook import Rulebook as Rulebook
    from cleave.schedule import schedule as schedule
    from cleave.search import search as search
    from cleave.target import Target as Target
    from cleave.tune import replay as replay
    from cleave.tune import tune as tune
    from cleave.verify import verify as verify

__version__ = "0.1.0"

PUBLIC = {
    "dims": "cleave.ir.dim:dims",
    "trace": "cleave.frontend.trace:trace",
    "ops": "cleave.frontend.ops",
    "nn": "cleave.nn",
    "from_torch": "cleave.frontend.torch:from_torch",
    "search": "cleave.search:search",
    "verify": "cleave.verify:verify",
    "schedule": "cleave.schedule:schedule",
    "variants": "cleave.pipeline:variants",
    "emit": "cleave.pipeline:emit",
    "optimize": "cleave.pipeline:optimize",
    "tune": "cleave.tune:tune",
    "replay": "cleave.tune:replay",
    "explain": "cleave.pipeline:explain",
    "equal": "cleave.pipeline:equal",
    "load": "cleave.pipeline:load",
    "export": "cleave.export",
    "Rulebook": "cleave.rewrite.rulebook:Rulebook",
    "Target": "cleave.target:Target",
    "Config": "cleave.config:Config",
    "CleaveError": "cleave.errors:CleaveError",
    "testing": "cleave.testing",
}
"""Where each public name is found: a module, or ``module:name``."""

PHASES = frozenset({"search", "verify", "schedule", "tune"})
"""Public functions that are called like the folder that they come from."""


class _Package(ModuleType):
    """The package itself: it keeps the names of phases for functions.

    Importing ``cleave.search`` makes Python store that module here as ``search``, in whose place the function stands.
    The module stays importable (``from cleave.search import ...``), and so do those in it: see ``_Phase``.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in PHASES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)
        else:
            value.__class__ = _Phase

    def __getattr__(self, name: str) -> Any:
        if name not in PUBLIC:
            raise AttributeError(f"module 'cleave' has no attribute {name!r}")
        module, _, attribute = PUBLIC[name].partition(":")
        found = getattr(import_module(module), attribute) if attribute else import_module(module)
        self.__dict__[name] = found
        if name in PHASES:
            for inner, value in list(vars(sys.modules[module]).items()):
                _show(sys.modules[module], inner, value)
        return found

    def __dir__(self) -> list[str]:
        return sorted({*self.__dict__, *PUBLIC})


class _Phase(ModuleType):
    """A folder in whose place its function stands: the function gets the folder's modules as attributes.

    ``import cleave.search.found as found`` asks ``cleave`` for ``search``, and what it gets for ``found``.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        _show(self, name, value)


def _show(phase: ModuleType, name: str, value: object) -> None:
    """A module of a folder at the function of that name, if the function was loaded."""
    function = vars(sys.modules[__name__]).get(phase.__name__.rpartition(".")[2])
    if function is not None and isinstance(value, ModuleType) and value.__name__ == f"{phase.__name__}.{name}":
        setattr(function, name, value)


__all__ = [
    "CleaveError",
    "Config",
    "Rulebook",
    "Target",
    "dims",
    "emit",
    "equal",
    "explain",
    "export",
    "from_torch",
    "load",
    "nn",
    "ops",
    "optimize",
    "replay",
    "schedule",
    "search",
    "testing",
    "trace",
    "tune",
    "variants",
    "verify",
]

sys.modules[__name__].__class__ = _Package
