"""Rows and columns by leaf switch and by rail."""

from itertools import pairwise

import pytest

from fabtui.model.events import ProbeResult
from fabtui.model.session_model import Model
from fabtui.screen.grid.axis import Axis
from fabtui.screen.grid.cells import RowOrder
from fabtui.screen.grid.layout import NAMES_GROUP
from fabtui.screen.grid.navigation import UNKNOWN, group_by, groups_of_nodes
from tests.screen.conftest import Opened, press, screen_text
from tests.screen.fakefeed import FakeFeed, Story, big_sweep, sweep_of_two
from tests.screen.test_command_line import typed

NODES, GPUS = 4, 8


def fabric(*, known: int = NODES) -> Story:
    """A sweep of four nodes with eight rails; nodes alternate between two pairs of leaf switches, one per half."""
    story = big_sweep(NODES, GPUS)
    for at in range(known):
        ports = [
            {"ca": f"mlx5_{gpu}", "port": 1, "guid": f"g{at}{gpu}", "leaf": {"guid": leaf, "name": f"SW-{leaf}"}}
            for gpu in range(GPUS)
            for leaf in (f"{'ab'[at % 2]}{gpu // 4}",)
        ]
        value = {"ports": ports, "fabric": None, "error": None}
        story.add(ProbeResult(node=f"n{at:03d}", probe="ibfabric", value=value))
    return story


def grouped(model: Model, order: RowOrder) -> list[tuple[str, list[str]]]:
    axis = Axis.of_model(model)
    found = group_by(model, axis, order)
    assert found is not None
    entries = axis.in_order(found.positions, found.names).entries
    groups: list[tuple[str, list[str]]] = []
    for entry in entries:
        if entry.opens:
            groups.append((entry.group, []))
        groups[-1][1].append(entry.name)
        assert entry.group == groups[-1][0]
    return groups


def test_leaf_switches_keep_the_order_of_nodes_within_a_group() -> None:
    groups = dict(grouped(fabric().shadow, RowOrder.LEAF))
    assert list(groups) == ["SW-a0", "SW-a1", "SW-b0", "SW-b1"]
    assert groups["SW-a1"] == [*(f"n000:{at}" for at in range(4, 8)), *(f"n002:{at}" for at in range(4, 8))]


def test_endpoints_without_a_leaf_switch_come_last() -> None:
    groups = grouped(fabric(known=1).shadow, RowOrder.LEAF)
    assert [name for name, _ in groups] == ["SW-a0", "SW-a1", "leaf unknown"]
    assert len(groups[-1][1]) == 3 * GPUS


def test_rails_of_eight_gpus_are_eight_groups() -> None:
    groups = grouped(fabric().shadow, RowOrder.RAIL)
    assert [name for name, _ in groups] == [f"rail {at}" for at in range(GPUS)]
    assert groups[3][1] == [f"n{node:03d}:3" for node in range(NODES)]


def test_a_node_on_several_leaf_switches_names_the_first_and_the_number_of_others() -> None:
    model = fabric().shadow
    axis = Axis.of_model(model)
    found = group_by(model, axis, RowOrder.LEAF)
    assert found is not None
    assert groups_of_nodes(axis, found.names) == {0: "SW-a0 +1", 1: "SW-b0 +1", 2: "SW-a0 +1", 3: "SW-b0 +1"}


async def test_one_key_goes_from_leaf_switches_to_rails_and_back(opened: Opened) -> None:
    async with opened(FakeFeed(fabric().events), size=(200, 60)) as (app, pilot):
        given = [entry.name for entry in app.main.grid.source.rows.entries]
        await press(pilot, "O")
        shown = screen_text(app)
        assert " by leaf switch " in shown
        lines = shown.splitlines()
        heads = next(line for line in lines if line.count("SW-") == 4)
        assert heads.split()[:4] == ["SW-a0", "SW-a1", "SW-b0", "SW-b1"]
        # Each group of rows has a line with its name.
        assert [line.split()[0] for line in lines if line.startswith("SW-")] == ["SW-a0", "SW-a1", "SW-b0", "SW-b1"]
        await press(pilot, "O")
        assert sum(line.startswith("rail ") for line in screen_text(app).splitlines()) == GPUS
        await press(pilot, "O")
        assert [entry.name for entry in app.main.grid.source.rows.entries] == given
        assert "rail 7" not in screen_text(app)


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_the_cursor_stays_in_view_beside_names_of_groups(opened: Opened, size: tuple[int, int]) -> None:
    async with opened(FakeFeed(fabric().events), size=size) as (app, pilot):
        await typed(pilot, "order rail")
        grid = app.main.grid
        for row in [*range(grid.source.rows.size), *range(grid.source.rows.size - 1, -1, -1)]:
            grid.move_to(row, row)
            view = grid.viewport
            assert row in view.line_of_row
            names = [at for at, here in enumerate(view.lines) if here is not None and here[1] == NAMES_GROUP]
            # The first group in view is named, even if its first row is not in view.
            assert names
            assert names[0] == 0
            for at in names:
                assert grid.cell_at(view.columns[0][1], at + grid.layout_now().heads) is None


async def test_blocks_of_nodes_are_grouped_by_leaf_switch(opened: Opened) -> None:
    async with opened(FakeFeed(fabric().events), size=(120, 40)) as (app, pilot):
        await typed(pilot, "order leaf")
        await press(pilot, "minus")
        assert [entry.label for entry in app.main.grid.source.rows.entries] == ["n000", "n002", "n001", "n003"]
        assert "SW-a0 +1" in screen_text(app)


async def test_what_is_unknown_is_one_sentence_and_changes_nothing(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events)) as (app, pilot):
        before = app.main.view_state.order
        await typed(pilot, "order leaf")
        assert UNKNOWN[RowOrder.LEAF] in [note.message for note in app._notifications]
        assert app.main.view_state.order is before
        await pilot.press("O")
        assert app.main.view_state.order is RowOrder.RAIL, "leaf switches are skipped"


async def test_half_rows_have_names_of_groups_and_gaps_between_them(opened: Opened) -> None:
    async with opened(FakeFeed(fabric().events), size=(200, 60)) as (app, pilot):
        await typed(pilot, "order rail")
        grid = app.main.grid
        for _ in range(30):
            if grid.layout_now().halves:
                break
            await press(pilot, "less_than_sign")
        assert grid.layout_now().halves
        lines = screen_text(app).splitlines()
        assert sum(line.startswith("rail ") for line in lines) == GPUS
        columns = [at for _, at in grid.viewport.columns]
        blanks = {at - 1 for before, at in pairwise(columns) if at - before > 1}
        assert len(blanks) == GPUS - 1
        row = grid.render_line(grid.viewport.line_of_row[0]).text
        assert {at for at, text in enumerate(row[: columns[-1]]) if at > columns[0] and text == " "} >= blanks
        assert len(row) == grid.size.width
