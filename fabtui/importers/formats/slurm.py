"""Output of Slurm's commands, the log of slurmd, and ``topology.conf``.

``sinfo``, ``squeue``, ``sacct`` and ``sstat`` have default or custom columns, ``|`` or JSON. ``scontrol`` prints
records of nodes, jobs and partitions, the configuration, and short answers. The grammar of topologies is in
`fabtui.scheduler.slurm_topology`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from fabtui.nodeset import expand_listed
from fabtui.scheduler.slurm_records import NOTHING, pairs
from fabtui.scheduler.slurm_states import out_of_service
from fabtui.scheduler.slurm_topology import joined, leaves, records
from fabtui_node.parsers.base import Format, Likely, Notes, Reading, first_of
from fabtui_node.parsers.lines import json_value, plain_lines, whole


class _Table(NamedTuple):
    """A table: the names of its columns and its rows of cells."""

    names: list[str]
    rows: list[list[str]]


class _Tool(NamedTuple):
    """Marks of the tables of one tool."""

    name: str  #: The tool.
    heading: re.Pattern[str]  #: What the heading of its tables looks like.
    json_lists: tuple[str, ...]  #: The lists of its JSON output.
    rows: tuple[tuple[str, re.Pattern[str]], ...] = ()  #: Its usual columns, and rows that cannot be of others.
    states: frozenset[str] = frozenset()  #: Words of a row with bars.


_HEAD_WORD = r"#?[A-Z][A-Z_0-9:()/#]*"
_HEAD = rf"^\s*(?={_HEAD_WORD}(?:[ |]+{_HEAD_WORD})+[ |]*$)"
_SINFO = _Tool(
    "sinfo",
    re.compile(_HEAD + r"(?!.*\b(?:JOBID|STEPID)\b)(?=.*\b(?:PARTITION|NODELIST|HOSTNAMES)\b)"),
    ("nodes", "sinfo"),
    (
        (
            "PARTITION AVAIL TIMELIMIT NODES STATE NODELIST",
            re.compile(
                r"\s*(\S{1,60})\s+(up|down|drain|inact)\s+(infinite|n/a|(?:\d{1,5}-)?[\d:]{2,12})\s+(\d{1,6})"
                r"\s+([a-z]{3,12}[*~#!%$@^+-]?)\s+([a-z]\S{0,4000})\s*"
            ),
        ),
        (
            "REASON USER TIMESTAMP NODELIST",
            re.compile(
                r"(\S.{0,100}?)\s+(\S{1,40})\s+(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\s+([a-z][\w,\[\].-]{0,4000})\s*"
            ),
        ),
    ),
    frozenset({"allocated", "completing", "down", "drained", "draining", "idle", "mixed", "planned", "reserved"}),
)
_SQUEUE = _Tool(
    "squeue",
    re.compile(
        _HEAD
        + r"(?!PID\b)(?!.*\b(?:JOBNAME|ALLOCCPUS|EXITCODE|MAXRSS|NTASKS)\b)(?=.*\b(?:JOBID|STEPID)\b)"
        + r"(?=.*\b(?:PARTITION|NAME|USER|ST|STATE)\b)"
    ),
    ("jobs",),
    (
        (
            "JOBID PARTITION NAME USER ST TIME NODES NODELIST(REASON)",
            re.compile(
                r"\s*(\d{1,10}(?:[_+]\S{1,60})?)\s+(\S{1,60})\s+(\S.{0,60}?)\s+(\S{1,60})"
                r"\s+(PD|R|CG|CD|CA|F|TO|NF|S|CF|OOM|PR|DL|RQ|ST)"
                r"\s+((?:\d{1,4}-)?\d{1,2}:\d\d(?::\d\d)?)\s+(\d{1,6})\s+(\S.{0,4000}?)(?<!\s)\s*"
            ),
        ),
    ),
    frozenset({"pending", "running", "completing", "completed", "cancelled", "failed", "timeout", "suspended"}),
)
_SACCT = _Tool(
    "sacct",
    re.compile(
        r"^\s*JobID(?:Raw)?[ |].*(?:JobName|State|Partition|Elapsed|MaxVMSize|ExitCode|MaxRSS|NTasks)"
        r"|^\s*(?i:JobID(?:Raw)?[ |].*(?:JobName|MaxVMSize|ExitCode|MaxRSS|NTasks))"
    ),
    ("jobs",),
)
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
_FAILED = ("FAILED", "NODE_FAIL", "TIMEOUT", "OUT_OF_MEMORY", "BOOT_FAIL")
#: What a letter of ``-o`` puts into a column, by tool.
_LETTERS = {
    "sinfo": {
        "N": "NODELIST", "n": "HOSTNAMES", "P": "PARTITION", "R": "PARTITION", "T": "STATE", "t": "STATE", "G": "GRES",
        "E": "REASON", "D": "NODES", "a": "AVAIL", "l": "TIMELIMIT", "c": "CPUS", "m": "MEMORY", "f": "AVAIL_FEATURES",
        "u": "USER", "U": "USER", "H": "TIMESTAMP", "C": "CPUS(A/I/O/T)", "O": "CPU_LOAD", "e": "FREE_MEM",
        "w": "WEIGHT", "d": "TMP_DISK", "z": "S:C:T",
    },
    "squeue": {
        "i": "JOBID", "A": "JOBID", "j": "NAME", "T": "STATE", "t": "ST", "M": "TIME", "N": "NODELIST", "D": "NODES",
        "b": "TRES_PER_NODE", "r": "REASON", "R": "NODELIST(REASON)", "u": "USER", "P": "PARTITION", "l": "TIME_LIMIT",
        "L": "TIME_LEFT", "S": "START_TIME", "e": "END_TIME", "C": "CPUS", "m": "MIN_MEMORY", "Q": "PRIORITY",
        "a": "ACCOUNT", "q": "QOS", "V": "SUBMIT_TIME", "k": "COMMENT",
    },
}  # fmt: skip
#: Columns whose key is not their own name in small letters.
_KEYS = {
    "nodelist(reason)": "nodelist_or_reason", "st": "state", "jobid": "job", "stepid": "step",
    "time_limi": "time_limit", "timelimit": "time_limit", "avail_fe": "features", "alloccpus": "cpus",
    "exitcode": "exit_code",
}  # fmt: skip
#: Columns of integers.
_WHOLE = frozenset({"nodes", "cpus", "memory", "weight", "tmp_disk", "nnodes", "ntasks", "uid"})
#: What is kept of an entry of the JSON, by tool.
_JSON_NAMES = {
    "sinfo": (
        "name", "state", "state_flags", "reason", "partitions", "gres", "gres_used", "cpus", "alloc_cpus",
        "real_memory", "alloc_memory", "address", "node", "nodes", "partition", "cluster",
    ),
    "squeue": (
        "job_id", "name", "job_state", "partition", "user_name", "nodes", "node_count", "state_reason",
        "tres_per_node", "start_time", "time_limit",
    ),
    "sacct": ("job_id", "name", "state", "partition", "account", "user", "nodes", "exit_code", "time"),
}  # fmt: skip
_MOST_ROWS = 100_000
#: A row with a cell too wide is shifted; most rows show how a column is aligned.
_MOST_OF = 0.6
_STATES_AFTER = re.compile(r"^(.*?)([*~#!%$@^-]?)$")
_DATE = re.compile(r"^[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}$")
_COMMAND = re.compile(
    r"^(?:\S{1,120}[$#%>]|\[.{1,120}\][$#]|[$#%>])\s*(?:\S*/)?(sinfo|squeue|sacct|sstat|scontrol|srun"
    r"|sbatch)\b(.*)$"
)
_FORMAT = re.compile(r"(?:-o|--format=?)\s*['\"]?((?:%[.\d]*[A-Za-z]\|?)+)")
_MESSAGE = re.compile(
    r"^(?:(?:sinfo|squeue|sacct|sstat|slurm\w*): (?:fatal|error): |slurm_load_\w+ error: |Slurm accounting storage is"
    r" disabled"
    r"|(?:sinfo|squeue|sacct|sstat): unrecognized).{0,200}"
)


def commands(text: str) -> list[str]:
    """Return the Slurm commands that a text shows at a prompt (``$ sinfo -R``), by the tool's name."""
    return [found[1] for line in text.splitlines()[:200] if (found := _COMMAND.match(line.strip()))]


