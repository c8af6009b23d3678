"""e02: paged and ragged attention, compiled once an operator, at the shapes of FlashInfer-Bench."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from cleave.errors import CleaveError


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m experiments run e02", description=__doc__)
    parser.add_argument("stage", choices=("search",))
    parser.parse_args(argv)
    try:
        from experiments.e02_dynamic.search import search

        return search()
    except CleaveError as error:
        print(f"e02: {error}", file=sys.stderr)
        return error.exit_code
