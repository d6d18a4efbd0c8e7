"""Verdict line and the numbers of the layers' tabs."""

from dataclasses import replace

import pytest
from textual.pilot import Pilot

from fabtui.diagnosis.diagnosis import diagnose
from fabtui.model.events import NodeState, PhaseStart, Watching
from fabtui.model.layers import Layer
from fabtui.presentation.findings import title
from fabtui.report.summary import summary
from fabtui.screen.app import FabricApp
from fabtui.screen.grid.layout import HEADER_LINES
from fabtui.screen.views.findings import FindingsScreen
from tests.screen.conftest import Opened, press, screen_text, settled
from tests.screen.fakefeed import FakeFeed, Story, big_sweep, sweep_of_two


async def diagnosed(app: FabricApp, pilot: Pilot[int]) -> list[str]:
    """Wait for the findings; return the lines of the screen."""
    for _ in range(100):
        if app.findings.known:
            break
        await pilot.pause(0.05)
    await settled(app, pilot)
    return screen_text(app).splitlines()


@pytest.mark.parametrize("size", [(36, 6), (60, 15), (80, 24), (120, 40), (200, 50)])
async def test_the_verdict_is_the_first_line_at_every_size(opened: Opened, size: tuple[int, int]) -> None:
    async with opened(FakeFeed(sweep_of_two().events), size=size) as (app, pilot):
        text = await diagnosed(app, pilot)
        assert text[0].startswith(" n002 failed  3 of 56 ")
        # No other line counts the pairs.
        assert not any("of 56" in line for line in text[1:])


async def test_it_stays_while_watching(opened: Opened) -> None:
    feed = FakeFeed(sweep_of_two().events)
    async with opened(feed, size=(80, 24)) as (app, pilot):
        feed.play([Watching(on=True, time=feed.model.now)])
        assert (await diagnosed(app, pilot))[0].startswith(" n002 failed  3 of 56 ")


async def test_a_tab_without_bad_pairs_has_no_number(opened: Opened) -> None:
    story = big_sweep(2, 4)
    story.end(0)
    async with opened(FakeFeed(story.events), size=(80, 24)) as (app, pilot):
        text = await diagnosed(app, pilot)
        assert text[0].startswith(" All 56 GPU pairs are ok ")
        assert " 2 p2p  3 world " in text[1]


async def test_tabs_have_the_numbers_of_bad_pairs_and_can_still_be_clicked(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events), size=(80, 24)) as (app, pilot):
        tabs = (await diagnosed(app, pilot))[1]
        assert " 2 p2p 3 " in tabs
        assert " 4 latency " in tabs
        await pilot.click("#tabs", offset=(tabs.index("latency") + 2, 0))
        assert app.main.source.layer == "latency"


async def test_a_click_on_the_verdict_shows_the_findings(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events), size=(80, 24)) as (app, pilot):
        await diagnosed(app, pilot)
        await pilot.click("#verdict")
        await pilot.pause()
        assert isinstance(app.screen, FindingsScreen)


async def test_findings_stand_below_the_grid_without_a_panel_and_lead_to_their_pair(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events), size=(80, 24)) as (app, pilot):
        text = await diagnosed(app, pilot)
        below = app.main.findings_below
        at = below.region.y
        assert not text[at].strip("─")
        assert text[at + 1].startswith(" 1 n002 failed")
        line = next(y for y, one in enumerate(text) if one.startswith(" 2 n000:1 > n001:2 failed"))
        await pilot.click(below, offset=(4, line - at))
        await pilot.pause()
        assert app.main.cursor_entries() is not None
        text = screen_text(app).splitlines()
        assert text[below.region.bottom].startswith("n000:1 > n001:2")
        assert any(one.startswith("▌2 n000:1 > n001:2 failed") for one in text), "it is open now"
        await pilot.click(below, offset=(4, below.size.height - 1))
        await pilot.pause()
        assert isinstance(app.screen, FindingsScreen), "the line of the others leads to the list"


async def test_findings_take_all_lines_that_the_grid_leaves(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events), size=(80, 30)) as (app, pilot):
        await diagnosed(app, pilot)
        grid = app.main.grid
        used = HEADER_LINES + grid.source.rows.size + len(grid.source.rows.starts) - 1
        assert grid.size.height == used
        assert app.main.usual.size.height == 1


@pytest.mark.parametrize(("size", "shown"), [((80, 24), True), ((80, 14), True), ((120, 40), False)])
async def test_findings_below_only_beside_no_panel(opened: Opened, size: tuple[int, int], shown: bool) -> None:
    async with opened(FakeFeed(sweep_of_two().events), size=size) as (app, pilot):
        await diagnosed(app, pilot)
        assert app.main.findings_below.display is shown
        if app.main.panel.display:
            await pilot.press("p")
            await settled(app, pilot)
            assert app.main.findings_below.display


async def test_a_large_grid_leaves_a_few_lines_for_findings(opened: Opened) -> None:
    story = big_sweep(8, 8)
    story.state("n003", NodeState.LOST, "the connection was cut")
    async with opened(FakeFeed(story.events), size=(90, 30)) as (app, pilot):
        await diagnosed(app, pilot)
        assert 1 <= app.main.findings_below.size.height <= app.main.grid.size.height // 2


