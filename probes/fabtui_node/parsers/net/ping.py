"""Output of ``ping`` (iputils, busybox, BSD, macOS), one or several runs in a text, and of ``fping``."""

from __future__ import annotations

import math
import re
from typing import Any, Dict, List, Optional

from fabtui_node.parsers.base import Format, Notes, Reading, first_of
from fabtui_node.parsers.lines import is_prompt, number, plain_lines

_NUMBER = r"([0-9]{1,9}(?:\.[0-9]{1,9})?)"
_SUMMARY = re.compile(r"([0-9]{1,9}) packets transmitted, ([0-9]{1,9})(?: packets)? received", re.ASCII)
_LOSS = re.compile(_NUMBER + "% packet loss", re.ASCII)
_TIMES = re.compile("min/avg/max(?:/[a-z-]+)? = " + "/".join([_NUMBER] * 3) + r"(?:/[0-9.]+)? ms", re.ASCII)
_PATH_MTU = re.compile(
    r"(?:Frag needed and DF set|message too long,?|Packet too big:?).{0,5}mtu ?= ?([0-9]{2,5})", re.I
)
_DUPLICATES = re.compile(r"\+([0-9]{1,9}) duplicates", re.ASCII)
_REPLY_ERROR = re.compile(
    r"(Destination \w+ (?:Unreachable|Prohibited|Unknown)|(?:Packet|Frag) .*(?:needed|filtered)[^,]*"
    r"|Time to live exceeded|Time exceeded: Hop limit|Redirect Host|Source Quench|message too long.*"
    r"|No buffer space available|Network is unreachable|No route to host|Operation not permitted|sendmsg: .*)",
    re.IGNORECASE,
)
# Not the lines that go with a complaint: "socktype: SOCK_RAW" before it, "=> missing cap_net_raw" after it.
_TOOL_ERROR = re.compile(r"f?ping6?: (?!socktype:|=>|warning)(.{1,300})", re.IGNORECASE)

_FPING_DUPLICATE = re.compile(r"(\S{1,100})\s+: duplicate for ", re.ASCII)
_FPING_SUMMARY = re.compile(
    r"(\S{1,100})\s+: xmt/rcv/%loss = ([0-9]{1,9})/([0-9]{1,9})/[0-9]{1,3}%"
    r"(?:, min/avg/max = " + "/".join([_NUMBER] * 3) + ")?",
    re.ASCII,
)
_FPING_UNREACHABLE = re.compile(r"ICMP (.{1,80}?) from \S{1,100} for ICMP Echo sent to (\S{1,100})", re.ASCII)
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
_FPING_TIMES = re.compile(r"\S{1,253} +: (?:-|\d{1,9}\.\d{1,9})(?: (?:-|\d{1,9}\.\d{1,9})){0,100}\s*")
_MOST_REPLIES = 10_000
_LINE_LIMIT = 1000
#: Error of a row whose text has no summary.
NO_SUMMARY = "no summary from ping"

Row = Dict[str, Any]

_UNITS = {"rtt_min": "ms", "rtt_avg": "ms", "rtt_max": "ms", "rtt": "ms", "spread": "ms", "loss": "%", "payload": "B"}

_LIKELY = first_of(
    (0.96, r"^PING6? ?\S{0,300} ?\(.{1,120}\d(?:\(\d{1,9}\))? (?:data )?bytes"),
    (0.95, r"\A(?=(?s:.*)^PING6?[ (].{1,200}$)(?=(?s:.*)ping statistics)"),
    (0.9, r"\A(?=(?s:.*)packets transmitted)(?=(?s:.*)packet loss)"),
    (0.85, "^ping6?: "),
)


def unknown_row(error: Optional[str] = None) -> Row:
    row: Row = dict.fromkeys(("sent", "received", "loss", "rtt_min", "rtt_avg", "rtt_max"))
    return {**row, "duplicates": 0, "path_mtu": None, "error": error}


def _loss(sent: Optional[int], received: Optional[int]) -> Optional[float]:
    if not sent or received is None:
        return None
    return round(max(0.0, 100.0 * (sent - received) / sent), 3)


