"""Run one experiment: ``python -m experiments list`` or ``python -m experiments run NAME [--...]``.

An experiment is a folder ``e??_name`` beside this file with a ``run.py`` that has ``main(argv)``. Whatever follows
NAME is passed on to it. NAME may be shortened to the number, ``e00``.
"""

import argparse
import ast
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

EXIT_BAD_INPUT = 2
FOLDER = Path(__file__).parent


def discover() -> dict[str, Path]:
    """Map the name of each experiment to its run.py, in the order of their numbers."""
    return {path.parent.name: path for path in sorted(FOLDER.glob("e[0-9][0-9]_*/run.py"))}


def summary(path: Path) -> str:
    """Return the first line of the docstring of a run.py, read without importing it."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    return docstring.splitlines()[0] if docstring else "(no docstring)"


def find(name: str, known: Sequence[str]) -> str | None:
    """Return the experiment that ``name`` names, in full or by its number, or None."""
    return next((candidate for candidate in known if name in (candidate, candidate.partition("_")[0])), None)


def list_experiments() -> int:
    """Print one line an experiment."""
    experiments = discover()
    width = max(map(len, experiments), default=0)
    for name, path in experiments.items():
        print(f"{name:{width}}  {summary(path)}")
    return 0


def run_experiment(name: str, arguments: Sequence[str]) -> int:
    """Run one experiment and return its exit code (None from ``main`` counts as 0)."""
    known = list(discover())
    found = find(name, known)
    if found is None:
        print(f"experiments: no experiment {name!r}; there are: {', '.join(known) or 'none'}", file=sys.stderr)
        return EXIT_BAD_INPUT
    module = importlib.import_module(f"experiments.{found}.run")
    return module.main(list(arguments)) or 0


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m experiments", description="Run one experiment.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="one line an experiment")
    run = commands.add_parser("run", help="run one; what follows NAME is passed on to it")
    run.add_argument("name", metavar="NAME")
    run.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...")
    options = parser.parse_args(argv)
    if options.command == "list":
        return list_experiments()
    return run_experiment(options.name, options.arguments)


if __name__ == "__main__":
    sys.exit(main())
