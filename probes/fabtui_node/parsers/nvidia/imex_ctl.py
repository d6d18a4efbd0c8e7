"""``nvidia-imex-ctl -N``, with or without ``-H`` and ``-j``: the nodes of an IMEX domain, and who is connected.

IMEX lets GPUs of several nodes share memory over NVLink. Grammar: NVIDIA's IMEX guide (IMEX Service Command Service).
"""

from __future__ import annotations

import re
from typing import Any, Callable, Dict, List, Optional

from fabtui_node.parsers.base import Format, Notes, Reading, first_of
from fabtui_node.parsers.lines import json_object, json_value, plain_lines

#: Maximum number of nodes; a domain of today has 18.
_MOST = 1024
#: Maximum number of connections that are kept.
_MOST_APART = 4096
READY, CONNECTED = "READY", "connected"
#: Nothing is known about the connections of a node that could not be asked.
_UNKNOWN = "invalid"
#: Meanings of the letters in the table of connections.
_LETTERS = {
    "C": CONNECTED,
    "I": _UNKNOWN,
    "N": "never connected",
    "R": "recovering",
    "D": "disconnected",
    "A": "authenticating",
    "V": "version mismatch",
    "M": "node map mismatch",
}
_NODE = re.compile(
    r"\s{0,8}Node #([0-9]{1,4})\s{1,8}([*-])\s{1,8}(\S{1,255})\s{1,80}(?:\*\s{1,80})?-\s{1,8}([A-Za-z_]{1,40})\s{0,80}"
    r"(?:-\s{0,8}Version:\s{0,8}(\S{0,40})\s{0,80})?(?:-\s{0,8}Hostname:\s{0,8}(\S{0,255}))?\s{0,80}",
    re.ASCII | re.IGNORECASE,
)
_HEAD = re.compile(r"\s{0,8}Nodes From\\To\s+([0-9 ]{1,8000})", re.ASCII | re.IGNORECASE)
_ROW = re.compile(r"\s{0,12}([0-9]{1,4})\s{1,80}((?:(?:![A-Z]!|[A-Z])\s{0,8}){1,1100})", re.ASCII | re.IGNORECASE)
_DOMAIN = re.compile(r"\s{0,8}Domain State:\s{0,8}([A-Z_]{1,40})\s{0,8}", re.ASCII | re.IGNORECASE)
_STAMP = re.compile(r"[0-9]{1,2}/[0-9]{1,2}/[0-9]{4} [0-9:.]{5,16}", re.ASCII)
_OTHER = re.compile(r"\s{0,8}(?:#|Connectivity Table Legend:|!?[A-Z]!? - |Nodes:)", re.IGNORECASE)
_NUMBER = re.compile(r"[0-9]{1,6}", re.ASCII)
#: States of a node, as DCGM has them (``DCGM_FI_IMEX_DAEMON_STATUS``).
_STATES = (
    *("INITIALIZING", "STARTING_AUTH_SERVER", "WAITING_FOR_PEERS", "WAITING_FOR_RECOVERY", "INIT_GPU", READY),
    *("SHUTTING_DOWN", "UNAVAILABLE"),
)

Node = Dict[str, Any]

_LIKELY = first_of(
    (0.95, r"(?i:Connectivity Table Legend:|Nodes From\\To\s+[0-9])"),
    (0.95, r"(?i:^\s{0,8}Node #[0-9]{1,4}\s{1,8}[*-]\s{1,8}\S{1,255}\s{1,80}(?:\*\s{1,8})?- [A-Z_]{4,40}\b)"),
    (0.95, r'"connections"\s{0,8}:\s{0,8}\{\s{0,40}"[0-9]{1,4}"\s{0,8}:\s{0,8}\{[^{}]{0,200}"status"\s{0,8}:\s{0,8}"'),
)


