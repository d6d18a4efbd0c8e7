"""Evidence about a running job: its history is bounded, by time and by the number of nodes."""

import itertools
from typing import Any

import pytest

from fabtui.model.events import JobEvidence
from fabtui.model.job_evidence import JobEvidenceLog, JobSource

T0 = 1e9


def take(log: JobEvidenceLog, second: float, node: str = "n1", source: str = "activity", **value: Any) -> None:
    log.take(JobEvidence(node, source, value, time=T0 + second))


def test_an_hour_of_samples() -> None:
    log = JobEvidenceLog()
    row = {"rank": 3, "pid": 7, "gpus": [1], "state": "S", "env": {"MASTER_PORT": "29500"}}
    for second in range(3600):
        take(log, second, clock=float(second), ranks=[row], gpus=[{"index": 1, "util": 5}])
    samples = log.samples("n1")
    times = [one.time - T0 for one in samples]
    assert times[-46:] == [float(second) for second in range(3554, 3600)]
    assert times == sorted(times)
    assert 1790 <= times[-1] - times[0] <= 1810
    assert len(samples) < 250
    assert max(later - first for first, later in itertools.pairwise(times)) <= 11.0
    # They share what does not change.
    assert len({id(one.ranks[0].process) for one in samples}) == 1
    assert (samples[-1].ranks[0].process.endpoint, samples[-1].gpu(1)) == ("n1:1", samples[-1].gpus[0])
    assert [one.time - T0 for one in log.recent("n1", T0 + 3597)] == [3597.0, 3598.0, 3599.0]
    assert log.recent("n2", T0) == []


@pytest.mark.slow
def test_many_nodes_share_the_room() -> None:
    log = JobEvidenceLog()
    for second in range(75):
        for node in range(600):
            take(log, second, f"n{node}")
    assert len(log.nodes) == 600
    assert max(len(log.samples(node)) for node in log.nodes) <= 70


def test_other_sources() -> None:
    log = JobEvidenceLog()
    assert not log
    for second in range(40):
        take(log, second, source="ras", text=str(second))
        take(log, second, source="stacks", ranks=[])
        take(log, second, source="of the future", text="x")
    assert log
    kept = dict(log.readings(JobSource.RAS))["n1"]
    assert [one.value["text"] for one in kept][-2:] == ["38", "39"]
    assert len(kept) == 16
    assert (found := log.reading(JobSource.STACKS, "n1")) is not None
    assert found.time == T0 + 39
    assert log.reading(JobSource.STACKS, "n2") is None
    assert log.latest("n1") is None


def test_kernel_reports_and_kills() -> None:
    log = JobEvidenceLog()
    take(log, 0.0)
    take(log, 1.0, oom=2)
    for second in range(2, 100):
        take(log, second, oom=5, kernel=[{"kind": "xid", "code": second}, 7])
    reports = log.kernel_reports("n1")
    assert [one.value["code"] for one in reports] == list(range(36, 100))
    assert (log.kills("n1"), log.kills("n2")) == (3, 0)
