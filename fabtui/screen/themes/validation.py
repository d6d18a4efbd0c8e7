"""Checks of theme files; imports Textual."""

from __future__ import annotations

from collections.abc import Mapping

from rich.errors import StyleSyntaxError
from rich.style import Style
from textual.color import Color, ColorParseError
from textual.theme import BUILTIN_THEMES

from fabtui.config.file import nearest
from fabtui.presentation.cell_levels import Slot

#: Names of Textual's colours.
COLORS = (
    *("primary", "secondary", "accent", "warning", "error", "success"),
    *("foreground", "background", "surface", "panel", "boost"),
)
#: Names of ramps: numbers of colours.
COLOR_COUNTS = ("24", "256", "16", "none")


def is_builtin(name: str) -> bool:
    """Return True for the name of one of Textual's own themes."""
    return name in BUILTIN_THEMES


def check(colors: Mapping[str, str], ramps: Mapping[str, Mapping[str, str]]) -> None:
    """Raise ValueError if a name, a colour or a style of a theme is invalid."""
    for name, text in colors.items():
        if name not in COLORS:
            raise ValueError(f"unknown colour {name!r} in [colors]{nearest(name, COLORS)}")
        try:
            Color.parse(text)
        except ColorParseError:
            raise ValueError(f"{name} = {text!r} in [colors] is not a colour") from None
    if "primary" not in colors:
        raise ValueError("[colors] has no primary")
    slots = [slot.key for slot in Slot if slot is not Slot.PAD]
    for count, ramp in ramps.items():
        if count not in COLOR_COUNTS:
            raise ValueError(f"unknown ramp [ramp.{count}]; there are {', '.join(COLOR_COUNTS)}")
        for name, text in ramp.items():
            if name not in slots:
                raise ValueError(f"unknown slot {name!r} in [ramp.{count}]{nearest(name, slots)}")
            try:
                Style.parse(text or "none")
            except StyleSyntaxError:
                raise ValueError(f"{name} = {text!r} in [ramp.{count}] is not a style") from None
