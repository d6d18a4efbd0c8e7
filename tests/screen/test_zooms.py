"""Zooms, orders, filters and places: the cursor stays on its pair through all of them."""

import random
import re
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from textual.pilot import Pilot

from fabtui.errors import InputError
from fabtui.model.cell_level import Level
from fabtui.model.events import Measured, NodeState, SessionStart
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.presentation.cell_levels import STYLES, CellStyle, Glyphs
from fabtui.presentation.wording import plain
from fabtui.screen.app import FabricApp
from fabtui.screen.context import AppContext
from fabtui.screen.grid.axis import Axis
from fabtui.screen.grid.cells import RowOrder
from fabtui.screen.grid.navigation import GridNavigation, ViewState, Zoom, block_parts
from fabtui.screen.grid.prompts import read_filter, read_place
from fabtui.screen.grid.severity_index import FEW_TILE, tiles
from fabtui.screen.grid.updates import GridUpdater
from fabtui.screen.grid.widget import GridView
from fabtui.screen.views.dialogs import SmallScreen
from fabtui.screen.widgets.minimap import _slot
from tests.effort import examples
from tests.screen.conftest import Opened, press, screen_text
from tests.screen.fakefeed import FAILED, SLOW, FakeFeed, Story, big_sweep, sweep_of_two
from tests.screen.test_gridlayout import axis_of

_PLACE = spec_from_file_location("synthetic", Path(__file__).parents[2] / "bench" / "synthetic.py")
assert _PLACE is not None
assert _PLACE.loader is not None
synthetic: Any = module_from_spec(_PLACE)
_PLACE.loader.exec_module(synthetic)

BAD = ("right_square_bracket",)


def lines_of(grid: GridView) -> list[str]:
    return [strip.text for strip in grid.render_lines(grid.size.region)]


def pair_of(app: FabricApp) -> tuple[str, ...]:
    return tuple(entry.name for entry in app.main.cursor_entries() or ())


def zoom_of(app: FabricApp) -> Zoom:
    return app.main.view_state.zoom


def with_problems(nodes: int, per_node: int, bad: dict[tuple[str, str], Verdict], part: float = 1.0) -> Story:
    story = big_sweep(nodes, per_node, part=part)
    for (src, dst), verdict in bad.items():
        value = 9.0 if verdict is Verdict.SLOW else None
        kept = Verdict.OK if verdict is Verdict.SLOW else verdict
        story.measured(Measurement(Layer.P2P, src, dst, kept, value, "GB/s", 256 << 20, story.now, error="cut"))
    return story


async def type_in(pilot: Pilot[int], key: str, text: str) -> None:
    await press(pilot, key, seconds=0.05)
    names = {" ": "space", ">": "greater_than_sign", ":": "colon", "[": "left_square_bracket", "-": "minus"}
    names |= {"]": "right_square_bracket", ",": "comma", "!": "exclamation_mark"}
    await press(pilot, *(names.get(character, character) for character in text), "enter", seconds=0.15)


@pytest.mark.parametrize("walk", [["minus", "plus"], ["plus", "minus"], ["minus", "enter", "escape", "plus"]])
async def test_the_cursor_stays_on_its_pair_through_the_zooms(opened: Opened, walk: list[str]) -> None:
    async with opened(FakeFeed(sweep_of_two().events)) as (app, pilot):
        await pilot.press(*BAD, *BAD)
        assert pair_of(app) == FAILED
        for key in walk:
            await press(pilot, key)
            assert pair_of(app) == FAILED
        assert zoom_of(app) is Zoom.GPUS


async def test_it_goes_on_to_the_pair_and_back(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events)) as (app, pilot):
        await pilot.press("minus")
        assert zoom_of(app) is Zoom.FABRIC
        await press(pilot, "plus", "plus", "plus")
        assert type(app.screen).__name__ == "PairScreen"
        await pilot.press("escape")
        assert zoom_of(app) is Zoom.NODES
        await press(pilot, "minus", "minus", "minus", seconds=0.1)
        assert any("widest zoom" in note.message for note in app._notifications)


