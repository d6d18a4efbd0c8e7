"""Logs of failed PyTorch jobs: timeouts of the watchdog, exceptions of NCCL and CUDA, by rank."""

from __future__ import annotations

import re

from fabtui.diagnosis.knowledge.log_causes import WORK, LogReader
from fabtui.importers.tables import Values
from fabtui.jobs.monitor.error_lines import PATTERNS
from fabtui_node.parsers.base import Format, Notes, Reading, first_of
from fabtui_node.parsers.lines import plain_lines
from fabtui_node.parsers.nccl import log_lines

_RANK = re.compile(r"\[rank(\d{1,7})\]|\[Rank (\d{1,7})\]|\bRank (\d{1,7})\]|^\[default(\d{1,7})\]:")
_TIMEOUT = re.compile(
    r"WorkNCCL\((?:SeqNum=(?P<seq>\d{1,18}), )?OpType=(?P<op>\w{1,40})(?:, NumelIn=(?P<numel>\d{1,18}))?"
    r"(?:, NumelOut=\d{1,18})?(?:, TensorShape=\[[\d, ]{0,200}\])?, Timeout\(ms\)=(?P<limit>\d{1,12})\)"
    r"(?: ran for (?P<ran>\d{1,12}) milliseconds)?"
)
_AT_WORK = re.compile(r"watchdog(?: thread)? at work(?: sequence id)?:? ?(\d{1,18})")
_NCCL_ERROR = re.compile(
    r"\b(nccl(?:RemoteError|SystemError|InternalError|InvalidArgument|InvalidUsage|UnhandledCudaError))\b"
)
_NCCL_WORDS = (
    ("ncclRemoteError", "remote process exited or there was a network error"),
    ("ncclSystemError", "unhandled system error"),
    ("ncclUnhandledCudaError", "unhandled cuda error"),
    ("ncclInternalError", "internal error"),
    ("ncclInvalidUsage", "invalid usage"),
    ("ncclInvalidArgument", "invalid argument"),
)
_LAST_ERROR = re.compile(r"Last error:\s*(.*)$")
_IB = re.compile(r"with error (\d{1,5}), opcode \d{1,5}, len \d{1,12}, vendor err (\d{1,7})")
#: Kinds of errors of CUDA, the most general one last.
_CUDA = (
    *("ecc_uncorrectable", "out_of_memory", "illegal_address", "device_assert", "fabric_not_ready", "no_device"),
    *("launch_timeout", "cuda_error"),
)
_FRAME = re.compile(r"^(?:\[rank\d+\]: ?)?\s*frame #(\d{1,4}): ")
_EXCEPTION = re.compile(
    r"^(?:\[rank\d{1,7}\]: ?|\[default\d{1,7}\]: ?|\d{1,7}: ?)?\s*((?:[a-zA-Z_][\w.]{0,80}\.)?\w{0,60}(?:Error"
    r"|Exception|Interrupt))"
    r"(?:: (.{0,300}))?$"
)


