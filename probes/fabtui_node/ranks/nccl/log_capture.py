"""NCCL's log in an anonymous memory file, read as it grows; nothing is written to disk."""

from __future__ import annotations

import ctypes
import itertools
import os
import threading
from typing import Dict, List, Optional, Tuple

from fabtui_node.parsers.nccl import log_lines
from fabtui_node.parsers.nccl.log_lines import NcclLine, Nics

#: Number of lines kept per GPU; the lines of a pair are read within seconds.
KEEP = 4000
#: Bytes read after which their memory is freed.
FREE_AFTER = 4 << 20


def punch(fd: int, size: int) -> None:
    """Free the memory of the first bytes of a file; the offsets of the rest stay."""
    function = getattr(ctypes.CDLL(None), "fallocate", None)
    if function is not None:
        function.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
        # FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE; if it fails, the memory stays in use.
        function(fd, 3, 0, size)


class Log:
    """NCCL's output in this process; thread-safe."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()
        self._offset = 0
        self._tail = b""
        self._count = 0
        self._lines: Dict[int, List[Tuple[int, NcclLine]]] = {}
        self._held = 0
        self._nics: Nics = {}

    def _read(self) -> None:
        while True:
            data = os.pread(self._fd, 1 << 20, self._offset)
            if not data:
                return
            self._offset += len(data)
            pieces = (self._tail + data).split(b"\n")
            self._tail = pieces.pop()[-65536:]
            for piece in pieces:
                line = log_lines.parse_line(piece.decode("utf-8", "replace"))
                if line is None:
                    continue
                self._count += 1
                kept = self._lines.setdefault(line.device, [])
                kept.append((self._count, line))
                if len(kept) > 2 * KEEP:
                    del kept[:-KEEP]
                if "Using" in line.text or "Made virtual" in line.text:
                    self._nics.update(log_lines.parse_nics(line.text))
            if self._offset - self._held > FREE_AFTER:
                self._held = self._offset
                punch(self._fd, self._offset)

    def mark(self) -> int:
        with self._lock:
            self._read()
            return self._count

    def since(self, mark: int, device: int) -> List[NcclLine]:
        with self._lock:
            self._read()
            since = itertools.takewhile(lambda numbered: numbered[0] > mark, reversed(self._lines.get(device, [])))
            return [line for _, line in since][::-1]

    def warned(self, mark: int) -> List[NcclLine]:
        """Return the warnings since a mark, of all devices: NCCL prints any or none before it knows the device."""
        with self._lock:
            self._read()
            every = sorted(item for kept in self._lines.values() for item in kept if item[0] > mark)
            return [line for _, line in every if line.level in ("WARN", "ERROR")]

    def nics(self) -> Nics:
        with self._lock:
            self._read()
            return dict(self._nics)


def notable(lines: List[NcclLine], most: int = 64) -> List[NcclLine]:
    """Return warnings and connections among lines, at most the first ``most``."""
    lines = [line for line in lines if line.level != "INFO" or log_lines.parse_channel(line.text) is not None]
    return lines[:most]


def summary(lines: List[NcclLine], most: int = 8, pair: Optional[Tuple[int, int]] = None) -> str:
    """Return at most ``most`` warnings and connections among lines, without repetitions.

    ``pair`` is the source and destination of the only direction to include, None for all.
    """
    warned = [line.text for line in lines if line.level in ("WARN", "ERROR") and line.text]
    chosen = dict.fromkeys("NCCL WARN " + text for text in warned)
    seen = set()
    for line in lines:
        channel = log_lines.parse_channel(line.text)
        if channel is not None and pair in (None, (channel.src, channel.dst)):
            key = (channel.src, channel.dst, channel.direction, channel.via)
            if key not in seen:
                seen.add(key)
                chosen["NCCL INFO " + line.text] = None
    return "\n".join(list(chosen)[:most])
