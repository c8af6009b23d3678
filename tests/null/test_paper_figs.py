"""Figures from records: every byte the same in two runs, numbers those of the records, what is missing named."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import paper_figs.__main__ as figures
from cleave.records import read
from experiments.e01_ablation.ablation_summary import over_subgraphs, shares
from experiments.e01_ablation.summary import ratios, table
from experiments.e02_dynamic.summary import over_operators
from experiments.e02_dynamic.summary import ratios as dynamic_ratios
from experiments.e04_decode.config import TIMED
from paper_figs import ablation, decode, dynamic, speedup, splits
from paper_figs.source import RECORDS, MissingRecords, Source
from paper_figs.table import Table, number
from tests.null.figure_records import ENVIRONMENT, FILES, write_records

ROOT = Path(__file__).parents[2]
KINDS = ("pdf", "png", "txt", "tex")


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("records")
    write_records(folder)
    return folder


@pytest.fixture
def matplotlib() -> None:
    pytest.importorskip("matplotlib")


def drawn(folder: Path, out: Path, *names: str) -> int:
    return figures.main([*(names or ("all",)), "--records", str(folder), "--out", str(out)])


@pytest.mark.usefixtures("matplotlib")
def test_two_runs_draw_the_same_bytes(records: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The second one in a process of its own, whose user has settings for matplotlib."""
    assert drawn(records, tmp_path / "a") == 0
    assert "ablation: ablation.pdf, ablation.png, ablation.txt, ablation.tex" in capsys.readouterr().out
    (tmp_path / "matplotlibrc").write_text("lines.linewidth: 7\nfont.size: 20\n")
    command = [sys.executable, "-m", "paper_figs", "all", "--records", str(records), "--out", str(tmp_path / "b")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MATPLOTLIBRC": str(tmp_path), "TZ": "Asia/Tokyo"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    names = sorted(p.name for p in (tmp_path / "a").iterdir())
    assert names == sorted(f"{name}.{kind}" for name in figures.FIGURES for kind in KINDS)
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name


@pytest.mark.usefixtures("matplotlib")
def test_what_is_missing_is_named_and_the_others_are_drawn(
    records: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "records"
    write_records(folder)
    (folder / "e01_ablation" / "ablations.jsonl").unlink()
    (folder / "e04_decode" / "sweep.jsonl").write_text("")
    assert drawn(folder, tmp_path / "out") == 1
    said = capsys.readouterr()
    assert [line.split(":")[0] for line in said.out.splitlines()] == ["speedup", "decode", "dynamic"]
    first, second = said.err.splitlines()
    assert first == (
        "paper_figs: ablation: e01_ablation/ablations.jsonl: is not there; "
        "python -m experiments run e01 measure --parts ablations --resume makes the records, on a GPU"
    )
    assert second.startswith(
        "paper_figs: splits: e04_decode/sweep.jsonl: holds no sweep; python -m experiments run e04"
    )


@pytest.mark.usefixtures("matplotlib")
def test_committed_records_give_a_figure(tmp_path: Path) -> None:
    """As in a clean clone without a GPU."""
    assert figures.main(["decode", "--out", str(tmp_path)]) == 0
    shown = (tmp_path / "decode.txt").read_text(encoding="utf-8")
    assert all(p.name in shown for p in TIMED) and "NVIDIA H200, commit" in shown


def test_a_name_that_is_no_figure_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert drawn(tmp_path, tmp_path, "pie") == 2
    assert capsys.readouterr().err == (
        "paper_figs: no figure 'pie'; there are: all, speedup, ablation, splits, decode, dynamic\n"
    )


def test_without_matplotlib_it_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert drawn(tmp_path, tmp_path, "speedup") == 2
    assert capsys.readouterr().err.endswith("python -m pip install '.[figures]'\n")


# ---- what they show


@pytest.mark.usefixtures("matplotlib")
def test_numbers_at_bars_are_those_of_the_report(records: Path) -> None:
    found = list(read(records / "e01_ablation/times.jsonl"))
    made, shown = speedup.draw(found)
    *_, whole = table([r for r in ratios(found, ENVIRONMENT["commit"]) if r.nine])[: 3 + 9]
    prefill, decode_mean, both = (float(cell) for cell in whole.split()[2:5])
    assert [f"{prefill:.2f}", f"{decode_mean:.2f}", f"{both:.2f}"] == list(shown.rows[-1][2:5])
    texts = {t.get_text() for t in made.axes[0].texts}
    assert {f"{prefill:.2f}", f"{decode_mean:.2f}"} <= texts
    assert shown.rows[-1][1] == "111" and len(shown.rows) == 10
    later = [msgspec.structs.replace(r, environment={**ENVIRONMENT, "commit": {"id": "later"}}) for r in found[-20:]]
    assert speedup.draw([*found, *later])[1] == shown, (
        "a few points of a later commit do not hide all of an earlier one"
    )


@pytest.mark.usefixtures("matplotlib")
def test_ablation_bars_stand_beside_the_papers(records: Path) -> None:
    found = list(read(records / "e01_ablation/ablations.jsonl"))
    made, shown = ablation.draw(found)
    rows = {row[0]: row for row in shown.rows}
    whole = over_subgraphs(shares(found, ENVIRONMENT["commit"]), "neither")
    assert whole is not None and rows["neither"][3] == f"{whole:.2f}" and rows["neither"][5] == "-47 %"
    assert rows["no layout propagation"][6] == "61/62" and rows["no split"][7] == "36"
    assert {"0.56", "0.60", "0.53", "0.94"} <= {t.get_text() for t in made.axes[0].texts}


@pytest.mark.usefixtures("matplotlib")
def test_a_sweep_shows_the_best_count_and_the_models(records: Path) -> None:
    found = list(read(records / "e04_decode/sweep.jsonl"))
    made, shown = splits.draw(found)
    first = dict(zip(shown.header, shown.rows[0], strict=True))
    assert first["12"] == "5.50" and first["1"] == "30.25" and first["baseline"] == "12.00"
    assert first["model"] == "6"  # modelled: 6 and 8 alike
    assert made.axes[0].get_title() == "decode, batch 1, 1024 keys"


def test_a_shape_of_decode_is_as_it_was_measured_last(records: Path) -> None:
    """Rows of one run follow one another; an older run's contenders do not count."""
    found = list(read(records / "e04_decode/times.jsonl"))
    shape = decode.newest(found, TIMED[0])
    assert shape is not None and (shape.ours, shape.theirs, shape.baseline) == (5.0, 8.0, "cudnn")
    alone = msgspec.structs.replace(
        found[0], workload={**found[0].workload, "contender": "in order"}, quantiles={"q50": 1.0}
    )
    assert decode.newest([*found[:2], alone, *found[2:]], TIMED[0]) == shape  # no baseline of anybody's
    later = decode.newest([*found, found[0], found[4]], TIMED[0])
    assert later is not None and later.baseline == "fa2" and decode.newest(found, TIMED[1]) is None
    assert shape.bandwidth(1.0) == pytest.approx((2 * 2 * 8 * 1024 * 128 + 2 * 2 * 32 * 128) / 1e6)


@pytest.mark.usefixtures("matplotlib")
def test_dynamic_bars_are_means_over_both_baselines(records: Path) -> None:
    found = list(read(records / "e02_dynamic/times.jsonl"))
    made, shown = dynamic.draw(found)
    captured = [r for r in dynamic_ratios(found) if r.lengths != "synthetic"]
    wanted = [over_operators(captured, name) for name in ("fa2", "fa3")]
    assert wanted[0] is not None and wanted[1] is not None
    texts = {t.get_text() for t in made.axes[0].texts}
    assert {f"{v:.2f}" for v in wanted if v is not None} <= texts
    rows = {row[0]: row for row in shown.rows}
    assert rows["captured operators"][2:4] == [f"{v:.2f}" for v in wanted if v is not None]
    assert rows["MLA decode"][1] == "3" and "fa3 0" in rows["paged prefill kv 4"][-1]


def test_every_source_names_a_part_of_its_experiment() -> None:
    assert {source.file for source, _ in figures.FIGURES.values()} == set(FILES)
    for source, _ in figures.FIGURES.values():
        folder = source.file.split("/")[0]
        assert f"run {folder.split('_')[0]} measure" in source.command and (RECORDS.parent / folder).is_dir()
    with pytest.raises(MissingRecords, match=r"^e99/x.jsonl: is not there; make it makes the records, on a GPU$"):
        Source("e99/x.jsonl", "make it").read()


def test_tables_are_text_and_latex() -> None:
    made = Table("A title.", ("name", "share"), (("matmul_rowsum", "50 %"), ("b", number(None))), ("A note.",))
    assert made.text() == "A title.\n\nname           share\nmatmul_rowsum   50 %\nb                  –\n\nA note.\n"
    assert r"matmul\_rowsum & 50 \% \\" in made.latex() and made.latex().startswith("% A title.\n% A note.\n")
