"""Watch mode over played nodes."""

import asyncio
import functools
import itertools
from pathlib import Path
from typing import Any

import pytest

from fabtui.model.endpoints import Endpoint
from fabtui.model.events import CounterDeltas, Measured, SessionEnd, Watching
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.recording import read_events
from fabtui.model.session_model import Model
from fabtui.presentation.findings import title
from fabtui.session import watch
from fabtui.session.measure import measurement_runner
from fabtui.session.measure.measurement_runner import shared_deadline
from fabtui.session.node_client import NodeClient
from fabtui.session.watch import RankHostReplacement, Round, is_suspect, rate_for
from tests.conftest import session_of
from tests.unit.session.fakenodes import Script
from tests.unit.session.played import p2p_of, played, until


def _model(count: int, **bad: Any) -> Model:
    """A model of endpoints on one node, whose pairs were all tested, each a second after the one before."""
    model = session_of("a", count, time=0.0)
    at = 0.0
    for a in range(count):
        for b in range(count):
            if a != b:
                at += 1.0
                _measure(model, (a, b), Verdict.OK, at)
    return model


def _measure(model: Model, pair: tuple[int, int], verdict: Verdict, at: float) -> None:
    src, dst = (str(Endpoint(number=n, node="a", index=n)) for n in pair)
    value = 50.0 if verdict is Verdict.OK else None
    one = Measurement(Layer.P2P, src, dst, verdict, value, "GB/s", 1 << 20, at)
    model.apply(Measured(measurements=[one], time=at))


def test_the_stalest_comes_first_and_everything_comes_round() -> None:
    model = _model(4)
    order = Round(model)
    found = [pair for at in range(12) for pair in order.take(1, {0, 1, 2, 3}, float(at))]
    assert len(found) == 12
    assert found[:6] == [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)], "oldest first"
    assert sorted(found[6:]) == sorted(found[:6]), "and once more"


def test_every_other_turn_is_a_suspects_but_not_all_the_time() -> None:
    model = _model(4)
    _measure(model, (2, 3), Verdict.TIMEOUT, 100.0)
    order = Round(model)
    found = [order.take(1, {0, 1, 2, 3}, float(at))[0] for at in range(12)]
    assert found[0] == (2, 3), "suspects first"
    assert 2 <= found.count((2, 3)) <= 4, "it rests between its turns"
    assert {(0, 1), (0, 2), (0, 3), (1, 2), (1, 3)} <= set(found), "nothing else waits for it"


def test_what_is_well_again_is_no_suspect_but_what_flaps_is() -> None:
    model = _model(4)
    assert not is_suspect(model, (0, 1))
    _measure(model, (0, 1), Verdict.FAILED, 100.0)
    assert is_suspect(model, (0, 1))
    _measure(model, (0, 1), Verdict.OK, 101.0)
    assert model.results.flapping == {(Layer.P2P, "a:0", "a:1"): 2}
    assert is_suspect(model, (0, 1)), "ok, failed, ok"
    for at in range(10):
        _measure(model, (0, 1), Verdict.OK, 110.0 + at)
    assert model.results.flapping == {}
    assert not is_suspect(model, (0, 1))


def test_pairs_taken_together_share_no_endpoint_and_those_left_out_come_next() -> None:
    model = _model(4)
    order = Round(model)
    assert order.take(2, {0, 1, 2, 3}, 0.0) == [(0, 1), (2, 3)]
    assert order.take(1, {0, 1, 2, 3}, 1.0) == [(0, 2)]


def test_endpoints_that_are_not_there_are_not_taken() -> None:
    order = Round(_model(4))
    assert order.take(3, {0, 2}, 0.0) == [(0, 2)]
    assert order.take(3, set(), 0.0) == []


