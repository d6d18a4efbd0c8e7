"""Styles of theme files: checks, and the styles of cells as variables that other widgets use."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rich.color import Color as RichColor
from rich.errors import StyleSyntaxError
from rich.style import Style
from textual.color import Color, ColorParseError
from textual.theme import BUILTIN_THEMES

from fabtui.config.values import nearest
from fabtui.presentation.cell_levels import CellStyle

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


#: Words of a style of text.
_TEXT_STYLES = {
    "none",
    "not",
    "bold",
    "b",
    "dim",
    "d",
    "italic",
    "i",
    "underline",
    "u",
    "reverse",
    "r",
    "strike",
    "blink",
}
#: Share of a colour, as in ``auto 87%``.
_SHARE = re.compile(r"(?<=\S)\s+\d{1,3}(\.\d+)?%")


def check(colors: Mapping[str, str], variables: Mapping[str, str], ramps: Mapping[str, Mapping[str, str]]) -> None:
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
    for name, text in variables.items():
        # Anything else would be parsed as a part of the style sheet, and end the app.
        if not re.fullmatch(r"[a-z][a-z0-9-]*", name):
            raise ValueError(f"{name!r} in [variables] is not the name of a variable")
        if not (_is_text_style(text) if "style" in name.split("-") else _is_color(text)):
            kind = "text style" if "style" in name.split("-") else "colour"
            raise ValueError(f"{name} = {text!r} in [variables] is not a {kind}")
    slots = [slot.key for slot in CellStyle if slot is not CellStyle.PAD]
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


def _is_text_style(text: str) -> bool:
    return bool(text.split()) and _TEXT_STYLES.issuperset(text.split())


def _is_color(text: str) -> bool:
    try:
        return text == "initial" or Color.parse(_SHARE.sub("", text, count=1)) is not None
    except ColorParseError:
        return False


#: Minimum contrast of a tone with the background.
_CONTRAST = 4.5
#: Step towards white or black until a tone has that contrast.
_STEP = 0.03
_ATTRIBUTES = ("bold", "dim", "italic", "underline", "reverse")
#: Style with neither text colour nor fill: a variable cannot be empty.
_NO_STYLE = "not bold"


def cell_variables(ramp: Mapping[str, str], full: Mapping[str, str], theme: Mapping[str, str]) -> dict[str, str]:
    """Return ``cell-SLOT``, the whole style of each slot, and ``tone-SLOT``, its colour for text on the background.

    ``full`` is the ramp with all colours: what lies on a background in RGB has tones in RGB.
    """
    background = theme["background"]
    shades = ramp if background.startswith("ansi_") else full
    return {
        **{f"cell-{name}": _words(Style.parse(text or "none")) for name, text in ramp.items()},
        **{f"tone-{name}": _tone(text, shades["good"], background) for name, text in shades.items()},
    }


def _tone(text: str, good: str, background: str) -> str:
    style = Style.parse(text or "none")
    # A cell that is filled as a good one differs by its text.
    same = style.bgcolor == Style.parse(good or "none").bgcolor and text != good
    tone = style.color if same or style.bgcolor is None else style.bgcolor
    return "auto" if tone is None else _readable(_name(tone), background)


def _words(style: Style) -> str:
    words = [name for name in _ATTRIBUTES if getattr(style, name)]
    words += [_name(style.color)] if style.color is not None else []
    words += ["on", _name(style.bgcolor)] if style.bgcolor is not None else []
    return " ".join(words) or _NO_STYLE


def _name(color: RichColor) -> str:
    """Return a colour as Textual names it: the terminal's sixteen by name, all others in RGB."""
    if color.number is not None and color.number < 16:
        return f"ansi_{color.name}"
    return color.get_truecolor().hex


def _readable(name: str, background: str) -> str:
    """Return a colour, brighter or darker if it cannot be read on a background; terminals choose their own sixteen."""
    if name.startswith("ansi_") or background.startswith("ansi_"):
        return name
    color, behind = Color.parse(name), Color.parse(background)
    away = Color.parse("white" if behind.brightness < 0.5 else "black")
    share = 0.0
    while _contrast(color, behind) < _CONTRAST and share < 1:
        share += _STEP
        color = Color.parse(name).blend(away, share)
    return color.hex


def _contrast(one: Color, other: Color) -> float:
    """Return the contrast of two colours (WCAG 2): 1 to 21."""
    dark, light = sorted(map(_luminance, (one, other)))
    return (light + 0.05) / (dark + 0.05)


def _luminance(color: Color) -> float:
    red, green, blue = (v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in color.normalized)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