def _tables(lines: list[str], tool: _Tool, notes: Notes) -> list[_Table]:
    """Return the tables among lines, each up to the next blank line, prompt or heading."""
    tables: list[_Table] = []
    letters: list[str] | None = None
    at = 0
    if not any(map(tool.heading.search, lines)) and (found := _without_heading(lines, tool)):
        notes.warn(f"no heading: the columns are the usual ones, {' '.join(found.names)}, as the rows show")
        return [found]
    while at < len(lines):
        line = lines[at]
        at += 1
        if command := _COMMAND.match(line.strip()):
            form = _FORMAT.search(command[2])
            known = _LETTERS.get(command[1], {})
            letters = None
            if form and (" -h" in command[2] or "--noheader" in command[2]):
                letters = [known.get(letter, letter) for letter in re.findall(r"%[.\d]*([A-Za-z])", form[1])]
        elif message := _MESSAGE.match(line.strip()):
            notes.warn(message[0])
        elif tool.heading.search(line):
            body = _body(lines, at, tool)
            at += len(body)
            tables.append(_table(line, body))
        elif letters and line.count("|") == len(letters) - 1 and len(letters) > 1:
            if not tables or tables[-1].names != letters:
                tables.append(_Table(letters, []))
            tables[-1].rows.append([cell.strip() for cell in line.split("|")])
        elif line.strip() and not line.startswith("#") and not _DATE.match(line.strip()):
            notes.puzzled(line)
    return tables