def test_the_rate_grows_with_the_fabric_unless_it_is_given() -> None:
    assert rate_for(None, 8) == 2.0
    assert rate_for(None, 1024) == 128.0
    assert rate_for(0.5, 1024) == 0.5


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "STEP", 0.01)
    monkeypatch.setattr(watch, "SUSPECT_REST", 0.05)
    monkeypatch.setattr(watch, "IDLE", 0.05)


_played = functools.partial(played, watch_rate=100.0)


def _attempts(model: Model) -> int:
    return sum(m.attempts for m in model.measurements() if m.layer is Layer.P2P)


@pytest.mark.usefixtures("quick")
async def test_watching_goes_round_without_new_ranks_and_ends_with_an_exit_code(tmp_path: Path) -> None:
    async with _played(Script({"a": 2, "b": 2}), record=tmp_path / "r.jsonl.gz") as (feed, nodes):
        model = feed.model
        await feed.run()
        assert model.exit_code == 0
        assert {link.spawns for link in nodes.links.values()} == {1}
        feed.watch(True)
        await until(lambda: _attempts(model) >= 12 * 4)
        assert model.watching
        assert model.phase.name == "watch"
        assert model.exit_code is None
        assert {link.spawns for link in nodes.links.values()} == {2}, "started once, and not for each pair"
        assert all(m.attempts >= 3 for m in model.measurements() if m.layer is Layer.P2P), "all came round"
        feed.watch(False)
        await until(lambda: model.exit_code == 0)
        assert not model.watching
        assert [line.text for line in model.log][-1].startswith("watching ended: ")
        assert nodes.links["a"].sent[-1] == {"t": "rank", "m": {"op": "quit"}}, "the GPUs are given back"
        done = _attempts(model)
        await asyncio.sleep(0.1)
        assert _attempts(model) == done
    kinds = [(e.kind, isinstance(e, Watching) and e.on) for e in read_events(tmp_path / "r.jsonl.gz")]
    assert ("watch", True) in kinds
    assert ("watch", False) in kinds


@pytest.mark.usefixtures("quick")
async def test_slow_with_fewer_ctas_counts_only_if_it_is_slow_without_that_limit() -> None:
    gpus = [{"index": i, "name": "NVIDIA H200", "uuid": f"GPU-{i}"} for i in range(4)]
    script = Script({"a": 4}, inventory={"a": {"gpus": gpus}})
    async with _played(script) as (feed, nodes):
        model = feed.model
        await feed.run()
        script.rates[(0, 1)] = [1e9, 50e9]
        feed.watch(True)
        await until(lambda: any("at most 16 CTAs" in line.text for line in model.log))
        await until(lambda: _attempts(model) >= 12 * 4)
        assert {model.verdict(m) for m in model.history(Layer.P2P, "a:0", "a:1")} == {Verdict.OK}
        script.rates[(0, 1)] = 1e9
        await until(lambda: model.log[-1].text.startswith("a:0 > a:1 p2p: slow"))
    asked = [m["m"]["ctas"] for m in nodes.links["a"].sent if m["t"] == "rank" and m["m"]["op"] == "pair"]
    assert set(asked) == {0, 16}
    latest = model.latest(Layer.P2P, "a:2", "a:3")
    assert latest is not None
    assert latest.how.endswith("at most 16 CTAs")
    assert latest.extra == {"ctas": 16}


@pytest.mark.usefixtures("quick")
async def test_a_pair_that_breaks_while_it_is_watched_is_reported_and_marked() -> None:
    script = Script({"a": 2, "b": 2})
    async with _played(script) as (feed, _):
        model = feed.model
        await feed.run()
        feed.watch(True)
        await until(lambda: _attempts(model) >= 12 * 2)
        script.silent.add((0, 3))
        await until(lambda: model.latest(Layer.P2P, "a:0", "b:1").verdict is Verdict.TIMEOUT)  # type: ignore[union-attr]
        lines = [line.text for line in model.log if "a:0 > b:1" in line.text]
        assert lines == ["a:0 > b:1 p2p: timed out, was ok"]
        script.silent.clear()
        await until(lambda: (Layer.P2P, "a:0", "b:1") in model.results.flapping)
        assert any(line.text.startswith("a:0 > b:1 p2p: ok at 50 GB/s, was timed out") for line in model.log)
    assert model.exit_code == 0, "a session that is left while it watches ends as any other"
    assert not model.watching


