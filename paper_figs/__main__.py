"""Draw figures from records: ``python -m paper_figs all``, or the names of some; needs no GPU.

Each becomes NAME.pdf, NAME.png, and its table NAME.txt and NAME.tex.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cleave.errors import CleaveError
from cleave.records import Record
from paper_figs import ablation, decode, dynamic, speedup, splits
from paper_figs.source import RECORDS, Source
from paper_figs.style import save, style
from paper_figs.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Draw = Callable[[Sequence[Record]], "tuple[Figure, Table]"]

FIGURES: Mapping[str, tuple[Source, Draw]] = {
    "speedup": (speedup.SOURCE, speedup.draw),
    "ablation": (ablation.SOURCE, ablation.draw),
    "splits": (splits.SOURCE, splits.draw),
    "decode": (decode.SOURCE, decode.draw),
    "dynamic": (dynamic.SOURCE, dynamic.draw),
}
OUT = Path(__file__).parent / "out"
EXIT_MISSING, EXIT_BAD_INPUT = 1, 2


def made(name: str, records: Path, out: Path) -> str:
    """Draw one figure and write its files; says what came of it. Errors: its records are missing."""
    source, draw = FIGURES[name]
    with style():
        drawn, table = draw(source.read(records))
        paths = save(drawn, out, name)
    for suffix, text in ((".txt", table.text()), (".tex", table.latex())):
        paths.append(out / f"{name}{suffix}")
        paths[-1].write_text(text, encoding="utf-8")
    return f"{name}: {', '.join(p.name for p in paths)}"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m paper_figs", description=__doc__)
    parser.add_argument("names", nargs="+", metavar="NAME", help=f"all, or some of {', '.join(FIGURES)}")
    parser.add_argument("--out", type=Path, default=OUT, help="folder of what is drawn")
    parser.add_argument("--records", type=Path, default=RECORDS, help="folder of the records")
    options = parser.parse_args(argv)
    unknown = [n for n in options.names if n not in (*FIGURES, "all")]
    if unknown:
        print(f"paper_figs: no figure {unknown[0]!r}; there are: all, {', '.join(FIGURES)}", file=sys.stderr)
        return EXIT_BAD_INPUT
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        print("paper_figs: matplotlib is not installed: python -m pip install '.[figures]'", file=sys.stderr)
        return EXIT_BAD_INPUT
    options.out.mkdir(parents=True, exist_ok=True)
    missing = 0
    for name in FIGURES if "all" in options.names else dict.fromkeys(options.names):
        try:
            print(made(name, options.records, options.out))
        except CleaveError as error:
            print(f"paper_figs: {name}: {error}", file=sys.stderr)
            missing += 1
    return EXIT_MISSING if missing else 0


if __name__ == "__main__":
    sys.exit(main())
