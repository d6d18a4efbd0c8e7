"""Pictures as files, and a decoder for their PNG: palette, eight bits, no interlacing."""

import struct
import zlib
from typing import Any, NamedTuple

from fabtui.model.session_model import Model
from fabtui.pictures.busbw import busbw_scene
from fabtui.pictures.drawing import png, svg
from fabtui.pictures.heatmap import connectivity_scene, matrix_scene
from fabtui.pictures.timeline import timeline_scene

Color = tuple[int, int, int]


class Image(NamedTuple):
    """A decoded PNG: its size, its palette, and the places in it by row and column."""

    width: int
    height: int
    palette: list[Color]
    rows: list[bytes]

    def at(self, x: int, y: int) -> Color:
        return self.palette[self.rows[y][x]]

    def colors(self) -> set[Color]:
        return {self.palette[place] for row in self.rows for place in set(row)}


def decoded(data: bytes) -> Image:
    """Return the pixels of a PNG; every chunk is checked."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    chunks: dict[bytes, bytes] = {}
    at = 8
    while at < len(data):
        (length,), kind = struct.unpack(">I", data[at : at + 4]), data[at + 4 : at + 8]
        body = data[at + 8 : at + 8 + length]
        assert struct.unpack(">I", data[at + 8 + length : at + 12 + length])[0] == zlib.crc32(kind + body)
        chunks[kind] = body
        at += 12 + length
    assert list(chunks) == [b"IHDR", b"PLTE", b"IDAT", b"IEND"]
    width, height, depth, color, *rest = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    assert (depth, color, rest) == (8, 3, [0, 0, 0])
    palette = [(red, green, blue) for red, green, blue in struct.iter_unpack("3B", chunks[b"PLTE"])]
    pixels = zlib.decompress(chunks[b"IDAT"])
    assert len(pixels) == height * (width + 1)
    lines = [pixels[row * (width + 1) :][: width + 1] for row in range(height)]
    assert {line[0] for line in lines} == {0}, "each row begins with the filter type none"
    assert not pixels.translate(None, bytes(range(len(palette)))), "each place is in the palette"
    return Image(width, height, palette, [line[1:] for line in lines])


def matrix_svg(*arguments: Any) -> str:
    """Return the matrix of a layer as an ``<svg>`` element."""
    return svg(matrix_scene(*arguments))


def matrix_png(*arguments: Any) -> bytes:
    return png(matrix_scene(*arguments))


def connectivity_svg(*arguments: Any) -> str:
    """Return the connectivity of addresses as an ``<svg>`` element."""
    return svg(connectivity_scene(*arguments))


def connectivity_png(*arguments: Any) -> bytes:
    return png(connectivity_scene(*arguments))


def busbw_svg(model: Model) -> str:
    """Return the curves of all collectives as an ``<svg>`` element."""
    return svg(busbw_scene(model))


def busbw_png(model: Model) -> bytes:
    return png(busbw_scene(model))


def timeline_svg(rows: Any) -> str:
    """Return the timers of ranks as an ``<svg>`` element."""
    return svg(timeline_scene(rows))
