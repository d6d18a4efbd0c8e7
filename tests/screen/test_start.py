"""The start screen: its sections, keys, and the commands that it leads to."""

import threading
from collections.abc import Sequence
from functools import partial

import pytest

from fabtui.errors import InputError
from fabtui.screen.context import ScreenSettings, StartChoice, StartSection
from fabtui.screen.keys import bindings_of
from fabtui.screen.start_app import StartApp

SECTIONS: Sequence[tuple[str, str, Sequence[StartChoice] | str]] = (
    ("n", "nodes", [StartChoice("@rack1", "group", fill="@rack1"), StartChoice("n[060-061]", fill="n[060-061]")]),
    ("j", "jobs", [StartChoice("4711 \x1b[31mtrain[red]", "n060  RUNNING 2:14", ("job", "4711"))]),
    ("r", "recordings", "none yet"),
    ("h", "history", "none yet"),
    ("d", "demo", [StartChoice("cable", "live", ("demo", "cable")), StartChoice("job", "recorded", ("demo", "job"))]),
    ("l", "lab", [StartChoice("1x2", "", ("--lab", "1x2"))]),
)


def check(text: str) -> None:
    if text in ("", "n["):
        raise InputError("--nodes: unbalanced brackets")


def start(nodes: str = "", more: Sequence[StartSection] = ()) -> StartApp:
    sections = {key: StartSection(key, name, partial(lambda own: own, found)) for key, name, found in SECTIONS}
    sections |= {section.key: section for section in more}
    settings = ScreenSettings(colors="24", keys={"start.demo": "d,f8"})
    return StartApp(settings, [*sections.values()], check, nodes)


def text_of(app: StartApp) -> str:
    return "\n".join("".join(segment.text for segment in strip) for strip in app.screen._compositor.render_strips())


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (120, 40)])
async def test_all_sections_are_shown_and_control_characters_are_not(size: tuple[int, int]) -> None:
    app = start()
    async with app.run_test(size=size) as pilot:
        await pilot.pause(0.3)
        shown = text_of(app)
    for word in ("fabtui ", "test nodes", "@rack1", "4711", "train[red]", "none yet", "cable", "quit"):
        assert word in shown
    assert "\x1b" not in shown


#: Nodes that are filled in, keys, and the words of the command to which they lead.
CHOICES: Sequence[tuple[str, Sequence[str], Sequence[str]]] = (
    ("", ["d", "down", "enter"], ["demo", "job"]),
    ("", ["d", "down", "up", "enter"], ["demo", "cable"]),
    # A key of the settings.
    ("", ["f8", "enter"], ["demo", "cable"]),
    ("", ["j", "enter"], ["job", "4711"]),
    ("", ["r", "h", "q"], []),
    ("", ["l", "enter"], ["--lab", "1x2"]),
    ("", ["ctrl+c"], []),
    ("", ["n", *"n060", "enter"], ["--nodes", "n060"]),
    ("", ["enter", "escape", "down", "enter", "enter"], ["--nodes", "@rack1,n[060-061]"]),
    ("n060,n061", ["enter"], ["--nodes", "n060,n061"]),
    ("n060", ["escape", "q"], []),
)


def test_every_key_is_pressed() -> None:
    pressed = {key for _, keys, _ in CHOICES for key in keys}
    assert {key for one in bindings_of(StartApp) for key in one.key.split(",")} <= pressed


@pytest.mark.parametrize(("nodes", "keys", "words"), CHOICES)
async def test_keys_lead_to_commands(nodes: str, keys: Sequence[str], words: Sequence[str]) -> None:
    app = start(nodes)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause(0.3)
        for key in keys:
            await pilot.press(key)
        await pilot.pause(0.3)
    assert app.return_value == words


async def test_nothing_is_tested_before_enter_and_what_is_no_node_set_stays() -> None:
    app = start("n[")
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause(0.3)
        assert app.is_running
        await pilot.press("enter")
        await pilot.pause(0.3)
        assert "unbalanced brackets" in text_of(app)
        assert app.is_running


async def test_a_section_that_hangs_holds_up_neither_keys_nor_the_end() -> None:
    never = threading.Event()
    app = start(more=[StartSection("l", "lab", lambda: str(never.wait(60)))])
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause(0.3)
        assert "reading" in text_of(app)
        await pilot.press("l", "d", "enter")
        await pilot.pause(0.2)
    assert app.return_value == ["demo", "cable"]
    never.set()