def _without_heading(lines: list[str], tool: _Tool) -> _Table | None:
    """Return the rows of a table that lost its heading, where each column shows what it is; None if there are none."""
    for names, row in tool.rows:
        if rows := [list(match.groups()) for line in lines[:_MOST_ROWS] if (match := row.fullmatch(line))]:
            return _Table(names.split(), rows)
    return None


def _has_rows(lines: list[str], tool: _Tool) -> bool:
    """Return True if most lines are rows of a tool without their heading; those with bars have columns by choice."""
    shown = [line for line in lines if line.strip() and not line.startswith(("#", "$"))]
    barred = [
        cells
        for line in shown
        if len(cells := {cell.strip().lower() for cell in line.split("|")}) > 2
        and cells & tool.states
        and any(re.fullmatch(r"(?:gres[:/])?gpu(?::\w{1,40})?[:=]\d{1,3}(?:\(.{1,60}\))?", cell) for cell in cells)
    ]
    found = _without_heading(shown, tool)
    return max(len(found.rows) if found else 0, len(barred)) * 2 > len(shown)


def _body(lines: list[str], at: int, tool: _Tool) -> list[str]:
    body = []
    for line in lines[at:]:
        if not line.strip() or _COMMAND.match(line.strip()) or tool.heading.search(line) or line.startswith("# exit"):
            break
        body.append(line)
    return body


def _table(heading: str, body: list[str]) -> _Table:
    if "|" in heading:
        names = [name.strip() for name in heading.rstrip("|").split("|")]
        return _Table(names, [[cell.strip() for cell in row.split("|")][: len(names)] for row in body])
    rule = body.pop(0) if body and re.fullmatch(r"[- ]+", body[0]) and "-" in body[0] else None
    return _Table(heading.split(), _split_table(heading, body, rule))


