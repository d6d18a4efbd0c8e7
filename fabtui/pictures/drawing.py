"""Scenes as SVG, and as PNG with the standard library's zlib.

The elements of an SVG have classes and the light theme's colours; style rules of a page may replace these. A PNG has up
to 256 colours, no smoothing, and the same bytes each time.
"""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Iterator, Sequence
from functools import cache
from html import escape
from typing import Any

import numpy as np

from fabtui.pictures.scene import LINES_FROM, MARKS_FROM, Box, Item, Line, Scene, Text, Tiles, colors, css_class, ink_on
from fabtui.sanitize import clean

#: Dots of a glyph, or other flags.
Flags = np.ndarray[Any, np.dtype[np.bool_]]
Pixels = np.ndarray[Any, np.dtype[np.uint8]]

#: Height of a glyph with its descender, and width of a glyph with the space after it.
HEIGHT, ADVANCE = 8, 6
#: Height of a glyph above the base line.
_ASCENT = 7
#: Number of pixels of a PNG per pixel of a scene, each way.
SCALE = 2
#: Five columns per character from the space to the tilde, a byte each; the lowest bit is the top.
_COLUMNS = bytes.fromhex(
    "0000000000 00005F0000 0007000700 147F147F14 242A7F2A12 2313086462 3649552250 0005030000 001C224100 0041221C00 "
    "14083E0814 08083E0808 0050300000 0808080808 0060600000 2010080402 3E5149453E 00427F4000 4261514946 2141454B31 "
    "1814127F10 2745454539 3C4A494930 0171090503 3649494936 064949291E 0036360000 0056360000 0814224100 1414141414 "
    "0041221408 0201510906 324979413E 7E1111117E 7F49494936 3E41414122 7F4141221C 7F49494941 7F09090901 3E4149497A "
    "7F0808087F 00417F4100 2040413F01 7F08142241 7F40404040 7F020C027F 7F0408107F 3E4141413E 7F09090906 3E4151215E "
    "7F09192946 4649494931 01017F0101 3F4040403F 1F2040201F 3F4038403F 6314081463 0708700807 6151494543 007F414100 "
    "0204081020 0041417F00 0402010204 4040404040 0001020400 2054545478 7F48444438 3844444420 384444487F 3854545418 "
    "087E090102 18A4A4A47C 7F08040478 00447D4000 4080847D00 7F10284400 00417F4000 7C04180478 7C08040478 3844444438 "
    "FC24242418 18242424FC 7C08040408 4854545420 043F444020 3C4040207C 1C2040201C 3C4030403C 4428102844 1CA0A0A07C "
    "4464544C44 0008364100 00007F0000 0041360800 1008081008"
)
#: The same for signs of verdicts.
_SIGNS = {"▾": bytes.fromhex("040C1C0C04"), "≠": bytes.fromhex("14341C1614")}
#: Numbers of rows and of rectangles from which cells are an embedded PNG.
_RASTER_ROWS, _RASTER_SHAPES = 257, 8192
#: Marks of cells as lines within a square of 1, from its top left corner.
_STROKES = {
    "x": "m.3.3l.4.4m0-.4l-.4.4",
    "T": "m.28.3h.44m-.22 0v.44",
    "▾": "m.28.38h.44l-.22.28z",
    "≠": "m.26.42h.48m-.48.18h.48m-.1-.34l-.28.5",
    "?": "m.36.4c0-.22.3-.22.3 0c0 .12-.15.1-.15.2m0 .11v.11",
    "-": "m.3.5h.4",
    "~": "m.26.54q.12-.18.24-.04t.24-.04",
    "#": "m.4.26v.48m.2-.48v.48m-.34-.34h.48m-.48.2h.48",
}
_FAMILY = "'DejaVu Sans Mono',Menlo,Consolas,'Liberation Mono',monospace"


def svg(scene: Scene) -> str:
    """Return a scene as an ``<svg>`` element for a page or a file of its own."""
    data = "".join(f' data-{name}="{_quoted(value)}"' for name, value in scene.data.items())
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {scene.width} {scene.height}" width="{scene.width}"'
        f' height="{scene.height}" role="img" aria-label="{_quoted(scene.label)}" font-family="{_FAMILY}"'
        f' font-size="10"{data}>',
        _shape(f"M0 0h{scene.width}v{scene.height}H0z", "paper"),
    ]
    parts += (text for item in scene.items for text in _item(item))
    return "".join(parts) + "</svg>\n"


def _quoted(text: str) -> str:
    return escape(clean(text).replace("\n", " ").replace("\t", " "))


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _paint(name: str, kind: str = "fill") -> str:
    suffix = "" if kind == "fill" else "-line"
    return f'class="{css_class(name)}{suffix}" {kind}="{colors()[name]}"'


def _shape(path: str, color: str) -> str:
    return f'<path {_paint(color)} d="{path}"/>'


