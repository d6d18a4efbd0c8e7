"""View of the search by halves: it starts one, and shows the halves, what is cleared and what is left."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import BindingType

from fabtui.presentation.bisection import bisection_lines
from fabtui.presentation.wording import MUTED, Part
from fabtui.presentation.wrapping import Lines, stacked
from fabtui.screen import session_actions
from fabtui.screen.keys import shortcut
from fabtui.screen.views.detail_base import DetailScreen

_EXPLAINED = (
    "A collective of many can be slow or fail though no pair of nodes shows why. The search halves the nodes, tests "
    "both halves side by side, fills them up with nodes that were cleared, and continues in the half that is bad. It "
    "also finds two nodes that are bad only together, and reports if only all together are bad."
)


class BisectionScreen(DetailScreen):
    """The latest search, or what one does; no test starts before Enter."""

    BINDING_GROUP_TITLE = "Search by halves"
    BINDINGS: ClassVar[list[BindingType]] = [
        shortcut("escape,backspace,B", "leave", "bisect.back", "back to the previous view", "back", bar=("always",)),
        shortcut("enter", "start", "bisect.start", "start a search", "search", bar=("first",)),
        shortcut("y", "copy", "bisect.copy", "copy the search as text", "copy"),
    ]

    def title_parts(self) -> list[Part]:
        start = self.context.model.bisection.start
        return [(" search by halves ", "bold"), (f"  {start.collective}" if start is not None else "", MUTED)]

    def body_lines(self, width: int) -> Lines:
        lines = stacked(bisection_lines(self.context.model, width, self.context.glyphs), width, 2)
        return lines or stacked([[], [(f"  {_EXPLAINED}", "")], [], [("  Enter starts it.", "bold")]], width, 2)

    def action_start(self) -> None:
        session_actions.bisect(self.context)
