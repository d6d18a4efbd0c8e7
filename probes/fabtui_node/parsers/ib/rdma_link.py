"""``rdma link``: RDMA ports with their network interfaces, in the old, detailed and JSON forms of iproute2 too."""

from __future__ import annotations

import json
import re
from typing import Any, Dict, List, Optional

from fabtui_node.parsers.base import Format, Notes, Reading
from fabtui_node.parsers.ib import values

_LINK = re.compile(
    r"\s*(?:#\s*)?(?:link\s+|[0-9]{1,6}/[0-9]{1,6}:\s+)([\w.-]{1,64})/([0-9]{1,6}|-):?(?:\s+(.*))?", re.ASCII
)
_KEYS = {
    "state": "state",
    "physical_state": "physical_state",
    "netdev": "netdev",
    "netdev_index": "netdev_index",
    "lid": "lid",
    "sm_lid": "sm_lid",
    "lmc": "lmc",
    "subnet_prefix": "subnet_prefix",
}
_NUMBERS = ("netdev_index", "lid", "sm_lid", "lmc")
_STATES = {
    "UNKNOWN": "unknown",
    "ACTIVE": "Active",
    "DOWN": "Down",
    "INIT": "Initializing",
    "ARMED": "Armed",
    "ACTIVE_DEFER": "Active Deferred",
}
_PHYSICAL = {"UNKNOWN": "unknown", "LINK_UP": "LinkUp", "POLLING": "Polling", "DISABLED": "Disabled", "SLEEP": "Sleep"}


def likely(text: str) -> float:
    """Return the likelihood that a text is output of ``rdma link``."""
    if re.search(r"^[ #]*(link|\d+/\d+:)\s+[\w.-]+/\d+:?\s.*\bphysical_state\b", text, re.MULTILINE):
        return 0.97
    if '"physical_state"' in text and '"ifname"' in text:
        return 0.95
    return 0.4 if "NETLINK_RDMA" in text else 0.0


def parse(text: str) -> Reading:
    """Return the links with ibstat's terms for states, and None for missing values.

    ``{"links": [{"ca", "port", "state", "physical_state", "netdev", "lid", "sm_lid", "lmc", "subnet_prefix",
    "netdev_index"}]}``.
    """
    notes = Notes()
    if text.lstrip().startswith(("[", "{")):
        found = _from_json(text)
        if found is not None:
            return notes.reading({"links": found})
    links: List[Dict[str, Any]] = []
    for line in values.lines(text):
        link = _LINK.fullmatch(line.rstrip())
        if link:
            links.append(_link(link.group(1), values.digits(link.group(2)), (link.group(3) or "").split()))
        elif values.complaint(line):
            notes.warn(line)
        elif not (links and line[:1].isspace()):
            notes.puzzled(line)
    return notes.reading({"links": links})


def _link(ca: str, port: Optional[int], words: List[str]) -> Dict[str, Any]:
    link: Dict[str, Any] = dict.fromkeys(_KEYS.values())
    link.update(ca=ca, port=port, state="unknown", physical_state="unknown")
    for at in range(len(words) - 1):
        _put(link, words[at], words[at + 1])
    return link


def _put(link: Dict[str, Any], key: str, value: str) -> None:
    if key not in _KEYS:
        return
    if key in _NUMBERS:
        link[key] = values.digits(value)
    elif key == "state":
        link[key] = _STATES.get(value, value[:100])
    elif key == "physical_state":
        link[key] = _PHYSICAL.get(value, value[:100])
    else:
        link[key] = value[:100]


def _from_json(text: str) -> Optional[List[Dict[str, Any]]]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, list):
        return None
    links = []
    for entry in value:
        if isinstance(entry, dict) and isinstance(entry.get("ifname"), str):
            port = entry.get("port")
            link = _link(entry["ifname"][:64], port if isinstance(port, int) and 0 <= port < 1 << 32 else None, [])
            for key, value in entry.items():
                if isinstance(value, str) or (type(value) is int and 0 <= value < 1 << 63):
                    _put(link, key, str(value))
            links.append(link)
    return links


FORMATS = [Format("rdma-link", "rdma link: RDMA ports and their interfaces", ("rdma", "link"), {}, likely, parse)]
