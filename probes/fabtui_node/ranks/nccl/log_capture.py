"""NCCL's log in an anonymous memory file, read as it grows; nothing is written to disk."""

from __future__ import annotations

import ctypes
import os
import platform
import threading
from typing import Dict, List, Optional, Tuple

from fabtui_node.parsers.nccl import log_lines
from fabtui_node.parsers.nccl.log_lines import NcclLine, Nics

SUBSYSTEMS = "INIT,BOOTSTRAP,ENV,NET,P2P,SHM,TUNING"
KEEP = 4000
"""Number of lines kept per GPU; the lines of a pair are read within seconds."""

FREE_AFTER = 4 << 20
"""Bytes read after which their memory is freed."""

# A dead path must be reported within a pair's deadline; NCCL's own timeouts are 30 to 60 s.
SHORT_TIMEOUTS = {"NCCL_SOCKET_RETRY_CNT": "5", "NCCL_IB_TIMEOUT": "17"}

_MEMFD_CREATE = {"x86_64": 319, "aarch64": 279, "ppc64le": 360}


def memory_file() -> int:
    """Return the descriptor of an anonymous file in memory; raise OSError if the system does not support it."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("nccl-log")
    number = _MEMFD_CREATE.get(platform.machine())
    if number is None:
        raise OSError("no file in memory on %s" % platform.machine())
    fd = int(ctypes.CDLL(None, use_errno=True).syscall(number, b"nccl-log", 1))
    if fd < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return fd


def punch(fd: int, size: int) -> None:
    """Free the memory of the first bytes of a file; the offsets of the rest stay."""
    function = getattr(ctypes.CDLL(None), "fallocate", None)
    if function is not None:
        function.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
        # FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE; if it fails, the memory stays in use.
        function(fd, 3, 0, size)


def set_environment(fd: int, blocking: bool = False) -> List[str]:
    """Set NCCL's variables for this process unless the user did; return those that shorten timeouts.

    Without ``blocking``, communicators are always non-blocking, which deadlines need, and contexts are small.

    NCCL prints to ``fd`` with the levels that show transports and reasons. Inherited settings are overridden: with an
    inherited ``NCCL_DEBUG_FILE``, all that would be known of an error is its name.
    """
    environ = os.environ
    if environ.get("NCCL_DEBUG", "").upper() != "TRACE":
        environ["NCCL_DEBUG"] = "INFO"
    wanted = environ.get("NCCL_DEBUG_SUBSYS", "")
    more = wanted.upper() not in ("", SUBSYSTEMS) and not wanted.startswith("^")
    environ["NCCL_DEBUG_SUBSYS"] = "%s,%s" % (SUBSYSTEMS, wanted) if more else SUBSYSTEMS
    environ["NCCL_DEBUG_FILE"] = "/proc/self/fd/%d" % fd
    if not blocking:
        environ["NCCL_COMM_BLOCKING"] = "0"
        # A context with 2 work queues instead of 8 is made in half the time: 0.5 s less for 8 H200s. This process has
        # one stream per GPU and the few of NCCL.
        environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "2")
    # NCCL's RAS service would listen on the port that the user's job needs.
    environ.setdefault("NCCL_RAS_ENABLE", "0")
    environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    shortened = {name: value for name, value in SHORT_TIMEOUTS.items() if name not in environ}
    environ.update(shortened)
    return ["%s=%s" % item for item in shortened.items()]


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
        """Return the current end of the log, for ``since``."""
        with self._lock:
            self._read()
            return self._count

    def since(self, mark: int, device: int) -> List[NcclLine]:
        """Return the lines of a device since a mark."""
        with self._lock:
            self._read()
            found = []
            for number, line in reversed(self._lines.get(device, [])):
                if number <= mark:
                    break
                found.append(line)
            return found[::-1]

    def warned(self, mark: int) -> List[NcclLine]:
        """Return the warnings since a mark, of all devices: NCCL prints any or none before it knows the device."""
        with self._lock:
            self._read()
            every = sorted(item for kept in self._lines.values() for item in kept if item[0] > mark)
            return [line for _, line in every if line.level in ("WARN", "ERROR")]

    def nics(self) -> Nics:
        """Return the interfaces that NCCL reported to use."""
        with self._lock:
            self._read()
            return dict(self._nics)


def notable(lines: List[NcclLine], most: int = 64) -> List[NcclLine]:
    """Return warnings and connections among lines, at most the first ``most``."""
    found = [line for line in lines if line.level != "INFO" or log_lines.parse_channel(line.text) is not None]
    return found[:most]


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