async def test_a_block_shows_its_worst_pair_and_the_count(opened: Opened) -> None:
    bad = {("n000:0", "n001:0"): Verdict.FAILED, ("n000:1", "n001:0"): Verdict.FAILED}
    bad |= {("n001:0", "n000:1"): Verdict.SLOW}
    # A dead NIC is a fourth of a block; more of it is bad as a whole, and wrong data always counts.
    bad |= {("n002:0", f"n000:{at}"): Verdict.FAILED for at in range(4)} | {("n002:1", "n001:0"): Verdict.WRONG}
    bad |= {(f"n000:{at // 4}", f"n002:{at % 4}"): Verdict.SLOW for at in range(5)}
    story = with_problems(3, 4, bad)
    async with opened(FakeFeed(story.events)) as (app, pilot):
        await press(pilot, "minus")
        blocks = app.main.view_state.blocks
        assert blocks.cell(0, 1, 6) == (CellStyle.FEW, "   2x ")
        assert blocks.cell(0, 1, 2) == (CellStyle.FEW, "2x")
        assert blocks.cell(1, 0, 6) == (CellStyle.FEW, "   1▾ ")
        assert [blocks.cell(*at, 1)[0] for at in ((2, 0), (0, 2), (2, 1))] == [
            *(CellStyle.FEW, CellStyle.SLOW, CellStyle.WRONG)
        ]
        slot, text = blocks.cell(1, 2, 6)
        assert (slot, text.strip()[:2]) == (CellStyle.GOOD, "45")
        text = screen_text(app)
        assert "2x" in text
        await press(pilot, "right")
        assert "n000 > n001" in screen_text(app)
        assert "x 2 failed  14 ok" in screen_text(app)
        await pilot.press("enter")
        assert pair_of(app) == ("n000:0", "n001:0")
        assert "GB/s" in screen_text(app)


async def test_a_partly_tested_block_differs_from_a_tested_one(opened: Opened) -> None:
    async with opened(FakeFeed(big_sweep(4, 4, part=0.5).events)) as (app, pilot):
        await press(pilot, "minus")
        view = app.main.view_state
        for a in range(4):
            for b in range(4):
                tested = view.index.tested[a, b]
                slot = CellStyle(view.blocks.cell(a, b, 1)[0])
                expected = (
                    {CellStyle.PARTLY, CellStyle.UNTESTED, CellStyle.PAD}
                    if tested < view.index.cells(a, b)
                    else {CellStyle.GOOD}
                )
                assert slot in expected
        assert "not all tested" in screen_text(app)


def test_no_grid_is_emptied_when_a_node_is_lost_or_everything_changes() -> None:
    story = big_sweep(3, 2)
    view = ViewState(story.shadow, Layer.P2P, Glyphs(True))
    view.zoom = Zoom.FABRIC
    view.moved_to((view.blocks.axis.entries[0], view.blocks.axis.entries[2]))
    assert plain(block_parts(view, 0, 2, Glyphs(True))) == "4 ok  of 4 pairs", "though no other block is judged yet"
    assert view.index.node_levels[1, 0] == Level.HIDDEN
    updater = GridUpdater(GridView(view.source, Glyphs(True)), lambda seconds: None)
    updater.update(view)
    while not view.index.step(1.0):
        pass
    before = view.index.node_levels.copy()
    story.state("n001", NodeState.LOST, "cut")
    # The list of endpoints changes, as the node is gone; in the second frame all cells may have changed.
    for _ in range(2):
        updater.update(view)
        assert view.index.node_levels.min() > Level.UNTESTED
        story.shadow._changed = None
    assert view.index.node_levels[0, 2] == before[0, 2]
    while not view.index.step(1.0):
        pass
    assert set(view.index.node_levels[1].tolist()) == {Level.GONE}


