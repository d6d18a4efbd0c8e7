"""Error counters of RDMA ports and interfaces: names, limits and judgements."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Optional, Tuple

from fabtui_node.system import sysfs

#: Where the counters of a port in sysfs stop, by the number of their bits.
_BITS = {
    "symbol_error": 16,
    "link_error_recovery": 8,
    "link_downed": 8,
    "port_rcv_errors": 16,
    "port_rcv_remote_physical_errors": 16,
    "port_rcv_switch_relay_errors": 16,
    "port_xmit_discards": 16,
    "port_xmit_constraint_errors": 8,
    "port_rcv_constraint_errors": 8,
    "local_link_integrity_errors": 4,
    "excessive_buffer_overrun_errors": 4,
    "VL15_dropped": 16,
    "port_xmit_wait": 32,
}
#: The same as values.
LIMITS = {name: (1 << bits) - 1 for name, bits in _BITS.items()}
#: The names that the tools of a fabric have for the counters of sysfs.
TOOL_NAMES = {
    "SymbolErrorCounter": "symbol_error",
    "LinkErrorRecoveryCounter": "link_error_recovery",
    "LinkDownedCounter": "link_downed",
    "PortRcvErrors": "port_rcv_errors",
    "PortRcvRemotePhysicalErrors": "port_rcv_remote_physical_errors",
    "PortRcvSwitchRelayErrors": "port_rcv_switch_relay_errors",
    "PortXmitDiscards": "port_xmit_discards",
    "PortXmitConstraintErrors": "port_xmit_constraint_errors",
    "PortRcvConstraintErrors": "port_rcv_constraint_errors",
    "LocalLinkIntegrityErrors": "local_link_integrity_errors",
    "ExcessiveBufferOverrunErrors": "excessive_buffer_overrun_errors",
    "VL15Dropped": "VL15_dropped",
    "PortXmitWait": "port_xmit_wait",
}
#: A link that counts these is bad in itself: a cable, a module, a port. The rest may come from outside, or be usual.
OF_THE_LINK = (
    "symbol_error",
    "link_error_recovery",
    "port_rcv_errors",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
)
#: A link in good order counts a few errors in months.
FEW = 10
_NEVER = ("local_link_integrity_errors", "excessive_buffer_overrun_errors")
_HARDWARE = (
    "out_of_buffer",
    "out_of_sequence",
    "packet_seq_err",
    "local_ack_timeout_err",
    "implied_nak_seq_err",
    "rnr_nak_retry_err",
    "roce_adp_retrans",
    "roce_slow_restart",
    "rx_icrc_encapsulated",
)
_DISCARDS = re.compile(
    r"(rx|tx)_(discards|errors|crc_errors|symbol_err|pcs_symbol_err|corrected_bits|in_range_len_errors|global_pause"
    r"|prio[0-7]_(pause|discards|buf_discard|cong_discard)|pause_ctrl|out_of_buffer|steer_missed|dropped|missed)\w{0,40}"
    r"|link_down_events\w{0,10}|rx_\w{0,20}(out_of_buffer|no_dma_resources|missed_errors)|\w{0,30}discard\w{0,20}",
    re.ASCII,
)
_LINK = re.compile(r"\((1|2|4|8|12)X")


def lanes(rate: Optional[str]) -> Optional[int]:
    """Return the lanes that a sysfs ``rate`` such as ``200 Gb/sec (4X HDR)``."""
    found = _LINK.search(rate or "")
    return int(found.group(1)) if found else None


def read(port: str) -> Dict[str, Any]:
    """Return ``errors`` (the counters of trouble that are not zero), ``saturated`` and ``refresh`` (ms) of a port.

    Args:
        port: Its folder in sysfs.
    """
    errors: Dict[str, int] = {}
    saturated: List[str] = []
    for name, limit in LIMITS.items():
        count = sysfs.integer(port, "counters", name)
        if count:
            errors[name] = count
            if count == limit:
                saturated.append(name)
    for name in _HARDWARE:
        count = sysfs.integer(port, "hw_counters", name)
        if count:
            errors[name] = count
    return {"errors": errors, "saturated": saturated, "refresh": sysfs.integer(port, "hw_counters", "lifespan")}


def discards(counters: Dict[str, int]) -> Dict[str, int]:
    """Return what was lost, damaged or paused on an interface, of what ``ethtool -S`` counts; zeros are left out."""
    return {name: count for name, count in counters.items() if count and _DISCARDS.fullmatch(name)}


def judge_state(port: Dict[str, Any], active: int, others: int) -> List[Tuple[str, str]]:
    """Return what is wrong with the state of a port.

    Args:
        port: With ``state``, ``physical_state``, ``link_layer``.
        active: How many ports of the same kind on the node are active.
        others: How many are not, this one included.
    """
    state, physical = port.get("state"), port.get("physical_state")
    if state in ("Active", "unknown", None):
        return []
    if state == "Initializing":
        return [("failed", "the link is up, but no subnet manager has configured it (Initializing)")]
    if state == "Armed":
        return [("failed", "the subnet manager has not finished configuring it (Armed)")]
    text = "%s, physical state %s" % (state, physical)
    why = ": no signal from the other end (cable, module, switch port)" if physical == "Polling" else ""
    if active > others:
        return [("failed", text + (why or ", while most of its kind on this node are active"))]
    if physical == "Polling" and not active:
        return [("failed", text + why)]
    # Of adapters with two ports, or beside the fast ones, many are never used.
    return [("inconclusive", text + (why or ": not used, or without a cable"))]


def judge_counts(port: Dict[str, Any]) -> List[Tuple[str, str]]:
    """Return judgements of a port by its ``errors`` and ``saturated``."""
    errors = port.get("errors")
    errors = errors if isinstance(errors, dict) else {}
    saturated = port.get("saturated")
    saturated = saturated if isinstance(saturated, list) else []
    judged: List[Tuple[str, str]] = []
    bad = {name: count for name, count in errors.items() if name in OF_THE_LINK}
    if bad:
        many = any(count > FEW or name in _NEVER for name, count in bad.items() if isinstance(count, int))
        judged.append(("slow" if many else "note", "errors of the link: %s" % counted(bad, saturated)))
    downs = errors.get("link_downed")
    if downs:
        judged.append(("inconclusive", "the link went down: %s" % counted({"link_downed": downs}, saturated)))
    return judged


def below_text(link: Dict[str, Any]) -> str:
    """Return a text on how far a link is below what both ends support; any values are accepted."""
    lanes, could = link.get("lanes"), link.get("could_lanes") or link.get("lanes")
    below = link.get("below")
    below = below if isinstance(below, list) else []
    parts = []
    if "width" in below:
        # Ports report 12X as possible, which no cable has.
        if isinstance(lanes, int) and isinstance(could, int):
            could = min(could, max(4, lanes))
        parts.append("width %sX of %sX" % (lanes, could))
    if "speed" in below:
        parts.append("%s Gb/s a lane of %s" % (link.get("lane_rate"), link.get("could_lane_rate")))
    rate = link.get("rate")
    now = ", %g Gb/s" % rate if isinstance(rate, (int, float)) else ""
    return "link below what both ends can do: %s%s" % (" and ".join(parts), now)


def counted(errors: Dict[str, int], saturated: Any = ()) -> str:
    """Return a text of counts; those at their limit are marked."""
    words = []
    for name, count in sorted(errors.items(), key=lambda item: str(item[0])):
        limit = " or more (it stands at its limit)" if name in saturated else ""
        words.append("%s %s%s" % (name, count, limit))
    return ", ".join(words)
