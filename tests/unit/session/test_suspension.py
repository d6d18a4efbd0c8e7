"""Sessions whose process is suspended for a while, over played nodes."""

import asyncio
import contextlib

import pytest

from fabtui.model.measurement import Verdict
from fabtui.model.session_model import Model
from fabtui.session import reconnection, watch
from fabtui.session.feeds.live import LiveFeed
from tests.unit.session.fakenodes import FakeNodes, Script
from tests.unit.session.played import feed_of, p2p_of, played, until

NOTE = "this machine slept, or fabtui was stopped or got no processor, for 20 s"


class Clock:
    def __init__(self) -> None:
        self.ahead = 0.0
        self._usual = reconnection.clock

    def __call__(self) -> float:
        return self._usual() + self.ahead


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(reconnection, "clock", made)
    monkeypatch.setattr(reconnection, "TICK", 0.02)
    return made


def sleep(clock: Clock, nodes: FakeNodes, *lost: str) -> None:
    clock.ahead += 20.0
    for name in lost:
        nodes.links[name].lose("lease", "the node side ended itself: no heartbeat for 10 s")


def states_of(feed: LiveFeed) -> set[str]:
    seen: set[str] = set()
    feed.listen(lambda: seen.update(record.state for record in feed.model.nodes.values()))
    return seen


def notes(model: Model) -> int:
    return sum(line.text.startswith(NOTE) for line in model.log)


@pytest.mark.parametrize("lost", ["", "ab", "abc"])
async def test_a_sleep_in_the_first_sweep_blames_no_node_and_gives_no_verdict(clock: Clock, lost: str) -> None:
    async with played(Script({"a": 2, "b": 2, "c": 2}, takes=0.1)) as (feed, nodes):
        seen = states_of(feed)
        running = asyncio.create_task(feed.run())
        await until(lambda: feed.model.phase.name == "p2p" and bool(feed.model.running))
        sleep(clock, nodes, *lost)
        await asyncio.wait_for(running, 40)
        assert notes(feed.model) == 1
        assert seen.isdisjoint({"lost", "failed"})
        measured = feed.model.measurements()
        assert {m.verdict for m in measured} == {Verdict.OK}, "not even one that was replaced later"
        assert len(p2p_of(feed.model)) == 30
        assert not feed.model.untested
        assert feed.model.exit_code == 0
        assert not [line for line in feed.model.log if line.level == "error"]


async def test_a_sleep_while_nothing_is_tested_starts_no_test(clock: Clock) -> None:
    async with played(Script({"a": 2, "b": 2})) as (feed, nodes):
        seen = states_of(feed)
        await feed.run()
        earlier = dict(nodes.links)
        sleep(clock, nodes, "a", "b")
        await until(lambda: notes(feed.model) == 1)
        await until(lambda: all(nodes.links[name] is not earlier[name] for name in "ab"))
        await until(lambda: all(record.state == "ready" for record in feed.model.nodes.values()))
        before = nodes.links["a"].pairs
        assert before == 0, "a link of its own"
        assert "lost" not in seen
        await feed.sweep()
        assert nodes.links["a"].pairs == 5, "the sweep that is asked for has both nodes"
        assert feed.model.exit_code == 0


async def test_watching_goes_on_after_a_sleep(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "STEP", 0.01)
    monkeypatch.setattr(watch, "IDLE", 0.05)
    feed, nodes = feed_of(Script({"a": 2, "b": 2}, takes=0.05), watch_rate=100.0)
    seen = states_of(feed)
    try:
        await feed.run()
        feed.watch(True)
        await until(lambda: feed.model.phase.name == "watch" and bool(feed.model.running))
        sleep(clock, nodes, "b")
        await until(lambda: notes(feed.model) == 1)
        done = sum(m.attempts for m in feed.model.measurements())
        await until(lambda: sum(m.attempts for m in feed.model.measurements()) > done + 20)
        assert feed.model.watching
        assert set(p2p_of(feed.model).values()) == {Verdict.OK}
        assert not feed.model.turns.total
        assert "lost" not in seen
    finally:
        with contextlib.suppress(TimeoutError):
            await feed.close()
