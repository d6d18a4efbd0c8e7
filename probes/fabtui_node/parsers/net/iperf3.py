"""Output of iperf3, client or server, as text and as JSON (``-J``)."""

from __future__ import annotations

import re
from typing import Any

from fabtui_node.parsers.base import Format, Notes, Reading, first_of
from fabtui_node.parsers.lines import json_list, json_number, json_object, json_value, json_whole, number, plain_lines

_CONNECTED = re.compile(r"local (\S{1,80}) port (\d{1,5}) connected (?:to|with) (\S{1,80}) port (\d{1,5})")
_ROW = re.compile(
    r"^\[\s*(?P<id>SUM|\d{1,5})\](?:\[(?P<role>[TR]X-[CS])\])?\s+(?P<from>[\d.]{1,12})-\s*(?P<to>[\d.]{1,12})\s+sec"
    r"\s+(?P<moved>[\d.]{1,12}) (?P<moved_unit>[KMGT]?)Bytes\s+(?P<rate>[\d.]{1,12}) (?P<unit>[KMGT]?)(?P<what>bits"
    r"|Bytes)/sec(?P<rest>.*)$"
)
_UDP = re.compile(r"([\d.]{1,12}) ms\s+(-?\d{1,12})/(\d{1,12})")
_ERROR = re.compile(r"^iperf3?: (?:error|interrupt)\b.{0,200}")
_SCALE = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}

_LIKELY = first_of(
    (0.95, r'"bits_per_second"\s*:|"connecting_to"'),
    (0.95, r"^\[ *(?:\d+|SUM)\](?:\[[TR]X-[CS]\])? +[\d.]+- *[\d.]+ +sec +[\d.]+ [KMGT]?Bytes"),
    (0.9, "^iperf3: (?:error|interrupt)"),
    (0.85, r"^\[ *\d+\] local \S{1,80} port \d{1,5} connected (?:to|with) \S"),
)
_UNITS = {"bandwidth": "GB/s", "jitter": "ms", "start": "s", "end": "s", "bytes": "B"}


def _row(found: re.Match[str]) -> dict[str, Any] | None:
    rate, start, end = number(found["rate"]), number(found["from"]), number(found["to"])
    moved = number(found["moved"])
    if rate is None or start is None or end is None:
        return None
    # Rates are counted in thousands, and bytes in 1024s even in rates.
    scale = _SCALE[found["unit"]] / 8 if found["what"] == "bits" else 1024.0 ** "_KMGT".index(found["unit"] or "_")
    rest = found["rest"].split()
    udp = _UDP.search(found["rest"])
    retries = rest[0] if rest and rest[0].isdecimal() and not udp else None
    row = _row_of(
        found["id"],
        (start, end),
        round(rate * scale / 1e9, 9),
        None if moved is None else round(moved * 1024.0 ** "_KMGT".index(found["moved_unit"] or "_")),
        None if retries is None else int(retries[:12]),
        next((word for word in rest if word in ("sender", "receiver")), None),
        (number(udp[1]), int(udp[2]), int(udp[3])) if udp else (None, None, None),
    )
    if found["role"]:
        row["role"] = found["role"]
    return row


def _row_of(
    stream: str, times: Any, rate: float, moved: int | None, retransmits: int | None, side: str | None, udp: Any
) -> dict[str, Any]:
    row = {"stream": stream, "start": times[0], "end": times[1], "bandwidth": rate, "bytes": moved}
    return {**row, "retransmits": retransmits, "side": side, "jitter": udp[0], "lost": udp[1], "packets": udp[2]}


def _result(totals: list[dict[str, Any]], error: str | None) -> dict[str, Any]:
    """Return what one run measured: the rate that the receiver counted, and the retransmits of the sender."""
    received = next((row["bandwidth"] for row in totals if row["side"] == "receiver"), None)
    retransmits = next((row["retransmits"] for row in totals if row["side"] == "sender"), None)
    return {"bandwidth": received, "retransmits": retransmits, "error": error and error[:500]}


def _from_json(value: dict[str, Any], notes: Notes) -> dict[str, Any]:
    error = value.get("error")
    if isinstance(error, str):
        notes.warn(error)
    connected = json_list(json_object(value, "start").get("connected"))
    ends = [entry for entry in connected if isinstance(entry, dict)]
    test = json_object(value, "start", "test_start")
    rows: list[dict[str, Any]] = []
    for name, side in (("sum_sent", "sender"), ("sum_received", "receiver"), ("sum", None)):
        total = json_object(value, "end", name)
        rate = json_number(total.get("bits_per_second"))
        if rate is None or (name == "sum" and rows):
            continue
        moved, retransmits = json_whole(total.get("bytes")), json_whole(total.get("retransmits"))
        udp = (
            json_number(total.get("jitter_ms")),
            json_whole(total.get("lost_packets")),
            json_whole(total.get("packets")),
        )
        times = (json_number(total.get("start")), json_number(total.get("end")))
        rows.append(_row_of("SUM", times, round(rate / 8e9, 9), moved, retransmits, side, udp))
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

    ``bandwidth`` (as the receiver counted it), ``retransmits`` and ``error`` are about the entire run. Bandwidths
    are in GB/s (1e9 bytes per second).
    """
    notes = Notes()
    value = json_object(json_value(text)) if "{" in text else {}
    if {"start", "end"} <= value.keys() or "error" in value:
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
        elif match := _ROW.match(line.strip()):
            row = _row(match)
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


FORMATS = [Format("iperf3", "iperf3: bandwidth of TCP or UDP, text or -J", _LIKELY, parse, _UNITS, aliases="iperf")]
