"""Drawings: layers from top to bottom, nothing on top of anything else, a cut-off that is said."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from cleave import nn
from cleave.display import LONGEST, Box, Frame, drawing, nested, preformatted

SPACE = "{http://www.w3.org/2000/svg}"


@st.composite
def boxes(draw: st.DrawFn) -> list[Box]:
    out: list[Box] = []
    for number in range(draw(st.integers(1, 12))):
        reads = draw(st.lists(st.integers(0, number - 1), max_size=3, unique=True)) if number else []
        out.append(Box(draw(st.text("ab <&", max_size=8)), "map", tuple(reads)))
    return out


@given(boxes())
def test_boxes_do_not_overlap_and_arrows_point_down(drawn: list[Box]) -> None:
    svg = ElementTree.fromstring(drawing(drawn))
    places = [[float(r.attrib[k]) for k in ("x", "y", "width", "height")] for r in svg.iter(f"{SPACE}rect")]
    assert len(places) == len(drawn)
    for n, (x, y, width, height) in enumerate(places):
        assert x >= 0
        assert x + width <= float(svg.attrib["width"])
        assert y + height <= float(svg.attrib["height"])
        assert all(places[b][1] + height < y for b in drawn[n].reads)
        for other_x, other_y, other_width, _ in places[:n]:
            assert other_y != y or other_x + other_width <= x or x + width <= other_x
    arrows = [p.attrib["d"] for p in svg.iter(f"{SPACE}path")]
    assert len(arrows) == sum(len(b.reads) for b in drawn)
    for d in arrows:
        heights = [float(y) for _, y in re.findall(r"([\d.]+),([\d.]+)", d)]
        assert heights[0] < heights[-1]


def test_labels_are_escaped_and_the_cut_off_is_said() -> None:
    svg = drawing([Box("a < b & c", "where"), Box("max t", "reduce", (0,)), Box("o", "output", (1,))], limit=2)
    assert "a &lt; b &amp; c" in svg
    assert "… 1 more of 3 nodes" in svg
    assert preformatted("a < b").count("&lt;") == 1


def test_a_graph_in_a_notebook() -> None:
    html = nn.attention(causal=True, lse=True)._repr_html_()
    assert "<svg" in html
    assert "max t  [b, group, kv_heads, s]" in html
    assert "output lse: float32" in html


# ---- frames


@st.composite
def frames(draw: st.DrawFn, depth: int = 3) -> Frame:
    inside = st.text("ab <&", max_size=2 * LONGEST)
    parts = draw(st.lists(inside if depth == 0 else st.one_of(inside, frames(depth - 1)), max_size=3))
    return Frame(draw(inside), tuple(parts))


@given(st.lists(frames(), min_size=1, max_size=3))
def test_frames_hold_what_is_in_them(drawn: list[Frame]) -> None:
    svg = ElementTree.fromstring(nested(drawn))
    places = [[float(r.attrib[k]) for k in ("x", "y", "width", "height")] for r in svg.iter(f"{SPACE}rect")]
    for n, (x, y, width, height) in enumerate(places):
        assert x + width <= float(svg.attrib["width"]) and y + height <= float(svg.attrib["height"])
        for ox, oy, owidth, oheight in places[:n]:
            inside = ox < x and x + width < ox + owidth and oy < y and y + height < oy + oheight
            assert inside or y >= oy + oheight
    for text in svg.iter(f"{SPACE}text"):
        x, y = float(text.attrib["x"]), float(text.attrib["y"])
        assert any(ox < x < ox + ow and oy < y < oy + oh for ox, oy, ow, oh in places)
        assert len(text.text or "") <= LONGEST or text.find(f"{SPACE}title") is not None