def _split_table(heading: str, rows: list[str], rule: str | None = None) -> list[list[str]]:
    """Return the cells of the rows under a heading.

    A rule, the line of dashes under the heading, gives each column's width; without it a column's place is found from
    where all rows have a blank. Cells may be empty, cut, or hold blanks.
    """
    words = [(word.start(), word.end()) for word in re.finditer(r"\S+", heading)]
    if rule is not None:
        edges = [(word.start(), word.end()) for word in re.finditer(r"-+", rule)]
        return [[row[start:end].strip() for start, end in edges] for row in rows]
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
        if _right_aligned(left, rows, share):
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


def _right_aligned(word: tuple[int, int], rows: list[str], share: float) -> bool:
    return sum(_is_blank(row, word[1]) for row in rows) >= share * len(rows)


def _row(table: _Table, cells: list[str], notes: Notes) -> dict[str, Any] | None:
    # The rest of a row that a terminal cut, or words below the table, fill few columns.
    if len(cells) < len(table.names) or sum(map(bool, cells)) * 3 < len(table.names) - 1:
        notes.puzzled(" ".join(cells))
        return None
    row: dict[str, Any] = {}
    for name, cell in zip(table.names, cells, strict=False):
        key = re.sub(r"[^a-z0-9_()]+", "_", name.lower()).strip("_")
        key = _KEYS.get(key, key)
        value: Any = None if cell in ("", "(null)", "N/A", "n/a", "Unknown") else cell
        row[key] = whole(value) if key in _WHOLE and value is not None and whole(value) is not None else value
    return row


def _count_nodes(row: dict[str, Any], notes: Notes) -> None:
    listed = row.get("nodelist") or row.get("nodelist_or_reason")
    if not isinstance(listed, str) or listed.startswith("("):
        return
    names = expand_listed(listed)
    row["expands_to"] = None if names is None else len(names)
    count = row.get("nodes")
    if isinstance(count, int) and names is not None and count != len(names):
        notes.warn(f"{listed} are {len(names)} nodes, the column has {count}")


def _parse_sinfo(text: str) -> Reading:
    rows, notes = _rows(text, _SINFO)
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
    for text_of in dict.fromkeys(bad):
        notes.warn(text_of)
    return notes.reading({"default_partition": default, "rows": rows})


def _sinfo_nodes(values: dict[str, Any]) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the states of nodes out of service as the probe ``slurm`` has them."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for row in values["rows"]:
        state, listed = row.get("state"), row.get("nodelist") or row.get("hostnames")
        responds, reason = "not responding" not in row.get("flags", []), row.get("reason")
        if isinstance(state, str) and isinstance(listed, str) and out_of_service(state, responds):
            known = {"state": state, "responds": responds, "reason": None if reason == "none" else reason}
            for name in (expand_listed(listed) or ())[: _MOST_OUT - len(found)]:
                found.setdefault(name, {"slurm": known})
    return found


def _node_state(row: dict[str, Any]) -> None:
    state = row.get("state")
    if not isinstance(state, str):
        return
    found = _STATES_AFTER.match(state.lower())
    assert found is not None
    row["printed_state"] = state
    row["state"] = _STATES.get(found[1], found[1])
    row["flags"] = [_SIGNS[found[2]]] if found[2] else []


def _parse_squeue(text: str) -> Reading:
    rows, notes = _rows(text, _SQUEUE)
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


def _parse_sacct(text: str) -> Reading:
    rows, notes = _rows(text, _SACCT)
    for row in rows:
        if str(row.get("state") or "").split(" ")[0] in _FAILED:
            notes.warn(f"job {row.get('job')} {row['state']}")
    return notes.reading({"rows": rows})


def _rows(text: str, tool: _Tool) -> tuple[list[dict[str, Any]], Notes]:
    notes = Notes()
    found = _json_rows(text, tool, notes)
    if found is None:
        tables = _tables(plain_lines(text), tool, notes)
        found = [row for one in tables for cells in one.rows if (row := _row(one, cells, notes)) is not None]
    if not found:
        notes.warn("no row")
    return found, notes


