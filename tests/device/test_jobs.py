"""A live job of two ranks that hangs: RAS, the flight recorder or stacks name the rank."""

import contextlib
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch with NCCL and GPUs"),
    pytest.mark.timeout(300),
]
PROGRAM = Path(__file__).with_name("hanging_rank.py")
ROUNDS = "round 150"


def _port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Job:
    """Two ranks, each on a GPU of its own, with RAS and a flight recorder."""

    def __init__(self, hang: str, gpus: list[str], folder: Path) -> None:
        self.folder = folder
        self.ras = f"127.0.0.1:{_port()}"
        shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_port())}
        shared |= {"CUDA_VISIBLE_DEVICES": ",".join(gpus[:2]), "NCCL_RAS_ADDR": self.ras}
        shared |= {"TORCH_FR_BUFFER_SIZE": "2000", "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000"}
        shared |= {"TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{folder}/fr"}
        shared |= {"TORCH_FR_DUMP_TEMP_FILE": f"{folder}/trace_", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": f"{folder}/trace_"}
        self.ranks = [
            subprocess.Popen(
                [sys.executable, str(PROGRAM), hang],
                env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                stdout=(folder / f"rank{rank}").open("wb"),
                stderr=subprocess.STDOUT,
            )
            for rank in range(2)
        ]
        until = time.monotonic() + 120
        while not all(ROUNDS in self.printed(rank) for rank in range(2)):
            assert time.monotonic() < until, self.printed(0) + self.printed(1)
            assert all(rank.poll() is None for rank in self.ranks), self.printed(0) + self.printed(1)
            time.sleep(0.1)
        # The hang begins at round 200.
        time.sleep(5 if hang != "run" else 0)

    def printed(self, rank: int) -> str:
        return (self.folder / f"rank{rank}").read_text(errors="replace")

    def end(self) -> None:
        for rank in self.ranks:
            with contextlib.suppress(ProcessLookupError):
                rank.kill()
            rank.wait(20)


@pytest.fixture
def job(request: pytest.FixtureRequest, gpus: list[str], tmp_path: Path) -> Iterator[Job]:
    found = Job(request.param, gpus, tmp_path)
    yield found
    found.end()


def _fabtui(*words: str) -> tuple[int, dict[str, Any]]:
    """Run a command of the product; return its exit code and its JSON."""
    argv = [sys.executable, "-m", "fabtui", *words, "--json"]
    began = time.monotonic()
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    print(f"\nfabtui {' '.join(words)}: exit code {done.returncode} after {time.monotonic() - began:.1f} s")
    assert done.stdout.startswith("{"), done.stdout + done.stderr
    values: dict[str, Any] = json.loads(done.stdout)
    for line in [values.get("sentence"), *_shown(values), *(values.get("unread") or [])]:
        print(f"  {line}")
    return done.returncode, values


def _shown(values: dict[str, Any]) -> list[str]:
    return [f"{one['name']}: {one['text']}" for one in values.get("sources") or []]


def _named(source: str, *words: str) -> tuple[int, dict[str, Any], str]:
    code, values = _fabtui("hang", "--source", source, *words)
    return code, values, " ".join(_shown(values))


@pytest.mark.parametrize("job", ["run"], indirect=True)
def test_a_healthy_job_and_a_stopped_rank(job: Job) -> None:
    code, values, _ = _named("ras")
    assert (code, values["state"]) == (0, "moves")
    stopped = job.ranks[1]
    stopped.send_signal(signal.SIGSTOP)
    time.sleep(3)
    code, values, _ = _named("ras")
    assert (code, values["behind"]) == (1, [1])
    assert values["next"][0] == f"kill -CONT {stopped.pid}"
    code, values, _ = _named("flight", "--yes")
    assert code == 1
    assert f"kill -CONT {stopped.pid}" in values["next"]
    assert "stopped" in _named("stacks")[2]
    stopped.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("job", ["skip"], indirect=True)
def test_a_rank_that_left_the_loop(job: Job) -> None:
    for source, *words in (("ras",), ("flight", "--yes")):
        code, values, text = _named(source, *words)
        assert (code, values["behind"]) == (1, [1])
        assert "has not called it" in text


@pytest.mark.parametrize("job", ["p2p"], indirect=True)
def test_a_receive_without_a_send(job: Job) -> None:
    code, _, text = _named("flight", "--yes")
    assert code == 1
    assert "rank 0 waits in recv from rank 1" in text
    assert "has not called send" in text


@pytest.mark.parametrize("job", ["run"], indirect=True)
def test_a_wait_reports_a_stopped_rank(job: Job) -> None:
    """The state of its process shows it at once."""
    words = ["hang", "--wait", "--logs", f"{job.folder}/rank*"]
    words += ["--on-hang", f'printf %s "$FABTUI_FINDING" > {job.folder}/found']
    printed = job.folder / "watchdog"
    environment = {**os.environ, "XDG_STATE_HOME": str(job.folder)}
    with printed.open("wb") as out:
        dog = subprocess.Popen([sys.executable, "-m", "fabtui", *words], env=environment, stdout=out, stderr=out)
        until = time.monotonic() + 90
        while " is making progress" not in printed.read_text():
            assert time.monotonic() < until, printed.read_text()
            time.sleep(0.2)
        job.ranks[1].send_signal(signal.SIGSTOP)
        began = time.monotonic()
        code = dog.wait(180)
    text = printed.read_text()
    print(f"\n{text}exit code {code}, {time.monotonic() - began:.1f} s after the rank was stopped")
    assert code == 1
    assert text.count("\nevidence\n") == 1
    assert f"next: kill -CONT {job.ranks[1].pid}" in text
    assert "(2 ranks) has been hanging for 0:" in (job.folder / "found").read_text()
    job.ranks[1].send_signal(signal.SIGCONT)