def test_a_cursor_that_was_put_somewhere_was_not_moved() -> None:
    model = big_sweep(3, 2).shadow
    context = cast("AppContext", SimpleNamespace(model=model, glyphs=Glyphs(True)))
    navigation = GridNavigation(context, lambda view: GridView(view.source, Glyphs(True)))
    navigation.show()
    assert not navigation.moved
    navigation.fit_zoom(fits=False)
    assert (navigation.view_state.zoom, navigation.moved) == (Zoom.FABRIC, False)
    navigation.put_cursor(1, 4)
    navigation.show()
    navigation.note_cursor()
    assert (navigation.block(), navigation.moved) == ((0, 2), False)
    navigation.fit_zoom(fits=True)
    assert (navigation.view_state.zoom, navigation.moved) == (Zoom.GPUS, False)
    navigation.go_to(1, 4)
    assert navigation.moved, "though it is the same cell"


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_the_index_is_what_the_cells_say(seed: int) -> None:
    """In any order of results and steps: ranks, worst of blocks and counts match all cells."""
    chance = random.Random(seed)
    story = big_sweep(3, 3, part=0.3)
    view = ViewState(story.shadow, Layer.P2P, Glyphs(True))
    pairs = story.ordered_pairs()
    story.shadow.drain_changes()
    for _ in range(6):
        for src, dst in chance.sample(pairs, 6):
            verdict = chance.choice([Verdict.OK, Verdict.OK, Verdict.FAILED, Verdict.TIMEOUT])
            value = chance.choice([40.0, 300.0, 2.0]) if verdict is Verdict.OK else None
            story.measured(Measurement(Layer.P2P, src, dst, verdict, value, "GB/s", 256 << 20, story.now))
        view.index.touch(view.source.take_changes(story.shadow.drain_changes() or set()))
        view.source.take_medians()
        view.index.rejudge()
        while not view.index.step(0.0):
            pass
    size = view.source.axis.size
    ranks = [[STYLES.index(view.source.judge(row, column)[0]) for column in range(size)] for row in range(size)]
    floor = Level.UNTESTED
    for row in range(size):
        known = view.index.levels[row]
        assert [rank for rank in known if rank > floor] == [rank for rank in ranks[row] if rank > floor]
        assert view.index.bad_per_row[row] == sum(rank >= Level.SLOW for rank in ranks[row])
    for a in range(3):
        for b in range(3):
            cells = [ranks[row][column] for row, column in view.index.cells_of(a, b)]
            assert max(view.index.node_levels[a, b], floor) == max(*cells, floor)
            assert view.index.tested[a, b] == sum(rank > floor for rank in cells)
    assert view.index.bad == view.index.bad_shown == len(view.index.worst(1000))


async def test_the_next_bad_cell_in_every_zoom(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events)) as (app, pilot):
        for zoom in ("plus", "minus"):
            await pilot.press(zoom)
            seen = set()
            for _ in range(3):
                await pilot.press(*BAD)
                seen.add(pair_of(app))
            assert {SLOW, FAILED} < seen
        await pilot.press("minus", "right", "left", *BAD)
        assert zoom_of(app) is Zoom.FABRIC
        assert pair_of(app) == FAILED


async def test_sorting_puts_the_worst_first_and_leaves_the_cursor_on_its_pair(opened: Opened) -> None:
    bad = {(f"n{node:03}:1", "n002:3"): Verdict.FAILED for node in range(4) if node != 2}
    async with opened(FakeFeed(with_problems(4, 4, bad).events)) as (app, pilot):
        await pilot.press("down", "down", "right")
        before = pair_of(app)
        await press(pilot, "s")
        rows = [entry.name for entry in app.main.grid.source.rows.entries]
        assert rows[:3] == ["n000:1", "n001:1", "n003:1"]
        assert pair_of(app) == before
        assert "rows: worst first" in screen_text(app)
        await pilot.press("b")
        assert app.main.grid.source.columns.entries[0].name == "n002:3"
        assert app.main.grid.source.rows.entries[0].name == "n002:3"
        assert pair_of(app) == before
        await pilot.press("b")
        assert app.main.grid.source.rows is app.main.source.axis
        assert pair_of(app) == before


