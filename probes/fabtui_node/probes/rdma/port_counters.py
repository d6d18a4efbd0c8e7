"""Error counters of RDMA ports and interfaces: names, limits and judgements."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Optional, Tuple

from fabtui_node.probes.judgement import part, texts
from fabtui_node.system import sysfs

#: Counters of a port: the names of sysfs and of the tools of a fabric, and the number of their bits.
_COUNTERS = (
    ("symbol_error", "SymbolErrorCounter", 16),
    ("link_error_recovery", "LinkErrorRecoveryCounter", 8),
    ("link_downed", "LinkDownedCounter", 8),
    ("port_rcv_errors", "PortRcvErrors", 16),
    ("port_rcv_remote_physical_errors", "PortRcvRemotePhysicalErrors", 16),
    ("port_rcv_switch_relay_errors", "PortRcvSwitchRelayErrors", 16),
    ("port_xmit_discards", "PortXmitDiscards", 16),
    ("port_xmit_constraint_errors", "PortXmitConstraintErrors", 8),
    ("port_rcv_constraint_errors", "PortRcvConstraintErrors", 8),
    ("local_link_integrity_errors", "LocalLinkIntegrityErrors", 4),
    ("excessive_buffer_overrun_errors", "ExcessiveBufferOverrunErrors", 4),
    ("VL15_dropped", "VL15Dropped", 16),
    ("port_xmit_wait", "PortXmitWait", 32),
)
#: Where a counter stops.
LIMITS = {name: (1 << bits) - 1 for name, _, bits in _COUNTERS}
TOOL_NAMES = {tool: name for name, tool, _ in _COUNTERS}
_NEVER = ("local_link_integrity_errors", "excessive_buffer_overrun_errors")
#: A link that counts these is bad in itself: a cable, a module, a port. The rest may come from outside, or be usual.
OF_THE_LINK = ("symbol_error", "link_error_recovery", "port_rcv_errors", *_NEVER)
#: A link in good order counts a few errors in months.
FEW = 10
_HARDWARE = ["out_of_buffer", "out_of_sequence", "packet_seq_err", "local_ack_timeout_err", "implied_nak_seq_err"]
_HARDWARE += ["rnr_nak_retry_err", "roce_adp_retrans", "roce_slow_restart", "rx_icrc_encapsulated"]
#: Counters of Elastic Fabric Adapters: packets and peers that were lost, and requests that the adapter refused.
_EFA = ["rx_drops", "retrans_timeout_events", "unresponsive_remote_events", "impaired_remote_conn_events"]
_EFA += ["reg_mr_err", "create_qp_err", "create_ah_err"]
_DISCARDS = re.compile(
    r"(rx|tx)_(discards|errors|crc_errors|symbol_err|pcs_symbol_err|corrected_bits|in_range_len_errors|global_pause"
    r"|prio[0-7]_(pause|discards|buf_discard|cong_discard)|pause_ctrl|out_of_buffer|steer_missed|dropped|missed)\w{0,40}"
    r"|link_down_events\w{0,10}|rx_\w{0,20}(out_of_buffer|no_dma_resources|missed_errors)|\w{0,30}discard\w{0,20}",
    re.ASCII,
)
_LINK = re.compile(r"\((1|2|4|8|12)X")
#: Counters of congestion: marks, notifications (CNP) and pauses of a priority. Names of mlx5, bnxt_re, ionic and
#: irdma for RDMA ports, and of mlx5, bnxt_en, ice and ionic for interfaces.
CONGESTION = re.compile(
    r"np_cnp_sent|rp_cnp_(handled|ignored)|np_ecn_marked_roce_packets|roce_slow_restart_cnps"
    r"|(rx|tx)_cnp_pkts|rx_ecn_marked_pkts|(rx|tx)_rdma_cnp_pkts|rx_rdma_ecn_pkts|cnp(Sent|Handled|Ignored)|RxECNMrkd"
    r"|(rx|tx)_prio[0-7]_pause|rx_ecn_mark|(rx|tx)_pfc_ena_frames_pri[0-7]|(rx|tx)_priority_[0-7]_xoff(\.nic)?"
    r"|frames_(rx|tx)_pripause",
    re.ASCII,
)
#: Packets that an interface lost for want of buffers, by the names of mlx5.
_LOST = re.compile(r"(rx|tx)_prio[0-7]_(discards|(buf|cong)_discard)|(rx|tx)_discards_phy", re.ASCII)


def lanes(rate: Optional[str]) -> Optional[int]:
    """Return the lanes that a sysfs ``rate`` such as ``200 Gb/sec (4X HDR)``."""
    match = _LINK.search(rate or "")
    return int(match.group(1)) if match else None


def read(port: str) -> Dict[str, Any]:
    """Return ``errors`` (counters of trouble, not zero), ``saturated``, ``refresh`` (ms) of the folder of a port."""
    errors: Dict[str, int] = {}
    for folder, names in (("counters", [*LIMITS]), ("hw_counters", [*_HARDWARE, *_EFA])):
        errors.update({name: count for name in names if (count := sysfs.integer(port, folder, name))})
    saturated = [name for name, count in errors.items() if count == LIMITS.get(name)]
    return {"errors": errors, "saturated": saturated, "refresh": sysfs.integer(port, "hw_counters", "lifespan")}


def of_tool(printed: Dict[str, Any]) -> Tuple[Dict[str, int], List[str]]:
    """Return ``errors`` and ``saturated`` of a port as a tool of the fabric gives them, by the names of sysfs."""
    names = TOOL_NAMES
    errors = {names[name]: count for name, count in printed["counters"].items() if name in names and count}
    return errors, [names[name] for name in printed["saturated"] if name in names]


def discards(counters: Dict[str, int]) -> Dict[str, int]:
    """Return what was lost, damaged or paused on an interface, of what ``ethtool -S`` counts; zeros are left out."""
    return {name: count for name, count in counters.items() if count and _DISCARDS.fullmatch(name)}


def of_driver(name: str) -> bool:
    """Return True for a counter of an interface's driver that shows congestion, or loss by it."""
    return bool(CONGESTION.fullmatch(name) or _LOST.fullmatch(name))


