"""Lines of logs that report an error: what kind it is, and whether such an error is rather a cause or a consequence."""

from __future__ import annotations

import re
from typing import NamedTuple

from fabtui.diagnosis.knowledge.error_catalogue import Meaning
from fabtui.diagnosis.knowledge.log_causes import failure_in, seconds_of

#: Length of a line that is examined.
_LONGEST = 1000
#: Errors of a file that are kept; more are counted.
KEPT = 50
#: Line of the script and process that a shell writes before the way in which its child ended.
_OF_CHILD = r"line \d{1,6}: +\d{1,9} "
#: A line without any of these is not an error: most lines of a log need no other pattern.
_WORDS = (
    *("error", "exception", "fatal", "critical", "killed", "abort", "fault", "core dumped", "oom", "out of memory"),
    *("no space", "quota", "stale", "no cuda", "illegal", "assert", "timed out", "timeout", "broken", "fail"),
    *("connection", "nccl warn", "[e", "not yet initialized", "unable", "could not", "couldn't", "stuck"),
    *("can't open", "not found", "no module named", "permission denied"),
)
_HARMLESS = re.compile(
    r"\b\w{0,60}Warning\b|warnings\.warn|\b(?:0|no|without) errors?\b|\berrors?\s?[=:]\s?(?:0\b|None|ignore)"
    r"|\bOMP_NUM_THREADS\b|\berror rate\b|\berror_(?:if|correct|handler)\w{0,40}"
    # What failed before and is tried again is not an error of the job.
    r"|\bretry(?:ing)?\b|\bfall(?:ing)? ?back\b"
    # A launcher ends the other tasks.
    r"|^srun: error: .{1,2000}: Terminated|\bSIGTERM\b",
    re.I,
)
#: A step is ended from outside, or by its launcher: what follows in the file is a consequence.
_ENDING = re.compile(
    r"^srun: (?:Job step aborted|forcing job termination|Force Terminat|Terminating|launch/slurm: .{0,40}terminat)"
    r"|\*\*\* (?:STEP|JOB) \S{1,40} ON \S{1,80} CANCELLED",
    re.ASCII,
)
#: Why Slurm ended a step or job.
_CANCELLED = re.compile(
    r"\*\*\* (?:STEP|JOB) \S{1,40} ON \S{1,80} CANCELLED AT \S{1,40} DUE TO (.{1,200}?) \*\*\*", re.ASCII
)
_KILLED = re.compile(r"(?:^|: " + _OF_CHILD + r")(?:Terminated|Killed)\b")
_LABEL = re.compile(r"^\s{0,4}(?:\d{1,6}: |\[(?:rank|default|Rank )\d{1,7}\]: ?)", re.ASCII)
_LEADING_STAMP = re.compile(r"\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[\d.,:Z+-]{0,16}\]?:? {1,4}", re.ASCII)
#: What srun prints about a task that ended, and torchrun about a process.
_TASK = re.compile(r"^srun: error: (\S{1,2000}): tasks? ([\d,-]{1,2000}): (.{1,200})$", re.ASCII)
#: What srun prints about tasks that it could not start.
_LAUNCH = re.compile(
    r"^srun: error: (?:task (\d{1,9}) launch failed|Task launch for \S{1,60} failed on node (\S{1,255})): (.{1,200})$",
    re.ASCII,
)
_ELASTIC = re.compile(r"failed \(exitcode: (-?\d{1,4})\) local_rank: (\d{1,6}) \(pid: (\d{1,9})\)", re.ASCII)


class LineKind(NamedTuple):
    """A kind of error."""

    name: str  #: Its name in JSON.
    cause: bool  #: Whether it can begin a failure; a consequence alone does not show what was wrong.
    pattern: re.Pattern[str]  #: What its lines contain.


def _kind(name: str, pattern: str, *, cause: bool = True, flags: int = 0) -> LineKind:
    return LineKind(name, cause, re.compile(pattern, flags | re.ASCII))


