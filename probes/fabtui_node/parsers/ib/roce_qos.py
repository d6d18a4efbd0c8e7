"""Quality of service of a RoCE interface: ``mlnx_qos -i``, and ``dcb -j pfc`` and ``dcb -j app`` of iproute2.

They show which field of a packet its priority follows (trust), the priority of each DSCP, and the priorities with flow
control (PFC).
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, Optional

from fabtui_node.parsers.base import Format, Notes, Reading, first_of
from fabtui_node.parsers.ib import values as ibwords
from fabtui_node.parsers.lines import json_list, json_object, json_value, json_whole

_TRUST = re.compile(r"Priority trust state:\s*([a-z]{2,10})", re.IGNORECASE)
_DCBX = re.compile(r"DCBX mode:\s*(OS|Firmware) controlled", re.IGNORECASE)
_DSCPS = re.compile(r"prio:([0-7])\s{1,8}dscp:([0-9, ]{1,400})", re.ASCII | re.IGNORECASE)
_ENABLED = re.compile(r"enabled((?:\s+[01]){8})", re.ASCII | re.IGNORECASE)
#: Lines of ``mlnx_qos`` without anything about the priority of RoCE.
_OTHER = re.compile(
    r"dscp2prio mapping:|default priority:.*|Receive buffer size.*|Cable len:.*|PFC configuration:"
    r"|(priority|buffer)\s[0-9 ]+"
    r"|tc: [0-9].*|priority:\s+[0-7]|Buffers commands are not supported.*|\*+ ?WARNING: lldpad.*"
    r"|Priority trust state is not supported.*",
    re.IGNORECASE,
)
#: Lines of ``cat /sys/class/infiniband/*/tc/*/traffic_class``, which people print beside it.
TRAFFIC_CLASS = re.compile(r"Global tclass=([0-9]{1,3})\b.*", re.ASCII | re.IGNORECASE)
_HIGHEST = 63
Value = Dict[str, Any]


def by_priority(priority_of: Dict[int, int]) -> Dict[str, List[int]]:
    dscps: Dict[str, List[int]] = {}
    for dscp, priority in sorted(priority_of.items()):
        if 0 <= dscp <= _HIGHEST and 0 <= priority < 8:
            dscps.setdefault(str(priority), []).append(dscp)
    return dict(sorted(dscps.items()))


def parse_mlnx_qos(text: str) -> Reading:
    """Return what ``mlnx_qos -i`` printed of an interface.

    ``{"trust": "dscp"|"pcp"|None, "dscp": {priority: [DSCP]} or None, "pfc": [priority] or None, "dcbx": "os"|
    "firmware"|None, "class": the traffic class that replaces the one of libraries, or None}``. A list is None if it was
    not printed whole: a cut text never reads as a priority without PFC.
    """
    notes = Notes()
    values: Value = dict.fromkeys(("trust", "dscp", "pfc", "dcbx", "class"))
    priority_of: Dict[int, int] = {}
    for line in map(str.strip, ibwords.lines(text)):
        trust, dcbx, dscps, enabled, given = (
            pattern.fullmatch(line) for pattern in (_TRUST, _DCBX, _DSCPS, _ENABLED, TRAFFIC_CLASS)
        )
        if trust:
            values["trust"] = trust[1].lower() if trust[1].lower() in ("dscp", "pcp") else None
        elif dcbx:
            values["dcbx"] = dcbx[1].lower()
        elif dscps:
            priority_of.update((int(word), int(dscps[1])) for word in re.findall("[0-9]{1,2}", dscps[2]))
        elif enabled:
            values["pfc"] = [at for at, bit in enumerate(enabled[1].split()) if bit == "1"]
        elif given:
            values["class"] = int(given[1])
        elif not _OTHER.fullmatch(line):
            ibwords.leftover(line, notes)
    # It lists each DSCP.
    if len(priority_of) == _HIGHEST + 1:
        values["dscp"] = by_priority(priority_of)
    elif priority_of:
        notes.warn("%d of 64 DSCPs: the text may be cut off" % len(priority_of))
    if values["trust"] is not None and values["pfc"] is None:
        notes.warn("the priorities with PFC are missing: the text may be cut off")
    return notes.reading(values)


def parse_dcb(text: str) -> Reading:
    """Return what ``dcb -j pfc show`` or ``dcb -j app show`` printed of an interface, as of `parse_mlnx_qos`.

    It does not print the trust: of a driver that knows DSCPs, the table of DSCPs is empty unless they are trusted.
    """
    notes = Notes()
    printed = json_object(json_value(text))
    values: Value = dict.fromkeys(("trust", "dscp", "pfc", "dcbx", "class"))
    switches = [_switch(one) for one in json_list(printed.get("prio_pfc"))]
    if len(switches) == 8 and None not in switches:
        values["pfc"] = [at for at, on in enumerate(switches) if on]
    elif "prio_pfc" in printed:
        notes.warn("the priorities with PFC are not eight switches")
    priority_of: Dict[int, int] = {}
    for entry in json_list(printed.get("dscp_prio")):
        dscp, priority = ([json_whole(one) for one in json_list(entry)] + [None, None])[:2]
        if dscp is not None and priority is not None:
            # The kernel takes the highest of several priorities of a DSCP.
            priority_of[dscp] = max(priority, priority_of.get(dscp, 0))
    if priority_of:
        values["trust"], values["dscp"] = "dscp", by_priority(priority_of)
    if not printed:
        notes.warn("no JSON of dcb: %s" % text.strip()[:100])
    return notes.reading(values)


def _switch(value: Any) -> Optional[bool]:
    if isinstance(value, bool):
        return value
    return {"on": True, "off": False}.get(value) if isinstance(value, str) else None


def parse_dscp2prio(text: str) -> Optional[Dict[str, List[int]]]:
    """Return the DSCPs by priority of ``/sys/class/net/*/qos/dscp2prio``, whose rows are a DSCP and its priority."""
    rows = re.findall(r"^[ \t]*([0-9]{1,2})[ \t]+([0-7])[ \t]*$", text, re.ASCII | re.MULTILINE)
    return by_priority({int(dscp): int(priority) for dscp, priority in rows}) or None


FORMATS = [
    Format(
        "mlnx_qos",
        "priorities of a RoCE interface: mlnx_qos -i",
        first_of(
            (0.95, r"^Priority trust state: \w|^DCBX mode: (OS|Firmware) controlled"),
            (0.9, r"^[ \t]+prio:[0-7] dscp:[0-9]{2},"),
            (0.8, r"^PFC configuration:[ \t]*\r?\n[ \t]+priority +0 +1"),
        ),
        parse_mlnx_qos,
        aliases="mlnx-qos",
    ),
    Format(
        "dcb",
        "priorities of an interface: dcb -j pfc show, dcb -j app show",
        first_of((0.9, r'"prio_pfc":\s*\[|"dscp_prio":\s*\[')),
        parse_dcb,
        aliases="dcb-(pfc|app)",
    ),
]
