"""What the rules must reach: known fusions, each as the term that the search has to find; and saturation ends."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from cleave.rewrite import Rulebook
from cleave.rewrite.parser import Session

ROUNDS = 30
AXES = {"i": "", "k": "S", "d": "", "e": "", "r": ""}  # axis -> count, if it may be split


def ax(name: str) -> str:
    return f'(A "{name}")'


def outer(name: str) -> str:
    return f'(Outer {ax(name)} (DSym "{AXES[name]}"))'


def inner(name: str) -> str:
    return f'(Inner {ax(name)} (DSym "{AXES[name]}"))'


def total(axis: str, body: str) -> str:
    return f"(Red (Sum) {axis} {body})"


def greatest(axis: str, body: str) -> str:
    return f"(Red (MaxOf) {axis} {body})"


def mul(*factors: str) -> str:
    """Product, associated to the left."""
    first, *rest = factors
    for factor in rest:
        first = f"(Mul {first} {factor})"
    return first


LEAVES = {
    "q": "id",
    "key": "kd",
    "v": "ke",
    "x": "ik",
    "w": "kr",
    "gain": "k",
    "a": "kd",
    "b": "dr",
    "scale": "",
    "u": "kr",
}
PARAMS = {"w", "gain", "a", "b", "u"}
Q, KEY, V, X, W, GAIN, A, B, SCALE, U = (f"(Leaf {number})" for number in range(len(LEAVES)))
K, OUT, IN = ax("k"), outer("k"), inner("k")

SCORE = mul(total(ax("d"), mul(Q, KEY)), SCALE)
WEIGHT = f"(ExpDiff {SCORE} {greatest(K, SCORE)})"
ATTENTION = total(K, mul(WEIGHT, f"(Recip0 {total(K, WEIGHT)})", V))
CHUNK_MAX = greatest(IN, SCORE)
CHUNK_WEIGHT = f"(ExpDiff {SCORE} {CHUNK_MAX})"
RESCALE = f"(ExpDiff {CHUNK_MAX} {greatest(OUT, CHUNK_MAX)})"
MEAN_SQUARE = mul(f"(Recip (Size {K}))", total(K, f"(Sq {X})"))
MEAN = mul(f"(Recip (Size {K}))", total(K, X))


@dataclass(frozen=True)
class Goal:
    source: str
    target: str
    families: tuple[str, ...]


GOALS = {
    "attention: the division behind the second matmul": Goal(
        ATTENTION, mul(total(K, mul(WEIGHT, V)), f"(Recip0 {total(K, WEIGHT)})"), ("products",)
    ),
    "attention: flash decoding": Goal(
        ATTENTION,
        mul(
            total(OUT, mul(RESCALE, total(IN, mul(CHUNK_WEIGHT, V)))),
            f"(Recip0 {total(OUT, mul(RESCALE, total(IN, CHUNK_WEIGHT)))})",
        ),
        ("products", "split", "shift"),
    ),
    "matmul: Split-K": Goal(total(K, mul(X, W)), total(OUT, total(IN, mul(X, W))), ("split",)),
    "RMSNorm behind the matmul, the gain in the weight": Goal(
        total(K, mul(X, f"(Rsqrt {MEAN_SQUARE})", GAIN, W)),
        mul(f"(Rsqrt {MEAN_SQUARE})", total(K, mul(X, f"(Mul {GAIN} {W})"))),
        ("products",),
    ),
    "LoRA merged into the weight": Goal(
        f"(Add {total(K, mul(X, W))} {total(ax('d'), mul(total(K, mul(X, A)), B))})",
        total(K, mul(X, f"(Add {W} {total(ax('d'), mul(A, B))})")),
        ("products", "contract", "gather"),
    ),
    "variance in one pass": Goal(
        total(K, f"(Sq (Sub {X} {MEAN}))"),
        f"(Add {total(K, f'(Sq {X})')} (Mul (Const -1.0) (Mul (Size {K}) (Sq {MEAN}))))",
        ("products", "expand"),
    ),
    "layer norm: the mean behind the matmul": Goal(
        total(K, mul(f"(Sub {X} {MEAN})", W)),
        f"(Sub {total(K, mul(X, W))} {mul(MEAN, total(K, W))})",
        ("products", "reductions"),
    ),
}


@pytest.mark.parametrize("title", GOALS)
@pytest.mark.parametrize("everything", [False, True], ids=["its families", "all families"])
def test_a_goal_is_reached_and_the_rules_come_to_an_end(title: str, *, everything: bool) -> None:
    goal, installed = GOALS[title], Rulebook.installed()
    book = installed if everything else installed.only(*goal.families)
    with Session(book.text() + FACTS) as session:
        session.push(f"(let $root {goal.source})")
        assert saturates(session, book.families)
        assert session.equal("$root", goal.target)
        assert not session.equal("$root", "(NegInf)")


@pytest.mark.parametrize("missing", ["split", "shift", "products"])
def test_flash_decoding_needs_its_families(missing: str) -> None:
    goal, book = GOALS["attention: flash decoding"], Rulebook.default().without(missing)
    with Session(book.text() + FACTS) as session:
        session.push(f"(let $root {goal.source})")
        assert saturates(session, book.families)
        assert not session.equal("$root", goal.target)


def test_attention_stays_small() -> None:
    book = Rulebook.default()
    with Session(book.text() + FACTS) as session:
        session.push(f"(let $root {ATTENTION})")
        assert saturates(session, book.families)
        terms = [n for n in session.nodes().values() if book.signature.get(n["op"], ("",))[0] == "E"]
        assert len(terms) <= 100, len(terms)


def saturates(session: Session, families: tuple[str, ...]) -> bool:
    """Run rounds until one adds no node."""
    schedule = f"(seq (saturate (run analysis)) {' '.join(f'(run {f})' for f in families)} (saturate (run analysis)))"
    before = -1
    for _ in range(ROUNDS):
        session.run(schedule)
        now = len(session.nodes())
        if now == before:
            return True
        before = now
    return False


def facts() -> str:
    """Axes, splits, leaves and weights, as the encoder of a graph would state them."""
    lines: list[str] = []
    refined = {name: [ax(name), outer(name), inner(name)] if count else [ax(name)] for name, count in AXES.items()}
    for name, count in AXES.items():
        lines += [f"(Axis {ax(name)})", f"(set (whole {ax(name)}) (set-of {' '.join(refined[name])}))"]
        lines.append(f"(set (exts {ax(name)}) (set-empty))")
        if count:
            lines.append(f'(Splittable {ax(name)} (DSym "{count}"))')
            lines += [f"(set (whole {piece}) (set-of {piece}))" for piece in (outer(name), inner(name))]
            lines.append(f"(set (exts {outer(name)}) (set-empty))")
            lines.append(f"(set (exts {inner(name)}) (set-of {ax(name)} {outer(name)}))")
    for number, (name, axes) in enumerate(LEAVES.items()):
        inside = " ".join(piece for axis in axes for piece in refined[axis])
        lines.append(f"(set (axes (Leaf {number})) {f'(set-of {inside})' if inside else '(set-empty)'})")
        lines += [f"(Param (Leaf {number}))"] * (name in PARAMS)
    return "\n".join(lines)


FACTS = facts()
