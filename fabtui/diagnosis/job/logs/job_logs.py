"""All logs of a job together: what was read so far, by node."""

from __future__ import annotations

import glob
import os
import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from fabtui.diagnosis.job.logs.error_lines import ErrorLines
from fabtui.diagnosis.job.logs.gpu_history import GpuHistory
from fabtui.diagnosis.job.logs.iteration_times import IterationTimes
from fabtui.diagnosis.job.logs.settings import FIRST_LINES, Settings
from fabtui_node.parsers.lines import plain_lines
from fabtui_node.system.log_files import Known

Stream = Literal["out", "err", "gpu"]
#: Number of lines at the end of a file that are kept, and maximum length of one: a job may have thousands of files.
KEPT = 150
LONGEST = 600
_FIELD = re.compile(r"%(\d{0,2})([A-Za-z%])|\{(job|node|user)\}", re.ASCII)
_WORD = re.compile(r"[A-Za-z0-9]+(?:[.-][A-Za-z0-9]+)*")
#: Names of outputs of batch scripts.
_BATCH = re.compile(r"(?:^|[._-])(?:sbatch|batch)(?:[._-]|$)|^(?:slurm|job)[._-]?\d{1,12}(?:[._-]|$)")
_ERROR_NAME = re.compile(r"(?:^|[._-])(?:err|stderr|error)(?:[._-]|$)", re.I)
_GPU_NAME = re.compile(r"(?:^|[._-])(?:gpu|gpustat)(?:[._-]|$)", re.I)
#: Files in a folder of logs that are none.
_NOT_LOGS = re.compile(
    r"tfevents|\.(?:py|sh|json|jsonl|yaml|yml|toml|csv|pt|pth|ckpt|safetensors|bin|idx|npy|npz|tar|zip|gz|xz|zst|sqlite"
    r"|pickle|pkl|db|sif|sqsh|nsys-rep|qdrep|svg|png|html|so|c|h|pid|1)$",
    re.I,
)
#: Maximum number of files of a job.
_MOST_FILES = 32_768


class NewLines(NamedTuple):
    """Lines that were not read before."""

    head: list[str]  #: Lines from the start of a file whose middle is left out.
    lines: list[str]  #: The new lines.
    again: bool  #: Whether the file has started again: it was truncated or rotated.


class LogFile:
    """Incremental reader of one file: takes the parts that `fabtui_node.system.log_files` reads. Memory is bounded."""

    def __init__(self, path: str, node: str, stream: Stream, reader: str = "") -> None:
        self.path = path  #: Its path.
        self.node = node  #: The node that it belongs to; "" if several write to it.
        self.stream: Stream = stream  #: ``out``, ``err`` or ``gpu``.
        self.reader = reader  #: Who reads it: "" is this machine, else a node.
        self.lines = 0  #: Number of complete lines that were read.
        self.skipped = 0  #: Number of bytes that were left out; the count of lines is a lower bound then.
        self.size = 0
        #: When it was written last, by the clock of the file server; None before the first part.
        self.modified: float | None = None
        #: When a reading found new bytes for the last time, by the reader's clock; None at the first reading.
        self.grown: float | None = None
        self.known: Known | None = None
        self.errors = ErrorLines()  #: Its lines that report errors.
        self._tail: deque[str] = deque(maxlen=KEPT)
        self.unfinished = ""  #: Line at its end that has no end yet; a progress bar in its latest state.

    def take(self, part: Mapping[str, Any], now: float) -> NewLines:
        """Take the next part of the file, read at ``now``, and return the lines that are new."""
        start, end = int(part["start"]), int(part["end"])
        again = part.get("again") is True
        size = int(part["size"])
        if again:
            self.lines = self.skipped = 0
            self._tail.clear()
        if self.known is not None and (again or size != self.size or end > self.known.offset):
            self.grown = now
        expected = 0 if self.known is None or again else self.known.offset
        self.skipped += max(0, start - expected)
        self.size, self.modified = size, float(part["modified"])
        self.known = Known(int(part["inode"]), end)
        text = str(part["text"])
        lines = plain_lines(text.removesuffix("\n")) if text else []
        self.lines += text.count("\n")
        self._tail.extend(line[:LONGEST] for line in lines[-2 * KEPT :] if line.strip())
        self.unfinished = plain_lines(str(part.get("unfinished", "")))[-1][:LONGEST]
        head = str(part.get("head", ""))
        return NewLines(plain_lines(head)[:-1] if head else [], lines, again)

    def tail(self, number: int = KEPT) -> list[str]:
        """Return the last lines that are not blank, the unfinished one included; not cleaned of control characters."""
        lines = [*self._tail, *([self.unfinished] if self.unfinished.strip() else [])]
        return lines[-number:]


