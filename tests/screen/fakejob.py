"""Running jobs of 16 ranks on two nodes: events for a feed, and the verdicts that the judge would return."""

from collections.abc import Callable
from typing import Any, Literal

import pytest

from fabtui.diagnosis.job.job_verdict import JobState, JobVerdict, RankRow, RankState, SourceReading
from fabtui.diagnosis.job.who_is_behind import JobPlace, RankStack, stack_tree
from fabtui.model.events import JobEvidence
from fabtui.model.session_model import Model
from tests.screen.fakefeed import START, Story

Kind = Literal["hang", "fabric", "slow", "healthy"]
NODES = ("n060", "n061")
#: Seconds of samples, and the second of the fault.
SECONDS, FAULT = 60, 46
_BEHIND = 9


def place(rank: int) -> JobPlace:
    node, gpu = divmod(rank, 8)
    return JobPlace(rank, NODES[node], 41032 + rank, str(gpu))


def _numbers(kind: Kind, rank: int) -> tuple[RankState, float, float, float]:
    """Return state, utilization, power, and share of the usual traffic of a rank after the fault."""
    late = rank == _BEHIND
    if kind == "hang":
        return (RankState.STOPPED, 0, 124, 0) if late else (RankState.WAITING, 100, 126, 0)
    if kind == "fabric":
        return RankState.WAITING, 100, 126, 0
    if kind == "slow":
        return (RankState.AWAITED, 27, 360, 0.31) if late else (RankState.WAITING, 98, 355, 0.31)
    return RankState.COMPUTING, 95 + rank % 3, 690 + rank, 1


def _activity(kind: Kind, node: int, second: int, moved: float) -> dict[str, Any]:
    ranks = range(8 * node, 8 * node + 8)
    gpus = []
    for rank in ranks:
        _, util, power, _ = _numbers(kind if second > FAULT else "healthy", rank)
        traffic = {"nvlink_tx": int(moved * 5.1e9), "nvlink_rx": int(moved * 5.1e9)}
        gpus.append({"index": rank % 8, "util": util, "power": power, **traffic, "pids": [41032 + rank]})
    return {
        "clock": float(second),
        "ranks": [
            {"rank": rank, "local_rank": rank % 8, "world": 16, "pid": 41032 + rank, "state": "R", "gpus": [rank % 8]}
            for rank in ranks
        ],
        "gpus": gpus,
        "nics": {f"mlx5_{port}": {"rx": int(moved * 1.2e9), "tx": int(moved * 1.2e9)} for port in range(4)},
    }


def job_story(kind: Kind, *, endpoints: bool = True) -> Story:
    """Return a minute of a job whose rank 9 stops or becomes late after three quarters of it."""
    story = Story(NODES, 8)
    for node in NODES:
        story.connect(node)
    if endpoints:
        story.endpoints(*NODES)
    story.phase("done")
    moved, iterations = 0.0, 1000.0
    for second in range(SECONDS):
        share = _numbers(kind, 0)[3] if second > FAULT else 1.0
        moved, iterations = moved + share, iterations + 6.9 * share
        for at, node in enumerate(NODES):
            value = _activity(kind, at, second, moved)
            story.add(JobEvidence(node=node, source="activity", value=value, time=START + second))
        log = {"iteration": int(iterations), "interval": 0.145}
        story.add(JobEvidence(node="", source="log", value=log, time=START + second))
    return story