def _json_rows(text: str, tool: _Tool, notes: Notes) -> list[dict[str, Any]] | None:
    """Return the rows of ``--json``; None where the text is not JSON. The shape changes with Slurm's releases."""
    start = text.find("{")
    if start < 0 or text[:start].strip().count("\n") > 20:
        return None
    value = json_value(text[start:])
    if not isinstance(value, dict):
        if '"meta"' in text[:2000]:
            notes.warn("the JSON is cut off")
        return None
    for name in tool.json_lists:
        if isinstance(value.get(name), list):
            entries = [entry for entry in value[name] if isinstance(entry, dict)]
            return [_json_row(entry, tool) for entry in entries[:100_000]]
    return None


def _json_row(entry: dict[str, Any], tool: _Tool) -> dict[str, Any]:
    row = {name: _plain(entry[name]) for name in _JSON_NAMES[tool.name] if name in entry}
    for name, ours in (("job_id", "job"), ("job_state", "state"), ("user_name", "user"), ("state_reason", "reason")):
        if name in row:
            row[ours] = row.pop(name)
    if tool.name == "squeue" and not isinstance(row.get("nodes", 0), int):
        row["nodelist"] = row.pop("nodes")
        row["nodes"] = row.pop("node_count", None)
    if tool.name == "sinfo" and isinstance(row.get("name"), str):
        row["nodelist"] = row["name"]
    if tool.name == "sinfo" and isinstance(row.get("node"), dict):
        row["state"] = row.pop("node").get("state")
    if isinstance(row.get("state"), list):
        row["state"] = "+".join(map(str, row["state"]))
    flags = row.pop("state_flags", None)
    if isinstance(flags, list) and flags and isinstance(row.get("state"), str):
        row["state"] = "+".join([row["state"], *map(str, flags)])
    if isinstance(row.get("partitions"), list):
        row["partition"] = ",".join(map(str, row.pop("partitions")))
    return row


def _plain(value: Any, depth: int = 0) -> Any:
    """Return a value of Slurm's JSON, whose numbers may be ``{"set": true, "infinite": false, "number": 3}``."""
    if depth > 6:
        return None
    if isinstance(value, dict):
        if {"set", "number"} <= value.keys():
            return "infinite" if value.get("infinite") else value["number"] if value["set"] else None
        return {str(name)[:60]: _plain(item, depth + 1) for name, item in list(value.items())[:60]}
    if isinstance(value, list):
        return [_plain(item, depth + 1) for item in value[:4096]]
    return None if value == "" else value[:1000] if isinstance(value, str) else value


def _likely(tool: _Tool, text: str) -> float:
    if '"Slurm"' in text[:4000] or '"slurm"' in text[:4000]:
        # The lists of squeue and sacct are both called jobs; only the accounting has steps in them.
        for name in tool.json_lists:
            if re.search(rf'"{name}"\s*:\s*\[', text):
                steps = re.search(r'"association"\s*:|"steps"\s*:', text) is not None
                return 0.9 if tool.name == "sinfo" or steps == (tool.name == "sacct") else 0.3
    if any(tool.heading.search(line) for line in text.splitlines()[:2000]):
        return 0.95
    shown = commands(text)
    if shown[:1] == [tool.name] or (tool.name == "sacct" and shown[:1] == ["sstat"]):
        return 0.92
    if tool.name == "sacct" and "Slurm accounting storage is disabled" in text:
        return 0.9
    return 0.8 if tool.rows and _has_rows(plain_lines(text[:65536])[:2000], tool) else 0.0


def _format(tool: _Tool, title: str, parse: Callable[[str], Reading], aliases: str = "") -> Format:
    return Format(tool.name, title, functools.partial(_likely, tool), parse, aliases=aliases, words=_HEADINGS)


