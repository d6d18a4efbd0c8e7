"""`fabtui watchdog` on a real training with gloo: a stopped rank is reported once, and the user's command runs."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
TRAINING = Path(__file__).with_name("gloo_training.py")


def _wait_for(path: Path, text: str, seconds: float = 60.0) -> str:
    until = time.monotonic() + seconds
    while text not in (found := path.read_text() if path.exists() else ""):
        assert time.monotonic() < until, found
        time.sleep(0.05)
    return found


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    variables = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
    found = [
        subprocess.Popen(
            [sys.executable, str(TRAINING)],
            env={**os.environ, **variables, "RANK": str(rank)},
            stdout=(tmp_path / f"rank{rank}.log").open("wb"),
            stderr=subprocess.STDOUT,
        )
        for rank in range(2)
    ]
    yield found
    for process in found:
        process.kill()
        process.wait(10)


def test_a_stopped_rank(ranks: list[subprocess.Popen[bytes]], tmp_path: Path) -> None:
    _wait_for(tmp_path / "rank0.log", "iteration       10/")
    printed, found = tmp_path / "printed", tmp_path / "found"
    argv = ["watchdog", "--logs", f"{tmp_path}/rank*.log", "--idle", "3", "--every", "1", "--once"]
    argv += ["--on-hang", f'printf "%s\\n%s\\n" "$FABTUI_FINDING" "$FABTUI_REPORT" >> {found}']
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    with printed.open("wb") as out:
        dog = subprocess.Popen([sys.executable, "-m", "fabtui", *argv], env=environment, stdout=out, stderr=out)
        _wait_for(printed, " moves")
        ranks[1].send_signal(signal.SIGSTOP)
        assert dog.wait(90) == 1, printed.read_text()
    text = printed.read_text()
    assert text.count("\nevidence\n") == 1
    # Ranks of other tests may be stopped on this machine as well.
    assert re.search(r"; next: kill -CONT \d+\n", text)
    assert "the command of --on-hang ended well" in text
    finding, path = found.read_text().splitlines()
    job = r"the job (of process \d+ )?on \S+ \(\d+ ranks\)"
    assert re.match(job + r" hangs for 0:\d\d: rank \d+ on \S+ is stopped; .*next: kill -CONT", finding)
    report = json.loads(Path(path).read_text())
    assert (report["named_by"], report["job"], report["state"]) == ("/proc", None, "hangs")
    assert 1 in report["behind"]
    # Nothing was done about it.
    assert Path(f"/proc/{ranks[1].pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
