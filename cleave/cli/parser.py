"""The command line as argparse sees it. Nothing heavy is imported here: `--help` and mistakes answer at once."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from cleave.config import ASSUMPTIONS, MOST

EXIT_OK, EXIT_FAILED, EXIT_BAD_INPUT, EXIT_INTERRUPTED = 0, 1, 2, 130
EXIT_UNKNOWN = 3

EXIT_CODES = """exit codes:
  0    everything that was tried is right; programs are equal
  1    a candidate or schedule failed to verify, to compile or to run; or a rule has a counterexample; programs differ
  2    bad input: one line on stderr says what, nothing was written
  3    equal: neither a derivation nor a counterexample was found; what is left to show is printed
  130  interrupted: what was found until then is printed
"""
PROGRAM = """\
PROGRAM is the name of an operator (attention, swiglu, rmsnorm_matmul; `cleave operators` lists them all),
FILE.py:FUNCTION, or a file that holds a graph as text (graph.txt of a saved result). A function without parameters
returns a graph; otherwise its annotations give the axes of each parameter, and it is traced:

    def attention(q: "h s d=64", k: "h t d", v: "h t e=64"):
        p = ops.softmax(ops.einsum("hsd,htd->hst", q, k) * 0.125, axis="t")
        return ops.einsum("hst,hte->hse", p, v)

"""


NOTHING = "nothing"
"""The word for no assumption."""


class BadInput(Exception):
    """A command line that can't be read: one line, exit code 2."""


class Parser(argparse.ArgumentParser):
    """Errors are one line."""

    def error(self, message: str) -> NoReturn:
        command = self.prog.removeprefix("cleave").strip()
        raise BadInput(f"{command}: {message}" if command else message)


def make_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="cleave",
        description="Fused GPU kernels from tensor programs by equality saturation.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=Parser)
    _optimize(commands)
    _search(commands)
    _explain(commands)
    _equal(commands)
    _rules(commands)
    _run(commands)
    _tune(commands)
    _operators(commands)
    _environment(commands)
    _cache(commands)
    return parser


if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[Parser]  # pyright: ignore[reportPrivateUsage]


