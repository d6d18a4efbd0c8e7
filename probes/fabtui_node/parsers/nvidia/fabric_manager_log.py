"""``/var/log/fabricmanager.log`` and ``nvidia-imex.log``: messages of NVIDIA's Fabric Manager, and of IMEX."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, Dict, List, Optional

from fabtui_node.parsers.base import Format, Likely, Notes, Reading
from fabtui_node.parsers.lines import is_prompt

_MOST_EVENTS = 500
_MOST_LINES = 200_000

_RECORD = re.compile(
    r"\[([A-Za-z][a-z]{2} [ 0-9][0-9] [0-9]{4} [0-9:]{8}"
    r"|[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9:.]{8,15}[^\]]{0,6})\]\s{1,2}"
    r"\[([A-Za-z]{3,10})\]\s{1,2}(?:\[tid ([0-9]{1,10})\]\s{1,2})?(.{0,4000})"
)
_BUS = r"([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9])"
_NUMBER = r"([0-9]{3}(?:\.[0-9]{1,3}){1,3})"
_SWITCH = re.compile(
    r"NVSwitch (non-fatal|fatal) error ([0-9]{1,6})"
    r"(?: on fid ([0-9]{1,4}))?(?: on NVSwitch)?(?: pci bus id " + _BUS + r")?"
    r"(?: physical id ([0-9]{1,4}))?(?: port ([0-9]{1,4}))?",
    re.IGNORECASE,
)
_SXID = re.compile(
    r"SXid \(PCI:([0-9A-Fa-f:.]{7,16})\): ([0-9]{4,6}),? ?(Fatal|Non-fatal)?(?:, Link ([0-9]{1,3}))?", re.I
)
_VERSION = re.compile(r"(?:fabric manager|IMEX) version(?: is)?\s{0,3}:?\s{0,3}" + _NUMBER, re.I)
_MISMATCH = re.compile(r"version " + _NUMBER + " doesn.?t match with driver version " + _NUMBER, re.I)
_KINDS = (
    ("topology", re.compile(r"topolog.{0,80}(?:mismatch|fail|not|invalid)|not all the .{0,40}(?:links?|GPUs)", re.I)),
    ("training", re.compile(r"link.{0,40}(?:train|init).{0,40}fail|fail.{0,60}(?:train|nvlink)", re.I)),
    ("multicast", re.compile(r"(?:multicast|team).{0,80}(?:fail|error)|fail.{0,60}(?:multicast|team)", re.I)),
    ("access", re.compile(r"(?:access|permission).{0,40}denied|not permitted", re.I)),
)
_OK = re.compile(r"Successfully configured all the available", re.I)
#: What the log of IMEX has, whose records look the same.
_IMEX = re.compile(r"\bIMEX\b|nvidia-imex|nodes_config|imex[_-]", re.IGNORECASE)
_LEVELS = ("ERROR", "CRITICAL", "FATAL", "WARNING", "WARN")


def parse_version(text: str) -> Optional[str]:
    """Return the version that ``nv-fabricmanager --version`` prints, None if it prints none."""
    match = _VERSION.search(text[:20000])
    return match[1] if match else None


def _event(record: Dict[str, Any]) -> Optional[Dict[str, Any]]:
    """Return what a record reports if it is something that somebody should know."""
    text, kind = record["text"], None
    bus = code = fatal = port = None
    if switch := _SWITCH.search(text):
        kind, fatal, code, _, bus, _, port = ("nvswitch", *switch.groups())
    elif sxid := _SXID.search(text):
        kind, bus, code, fatal, port = ("nvswitch", *sxid.groups())
    elif _MISMATCH.search(text):
        kind = "version"
    elif record["level"] in _LEVELS:
        kind = next((kind for kind, pattern in _KINDS if pattern.search(text[:2000])), "other")
    else:
        return None
    event = {"time": record["time"], "level": record["level"], "kind": kind, "text": text[:500], "bus": bus}
    event.update(code=int(code) if code else None, fatal=None if fatal is None else fatal.lower() == "fatal")
    event["port"] = int(port) if port else None
    return event


def parse_log(text: str) -> Reading:
    """Return what the log reports.

    - ``records`` (their number), ``levels`` (number of each), ``version``, ``configured`` (True once logged).
    - ``first`` and ``last``: times as written, of the node's clock.
    - ``events``, the last ones if there are very many: ``[{"time", "level", "kind": "nvswitch"|"version"|"topology"|
      "training"|"multicast"|"access"|"other", "bus", "port", "code", "fatal", "text"}]``.

    A record continues on lines without a time.
    """
    notes = Notes()
    records: List[Dict[str, Any]] = []
    inside = False
    lines = text.splitlines()
    for line in lines[-_MOST_LINES:]:
        match = _RECORD.fullmatch(line.rstrip()[:4200])
        if match:
            time, level, _, message = match.groups()
            inside = True
            records.append({"time": time, "level": level.upper(), "text": message})
        elif is_prompt(line):
            inside = False
        elif inside:
            if line.strip() and len(records[-1]["text"]) < 8000:
                records[-1]["text"] += "\n" + line.strip()[:2000]
        else:
            notes.puzzled(line)
    events = [event for event in map(_event, records) if event is not None]
    for event in events:
        if event["level"] != "INFO":
            notes.warn("%s %s" % (event["time"], event["text"]))
    if len(events) > _MOST_EVENTS:
        notes.warn("%d reports, the last %d are kept" % (len(events), _MOST_EVENTS))
    if not records and text.strip():
        notes.warn("no record in this text")
    versions = [match[1] for match in map(_VERSION.search, (record["text"][:500] for record in records)) if match]
    values = {
        "records": len(records),
        "levels": dict(Counter(record["level"] for record in records)),
        "first": records[0]["time"] if records else None,
        "last": records[-1]["time"] if records else None,
        "version": versions[-1] if versions else None,
        "configured": True if any(_OK.search(record["text"][:500]) for record in records) else None,
        "events": events[-_MOST_EVENTS:],
    }
    return notes.reading(values)


def _likely_records(text: str) -> float:
    lines = [line for line in text.splitlines()[:200] if line.strip()]
    records = sum(1 for line in lines if _RECORD.fullmatch(line.rstrip()[:4200]) and "[tid " in line[:80])
    return 0.95 if records and records >= len(lines) / 8 else 0.0


def _format(name: str, title: str, imex: bool) -> Format:
    likely = Likely(lambda text: _likely_records(text) if bool(_IMEX.search(text)) is imex else 0.0, r"\[tid ")
    return Format(name, title, likely, parse_log, log=True, errors=True)


FORMATS = [
    _format("fabricmanager-log", "the log of NVIDIA's Fabric Manager", False),
    _format("imex-log", "the log of NVIDIA's IMEX daemon", True),
]
