"""Leaving: a question while a sweep runs, then the end of what runs on the nodes, within a deadline."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from fabtui.sanitize import one_line

if TYPE_CHECKING:
    from fabtui.screen.app import FabricApp

#: Seconds that a feed may take to end what runs on the nodes.
CLOSE_DEADLINE = 12.0


class Leaving:
    """Ends an app and its feed.

    Args:
        app: The app.
    """

    def __init__(self, app: FabricApp) -> None:
        self._app = app
        self._closed = False
        self.begun = False

    def ask(self) -> None:
        """Leave; while a sweep runs, only when the user says so once more."""
        app = self._app
        if not app.sweeping:
            self.leave()
            return
        from fabtui.screen.views.confirm import ConfirmScreen

        if isinstance(app.screen, ConfirmScreen):
            self.leave()
            return
        phase = app.model.phase
        done = f"{min(app.model.done, phase.total)} of {phase.total} tests of {one_line(phase.name, 20)} are done. "
        kept = (
            "What was measured so far is in the recording; what"
            if app.settings.recorded
            else "Nothing is recorded. What"
        )
        kept += " runs on the nodes is ended."
        question = ConfirmScreen("A sweep runs. Quit?", done + kept, "quit", "stay", plain=app.glyphs.plain)
        app.push_screen(question, self._answered)

    def _answered(self, yes: bool | None) -> None:
        if yes:
            self.leave()

    def leave(self) -> None:
        """End what runs on the nodes, then the app; at once when asked a second time."""
        app = self._app
        if self.begun:
            app.leave_with(app.exit_status)
            return
        self.begun = True
        if app.feed is not None and not self._closed:
            while len(app.screen_stack) > 1:
                app.pop_screen()
            app.main.show_closing("closing: ending what runs on the nodes (q again: leave at once)")
        app.run_worker(self._close_and_leave(), name="close", exit_on_error=False)

    async def _close_and_leave(self) -> None:
        await self.close_feed()
        self._app.leave_with(self._app.exit_status)

    async def close_feed(self) -> None:
        """Close the feed, once, within a deadline; what goes wrong is told after the screen is gone."""
        app = self._app
        if app.feed is None or self._closed:
            return
        self._closed = True
        try:
            async with asyncio.timeout(CLOSE_DEADLINE):
                await app.feed.close()
        except TimeoutError:
            app.last_words = f"fabtui: ending the session took more than {CLOSE_DEADLINE:.0f} s and was given up"
        except Exception as error:
            app.last_words = f"fabtui: ending the session: {one_line(f'{type(error).__name__}: {error}', 300)}"
