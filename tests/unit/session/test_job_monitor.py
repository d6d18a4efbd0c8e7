import asyncio
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fabtui.scheduler.slurm import JobStatus
from fabtui.session.node_client import ProbeFailed
from fabtui.session.options import JobQuery
from fabtui.session.running_job import monitor as job_monitor
from fabtui.session.running_job.monitor import JobMonitor
from fabtui_node.probes.job import node_log

from ..jobs.job_texts import NODES, gpustat, healthy, settings


class Node:
    """The node side of some nodes, each with a folder of its own for the paths that it is asked about."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.gone: set[str] = set()
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.change: Callable[[str, dict[str, Any]], None] = lambda node, value: None

    async def client(self, node: str) -> Any:
        link = SimpleNamespace(backend="local")
        return SimpleNamespace(probe=partial(self.probe, node), link=link)

    async def probe(
        self, node: str, name: str, args: dict[str, Any], deadline: float, on_part: Callable[[dict[str, Any]], None]
    ) -> dict[str, Any]:
        assert name == "job"
        self.asked.append((node, args))
        if node in self.gone:
            raise ProbeFailed("lost", "no heartbeat for 10 s")
        own = str(self.root / node)
        known = [[own + path, inode, offset] for path, inode, offset in args["known"]]
        parts: list[dict[str, Any]] = []
        patterns = [own + pattern for pattern in args["patterns"]]
        value = node_log.run({**args, "patterns": patterns, "known": known}, parts.append, deadline)
        value["ranks"] = [{"rank": NODES.index(node), "pid": 7, "state": "S"}]
        value["addresses"] = [f"192.0.2.{node[2:]}"]
        self.change(node, value)
        for part in parts:
            on_part({**part, "path": part["path"].removeprefix(own)})
        return value


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A job that runs on four nodes; the questions to Slurm."""
    asked: list[str] = []

    def status(job: str, before: JobStatus | None = None) -> JobStatus:
        asked.append(job)
        return JobStatus(job, "RUNNING", nodes=NODES, elapsed=3600.0)

    monkeypatch.setattr(job_monitor, "status_of", status)
    monkeypatch.setattr(job_monitor, "_addresses", lambda nodes: {})
    return asked


def write(folder: Path, files: dict[str, str]) -> None:
    """Write the logs of each node where only that node sees them."""
    for name, text in files.items():
        path = folder / name.partition(".")[0] / "scratch" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


async def test_logs_on_the_nodes_are_read_there(tmp_path: Path, slurm: list[str]) -> None:
    write(tmp_path, healthy(n062_out=settings(2, GLOBAL_BATCH_SIZE="32"), n062_gpu=gpustat("n062", 40, busy=False)))
    node = Node(tmp_path)
    monitor = JobMonitor(JobQuery("12", ("/scratch",)), node.client, clock=lambda: 0.0)
    report = await monitor.refresh()
    assert [one.rule.id for one in report.findings] == ["J03", "J06"]
    assert [(row.node, row.ranks, row.iteration) for row in report.rows] == [
        ("n060", 1, ""), ("n061", 1, ""), ("n062", 1, ""), ("n063", 1, "40/50")
    ]  # fmt: skip
    lines = report.facts.logs.lines("out")
    with (tmp_path / "n061/scratch/n061.err").open("a") as errors:
        errors.write("RuntimeError: CUDA error: of n061\n")
    report = await monitor.refresh()
    assert "J04" in {one.rule.id for one in report.findings}
    assert report.facts.logs.lines("out") == lines
    # Slurm is asked once in five seconds, and the files of other nodes are not read again.
    assert slurm == ["12"]
    assert [len(args["known"]) for _, args in node.asked[-4:]] == [3, 3, 3, 3]


