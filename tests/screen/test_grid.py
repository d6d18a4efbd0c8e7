import random
import time
from dataclasses import replace
from typing import Any

import pytest
from textual.geometry import Offset

from fabtui.model.events import NodeState, PlanUpdate
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.presentation.cell_levels import CellStyle
from fabtui.screen.grid.cells import EndpointCells
from fabtui.screen.grid.widget import GridView
from tests.screen.conftest import Opened, press, screen_text, settled
from tests.screen.fakefeed import SLOW, FakeFeed, Story, big_sweep, sweep_of_two


def cursor(grid: GridView) -> str:
    entries = grid.entries
    assert entries is not None
    return f"{entries[0].name}>{entries[1].name}"


def lines_of(grid: GridView) -> list[str]:
    return [strip.text for strip in grid.render_lines(grid.size.region)]


def drawn(grid: GridView) -> list[str | None]:
    return [strip._render_cache for strip in grid.render_lines(grid.size.region)]


def slot_at(source: Any, src: str, dst: str) -> CellStyle:
    model = source.model
    at = source.axis.position
    return CellStyle(source.cell(at[model.table.number(src)], at[model.table.number(dst)], 5)[0])


async def test_values_stand_under_their_endpoints(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events)) as (app, _):
        lines = lines_of(app.main.grid)
        row = next(line for line in lines if line.startswith("n000 0"))
        assert row.split() == ["n000", "0", "⟦", "349", "⟧", "350", "352", "46.4", "44.4", "43.6", "43.8", "░"]
        begin = lines[1].index("1")
        assert lines[2][begin - 1 : begin + 2] == "349"
        assert "12.4▾" in next(line for line in lines if line.startswith("n000 1"))


async def test_node_labels_show_where_names_differ(opened: Opened) -> None:
    nodes = ["gpu-rack07-0017.cluster.example.org", "gpu-rack07-0018.cluster.example.org"]
    story = Story(nodes, 4)
    for node in nodes:
        story.connect(node)
    story.endpoints(*nodes)
    story.phase("p2p", 56)
    async with opened(FakeFeed(story.events), size=(120, 40)) as (app, pilot):
        await pilot.pause(0.1)
        lines = lines_of(app.main.grid)
        assert "rack07-0017" in lines[0]
        assert "rack07-0018" in lines[0]
        rows = [line.split()[0] for line in lines if " 0 " in line[:20]]
        assert [row[-4:] for row in rows] == ["0017", "0018"]
        panel = [line.partition("▏")[2].strip() for line in screen_text(app).splitlines() if "▏" in line]
        assert " ".join(panel[:2]) == "THIS PAIR  gpu-rack07-0017:0 > gpu-rack07-0017:1"
        assert panel[2:4] == ["same node", "not tested"]
        await press(pilot, "minus", seconds=0.1)
        assert "gpu-rack07-0017" in screen_text(app)


async def test_the_grid_draws_the_model(opened: Opened) -> None:
    """Every cell of every layer, fast path and all, against the model asked cell by cell."""
    async with opened(FakeFeed(sweep_of_two().events)) as (app, pilot):
        grid = app.main.grid
        for key in "1234567":
            await press(pilot, key)
            width = grid.layout_now().cell
            for row in range(grid.source.rows.size):
                drawn = lines_of(grid)[grid.viewport.line_of_row[row]]
                for column, begin in grid.viewport.columns:
                    slot, text = grid.source.cell(row, column, width)
                    shown = drawn[begin : begin + width].replace("⟦", " ").replace("⟧", " ")
                    assert shown == text, (key, row, column, slot)


async def test_lines_drawn_again_are_the_lines_drawn_from_nothing(opened: Opened) -> None:
    """Cached lines never go stale, in any order of changes of cells, cursor and scrolling."""
    story = big_sweep(12, 8, part=0.5)
    random.seed(4)
    async with opened(FakeFeed(story.events), size=(90, 30)) as (app, pilot):
        grid = app.main.grid
        pairs = story.ordered_pairs()
        keys = ["down", "right", "up", "left", "pagedown", "end", "home", "plus", "minus", "G"]
        for _ in range(30):
            await pilot.press(random.choice(keys))
            some = random.sample(pairs, 5)
            story.events.clear()
            story.measured(*(m for pair in some for m in story.good(*pair)))
            app.feed.play(story.events)  # type: ignore[union-attr]
            app.main.draw()
            await pilot.pause()
            kept = drawn(grid)
            # This forgets the headings, too.
            grid.paint_with(grid._ramp, grid._system)
            assert drawn(grid) == kept


async def test_headings_take_the_colours_of_a_new_theme(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events), size=(90, 30)) as (app, pilot):
        before = drawn(app.main.grid)[0]
        app.theme = "light"
        await pilot.pause()
        assert drawn(app.main.grid)[0] != before


