"""Contents and colours of a picture, independent of its format.

Lengths are in pixels of a picture that is not enlarged. Colours of cells are those of the theme files of the screen.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from fabtui.paths import theme_folder
from fabtui.presentation.cell_levels import CellStyle
from fabtui.sanitize import one_line

if TYPE_CHECKING:
    import numpy as np

    Codes = np.ndarray[Any, np.dtype[np.uint8]]

#: Width of a character, and distance of lines of text.
CHARACTER, LINE = 6, 14
#: Smallest pitch of cells with marks, of those with lines between them, and of those with stripes in place of marks.
MARKS_FROM, LINES_FROM, STRIPES_FROM = 8, 6, 3
#: Mark that is a stripe through smaller cells: timeouts and failures are equally dark.
_STRIPED = "T"
#: Theme of pictures that stand alone.
PAPER_THEME = "light"
#: Number of steps of the scale of values, and names of their colours, the lowest first.
STEPS = 16
SCALE = tuple(f"step-{at}" for at in range(STEPS))
#: Colours of curves and groups.
CURVES = tuple(f"curve-{at}" for at in range(8))

#: Ends and middle of the scale of values: one hue, so that lightness alone orders it.
_SCALES = {"light": ("#e3eef9", "#5a9bd0", "#08306b"), "dark": ("#12263d", "#2f78b5", "#cfe6ff")}
#: The palette of Okabe and Ito, without yellow on light and black on dark.
_CURVES = {
    "light": ("#0072b2", "#d55e00", "#007a5a", "#a4508b", "#b07c00", "#3b3b3b", "#2f9bd4", "#7a4a2a"),
    "dark": ("#56b4e9", "#e69f00", "#2fc89a", "#e69fcb", "#f0e442", "#e0e0e0", "#8ab8ff", "#d9a07a"),
}
#: Prefix of the classes of SVG elements.
_PREFIX = "fab-"
Anchor = Literal["start", "middle", "end"]


@dataclass(frozen=True, slots=True)
class Text:
    """A line of text; ``y`` is its base line. ``turned`` text runs upwards from its point."""

    x: float
    y: float
    text: str
    color: str = "ink"
    anchor: Anchor = "start"
    turned: bool = False
    bold: bool = False


@dataclass(frozen=True, slots=True)
class Box:
    """A filled rectangle, with a text that is shown while a pointer is over it."""

    x: float
    y: float
    width: float
    height: float
    color: str
    title: str = ""
    parts: Sequence[tuple[float, float]] = ()  #: Start within the box and width of its filled parts; none: all of it.

    @property
    def filled(self) -> list[tuple[float, float]]:
        return [(self.x + start, width) for start, width in self.parts or [(0.0, self.width)]]


@dataclass(frozen=True, slots=True)
class Line:
    """A line through points."""

    points: Sequence[tuple[float, float]]
    color: str = "ink"
    width: float = 1.0


@dataclass(frozen=True, slots=True)
class Tiles:
    """A grid of square cells of a few colours."""

    x: int
    y: int
    pitch: int
    codes: Codes  #: For each row and column an index into ``colors``.
    colors: Sequence[str]  #: Names of colours; "" for cells that are not drawn.
    #: Character for the cells of a code, drawn where there is room.
    marks: Mapping[int, str] = field(default_factory=dict)
    #: Text for single cells, drawn in place of the mark.
    numbers: Mapping[tuple[int, int], str] = field(default_factory=dict)
    #: Text of single cells that is shown while a pointer is over them.
    titles: Mapping[tuple[int, int], str] = field(default_factory=dict)

    @property
    def striped(self) -> list[int]:
        small = STRIPES_FROM <= self.pitch < MARKS_FROM
        return [code for code, mark in self.marks.items() if small and mark == _STRIPED]


Item = Text | Box | Line | Tiles


@dataclass(slots=True)
class Scene:
    """A picture: its size, its description for those who do not see it, and its items from back to front."""

    width: int
    height: int
    label: str
    items: list[Item] = field(default_factory=list)
    data: dict[str, str] = field(default_factory=dict)  #: Attributes ``data-NAME`` of the SVG, for scripts of a page.


def label(text: str, limit: int = 28) -> str:
    """Return an untrusted name for a picture: on one line, without control characters, cut in its middle."""
    cleaned = one_line(text, 4 * limit)
    if len(cleaned) <= limit:
        return cleaned
    tail = limit // 2
    return f"{cleaned[: limit - tail - 1]}\u2026{cleaned[-tail:]}"


@cache
def colors(theme: str = PAPER_THEME) -> dict[str, str]:
    """Return the colour (``#rrggbb``) of each name in a theme that ships with fabtui (``light`` or ``dark``).

    Names are the names of `CellStyle` (``failed``; with ``-ink`` for marks on it), ``ink``, ``muted``, ``rule``,
    ``paper``, `SCALE` and `CURVES`.
    """
    value = tomllib.loads((theme_folder() / f"{theme}.toml").read_text(encoding="utf-8"))
    named = value["colors"]
    ink, paper, rule = named["foreground"], named["background"], named["panel"]
    shades = {"ink": ink, "paper": paper, "rule": rule, "muted": named["secondary"]}
    for slot in CellStyle:
        before, _, fill = value["ramp"]["24"].get(slot.key, "").partition(" on ")
        shades[slot.key] = fill or paper
        shades[f"{slot.key}-ink"] = next((word for word in before.split() if word.startswith("#")), ink)
    shades[CellStyle.DIAGONAL.key] = rule
    shades |= dict(zip(SCALE, _scale(*_SCALES[theme]), strict=True))
    return shades | dict(zip(CURVES, _CURVES[theme], strict=True))


def css_class(name: str) -> str:
    return _PREFIX + name


def css(theme: str) -> str:
    """Return style rules that give pictures inside a page the colours of a theme (``light`` or ``dark``)."""
    rule = ".{0}{{fill:{1}}}.{0}-line{{stroke:{1}}}"
    return "".join(rule.format(css_class(name), color) for name, color in colors(theme).items())


def ink_on(name: str) -> str:
    """Return the name of the colour of marks and numbers on a colour."""
    if name in SCALE:
        return "ink" if SCALE.index(name) < 0.45 * STEPS else "paper"
    return f"{name}-ink"


def rgb(color: str) -> tuple[int, int, int]:
    return int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16)


def _scale(low: str, middle: str, high: str) -> list[str]:
    shades = []
    for at in range(STEPS):
        place = 2 * at / (STEPS - 1)
        first, second = (low, middle) if place < 1 else (middle, high)
        share = place if place < 1 else place - 1
        mixed = (round(a + (b - a) * share) for a, b in zip(rgb(first), rgb(second), strict=True))
        shades.append("#" + "".join(f"{part:02x}" for part in mixed))
    return shades