def test_blame_goes_to_what_explains_most() -> None:
    bad = {(f"n{node:03}:0", "n003:2"): Verdict.FAILED for node in range(3)}
    bad |= {("n000:0", "n001:1"): Verdict.TIMEOUT}
    story = with_problems(4, 3, bad)
    view = ViewState(story.shadow, Layer.P2P, Glyphs(True))
    while not view.index.step(1.0):
        pass
    names = [view.source.axis.entries[at].name for at in view.index.order(RowOrder.BLAME)]
    assert names[:2] == ["n003:2", "n000:0"]
    assert [view.source.axis.entries[at].name for at in view.index.order(RowOrder.BADNESS)][:2] == ["n000:0", "n001:0"]
    assert sorted(names) == sorted(entry.name for entry in view.source.axis.entries)


async def test_a_filter_is_seen_and_can_be_ended(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events)) as (app, pilot):
        await pilot.press(*BAD)
        await type_in(pilot, "f", "failed")
        assert "filter: failed" in screen_text(app)
        assert app.main.view_state.index.bad_shown == 1
        assert not any("46." in line for line in lines_of(app.main.grid))
        await type_in(pilot, "f", "")
        assert app.main.view_state.filter is not None, "what was typed before is kept to be changed"
        await pilot.press("escape")
        assert app.main.view_state.filter is None
        assert any("46." in line for line in lines_of(app.main.grid))
        assert pair_of(app) == SLOW
        await type_in(pilot, "f", "n001>")
        assert [entry.name for entry in app.main.grid.source.rows.entries] == [f"n001:{at}" for at in range(4)]
        await pilot.press("u")
        assert pair_of(app) == SLOW
        await type_in(pilot, "f", "n99")
        assert "'n99' is not a node here, nor a verdict, class or transport" in screen_text(app)


@pytest.mark.parametrize(
    ("text", "cells"),
    [("bad", 3), ("slow", 1), ("failed,timeout", 2), ("slow rail", 1), ("slow cross", 0), ("bad n000>n001", 3)],
)
def test_filters_let_through_what_they_say(text: str, cells: int) -> None:
    story = sweep_of_two()
    view = ViewState(story.shadow, Layer.P2P, Glyphs(True))
    view.take_filter(read_filter(text, list(story.shadow.nodes)))
    while not view.index.step(1.0):
        pass
    assert view.index.bad_shown == cells


@pytest.mark.parametrize(("text", "shown"), [("via:cumem", "same-node"), ("p2p", "same-node"), ("gdr", "same-rail")])
def test_filters_know_transports(text: str, shown: str) -> None:
    model = big_sweep(2, 4).shadow
    chosen = read_filter(text, list(model.nodes))
    assert chosen is not None
    kinds = set()
    for src in range(8):
        for dst in range(8):
            if src != dst and chosen.lets(model, model.cell(Layer.P2P, src, dst), src, dst):
                kinds.add(str(model.table.class_between(str(model.endpoints[src]), str(model.endpoints[dst]))))
    assert kinds == {shown}


@pytest.mark.parametrize(
    ("word", "names"),
    [
        ("p2p", "P2P/CUMEM|P2P/MNNVL|IPC/read|NVLS"),
        ("mnnvl", "P2P/MNNVL"),
        ("nvls", "NVLS"),
        ("shm", "SHM/direct"),
        ("ib", "NET/IB/mlx5_0|NET/IB/0/GDRDMA|NET/IBext_v10/0"),
        ("gib", "NET/gIB/0"),
        ("ofi", "NET/OFI/0/GDRDMA|NET/AWS Libfabric/0"),
        ("tcpx", "NET/FasTrak/0"),
        ("gdr", "NET/IB/0/GDRDMA|NET/OFI/0/GDRDMA"),
        ("socket", "NET/Socket/eth0"),
        ("tcp", "NET/Socket/eth0|TCP"),
        ("gloo", "TCP"),
        ("via:pigeon", "NET/Pigeon/0"),
    ],
)
def test_filters_and_cells_name_a_transport_alike(word: str, names: str) -> None:
    every = [
        *("P2P/CUMEM", "P2P/MNNVL", "IPC/read", "NVLS", "SHM/direct", "NET/IB/mlx5_0", "NET/IB/0/GDRDMA"),
        *("NET/IBext_v10/0", "NET/gIB/0", "NET/OFI/0/GDRDMA", "NET/AWS Libfabric/0", "NET/FasTrak/0"),
        *("NET/Socket/eth0", "TCP", "NET/Pigeon/0"),
    ]
    chosen = read_filter(word, [])
    assert chosen is not None
    assert [name for name in every if chosen.has_transport(name)] == names.split("|")


