"""Whole sessions over played nodes."""

import asyncio
import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fabtui.model.endpoints import PairClass, node_of
from fabtui.model.events import Event, ProbeResult, RanksReady
from fabtui.model.layers import Layer
from fabtui.model.measurement import Verdict
from fabtui.model.recording import read_events
from fabtui.model.session_model import Model
from fabtui.session import probe_runner, reconnection, sweep
from fabtui.session.feeds import live
from fabtui.session.feeds.live import LiveFeed
from fabtui.session.measure import p2p
from fabtui.session.options import SessionOptions
from fabtui.transport.link import NodeUnreachable
from tests.unit.session.fakenodes import FakeLink, FakeNodes, Script
from tests.unit.session.played import feed_of, p2p_of, played, run, until, world_of


async def test_a_healthy_session_fills_everything_and_leaves(tmp_path: Path) -> None:
    record = tmp_path / "r.jsonl.gz"
    model, nodes = await run(Script({"a": 4, "b": 4}), record=record)
    cells = p2p_of(model)
    assert len(cells) == 56
    assert set(cells.values()) == {Verdict.OK}
    layers = [m.layer for m in model.measurements()]
    assert layers.count(Layer.LATENCY) == 56
    assert layers.count(Layer.PING) == layers.count(Layer.UDP) == layers.count(Layer.TCP) == 2
    assert layers.count(Layer.BUSBW) == 9, "two nodes and their pair; three sizes each"
    assert model.exit_code == 0
    assert model.phase.name == "done"
    assert all(link.closed for link in nodes.links.values())
    again = Model()
    for event in read_events(record):
        again.apply(event)
    assert p2p_of(again) == cells
    assert again.exit_code == 0
    assert [e.seq for e in read_events(record)] == list(range(len(list(read_events(record)))))


async def test_the_start_of_ranks_is_a_phase_that_counts_nodes(tmp_path: Path) -> None:
    record = tmp_path / "r.jsonl.gz"
    await run(Script({"a": 2, "b": 2}), record=record, probes=("p2p",))
    model, seen = Model(), []
    for event in read_events(record):
        model.apply(event)
        if isinstance(event, RanksReady):
            seen.append((event.node, model.phase.name, model.done, model.phase.total))
    assert sorted(node for node, *_ in seen) == ["a", "b"]
    assert [place for _, *place in seen] == [["ranks", 1, 2], ["ranks", 2, 2]]


async def test_one_silent_direction_is_one_bad_cell_that_names_its_endpoint() -> None:
    model, _ = await run(Script({"a": 4, "b": 4}, silent={(1, 6)}))
    bad = {pair: verdict for pair, verdict in p2p_of(model).items() if verdict is not Verdict.OK}
    assert bad == {("a:1", "b:2"): Verdict.TIMEOUT}
    latest = model.latest(Layer.P2P, "a:1", "b:2")
    assert latest is not None
    assert latest.error == "transfer: no message came from a:1 within 5.0 s"
    assert model.exit_code == 1


async def test_slow_pairs_are_tested_again_alone_and_only_what_stays_slow_is_slow() -> None:
    model, nodes = await run(Script({"a": 4, "b": 4, "c": 1}, rates={(0, 4): [1e9, 50e9], (2, 6): [1e9, 2e9]}))
    bad = {pair: verdict for pair, verdict in p2p_of(model).items() if verdict is not Verdict.OK}
    assert bad == {("a:2", "b:2"): Verdict.SLOW}
    assert len(model.history(Layer.P2P, "a:0", "b:0")) == 2
    assert len(model.history(Layer.P2P, "a:2", "b:2")) == 4, "twice alone, and once before the path is blamed"
    assert nodes.links["c"].pairs == 8, "pairs of other nodes were left alone"


async def test_a_pair_is_slow_only_among_good_pairs_of_the_same_minute() -> None:
    """The machine has become busier since the sweep: every pair has half of its rate when it is tested again."""
    pairs = list(itertools.combinations(range(4), 2))
    directions = [*pairs, *((b, a) for a, b in pairs)]
    rates: dict[tuple[int, int], float | list[float]] = {pair: [50e9, 25e9] for pair in directions}
    model, _ = await run(Script({"a": 4}, rates=rates | {(0, 1): 24.5e9, (1, 0): 24.5e9}), layers=("p2p",))
    assert set(p2p_of(model).values()) == {Verdict.OK}
    assert any(line.text.startswith("slower than before, so tested again, too: ") for line in model.log)
    model, _ = await run(Script({"a": 4}, rates={pair: [50e9, 25e9] for pair in directions} | {(0, 1): 5e9}))
    assert [pair for pair, verdict in p2p_of(model).items() if verdict.bad] == [("a:0", "a:1")]


