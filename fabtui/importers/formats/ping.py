"""What any common ``ping`` printed (iputils, busybox, BSD, macOS), one or several in a text, and ``fping``."""

from __future__ import annotations

import re
from typing import Any

from fabtui.importers.lines import number, plain_lines
from fabtui_node.parsers.base import Format, Notes, Reading
from fabtui_node.probes.network import ping

_START = re.compile(
    r"^PING(?P<six>6)?\s?(?:\((?P<total>\d{1,6})=\d+\+\d+\+(?P<bsd6>\d{1,6}) bytes\) (?P<src>\S{1,80}) --> "
    r"(?P<dst6>\S{1,80})"
    r"|(?P<name>[^\s(]{0,253}) ?\((?P<address>[^\s()]{1,80})(?: \((?P<inner>[^\s()]{1,80})\))?\)(?: from "
    r"(?P<from>\S{1,80})(?: \S{1,40})?)?:?"
    r"(?: (?P<payload>\d{1,6})(?:\(\d{1,6}\))? (?:data )?bytes)?)"
)
_REPLY = re.compile(
    r"^(?:\[(?P<stamp>\d{9,11}\.\d{1,9})\] )?(?P<bytes>\d{1,6}) bytes from (?P<from>[^\s,]\S{0,252}?)(?: \("
    r"(?P<address>\S{1,80})\))?[:,]? "
    r"(?:icmp_)?seq=(?P<seq>\d{1,7})(?: (?:ttl|hlim)=(?P<ttl>\d{1,3}))?(?: time[=<](?P<time>[\d.]{1,12}) ?ms)?"
    r"(?P<rest>.*)$"
)
_SPREAD = re.compile(r"min/avg/max/(mdev|stddev|std-dev) = [\d.]{1,15}/[\d.]{1,15}/[\d.]{1,15}/([\d.]{1,15}) ms")
_ERRORS = re.compile(r"\+(\d{1,9}) errors")
_PIPE = re.compile(r"\bpipe (\d{1,9})")
_TIMES = re.compile(r"\S{1,253} +: (?:-|\d{1,9}\.\d{1,9})(?: (?:-|\d{1,9}\.\d{1,9})){0,100}\s*")
_MOST_REPLIES = 10_000


def _impl(text: str) -> str:
    if (
        "bytes of data." in text
        or "/mdev = " in text
        or re.search(r"^PING \S* ?\(\S+\) \d+ data bytes$", text, re.MULTILINE)
    ):
        return "iputils"
    if re.search(r"\bseq=\d+ ttl=", text) and "icmp_seq" not in text:
        return "busybox"
    if re.search(r"/std-?dev = |^PING6\(|^Request timeout for icmp_seq", text, re.MULTILINE):
        return "bsd"
    # IPv6 of iputils says "56 data bytes" after two addresses.
    return "iputils" if re.search(r"^PING [^\n]*\) \d+ data bytes$", text, re.MULTILINE) else "unknown"


def _one(lines: list[str], notes: Notes) -> dict[str, Any]:
    """Return the values of one run."""
    text = "\n".join(lines)
    row: dict[str, Any] = dict(ping.parse_ping(text))
    start = next((found for line in lines if (found := _START.match(line))), None)
    about: dict[str, Any] = {"destination": None, "address": None, "source": None, "payload": None, "ipv6": None}
    if start is not None:
        address = start["dst6"] or start["inner"] or start["address"]
        payload = start["bsd6"] or start["payload"]
        about = {
            "destination": start["dst6"] or start["name"] or None,
            "address": address,
            "source": start["src"] or start["from"],
            "payload": None if payload is None else int(payload),
            "ipv6": ":" in address,
        }
    implementation = _impl(text)
    replies = _replies(lines, unmarked=implementation == "bsd")
    spread, errors, pipe = _SPREAD.search(text), _ERRORS.search(text), _PIPE.search(text)
    row.update(
        {
            "implementation": implementation,
            "spread": number(spread[2]) if spread else None,
            "errors": int(errors[1]) if errors else 0,
            "no_answer": text.count("no answer yet for icmp_seq") + text.count("Request timeout for icmp_seq"),
            "pipe": int(pipe[1]) if pipe else None,
            "stamps": any(reply["time_stamp"] is not None for reply in replies)
            or bool(re.search(r"^\[\d{9,11}\.\d+\] ", text, re.M)),
        }
    )
    where = about["destination"] or about["address"] or "?"
    if row["sent"] is None:
        notes.warn(
            f"{where}: no summary; the text is cut off"
            if replies or start
            else f"{where}: {row['error'] or 'no summary'}"
        )
    elif row["loss"]:
        notes.warn(
            f"{where}: {row['loss']:g}% of the packets are lost" + (f" ({row['error']})" if row["error"] else "")
        )
    if row["duplicates"]:
        notes.warn(f"{where}: {row['duplicates']} answers came more than once")
    return {**about, **row, "replies": replies}


