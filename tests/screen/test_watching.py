"""Watching: highlighted cells, flapping pairs, changes since a baseline."""

from dataclasses import replace
from pathlib import Path

import pytest

from fabtui.atomic_write import write_text
from fabtui.diagnosis.diagnosis import diagnose
from fabtui.export.json import session_text
from fabtui.model.baseline import Baseline
from fabtui.model.events import Event
from fabtui.model.layers import Better, Layer, LayerSpec, key_layers, registered
from fabtui.model.measurement import Measurement, Verdict
from fabtui.presentation.cell_levels import UNICODE, CellStyle
from fabtui.presentation.legends import legend, meanings, usual_lines
from fabtui.presentation.wording import plain
from fabtui.screen.app import FabricApp
from fabtui.screen.grid import updates
from tests.screen.conftest import Opened, make_app, press, screen_text, settled
from tests.screen.fakefeed import FakeFeed, Story, big_sweep, sweep_of_two

PAIR = ("n000:0", "n000:1")


def again(story: Story, verdict: Verdict = Verdict.OK, value: float | None = 351.0) -> list[Event]:
    story.events.clear()
    one = Measurement(Layer.P2P, *PAIR, verdict, value, "GB/s", 256 << 20, story.now, attempts=9)
    story.measured(one)
    return story.events


def cell(app: FabricApp) -> tuple[int, str]:
    return app.main.source.cell(0, 1, 6)


async def test_w_watches_until_it_is_pressed_again(opened: Opened) -> None:
    feed = FakeFeed(sweep_of_two().events)
    async with opened(feed) as (app, pilot):
        await pilot.press("w")
        assert feed.model.watching
        await pilot.pause(0.1)
        assert "w stop" in screen_text(app).splitlines()[-1]
        await pilot.press("w")
        assert not feed.model.watching


async def test_a_recording_cannot_be_watched(opened: Opened) -> None:
    feed = FakeFeed(sweep_of_two().events, can_test=False)
    async with opened(feed) as (app, pilot):
        await press(pilot, "w", seconds=0.1)
        assert not feed.model.watching
        assert "cannot be tested again" in "".join(note.message for note in app._notifications)


async def test_a_cell_with_another_result_lights_up_and_goes_out(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(updates, "HIGHLIGHT_SECONDS", 0.3)
    story = sweep_of_two()
    feed = FakeFeed(story.events)
    async with opened(feed) as (app, pilot):
        feed.play(again(story, value=347.5))
        await pilot.pause(0.1)
        assert cell(app)[0] is CellStyle.GOOD, "the same within a tenth"
        feed.play(again(story, value=300.0))
        await pilot.pause(0.1)
        assert cell(app) == (CellStyle.FLASH, "  300 ")
        assert app.main.grid._rows[0][0][1][0] == CellStyle.FLASH
        await pilot.pause(0.8)
        assert app.main.grid._rows[0][0][1][0] == CellStyle.GOOD
        feed.play(again(story, value=120.0))
        await pilot.pause(0.1)
        assert cell(app) == (CellStyle.SLOW, "  120\u25be"), "what is bad stands out by itself"


async def test_a_flapping_pair_is_marked_though_it_is_well(opened: Opened) -> None:
    story = sweep_of_two()
    feed = FakeFeed(story.events)
    async with opened(feed) as (app, pilot):
        feed.play(again(story, Verdict.TIMEOUT, None))
        feed.play(again(story))
        app.main.draw()
        app.main.source.highlighted.clear()
        assert cell(app) == (CellStyle.FLAPPING, "  351~")
        app.main.draw()
        await press(pilot, "home", "right", seconds=0.1)
        assert "flapping" in screen_text(app)


async def test_the_layer_change_needs_a_baseline(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events)) as (app, pilot):
        assert "8 change" not in screen_text(app)
        await press(pilot, "8", seconds=0.1)
        assert app.main.source.layer is Layer.P2P
        assert "--baseline FILE" in "".join(note.message for note in app._notifications)