async def test_a_direction_that_is_slow_once_beside_a_slow_one_is_tested_again_too() -> None:
    # One direction of a pair is slow; the other one is good, but not in the last retest of the pair.
    rates: dict[tuple[int, int], float | list[float]] = {(2, 6): [1e9, 2e9, 1e9, 2e9], (6, 2): [50e9, 50e9, 1e9, 50e9]}
    model, _ = await run(Script({"a": 4, "b": 4}, rates=rates))
    bad = {pair: verdict for pair, verdict in p2p_of(model).items() if verdict is not Verdict.OK}
    assert bad == {("a:2", "b:2"): Verdict.SLOW}
    assert len(model.history(Layer.P2P, "b:2", "a:2")) == 5, "and once before the path is blamed"


async def test_no_line_of_the_log_is_repeated_and_the_end_of_the_sweep_is_reported() -> None:
    model, _ = await run(Script({"a": 4, "b": 4}, rates={(0, 4): [1e9, 50e9], (2, 6): [1e9, 2e9]}))
    lines = [line.text for line in model.log]
    again = [line for line in lines if "tested again, alone" in line]
    assert [line.partition("alone ")[2] for line in again] == [
        "(round 1): 2 slow pairs (a:0 - b:0, a:2 - b:2)",
        "(round 2): 1 slow pair (a:2 - b:2)",
    ]
    assert "a:0 > b:0 p2p: ok at 50 GB/s, was slow" in lines
    assert lines[-1].startswith("sweep ended: 1 of 56 GPU pairs is bad: a:2 > b:2 "), lines[-1]
    assert len(set(lines)) == len(lines)


async def test_what_is_slow_only_by_what_was_tested_again_is_tested_again_as_well() -> None:
    # All are ten times as fast when they are alone, as dead pairs and their partners come to be: that moves the median.
    rates: dict[tuple[int, int], float | list[float]] = {
        (src, dst): [5e9, 50e9] for src, dst in itertools.permutations(range(4), 2)
    }
    model, _ = await run(Script({"a": 1, "b": 1, "c": 1, "d": 1}, rates=rates, silent={(0, 1), (2, 3)}))
    bad = {pair for pair, verdict in p2p_of(model).items() if verdict is not Verdict.OK}
    assert bad == {("a:0", "b:0"), ("c:0", "d:0")}


async def test_a_node_that_cannot_be_reached_is_a_row_that_gives_the_reason() -> None:
    script = Script(
        {"a": 2, "b": 2, "c": 2}, unreachable={"b": NodeUnreachable("refused", "port 22 refused", "is sshd up?")}
    )
    model, _ = await run(script)
    assert [str(e) for e in model.endpoints] == ["a:0", "a:1", "b:-", "c:0", "c:1"]
    assert model.nodes["b"].text == "port 22 refused"
    assert model.nodes["b"].hint == "is sshd up?"
    assert model.untested["a:0", "b:-"] == "port 22 refused"
    assert set(p2p_of(model).values()) == {Verdict.OK}
    assert len(p2p_of(model)) == 12
    assert model.exit_code == 3


async def test_all_nodes_unreachable_ends_with_3() -> None:
    model, _ = await run(Script({"a": 1}, unreachable={"a": NodeUnreachable("dns", "no such name")}))
    assert model.exit_code == 3


@pytest.mark.slow
async def test_a_late_node_does_not_hold_the_others_and_joins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "SETTLE", 0.05)
    feed, _ = feed_of(Script({"a": 2, "b": 2, "c": 2}, late={"b": 2.0}))
    order: list[tuple[str, int]] = []
    feed.listen(lambda: order.append((feed.model.nodes["b"].state, len(p2p_of(feed.model)))))
    await feed.run()
    await feed.close()
    assert any(state == "connecting" and cells == 12 for state, cells in order), "the others were done before b came"
    assert len(p2p_of(feed.model)) == 30
    assert feed.model.exit_code == 0
    assert [str(e) for e in feed.model.endpoints] == ["a:0", "a:1", "c:0", "c:1", "b:0", "b:1"]


@pytest.mark.slow
async def test_a_node_lost_in_the_middle_is_reported_and_the_others_go_on() -> None:
    refused = NodeUnreachable("auth", "b does not let ann in")
    model, nodes = await run(Script({"a": 2, "b": 2, "c": 2}, dies_after={"b": 2}, tries={"b": [None, refused]}))
    cells = p2p_of(model)
    others = {pair: v for pair, v in cells.items() if "b" not in pair[0] + pair[1]}
    assert len(others) == 12
    assert set(others.values()) == {Verdict.OK}
    failed = [m for m in model.measurements() if m.layer is Layer.P2P and m.verdict is Verdict.FAILED]
    assert failed
    assert all((m.error or "").count("the connection broke") == 1 for m in failed)
    assert not model.suspects, "the node is why, not a path between ends that passed before it went"
    touched = {pair for pair in cells if "b" in pair[0] + pair[1]} | model.untested.keys()
    assert len(touched) == 18, "each pair with b is either measured, failed, or untested with a reason"
    assert model.nodes["b"].state == "lost"
    assert model.nodes["b"].text == "the connection broke; then: b does not let ann in"
    assert nodes.tried["b"] == 2, "a login that is refused is not repeated"
    assert model.nodes["b"].retry is None
    assert model.exit_code == 1


