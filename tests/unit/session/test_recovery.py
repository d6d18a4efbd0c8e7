"""Costs of a fault: restarts of rank hosts, and sides of pairs that wait for a deadline without success."""

import asyncio
from typing import Any

import pytest

from fabtui.model.layers import Layer
from fabtui.model.measurement import Verdict
from fabtui.model.session_model import Model
from fabtui.session import watch
from fabtui.session.feeds.live import LiveFeed
from fabtui.session.options import SessionOptions
from fabtui.session.ranks import rank_host
from tests.unit.session.played import until
from tests.unit.session.slownodes import Pair, Play, SlowNodes

pytestmark = pytest.mark.slow

GPUS = {"a": 4, "b": 4}
TIMES = {"load": 0.3, "attach": 0.02, "ends": 0.05, "each": 0.04, "lets_go": 0.05}
Bad = dict[tuple[str, str], tuple[Verdict, str]]


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have silence noticed sooner, as all here is faster than on nodes."""
    monkeypatch.setattr(rank_host, "ALIVE_TICK", 0.02)
    monkeypatch.setattr(rank_host, "ALIVE_PERIOD", 0.1)
    monkeypatch.setattr(rank_host, "HALTED_PATIENCE", 0.06)
    monkeypatch.setattr(rank_host, "ALIVE_PATIENCE", 0.4)


def _play(**more: Any) -> Play:
    return Play(**{"gpus": GPUS, **TIMES, **more})


async def _run(probes: tuple[str, ...] = ("p2p",), **more: Any) -> tuple[Model, Play, Bad]:
    play = _play(**more)
    feed = LiveFeed(SessionOptions(hosts=tuple(play.gpus), timeout=1.0, probes=probes), SlowNodes(play))
    try:
        async with asyncio.timeout(60):
            await feed.run()
    finally:
        await feed.close()
    model = feed.model
    pairs = {(m.src, m.dst): m for m in model.measurements() if m.layer is Layer.P2P}
    assert len(pairs) == sum(play.gpus.values()) * (sum(play.gpus.values()) - 1)
    bad = {pair: (verdict, m.error or "") for pair, m in pairs.items() if (verdict := model.verdict(m)).bad}
    return model, play, bad


def _starts(play: Play) -> dict[str, int]:
    return {node: link.spawns for node, link in play.links.items()}


def _killed(node: str) -> str:
    return f"the rank host of {node} ended with signal 9"


async def test_without_a_fault_nothing_is_started_twice_and_nothing_stands_by() -> None:
    _, play, bad = await _run()
    assert not bad
    assert _starts(play) == {"a": 1, "b": 1}
    assert play.timeouts == 0
    assert not any(link.standbys for link in play.links.values())


# The pair that was begun first among those that run at once, and one of the others.
@pytest.mark.parametrize("way", [(0, 4), (1, 7), (7, 1)])
async def test_a_rank_host_that_dies_is_started_as_often_as_tests_need_it(way: Pair) -> None:
    model, play, bad = await _run(faults={way: "kill"})
    src, dst = (model.endpoints[n] for n in way)
    verdict, error = bad.pop((str(src), str(dst)))
    assert not bad
    assert verdict is Verdict.FAILED
    assert _killed(src.node) in error
    # Once more in any case, and again where it did not happen in the last of the pairs that were cut off.
    assert min(_starts(play).values()) == 1
    assert 2 <= max(_starts(play).values()) <= 3
    assert play.links[src.node].deaths == 2, "what it does was seen twice, once alone"
    assert play.timeouts == 0
    reported = model.suspects[str(src), str(dst)]
    because = "what ends a process is not a fault of a path"
    assert reported.startswith("only this pair ends the ranks: both ends work with other partners ("), because


async def test_a_rank_host_that_nothing_needs_is_not_started_again() -> None:
    play = _play(faults={(0, 4): "kill"})
    options = SessionOptions(hosts=("a", "b"), timeout=1.0, probes=("p2p",), pairs=(("a:0", "b:0"),))
    feed = LiveFeed(options, SlowNodes(play))
    await feed.run()
    assert _starts(play) == {"a": 2, "b": 1}
    assert play.links["a"].deaths == 2
    await feed.retest([("a:1", "b:0")])
    await feed.close()
    assert _starts(play) == {"a": 3, "b": 2}, "and is when it is needed; the other one was given back meanwhile"
    latest = feed.model.latest(Layer.P2P, "a:1", "b:0")
    assert latest is not None
    assert latest.verdict is Verdict.OK


async def test_ends_that_passed_with_others_since_are_not_tested_for_it() -> None:
    model, _, bad = await _run(faults={(0, 4): "kill"})
    assert len(bad) == 1
    counts = {pair: len(model.history(Layer.P2P, *pair)) for pair in ((m.src, m.dst) for m in model.measurements())}
    assert set(counts.values()) == {1}, "cut off and tested once more is one result; nobody else was tested twice"
    assert "the rank host of a is restarted" in " ".join(line.text for line in model.log)


async def test_collectives_after_the_pairs_have_all_their_ranks() -> None:
    model, play, bad = await _run(("p2p", "all_reduce"), faults={(0, 4): "kill"})
    assert list(bad) == [("a:0", "b:0")]
    assert _starts(play) == {"a": 3, "b": 1}
    busbw = [m for m in model.measurements() if m.layer is Layer.BUSBW]
    assert len(busbw) == 9, "two nodes and the pair of them, at three sizes"
    assert {m.verdict for m in busbw} == {Verdict.OK}


async def test_a_process_stands_by_while_the_same_may_happen_again() -> None:
    _, play, bad = await _run(faults={(1, 7): "kill"})
    assert len(bad) == 1
    assert {node: link.standbys for node, link in play.links.items()} == {"a": 1, "b": 1}
    ended = [m["on"] for m in play.links["b"].sent if m["t"] == "standby"]
    assert ended == [True, False], "an unused standby process was ended"


@pytest.mark.parametrize(("way", "reports_stops"), [((4, 0), True), ((7, 1), True), ((1, 7), False)])
async def test_a_rank_host_that_is_stopped_is_found_by_its_silence_not_by_deadlines(
    way: Pair, reports_stops: bool
) -> None:
    model, play, bad = await _run(faults={way: "stop"}, reports_stops=reports_stops)
    src, dst = (model.endpoints[n] for n in way)
    verdict, error = bad.pop((str(src), str(dst)))
    assert not bad
    assert verdict is Verdict.TIMEOUT
    assert error.startswith(f"the rank host of {src.node} is frozen: no answer for ")
    assert error.endswith("and its process is stopped") == reports_stops
    assert play.links[src.node].deaths == 2
    assert max(_starts(play).values()) <= 3
    assert play.timeouts == 0


async def test_a_rank_host_that_goes_on_is_not_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_host, "ALIVE_PATIENCE", 5.0)
    _, play, bad = await _run(naps={"a": 0.03}, each=0.6)
    assert not bad
    assert _starts(play) == {"a": 1, "b": 1}
    assert play.links["a"].naps == 1


async def test_two_faults_of_two_nodes_are_two_bad_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    # On a busy machine a rank host that works may be silent for longer than the others' tests allow.
    monkeypatch.setattr(rank_host, "ALIVE_PATIENCE", 0.8)
    _, play, bad = await _run(faults={(0, 4): "kill", (5, 1): "stop"})
    assert {pair: verdict for pair, (verdict, _) in bad.items()} == {
        ("a:0", "b:0"): Verdict.FAILED,
        ("b:1", "a:1"): Verdict.TIMEOUT,
    }
    assert _killed("a") in bad["a:0", "b:0"][1]
    assert bad["b:1", "a:1"][1].startswith("the rank host of b is frozen")
    # What a cancelled connection left behind may have been the reason once.
    assert sum(_starts(play).values()) <= 6


async def test_what_a_failed_connection_leaves_behind_fails_no_other_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_host, "ALIVE_PATIENCE", 10.0)
    # The process of a ends in the next of the pairs that are tested alone, and in a collective.
    gpus = {"a": 2, "b": 2, "c": 2}
    model, play, bad = await _run(("p2p", "all_reduce"), gpus=gpus, ends=0.02, each=0.3, lingers={(0, 2): 0.1})
    assert set(bad) == {("a:0", "b:0"), ("b:0", "a:0")}
    assert all(verdict is Verdict.FAILED and "no route to host" in error for verdict, error in bad.values())
    assert play.links["a"].deaths
    assert not model.untested
    busbw = [m for m in model.measurements() if m.layer is Layer.BUSBW]
    assert {m.verdict for m in busbw if m.verdict is not Verdict.SKIPPED} == {Verdict.OK}
    skipped = {(m.src, m.dst) for m in busbw if m.verdict is Verdict.SKIPPED}
    assert skipped == {("rail0", "rail0")}, "a rank of it connects to one other only, and a ring needs two"
    assert set(model.suspects) == set(bad)
    assert all("both ends work with other partners" in text for text in model.suspects.values())


async def test_who_does_not_come_is_waited_for_twice_and_wrong_data_keeps_nobody() -> None:
    model, play, bad = await _run(faults={(0, 4): "absent", (1, 5): "corrupt", (4, 5): "corrupt"})
    assert {pair: verdict for pair, (verdict, _) in bad.items()} == {
        ("a:0", "b:0"): Verdict.TIMEOUT,
        ("b:0", "a:0"): Verdict.TIMEOUT,
        ("a:1", "b:1"): Verdict.FAILED,
        ("b:0", "b:1"): Verdict.FAILED,
    }
    assert _starts(play) == {"a": 1, "b": 1}
    assert play.timeouts == 4, "one side, two directions, two attempts"
    assert [m.attempts for m in model.history(Layer.P2P, "a:0", "b:0")] == [1, 2]


async def test_ranks_that_cannot_connect_keep_nobody_until_a_deadline() -> None:
    _, play, bad = await _run(wrong={"b"})
    assert len(bad) == 44
    assert all(verdict is Verdict.FAILED and "no socket interface" in error for verdict, error in bad.values())
    assert play.timeouts == 0
    assert _starts(play) == {"a": 1, "b": 1}


async def test_a_rank_host_that_dies_again_and_again_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_host, "MAX_RESTARTS", 1)
    play = _play(faults={(0, 4): "kill", (1, 7): "kill", (2, 6): "kill"})
    feed = LiveFeed(SessionOptions(hosts=("a", "b"), timeout=1.0, probes=("p2p",)), SlowNodes(play))
    await feed.run()
    await feed.close()
    assert play.links["a"].spawns == 2
    assert any("failed 2 times" in why for why in feed.model.untested.values())


async def test_a_rank_host_that_was_left_down_is_watched_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "STEP", 0.01)
    monkeypatch.setattr(watch, "SUSPECT_REST", 0.05)
    play = _play(gpus={"a": 2, "b": 2}, faults={(0, 2): "kill"})
    options = SessionOptions(hosts=("a", "b"), timeout=1.0, probes=("p2p",), keep_warm=True, watch_rate=50.0)
    feed = LiveFeed(options, SlowNodes(play))
    try:
        async with asyncio.timeout(40):
            await feed.run()
            assert play.links["a"].dead, "nothing that was left to do needed it"
            play.faults.clear()
            feed.watch(True)
            while any(m.attempts < 2 for m in feed.model.measurements() if m.layer is Layer.P2P):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
    finally:
        await feed.close()
    latest = feed.model.latest(Layer.P2P, "a:0", "b:0")
    assert latest is not None
    assert latest.verdict is Verdict.OK


async def test_a_rank_host_that_ends_between_two_tests_is_started_for_the_next_one() -> None:
    play = _play(gpus={"a": 1, "b": 1})
    feed = LiveFeed(SessionOptions(hosts=("a", "b"), timeout=1.0, probes=("p2p",), keep_warm=True), SlowNodes(play))
    try:
        await feed.run()
        host = feed._hosts["a"]
        play.links["a"].die()
        await until(lambda: not host.ready)
        await host.settled(2)
        assert host.ready, host.broken
        assert play.links["a"].spawns == 2
    finally:
        await feed.close()
