"""Files that are read as logs: outputs of other users' jobs, patterns that match too much, hidden files."""

import asyncio
import os
import threading
import time
from pathlib import Path

import pytest

from fabtui.diagnosis.job.logs import job_logs
from fabtui.diagnosis.job.logs.report import JobReport
from fabtui.scheduler.slurm import JobStatus, status_of
from fabtui.session.options import JobQuery
from fabtui.session.running_job import monitor as job_monitor
from fabtui.session.running_job.monitor import JobMonitor
from fabtui_node.probes.job import node_log
from fabtui_node.system import log_files

BUDGET = log_files.Budget(1 << 20, 1 << 20)
KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nNCCL WARN Call to ibv_create_cq failed\n"
STRANGER = os.getuid() + 1


def status(monkeypatch: pytest.MonkeyPatch, *outputs: Path | str, owner: int | None = STRANGER) -> None:
    answer = JobStatus("12", "COMPLETED", nodes=("n0",), outputs=tuple(map(str, outputs)), owner=owner)
    monkeypatch.setattr(job_monitor, "status_of", lambda job, before=None: answer)


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / ".ssh" / "id_rsa"
    path.parent.mkdir()
    path.write_text(KEY)
    return path


def texts(report: JobReport) -> list[str]:
    return [line for file in report.facts.logs.files.values() for line in file.tail()]


@pytest.mark.parametrize("owner", [STRANGER, None])
@pytest.mark.parametrize("assistant", [False, True])
async def test_the_job_of_another_user_does_not_choose_which_of_my_files_are_read(
    key: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: int | None, assistant: bool
) -> None:
    link = tmp_path / "12.out"
    link.symlink_to(key)
    status(monkeypatch, key, link, owner=owner)
    report = await JobMonitor(JobQuery("12", assistant=assistant)).refresh()
    assert texts(report) == []
    reason = "belongs to another user: not read" if assistant else "the job that names it to another user"
    assert any(reason in line for line in report.unread)


