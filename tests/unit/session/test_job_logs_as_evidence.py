"""Progress of a job in its logs, as evidence for its verdict."""

from typing import Any

from fabtui.diagnosis.job.logs.job_logs import JobLogs
from fabtui.diagnosis.job.logs.report import JobFacts, JobReport
from fabtui.scheduler.slurm import JobStatus
from fabtui.session.running_job.observer import log_value

LINE = " iteration {:8d}/ 100 | elapsed time per iteration (ms): 2000.0 | lm loss: 1.0 |\n"
TIMEOUT = "[rank0]:[E] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=252, OpType=ALLREDUCE)\n"
NOW = 1000.0


def part(path: str, text: str, start: int) -> dict[str, Any]:
    end = start + len(text)
    return {"path": path, "inode": 1, "start": start, "end": end, "size": end, "modified": NOW, "text": text}


def report(*pieces: tuple[str, float]) -> JobReport:
    logs, at = JobLogs(["n060"]), 0
    for text, when in pieces:
        logs.take("", [part("n060.out", text, at)], when)
        at += len(text)
    return JobReport(JobFacts(JobStatus("7", "RUNNING"), logs, when=NOW), (), ())


def test_iterations_and_a_timeout() -> None:
    first, more = LINE.format(1) + LINE.format(2), LINE.format(3) + TIMEOUT
    value = log_value(report((first, 970.0), (more, 980.0), ("", NOW)))
    assert (value["quiet"], value["late"], value["interval"]) == (20.0, 20.0, 2.0)
    assert (value["iteration"], value["per_minute"]) == (3, 30.0)
    assert "Watchdog caught collective operation timeout" in value["timeout"]


def test_output_without_iterations() -> None:
    value = log_value(report(("loading\n", 970.0), ("", NOW)))
    assert (value["iteration"], value["late"], value["interval"], value["timeout"]) == (None, None, None, "")


def test_nothing_is_known() -> None:
    assert log_value(JobReport(JobFacts(JobStatus(""), JobLogs([])), (), ())) == {}
