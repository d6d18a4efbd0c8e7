"""Texts of a session with a pseudonym for every name, address and serial number."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import string
from collections import Counter
from collections.abc import Callable
from dataclasses import fields
from typing import Any, NamedTuple, get_args

from fabtui.diagnosis.finding import Severity
from fabtui.export.formats import FORMATS, address
from fabtui.model.endpoints import Endpoint
from fabtui.model.events import EVENTS, NodeState
from fabtui.model.layers import COLLECTIVES, all_layers
from fabtui.model.measurement import UNITS, Measurement, Verdict
from fabtui.sharing import secret
from fabtui.sharing.identities import HOME, Identities, is_serial
from fabtui.transport.link import Backend
from fabtui_node import registry

#: Without vowels, no hash is a word.
_LETTERS = "bcdfghjklmnpqrstvwxz"
#: Pseudonyms keep a run of letters at its length up to this; after this number of collisions it grows by one letter.
_LONGEST_RUN, _TRIES = 8, 60
_PIECES = re.compile(r"[A-Za-z]+|[0-9]+|\[[0-9,-]+\]|[^A-Za-z0-9]")
#: Farthest that numbers in names are moved.
_FARTHEST = 40
_KEPT_NETWORKS = (*map(ipaddress.ip_network, ("0.0.0.0/8", "127.0.0.0/8", "224.0.0.0/3", "::/127", "ff00::/8")),)
#: Networks for documentation (RFC 5737).
_DOCUMENTED = ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24")
#: Prefixes that show the kind of an address: private, link-local, of a provider, for benchmarks, for documentation.
_KINDS = tuple(
    ipaddress.ip_network(text)
    for text in (
        *("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "100.64.0.0/10", "fd00::/8"),
        *("198.18.0.0/15", *_DOCUMENTED, "2001:db8::/32"),
    )
)
#: First 24 bits of the pseudonyms of public addresses, which are nobody's: of the networks for documentation. Further
#: networks of a file get one of those for benchmarks (RFC 2544); when these are used up, private ones follow.
_NOBODYS = (
    tuple(int(ipaddress.IPv4Network(text).network_address) >> 8 for text in _DOCUMENTED),
    tuple((198 << 16 | 18 << 8) + at for at in range(512)),
)
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_PRIVATE = ipaddress.IPv4Network("10.0.0.0/8")
_DOCUMENTATION = ipaddress.IPv6Network("2001:db8::/32")
_LINK_LOCAL = ipaddress.ip_network("fe80::/64")
#: Bits of a MAC address and of a GUID that name the vendor.
_VENDOR_BITS = 24


class Pseudonyms:
    """Pseudonyms of one file; the same key gives the same ones.

    Numbers in names of nodes are all moved by the same distance, so that node sets fold and the order remains.
    Addresses that share a prefix do so afterwards (public ones of IPv4: 24 bits or more), and GUIDs and MAC addresses
    keep their vendor.

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
        #: First 24 bits of public addresses, and of their pseudonyms.
        self._networks: dict[int, int] = {}

    def _digest(self, *parts: object) -> bytes:
        return hmac.new(self._key, "\0".join(map(str, parts)).encode(), hashlib.sha256).digest()

    def _distinct(self, kind: str, real: str, make: Callable[[bytes], str]) -> str:
        for attempt in range(1 << 20):
            pseudonym = make(self._digest(kind, real, attempt))
            if pseudonym != real and self._used.setdefault((kind, pseudonym), real) == real:
                return pseudonym
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
                letters = "".join(_LETTERS[byte % len(_LETTERS)] for byte in digest[:length])
                if letters not in used:
                    self._words[run] = letters
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
        hexadecimal = iter(self._distinct(kind, real.lower(), lambda digest: digest.hex()))
        text = "".join(next(hexadecimal) if char.isalnum() else char for char in real)
        return text.upper() if any(char.isupper() for char in real) else text

    def guid(self, value: int) -> int:
        return value if value in (0, (1 << 64) - 1) else self._of_vendor("guid", value, 64)

    def mac(self, value: int) -> int:
        return value if value in (0, (1 << 48) - 1) else self._of_vendor("mac", value, 48)

    def _of_vendor(self, kind: str, value: int, bits: int) -> int:
        low = (1 << bits - _VENDOR_BITS) - 1
        made = self._distinct(
            kind, f"{value:x}", lambda digest: f"{value & ~low | int.from_bytes(digest[:8], 'big') & low:x}"
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

    def _mapped(self, real: _Address) -> _Address:
        if any(real in network for network in _KEPT_NETWORKS):
            return real
        if isinstance(real, ipaddress.IPv4Address):
            kept = self._kept(real)
            if kept == 24:
                # A network for documentation stays one.
                self._networks.setdefault(int(real) >> 8, int(real) >> 8)
            made = self._public(int(real)) if kept is None else self._bits(int(real), 32, kept)
            return ipaddress.IPv4Address(self._apart(real, made))
        if (inner := real.ipv4_mapped) is not None:
            return ipaddress.IPv6Address((0xFFFF << 32) | int(self._mapped(inner)))
        value = int(real)
        # The second half of a GID is the GUID of its port.
        low = self.guid(value & ((1 << 64) - 1))
        prefix = value >> 64
        if real not in _LINK_LOCAL:
            kept = self._kept(real)
            prefix = self._bits(prefix, 64, _DOCUMENTATION.prefixlen if kept is None else kept)
            if kept is None:
                prefix = int(_DOCUMENTATION.network_address) >> 64 | prefix & 0xFFFFFFFF
        return ipaddress.IPv6Address(self._apart(real, prefix << 64 | low))

    def _public(self, real: int) -> int:
        """Return the pseudonym of a public IPv4 address: those that share 24 bits or more do so afterwards."""
        network = real >> 8
        if network not in self._networks:
            first = int.from_bytes(self._digest("network", network)[:4], "big")
            turned = (those[(first + at) % len(those)] for those in _NOBODYS for at in range(len(those)))
            private = int(_PRIVATE.network_address) | self._bits(real, 32, 8) & int(_PRIVATE.hostmask)
            taken = set(self._networks.values())
            self._networks[network] = next((one for one in turned if one not in taken), private >> 8)
        return self._networks[network] << 8 | self._bits(real, 32, 24) & 0xFF

    def _apart(self, real: _Address, made: int) -> int:
        """Return a pseudonym, or one beside it if that of a private and of a public address are the same by chance."""
        step = 1 if real.version == 4 else 1 << 64
        while self._used.setdefault((f"ipv{real.version}", f"{made:x}"), str(real)) != str(real):
            made += step
        return made

    @staticmethod
    def _kept(real: _Address) -> int | None:
        """Return how many first bits of an address stay; None for a public one, of which none does."""
        return next((network.prefixlen for network in _KINDS if real in network), None)

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


#: What is replaced, by the names of the groups of the pattern and the kinds of names, in the order of the preview.
KINDS = {
    "host": "nodes and hosts",
    "user": "users",
    "job": "jobs, partitions",
    "ipv4": "IPv4 addresses",
    "ipv6": "IPv6 addresses, GIDs",
    "mac": "MAC addresses",
    "guid": "GUIDs",
    "uuid": "UUIDs, machine ids",
    "serial": "serial numbers",
    "path": "paths in home folders",
    "secret": "passwords, tokens, keys",
    "word": "words of --also",
}
#: Fields with values from fixed lists. Probes of others have such fields too, so a value stays only if it is in a list.
_FIXED = frozenset(
    (
        *("kind", "state", "verdict", "layer", "unit", "level", "probe", "backend", "version", "software", "format"),
        "$schema",
        *("engine", "mode", "host_key_policy", "rule", "severity", "confidence", "layers", "probes", "collectives"),
        "class",
    )
)
_WORDS = frozenset(
    (
        *(*Verdict, *NodeState, *Severity, *UNITS, *EVENTS, *all_layers(), *registry.PROBES, *get_args(Backend)),
        *(*COLLECTIVES, *map(address, FORMATS)),
        *("info", "notice", "warning", "error", "auto", "config", "nccl", "torch", "gloo"),
        *("gpu", "cpu", "none", "ethernet", "infiniband", "virtual"),
        *("loopback", "up", "down", "unknown", "off", "active", "completed", "R", "S", "T", "D", "Z", "I", ""),
    )
)
#: Rules, versions (four numbers would be an address), and what wrote a file.
_FIXED_TEXT = re.compile(
    r"(?:FT|J|E)[0-9]{2,3}|[0-9]{1,5}(?:\.[0-9]{1,5}){0,2}(?:\.dev[0-9]{1,5})?"
    r"|fabtui(?: [0-9]{1,5}(?:\.[0-9]{1,5}){0,2})?"
)
#: Keys that are names of fields; a node may have the same name.
_FIELDS = frozenset(
    {
        *(name for event in EVENTS.values() for name in event.__struct_fields__),
        *(one.name for kind in (Endpoint, Measurement) for one in fields(kind)),
        *("host", "user", "name", "switch", "leaf"),
    }
)
#: A name in an address of the web may follow a byte such as ``%3D``, which is not part of it.
_BYTE = "[0-9A-Fa-f][0-9A-Fa-f]"
_BEFORE = rf"(?:(?<![A-Za-z0-9])(?!(?<=%){_BYTE})|(?<=%{_BYTE})|(?<=\\[nrt]))"
_AFTER = "(?![A-Za-z0-9])"
#: Before groups of hexadecimal digits with colons there may be a word with one: ``mac:50:6b:...``, ``guid:506b:...``.
_BEFORE_GROUPS = "(?:(?<![0-9A-Za-z:])|" + "|".join(f"(?<=[G-Zg-z]{'[0-9A-Za-z]' * more}:)" for more in range(4)) + ")"
_ESCAPES = ("\\n", "\\r", "\\t")
_NUMBER = r"(?:[0-9]+|\[[0-9,-]+\])"
_REST = r"(?:/[^\s\"'<>|,;()\[\]{}=:&*`]*)?"
#: Most specific first: a path may hold an address, and an address looks like the end of a longer one.
_PATTERNS = (
    *secret.PATTERNS,
    r"(?P<mail>(?<![\w.+-])[A-Za-z0-9_.+-]{1,64}(?=@(?:[A-Za-z0-9-]{1,63}\.){1,6}[A-Za-z]{2,24}\b))",
    rf"(?P<dotted>{_BEFORE}[0-9A-Fa-f]{{4}}\.[0-9A-Fa-f]{{4}}\.[0-9A-Fa-f]{{4}}{_AFTER})",
    rf"(?P<path>{HOME}{_REST}|(?<![\w~])~{_REST.removesuffix('?')})",
    rf"(?P<uuid>{_BEFORE}(?:[0-9A-Fa-f]{{8}}(?:-[0-9A-Fa-f]{{4}}){{3}}-[0-9A-Fa-f]{{12}}|[0-9A-Fa-f]{{32}}){_AFTER}"
    r"|(?<=SHA256:)[A-Za-z0-9+/]{43})",
    rf"(?P<octets>{_BEFORE_GROUPS}(?:[0-9A-Fa-f]{{2}}:){{5,19}}[0-9A-Fa-f]{{2}}(?![0-9A-Za-z]|:[0-9A-Fa-f]))",
    rf"(?P<dashed>{_BEFORE}(?:[0-9A-Fa-f]{{2}}-){{5}}[0-9A-Fa-f]{{2}}{_AFTER})",
    rf"(?P<underscored>{_BEFORE}(?:[0-9A-Fa-f]{{2}}_){{5}}[0-9A-Fa-f]{{2}}{_AFTER})",
    # Names of interfaces by systemd: enx, wlx and others, then the MAC address.
    rf"(?P<interface>(?<=\b[ewis][nlwb]x)[0-9a-f]{{12}}{_AFTER})",
    # Names of hosts with their address: ip-10-1-2-3, node_10_1_2_3.
    r"(?P<joined>(?<![0-9.])[0-9]{1,3}(?:(?:-[0-9]{1,3}){3}|(?:_[0-9]{1,3}){3})(?![0-9_-]))",
    rf"(?P<quads>{_BEFORE_GROUPS}[0-9A-Fa-f]{{4}}(?::[0-9A-Fa-f]{{4}}){{3}}(?![0-9A-Za-z]|:[0-9A-Fa-f:]))",
    r"(?P<ipv6>(?<![0-9A-Za-z])(?:[0-9A-Fa-f]{0,4}:){2,7}(?:[0-9]{1,3}(?:\.[0-9]{1,3}){3}|[0-9A-Fa-f]{1,4}|(?<=::))"
    r"(?:/[0-9]{1,3})?(?![0-9A-Za-z]|:[0-9A-Fa-f]))",
    rf"(?P<ipv4>{_BEFORE}(?<![0-9]\.)[0-9]{{1,3}}(?:\.[0-9]{{1,3}}){{3}}(?:/[0-9]{{1,2}})?(?!\.[0-9]){_AFTER})",
    rf"(?P<guid>{_BEFORE}(?:0[xX][0-9A-Fa-f]{{8,16}}|[0-9A-Fa-f]{{8,16}}){_AFTER})",
)
#: What may be a name or a secret and was not recognised: paths outside of system folders, domains, hashes, long words
#: with digits and both cases of letters.
_UNKNOWN = re.compile(
    r"(?<![\w./~])/(?!(?:usr|etc|proc|sys|dev|lib|lib64|bin|sbin|tmp|run|var|opt/(?:nvidia|mellanox)|home)\b)"
    r"[A-Za-z0-9_.-]+/[\w./-]+"
    r"|(?<![\w.-])(?:[A-Za-z0-9-]{1,63}\.){1,6}(?:com|org|net|edu|gov|mil|int|local|lan|internal|intra|corp|cluster|hpc)\b"
    rf"|{_BEFORE}(?=[0-9]*[A-Fa-f])(?=[A-Fa-f]*[0-9])[0-9A-Fa-f]{{12,}}{_AFTER}"
    r"|(?<![\w+/=-])(?!_Z)(?=[A-Z0-9+/_-]{0,200}[a-z])(?=[a-z0-9+/_-]{0,200}[A-Z])(?=[A-Za-z+/_-]{0,200}[0-9])"
    r"[A-Za-z0-9+_-][A-Za-z0-9+/_-]{23,200}(?![\w+/-])"
)
#: Groups that are the value of a name, which stays.
_VALUES = ("named", "cookie")
_KNOWN_FILES = re.compile(r"python[0-9.]*|site-packages|lib\w+\.so[0-9.]*")
_KNOWN_PLACES = ("/.ssh/config", "/.ssh/known_hosts")
#: Characters of a text in which unknown names are looked for.
_PROBED = 20_000
#: Most texts come again and again: keys, names of endpoints, methods.
_SHORT, _REMEMBERED = 200, 100_000


class _Rewritten(NamedTuple):
    text: str
    names: list[tuple[str, str]]
    unknown: list[str]


class Rewriter:
    """Replaces the names in texts and JSON values, and counts what it replaced."""

    def __init__(self, identities: Identities, key: bytes) -> None:
        self._identities = identities
        self._pseudonyms = Pseudonyms(key, identities.runs())
        self.pattern = re.compile("|".join((*_PATTERNS, *_names(identities))))  #: Everything that may be replaced.
        #: Number of places by kind and by real name.
        self.replaced: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
        self.made: dict[str, dict[str, str]] = {kind: {} for kind in KINDS}  #: Pseudonyms by kind and by real name.
        self.unknown: Counter[str] = Counter()  #: What may be a name and was left as it is, with the number of places.
        self._texts: dict[str, _Rewritten] = {}
        glued = {*identities.hosts, *identities.names}
        #: Names that are looked for within words, too; shorter ones are parts of any word.
        self._glued = {name for name in glued if name.isalnum() and len(name) >= (5 if name.isalpha() else 4)}
        self._sizes = sorted({len(name) for name in self._glued}, reverse=True)

    def value(self, value: Any, field: str = "") -> Any:
        if isinstance(value, dict):
            # A variable of a container: {"name": "HF_TOKEN", "value": "x"}.
            named = str(value.get("name", "")) if "value" in value else ""
            return {
                key if key in _FIELDS else self.text(key): self.value(inner, named if key == "value" and named else key)
                for key, inner in value.items()
            }
        if isinstance(value, list):
            words = enumerate(value)
            return [
                self._secret(one) if secret.is_secret_word(value, at) else self.value(one, field) for at, one in words
            ]
        if isinstance(value, str) and value and secret.is_secret_field(field):
            return self._secret(value)
        if isinstance(value, str):
            fixed = field in _FIXED and (value in _WORDS or _FIXED_TEXT.fullmatch(value))
            return value if fixed else self.text(value)
        if isinstance(value, int) and not isinstance(value, bool) and is_serial(field):
            return int(self.text(str(value)))
        return value

    def _secret(self, text: str) -> str:
        made = self.made["secret"].setdefault(text, self._pseudonyms.name("secret", text))
        self.replaced["secret"][text] += 1
        return made

    def text(self, text: str) -> str:
        known = self._texts.get(text)
        if known is None:
            known = self._rewritten(text)
            if len(text) <= _SHORT and len(self._texts) < _REMEMBERED:
                self._texts[text] = known
        for kind, real in known.names:
            self.replaced[kind][real] += 1
        self.unknown.update(known.unknown)
        return known.text

    def _rewritten(self, text: str) -> _Rewritten:
        names: list[tuple[str, str]] = []
        pieces, rest, end, at = [], [], 0, 0
        while (found := self.pattern.search(text, at)) is not None:
            kind, made = self._pseudonym(found)
            at = found.end()
            if not kind:
                if text[found.start() - 1 : found.start() + 1] in _ESCAPES:
                    # What follows a written line break is not part of the word that begins with its letter.
                    at = found.start() + 1
                continue
            start = found.start(found.lastgroup or 0) if found.lastgroup in _VALUES else found.start()
            if made != text[start:at]:
                names.append((kind, text[start:at]))
                self.made[kind].setdefault(text[start:at], made)
            pieces.append(text[end : found.start()])
            if start > found.start():
                # The name of a secret may have names in it.
                before = self._rewritten(text[found.start() : start])
                names += before.names
                pieces.append(before.text)
            pieces.append(made)
            rest.append(text[end : found.start()])
            end = found.end()
        rest.append(text[end:])
        unknown = [found[0] for found in _UNKNOWN.finditer(" ".join(rest)[:_PROBED])]
        return _Rewritten("".join((*pieces, text[end:])), names, unknown)

    def _pseudonym(self, found: re.Match[str]) -> tuple[str, str]:
        """Return the kind of what was found and its pseudonym; no kind for what is not a name after all."""
        group, text = found.lastgroup or "", found[0]
        if found["path"] is not None:
            return "path", self._path(found)
        match group:
            case "uuid":
                return "uuid", self._pseudonyms.digits("uuid", text)
            case "secret" | "named" | "cookie":
                return "secret", self._pseudonyms.name("secret", found[group])
            case "mail":
                return "user", self._pseudonyms.name("user", text)
            case "octets" | "dashed" | "underscored" | "quads" | "dotted":
                return self._of_groups(text, group)
            case "interface":
                return "mac", f"{self._pseudonyms.mac(int(text, 16)):012x}"
            case "joined":
                return self._joined(text)
            case "ipv4" | "ipv6":
                try:
                    return group, self._pseudonyms.address(text)
                except ValueError:
                    return "", text
            case "guid":
                return self._hexadecimal(text)
            case "host":
                known = text.lower() in self._identities.hosts or "[" in text
                # Others of the same shape are nodes that no field names; short ones are any word.
                if not known and not (len(text) > 3 and any(char.isdigit() for char in text)):
                    return "", text
                return "host", self._pseudonyms.host(text)
        return self._name(text)

    def _name(self, text: str) -> tuple[str, str]:
        kind = self._identities.names.get(text.lower(), "")
        if kind == "serial":
            return kind, self._pseudonyms.serial(text.upper())
        if kind:
            return kind, self._pseudonyms.name("name" if kind == "word" else kind, text)
        return self._with_glued(text)

    def _with_glued(self, text: str) -> tuple[str, str]:
        """Replace names within a word, such as ``n060ib0`` and ``myAliceDir``; no kind if there are none."""
        kind, made, at, end, lower = "", "", 0, 0, text.lower()
        while self._sizes and at <= len(text) - self._sizes[-1]:
            for size in self._sizes:
                name = lower[at : at + size]
                if name in self._glued and _stands_out(name, text, at):
                    is_host = name in self._identities.hosts
                    kind, pseudonym = ("host", self._pseudonyms.host(name)) if is_host else self._name(name)
                    made += text[end:at] + pseudonym
                    at = end = at + size
                    break
            else:
                at += 1
        return kind, made + text[end:]

    def _path(self, found: re.Match[str]) -> str:
        home, owner = found[0], found["owner"]
        rest = home[1:]
        if owner is not None:
            start = f"{home[: found.start('owner') - found.start()]}"
            rest = home[len(start) + len(owner) :]
            home = start + (owner if owner == "root" else self._pseudonyms.name("user", owner))
        else:
            home = "~"
        if not rest.strip("/") or rest in _KNOWN_PLACES:
            return home + rest
        folder, _, last = rest.rpartition("/")
        tail = f"/{last}" if _KNOWN_FILES.fullmatch(last) else ""
        return f"{home}/{self._pseudonyms.name('path', folder if tail else rest)}{tail}"

    def _of_groups(self, text: str, group: str) -> tuple[str, str]:
        """Return a MAC address, a GUID, or the hardware address of IPoIB (its last 64 bits are a GUID)."""
        mark = {"dashed": "-", "dotted": ".", "underscored": "_"}.get(group, ":")
        plain = text.replace(mark, "")
        width = len(text.split(mark)[0])
        kind = "mac" if len(plain) == 12 else "guid"
        if len(plain) not in (12, 16, 40):
            return "uuid", self._pseudonyms.digits("uuid", text)
        low = plain[-16:] if kind == "guid" else plain
        made = (self._pseudonyms.mac if kind == "mac" else self._pseudonyms.guid)(int(low, 16))
        digits = plain[: len(plain) - len(low)] + f"{made:0{len(low)}x}"
        written = mark.join(digits[at : at + width] for at in range(0, len(digits), width))
        return kind, written.upper() if text != text.lower() else written

    def _joined(self, text: str) -> tuple[str, str]:
        """Return a private address whose numbers a name of a host has with other marks; other numbers stay."""
        mark = "-" if "-" in text else "_"
        try:
            real = ipaddress.IPv4Address(text.replace(mark, "."))
        except ValueError:
            return "", text
        if not real.is_private or real.is_unspecified or real.is_loopback or int(real) < 1 << 24:
            return "", text
        return "ipv4", self._pseudonyms.address(str(real)).replace(".", mark)

    def _hexadecimal(self, text: str) -> tuple[str, str]:
        """Return a GUID or a MAC address written as one number; decimal numbers and unknown short ones stay."""
        marked = text[:2] in ("0x", "0X")
        digits = text[2:] if marked else text
        if text.lower() in self._identities.hosts:
            return "host", self._pseudonyms.host(text)
        if text.lower() in self._identities.names:
            return self._name(text)
        value = int(digits, 16)
        if len(digits) == 8 and value in self._identities.addresses:
            address = int(ipaddress.ip_address(self._pseudonyms.address(str(ipaddress.IPv4Address(value)))))
            return "ipv4", text[: 2 * marked] + f"{address:08{'x' if digits == digits.lower() else 'X'}}"
        known = value in self._identities.guids
        is_plain = len(digits) < 16 or digits.isdigit() or digits.isalpha()
        if not known and (len(digits) == 8 or (not marked and is_plain)):
            return "", text
        is_mac = known and len(digits) <= 12 and value < 1 << 48
        made = self._pseudonyms.mac(value) if is_mac else self._pseudonyms.guid(value)
        written = f"{made:0{len(digits)}{'x' if digits == digits.lower() else 'X'}}"
        return "mac" if is_mac else "guid", text[: 2 * marked] + written


def _names(identities: Identities) -> list[str]:
    shapes = {_shape(name) for name in identities.hosts}
    hosts = "|".join(sorted(shapes, key=lambda shape: (-len(shape), shape)))
    simple = any(name.isalnum() for name in (*identities.names, *identities.hosts))
    others = sorted((name for name in identities.names if not name.isalnum()), key=lambda name: (-len(name), name))
    spelled = "|".join(map(re.escape, others))
    domain = r"(?:\.[A-Za-z][A-Za-z0-9-]*)*"
    return [
        *([rf"(?P<name>{_BEFORE}(?i:{spelled}){_AFTER})"] if spelled else []),
        *([rf"(?P<host>{_BEFORE}(?i:{hosts})(?:(?<=[0-9\]]){domain})?{_AFTER})"] if hosts else []),
        # Looked up, as there may be thousands; names may be parts of a word.
        *([rf"(?P<word>{_BEFORE}[0-9A-Za-z]+{_AFTER})"] if simple else []),
    ]


def _stands_out(name: str, text: str, at: int) -> bool:
    """Return whether a name at a place in a word is not part of a longer number or, of letters alone, of a word."""
    for before in (at - 1, at + len(name) - 1):
        if before < 0 or before >= len(text) - 1:
            continue
        one, other = text[before], text[before + 1]
        if name.isalpha():
            if one.isdigit() == other.isdigit() and not (one.islower() and other.isupper()):
                return False
        elif one.isdigit() and other.isdigit():
            return False
    return True


def _shape(name: str) -> str:
    return "".join(_NUMBER if piece.isdigit() else re.escape(piece) for piece in re.findall("[0-9]+|[^0-9]+", name))