class _First(set[Any]):
    def __init__(self, member: object, times: int) -> None:
        super().__init__()
        self._member, self._left = member, times

    def __contains__(self, asked: object) -> bool:
        found = asked == self._member and self._left > 0
        self._left -= found
        return found


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(("what", "member", "times"), [("silent", (0, 1), 2), ("kills", ("a", 0, 1), 1)])
async def test_a_pair_that_fails_once_while_it_is_watched_is_tested_again_before_it_is_reported(
    what: str, member: object, times: int
) -> None:
    script = Script({"a": 1, "b": 1})
    async with _played(script) as (feed, _):
        model = feed.model
        await feed.run()
        feed.watch(True)
        setattr(script, what, _First(member, times))
        doubt = "retested before that counts: 1 failed pair (a:0 - b:0)"
        await until(lambda: any(line.text == doubt for line in model.log))
        tested = _attempts(model)
        await until(lambda: _attempts(model) >= tested + 2)
    assert {one.verdict for one in model.history(Layer.P2P, "a:0", "b:0")} == {Verdict.OK}


@pytest.mark.usefixtures("quick")
async def test_a_dead_pair_has_a_part_of_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [shared_deadline(timeout, 0.3) for timeout in (60.0, 5.0, 2.0)] == [18.0, 3.0, 2.0]
    monkeypatch.setattr(measurement_runner, "LEAST_DEADLINE", 0.2)
    async with _played(Script({"a": 1, "b": 1}, silent={(0, 1)}), timeout=1.0) as (feed, nodes):
        await feed.run()
        feed.watch(True)
        await until(lambda: _attempts(feed.model) >= 8)
    deadlines = [m["m"]["deadline"] for m in nodes.links["a"].sent if m["t"] == "rank" and m["m"]["op"] == "pair"]
    assert deadlines[-1] == pytest.approx(0.3)
    assert feed.model.exit_code == 1


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
async def test_what_the_user_asks_for_comes_between_and_watching_goes_on() -> None:
    async with _played(Script({"a": 2, "b": 2}, takes=0.02)) as (feed, _):
        model = feed.model
        await feed.run()
        feed.watch(True)
        await until(lambda: model.phase.name == "watch" and _attempts(model) > 14)
        phases = []
        feed.listen(lambda: phases.append(model.phase.name))
        await feed.retest([("a:0", "b:0")])
        assert "re-test" in phases
        await feed.sweep()
        assert "p2p" in phases
        done = _attempts(model)
        await until(lambda: _attempts(model) > done + 4 and model.phase.name == "watch")


@pytest.mark.usefixtures("quick")
async def test_a_pause_stops_it_and_a_lost_node_is_left_out() -> None:
    async with _played(Script({"a": 2, "b": 2, "c": 2})) as (feed, nodes):
        model = feed.model
        await feed.run()
        feed.watch(True)
        await until(lambda: _attempts(model) > 34)
        feed.pause(True)
        # What had begun comes to its end.
        await until(lambda: model.paused and not model.running)
        done = _attempts(model)
        await asyncio.sleep(0.1)
        assert _attempts(model) == done
        nodes.links["c"].lose("lost", "the connection broke")
        feed.pause(False)
        await until(lambda: _attempts(model) > done + 30)
        assert model.watching
        assert model.nodes["c"].state == "lost"