#: In the order in which they are tried: the first that matches counts. Consequences come before the general words.
KINDS = (
    _kind("ecc_uncorrectable", r"uncorrectable (?:ECC|NVLink) error|cudaErrorECCUncorrectable", flags=re.I),
    _kind("out_of_memory", r"CUDA out of memory|OutOfMemoryError|cudaErrorMemoryAllocation"),
    _kind("illegal_address", r"illegal memory access|cudaErrorIllegalAddress"),
    _kind("device_assert", r"device-side assert triggered"),
    _kind("no_device", r"No CUDA GPUs are available|no CUDA-capable device|CUDA driver initialization failed"),
    _kind("fabric_not_ready", r"system not yet initialized|cudaErrorSystemNotReady"),
    _kind("launch_timeout", r"launch timed out and was terminated"),
    _kind("cuda_error", r"CUDA error: |CUDA failure|cudaError[A-Z]\w{3,40}\b|unspecified launch failure"),
    _kind(
        "host_memory",
        r"oom[-_ ]?kill|Out of memory: Killed|: Out Of Memory$|MemoryError\b|exceeded (?:job |step )?memory limit",
        flags=re.I,
    ),
    _kind("storage", r"No space left on device|Disk quota exceeded|Stale file handle|Input/output error"),
    _kind("collective_timeout", r"[Ww]atchdog caught collective operation timeout", cause=False),
    _kind("nccl_error", r"\bnccl(?:Remote|System|Internal|UnhandledCuda)Error\b|\bDistBackendError\b", cause=False),
    _kind("nccl_usage", r"\bnccl(?:InvalidArgument|InvalidUsage)\b"),
    _kind(
        "rendezvous",
        r"RendezvousTimeoutError|DistStoreError|Timed out after \d+ seconds waiting for clients"
        r"|Connection refused.{0,80}TCPStore|[Tt]he (?:client|server) socket has (?:timed out|failed)",
    ),
    _kind("connection", r"Connection (?:reset by peer|closed by (?:remote )?peer)|Broken pipe\b", cause=False),
    _kind("elastic", r"ChildFailedError|torch\.distributed\.elastic\.\S{0,60}: .{0,40}fail", cause=False),
    _kind("crash", r"Segmentation fault|\(core dumped\)|\bBus error\b|Fatal Python error"),
    _kind("exception", r"^(?:[A-Za-z_][\w.]{0,80}\.)?[A-Z]\w{0,60}(?:Error|Exception)(?:: |$)"),
    _kind("launch", r"can't open file '|: (?:command )?not found$|: No module named |: Permission denied$"),
    _kind("nccl_warn", r"\bNCCL (?:WARN|ERROR) ", cause=False),
    _kind("slurm", r"^(?:srun|slurmstepd(?:-\S{1,80})?): (?:error|fatal): "),
    _kind("logged", r"(?:^|[\s\[|:])(?:ERROR|CRITICAL|FATAL)(?:[\s\]|:]|$)|^\[?[EF]\d{3,4} \d\d:\d\d|^\[E \S"),
    _kind("message", r"^(?:\S{1,60}: ){0,2}(?:fatal error|fatal|error|Error|Fatal|FATAL): ?\S"),
    _kind("killed", r"^(?:\S{1,60}: ){0,3}(?:" + _OF_CHILD + r")?(?:Killed|Aborted)\b"),
)
#: Kinds of lines that only the catalogue of errors and its stages know, by whether they are causes.
_KNOWN = {cause: _kind("known", "(?!)", cause=cause) for cause in (True, False)}
#: Pattern of each kind, by name.
PATTERNS = {kind.name: kind.pattern for kind in KINDS}