def parse_ping(text: str) -> Row:
    """Parse the output of any common ``ping`` (iputils, busybox, BSD; stdout and stderr).

    Returns:
        ``{"sent", "received", "loss" (percent), "rtt_min", "rtt_avg", "rtt_max" (ms), "duplicates", "path_mtu"
        (bytes, as reported by a router or the kernel), "error"}``; missing values are None. ``error`` is the tool's
        own complaint, or the first reason in the replies.
    """
    row = unknown_row()
    summary = _SUMMARY.search(text)
    if summary:
        row["sent"], row["received"] = int(summary[1]), int(summary[2])
        percent = _LOSS.search(text)
        row["loss"] = _loss(row["sent"], row["received"])
        if row["loss"] is None and percent:
            row["loss"] = float(percent[1])
    times = _TIMES.search(text)
    if times:
        row["rtt_min"], row["rtt_avg"], row["rtt_max"] = (float(word) for word in times.groups())
    duplicates = _DUPLICATES.search(text)
    row["duplicates"] = int(duplicates[1]) if duplicates else text.lower().count("(dup!)")
    narrow = _PATH_MTU.search(text)
    row["path_mtu"] = int(narrow[1]) if narrow else None
    row["error"] = _complaint(text, bool(row["received"]))
    if not summary and row["error"] is None:
        row["error"] = NO_SUMMARY
    return row


def _complaint(text: str, answered: bool) -> Optional[str]:
    reason = None
    for line in text.splitlines():
        line = line.strip()[:_LINE_LIMIT]
        complaint = _TOOL_ERROR.match(line)
        reply = _REPLY_ERROR.search(line)
        if complaint:
            return complaint[1].strip()
        if reply and reason is None and not answered:
            reason = reply[1].strip()[:200]
    return reason


def parse_fping(text: str) -> Dict[str, Row]:
    """Return ``{target: row}`` from what ``fping -C N -q`` or ``-c N -q`` printed, rows as in ``parse_ping``."""
    rows: Dict[str, Row] = {}
    reasons: Dict[str, str] = {}
    repeated: Dict[str, int] = {}
    for line in text.splitlines():
        line = line.strip()[:_LINE_LIMIT]
        if is_prompt(line):
            # A command above the output has colons and dashes, too.
            continue
        summary = _FPING_SUMMARY.fullmatch(line)
        duplicate = _FPING_DUPLICATE.match(line)
        unreachable = _FPING_UNREACHABLE.search(line)
        target, colon, answers = line.partition(" : ")
        if summary:
            row = rows[summary[1]] = unknown_row()
            row["sent"], row["received"] = int(summary[2]), int(summary[3])
            row["loss"] = _loss(row["sent"], row["received"])
            if summary[6]:
                row["rtt_min"], row["rtt_avg"], row["rtt_max"] = (float(word) for word in summary.groups()[3:])
        elif unreachable:
            reasons.setdefault(unreachable[2], unreachable[1])
        elif duplicate:
            repeated[duplicate[1]] = repeated.get(duplicate[1], 0) + 1
        elif colon and re.fullmatch(r"[-0-9. ]+", answers):
            rows[target.strip()] = _times_row(answers.split())
    for target, reason in reasons.items():
        if target in rows and not rows[target]["received"]:
            rows[target]["error"] = reason
    for target, count in repeated.items():
        if target in rows:
            rows[target]["duplicates"] = count
    return rows


def _times_row(words: List[str]) -> Row:
    row = unknown_row()
    answers = [float(word) for word in words if re.fullmatch(_NUMBER, word, re.ASCII)]
    if len(answers) + words.count("-") != len(words):
        row["error"] = "fping printed an unknown line"
        return row
    row["sent"], row["received"] = len(words), len(answers)
    row["loss"] = _loss(len(words), len(answers))
    if answers:
        row["rtt_min"], row["rtt_max"] = min(answers), max(answers)
        row["rtt_avg"] = round(math.fsum(answers) / len(answers), 4)
    return row


def _impl(text: str) -> str:
    if re.search(r"bytes of data\.|/mdev = |^PING \S{0,300} ?\(\S{1,300}\) \d+ data bytes$", text, re.MULTILINE):
        return "iputils"
    if re.search(r"\bseq=\d+ ttl=", text) and "icmp_seq" not in text:
        return "busybox"
    if re.search(r"/std-?dev = |^PING6\(|^Request timeout for icmp_seq", text, re.MULTILINE):
        return "bsd"
    # IPv6 of iputils prints "56 data bytes" after two addresses.
    return "iputils" if re.search(r"^PING [^\n]*\) \d+ data bytes$", text, re.MULTILINE) else "unknown"


