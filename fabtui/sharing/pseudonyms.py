"""Pseudonyms for names and addresses: keyed hashes that keep what a diagnosis needs."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import string
from collections.abc import Callable

#: Without vowels, no hash is a word.
_LETTERS = "bcdfghjklmnpqrstvwxz"
#: A run of letters keeps its length up to this, and is one longer after this number of tries.
_LONGEST_RUN, _TRIES = 8, 60
_PIECES = re.compile(r"[A-Za-z]+|[0-9]+|\[[0-9,-]+\]|[^A-Za-z0-9]")
#: Farthest that numbers in names are moved.
_FARTHEST = 40
_KEPT_NETWORKS = tuple(
    ipaddress.ip_network(text) for text in ("0.0.0.0/8", "127.0.0.0/8", "224.0.0.0/3", "::/127", "ff00::/8")
)
#: Prefixes that show the kind of an address: private, link-local, of a provider, an IPv4 address within IPv6.
_KINDS = tuple(
    ipaddress.ip_network(text)
    for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "100.64.0.0/10", "fd00::/8")
)
_LINK_LOCAL = ipaddress.ip_network("fe80::/64")
#: Bits of a MAC address and of a GUID that name the vendor.
_VENDOR_BITS = 24


class Pseudonyms:
    """Pseudonyms of one file; the same key gives the same ones.

    Numbers in names of nodes are all moved by the same distance, so that node sets fold and the order remains.
    Addresses that share a prefix do so afterwards, and GUIDs and MAC addresses keep their vendor.

    Args:
        key: Secret without which nobody can try out names.
        taken: Runs of letters in the real names: no pseudonym is one of them.
    """

    def __init__(self, key: bytes, taken: set[str]) -> None:
        self._key = key
        self._taken = taken
        self._words: dict[str, str] = {}
        self._used: dict[tuple[str, str], str] = {}
        self._flips: dict[tuple[int, int, int], int] = {}

    def _digest(self, *parts: object) -> bytes:
        return hmac.new(self._key, "\0".join(map(str, parts)).encode(), hashlib.sha256).digest()

    def _distinct(self, kind: str, real: str, make: Callable[[bytes], str]) -> str:
        """Return the first pseudonym of a name that no other name of its kind has."""
        for attempt in range(1 << 20):
            found = make(self._digest(kind, real, attempt))
            if found != real and self._used.setdefault((kind, found), real) == real:
                return found
        raise AssertionError("no pseudonym is left")

    def host(self, name: str) -> str:
        """Return the pseudonym of a host, label by label; ``[060-067]`` in it is a range of numbers."""
        return ".".join(map(self._label, name.split(".")))

    def _label(self, label: str) -> str:
        parts, shape = [], ""
        for piece in _PIECES.findall(label):
            if piece.isalpha():
                parts.append(self.word(piece.lower()))
                shape += piece.lower()
            elif piece.isdigit() or piece.startswith("["):
                distance = 1 + int.from_bytes(self._digest("number", shape)[:8], "big") % _FARTHEST
                parts.append(_moved(piece, distance))
                shape += "#"
            else:
                parts.append(piece)
                shape += piece
        return "".join(parts)

    def word(self, run: str) -> str:
        """Return the pseudonym of a run of letters, as long as it where that is possible."""
        if run not in self._words:
            used = set(self._words.values()) | self._taken
            for attempt in range(1 << 20):
                length = min(len(run), _LONGEST_RUN) + attempt // _TRIES
                digest = self._digest("word", run, attempt)
                found = "".join(_LETTERS[byte % len(_LETTERS)] for byte in digest[:length])
                if found not in used:
                    self._words[run] = found
                    break
        return self._words[run]

    def name(self, kind: str, real: str) -> str:
        """Return the pseudonym of a user, a job or another name: its kind and a hash."""
        return self._distinct(kind, real.lower(), lambda digest: f"{kind}-{digest.hex()[:6]}")

    def serial(self, real: str) -> str:
        """Return the pseudonym of a serial number: digits for digits, capitals for letters."""

        def make(digest: bytes) -> str:
            stream = digest + hashlib.sha256(digest).digest()
            return "".join(
                str(byte % 10) if char.isdigit() else string.ascii_uppercase[byte % 26] if char.isalpha() else char
                for char, byte in zip(real, stream * (1 + len(real) // 64), strict=False)
            )

        return self._distinct("serial", real, make)

    def digits(self, kind: str, real: str) -> str:
        """Return as many hexadecimal digits for those of a UUID or another hash; case and dashes stay."""
        found = iter(self._distinct(kind, real.lower(), lambda digest: digest.hex()))
        text = "".join(next(found) if char.isalnum() else char for char in real)
        return text.upper() if any(char.isupper() for char in real) else text

    def guid(self, value: int) -> int:
        """Return the pseudonym of a GUID (64 bits), with the same vendor."""
        return value if value in (0, (1 << 64) - 1) else self._of_vendor("guid", value, 64)

    def mac(self, value: int) -> int:
        """Return the pseudonym of a MAC address (48 bits), with the same vendor."""
        return value if value in (0, (1 << 48) - 1) else self._of_vendor("mac", value, 48)

    def _of_vendor(self, kind: str, value: int, bits: int) -> int:
        rest = bits - _VENDOR_BITS
        vendor = value >> rest << rest
        made = self._distinct(
            kind, f"{value:x}", lambda digest: f"{vendor | int.from_bytes(digest[:8], 'big') & ((1 << rest) - 1):x}"
        )
        return int(made, 16)

    def address(self, text: str) -> str:
        """Return the pseudonym of an IP address in the notation of the text; of a network if ``/bits`` follow."""
        plain, _, length = text.partition("/")
        real = ipaddress.ip_address(plain)
        bits = real.max_prefixlen
        host = bits - int(length) if length and int(length) <= bits else 0
        is_network = host and not int(real) & ((1 << host) - 1)
        made = self._mapped(real)
        if is_network:
            made = type(real)(int(made) >> host << host)
        written = str(made)
        if isinstance(made, ipaddress.IPv6Address) and len(plain) == len(real.exploded) and "::" not in plain:
            written = made.exploded
            if "." in plain:
                written = str(made)
        written = written.upper() if any(char in "ABCDEF" for char in plain) else written
        return f"{written}/{length}" if length else written

    def _mapped(
        self, real: ipaddress.IPv4Address | ipaddress.IPv6Address
    ) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
        if any(real in network for network in _KEPT_NETWORKS):
            return real
        if isinstance(real, ipaddress.IPv4Address):
            return ipaddress.IPv4Address(self._bits(int(real), 32, self._kept(real)))
        if (inner := real.ipv4_mapped) is not None:
            return ipaddress.IPv6Address((0xFFFF << 32) | int(self._mapped(inner)))
        value = int(real)
        # The second half of a GID is the GUID of its port.
        low = self.guid(value & ((1 << 64) - 1))
        prefix = value >> 64
        if real not in _LINK_LOCAL:
            prefix = self._bits(prefix, 64, self._kept(real))
        return ipaddress.IPv6Address(prefix << 64 | low)

    @staticmethod
    def _kept(real: ipaddress.IPv4Address | ipaddress.IPv6Address) -> int:
        """Return how many first bits of an address stay."""
        return next((network.prefixlen for network in _KINDS if real in network), 3)

    def _bits(self, value: int, bits: int, kept: int) -> int:
        """Flip each bit after those that are kept by a hash of the bits before it: common prefixes remain common."""
        made = value >> (bits - kept)
        for at in range(kept, bits):
            place = (bits, at, value >> (bits - at))
            if place not in self._flips:
                self._flips[place] = self._digest("bit", *place)[0] & 1
            made = made << 1 | (value >> (bits - 1 - at) & 1) ^ self._flips[place]
        return made


def _moved(numbers: str, distance: int) -> str:
    """Return a number, or a set of numbers in brackets, moved by a distance; their widths stay where possible."""
    return re.sub("[0-9]+", lambda found: str(int(found[0]) + distance).zfill(len(found[0])), numbers)
