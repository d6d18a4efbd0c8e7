"""Output of ``scontrol``: records of nodes, jobs and partitions, the configuration, and short answers."""

from __future__ import annotations

import re
from typing import Any

from fabtui.importers.formats.slurm.tables import commands
from fabtui.nodeset import expand_listed
from fabtui_node.parsers.base import Format, Notes, Reading
from fabtui_node.parsers.lines import plain_lines

_FIRST = (
    *("NodeName", "JobId", "PartitionName", "ReservationName", "FrontendName", "StepId", "UserName"),
    "BurstBufferName",
)
_RECORD = re.compile(rf"^\s{{0,3}}({'|'.join(_FIRST)})=")
_PAIR = re.compile(r"(?:^|(?<=\s))([A-Za-z][\w:/.-]{0,60})=")
_REST = re.compile(r"^\s*(Reason|Comment|AdminComment|SystemComment|Command|WorkDir|OS|Extra)=(.*)$")
_BY = re.compile(r"^(.*?)\s*\[([^@\[\]]{1,60})@([^\[\]]{1,40})\]$")
_CONFIG = re.compile(r"^\s*([A-Za-z][\w/.-]{0,60})\s+=\s?(.*)$")
_PING = re.compile(r"^(Slurmctld\(\w{1,30}\)) at (\S{1,253}) is (\w{1,20})")
_ERROR = re.compile(
    r"^(?:scontrol: .{1,200}|slurm_load_\w+ error: .{1,200}|(?:Node|Job|Partition) \S{1,120} not found)"
)
_NOTHING = ("(null)", "N/A", "n/a", "n/s", "Unknown", "")


def _pairs(line: str) -> dict[str, str]:
    """Return the pairs of a line; a value goes on to the next name, so that it may hold blanks and equal signs."""
    if rest := _REST.match(line):
        return {rest[1]: rest[2].strip()}
    found = list(_PAIR.finditer(line))
    ends = [*(pair.start() for pair in found[1:]), len(line)][: len(found)]
    return {pair[1]: line[pair.end() : end].strip() for pair, end in zip(found, ends, strict=True)}


def _records(lines: list[str], notes: Notes) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = []
    for line in lines:
        if first := _RECORD.match(line):
            records.append({"kind": first[1]})
        if not records or not line.strip():
            continue
        # A record may stand on one line (-o).
        pairs = _pairs(line.strip() if _RECORD.match(line) else line)
        if not pairs and not line.startswith("#"):
            notes.puzzled(line)
        if line.startswith("     ") and "Nodes" in pairs:
            # scontrol -d: what the job holds on some of its nodes.
            records[-1].setdefault("details", []).append(pairs)
            continue
        for name, value in pairs.items():
            records[-1].setdefault(name, None if value in _NOTHING else value)
    return records


def _explain(record: dict[str, Any]) -> None:
    """Add derived values: the parts of a state, who set a reason and when, the number of nodes of a list."""
    state = record.get("State") or record.get("JobState")
    if isinstance(state, str):
        # A * after a node's state is the older mark of a node that does not respond.
        states = [part.lower() for part in state.rstrip("*").split("+")]
        record["states"] = states + (["not_responding"] if state.endswith("*") else [])
    reason = record.get("Reason")
    if isinstance(reason, str) and (by := _BY.match(reason)):
        record["reason"], record["reason_by"], record["reason_time"] = by[1], by[2], by[3]
    listed = record.get("NodeList") or record.get("Nodes")
    names = expand_listed(listed) if isinstance(listed, str) else None
    if names is not None:
        record["expands_to"] = len(names)


def _shown(command: str, lines: list[str]) -> dict[str, Any] | None:
    """Return the values of small answers that only the command in front of them explains."""
    body = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    if re.search(r"\bshow hostnames?\b", command):
        return {"hostnames": body[:65536]}
    if re.search(r"\bshow hostlist", command):
        return {"hostlist": body[0] if body else None, "hostnames": expand_listed(body[0]) if body else None}
    return None


def _pids(lines: list[str]) -> list[dict[str, Any]] | None:
    heading = next((at for at, line in enumerate(lines) if line.split()[:3] == ["PID", "JOBID", "STEPID"]), None)
    if heading is None:
        return None
    names = [name.lower() for name in lines[heading].split()]
    rows = [line.split() for line in lines[heading + 1 :] if line.strip() and not line.startswith("#")]
    return [dict(zip(names, row, strict=False)) for row in rows if row[0].isdecimal()]


def parse(text: str) -> Reading:
    """Return ``records``, or what else was asked: ``config``, ``controllers``, ``processes``, ``hostnames``.

    A record has all names as printed, its ``kind``, and if present ``states``, ``reason`` and ``reason_by``.
    """
    notes = Notes()
    lines = plain_lines(text)
    values: dict[str, Any] = {"records": []}
    for line in lines:
        if error := _ERROR.match(line.strip()):
            notes.warn(error[0])
        elif ping := _PING.match(line.strip()):
            values.setdefault("controllers", []).append({"role": ping[1], "host": ping[2], "state": ping[3]})
            if ping[3] != "UP":
                notes.warn(ping[0])
    head = next((line for line in lines[:5] if re.search(r"\bscontrol\b", line)), "")
    start = next((at for at, line in enumerate(lines) if line.startswith("Configuration data as of")), None)
    if start is not None:
        pairs = [(found[1], found[2].strip()) for line in lines[start + 1 :] if (found := _CONFIG.match(line))]
        values["config"] = {name: None if value in _NOTHING else value for name, value in pairs}
    elif (processes := _pids(lines)) is not None:
        values["processes"] = processes
    elif head and (shown := _shown(head, lines)) is not None:
        values.update(shown)
    else:
        values["records"] = _records(lines, notes)
    for record in values["records"]:
        _explain(record)
        states = "+".join(record.get("states", []))
        if record["kind"] == "NodeName" and re.search("down|drain|fail|not_r", states):
            notes.warn(f"{record.get('NodeName')} {states}: {record.get('reason') or record.get('Reason')}")
    if values == {"records": []}:
        notes.warn("no record")
    return notes.reading(values)


def likely(text: str) -> float:
    """Return the likelihood that a text is output of scontrol."""
    if re.search(rf"^\s{{0,3}}(?:{'|'.join(_FIRST)})=\S", text, re.MULTILINE | re.IGNORECASE):
        return 0.95
    if "Configuration data as of" in text or re.search(r"^Slurmctld\(\w+\) at \S+ is ", text, re.MULTILINE):
        return 0.95
    if commands(text)[:1] == ["scontrol"] or re.search(r"^PID +JOBID +STEPID", text, re.MULTILINE):
        return 0.92
    # The text may have been piped through another command.
    return 0.85 if re.search(r"^[#$].{0,200}\bscontrol\b", text) or text.startswith("scontrol: ") else 0.0


_TITLE = "Slurm's scontrol: records of nodes, jobs and partitions, the configuration"
FORMATS = [Format("scontrol", _TITLE, likely, parse)]
