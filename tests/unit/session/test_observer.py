"""A running job is observed beside the tests: passive probes only, and what they show is in the session."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from fabtui.config.options import session_changes
from fabtui.diagnosis.diagnosis import diagnose
from fabtui.diagnosis.job.job_verdict import JobState, JobVerdict
from fabtui.model.events import JobEvidence
from fabtui.model.job_evidence import JobSource
from fabtui.model.recording import read_events
from fabtui.session.options import SessionOptions
from fabtui.session.running_job import job_session, observer
from fabtui.transport.link import NodeUnreachable
from fabtui_node import registry
from tests.unit.session.fakenodes import FakeNodes, Script
from tests.unit.session.played import played, run, until


def activity(node: str, states: dict[int, str]) -> dict[str, Any]:
    """Return the value of the probe for ranks with these states, on GPUs with the same numbers."""
    ranks = [
        {"rank": rank, "local_rank": rank, "world": 4, "pid": 100 + rank, "name": "python", "state": state}
        | {
            "wait": None,
            "cpu": 1.0,
            "cpu_all": 1.0,
            "age": 100.0,
            "gpus": [rank],
            "files": 0,
            "written": 0,
            "job": "",
            "env": {},
        }
        for rank, state in states.items()
    ]
    gpus = [
        {"index": rank, "uuid": f"GPU-{node}-{rank}", "util": 100, "power": 126.0, "pids": [100 + rank]}
        for rank in states
    ]
    return {"time": 1.0, "clock": 1.0, "ranks": ranks, "gpus": gpus, "nics": {}, "kernel": [], "oom": 0, "problems": []}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observer, "EVERY", 0.05)
    monkeypatch.setattr(observer, "SETTLE", 1.0)


def busy() -> Script:
    return Script(
        {"a": 2, "b": 2}, busy={("a", 0), ("a", 1)}, probe_results={"a": {"activity": activity("a", {0: "R", 1: "T"})}}
    )


async def test_gpus_in_use_are_observed_and_the_others_tested() -> None:
    model, nodes = await run(busy())
    assert model.job.nodes == ["a"]
    assert len(model.job.samples("a")) > 1
    latest = model.job.latest("a")
    assert latest is not None
    assert [one.state for one in latest.ranks] == ["R", "T"]
    names = {message["name"] for message in nodes.links["b"].sent if message["t"] == "probe"}
    assert "activity" not in names
    asked = {message["name"] for message in nodes.links["a"].sent if message["t"] == "probe"}
    assert {"activity", "ras"} <= asked
    # The idle GPUs of the other node are tested as before.
    assert {(m.src, m.dst) for m in model.measurements()} >= {("b:0", "b:1"), ("b:1", "b:0")}
    found = diagnose(model)
    assert found.job is not None
    assert found.job.nodes == ("a",)


async def test_with_force_they_are_tested_as_if_nobody_used_them() -> None:
    model, nodes = await run(busy(), force=True)
    assert not model.job
    assert not [message for message in nodes.links["a"].sent if message.get("name") == "activity"]
    assert ("a:0", "a:1") in {(m.src, m.dst) for m in model.measurements()}


async def test_a_read_only_session_observes_and_watches_without_tests() -> None:
    """Nodes without a rank are looked at now and then, as a job may start."""
    script = busy()
    script.busy = set()
    async with played(script, **session_changes({"read_only": True})) as (feed, nodes):
        async with asyncio.timeout(40):
            await feed.run()
            before = len(feed.model.job.samples("a"))
            feed.watch(True)
            await until(lambda: len(feed.model.job.samples("a")) > before)
            await feed.ask_job()
    assert not feed.model.watching
    assert feed.model.job.nodes == ["a", "b"]
    # A node without a rank shows nothing of a job.
    assert {node for node, _ in feed.model.job.readings(JobSource.KERNEL)} == {"a"}
    sent = [message for link in nodes.links.values() for message in link.sent]
    assert {message["t"] for message in sent} == {"probe"}
    assert all(registry.PROBES[message["name"]].passive for message in sent)
    assert any("watching without tests" in line.text for line in feed.model.log)


async def test_the_files_of_the_inspector_are_read_where_the_ranks_have_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observer, "INSPECTOR_EVERY", 0.1)
    value = activity("a", {0: "R", 1: "R"})
    for one in value["ranks"]:
        one["env"] = {"NCCL_INSPECTOR_DUMP_DIR": "/dumps"}
    rows = [
        {
            **{"communicator": "0x1", "rank": rank, "pid": 100 + rank},
            "operations": [["AllReduce", 1 << 20, serial, time] for serial in range(8)],
        }
        for rank, time in ((0, 20_300.0), (1, 253.0))
    ]
    script = Script(
        {"a": 2, "b": 2},
        busy={("a", 0), ("a", 1)},
        probe_results={"a": {"activity": value, "inspector": {"folders": [], "ranks": rows, "problems": []}}},
    )
    model, nodes = await run(script)
    (reading,) = [kept[-1] for _, kept in model.job.readings(JobSource.INSPECTOR)]
    assert [one["rank"] for one in reading.value["suspects"]] == [1]
    assert not [message for message in nodes.links["b"].sent if message.get("name") == "inspector"]


@pytest.mark.slow
async def test_samples_of_a_job_that_is_well_are_recorded_now_and_then(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The model has all of them."""
    verdict = JobVerdict(JobState.MOVES, 0.0, 0.0, "", ("a",), (), settled=True)
    monkeypatch.setattr(observer, "job_verdict", lambda _: verdict)
    monkeypatch.setattr(observer, "_ALL_RECORDED", 0.7)
    path = tmp_path / "x.jsonl.gz"
    async with played(busy(), record=path) as (feed, _):
        async with asyncio.timeout(40):
            await feed.run()
            await until(lambda: len(feed.model.job.samples("a")) >= 40)
    kept = [event for event in read_events(path) if isinstance(event, JobEvidence) and event.source == "activity"]
    assert 2 < len(kept) < 30