@pytest.mark.parametrize("text", ["n[0", "zz", ">", "^-", "n[5-1]", "a!b", "via:"])
def test_a_wrong_filter_is_one_line(text: str) -> None:
    with pytest.raises(InputError, match=r"^filter"):
        read_filter(text, ["n000", "n001"])


@pytest.mark.parametrize(
    ("text", "place"),
    [("n001:2", (5, None)), ("n001", (3, None)), ("n000:1>n002:0", (1, 6)), (">n001:1", (None, 4)), ("n0>", None)],
)
def test_places_by_name(text: str, place: Any) -> None:
    axis = axis_of(3, 3)
    if place is None:
        with pytest.raises(InputError, match="no node 'n0'"):
            read_place(text, axis)
    else:
        assert read_place(text, axis) == place


def shown_of(read: Callable[[], object]) -> str:
    try:
        read()
    except InputError as error:
        return str(error)
    return ""


@given(st.text(max_size=20))
def test_no_text_breaks_the_prompts(text: str) -> None:
    axis: Axis = axis_of(2, 2)
    for read in (lambda: read_place(text, axis), lambda: read_filter(text.replace("@", "").replace("^", ""), ["n000"])):
        assert len(shown_of(read)) < 400


async def test_going_to_a_place(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events)) as (app, pilot):
        await type_in(pilot, "g", "n001:2>n000:3")
        assert pair_of(app) == ("n001:2", "n000:3")
        await type_in(pilot, "g", "n000>n001")
        assert pair_of(app) == FAILED
        await type_in(pilot, "g", "n00x:1")
        assert "there is no node 'n00x'; did you mean" in screen_text(app)
        await pilot.press("escape")
        assert app.main.screen.focused is app.main.grid
        assert pair_of(app) == FAILED


async def test_the_cursor_stays_on_its_pair_when_rows_move_under_it(opened: Opened) -> None:
    story = with_problems(4, 4, {("n000:0", "n001:0"): Verdict.FAILED})
    async with opened(FakeFeed(story.events), size=(100, 20)) as (app, pilot):
        await type_in(pilot, "g", "n002:1>n003:3")
        await pilot.press("s")
        for number, key in enumerate(("4", "2", "minus", "plus", "v", "v", "m")):
            story.events.clear()
            for dst in ("n001:0", "n001:2"):
                story.measured(Measurement(Layer.P2P, f"n003:{number % 4}", dst, Verdict.FAILED, time=story.now))
            app.feed.play(story.events)  # type: ignore[union-attr]
            app.main.navigation._resting_until = 0.0
            await press(pilot, key)
            if app.main.view == "grid":
                assert pair_of(app) == ("n002:1", "n003:3"), key
        assert app.main.view_state.order is RowOrder.BADNESS
        assert app.main.grid.source.rows.entries[0].name != "n000:0"