def pattern_of(template: str, fields: Mapping[str, str], *, literal: bool = False) -> str:
    """Return the shell pattern of a template with ``{job}``, ``{node}``, ``{user}`` or Slurm's ``%j``, ``%N``, ``%x``.

    ``fields`` has the known values by Slurm's letters (``j``, ``u``, ``x``, ``A``, ``a``); others match anything. In a
    ``literal`` template, a path that Slurm reports, all else stands for itself.
    """
    letters = {"job": "j", "node": "N", "user": "u"}

    def value(match: re.Match[str]) -> str:
        letter = letters.get(match[3]) or match[2]
        if letter == "%":
            return "%"
        known = fields.get(letter)
        if known is None:
            return "*"
        return glob.escape(known.zfill(int(match[1] or 0)) if known.isdecimal() else known)

    if not literal:
        return _FIELD.sub(value, template)
    pieces, at = [], 0
    for match in _FIELD.finditer(template):
        pieces += [glob.escape(template[at : match.start()]), value(match)]
        at = match.end()
    return "".join([*pieces, glob.escape(template[at:])])


def patterns(templates: Sequence[str], fields: Mapping[str, str]) -> list[str]:
    """Return the patterns of the files that templates of the user mean: files, or all files of a folder."""
    named = [pattern_of(os.path.expanduser(template), fields) for template in templates]
    return [one for pattern in named for one in (pattern, f"{pattern.rstrip('/')}/*")]


def missing(templates: Sequence[str]) -> str:
    """Return the first file that a user names literally and that is not there, or ""."""
    named = (os.path.expanduser(one) for one in templates if not _FIELD.search(one) and not glob.has_magic(one))
    return next((path for path in named if not os.path.lexists(path)), "")


def usual_patterns(outputs: Sequence[str], fields: Mapping[str, str]) -> list[str]:
    """Return patterns for the outputs that Slurm names (``StdOut``, ``StdErr``) and for files of steps beside them.

    A step writes where its ``srun -o`` points to, which Slurm does not report: a folder or files with the job's number
    are looked for where the batch output is.
    """
    found: dict[str, None] = {}
    job = glob.escape(fields.get("j", ""))
    for output in outputs:
        if not output.startswith("/") or output.startswith("/dev/"):
            continue
        pattern = pattern_of(output, fields, literal=True)
        folder = os.path.dirname(pattern)
        found.setdefault(pattern)
        if job:
            found.setdefault(f"{folder}/{job}/*")
            found.setdefault(f"{folder}/{job}[!0-9]*")
            found.setdefault(f"{folder}/*[!0-9A-Za-z]{job}[!0-9]*")
    return list(found)


def is_log(path: str) -> bool:
    return not _NOT_LOGS.search(path)


def stream_of(path: str) -> Stream:
    name = os.path.basename(path)
    if _GPU_NAME.search(name):
        return "gpu"
    return "err" if _ERROR_NAME.search(name) else "out"


def node_of(path: str, nodes: Sequence[str]) -> str:
    """Return the node whose name is a word of a file's name, "" if none is.

    The output of a batch script has the name of the node that it runs on, but speaks for the whole job.
    """
    name = os.path.basename(path)
    if _BATCH.search(name):
        return ""
    short = {node.partition(".")[0]: node for node in nodes}
    for word in _WORD.findall(name):
        # n060.out, n060-1.log, job.n060.err
        for part in (word, *re.split(r"[.-]", word), *word.rsplit("-", 1)[:1]):
            if part in short:
                return short[part]
    return next((node for node in nodes if re.search(rf"(?<![A-Za-z0-9]){re.escape(node)}(?![A-Za-z0-9])", name)), "")


def guessed_nodes(paths: Sequence[str], outputs: Sequence[str] = ()) -> list[str]:
    """Return the names of nodes that log files have, where the scheduler does not name the nodes: ``n060.out``.

    Outputs of batch scripts (``outputs``, ``slurm-12.out``, ``job-12.out``) belong to no node.
    """
    stems: dict[str, None] = {}
    for path in paths:
        stem, _, end = os.path.basename(path).rpartition(".")
        named = end in ("out", "err", "gpu") and re.fullmatch(r"[A-Za-z][\w-]{0,62}", stem)
        if named and path not in outputs and not _BATCH.search(stem):
            stems.setdefault(stem)
    return sorted(stems)