@pytest.mark.parametrize(("state", "most"), [(JobState.MOVES, 5), (JobState.HANGS, 1000)])
@pytest.mark.slow
async def test_costly_samples_of_a_job_that_is_well_are_rare(
    state: JobState, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdict = JobVerdict(state, 0.0, 0.0, "", ("a",), (), settled=True)
    monkeypatch.setattr(observer, "job_verdict", lambda _: verdict)
    script = busy()
    script.probe_results["a"]["activity"]["cost"] = 0.5
    async with played(script) as (feed, _):
        async with asyncio.timeout(40):
            await feed.run()
            await until(lambda: bool(feed.model.job.samples("a")))
            before = len(feed.model.job.samples("a"))
            await asyncio.sleep(1.5)
            more = len(feed.model.job.samples("a")) - before
    assert more < most
    assert state is JobState.MOVES or more > 5


async def test_what_only_holds_an_allocation_is_no_job() -> None:
    """``srun sleep`` has a rank as well."""
    script = busy()
    script.busy = set()
    value = script.probe_results["a"]["activity"]
    for rank in value["ranks"]:
        rank |= {"name": "sleep", "gpus": [], "cpu_all": 0.01, "state": "S"}
    model, nodes = await run(script, job="4711")
    assert [message for message in nodes.links["a"].sent if message.get("name") == "activity"]
    assert not model.job


async def test_what_the_kernel_reported_before_the_session_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observer, "_JUDGE_EVERY", 0.1)
    event = {"kind": "xid", "code": 79, "gpu": 1, "bus": "0000:9a:00", "at": "12:03", "age": 50.0, "text": ""}
    evidence = {"log": "yes", "since": 100.0, "events": [event], "ports": [], "ranks": [], "gone": []}
    script = busy()
    script.probe_results["a"] = {"activity": activity("a", {0: "R", 1: "R"}), "evidence": evidence}
    model, nodes = await run(script)
    verdict = diagnose(model).job
    assert verdict is not None
    assert "rank 1 on a:1 is on a GPU that reported Xid 79" in verdict.sentence
    assert [message["name"] for message in nodes.links["a"].sent if message["t"] == "probe"].count("evidence") == 1
    assert not [message for message in nodes.links["b"].sent if message.get("name") == "evidence"]


async def snapshot(
    script: Script, monkeypatch: pytest.MonkeyPatch, source: JobSource | None = None
) -> tuple[JobVerdict | None, list[str], FakeNodes]:
    """Return the verdict of a short snapshot of some nodes, what was not read, and the nodes."""
    nodes = FakeNodes(script)

    class Connector:
        def __init__(self, *_: object) -> None:
            self.open = nodes.open

        async def __aenter__(self) -> None: ...

        async def __aexit__(self, *_: object) -> None: ...

    monkeypatch.setattr(job_session, "Connector", Connector)
    monkeypatch.setattr(job_session, "PATIENCE", 0.0)
    options = SessionOptions(hosts=tuple(script.gpus))
    async with job_session.observed(options, lambda _: None, source=source) as session:
        session.observer.writes = source is JobSource.FLIGHT
        return await session.snapshot(0.2), session.unread(), nodes


async def test_one_source_is_asked_and_ranks_write_dumps(monkeypatch: pytest.MonkeyPatch) -> None:
    script = busy()
    rank = {"rank": 1, "pid": 101, "problem": "it wrote no dump: the process is stopped (state T)"}
    script.probe_results["a"]["flight"] = {"ranks": [rank], "without": 0}
    verdict, _, nodes = await snapshot(script, monkeypatch, JobSource.FLIGHT)
    asked = [message for link in nodes.links.values() for message in link.sent if message["t"] == "probe"]
    assert {message["name"] for message in asked} == {"activity", "flight"}
    assert [message["args"]["write"] for message in asked if message["name"] == "flight"] == [True, True]
    assert verdict is not None
    (reading,) = [one for one in verdict.sources if one.name == "flight recorder"]
    assert "it wrote no dump: the process is stopped (state T)" in reading.text
    assert [place.rank for place in reading.suspects] == [1]


async def test_a_login_that_takes_its_time_does_not_shorten_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    script = busy()
    script.late = {"a": 0.5}
    script.unreachable = {"b": NodeUnreachable("refused", "refused")}
    verdict, unread, _ = await snapshot(script, monkeypatch)
    assert verdict is not None
    assert verdict.nodes == ("a",)
    assert unread == ["b: refused"]


async def test_nodes_that_do_not_answer_are_named_and_not_called_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_session, "_LOGIN", 0.1)
    script = busy()
    script.late = dict.fromkeys("ab", 5.0)
    assert (await snapshot(script, monkeypatch))[:2] == (None, ["a: no answer yet", "b: no answer yet"])
