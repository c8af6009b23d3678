"""Search end to end: candidates equal their graph, the named ones are there, limits keep what was found."""

import itertools
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from cleave.candidate import Candidate, load_candidates
from cleave.config import Ablation, Config, SearchLimits
from cleave.errors import SearchError
from cleave.ir.graph import Map, Reduce, reductions, walk
from cleave.ir.interp import interpret
from cleave.rewrite import Rulebook
from cleave.search import Found, Round, Stop, search
from tests.null import operators
from tests.null.operators import ATTENTION, OTHERS
from tests.null.searched import QUICK, found, operator

ALL = (*ATTENTION, *OTHERS)
ANYWHERE = Config(isolate=False, ablation=Ablation(reducibility=False))


def bindings(c: Candidate, sizes: Mapping[str, int], count: int, longest: int) -> dict[str, int]:
    """Dims with every split in ``count`` chunks that reach ``longest``; many chunks leave empty ones."""
    known = {s.name for s in c.graph.symbols}
    out = {n: v for n, v in sizes.items() if n in known}
    for s in c.splits:
        out |= {s.count: count, s.chunk: -(-longest // count)}
    return out


@pytest.mark.parametrize("name", [name for name, _ in ALL])
def test_every_candidate_equals_the_graph(name: str, rng: np.random.Generator) -> None:
    op = operator(name)
    for sizes in op.sizes:
        inputs = op.inputs(sizes, rng)
        wanted = interpret(
            op.graph, inputs, {n: v for n, v in sizes.items() if n in {s.name for s in op.graph.symbols}}
        )
        for c in found(name).candidates:
            # one chunk; chunks that divide nothing; a chunk for each position; more chunks than positions
            for count in (1, 2, 3, 7, 12) if c.splits else (1,):
                got = interpret(c.graph, inputs, bindings(c, sizes, count, 7))
                for output, reference in wanted.items():
                    np.testing.assert_allclose(
                        got[output], reference, 1e-9, 1e-12, err_msg=f"{name}, {c.name}, {count}"
                    )


@pytest.mark.parametrize("name", [name for name, _ in ALL])
def test_search_saturates_and_names_what_it_did(name: str) -> None:
    report = found(name).report
    assert report.stop is Stop.SATURATED
    assert report.rounds[-1].nodes >= report.rounds[0].nodes
    assert sum(report.matches.values()) > 0 or name == "sum"
    assert "stop reason: saturated" in report.text()


def outer_operations(c: Candidate, output: str) -> set[str]:
    """Operations of an output above its first reduction."""
    seen: set[str] = set()
    stack = [o.term for o in c.graph.outputs if o.name == output]
    while stack:
        t = stack.pop()
        if isinstance(t, Map):
            seen.add(t.op)
            stack += t.args
    return seen


def loops(c: Candidate) -> list[tuple[str, str]]:
    return sorted((r.op, r.axis.kind) for r in reductions(*c.graph.terms) if r.axis.name != "d")


@pytest.mark.parametrize("name", [name for name, _ in ATTENTION if name not in ("latent", "qk norm", "self")])
def test_attention_divides_last_and_splits_as_flash_decoding(name: str) -> None:
    """Best unsplit: division behind the second matmul. Best split: partial max, sum, accumulator; rescaled combine."""
    axis_name = next(f.axis.name for f in found(name).pick().folds)
    whole, split = found(name).pick(), found(name).pick(split=axis_name)
    assert not whole.splits and "recip0" in outer_operations(whole, "O")
    assert [r.op for r in reductions(*whole.graph.terms) if r.axis.name == axis_name] == ["max", "sum", "sum"]
    assert split.splits[0].base == axis_name and split.splits[0].count.startswith("S_")
    assert loops(split) == sorted([(op, kind) for op in ("max", "sum", "sum") for kind in ("inner", "outer")])
    assert "recip0" in outer_operations(split, "O")
    assert {"split-red", "telescope", "factor"} <= set(split.rules)


def test_matmul_is_itself_and_split_k() -> None:
    whole, split = found("matmul").pick(), found("matmul").pick(split="k")
    assert whole.graph is found("matmul").candidates[0].origin and not whole.steps
    assert [r.axis.kind for r in reductions(*split.graph.terms)] == ["inner", "outer"]
    assert [str(p) for p in split.graph.constraints] == ["dim.k <= dim.C_k*dim.S_k"]
    assert split.splits[0].count == "S_k" and split.splits[0].chunk == "C_k"


def test_rms_norm_moves_behind_the_matmul() -> None:
    best = found("rms norm and matmul").candidates[0]
    assert "rsqrt" in outer_operations(best, "Y") and not best.splits


def test_variance_has_no_chunk_local_split_and_says_so() -> None:
    assert [c.name for c in found("variance").candidates] == ["as written"]
    assert any("no candidate with k split" in note for note in found("variance").report.notes)


def test_nothing_crosses_a_cast() -> None:
    """Division cannot move out through a cast that the user wrote."""
    assert all("recip0" not in outer_operations(c, "O") for c in found("cast").candidates)


def test_the_graph_as_written_is_there_and_last_when_dominated() -> None:
    for name, _ in ALL:
        assert any(c.graph == operator(name).graph for c in found(name).candidates)
    assert found("causal").candidates[-1].name == "as written"
    assert found("swiglu").candidates[0].name == "as written"


def test_candidates_have_the_free_axes_of_the_output_and_symbolic_counts() -> None:
    for name, _ in ALL:
        for c in found(name).candidates:
            for s in c.splits:
                assert {s.count, s.chunk} <= {x.name for x in c.graph.symbols}
                assert s.outer in c.graph.axes and s.inner in c.graph.axes


# ---- picking, saving


def test_pick_lists_what_there_is() -> None:
    f = found("matmul")
    assert f.pick(index=1) is f.candidates[1]
    with pytest.raises(SearchError, match="no candidate splits 'q'; axes that candidates split: k"):
        f.pick(split="q")
    with pytest.raises(SearchError, match="candidate 9: there are 2, numbered from 0"):
        f.pick(index=9)


def test_found_saves_and_loads(tmp_path: Path) -> None:
    f = found("causal lse")
    f.save(tmp_path / "candidates.json")
    again = load_candidates(tmp_path / "candidates.json")
    assert [c.graph for c in again] == [c.graph for c in f.candidates]
    assert [c.folds for c in again] == [c.folds for c in f.candidates]
    assert [c.steps for c in again] == [c.steps for c in f.candidates]
    assert [str(c.cost) for c in again] == [str(c.cost) for c in f.candidates]


def test_found_saves_ragged_candidates(tmp_path: Path) -> None:
    f = found("ragged prefill")
    f.save(tmp_path / "candidates.json")
    assert [c.folds for c in load_candidates(tmp_path / "candidates.json")] == [c.folds for c in f.candidates]


def test_found_and_its_e_graph_display() -> None:
    f = found("causal")
    assert "candidates:" in f.text() and "split t" in f.text()
    assert re.search(r"^\.\.\. \d+ more e-nodes$", f.egraph.text(limit=10), re.MULTILINE)
    last = f.report.rounds[-1]
    assert (f.egraph.mirrored_count, len(f.egraph.classes)) == (last.nodes, last.classes)
    assert f"{f.egraph.node_count} e-nodes ({last.nodes} with both orders of operands)" in str(f.egraph)
    assert f.egraph.dot().startswith("digraph") and f.egraph.svg().startswith("<svg")


# ---- configuration


def test_algebra_off_leaves_the_graph_as_written_without_folds() -> None:
    f = search(operator("causal").graph, config=Config(ablation=Ablation(algebra=False), isolate=False))
    assert [(c.name, c.folds, c.splits) for c in f.candidates] == [("as written", (), ())]
    assert f.egraph.node_count > 0 and not f.report.rounds


def test_split_off_keeps_the_folds_of_unsplit_candidates() -> None:
    f = search(operator("causal").graph, config=Config(ablation=Ablation(split=False), isolate=False))
    assert not any(c.splits for c in f.candidates)
    assert [len(fold.members) for fold in f.pick().folds] == [3]


def test_reassociation_off_keeps_the_order_of_matmuls() -> None:
    f = search(operator("chain").graph, config=Config(ablation=Ablation(reassociation=False), isolate=False))
    assert not any("reassoc" in c.rules for c in f.candidates)
    assert any("reassociation off: reassoc" in note for note in f.report.notes)
    assert any("reassoc" in c.rules for c in found("chain").candidates)


@cache
def unconstrained(name: str) -> Found:
    """Splits anywhere: the ablation of the reducibility constraint."""
    return search(operator(name).graph, config=ANYWHERE)


def reductions_over(c: Candidate, base: str) -> set[str]:
    """The parts of an axis that the reductions of a candidate bind: plain, outer, inner."""
    names = {base, *(a.name for s in c.splits if s.base == base for a in (s.outer, s.inner))}
    return {r.axis.kind for r in reductions(*c.graph.terms) if r.axis.name in names}


def test_reducibility_off_splits_any_reduction_by_itself() -> None:
    """On, a split axis is split throughout; off, the mean may be split, or the squares, or both."""
    assert [reductions_over(c, "k") for c in found("variance").candidates] == [{"plain"}]
    kinds = [reductions_over(c, "k") for c in unconstrained("variance").candidates]
    assert kinds.count({"plain", "outer", "inner"}) == 2 and {"outer", "inner"} in kinds
    assert any("reducibility off" in note for note in unconstrained("variance").report.notes)
    for name in ("causal", "latent"):
        assert len(unconstrained(name).candidates) > len(found(name).candidates)
        assert any(reductions_over(c, "t") == {"plain", "outer", "inner"} for c in unconstrained(name).candidates)


@pytest.mark.parametrize("name", ["causal", "variance", "rms norm and matmul", "chain"])
def test_without_the_constraint_candidates_still_equal_the_graph(name: str, rng: np.random.Generator) -> None:
    op, sizes = operator(name), operator(name).sizes[0]
    inputs = op.inputs(sizes, rng)
    wanted = interpret(op.graph, inputs, {n: v for n, v in sizes.items() if n in {s.name for s in op.graph.symbols}})
    for c in unconstrained(name).candidates:
        for count in (1, 3, 7) if c.splits else (1,):
            got = interpret(c.graph, inputs, bindings(c, sizes, count, 7))
            for output, reference in wanted.items():
                np.testing.assert_allclose(got[output], reference, 1e-9, 1e-12, err_msg=f"{c.name}, {count}")


def test_a_split_that_needs_all_chunks_has_no_fold_and_runs_in_several_passes() -> None:
    """A partial that reads a total is no state: the fold would need the end of the loop at its beginning."""
    from cleave.pipeline.trial import check_tile_program
    from cleave.schedule import schedule
    from cleave.target import Target
    from cleave.verify import verify

    tried = 0
    for c in unconstrained("variance").candidates:
        assert not c.folds
        assert verify(c, ANYWHERE).passed, c.name
        ours = {n for s in c.splits for n in (s.count, s.chunk)}
        shape = {s.name: 256 for s in c.graph.symbols if s.name not in ours}
        plan = schedule(c, Target("sm_90a"), shape, ANYWHERE, keep=1)[0]
        assert not check_tile_program(plan, c.origin, {"m": 3, "k": 130}).outcome.failed, c.name
        tried += len(c.splits)
    assert tried == 3


def test_assumptions_and_unsafe_rules_are_granted_by_the_configuration() -> None:
    strict = search(operator("causal").graph, config=Config(assume=frozenset(), isolate=False))
    assert all(not c.assumptions for c in strict.candidates)
    assert any("assumptions not granted" in note for note in strict.report.notes)
    assert all(r.exactness != "numerically-unsafe" for c in found("variance").candidates for r in [c])
    loose = search(
        operator("variance").graph, config=Config(unsafe=True, assume=frozenset({"finite", "nonzero"}), isolate=False)
    )
    assert any(c.exactness == "numerically-unsafe" for c in loose.candidates)
    assert loose.pick(split="k").splits


def test_a_rulebook_without_a_family_cannot_use_it() -> None:
    f = search(operator("causal").graph, rules=Rulebook.default().without("telescope"), config=QUICK)
    assert not any("telescope" in c.rules for c in f.candidates)
    assert not any(len(x.members) == 3 for c in f.candidates for x in c.folds)


# ---- limits


def test_progress_is_told_each_round_and_whole_search_is_quick() -> None:
    seen: list[Round] = []
    began = time.perf_counter()
    f = search(operator("causal lse").graph, progress=seen.append)
    assert time.perf_counter() - began < 10  # 0.5 s on a quiet machine; CI shares its cores
    assert tuple(seen) == f.report.rounds and f.report.stop is Stop.SATURATED


@pytest.mark.parametrize("isolate", [True, False])
def test_round_and_node_limits_stop_and_keep_the_original(*, isolate: bool) -> None:
    chain = operators.chain(8).graph
    rounds = search(chain, config=Config(limits=SearchLimits(rounds=2, candidates=2), isolate=isolate))
    assert rounds.report.stop is Stop.ROUNDS and len(rounds.report.rounds) == 2
    nodes = search(chain, config=Config(limits=SearchLimits(nodes=60, candidates=2), isolate=isolate))
    assert nodes.report.stop is Stop.NODES
    assert all(any(c.graph == chain for c in f.candidates) for f in (rounds, nodes))


def test_the_memory_limit_stops_and_keeps_the_original() -> None:
    """A child is stopped inside a round, too."""
    limits = SearchLimits(rounds=1000, nodes=10**9, seconds=60.0, candidates=2, memory=128)
    chain = operators.chain(14).graph
    found = search(chain, config=Config(limits=limits))
    assert found.report.stop is Stop.MEMORY and "stop reason: memory" in found.text()
    assert any(c.graph == chain for c in found.candidates)


def test_in_this_process_it_is_what_a_saturation_adds_that_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    from cleave.search import engine

    assert sys.platform != "linux" or engine._resident() > 10 << 20
    held = itertools.count(500 << 20, 400 << 10)  # 0.4 MiB more after each round
    monkeypatch.setattr(engine, "_resident", lambda: next(held))
    found = search(operators.chain(8).graph, config=Config(limits=SearchLimits(memory=1), isolate=False))
    assert found.report.stop is Stop.MEMORY and len(found.report.rounds) == 3


def test_case_e03_long_sums_and_chains_end_at_a_limit_or_saturate() -> None:
    limits = SearchLimits(nodes=20_000, seconds=2.0, candidates=3)
    for op in (operators.sum_of(12), operators.chain(8)):
        began = time.perf_counter()
        f = search(op.graph, config=Config(limits=limits))
        assert time.perf_counter() - began < 40
        assert f.report.stop in (Stop.SATURATED, Stop.NODES, Stop.SECONDS)
        assert any(c.graph == op.graph for c in f.candidates)


def test_case_e06_candidates_do_not_depend_on_the_hash_seed() -> None:
    script = (
        "from tests.null import operators; from cleave.search import search\n"
        "f = search(operators.attention(operators.causal, lse=True).graph)\n"
        "print('\\n'.join(c.text() + str(c.steps) for c in f.candidates))"
    )
    texts = [
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert texts[0] == texts[1] and "telescope" in texts[0]


def test_an_interrupt_ends_the_search_with_what_was_found() -> None:
    limits = SearchLimits(rounds=1000, nodes=10**9, seconds=60.0, candidates=2)
    g = operators.chain(14).graph

    def interrupt(done: Round) -> None:
        if done.number == 2:
            threading.Timer(0.05, signal.raise_signal, [signal.SIGINT]).start()

    began = time.perf_counter()
    f = search(g, config=Config(limits=limits), progress=interrupt)
    assert f.report.stop is Stop.INTERRUPTED and time.perf_counter() - began < 40
    assert any(c.graph == g for c in f.candidates)


def test_a_broken_rulebook_is_an_error_not_a_limit(tmp_path: Path) -> None:
    from dataclasses import replace

    from cleave.rewrite.rulebook import RuleFile

    book = Rulebook.default()
    broken = RuleFile(tmp_path / "broken.egg", "(rule ((= e (Nothing x))) ())\n", (), ())
    with pytest.raises(SearchError, match="egglog refused"):
        search(operator("matmul").graph, rules=replace(book, files=(*book.files, broken)))


def test_a_crash_of_the_child_keeps_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    from cleave.search import engine

    monkeypatch.setattr(engine.sys, "executable", "/bin/false")
    f = search(operator("matmul").graph)
    assert f.report.stop is Stop.CRASHED and [c.name for c in f.candidates] == ["as written"]


def test_importing_search_loads_nothing_heavy() -> None:
    heavy = ("egglog", "sympy", "cupy", "torch", "rich")
    script = f"import sys, cleave.search; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_walk_finds_no_reference_in_a_candidate() -> None:
    """Folds speak of references; candidates' graphs never do."""
    for c in found("causal").candidates:
        assert all(type(t).__name__ != "Ref" for t in walk(*c.graph.terms))
        assert all(isinstance(m, Reduce) for f in c.folds for m in f.members)


# ---- odd graphs


def test_graphs_without_a_rule_to_apply_are_their_only_candidate() -> None:
    from cleave.ir.axis import axis
    from cleave.ir.dim import dims
    from cleave.ir.graph import Cast, Input, Output, const, graph, load

    n, m = dims("n m")
    i, j = axis("i", n), axis("j", m)
    x = load("X", i, j)
    stored = (i.position, j.position)
    copied = [Output("Y", "float32", (n, m), stored, x), Output("Z", "float32", (n, m), stored, x)]
    constant = [Output("Y", "float32", (n, m), stored, const(np.inf))]
    cast = [Output("Y", "float32", (n, m), stored, Cast("float16", x))]
    for outputs in (copied, constant, cast):
        f = search(graph("odd", [Input("X", "float32", (n, m))], outputs), config=QUICK)
        assert f.report.stop is Stop.SATURATED and [c.name for c in f.candidates] == ["as written"]


def test_a_minimum_and_a_boolean_mask_split(rng: np.random.Generator) -> None:
    from cleave.ir.axis import axis
    from cleave.ir.dim import dims
    from cleave.ir.graph import Input, Output, Where, const, fold, graph, load
    from cleave.ir.index import BoolRead

    n, m = dims("n m")
    i, j = axis("i", n), axis("j", m)
    masked = Where(BoolRead("B", (i.position, j.position)), load("X", i, j), const(np.inf))
    inputs = [Input("X", "float32", (n, m)), Input("B", "bool", (n, m))]
    g = graph("least", inputs, [Output("Y", "float32", (n,), (i.position,), fold("min", j, masked))])
    f = search(g, config=QUICK)
    data = {"X": rng.normal(size=(3, 5)), "B": rng.random((3, 5)) < 0.5}
    split = f.pick(split="m")
    got = interpret(split.graph, data, {"S_m": 3, "C_m": 2})
    np.testing.assert_allclose(got["Y"], interpret(g, data)["Y"])


def test_axes_that_share_a_name_stay_apart(rng: np.random.Generator) -> None:
    """The axis of extent n * m and that of a dim called m_n have one canonical name."""
    from cleave.ir.axis import axis
    from cleave.ir.dim import dims
    from cleave.ir.graph import Input, Output, apply, fold, graph, load

    n, m, other, rows = dims("n m m_n r")
    i, a, b = axis("i", rows), axis("a", n * m), axis("b", other)
    total = apply("add", fold("sum", a, load("X", i, a)), fold("sum", b, load("Y", i, b)))
    inputs = [Input("X", "float32", (rows, n * m)), Input("Y", "float32", (rows, other))]
    g = graph("clash", inputs, [Output("Z", "float32", (rows,), (i.position,), total)])
    assert len({x.name for x in g.axes}) == 2 < len(g.axes)
    f = search(g, config=QUICK)
    data = {"X": rng.normal(size=(2, 6)), "Y": rng.normal(size=(2, 5))}
    wanted = interpret(g, data, {"n": 2, "m": 3})["Z"]
    assert len(f.candidates) == 4
    for c in f.candidates:
        bound = {"n": 2, "m": 3} | {s.count: 4 for s in c.splits} | {s.chunk: 2 for s in c.splits}
        np.testing.assert_allclose(interpret(c.graph, data, bound)["Z"], wanted)


def test_candidates_of_axes_that_share_a_name_are_saved(tmp_path: Path) -> None:
    from cleave.ir.axis import axis
    from cleave.ir.dim import dims
    from cleave.ir.graph import Input, Output, apply, fold, graph, load

    n, m, other, rows = dims("n m m_n r")
    i, a, b = axis("i", rows), axis("a", n * m), axis("b", other)
    total = apply("add", fold("sum", a, load("X", i, a)), fold("sum", b, load("Y", i, b)))
    inputs = [Input("X", "float32", (rows, n * m)), Input("Y", "float32", (rows, other))]
    f = search(graph("clash", inputs, [Output("Z", "float32", (rows,), (i.position,), total)]), config=QUICK)
    f.save(tmp_path / "c.json")
    assert [c.splits for c in load_candidates(tmp_path / "c.json")] == [c.splits for c in f.candidates]


def test_costs_are_symbolic_and_rank_at_the_sizes_given() -> None:
    from cleave.cost.graph import estimate, graph_cost

    whole, split = found("matmul").pick(), found("matmul").pick(split="k")
    assert str(graph_cost(whole.graph)) == "work 2*k*m*n, transcendental 0, traffic k*m + k*n + m*n, 1 passes, 2 live"
    small = {"m": 8, "n": 8, "k": 4096}
    assert whole.cost is not None and split.cost is not None
    assert estimate(whole.graph, whole.cost, sizes=small).work == 2 * 8 * 8 * 4096
    parts = estimate(split.graph, split.cost, split.splits, {**small, "S_k": 16})
    assert parts.work == 2 * 8 * 8 * 4096 + 16 * 8 * 8
    assert parts.traffic > estimate(whole.graph, whole.cost, sizes=small).traffic
