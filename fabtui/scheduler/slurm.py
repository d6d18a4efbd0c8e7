"""Jobs, nodes and GPUs of Slurm, from ``squeue -o`` and ``sinfo``; ended jobs from ``scontrol`` and ``sacct``.

The text formats of ``-o`` have been stable since Slurm 14; the JSON formats change with each release, and
``squeue --json`` ignores ``--jobs`` (22.05). ``sacct`` needs slurmdbd, and ``scontrol`` forgets a job some minutes
after its end (MinJobAge). ``sinfo -R`` would cut reasons at 20 characters.

GPUs of nodes that jobs hold are from ``scontrol show job -d``: those of other users are not tested. Slurm counts the
device files of ``gres.conf``, which follow the order of the driver: index 2 is /dev/nvidia2.
"""

from __future__ import annotations

import getpass
import os
import re
import shutil
import time
from collections.abc import Container, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from fabtui.errors import InputError, argument
from fabtui.nodeset import expand, expand_listed, fold
from fabtui.scheduler.base import Allocation, ToolOutput, ask
from fabtui.scheduler.slurm_text import known_pairs, leaves, out_of_service, records

#: States of jobs that hold nodes.
_HOLDING = ("RUNNING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING")
_WAITING = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD")
#: Questions about a job that is ending, and the pause (s) between them.
_TRIES, _PAUSE = 6, 0.5
Stage = Literal["waiting", "running", "ended", "unknown"]
_RUNNING = ("COMPLETING", *_HOLDING)
_TIME = re.compile(r"(?:(\d{1,5})-)?(?:(\d{1,5}):)?(\d{1,5}):(\d\d)", re.ASCII)
_STAMP = "%Y-%m-%dT%H:%M:%S"
_JOB_ID = re.compile(r"\d{1,12}(?:[_+]\d{1,9})?", re.ASCII)
#: Signs after a state, such as ``*`` of a node that does not answer.
_SIGNS = "*~#!%$@^-+"
#: Texts that stand for nothing.
_NOTHING = ("", "none", "(null)", "N/A")
_HELD = re.compile(r"\bNodes=(\S+) .*\bGRES=(\S+)")
_INDEXES = re.compile(r"\bgpu[^(,]*\((?:[^()]*,)?IDX:([\d,-]+)\)")
#: Jobs of others on the nodes that are asked about, and questions at once.
_MOST_JOBS, _AT_ONCE = 256, 8
#: Largest index of a GPU in a node.
_MOST_GPUS = 64


class _Part(NamedTuple):
    """A line of squeue: a job, or a component of a heterogeneous one."""

    number: str
    state: str
    reason: str
    nodes: tuple[str, ...]
    elapsed: str = ""
    limit: str = ""
    user: str = ""
    name: str = ""


def job_ids(text: str, option: str) -> list[str]:
    """Return the job ids of an option's value (``12,13``, ``12_3`` of an array, ``12+1`` of a heterogeneous job).

    Raises:
        InputError: One is not a job id.
    """
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if not _JOB_ID.fullmatch(name):
            raise InputError(f"{option}: {name[:40]!r} is not a job id; expected 4711, or several: 4711,4712")
    return list(dict.fromkeys(names))


class OwnJob(NamedTuple):
    """A job of the user: its id, state, name, time so far and nodes, as squeue writes them."""

    job: str
    state: str
    name: str
    elapsed: str
    nodes: str


def own_jobs() -> tuple[list[OwnJob], str]:
    """Return the jobs of the user that wait or run, and why they are unknown, or "". Blocks."""
    answer = ask(["squeue", "--noheader", f"--user={os.getuid()}", "--format=%i|%T|%M|%N|%j"])
    rows = [[field.strip() for field in line.split("|", 4)] for line in answer.lines]
    return [OwnJob(row[0], row[1], row[4], row[2], row[3]) for row in rows if len(row) == 5], answer.problem


def allocation_of(ids: Sequence[str], option: str) -> Allocation:
    """Return the nodes of running jobs.

    Raises:
        InputError: A job is unknown, waits or has ended, or Slurm does not answer.
    """
    placements: dict[str, tuple[str, ...]] = {}
    groups: dict[str, str] = {}
    for job in ids:
        for part in _running(job, option):
            group = part.number.partition("+")[2]
            for node, words in _placements(part.number, part.nodes).items():
                placements.setdefault(node, words)
                if group:
                    groups.setdefault(node, group)
    title = f"job {ids[0]}" if len(ids) == 1 else f"jobs {', '.join(ids)}"
    return Allocation(title, tuple(placements), "squeue", ",".join(ids), placements, groups)


