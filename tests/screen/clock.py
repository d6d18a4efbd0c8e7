"""A clock for tests of the app: it stands still while anything can run, and then jumps to the next timer."""

import asyncio
import selectors
import time
from collections.abc import Callable
from typing import Any

import pytest
import textual._time
import textual._wait
import textual.app
import textual.message_pump
import textual.pilot
from textual._compositor import Compositor
from textual._context import active_app
from textual.pilot import Pilot

#: Descriptors of a loop that waits for nothing outside: the pipe with which threads wake it.
_OWN_DESCRIPTORS = 1
#: How long (s) Textual's tests wait at least for what a key does.
_SETTLING = 1 / 50
#: The shortest wait (s): it ends only when nothing else can run.
_MOMENT = 1e-9
#: Textual's own way to draw what has changed, and to wait until all widgets have handled their messages.
draw_changes, wait_for_screen = Compositor.render_update, Pilot._wait_for_screen


def _draw_later(compositor: Compositor, full: bool = False, **how: Any) -> Any:
    """Leave changes for the end of the wait; a screenshot is drawn at once."""
    return draw_changes(compositor, full, **how) if full else None


class Clock:
    """Time of a test: no test waits for a timer, and on any machine everything happens in the same order.

    What changes meanwhile is drawn once, at the end of each wait: without a terminal nobody sees the frames between.
    """

    def __init__(self) -> None:
        self.now = time.monotonic()
        #: Calls that run in other threads: time passes as it does outside until they are done.
        self.in_threads = 0
        #: Whether the next wait is the second one after a key.
        self._second = False

    def time(self) -> float:
        return self.now

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Make this the clock of all event loops that are made, and of Textual."""
        real = time.monotonic
        clock = self

        class Selector(selectors.DefaultSelector):
            def select(self, timeout: float | None = None) -> Any:
                if timeout is None or timeout <= 0:
                    return super().select(timeout)
                if clock.in_threads or len(self.get_map()) > _OWN_DESCRIPTORS:
                    began = real()
                    found = super().select(timeout)
                    clock.now += real() - began
                    return found
                found = super().select(0)
                if not found:
                    clock.now += timeout
                return found

        run_in_executor: Callable[..., asyncio.Future[Any]] = asyncio.BaseEventLoop.run_in_executor

        def run_and_count(loop: asyncio.BaseEventLoop, *args: Any) -> asyncio.Future[Any]:
            future = run_in_executor(loop, *args)
            clock.in_threads += 1
            future.add_done_callback(clock._done_in_thread)
            return future

        patch.setattr(time, "monotonic", self.time)
        patch.setattr(time, "perf_counter", self.time)
        for module, name in ((textual._time, "get_time"), (textual._time, "time"), (textual.message_pump, "time")):
            patch.setattr(module, name, self.time)
        patch.setattr(textual.pilot, "wait_for_idle", self._wait_for_idle)
        patch.setattr(textual.app, "wait_for_idle", self._wait_after_key)

        async def wait_for_messages(pilot: Pilot[Any], *limit: float) -> bool:
            # Textual sends each widget a message, and waits for them; here time passes when all messages are handled.
            await asyncio.sleep(_MOMENT)
            app = pilot.app
            pumps = (app, *app.screen.walk_children()) if app.screen_stack else (app,)
            if self.in_threads or any(pump._message_queue.qsize() for pump in pumps):
                return await wait_for_screen(pilot, *limit)
            return True

        patch.setattr(Pilot, "_wait_for_screen", wait_for_messages)
        patch.setattr(Compositor, "render_update", _draw_later)
        patch.setattr(selectors, "DefaultSelector", Selector)
        patch.setattr(asyncio.BaseEventLoop, "run_in_executor", run_and_count)

    def _done_in_thread(self, _: object) -> None:
        self.in_threads -= 1

    async def _wait_after_key(self, min_sleep: float = _SETTLING) -> None:
        # Textual waits twice after each key; what the first wait shows, the second one shows too.
        if self._second:
            await self._wait_for_idle()
        else:
            await asyncio.sleep(_SETTLING)
        self._second = not self._second

    @staticmethod
    async def _wait_for_idle(min_sleep: float = _SETTLING, max_sleep: float = 1) -> None:
        # Textual measures whether the process still works; here time passes only when it does not.
        await asyncio.sleep(_SETTLING)
        app = active_app.get()
        if app.screen_stack:
            draw_changes(app.screen._compositor, screen_stack=app._background_screens)