def _sources(kind: Kind) -> tuple[SourceReading, ...]:
    at = START + SECONDS - 1
    found = {
        "hang": [
            ("NVML", "15 GPUs 100 % busy at idle power: they spin in NCCL; n061:1 0 %", "ranks without a GPU"),
            ("/proc", "pid 41041 on n061 is stopped (T) in do_signal_stop", ""),
            (
                "RAS",
                "process 41041 does not answer; 15 of 16 ranks at AllReduce 897",
                "it does not count send and receive",
            ),
            ("kernel", "no Xid or link report since the start", ""),
        ],
        "fabric": [
            (
                "NVML",
                "16 GPUs 100 % busy at idle power: they spin in NCCL",
                "all GPUs wait, for which rank it does not show",
            ),
            ("network", "n060 > n061 on eth0: 12 retransmits, no data for 14 s; n061 > n060 passes", ""),
            ("kernel", "no Xid or link report since the start", ""),
        ],
        "slow": [
            ("NVML", "15 GPUs 98 % busy at 355 W; n061:1 27 %", "why a rank is late"),
            ("/proc", "pid 41041 sleeps 20 ms of each iteration (hrtimer_nanosleep)", ""),
        ],
        "healthy": [
            ("NVML", "16 GPUs 96 % busy at 698 W", ""),
            ("RAS", "all ranks within one operation", "it does not count send and receive"),
        ],
    }[kind]
    ages = {"kernel": 50.0}
    return tuple(SourceReading(name, text, blind, at - ages.get(name, 0.0)) for name, text, blind in found)


def _stacks(kind: Kind) -> list[RankStack]:
    """Return the stacks of ranks that wait in a collective, and of one that does not."""
    outer = "main (train.py:117)", "<module> (train.py:131)"
    waits = "all_reduce (distributed_c10d.py:3068)", "wrapper (c10d_logger.py:83)", "step (train.py:88)", *outer
    loads = "load_batch (data.py:41)", "next_batch (data.py:63)", *outer
    late = kind in ("hang", "slow")
    return [
        RankStack(place(rank), *((loads, "stopped") if late and rank == _BEHIND else (waits, "running")))
        for rank in range(16 if kind != "healthy" else 0)
    ]


def verdict_of(kind: Kind) -> JobVerdict:
    rows = []
    for rank in range(16):
        state, util, power, share = _numbers(kind, rank)
        why = {RankState.STOPPED: "state T, do_signal_stop", RankState.AWAITED: "27 % while the others spin"}.get(
            state, ""
        )
        rates = {"nvlink": share * 10.2e9, "nic": share * 9.6e9}
        rows.append(RankRow(place(rank), f"{NODES[rank // 8]}:{rank % 8}", state, why, util, power, **rates, cpu=1.0))
    job_state = {"hang": JobState.HANGS, "fabric": JobState.HANGS, "slow": JobState.SLOW, "healthy": JobState.MOVES}[
        kind
    ]
    faulty = kind != "healthy"
    return JobVerdict(
        job_state,
        START + (FAULT if faulty else 0),
        START + SECONDS - 1,
        "4711",
        NODES,
        tuple(rows),
        behind=(place(_BEHIND),) if kind in ("hang", "slow") else (),
        where={
            "hang": "is stopped",
            "fabric": "n060 > n061 on eth0 passes nothing (12 retransmits on the socket of rank 0 to rank 8)",
            "slow": "is late by 20 ms per iteration",
            "healthy": "",
        }[kind],
        sources=_sources(kind),
        fabric="no sign of a fabric fault: no Xid, PCIe or link report, no port down" if kind == "hang" else "",
        next={
            "hang": ("ssh n061 kill -CONT 41041",),
            "fabric": ("ssh n060 ping -c 3 -I eth0 10.1.0.2",),
            "slow": ("ssh n061 py-spy dump --pid 41041",),
            "healthy": (),
        }[kind],
        per_minute={"hang": 0.0, "fabric": 0.0, "slow": 128.0, "healthy": 414.0}[kind],
        world=16,
        settled=True,
        stacks=tuple(stack_tree(_stacks(kind))),
    )


def judged_as(monkeypatch: pytest.MonkeyPatch, verdict: JobVerdict | Callable[[Model], JobVerdict | None]) -> None:
    """Let screen and rules see a verdict; the judge has tests of its own."""
    judge = verdict if callable(verdict) else lambda _: verdict
    monkeypatch.setattr("fabtui.screen.session_diagnosis.job_verdict", judge)
    monkeypatch.setattr("fabtui.diagnosis.job.running_job_rules.job_verdict", judge)
