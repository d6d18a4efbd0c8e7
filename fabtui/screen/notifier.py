"""Notifications about a live session that somebody may not be looking at."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

from fabtui.model.events import NodeState
from fabtui.nodeset import count
from fabtui.presentation.verdict_line import sentence_text
from fabtui.screen.context import AppContext
from fabtui.screen.terminal.internals import RESTORE_TITLE, SAVE_TITLE, title_sequence

#: Minimum time (s) between two notifications; what happens meanwhile is reported together.
INTERVAL = 5.0
#: Time (s) from the end of a sweep to its notification, for the findings.
SETTLING = 1.0


class Notifier:
    """Reports ends of sweeps, lost nodes, and changes of verdicts while the session watches.

    ``show`` receives one line, at most one per `INTERVAL`, and ``write`` what sets the title of the terminal.
    """

    def __init__(
        self, context: AppContext, show: Callable[[str], object], write: Callable[[str], object] = lambda _: None
    ) -> None:
        self._context = context
        self._show = show
        self._write = write
        self._title = ""
        self._sweeps = 0
        self._turns = 0
        self._nodes_version = -1
        self._lost: set[str] = set()
        self._events: list[str] = []
        self._changes: list[str] = []
        self._ended = False
        self._next = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def look(self) -> None:
        context, model = self._context, self._context.model
        if context.feed is None or not context.feed.can_test:
            return
        delay = 0.0
        if model.sweeps != self._sweeps:
            self._sweeps, self._ended, delay = model.sweeps, True, SETTLING
        if model.nodes_version != self._nodes_version:
            self._nodes_version = model.nodes_version
            self._note_nodes()
        if model.turns.total != self._turns:
            new, self._turns = model.turns.total - self._turns, model.turns.total
            if model.watching:
                # The first results of a pair are not changes.
                latest = itertools.islice(reversed(model.turns.latest), new)
                self._changes += [turn.text for turn in latest if turn.before is not None][::-1]
        if (self._events or self._changes or self._ended) and self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(max(self._next, loop.time() + delay), self._report)

    def name(self, verdict: str) -> None:
        """Put the verdict on a live session into the title of the terminal, which `stop` restores."""
        if self._context.feed is None or not self._context.feed.can_test:
            return
        # The time since a heal changes each second.
        verdict = verdict.partition("; healed ")[0]
        if verdict != self._title:
            saved = "" if self._title else SAVE_TITLE
            self._write(saved + title_sequence(f"fabtui: {verdict}"))
            self._title = verdict

    def stop(self) -> None:
        if self._title:
            self._title = ""
            self._write(RESTORE_TITLE)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _note_nodes(self) -> None:
        nodes = self._context.model.nodes
        lost = {name for name, record in nodes.items() if record.state is NodeState.LOST}
        self._events += [f"{name} lost: {nodes[name].text}" for name in sorted(lost - self._lost)]
        self._events += [f"{name} is back" for name in sorted(self._lost - lost)]
        self._lost = lost

    def _report(self) -> None:
        self._timer, self._next = None, asyncio.get_running_loop().time() + INTERVAL
        parts, self._events = self._events, []
        if self._ended:
            what = "sweep ended" if self._context.model.results.tested else "ended"
            parts.append(f"{what}: {self._verdict()}")
        if self._changes:
            more = len(self._changes) - 1
            parts.append(self._changes[0] + (f" and {count(more, 'more change')}" if more else ""))
        self._ended, self._changes = False, []
        self._show(" / ".join(parts))

    def _verdict(self) -> str:
        findings, board = self._context.findings, self._context.job()
        if board is not None and board.verdict.alerts:
            return board.verdict.sentence
        if not findings.final:
            return self._context.model.end_text or "see the screen"
        return sentence_text(findings.standing())