class _Parser:
    def __init__(self) -> None:
        self.notes = Notes()
        self.timeouts: dict[tuple[int | None, str | None], Values] = {}
        self.work: dict[int | None, dict[str, int]] = {}
        self.ranks: dict[int, None] = {}
        self.classes: dict[str, None] = {}
        self.exceptions: list[Values] = []
        self.values: Values = {"nccl": None, "last_error": None, "ib_error": None, "vendor_err": None}
        self.frames = 0
        self._after_last_error = False
        self._caught: int | None = None

    def line(self, line: str) -> None:
        rank = _rank_of(line)
        if rank is not None and len(self.ranks) < 100_000:
            self.ranks.setdefault(rank)
        if self._after_last_error and line.strip():
            self._last_error(re.sub(r"^\[(?:rank|default)\d+\]: ?", "", line).strip())
        if caught := PATTERNS["collective_timeout"].search(line):
            self._caught = rank
        if (caught or self._caught is not None) and (found := _TIMEOUT.search(line)):
            # The work may be on the next line.
            self._timeout(self._caught if rank is None else rank, found)
            self._caught = None
        if found := WORK.search(line):
            self.work[rank] = {"enqueued": int(found["enqueued"]), "completed": int(found["completed"])}
            if at := _AT_WORK.search(line):
                self.work[rank]["at"] = int(at[1])
        if _FRAME.match(line):
            self.frames += 1
            return
        self._class(line)
        if found := log_lines.VERSION.search(line):
            self.values["nccl"] = found[1]
        if found := _LAST_ERROR.search(line):
            self._after_last_error = not found[1].strip()
            if found[1].strip():
                self._last_error(found[1].strip())
        if (found := _EXCEPTION.match(line)) and len(self.exceptions) < 100:
            entry = {"rank": rank, "type": found[1], "text": (found[2] or "").strip()[:300]}
            if entry not in self.exceptions:
                self.exceptions.append(entry)

    def _last_error(self, text: str) -> None:
        self._after_last_error = False
        self.values["last_error"] = self.values["last_error"] or text[:300]
        if found := _IB.search(text):
            self.values["ib_error"], self.values["vendor_err"] = int(found[1]), int(found[2])

    def _class(self, line: str) -> None:
        if found := _NCCL_ERROR.search(line):
            self.classes.setdefault(found[1])
        elif "NCCL error" in line or "NCCL operations have failed" in line:
            for name, words in _NCCL_WORDS:
                if words in line:
                    self.classes.setdefault(name)
        if cuda := next((name for name in _CUDA if PATTERNS[name].search(line)), None):
            self.classes.setdefault(cuda)
        if PATTERNS["rendezvous"].search(line):
            self.classes.setdefault("rendezvous")

    def _timeout(self, rank: int | None, found: re.Match[str]) -> None:
        self.classes.setdefault("collective_timeout")
        key = (rank, found["seq"])
        if key not in self.timeouts and len(self.timeouts) < 100_000:
            seq, elements, limit, ran = map(_whole, found.group("seq", "numel", "limit", "ran"))
            entry = {"rank": rank, "seq": seq, "op": found["op"], "elements": elements}
            self.timeouts[key] = {**entry, "limit": limit, "ran": ran}

    def reading(self) -> Reading:
        timeouts = list(self.timeouts.values())
        for entry in timeouts:
            entry.update(self.work.get(entry["rank"], {"enqueued": None, "completed": None}))
        completed = {rank: work["completed"] for rank, work in self.work.items() if rank is not None}
        behind = [rank for rank, done in completed.items() if done < max(completed.values())]
        if behind:
            self.notes.warn(f"ranks {', '.join(map(str, sorted(behind)[:20]))} completed least: look there first")
        if timeouts:
            self.notes.warn("every rank that waits prints the timeout, not only the one that hangs")
        classes = list(self.classes)
        # A general word adds nothing to a specific one.
        if len(classes) > 1 and "cuda_error" in classes:
            classes.remove("cuda_error")
        if not classes and not self.exceptions:
            self.notes.warn("no known failure")
        values = {"class": classes[0] if classes else "unknown", "classes": classes, **self.values}
        values.update(ranks=sorted(self.ranks), timeouts=timeouts, exceptions=self.exceptions, frames=self.frames)
        return self.notes.reading(values)


def _whole(text: str | None) -> int | None:
    return None if text is None else int(text)


def _rank_of(line: str) -> int | None:
    rank = _RANK.search(line)
    return None if rank is None else int(rank[rank.lastindex or 0])


def parse(text: str) -> Reading:
    """Return how a job failed.

    ``class`` is the first of ``classes``: an NCCL result such as ``ncclRemoteError``, ``collective_timeout``,
    ``ecc_uncorrectable`` and others, else an error of the catalogue such as ``watchdog_stuck``, or ``unknown``.
    ``timeouts`` has an entry a rank and sequence number, with the last work it enqueued and completed; ``last_error``
    is NCCL's own reason; ``frames`` counts the C++ frames.
    """
    parser = _Parser()
    for line in plain_lines(text):
        parser.line(line)
    if not parser.classes:
        errors = LogReader()
        errors.add(text)
        parser.classes = {found.meaning.id.replace("-", "_"): None for found in errors.result().causes[:1]}
    return parser.reading()


_LIKELY = first_of(
    (0.95, r"ProcessGroupNCCL\.(?:cpp|hpp)|DistBackendError|Watchdog caught collective"),
    (0.92, r"c10::Error|c10d::|torch\.distributed\.\w*Error|torch\.cuda\.OutOfMemoryError"),
    (
        0.9,
        r"\[c10d\]|Gloo connectFullMesh|gloo/transport/tcp|TCPStore\b|ProcessGroup(?:NCCL|Gloo)\b",
    ),
    (0.8, r"GLOO_SOCKET_IFNAME|torch/(?:csrc|distributed)/|torchrun|torch\.distributed\.(?:elastic|launch|run)\b"),
    (0.6, r"cudaError[A-Z]\w+|RuntimeError: (?:CUDA|NCCL) "),
    # Frames of its backtrace, of which there are others below.
    (0.6, r"^frame #\d{1,4}: .{1,2000} \+ 0x[0-9a-f]{1,16} \(0x[0-9a-f]{1,16} in .{1,400}\)\s*frame #\d"),
)
FORMATS = [
    Format(
        "torch-log",
        "how a PyTorch job failed: watchdog timeouts, NCCL and CUDA errors",
        _LIKELY,
        parse,
        units={"limit": "ms", "ran": "ms"},
        log=True,
        aliases="torch-failure|pytorch|torch",
        errors=True,
    )
]
