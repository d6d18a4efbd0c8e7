from __future__ import annotations

from dataclasses import replace

from fabtui.model.layers import Layer
from tests.screen.conftest import Opened, screen_text, settled
from tests.screen.fakefeed import FakeFeed, Story, big_sweep, sweep_of_two


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


async def test_a_wide_window_shows_world_beside_p2p(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_with_world().events), size=(200, 50)) as (app, pilot):
        main = app.main
        await pilot.pause(0.1)
        lines = screen_text(app).splitlines()
        assert main.second_layer.display
        header = next(line for line in lines if "p2p " in line and "world " in line and "n000" in line)
        assert header.index("p2p") < header.index("world")
        await pilot.press("down", "right", "right")
        assert main.second_layer.entries == main.grid.entries
        await pilot.press("3")
        await pilot.pause(0.1)
        assert main.second_layer.source.layer is Layer.P2P  # type: ignore[attr-defined]
        await pilot.press("minus")
        await pilot.pause(0.1)
        assert not main.second_layer.display, "blocks have one layer"


async def test_a_click_in_the_second_layer_moves_the_cursor(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_with_world().events), size=(200, 50)) as (app, pilot):
        main = app.main
        await pilot.pause(0.1)
        column, begin = main.second_layer.viewport.columns[5]
        await pilot.click("#beside", offset=(begin + 1, main.second_layer.viewport.line_of_row[3]))
        await pilot.pause()
        assert (main.grid.row, main.grid.column) == (3, column)
        assert main.second_layer.entries == main.grid.entries


async def test_a_new_result_is_drawn_in_both_layers(opened: Opened) -> None:
    story = sweep_with_world()
    feed = FakeFeed(story.events)
    async with opened(feed, size=(200, 50)) as (app, pilot):
        await pilot.pause(0.1)
        story.events.clear()
        story.measured(replace(story.good("n000:0", "n000:1")[0], layer=Layer.WORLD, value=123.0))
        feed.play(story.events)
        app.main.draw()
        await pilot.pause(0.1)
        grid = app.main.second_layer
        assert sum("123" in strip.text for strip in grid.render_lines(grid.size.region)) == 1


async def test_the_key_shows_and_hides_the_second_layer(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_with_world().events), size=(80, 24)) as (app, pilot):
        assert not app.main.second_layer.display, "the cells of one layer are wide enough, those of two are not"
        await pilot.press("vertical_line")
        await pilot.pause(0.1)
        assert app.main.second_layer.display
        assert {len(line) for line in screen_text(app).splitlines()} == {80}
        await pilot.press("vertical_line")
        await pilot.pause(0.1)
        assert not app.main.second_layer.display


async def test_a_narrow_window_gives_the_reason(opened: Opened) -> None:
    async with opened(FakeFeed(big_sweep(8, 8, part=0.1).events), size=(80, 24)) as (app, pilot):
        await pilot.press("vertical_line")
        await pilot.pause(0.1)
        assert not app.main.second_layer.display
        assert [note.message for note in app._notifications] == [
            "Two layers side by side need endpoint pairs with values"
        ]


async def test_the_panel_leaves_its_room_to_a_second_layer(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events), size=(120, 40)) as (app, pilot):
        assert app.main.panel.display
        await pilot.press("4", "vertical_line")
        await pilot.pause(0.1)
        assert app.main.second_layer.display
        assert not app.main.panel.display
        await pilot.press("p")
        await pilot.pause(0.1)
        assert app.main.panel.display, "the latest choice counts"
        assert not app.main.second_layer.display
        await pilot.press("vertical_line")
        await pilot.pause(0.1)
        assert app.main.second_layer.display
        await pilot.press("vertical_line")
        await pilot.pause(0.1)
        assert not app.main.second_layer.display
        assert app.main.panel.display
        assert not app._notifications