async def test_a_node_lost_in_the_middle_comes_back_and_its_pairs_are_tested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconnection, "FIRST", (0.01, 0.02))
    monkeypatch.setattr(FakeLink, "login_seconds", 0.5)
    refused = NodeUnreachable("refused", "port 22 refused")
    script = Script({"a": 2, "b": 2, "c": 2}, dies_after={"b": 2}, tries={"b": [None, refused, refused, None]})
    feed, nodes = feed_of(script, record=tmp_path / "r.jsonl.gz")
    states: list[tuple[str, str, str]] = []

    def note() -> None:
        record = feed.model.nodes["b"]
        states.append((record.state, record.text, record.hint or ""))
        if record.state == "lost":
            assert record.retry is not None
            # From now on it lives.
            script.dies_after.clear()

    feed.listen(note)
    await feed.run()
    await feed.close()
    assert ("lost", "the connection broke", "ssh b uptime") in states
    assert set(p2p_of(feed.model).values()) == {Verdict.OK}
    assert len(p2p_of(feed.model)) == 30
    assert not feed.model.untested
    assert feed.model.exit_code == 0
    assert nodes.links["a"].pairs < 2 * 9, "pairs that had been tested were left alone"
    assert [line.text for line in feed.model.log if line.node == "b"].count("is back") == 1
    events = [*read_events(tmp_path / "r.jsonl.gz")]
    logins = [one.node for one in events if isinstance(one, ProbeResult) and one.probe == "login"]
    assert sorted(logins) == ["a", "b", "c"], "the login of a node that comes back is not a measure"


async def test_a_node_that_comes_late_takes_the_place_of_its_empty_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconnection, "FIRST", (0.01, 0.02))
    monkeypatch.setattr(reconnection, "LONGEST", 0.05)
    refused = NodeUnreachable("refused", "port 22 refused")
    script = Script({"a": 2, "b": 2, "c": 2}, tries={"b": [refused]})
    async with played(script) as (feed, nodes):
        await feed.run()
        assert feed.model.exit_code == 3
        assert [str(e) for e in feed.model.rows] == ["a:0", "a:1", "b:-", "c:0", "c:1"]
        assert feed.model.nodes["b"].state == "failed"
        script.tries["b"] = [None]
        await until(lambda: feed.model.exit_code == 0)
        assert [str(e) for e in feed.model.rows] == ["a:0", "a:1", "c:0", "c:1", "b:0", "b:1"]
        assert len(p2p_of(feed.model)) == 30
        assert not feed.model.untested
        assert nodes.tried["b"] > 2
        # A sweep that is asked for includes it.
        done = nodes.links["b"].pairs
        await feed.sweep()
        assert nodes.links["b"].pairs == done + 9
        # And it goes, and comes, without any sweep running.
        script.tries["b"] = [refused]
        nodes.links["b"].lose("frozen", "no answer for 11 s although the connection is up")
        await until(lambda: feed.model.nodes["b"].state == "lost")
        script.tries["b"] = [None]
        await until(lambda: feed.model.exit_code == 0 and feed.model.nodes["b"].state == "ready")


@pytest.mark.slow
async def test_many_lost_nodes_are_tried_at_a_bounded_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconnection, "FIRST", (0.0, 0.0))
    returns = reconnection.Reconnection()
    loop = asyncio.get_running_loop()
    times: list[float] = []

    async def tried(node: str) -> None:
        await returns.wait(returns.pause(node))
        times.append(loop.time())

    await asyncio.gather(*(tried(f"n{at}") for at in range(20)))
    assert times[-1] - times[0] >= 18.5 * reconnection.SPACING
    pauses = [reconnection.Reconnection().pause("a") for _ in range(3)]
    assert pauses == [0.0] * 3
    monkeypatch.undo()
    pauses = [returns.pause("b") for _ in range(12)]
    assert pauses[0] <= 2.0
    assert pauses[-1] == reconnection.LONGEST
    returns.lasted("b", reconnection.LASTING)
    assert returns.pause("b") <= 2.0


@pytest.mark.slow
async def test_a_pair_that_hangs_is_ended_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(p2p, "GRACE", 0.1)
    monkeypatch.setattr(p2p, "ABORT_PATIENCE", 0.2)
    model, nodes = await run(Script({"a": 2, "b": 2}, hang={(0, 3)}))
    cells = p2p_of(model)
    assert len(cells) == 12
    assert {p for p, v in cells.items() if v is not Verdict.OK} == {("a:0", "b:1"), ("b:1", "a:0")}
    assert cells["a:0", "b:1"] is Verdict.TIMEOUT
    assert any(m["t"] == "rank" and m["m"]["op"] == "abort" for m in nodes.links["a"].sent)
    assert nodes.links["a"].spawns == 3, "its rank host was killed and started again, and once more when tested alone"
    assert model.suspects["a:0", "b:1"].startswith(
        "only this pair ends the ranks: both ends work with other partners ("
    )


