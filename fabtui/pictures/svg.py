"""Scenes as SVG. The elements have classes and the light theme's colours; style rules of a page may replace these."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from html import escape

import numpy as np

from fabtui.pictures import png
from fabtui.pictures.scene import (
    LINES_FROM,
    MARKS_FROM,
    STRIPES_FROM,
    Box,
    Item,
    Line,
    Scene,
    Text,
    Tiles,
    colors,
    css_class,
    ink_on,
)
from fabtui.sanitize import clean

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
        image = base64.b64encode(png.tiles_png(item)).decode()
        yield (
            f'<image x="{item.x}" y="{item.y}" width="{width}" height="{height}" preserveAspectRatio="none"'
            f' style="image-rendering:pixelated" href="data:image/png;base64,{image}"/>'
        )
    else:
        drawn = ((code, name) for code, name in enumerate(item.colors) if name)
        paths = "".join(_shape(path, name) for code, name in drawn if (path := _runs(item.codes == code)))
        yield f'<g {place} shape-rendering="crispEdges">{paths}</g>'
    if STRIPES_FROM <= item.pitch < MARKS_FROM:
        stripes = np.argwhere(np.isin(item.codes, item.striped)).tolist()
        path = "".join(f"M{column} {row}.5h1" for row, column in stripes)
        yield f'<path {place} fill="none" {_paint("paper", "stroke")} stroke-width=".2" d="{path}"/>' if path else ""
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


def _runs(cells: png.Flags) -> str:
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