async def test_the_layer_change_shows_ratios_and_its_own_scale(opened: Opened, tmp_path: Path) -> None:
    before = sweep_of_two()
    path = tmp_path / "before.json"
    write_text(path, session_text(diagnose(before.shadow)))
    story = sweep_of_two()
    story.measured(Measurement(Layer.P2P, *PAIR, Verdict.OK, 175.0, "GB/s", 256 << 20, story.now))
    async with opened(FakeFeed(story.events), size=(160, 40), baseline=path) as (app, pilot):
        await press(pilot, "8", seconds=0.2)
        text = screen_text(app)
        assert "8 change" in text
        assert "p2p now / then" in text
        assert "before.json of 14 Nov 2023 22:13" in text
        assert cell(app) == (CellStyle.SLOW, " .502▾")
        assert app.main.source.cell(0, 2, 6) == (CellStyle.GOOD, " 1.00 ")
        assert app.main.source.cell(3, 6, 6)[0] is CellStyle.SKIPPED, "dead then, dead now"
        assert "349 GB/s then, 175 GB/s now" in app.main.panel.shown.plain
        assert " .  ok " in text
        await pilot.press("right_square_bracket")
        assert (app.main.grid.row, app.main.grid.column) == (0, 1), "what got worse is what is wrong here"


async def test_a_baseline_that_is_none_ends_with_2_and_one_line(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text("{}")
    app = make_app(FakeFeed(sweep_of_two().events), baseline=path)
    async with app.run_test() as pilot:
        await pilot.pause(0.5)
    assert app.return_value == 2
    assert app.exit_message is not None
    assert app.exit_message.startswith(f"fabtui: {path}")


@pytest.mark.parametrize("layer", key_layers())
def test_each_layer_has_a_legend_with_unit_and_scale(layer: Layer) -> None:
    model = sweep_of_two().shadow
    model.baseline = Baseline.of("before", 0.0, model.measurements())
    unit = {Layer.LATENCY: "us", Layer.PING: "ms", Layer.HEALTH: "", Layer.TRANSPORT: "", Layer.CHANGE: ""}
    text = plain(legend(model, layer, unit.get(layer, "GB/s"), None, 200, UNICODE))
    assert text
    words = " ".join(word for _, word in meanings(layer))
    if layer in (Layer.P2P, Layer.BUSBW):
        assert text.startswith("GB/s, ")
        assert "ok ok, below 95 % of the usual value below 85 %" in words
        assert usual_lines(model, layer)
    if layer in (Layer.LATENCY, Layer.PING):
        assert "less is better" in text
        assert "measured over 1.05 x the usual value over 1.18 x" in words


async def test_a_layer_that_is_registered_has_a_key_a_tab_and_a_legend(opened: Opened) -> None:
    spec = LayerSpec(name="jitter", title="deviation of the round trip", unit="us", better=Better.LESS, key="K")
    with registered(spec) as layer:
        story = sweep_of_two()
        story.measured(Measurement(layer, *PAIR, Verdict.OK, 7.25, "us", None, story.now))
        async with opened(FakeFeed(story.events), (160, 40)) as (app, pilot):
            await pilot.press("K")
            await settled(app, pilot)
            assert app.main.source.layer is layer
            assert "K jitter" in screen_text(app)
            assert "us, deviation of the round trip, less is better" in screen_text(app)
            assert app.main.source.cell(0, 1, 6)[1].strip() == "7.25"


@pytest.mark.parametrize("bad", [True, False])
async def test_the_grid_follows_the_sweep_until_the_first_bad_cell(opened: Opened, bad: bool) -> None:
    story = big_sweep(2, 2)
    feed = FakeFeed(story.events)
    async with opened(feed) as (app, pilot):
        assert app.main.source.layer is Layer.P2P
        story.events.clear()
        if bad:
            cut = story.good("n000:0", "n001:0", verdict=Verdict.TIMEOUT)[0]
            story.measured(replace(cut, value=None))
        story.phase("all_reduce", 2)
        feed.play(list(story.events))
        await pilot.pause(2.0)
        assert app.main.source.layer is Layer.P2P, "a layer without values would be empty"
        story.events.clear()
        story.busbw(["n000", "n001"])
        feed.play(list(story.events))
        await pilot.pause(2.0)
        assert app.main.source.layer is (Layer.P2P if bad else Layer.BUSBW)