def _given_ranks(nodes: FakeNodes, node: str) -> set[int]:
    inits = [m["m"] for m in nodes.links[node].sent if m["t"] == "rank" and m["m"]["op"] == "init"]
    assert inits
    return {rank["index"] for init in inits for rank in init["ranks"]}


async def test_gpus_in_use_are_left_alone_unless_forced() -> None:
    model, nodes = await run(Script({"a": 2, "b": 2}, busy={("a", 1)}))
    assert len(p2p_of(model)) == 6
    assert "train (pid 7, user ann)" in model.untested["a:1", "b:0"]
    assert model.exit_code == 3
    assert _given_ranks(nodes, "a") == {0}, "not even a context is made there"
    model, _ = await run(Script({"a": 2, "b": 2}, busy={("a", 1)}), force=True)
    assert len(p2p_of(model)) == 12


@pytest.mark.parametrize("force", [False, True])
async def test_gpus_without_free_memory_are_reported_before_anything_is_allocated(force: bool) -> None:
    gpus = [
        {"index": i, "memory": 141 << 30, "memory_used": used}
        for i, used in enumerate((4 << 30, (141 << 30) - (1280 << 20)))
    ]
    script = Script({"a": 2, "b": 2, "c": 1}, inventory={"a": {"gpus": gpus}, "c": {"gpus": gpus[1:]}})
    model, nodes = await run(script, force=force)
    why = "a:1: 1280 MiB of GPU memory are free and 1668 MiB are needed"
    assert model.untested["b:0", "a:1"].startswith(why)
    assert len(p2p_of(model)) == 6
    assert (_given_ranks(nodes, "a"), _given_ranks(nodes, "c")) == ({0}, set())
    assert any(line.text.startswith(f"not tested: {why}") for line in model.log)
    assert model.exit_code == 3
    smaller, _ = await run(script, bytes=16 << 20)
    assert smaller.untested == {}


async def test_communicators_are_released_between_tests_and_never_take_more_than_the_bound() -> None:
    held = 400 << 20
    _, nodes = await run(Script({"a": 4, "b": 4}, held=held, takes=0.01))
    for link in nodes.links.values():
        kept: set[tuple[int, ...]] = set()
        running: set[int] = set()
        rests, most = 0, 0
        for m in link.exchanged:
            if m["op"] == "pair":
                running.add(m["id"])
                kept.add((*sorted((m["a"], m["b"])), m["ctas"]))
                ends = Counter(end for key in kept for end in key[:2])
                most = max(most, *(ends[end] for end in (m["a"], m["b"])))
            elif m["op"] == "rest":
                assert not running, "transfers would wait for the driver"
                kept -= {tuple(one[:3]) for one in m.get("links", ())}
                rests += 1
            elif m["op"] == "free":
                running.discard(m["id"])
        assert rests > 2
        # Two buffers besides, and one in reserve.
        assert 1 < most <= ((2 << 30) - 2 * (256 << 20)) // held


async def test_a_node_without_gpus_among_gpu_nodes_gives_the_reason() -> None:
    model, _ = await run(Script({"a": 2, "b": 0, "c": 3}))
    assert [str(e) for e in model.endpoints] == ["a:0", "a:1", "b:-", "c:0", "c:1", "c:2"]
    assert "no driver" in model.nodes["b"].note
    assert len(p2p_of(model)) == 20
    assert model.exit_code == 3


async def test_one_node_alone_works() -> None:
    model, _ = await run(Script({"a": 3}))
    assert len(p2p_of(model)) == 6
    assert model.exit_code == 0


async def test_a_retest_runs_one_pair_and_keeps_both_attempts() -> None:
    feed, nodes = feed_of(Script({"a": 2, "b": 2}))
    await feed.run()
    before = nodes.links["b"].pairs
    await feed.retest([("a:0", "b:0"), ("nobody:0", "b:0")])
    assert [m.attempts for m in feed.model.history(Layer.P2P, "a:0", "b:0")] == [1, 2]
    assert nodes.links["b"].pairs == before + 1
    await feed.sweep()
    assert [m.attempts for m in feed.model.history(Layer.P2P, "b:0", "a:0")] == [1, 2, 3]
    await feed.close()


async def test_pausing_starts_no_new_test() -> None:
    feed, _ = feed_of(Script({"a": 2, "b": 2}))
    feed.pause(True)
    running = asyncio.create_task(feed.run())
    await asyncio.sleep(0.5)
    assert not p2p_of(feed.model)
    assert feed.model.paused
    feed.pause(False)
    await running
    await feed.close()
    assert len(p2p_of(feed.model)) == 12


