"""Commands on a node: those of its tools, and those that the user runs, with filters, deadline and environment."""

import os
import time
from pathlib import Path
from shlex import quote
from typing import Any

import pytest

from fabtui_node.probes import command
from fabtui_node.system import run_command


@pytest.mark.parametrize(
    ("argv", "seconds", "why"),
    [
        (["sh", "-c", "echo out; echo err >&2"], 10, None),
        (["sh", "-c", "echo first; echo no such port >&2; exit 7"], 10, "sh exited with 7: no such port"),
        (["surely-no-such-command"], 10, "no surely-no-such-command on this node"),
        (["sh", "-c", "exec >&- 2>&-; sleep 60"], 0.5, "sh did not end in time"),
        (["true"], 0, "true did not end in time"),
    ],
)
def test_what_became_of_a_command(argv: list[str], seconds: float, why: str | None) -> None:
    result = run_command.run(argv, seconds)
    assert (result.ok, result.why()) == (why is None, why)
    assert result.missing == ("no surely" in (why or ""))


def test_output_is_kept_when_the_deadline_ends_a_command() -> None:
    result = run_command.run(["sh", "-c", "printf 'begun\\377'; echo err >&2; sleep 60"], 0.5)
    assert (result.timed_out, result.stdout, result.stderr) == (True, "begun\ufffd", "err\n")
    assert "ermission denied" in (run_command.run(["/etc/passwd"], 10).why() or "")


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


def run(*argv: str, deadline: float = 20.0, grep: Any = (), last: int = 0) -> dict[str, Any]:
    return command.run({"argv": list(argv), "grep": list(grep), "last": last}, None, deadline)


def test_output_and_exit_status_of_both_streams() -> None:
    found = run("sh", "-c", "echo out; echo err >&2; exit 3")
    assert found == {"output": "out\nerr\n", "dropped": 0, "lines": 0, "exit": 3, "problem": ""}


def test_words_are_no_shell_text() -> None:
    assert run("echo", "$HOME; id | cat", "`id`")["output"] == "$HOME; id | cat `id`\n"


def test_a_missing_or_killed_command_has_a_problem() -> None:
    assert run("surely-no-such-command")["problem"] == "no surely-no-such-command on this node"
    found = run("sh", "-c", "kill -9 $$")
    assert (found["exit"], found["problem"]) == (None, "sh was ended by signal 9")


def test_output_beyond_the_kept_bytes_is_counted() -> None:
    found = run("sh", "-c", "yes | head -c 1000000")
    assert len(found["output"]) == command.KEPT_BYTES
    assert found["dropped"] == 1_000_000 - command.KEPT_BYTES
    assert found["exit"] == 0


def test_endless_output_ends_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "MOST_BYTES", 3 << 20)
    found = run("yes")
    assert found["problem"] == "killed after 3 MiB of output"
    assert len(found["output"]) == command.KEPT_BYTES
    assert found["dropped"] >= (3 << 20) - command.KEPT_BYTES


def test_the_deadline_kills_a_command_and_all_that_it_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    found = run("sh", "-c", f"sleep 1000 & echo $! $$ > {quote(str(pids))}; echo begun; sleep 1000", deadline=1.0)
    assert found["problem"] == "killed after 0.8 s, its deadline"
    assert (found["output"], found["exit"]) == ("begun\n", None)
    for pid in pids.read_text().split():
        for _ in range(500):
            if not Path(f"/proc/{pid}").exists() or " Z " in Path(f"/proc/{pid}/stat").read_text():
                break
            time.sleep(0.02)
        else:
            raise AssertionError(f"{pid} is still there")


def test_a_command_gets_few_variables_and_no_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_PRELOAD_OF_MINE", "x")
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    found = run("sh", "-c", "env; cat; test -t 0 || echo no terminal")
    names = {line.partition("=")[0] for line in found["output"].splitlines()}
    assert {"PATH", "LC_ALL", "PAGER"} <= names
    assert not {"LD_PRELOAD_OF_MINE", "NCCL_DEBUG"} & names
    assert "no terminal" in found["output"]


def test_filters_see_all_lines_and_the_rest_is_kept() -> None:
    many = "seq -f 'line %.0f of many words' 0 29999; echo NVRM: Xid 79"
    grep = {"words": ["xid", "no such"], "ignore_case": True, "after": 0}
    found = run("sh", "-c", many, grep=[grep])
    assert found["output"] == "NVRM: Xid 79\n"
    assert (found["lines"], found["dropped"]) == (30001, 0)
    after = {"words": ["line 7 "], "ignore_case": False, "after": 2}
    assert [line.split()[1] for line in run("sh", "-c", many, grep=[after])["output"].splitlines()] == ["7", "8", "9"]
    assert run("sh", "-c", many, last=1)["output"] == "NVRM: Xid 79\n"
    assert run("sh", "-c", many, grep=[{"words": ["none"], "ignore_case": False, "after": 0}])["output"] == ""


def test_a_line_without_end_takes_no_memory() -> None:
    output = command.Output([command.Grep((b"x",), False, 0)], 0)
    for _ in range(100):
        output.extend(b"y" * 65536)
    assert len(output._line) <= 2 * 65536
    assert output.text() == ""


@pytest.mark.parametrize("argv", [[], "ls", [1], ["a"] * 257, None])
def test_a_request_that_is_no_command_is_refused(argv: Any) -> None:
    with pytest.raises(ValueError, match="command"):
        command.run({"argv": argv, "grep": [], "last": 0}, None, 5.0)


def test_this_process_keeps_its_folder() -> None:
    assert run("pwd")["output"].strip() == os.getcwd()
