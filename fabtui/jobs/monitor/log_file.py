"""One log file of a job, as far as it was read."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from fabtui.jobs.monitor.error_lines import ErrorLines
from fabtui_node.parsers.lines import plain_lines
from fabtui_node.system.log_files import Known

Stream = Literal["out", "err", "gpu"]
#: Number of lines at the end of a file that are kept, and maximum length of one: a job may have thousands of files.
KEPT = 150
LONGEST = 600


class NewLines(NamedTuple):
    """Lines that were not read before.

    Attributes:
        head: Lines from the start of a file of which the middle is left out.
        lines: The new lines.
        again: Whether the file has started again: it was truncated or rotated.
    """

    head: list[str]
    lines: list[str]
    again: bool


class LogFile:
    """Incremental reader of one file: takes the parts that `fabtui_node.system.log_files` reads. Memory is bounded.

    Attributes:
        path: Its path.
        node: The node that it belongs to; "" if several write to it.
        stream: ``out``, ``err`` or ``gpu``.
        reader: Who reads it: "" is this machine, else a node.
        lines: Number of complete lines that were read.
        skipped: Number of bytes that were left out; the count of lines is a lower bound then.
        modified: When it was written last, by the clock of the file server; None before the first part.
        errors: Its lines that report errors.
        grown: When a reading found new bytes for the last time, by the reader's clock; None at the first reading.
    """

    def __init__(self, path: str, node: str, stream: Stream, reader: str = "") -> None:
        self.path = path
        self.node = node
        self.stream: Stream = stream
        self.reader = reader
        self.lines = 0
        self.skipped = 0
        self.size = 0
        self.modified: float | None = None
        self.grown: float | None = None
        self.known: Known | None = None
        self.errors = ErrorLines()
        self._tail: deque[str] = deque(maxlen=KEPT)
        self._unfinished = ""

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
        self._unfinished = last_state(str(part.get("unfinished", "")))
        head = str(part.get("head", ""))
        return NewLines(plain_lines(head)[:-1] if head else [], lines, again)

    @property
    def unfinished(self) -> str:
        """Line at the end of the file that has no end yet; a progress bar in its latest state."""
        return self._unfinished

    def tail(self, number: int = KEPT) -> list[str]:
        """Return the last lines that are not blank, the unfinished one included; not cleaned of control characters."""
        lines = [*self._tail, *([self._unfinished] if self._unfinished.strip() else [])]
        return lines[-number:]


def last_state(text: str) -> str:
    """Return what a terminal would show of an unfinished line."""
    return plain_lines(text)[-1][:LONGEST] if text else ""
