"""Textual driver for `fabtui serve`, which draws on a pipe."""

from __future__ import annotations

from functools import partial
from typing import Any

from textual.drivers.web_driver import WebDriver


class ServedDriver(WebDriver):
    """Driver for browsers that ends the session when the server is gone."""

    def run_input_thread(self) -> None:
        """Read keys until end of file; then end the session, because nobody can see it."""
        super().run_input_thread()
        if not self.exit_event.is_set():
            self._loop.call_soon_threadsafe(self._hang_up)

    def on_meta(self, packet_type: str, payload: dict[str, object]) -> None:
        """Draw the whole screen for a window that has missed some of it; Textual knows the other events."""
        if packet_type == "redraw":
            self._loop.call_soon_threadsafe(partial(self._app.refresh, layout=True))
        else:
            super().on_meta(packet_type, payload)

    def _hang_up(self) -> None:
        # A write to a closed pipe would end the app before it has ended its processes on the nodes.
        self._write = partial(len)
        app: Any = self._app
        app.hung_up()
