from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fabtui.model.events import PairsStarted
from fabtui.model.layers import Layer, all_layers
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.session_model import Cell
from fabtui.presentation.cell_levels import CellStyle, Glyphs, style_of
from fabtui.screen.grid.cells import WIDE, first_line, line_below, share_bar, word_of
from tests.screen.conftest import Opened, screen_text, settled
from tests.screen.fakefeed import FakeFeed, Story, sweep_of_two

GLYPHS = Glyphs(plain=False)


def cell_of(
    verdict: Verdict = Verdict.OK, value: float | None = 360.0, transport: str = "P2P/CUMEM", attempts: int = 1
) -> Cell:
    measured = Measurement(Layer.P2P, "a:0", "b:0", verdict, value, "GB/s", transport=transport, attempts=attempts)
    return Cell(verdict, value, "GB/s", "", measured, False)


@pytest.mark.parametrize(
    ("share", "width", "shown"),
    [
        # At least 95 % of the usual value: its number is enough.
        (2.5, 12, ""),
        (1.0, 12, ""),
        (0.95, 12, ""),
        (None, 12, ""),
        (0.94, 12, "━━━━╸ 94 %"),
        (0.5, 9, "━─ 50 %"),
        (0.5, 10, "━╸─ 50 %"),
        # Neighbouring cells need a blank between them.
        (0.5, 8, "50 %"),
        (0.5, 5, "50 %"),
        (0.5, 4, ""),
        (0.005, 7, "0.5 %"),
        (0.005, 12, "╸─── 0.5 %"),
    ],
)
def test_only_a_value_below_the_usual_one_has_its_share(share: float | None, width: int, shown: str) -> None:
    assert line_below(Layer.P2P, cell_of(), share, width, GLYPHS) == shown


@pytest.mark.parametrize(
    ("verdict", "value", "width", "shown"),
    [
        (Verdict.OK, 360.0, 7, "360"),
        (Verdict.OK, 360.0, 12, "360 GB/s"),
        (Verdict.SLOW, 1.96, 12, "1.96 GB/s▾"),
        (Verdict.SLOW, 0.0196, 12, "19.6 MB/s▾"),
        (Verdict.SLOW, 0.0196, 7, "19.6M▾"),
        (Verdict.TIMEOUT, None, 7, "T out"),
        (Verdict.FAILED, None, 9, "FAIL"),
        (Verdict.WRONG, None, 7, "≠ data"),
        (Verdict.INCONCLUSIVE, None, 9, "? unclear"),
        (Verdict.INCONCLUSIVE, None, 8, "unclear"),
    ],
)
def test_the_first_line_is_the_value_or_the_verdict(
    verdict: Verdict, value: float | None, width: int, shown: str
) -> None:
    cell = cell_of(verdict, value)
    assert first_line(Layer.P2P, style_of(verdict, None), cell, width, GLYPHS) == shown


@pytest.mark.parametrize(
    ("width", "plain", "shown"), [(6, False, "≠ data"), (5, False, "≠data"), (5, True, "#data"), (4, False, "≠")]
)
def test_wrong_data_is_named_where_there_is_room(width: int, plain: bool, shown: str) -> None:
    assert word_of(CellStyle.WRONG, Glyphs(plain), width) == shown


@pytest.mark.parametrize(
    ("transport", "width", "shown"),
    [
        ("P2P/CUMEM", 10, "P2P/CUMEM"),
        ("P2P/CUMEM", 9, "CUMEM"),
        ("P2P/direct pointer", 15, "direct pointer"),
        ("P2P/direct pointer", 9, "direct"),
        ("NET/Libfabric", 9, "Libfabri"),
    ],
)
def test_transports_side_by_side_have_a_blank_between_them(transport: str, width: int, shown: str) -> None:
    cell = cell_of(transport=transport)._replace(text=transport)
    assert first_line(Layer.TRANSPORT, CellStyle.GOOD, cell, width, GLYPHS) == shown


@given(
    st.sampled_from(all_layers()),
    st.sampled_from(list(Verdict)),
    st.none() | st.floats(1e-9, 1e12),
    st.none() | st.floats(0, 1e6),
    st.integers(WIDE - 1, 20),
    st.text(max_size=20),
    st.booleans(),
)
@example(Layer.P2P, Verdict.OK, 1.0, 0.0, 6, "", False)
def test_no_text_is_wider_than_its_cell(
    layer: Layer,
    verdict: Verdict,
    value: float | None,
    share: float | None,
    width: int,
    transport: str,
    plain: bool,
) -> None:
    cell, glyphs = cell_of(verdict, value, transport, attempts=2), Glyphs(plain)
    assert len(first_line(layer, CellStyle.SLOW, cell, width, glyphs)) <= width
    assert len(line_below(layer, cell, share, width, glyphs)) <= width
    for style in CellStyle:
        assert len(word_of(style, glyphs, width)) <= width


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
        assert sum("▸" in line for line in shown) == 1
        assert not any("running" in line for line in shown), "forty cells would have the word"


async def test_the_mark_at_a_value_that_is_tested_again_is_in_the_legend(opened: Opened) -> None:
    story = sweep_of_two(end=False)
    feed = FakeFeed(story.events)
    async with opened(feed, size=(120, 40)) as (app, pilot):
        await settled(app, pilot)
        feed.play([PairsStarted(pairs=(("n000:0", "n000:1"),), time=feed.model.now)])
        await settled(app, pilot)
        assert "▸  running" in screen_text(app)


async def test_every_line_of_a_tall_cell_follows_its_result(opened: Opened) -> None:
    story = sweep_of_two(end=False)
    feed = FakeFeed(story.events)
    async with opened(feed, size=(200, 60)) as (app, pilot):
        grid = app.main.grid
        await pilot.pause()
        assert grid.layout_now().tall > 1
        story.events.clear()
        story.measured(replace(story.good("n000:0", "n000:1")[0], value=300.0))
        feed.play(story.events)
        app.main.draw()
        await pilot.pause()
        kept = [strip.text for strip in grid.render_lines(grid.size.region)]
        grid.reread()
        assert [strip.text for strip in grid.render_lines(grid.size.region)] == kept
        assert sum(" 85 %" in line for line in kept) == 1
