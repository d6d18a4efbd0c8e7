"""The event log: its last lines under the grid, and all of it, to be scrolled, where it is large."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message

from fabtui.model.session_model import LogLine, Model
from fabtui.presentation.wording import MUTED, Part, time_text
from fabtui.presentation.wrapping import between, clipped
from fabtui.sanitize import one_line
from fabtui.screen.widgets.text_line import TextLine

_LEVEL_STYLES = {"info": "", "notice": "$accent", "warning": "$warning", "error": "bold $error"}


class LogView(TextLine):
    """Lines of the event log, the newest at the bottom. Where it is large it has a head, takes keys and scrolls."""

    DEFAULT_CSS = """
    LogView { height: 2; width: 1fr; }
    """
    BINDING_GROUP_TITLE = "Event log"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "back(1)", id="log.up", show=False, tooltip="a line back"),
        Binding("down,j", "back(-1)", id="log.down", show=False, tooltip="a line on"),
        Binding("pageup,ctrl+u", "page(1)", id="log.page-up", show=False, tooltip="a screen back"),
        Binding("pagedown,ctrl+d", "page(-1)", id="log.page-down", show=False, tooltip="a screen on"),
        Binding("home,g", "back(100000)", id="log.first", show=False, tooltip="the first line"),
        Binding("end,G", "back(-100000)", id="log.last", show=False, tooltip="the newest line, and those to come"),
        Binding("escape", "leave", id="log.leave", show=False, tooltip="back to the grid, the log small"),
    ]

    class Left(Message):
        """The user is done with the large log."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._model: Model | None = None
        self._ellipsis = ""
        self._large = False
        #: How many lines stand below what is in sight.
        self._below = 0
        self._count = 0

    def put(self, model: Model, height: int, width: int, ellipsis: str, *, large: bool) -> None:
        """Show lines of a model's log.

        Args:
            model: The model.
            height: Lines there are.
            width: Characters across.
            ellipsis: What stands where something was cut.
            large: Whether it has a head and can be scrolled.
        """
        if large != self._large:
            self._large, self._below = large, 0
            self.can_focus = large
        if self._below and model is self._model and len(model.log) > self._count:
            # What is read stays where it is while lines come in below it.
            self._below += len(model.log) - self._count
        self._model, self._ellipsis, self._count = model, ellipsis, len(model.log)
        self._show(height, width)

    def _show(self, height: int, width: int) -> None:
        if self._model is None:
            return
        log = list(self._model.log)
        room = height - 1 if self._large else height
        self._below = max(0, min(self._below, len(log) - room))
        last = len(log) - self._below
        lines = log[max(0, last - room) : last] if room > 0 else []
        contents = [Content.assemble(*clipped(log_parts(line), width, self._ellipsis)) for line in lines]
        contents += [Content("")] * (room - len(contents))
        if self._large:
            where = f"{last - len(lines) + 1} to {last} of {len(log)}" if lines else "nothing yet"
            right: list[Part] = [(f"{where}  ", ""), ("arrows scroll  esc closes ", MUTED)]
            contents.insert(0, Content.assemble(*between([(" event log", "bold")], right, width, self._ellipsis)))
        self.show(Content("\n").join(contents))

    def action_back(self, lines: int) -> None:
        """Go back in time by lines, or on."""
        self._below = max(0, self._below + lines)
        self._show(self.size.height, self.size.width)

    def action_page(self, pages: int) -> None:
        """Go back in time by screens, or on."""
        self.action_back(pages * max(1, self.size.height - 2))

    def action_leave(self) -> None:
        """Say that the user is done."""
        self.post_message(self.Left())

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Go back."""
        if self._large:
            event.stop()
            self.action_back(3)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Go on."""
        if self._large:
            event.stop()
            self.action_back(-3)


def log_parts(line: LogLine) -> list[Part]:
    """Return a line of the event log."""
    node = f"{one_line(line.node, 64)} " if line.node else ""
    return [
        (f"{time_text(line.time)} ", MUTED),
        (node, "bold"),
        (one_line(line.text, 500), _LEVEL_STYLES.get(line.level, "")),
    ]
