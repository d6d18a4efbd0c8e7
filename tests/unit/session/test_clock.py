"""The clock of this machine is set while a session runs: by hand, or by NTP after a suspend."""

import asyncio
import time
from pathlib import Path

import pytest

from fabtui.diagnosis.diagnosis import diagnose
from fabtui.model.measurement import Verdict
from fabtui.model.recording import read_events
from fabtui.model.session_model import Model
from fabtui.presentation.findings import as_json
from fabtui.session.feeds.replay import ReplayFeed
from tests.unit.session.fakenodes import Script
from tests.unit.session.played import p2p_of, played, until

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("jump", [-3600.0, -1e9, 86400.0])
async def test_a_clock_that_is_set_changes_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    """Deadlines and pauses are of the clock that nobody sets; times of events are shown, and order nothing."""
    usual, path, ahead = time.time, tmp_path / "r.jsonl.gz", 0.0
    monkeypatch.setattr(time, "time", lambda: usual() + ahead)
    async with played(Script({"a": 2, "b": 2, "c": 2}, takes=0.1), record=path) as (feed, _):
        running = asyncio.create_task(feed.run())
        await until(lambda: feed.model.phase.name == "p2p" and bool(feed.model.running))
        ahead = jump
        await asyncio.wait_for(running, 40)
    model = Model()
    for event in read_events(path):
        model.apply(event)
    replayed = ReplayFeed(path, 1e7)
    async with asyncio.timeout(20):
        await replayed.run()
    for one in (feed.model, model, replayed.model):
        assert set(p2p_of(one).values()) == {Verdict.OK}
        assert len(p2p_of(one)) == 30
        found = diagnose(one)
        assert (found.code, [as_json(finding)["title"] for finding in found.findings]) == (0, [])
        assert one.elapsed >= 0
        assert not [line for line in one.log if line.level == "error" or "slept" in line.text]
