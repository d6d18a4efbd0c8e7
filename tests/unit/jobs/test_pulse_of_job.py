"""Samples for the watchdog from logs, nodes and RAS, and the job's report when it hangs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from fabtui.diagnosis.running_job.ras_report import report_of
from fabtui.diagnosis.running_job.who_is_behind import STOPPED, JobPlace, RankStack, grouped
from fabtui.jobs.monitor.job_logs import JobLogs
from fabtui.jobs.monitor.report import JobFacts, JobReport
from fabtui.jobs.watchdog import GpuPulse, age_of, pulse_of, ras_pulse
from fabtui.scheduler.slurm import JobStatus
from fabtui.session.running_job.evidence import _of_stacks
from fabtui_node.parsers.base import Notes

from .ras_texts import recorded

LINE = " iteration {:8d}/ 100 | elapsed time per iteration (ms): 2000.0 | lm loss: 1.0 |\n"
TIMEOUT = "[rank0]:[E] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=252, OpType=ALLREDUCE)\n"
NOW = 1000.0


def part(path: str, text: str, start: int) -> dict[str, Any]:
    end = start + len(text)
    return {"path": path, "inode": 1, "start": start, "end": end, "size": end, "modified": NOW, "text": text}


def job(state: str = "RUNNING", elapsed: float | None = 60.0, now: float = NOW) -> JobReport:
    """Return a job whose log has three iterations, the last one read at 980, and a timeout."""
    logs = JobLogs(["n060"])
    first, more = LINE.format(1) + LINE.format(2), LINE.format(3) + TIMEOUT
    logs.take("", [part("n060.out", first, 0)], 970.0)
    logs.take("", [part("n060.out", more, len(first))], 980.0)
    # A reading in which nothing has grown.
    logs.take("", [part("n060.out", "", len(first) + len(more))], now)
    row = {"index": 3, "utilization": 100, "memory_used": 5, "memory": 9, "power": 180.5, "processes": 1}
    logs.take_gpus("n060", [row], 990.0)
    return JobReport(JobFacts(JobStatus("7", state, elapsed=elapsed), logs, when=now), (), ())


def test_a_sample() -> None:
    nodes: dict[str, dict[str, Any]] = {
        "n060": {"traffic": 5, "files": 7, "age": 30.0},
        "n061": {"traffic": None, "files": 1},
    }
    pulse = pulse_of(1.0, job(), nodes)
    assert (pulse.quiet, pulse.late, pulse.interval) == (20.0, 20.0, 2.0)
    assert pulse.gpus == (GpuPulse("n060", 3, 100, 5, 180.5),)
    assert pulse.traffic == {"n060": 5}
    assert pulse.files == {"n060": 7, "n061": 1}
    assert "Watchdog caught collective operation timeout" in pulse.timeout
    assert (pulse.ras, pulse.suspended) == (None, False)
    # A sample of GPUs that is a minute old shows nothing of now.
    late = pulse_of(1.0, job("SUSPENDED", now=1050.0), {})
    assert (late.gpus, late.traffic, late.suspended) == ((), None, True)
    assert age_of(job(), nodes) == 60.0
    assert age_of(job(elapsed=None), nodes) == 30.0
    assert age_of(job(elapsed=None), {}) is None


def test_nothing_is_known() -> None:
    pulse = pulse_of(1.0, JobReport(JobFacts(JobStatus(""), JobLogs([])), (), ()), {"n060": {"traffic": "x"}})
    assert pulse == pulse._replace(quiet=None, interval=None, late=None, gpus=(), traffic=None, timeout="", files=None)


@pytest.mark.parametrize(("name", "differ"), [("running", False), ("skip", True), ("killed", True), ("p2phang", False)])
def test_counts_of_ras(name: str, differ: bool) -> None:
    found = ras_pulse(report_of(recorded(f"{name}-json.txt"), Notes()))
    assert found.differ is differ
    assert {launched for (_, operation, _), launched in found.counts.items() if operation == "AllGather"} == {1}


def stacks(*activities: str, frames: Sequence[tuple[str, ...]] = ()) -> list[RankStack]:
    every = frames or [()] * len(activities)
    return [
        RankStack(JobPlace(rank, "n060", 100 + rank), every[rank], activity, "")
        for rank, activity in enumerate(activities)
    ]


def test_ranks_that_stand_apart() -> None:
    found = _of_stacks(grouped(stacks("running", "running", "sleeping in read")))
    assert found is not None
    assert [place.rank for place in found.suspects] == [2]
    assert found.sentences == ["rank 2 on n060: sleeping in read", "ranks 0-1 on n060: running"]
    assert found.next == ["ssh n060 py-spy dump --pid 102"]
    # If two are alike, nobody knows which one is late; a stopped one is.
    assert _of_stacks(grouped(stacks("running", "sleeping in read"))) is None
    assert _of_stacks(grouped(stacks("running", "running"))) is None
    assert _of_stacks([]) is None
    found = _of_stacks(grouped(stacks("running", STOPPED)))
    assert found is not None
    assert [place.rank for place in found.suspects] == [1]