def _placements(number: str, nodes: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the options of srun for each node of a job; those of a heterogeneous job are selected by their place.

    srun accepts the id of the leader only, and counts the nodes within a group.
    """
    leader, _, group = number.partition("+")
    if group:
        groups = (f"--jobid={leader}", f"--het-group={group}")
        return {node: (*groups, f"--relative={place}") for place, node in enumerate(nodes)}
    return {node: (f"--jobid={leader}", f"--nodelist={node}") for node in nodes}


def _running(job: str, option: str) -> list[_Part]:
    parts, answer = _squeue(job)
    if not parts:
        raise InputError(f"{option}: {_why_unknown(job, answer)}")
    held = [part for part in parts if part.state in _HOLDING and part.nodes]
    if held:
        return held
    part = parts[0]
    if part.state in _WAITING:
        text = f"job {job} waits ({part.reason}); it has no nodes yet; squeue --start --jobs={job} estimates its start"
        raise InputError(f"{option}: {text}")
    raise InputError(f"{option}: {_ended(job, part.state, part.nodes)}")


def _squeue(job: str) -> tuple[list[_Part], ToolOutput]:
    answer = ask(["squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%i|%T|%r|%N|%M|%l|%u|%j"])
    rows = [row for line in answer.lines if len(row := [field.strip() for field in line.split("|", 7)]) >= 4]
    return [_Part(row[0], row[1], row[2], tuple(expand_listed(row[3]) or ()), *row[4:]) for row in rows], answer


def _why_unknown(job: str, answer: ToolOutput) -> str:
    if answer.problem and "Invalid job id" not in answer.problem:
        return f"squeue does not report the nodes of job {job}: {answer.problem}"
    ended = ask(["sacct", "--noheader", "--allocations", "--parsable2", f"--jobs={job}", "--format=State,End,NodeList"])
    if ended.lines and ended.lines[0].count("|") == 2:
        state, end, listed = ended.lines[0].split("|")
        return _ended(job, f"{state}, {end}", expand_listed(listed) or ())
    return f"Slurm knows no job {job}: a wrong number, or it ended a while ago; squeue --me lists your jobs"


def _ended(job: str, how: str, nodes: Sequence[str]) -> str:
    named = argument("nodes", "--no-job --nodes")
    more = f"; to test its nodes without it: {named} '{fold(nodes)}'" if nodes else ""
    return f"job {job} has ended ({how}){more}"


def ending_of(job: str) -> str:
    """Return how a job has ended, as a clause, or "" while it runs or if that is unknown. Blocks for up to 3 s."""
    for number in job.split(","):
        for _ in range(_TRIES):
            states = [part.state for part in _squeue(number)[0]]
            if "COMPLETING" not in states:
                break
            # The state that remains is known when all nodes have cleaned up.
            time.sleep(_PAUSE)
        if states and not any(state in _HOLDING for state in states):
            words = {"CANCELLED": "was cancelled", "TIMEOUT": "reached its time limit", "NODE_FAIL": "lost a node"}
            return f"job {number} {words.get(states[0], f'has ended ({states[0]})')}"
    return ""


def from_environment(environ: Mapping[str, str] = os.environ) -> Allocation | None:
    """Return the nodes of the job that this process belongs to, or of its step if that has several; None outside.

    Slurm is asked: in a step that was started from outside of the job, ``SLURM_JOB_NODELIST`` has the nodes of the step
    alone, and heterogeneous jobs have none.

    Raises:
        InputError: The job has ended, or names no nodes.
    """
    job = environ.get("SLURM_JOB_ID") or environ.get("SLURM_JOB_ID_HET_GROUP_0", "")
    if not _JOB_ID.fullmatch(job):
        return None
    try:
        allocation = allocation_of([job], "SLURM_JOB_ID")
    except InputError:
        listed = _listed(environ)
        if not listed:
            raise
        source = "SLURM_JOB_NODELIST; squeue does not answer"
        allocation = Allocation(f"job {job}", tuple(listed), source, job, _placements(job, listed))
    step, nodes = environ.get("SLURM_STEP_ID", ""), expand_listed(environ.get("SLURM_STEP_NODELIST", ""))
    if step and nodes and len(nodes) > 1 and set(nodes) < set(allocation.nodes):
        return Allocation(f"step {job}.{step}", tuple(nodes), "SLURM_STEP_NODELIST", job, allocation.placements)
    return allocation


def _listed(environ: Mapping[str, str]) -> list[str]:
    """Return the nodes that the environment lists, [] if there are none."""
    text = environ.get("SLURM_NODELIST") or environ.get("SLURM_JOB_NODELIST", "")
    if text:
        return expand(text, "SLURM_JOB_NODELIST", depth=1)
    size = environ.get("SLURM_HET_SIZE", "0")
    names = [f"SLURM_JOB_NODELIST_HET_GROUP_{group}" for group in range(min(int(size), 128) if size.isdecimal() else 0)]
    return [node for name in names if environ.get(name) for node in expand(environ[name], name, depth=1)]


class JobStatus(NamedTuple):
    """State of a job as Slurm knows it."""

    job: str  #: Its id, as given.
    state: str = ""  #: Slurm's word, such as ``RUNNING``; "" if unknown.
    reason: str = ""  #: Why it waits or ended, or "".
    nodes: tuple[str, ...] = ()  #: Its nodes; of a heterogeneous job those of all components.
    number: str = ""  #: Its own number, which differs from the id of an array task; "" if unknown.
    name: str = ""  #: Its name.
    user: str = ""  #: Its owner.
    elapsed: float | None = None  #: Time (s) since its start, or None.
    limit: float | None = None  #: Its time limit (s); None without one.
    ended: float | None = None  #: When it ended (s since the epoch), or None.
    restarts: int = 0  #: How often it was requeued.
    requeued: float | None = None  #: When it was requeued for the last time (s since the epoch), or None.
    begins: float | None = None  #: When it begins at the earliest, while it waits (s since the epoch), or None.
    exit_code: str = ""  #: Exit code and signal as Slurm writes them (``1:0``), or "".
    outputs: tuple[str, ...] = ()  #: Files of its batch script's output, as Slurm names them.
    #: Options of srun that select the job and the node, by node.
    placements: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    down: Mapping[str, str] = MappingProxyType({})  #: Nodes of it that Slurm cannot use, with state and reason.
    problem: str = ""  #: Why its state is unknown, or "".
    owner: int | None = None  #: Its owner's number (uid), or None if unknown.

    @property
    def stage(self) -> Stage:
        if not self.state:
            return "unknown"
        return "running" if self.state in _RUNNING else "waiting" if self.state in _WAITING else "ended"

    @property
    def letters(self) -> dict[str, str]:
        """Values of the fields of Slurm's file names, by letter."""
        array, _, index = self.job.partition("_")
        values = {"j": self.number or array.partition("+")[0], "A": array, "u": self.user, "x": self.name, "a": index}
        return {letter: value for letter, value in values.items() if value}


def status_of(job: str, before: JobStatus | None = None) -> JobStatus:
    """Return the state of a job; what is known from ``before`` is not asked again. Blocks; asks squeue once."""
    parts, answer = _squeue(job)
    status = before._replace(problem="") if before is not None else JobStatus(job)
    if parts:
        places: dict[str, tuple[str, ...]] = {}
        for part in parts:
            for node, words in _placements(part.number, part.nodes).items():
                places.setdefault(node, words)
        # A heterogeneous job runs as long as one of its components does.
        part = next((part for part in parts if part.state in _RUNNING), parts[0])
        status = status._replace(nodes=tuple(places) or status.nodes, placements=places or status.placements)
        status = status._replace(state=part.state, reason="" if part.reason == "None" else part.reason)
        times = _seconds(part.elapsed), _seconds(part.limit)
        status = status._replace(elapsed=times[0], limit=times[1], user=part.user, name=part.name)
    changed = before is not None and before.state != status.state
    if not parts or status.stage in ("ended", "waiting") or changed or not status.outputs:
        status = _details(status, known=bool(parts))
    if not status.state:
        text = answer.problem if answer.problem and "Invalid job id" not in answer.problem else ""
        status = status._replace(problem=text or f"Slurm knows no job {job}: a wrong number, or it ended a while ago")
    elif status.stage == "ended" and status.state != "COMPLETED":
        status = status._replace(down=_down(status.nodes))
    return status


def _uid(text: str) -> int | None:
    """Return the number in ``UserId=name(1000)``, or None."""
    number = text.rpartition("(")[2].removesuffix(")")
    return int(number) if number.isascii() and number.isdecimal() and len(number) < 11 else None


def _details(status: JobStatus, *, known: bool) -> JobStatus:
    """Add what ``scontrol`` and, for an ended job, ``sacct`` know."""
    lines = ask(["scontrol", "--oneliner", "show", "job", status.job]).lines
    if lines:
        values = known_pairs(lines[0])
        nodes = [node for line in lines for node in expand_listed(known_pairs(line).get("NodeList", "")) or ()]
        outputs = [path for line in lines for key in ("StdOut", "StdErr") if (path := known_pairs(line).get(key))]
        status = status._replace(
            nodes=status.nodes or tuple(dict.fromkeys(nodes)),
            number=values.get("JobId", ""),
            name=status.name or values.get("JobName", ""),
            user=status.user or values.get("UserId", "").partition("(")[0],
            owner=_uid(values.get("UserId", "")),
            outputs=tuple(dict.fromkeys(outputs)),
        )
        if not known:
            times = _seconds(values.get("RunTime", "")), _seconds(values.get("TimeLimit", ""))
            status = status._replace(state=values.get("JobState", ""), elapsed=times[0], limit=times[1])
        if status.stage == "ended":
            status = status._replace(exit_code=values.get("ExitCode", ""), ended=_stamp(values.get("EndTime", "")))
        restarts = values.get("Restarts", "0")
        if restarts.isascii() and restarts.isdecimal() and restarts != "0":
            # Slurm submits a job again when it requeues it.
            status = status._replace(restarts=int(restarts[:9]), requeued=_stamp(values.get("SubmitTime", "")))
        return status._replace(begins=_stamp(values.get("StartTime", "")) if status.stage == "waiting" else None)
    words = ["sacct", "--noheader", "--allocations", "--parsable2", f"--jobs={status.job}"]
    form = "--format=State,ExitCode,End,NodeList,Elapsed,User,JobName"
    rows = [line.split("|", 6) for line in ask([*words, form]).lines]
    if rows and len(rows[0]) == 7:
        state, code, end, listed, elapsed, user, name = rows[0]
        # "CANCELLED by 0"
        status = status._replace(state=state.partition(" ")[0], exit_code=code, ended=_stamp(end), user=user, name=name)
        status = status._replace(nodes=status.nodes or tuple(expand_listed(listed) or ()), elapsed=_seconds(elapsed))
    return status


def _down(nodes: Sequence[str]) -> dict[str, str]:
    down = {}
    for node, values in node_values(nodes).items():
        state = str(values.get("state", ""))
        if out_of_service(state, values.get("responds")):
            reason = values.get("reason")
            down[node] = f"{state}: {reason}" if reason else state
    return down


def node_addresses() -> dict[str, str]:
    rows = [line.partition("|") for line in ask(["sinfo", "--noheader", "--Node", "--format=%N|%o"]).lines]
    return {name.strip(): address.strip() for name, _, address in rows if address.strip()}


def _seconds(text: str) -> float | None:
    """Return the seconds of ``1-02:03:04`` or ``3:04``, None for ``UNLIMITED``."""
    if (match := _TIME.fullmatch(text.strip())) is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def _stamp(text: str) -> float | None:
    try:
        return time.mktime(time.strptime(text.strip(), _STAMP))
    except (ValueError, OverflowError):
        return None


def node_values(nodes: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return what Slurm knows about nodes: ``state``, ``responds``, ``reason``, ``gres`` and ``leaf``; blocks.

    Empty where Slurm is not installed, or does not answer, and without the nodes that it does not know.
    """
    if shutil.which("sinfo") is None:
        return {}
    values: dict[str, dict[str, Any]] = {}
    for line in ask(["sinfo", "--noheader", "--Node", "--format=%N|%T|%G|%E"]).lines:
        fields = [field.strip() for field in line.split("|", 3)]
        if len(fields) == 4:
            name, state, gres, reason = fields
            values[name] = {"state": state.rstrip(_SIGNS), "responds": "*" not in state}
            values[name] |= {"gres": gres} if gres not in _NOTHING else {}
            values[name] |= {"reason": reason} if reason not in _NOTHING else {}
    if values:
        at_leaf = leaves(records(ask(["scontrol", "show", "topology"]).lines))
        # Where all are at one, it separates none.
        for name, leaf in at_leaf.items() if len(set(at_leaf.values())) > 1 else ():
            values.setdefault(name, {})["leaf"] = leaf
    return {node: values[name] for node in nodes for name in (known_name(node, values),) if name is not None}


def known_name(node: str, known: Container[str]) -> str | None:
    """Return the name of a node in Slurm, which may lack the domain; None if it is not known."""
    return next((name for name in (node, node.partition(".")[0]) if name in known), None)


class GpuUse(NamedTuple):
    """GPUs of nodes by index, as far as jobs hold some."""

    own: Mapping[str, tuple[int, ...]]  #: Those of the user's jobs in question, by node; only these are tested.
    others: Mapping[str, tuple[int, ...]]  #: GPUs of other users' jobs, by node; these are not tested.
    constrained: bool = False  #: Whether the cgroup of a job shows its GPUs only, renumbered.
    problem: str = ""  #: Why this is unknown, or "".

    def setting(self, node: str) -> dict[str, object] | None:
        """Return what the node gets to know; None if all of its GPUs may be tested."""
        for kind, held in (("only", self.own), ("without", self.others)):
            if (name := known_name(node, held)) is not None:
                return {kind: list(held[name]), "constrained": self.constrained}
        return None


NOTHING_HELD = GpuUse({}, {})


def gpu_use(nodes: Sequence[str], job: str) -> GpuUse:
    """Return which GPUs of some nodes are those of a job (or several, with commas), or of other users without a job.

    Blocks. Nothing is held where Slurm is not installed.
    """
    if shutil.which("squeue") is None:
        return NOTHING_HELD
    if job:
        return GpuUse(_held(job.split(",")), {}, _is_constrained())
    names = ",".join(dict.fromkeys(node.partition(".")[0] for node in nodes))
    answer = ask(["squeue", "--noheader", "--states=RUNNING,SUSPENDED", f"--nodelist={names}", "--format=%A|%u|%b"])
    if answer.problem:
        # Nodes that Slurm does not know hold no jobs.
        unknown = "nvalid node" in answer.problem or "onfiguration source" in answer.problem
        return NOTHING_HELD if unknown else GpuUse({}, {}, problem=answer.problem)
    rows = [line.split("|", 2) for line in answer.lines]
    jobs = [row[0].strip() for row in rows if len(row) == 3 and "gpu" in row[2] and row[1].strip() != getpass.getuser()]
    if len(jobs) > _MOST_JOBS:
        return GpuUse({}, {}, problem=f"{len(jobs)} other jobs run on the nodes")
    return GpuUse({}, _held(jobs), _is_constrained()) if jobs else NOTHING_HELD


def _held(jobs: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """Return the GPUs of jobs by node; without nodes on which they hold none."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        answers = list(pool.map(lambda job: ask(["scontrol", "show", "job", "-d", job]), jobs))
    held: dict[str, set[int]] = {}
    for line in (line for answer in answers for line in answer.lines):
        if (match := _HELD.search(line)) is None:
            continue
        indexes = [index for text in _INDEXES.findall(match[2]) for index in _numbers(text)]
        for node in expand_listed(match[1]) or () if indexes else ():
            held.setdefault(node, set()).update(indexes)
    return {node: tuple(sorted(indexes)) for node, indexes in held.items()}


def _numbers(text: str) -> list[int]:
    """Return the numbers of ``0-1,5``; a part that is not a range has none."""
    numbers: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        last = last if dash else first
        if first.isdecimal() and last.isdecimal() and int(last) < _MOST_GPUS:
            numbers += range(int(first), int(last) + 1)
    return numbers


def _is_constrained() -> bool:
    lines = ask(["scontrol", "show", "config"]).lines
    return any(re.match(r"ConstrainDevices\s*=\s*yes", line) for line in lines)
