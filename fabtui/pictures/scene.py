"""Contents of a picture, independent of its format. Lengths are in pixels of a picture that is not enlarged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

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
        return [code for code, mark in self.marks.items() if mark == _STRIPED]


Item = Text | Box | Line | Tiles


@dataclass(slots=True)
class Scene:
    """A picture: its size, its description for those who do not see it, and its items from back to front."""

    width: int
    height: int
    label: str
    items: list[Item] = field(default_factory=list)
    #: Attributes ``data-NAME`` of the SVG, for scripts of a page.
    data: dict[str, str] = field(default_factory=dict)


def label(text: str, limit: int = 28) -> str:
    """Return an untrusted name for a picture: on one line, without control characters, cut in its middle."""
    cleaned = one_line(text, 4 * limit)
    if len(cleaned) <= limit:
        return cleaned
    tail = limit // 2
    return f"{cleaned[: limit - tail - 1]}\u2026{cleaned[-tail:]}"
