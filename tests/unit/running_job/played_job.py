"""Running jobs for tests: values of the probe ``activity``, invented or from recorded samples."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fabtui.diagnosis.job.job_verdict import JobVerdict
from fabtui.diagnosis.job.judge import job_verdict
from fabtui.model.events import JobEvidence, SessionStart
from fabtui.model.session_model import Model

SAMPLES = Path(__file__).parents[2] / "samples" / "running-job-h100x2"
T0 = 1_795_000_000.0


def rank(number: int, gpus: list[int] | None = None, **more: Any) -> dict[str, Any]:
    row = {"rank": number, "local_rank": number, "world": 2, "pid": 1040 + number, "name": "python", "job": ""}
    row.update(gpus=[number] if gpus is None else gpus, env={}, state="S", wait="futex_wait_queue")
    return {**row, "cpu": 0.0, "cpu_all": 0.0, "age": 900.0, "files": 0, "written": 0, **more}


def gpu(number: int, util: float, power: float, nvlink: int | None = 0, **more: Any) -> dict[str, Any]:
    row = {"index": number, "uuid": f"GPU-{number}", "util": util, "power": power, "limit": 700.0, "clock": 1980}
    return {**row, "throttle": [], "used": 1 << 30, "nvlink_tx": nvlink, "nvlink_rx": nvlink, "pids": [], **more}


class PlayedJob:
    def __init__(self, nodes: tuple[str, ...] = ("n1",), patience: float = 10.0) -> None:
        self.model = Model()
        self.model.apply(SessionStart(nodes, time=T0))
        self.now = 0.0
        self.patience = patience
        self.seen: list[tuple[float, JobVerdict]] = []

    def take(self, node: str, source: str, value: dict[str, Any]) -> None:
        self.model.apply(JobEvidence(node, source, value, time=T0 + self.now))

    def sample(self, ranks: list[dict[str, Any]], gpus: list[dict[str, Any]], node: str = "n1", **more: Any) -> None:
        value = {"time": T0 + self.now, "clock": 500.0 + self.now, "ranks": ranks, "gpus": gpus, **more}
        self.take(node, "activity", value)

    @property
    def verdict(self) -> JobVerdict:
        found = job_verdict(self.model, self.patience)
        assert found is not None
        return found

    def step(self, seconds: float = 1.0) -> JobVerdict:
        self.seen.append((self.now, self.verdict))
        self.now += seconds
        return self.seen[-1][1]


def recorded(name: str) -> Iterator[dict[str, Any]]:
    with gzip.open(SAMPLES / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


def longer(rows: list[dict[str, Any]], seconds: float, period: int = 6) -> list[dict[str, Any]]:
    """Return the rows of a sample, the last of which come again and again, their counters growing."""
    found = list(rows)
    names = [f"NVLINK_THROUGHPUT_DATA_{way}@all" for way in ("TX", "RX")]
    while found[-1]["t"] - rows[-1]["t"] < seconds:
        row = json.loads(json.dumps(found[-period]))
        row["t"] = found[-1]["t"] + 0.5
        for at, one in enumerate(row["gpus"]):
            for name in names:
                before, last = (rows[-back]["gpus"][at][name][1] for back in (2, 1))
                one[name][1] = found[-1]["gpus"][at][name][1] + last - before
        found.append(row)
    return found


def play(name: str, with_ras: bool = False, every: int = 2, more: float = 0.0) -> list[tuple[float, JobVerdict]]:
    """Return the verdicts on a recorded run, each with its time in the sample; one of two rows per second.

    Its end comes again and again for ``more`` seconds.
    """
    job = PlayedJob(("vm",))
    rows = longer(list(recorded(f"nvml_{name}")), more)
    reports = list(recorded(f"ras_{name}")) if with_ras else []
    start = rows[0]["t"]
    cpu = [0.0, 0.0]
    for row in rows[::every]:
        job.now = row["t"] - start
        while reports and reports[0]["t"] <= row["t"]:
            report = reports.pop(0)
            if report["answer"].startswith("{"):
                job.take("vm", "ras", {"text": report["answer"]})
        gpus = [
            gpu(
                at,
                one["util"],
                one["power"] / 1000,
                None,
                nvlink_tx=1024 * one["NVLINK_THROUGHPUT_DATA_TX@all"][1],
                nvlink_rx=1024 * one["NVLINK_THROUGHPUT_DATA_RX@all"][1],
            )
            for at, one in enumerate(row["gpus"])
        ]
        # The sample has no processes: those whose GPU is busy spin, the others sleep.
        ranks = []
        for at, one in enumerate(row["gpus"]):
            cpu[at] += every * 0.5 if one["util"] else 0.0
            ranks.append(rank(at, age=10.0 + job.now, cpu=cpu[at], cpu_all=cpu[at]))
        job.sample(ranks, gpus, "vm")
        job.step(0.0)
    return job.seen
