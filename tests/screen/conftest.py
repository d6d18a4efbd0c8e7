import inspect
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet
from textual.pilot import Pilot

from fabtui.screen.app import FabricApp
from fabtui.screen.context import ScreenSettings
from fabtui.screen.views.main import MainScreen
from tests.screen.clock import Clock
from tests.screen.fakefeed import FakeFeed

Opened = Callable[..., AbstractAsyncContextManager[tuple[FabricApp, Pilot[int]]]]


@pytest.fixture(autouse=True)
def _same_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COLORTERM", "TEXTUAL_THEME", "TEXTUAL_COLOR_SYSTEM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


#: What Textual parsed, by stylesheet and by the variables of the theme: each app would parse the same again.
_PARSED: dict[object, list[RuleSet]] = {}
_parse_rules = Stylesheet._parse_rules


def _parse_once(sheet: Stylesheet, *args: Any, **named: Any) -> list[RuleSet]:
    key = (args, *named.items(), *sheet._variables.items())
    if key not in _PARSED:
        _PARSED[key] = _parse_rules(sheet, *args, **named)
    return _PARSED[key]


@pytest.fixture(autouse=True)
def _parsed_styles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Stylesheet, "_parse_rules", _parse_once)


@pytest.fixture(autouse=True)
def _no_waiting(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if inspect.iscoroutinefunction(request.function) or "snap_compare" in request.fixturenames:
        Clock().install(monkeypatch)


@pytest.fixture(autouse=True)
def _cursor_at_the_first_cell(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start at the first cell, as keys in tests count from it; tests of pictures, and of where it starts, do not."""
    if "snap_compare" not in request.fixturenames and request.node.get_closest_marker("worst_first") is None:
        monkeypatch.setattr(MainScreen, "_start_at_the_worst", lambda screen: None)


def make_app(feed: Any, **settings: Any) -> FabricApp:
    settings.setdefault("colors", "24")
    settings.setdefault("title", "n[000-002]")
    return FabricApp(lambda: feed, ScreenSettings(**settings), clock=lambda: 0.0)


async def settled(app: FabricApp, pilot: Pilot[int]) -> None:
    """Wait until the state of the feed is on the screen."""
    await pilot.pause()
    for _ in range(100):
        if app.feed is not None and app.main.is_mounted:
            break
        await pilot.pause(0.02)
    await pilot.pause(0.1)
    await pilot.pause()


@pytest.fixture
def opened() -> Opened:
    """Open the app on a feed, at a size, and wait until it shows the state of the feed."""

    @asynccontextmanager
    async def run(feed: FakeFeed, size: tuple[int, int] = (120, 40), **settings: Any) -> Any:
        app = make_app(feed, **settings)
        async with app.run_test(size=size) as pilot:
            await settled(app, pilot)
            yield app, pilot

    return run


def screen_text(app: FabricApp) -> str:
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips())


async def press(pilot: Pilot[Any], *keys: str, seconds: float | None = None) -> None:
    """Press keys, and let the app draw what comes of them."""
    await pilot.press(*keys)
    await pilot.pause(seconds)


async def press_each(pilot: Pilot[Any], *keys: str) -> None:
    """Press keys, each once the app has drawn what came of the one before."""
    for key in keys:
        await press(pilot, key, seconds=0.05)


async def until(pilot: Pilot[Any], reached: Callable[[], Any]) -> None:
    """Wait until something is so."""
    for _ in range(500):
        if reached():
            return
        await pilot.pause(0.05)
    raise AssertionError("it did not come to that")