class FileClock:
    """Compares modification times with each other, and with our clock only as far as growth was seen.

    A file that has just grown shows how far the server's clock is from ours, up to the time between two readings.
    """

    def __init__(self) -> None:
        self._newest = float("-inf")
        self._ahead: float | None = None

    def see(self, modified: float, now: float, *, grew: bool) -> None:
        """Take the modification time of a file that was read at ``now``, by the reader's clock."""
        self._newest = max(self._newest, modified)
        if grew:
            self._ahead = now - modified if self._ahead is None else min(self._ahead, now - modified)

    def age(self, modified: float, now: float) -> float:
        """Return how long ago (s) a file was written."""
        # Until a file has grown, a server that is ahead shows by times in the future.
        server = now - self._ahead if self._ahead is not None else max(now, self._newest)
        return max(0.0, server - modified)


#: Where files are read: "" is this machine, else a node.
Reader = str


class JobLogs:
    """Log files of a job, and the content of their lines. Takes parts of files as they are read, from any reader."""

    def __init__(self, nodes: Sequence[str]) -> None:
        self.nodes = list(nodes)
        self.files: dict[tuple[Reader, str], LogFile] = {}  #: By reader and path.
        self.iterations = IterationTimes()  #: Iteration times of the training.
        self.settings = Settings()  #: Settings that the nodes have printed.
        self.gpus: dict[str, GpuHistory] = {}  #: Use of the GPUs, by node.
        self._by_node: dict[str, list[LogFile]] = {}
        self._clocks: dict[Reader, FileClock] = {}
        self._now: dict[Reader, float] = {}

    def known(self, reader: Reader) -> dict[str, Known]:
        return {path: file.known for (who, path), file in self.files.items() if who == reader and file.known}

    def take(self, reader: Reader, parts: Iterable[Mapping[str, Any]], now: float) -> None:
        """Take parts of files that a reader has read at ``now``, by its clock."""
        clock = self._clocks.setdefault(reader, FileClock())
        self._now[reader] = now
        for part in parts:
            path = str(part["path"])
            file = self.files.get((reader, path))
            if file is None:
                if len(self.files) >= _MOST_FILES:
                    continue
                node = reader or node_of(path, self.nodes)
                file = self.files[reader, path] = LogFile(path, node, stream_of(path), reader)
                self._by_node.setdefault(node, []).append(file)
            before, first = file.modified, file.known is None
            new = file.take(part, now)
            grew = not first and file.grown == now
            clock.see(file.modified or now, now, grew=grew and file.modified != before)
            self._take_lines(file, [*new.head, *new.lines], None if first else now)

    def take_gpus(self, node: str, rows: Iterable[Mapping[str, Any]], now: float) -> None:
        self.gpus.setdefault(node, GpuHistory()).take(rows, now)

    def _take_lines(self, file: LogFile, lines: list[str], seen: float | None) -> None:
        if file.stream == "gpu":
            history = self.gpus.setdefault(file.node, GpuHistory())
            for line in lines:
                history.take_line(line)
            return
        early = file.lines - len(lines) < FIRST_LINES
        for line in lines:
            if self.iterations.take(line, seen) is None:
                file.errors.take(line, seen)
                if early:
                    self.settings.take(file.node, line)

    def of(self, node: str, *streams: Stream) -> list[LogFile]:
        """Return the files of a node ("": of the whole job), sorted by the time they were written last."""
        files = [file for file in self._by_node.get(node, []) if not streams or file.stream in streams]
        return sorted(files, key=lambda file: file.modified or 0.0)

    def at(self, path: str) -> list[LogFile]:
        return [file for (_, name), file in self.files.items() if name == path]

    def age(self, file: LogFile) -> float | None:
        """Return how long (s) a file has not grown: by what was seen, else by its modification time."""
        now = self._now.get(file.reader)
        if now is None or file.modified is None:
            return None
        if file.grown is not None:
            return max(0.0, now - file.grown)
        return self._clocks[file.reader].age(file.modified, now)

    def quiet(self, node: str | None = None) -> float | None:
        """Return how long (s) no output of a node, or of the whole job, has grown; None if there is none."""
        files = self.files.values() if node is None else self._by_node.get(node, [])
        ages = [age for one in files if one.stream != "gpu" and one.size and (age := self.age(one)) is not None]
        return min(ages, default=None)

    def lines(self, stream: Stream) -> tuple[int, bool]:
        """Return the number of lines of a kind, and False if parts were left out so that it is a lower bound."""
        files = [file for file in self.files.values() if file.stream == stream]
        return sum(file.lines for file in files), not any(file.skipped for file in files)
