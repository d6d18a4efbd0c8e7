"""`fabtui hang` about a job of three nodes in which rank 1, or its network, goes wrong."""

import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from fabtui.lab.network import Network, missing
from tests.forked import fabtui

pytestmark = [
    pytest.mark.slow,
    pytest.mark.trained,
    pytest.mark.skipif(missing() is not None, reason=f"no network: {missing()}"),
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
]
TRAINING = Path(__file__).parent / "faulty_training.py"
RANKS = 3
#: Fault, exit code, and words of the first line without logs; words with logs, where they show more.
CASES = {
    "healthy": (0, "is making progress", "iterations/min"),
    "STOP": (1, "rank 1 on n1:1 is stopped", ""),
    "KILL": (1, "rank 1 on n1:1 has ended", ""),
    "exit": (1, "rank 1 on n1:1 has ended", ""),
    "fifo": (1, "rank 1 on n1:1", ""),
    "sleep": (1, "rank 1 on n1:1", ""),
    "child": (1, "rank 1 on n1:1", ""),
    "exception": (1, "has been hanging", "rank 1 on n1:1 has failed: ValueError: planted: bad sample 77"),
    "lock": (1, "has been hanging", ""),
    "collective": (1, "has been hanging", ""),
    # The other ranks wait for it, or too little of it was seen (3).
    "loop": (None, "", ""),
    "late": (1, "rank 1 on n1:1 makes the others wait", ""),
    "straggler": (1, "rank 1 on n1:1 makes the others wait", ""),
    "leftover": (0, "a process of an earlier job is left on n1: pid", ""),
    "n1.eth0=pull": (1, "n1 eth0, which its ranks use, has no carrier", ""),
}


class Training:
    """A job with a rank on each node, and logs."""

    def __init__(self, network: Network, folder: Path, script: Path = TRAINING, words: Sequence[str] = ()) -> None:
        self.network, self.folder = network, folder
        folder.mkdir()
        os.mkfifo(folder / "fifo")
        self.logs = [folder / f"rank{rank}.log" for rank in range(RANKS)]
        self._processes = [
            self._start(f"n{rank}", [script, folder, *words], rank, RANKS, 29500) for rank in range(RANKS)
        ]

    def _start(self, node: str, words: list[str | Path], rank: int, world: int, port: int) -> subprocess.Popen[bytes]:
        job = {"RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_PORT": str(port)}
        environ = {**os.environ, **job, "MASTER_ADDR": self.network.address("n0", 0), "GLOO_SOCKET_IFNAME": "eth0"}
        environ["NCCL_SOCKET_IFNAME"] = "eth0"
        argv = self.network.holder(node).enter([sys.executable, *map(str, words)])
        with (self.folder / f"rank{rank}.log").open("ab") as log:
            return subprocess.Popen(argv, env={**environ, "OMP_NUM_THREADS": "1"}, stdout=log, stderr=log)

    def works(self) -> None:
        until = time.monotonic() + 120
        while self.logs[0].read_text().count("iteration ") < 15:
            assert time.monotonic() < until, [log.read_text()[-500:] for log in self.logs]
            time.sleep(0.2)

    def plant(self, fault: str) -> None:
        if fault in ("STOP", "KILL"):
            pids = self.network.on("n1", "pgrep", "-f", "^[^ ]*python[^ ]* .*faulty_training").split()
            self.network.on("n1", "kill", f"-{fault}", *pids)
        elif fault == "leftover":
            code = "import time\nwhile time.process_time() < 1.5: pass\ntime.sleep(900)"
            self._processes.append(self._start("n1", ["-c", code], 0, 2, 29400))
        elif "=" in fault:
            self.network.plant(fault)
        else:
            (self.folder / "new").write_text(fault)
            (self.folder / "new").rename(self.folder / "fault")

    def end(self) -> None:
        self.network.heal()
        for process in self._processes:
            process.kill()
            process.wait(10)
        for rank in range(RANKS):
            self.network.on(
                f"n{rank}", "sh", "-c", "pkill -9 -f 'faulty_[t]raining|process_[t]ime|[s]leep 600' || true"
            )

    def hang(self, *words: str) -> tuple[int, str]:
        environ = {**os.environ, "XDG_STATE_HOME": str(self.network.folder / "state")}
        argv = ("hang", "--nodes", "n[0-2]", "--ssh-config", str(self.network.ssh_config), *words)
        done = fabtui(*argv, env=environ)
        assert done.stdout, done.stderr
        return done.returncode, done.stdout.splitlines()[0]


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    with Network(tmp_path_factory.mktemp("lab"), nodes=RANKS, rails=1) as made:
        for node in range(RANKS):
            # Other tests have processes killed for memory meanwhile, which the kernel reports to everyone.
            made.on(f"n{node}", "sh", "-c", "test ! -e /dev/kmsg || mount --bind /dev/null /dev/kmsg")
        yield made


@pytest.mark.parametrize("fault", CASES)
def test_the_first_line(network: Network, tmp_path: Path, fault: str) -> None:
    code, words, by_logs = CASES[fault]
    training = Training(network, tmp_path / "job")
    try:
        training.works()
        training.plant(fault)
        time.sleep(8)
        answer = training.hang()
        assert answer[0] in ((1, 3) if code is None else (code,)), answer
        assert words in answer[1]
        assert not answer[0] or "making progress" not in answer[1]
        if by_logs:
            answer = training.hang("--logs", *map(str, training.logs))
            assert answer[0] == code, answer
            assert by_logs in answer[1]
    finally:
        training.end()


def test_a_launcher_that_fails(network: Network, tmp_path: Path) -> None:
    """No process is left: the logs have the answer."""
    training = Training(network, tmp_path / "job", Path("train4.py"))
    try:
        time.sleep(3)
        code, line = training.hang("--logs", *map(str, training.logs))
        assert (code, "the job has failed: rank 0: " in line, "can't open file" in line) == (1, True, True), line
    finally:
        training.end()
