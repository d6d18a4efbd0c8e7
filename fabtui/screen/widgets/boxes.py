"""Containers that only place widgets."""

from __future__ import annotations

from textual.containers import Horizontal, Vertical

# Each is blank, as Textual calls it: the lines behind the widgets in it need not be drawn with each of these.


class RowBox(Horizontal):
    """Widgets beside each other."""

    BLANK = True


class ColumnBox(Vertical):
    """Widgets above each other."""

    BLANK = True
