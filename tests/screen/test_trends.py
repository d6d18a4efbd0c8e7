"""Trends: attempts at the selected pair in the side panel, and bad pairs over time in the title while watching."""

import re

from fabtui.model.events import Event, Watching
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.presentation.cell_levels import UNICODE, Glyphs
from fabtui.presentation.wording import plain
from fabtui.screen.widgets.main_head import head_line, quiet_facts
from fabtui.screen.widgets.sparkline import TREND_WIDTH, bad_trend, pair_trend
from tests.screen.conftest import Opened, screen_text
from tests.screen.fakefeed import FakeFeed, Story, sweep_of_two

PAIR = ("n000:0", "n000:1")
BLOCKS = UNICODE.blocks


def watched(*values: float | None) -> Story:
    """A sweep, and then results of a pair, a second apart, while watching."""
    story = sweep_of_two()
    story.step = 1.0
    story.add(Watching(on=True))
    story.phase("watch")
    for value in values:
        verdict = Verdict.TIMEOUT if value is None else Verdict.OK
        story.measured(Measurement(Layer.P2P, *PAIR, verdict, value, "GB/s", 256 << 20, story.now))
    return story


async def test_the_panel_has_values_over_time_of_the_selected_pair(opened: Opened) -> None:
    story = watched(350.0, 175.0, None, 352.0)
    async with opened(FakeFeed(story.events)) as (app, _):
        panel = app.main.panel.shown.plain
        line = next(line for line in panel.splitlines() if line.startswith(" trend"))
        assert "5 in 0:0" in line
        assert "T" in line
        assert " 349  350  175  352 GB/s" in panel


async def test_the_panel_ranks_many_values_of_the_selected_pair(opened: Opened) -> None:
    story = watched(350.0, 175.0, None, 352.0, 351.0)
    async with opened(FakeFeed(story.events)) as (app, _):
        assert "min 175  median 350  p99 352 GB/s" in app.main.panel.shown.plain


async def test_one_attempt_is_no_trend(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events)) as (app, _):
        assert "trend" not in app.main.panel.shown.plain


async def test_the_title_has_bad_pairs_over_time_while_watching(opened: Opened) -> None:
    events: list[Event] = watched(350.0, None, None, 350.0, 351.0).events
    async with opened(FakeFeed(events), size=(200, 50)) as (app, _):
        title = screen_text(app).splitlines()[0]
        assert title.startswith(" n002 failed  3 of 56 tested GPU pairs are bad")
        assert re.search(f" bad [{BLOCKS}]{{{TREND_WIDTH}}} · ", title)
        assert "▇" in title or "█" in title


def test_the_graph_of_bad_pairs_stays_where_the_sentence_takes_all_of_120_columns() -> None:
    model = watched(350.0, None, None, 350.0, 351.0).shadow
    facts = quiet_facts(model, 60.0, 90.0, "", Glyphs(False))
    line = plain(head_line(lambda width: [("s" * (width or 200), "")], facts, 120, Glyphs(False)))
    assert re.search(f" bad [{BLOCKS}]{{{TREND_WIDTH}}} ", line)


async def test_no_graph_without_watching(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events), size=(200, 50)) as (app, _):
        assert not bad_trend(app.model, Glyphs(False))
        assert not set(BLOCKS) & set(screen_text(app).splitlines()[0])


def test_ascii_has_graphs_too() -> None:
    story = watched(350.0, 175.0, 352.0)
    text = plain(bad_trend(story.shadow, Glyphs(True))) + "".join(
        map(plain, pair_trend(story.shadow, *PAIR, Glyphs(True)))
    )
    assert text.isascii()
    assert "bad " in text
