"""A frame in fewer bytes looks the same: on a terminal of our own, and on a real one."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from textual._compositor import CompositorUpdate
from textual.pilot import Pilot

from fabtui.screen.app import FabricApp
from fabtui.screen.terminal.frame_compression import compact
from tests.screen.ansi import Page, cells_of
from tests.screen.conftest import Opened, settled
from tests.screen.fakefeed import FakeFeed, big_sweep, sweep_of_two

WIDTH, HEIGHT = 40, 5

#: Colours of each kind, written as Textual writes them; the last is one of the palette by its red, green and blue.
COLORS = ("9", "8;5;109", "8;5;233", "8;2;93;105;117", "8;2;18;18;18", "4")
ATTRIBUTES = ("1", "2", "3", "4", "7", "9", "1;7")
TEXTS = (" ", "  ", " " * 7, "n000", "a b", "end   ", "   begin", "in      side", "─▏█", "漢字", "…")


@st.composite
def styles(draw: st.DrawFn) -> str:
    codes = draw(st.lists(st.sampled_from(ATTRIBUTES), max_size=1))
    codes += [f"3{color}" for color in draw(st.lists(st.sampled_from(COLORS), max_size=1))]
    codes += [f"4{color}" for color in draw(st.lists(st.sampled_from(COLORS), max_size=1))]
    return ";".join(codes)


@st.composite
def strips(draw: st.DrawFn, width: int) -> str:
    """So many columns, each style from a reset on and reset after it, as Textual alone does it, or in one go."""
    text, left = "", width
    packed = draw(st.booleans())
    # As in a line of keys, where two styles take turns.
    few = draw(st.sampled_from((None, st.sampled_from(("1;38;2;93;105;117;48;5;233", "38;5;109;48;5;233")))))
    while left:
        part = draw(st.sampled_from(TEXTS))
        if cell_len(part) > left:
            part = " " * left
        left -= cell_len(part)
        style = draw(styles() if few is None else few)
        text += f"\x1b[{style}m{part}" if style else part
        text += "" if packed or not style else "\x1b[0m"
    return text + "\x1b[0m"


@st.composite
def frames(draw: st.DrawFn) -> str:
    """Whole lines, and parts of lines, some to the right edge."""
    text = ""
    for line in draw(st.lists(st.integers(1, HEIGHT), max_size=HEIGHT, unique=True)):
        column = draw(st.sampled_from((1, 1, 1, 23)))
        room = WIDTH + 1 - column
        cut = draw(st.sampled_from((0, 0, 0, 9)))
        text += f"\x1b[{line};{column}H"
        text += draw(strips(room - cut))
        if cut and draw(st.booleans()):
            text += f"\x1b[{line};{column + room - cut}H" + draw(strips(cut))
        text += draw(st.sampled_from(("\n", "")))
    return text + "\x1b[1;1H"


@pytest.mark.parametrize("erases", [True, False])
@settings(max_examples=150, deadline=None)
@given(frame=frames())
def test_any_frame_looks_the_same(erases: bool, frame: str) -> None:
    fewer = compact(frame, WIDTH, erases=erases)
    before, after = (Page(WIDTH, HEIGHT, erases=erases).feed(text) for text in (frame, fewer))
    assert before.cells == after.cells
    assert (after.line, after.column) == (0, 0)
    assert after.pen.draw("x") == cells_of("x")[0], "the terminal is not left as it was"


def test_styles_that_take_turns_are_written_one_after_the_other() -> None:
    key, word = "\x1b[1;38;2;93;105;117;48;5;233m", "\x1b[22;38;5;109;48;5;233m"
    line = "".join(f"{key}{at}{word} key {at}  " for at in range(4))
    frame = f"\x1b[3;1H{line}    \x1b[0m\x1b[1;1H"
    fewer = compact(frame, WIDTH, erases=True)
    assert "\r" in fewer
    assert len(fewer) < 0.6 * len(frame)
    assert Page(WIDTH, HEIGHT).feed(fewer).cells == Page(WIDTH, HEIGHT).feed(frame).cells


@pytest.mark.parametrize(
    "frame",
    [
        "text without a place",
        "\x1b[1;1Ha\x1b]8;;http://example.org\x1b\\link\x1b]8;;\x1b\\",
        "\x1b[1;1Ha\tb" + " " * 37,
        "\x1b[1;1H\x1b[38;5m" + " " * 40 + "\x1b[0m",
        "\x1b[1;1H\x1b[4:3m" + " " * 40 + "\x1b[0m",
        "\x1b[1;1H\x1b[58;5;1m" + " " * 40 + "\x1b[0m",
        "\x1b[1;1H\x1b[1m" + " " * 40,
        "\x1b[1;1H" + " " * 40 + "\n" + "x" * 40,
        "\x1b[?2026h",
        "",
    ],
)
def test_what_is_not_understood_is_left_as_it_is(frame: str) -> None:
    assert compact(frame, WIDTH, erases=True) == frame


def test_a_terminal_that_erases_to_its_own_background_gets_blanks_instead() -> None:
    line = "\x1b[1;1H\x1b[48;5;24mx" + " " * 39 + "\x1b[0m"
    assert "\x1b[K" in compact(line, WIDTH, erases=True)
    assert "\x1b[K" not in compact(line, WIDTH, erases=False)
    plain = "\x1b[1;1Hx" + " " * 39
    assert compact(plain, WIDTH, erases=False) == "\x1b[Hx\x1b[K"


@pytest.mark.parametrize(
    ("term", "program", "erases"),
    [
        ("xterm-256color", "", True),
        ("linux", "", True),
        ("screen", "", False),
        ("screen", "tmux", True),
        ("tmux-256color", "", True),
        ("no-such-terminal", "", False),
    ],
)
def test_whether_a_terminal_erases_is_what_its_description_says(term: str, program: str, erases: bool) -> None:
    # In a process of its own: a description is loaded once.
    code = "from fabtui.screen.terminal.driver import erases_to_background; print(erases_to_background())"
    environment = {**os.environ, "TERM": term, "TERM_PROGRAM": program}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == f"{erases}\n"


class Frames:
    """The frames that an app would have written, had it a terminal."""

    def __init__(self, app: FabricApp, monkeypatch: pytest.MonkeyPatch) -> None:
        self.app = app
        self.found: list[str] = []
        display = app._display

        def displayed(screen: Any, renderable: Any) -> None:
            if isinstance(renderable, CompositorUpdate):
                self.found.append(renderable.render_segments(app.console) + "\x1b[1;1H")
            display(screen, renderable)

        monkeypatch.setattr(app, "_display", displayed)

    def check(self) -> tuple[int, int]:
        """Show them all both ways, and return how many bytes each takes."""
        width, height = self.app.size
        before, after = Page(width, height), Page(width, height)
        sizes = [0, 0]
        for frame in self.found:
            fewer = compact(frame, width, erases=True)
            assert before.feed(frame).cells == after.feed(fewer).cells
            sizes[0] += len(frame.encode())
            sizes[1] += len(fewer.encode())
        return sizes[0], sizes[1]


async def walk(app: FabricApp, pilot: Pilot[int]) -> None:
    """Look at everything there is, with the whole screen drawn anew each time."""
    for key in ("down", "down", "right", "6", "2", "n", "escape", "enter", "escape", "L", "escape", "slash", "escape"):
        await pilot.press(key)
        app.screen.refresh()
        await settled(app, pilot)
    for key in ("question_mark", "escape", "ctrl+p", "escape", "p"):
        await pilot.press(key)
        await settled(app, pilot)


@pytest.mark.parametrize(
    ("size", "look"),
    [
        ((120, 40), {}),
        ((80, 24), {}),
        ((120, 40), {"theme": "light"}),
        ((80, 24), {"colors": "none"}),
        ((100, 30), {"ascii": True}),
    ],
)
async def test_every_frame_of_the_app_looks_the_same(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int], look: dict[str, Any]
) -> None:
    async with opened(FakeFeed(sweep_of_two().events), size, **look) as (app, pilot):
        frames = Frames(app, monkeypatch)
        app.screen.refresh()
        await walk(app, pilot)
        assert len(frames.found) > 20
        before, after = frames.check()
        assert after < 0.8 * before


async def test_a_healthy_frame_of_the_whole_app_is_small(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    story = big_sweep(8, 8)
    story.end(0)
    async with opened(FakeFeed(story.events)) as (app, pilot):
        frames = Frames(app, monkeypatch)
        app.screen.refresh()
        await settled(app, pilot)
        frames.found = frames.found[:1]
        before, after = frames.check()
        assert before > 9000, "not a whole frame"
        assert after <= 8192