async def test_findings_and_worst_pairs_of_the_panel_can_be_clicked(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events), size=(120, 62)) as (app, pilot):
        text = await diagnosed(app, pilot)
        panel = app.main.panel.region
        line = next(at for at, one in enumerate(text) if "3 n000:3 > n001:2 timed out" in one)
        await pilot.click("#panel", offset=(5, line - panel.y))
        await pilot.pause()
        text = screen_text(app).splitlines()
        assert any("▌3 n000:3 > n001:2" in one for one in text)
        assert any("THIS PAIR  n000:3 > n001:2" in one for one in text)
        # Pairs are listed where there are more of them than findings.
        app.findings.found = app.findings.found[:2]
        app.main.draw()
        await pilot.pause()
        text = screen_text(app).splitlines()
        line = next(at for at, one in enumerate(text) if "▾  n000:1 > n001:1" in one)
        await pilot.click("#panel", offset=(5, line - panel.y))
        await pilot.pause()
        assert "THIS PAIR  n000:1 > n001:1" in screen_text(app)


async def test_a_finding_without_pairs_leads_to_the_list(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events), size=(80, 24)) as (app, pilot):
        await diagnosed(app, pilot)
        await pilot.click("#findings-below", offset=(4, 1))
        await pilot.pause()
        assert isinstance(app.screen, FindingsScreen)


@pytest.mark.parametrize("keys", [(), ("right_square_bracket", "enter"), ("n",), ("t",), ("P",), ("v",), ("c",)])
async def test_the_key_of_the_findings_is_the_first_in_every_view(opened: Opened, keys: tuple[str, ...]) -> None:
    async with opened(FakeFeed(sweep_of_two().events), size=(80, 24)) as (app, pilot):
        await diagnosed(app, pilot)
        await press(pilot, *keys)
        assert screen_text(app).splitlines()[-1].startswith("F findings")
        await press(pilot, "F")
        assert isinstance(app.screen, FindingsScreen)
        assert "F findings" not in screen_text(app).splitlines()[-1]
        await press(pilot, "2")
        assert len(app.screen_stack) == 1, "a finding leads to the grid"


async def test_text_and_screen_number_the_findings_alike(opened: Opened) -> None:
    story = sweep_of_two()
    async with opened(FakeFeed(story.events), size=(120, 60)) as (app, pilot):
        await diagnosed(app, pilot)
        printed = (
            summary(diagnose(story.shadow), plain=True)
            .partition("\nfindings: ")[2]
            .partition("\n\n")[0]
            .splitlines()[1:]
        )
        printed = [line for line in printed if line[2:3].isdigit()]
        titles = [f"  {number} {title(one)}" for number, one in enumerate(app.findings.found, 1)]
        assert len(titles) == 6
        assert [line[: len(start)] for line, start in zip(printed, titles, strict=True)] == titles


async def test_findings_are_marked_until_no_more_can_follow(opened: Opened) -> None:
    story = sweep_of_two()
    feed = FakeFeed(story.events, hold=True)
    async with opened(feed, size=(120, 40)) as (app, pilot):
        ends = next(at for at, one in enumerate(story.events) if isinstance(one, PhaseStart) and one.name == "done")
        feed.advance(ends)
        for _ in range(200):
            app.main.draw()
            await pilot.pause(0.05)
            if app.findings.known and len(app.findings.found) > 2:
                break
        text = await diagnosed(app, pilot)
        assert any("WHAT IS WRONG SO FAR" in line for line in text)
        await press(pilot, "F", seconds=0.1)
        assert screen_text(app).startswith(" fabtui / busbw / 6 findings so far")
        await pilot.press("escape")
        feed.advance()
        for _ in range(200):
            await pilot.pause(0.05)
            if app.findings.final:
                break
        text = await diagnosed(app, pilot)
        assert any("WHAT IS WRONG  " in line for line in text)
        assert not any("so far" in line.lower() for line in text)


@pytest.mark.worst_first
@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_the_cursor_starts_on_the_worst_pair_and_stays_where_it_is_moved(
    opened: Opened, size: tuple[int, int]
) -> None:
    story = sweep_of_two(failed_node=False)
    feed = FakeFeed(story.events, hold=True)
    async with opened(feed, size=size) as (app, pilot):

        def here() -> str:
            return " > ".join(one.name for one in app.main.cursor_entries() or ())

        feed.advance(
            next(at for at, one in enumerate(story.events) if isinstance(one, PhaseStart) and one.name == "done")
        )
        await diagnosed(app, pilot)
        assert here() == "n000:0 > n000:1"
        feed.advance()
        app.main.draw()
        assert (here(), app.findings.so_far) == ("n000:1 > n001:2", " so far"), "the findings are not awaited"
        text = await diagnosed(app, pilot)
        assert not app.findings.so_far, "nor do they rest after those of the sweep"
        assert any("▌1 n000:1 > n001:2 failed" in line for line in text), text
        assert here() == "n000:1 > n001:2"
        await pilot.press("left")
        app.main._aimed_for = None
        await diagnosed(app, pilot)
        assert here() == "n000:1 > n001:1"


def sweep_with_world() -> Story:
    story = big_sweep(2, 4)
    for pair in story.ordered_pairs():
        p2p = story.good(*pair)[0]
        assert p2p.value is not None
        story.measured(replace(p2p, layer=Layer.WORLD, value=p2p.value / 2))
    return story


async def test_a_session_whose_pairs_are_slow_only_beside_others_is_not_titled_all_ok(opened: Opened) -> None:
    story = sweep_with_world()
    story.end(0)
    async with opened(FakeFeed(story.events)) as (app, pilot):
        await settled(app, pilot)
        title = screen_text(app).splitlines()[0]
        assert "All 56 GPU pairs are ok " in title
        assert "alone" not in title
    story = sweep_with_world()
    story.measured(replace(story.good("n000:0", "n001:1")[0], layer=Layer.WORLD, value=2.0))
    story.end(0)
    async with opened(FakeFeed(story.events)) as (app, pilot):
        await settled(app, pilot)
        title = screen_text(app).splitlines()[0]
        assert "All 56 GPU pairs are ok  alone; 1 slow alongside other traffic" in title