def _item(item: Item) -> Iterator[str]:
    if isinstance(item, Text):
        yield _text(item)
    elif isinstance(item, Line):
        points = "L".join(f"{_number(x)} {_number(y)}" for x, y in item.points)
        yield (
            f'<path fill="none" {_paint(item.color, "stroke")} stroke-width="{_number(item.width)}"'
            f' stroke-linejoin="round" d="M{points}"/>'
        )
    elif isinstance(item, Box):
        y, height = _number(item.y), _number(item.height)
        place = "".join(f"M{_number(x)} {y}h{_number(width)}v{height}h-{_number(width)}z" for x, width in item.filled)
        title = f"<title>{_quoted(item.title)}</title>" if item.title else ""
        yield f'<path {_paint(item.color)} d="{place}">{title}</path>' if title else _shape(place, item.color)
    else:
        yield from _tiles(item)


def _text(item: Text) -> str:
    x, y = _number(item.x), _number(item.y)
    place = f'transform="translate({x} {y}) rotate(-90)"' if item.turned else f'x="{x}" y="{y}"'
    anchor = "" if item.anchor == "start" else f' text-anchor="{item.anchor}"'
    weight = ' font-weight="bold"' if item.bold else ""
    return f"<text {_paint(item.color)} {place}{anchor}{weight}>{_quoted(item.text)}</text>"


def _tiles(item: Tiles) -> Iterator[str]:
    rows, columns = item.codes.shape
    width, height = columns * item.pitch, rows * item.pitch
    place = f'transform="translate({item.x} {item.y}) scale({item.pitch})"'
    if rows >= _RASTER_ROWS or np.count_nonzero(np.diff(item.codes, axis=1)) >= _RASTER_SHAPES:
        image = base64.b64encode(encoded(item.codes, [name or "paper" for name in item.colors])).decode()
        yield (
            f'<image x="{item.x}" y="{item.y}" width="{width}" height="{height}" preserveAspectRatio="none"'
            f' style="image-rendering:pixelated" href="data:image/png;base64,{image}"/>'
        )
    else:
        drawn = ((code, name) for code, name in enumerate(item.colors) if name)
        paths = "".join(_shape(path, name) for code, name in drawn if (path := _runs(item.codes == code)))
        yield f'<g {place} shape-rendering="crispEdges">{paths}</g>'
    stripes = np.argwhere(np.isin(item.codes, item.striped)).tolist()
    if path := "".join(f"M{column} {row}.5h1" for row, column in stripes):
        yield f'<path {place} fill="none" {_paint("paper", "stroke")} stroke-width=".2" d="{path}"/>'
    if item.pitch >= LINES_FROM:
        lines = "".join(f"M{at} 0v{rows}" for at in range(1, columns))
        lines += "".join(f"M0 {at}h{columns}" for at in range(1, rows))
        width_of_line = _number(1 / item.pitch)
        yield f'<path {place} fill="none" {_paint("paper", "stroke")} stroke-width="{width_of_line}" d="{lines}"/>'
    if item.pitch >= MARKS_FROM:
        yield from _marks(item)
    if item.titles:
        cells = "".join(
            f'<path d="M{column} {row}h1v1h-1z"><title>{_quoted(text)}</title></path>'
            for (row, column), text in item.titles.items()
        )
        yield f'<g {place} fill="none" pointer-events="fill">{cells}</g>'


def _runs(cells: Flags) -> str:
    edges = np.diff(np.pad(cells, ((0, 0), (1, 1))).astype(np.int8), axis=1)
    starts, ends = np.argwhere(edges == 1), np.argwhere(edges == -1)
    spans = zip(starts.tolist(), ends.tolist(), strict=True)
    return "".join(f"M{first} {row}h{last - first}v1h{first - last}z" for (row, first), (_, last) in spans)


def _marks(item: Tiles) -> Iterator[str]:
    for code, name in enumerate(item.colors):
        stroke = _STROKES.get(item.marks.get(code, ""))
        cells = np.argwhere(item.codes == code).tolist() if name and stroke else []
        if path := "".join(f"M{column} {row}{stroke}" for row, column in cells if (row, column) not in item.numbers):
            place = f'transform="translate({item.x} {item.y}) scale({item.pitch})"'
            yield f'<path {place} fill="none" {_paint(ink_on(name), "stroke")} stroke-width=".11" d="{path}"/>'
    by_color: dict[str, list[str]] = {}
    for (row, column), text in item.numbers.items():
        x, y = item.x + (column + 0.5) * item.pitch, item.y + (row + 0.5) * item.pitch + 3.5
        own = by_color.setdefault(ink_on(item.colors[item.codes[row, column]]), [])
        own.append(f'<text x="{_number(x)}" y="{_number(y)}">{_quoted(text)}</text>')
    for name, texts in by_color.items():
        yield f'<g {_paint(name)} text-anchor="middle">{"".join(texts)}</g>'


@cache
def _glyph(character: str) -> Flags:
    if character == "\u2026":
        return np.concatenate([_glyph(".")[:, 1:4]] * 2, axis=1)
    known = " " <= character <= "~"
    first = 5 * (ord(character if known else "?") - ord(" "))
    columns = _SIGNS.get(character, _COLUMNS[first : first + 5]) + b"\0"
    bits = np.unpackbits(np.frombuffer(columns, dtype=np.uint8)[None, :], axis=0, bitorder="little")
    found: Flags = bits.astype(bool)
    return found