def _one(lines: list[str], notes: Notes) -> dict[str, Any]:
    text = "\n".join(lines)
    row: dict[str, Any] = dict(parse_ping(text))
    start = next((match for line in lines if (match := _START.match(line))), None)
    about: dict[str, Any] = dict.fromkeys(("destination", "address", "source", "payload", "ipv6"))
    if start is not None:
        address, payload = start["dst6"] or start["inner"] or start["address"], start["bsd6"] or start["payload"]
        about.update(destination=start["dst6"] or start["name"] or None, address=address, ipv6=":" in address)
        about.update(source=start["src"] or start["from"], payload=None if payload is None else int(payload))
    implementation = _impl(text)
    replies = _replies(lines, unmarked=implementation == "bsd")
    spread, errors, pipe = _SPREAD.search(text), _ERRORS.search(text), _PIPE.search(text)
    row.update(
        implementation=implementation,
        spread=number(spread[2]) if spread else None,
        errors=int(errors[1]) if errors else 0,
        no_answer=text.count("no answer yet for icmp_seq") + text.count("Request timeout for icmp_seq"),
        pipe=int(pipe[1]) if pipe else None,
        stamps=re.search(r"^\[\d{9,11}\.\d+\] ", text, re.M) is not None,
    )
    where = about["destination"] or about["address"] or "?"
    reason = f" ({row['error']})" if row["error"] else ""
    if row["sent"] is None and (replies or start):
        notes.warn(f"{where}: no summary; the text is cut off")
    elif row["sent"] is None:
        notes.warn(f"{where}: {row['error'] or 'no summary'}")
    elif row["loss"]:
        notes.warn(f"{where}: {row['loss']:g}% of the packets are lost{reason}")
    if row["duplicates"]:
        notes.warn(f"{where}: {row['duplicates']} answers arrived more than once")
    return {**about, **row, "replies": replies}


def _replies(lines: list[str], *, unmarked: bool) -> list[dict[str, Any]]:
    """Return the answers; BSD counts those that come again without marking them."""
    replies: list[dict[str, Any]] = []
    answered: set[int] = set()
    for line in lines:
        match = _REPLY.match(line)
        if not match or len(replies) >= _MOST_REPLIES:
            continue
        seq, again = int(match["seq"]), "(dup!)" in match["rest"].lower()
        if seq == 0:
            # The numbers have 16 bits and wrap around.
            answered &= {0}
        reply = {"seq": seq, "from": match["address"] or match["from"], "ttl": match["ttl"] and int(match["ttl"])}
        reply.update(rtt=number(match["time"] or ""), duplicate=again or (unmarked and seq in answered))
        replies.append({**reply, "time_stamp": number(match["stamp"] or "")})
        answered.add(seq)
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
    for target, row in parse_fping("\n".join(plain_lines(text))).items():
        rows.append({"destination": target, **row})
        if row["loss"] or row["error"]:
            loss = "unknown" if row["loss"] is None else f"{row['loss']:g}%"
            notes.warn(f"{target}: loss {loss}" + (f" ({row['error']})" if row["error"] else ""))
    for line in text.splitlines():
        complaint = re.match(r"^fping: (.{1,200})", line.strip())
        if complaint:
            notes.warn(complaint[1])
    if not rows:
        notes.warn("no target")
    return notes.reading({"runs": rows})


def _likely_fping(text: str) -> float:
    if re.search(r"^\S+ +: xmt/rcv/%loss = \d+/\d+/\d+%", text, re.MULTILINE):
        return 0.97
    lines = [line for line in text.splitlines()[:2000] if line.strip() and not line.startswith("#")]
    # A name and a time for each echo is little to go by: most lines have to be such.
    targets = sum(_FPING_TIMES.fullmatch(line) is not None for line in lines)
    if lines and targets * 2 > len(lines):
        return 0.8
    if targets and (targets > 2 or re.search(r"\bfping\b", text[:_LINE_LIMIT])):
        return 0.7
    return 0.9 if re.search(r"^fping: |for ICMP Echo sent to ", text, re.MULTILINE) else 0.0


FORMATS = [
    Format("ping", "ping of any make: loss and round trips", _LIKELY, parse, units=_UNITS, log=True),
    Format("fping", "fping -C or -c: loss and round trips of many targets", _likely_fping, _parse_fping, units=_UNITS),
]
