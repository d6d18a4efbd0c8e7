"""Tables of the probes rdma and ibfabric: ports, interfaces and advice for NCCL."""

from __future__ import annotations

from typing import Any

from fabtui.model.facts.node_view import dicts, field
from fabtui.model.records import NodeRecord
from fabtui.presentation.wording import MUTED
from fabtui.presentation.wrapping import Lines
from fabtui.sanitize import one_line
from fabtui.screen.views.detail_base import section, table
from fabtui.screen.views.node.probe_tables import text_of

#: Maximum number of listed P_Keys.
_MAX_KEYS = 4


def port_lines(record: NodeRecord) -> Lines:
    """Return the tables of ports and interfaces, and the advice for NCCL; nothing without probe results."""
    rdma, fabric = record.probe_results.get("rdma") or {}, record.probe_results.get("ibfabric") or {}
    beyond = {_place(port): port for port in dicts(fabric.get("ports"))}
    known = {_place(port): port for port in dicts(rdma.get("ports"))}
    rows: list[list[str]] = []
    styles: dict[tuple[int, int], str] = {}
    for at, key in enumerate(dict.fromkeys([*known, *beyond])):
        port, far = known.get(key, {}), beyond.get(key, {})
        errors = {**_counts(port.get("errors")), **_counts(far.get("errors"))}
        theirs = _counts(far.get("peer_errors"))
        if field(far, "link", "below"):
            styles[at, 6] = "bold $warning"
        for column, counted in ((7, errors), (8, theirs)):
            if counted:
                styles[at, column] = "$warning"
        rows.append(
            [
                key,
                _mtu(port, far),
                text_of(port.get("netdev"), 20),
                _gid(port),
                _keys(port.get("pkeys")),
                _leaf(far.get("leaf")),
                _link(far.get("link")),
                _counts_text(errors, port.get("saturated")),
                _counts_text(theirs, far.get("peer_saturated")),
            ]
        )
    if not rows:
        return []
    headings = ["port", "MTU", "interface", "RoCE v2 GID", "P_Keys", "leaf", "link", "errors", "errors at the leaf"]
    lines = section("RDMA ports in detail") + table(headings, rows, styles)
    lines += [[(f"  {text_of(why, 300)}", MUTED)] for why in _advice(rdma.get("nccl"))]
    ages = sorted({age for port in known.values() if isinstance(age := port.get("refresh"), int)})
    if ages:
        period = "adapter counters (hw_counters) are updated every"
        lines.append([(f"  {period} {', '.join(map(str, ages))} ms", MUTED)])
    if fabric.get("error"):
        lines.append([(f"  the fabric cannot be queried from this node: {text_of(fabric['error'], 300)}", MUTED)])
    return lines + _interface_lines(rdma)


def _place(port: dict[str, Any]) -> str:
    return f"{text_of(port.get('ca'), 40)}/{text_of(port.get('port'), 6)}"


def _counts(value: Any) -> dict[str, int]:
    found = value if isinstance(value, dict) else {}
    return {one_line(str(name), 40): count for name, count in found.items() if isinstance(count, int) and count}


def _counts_text(counts: dict[str, int], saturated: Any) -> str:
    full = saturated if isinstance(saturated, list) else []
    return ", ".join(f"{name} {count}{' or more' if name in full else ''}" for name, count in counts.items()) or "-"


def _mtu(port: dict[str, Any], far: dict[str, Any]) -> str:
    now, most = port.get("active_mtu") or far.get("mtu"), port.get("max_mtu")
    if now is None:
        return "-"
    return f"{text_of(now)} B" if most in (None, now) else f"{text_of(now)} of {text_of(most)} B"


def _gid(port: dict[str, Any]) -> str:
    index = port.get("gid_index")
    return "-" if index is None else f"index {text_of(index, 6)}, {text_of(port.get('ipv4'), 20)}"


def _keys(value: Any) -> str:
    keys = [text_of(key, 8) for key in value] if isinstance(value, list) else []
    more = f" and {len(keys) - _MAX_KEYS} more" if len(keys) > _MAX_KEYS else ""
    return (", ".join(keys[:_MAX_KEYS]) or "-") + more


def _leaf(value: Any) -> str:
    if not isinstance(value, dict):
        return "-"
    return f"{text_of(value.get('name') or value.get('guid'), 40)} port {text_of(value.get('port'), 6)}"


def _link(value: Any) -> str:
    if not isinstance(value, dict):
        return "-"
    rate, could = value.get("rate"), value.get("could_rate")
    text = f"{text_of(value.get('lanes'), 4)}X, {rate:g} Gb/s" if isinstance(rate, (int, float)) else "-"
    return f"{text} of {could:g}" if value.get("below") and isinstance(could, (int, float)) else text


def _advice(value: Any) -> list[Any]:
    return [why for name in ("gid_why", "hca_why") if (why := field(value, name))]


def _interface_lines(rdma: dict[str, Any]) -> Lines:
    rows = []
    styles: dict[tuple[int, int], str] = {}
    for at, nic in enumerate(dicts(rdma.get("nics"))):
        lost = _counts(nic.get("discards"))
        if lost:
            styles[at, 5] = "$warning"
        rows.append(
            [
                text_of(nic.get("interface"), 20),
                text_of(nic.get("link"), 10),
                _gigabits(nic.get("speed")),
                _gigabits(nic.get("fastest")),
                f"rx {text_of(field(nic, 'pause', 'rx'), 5)}, tx {text_of(field(nic, 'pause', 'tx'), 5)}",
                _counts_text(lost, None),
                text_of(nic.get("driver"), 20),
                text_of(nic.get("firmware"), 40),
            ]
        )
    headings = ["interface", "link", "speed", "maximum", "pause", "discarded, damaged, paused", "driver", "firmware"]
    return section("interfaces, from ethtool") + table(headings, rows, styles) if rows else []


def _gigabits(value: Any) -> str:
    return f"{value / 1000:g} Gb/s" if isinstance(value, (int, float)) and not isinstance(value, bool) else "-"
