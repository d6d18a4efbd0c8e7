"""Start of the app on a terminal; imports Textual only after the terminal was checked."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from fabtui.errors import InputError
from fabtui.screen.context import ScreenSettings, StartSection, part

if TYPE_CHECKING:
    from fabtui.screen.app import FabricApp
    from fabtui.screen.start_app import StartApp
    from fabtui.session.feeds.base import Feed

#: Driver that draws on a pipe for a browser and needs no terminal.
SERVED = ":ServedDriver"
#: Thresholds of the garbage collector. Looking for cycles among 100,000 measurements, which have none, takes 0.1 s, and
#: would come in the middle of a key.
COLLECTOR = (700, 10, 1000)
_COLOR_SYSTEMS = {"24": "truecolor", "256": "256", "16": "standard"}


class NoScreen(InputError):
    """No usable terminal."""


def check_terminal() -> None:
    """Raise `NoScreen` without a terminal to read keys from and to draw on."""
    if os.environ.get("TEXTUAL_DRIVER", "").endswith(SERVED):
        return
    if os.environ.get("TERM", "") in ("dumb", ""):
        raise NoScreen(f"TERM is {os.environ.get('TERM') or 'not set'}, which cannot show a screen")
    if sys.__stdin__ is None or not sys.__stdin__.isatty():
        raise NoScreen("standard input is not a terminal, so there are no keys to read")


@contextlib.contextmanager
def drawing_terminal() -> Iterator[None]:
    """Let Textual draw on the terminal if standard error, its output, is redirected; `NoScreen` without a terminal."""
    served = os.environ.get("TEXTUAL_DRIVER", "").endswith(SERVED)
    if served or (sys.__stderr__ is not None and sys.__stderr__.isatty()):
        yield
        return
    try:
        terminal = open("/dev/tty", "w", encoding="utf-8")  # noqa: SIM115
    except OSError as error:
        raise NoScreen(f"standard error is not a terminal, and /dev/tty cannot be opened: {error.strerror}") from None
    before = sys.__stderr__
    try:
        # Other output to standard error still goes where the user sent it.
        sys.__stderr__ = terminal  # type: ignore[misc]
        size = os.get_terminal_size(terminal.fileno())
        if sys.__stdout__ is None or not sys.__stdout__.isatty():
            os.environ.setdefault("COLUMNS", str(size.columns))
            os.environ.setdefault("LINES", str(size.lines))
        yield
    finally:
        sys.__stderr__ = before  # type: ignore[misc]
        with contextlib.suppress(OSError):
            # The terminal may be gone.
            terminal.close()


def prepare(settings: ScreenSettings) -> None:
    """Set the environment that Textual reads when it is imported, and tune the interpreter for short frames."""
    # With animated scrolling a key press takes 25 ms to show, without it 4 ms.
    os.environ.setdefault("TEXTUAL_ANIMATIONS", "none")
    os.environ.setdefault("TEXTUAL_SMOOTH_SCROLL", "0")
    # Maximum wait of a key press for the next frame. Frames with results are far fewer (`refresh_throttle`).
    os.environ.setdefault("TEXTUAL_FPS", "120")
    # Textual writes to the terminal in its own thread, which otherwise waits 5 ms for the thread that draws.
    sys.setswitchinterval(0.0005)
    gc.set_threshold(*COLLECTOR)
    if settings.colors in _COLOR_SYSTEMS:
        os.environ["TEXTUAL_COLOR_SYSTEM"] = _COLOR_SYSTEMS[settings.colors]
        os.environ.pop("NO_COLOR", None)
    elif settings.colors == "none":
        os.environ["NO_COLOR"] = "1"


def run_app(make_feed: Callable[[], Feed], settings: ScreenSettings) -> int:
    """Run the app; return the exit code. `NoScreen` without a usable terminal, `InputError` for an invalid setting."""
    check_terminal()
    prepare(settings)
    with drawing_terminal():
        gc.disable()

        def begin() -> Feed:
            try:
                return make_feed()
            finally:
                # Modules and the style sheet stay in memory: the collector need not look at them again.
                gc.freeze()
                gc.enable()

        from fabtui.screen.app import FabricApp

        app = FabricApp(begin, settings)
        code = asyncio.run(_run(app))
    if app.exit_message:
        print(app.exit_message, file=sys.stderr)
    return code


def run_start(
    settings: ScreenSettings, sections: Sequence[StartSection], check: Callable[[str], object], nodes: str
) -> list[str]:
    """Return the words of the command chosen on the start screen, perhaps none; `NoScreen` without a terminal."""
    check_terminal()
    prepare(settings)
    with drawing_terminal():
        app: StartApp = part("screen.start_app:StartApp")(settings, sections, check, nodes)
        return app.run() or []


async def _run(app: FabricApp) -> int:
    try:
        await app.run_async()
    finally:
        # No process of fabtui may stay on the nodes, even if the app failed.
        await app.close_feed()
    return app.return_value if app.return_value is not None else app.return_code or 1