async def test_no_key_is_lost_while_results_come_in(opened: Opened) -> None:
    fabric = synthetic.Fabric(64)
    events = list(synthetic.events_of(fabric, 6000, 2000.0))
    begin = next(at for at, one in enumerate(events) if one.kind == "running")
    feed = FakeFeed(events[:begin])
    async with opened(feed, size=(120, 40)) as (app, pilot):
        grid = app.main.grid
        assert zoom_of(app) is Zoom.FABRIC
        played, pressed = begin, 0
        for _ in range(40):
            feed.play(events[played : played + 4])
            played += 4
            for key in ("down", "right"):
                pilot.app.simulate_key(key)
                pressed += 1
            await pilot.pause(0.005)
        await pilot.pause(0.2)
        assert (grid.row, grid.column) == (pressed // 2, pressed // 2)
        assert "SYNTHETIC" in screen_text(app)


@pytest.mark.parametrize("size", [(20, 5), (35, 30), (80, 5)])
async def test_too_small_shows_the_required_size_and_q_quits(opened: Opened, size: tuple[int, int]) -> None:
    feed = FakeFeed(sweep_of_two().events)
    async with opened(feed, size=size) as (app, pilot):
        assert isinstance(app.screen, SmallScreen)
        text = " ".join(screen_text(app).split())
        assert "needs 36x6" in text
        await press(pilot, "f", "slash", "enter", "plus", "v", "down", "q", seconds=0.2)
        assert feed.closed == 1


async def test_a_map_shows_the_visible_part_and_the_bad_cells(opened: Opened) -> None:
    story = with_problems(24, 8, {("n020:0", "n021:3"): Verdict.FAILED}, part=0.02)
    async with opened(FakeFeed(story.events), size=(80, 24)) as (app, pilot):
        await press(pilot, "plus", seconds=0.1)
        app.main.draw()
        await pilot.pause(0.1)
        shown = app.main.minimap
        assert shown.display
        failed = [(y, x) for y, line in enumerate(shown._tiles) for x, rank in enumerate(line) if rank == Level.FAILED]
        down, across = len(shown._tiles), len(shown._tiles[0])
        assert failed == [(20 * down // 24, 21 * across // 24)]
        rows, columns = shown._visible
        assert 0 in rows
        assert failed[0][0] not in rows
        await press(pilot, "G", seconds=0.1)
        assert down - 1 in shown._visible[0]
        assert columns == shown._visible[1]


async def test_a_map_of_many_nodes_shows_what_a_tile_stands_for(opened: Opened) -> None:
    story = with_problems(100, 8, {("n020:0", "n021:3"): Verdict.FAILED}, part=0.002)
    async with opened(FakeFeed(story.events), size=(120, 40)) as (app, pilot):
        await press(pilot, "2", seconds=0.1)
        app.main.draw()
        await pilot.pause(0.1)
        shown = app.main.minimap
        assert shown.display
        assert re.fullmatch(r"map: 5 . 5 nodes each, [\d.]+ % tested", shown._title)
        # Which of many pairs were tested is not a pattern of the fabric: only bad ones and the visible part stand out.
        assert _slot(Level.UNTESTED, visible=False, whole=False) is _slot(Level.GOOD, visible=False, whole=False)
        assert _slot(Level.UNTESTED, visible=False, whole=True) is not _slot(Level.GOOD, visible=False, whole=True)


@given(st.integers(1, 60), st.integers(1, 60), st.integers(1, 20), st.integers(1, 20), st.data())
def test_tiles_lose_nothing(rows: int, columns: int, across: int, down: int, data: st.DataObject) -> None:
    row, column = data.draw(st.integers(0, rows - 1)), data.draw(st.integers(0, columns - 1))
    ranks = np.zeros((rows, columns), np.uint8)
    ranks[row, column] = Level.FAILED
    found = tiles(ranks, ranks >= Level.SLOW, np.ones_like(ranks), min(down, rows), min(across, columns))
    assert sum(rank in (Level.FAILED, FEW_TILE) for line in found for rank in line) == 1


def test_a_synthetic_recording_is_marked_everywhere(tmp_path: Path) -> None:
    events = list(synthetic.events_of(synthetic.Fabric(8), 500, 2000.0))
    assert isinstance(events[0], SessionStart)
    assert "synthetic" in (events[0].synthetic or "")
    measured = [m for one in events if isinstance(one, Measured) for m in one.measurements]
    assert len(measured) == 500
    assert all("synthetic" in (one.how or "") for one in measured)


@pytest.mark.parametrize("seed", range(4))
async def test_no_order_of_keys_breaks_anything(opened: Opened, seed: int) -> None:
    """Keys, filters, sizes, results and lost nodes in any order; kept lines are those drawn from nothing."""
    chance = random.Random(seed)
    story = big_sweep(chance.choice([1, 2, 5, 9]), chance.choice([1, 3, 8]), part=0.4)
    pairs = story.ordered_pairs() or [("n000:0", "n000:0")]
    feed = FakeFeed(story.events)
    keys = [
        *("up", "down", "left", "right", "plus", "minus", "enter", "escape", "s", "b", "x", "v", "m", "u", "1"),
        *("2", "4", "7", "G", "ctrl+home", "end", "home", "less_than_sign", "greater_than_sign", "pagedown"),
    ]
    filters = ["bad", "ok rail", "n000>", ">n000", "n001", "via:ib", "slow cross", "n000>n000", "nonsense", ""]
    async with opened(feed, size=(90, 26)) as (app, pilot):
        for _ in range(examples()):
            story.events.clear()
            doing = chance.random()
            if doing < 0.1:
                await type_in(pilot, chance.choice(["f", "slash"]), chance.choice(filters))
                await pilot.press("escape")
            elif doing < 0.16:
                await pilot.resize_terminal(chance.choice([20, 60, 80, 130]), chance.choice([5, 14, 24, 40]))
            elif doing < 0.4:
                for src, dst in chance.sample(pairs, min(3, len(pairs))):
                    verdict = chance.choice([Verdict.OK, Verdict.FAILED])
                    story.measured(Measurement(Layer.P2P, src, dst, verdict, 40.0, "GB/s", 256 << 20, story.now))
                feed.play(story.events)
            elif doing < 0.42:
                story.state(chance.choice(story.nodes), NodeState.LOST, "cut")
                feed.play(story.events)
            else:
                await pilot.press(*(chance.choice([*keys, "right_square_bracket"]) for _ in range(4)))
            app.main.navigation._resting_until = 0.0
            app.main.draw()
            await pilot.pause()
            while app.screen is not app.main:
                app.pop_screen()
            if app.main.view == "grid" and app.main.grid.size.height > 4:
                app.main.grid.layout_now()
                kept = lines_of(app.main.grid)
                app.main.grid.reread()
                assert lines_of(app.main.grid) == kept
        assert app._exception is None


def shown_names(app: Any) -> tuple[list[str], list[str]]:
    source = app.main.grid.source
    return [entry.name for entry in source.rows.entries], [entry.name for entry in source.columns.entries]


async def test_a_filter_hides_rows_and_columns_without_a_match(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events)) as (app, pilot):
        await type_in(pilot, "f", "bad")
        await pilot.pause(0.2)
        rows, columns = shown_names(app)
        assert (rows, columns) == (["n000:1", "n000:3"], ["n001:1", "n001:2"])
        assert "2 x 2 of 9 endpoints" in screen_text(app)
        await type_in(pilot, "f", " !")
        assert [len(names) for names in shown_names(app)] == [9, 9]
        await pilot.press("u")
        await type_in(pilot, "f", "slow cross")
        await pilot.pause(0.2)
        assert "no cell matches" in screen_text(app)
        assert [len(names) for names in shown_names(app)] == [9, 9]
        await pilot.press("u")
        await type_in(pilot, "f", "rail")
        await pilot.pause(0.2)
        assert [len(names) for names in shown_names(app)] == [9, 9]


async def test_a_row_appears_when_a_cell_of_it_matches(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fabtui.screen.grid.navigation._REORDER_INTERVAL", 0.0)
    monkeypatch.setattr("fabtui.screen.grid.navigation._REORDER_REST", 0.0)
    story = sweep_of_two()
    feed = FakeFeed(story.events)
    async with opened(feed) as (app, pilot):
        await type_in(pilot, "f", "failed")
        await pilot.pause(0.2)
        assert shown_names(app) == (["n000:1"], ["n001:2"])
        found = Measurement(Layer.P2P, "n001:3", "n000:0", Verdict.FAILED, error="refused", time=app.model.now)
        feed.play([Measured(measurements=(found,), time=app.model.now, seq=99999)])
        for _ in range(20):
            await pilot.pause(0.05)
            app.main.draw()
        assert shown_names(app) == (["n000:1", "n001:3"], ["n000:0", "n001:2"])


def test_the_unit_is_known_wherever_a_sweep_begins() -> None:
    story = big_sweep(16, 4, part=0)
    for src, dst in story.ordered_pairs()[-40:]:
        story.measured(*story.good(src, dst))
    assert ViewState(story.shadow, Layer.P2P, Glyphs(True)).source.unit() == ("GB/s", 256 << 20)