@pytest.mark.usefixtures("quick")
async def test_a_rank_host_that_reaches_nobody_any_more_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    # As if a library had not survived a fault of the network: only a new process helps.
    monkeypatch.setattr(watch, "PAUSE", 0.05)
    script = Script({"a": 1, "b": 1, "c": 1, "d": 1})
    async with _played(script) as (feed, nodes):
        model = feed.model
        await feed.run()
        feed.watch(True)
        await until(lambda: _attempts(model) >= 12 * 2)
        spawns = nodes.links["b"].spawns
        script.silent |= {pair for pair in itertools.permutations(range(4), 2) if 1 in pair}
        await until(lambda: nodes.links["b"].spawns > spawns)
        script.silent.clear()
        await until(lambda: set(p2p_of(model).values()) == {Verdict.OK})
    lines = [(line.node, line.text) for line in model.log if "replaced" in line.text]
    assert set(lines) == {("b", "its rank host no longer reached any other node; it is replaced")}
    assert {nodes.links[name].spawns for name in "acd"} == {2}


def test_rank_hosts_are_replaced_in_growing_pauses_and_not_for_one_bad_peer() -> None:
    order = RankHostReplacement()
    for _ in range(9):
        order.ended("a", "b", dead=True)
    assert order.due("abc", "", 0.0) == [], "b may be the only one to blame"
    order.ended("b", "c", dead=True)
    assert order.due("abc", "", 0.0) == ["b"]
    assert order.due("abc", "", 9999.0) == [], "nothing has failed since"
    found = []
    for second in range(100):
        order.ended("b", "ac"[second % 2], dead=True)
        order.ended("a", "c", dead=False)
        found += [second for _ in order.due("abc", "", float(second))]
    assert found == [15, 45]
    order.ended("b", "c", dead=False)
    assert order.due("abc", "c", 200.0) == ["c"], "that of c could not be started"
    assert order.due("abc", "c", 201.0) == []


@pytest.mark.usefixtures("quick")
async def test_addresses_that_did_not_reach_each_other_are_tested_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "MESH_INTERVAL", 0.1)
    script = Script({"a": 1, "b": 1, "c": 1}, lost={("10.0.0.1", "10.0.0.2")})
    async with _played(script, probes=("ping", "udp", "p2p"), layers=("p2p",)) as (feed, nodes):

        def udp() -> set[tuple[str, str]]:
            return {(m.src, m.dst) for m in feed.model.addresses.pairs(Layer.UDP) if m.verdict is not Verdict.OK}

        await feed.run()
        assert udp() == {("a", "b")}
        asked = [len([m for m in nodes.links[name].sent if m.get("name") == "udp"]) for name in "abc"]
        script.lost.clear()
        feed.watch(True)
        await until(lambda: not udp())
    now = [len([m for m in nodes.links[name].sent if m.get("name") == "udp"]) for name in "abc"]
    assert [b > a for a, b in zip(asked, now, strict=True)] == [True, True, False], "nothing but that pair"


@pytest.mark.usefixtures("quick")
async def test_addresses_are_tested_as_soon_as_pairs_of_their_nodes_begin_or_cease_to_fail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watch, "MESH_LOOK", 0.05)
    script = Script({"a": 1, "b": 1, "c": 1})
    async with _played(script, probes=("ping", "udp", "p2p"), layers=("p2p",)) as (feed, nodes):

        def asked(name: str) -> int:
            return len([m for m in nodes.links[name].sent if m.get("name") == "ping"])

        await feed.run()
        before = {name: asked(name) for name in "abc"}
        feed.watch(True)
        script.silent |= {(0, 1), (1, 0)}
        await until(lambda: asked("a") > before["a"] and asked("b") > before["b"])
        failing = asked("a")
        script.silent.clear()
        await until(lambda: asked("a") > failing)
    assert asked("c") == before["c"], "nothing but that pair of nodes"