#: Headings of sinfo and squeue, which are capitals alone.
_HEADINGS = (
    *(
        "PARTITION",
        "AVAIL",
        "TIMELIMIT",
        "NODES",
        "STATE",
        "NODELIST",
        "NODELIST(REASON)",
        "HOSTNAMES",
        "CPUS",
        "MEMORY",
    ),
    *(
        "JOBID",
        "STEPID",
        "NAME",
        "USER",
        "ST",
        "TIME",
        "TIME_LIMI",
        "REASON",
        "TIMESTAMP",
        "GRES",
        "TMP_DISK",
        "WEIGHT",
    ),
    *("AVAIL_FE", "S:C:T"),
)


_FIRST = (
    *("NodeName", "JobId", "PartitionName", "ReservationName", "FrontendName", "StepId", "UserName"),
    "BurstBufferName",
)
#: Keys of records, which are known by them where the first line of a record is missing.
_OF_RECORDS = re.compile(
    r"\b(?:CfgTRES|AllocTRES|RealMemory|CPUAlloc|CPUTot|BootTime|SlurmdStartTime|JobState|NumNodes|NumTasks|MinMemoryNode"
    r"|MinCPUsNode|TRES|SubmitTime|EligibleTime|TotalNodes|MaxNodes|OverSubscribe|StdOut|WorkDir|CPULoad|FreeMem)=",
    re.IGNORECASE,
)
_OF_CONFIG = re.compile(
    r"^((?:Accounting|Slurmctld|Slurmd|Prolog|Epilog|Select|Sched|Priority|Preempt|JobComp|JobAcct|Launch|Batch|Bcast"
    r"|BurstBuffer|CliFilter|Communication|Cluster|Def|Gres|Health|Max|Mpi|Proctrack|Resume|Suspend|Task|Topology)"
    r"[A-Z]\w{1,40}) += ",
    re.MULTILINE,
)
_RECORD = re.compile(rf"^\s{{0,3}}({'|'.join(_FIRST)})=")
_BY = re.compile(r"^(.*?)(?<!\s)\s*\[([^@\[\]]{1,60})@([^\[\]]{1,40})\]$")
_CONFIG = re.compile(r"^\s*([A-Za-z][\w/.-]{0,60})\s+=\s?(.*)$")
_PING = re.compile(r"^(Slurmctld\(\w{1,30}\)) at (\S{1,253}) is (\w{1,20})")
_ERROR = re.compile(
    r"^(?:scontrol: .{1,200}|slurm_load_\w+ error: .{1,200}|(?:Node|Job|Partition) \S{1,120} not found)"
)


def _records(lines: list[str], notes: Notes) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = []
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


#: Names of hosts, or a list of them.
_HOSTS = re.compile(r"(?!\d+$)[A-Za-z0-9][\w.,\[\]-]{0,4000}", re.ASCII)


def _shown(command: str, lines: list[str]) -> dict[str, Any] | None:
    """Return the values of small answers that only the command in front of them explains."""
    body = [name for line in lines if _HOSTS.fullmatch(name := line.strip())]
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


def _parse_scontrol(text: str) -> Reading:
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
        settings = [(found[1], found[2].strip()) for line in lines[start + 1 :] if (found := _CONFIG.match(line))]
        values["config"] = {name: None if value in NOTHING else value for name, value in settings}
    elif (processes := _pids(lines)) is not None:
        values["processes"] = processes
    elif head and (shown := _shown(head, lines)) is not None:
        values.update(shown)
    else:
        values["records"] = _records(lines, notes)
    for record in values["records"]:
        _explain(record)
        states = "+".join(record.get("states", []))
        if record["kind"] == "NodeName" and out_of_service(states):
            notes.warn(f"{record.get('NodeName')} {states}: {record.get('reason') or record.get('Reason')}")
    if values == {"records": []}:
        notes.warn("no record")
    return notes.reading(values)


