"""Experiments about findings over played nodes: environments of ranks, deadlines, what a replay shows."""

import asyncio
import itertools
from pathlib import Path

import pytest

from fabtui.diagnosis.diagnosis import diagnose
from fabtui.diagnosis.experiment import planned
from fabtui.model.events import Measured
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.recording import read_events
from fabtui.model.session_model import Model
from fabtui.presentation.findings import as_json
from fabtui.session import sweep
from fabtui.session.measure.retest import retest
from tests.conftest import session_of
from tests.unit.session.fakenodes import Script
from tests.unit.session.played import feed_of, p2p_of, run

TCP = ("NCCL_NET", "Socket")


async def test_a_dead_pair_is_tried_over_tcp_and_a_replay_finds_the_same(tmp_path: Path) -> None:
    record = tmp_path / "r.jsonl.gz"
    model, nodes = await run(Script({"a": 4, "b": 4}, silent={(1, 6)}, cure=TCP), record=record, confirm=True)
    (one,) = [each for each in diagnose(model).findings if each.cells]
    lines = one.facts["confirmation"].lines
    assert len(lines) == 3
    assert all(line.startswith("confirmed: ") for line in lines)
    assert "a:1 > b:2 passes with NCCL_NET=Socket (50 GB/s over P2P/CUMEM), so RDMA is at fault" in lines[2]
    assert model.exit_code == 1
    assert model.phase.name == "done"
    assert len(p2p_of(model)) == 56
    assert [m.attempts for m in model.history(Layer.P2P, "a:1", "b:2")] == [1, 2], "the experiments are apart"
    for link in nodes.links.values():
        assert [TCP in env.items() for env in link.envs] == [False, True], (
            "the ranks of the sweep serve the first tests"
        )
    again = Model()
    for event in read_events(record):
        again.apply(event)
    assert [as_json(each) for each in diagnose(again).findings] == [as_json(each) for each in diagnose(model).findings]


async def test_a_sweep_after_experiments_has_the_environment_of_the_session() -> None:
    feed, nodes = feed_of(Script({"a": 2, "b": 2}, silent={(0, 2)}, cure=TCP), keep_warm=True)
    await feed.run()
    one = next(each for each in diagnose(feed.model).findings if each.cells)
    await feed.confirm(planned(feed.model, one))
    await feed.retest([("a:0", "b:0")])
    assert [TCP in env.items() for env in nodes.links["a"].envs] == [False, True, False]
    assert feed.model.verdict(feed.model.history(Layer.P2P, "a:0", "b:0")[-1]).bad
    await feed.close()


async def test_experiments_end_at_their_deadline_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "CONFIRM_DEADLINE", 0.0)
    model, _ = await run(Script({"a": 2, "b": 2}, silent={(0, 2)}), confirm=True)
    one = next(each for each in diagnose(model).findings if each.cells)
    assert one.facts["confirmation"].lines[0] == "not tried: alone had no time within 0 s"
    assert model.exit_code == 1


async def test_a_healthy_session_has_nothing_to_confirm_and_gives_the_gpus_back() -> None:
    model, nodes = await run(Script({"a": 2, "b": 2}), confirm=True)
    assert not model.experiments
    assert any(m["t"] == "rank" and m["m"]["op"] == "quit" for m in nodes.links["a"].sent)


async def test_nvlink_sharp_is_switched_off_for_the_collective_that_fails(tmp_path: Path) -> None:
    record = tmp_path / "r.jsonl.gz"
    probes = ("p2p", "all_reduce")
    model, nodes = await run(Script({"a": 2, "b": 2}, sharp={"b"}), probes=probes, record=record, confirm=True)
    (one,) = [each for each in diagnose(model).findings if each.rule.id == "FT046"]
    assert one.subject.name == "b"
    (line,) = one.facts["confirmation"].lines
    assert line.startswith("confirmed: all_reduce over b passes with NCCL_NVLS_ENABLE=0 (")
    assert ["NCCL_NVLS_ENABLE" in env for env in nodes.links["b"].envs] == [False, True]
    again = Model()
    for event in read_events(record):
        again.apply(event)
    assert [as_json(each) for each in diagnose(again).findings] == [as_json(each) for each in diagnose(model).findings]


@pytest.mark.parametrize("again", [1.0, 10.0])
def test_the_path_of_a_slow_pair_is_blamed_after_one_more_test(again: float) -> None:
    model = session_of("abcde", rails=True, kind="cpu", address="10.0.0.{host}")
    ends = model.endpoints
    tested: list[list[tuple[int, int]]] = []

    def measured(pairs: list[tuple[int, int]], value: float) -> None:
        rows = [
            Measurement(Layer.P2P, str(ends[a]), str(ends[b]), Verdict.OK, value, "GB/s", 1 << 20, float(len(tested)))
            for pair in pairs
            for a, b in (pair, pair[::-1])
        ]
        model.apply(Measured(measurements=rows, time=float(len(tested))))

    async def run(pairs: list[tuple[int, int]]) -> None:
        tested.append(pairs)
        measured(pairs, again if pairs == [(0, 1)] else 10.0)

    async def flush() -> None: ...

    measured(list(itertools.combinations(range(5), 2)), 10.0)
    measured([(0, 1)], 1.0)
    lines = asyncio.run(retest(model, [(0, 1)], {}, set(), run, flush))
    assert tested[-1] == [(0, 1)]
    assert len(tested) == 2
    assert [why.startswith("the path between them is at fault") for *_, why in lines] == [True, True] * (again < 10.0)
