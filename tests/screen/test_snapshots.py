"""Pictures of the screens. After a wanted change: ``pytest tests/screen/test_snapshots.py --snapshot-update``; look.

Each view has one picture at 120x40 in the dark theme: a new view is a line in `VIEWS`. Other sizes and themes have one
picture each; `test_every_view_fits` and `test_every_view_is_grey` check the text of all views there.
"""

from collections.abc import Callable
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from fabtui.model.events import NodeState
from fabtui.screen.terminal.internals import screen_lines
from tests.screen.conftest import Opened, make_app, press, screen_text, settled
from tests.screen.fakefeed import REFUSED, FakeFeed, Story, big_sweep, sweep_of_two

pytestmark = pytest.mark.snapshot

Compare = Callable[..., bool]


def connecting() -> Story:
    story = Story(["n000", "n001", "n002", "n003"], 4)
    story.connect("n000")
    story.state("n001", NodeState.CONNECTING)
    story.state("n002", NodeState.CONNECTING)
    story.state("n002", NodeState.FAILED, REFUSED, "is sshd running there? ssh -v n002")
    return story


def middle() -> Story:
    story = sweep_of_two(end=False)
    story.events = story.events[:-20]
    return story


def healthy(nodes: int) -> Callable[[], Story]:
    def story() -> Story:
        made = big_sweep(nodes, 8)
        made.end(0)
        return made

    return story


BAD = ("right_square_bracket", "right_square_bracket")
#: What is played, and the keys that lead to the view.
VIEWS: dict[str, tuple[Callable[[], Story], tuple[str, ...]]] = {
    "connecting": (connecting, ()),
    "middle": (middle, ()),
    "grid": (sweep_of_two, BAD),
    "pair": (sweep_of_two, (*BAD, "enter")),
    "node": (sweep_of_two, ("n",)),
    "preflight": (sweep_of_two, ("P",)),
    "log": (sweep_of_two, ("L",)),
    "fabric": (sweep_of_two, (*BAD, "minus")),
    "two-nodes": (sweep_of_two, (*BAD, "plus")),
    "worst": (sweep_of_two, ("v",)),
    "nodes": (sweep_of_two, ("t",)),
    "findings": (sweep_of_two, ("F",)),
    "filter": (sweep_of_two, ("f",)),
    "go-to": (sweep_of_two, ("g",)),
    "sorted": (sweep_of_two, ("s",)),
    "palette": (sweep_of_two, ("ctrl+p",)),
    "help": (sweep_of_two, ("question_mark",)),
    "jump": (sweep_of_two, ("ctrl+o",)),
    "question": (middle, ("q",)),
    "64": (healthy(8), ("down",)),
}


@pytest.fixture(autouse=True)
def map_without_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fabtui.screen.widgets.minimap._INTERVAL", 0.0)


#: Keys that open a view, text that it shows, keys that close it.
TOUR: list[tuple[tuple[str, ...], str, tuple[str, ...]]] = [
    (("enter",), "p2p", ("escape",)),
    (("n",), "GPUs", ("escape",)),
    (("P",), "preflight", ("escape",)),
    (("L",), "event log", ("escape",)),
    (("minus",), "fabric", ("plus",)),
    (("plus",), "2 nodes", ("escape",)),
    (("v",), "T timed out  n000:3 > n001:2", ("v",)),
    (("t",), "own pairs", ("escape",)),
    (("F",), "6 findings, 3 pairs", ("escape",)),
    (("f",), "words that all match", ("escape",)),
    (("g",), "n060:3>n061:5", ("escape",)),
    (("s",), "worst first", ("s",)),
    (("question_mark",), "help: grid", ("escape",)),
    (("ctrl+o",), "jump: press a letter", ("escape",)),
]


def pressed(*keys: str) -> Callable[[Pilot[Any]], Any]:
    async def run(pilot: Pilot[Any]) -> None:
        app = pilot.app
        await settled(app, pilot)  # type: ignore[arg-type]
        for key in keys:
            await press(pilot, key)
        await pilot.pause(0.1)
        for field in app.screen.query(Input):
            field.cursor_blink = False
        while not app.main.view_state.index.step(1.0):  # type: ignore[attr-defined]
            pass
        # Background work is done in steps; complete it.
        for _ in range(100):
            if not app.main.findings.step(1.0):  # type: ignore[attr-defined]
                break
            await pilot.pause(0.05)
        app.main.draw()  # type: ignore[attr-defined]
        # Notifications disappear by the clock.
        app.clear_notifications()
        await pilot.pause(0.1)

    return run


