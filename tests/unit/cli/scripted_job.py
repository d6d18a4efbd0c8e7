"""A job session whose verdicts are scripted, for the commands that print them."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fabtui.cli.commands import hang
from fabtui.diagnosis.job.job_verdict import JobState, JobVerdict, RankRow, RankState, SourceReading
from fabtui.diagnosis.job.who_is_behind import JobPlace
from fabtui.session.running_job.inquiry import Reply


def verdict(state: JobState, **changes: Any) -> JobVerdict:
    """Return a verdict about two ranks, of which the second one is stopped where the job hangs."""
    hangs = state is JobState.HANGS
    places = JobPlace(0, "n060", 741), JobPlace(1, "n061", 742)
    late = RankState.STOPPED if hangs else RankState.COMPUTING
    rows = (
        RankRow(places[0], "n060:0", RankState.WAITING, "100 % at 126 W", 100.0, 126.0),
        RankRow(places[1], "n061:0", late, "is \x1b[31mstopped", 0.0, 124.0),
    )
    found = JobVerdict(state, 990.0, 1000.0, "7", ("n060", "n061"), rows, world=2, settled=True)
    if hangs:
        source = SourceReading("/proc", "rank 1 on n061 is stopped", "it shows no collectives", 1000.0, places[1:])
        found = found._replace(
            behind=places[1:], where="is \x1b[31mstopped", sources=(source,), next=("ssh n061 kill -CONT 742",)
        )
    return found._replace(**changes)


class ScriptedSession:
    """Gives one verdict after another, then the end of the job."""

    def __init__(self, script: list[JobVerdict | None]) -> None:
        self._left = list(script)
        self._last: JobVerdict | None = None
        self.observer = self

    answers: Sequence[Reply] = ()
    writes = False
    report = None

    def start(self) -> None: ...

    async def recorders(self, nodes: object) -> Sequence[Reply]:
        return self.answers

    async def complete(self, within: float) -> JobVerdict | None:
        return self._last

    def problems(self) -> list[str]:
        return ["n062: the login fails"]

    unread = problems

    @property
    def ended(self) -> bool:
        return not self._left

    @property
    def verdict(self) -> JobVerdict | None:
        self._last = self._left.pop(0) if self._left else self._last
        return self._last

    async def snapshot(self) -> JobVerdict | None:
        return self._left[0]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[JobVerdict | None]:
    found: list[JobVerdict | None] = []

    @asynccontextmanager
    async def observed(*_: object) -> AsyncIterator[ScriptedSession]:
        await asyncio.sleep(0)
        yield ScriptedSession(found)

    monkeypatch.setattr(hang, "observed", observed)
    monkeypatch.setattr(hang.HangSettings, "every", 0.01)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return found
