"""Output of iperf3, client or server, as text and as JSON (``-J``)."""

from __future__ import annotations

import re
from typing import Any

from fabtui_node.parsers.base import Format, Notes, Reading
from fabtui_node.parsers.lines import json_value, number, plain_lines

_CONNECTED = re.compile(r"local (\S{1,80}) port (\d{1,5}) connected (?:to|with) (\S{1,80}) port (\d{1,5})")
_ROW = re.compile(
    r"^\[\s*(?P<id>SUM|\d{1,5})\](?:\[(?P<role>[TR]X-[CS])\])?\s+(?P<from>[\d.]{1,12})-\s*(?P<to>[\d.]{1,12})\s+sec"
    r"\s+(?P<moved>[\d.]{1,12}) (?P<moved_unit>[KMGT]?)Bytes\s+(?P<rate>[\d.]{1,12}) (?P<unit>[KMGT]?)(?P<what>bits"
    r"|Bytes)/sec(?P<rest>.*)$"
)
_UDP = re.compile(r"([\d.]{1,12}) ms\s+(-?\d{1,12})/(\d{1,12})")
_ERROR = re.compile(r"^iperf3?: (?:error|interrupt)\b.{0,200}")
_SCALE = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


def _row(found: re.Match[str]) -> dict[str, Any] | None:
    rate, start, end = number(found["rate"]), number(found["from"]), number(found["to"])
    moved = number(found["moved"])
    if rate is None or start is None or end is None:
        return None
    # Rates are counted in thousands, and bytes in 1024s even in rates.
    scale = _SCALE[found["unit"]] / 8 if found["what"] == "bits" else 1024.0 ** "_KMGT".index(found["unit"] or "_")
    rest = found["rest"].split()
    udp = _UDP.search(found["rest"])
    retries = rest[0] if rest and rest[0].isdigit() and not udp else None
    row = {
        "stream": found["id"],
        "start": start,
        "end": end,
        "bandwidth": round(rate * scale / 1e9, 9),
        "bytes": None if moved is None else round(moved * 1024.0 ** "_KMGT".index(found["moved_unit"] or "_")),
        "retransmits": None if retries is None else int(retries[:12]),
        "side": next((word for word in rest if word in ("sender", "receiver")), None),
        "jitter": number(udp[1]) if udp else None,
        "lost": int(udp[2]) if udp else None,
        "packets": int(udp[3]) if udp else None,
    }
    if found["role"]:
        row["role"] = found["role"]
    return row


def _json(text: str) -> dict[str, Any] | None:
    value = json_value(text) if "{" in text else None
    return value if isinstance(value, dict) and ({"start", "end"} <= value.keys() or "error" in value) else None


