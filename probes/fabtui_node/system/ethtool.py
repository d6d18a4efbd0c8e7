"""Settings and counters of a network interface's driver, by the ioctl that ethtool uses (``linux/ethtool.h``)."""

from __future__ import annotations

import array
import contextlib
import fcntl
import socket
import struct
from typing import Dict, List, Optional, Tuple

_SIOCETHTOOL = 0x8946
_DRIVER, _SET_INFO, _STRINGS, _STATISTICS, _FEATURES = 0x03, 0x37, 0x1B, 0x1D, 0x3A
#: Sets of names.
_NAMES_OF_STATISTICS, _NAMES_OF_FEATURES = 1, 4
#: Structures of 32-bit words: the command, and the number of words.
WORDS = {"ring": (0x10, 8), "channels": (0x3C, 8), "coalesce": (0x0E, 22), "pause": (0x12, 3)}
_MOST = 20000
_NAME_LENGTH = 32
_SPARE = 1024 * _NAME_LENGTH


class Ethtool(contextlib.AbstractContextManager):  # type: ignore[type-arg]
    """An interface whose driver is asked; what it does not have is empty or None."""

    def __init__(self, name: str) -> None:
        self._name = name.encode()[:15]
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def driver(self) -> Dict[str, str]:
        """Return ``driver``, ``version`` and ``firmware``."""
        data = self._call(struct.pack("=I", _DRIVER) + bytes(192))
        places = (("driver", 4), ("version", 36), ("firmware", 68))
        return {what: _text(data[start : start + _NAME_LENGTH]) for what, start in places} if data else {}

    def words(self, what: str) -> Optional[Tuple[int, ...]]:
        """Return the values of one of `WORDS`."""
        command, count = WORDS[what]
        data = self._call(struct.pack("=I", command) + bytes(4 * count))
        return struct.unpack_from("=%dI" % count, data, 4) if data else None

    def features(self) -> Dict[str, bool]:
        """Return whether each offload feature is on."""
        names = self.names(_NAMES_OF_FEATURES)
        blocks = (len(names) + 31) // 32
        data = self._call(struct.pack("=II", _FEATURES, blocks) + bytes(16 * blocks)) if names else None
        if not data:
            return {}
        # A block has words for: available, requested, active, never changed.
        active = [struct.unpack_from("=I", data, 16 + 16 * block)[0] for block in range(blocks)]
        return {name: bool(active[at // 32] >> at % 32 & 1) for at, name in enumerate(names) if name}

    def values(self, count: int) -> Tuple[int, ...]:
        """Return the driver's own counters, in the order of their names; ``count``: how many there are."""
        data = self._call(struct.pack("=II", _STATISTICS, count) + bytes(8 * count)) if count else None
        return struct.unpack_from("=%dQ" % count, data, 8) if data else ()

    def count(self, of: int = _NAMES_OF_STATISTICS) -> int:
        """Return the number of names of a set, 0 if there is none."""
        data = self._call(struct.pack("=IIQI", _SET_INFO, 0, 1 << of, 0))
        known = data and struct.unpack_from("=Q", data, 8)[0]
        count: int = struct.unpack_from("=I", data, 16)[0] if data and known else 0
        return count if count <= _MOST else 0

    def names(self, of: int = _NAMES_OF_STATISTICS) -> List[str]:
        """Return the names of a set in their order."""
        if not (count := self.count(of)):
            return []
        data = self._call(struct.pack("=III", _STRINGS, of, count) + bytes(_NAME_LENGTH * count))
        starts = range(12, 12 + _NAME_LENGTH * count, _NAME_LENGTH)
        return [_text(data[start : start + _NAME_LENGTH]) for start in starts] if data else []

    def _call(self, request: bytes) -> Optional[bytes]:
        # A driver may have more counters when it answers than when it was asked how many: the kernel writes them all.
        buffer = array.array("B", request + bytes(_SPARE))
        try:
            fcntl.ioctl(self._socket, _SIOCETHTOOL, struct.pack("16sPQ", self._name, buffer.buffer_info()[0], 0))
        except OSError:
            return None
        return buffer.tobytes()


def _text(data: bytes) -> str:
    return data.split(b"\0")[0].decode("utf-8", "replace")
