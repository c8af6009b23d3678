"""The border to z3: SMT-LIB text in, an answer out. Imported when called."""

from __future__ import annotations

from dataclasses import dataclass

TIMEOUT = 5000  # milliseconds


@dataclass(frozen=True, slots=True)
class Answer:
    """Whether the assertions exclude each other; if not, values that satisfy them all, or why z3 gave up."""

    excluded: bool
    detail: str = ""


def solve(program: str, timeout: int = TIMEOUT) -> Answer:
    """Whether no values satisfy the assertions of an SMT-LIB program; without z3 (extra ``test``) nothing is said."""
    try:
        import z3
    except ModuleNotFoundError:
        return Answer(False, "z3 is not installed (pip install cleave[test])")
    solver = z3.Solver(ctx=z3.Context())  # definitions of other programs would stay in a context that is shared
    solver.set("timeout", timeout)
    solver.from_string(program)
    answer = solver.check()
    if answer == z3.unsat:
        return Answer(True)
    if answer == z3.unknown:
        return Answer(False, f"z3 gave up: {solver.reason_unknown()}")
    model = solver.model()
    found = sorted((str(d.name()), str(model[d])) for d in model.decls() if d.arity() == 0)
    return Answer(False, ", ".join(f"{name} = {value}" for name, value in found))