async def test_a_node_that_is_gone_or_lies_is_named_and_the_others_are_read(tmp_path: Path, slurm: list[str]) -> None:
    write(tmp_path, {name: text for name, text in healthy().items() if not name.endswith(".gpu")})
    node = Node(tmp_path)
    node.gone.add("n061")

    def lie(name: str, value: dict[str, Any]) -> None:
        value["gpus"] = [{"index": 0, "utilization": 97, "memory": 1 << 30, "memory_used": 1, "processes": True}]
        if name == "n062":
            value["now"] = "yesterday"

    node.change = lie
    monitor = JobMonitor(JobQuery("12", ("/scratch",)), node.client)
    report = await monitor.refresh()
    assert report.unread == ("n061: no heartbeat for 10 s", "n062: its answer cannot be read: ValueError")
    assert (report.findings, report.exit_code) == ((), 3)
    assert report.rows[0].sample is not None
    assert report.rows[0].sample.busy == 1


async def test_an_address_of_no_node_is_wrong_once_all_nodes_have_answered(tmp_path: Path, slurm: list[str]) -> None:
    write(tmp_path, {f"{node}.out": settings(rank, MASTER_ADDR="198.51.100.9") for rank, node in enumerate(NODES)})
    node = Node(tmp_path)
    node.gone.add("n061")
    monitor = JobMonitor(JobQuery("12", ("/scratch",)), node.client)
    assert "J11" not in {one.rule.id for one in (await monitor.refresh()).findings}
    node.gone.clear()
    assert "J11" in {one.rule.id for one in (await monitor.refresh()).findings}


async def test_two_readings_at_once_read_nothing_twice(tmp_path: Path, slurm: list[str]) -> None:
    for name, text in healthy().items():
        (tmp_path / name).write_text(text)
    monitor = JobMonitor(JobQuery("12", (str(tmp_path),)))
    first, second = await asyncio.gather(monitor.refresh(), monitor.refresh())
    assert first.facts.logs is second.facts.logs
    assert second.facts.logs.lines("gpu") == (4 * 40 * 5, True)
    assert (first.verdict, first.exit_code) == ("healthy", 0)


