"""A program that the controller sends: it is kept in memory, run from there, and gone with this process."""

from __future__ import annotations

import base64
import os
import zlib
from typing import Optional

#: Maximum size (bytes) of a program.
MOST = 64 << 20

_pieces = bytearray()
_files = []  # type: list[int]


def take(piece: str, last: bool) -> None:
    """Take a piece of the compressed program, in Base64; raise OSError or ValueError if it cannot be kept."""
    _pieces.extend(base64.b64decode(piece))
    if not last:
        return
    packed = bytes(_pieces)
    _pieces.clear()
    unpacker = zlib.decompressobj()
    data = unpacker.decompress(packed, MOST)
    if not unpacker.eof:
        raise ValueError("the program is cut off or too large")
    # No other process has its descriptor, and the mode lets this user alone open it through /proc.
    file = os.memfd_create("fabtui")
    os.fchmod(file, 0o700)
    with os.fdopen(file, "wb", closefd=False) as target:
        target.write(data)
    _files.append(file)


def path() -> Optional[str]:
    """Return what runs the program, None if none was sent."""
    return "/proc/%d/fd/%d" % (os.getpid(), _files[-1]) if _files else None
