"""Ports and NVLinks that carry less of a running job than their peers."""

import math
from collections.abc import Callable

import pytest

from fabtui.diagnosis.diagnosis import diagnose
from fabtui.diagnosis.finding import Finding
from fabtui.presentation.findings import title
from tests.unit.running_job.played_job import PlayedJob, gpu, rank

#: Bytes that a port carries in a second of work.
RATE = 2e9
PORTS = tuple(f"mlx5_{at}/1" for at in range(4))
#: Rate of a port of a node at a time, as a share of the usual one.
Shares = Callable[[str, int, float], float]


def played(
    shares: Shares, nodes: tuple[str, ...] = ("n1", "n2"), seconds: int = 400, links: Shares | None = None
) -> list[Finding]:
    """Return the findings about uneven traffic of a job on nodes with four ports and four GPUs each."""
    job = PlayedJob(nodes)
    carried = {(node, at): 0.0 for node in nodes for at in range(len(PORTS))}
    moved = dict.fromkeys(carried, 0.0)
    for second in range(seconds):
        for node in nodes:
            for at in range(len(PORTS)):
                carried[node, at] += RATE * shares(node, at, second)
                moved[node, at] += 4 * RATE * (links or even)(node, at, second)
            ports = {
                name: {"rx": int(carried[node, at] / 2), "tx": int(carried[node, at] / 2), "errors": 0}
                for at, name in enumerate(PORTS)
            }
            ranks = [rank(at, state="R", cpu=job.now, cpu_all=job.now) for at in range(4)]
            gpus = [gpu(at, 95, 690, int(moved[node, at] / 2)) for at in range(4)]
            job.sample(ranks, gpus, node, nics=ports)
        job.now += 1
    return [one for one in diagnose(job.model).all_findings if one.rule.id in ("J24", "J25")]


def even(node: str, at: int, second: float) -> float:
    return 1.0


def test_a_port_that_carries_less() -> None:
    found = played(lambda node, at, second: 0.4 if (node, at, second >= 150) == ("n2", 3, True) else 1.0)
    assert [one.rule.id for one in found] == ["J24"]
    assert title(found[0]) == "n2 mlx5_3/1 carried 40 % of its peers (0.8 GB/s, its peers 2 GB/s) over the last 4:09"
    assert found[0].nodes == ("n2",)


def test_the_sentence_about_a_job_that_moves_has_it() -> None:
    job = PlayedJob(("n1",))
    sent = [0.0] * 4
    for second in range(200):
        sent = [was + RATE * (0.4 if at == 3 else 1.0) for at, was in enumerate(sent)]
        ports = {name: {"rx": int(sent[at]), "tx": 0, "errors": 0} for at, name in enumerate(PORTS)}
        ranks = [rank(at, state="R", cpu=job.now, cpu_all=job.now) for at in range(2)]
        job.sample(ranks, [gpu(at, 95, 690, second << 33) for at in range(2)], nics=ports)
        verdict = job.step()
    words = "is making progress; n1 mlx5_3/1 carried 40 % of its peers (0.8 GB/s, its peers 2 GB/s) over the last "
    assert words in verdict.sentence
    assert (verdict.uneven, verdict.bad) == (True, False)
    assert not job.seen[100][1].uneven


def test_a_rail_that_carries_less() -> None:
    found = played(lambda node, at, second: 0.4 if at == 1 else 1.0)
    assert len(found) == 1
    assert title(found[0]).startswith("rail of mlx5_1/1 on n[1-2] carried 40 % of its peers")


def test_nvlinks_that_carry_less() -> None:
    found = played(even, links=lambda node, at, second: 0.5 if (node, at) == ("n1", 2) else 1.0)
    assert [(one.rule.id, title(one).partition(" (")[0]) for one in found] == [
        ("J25", "NVLink of n1:2 carried 50 % of its peers")
    ]


def pauses(node: str, at: int, second: float) -> float:
    if second % 200 < 40:
        return 0.0
    return 0.5 if second % 300 < 60 else 1 + 0.1 * math.sin(second)


@pytest.mark.parametrize(
    "shares",
    [
        even,
        pauses,
        # The ends of a pipeline send less, and each port another amount.
        lambda node, at, second: (0.2, 1.0, 0.6, 0.4)[at],
        # One port has no traffic of the job, others little.
        lambda node, at, second: 1e-3,
        # For less than two windows.
        lambda node, at, second: 0.3 if at == 2 and second > 330 else 1.0,
    ],
)
def test_nothing_is_reported_of_a_healthy_job(shares: Shares) -> None:
    assert played(shares, seconds=1000 if shares is pauses else 400) == []


def test_errors_per_gigabyte() -> None:
    job = PlayedJob(("n1",))
    for second in range(200):
        ports = {
            name: {"rx": int(RATE) * second, "tx": 0, "errors": 0, "retransmits": 20 * second * (at == 2)}
            for at, name in enumerate(PORTS)
        }
        job.sample([rank(0, state="R")], [gpu(0, 95, 690, second << 30)], nics=ports)
        job.now += 1
    found = [one for one in diagnose(job.model).all_findings if one.rule.id == "J24"]
    assert [title(one) for one in found] == ["n1 mlx5_2/1 had 10 errors and repeated packets per GB over the last 3:09"]
