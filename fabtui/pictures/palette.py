"""Colours of pictures: those of the cells come from the theme files that the screen uses."""

from __future__ import annotations

import tomllib
from functools import cache

from fabtui.paths import theme_folder
from fabtui.presentation.cell_levels import CellStyle

#: Theme of pictures that stand alone.
PAPER_THEME = "light"
#: Number of steps of the scale of values, and names of their colours, the lowest first.
STEPS = 16
SCALE = tuple(f"step-{at}" for at in range(STEPS))
#: Colours of curves and groups.
CURVES = tuple(f"curve-{at}" for at in range(8))

#: Ends and middle of the scale of values: one hue, so that lightness alone orders it.
_SCALES = {
    "light": ("#e3eef9", "#5a9bd0", "#08306b"),
    "dark": ("#12263d", "#2f78b5", "#cfe6ff"),
}
#: The palette of Okabe and Ito, without yellow on light and black on dark.
_CURVES = {
    "light": ("#0072b2", "#d55e00", "#007a5a", "#a4508b", "#b07c00", "#3b3b3b", "#2f9bd4", "#7a4a2a"),
    "dark": ("#56b4e9", "#e69f00", "#2fc89a", "#e69fcb", "#f0e442", "#e0e0e0", "#8ab8ff", "#d9a07a"),
}
#: Prefix of the classes of SVG elements.
_PREFIX = "fab-"


@cache
def colors(theme: str = PAPER_THEME) -> dict[str, str]:
    """Return the colour (``#rrggbb``) of each name in a theme that ships with fabtui (``light`` or ``dark``).

    Names are the names of `CellStyle` (``failed``; with ``-ink`` for marks on it), ``ink``, ``muted``, ``rule``,
    ``paper``, `SCALE` and `CURVES`.
    """
    value = tomllib.loads((theme_folder() / f"{theme}.toml").read_text(encoding="utf-8"))
    named = value["colors"]
    ink, paper, rule = named["foreground"], named["background"], named["panel"]
    found = {"ink": ink, "paper": paper, "rule": rule, "muted": named["secondary"]}
    for slot in CellStyle:
        before, _, fill = value["ramp"]["24"].get(slot.key, "").partition(" on ")
        found[slot.key] = fill or paper
        found[f"{slot.key}-ink"] = next((word for word in before.split() if word.startswith("#")), ink)
    found[CellStyle.DIAGONAL.key] = rule
    found |= dict(zip(SCALE, _scale(*_SCALES[theme]), strict=True))
    return found | dict(zip(CURVES, _CURVES[theme], strict=True))


def css_class(name: str) -> str:
    return _PREFIX + name


def css(theme: str) -> str:
    """Return style rules that give pictures inside a page the colours of a theme (``light`` or ``dark``)."""
    return "".join(
        f".{css_class(name)}{{fill:{color}}}.{css_class(name)}-line{{stroke:{color}}}"
        for name, color in colors(theme).items()
    )


def ink_on(name: str) -> str:
    """Return the name of the colour of marks and numbers on a colour."""
    if name in SCALE:
        return "ink" if SCALE.index(name) < 0.45 * STEPS else "paper"
    return f"{name}-ink"


def rgb(color: str) -> tuple[int, int, int]:
    """Return red, green and blue of ``#rrggbb``."""
    return int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16)


def _scale(low: str, middle: str, high: str) -> list[str]:
    found = []
    for at in range(STEPS):
        place = 2 * at / (STEPS - 1)
        first, second = (low, middle) if place < 1 else (middle, high)
        share = place if place < 1 else place - 1
        mixed = (round(a + (b - a) * share) for a, b in zip(rgb(first), rgb(second), strict=True))
        found.append("#" + "".join(f"{part:02x}" for part in mixed))
    return found