def _node_states(values: dict[str, Any]) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the states of nodes as the probe ``slurm`` has them."""
    return {
        record["NodeName"]: {"slurm": {"state": "+".join(record["states"]), "reason": record.get("reason")}}
        for record in values["records"]
        if record.get("NodeName") and "states" in record
    }


#: What is in each output of scontrol.
_OF_SCONTROL = (
    *_FIRST,
    *("scontrol", "Configuration data as of", r"^Slurmctld\(", r"^PID +JOBID +STEPID"),
    *(_OF_RECORDS.pattern, _OF_CONFIG.pattern),
)


def _scontrol_likely(text: str) -> float:
    if re.search(rf"^\s{{0,3}}(?:{'|'.join(_FIRST)})=\S", text, re.MULTILINE | re.IGNORECASE):
        return 0.95
    if "Configuration data as of" in text or re.search(r"^Slurmctld\(\w+\) at \S+ is ", text, re.MULTILINE):
        return 0.95
    if commands(text)[:1] == ["scontrol"] or re.search(r"^PID +JOBID +STEPID", text, re.MULTILINE):
        return 0.92
    if len(set(_OF_RECORDS.findall(text[:65536]))) > 2:
        return 0.9
    if len(set(_OF_CONFIG.findall(text[:65536]))) > 2:
        return 0.85
    # The text may have been piped through another command.
    return 0.85 if re.search(r"^[#$].{0,200}\bscontrol\b", text) or text.startswith("scontrol: ") else 0.0


_LINE = re.compile(
    r"^(?:(?P<syslog>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d) (?P<host>\S{1,253}) slurm\w{1,12}(?:\[\d+\])?: |(?:slurm(?:d"
    r"|stepd)|srun|sbatch|salloc)(?:-\S{1,60})?: )?"
    r"(?:\[(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?)\] )?"
    r"(?:\[(?P<job>\d{1,10})(?:\.(?P<step>[\w+.]{1,20}))?\] )?"
    r"(?:(?P<level>error|fatal|warning|debug\d?|info|verbose): )?(?P<text>.*)$"
)
_STEP = re.compile(
    r"\*\*\* (?:STEP|JOB) (?P<job>\d{1,10})(?:\.(?P<step>[\w+]{1,20}))?(?: ON (?P<before>\S{1,253}))?(?: STEPD)?"
    r" (?P<end>CANCELLED|TERMINATED|FAILED)(?: ON (?P<node>\S{1,253}))? AT (?P<at>\S{10,30})(?: DUE TO "
    r"(?P<why>.{1,100}?))? \*\*\*"
)
_MOST_STEPS = 10_000


def _parse_slurmd_log(text: str) -> Reading:
    """Return ``steps`` that were ended (``job``, ``step``, ``node``, ``end``, ``why``), ``errors``, and ``lines``.

    ``why`` is None where the log gives no reason; one that was not ending with signals drains the node.
    """
    notes = Notes()
    steps: list[dict[str, Any]] = []
    errors: list[dict[str, Any]] = []
    lines = 0
    for line in plain_lines(text):
        found = _LINE.match(line)
        if found is None or not (
            found["time"] or found["syslog"] or line.startswith(("slurm", "srun: ", "sbatch: ", "salloc: "))
        ):
            notes.puzzled(line)
            continue
        lines += 1
        job = None if found["job"] is None else int(found["job"])
        entry = {"time": found["time"] or found["syslog"], "job": job, "step": found["step"], "host": found["host"]}
        ended = _STEP.search(found["text"])
        if ended and len(steps) < _MOST_STEPS:
            why = None if ended["why"] is None else ended["why"].lower()
            where = ended["node"] or ended["before"]
            ending = {"job": int(ended["job"]), "step": ended["step"], "node": where, "end": ended["end"].lower()}
            steps.append({**entry, **ending, "why": why})
            if why and "not ending" in why:
                step = f" step {ended['step']}" if ended["step"] else ""
                notes.warn(f"job {ended['job']}{step} on {where}: {why}; such a node is drained")
        if found["level"] in ("error", "fatal") and len(errors) < _MOST_STEPS:
            errors.append({**entry, "level": found["level"], "text": found["text"][:300]})
            if ended is None:
                notes.warn(found["text"])
    if not lines:
        notes.warn("no line of slurmd")
    return notes.reading({"lines": lines, "steps": steps, "errors": errors})


_SLURMD_LIKELY = first_of(
    (0.93, r"^\[\d{4}-\d\d-\d\dT[\d:.]+\] (?:\[\d+\.[\w+]+\] |launch task|task_p_|_run_prolog|slurmd |error: )"),
    (0.85, r"^(?:\S+ +\S+ \S+ \S+ )?slurmd(?:\[\d+\]|-\S+)?: "),
    # Not srun's lines among those of a job, whose log this is then.
    (0.55, r"^(?:srun|sbatch|salloc|slurmstepd(?:-\S{1,60})?): (?:error|fatal): "),
)


#: Maximum numbers of records and nodes of a result.
_MOST_RECORDS, _MOST_NODES = 10_000, 100_000


def _parse_topology(text: str) -> Reading:
    """Return ``records``, and ``nodes``: the leaf switch or block of each node that is in one only."""
    notes = Notes()
    lines = joined(plain_lines(text))
    found = records(lines)[:_MOST_RECORDS]
    for line in lines:
        bare = line.strip()
        if bare and not bare.startswith(("#", "$")) and "=" in bare and not records([line]):
            notes.puzzled(line)
        elif re.match(r"(?:scontrol: |slurm_load_\w+ error|No topology)", bare):
            notes.warn(bare)
    at = leaves(found)
    below: set[str] = set()
    rows = []
    for one in found:
        names = expand_listed(one.nodes) if one.nodes else None
        rows.append({**one._asdict(), "expands_to": None if names is None else len(names)})
        if one.leaf and names:
            several = below & set(names)
            if several:
                notes.warn(f"{min(several)} is below {one.name} and another leaf")
            below |= set(names)
    if not found:
        notes.warn("no switch and no block: topology/flat, or the fabric is not described to Slurm")
    nodes = [{"node": node, "leaf": leaf} for node, leaf in sorted(at.items())[:_MOST_NODES]]
    return notes.reading({"records": rows, "nodes": nodes})


_TOPOLOGY_LIKELY = first_of(
    (0.97, r"(?i)^[ \t]{0,8}SwitchName=\S+[ \t].*\b(?:Nodes|Switches)="),
    (0.97, r"(?i)^[ \t]{0,8}(?:BlockName|AggregatedBlock)=\S+[ \t].*\bNodes="),
    (0.9, r"(?i)^[ \t]{0,8}(?:SwitchName|BlockName)=\S"),
    (0.93, r"^[#$].{0,200}\bscontrol(?: -\S+)* show topo"),
)
FORMATS = [
    _format(_SINFO, "Slurm's sinfo: partitions, states of nodes, reasons", _parse_sinfo)._replace(facts=_sinfo_nodes),
    _format(_SQUEUE, "Slurm's squeue: jobs and steps", _parse_squeue),
    _format(_SACCT, "Slurm's sacct and sstat: accounts of jobs", _parse_sacct, "sstat"),
    Format(
        "scontrol",
        "Slurm's scontrol: records of nodes, jobs and partitions, the configuration",
        Likely(_scontrol_likely, *_OF_SCONTROL),
        _parse_scontrol,
        facts=_node_states,
    ),
    Format(
        "slurmd-log",
        "the log of slurmd, and errors of srun: steps that did not start or did not end",
        _SLURMD_LIKELY,
        _parse_slurmd_log,
        log=True,
        errors=True,
    ),
    Format(
        "slurm-topology",
        "Slurm's topology: switches or blocks, and the leaf of each node",
        _TOPOLOGY_LIKELY,
        _parse_topology,
        aliases=r"topology(?:\.conf)?",
    ),
]
