"""Drawing on a pipe, for `fabtui serve`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

from textual.drivers.web_driver import WebDriver

if TYPE_CHECKING:
    from fabtui.screen.app import FabricApp


class ServedDriver(WebDriver):
    """Textual's driver for browsers, which also notices that the server has gone."""

    def run_input_thread(self) -> None:
        """Read keys until there are no more; then end the session, since nobody can see it."""
        super().run_input_thread()
        if not self.exit_event.is_set():
            self._loop.call_soon_threadsafe(self._gone)

    def _gone(self) -> None:
        # Writing to a pipe that nobody reads would end the app before it has ended what runs on the nodes.
        self._write = partial(_nowhere)
        app = cast("FabricApp", self._app)
        app.hung_up()


def _nowhere(data: bytes) -> int:
    return len(data)
