"""Answers have what was not examined: one that found nothing is not a good one."""

from pathlib import Path
from typing import Any

from fabtui.model.endpoints import Endpoint
from fabtui.model.events import EndpointsAdded, Event, InventoryUpdate, Measured, PlanUpdate, ProbeResult, SessionStart
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.session.event_pipeline import Journal

from .assistant import assistant


def _recording(path: Path) -> str:
    """Write a session that was asked for one layer; its two nodes are one machine."""
    host = {"identity": {"boot_id": "b-1", "hostname": "vm"}}
    good = Measurement(Layer.P2P, "a:0", "b:0", Verdict.OK, 40.0, "GB/s", 1 << 28, 2.0)
    events: list[Event] = [
        SessionStart(nodes=["a", "b"], options={"probes": ["p2p"], "layers": ["p2p"]}, time=1.0),
        *(InventoryUpdate(node=node, value={"host": "vm"}, time=1.0) for node in "ab"),
        *(ProbeResult(node=node, probe="host", value=host, time=1.0) for node in "ab"),
        EndpointsAdded(endpoints=[Endpoint(at, node, 0, kind="gpu", name="H200") for at, node in enumerate("ab")]),
        PlanUpdate(slow_below=0.7, time=1.0),
        Measured(measurements=[good], time=2.0),
    ]
    journal = Journal(path)
    for event in events:
        journal.append([event])
    journal.close()
    return str(path)


async def test_a_pair_has_the_findings_of_its_nodes_and_what_was_not_asked_for(tmp_path: Path) -> None:
    async with assistant() as one:
        found = await one.ask("pair", pair="a:0>b:0", file=_recording(tmp_path / "one.jsonl.gz"))
    assert found["answer"] == "a:0 > b:0: p2p ok; b:0 > a:0: not tested in this session"
    assert [about["id"] for about in found["data"]["findings_of_its_ends"]] == ["FT310"]
    assert found["next"][0]["argv"] == ["cat", "/proc/sys/kernel/random/boot_id"]
    assert "b:0 > a:0: not tested in this session" in found["not_examined"]
    assert "not asked for: ping, udp, gpuload, all_reduce, layer world" in found["not_examined"]
    assert found["exit"] is None


async def test_nodes_without_gpus_are_not_nodes_whose_gpus_are_good(tmp_path: Path) -> None:
    async with assistant() as one:
        found = await one.ask("findings", file=_recording(tmp_path / "one.jsonl.gz"))
    assert "a,b: no GPU was found, so none was examined" in found["not_examined"]
    assert "a,b: no RDMA port was found, so none was examined" in found["not_examined"]


async def test_what_finds_nothing_is_not_good(tmp_path: Path) -> None:
    log = tmp_path / "dpkg.log"
    log.write_text("2026-09-01 status installed\n")
    calls: list[tuple[str, dict[str, Any], str, int | None]] = [
        ("job", {"logs": [str(log)]}, "the state of the job: its logs have no iteration, no sample of GPUs and", 3),
        ("job", {"logs": [str(log)]}, "whether the job runs: without jobid Slurm was not asked", 3),
        ("explain", {"text": "hello"}, "what is unknown is not known to be harmless", 1),
        ("read", {"text": "hello"}, "text: of a format that is not known", 3),
        ("rules", {"search": "zzz"}, "what they do not list", None),
        ("history", {"since": "2030-01-01"}, "everything: no session is known", None),
    ]
    async with assistant() as one:
        for tool, arguments, line, code in calls:
            found = await one.ask(tool, **arguments)
            assert line in "\n".join(found["not_examined"]), (tool, found)
            assert found["exit"] == code, tool


async def test_a_recorded_job_has_its_sources_and_those_that_saw_nothing() -> None:
    async with assistant() as one:
        found = await one.ask("findings", demo="job-h200x4-stopped")
    assert any(line.startswith("/proc: rank 1 on n000") for line in found["examined"])
    assert "nothing was seen by Inspector, flight recorder, log" in found["not_examined"]