def png(scene: Scene) -> bytes:
    canvas = _Canvas(scene.width * SCALE, scene.height * SCALE)
    for item in scene.items:
        if isinstance(item, Text):
            canvas.text(item)
        elif isinstance(item, Box):
            for x, width in item.filled:
                canvas.box(x * SCALE, item.y * SCALE, width * SCALE, item.height * SCALE, item.color)
        elif isinstance(item, Line):
            for start, end in zip(item.points, item.points[1:], strict=False):
                canvas.line(start, end, item.color, item.width)
        else:
            canvas.tiles(item)
    return encoded(canvas.pixels, canvas.names)


def encoded(pixels: Pixels, names: Sequence[str]) -> bytes:
    """Return an image as PNG: for each pixel the index of the name of its colour."""
    height, width = pixels.shape
    rows = np.zeros((height, width + 1), dtype=np.uint8)
    rows[:, 1:] = pixels
    palette = bytes.fromhex("".join(colors()[name][1:] for name in names))
    head = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"PLTE", palette), (b"IDAT", zlib.compress(rows.tobytes(), 6)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


class _Canvas:
    """Pixels as indexes into a list of names of colours; parts outside of the picture are cut off."""

    def __init__(self, width: int, height: int) -> None:
        self.names = ["paper"]
        self.pixels: Pixels = np.zeros((height, width), dtype=np.uint8)

    def _index(self, name: str) -> int:
        if name not in self.names:
            self.names.append(name)
        return self.names.index(name)

    def box(self, x: float, y: float, width: float, height: float, color: str) -> None:
        left, top = max(0, round(x)), max(0, round(y))
        # A thin box stays visible.
        right, bottom = max(left + 1, round(x + width)), max(top + 1, round(y + height))
        self.pixels[top:bottom, left:right] = self._index(color)

    def line(self, start: tuple[float, float], end: tuple[float, float], color: str, width: float) -> None:
        (x, y), (x2, y2) = ((a * SCALE, b * SCALE) for a, b in (start, end))
        thick = max(1, round(width * SCALE))
        if x == x2 or y == y2:
            self.box(min(x, x2) - thick / 2, min(y, y2) - thick / 2, abs(x2 - x) + thick, abs(y2 - y) + thick, color)
            return
        steps = math.ceil(max(abs(x2 - x), abs(y2 - y)))
        for at in range(steps + 1):
            here = at / steps
            self.box(x + (x2 - x) * here - thick / 2, y + (y2 - y) * here - thick / 2, thick, thick, color)

    def text(self, item: Text) -> None:
        # Characters without a glyph are question marks.
        dots = np.concatenate([np.zeros((HEIGHT, 0), dtype=bool), *map(_glyph, item.text)], axis=1)
        size = dots.shape[1] - (ADVANCE - 5)
        back = {"start": 0, "middle": size / 2, "end": size}[item.anchor]
        if item.turned:
            self._stamp(np.rot90(dots), item.x - _ASCENT, item.y - dots.shape[1] + back, item.color)
        else:
            self._stamp(dots, item.x - back, item.y - _ASCENT, item.color)
        if item.bold:
            self._stamp(dots, item.x - back + 1 / SCALE, item.y - _ASCENT, item.color)

    def _stamp(self, dots: Flags, x: float, y: float, color: str) -> None:
        large = dots.repeat(SCALE, axis=0).repeat(SCALE, axis=1)
        left, top = round(x * SCALE), round(y * SCALE)
        large = large[max(0, -top) :, max(0, -left) :]
        part = self.pixels[max(0, top) :, max(0, left) :][: large.shape[0], : large.shape[1]]
        part[large[: part.shape[0], : part.shape[1]]] = self._index(color)

    def tiles(self, item: Tiles) -> None:
        size = item.pitch * SCALE
        indexes = np.array([self._index(name or "paper") for name in item.colors], dtype=np.uint8)
        drawn = indexes[item.codes].repeat(size, axis=0).repeat(size, axis=1)
        if item.pitch >= LINES_FROM:
            drawn[size - 1 :: size] = drawn[:, size - 1 :: size] = self._index("paper")
        part = self.pixels[item.y * SCALE :, item.x * SCALE :][: drawn.shape[0], : drawn.shape[1]]
        part[:] = drawn[: part.shape[0], : part.shape[1]]
        for row, column in np.argwhere(np.isin(item.codes, item.striped)).tolist():
            left, top = item.x + column * item.pitch, item.y + row * item.pitch + item.pitch // 2
            self.box(left * SCALE, top * SCALE, size, SCALE, "paper")
        if item.pitch >= MARKS_FROM:
            marked = np.argwhere(np.isin(item.codes, list(item.marks))).tolist()
            texts = {(row, column): item.marks[int(item.codes[row, column])] for row, column in marked}
            for (row, column), text in (texts | dict(item.numbers)).items():
                color = ink_on(item.colors[int(item.codes[row, column])])
                x, y = item.x + (column + 0.5) * item.pitch, item.y + row * item.pitch + (item.pitch + _ASCENT) / 2
                self.text(Text(x, y, text, color, "middle"))
