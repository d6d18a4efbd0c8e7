"""Filter for all that is drawn: nothing in it that a terminal would act on."""

from __future__ import annotations

from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

from fabtui.sanitize import drawable


class UnfitFilter(LineFilter):
    """Removes control and invisible characters; the last place before the terminal."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Return segments of fit text."""
        if all(one.text.isprintable() or one.control for one in segments):
            return segments
        return [one if one.control else one._replace(text=drawable(one.text)) for one in segments]