async def test_a_job_that_ends_takes_the_node_side_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node side is a step of the job: that it ends with the job is not a problem."""
    states = ["RUNNING", "COMPLETING", "COMPLETED"]

    def status(job: str, before: JobStatus | None = None) -> JobStatus:
        return JobStatus(job, states[0], nodes=NODES, elapsed=3600.0)

    monkeypatch.setattr(job_monitor, "status_of", status)
    write(tmp_path, {name: text for name, text in healthy().items() if not name.endswith(".gpu")})
    node = Node(tmp_path)
    monitor = JobMonitor(JobQuery("12", ("/scratch",)), node.client, clock=lambda: 0.0)
    assert (await monitor.refresh()).unread == ()
    node.gone.update(NODES)
    for state in ("COMPLETING", "COMPLETED"):
        del states[0]
        report = await monitor.refresh(lost=state == "COMPLETED")
        assert (report.status.state, report.unread) == (state, ())
    assert (report.verdict, report.exit_code) == ("ended", 0)


async def test_the_output_of_the_batch_script_is_read_along_and_of_no_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    for name, text in healthy().items():
        if not name.startswith("n062"):
            (folder / name).write_text(text)
    output = folder / "job-12.out"
    output.write_text("srun: error: n062: task 2: Exited with exit code 1\n")
    found = JobStatus("12", "RUNNING", nodes=NODES, elapsed=3600.0, outputs=(str(output),), owner=os.getuid())
    monkeypatch.setattr(job_monitor, "status_of", lambda job, before=None: found)
    report = await JobMonitor(JobQuery("12", (f"{folder}/n*",))).refresh()
    assert [one.facts["text"] for one in report.findings] == ["task 2 on n062 has ended: Exited with exit code 1"]
    # Its node has no log: it is asked for one, and counts as good in no case.
    node = Node(tmp_path)
    node.change = lambda name, value: value.update(ranks=[]) if name == "n062" else None
    report = await JobMonitor(JobQuery("12", (f"{folder}/n*",)), node.client).refresh()
    assert [(row.node, row.state, row.ranks) for row in report.rows] == [
        ("n060", "ok", None), ("n061", "ok", None), ("n062", "suspect", 0), ("n063", "ok", None)
    ]  # fmt: skip
    output.write_text("")
    report = await JobMonitor(JobQuery("12", (str(folder),))).refresh()
    assert [(row.node, row.state) for row in report.rows if row.state != "ok"] == [("n062", "no logs")]


async def test_a_requeued_job_has_the_nodes_of_its_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in healthy().items():
        (tmp_path / name).write_text(text)
    (tmp_path / "job-12.out").write_text(
        "slurmstepd-n060: error: *** JOB 12 ON n060 CANCELLED AT 2026-11-26T04:09:37 DUE TO JOB REQUEUE ***\n"
        "srun: Job step aborted: Waiting up to 7 seconds for job step to finish.\n"
    )
    found = JobStatus("12", "PENDING", "BeginTime", outputs=(str(tmp_path / "job-12.out"),), restarts=1, requeued=1e9)
    monkeypatch.setattr(job_monitor, "status_of", lambda job, before=None: found)
    report = await JobMonitor(JobQuery("12", (str(tmp_path),))).refresh()
    assert [row.node for row in report.rows] == list(NODES)
    (one,) = report.findings
    when = time.strftime("%H:%M:%S", time.localtime(1e9))
    text = f"it was requeued at {when} after iteration 40 (restart 1): job requeue; it waits: PENDING (BeginTime)"
    assert (one.rule.id, one.facts["text"]) == ("J01", text)
    assert (report.verdict, report.exit_code) == ("waiting", 0)


async def test_variables_of_the_ranks_are_compared_between_nodes(tmp_path: Path, slurm: list[str]) -> None:
    write(tmp_path, healthy())
    node = Node(tmp_path)
    same = {"CUDA_VISIBLE_DEVICES": ["0", "1"], "NCCL_DEBUG": ["WARN"]}

    def change(name: str, value: dict[str, Any]) -> None:
        value["variables"] = (
            {**same, "NCCL_DEBUG": ["INFO", "WARN"]} if name == "n062" else {**same, "EVIL": ["x"], "a": 7}
        )

    node.change = change
    report = await JobMonitor(JobQuery("12", ("/scratch",)), node.client).refresh()
    assert [one.facts["text"] for one in report.findings] == [
        "NCCL_DEBUG differs between nodes: INFO and WARN on n062, WARN on n[060-061,063]"
    ]
    assert "EVIL" not in report.facts.logs.settings.names()
    assert node.asked[0][1]["prefixes"]


async def test_a_link_to_a_log_is_not_read_twice(tmp_path: Path, slurm: list[str]) -> None:
    (tmp_path / "n061.err").write_text("ValueError: x\n")
    (tmp_path / "latest.err").symlink_to("n061.err")
    report = await JobMonitor(JobQuery("12", (str(tmp_path), f"{tmp_path}/n061.err"))).refresh()
    (file,) = report.facts.logs.files.values()
    assert (file.node, file.errors.count) == ("n061", 1)


async def test_a_full_file_system_of_the_logs_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "n060.err").write_text("RuntimeError: CUDA error: invalid device\n")
    free = os.statvfs(tmp_path)
    full = SimpleNamespace(f_blocks=free.f_blocks, f_bavail=0, f_files=free.f_files, f_favail=free.f_favail)
    monkeypatch.setattr(os, "statvfs", lambda _: full)
    report = await JobMonitor(JobQuery("", (str(tmp_path),))).refresh()
    assert [one.rule.id for one in report.findings] == ["J14", "J04"]
    assert report.findings[0].facts["text"].startswith(f"no space is left for logs in {tmp_path}")