@pytest.mark.parametrize(
    ("keys", "where"),
    [
        (["down"], "n000:1>n000:1"),
        (["j", "j", "k"], "n000:1>n000:1"),
        (["right", "l", "h"], "n000:0>n000:2"),
        (["left", "left", "left"], "n000:0>n000:0"),
        (["end"], "n000:0>n002"),
        (["end", "home"], "n000:0>n000:0"),
        (["G"], "n002>n000:1"),
        (["G", "ctrl+home"], "n000:0>n000:1"),
        (["pagedown"], "n002>n000:1"),
        (["pagedown", "pageup"], "n000:0>n000:1"),
        (["right_square_bracket"], "n000:1>n001:1"),
        (["right_square_bracket", "right_square_bracket"], "n000:1>n001:2"),
        (["left_square_bracket"], "n000:3>n001:2"),
    ],
)
async def test_keys_move_the_cursor(opened: Opened, keys: list[str], where: str) -> None:
    async with opened(FakeFeed(sweep_of_two().events)) as (app, pilot):
        assert cursor(app.main.grid) == "n000:0>n000:1"
        await pilot.press(*keys)
        assert cursor(app.main.grid) == where


async def test_the_cursor_is_marked_in_cell_and_headers(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events)) as (app, pilot):
        grid = app.main.grid
        await press(pilot, "down", "right", "right")
        styles = grid.palette.styles
        marked = {
            (y, segment.text.strip())
            for y, strip in enumerate(grid.render_lines(grid.size.region))
            for segment in strip
            if segment.style == styles[CellStyle.HEADER_HERE] and segment.text.strip()
        }
        line = grid.viewport.line_of_row[1]
        assert marked == {
            (0, "n000"),
            (1, "3"),
            (line, "n000 1"),
        }
        assert "⟦ 349 ⟧" in lines_of(grid)[line]


async def test_headers_stay_when_it_scrolls(opened: Opened) -> None:
    async with opened(FakeFeed(big_sweep(20, 8, part=0.02).events), size=(80, 24)) as (app, pilot):
        grid = app.main.grid
        await pilot.press("plus")
        assert grid.layout_now().cell == 2
        await press(pilot, "G", "end", seconds=0.1)
        lines = lines_of(grid)
        assert "n019" in lines[0]
        assert lines[-1].startswith("n019 7")
        assert cursor(grid) == "n019:7>n019:7"
        assert "of 160" in screen_text(app)
        await pilot.press("up", "left")
        assert cursor(grid) == "n019:6>n019:6"


async def test_a_click_moves_and_a_double_click_opens(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events)) as (app, pilot):
        grid = app.main.grid
        column, begin = grid.viewport.columns[5]
        line = grid.viewport.line_of_row[1]
        await pilot.click(GridView, offset=Offset(begin + 1, line))
        assert (grid.row, grid.column) == (1, column)
        assert len(app.screen_stack) == 1
        await pilot.click(GridView, offset=Offset(begin + 1, line), times=2)
        await pilot.pause()
        assert type(app.screen).__name__ == "PairScreen"


async def test_new_endpoints_leave_the_cursor_on_its_pair(opened: Opened) -> None:
    story = Story(["a", "b", "c"], 4)
    for node in ("a", "c"):
        story.connect(node)
    story.endpoints("a", "c")
    story.phase("p2p", 10)
    feed = FakeFeed(story.events)
    async with opened(feed) as (app, pilot):
        grid = app.main.grid
        while cursor(grid) != "c:2>c:0":
            await pilot.press("down" if grid.source.rows.entries[grid.row].name != "c:2" else "right")
        story.events.clear()
        story.connect("b")
        story.endpoints("b")
        story.measured(*story.good("a:0", "b:3"))
        feed.play(story.events)
        app.main.draw()
        await pilot.pause()
        assert cursor(grid) == "c:2>c:0"
        names = [entry.name for entry in grid.source.rows.entries]
        assert names == [f"{node}:{index}" for node in "abc" for index in range(4)]
        assert slot_at(grid.source, "a:0", "b:3") is CellStyle.GOOD


