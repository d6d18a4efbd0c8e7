"""`fabtui watchdog` on a scripted job: what it prints, the report's file, the user's command, exit codes."""

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
HANG, GOOD = verdict(JobState.HANGS), verdict(JobState.MOVES)


def test_a_hang_a_recovery_and_the_end(script: Script, capsys: Out, tmp_path: Path) -> None:
    script += [HANG, HANG, GOOD, GOOD]
    assert entry.main(["watchdog", "--on-hang", f"env | grep ^FABTUI_ > {tmp_path}/found"]) == 1
    lines = capsys.readouterr().out.splitlines()
    timed = [line.partition("  ")[2] for line in lines if line[:2].isdecimal()]
    sentence = "job 7 on n[060-061] (2 ranks) has been hanging for 0:10: rank 1 on n061:0 is [31mstopped"
    # The user's command runs meanwhile.
    assert [line for line in timed if "--on-hang" not in line][1:4] == [
        "could not be read: n062: the login fails",
        f"{sentence}; next: ssh n061 kill -CONT 742",
        "job 7 on n[060-061] (2 ranks) is making progress",
    ]
    assert lines.count("evidence") == 1
    assert "  ssh n061 kill -CONT 742" in lines
    assert "the job has ended" in timed
    assert "the command of --on-hang ended well" in timed
    (path,) = (tmp_path / "fabtui/hangs").iterdir()
    assert f"report: {path}" in lines
    found = dict(line.split("=", 1) for line in (tmp_path / "found").read_text().splitlines())
    assert found["FABTUI_JOB"] == "7"
    assert found["FABTUI_NODES"] == "n[060-061]"
    assert found["FABTUI_REPORT"] == str(path)
    assert found["FABTUI_FINDING"].startswith("job 7 on n[060-061] (2 ranks) has been hanging for 0:10: rank 1")
    report = json.loads(path.read_text())
    assert (report["named_by"], report["next"]) == ("/proc", list(HANG.next))
    assert path.stat().st_mode & 0o077 == 0 or path.parent.stat().st_mode & 0o077 == 0


def test_the_command_gets_hostile_names_as_values_and_runs_none(script: Script, capsys: Out, tmp_path: Path) -> None:
    hostile = f"7;touch {tmp_path}/a\x00$(touch {tmp_path}/b)`touch {tmp_path}/c`\ud800\nFABTUI_JOB=8 '\""
    script += [HANG._replace(job=hostile, nodes=(f"n$(touch {tmp_path}/d)", "-n 1 > x")), GOOD]
    command = f'printf "%s\\n" "$FABTUI_JOB" $FABTUI_NODES "$FABTUI_FINDING" > {tmp_path}/found'
    assert entry.main(["watchdog", "--on-hang", command]) == 1
    assert "the command of --on-hang ended well" in capsys.readouterr().out
    job, *_ = (tmp_path / "found").read_text().splitlines()
    assert job.startswith(f"7;touch {tmp_path}/a$(touch")
    assert job.endswith("FABTUI_JOB=8 '\"")
    assert {one.name for one in tmp_path.iterdir()} == {"found", "fabtui"}


def test_one_object_per_hang_and_the_first_hang_ends_it(script: Script, capsys: Out) -> None:
    script += [HANG, GOOD]
    assert entry.main(["watchdog", "--once", "--json"]) == 1
    captured = capsys.readouterr()
    (line,) = captured.out.splitlines()
    found = json.loads(line)
    assert found["signals"] == ["/proc: rank 1 on n061 is stopped"]
    assert Path(found["report"]).is_file()
    assert "has been hanging for 0:10" in captured.err


def test_exit_codes_without_a_hang(script: Script, capsys: Out) -> None:
    script.append(GOOD)
    assert entry.main(["watchdog"]) == 0
    script[:] = [verdict(JobState.UNKNOWN, needs="no source shows anything")]
    assert entry.main(["watchdog"]) == 3


def test_a_report_that_cannot_be_written(
    script: Script, capsys: Out, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
