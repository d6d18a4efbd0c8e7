"""Output of Slurm's ``sinfo``, ``squeue``, ``scontrol show`` of nodes, jobs and partitions, and ``topology.conf``.

Tables have default or custom columns under their heading. The grammar of topologies is in
`fabtui.scheduler.slurm_text`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any

from fabtui.importers.tables import Values
from fabtui.nodeset import expand_listed
from fabtui.scheduler.slurm_text import NOTHING, joined, leaves, out_of_service, pairs, records
from fabtui_node.parsers.base import Format, Notes, Reading, first_of
from fabtui_node.parsers.lines import plain_lines, whole

_HEAD_WORD = r"#?[A-Z][A-Z_0-9:()/#]*"
_HEAD = rf"^\s*(?={_HEAD_WORD}(?:[ |]+{_HEAD_WORD})+[ |]*$)"
#: What the heading of a table looks like, by the tool.
_HEADINGS = {
    "sinfo": re.compile(_HEAD + r"(?!.*\b(?:JOBID|STEPID)\b)(?=.*\b(?:PARTITION|NODELIST|HOSTNAMES)\b)"),
    "squeue": re.compile(
        _HEAD
        + r"(?!PID\b)(?!.*\b(?:JOBNAME|ALLOCCPUS|EXITCODE|MAXRSS|NTASKS)\b)(?=.*\b(?:JOBID|STEPID)\b)"
        + r"(?=.*\b(?:PARTITION|NAME|USER|ST|STATE)\b)"
    ),
}
#: What the sign after a node's state means (man sinfo).
_SIGNS = {
    "*": "not responding", "~": "powered off", "#": "powering up", "!": "pending power down", "%": "powering down",
    "$": "in a maintenance reservation", "@": "pending reboot", "^": "rebooting", "-": "planned by backfill",
}  # fmt: skip
#: Short states of nodes, spelled out.
_STATES = {
    "alloc": "allocated", "comp": "completing", "drng": "draining", "drain": "drained", "failg": "failing",
    "mix": "mixed", "plnd": "planned", "resv": "reserved", "unk": "unknown", "futr": "future",
}  # fmt: skip
#: Maximum number of nodes out of service that are judged.
_MOST_OUT = 4096
#: Short states of jobs, spelled out.
_JOB_STATES = {
    "PD": "PENDING", "R": "RUNNING", "CG": "COMPLETING", "CD": "COMPLETED", "CA": "CANCELLED", "F": "FAILED",
    "TO": "TIMEOUT", "NF": "NODE_FAIL", "S": "SUSPENDED", "CF": "CONFIGURING", "OOM": "OUT_OF_MEMORY",
    "PR": "PREEMPTED", "DL": "DEADLINE", "RQ": "REQUEUED", "ST": "STOPPED",
}  # fmt: skip
#: Columns whose key is not their own name in small letters.
_KEYS = {
    "nodelist(reason)": "nodelist_or_reason", "st": "state", "jobid": "job", "stepid": "step",
    "time_limi": "time_limit", "timelimit": "time_limit", "avail_fe": "features",
}  # fmt: skip
#: Columns of integers.
_WHOLE = frozenset({"nodes", "cpus", "memory", "weight", "tmp_disk", "nnodes", "ntasks", "uid"})
_MOST_ROWS = 100_000
#: A row with a cell too wide is shifted; most rows show how a column is aligned.
_MOST_OF = 0.6
_DATE = re.compile(r"^[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}$")
_COMMAND = re.compile(
    r"^(?:\S{1,120}[$#%>]|\[.{1,120}\][$#]|[$#%>])\s*(?:\S*/)?(sinfo|squeue|sacct|sstat|scontrol|srun|sbatch)\b"
)
_MESSAGE = re.compile(
    r"^(?:(?:sinfo|squeue|slurm\w*): (?:fatal|error): |slurm_load_\w+ error: |(?:sinfo|squeue): unrecognized).{0,200}"
)
_FIRST = ("NodeName", "JobId", "PartitionName", "ReservationName", "FrontendName", "StepId", "UserName")
_RECORD = re.compile(rf"^\s{{0,3}}({'|'.join(_FIRST)})=")
_BY = re.compile(r"^(.*?)(?<!\s)\s*\[([^@\[\]]{1,60})@([^\[\]]{1,40})\]$")
_ERROR = re.compile(
    r"^(?:scontrol: .{1,200}|slurm_load_\w+ error: .{1,200}|(?:Node|Job|Partition) \S{1,120} not found)"
)
_SCONTROL_LIKELY = first_of(
    (0.95, rf"^[ \t]{{0,3}}(?:{'|'.join(_FIRST)})=\S"),
    (0.85, r"^scontrol: "),
    (0.92, r"^(?:\S{1,120}[$#%>]|\[.{1,120}\][$#]|[$#%>])\s{0,8}(?:\S{0,200}/)?scontrol show (?:node|job|part)"),
)


#: Maximum numbers of records and nodes of a result.
_MOST_RECORDS, _MOST_NODES = 10_000, 100_000
_TOPOLOGY_LIKELY = first_of(
    (0.97, r"(?i)^[ \t]{0,8}SwitchName=\S+[ \t].*\b(?:Nodes|Switches)="),
    (0.97, r"(?i)^[ \t]{0,8}(?:BlockName|AggregatedBlock)=\S+[ \t].*\bNodes="),
    (0.9, r"(?i)^[ \t]{0,8}(?:SwitchName|BlockName)=\S"),
    (0.93, r"^[#$].{0,200}\bscontrol(?: -\S+)* show topo"),
)
_SINFO_TITLE = "Slurm's sinfo: partitions, states of nodes, reasons"
_SCONTROL_TITLE = "Slurm's scontrol: records of nodes, jobs and partitions"
_TOPOLOGY_TITLE = "Slurm's topology: switches or blocks, and the leaf of each node"


def _tables(lines: list[str], heading: re.Pattern[str], notes: Notes) -> Iterator[tuple[list[str], list[list[str]]]]:
    """Yield columns and rows of the tables among lines, each up to the next blank line, prompt or heading."""
    head, body = "", list[str]()
    for line in [*lines, ""]:
        bare = line.strip()
        begins, prompt = bool(heading.search(line)), bool(_COMMAND.match(bare))
        if head and (begins or prompt or not bare or line.startswith("# exit")):
            bars = "|" in head
            names = [name.strip() for name in head.rstrip("|").split("|")] if bars else head.split()
            barred = ([cell.strip() for cell in row.split("|")][: len(names)] for row in body)
            yield names, list(barred) if bars else _split_table(head, body)
            head = ""
        if message := _MESSAGE.match(bare):
            notes.warn(message[0])
        elif begins:
            head, body = line, []
        elif head:
            body.append(line)
        elif bare and not (prompt or line.startswith("#") or _DATE.match(bare)):
            notes.puzzled(line)


def _split_table(heading: str, rows: list[str]) -> list[list[str]]:
    """Return the cells of the rows under a heading.

    A column's place is found from where all rows have a blank. Cells may be empty, cut, or hold blanks.
    """
    words = [(word.start(), word.end()) for word in re.finditer(r"\S+", heading)]
    if rows and all(len(row.split()) == len(words) for row in rows[:_MOST_ROWS]):
        # No cell is empty and none holds a blank; copying may have lost the indent of the heading.
        return [row.split() for row in rows[:_MOST_ROWS]]
    cuts = [_cut(words[at], words[at + 1], rows) for at in range(len(words) - 1)]
    return [_cells(row, cuts) for row in rows[:_MOST_ROWS]]


def _cells(row: str, cuts: list[int]) -> list[str]:
    """Return the cells of a row; one that is wider than its column shifts what follows."""
    cells = []
    start = shift = 0
    for cut in cuts:
        end = cut + shift
        if row[end - 1 : end].strip() and row[end : end + 1].strip():
            end = row.find(" ", end) if " " in row[end:] else len(row)
            shift = end - cut
        cells.append(row[start:end].strip())
        start = end
    return [*cells, row[start:].strip()]


def _cut(left: tuple[int, int], right: tuple[int, int], rows: list[str]) -> int:
    """Return where to cut between two columns: by how all rows are aligned, else by how most are."""
    for share in (1.0, _MOST_OF):
        if _left_aligned(right, rows, share):
            return right[0]
        if sum(_is_blank(row, left[1]) for row in rows) >= share * len(rows):
            return left[1]
    # A column to the left of its heading beside one to the right: cut in the first gap that all rows share.
    for at in range(left[1], right[1]):
        if all(_is_blank(row, at) for row in rows):
            return at
    return left[1]


def _is_blank(row: str, at: int) -> bool:
    return row[at : at + 1] in ("", " ")


def _left_aligned(word: tuple[int, int], rows: list[str], share: float) -> bool:
    """Return True if a share of the rows is blank before a column and most rows have a cell that starts there."""
    free = sum(_is_blank(row, word[0] - 1) for row in rows)
    begins = sum(_is_blank(row, word[0] - 1) and not _is_blank(row, word[0]) for row in rows)
    return free >= share * len(rows) and begins >= _MOST_OF * len(rows) > 0


def _row(names: list[str], cells: list[str], notes: Notes) -> Values | None:
    # The rest of a row that a terminal cut, or words below the table, fill few columns.
    if len(cells) < len(names) or sum(map(bool, cells)) * 3 < len(names) - 1:
        notes.puzzled(" ".join(cells))
        return None
    row: Values = {}
    for name, cell in zip(names, cells, strict=False):
        key = re.sub(r"[^a-z0-9_()]+", "_", name.lower()).strip("_")
        key = _KEYS.get(key, key)
        value: Any = None if cell in ("", "(null)", "N/A", "n/a", "Unknown") else cell
        row[key] = whole(value) if key in _WHOLE and value is not None and whole(value) is not None else value
    return row


def _count_nodes(row: Values, notes: Notes) -> None:
    listed = row.get("nodelist") or row.get("nodelist_or_reason")
    if not isinstance(listed, str) or listed.startswith("("):
        return
    names = expand_listed(listed)
    row["expands_to"] = None if names is None else len(names)
    count = row.get("nodes")
    if isinstance(count, int) and names is not None and count != len(names):
        notes.warn(f"{listed} are {len(names)} nodes, the column has {count}")


def _parse_sinfo(text: str) -> Reading:
    rows, notes = _rows(text, "sinfo")
    default = None
    bad = []
    for row in rows:
        partition = row.get("partition")
        if isinstance(partition, str) and partition.endswith("*"):
            row["partition"] = default = partition[:-1]
        _node_state(row)
        _count_nodes(row, notes)
        if out_of_service(row.get("state") or ""):
            silent = ", not responding" if "not responding" in row.get("flags", []) else ""
            bad.append(f"{row.get('nodelist') or row.get('name') or '?'} {row['state']}{silent}")
    for warning in dict.fromkeys(bad):
        notes.warn(warning)
    return notes.reading({"default_partition": default, "rows": rows})


def _sinfo_nodes(values: Values) -> dict[str, dict[str, Values]]:
    facts: dict[str, dict[str, Values]] = {}
    for row in values["rows"]:
        state, listed = row.get("state"), row.get("nodelist") or row.get("hostnames")
        responds, reason = "not responding" not in row.get("flags", []), row.get("reason")
        if isinstance(state, str) and isinstance(listed, str) and out_of_service(state, responds):
            known = {"state": state, "responds": responds, "reason": None if reason == "none" else reason}
            for name in (expand_listed(listed) or ())[: _MOST_OUT - len(facts)]:
                facts.setdefault(name, {"slurm": known})
    return facts


def _node_state(row: Values) -> None:
    state = row.get("state")
    if not isinstance(state, str):
        return
    sign = state[-1:] if state[-1:] in _SIGNS else ""
    bare = state.lower().removesuffix(sign)
    row |= {"printed_state": state, "state": _STATES.get(bare, bare), "flags": [_SIGNS[sign]] if sign else []}


def _parse_squeue(text: str) -> Reading:
    rows, notes = _rows(text, "squeue")
    for row in rows:
        where = row.pop("nodelist_or_reason", None)
        if isinstance(where, str) and where.startswith("("):
            # One column for both: a reason is in parentheses.
            row["reason"] = where.strip("()")
        elif isinstance(where, str):
            row["nodelist"] = where
        state = row.get("state")
        if isinstance(state, str):
            row["state"] = _JOB_STATES.get(state.upper(), state)
        _count_nodes(row, notes)
    return notes.reading({"rows": rows})


def _rows(text: str, tool: str) -> tuple[list[Values], Notes]:
    notes = Notes()
    tables = _tables(plain_lines(text), _HEADINGS[tool], notes)
    rows = [row for names, cells in tables for each in cells if (row := _row(names, each, notes)) is not None]
    if not rows:
        notes.warn("no row")
    return rows, notes


def _likely(tool: str, text: str) -> float:
    lines = text.splitlines()
    if any(map(_HEADINGS[tool].search, lines[:2000])):
        return 0.95
    commands = (command[1] for line in lines[:200] if (command := _COMMAND.match(line.strip())))
    return 0.92 if next(commands, None) == tool else 0.0


def _records(lines: list[str], notes: Notes) -> list[Values]:
    records: list[Values] = []
    for line in lines:
        if first := _RECORD.match(line):
            records.append({"kind": first[1]})
        if not records or not line.strip():
            continue
        # A record may be on one line (-o).
        values = pairs(line.strip() if _RECORD.match(line) else line)
        if not values and not line.startswith("#"):
            notes.puzzled(line)
        if line.startswith("     ") and "Nodes" in values:
            # scontrol -d: what the job holds on some of its nodes.
            records[-1].setdefault("details", []).append(values)
            continue
        for name, value in values.items():
            records[-1].setdefault(name, None if value in NOTHING else value)
    return records


def _explain(record: Values) -> None:
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
    if isinstance(listed, str) and (names := expand_listed(listed)) is not None:
        record["expands_to"] = len(names)


def _parse_scontrol(text: str) -> Reading:
    """Return ``records``: all names as printed, ``kind``, and if present ``states``, ``reason`` and ``reason_by``."""
    notes = Notes()
    lines = plain_lines(text)
    for error in filter(None, (_ERROR.match(line.strip()) for line in lines)):
        notes.warn(error[0])
    values = _records(lines, notes)
    for record in values:
        _explain(record)
        states = "+".join(record.get("states", []))
        if record["kind"] == "NodeName" and out_of_service(states):
            notes.warn(f"{record.get('NodeName')} {states}: {record.get('reason') or record.get('Reason')}")
    if not values:
        notes.warn("no record")
    return notes.reading({"records": values})


def _node_states(values: Values) -> dict[str, dict[str, Values]]:
    return {
        record["NodeName"]: {"slurm": {"state": "+".join(record["states"]), "reason": record.get("reason")}}
        for record in values["records"]
        if record.get("NodeName") and "states" in record
    }


def _parse_topology(text: str) -> Reading:
    """Return ``records``, and ``nodes``: the leaf switch or block of each node that is in one only."""
    notes = Notes()
    lines = joined(plain_lines(text))
    kept = records(lines)[:_MOST_RECORDS]
    for line in lines:
        bare = line.strip()
        if bare and not bare.startswith(("#", "$")) and "=" in bare and not records([line]):
            notes.puzzled(line)
        elif re.match(r"(?:scontrol: |slurm_load_\w+ error|No topology)", bare):
            notes.warn(bare)
    at = leaves(kept)
    below: set[str] = set()
    rows = []
    for record in kept:
        names = expand_listed(record.nodes) if record.nodes else None
        rows.append({**record._asdict(), "expands_to": None if names is None else len(names)})
        if record.leaf and names:
            if several := below & set(names):
                notes.warn(f"{min(several)} is below {record.name} and another leaf")
            below |= set(names)
    if not kept:
        notes.warn("no switch and no block: topology/flat, or the fabric is not described to Slurm")
    nodes = [{"node": node, "leaf": leaf} for node, leaf in sorted(at.items())[:_MOST_NODES]]
    return notes.reading({"records": rows, "nodes": nodes})


FORMATS = [
    Format("sinfo", _SINFO_TITLE, functools.partial(_likely, "sinfo"), _parse_sinfo, facts=_sinfo_nodes),
    Format("squeue", "Slurm's squeue: jobs and steps", functools.partial(_likely, "squeue"), _parse_squeue),
    Format("scontrol", _SCONTROL_TITLE, _SCONTROL_LIKELY, _parse_scontrol, facts=_node_states),
    Format("slurm-topology", _TOPOLOGY_TITLE, _TOPOLOGY_LIKELY, _parse_topology, aliases=r"topology(?:\.conf)?"),
]
