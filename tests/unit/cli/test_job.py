import json
import os
import stat
from pathlib import Path
from shlex import quote
from typing import Any

import jsonschema
import pytest

from fabtui.cli import main as entry
from fabtui.cli.commands import hang as job
from fabtui.cli.commands.hang import query_from
from fabtui.errors import InputError
from fabtui.export.formats import schema
from fabtui.session.options import JobQuery
from fabtui.session.running_job import monitor

from ..jobs.job_texts import healthy, settings


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    folder = tmp_path / "logs"
    folder.mkdir()
    for name, text in healthy().items():
        (folder / name).write_text(text)
    return folder


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = entry.main(["job", *words])
    out, error = capsys.readouterr()
    return code, out, error


def test_logs_without_slurm_are_reported_as_text_and_json(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text, _ = run(capsys, "--logs", str(logs), "--once")
    assert (code, text.splitlines()[0]) == (0, "logs  healthy  4 nodes, 16 GPUs")
    assert "iteration 40/50  1.401 1.424 1.374 s" in text
    assert "median 1.401 s  first 4.542 s (warm-up)" in text
    assert "4 nodes agree" in text
    assert "stdout  " in text
    assert " lines in 4 files" in text
    assert "  [3] NVIDIA A10 | 61'C, 97 % | 14020 / 22731 MB | me(13980M)" in text
    (logs / "n062.out").write_text(settings(2, GLOBAL_BATCH_SIZE="32"))
    code, out, _ = run(capsys, "--logs", str(logs), "--json")
    found = json.loads(out)
    assert (code, found["exit"], found["verdict"], found["format"]) == (1, 1, "suspect", 2)
    (finding,) = found["findings"]
    assert finding["text"] == "GLOBAL_BATCH_SIZE differs between nodes: 32 on n062, 64 on n[060-061,063]"
    assert found["settings"]["n062"]["GLOBAL_BATCH_SIZE"] == "32"
    assert found["iterations"]["warm_up"]["seconds"] == pytest.approx(4.5416)
    assert [len(node["gpus"]) for node in found["by_node"]] == [4, 4, 4, 4]


def test_several_logs_as_a_shell_expands_them(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = sorted(str(path) for path in logs.glob("*.out"))
    code, text, _ = run(capsys, "--logs", *names, "--once")
    assert (code, text.splitlines()[0]) == (0, "logs  healthy  4 nodes")
    # In any order with the job, which is not a file.
    assert query_from({"logs": [*names, "12"]}, {}) == JobQuery("12", tuple(names))
    assert query_from({"logs": [*names], "job": "12"}, {}) == JobQuery("12", tuple(names))
    code, _, error = run(capsys, "--logs", *names, str(logs / "n069.out"), "--once")
    assert (code, error) == (2, f"fabtui: error: --logs: no such file or folder: {logs}/n069.out\n")
    code, text, _ = run(capsys, "12", "--logs", *names, str(logs / "n069.out"), "--once", "--no-links")
    # Long paths are wrapped.
    reported = f"could not be read: {logs}/n069.out: no such file or folder"
    assert (code, "".join(reported.split()) in "".join(text.split())) == (3, True), text


def test_hostile_logs_reach_the_terminal_harmless(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (logs / "n060.err").write_bytes(b"\x1b]0;owned\x07RuntimeError: CUDA error: \x1b[31m\xff\x9b2J\n\x00\x00")
    for words in (("--once",), ("--json",)):
        code, out, _ = run(capsys, "--logs", str(logs), *words)
        assert code == 1
        assert "\x1b" not in out
        assert "\x9b" not in out


def fake_slurm(folder: Path, monkeypatch: pytest.MonkeyPatch, state: str, job_logs: Path) -> None:
    scripts = {
        "squeue": f"echo asked >> {quote(str(folder))}/asked; echo '12|{state}|None|n06[0-3]|1:00:00|2:00:00|me|llm'",
        "scontrol": f"echo 'JobId=12 UserId=me({os.getuid()}) JobState={state} NodeList=n06[0-3]"
        f" StdOut={job_logs}/12.sbatch.out ExitCode=0:0'",
        "sinfo": "exit 1",
    }
    for name, script in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_logs_are_found_beside_the_output_of_the_batch_script(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.rename(tmp_path / "12")
    (tmp_path / "12.sbatch.out").write_text("")
    fake_slurm(tmp_path, monkeypatch, "COMPLETED", tmp_path)
    code, text, _ = run(capsys, "12", "--once")
    assert (code, text.splitlines()[0]) == (
        0, "job 12  ended  COMPLETED 1:00:00 of 2:00:00  4 nodes, 16 GPUs  llm"
    )  # fmt: skip
    assert (tmp_path / "asked").read_text() == "asked\n"


def test_a_running_job_without_logs_is_no_healthy_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_slurm(tmp_path, monkeypatch, "RUNNING", tmp_path)
    code, text, _ = run(capsys, "12", "--once", "--no-links")
    assert code == 3
    assert "could not be read: no logs were found" in text


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((), "no job given; use fabtui job 4711"),
        (("x",), "JOBID: 'x' is not a job id"),
        (("1,2",), "one job at a time"),
        (("--logs", "/nowhere"), "--logs: no logs were found: /nowhere"),
        (("12", "--idle", "0"), "--idle"),
    ],
)
def test_bad_usage_is_one_line(
    words: tuple[str, ...], text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    code, _, error = run(capsys, *words)
    assert code == 2
    assert text in error
    assert len(error.splitlines()) == 1


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ("", "no job given; use fabtui job 4711"),
        (
            "7|RUNNING|1:00|n0|llm\n8|PENDING|0:00||eval",
            "you have several jobs; name one, such as fabtui job 7; there are 7 llm (running), 8 eval",
        ),
    ],
)
def test_which_of_several_jobs_is_asked(
    lines: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "squeue").write_text(f"#!/bin/sh\ncat <<'END'\n{lines}\nEND\n")
    (tmp_path / "squeue").chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    code, _, error = run(capsys)
    assert (code, len(error.splitlines())) == (2, 1)
    assert text in error
    (tmp_path / "squeue").write_text("#!/bin/sh\necho '9|RUNNING|1:00|n0|llm'\n")
    assert query_from({}, {}) == JobQuery("9")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, JobQuery("7")),
        ({"jobid": "8"}, JobQuery("8")),
        ({"job": "9", "jobid": "8", "idle": "60"}, JobQuery("9", idle=60.0)),
        ({"logs": ["x"], "nodes": ["n[0-1]"]}, JobQuery("", ("x",), nodes=("n0", "n1"))),
    ],
)
def test_without_a_number_it_is_the_job_that_this_runs_in(given: dict[str, Any], expected: JobQuery) -> None:
    assert query_from(given, {"SLURM_JOB_ID": "7"}) == expected
    with pytest.raises(InputError):
        query_from({}, {})