async def test_the_output_of_my_own_job_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "12.out"
    output.write_text("hello\n")
    status(monkeypatch, output, owner=os.getuid())
    for assistant in (False, True):
        assert texts(await JobMonitor(JobQuery("12", assistant=assistant)).refresh()) == ["hello"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
async def test_root_reads_the_output_of_a_users_job_and_no_assistant_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "12.out"
    output.write_text("hello\n")
    os.chown(output, STRANGER, -1)
    status(monkeypatch, output)
    assert texts(await JobMonitor(JobQuery("12")).refresh()) == ["hello"]
    assert texts(await JobMonitor(JobQuery("12", assistant=True)).refresh()) == []


async def test_a_link_in_a_folder_of_logs_is_checked_like_the_folder(key: Path, tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "a.out").symlink_to(key)
    (folder / "b.out").write_text("hello\n")
    report = await JobMonitor(JobQuery("", (str(folder),), assistant=True)).refresh()
    assert texts(report) == ["hello"]
    assert any("hidden" in line for line in report.unread)
    assert len(texts(await JobMonitor(JobQuery("", (str(folder),))).refresh())) == 3


def test_a_node_checks_the_files_that_slurm_names(key: Path) -> None:
    parts: list[dict[str, object]] = []
    args = {"outputs": [str(key)], "owner": STRANGER, "visible": False}
    value = node_log.run(args, parts.append, 5.0)
    assert (parts, "another user" in value["problems"][0]) == ([], True)
    assert node_log.run({"patterns": [str(key)]}, parts.append, 5.0)["problems"] == []
    assert len(parts) == 1
    value = node_log.run({"patterns": [str(key)], "visible": True}, parts.append, 5.0)
    assert (len(parts), "hidden" in value["problems"][0]) == (1, True)


def test_files_of_the_kernel_are_no_logs() -> None:
    parts, problems = log_files.read(["/proc/self/environ"], {}, BUDGET)
    assert (parts, problems) == ([], ["/proc/self/environ: a file of the kernel is not a log"])
    assert log_files.read(["a\0b"], {}, BUDGET) == ([], ["a\0b: embedded null byte"])


def test_an_output_of_slurm_is_a_path_and_no_pattern(tmp_path: Path) -> None:
    fields = {"j": "12"}
    assert job_logs.pattern_of("/l/*/[a]?%j-%t.out", fields, literal=True) == "/l/[*]/[[]a][?]12-*.out"
    assert job_logs.pattern_of("/l/*/%j.out", fields) == "/l/*/12.out"
    (tmp_path / "other.out").write_text(KEY)
    patterns = job_logs.usual_patterns([f"{tmp_path}/*.out"], {})
    assert log_files.Search(5.0).find(patterns) == []
    (tmp_path / "*.out").write_text("mine")
    assert log_files.Search(5.0).find(patterns) == [f"{tmp_path}/*.out"]


def test_the_owner_of_a_job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for text, expected in [("ann(1000)", 1000), ("ann", None), ("ann(x)", None), ("a(1)(2)", 2)]:
        (tmp_path / "squeue").write_text("#!/bin/sh\necho '12|RUNNING|None|n0|1:00|2:00|ann|x'\n")
        (tmp_path / "scontrol").write_text(f"#!/bin/sh\necho 'JobId=12 UserId={text} StdOut=/l/12.out'\n")
        for name in ("squeue", "scontrol"):
            (tmp_path / name).chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        assert status_of("12").owner == expected


def deep(folder: Path, depth: int, width: int) -> None:
    for name in range(width if depth else 0):
        (folder / str(name)).mkdir()
        deep(folder / str(name), depth - 1, width)


def test_a_search_ends_after_a_number_of_names_and_at_its_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep(tmp_path, 4, 6)
    pattern = f"{tmp_path}/*/*/*/*"
    search = log_files.Search(60.0)
    assert (len(search.find([pattern])), search.problem) == (6**4, None)
    assert log_files.Search(60.0).find([f"{tmp_path}/5/[0-1]/?/*"]) == [
        f"{tmp_path}/5/{second}/{third}/{last}" for second in range(2) for third in range(6) for last in range(6)
    ]
    for limited in (log_files.Search(-1.0), log_files.Search(60.0, lambda: True)):
        assert limited.find([pattern]) == []
        assert "ended early" in str(limited.problem)
    monkeypatch.setattr(log_files, "MOST_NAMES", 100)
    limited = log_files.Search(60.0)
    assert len(limited.find([pattern, "/*/*/*/*/*/*/*/*"])) < 100
    assert "ended early" in str(limited.problem)


async def test_a_search_ends_with_the_call_that_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread cannot be interrupted: what it does is asked whether somebody waits."""
    (tmp_path / "a").touch()
    started, stopped = threading.Event(), threading.Event()
    real = log_files.Search._entries

    def slow(self: log_files.Search, folder: str) -> object:
        started.set()
        until = time.monotonic() + 20
        while not self._ended() and time.monotonic() < until:
            time.sleep(0.01)
        if self._ended():
            stopped.set()
        return real(self, folder)

    monkeypatch.setattr(log_files.Search, "_entries", slow)
    task = asyncio.create_task(JobMonitor(JobQuery("", (f"{tmp_path}/*",))).refresh())
    await asyncio.to_thread(started.wait, 20.0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert await asyncio.to_thread(stopped.wait, 10.0)


def test_hidden_files_match_no_star(tmp_path: Path) -> None:
    for name in (".a", "b"):
        (tmp_path / name).touch()
    assert log_files.Search(5.0).find([f"{tmp_path}/*"]) == [f"{tmp_path}/b"]
    assert log_files.Search(5.0).find([f"{tmp_path}/.*"]) == [f"{tmp_path}/.a"]