def _replies(lines: list[str], *, unmarked: bool) -> list[dict[str, Any]]:
    """Return the answers; BSD counts those that come again without marking them."""
    replies: list[dict[str, Any]] = []
    answered: set[int] = set()
    for line in lines:
        found = _REPLY.match(line)
        if found and len(replies) < _MOST_REPLIES:
            if int(found["seq"]) == 0:
                # The numbers are of 16 bits and begin anew.
                answered = {0} & answered
            replies.append(
                {
                    "seq": int(found["seq"]),
                    "from": found["address"] or found["from"],
                    "ttl": None if found["ttl"] is None else int(found["ttl"]),
                    "rtt": None if found["time"] is None else number(found["time"]),
                    "duplicate": "(DUP!)" in found["rest"] or (unmarked and int(found["seq"]) in answered),
                    "time_stamp": None if found["stamp"] is None else number(found["stamp"]),
                }
            )
            answered.add(int(found["seq"]))
    return replies


def parse(text: str) -> Reading:
    """Return ``runs``: of each ``destination``, ``address``, ``payload``, ``sent``, ``received``, ``loss`` and times.

    ``spread`` is mdev or stddev as printed; ``error`` is the tool's own complaint or the first reason in the answers.
    """
    notes = Notes()
    runs: list[list[str]] = [[]]
    for line in plain_lines(text):
        # Warnings of iputils come before the first line of a run.
        if _START.match(line) and any(_START.match(earlier) for earlier in runs[-1]):
            runs.append([])
        runs[-1].append(line)
    return notes.reading({"runs": [_one(lines, notes) for lines in runs]})


def _parse_fping(text: str) -> Reading:
    notes = Notes()
    rows = []
    for target, row in ping.parse_fping("\n".join(plain_lines(text))).items():
        rows.append({"destination": target, **row})
        if row["loss"] or row["error"]:
            loss = "unknown" if row["loss"] is None else f"{row['loss']:g}%"
            notes.warn(f"{target}: loss {loss}" + (f" ({row['error']})" if row["error"] else ""))
    for line in text.splitlines():
        told = re.match(r"^fping: (.{1,200})", line.strip())
        if told:
            notes.warn(told[1])
    if not rows:
        notes.warn("no target")
    return notes.reading({"runs": rows})


def likely(text: str) -> float:
    """Say how sure one can be that a text is of ping."""
    if re.search(r"^PING6? ?\S* ?\(.{1,120}\d+(?:\(\d+\))? (?:data )?bytes", text, re.MULTILINE):
        return 0.96
    if re.search(r"^PING6?[ (].{1,200}$", text, re.MULTILINE) and "ping statistics" in text:
        return 0.95
    if "packets transmitted" in text and "packet loss" in text:
        return 0.9
    return 0.85 if re.search(r"^ping6?: ", text, re.MULTILINE) else 0.0


def _likely_fping(text: str) -> float:
    if re.search(r"^\S+ +: xmt/rcv/%loss = \d+/\d+/\d+%", text, re.MULTILINE):
        return 0.97
    lines = [line for line in text.splitlines()[:2000] if line.strip() and not line.startswith("#")]
    # A name and a time for each echo is little to go by: most lines have to be such.
    if lines and sum(_TIMES.fullmatch(line) is not None for line in lines) * 2 > len(lines):
        return 0.8
    return 0.9 if re.search(r"^fping: |for ICMP Echo sent to ", text, re.MULTILINE) else 0.0


_UNITS = {"rtt_min": "ms", "rtt_avg": "ms", "rtt_max": "ms", "rtt": "ms", "spread": "ms", "loss": "%", "payload": "B"}

FORMATS = [
    Format("ping", "ping of any make: loss and round trips", (), _UNITS, likely, parse),
    Format("fping", "fping -C or -c: loss and round trips of many targets", (), _UNITS, _likely_fping, _parse_fping),
]