def test_follow_prints_each_change_once_until_the_job_has_ended(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_slurm(tmp_path, monkeypatch, "RUNNING", tmp_path)
    monkeypatch.setattr(monitor, "ASK_EVERY", 0.0)
    monkeypatch.setattr(job, "EVERY", 0.01)
    readings: list[int] = []

    def read(*args: Any) -> Any:
        readings.append(1)
        if len(readings) == 2:
            with (logs / "n060.err").open("a") as file:
                file.write("ValueError: new\n")
        if len(readings) == 5:
            fake_slurm(tmp_path, monkeypatch, "COMPLETED", tmp_path)
        return before(*args)

    before = monitor._read
    monkeypatch.setattr(monitor, "_read", read)
    code, out, _ = run(capsys, "12", "--logs", str(logs), "--follow", "--no-links")
    first, *changes = out.split("  [3] NVIDIA A10 | 61'C, 97 % | 14020 / 22731 MB | me(13980M)\n")
    assert first.startswith("job 12  healthy  RUNNING")
    lines = [line[10:] for line in changes[-1].splitlines()]
    assert lines == ["RUNNING: suspect", "J04 n060: ValueError: new", "COMPLETED: suspect"]
    assert code == 1


def test_its_json_can_be_read_again_and_reported(
    logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = run(capsys, "--logs", str(logs), "--json")
    jsonschema.validate(json.loads(out), schema("job"))
    saved = tmp_path / "job.json"
    saved.write_text(out)
    assert entry.main(["read", str(saved)]) == 0
    assert capsys.readouterr().out.startswith(f"{saved}: job-report: ")
    assert entry.main(["report", str(saved), "-o", "-"]) == 0
    page = capsys.readouterr().out
    for name in (
        "| verdict       | healthy",
        "| silence limit | 180 s",
        "**iterations, latest**",
        "**by node 4 of 4, gpus**",
    ):
        assert name in page
