"""A PNG decoder of its own, for what the pictures write: palette, eight bits, no interlacing."""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

Color = tuple[int, int, int]


class Image(NamedTuple):
    """A decoded PNG: its size, and its colours by row and column."""

    width: int
    height: int
    rows: list[list[Color]]

    def colors(self) -> set[Color]:
        """All colours of the image."""
        return {color for row in self.rows for color in row}


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
    palette = [tuple(chunks[b"PLTE"][place : place + 3]) for place in range(0, len(chunks[b"PLTE"]), 3)]
    pixels = zlib.decompress(chunks[b"IDAT"])
    assert len(pixels) == height * (width + 1)
    lines = [pixels[row * (width + 1) :][: width + 1] for row in range(height)]
    assert {line[0] for line in lines} == {0}, "each row begins with the filter type none"
    return Image(width, height, [[palette[index] for index in line[1:]] for line in lines])  # type: ignore[misc]
