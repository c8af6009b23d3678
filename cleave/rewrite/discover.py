"""Where rule files are found: packages registered in the entry-point group `cleave.rules`, ours first."""

from __future__ import annotations

from importlib import import_module, resources
from importlib.metadata import entry_points
from pathlib import Path

from cleave.errors import RuleError

GROUP = "cleave.rules"
BUILT_IN = "cleave_rules"


def packages() -> tuple[str, ...]:
    """Names of the packages that hold rule files; the built-in one also when nothing is registered."""
    registered = {entry.value for entry in entry_points(group=GROUP)} - {BUILT_IN}
    return BUILT_IN, *sorted(registered)


def rule_files(package: str) -> tuple[Path, ...]:
    """Rule files of a package: the language first, then the analysis, then the families by name."""
    try:
        folder = resources.files(import_module(package))
    except ImportError as error:
        raise RuleError(f"the rules of package {package} can't be imported ({error})") from None
    found = [Path(str(entry)) for entry in folder.iterdir() if entry.name.endswith(".egg")]
    if not found:
        raise RuleError(f"package {package} holds no .egg file")
    return tuple(sorted(found, key=order))


def order(path: Path) -> tuple[int, str]:
    """Loading order: what a file uses must be loaded before it."""
    return {"lang": 0, "analysis": 1}.get(path.stem, 2), path.stem
