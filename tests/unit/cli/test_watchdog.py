"""`fabtui watchdog` on a scripted job: what it prints, the report's file, the user's command, exit codes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fabtui.cli import main as entry
from fabtui.cli.commands import watchdog
from fabtui.diagnosis.running_job.who_is_behind import Answer
from fabtui.jobs.monitor.job_logs import JobLogs
from fabtui.jobs.monitor.report import JobFacts, JobReport
from fabtui.jobs.watchdog import HangReading, Signal, State, WatchdogPhase, WatchdogVerdict
from fabtui.scheduler.slurm import JobStatus
from fabtui.session.running_job.evidence import HangReport
from fabtui.session.running_job.watch import HangWatch, Sample

Out = pytest.CaptureFixture[str]
QUIET = HangReading(Signal.OUTPUT, State.HANG, "no output from any node for 9 min")
ANSWER = Answer(["rank 8 on n062: \x1b[31mstopped"], ["ssh n062 kill -CONT 742"], True)


def sample(
    phase: WatchdogPhase, *readings: HangReading, fired: bool = False, recovered: bool = False, why: str = ""
) -> Sample:
    report = JobReport(JobFacts(JobStatus("7", "RUNNING"), JobLogs([])), (), ())
    return Sample(WatchdogVerdict(phase, readings, fired, recovered, why), report, ("n061: the login fails",))


HANG = sample(WatchdogPhase.HANG, QUIET, fired=True, why=QUIET.text)
GOOD = sample(
    WatchdogPhase.WATCHING, HangReading(Signal.RAS, State.PROGRESS, "ranks launch collectives"), recovered=True, why="x"
)


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Sample]:
    """Samples of a job."""
    found: list[Sample] = []

    async def samples(self: object, every: float) -> AsyncIterator[Sample]:
        for one in found:
            yield one

    async def report(options: object, signals: tuple[str, ...], notice: object) -> HangReport:
        return HangReport("2026-11-22 12:03:04", "7", ("n060", "n061"), signals, ANSWER, "RAS")

    @asynccontextmanager
    async def links(*_: object) -> AsyncIterator[Any]:
        class Links:
            client = None

        yield Links()

    monkeypatch.setattr(HangWatch, "samples", samples)
    monkeypatch.setattr(watchdog, "report_hang", report)
    monkeypatch.setattr(watchdog, "links_to", links)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return found


def test_a_hang_a_recovery_and_the_end(script: list[Sample], capsys: Out, tmp_path: Path) -> None:
    script += [HANG, sample(WatchdogPhase.HANG, QUIET), GOOD, GOOD]
    assert entry.main(["watchdog", "--on-hang", f"env | grep ^FABTUI_ > {tmp_path}/found"]) == 1
    lines = [line.partition("  ")[2] for line in capsys.readouterr().out.splitlines()]
    assert lines[1:3] == ["could not be read: n061: the login fails", "hang: no output from any node for 9 min"]
    assert lines[3:6] == [
        "finding: job 7 hangs on n[060-061]: no output from any node for 9 min",
        "rank 8 on n062: [31mstopped",
        "next: ssh n062 kill -CONT 742",
    ]
    assert lines.count("the job goes on: x") == 2
    assert "the job has ended" in lines
    assert "the command of --on-hang ended well" in lines
    (path,) = (tmp_path / "fabtui/hangs").iterdir()
    assert lines[6] == f"report: {path}"
    found = dict(line.split("=", 1) for line in (tmp_path / "found").read_text().splitlines())
    assert found["FABTUI_JOB"] == "7"
    assert found["FABTUI_NODES"] == "n[060-061]"
    assert found["FABTUI_REPORT"] == str(path)
    assert found["FABTUI_FINDING"].startswith("job 7 hangs on n[060-061]: no output from any node for 9 min: rank 8")
    report = json.loads(path.read_text())
    assert (report["named_by"], report["next"]) == ("RAS", ANSWER.next)
    assert path.stat().st_mode & 0o077 == 0 or path.parent.stat().st_mode & 0o077 == 0


def test_one_object_per_hang_and_the_first_hang_ends_it(script: list[Sample], capsys: Out) -> None:
    script += [HANG, GOOD]
    assert entry.main(["watchdog", "--once", "--json"]) == 1
    captured = capsys.readouterr()
    (line,) = captured.out.splitlines()
    found = json.loads(line)
    assert found["signals"] == ["no output from any node for 9 min"]
    assert Path(found["report"]).is_file()
    assert "hang: no output" in captured.err


def test_exit_codes_without_a_hang(script: list[Sample], capsys: Out) -> None:
    script.append(GOOD)
    assert entry.main(["watchdog"]) == 0
    script[:] = [
        sample(WatchdogPhase.WARM_UP, HangReading(Signal.RAS, State.UNKNOWN, ""), why="it has not begun to work yet")
    ]
    assert entry.main(["watchdog"]) == 3


def test_a_report_that_cannot_be_written(
    script: list[Sample], capsys: Out, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watch continues, and the user's command runs all the same."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    script += [HANG, GOOD]
    assert entry.main(["watchdog", "--on-hang", "exit 3"]) == 1
    out = capsys.readouterr().out
    assert "the report cannot be written: " in out
    assert "the command of --on-hang ended with exit code 3" in out
    assert "the job has ended" in out


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["7", "--jobid", "8"], "two jobs are given: 7 and --jobid 8"),
        (["--every", "0"], "--every: '0' is not a time from 0.5 to 600 seconds"),
        (["--idle", "x"], "--idle: 'x' is not a time"),
    ],
)
def test_wrong_arguments(argv: list[str], words: str, capsys: Out) -> None:
    assert entry.main(["watchdog", *argv]) == 2
    assert words in capsys.readouterr().err