class _Domain:
    """Collects the nodes of a domain, and the connections that are missing."""

    def __init__(self) -> None:
        self.state: Optional[str] = None
        self.time: Optional[str] = None
        self.nodes: Dict[int, Node] = {}
        self.apart: List[Dict[str, Any]] = []

    def add(self, number: int, host: Any, name: Any, state: Any, version: Any, own: Optional[bool]) -> None:
        words = [value[:255] if isinstance(value, str) and value else None for value in (host, name, state, version)]
        kept = dict(zip(("host", "hostname", "state", "version"), words))  # noqa: B905 - Python 3.8 knows no strict=
        if len(self.nodes) < _MOST:
            self.nodes[number] = {"node": number, **kept, "own": own, "connected": 0}

    def connect(self, node: int, peer: int, word: str) -> None:
        """Note a connection, but not that of a node to itself: it has no meaning."""
        word = word.lower().replace("_", " ")[:40]
        if node not in self.nodes or node == peer or word == _UNKNOWN:
            return
        if word == CONNECTED:
            self.nodes[node]["connected"] += 1
        elif len(self.apart) < _MOST_APART:
            self.apart.append({"from": node, "to": peer, "state": word})

    def values(self) -> Dict[str, Any]:
        nodes = list(self.nodes.values())
        return {"domain": self.state, "time": self.time, "nodes": nodes, "apart": self.apart}


def _from_json(value: Dict[str, Any]) -> Dict[str, Any]:
    domain = _Domain()
    domain.state, domain.time = (
        found[:40] if isinstance(found := value.get(key), str) else None for key in ("status", "timestamp")
    )
    for key, found in list(json_object(value, "nodes").items())[:_MOST]:
        if not (_NUMBER.fullmatch(key) and isinstance(found, dict)):
            continue
        host, name, state, version = (found.get(name) for name in ("host", "hostName", "status", "version"))
        domain.add(int(key), host, name, state, version, None)
        for peer, link in list(json_object(found, "connections").items())[:_MOST]:
            word = link.get("status") if isinstance(link, dict) else None
            if isinstance(word, str) and _NUMBER.fullmatch(peer):
                domain.connect(int(key), int(peer), word)
    return domain.values()


def _take_row(columns: List[int], line: str, domain: _Domain) -> bool:
    """Take a row of the table of connections; return False for another line."""
    match = _ROW.fullmatch(line) if columns else None
    words = match[2].upper().split() if match else []
    if not match or len(words) != len(columns):
        return False
    for peer, word in zip(columns, words):  # noqa: B905 - Python 3.8 knows no strict=
        domain.connect(int(match[1]), peer, _LETTERS.get(word.strip("!"), word))
    return True


def parse(text: str) -> Reading:
    """Return the domain as the node that was asked sees it.

    ``domain`` (``UP``, ``DEGRADED``, ``DOWN``), ``time`` (of the node's clock), ``nodes``: ``[{"node", "host",
    "hostname", "state", "version", "own" (True for the node that was asked, None where the output does not show it),
    "connected" (to how many others)}]``, and ``apart``, the connections that are missing: ``[{"from", "to",
    "state"}]``.
    """
    notes = Notes()
    start = text.find("{")
    if start >= 0 and (value := json_object(json_value(text[start:]))):
        return notes.reading(_from_json(value))
    domain = _Domain()
    columns: List[int] = []
    for line in plain_lines(text):
        if match := _NODE.fullmatch(line):
            number, mark, host, state, version, name = match.groups()
            domain.add(int(number), host, name, state.upper(), version, mark == "*" or None)
        elif match := _HEAD.match(line):
            columns = [int(word) for word in match[1].split()[:_MOST] if len(word) < 6]
        elif match := _DOMAIN.fullmatch(line):
            domain.state = match[1].upper()
        elif _STAMP.fullmatch(line.strip()):
            domain.time = line.strip()
        elif not _take_row(columns, line, domain) and not _OTHER.match(line):
            notes.puzzled(line)
    if start >= 0 and '"nodes"' in text:
        notes.warn("the JSON of nvidia-imex-ctl is cut off")
    return notes.reading(domain.values())


def parse_state(text: str) -> Optional[str]:
    """Return the state of the node that ``nvidia-imex-ctl -q`` prints, None if it prints none."""
    states = [line.strip() for line in text.splitlines()[:20] if line.strip() in _STATES]
    return states[-1] if states else None


def seen_by(values: Dict[str, Any], mine: Callable[[Node], bool]) -> Dict[str, Any]:
    """Return the domain with ``state`` and ``version`` of the node that was asked, which ``mine`` knows; else None."""
    nodes = [dict(node, own=True) if node["own"] or mine(node) else node for node in values["nodes"]]
    own = [node for node in nodes if node["own"]]
    alone = own[0] if len(own) == 1 else {}
    return dict(values, nodes=nodes, state=alone.get("state"), version=alone.get("version"))


FORMATS = [
    Format("nvidia-imex-ctl", "nodes of an IMEX domain and their connections", _LIKELY, parse, aliases="imex|imex-ctl")
]