def _part(value: Any, *names: str) -> dict[str, Any]:
    """Return the object at a path of names, an empty one where there is none."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def _figure(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _result(totals: list[dict[str, Any]], error: str | None) -> dict[str, Any]:
    """Return what one run measured: the rate that the receiver counted, and the retransmits of the sender."""
    received = next((row["bandwidth"] for row in totals if row["side"] == "receiver"), None)
    retransmits = next((row["retransmits"] for row in totals if row["side"] == "sender"), None)
    return {"bandwidth": received, "retransmits": retransmits, "error": error and error[:500]}


def _from_json(value: dict[str, Any], notes: Notes) -> dict[str, Any]:
    error = value.get("error")
    if isinstance(error, str):
        notes.warn(error)
    connected = _part(value, "start").get("connected")
    ends = [entry for entry in connected if isinstance(entry, dict)] if isinstance(connected, list) else []
    test = _part(value, "start", "test_start")
    rows: list[dict[str, Any]] = []
    for name, side in (("sum_sent", "sender"), ("sum_received", "receiver"), ("sum", None)):
        total = _part(value, "end", name)
        rate = _figure(total.get("bits_per_second"))
        if rate is None or (name == "sum" and rows):
            continue
        rows.append(
            {
                "stream": "SUM",
                "start": _figure(total.get("start")),
                "end": _figure(total.get("end")),
                "bandwidth": round(rate / 8e9, 9),
                "bytes": total.get("bytes") if isinstance(total.get("bytes"), int) else None,
                "retransmits": total.get("retransmits") if isinstance(total.get("retransmits"), int) else None,
                "side": side,
                "jitter": _figure(total.get("jitter_ms")),
                "lost": total.get("lost_packets") if isinstance(total.get("lost_packets"), int) else None,
                "packets": total.get("packets") if isinstance(total.get("packets"), int) else None,
            }
        )
    first = ends[0] if ends else {}
    return {
        "local": str(first.get("local_host"))[:80] if first.get("local_host") else None,
        "remote": str(first.get("remote_host"))[:80] if first.get("remote_host") else None,
        "protocol": str(test["protocol"])[:20] if "protocol" in test else None,
        "reverse": bool(test.get("reverse")) if "reverse" in test else None,
        "streams": len(ends) or None,
        "totals": rows,
        "intervals": [],
        **_result(rows, error if isinstance(error, str) else None),
    }


def parse(text: str) -> Reading:
    """Return ``local`` and ``remote`` addresses, ``protocol``, ``totals`` (of sender and receiver) and ``intervals``.

    ``bandwidth`` (as the receiver counted it), ``retransmits`` and ``error`` are those of the entire run. Bandwidths
    are in GB/s (1e9 bytes per second).
    """
    notes = Notes()
    value = _json(text)
    if value is not None:
        return notes.reading(_from_json(value, notes))
    values: dict[str, Any] = {"local": None, "remote": None, "protocol": None, "reverse": None, "streams": None}
    totals: list[dict[str, Any]] = []
    intervals: list[dict[str, Any]] = []
    streams: dict[str, None] = {}
    error = None
    for line in plain_lines(text):
        if connected := _CONNECTED.search(line):
            values["local"], values["remote"] = values["local"] or connected[1], values["remote"] or connected[3]
            streams.setdefault(line.split("]")[0])
        elif found := _ROW.match(line.strip()):
            row = _row(found)
            if row is not None:
                (totals if row["side"] else intervals).append(row)
                values["protocol"] = "UDP" if row["jitter"] is not None else values["protocol"] or "TCP"
        elif complaint := _ERROR.match(line.strip()):
            error = error or complaint[0]
            notes.warn(complaint[0])
        elif line.startswith("Reverse mode"):
            values["reverse"] = True
    values["streams"] = len(streams) or None
    # With several streams their sum is what counts.
    sums = [row for row in totals if row["stream"] == "SUM"]
    if intervals and not totals:
        notes.warn("no totals: the text is cut off")
    elif not totals:
        notes.warn("no result")
    totals = sums or totals
    return notes.reading({**values, "totals": totals, "intervals": intervals[:10_000], **_result(totals, error)})


def likely(text: str) -> float:
    """Return the likelihood that a text is output of iperf3."""
    if re.search(r'"bits_per_second"\s*:', text) or '"connecting_to"' in text:
        return 0.95
    if re.search(
        r"^\[ *(?:\d+|SUM)\](?:\[[TR]X-[CS]\])? +[\d.]+- *[\d.]+ +sec +[\d.]+ [KMGT]?Bytes", text, re.MULTILINE
    ):
        return 0.95
    return 0.9 if re.search(r"^iperf3: (?:error|interrupt)", text, re.MULTILINE) else 0.0


FORMATS = [
    Format(
        name="iperf3",
        title="iperf3: bandwidth of TCP or UDP, text or -J",
        argv=("iperf3", "-J"),
        units={"bandwidth": "GB/s", "jitter": "ms", "start": "s", "end": "s", "bytes": "B"},
        likely=likely,
        parse=parse,
    )
]
