"""``smpquery`` (node info, port info, switch info, descriptions) and ``ibportstate``: attributes of a device."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Optional

from fabtui_node.parsers.base import Format, Notes, Reading
from fabtui_node.parsers.ib import dotted_fields, values

_NUMBERS = ("Lid", "SMLid", "LMC", "NumPorts", "LocalPort", "NeighborMTU", "MtuCap")


def likely_smpquery(text: str) -> float:
    """Return the likelihood that a text is output of ``smpquery``."""
    if re.search(r"^(Initial )?(Switch|CA/RT|Peer) PortInfo:", text, re.MULTILINE):
        return 0.3
    if re.search(r"^# (Node|Switch|Port|Mlnx ext|GUID) ?[Ii]nfo: ", text, re.MULTILINE):
        return 0.95
    return 0.9 if re.search(r"^Node Description:\.+", text, re.MULTILINE) else 0.0


def likely_ibportstate(text: str) -> float:
    """Return the likelihood that a text is output of ``ibportstate``."""
    if re.search(r"^(Initial )?(Switch|CA/RT|Peer) PortInfo:", text, re.MULTILINE):
        return 0.97
    return 0.5 if "ibportstate:" in text else 0.0


def parse(text: str) -> Reading:
    """Return ``{"blocks": [{"title", "lid", "port", "of", "fields", "link"}]}``.

    ``of`` is the owner of the port as ``ibportstate`` prints it (``Switch PortInfo``, ``Peer PortInfo``). ``fields``
    are numbers where the names are known to be such, else text as printed. ``link``, for port infos: ``state``,
    ``physical_state``, ``lanes``, ``lanes_supported``, ``lanes_enabled``, ``lane_rate``, ``lane_rates_supported``,
    ``lane_rates_enabled`` (Gb/s as printed) and ``rate`` (Gb/s).
    """
    notes = Notes()
    found: List[Dict[str, Any]] = []
    for block in dotted_fields.blocks(text, notes):
        fields: Dict[str, Any] = dict(block.fields)
        for name in _NUMBERS:
            if name in fields:
                fields[name] = values.integer(fields[name])
        entry = dotted_fields.as_dict(block)
        entry.update(of=block.before or None, fields=fields)
        if "LinkWidthActive" in fields or "LinkState" in fields:
            entry["link"] = _link(block.fields)
        found.append(entry)
    return notes.reading({"blocks": found})


def _link(fields: Dict[str, str]) -> Dict[str, Any]:
    width = values.lanes(fields.get("LinkWidthActive"))
    speed = values.gbps(fields.get("LinkSpeedExtActive2")) or values.gbps(fields.get("LinkSpeedExtActive"))
    speed = speed or values.gbps(fields.get("LinkSpeedActive"))
    return {
        "state": fields.get("LinkState") or "unknown",
        "physical_state": fields.get("PhysLinkState") or "unknown",
        "lanes": width,
        "lanes_supported": _lanes(fields.get("LinkWidthSupported")),
        "lanes_enabled": _lanes(fields.get("LinkWidthEnabled")),
        "lane_rate": speed,
        "lane_rates_supported": _rates(fields, "Supported"),
        "lane_rates_enabled": _rates(fields, "Enabled"),
        "rate": values.link_rate(width, speed),
    }


def _lanes(text: Optional[str]) -> List[int]:
    return sorted(lanes for word in (text or "").split(" or ") if (lanes := values.lanes(word)) is not None)


def _rates(fields: Dict[str, str], which: str) -> List[float]:
    texts = [fields.get(name + which) or "" for name in ("LinkSpeed", "LinkSpeedExt")]
    texts.append(fields.get("LinkSpeedExt%s2" % which) or "")
    found = (values.gbps(word) for text in texts for word in text.split(" or "))
    return sorted({rate for rate in found if rate is not None})


_UNITS = {
    "lane_rate": "Gb/s",
    "lane_rates_supported": "Gb/s",
    "lane_rates_enabled": "Gb/s",
    "rate": "Gb/s",
    "NeighborMTU": "B",
    "MtuCap": "B",
}

FORMATS = [
    Format("smpquery", "smpquery: node, port and switch info", (), _UNITS, likely_smpquery, parse),
    Format("ibportstate", "ibportstate: the state of a port and its peer", (), _UNITS, likely_ibportstate, parse),
]
