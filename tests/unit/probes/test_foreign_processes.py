"""Processes of other users choose nothing that root runs, loads, opens or connects to."""

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fabtui_node.probes.job import activity, evidence, flight, inspector, node_log, ras
from fabtui_node.registry import Emit
from fabtui_node.system import job_processes, run_command
from tests.foreign import NOBODY, TOOLS, Stranger, started_stranger

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start processes of other users")


@pytest.fixture
def stranger() -> Iterator[Stranger]:
    with started_stranger() as process:
        yield process


class Audit:
    """Record of files, programs and connections of this process while it is on; a hook cannot be removed."""

    def __init__(self) -> None:
        self.on = False
        self.seen: list[str] = []
        sys.addaudithook(self._note)

    def _note(self, event: str, values: tuple[Any, ...]) -> None:
        watched = ("open", "os.listdir", "os.scandir", "ctypes.dlopen", "subprocess.Popen", "os.exec", "socket.connect")
        if self.on and event in watched:
            self.seen.append(f"{event} {values!r}")


AUDIT = Audit()


def _ignored(value: Any) -> None:
    """Take a part of an answer."""


EMIT: Emit = _ignored


def questions(pid: int) -> dict[str, Any]:
    """Return the questions to a node about running jobs, by name; each is a probe of ``hang`` or ``job``."""
    return {
        "stacks": lambda: evidence.run_stacks({}, EMIT, 8.0),
        "evidence": lambda: evidence.run({"pids": [pid]}, EMIT, 8.0),
        "inspector": lambda: inspector.run({}, EMIT, 5.0),
        "flight": lambda: flight.run({"write": True, "within": 0.2}, EMIT, 5.0),
        "dumps": lambda: flight.run({"existing": True}, EMIT, 5.0),
        "ras": lambda: ras.run({}, EMIT, 5.0),
        "job": lambda: node_log.run({"prefixes": ["NCCL_"]}, EMIT, 5.0),
        "activity": lambda: activity.Ranks("").read({}),
    }


@pytest.mark.parametrize("name", questions(0))
def test_nothing_that_a_process_of_another_user_names_is_used(
    stranger: Stranger, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    AUDIT.seen, AUDIT.on = [], True
    try:
        questions(stranger.pid)[name]()
    finally:
        AUDIT.on = False
    assert AUDIT.seen
    root = f"/proc/{stranger.pid}/root"
    assert not [one for one in AUDIT.seen if str(stranger.folder) in one or root in one or "192.0.2.1" in one]
    assert not (stranger.folder / "ran").exists()


@pytest.mark.parametrize("tool", TOOLS)
def test_a_tool_on_a_process_of_another_user_has_the_rights_of_that_user_and_no_variables(
    stranger: Stranger, tool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory(prefix="fabtui-test-") as folder:
        os.chmod(folder, 0o755)
        frames = [{"name": "$(id -u):$(id -g):$FABTUI_SECRET:$(id -G)", "short_filename": "a.py", "line": 1}]
        printed = json.dumps([{"os_thread_id": stranger.pid, "frames": frames}]).replace('"', '\\"')
        if tool == "pystack":
            frame = '  (Python) File \\"a.py\\", line 1, in $(id -u):$(id -g):$FABTUI_SECRET:$(id -G)'
            printed = f"Traceback for thread {stranger.pid} (python)\n{frame}"
        path = Path(folder, tool)
        path.write_text(f'#!/bin/sh\necho "{printed}"\n')
        path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
        monkeypatch.setenv("FABTUI_SECRET", "secret")
        found = evidence.frames_of(stranger.pid)
    assert (found["by"], found["frames"][0]["name"]) == (tool, f"{NOBODY}:{NOBODY}::{NOBODY}")


@pytest.mark.parametrize("change", ["owner", "mode", "folder", "link", "group"])
def test_root_runs_no_tool_that_others_can_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    path = folder / "fabtui-tool"
    path.write_text("#!/bin/sh\necho ran\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    assert run_command.find("fabtui-tool") == str(path)
    assert run_command.run(["fabtui-tool"], 5.0).stdout == "ran\n"
    if change == "owner":
        os.chown(path, NOBODY, 0)
    elif change == "mode":
        path.chmod(0o777)
    elif change == "folder":
        folder.chmod(0o777)
    elif change == "group":
        os.chown(folder, 0, NOBODY)
        folder.chmod(0o775)
    else:
        other = tmp_path / "other"
        other.mkdir()
        path.rename(other / "tool")
        path.symlink_to(other / "tool")
        assert run_command.find("fabtui-tool") == str(path)
        other.chmod(0o777)
    assert run_command.find("fabtui-tool") is None
    assert run_command.run(["fabtui-tool"], 5.0).missing


def test_of_the_addresses_that_others_name_only_those_of_this_machine_are_asked(stranger: Stranger) -> None:
    (one,) = [one for one in job_processes.find() if one["pid"] == stranger.pid]
    assert one["ras"] is None
    for text, expected in [("localhost:28028", True), ("127.0.0.1:1024", True), ("[::1]:65000", True)]:
        assert (job_processes._ras(text, stranger.pid, "/proc") == text) is expected
    for text in ("localhost:22", "10.0.0.1:28028", "localhost:1023", "evil.example:28028", "127.0.0.1:28028 x"):
        assert job_processes._ras(text, stranger.pid, "/proc") is None
        assert job_processes._ras(text, os.getpid(), "/proc") == text
