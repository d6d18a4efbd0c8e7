"""Progress on stderr: of a session, and of reading a recording."""

from __future__ import annotations

import contextlib
import math
import os
import re
import shutil
import time
from typing import TYPE_CHECKING, TextIO

from fabtui.model.events import NodeState
from fabtui.nodeset import count
from fabtui.presentation.progress_estimate import Pace, phase_text
from fabtui.presentation.wording import about_text
from fabtui.sanitize import one_line

if TYPE_CHECKING:
    from fabtui.model.records import LogLine
    from fabtui.model.session_model import Model
    from fabtui.session.feeds.base import Feed

#: Interval (s) between two updates of the live line, and between two lines on a terminal without one, and elsewhere.
_FRAME, _SPARSE, _RARE = 0.1, 15.0, 30.0
_CLEAR = "\r\x1b[K"
_SHOWN_LEVELS = ("notice", "warning", "error")
#: Time (s) that reading a recording takes before its progress is shown: on a terminal, and elsewhere.
_PATIENCE, _PATIENCE_ELSEWHERE = 1.0, 5.0


def _has_line(out: TextIO) -> bool:
    """Return True if a line can be drawn again in place."""
    return out.isatty() and os.environ.get("TERM") not in (None, "", "dumb")


def _written(out: TextIO, text: str) -> bool:
    """Write a text; return False if the terminal is gone."""
    with contextlib.suppress(OSError, ValueError, UnicodeError):
        out.write(text)
        out.flush()
        return True
    return False


class ReadingProgress:
    """Shows which share of a file was read, and what follows, if that takes long; to be called with the share."""

    def __init__(self, out: TextIO, name: str) -> None:
        self._out, self._name, self._live = out, one_line(name, 60), _has_line(out)
        self._patience = time.monotonic() + (_PATIENCE if self._live else _PATIENCE_ELSEWHERE)
        self._due = self._patience
        self._shown = False

    def __call__(self, share: float) -> None:
        """Show a share; 1 clears the line."""
        if share >= 1.0:
            self.end()
        elif (now := time.monotonic()) >= self._due:
            self._due = now + (_FRAME if self._live else _RARE)
            self._write(f"reading {self._name}: {share:.0%}")

    def step(self, text: str) -> None:
        """Show what is done with the file now, if reading it took long."""
        if time.monotonic() >= self._patience:
            self._write(f"{self._name}: {text}")

    def end(self) -> None:
        if self._shown:
            self._shown = False
            _written(self._out, _CLEAR)

    def _write(self, text: str) -> None:
        self._shown = self._live
        _written(self._out, f"{_CLEAR}{text}" if self._live else f"{text}\n")


def _of_node(entry: LogLine) -> str:
    """Return the prefix of a line about a node, unless its text names the node."""
    return f"{entry.node}: " if entry.node and entry.node not in re.findall(r"[\w.-]+", entry.text) else ""


class Progress:
    """Shows a feed: a live line on a terminal, one line per step elsewhere.

    Without a live line, a line has the remaining time now and then. ``text``: no live line on a terminal either, for
    screen readers.
    """

    def __init__(self, out: TextIO, quiet: bool, text: bool = False) -> None:
        self._out = out
        self._quiet = quiet
        self._live = _has_line(out) and not text
        self._interval = math.inf if self._live else _SPARSE if out.isatty() else _RARE
        self._drawn = 0.0
        self._pace = Pace()
        self._phase = ""
        self._states: dict[str, NodeState] = {}
        self._logged = 0.0
        self._seen_at_that_time = 0
        self._model: Model  #: Set by `watch`.

    def watch(self, feed: Feed) -> None:
        self._model = feed.model
        if not self._quiet:
            feed.listen(self._changed)

    def end(self) -> None:
        if self._live and not self._quiet:
            self._write(_CLEAR)

    def _changed(self) -> None:
        lines = self._nodes() + self._log() + ([] if self._live else self._steps())
        if not self._live:
            self._pace.take(self._model, self._model.elapsed)
            if time.monotonic() - self._drawn >= self._interval and self._model.phase.total:
                self._drawn = time.monotonic()
                lines.append(self._line())
        if lines:
            self._write((_CLEAR if self._live else "") + "".join(f"{line}\n" for line in lines))
        now = time.monotonic()
        if self._live and (lines or now - self._drawn >= _FRAME):
            self._drawn = now
            width = shutil.get_terminal_size().columns
            self._write(_CLEAR + self._line()[: max(10, width - 1)])

    def _nodes(self) -> list[str]:
        lines = []
        for record in list(self._model.nodes.values()):
            if record.state is not self._states.get(record.name):
                self._states[record.name] = record.state
                if record.state.gone:
                    hint = f" (next: {record.hint})" if record.hint else ""
                    lines.append(one_line(f"{record.name}: {record.state}: {record.text}{hint}", 300))
        return lines

    def _log(self) -> list[str]:
        fresh = [entry for entry in self._model.log if entry.time >= self._logged]
        same = sum(entry.time == self._logged for entry in fresh)
        fresh = fresh[min(self._seen_at_that_time, same) :]
        if not fresh:
            return []
        latest = fresh[-1].time
        at_latest = sum(entry.time == latest for entry in fresh)
        self._seen_at_that_time = at_latest + (self._seen_at_that_time if latest == self._logged else 0)
        self._logged = latest
        shown = [entry for entry in fresh if entry.level in _SHOWN_LEVELS and not self._is_state_reason(entry)]
        return [one_line(f"{entry.level}: {_of_node(entry)}{entry.text}", 300) for entry in shown]

    def _is_state_reason(self, entry: LogLine) -> bool:
        """Return True if a log line is the reason for the state of a node, which has a line already."""
        record = self._model.gone(entry.node or "")
        return record is not None and entry.level == "error" and entry.text == record.text

    def _steps(self) -> list[str]:
        phase = self._model.phase
        if phase.name == self._phase:
            return []
        self._phase = phase.name
        self._drawn = time.monotonic()
        tests = "node" if phase.name == "ranks" else "test"
        name = phase_text(self._model)
        return [f"{name}: {count(phase.total, tests)}" if phase.total else name]

    def _line(self) -> str:
        model = self._model
        states = [record.state for record in model.nodes.values()]
        ready, gone = states.count(NodeState.READY), sum(state.gone for state in states)
        parts = [f"{ready}/{len(model.nodes)} nodes" + (f", {gone} gone" if gone else "")]
        if total := model.phase.total:
            # Pairs that are tested again count, too.
            done = min(model.done, total)
            parts.append(f"ranks on {done}/{total}" if model.phase.name == "ranks" else f"{done}/{total} tests")
        parts.append(f"{model.elapsed:.0f} s")
        self._pace.take(model, model.elapsed)
        if (left := self._pace.left(model)) is not None:
            parts.append(about_text(left))
        return one_line(f"{phase_text(model)}: {', '.join(parts)}")

    def _write(self, text: str) -> None:
        # Without a terminal, the session continues.
        self._quiet = not _written(self._out, text) or self._quiet
