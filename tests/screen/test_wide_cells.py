from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fabtui.model.layers import Layer, all_layers
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.session_model import Cell
from fabtui.presentation.cell_levels import CellStyle, Glyphs, style_of
from fabtui.screen.grid.cells import WIDE, first_line, lines_below, share_bar
from tests.screen.conftest import Opened
from tests.screen.fakefeed import FakeFeed, Story, sweep_of_two

GLYPHS = Glyphs(plain=False)


def cell_of(
    verdict: Verdict = Verdict.OK, value: float | None = 360.0, transport: str = "P2P/CUMEM", attempts: int = 1
) -> Cell:
    measured = Measurement(Layer.P2P, "a:0", "b:0", verdict, value, "GB/s", transport=transport, attempts=attempts)
    return Cell(verdict, value, "GB/s", "", measured, False)


@pytest.mark.parametrize(
    ("width", "most", "shown"),
    [
        (7, 1, ["━━━ p"]),
        (8, 1, ["━━ P2P"]),
        # Neighbouring cells need a blank between them.
        (7, 2, ["━━━━━", "100 %"]),
        (8, 2, ["━━━━━━", "100 % p"]),
        (10, 2, ["━━━━━━━━", "100 % P2P"]),
        (13, 3, ["━━━━━━━━━━━", "100 %", "P2P"]),
        (14, 3, ["━━━━━━━━━━━━", "100 % of node", "P2P"]),
        (14, 4, ["━━━━━━━━━━━━", "100 % of node", "P2P", "3 tests"]),
    ],
)
def test_more_room_shows_more(width: int, most: int, shown: list[str]) -> None:
    cell = cell_of(attempts=3)
    lines = lines_below(Layer.P2P, cell, 1.0, "node", (width, most), GLYPHS)
    assert lines == shown


def test_cells_of_one_width_name_their_transports_alike() -> None:
    shown = {lines_below(Layer.P2P, cell_of(), share, "node", (7, 2), GLYPHS)[1] for share in (0.3, 0.99, 1.0, 2.5)}
    assert shown == {"30 %", "99 %", "100 %", "250 %"}
    shown = {lines_below(Layer.P2P, cell_of(), share, "node", (9, 2), GLYPHS)[1] for share in (0.3, 0.99, 1.0, 2.5)}
    assert shown == {"30 % p", "99 % p", "100 % p", "250 % p"}


@pytest.mark.parametrize(
    ("verdict", "value", "width", "shown"),
    [
        (Verdict.OK, 360.0, 7, "360"),
        (Verdict.OK, 360.0, 12, "360 GB/s"),
        (Verdict.SLOW, 1.96, 12, "1.96 GB/s!"),
        (Verdict.SLOW, 0.0196, 12, "19.6 MB/s!"),
        (Verdict.SLOW, 0.0196, 7, "19.6M!"),
        (Verdict.TIMEOUT, None, 7, "timeout"),
        (Verdict.TIMEOUT, None, 9, "T timeout"),
        (Verdict.FAILED, None, 9, "x failed"),
    ],
)
def test_the_first_line_is_the_value_or_the_verdict(
    verdict: Verdict, value: float | None, width: int, shown: str
) -> None:
    cell = cell_of(verdict, value)
    assert first_line(Layer.P2P, style_of(verdict, None), cell, width, GLYPHS) == shown


@given(
    st.sampled_from(all_layers()),
    st.sampled_from(list(Verdict)),
    st.none() | st.floats(1e-9, 1e12),
    st.none() | st.floats(0, 1e6),
    st.integers(WIDE - 1, 20),
    st.integers(1, 5),
    st.text(max_size=20),
    st.booleans(),
)
@example(Layer.P2P, Verdict.OK, 1.0, 0.0, 6, 4, "", False)
def test_no_text_is_wider_than_its_cell(
    layer: Layer,
    verdict: Verdict,
    value: float | None,
    share: float | None,
    width: int,
    most: int,
    transport: str,
    plain: bool,
) -> None:
    cell, glyphs = cell_of(verdict, value, transport, attempts=2), Glyphs(plain)
    assert len(first_line(layer, CellStyle.SLOW, cell, width, glyphs)) <= width
    lines = lines_below(layer, cell, share, "rail", (width, most), glyphs)
    assert len(lines) <= most
    assert all(len(line) <= width for line in lines)


@given(st.floats(0, 10), st.integers(1, 20), st.booleans())
def test_a_bar_grows_with_its_share(share: float, width: int, plain: bool) -> None:
    glyphs = Glyphs(plain)
    bar = share_bar(share, width, glyphs)
    assert len(bar) == width
    assert (bar.count(glyphs.share[2]) == width) is (share == 0), "more than nothing is seen"
    assert abs(bar.count(glyphs.share[0]) - width * min(share, 1)) <= 1


async def test_a_pair_under_test_is_quiet(opened: Opened) -> None:
    """No light background for pairs that were never tested."""
    story = Story(["a", "b"], 2)
    for node in ("a", "b"):
        story.connect(node)
    story.endpoints("a", "b")
    story.phase("p2p", 12)
    story.running(("a:0", "b:1"))
    async with opened(FakeFeed(story.events)) as (app, _):
        style = app.main.grid.palette.styles[CellStyle.RUNNING]
        assert style.bgcolor is not None
        assert style.bgcolor.triplet is not None
        assert max(style.bgcolor.triplet) < 0x40
        shown = [strip.text for strip in app.main.grid.render_lines(app.main.grid.size.region)]
        assert sum("▸ running" in line for line in shown) == 1


async def test_every_line_of_a_tall_cell_follows_its_result(opened: Opened) -> None:
    story = sweep_of_two(end=False)
    feed = FakeFeed(story.events)
    async with opened(feed, size=(200, 60)) as (app, pilot):
        grid = app.main.grid
        await pilot.pause()
        assert grid.layout_now().tall > 2
        story.events.clear()
        transport = "NET/Socket"
        story.measured(*story.good("n000:0", "n000:1", transport=transport))
        feed.play(story.events)
        app.main.draw()
        await pilot.pause()
        kept = [strip.text for strip in grid.render_lines(grid.size.region)]
        grid.reread()
        assert [strip.text for strip in grid.render_lines(grid.size.region)] == kept
        assert sum("SOCK" in line for line in kept) == 1
