"""`fabtui hang` on scripted verdicts: what it prints, JSON, the user's command, exit codes, wrong arguments."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fabtui.cli import main as entry
from fabtui.diagnosis.running_job.job_verdict import JobState, JobVerdict
from tests.unit.cli.scripted_job import script, verdict

__all__ = ["script"]
Out = pytest.CaptureFixture[str]
Script = list[JobVerdict | None]


def test_the_sentence_ranks_evidence_and_next_command(script: Script, capsys: Out) -> None:
    script.append(verdict(JobState.HANGS))
    assert entry.main(["hang"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "job 7 on n[060-061] (2 ranks) has been hanging for 0:10: rank 1 on n061:0 is [31mstopped"
        "; next: ssh n061 kill -CONT 742",
        "",
        "ranks",
        "  rank  on      process  state    GPU %    W  shown by",
        "  0     n060:0      741  waiting    100  126  100 % at 126 W",
        "  1     n061:0      742  stopped      0  124  is [31mstopped",
        "",
        "evidence",
        "  /proc: rank 1 on n061 is stopped; but it shows no collectives",
        "",
        "next",
        "  ssh n061 kill -CONT 742",
    ]


@pytest.mark.parametrize(
    ("state", "code"),
    [
        (JobState.MOVES, 0),
        (JobState.PAUSED, 0),
        (JobState.STARTING, 0),
        (JobState.ENDED, 0),
        (JobState.SLOW, 1),
        (JobState.UNKNOWN, 3),
    ],
)
def test_exit_codes(state: JobState, code: int, script: Script) -> None:
    script.append(verdict(state))
    assert entry.main(["hang"]) == code


def test_without_a_job(script: Script, capsys: Out) -> None:
    script.append(None)
    assert entry.main(["hang", "--json"]) == 3
    assert json.loads(capsys.readouterr().out) == {"state": None, "problems": ["n062: the login fails"]}


def test_json_and_the_command_of_the_user(script: Script, capsys: Out, tmp_path: Path) -> None:
    script.append(verdict(JobState.HANGS))
    assert entry.main(["hang", "--json", "--on-hang", f"env | grep ^FABTUI_ > {tmp_path}/found"]) == 1
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert (found["state"], found["behind"], found["named_by"]) == ("hangs", [1], "/proc")
    assert found["next"] == ["ssh n061 kill -CONT 742"]
    assert "the command of --on-hang ended well" in captured.err
    variables = dict(line.split("=", 1) for line in (tmp_path / "found").read_text().splitlines())
    assert (variables["FABTUI_JOB"], variables["FABTUI_NODES"]) == ("7", "n[060-061]")
    assert variables["FABTUI_FINDING"].startswith(
        "job 7 on n[060-061] (2 ranks) has been hanging for 0:10: rank 1 on n061:0"
    )
    assert json.loads(Path(variables["FABTUI_REPORT"]).read_text())["behind"] == [1]


def test_it_waits_and_reports_once(script: Script, capsys: Out) -> None:
    script += [verdict(JobState.MOVES, settled=False), verdict(JobState.MOVES), *[verdict(JobState.HANGS)] * 3]
    assert entry.main(["hang", "--wait"]) == 1
    out = capsys.readouterr().out
    assert out.count("evidence\n") == 1
    assert "report: " in out
    script[:] = [verdict(JobState.MOVES)]
    assert entry.main(["hang", "--wait"]) == 0
    assert "the job has ended" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["7", "--jobid", "8"], "two jobs are given: 7 and --jobid 8"),
        (["--save", "/proc/x.jsonl.gz"], "--save"),
        (["--save", "/etc/passwd"], "--save: /etc/passwd already exists and is not overwritten"),
    ],
)
def test_wrong_arguments(argv: list[str], words: str, capsys: Out) -> None:
    assert entry.main(["hang", *argv]) == 2
    assert words in capsys.readouterr().err
