"""Pins the versions of Textual whose private parts the screen relies on; see fabtui/screen/terminal."""

import time
from typing import Any

import pytest
import textual
from rich.color import ColorSystem
from textual._compositor import Compositor, CompositorUpdate
from textual.drivers.linux_driver import LinuxDriver
from textual.drivers.web_driver import WebDriver
from textual.strip import Strip

from fabtui.screen.app import FabricApp
from fabtui.screen.terminal import internals
from tests.screen.clock import draw_changes
from tests.screen.conftest import Opened, settled
from tests.screen.fakefeed import FakeFeed, big_sweep

#: Minor versions that were checked. Before adding one: run this file and look at the app in a terminal.
CHECKED = ("8.2",)


async def test_the_private_parts_of_textual_are_those_that_were_checked(opened: Opened) -> None:
    assert textual.__version__.rpartition(".")[0] in CHECKED
    assert {"_segments", "_link_ids", "_render_cache"} <= {*Strip.__slots__}
    assert hasattr(WebDriver, "run_input_thread")
    assert "_writer_thread" in vars(LinuxDriver(FabricApp(lambda: FakeFeed([]), _settings())))
    async with opened(FakeFeed(big_sweep(1, 2).events)) as (app, pilot):
        assert [strip.cell_length for strip in internals.screen_lines(app.screen)] == [120] * 40
        internals.choose_filters(app, "none", ascii_only=False)
        assert app._filters
        app.notify("a")
        await pilot.pause()
        assert [one.message for one in app._notifications] == ["a"]
        assert all(isinstance(one, internals.LastingNotification) for one in app._notifications)


def test_a_notification_that_expires_while_it_is_drawn_leaves_a_timer_that_ends() -> None:
    late = internals.LastingNotification("a", timeout=1.0, raised_at=time.time() - 2.0)
    assert late.has_expired
    assert late.time_left > 0
    assert not internals.LastingNotification("a", timeout=9.0).has_expired


def _settings() -> Any:
    from fabtui.screen.context import ScreenSettings

    return ScreenSettings(colors="24")


async def test_a_healthy_frame_of_the_whole_app_is_at_most_16_kb(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = big_sweep(8, 8)
    story.end(0)
    async with opened(FakeFeed(story.events)) as (app, pilot):
        app.console._color_system = ColorSystem.TRUECOLOR
        frames: list[str] = []
        display = app._display

        def displayed(screen: Any, renderable: Any) -> None:
            if isinstance(renderable, CompositorUpdate):
                frames.append(renderable.render_segments(app.console))
            display(screen, renderable)

        monkeypatch.setattr(app, "_display", displayed)
        monkeypatch.setattr(Compositor, "render_update", draw_changes)
        app.screen.refresh()
        await settled(app, pilot)
        whole = max(len(frame.encode()) for frame in frames)
        assert whole > 6000, "not a whole frame"
        assert whole <= 16 << 10