async def test_closing_in_the_middle_is_quick_and_twice_is_harmless() -> None:
    feed, nodes = feed_of(Script({"a": 2, "b": 2}, hang={(0, 1), (2, 3)}))
    running = asyncio.create_task(feed.run())
    await asyncio.sleep(0.3)
    async with asyncio.timeout(5):
        await feed.close()
        await feed.close()
    await asyncio.gather(running, return_exceptions=True)
    assert all(link.closed for link in nodes.links.values())


@pytest.mark.slow
async def test_a_rank_that_stays_away_is_not_waited_for_once_its_peer_gave_up() -> None:
    async with played(Script({"a": 2, "b": 2}, away={(1, 2)}), layers=("p2p",), timeout=30.0) as (feed, nodes):
        async with asyncio.timeout(20):
            await feed.run()
    bad = {pair: verdict for pair, verdict in p2p_of(feed.model).items() if verdict is not Verdict.OK}
    assert bad == {("a:1", "b:0"): Verdict.TIMEOUT, ("b:0", "a:1"): Verdict.TIMEOUT}
    latest = feed.model.latest(Layer.P2P, "a:1", "b:0")
    assert latest is not None
    assert latest.attempts == 2
    assert "cancelled" not in (latest.error or "")
    assert [link.spawns for link in nodes.links.values()] == [1, 1], "no rank host was killed for it"


async def test_a_rank_host_that_dies_in_a_test_takes_no_innocent_pair_along() -> None:
    model, nodes = await run(Script({"a": 4, "b": 4}, kills={("a", 1, 6)}))
    bad = {pair: v for pair, v in p2p_of(model).items() if v is not Verdict.OK}
    assert set(bad) == {("a:1", "b:2"), ("b:2", "a:1")}
    latest = model.latest(Layer.P2P, "a:1", "b:2")
    assert latest is not None
    assert "signal 9" in (latest.error or "")
    assert len(p2p_of(model)) == 56
    assert nodes.links["a"].spawns >= 3


@pytest.mark.parametrize("way", [(1, 6), (6, 1)])
@pytest.mark.parametrize("node", ["a", "b"])
async def test_the_direction_in_which_a_rank_host_dies_is_bad_and_the_other_one_is_tested(
    node: str, way: tuple[int, int]
) -> None:
    model, _ = await run(Script({"a": 4, "b": 4}, deadly={(node, *way)}))
    names = [str(e) for e in model.endpoints]
    bad = {pair: v for pair, v in p2p_of(model).items() if v is not Verdict.OK}
    assert set(bad) == {(names[way[0]], names[way[1]])}
    assert len(p2p_of(model)) == 56


async def test_suspects_are_reported_apart_by_partners_that_pass() -> None:
    slow = {(0, n): 5e9 for n in (4, 5, 6, 7)} | {(n, 0): 5e9 for n in (4, 5, 6, 7)}
    model, _ = await run(Script({"a": 4, "b": 4}, rates={**slow, (1, 6): 1e9}))
    assert model.suspects["a:1", "b:2"].startswith(
        "the path between them is at fault: both ends work with other partners ("
    )
    assert set(model.suspects) >= {("a:0", "b:0"), ("b:0", "a:0"), ("a:1", "b:2")}


async def test_where_a_node_has_no_third_gpu_its_pair_is_compared_with_other_nodes() -> None:
    model, _ = await run(Script({"a": 2, "b": 2}, rates={(0, 1): 1e8}))
    assert model.suspects["a:0", "a:1"] == (
        "no other GPU on a to compare with: either GPU, or the link between them, is at fault; "
        "both work with other nodes (a:0 with b:0, a:1 with b:0)"
    )


async def test_two_gpus_alone_have_nothing_to_compare_with() -> None:
    model, _ = await run(Script({"a": 1, "b": 1}, rates={(0, 1): 1e8}))
    words = "there is no other GPU to compare with: either end, or their path, is at fault"
    assert set(model.suspects.values()) <= {words}, model.suspects
    assert "path between them" not in words, "the sentence of the verdict would blame the path"


async def test_quick_mode_tests_few_pairs() -> None:
    model, _ = await run(Script({"a": 4, "b": 4}), mode="quick")
    assert len(p2p_of(model)) == 2 * (4 + 4 + 4)
    assert len(world_of(model)) == 24
    assert model.exit_code == 0


