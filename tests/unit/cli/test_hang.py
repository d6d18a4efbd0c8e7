"""`fabtui hang` on scripted verdicts: what it prints, JSON, the user's command, exit codes, wrong arguments."""

import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from shlex import quote

import jsonschema
import pytest

from fabtui.cli import main as entry
from fabtui.cli.commands.hang import job_options
from fabtui.cli.parser import build_parser
from fabtui.diagnosis.job.job_verdict import JobState, JobVerdict
from fabtui.errors import InputError
from fabtui.export.formats import schema
from fabtui.scheduler import slurm
from fabtui.scheduler.base import Allocation
from fabtui.session.options import SessionOptions
from fabtui.session.running_job.inquiry import Reply
from tests.unit.cli.scripted_job import ScriptedSession, script, verdict

__all__ = ["script"]
Out = pytest.CaptureFixture[str]
Script = list[JobVerdict | None]
HANG, GOOD = verdict(JobState.HANGS), verdict(JobState.MOVES)


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
    found = json.loads(capsys.readouterr().out)
    assert (found["kind"], found["state"], found["unread"]) == ("fabtui job", None, ["n062: the login fails"])
    jsonschema.validate(found, schema("job"))


def test_json_and_the_command_of_the_user(script: Script, capsys: Out, tmp_path: Path) -> None:
    script.append(verdict(JobState.HANGS))
    assert entry.main(["hang", "--json", "--on-hang", f"env | grep ^FABTUI_ > {quote(str(tmp_path))}/found"]) == 1
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert (found["state"], found["behind"], found["report"] is not None) == ("hangs", [1], True)
    jsonschema.validate(found, schema("job"))
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


def test_the_command_gets_hostile_names_as_values_and_runs_none(script: Script, capsys: Out, tmp_path: Path) -> None:
    hostile = f"7;touch {tmp_path}/a\x00$(touch {tmp_path}/b)`touch {tmp_path}/c`\ud800\nFABTUI_JOB=8 '\""
    script += [HANG._replace(job=hostile, nodes=(f"n$(touch {tmp_path}/d)", "-n 1 > x")), GOOD]
    command = f'printf "%s\\n" "$FABTUI_JOB" $FABTUI_NODES "$FABTUI_FINDING" > {quote(str(tmp_path))}/found'
    assert entry.main(["hang", "--wait", "--on-hang", command]) == 1
    assert "the command of --on-hang ended well" in capsys.readouterr().out
    job, *_ = (tmp_path / "found").read_text().splitlines()
    assert job.startswith(f"7;touch {tmp_path}/a$(touch")
    assert job.endswith("FABTUI_JOB=8 '\"")
    assert {one.name for one in tmp_path.iterdir()} == {"found", "fabtui"}


def test_a_report_that_cannot_be_written(
    script: Script, capsys: Out, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user's command runs all the same."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    script += [HANG, GOOD]
    assert entry.main(["hang", "--wait", "--on-hang", "exit 3"]) == 1
    out = capsys.readouterr().out
    assert "the report cannot be written: " in out
    assert "the command of --on-hang ended with exit code 3" in out


def recorders(*pipes: str) -> list[Reply]:
    rows = [{"rank": rank, "pid": 70 + rank, "pipe": f"{pipe}{rank}.pipe"} for rank, pipe in enumerate(pipes)]
    return [Reply("n060", {"ranks": rows, "without": 1 - bool(pipes)}, [])]


def test_ranks_write_dumps_only_after_a_yes(script: Script, capsys: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    script.append(verdict(JobState.HANGS))
    session = ScriptedSession(script)
    monkeypatch.setattr(ScriptedSession, "answers", recorders("/tmp/fr", "/tmp/fr"))
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert entry.main(["hang", "--source", "flight"]) == 2
    assert "standard input is not a terminal: add --yes" in capsys.readouterr().err
    terminal = io.StringIO("n\n")
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", terminal)
    assert entry.main(["hang", "--source", "flight"]) == 130
    assert "2 ranks on n060 will each write a dump to a file there" in capsys.readouterr().err
    assert not session.writes
    assert entry.main(["hang", "--source", "flight", "--yes"]) == 1
    monkeypatch.setattr(ScriptedSession, "answers", recorders())
    assert entry.main(["hang", "--source", "flight"]) == 3
    assert "no rank has a FIFO of the flight recorder; start the job with" in capsys.readouterr().out
    monkeypatch.setattr(ScriptedSession, "answers", recorders("/tmp/a", "/tmp/b"))
    assert entry.main(["hang", "--source", "flight", "--yes"]) == 2
    assert "several jobs with a flight recorder run there: /tmp/a and /tmp/b" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--source", "flight", "--wait"], "leave out --wait"),
        (["--source", "log"], "--source log needs a job of Slurm, or --logs"),
        (["7", "--jobid", "8"], "two jobs are given: 7 and --jobid 8"),
        (["--save", "/proc/x.jsonl.gz"], "--save"),
        (["--save", "/etc/passwd"], "--save: /etc/passwd already exists and is not overwritten"),
    ],
)
def test_wrong_arguments(argv: list[str], words: str, capsys: Out) -> None:
    assert entry.main(["hang", *argv]) == 2
    assert words in capsys.readouterr().err


def asked(*argv: str) -> SessionOptions:
    return job_options(build_parser(argv).parse_args(argv))


def test_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(ids: Sequence[str], option: str) -> Allocation:
        placements = {"n060": ("--jobid=4711", "--nodelist=n060")}
        return Allocation(f"job {ids[0]}", ("n060", "n061"), "squeue", ids[0], placements)

    assert asked("hang").transport == "local"
    monkeypatch.setattr(slurm, "allocation_of", found)
    options = asked("hang", "--jobid", "4711")
    assert (options.hosts, options.transport, options.job) == (("n060", "n061"), "ssh", "4711")
    assert asked("hang", "--nodes", "n070", "--via", "docker exec -i {node}").transport == "via"
    with pytest.raises(InputError, match="--pods"):
        asked("hang", "--pods", "no selector at all")
    monkeypatch.setenv("LSB_JOBID", "12")
    monkeypatch.setenv("LSB_MCPU_HOSTS", "n080 8 n081 8")
    assert asked("hang").hosts == ("n080", "n081")
    assert asked("hang", "--no-job").transport == "local"
