"""The views that are opened from the main screen, each by its name; imported when they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.screen import Screen

if TYPE_CHECKING:
    from fabtui.screen.views.main import MainScreen


def view(name: str, main: MainScreen) -> Screen[None]:
    """Return a new view: ``nodes``, ``preflight`` or ``findings``."""
    if name == "nodes":
        from fabtui.screen.views.nodes import NodesScreen

        return NodesScreen()
    if name == "preflight":
        from fabtui.screen.views.preflight import PreflightScreen

        return PreflightScreen(main.nodes_view.latest)
    from fabtui.screen.views.findings import FindingsScreen

    return FindingsScreen()