def _command(commands: Commands, name: str, help: str, description: str = "") -> argparse.ArgumentParser:
    made = commands.add_parser(
        name,
        help=help,
        description=f"{help}\n\n{description}" if description else help,
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--json", action="store_true", help="print JSON instead of text")
    return made


def _optimize(commands: Commands) -> None:
    text = "Search, verify, schedule and compile a program; check and time it where a GPU is."
    made = _command(commands, "optimize", text, PROGRAM)
    _program(made)
    _searching(made)
    made.add_argument("--save", metavar="DIR", help="write the result to a folder, whole or not at all")
    made.add_argument("--target", metavar="ARCH", help="sm_80 or sm_90a; default: the GPU found here, else sm_90a")
    forced = made.add_argument_group("what the cost model would choose otherwise")
    forced.add_argument("--split", action="append", metavar="[AXIS=]N", help="chunks of a split axis")
    forced.add_argument(
        "--merge",
        choices=("second-launch", "last-arriving", "spread", "cluster"),
        help="how the parts of a split are joined",
    )
    forced.add_argument("--tile", action="append", metavar="AXIS=N", help="elements of an axis in one tile")
    forced.add_argument("--skeleton", metavar="NAME", help="how the loops are written, such as cta-ring")
    forced.add_argument("--feed", choices=("tma", "cp.async"), help="how tiles of loops reach shared memory")
    forced.add_argument("--mma", choices=("mma.sync", "wgmma"), help="the instructions of matmuls")
    forced.add_argument(
        "--multicast", type=int, default=1, metavar="N", help="blocks that fetch for one another what all of them read"
    )


def _search(commands: Commands) -> None:
    made = _command(commands, "search", "Find equal forms of a program, and verify them.", PROGRAM)
    _program(made)
    _searching(made)
    made.add_argument("--save", metavar="FILE", help="write the candidates (JSON)")


def _explain(commands: Commands) -> None:
    text = "How candidates follow from the program, which axes may be reduced in pieces, and why its schedule is so."
    more = (
        "PROGRAM may also be what `optimize --save` or `search --save` wrote. Schedules (splits, loops, alternatives,\n"
        "refusals, shares of roofline) are explained of a saved DIR, and where --bind gives every dim a value.\n"
    )
    made = _command(commands, "explain", text, more + PROGRAM)
    _program(made)
    _searching(made)
    made.add_argument("--candidate", metavar="N", type=int, help="only this one, numbered from 0")
    made.add_argument("--target", metavar="ARCH", help="of schedules: sm_80 or sm_90a; default: sm_90a")
    made.add_argument(
        "--format",
        choices=("text", "markdown", "html"),
        default="text",
        help="html: a page with drawings; default: text",
    )


def _equal(commands: Commands) -> None:
    text = "Whether two programs are equal under the rules: the derivation, a counterexample, or what is left to show."
    more = (
        "A and B are such PROGRAMs. Their inputs, dims and outputs correspond by name; options of operators go to both."
    )
    made = _command(commands, "equal", text, PROGRAM + more)
    made.add_argument("a", metavar="A", help="operator, FILE.py:FUNCTION, or a file with a graph as text")
    made.add_argument("b", metavar="B", help="the same")
    _of_operators(made)
    made.add_argument("--weights", action="append", metavar="INPUT", default=[], help="an input that is a parameter")
    _saturating(made)
    _ablation(made, ("split", "reassociation"))
    made.set_defaults(candidates=None, bind=[])


def _rules(commands: Commands) -> None:
    made = _command(commands, "rules", "The table of the rules, or a check of rule files.")
    inner = made.add_subparsers(dest="action", metavar="check", parser_class=Parser)
    check = inner.add_parser(
        "check", help="test and try to prove every rule of some files, or of all that is installed"
    )
    check.add_argument("files", nargs="*", metavar="FILE", help="rules as egglog text; none: the installed rulebook")
    check.add_argument("--mutants", action="store_true", help="test and try to prove wrong versions of each rule, too")
    text = "evaluate every e-node of the workloads of cleave.nn under all rules, too"
    check.add_argument("--workloads", action="store_true", help=text)
    check.add_argument("--json", action="store_true", help="print JSON instead of text")


def _run(commands: Commands) -> None:
    text = "Run a saved result: on a GPU check and time its kernel, otherwise run its tile program at a reduced size."
    made = _command(commands, "run", text)
    made.add_argument("folder", metavar="DIR", help="what `optimize --save DIR` wrote")
    made.add_argument("--candidate", metavar="N", type=int, help="candidate to run, numbered from 0; default: the best")
    made.add_argument("--pin", metavar="FILE", help="run the schedule that `tune --pin FILE` wrote, unchanged")
    _bindings(made)


def _tune(commands: Commands) -> None:
    text = "Measure schedules of all candidates of a saved result on the GPU, and choose the fastest."
    more = (
        "Schedules are compiled beside one another, each is checked at the real shape under a time limit, and those\n"
        "that passed are timed in turn. What the records hold for this GPU and compiler is not measured again: a run\n"
        "that was ended goes on when it is started again.\n"
    )
    made = _command(commands, "tune", text, more)
    made.add_argument("source", metavar="DIR", help="what `optimize --save DIR` or `search --save FILE` wrote")
    _bindings(made)
    made.add_argument("--budget", type=_positive, metavar="N", help="schedules that are tried at most; default: 12")
    made.add_argument(
        "--seconds", type=_seconds, metavar="S", help="end after so long with what was found; default: 60"
    )
    made.add_argument("--records", metavar="FILE", help="JSON lines that are reused and added to; default: the user's")
    made.add_argument("--pin", metavar="FILE", help="write the fastest schedule, for `run DIR --pin FILE`")


def _operators(commands: Commands) -> None:
    made = _command(commands, "operators", "The operators that PROGRAM may name, or one of them with shapes and sizes.")
    made.add_argument("name", nargs="?", metavar="NAME", help="one operator: shapes, dims, options, sizes, graph")


def _environment(commands: Commands) -> None:
    _command(commands, "environment", "Versions, driver, commit, GPU, cache folder.")


def _cache(commands: Commands) -> None:
    made = _command(commands, "cache", "What lies in the cache of compiled kernels.")
    made.add_argument("action", nargs="?", choices=("clear",), help="remove all of it")


# ---- options that several commands have


def _bindings(made: argparse.ArgumentParser) -> None:
    made.add_argument("--bind", action="append", metavar="DIM=N", default=[], help="value of a dim; may be repeated")


def _program(made: argparse.ArgumentParser) -> None:
    made.add_argument("program", metavar="PROGRAM", help="operator, or FILE.py:FUNCTION")
    _bindings(made)
    _of_operators(made)


def _of_operators(made: argparse.ArgumentParser) -> None:
    options = made.add_argument_group("options of operators")
    for name, how in OPERATOR_OPTIONS.items():
        options.add_argument(f"--{name.replace('_', '-')}", default=None, **how)


def _saturating(made: argparse.ArgumentParser) -> argparse._ArgumentGroup:  # pyright: ignore[reportPrivateUsage]
    search = made.add_argument_group("search")
    search.add_argument("--without", action="append", metavar="RULE", default=[], help="switch a rule or family off")
    search.add_argument("--rules", action="append", metavar="FILE", default=[], help="add a rule file")
    search.add_argument(
        "--assume", action="append", choices=(*ASSUMPTIONS, NOTHING), help="of the inputs; default: finite"
    )
    search.add_argument("--unsafe", action="store_true", help="allow rules that may cancel or overflow")
    search.add_argument("--rounds", type=_positive, metavar="N", help="most rounds of saturation")
    search.add_argument("--nodes", type=_positive, metavar="N", help="most e-nodes")
    search.add_argument(
        "--seconds", type=_seconds, metavar="S", help="most seconds of saturation; what follows it has as many"
    )
    search.add_argument("--memory", type=_positive, metavar="MIB", help="most memory of the saturation")
    search.add_argument("--seed", type=_natural, metavar="N", default=0, help="of every random draw")
    return search


def _searching(made: argparse.ArgumentParser) -> None:
    search = _saturating(made)
    search.add_argument(
        "--candidates",
        type=_positive,
        metavar="N",
        help="candidates that are kept at most, the program as written always among them",
    )
    search.add_argument(
        "--cost", metavar="FILE.py:FUNCTION", help="rank candidates by FUNCTION(candidate, estimate), least first"
    )
    _ablation(made, tuple(ABLATIONS))


def _ablation(made: argparse.ArgumentParser, names: Sequence[str]) -> None:
    off = made.add_argument_group("ablation: switch a part off")
    for name in ABLATIONS:
        option = f"--no-{name.replace('_', '-')}"
        if name in names:
            off.add_argument(option, action="store_true", dest=f"no_{name}", help=ABLATIONS[name])
        else:
            made.set_defaults(**{f"no_{name}": False})


ABLATIONS = {
    "algebra": "the graph as written: no rules, no folds, no splits",
    "iterative_tiling": "reductions read their whole axis, kernels are cut between them",
    "horizontal_fusion": "a loop for each reduction",
    "layout_propagation": "from matmul to matmul through shared memory",
    "split": "no candidates with a split reduction",
    "reassociation": "no rule that changes the order of matmuls",
    "reducibility": "any reduction may be split by itself, anywhere",
}
"""Switches of ``Config.ablation``."""


def _natural(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text}: a whole number >= 0 is expected")
    return int(text)


def _positive(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MOST:
        raise argparse.ArgumentTypeError(f"{text}: a whole number from 1 to {MOST} is expected")
    return int(text)


def _finite(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text}: a number is expected")
    return value


def _seconds(text: str) -> float:
    value = _finite(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{text}: a positive number is expected")
    return value


def _window(text: str) -> int | tuple[int, ...]:
    parts = text.split(",")
    if len(parts) > 2 or not all(part.strip().isdecimal() for part in parts):
        raise argparse.ArgumentTypeError(f"{text}: W or LEFT,RIGHT is expected, such as 1024 or 2,3")
    return int(text) if len(parts) == 1 else tuple(map(int, parts))


OPERATOR_OPTIONS: dict[str, dict[str, Any]] = {
    "causal": {"action": "store_true", "help": "mask aligned at the last query"},
    "window": {
        "type": _window,
        "metavar": "W",
        "help": "W keys up to the query's own; LEFT,RIGHT: so many around it",
    },
    "soft_cap": {"type": _finite, "metavar": "C", "help": "scores become C tanh(scores / C)"},
    "bias": {"action": "store_true", "help": "an input that is added to the scores"},
    "alibi": {"action": "store_true", "help": "a slope per head times the distance is added to the scores"},
    "lse": {"action": "store_true", "help": "log-sum-exp as a second output"},
    "base2": {"action": "store_true", "help": "log-sum-exp in base 2"},
    "scale": {"type": _finite, "metavar": "X", "help": "factor on the scores"},
    "normalised": {"action": argparse.BooleanOptionalAction, "help": "divide by the sums of the weights"},
    "qk_norm": {"action": "store_true", "help": "an RMS norm on queries and keys"},
    "levels": {"type": _positive, "metavar": "N", "help": "largest whole number that quantisation rounds to"},
    "eps": {"type": _finite, "metavar": "X", "help": "what a norm adds to the mean square"},
    "dtype": {"metavar": "TYPE", "help": "storage type of inputs and outputs (float16)"},
}
"""Every option of an operator of ``cleave.nn``, as argparse takes it; what an operator lacks is refused by name."""


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Raises BadInput; ``--help`` exits as argparse does."""
    return make_parser().parse_args(arguments)