@pytest.mark.parametrize("view", VIEWS)
def test_a_view(snap_compare: Compare, view: str) -> None:
    story, keys = VIEWS[view]
    app = make_app(FakeFeed(story().events))
    assert snap_compare(app, terminal_size=(120, 40), run_before=pressed(*keys))


@pytest.mark.parametrize(
    ("view", "size"),
    [
        ("grid", (200, 60)),
        ("grid", (80, 24)),
        ("pair", (80, 24)),
        ("node", (80, 24)),
        ("help", (80, 24)),
        ("grid", (60, 15)),
        ("question", (60, 15)),
        ("middle", (20, 5)),
    ],
    ids=str,
)
def test_a_size(snap_compare: Compare, view: str, size: tuple[int, int]) -> None:
    story, keys = VIEWS[view]
    keys = keys if size[0] > 60 else tuple(key for key in keys if key not in BAD)
    assert snap_compare(make_app(FakeFeed(story().events)), terminal_size=size, run_before=pressed(*keys))


@pytest.mark.parametrize(("nodes", "size"), [(2, (80, 24)), (4, (120, 40))])
def test_healthy_fabrics(snap_compare: Compare, nodes: int, size: tuple[int, int]) -> None:
    app = make_app(FakeFeed(healthy(nodes)().events))
    assert snap_compare(app, terminal_size=size, run_before=pressed("down"))


@pytest.mark.parametrize("layer", list("134567"))
def test_layers(snap_compare: Compare, layer: str) -> None:
    app = make_app(FakeFeed(sweep_of_two().events))
    assert snap_compare(app, terminal_size=(120, 30), run_before=pressed(layer, "right", "right", "right", "right"))


@pytest.mark.parametrize("theme", ["mono", "light", "high-contrast"])
def test_themes(snap_compare: Compare, theme: str) -> None:
    app = make_app(FakeFeed(sweep_of_two().events), theme=theme)
    assert snap_compare(app, terminal_size=(120, 30), run_before=pressed())


def test_sixteen_colours_and_ascii(snap_compare: Compare) -> None:
    app = make_app(FakeFeed(sweep_of_two().events), colors="16", ascii=True)
    assert snap_compare(app, terminal_size=(120, 30), run_before=pressed())


def test_no_colour(snap_compare: Compare) -> None:
    app = make_app(FakeFeed(sweep_of_two().events), colors="none", ascii=True)
    assert snap_compare(app, terminal_size=(80, 24), run_before=pressed())


@pytest.mark.parametrize("size", [(80, 24), (200, 60)], ids=str)
async def test_every_view_fits(opened: Opened, size: tuple[int, int]) -> None:
    """Every view shows its text, help and quit, and no line is longer than the terminal."""
    async with opened(FakeFeed(sweep_of_two().events), size=size) as (app, pilot):
        for keys, text, back in TOUR:
            await press(pilot, *keys, seconds=0.1)
            shown = screen_text(app)
            assert text in shown, keys
            lines = shown.splitlines()
            assert len(lines) == size[1]
            assert {len(line) for line in lines} == {size[0]}, keys
            if not app.screen.query("Prompt, CommandLine Input, .letter"):
                assert "? help" in lines[-1], keys
                assert "q quit" in lines[-1], keys
            await press(pilot, *back, seconds=0.1)
            assert app.screen is app.main


async def test_every_view_is_grey_in_the_mono_theme(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events), theme="mono") as (app, pilot):
        for keys, _, back in TOUR:
            await press(pilot, *keys, seconds=0.1)
            for strip in screen_lines(app.screen):
                for segment in strip:
                    for color in (segment.style.color, segment.style.bgcolor) if segment.style else ():
                        if color is not None and color.triplet is not None:
                            assert len(set(color.triplet)) == 1, (keys, segment)
            await press(pilot, *back, seconds=0.1)
