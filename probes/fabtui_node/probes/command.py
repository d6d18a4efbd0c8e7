"""A command that the user runs on the node: an argument list, no shell, and bounded output.

It runs in a separate session, with standard input closed and an environment of a few variables. At its deadline it is
killed with all that it started, and so it is when the controller goes away.
"""

from __future__ import annotations

import collections
from typing import Any, Deque, Dict, List, NamedTuple, Tuple

from fabtui_node.registry import ProbeSpec
from fabtui_node.system import run_command

#: Bytes of output that are kept; the others are counted.
KEPT_BYTES = 64 * 1024
#: Bytes of output after which a command is killed.
MOST_BYTES = 256 << 20
#: Maximum number of words of a command.
MOST_WORDS = 256
#: Maximum length (bytes) of a line that a filter sees; a longer line is several.
_LONGEST_LINE = 16 * 1024
#: Maximum number of lines that ``last`` keeps.
_MOST_LINES = 1000
#: Part of the deadline, and most seconds of it, that are left for the answer.
_RESERVE, _MOST_RESERVE = 0.2, 1.0
#: Variables that commands get from the login; not those that change what programs do or load.
_ENVIRONMENT = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "XDG_RUNTIME_DIR", "LC_ALL", "FABTUI_CHILD")
#: Programs that would wait for a key must not.
_NO_PAGER = {"TERM": "dumb", "PAGER": "cat", "SYSTEMD_PAGER": "cat"}


class Grep(NamedTuple):
    """Filter that passes lines with one of some texts, and a number of lines after each."""

    words: Tuple[bytes, ...]
    ignore_case: bool
    after: int

    def matches(self, line: bytes) -> bool:
        """Return True if a line has one of the texts."""
        line = line.lower() if self.ignore_case else line
        return any(word in line for word in self.words)


class Output:
    """Sink that keeps the first bytes of what passes the filters, and counts the rest."""

    def __init__(self, greps: List[Grep], last: int) -> None:
        self.dropped = 0
        self.lines = 0
        self._total = 0
        self._kept = bytearray()
        self._greps = greps
        #: Lines that still pass each filter after a match.
        self._left = [0] * len(greps)
        self._last: Deque[bytes] = collections.deque(maxlen=min(last, _MOST_LINES))
        self._by_line = bool(greps or last)
        self._line = bytearray()
        self._tail = last > 0

    def __len__(self) -> int:
        return self._total

    def extend(self, data: bytes) -> None:
        self._total += len(data)
        if not self._by_line:
            self._keep(data)
            return
        self._line += data
        lines = bytes(self._line).split(b"\n")
        self._line = bytearray(lines.pop())
        for line in lines:
            self._take(line)
        if len(self._line) > _LONGEST_LINE:
            self._take(bytes(self._line))
            self._line.clear()

    def _take(self, line: bytes) -> None:
        self.lines += 1
        for at, grep in enumerate(self._greps):
            if grep.matches(line):
                self._left[at] = grep.after
            elif self._left[at]:
                self._left[at] -= 1
            else:
                return
        if self._tail:
            self._last.append(line)
        else:
            self._keep(line + b"\n")

    def _keep(self, data: bytes) -> None:
        fits = data[: KEPT_BYTES - len(self._kept)]
        self._kept += fits
        self.dropped += len(data) - len(fits)

    def text(self) -> str:
        """Return what was kept; to be called once, at the end."""
        if self._line:
            self._take(bytes(self._line))
        for line in self._last:
            self._keep(line + b"\n")
        return bytes(self._kept).decode("utf-8", "replace")


def _words(value: Any) -> List[str]:
    if not isinstance(value, list) or not 0 < len(value) <= MOST_WORDS:
        raise ValueError("a command is a list of 1 to %d words" % MOST_WORDS)
    if not all(isinstance(word, str) for word in value):
        raise ValueError("a word of the command is not a text")
    return value


def _grep(value: Dict[str, Any]) -> Grep:
    ignore_case = value["ignore_case"] is True
    words = [word.lower() if ignore_case else word for word in _words(value["words"])]
    return Grep(tuple(word.encode("utf-8", "surrogatepass") for word in words), ignore_case, int(value["after"]))


def run(args: Dict[str, Any], emit: Any, deadline: float) -> Dict[str, Any]:
    """Run ``argv``; its lines pass the filters ``grep`` (`Grep`) in turn, and of the rest ``last`` lines are kept.

    ``{"output": text, "dropped": bytes, "lines": number of lines before the filters, "exit": status or None,
    "problem": why it did not run or end, or ""}``.
    """
    argv = _words(args["argv"])
    output = Output([_grep(one) for one in args["grep"]], int(args["last"]))
    seconds = deadline - min(_MOST_RESERVE, deadline * _RESERVE)
    login = run_command.environment()
    environment = dict({name: login[name] for name in _ENVIRONMENT if name in login}, **_NO_PAGER)
    result = run_command.run_into([output], argv, seconds, MOST_BYTES, environment)
    problem = ""
    if result.timed_out:
        problem = "killed after %g s, its deadline" % round(seconds, 1)
    elif result.truncated:
        problem = "killed after %d MiB of output" % (MOST_BYTES >> 20)
    elif result.returncode is None or result.returncode < 0:
        problem = result.why() or ""
    text = output.text()
    return {
        "output": text,
        "dropped": output.dropped,
        "lines": output.lines,
        "exit": None if problem else result.returncode,
        "problem": problem[:500],
    }


PROBE = ProbeSpec(
    name="command",
    title="a command that you run on a node",
    phase="asked",
    needs="Enter on a next step",
    gives="its output and exit status",
    run=run,
)
