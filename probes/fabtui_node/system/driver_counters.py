"""Counters that the driver of an interface keeps, as ``ethtool -S`` prints them, from the kernel without a process."""

from __future__ import annotations

import ctypes
import fcntl
import socket
import struct
from typing import Callable, Dict, List, Optional, Tuple

_SIOCETHTOOL = 0x8946
_GSTRINGS, _GSTATS, _GSSET_INFO = 0x1B, 0x1D, 0x37
#: Number of the set of names of statistics, and length of a name.
_SET, _NAME = 1, 32
_MOST = 16384
#: Counters by which the driver may have more when it answers than when it was asked how many it has.
_SPARE = 1024


class DriverCounters:
    """Reads some counters of one interface; their names are asked for once.

    Args:
        name: The interface.
        wanted: Returns True for the names to read.
    """

    def __init__(self, name: str, wanted: Callable[[str], bool]) -> None:
        self._name = name
        self._wanted = wanted
        self._known: Optional[Tuple[int, List[Tuple[int, str]]]] = None

    def read(self) -> Dict[str, int]:
        """Return the counters by name; none if the driver has none. Blocks while the driver does (raises OSError)."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
            number = self._number(asker)
            if self._known is None or self._known[0] != number:
                # The number changes with that of the queues, and with it the places of all counters.
                self._known = number, self._names(asker, number)
            places = self._known[1]
            if not places:
                return {}
            values = ctypes.create_string_buffer(8 + 8 * (number + _SPARE))
            struct.pack_into("II", values, 0, _GSTATS, number)
            self._ask(asker, values)
            return {name: struct.unpack_from("Q", values, 8 + 8 * place)[0] for place, name in places}

    def _number(self, asker: socket.socket) -> int:
        asked = ctypes.create_string_buffer(struct.pack("IIQI", _GSSET_INFO, 0, 1 << _SET, 0), 32)
        self._ask(asker, asked)
        known, number = struct.unpack_from("QI", asked, 8)
        return min(number, _MOST) if known else 0

    def _names(self, asker: socket.socket, number: int) -> List[Tuple[int, str]]:
        if not number:
            return []
        text = ctypes.create_string_buffer(12 + _NAME * (number + _SPARE))
        struct.pack_into("III", text, 0, _GSTRINGS, _SET, number)
        self._ask(asker, text)
        found = []
        for place in range(min(number, struct.unpack_from("I", text, 8)[0])):
            raw = text.raw[12 + _NAME * place : 12 + _NAME * (place + 1)]
            name = raw.split(b"\0")[0].decode("ascii", "replace").strip()
            if self._wanted(name):
                found.append((place, name))
        return found

    def _ask(self, asker: socket.socket, data: ctypes.Array[ctypes.c_char]) -> None:
        request = struct.pack("16sP16x", self._name.encode()[:15], ctypes.addressof(data))
        fcntl.ioctl(asker.fileno(), _SIOCETHTOOL, request)