async def test_a_comparison_runs_everything_under_each_value() -> None:
    model, nodes = await run(
        Script({"a": 2, "b": 2}), compare=("NCCL_P2P_DISABLE", ("0", "1")), env={"NCCL_DEBUG": "INFO"}
    )
    assert model.comparison == ["NCCL_P2P_DISABLE=0", "NCCL_P2P_DISABLE=1"]
    spawned = [m["env"] for m in nodes.links["a"].sent if m["t"] == "spawn"]
    assert spawned == [{"NCCL_DEBUG": "INFO", "NCCL_P2P_DISABLE": value} for value in "01"]
    first = model.latest(Layer.P2P, "a:0", "b:0")
    assert first is not None
    assert first.arm is None
    second = next(m for m in model.results.arms() if (m.layer, m.src, m.dst) == (Layer.P2P, "a:0", "b:0"))
    assert (second.arm, second.value) == ("NCCL_P2P_DISABLE=1", 50.0)
    assert len(model.history(Layer.P2P, "a:0", "b:0")) == 1, "the other arm has its own history"


async def test_several_sizes_give_a_row_each() -> None:
    model, _ = await run(Script({"a": 2}), sizes=(1024, 1 << 20))
    rows = [(m.bytes, m.src) for m in model.measurements() if m.layer is Layer.P2P]
    assert sorted(rows) == [(1024, "a:0"), (1024, "a:1"), (1 << 20, "a:0"), (1 << 20, "a:1")]


async def test_gpus_are_given_back_unless_they_are_to_be_kept() -> None:
    _, nodes = await run(Script({"a": 2}))
    assert any(m["t"] == "rank" and m["m"]["op"] == "quit" for m in nodes.links["a"].sent)
    _, nodes = await run(Script({"a": 2}), keep_warm=True)
    assert not any(m["t"] == "rank" and m["m"]["op"] == "quit" for m in nodes.links["a"].sent)


async def test_a_retest_after_the_gpus_were_given_back_starts_only_the_nodes_it_needs() -> None:
    feed, nodes = feed_of(Script({"a": 2, "b": 2, "c": 2}))
    await feed.run()
    async with asyncio.timeout(5):
        await feed.retest([("a:0", "b:0")])
    await feed.close()
    assert [nodes.links[name].spawns for name in "abc"] == [2, 2, 1]
    assert [m.attempts for m in feed.model.history(Layer.P2P, "a:0", "b:0")] == [1, 2]


@pytest.mark.slow
async def test_a_rank_that_fails_at_once_keeps_the_others_no_longer_than_a_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script = Script({"a": 2, "b": 2}, spoilers={3}, patient=True)
    feed = LiveFeed(SessionOptions(hosts=("a", "b"), timeout=30.0, layers=("world",)), FakeNodes(script))
    async with asyncio.timeout(25):
        await feed.run()
    await feed.close()
    cells = world_of(feed.model)
    assert {pair for pair, v in cells.items() if v is Verdict.OK} == {
        (s, d) for s in ("a:0", "a:1", "b:0") for d in ("a:0", "a:1", "b:0") if s != d
    }
    latest = feed.model.latest(Layer.WORLD, "a:0", "b:1")
    assert latest is not None
    assert "no socket interface found" in (latest.error or "")


@pytest.mark.slow
async def test_ranks_that_are_late_hold_no_other_node_and_are_tested_after(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "RANKS_SETTLE", 0.2)
    feed, _ = feed_of(Script({"a": 2, "b": 2, "c": 2}, slow_ranks={"b": 2.0}))
    done: list[tuple[int, bool]] = []
    feed.listen(lambda: done.append((len(p2p_of(feed.model)), any("b" in s + d for s, d in p2p_of(feed.model)))))
    async with asyncio.timeout(30):
        await feed.run()
    await feed.close()
    assert (12, False) in done, "the others were through before a cell of b was measured"
    assert len(p2p_of(feed.model)) == 30
    assert len(world_of(feed.model)) == 30
    assert not feed.model.untested
    assert feed.model.exit_code == 0