async def test_only_cells_that_changed_are_read_again(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    story = big_sweep(4, 8)
    feed = FakeFeed(story.events)
    async with opened(feed) as (app, pilot):
        await pilot.pause(0.7)
        app.main.draw()
        read: list[tuple[int, int]] = []
        cell_of = EndpointCells.cell_of

        def counted(self: EndpointCells, row: int, column: int, width: int) -> Any:
            read.append((row, column))
            return cell_of(self, row, column, width)

        monkeypatch.setattr(EndpointCells, "cell_of", counted)
        story.events.clear()
        story.measured(*story.good("n000:1", "n002:3"))
        feed.play(story.events)
        app.main.draw()
        await pilot.pause()
        assert read == [(1, 19)]


async def test_a_moved_median_is_drawn_in_the_end(opened: Opened) -> None:
    """A value that was good against the first values and is slow against all is redrawn as slow."""
    story = Story(["a", "b"], 4)
    for node in ("a", "b"):
        story.connect(node)
    story.endpoints("a", "b")
    story.phase("p2p", 56)
    feed = FakeFeed(story.events)
    async with opened(feed) as (app, pilot):
        story.events.clear()
        pairs = [pair for pair in story.ordered_pairs() if pair[0][0] != pair[1][0] and pair[0][2] != pair[1][2]]

        def value(pair: tuple[str, str], size: float) -> Measurement:
            return Measurement(Layer.P2P, *pair, Verdict.OK, size, "GB/s", 1 << 20, story.now)

        story.measured(value(pairs[0], 10.0))
        feed.play(story.events)
        app.main.draw()
        assert slot_at(app.main.source, *pairs[0]) is CellStyle.GOOD
        story.events.clear()
        story.measured(*(value(pair, 40.0) for pair in pairs[1:]))
        feed.play(story.events)
        app.main.draw()
        await pilot.pause()
        assert slot_at(app.main.source, *pairs[0]) is CellStyle.SLOW
        assert any("10.0▾" in line for line in lines_of(app.main.grid))


async def test_a_lost_node_keeps_its_values_but_not_its_colours(opened: Opened) -> None:
    story = sweep_of_two(failed_node=False, end=False)
    feed = FakeFeed(story.events)
    async with opened(feed) as (app, pilot):
        assert slot_at(app.main.source, "n000:0", "n001:0") is CellStyle.GOOD
        story.events.clear()
        story.state("n001", NodeState.LOST, "the connection was cut")
        feed.play(story.events)
        app.main.draw()
        await pilot.pause()
        assert slot_at(app.main.source, "n000:0", "n001:0") is CellStyle.GONE
        assert slot_at(app.main.source, *SLOW) is CellStyle.SLOW
        lines = lines_of(app.main.grid)
        assert any(line.startswith("n001 0x") for line in lines)
        assert any("46.4░" in line for line in lines)


async def test_cells_under_test_are_marked(opened: Opened) -> None:
    story = sweep_of_two(end=False)
    story.running(("n000:0", "n000:1"), ("n000:1", "n000:0"))
    async with opened(FakeFeed(story.events)) as (app, _):
        # The result so far keeps its colour.
        assert slot_at(app.main.source, "n000:0", "n000:1") is CellStyle.GOOD
        assert any("349▸" in line for line in lines_of(app.main.grid))
        source, numbers = app.main.source, app.main.source.axis.position
        narrow = source.row(numbers[0], 0, source.columns.size, 1)
        assert narrow[numbers[1]][0] == CellStyle.RUNNING, "a narrow cell has no other mark"


async def test_a_big_fabric_does_not_make_a_key_slow(opened: Opened) -> None:
    """A frame costs what is in sight: 64 times as many cells may not take anywhere near 64 times as long."""

    async def cost(nodes: int) -> float:
        async with opened(FakeFeed(big_sweep(nodes, 8, part=0.02).events), size=(100, 30)) as (app, _):
            grid = app.main.grid
            best = 9.0
            for _ in range(10):
                began = time.process_time()
                grid.reread()
                lines_of(grid)
                best = min(best, time.process_time() - began)
            return best

    assert await cost(32) < 12 * await cost(4) + 0.05


async def test_what_could_not_be_tested_is_not_just_empty(opened: Opened) -> None:
    story = Story(["a", "b"], 2)
    for node in ("a", "b"):
        story.connect(node)
    story.endpoints("a", "b")
    story.phase("p2p", 12)
    story.add(PlanUpdate(untested=[("a:0", "b:1", "the ranks of b did not start")]))
    story.end(3)
    async with opened(FakeFeed(story.events)) as (app, pilot):
        assert slot_at(app.main.source, "a:0", "b:1") is CellStyle.SKIPPED
        assert slot_at(app.main.source, "a:0", "b:0") is CellStyle.UNTESTED
        await press(pilot, "end")
        assert "the ranks of b did not start" in screen_text(app)
        assert "1 not tested" in screen_text(app)
        await pilot.press("5")
        assert slot_at(app.main.source, "a:0", "b:1") is CellStyle.UNTESTED


async def test_the_message_size_of_the_legend_is_the_largest(opened: Opened) -> None:
    story = sweep_of_two(end=False)
    first = story.good("n000:0", "n000:1")[0]
    story.measured(replace(first, bytes=4 << 20))
    story.end(1)
    async with opened(FakeFeed(story.events)) as (app, pilot):
        await settled(app, pilot)
        assert app.main.source.unit() == ("GB/s", 256 << 20)
