from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from fabtui_node.system import run_command


def test_a_command_that_works() -> None:
    result = run_command.run(["sh", "-c", "echo out; echo err >&2"], 10)
    assert (result.returncode, result.stdout, result.stderr) == (0, "out\n", "err\n")
    assert result.ok
    assert result.why() is None


def test_a_command_that_fails_reports_its_last_line() -> None:
    result = run_command.run(["sh", "-c", "echo first; echo no such port >&2; exit 7"], 10)
    assert not result.ok
    assert result.why() == "sh exited with 7: no such port"


def test_a_missing_command_is_not_a_failed_one() -> None:
    result = run_command.run(["surely-no-such-command"], 10)
    assert result.missing
    assert result.returncode is None
    assert result.why() == "no surely-no-such-command on this node"


def test_a_file_that_may_not_be_run() -> None:
    result = run_command.run(["/etc/passwd"], 10)
    assert not result.missing
    assert result.returncode is None
    assert "ermission denied" in (result.why() or "")


def test_the_deadline_ends_a_command_and_keeps_its_output() -> None:
    start = time.monotonic()
    result = run_command.run(["sh", "-c", "echo begun; sleep 60"], 0.5)
    assert time.monotonic() - start < 20
    assert result.timed_out
    assert result.stdout == "begun\n"
    assert result.why() == "sh did not end in time"


def test_the_deadline_holds_for_a_command_that_closed_its_output() -> None:
    assert run_command.run(["sh", "-c", "exec >&- 2>&-; sleep 60"], 0.5).timed_out


def test_no_time_left() -> None:
    result = run_command.run(["true"], 0)
    assert result.timed_out
    assert result.returncode is None


def _gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state == "Z"


@pytest.mark.parametrize("end", ["", "; sleep 60"])
def test_nothing_is_left_behind(end: str) -> None:
    result = run_command.run(["sh", "-c", "sleep 60 & echo $!" + end], 1.0)
    pid = int(result.stdout)
    until = time.monotonic() + 10
    while not _gone(pid) and time.monotonic() < until:
        time.sleep(0.01)
    assert _gone(pid)


def test_the_output_is_capped() -> None:
    result = run_command.run(["yes"], 30, limit=10000)
    assert result.truncated
    assert len(result.stdout) == 10000
    assert result.why() == "yes printed too much"


def test_bytes_that_are_no_text() -> None:
    result = run_command.run(["printf", r"a\377b"], 10)
    assert result.stdout == "a\ufffdb"


def test_the_command_has_no_input_and_prints_english(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANG", "de_DE.UTF-8")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    result = run_command.run(["sh", "-c", 'cat; echo "$LC_ALL $LANG $PATH $EXTRA"'], 10, env={"EXTRA": "yes"})
    assert result.stdout.split() == ["C", "/usr/bin:/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/sbin", "yes"]


def test_commands_are_found_outside_of_a_short_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    found = run_command.find("sh")
    assert found is not None
    assert os.access(found, os.X_OK)
    assert run_command.find("surely-no-such-command") is None