def judge_state(port: Dict[str, Any], active: int, others: int) -> List[Tuple[str, str]]:
    """Return what is wrong with the state of a port; ``active`` and ``others`` count all of its kind on the node."""
    state, physical = port.get("state"), port.get("physical_state")
    if state in ("Active", "unknown", None):
        return []
    if state == "Initializing":
        lids = ", ".join(
            "%s %s" % (word, port[name]) for name, word in (("lid", "LID"), ("sm_lid", "SM LID")) if name in port
        )
        text = "the link is up, but no subnet manager has configured it (Initializing%s)"
        return [("failed", text % (", " + lids if lids and None not in (port.get("lid"), port.get("sm_lid")) else ""))]
    if state == "Armed":
        return [("failed", "the subnet manager has not finished configuring it (Armed)")]
    text = str(state) if physical in (None, "unknown") else "%s, physical state %s" % (state, physical)
    why = ": no signal from the other end (cable, module, switch port)" if physical == "Polling" else ""
    if active > others:
        return [("failed", text + (why or ", while most of its kind on this node are active"))]
    if physical == "Polling" and not active:
        return [("failed", text + why)]
    # Many second ports of adapters, or ports beside the fast ones, are never used.
    return [("inconclusive", text + (why or ": not used, or without a cable"))]


def judge_counts(port: Dict[str, Any]) -> List[Tuple[str, str]]:
    """Return judgements of a port by its ``errors`` and ``saturated``."""
    errors, saturated = part(port, "errors"), texts(port.get("saturated"))
    judged: List[Tuple[str, str]] = []
    bad = {name: count for name, count in errors.items() if name in OF_THE_LINK}
    if bad:
        many = any(count > FEW or name in _NEVER for name, count in bad.items() if isinstance(count, int))
        judged.append(("slow" if many else "note", "errors of the link: %s" % counted(bad, saturated)))
    downs = errors.get("link_downed")
    if downs:
        judged.append(("inconclusive", "the link went down: %s" % counted({"link_downed": downs}, saturated)))
    return judged


def judge_efa(port: Dict[str, Any]) -> List[Tuple[str, str]]:
    """Return notes about an Elastic Fabric Adapter: what it refused, and connections that it slowed down, ever since.

    Peers that did not answer, and packets that were sent again, are usual where jobs end and paths change.
    """
    errors = part(port, "errors")
    judged = []
    if errors.get("reg_mr_err"):
        text = "refused to register memory %s times: its limit (max_mr) or locked memory was used up"
        judged.append(("note", text % errors["reg_mr_err"]))
    if errors.get("impaired_remote_conn_events"):
        text = "connections were impaired and slowed down %s times (impaired_remote_conn_events)"
        judged.append(("note", text % errors["impaired_remote_conn_events"]))
    return judged


def below_text(link: Dict[str, Any]) -> str:
    """Return a text on how far a link is below what both ends support; any values are accepted."""
    lanes, could = link.get("lanes"), link.get("could_lanes") or link.get("lanes")
    below = texts(link.get("below"))
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
    limit = " or more (it is at its limit)"
    named = sorted(errors.items(), key=lambda item: str(item[0]))
    return ", ".join("%s %s%s" % (name, count, limit if name in saturated else "") for name, count in named)