class ErrorLine(NamedTuple):
    """A line that reports an error."""

    kind: LineKind  #: What it is.
    text: str  #: The line without the label of its rank, not cleaned.
    #: Its time stamp, else when it was read while the file grew (s since the epoch); None if unknown.
    when: float | None

    @property
    def meaning(self) -> Meaning | None:
        """The entry of the catalogue of errors that explains it, or None."""
        return failure_in(self.text)

    @property
    def cause(self) -> bool:
        """True if it can begin a failure; the catalogue of errors knows better than the words of the line."""
        return self.kind.cause if (known := self.meaning) is None else known.role == "cause"


class DeadTask(NamedTuple):
    """A task that ended before the others."""

    nodes: str  #: Its node, or several, as the launcher writes them; "" if the launcher does not name it.
    task: str  #: Its number or numbers in the step, or the rank on its node.
    how: str  #: How it ended, in the words of the launcher.
    started: bool = True  #: False if it could not be started.

    @property
    def text(self) -> str:
        """End or failed start of the task, as a clause."""
        return f"has {'ended' if self.started else 'not started'}: {self.how}"


def error_of(line: str, seen: float | None = None) -> ErrorLine | None:
    """Return the error that a line reports, or None."""
    line = line[:_LONGEST]
    lowered = line.lower()
    if not any(word in lowered for word in _WORDS) or _HARMLESS.search(line):
        return None
    text = unlabelled(line).strip()
    words = text[stamp.end() :] if (stamp := _LEADING_STAMP.match(text)) else text
    kind = next((kind for kind in KINDS if kind.pattern.search(words)), None)
    if kind is None and (known := failure_in(text)) is not None:
        kind = _KNOWN[known.role == "cause"]
    return None if kind is None else ErrorLine(kind, text, seconds_of(line) or seen)


def is_of_ending(line: str) -> bool:
    """Return whether Slurm or a shell wrote a line about what was ended: no rank has."""
    return line.startswith(("srun:", "slurmstepd")) or _KILLED.search(line) is not None


def dead_task(line: str) -> DeadTask | None:
    """Return the task whose end a launcher reports, or None; a task that was ended with the others does not count."""
    line = line[: _LONGEST * 4]
    if line.startswith("srun:") and (found := _TASK.match(line)):
        how = found[3].strip()
        return None if how.startswith("Terminated") else DeadTask(found[1], found[2], how)
    if line.startswith("srun:") and (found := _LAUNCH.match(line)):
        return DeadTask(found[2] or "", found[1] or "", found[3].strip(), started=False)
    if "exitcode" in line and (found := _ELASTIC.search(line)):
        # torchrun ends the others by SIGTERM.
        return None if found[1] == "-15" else DeadTask("", found[2], f"exit code {found[1]} (process {found[3]})")
    return None


def unlabelled(line: str) -> str:
    """Return a line without the label of its task (``3: ``, ``[rank3]: ``)."""
    label = _LABEL.match(line)
    return line[label.end() :] if label else line


class ErrorLines:
    """Errors of one file: the first ones, and how many there are."""

    def __init__(self) -> None:
        self.kept: list[ErrorLine] = []
        self.count = 0
        self.tasks: list[DeadTask] = []
        self.cancelled = ""  #: Why Slurm ended its step or job, in its own words, such as ``JOB REQUEUE``.
        self._ended = False

    def take(self, line: str, seen: float | None) -> None:
        if self._ended or (("srun:" in line or "***" in line) and _ENDING.search(line[:_LONGEST])):
            if not self._ended and (found := _CANCELLED.search(line[:_LONGEST])):
                self.cancelled = found[1]
            self._ended = True
            return
        if (task := dead_task(line)) is not None and len(self.tasks) < KEPT and task not in self.tasks:
            self.tasks.append(task)
        elif (error := error_of(line, seen)) is not None:
            self.count += 1
            # A cause is worth more than the many consequences before it.
            if len(self.kept) < KEPT or (error.kind.cause and not any(one.kind.cause for one in self.kept)):
                self.kept.append(error)

    @property
    def first(self) -> ErrorLine | None:
        return next((one for one in self.kept if one.cause), self.kept[0] if self.kept else None)
