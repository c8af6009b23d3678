"""The command line: what it prints, exit codes, and one line for everything that a user can get wrong."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cleave.cli import main
from cleave.cli.inputs import bindings, read_config
from cleave.cli.parser import ABLATIONS, EXIT_CODES, parse
from cleave.config import SearchLimits
from cleave.nn import OPERATORS
from cleave.runtime import device
from tests.null.command import Run, runner

SMALL = "--bind b=1 --bind h=4 --bind kv_heads=2 --bind s=200 --bind t=300 --bind d=64"
MATMUL = "--bind m=100 --bind n=72 --bind k=130"

FUNCTIONS = """
import cleave
from cleave import ops

def attention(q: "h s d=64", k: "h t d", v: "h t e=64"):
    p = ops.softmax(ops.einsum("hsd,htd->hst", q, k) * 0.125, axis="t")
    return ops.einsum("hst,hte->hse", p, v)

def double():
    return cleave.trace(lambda x: x * 2, x="m n")

def fails(x: "m"):
    return x + 1 / 0

def mismatch(x: "m n=5", y: "n=4"):
    return x + y

def product(a: "m k", b: "k n"):
    return ops.einsum("mk,kn->mn", a, b)

def leaves(x: "m"):
    raise SystemExit(0)

number = 3
"""


@pytest.fixture
def cleave(capsys: pytest.CaptureFixture[str]) -> Callable[..., Run]:
    return runner(capsys)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results") / "matmul"
    assert main(f"optimize matmul {MATMUL} --target sm_80 --save {folder} --json".split()) == 0
    return folder


@pytest.fixture
def functions(tmp_path: Path) -> Path:
    path = tmp_path / "functions.py"
    path.write_text(FUNCTIONS)
    return path


# ---- the main command


def test_optimize_attention(cleave: Callable[..., Run], tmp_path: Path) -> None:
    found = cleave(f"optimize attention {SMALL} --causal --save {tmp_path / 'saved'}")
    assert found.code == 0
    assert found.err == ""  # no terminal, no progress
    for words in (
        "stop reason: saturated",
        "-- unsplit",
        "-- split t",
        "derivation:",
        "verification: passed",
        "kernel attention",
        "0 spills",
        "compiled for sm_90a: ",
    ):
        assert words in found.out, words
    assert float(re.search(r"^seconds: ([\d.]+) \(saturation", found.out, re.MULTILINE)[1]) < 20  # type: ignore[index]
    if not device.available():
        assert "times are the cost model's, not measured" in found.out
    assert {"graph.txt", "candidates.json", "schedule.json", "report.json"} <= {
        p.name for p in (tmp_path / "saved").iterdir()
    }


def test_optimize_as_json(cleave: Callable[..., Run]) -> None:
    found = cleave(f"optimize matmul {MATMUL} --target sm_80 --json")
    assert found.code == 0 and found.err == ""
    assert found.json["report"]["search"]["stop"] == "saturated"
    assert all(v["outcome"] == "passed" for v in found.json["verdicts"])
    assert found.json["best"] and found.json["trials"][0]["builds"][0]["spill_bytes"] == 0


def test_a_function_of_a_file(cleave: Callable[..., Run], functions: Path) -> None:
    found = cleave(f"optimize {functions}:product --bind m=50,n=40 --bind k=90 --target sm_80 --without split")
    assert found.code == 0 and "graph product" in found.out
    found = cleave(f"search {functions}:attention --bind h=2,s=100,t=150")
    assert found.code == 0 and "final test, graph half (" in found.out
    found = cleave(f"search {functions}:double")
    assert found.code == 0 and "stop reason: saturated" in found.out


def test_ablations_reach_the_configuration() -> None:
    for name in ABLATIONS:
        options = parse(["search", "matmul", f"--no-{name.replace('_', '-')}"])
        ablation = read_config(options).ablation
        assert not getattr(ablation, name)
        assert all(getattr(ablation, other) for other in ABLATIONS if other != name)


def test_limits_and_assumptions_reach_the_configuration() -> None:
    given = ["--rounds=3", "--nodes=50", "--seconds=1.5", "--candidates=2", "--seed=7", "--assume=finite"]
    config = read_config(parse(["search", "matmul", *given]))
    assert config.limits == SearchLimits(rounds=3, nodes=50, seconds=1.5, candidates=2)
    assert config.seed == 7 and config.assume == frozenset({"finite"}) and not config.unsafe


def test_algebra_off_has_no_fold_and_no_split(cleave: Callable[..., Run]) -> None:
    found = cleave(f"optimize attention {SMALL} --no-algebra --target sm_90a")
    assert found.code == 0
    assert "as written" in found.out and "fold over" not in found.out.split("== schedules")[1]
    assert "split t" not in found.out


# ---- the other commands


def test_search_prints_and_saves(cleave: Callable[..., Run], tmp_path: Path) -> None:
    found = cleave(f"search matmul --save {tmp_path / 'c.json'}")
    assert found.code == 0 and "split-red" in found.out and "no shape is bound" in found.out
    assert (tmp_path / "c.json").exists()
    as_json = cleave("search matmul --json").json
    assert as_json["stop"] == "saturated" and as_json["candidates"][0]["graph"].startswith("graph matmul")


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("absent/c.json", "its folder does not exist"),
        ("", "exists and is no cleave-candidates file; nothing was written"),
        ("mine.txt", "mine.txt: exists and is no cleave-candidates file; nothing was written"),
        ("/dev/null", "/dev/null: exists and is no cleave-candidates file; nothing was written"),
        ("long" * 100, "can't be written: File name too long"),
    ],
)
def test_candidates_replace_nothing_but_candidates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], place: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.txt").write_text("mine")
    assert main(["search", "matmul", "--save", place]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1 and message in captured.err
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"] and (tmp_path / "mine.txt").read_text() == "mine"


def test_names_that_are_too_long(cleave: Callable[..., Run]) -> None:
    for command in ("search NAME.py:f", "explain NAME", "run NAME", "rules check NAME", "search matmul --rules NAME"):
        found = cleave(command.replace("NAME", "long" * 100))
        assert found.code == 2 and found.out == "" and found.err.count("\n") == 1
        assert "File name too long" in found.err


def test_an_interrupted_verification_prints_and_saves_what_was_found(
    cleave: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*arguments: Any, **named: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("cleave.pipeline.verification.verify", stop)
    found = cleave(f"search matmul --save {tmp_path / 'c.json'}")
    assert found.code == 130 and "-- split k" in found.out and (tmp_path / "c.json").exists()


def test_a_limit_is_the_stop_reason(cleave: Callable[..., Run]) -> None:
    assert cleave("search attention --rounds 1 --json").json["stop"] == "rounds"


def test_a_search_folds_what_an_operator_calls_its_weights(cleave: Callable[..., Run]) -> None:
    first = cleave("search rmsnorm_matmul --json").json["candidates"][0]
    assert "param-fold" in first["rules"] and "(x[m, k] * (gain[k] * w[k, n]))" in first["graph"]
    assert "(gain[k] * w[k, n])" in cleave("explain rmsnorm_matmul --candidate 0").out


def test_explain_and_run_what_a_search_saved(cleave: Callable[..., Run], tmp_path: Path) -> None:
    assert cleave(f"search matmul --save {tmp_path / 'c.json'}").code == 0
    found = cleave(f"explain {tmp_path / 'c.json'} --candidate 0")
    assert found.code == 0 and found.out.count("\n== ") == 1 and "stop reason: unknown" in found.out
    found = cleave(f"run {tmp_path / 'c.json'}")
    assert found.code == 2 and found.err == "cleave: matmul: nothing was scheduled, so there is nothing to run\n"


def test_run_a_saved_result(cleave: Callable[..., Run], saved: Path) -> None:
    found = cleave(f"run {saved}")
    assert found.code == 0 and "passed, worst element" in found.out
    if not device.available():
        assert "tile program at a reduced size" in found.out and "no GPU was used" in found.out
    found = cleave(f"run {saved} --candidate 1 --json")
    assert found.code == 0 and found.json["outcome"] == "ok"
    if not device.available():
        found = cleave(f"run {saved} --bind m=33")
        assert found.code == 0 and "m=33" in found.out


def test_environment(cleave: Callable[..., Run]) -> None:
    found = cleave("environment --json").json
    assert found["packages"]["egglog"] and found["python"] and found["cache"]
    assert "packages: " in cleave("environment").out


def test_cache(cleave: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLEAVE_CACHE", str(tmp_path / "cache"))
    assert cleave("cache --json").json == {"folder": str(tmp_path / "cache"), "entries": 0, "bytes": 0}
    assert cleave(f"optimize matmul {MATMUL} --target sm_80 --no-algebra --no-split --json").code == 0
    assert cleave("cache --json").json["entries"] > 0
    entry = next((tmp_path / "cache").rglob("*.kernel"))
    entry.write_bytes(entry.read_bytes()[:100])
    found = cleave(f"optimize matmul {MATMUL} --target sm_80 --no-algebra --no-split --json")
    assert found.code == 0 and found.err.count("\n") == 1
    assert re.fullmatch(r"cleave: warning: cache entry \w+ is damaged .*; compiling again\n", found.err)
    assert re.fullmatch(r"removed \d+ entries\n", cleave("cache clear").out)
    assert cleave("cache --json").json["entries"] == 0


@pytest.mark.parametrize(
    "command",
    ["", "optimize", "search", "explain", "equal", "rules", "run", "tune", "operators", "environment", "cache"],
)
def test_help_documents_the_exit_codes(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*command.split(), "--help"])
    assert ended.value.code == 0
    assert EXIT_CODES.strip() in capsys.readouterr().out


# ---- bad input


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("", "the following arguments are required: COMMAND"),
        ("optimise", "argument COMMAND: invalid choice: 'optimise'"),
        ("optimize", "optimize: the following arguments are required: PROGRAM"),
        ("optimize convolution", f"convolution: no such operator: allowed are {', '.join(OPERATORS)}"),
        ("optimize attention --quick", "unrecognized arguments: --quick"),
        ("optimize attention --bind s", "--bind s: NAME=NUMBER is expected, such as t=2048"),
        ("optimize attention --bind s=2k", "--bind s=2k: NAME=NUMBER is expected"),
        ("optimize attention --bind s=1 --bind s=2", "--bind s=2: s was 1 before"),
        ("optimize attention --bind x=2", "attention: no dim 'x': allowed are b, h, kv_heads, s, t, d, e"),
        ("optimize attention --bind s=-1", "attention: dim s = -1: allowed is >= 0"),
        ("optimize attention --bind h=32,kv_heads=5", "h = 32 query heads are not divisible by kv_heads = 5"),
        ("optimize attention --bind h=4", "attention: dim b has no value: bind it (b=...)"),
        ("optimize matmul --causal", "matmul: no option 'causal': allowed are dtype"),
        ("optimize matmul --dtype int8", "int8"),
        ("optimize matmul --without factr", "no rule or family 'factr'; did you mean factor?"),
        ("optimize matmul --rules absent.egg", "absent.egg: can't be read as a rule file"),
        (f"optimize matmul {MATMUL} --target sm_70", "target: unknown architecture 'sm_70'; allowed: sm_80, sm_90a"),
        (f"optimize matmul {MATMUL} --split z=3", "--split: no axis 'z': there are k, m, n"),
        (f"optimize matmul {MATMUL} --split k=0", "--split k: 0 chunks: allowed is >= 1"),
        ("optimize matmul --merge hope", "optimize: argument --merge: invalid choice: 'hope'"),
        (
            "optimize matmul --rounds 0",
            "optimize: argument --rounds: 0: a whole number from 1 to 2147483647 is expected",
        ),
        ("optimize matmul --nodes 9999999999", "9999999999: a whole number from 1 to 2147483647 is expected"),
        ("optimize matmul --rounds 1.5", "optimize: argument --rounds: 1.5: a whole number"),
        ("optimize matmul --seed -1", "optimize: argument --seed: -1: a whole number >= 0 is expected"),
        ("optimize matmul --seconds inf", "optimize: argument --seconds: inf: a number is expected"),
        ("optimize matmul --assume hope", "optimize: argument --assume: invalid choice: 'hope'"),
        ("optimize matmul --rules /dev/null", "--rules /dev/null: holds no rule"),
        ("optimize attention --scale nan", "optimize: argument --scale: nan: a number is expected"),
        ("optimize attention --window 1,2,3", "argument --window: 1,2,3: W or LEFT,RIGHT is expected"),
        ("optimize attention --window 0", "attention: window = 0: a whole number >= 1, or two >= 0 (left, right)"),
        ("optimize swiglu --soft-cap 2", "swiglu: no option 'soft_cap': allowed are dtype"),
        ("optimize attention --bind h=0,d=64", "attention: h = 0 query heads: allowed is >= 1"),
        ("optimize attention --bind h=4,d=0", "attention: dim d = 0: allowed is >= 1"),
        ("optimize matmul --bind m=281474976710657,n=1,k=1", "allowed is <= 281474976710656"),
        (f"optimize matmul {MATMUL} --tile m=0", "tile of m: 0 elements: allowed is >= 1"),
        (f"optimize matmul {MATMUL} --tile z=16", "tile for 'z': allowed are k, m, n"),
        (f"optimize matmul {MATMUL} --tile m=7", "axis m: tile 7: allowed in cta-ring are 16, 32, 64, 128"),
        (f"optimize matmul {MATMUL} --skeleton hope", "skeleton 'hope': allowed are cta-ring"),
        (f"optimize matmul {MATMUL} --split m=2", "split of m: no candidate splits it; candidates split k"),
        (f"optimize matmul {MATMUL} --split k=2 --split k=3", "--split k=3: k was 2 before"),
        (f"optimize matmul {MATMUL} --split k=131", "split of k: 131 chunks of 130 elements: allowed is 1 to 130"),
        (f"optimize matmul {MATMUL} --split 2 --no-split", "split of k: no candidate splits it"),
        (f"optimize matmul {MATMUL} --merge last-arriving --no-split", "merge last-arriving: no candidate has a split"),
        ("optimize absent.py:f", "absent.py: no such file"),
        ("optimize absent.py", "absent.py: FILE.py:FUNCTION is expected"),
        ("optimize absent.txt", "absent.txt: no such file"),
        ("equal matmul", "equal: the following arguments are required: B"),
        ("equal matmul attention", "attention has no input 'a': it has q, k, v"),
        ("equal matmul absent.txt", "absent.txt: no such file"),
        ("equal matmul matmul --candidates 3", "unrecognized arguments: --candidates 3"),
        ("equal matmul matmul --weights c", "no input 'c': the graph has a, b"),
        ("explain matmul --candidate 99", "candidate 99: there are "),
        ("run absent", "absent: is no saved result: there is no such file or folder"),
        ("explain absent.json", "absent.json: is no saved result: there is no such file or folder"),
        ("rules check absent.egg", "absent.egg: can't be read as a rule file"),
        ("cache empty", "cache: argument action: invalid choice: 'empty'"),
    ],
)
def test_bad_input_is_one_line_and_code_2(
    cleave: Callable[..., Run], command: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    save = " --save saved" if command.startswith("optimize ") else ""
    found = cleave(command + save)
    assert found.code == 2 and found.out == ""
    assert found.err.startswith("cleave: ") and found.err.count("\n") == 1, found.err
    assert message in found.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("absent", "has no 'absent'"),
        ("number", "is int, no graph and no function"),
        ("fails", "functions.py:13: ZeroDivisionError: division by zero"),
        ("mismatch", "axis n"),
        ("leaves", "functions.py:22: SystemExit: 0"),
        ("attention --causal", "--causal is an option of operators"),
    ],
)
def test_bad_functions(cleave: Callable[..., Run], functions: Path, function: str, message: str) -> None:
    found = cleave(f"optimize {functions}:{function}")
    assert found.code == 2 and found.err.count("\n") == 1
    assert message in found.err


def test_a_place_that_can_not_be_written_is_told_before_the_search(cleave: Callable[..., Run], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for place, message in [
        ("file", "exists and is no saved result"),
        ("file/below", "is no folder that may be written"),
    ]:
        found = cleave(f"optimize matmul {MATMUL} --save {tmp_path / place}")
        assert found.code == 2 and found.out == "" and found.err.count("\n") == 1 and message in found.err
    assert (tmp_path / "file").read_text() == "mine"


def test_a_saved_result_takes_no_option_of_the_search(cleave: Callable[..., Run], saved: Path) -> None:
    for option in ("--causal", "--bind m=3", "--seed 4", "--no-algebra", "--without factor"):
        found = cleave(f"explain {saved} {option}")
        assert found.code == 2 and found.out == "" and found.err.count("\n") == 1
        assert f"{option.split()[0]} is for a program; {saved} is a saved result" in found.err


@pytest.mark.skipif(device.available(), reason="a GPU runs any size")
@pytest.mark.parametrize(
    ("bind", "message"),
    [
        ("q=3", "matmul: no dim 'q': the graph has k, m, n"),
        ("m=-1", "dim m = -1: allowed is >= 0"),
        ("m=100000000", "--bind: a has "),
    ],
)
def test_run_refuses_sizes_in_one_line(cleave: Callable[..., Run], saved: Path, bind: str, message: str) -> None:
    found = cleave(f"run {saved} --bind {bind}")
    assert found.code == 2 and found.out == "" and found.err.count("\n") == 1
    assert message in found.err, found.err


def test_a_file_with_the_text_of_a_graph(cleave: Callable[..., Run], tmp_path: Path) -> None:
    from cleave.nn import matmul

    (tmp_path / "graph.txt").write_text(matmul().text())
    found = cleave(f"search {tmp_path / 'graph.txt'} --bind m=20,n=30,k=40")
    assert found.code == 0 and "final test, graph half (" in found.out
    found = cleave(f"search {tmp_path / 'graph.txt'} --dtype float32")
    assert found.code == 2 and "--dtype is an option of operators" in found.err
    (tmp_path / "graph.txt").write_text("graph g\ninput a: float16[m]\n")
    found = cleave(f"search {tmp_path / 'graph.txt'}")
    assert found.code == 2 and "graph.txt:2: " in found.err and found.err.count("\n") == 1


def test_files_that_do_not_run(cleave: Callable[..., Run], tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def f(:\n")
    found = cleave(f"search {tmp_path / 'broken.py'}:f")
    assert found.code == 2 and re.search(r"broken\.py:1: .*syntax", found.err)
    (tmp_path / "absent.py").write_text("\nimport nothing_of_this_name\n")
    found = cleave(f"search {tmp_path / 'absent.py'}:f")
    assert found.code == 2 and "absent.py:2: ModuleNotFoundError" in found.err


@pytest.mark.parametrize("name", ["graph.txt", "report.json", "schedule.json", "candidates.json"])
def test_a_file_that_is_no_saved_result(cleave: Callable[..., Run], saved: Path, tmp_path: Path, name: str) -> None:
    import shutil

    folder = tmp_path / "copy"
    shutil.copytree(saved, folder)
    (folder / name).write_text("something else")
    found = cleave(f"run {folder}")
    assert found.code == 2 and found.out == "" and found.err.count("\n") == 1
    assert name in found.err


def test_numbers_are_bound_by_name() -> None:
    assert bindings(["b=1,s=2", "t=3"], "--bind") == {"b": 1, "s": 2, "t": 3}


# ---- as a process


def _process(*arguments: str, **named: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "cleave.cli", *arguments], capture_output=True, text=True, **named)


def test_mistakes_answer_at_once_and_load_nothing_heavy() -> None:
    code = (
        "import sys; from cleave.cli import main; code = main(['optimize', 'attention', '--bind', 's']);"
        "print(code, [m for m in ('egglog', 'sympy', 'cupy', 'torch', 'rich') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "2 []\n"


def test_an_interrupt_is_code_130(monkeypatch: pytest.MonkeyPatch, cleave: Callable[..., Run]) -> None:
    from cleave.pipeline import optimizer

    def stop(*arguments: Any, **named: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(optimizer, "verify", stop)
    found = cleave(f"optimize matmul {MATMUL} --target sm_80")
    assert found.code == 130 and found.out.endswith("interrupted: this is what was found until then\n")
    assert "-- split k" in found.out
    monkeypatch.setattr("cleave.cli.commands.read_program", stop)
    found = cleave("search matmul")
    assert found.code == 130 and found.err == "cleave: interrupted\n"


def test_a_closed_pipe_is_no_error() -> None:
    command = f"{sys.executable} -m cleave.cli rules | head -1"
    found = subprocess.run(["sh", "-c", command], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": ""})
    assert found.stdout.startswith("| rule ") and found.stderr == ""


@pytest.mark.parametrize("place", [">&-", ">/dev/full"])
@pytest.mark.parametrize("command", ["rules", "cache", "environment --json"])
def test_an_output_that_can_not_be_written_is_one_line(command: str, place: str) -> None:
    found = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m cleave.cli {command} {place}"], capture_output=True, text=True
    )
    assert found.returncode == 1
    assert re.fullmatch(
        r"cleave: standard output (is closed|can't be written: No space left on device)\n", found.stderr
    )


def test_mistakes_without_a_place_to_tell_them() -> None:
    for place in ("2>&-", "2>/dev/full"):
        command = f"{sys.executable} -m cleave.cli optimize nothing {place}"
        assert subprocess.run(["sh", "-c", command], capture_output=True).returncode == 2


def test_output_fits_the_encoding_of_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text('def größe(x: "m"):\n    return x * 2\n', encoding="utf-8")
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}
    found = _process("search", f"{tmp_path}/f.py:größe", "--json", env=ascii_only)
    assert found.returncode == 0 and "größe" in json.loads(found.stdout)["candidates"][0]["graph"]
    found = _process("search", f"{tmp_path}/f.py:größe", env=ascii_only)
    assert found.returncode == 0 and r"gr\xf6\xdfe" in found.stdout


def test_an_interrupt_is_not_lost_while_a_weak_reference_dies() -> None:
    """Python drops what is raised there."""
    code = """
import os, signal, time, weakref
from cleave.cli import _interruptible
class Key: pass
table = weakref.WeakKeyDictionary()
class Noisy(dict):
    def __delitem__(self, key):
        os.kill(os.getpid(), signal.SIGINT)
        super().__delitem__(key)
table.data = Noisy()
key = Key()
table[key] = 1
try:
    with _interruptible():
        del key
        time.sleep(5)
except KeyboardInterrupt:
    print("interrupted")
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.stdout == "interrupted\n" and found.stderr == ""


def test_another_process_makes_the_same_schedules(saved: Path) -> None:
    """Nothing that is saved depends on the order of a set, which changes from process to process."""
    found = [_process("run", str(saved), "--json", env={**os.environ, "PYTHONHASHSEED": seed}) for seed in "123"]
    assert [f.returncode for f in found] == [0, 0, 0], found[0].stderr


def test_the_module_is_the_command() -> None:
    assert _process("rules").stdout.startswith("| rule ")
