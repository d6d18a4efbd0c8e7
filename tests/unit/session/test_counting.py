"""Counters read beside the tests of whole sessions over played nodes."""

import asyncio
import itertools
from pathlib import Path
from typing import Any

import pytest

from fabtui.model.events import CounterDeltas, NodeGrowth
from fabtui.model.layers import Layer
from fabtui.model.measurement import Verdict
from fabtui.model.recording import read_events
from fabtui.model.session_model import Model
from fabtui.session import counter_sampler
from fabtui.session.feeds import live
from tests.unit.session.fakenodes import FakeNodes, Script
from tests.unit.session.played import run

Counts = dict[str, Any]


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counter_sampler, "PERIOD", 0.05)
    monkeypatch.setattr(counter_sampler, "MIN_INTERVAL", 0.005)


def probe_results(*steps: dict[str, int]) -> list[Counts | None]:
    """Return the successive samples of one port; the last one repeats."""
    return [{"hca": {"mlx5_0/1": step}, "net": {}, "nvlink": {}, "time": 1.0} for step in steps]


async def _run(script: Script, record: Path | None = None, **options: Any) -> tuple[Model, FakeNodes]:
    return await run(script, **{"record": record, "probes": ("p2p",), "layers": ("p2p",), **options})


def asked(nodes: FakeNodes, node: str) -> list[dict[str, Any]]:
    return [m for m in nodes.links[node].sent if m["t"] == "probe" and m["name"] == "counters"]


async def test_what_moved_is_recorded_and_the_replay_knows_it(tmp_path: Path) -> None:
    record = tmp_path / "r.jsonl.gz"
    steps = probe_results(*({"port_xmit_data": 10 * n, "symbol_error": n // 4} for n in range(8)))
    script = Script({"a": 2, "b": 2}, counters={"a": steps}, takes=0.1)
    model, nodes = await _run(script, record)
    events = [e for e in read_events(record) if isinstance(e, CounterDeltas)]
    assert events
    assert {e.node for e in events} == {"a"}
    assert all(e.since < e.until for e in events)
    assert all(earlier.until == later.since for earlier, later in itertools.pairwise(events))
    total = model.counters.between("a", 0.0, 1e12)
    assert total["hca"]["mlx5_0/1"]["port_xmit_data"] == 10 * 4 * min(7, len(asked(nodes, "a")) - 1)
    again = Model()
    for event in read_events(record):
        again.apply(event)
    assert again.counters.between("a", 0.0, 1e12) == total
    first, second = (model.latest(Layer.P2P, *pair) for pair in (("a:0", "b:0"), ("b:0", "a:0")))
    assert first is not None
    assert second is not None
    assert set(model.counters.of(first)) <= {"a"}


async def test_all_counters_are_read_at_the_borders_of_phases(tmp_path: Path) -> None:
    record = tmp_path / "r.jsonl.gz"
    readings = [{"grew": {"TcpRetransSegs": at, "a b": 1}, "fell": ["x", 7], "seconds": 0.5 * at} for at in range(9)]
    script = Script({"a": 1, "b": 1, "c": 1}, growth={node: list(readings) for node in "ab"})
    model, _ = await run(script, record=record, probes=("ping", "p2p", "all_reduce"))
    events = [e for e in read_events(record) if isinstance(e, NodeGrowth)]
    # What grew before the first phase is of no interest; a node without the probe costs nothing.
    phases = [("ping", 1), ("p2p", 2), ("collectives", 3)]
    assert sorted((e.node, e.phase, e.grew, e.fell, e.seconds) for e in events) == sorted(
        (node, phase, {"TcpRetransSegs": at}, ["x"], 0.5 * at) for node in "ab" for phase, at in phases
    )
    assert list(model.growth.phases) == ["ping", "p2p", "collectives"]
    again = Model()
    for event in read_events(record):
        again.apply(event)
    assert again.growth.phases["p2p"].seconds == {"a": 1.0, "b": 1.0}


async def test_where_nothing_moves_there_is_no_event(tmp_path: Path) -> None:
    record = tmp_path / "r.jsonl.gz"
    script = Script({"a": 2}, counters={"a": probe_results({"port_xmit_data": 5})}, takes=0.2)
    _, nodes = await _run(script, record)
    assert len(asked(nodes, "a")) > 2, "it is looked at again and again"
    assert not [e for e in read_events(record) if isinstance(e, CounterDeltas)]


async def test_a_node_without_counters_is_asked_once() -> None:
    _, nodes = await _run(Script({"a": 2, "b": 2}, takes=0.15))
    assert [len(asked(nodes, node)) for node in "ab"] == [1, 1]


async def test_the_interfaces_with_data_addresses_are_asked_for() -> None:
    _, nodes = await _run(Script({"a": 2}))
    assert asked(nodes, "a")[0]["args"] == {"nics": ["eth0"]}


async def test_pairs_that_run_alone_each_have_their_own_interval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counter_sampler, "PERIOD", 60.0)
    record = tmp_path / "r.jsonl.gz"
    steps = probe_results(*({"port_xmit_data": n} for n in range(40)))
    script = Script({"a": 1, "b": 1, "c": 1}, counters={"a": steps}, takes=0.1)
    model, _ = await _run(script, record, isolated=True)
    events = [e for e in read_events(record) if isinstance(e, CounterDeltas)]
    spans = []
    for pair in (("a:0", "b:0"), ("a:0", "c:0")):
        measurement = model.latest(Layer.P2P, *pair)
        assert measurement is not None
        assert measurement.verdict is Verdict.OK
        assert set(model.counters.of(measurement)) == {"a"}
        spans += [(e.since, e.until) for e in events if e.since < measurement.time <= e.until]
    assert len(spans) == len(set(spans)) == 2


@pytest.mark.slow
async def test_a_node_that_does_not_answer_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counter_sampler, "DEADLINE", 30.0)
    script = Script({"a": 2, "b": 2}, counters={"a": [None], "b": probe_results({"x": 1}, {"x": 2})}, takes=0.1)
    async with asyncio.timeout(15):
        model, nodes = await _run(script)
    assert len(asked(nodes, "a")) == 1, "nothing is asked while a sample is under way"
    cells = {(m.src, m.dst): model.verdict(m) for m in model.measurements() if m.layer is Layer.P2P}
    assert len(cells) == 12
    assert set(cells.values()) == {Verdict.OK}
    assert model.exit_code == 0
    assert model.counters.between("b", 0.0, 1e12) == {"hca": {"mlx5_0/1": {"x": 1}}}


async def test_a_node_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counter_sampler, "DEADLINE", 0.02)
    script = Script({"a": 2}, counters={"a": [None]}, takes=0.5)
    _, nodes = await _run(script, timeout=5.0)
    assert len(asked(nodes, "a")) == counter_sampler.MAX_FAILURES


@pytest.mark.slow
async def test_a_node_lost_meanwhile_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "RETURN_PATIENCE", 0.3)
    steps = probe_results(*({"x": n} for n in range(50)))
    script = Script({"a": 2, "b": 2}, counters={"a": steps, "b": list(steps)}, dies_after={"b": 1}, takes=0.1)
    model, _ = await _run(script)
    assert model.counters.between("a", 0.0, 1e12)
    assert model.exit_code == 1
