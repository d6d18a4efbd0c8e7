"""State of one job of Slurm, running or ended: ``squeue``, then ``scontrol show job`` and ``sacct`` for ended ones.

``sacct`` needs slurmdbd, and ``scontrol`` forgets a job some minutes after its end (MinJobAge).
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from fabtui.nodeset import expand_listed
from fabtui.scheduler.slurm import placement
from fabtui.scheduler.slurm_nodes import node_values
from fabtui.scheduler.tool import ask

Stage = Literal["waiting", "running", "ended", "unknown"]
_RUNNING = ("RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING")
_WAITING = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD")
_TIME = re.compile(r"(?:(\d{1,5})-)?(?:(\d{1,5}):)?(\d{1,5}):(\d\d)", re.ASCII)
_FIELD = re.compile(r"(?:^|\s)([A-Z][A-Za-z:/]{1,40})=")
_STAMP = "%Y-%m-%dT%H:%M:%S"
#: States of nodes that end a job.
_BAD_NODE = ("down", "fail", "drain", "unknown", "not_responding", "powered_down")


@dataclass(frozen=True)
class JobStatus:
    """State of a job as Slurm knows it.

    Attributes:
        job: Its id, as given.
        state: Slurm's word, such as ``RUNNING``; "" if unknown.
        reason: Why it waits or ended, or "".
        nodes: Its nodes; of a heterogeneous job those of all components.
        number: Its own number, which differs from the id of an array task; "" if unknown.
        name: Its name.
        user: Its owner.
        elapsed: Time (s) since its start, or None.
        limit: Its time limit (s); None without one.
        ended: When it ended (s since the epoch), or None.
        exit_code: Exit code and signal as Slurm writes them (``1:0``), or "".
        outputs: Files of its batch script's output, as Slurm names them.
        placements: Options of srun that select the job and the node, by node.
        down: Nodes of it that Slurm cannot use, with state and reason.
        problem: Why its state is unknown, or "".
    """

    job: str
    state: str = ""
    reason: str = ""
    nodes: tuple[str, ...] = ()
    number: str = ""
    name: str = ""
    user: str = ""
    elapsed: float | None = None
    limit: float | None = None
    ended: float | None = None
    exit_code: str = ""
    outputs: tuple[str, ...] = ()
    placements: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    down: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""

    @property
    def stage(self) -> Stage:
        """Stage in the life of the job."""
        if not self.state:
            return "unknown"
        return "running" if self.state in _RUNNING else "waiting" if self.state in _WAITING else "ended"

    @property
    def letters(self) -> dict[str, str]:
        """Values of the fields of Slurm's file names, by letter."""
        array, _, index = self.job.partition("_")
        found = {"j": self.number or array.partition("+")[0], "A": array, "u": self.user, "x": self.name}
        return {letter: value for letter, value in ({**found, "a": index}).items() if value}


def status_of(job: str, before: JobStatus | None = None) -> JobStatus:
    """Return the state of a job; what is known from ``before`` is not asked again. Blocks; asks squeue once."""
    answer = ask(["squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%i|%T|%r|%N|%M|%l|%u|%j"])
    rows = [row for line in answer.lines if len(row := line.split("|", 7)) == 8]
    found = replace(before, problem="") if before is not None else JobStatus(job)
    if rows:
        places: dict[str, tuple[str, ...]] = {}
        for row in rows:
            leader, _, group = row[0].strip().partition("+")
            for place, node in enumerate(expand_listed(row[3].strip()) or ()):
                places.setdefault(node, placement(leader, group, place, node))
        # A heterogeneous job runs as long as one of its components does.
        states = [row[1].strip() for row in rows]
        row = rows[next((at for at, state in enumerate(states) if state in _RUNNING), 0)]
        reason = row[2].strip()
        found = replace(
            found,
            state=row[1].strip(),
            reason="" if reason == "None" else reason,
            nodes=tuple(places) or found.nodes,
            placements=places or found.placements,
            elapsed=_seconds(row[4]),
            limit=_seconds(row[5]),
            user=row[6].strip(),
            name=row[7].strip(),
        )
    if not rows or found.stage == "ended" or not found.outputs:
        found = _details(found, known=bool(rows))
    if not found.state:
        text = answer.problem if answer.problem and "Invalid job id" not in answer.problem else ""
        found = replace(found, problem=text or f"Slurm knows no job {job}: a wrong number, or it ended a while ago")
    elif found.stage == "ended" and found.state != "COMPLETED":
        found = replace(found, down=_down(found.nodes))
    return found