@pytest.mark.usefixtures("quick")
async def test_collectives_that_were_bad_are_tested_again_and_their_finding_is_withdrawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watch, "GROUPS_INTERVAL", 0.05)
    monkeypatch.setattr(watch, "LONGEST", 0.2)
    script = Script({"a": 2, "b": 2, "c": 2, "d": 2}, sharp={"b"})
    async with _played(script) as (feed, _):

        def bad() -> set[tuple[str, str]]:
            return {(m.src, m.dst) for m in feed.model.measurements(Layer.BUSBW) if m.verdict is not Verdict.OK}

        await feed.run()
        assert {("a", "b"), ("b", "c"), ("b", "d")} <= bad()
        assert any("all_reduce" in title(one) for one in feed.diagnosis().findings)
        feed.watch(True)
        await until(lambda: feed.model.phase.name == "watch")
        script.sharp.clear()
        await until(lambda: not bad())
        feed.watch(False)
        await until(lambda: feed.model.exit_code is not None)
    found = feed.diagnosis()
    assert feed.model.exit_code == found.code == 0
    (one,) = found.past
    assert title(one).startswith("7 all_reduce with b failed ")
    assert [m for m in found.findings if m.severity == "bad"] == []


async def test_watching_that_is_turned_on_early_begins_after_the_sweep() -> None:
    async with _played(Script({"a": 2, "b": 2}, takes=0.02)) as (feed, _):
        running = asyncio.create_task(feed.run())
        await until(lambda: feed.model.phase.name == "p2p")
        feed.watch(True)
        await running
        await until(lambda: feed.model.phase.name == "watch")


@pytest.mark.usefixtures("quick")
async def test_links_are_probed_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "PROBE_INTERVAL", 0.05)
    async with _played(Script({"a": 2, "b": 2})) as (feed, nodes):

        def probe_results() -> int:
            return sum(m["t"] == "probe" and m["name"] == "nvlink" for m in nodes.links["b"].sent)

        await feed.run()
        first = probe_results()
        feed.watch(True)
        await until(lambda: probe_results() >= first + 3)
        feed.watch(False)
        await until(lambda: feed.model.exit_code == 0)
        done = probe_results()
        await asyncio.sleep(0.2)
        assert probe_results() == done


@pytest.mark.usefixtures("quick")
async def test_nodes_are_probed_again_when_that_is_asked_for() -> None:
    async with _played(Script({"a": 2, "b": 2})) as (feed, nodes):
        await feed.run()
        before = [len([m for m in nodes.links[name].sent if m["t"] == "probe"]) for name in "ab"]
        await feed.look(["b", "nobody"])
        asked = [m["name"] for m in nodes.links["b"].sent if m["t"] == "probe"][before[1] :]
        assert {"inventory", "nvlink", "gpus"} <= set(asked)
        assert len([m for m in nodes.links["a"].sent if m["t"] == "probe"]) == before[0]


@pytest.mark.usefixtures("quick")
@pytest.mark.slow
async def test_what_was_counted_comes_before_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ask = NodeClient.probe

    async def late(remote: NodeClient, name: str, *args: Any, **named: Any) -> Any:
        value = await ask(remote, name, *args, **named)
        if name == "counters":
            await asyncio.sleep(0.2)
        return value

    monkeypatch.setattr(NodeClient, "probe", late)
    counters = [{"hca": {"mlx5_0/1": {"port_xmit_data": n}}, "net": {}, "nvlink": {}} for n in range(100)]
    async with _played(Script({"a": 2}, counters={"a": [*counters]}), record=tmp_path / "r.jsonl.gz") as (feed, _):
        await feed.run()
        feed.watch(True)
        await until(lambda: _attempts(feed.model) >= 2 * 4)
        feed.watch(False)
        await until(lambda: feed.model.exit_code == 0)
        await asyncio.sleep(0.4)
    kinds = [type(e) for e in read_events(tmp_path / "r.jsonl.gz")]
    assert kinds.count(CounterDeltas) >= 2
    assert kinds[-1] == SessionEnd
