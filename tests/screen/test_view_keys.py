"""From any view to any other by its key, and the answer to keys without effect."""

from collections.abc import Iterable

import pytest

from fabtui.screen.app import FabricApp
from fabtui.screen.views.topology import TopologyScreen
from tests.screen.conftest import Opened, press, press_each
from tests.screen.fakefeed import FakeFeed, sweep_of_two

#: Keys of the views, and the class of each; "" leads to the main screen.
VIEWS = {
    "F": "FindingsScreen",
    "t": "NodesScreen",
    "c": "NodesScreen",
    "T": "TopologyScreen",
    "question_mark": "HelpScreen",
    "v": "",
    "L": "",
    "4": "",
}
#: Keys that have a meaning of their own in a view.
OWN = {("F", "c"), ("F", "4"), ("question_mark", "question_mark")}


def shown(app: FabricApp) -> str:
    return type(app.screen).__name__


@pytest.mark.parametrize("first", ["F", "t", "T", "n", "enter", "question_mark"])
async def test_a_key_leads_from_any_view_to_any_other(opened: Opened, first: str) -> None:
    async with opened(FakeFeed(sweep_of_two().events)) as (app, pilot):
        for key, view in VIEWS.items():
            if (first, key) in OWN or VIEWS.get(first) == view:
                continue
            await press_each(pilot, first)
            assert len(app.screen_stack) == 2, first
            await press_each(pilot, key)
            assert shown(app) == (view or "MainScreen"), (first, key)
            assert len(app.screen_stack) == (3 if view else 1)
            match key:
                case "v":
                    assert app.main.view == "worst"
                case "L":
                    assert app.main.log_is_large
                case "4":
                    assert str(app.layer) == "latency"
            if view:
                await press_each(pilot, *["escape"] * 2)
            elif key in "vL":
                await press_each(pilot, key)
            assert app.screen is app.main


async def test_each_kind_of_view_is_open_once(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events)) as (app, pilot):
        await press_each(pilot, "F", "t", "T", "F", "t", "T", "F")
        assert [type(one).__name__ for one in app.screen_stack] == ["MainScreen", "FindingsScreen"]


@pytest.mark.parametrize(
    ("way", "key", "words"),
    [
        (("t",), "w", "w has no effect here. main screen: start or stop testing all pairs in the background"),
        (("F",), "r", "r has no effect here. main screen: test the pair under the cursor again, alone; "),
        (("T",), "right_square_bracket", "] has no effect here. main screen: next bad cell; "),
        ((), "z", "z has no effect: ? shows all keys"),
        (("n",), "z", "z has no effect: ? shows all keys"),
        (("question_mark",), "s", "s has no effect here. main screen: sort rows by bad cells, or restore the order"),
    ],
)
async def test_a_key_without_effect_is_answered(opened: Opened, way: tuple[str, ...], key: str, words: str) -> None:
    async with opened(FakeFeed(sweep_of_two().events)) as (app, pilot):
        await press_each(pilot, *way, key)
        (note,) = app._notifications
        assert note.message.startswith(words)


async def test_it_names_what_the_user_has_bound_it_to(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events), keys={"main.watch": "z"}) as (app, pilot):
        await press_each(pilot, "t", "z")
        (note,) = app._notifications
        assert note.message == "z has no effect here. main screen: start or stop testing all pairs in the background"


async def test_a_recording_never_asks_the_local_slurm(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fabtui.screen.views.job.own_jobs", lambda: pytest.fail("squeue was asked"))
    async with opened(FakeFeed(sweep_of_two().events, can_test=False)) as (app, pilot):
        await press_each(pilot, "J")
        assert app.screen is app.main
        assert [note.message for note in app._notifications] == ["this recording has no job"]
        await press_each(pilot, "8")
        assert list(app._notifications)[-1].message == "nothing to compare with: start with --baseline FILE"


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
