"""Event log: the latest lines under the grid, or a scrollable view of all lines."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.binding import BindingType
from textual.content import Content
from textual.message import Message

from fabtui.model.session_model import LogLine, Model
from fabtui.presentation.wording import MUTED, Part, time_text
from fabtui.presentation.wrapping import between, clipped, in_clauses
from fabtui.sanitize import one_line
from fabtui.screen.keys import shortcut
from fabtui.screen.widgets.text_line import TextLine

#: Begins the verdict in the line about the end of a sweep.
_ENDED = " ended: "
_LEVEL_STYLES = {"info": "", "notice": "$accent", "warning": "$warning", "error": "bold $error"}


class EventLog(TextLine):
    """Lines of the event log, newest at the bottom. The enlarged log has a heading, takes keys and scrolls."""

    DEFAULT_CSS = "EventLog { height: 2; width: 1fr; }"
    BINDING_GROUP_TITLE = "Event log"
    BINDINGS: ClassVar[list[BindingType]] = [
        shortcut("up,k", "back(1)", "log.up", "previous line"),
        shortcut("down,j", "back(-1)", "log.down", "next line"),
        shortcut("pageup,ctrl+u", "page(1)", "log.page-up", "one screen up"),
        shortcut("pagedown,ctrl+d", "page(-1)", "log.page-down", "one screen down"),
        shortcut("home", "back(100000)", "log.first", "first line"),
        shortcut("end,G", "back(-100000)", "log.last", "latest line, and follow new lines"),
        shortcut("slash,f", "filter", "log.filter", "show only lines with some words", "filter"),
        shortcut("escape", "leave", "log.leave", "shrink the log and return to the grid"),
    ]

    class Left(Message):
        """The user has left the enlarged log."""

    class Filtering(Message):
        """The user wants to enter words that lines must have."""

    _model: Model | None = None
    _ellipsis = ""
    _large = False
    _below = 0  #: Number of lines below the visible ones.
    _count = 0
    filter = ""  #: Words that lines of the enlarged log must have; "" shows all.

    def put(self, model: Model, height: int, width: int, ellipsis: str, *, large: bool) -> None:
        """Show the log of a model in a number of lines; ``large``: with a heading, to be scrolled."""
        if large != self._large:
            self._large, self._below, self.filter = large, 0, ""
            self.can_focus = large
        if self._below and model is self._model and len(model.log) > self._count:
            # Lines that are being read keep their position when new lines arrive.
            self._below += len(model.log) - self._count
        self._model, self._ellipsis, self._count = model, ellipsis, len(model.log)
        self._show(height, width)

    def _show(self, height: int, width: int) -> None:
        if self._model is None:
            return
        words = self.filter.lower().split()
        log = [
            one
            for one in self._model.log
            if not words or all(word in f"{one.node or ''} {one.text}".lower() for word in words)
        ]
        room = height - 1 if self._large else height
        self._below = max(0, min(self._below, len(log) - room))
        last = len(log) - self._below
        lines = log[max(0, last - room) : last] if room > 0 else []
        cut = clipped if self._large else in_clauses
        found = [cut(log_parts(line, brief=not self._large), width, self._ellipsis) for line in lines]
        if not self._large:
            # The verdict is above; this is only the latest that happened.
            found = [[(text, MUTED) for text, _ in parts] for parts in found]
        contents = [Content.assemble(*parts) for parts in found]
        contents += [Content("")] * (room - len(contents))
        if self._large:
            where = f"{last - len(lines) + 1} to {last} of {len(log)}" if lines else "no lines"
            title: list[Part] = [(" event log", "bold")]
            title += [("  ", ""), (f" filter: {one_line(self.filter, 60)} ", "bold reverse")] if words else []
            right: list[Part] = [(f"{where}  ", ""), ("arrows scroll  esc closes ", MUTED)]
            contents.insert(0, Content.assemble(*between(title, right, width, self._ellipsis)))
        self.show(Content("\n").join(contents))

    def action_back(self, lines: int) -> None:
        """Scroll back by a number of lines; forward if it is negative."""
        self._below = max(0, self._below + lines)
        self._show(self.size.height, self.size.width)

    def action_page(self, pages: int) -> None:
        self.action_back(pages * max(1, self.size.height - 2))

    def action_filter(self) -> None:
        self.post_message(self.Filtering())

    def action_leave(self) -> None:
        if self.filter:
            self.filter = ""
            self._show(self.size.height, self.size.width)
        else:
            self.post_message(self.Left())

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        if self._large:
            event.stop()
            self.action_back(3)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        if self._large:
            event.stop()
            self.action_back(-3)


def log_parts(line: LogLine, *, brief: bool = False) -> list[Part]:
    """Return time, node and text of a line; ``brief``: without the verdict, which the screen has above."""
    text = line.text.partition(_ENDED)[0] + " ended" if brief and _ENDED in line.text else line.text
    node = f"{one_line(line.node, 64)} " if line.node else ""
    return [
        (f"{time_text(line.time)} ", MUTED),
        (node, "bold"),
        (one_line(text, 500), _LEVEL_STYLES.get(line.level, "")),
    ]