def _details(found: JobStatus, *, known: bool) -> JobStatus:
    """Add what ``scontrol`` and, for an ended job, ``sacct`` know."""
    lines = ask(["scontrol", "--oneliner", "show", "job", found.job]).lines
    if lines:
        values = _fields(lines[0])
        nodes = [node for line in lines for node in expand_listed(_fields(line).get("NodeList", "")) or ()]
        outputs = [path for line in lines for key in ("StdOut", "StdErr") if (path := _fields(line).get(key))]
        found = replace(
            found,
            state=found.state if known else values.get("JobState", ""),
            nodes=found.nodes or tuple(dict.fromkeys(nodes)),
            number=values.get("JobId", ""),
            name=found.name or values.get("JobName", ""),
            user=found.user or values.get("UserId", "").partition("(")[0],
            elapsed=found.elapsed if known else _seconds(values.get("RunTime", "")),
            limit=found.limit if known else _seconds(values.get("TimeLimit", "")),
            outputs=tuple(dict.fromkeys(outputs)),
        )
        if found.stage == "ended":
            found = replace(found, exit_code=values.get("ExitCode", ""), ended=_stamp(values.get("EndTime", "")))
        return found
    words = ["sacct", "--noheader", "--allocations", "--parsable2", f"--jobs={found.job}"]
    rows = [
        line.split("|", 6) for line in ask([*words, "--format=State,ExitCode,End,NodeList,Elapsed,User,JobName"]).lines
    ]
    if rows and len(rows[0]) == 7:
        state, code, end, listed, elapsed, user, name = rows[0]
        # "CANCELLED by 0"
        found = replace(found, state=state.partition(" ")[0], exit_code=code, ended=_stamp(end), user=user, name=name)
        found = replace(found, nodes=found.nodes or tuple(expand_listed(listed) or ()), elapsed=_seconds(elapsed))
    return found


def _fields(line: str) -> dict[str, str]:
    """Return the fields of ``scontrol --oneliner``; values may contain blanks."""
    marks = list(_FIELD.finditer(line))
    ends = [*(mark.start() for mark in marks), len(line)][1:]
    found = {mark[1]: line[mark.end() : end].strip() for mark, end in zip(marks, ends, strict=True)}
    return {name: value for name, value in found.items() if value not in ("(null)", "Unknown", "N/A")}


def _down(nodes: Sequence[str]) -> dict[str, str]:
    """Return the nodes that Slurm cannot use, with state and reason."""
    found = {}
    for node, values in node_values(nodes).items():
        state = str(values.get("state", ""))
        if state.startswith(_BAD_NODE) or values.get("responds") is False:
            reason = values.get("reason")
            found[node] = f"{state}: {reason}" if reason else state
    return found


def node_addresses() -> dict[str, str]:
    """Return the address of each node that Slurm knows (NodeAddr, which may be its name). Blocks."""
    rows = [line.partition("|") for line in ask(["sinfo", "--noheader", "--Node", "--format=%N|%o"]).lines]
    return {name.strip(): address.strip() for name, _, address in rows if address.strip()}


def _seconds(text: str) -> float | None:
    """Return the seconds of ``1-02:03:04`` or ``3:04``, None for ``UNLIMITED``."""
    if (found := _TIME.fullmatch(text.strip())) is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def _stamp(text: str) -> float | None:
    try:
        return time.mktime(time.strptime(text.strip(), _STAMP))
    except (ValueError, OverflowError):
        return None