@pytest.mark.slow
async def test_ranks_that_come_while_others_are_tested_are_no_part_of_their_groups(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def also_ready(link: FakeLink, m: dict[str, Any]) -> None:
        if m["op"] == "reach" and not came:
            late = nodes.links["c"]
            came.append(2)
            late._say(op="ready", engine="nccl", version="fake 1", port=1, ranks=[{"rank": 2, "ok": True}])
        answer(link, m)

    came: list[int] = []
    answer = FakeLink._rank
    monkeypatch.setattr(FakeLink, "_rank", also_ready)
    monkeypatch.setattr(sweep, "RANKS_SETTLE", 0.05)
    # They come when the tests of the others have begun.
    script = Script({"a": 1, "b": 1, "c": 1}, slow_ranks={"c": 3600.0}, takes=0.2)
    feed, nodes = feed_of(script, probes=("p2p", "all_reduce"), layers=("p2p",), group_sizes=(2, 3))
    async with asyncio.timeout(40):
        await feed.run()
    await feed.close()
    model = feed.model
    found = {(m.src, (m.extra or {})["ranks"]) for m in model.measurements() if m.layer is Layer.BUSBW}
    assert found == {("first2", 2), ("first3", 3)}
    assert any("--groups: not tested with 3 ranks: there are 2" in line.text for line in model.log)
    assert model.exit_code == 0


@pytest.mark.parametrize(
    ("count", "now", "reported"),
    [
        (1, [1, 0], []),
        (2, [1], ["not tested: b:1 is in use by train (pid 7, user ann); --force tests it all the same"]),
    ],
    ids=["one-more", "one-less"],
)
async def test_what_uses_a_gpu_is_known_by_its_index_when_a_node_comes_back_with_others(
    count: int, now: list[int], reported: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconnection, "FIRST", (0.01, 0.02))
    script = Script({"a": 1, "b": count})
    feed, nodes = feed_of(script, probes=("p2p",))
    await feed.run()
    user = [{"pid": 7, "name": "train", "user": "ann"}]
    script.inventory["b"] = {"gpus": [{"index": index, "processes": user[:index]} for index in now]}
    nodes.links["b"].lose("lost", "rebooted")
    await until(lambda: any(line.text.startswith("sweep with b ended") for line in feed.model.log))
    await feed.close()
    assert [line.text for line in feed.model.log if line.text.startswith("not tested")] == reported


async def test_every_node_is_in_the_model_before_it_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    feed, nodes = feed_of(Script({"a": 1, "b": 1}), probes=("ping",))
    reach, move, known = nodes.open, feed._pump._move, []

    async def late() -> None:
        # A disk that takes its time with the first line.
        await asyncio.sleep(0.0 if feed.model.nodes else 0.1)
        await move()

    async def note(host: str) -> Any:
        known.append(host in feed.model.nodes)
        return await reach(host)

    monkeypatch.setattr(feed._pump, "_move", late)
    monkeypatch.setattr(nodes, "open", note)
    await feed.run()
    await feed.close()
    assert known == [True, True]


async def test_a_mistake_in_the_model_ends_the_session_and_nobody_waits_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(model: Model, event: Event) -> None:
        if event.kind == "phase":
            raise ZeroDivisionError("a mistake of ours")
        apply(model, event)

    apply = Model.apply
    monkeypatch.setattr(Model, "apply", broken)
    feed, nodes = feed_of(Script({"a": 1, "b": 1}), probes=("ping",))
    with pytest.raises(ExceptionGroup):
        async with asyncio.timeout(20):
            await feed.run()
    await feed.close()
    assert all(link.closed for link in nodes.links.values())


async def test_what_is_to_be_typed_names_the_ssh_configuration_of_the_session(tmp_path: Path) -> None:
    config = tmp_path / "my config"
    config.touch()
    async with played(Script({"a": 1, "b": 1}), ssh_config=config, probes=("ping",)) as (feed, nodes):

        async def refuse(host: str) -> Any:
            raise NodeUnreachable("auth", f"{host} does not let me in", f"ssh -v {host} true")

        nodes.open = refuse  # type: ignore[method-assign]
        await feed.run()
    assert feed.model.nodes["a"].hint == f"ssh -F '{config}' -v a true"


async def test_a_login_that_fails_without_advice_names_the_command_that_shows_more() -> None:
    async with played(Script({"a": 1, "b": 1}), probes=("ping",)) as (feed, nodes):

        async def refuse(host: str) -> Any:
            raise NodeUnreachable("closed", "the ProxyCommand ended before an SSH banner came")

        nodes.open = refuse  # type: ignore[method-assign]
        await feed.run()
    assert feed.model.nodes["b"].hint == "ssh -v b true"


async def test_a_session_that_comes_meanwhile_is_logged_once_and_kept_with_the_other_facts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(probe_runner, "NEWCOMER_INTERVAL", 0.02)
    facts: dict[str, Any] = {"sessions": [], "memory": {"swap": 0}}
    script = Script({"a": 2}, probe_results={"a": {"host": facts}})
    feed, _ = feed_of(script, probes=("host",))
    await feed.run()
    script.probe_results["a"]["host"] = {"sessions": [{"user": "ann\x1b[2J", "pid": 7}]}
    await until(lambda: bool(feed.model.nodes["a"].probe_results["host"]["sessions"]))
    await asyncio.sleep(0.2)
    await feed.close()
    assert feed.model.nodes["a"].probe_results["host"]["memory"] == {"swap": 0}
    lines = [line.text for line in feed.model.log if "another fabtui" in line.text]
    assert lines == ["another fabtui has connected to this node (user ann[2J, pid 7): both may test at the same time"]


async def test_nodes_load_what_their_ranks_need_while_others_are_still_coming() -> None:
    # c turns out to have nothing to test.
    script = Script({"a": 2, "b": 2, "c": 0}, late={"b": 0.3}, drivers={"c"})
    _, nodes = await run(script, probes=("p2p",))
    orders = {node: [m for m in link.sent if m["t"] in ("standby", "spawn")] for node, link in nodes.links.items()}
    ready, start = orders["a"]
    assert (ready["t"], ready["on"], start["t"]) == ("standby", True, "spawn")
    assert {**start, "t": "standby", "on": True} == ready, "the process serves the start"
    assert [m["t"] for m in orders["b"]] == ["spawn"], "it came last, and started at once"
    assert [m.get("on") for m in orders["c"]] == [True, False]


async def test_no_process_is_made_ready_where_no_ranks_will_start() -> None:
    for options in ({"read_only": True}, {"preflight_only": True}, {"probes": ("ping",)}):
        _, nodes = await run(Script({"a": 2, "b": 2}, late={"b": 0.2}, drivers={"a", "b"}), **options)
        assert not any(m["t"] in ("standby", "spawn") for link in nodes.links.values() for m in link.sent)


@pytest.mark.parametrize(
    ("inventory", "why"),
    [
        (
            {"down_addresses": [{"address": "10.1.0.2", "nic": "eth0", "rail": 0, "family": 4}]},
            "rail 0 (eth0 10.1.0.2) is down; ip link set eth0 up, or check its cable and switch port",
        ),
        (
            {"nics": [{"name": "lo"}, {"name": "docker0"}]},
            "no interface carries data (it has lo, docker0); give one an",
        ),
    ],
)
async def test_ranks_without_an_address_name_the_interface_and_what_to_do(inventory: dict[str, Any], why: str) -> None:
    script = Script({"a": 1, "b": 1, "c": 1}, inventory={"b": {"data_addresses": [], **inventory}})
    model, nodes = await run(script)
    assert model.untested["a:0", "b:0"].startswith("b:0: b has no address for its ranks: ")
    assert why in model.untested["a:0", "b:0"]
    assert not nodes.links["b"].spawns
    assert p2p_of(model)["a:0", "c:0"] is Verdict.OK


async def test_what_happens_to_a_node_is_kept_with_its_time() -> None:
    async with played(Script({"a": 1, "b": 1}), probes=("p2p",)) as (feed, nodes):
        await feed.run()
        link = nodes.links["b"]
        link.on_silence(8.0, 7.5)
        link.on_silence(6.0, 0.5)
        await until(lambda: len(feed.model.intervals.ended) == 2)
    first, second = feed.model.intervals.ended
    assert (first.kind, first.ends, round(first.until - first.since)) == ("silence", ("b",), 8)
    assert first.text == "its processes were stopped, or got no processor"
    assert second.text == "nothing came through"


async def test_the_end_of_a_rank_host_is_kept_unless_it_was_asked_for_or_a_test_had_failed_in_it() -> None:
    async with played(Script({"a": 1, "b": 1}, takes=0.3), probes=("p2p",), layers=("p2p",), keep_warm=True) as (
        feed,
        nodes,
    ):

        def end(name: str, number: int) -> None:
            nodes.links[name]._queue.put_nowait({"t": "exit", "code": None, "signal": number, "stderr": ""})

        await feed.run()
        end("b", 11)
        await until(lambda: len(feed.model.intervals.ended) == 1)
        host = feed._hosts["a"]
        host.note_failure()
        end("a", 11)
        await until(lambda: host.down)
        host.down = False
        nodes.links["a"]._queue.put_nowait({"t": "spawned", "pid": 1, "python": "python3"})
        end("a", 9)
        await until(lambda: len(feed.model.intervals.ended) == 2)
    texts = [one.text for one in feed.model.intervals.ended]
    assert texts == ["the rank host of b ended with signal 11", "the rank host of a ended with signal 9"]


UUID = "9f3c1a52-0000-4000-8000-0000000000a1"


def fabric(gpus: int, clique: int) -> dict[str, Any]:
    state = {"state": "completed", "status": "success", "cluster": UUID, "clique": clique}
    return {"gpus": {"gpus": [{"index": index, "fabric": state} for index in range(gpus)]}}


async def test_a_rack_of_18_trays_is_tested_by_permutations_of_its_gpus() -> None:
    trays = {f"t{number:02}": 4 for number in range(18)}
    script = Script(trays, probe_results={tray: fabric(4, 1) for tray in trays})
    model, _ = await run(script, mode="quick", probes=("gpus", "p2p"), layers=("p2p",))
    pairs = set(p2p_of(model))
    assert len(pairs) == 2 * 2 * 72, "both directions of two permutations"
    assert all(node_of(src) != node_of(dst) for src, dst in pairs)
    assert {model.table.class_between(*pair) for pair in pairs} == {PairClass.SAME_DOMAIN}
    assert model.exit_code == 0


async def test_racks_side_by_side_are_tested_between_them_along_the_rails() -> None:
    trays = {f"t{number}": 2 for number in range(4)}
    script = Script(trays, probe_results={tray: fabric(2, at // 2) for at, tray in enumerate(trays)})
    model, _ = await run(script, mode="quick", probes=("gpus", "p2p"), layers=("p2p",))
    classes = {model.table.class_between(*pair) for pair in p2p_of(model)}
    assert classes == {PairClass.SAME_DOMAIN, PairClass.SAME_RAIL}
