"""Output of child processes as a bounded stream of lines."""

from __future__ import annotations

import os
from typing import List, Optional

LINES_PER_SECOND = 200
BYTES_PER_SECOND = 4 * 1024 * 1024
LONGEST_LINE = 2048
TAIL = 4096
CUT = " [cut]"


def text_of(data: bytes) -> str:
    r"""Decode untrusted bytes; invalid UTF-8 becomes ``\xNN``."""
    return data.decode("utf-8", "backslashreplace")


class LineLimit:
    """Limit of lines per second; counts those above it."""

    def __init__(self, per_second: int = LINES_PER_SECOND) -> None:
        self._per_second = per_second
        self._window = -1
        self._admitted = 0
        self._dropped = 0

    def note(self, now: float) -> Optional[str]:
        """Return the line with the number of lines dropped in the second before; None without any."""
        if int(now) == self._window:
            return None
        dropped, self._window, self._admitted, self._dropped = self._dropped, int(now), 0, 0
        if not dropped:
            return None
        return "[%d more lines were printed and not shown]" % dropped

    def admit(self) -> bool:
        """Return True if a line may pass in the second of the last call of ``note``."""
        if self._admitted >= self._per_second:
            self._dropped += 1
            return False
        self._admitted += 1
        return True


class LogPipe:
    """The reading end of a child's standard output and error."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self.fd = fd
        self.open = True
        self._line = bytearray()
        self._tail = bytearray()

    def fileno(self) -> int:
        """Return the descriptor, for ``select``."""
        return self.fd

    def read(self, most: int = 65536) -> int:
        """Read available output and return the number of bytes; clear ``open`` at the end of the stream."""
        try:
            data = os.read(self.fd, most)
        except BlockingIOError:
            return 0
        except OSError:
            data = b""
        if not data:
            self.open = False
        self._line += data
        self._tail += data
        del self._tail[:-TAIL]
        return len(data)

    def lines(self, rest: bool = False) -> List[str]:
        """Return the complete lines read so far; with ``rest`` also the text after the last line end."""
        pieces = bytes(self._line).split(b"\n")
        self._line = bytearray(pieces.pop())
        if rest:
            if self._line:
                pieces.append(bytes(self._line))
            self._line = bytearray()
        elif len(self._line) > 2 * LONGEST_LINE:
            # A child may print without ever ending a line: keep only as much as shows that the line is too long.
            del self._line[2 * LONGEST_LINE :]
        return [self._cut(piece) for piece in pieces]

    @staticmethod
    def _cut(piece: bytes) -> str:
        piece = piece.rstrip(b"\r")
        if len(piece) > LONGEST_LINE:
            return text_of(piece[: LONGEST_LINE - len(CUT)]) + CUT
        return text_of(piece)

    def tail(self) -> str:
        """Return the last 4 kB that were printed."""
        return text_of(bytes(self._tail))[-TAIL:]

    def close(self) -> None:
        """Close this end."""
        self.open = False
        os.close(self.fd)
