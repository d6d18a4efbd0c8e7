"""`fabtui hang --wait` on a real training with gloo: a stopped rank is reported once, and the user's command runs."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from fabtui.lab.network import Holder, missing
from tests.conftest import needs_torch

pytestmark = [needs_torch, pytest.mark.timeout(400)]
TRAINING = Path(__file__).with_name("gloo_training.py")
#: How long (s) anything may take: two ranks import PyTorch while other tests keep all processors busy.
PATIENCE = 120.0


def _wait_for(path: Path, text: str) -> str:
    until = time.monotonic() + PATIENCE
    while text not in (found := path.read_text() if path.exists() else ""):
        assert time.monotonic() < until, found
        time.sleep(0.05)
    return found


class Ranks(NamedTuple):
    """Two ranks of a training, in a machine of their own where one can be made: this one has jobs of other tests."""

    machine: Holder | None
    folder: Path
    running: list[subprocess.Popen[bytes]]

    def start(self, argv: list[str], environment: dict[str, str], printed: str) -> subprocess.Popen[bytes]:
        inside = argv if self.machine is None else self.machine.enter(argv)
        with (self.folder / printed).open("wb") as out:
            process = subprocess.Popen(inside, env={**os.environ, **environment}, stdout=out, stderr=subprocess.STDOUT)
        self.running.append(process)
        return process

    def ask(self, *argv: str) -> str:
        inside = list(argv) if self.machine is None else self.machine.enter(argv)
        return subprocess.run(inside, capture_output=True, text=True, check=True, timeout=PATIENCE).stdout

    def pid(self, rank: int) -> str:
        return (self.folder / f"pid{rank}").read_text().strip()


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[Ranks]:
    found = Ranks(Holder("vm") if missing() is None else None, tmp_path, [])
    if found.machine is not None:
        found.machine.wait()
        found.ask("ip", "link", "set", "lo", "up")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    variables = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
    for rank in range(2):
        argv = ["sh", "-c", f'echo $$ > {tmp_path}/pid{rank}; exec "$@"', "sh", sys.executable, str(TRAINING)]
        found.start(argv, {**variables, "RANK": str(rank)}, f"rank{rank}.log")
    yield found
    if found.machine is not None:
        found.machine.end()
    for process in found.running:
        process.kill()
        process.wait(10)


def test_a_stopped_rank(ranks: Ranks, tmp_path: Path) -> None:
    _wait_for(tmp_path / "rank0.log", "iteration       10/")
    found = tmp_path / "found"
    argv = ["hang", "--wait", "--logs", f"{tmp_path}/rank*.log"]
    argv += ["--on-hang", f'printf "%s\\n%s\\n" "$FABTUI_FINDING" "$FABTUI_REPORT" >> {found}']
    environment = {"XDG_STATE_HOME": str(tmp_path / "state")}
    dog = ranks.start([sys.executable, "-m", "fabtui", *argv], environment, "printed")
    _wait_for(tmp_path / "printed", " is making progress")
    ranks.ask("kill", "-STOP", ranks.pid(1))
    code = dog.wait(PATIENCE)
    text = (tmp_path / "printed").read_text()
    assert code == 1, text
    assert text.count("\nevidence\n") == 1
    assert re.search(r"; next: kill -CONT \d+\n", text), text
    assert "the command of --on-hang ended well" in text
    finding, path = found.read_text().splitlines()
    job = r"the job (of process \d+ )?on \S+ \(\d+ ranks\)"
    assert re.match(job + r" has been hanging for \d:\d\d: rank \d+ on \S+ is stopped; .*next: kill -CONT", finding)
    report = json.loads(Path(path).read_text())
    assert (report["named_by"], report["job"], report["state"]) == ("/proc", None, "hangs")
    assert 1 in report["behind"]
    # Nothing was done about it.
    assert ranks.ask("cat", f"/proc/{ranks.pid(1)}/stat").rpartition(")")[2].split()[0] == "T"
