"""Screens of the app as SVG: stills, and one picture in which several screens follow each other.

Rows that are equal are stored once, and lines and blocks are shapes: they meet in every font.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby
from typing import Any, NamedTuple

from rich.color import blend_rgb
from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import DIMMED_MONOKAI as THEME

#: Size of a cell and of its font, and height of the bar above the screen (px).
WIDTH, HEIGHT, FONT, BAR = 8.4, 18, 14, 30
#: Margin around the screen (px).
EDGE = 10
#: Height of the line of keys and captions below the screens (px).
CAPTION = 52
FAMILY = "'DejaVu Sans Mono', Menlo, Consolas, 'Liberation Mono', monospace"
FRAME, TITLE, KEY, BRIGHT = "#292929", "#c5c8c6", "#6aaef2", "#ffffff"

#: Shapes of characters, in shares of a cell: left, top, width, height.
SHAPES: dict[str, tuple[tuple[float, float, float, float], ...]] = {
    "█": ((0, 0, 1, 1),),
    "▀": ((0, 0, 1, 0.5),),
    "▌": ((0, 0, 0.5, 1),),
    "▐": ((0.5, 0, 0.5, 1),),
    "▏": ((0, 0, 0.125, 1),),
    "▎": ((0, 0, 0.25, 1),),
    "─": ((0, 0.47, 1, 0.06),),
    "━": ((0, 0.43, 1, 0.14),),
    "╸": ((0, 0.43, 0.5, 0.14),),
    "╺": ((0.5, 0.43, 0.5, 0.14),),
    "│": ((0.44, 0, 0.12, 1),),
    **{chr(0x2580 + n): ((0, 1 - n / 8, 1, n / 8),) for n in range(1, 8)},
}


class Frame(NamedTuple):
    """A screen of an animation: how long it stands (s), the key that was pressed, and a caption."""

    screen: list[list[Segment]]
    seconds: float
    key: str
    caption: str


def screen_of(app: Any) -> list[list[Segment]]:
    """Return the lines of the screen, with what shines through from below a dialog."""
    update = app.screen._compositor.render_update(full=True, screen_stack=app._background_screens)
    return [list(Segment.simplify(segment for strip in line for segment in strip)) for line in update.strips]


class Painter:
    """Draws rows, each once, and collects their colors."""

    def __init__(self) -> None:
        self._colors: dict[str, str] = {}
        self._rows: dict[str, str] = {}

    def screen(self, lines: Sequence[Sequence[Segment]]) -> str:
        """Return a screen made of rows."""
        used = ((self._row(line), y * HEIGHT) for y, line in enumerate(lines))
        return "".join(f'<use href="#{name}" y="{y}"/>' for name, y in used if name)

    def definitions(self) -> str:
        """Return the styles and rows that the screens use."""
        styles = "".join(f".{name}{{fill:{color}}}" for color, name in self._colors.items())
        rows = "".join(f'<g id="{name}">{text}</g>' for text, name in self._rows.items())
        # Without smoothing, shapes that meet have no seam between them.
        marks = "text{white-space:pre}path{shape-rendering:crispEdges}.b{font-weight:bold}.u{text-decoration:underline}"
        return f"<style>{marks}{styles}</style><defs>{rows}</defs>"

    def _row(self, line: Sequence[Segment]) -> str:
        backgrounds, texts, x = [], [], 0
        for segment in line:
            color, background = colors_of(segment.style or Style())
            size = segment.cell_length
            backgrounds.append((background, x, size))
            texts.extend(self._text(segment, x, color))
            x += size
        drawn = "".join(self._backgrounds(backgrounds)) + "".join(texts)
        return self._rows.setdefault(drawn, f"r{len(self._rows)}") if drawn else ""

    def _backgrounds(self, found: Sequence[tuple[str, int, int]]) -> Iterator[str]:
        for color, group in groupby(found, key=lambda one: one[0]):
            cells = list(group)
            size = sum(cell[2] for cell in cells)
            # Half a pixel more, so that rows meet where a browser rounds.
            yield self._shape(color, cells[0][1], (0, 0, size, 1 + 0.5 / HEIGHT))

    def _text(self, segment: Segment, x: int, color: str) -> Iterator[str]:
        style = segment.style or Style()
        marks = "".join(f" {name}" for name, on in (("b", style.bold), ("u", style.underline)) if on)
        for is_shape, group in groupby(segment.text, key=lambda character: character in SHAPES):
            text = "".join(group)
            if is_shape:
                for at, character in enumerate(text):
                    for shape in SHAPES[character]:
                        yield self._shape(color, x + at, shape)
            elif text.strip():
                left = x + len(text) - len(text.lstrip())
                shown = text.strip()
                yield (
                    f'<text class="{self._class(color)}{marks}" x="{number(left * WIDTH)}" y="{FONT}" '
                    f'textLength="{number(len(shown) * WIDTH)}">{escape(shown, quote=False)}</text>'
                )
            x += len(text)

    def _shape(self, color: str, x: float, shape: tuple[float, float, float, float]) -> str:
        left, top, width, height = shape
        return (
            f'<path class="{self._class(color)}" d="M{number((x + left) * WIDTH)} {number(top * HEIGHT)}'
            f'h{number(width * WIDTH)}v{number(height * HEIGHT)}h-{number(width * WIDTH)}z"/>'
        )

    def _class(self, color: str) -> str:
        return self._colors.setdefault(color, f"c{len(self._colors)}")


def colors_of(style: Style) -> tuple[str, str]:
    """Return the colors of text and background."""
    color = THEME.foreground_color if style.color is None else style.color.get_truecolor(THEME)
    background = THEME.background_color if style.bgcolor is None else style.bgcolor.get_truecolor(THEME, False)
    if style.reverse:
        color, background = background, color
    if style.dim:
        color = blend_rgb(color, background, 0.4)
    return color.hex, background.hex


def number(value: float) -> str:
    """Return a short number."""
    return f"{value:.1f}".removesuffix(".0")


def still(screen: Sequence[Sequence[Segment]], title: str) -> str:
    """Return one screen in a window."""
    painter = Painter()
    drawn = painter.screen(screen)
    return _window(screen, title, painter.definitions(), drawn, 0)


def animation(frames: Sequence[Frame], title: str) -> str:
    """Return screens that follow each other without end, with keys and captions; the first stands where none moves."""
    painter = Painter()
    total = sum(frame.seconds for frame in frames)
    begin, drawn, rules = 0.0, [], []
    below = len(frames[0].screen) * HEIGHT
    for place, frame in enumerate(frames):
        end = begin + frame.seconds
        first, last = f"{100 * begin / total:.3f}%", f"{100 * end / total:.3f}%"
        hidden = "" if place == 0 else "0%{visibility:hidden}"
        rules.append(f"@keyframes k{place}{{{hidden}{first}{{visibility:visible}}{last}{{visibility:hidden}}}}")
        rules.append(f"#f{place}{{animation:k{place} {total:g}s step-end infinite}}")
        key = f'<text class="key" x="0" y="{below + 34}">{escape(frame.key, quote=False)}</text>' if frame.key else ""
        indent = (len(frame.key) + 2) * 10 if frame.key else 0
        caption = f'<text class="caption" x="{indent}" y="{below + 34}">{escape(frame.caption, quote=False)}</text>'
        drawn.append(f'<g class="f" id="f{place}">{painter.screen(frame.screen)}{key}{caption}</g>')
        begin = end
    width = max(sum(segment.cell_length for segment in line) for line in frames[0].screen) * WIDTH
    rules.append(f"@keyframes bar{{to{{transform:scaleX(1)}}}}#bar{{animation:bar {total:g}s linear infinite}}")
    style = (
        f"<style>.f{{visibility:hidden}}#f0{{visibility:visible}}#bar{{transform:scaleX(0)}}"
        f".key,.caption{{font-size:16px;fill:{BRIGHT}}}.key{{fill:{KEY};font-weight:bold}}{''.join(rules)}"
        "@media (prefers-reduced-motion:reduce){.f,#bar{animation:none!important}}</style>"
    )
    bar = f'<rect id="bar" y="{below + CAPTION - 4}" width="{number(width)}" height="3" fill="{KEY}"/>'
    return _window(frames[0].screen, title, style + painter.definitions(), "".join(drawn) + bar, CAPTION)


def _window(screen: Sequence[Sequence[Segment]], title: str, definitions: str, drawn: str, more: int) -> str:
    width = max(sum(segment.cell_length for segment in line) for line in screen) * WIDTH + 2 * EDGE
    height = len(screen) * HEIGHT + BAR + EDGE + more
    lights = "".join(
        f'<circle cx="{18 + 18 * place}" cy="15" r="6" fill="{color}"/>'
        for place, color in enumerate(("#ff5f57", "#febc2e", "#28c840"))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {number(width)} {height}" font-family="{FAMILY}" '
        f'font-size="{FONT}px" xml:space="preserve">\n{definitions}\n'
        f'<rect width="{number(width)}" height="{height}" rx="8" fill="{FRAME}"/>{lights}'
        f'<text x="{number(width / 2)}" y="20" text-anchor="middle" fill="{TITLE}">{escape(title)}</text>\n'
        f'<g transform="translate({EDGE} {BAR})">{drawn}</g>\n</svg>\n'
    )
