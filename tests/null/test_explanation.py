"""Explanations: the same content in every format, escaped, deterministic, with false steps at the top."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

import cleave
from cleave import Config, Rulebook, document, nn
from cleave.candidate import Candidate, load_candidates
from cleave.document import Code, Heading, Item, Lines, Numbered, Picture, Table
from cleave.errors import SearchError
from cleave.pipeline.explanation import Explanation, explain_saved
from cleave.search import Found

QUICK = Config(isolate=False)
NASTY = "a|b <script> `x` *y* _z_ & $1 [l](u) # \\ ```"
BLOCKS = (
    Heading(NASTY),
    Lines((NASTY, "second")),
    Code("```\n<b> & *c*\n````"),
    Table(("axis", NASTY), (("t", NASTY), ("long name", ""))),
    Numbered((Item(NASTY, f"at {NASTY}", "x\n-> y <", NASTY), Item("b", "", "c"))),
    Picture(NASTY, "<svg/>"),
)


class Tags(HTMLParser):
    """The tags that are open, and the text outside tags."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen.add(tag)
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        self.seen.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def found() -> Found:
    return cleave.search(nn.attention(causal=True), config=QUICK)


# ---- documents


def test_html_is_escaped_and_closed() -> None:
    read = Tags(document.page(NASTY, BLOCKS))
    assert not read.open and "script" not in read.seen and {"svg", "table", "ol"} <= read.seen
    assert read.text.count(NASTY) == 9


def test_markdown_is_escaped() -> None:
    shown = document.markdown(BLOCKS)
    heading, *_ = shown.splitlines()
    assert heading == r"# a\|b \<script\> \`x\` \*y\* \_z\_ \& \$1 \[l\](u) \# \\ \`\`\`"
    assert "`````text\n```\n<b> & *c*\n````\n`````" in shown
    rows = [line for line in shown.splitlines() if line.startswith("| ")]
    assert len(rows) == 4 and {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {3}
    assert "\n   -> y <\n   ```\n" in shown and "svg" not in shown


def test_text_is_aligned() -> None:
    shown = document.text([Table(("a", "bb"), (("ccc", "d"), ("", "")))])
    assert shown == "a    bb\nccc  d\n\n"


# ---- explanations


def test_every_format_has_every_step(found: Found) -> None:
    e = cleave.explain(found)
    assert isinstance(e, Explanation) and not e.errors
    steps = [s for _, c in e.candidates for s in c.steps]
    texts = {"text": e.text(), "markdown": e.markdown(), "html": Tags(e.html()).text}
    for shown in texts.values():
        assert all(f"   {s.before}\n" in shown and f"-> {s.after}" in shown for s in steps)
        assert shown.count("holds on ") == len(steps)
    assert "<svg" in e.html() and "<svg" in e._repr_html_() and str(found.egraph) in e._repr_html_()
    assert e.text() == cleave.explain(cleave.search(nn.attention(causal=True), config=QUICK)).text()


def test_the_cut_off_of_an_e_graph_is_visible(found: Found) -> None:
    shown = found.egraph.svg(limit=10)
    (more,) = re.findall(r"\.\.\. (\d+) more e-nodes", shown)
    assert 0 < int(more) < found.egraph.node_count
    assert "more e-nodes" not in found.egraph.svg(limit=10**6)


def test_from_a_program_a_candidate_or_several(found: Found) -> None:
    one = cleave.explain(found, candidate=1)
    assert [number for number, _ in one.candidates] == [1]
    alone = cleave.explain(found.candidates[1])
    assert [number for number, _ in alone.candidates] == [0] and alone.stop == "unknown"
    assert len(cleave.explain(found.candidates).candidates) == len(found.candidates)


def test_notes_of_a_search_are_shown_now_and_when_it_was_saved(found: Found) -> None:
    hurried = replace(found, report=replace(found.report, notes=("no time was left to decode up to 2 graphs",)))
    saved = explain_saved(found.candidates, "seconds", notes=hurried.report.notes)
    for shown in (cleave.explain(hurried), saved):
        assert "note: no time was left to decode up to 2 graphs\n" in shown.text()
        assert shown.as_dict()["notes"] == list(hurried.report.notes)
    program = cleave.explain(nn.matmul(), config=QUICK)
    assert program.origin == nn.matmul() and program.stop.startswith("saturated (")
    with pytest.raises(SearchError, match="candidate 99: there are"):
        cleave.explain(found, candidate=99)
    with pytest.raises(SearchError, match="no candidates"):
        cleave.explain(())


def wrong(folder: Path) -> Rulebook:
    file = folder / "wrong.egg"
    file.write_text(
        "(ruleset wrong)\n\n"
        "; forgotten-rescale\n;   exp_diff(s, m)  =  exp_diff(s, p)      p = max_i s, m = max_o p\n"
        "; class:   exact\n; assumes: nothing\n; source:  a mistake\n; guards:  none\n"
        "(rule ((= e (ExpDiff s m)) (= m (Red (MaxOf) (Outer k S) p)) (= p (Red (MaxOf) (Inner k S) s)))\n"
        '      ((union e (ExpDiff s p))) :ruleset wrong :name "forgotten-rescale")\n'
    )
    return Rulebook.default().with_files(file)


def test_a_step_of_an_unsound_rule_is_an_error_in_every_format(tmp_path: Path) -> None:
    book = wrong(tmp_path)
    found = cleave.search(nn.softmax_matmul(), book, QUICK)
    e = cleave.explain(found, rules=book)
    guilty = {n for n, c in enumerate(found.candidates) if "forgotten-rescale" in c.rules}
    assert guilty and {int(re.findall(r"candidate (\d+)", line)[0]) for line in e.errors} == guilty
    line = e.errors[0]
    assert re.fullmatch(
        r"candidate \d+, step \d+: forgotten-rescale at out.* is FALSE at .* where .*: \S+ before, \S+ after", line
    )
    assert f"\nerror: {line}\n" in e.text()
    assert f"error: {line}" in Tags(e.html()).text and "FALSE at" in e.markdown()
    assert e.text().index("error:") < e.text().index("stop reason")
    found.save(tmp_path / "found.json")
    loaded: tuple[Candidate, ...] = load_candidates(tmp_path / "found.json")
    assert cleave.explain(loaded).errors == e.errors
