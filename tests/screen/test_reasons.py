"""Keys that have nothing to do give the reason."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from fabtui.screen.views.topology import TopologyScreen
from tests.screen.conftest import Opened, press
from tests.screen.fakefeed import FakeFeed, sweep_of_two


@pytest.mark.parametrize(
    ("keys", "size", "reason"),
    [
        ("hr", (80, 24), "this cell has no pair to test"),
        ("hx", (80, 24), "this cell has no pair to reverse"),
        (("T", "slash", "z", "enter", "n"), (80, 24), "this line has no node, and none below it"),
        ("u", (80, 24), "no filter is set: all cells are shown"),
        ("m", (80, 24), "there is no map: it is for grids that do not fit"),
        ("p", (80, 24), "the side panel needs 96 columns; this terminal has 80"),
        ("vp", (120, 40), "the side panel is beside the grid: v shows the grid"),
    ],
)
async def test_a_key_with_nothing_to_do_gives_the_reason(
    opened: Opened, keys: Iterable[str], size: tuple[int, int], reason: str
) -> None:
    async with opened(FakeFeed(sweep_of_two().events), size=size) as (app, pilot):
        await press(pilot, *keys)
        assert [note.message for note in app._notifications] == [reason]


async def test_a_closed_line_without_a_node_is_opened(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events), size=(80, 24)) as (app, pilot):
        await press(pilot, "T")
        assert isinstance(app.screen, TopologyScreen)
        tree = app.screen.tree_view
        closed = next(one for one in tree.root.children[0].children if not one.is_expanded)
        tree.move_cursor(closed)
        await press(pilot, "n")
        assert closed.is_expanded
        assert len(closed.children) == 2
        assert not app._notifications
