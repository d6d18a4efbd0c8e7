"""Verdict on the session: a line below the title, at every size."""

from __future__ import annotations

from textual.message import Message

from fabtui.screen.widgets.text_line import TextLine


class VerdictBar(TextLine):
    """Numbers of bad pairs, and the worst findings; a click shows all findings."""

    DEFAULT_CSS = "VerdictBar { background: $surface; }"

    class Clicked(Message):
        """The line was clicked."""

    def on_click(self) -> None:
        self.post_message(self.Clicked())
