"""A job of torchrun on two nodes: `fabtui hang`, also with `--wait`, and `fabtui run --read-only` name its rank."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from fabtui.lab.network import Network, missing
from tests.conftest import needs_torch
from tests.forked import fabtui

pytestmark = [
    pytest.mark.skipif(missing() is not None, reason=f"no network: {missing()}"),
    needs_torch,
]
TRAINING = Path(__file__).with_name("faulty_training.py")
RANKS = 4


class Job(NamedTuple):
    """A job of four ranks under torchrun, two on each node."""

    network: Network
    log: Path

    def pid(self, rank: int) -> str:
        """Return the process of a rank, as its node counts."""
        for pid in self.network.on(self.node(rank), "pgrep", "-f", "faulty_training.py").split():
            environ = self.network.on(self.node(rank), "cat", f"/proc/{pid}/environ").split("\0")
            if f"RANK={rank}" in environ:
                return pid
        raise AssertionError(f"rank {rank} does not run")

    @staticmethod
    def node(rank: int) -> str:
        return f"n{rank * 2 // RANKS}"

    def signal(self, rank: int, name: str) -> None:
        self.network.on(self.node(rank), "kill", f"-{name}", self.pid(rank))

    def moves(self, seconds: float = 90.0) -> None:
        """Wait until it prints further iterations."""
        before, until = self.iterations(), time.monotonic() + seconds
        while self.iterations() < before + 3:
            assert time.monotonic() < until, self.log.read_text()
            time.sleep(0.1)

    def iterations(self) -> int:
        return self.log.read_text().count("iteration ")

    def fabtui(self, *words: str) -> tuple[int, list[str]]:
        """Run a command about both nodes; return its exit code and its lines."""
        environ = {**os.environ, "XDG_STATE_HOME": str(self.network.folder / "state")}
        done = fabtui(*words, "--nodes", "n0,n1", "--ssh-config", str(self.network.ssh_config), env=environ)
        assert done.stdout, done.stderr
        return done.returncode, done.stdout.splitlines()


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    folder = tmp_path_factory.mktemp("job")
    with Network(folder, nodes=2, rails=1) as network:
        made = Job(network, folder / "n0.log")
        agents = []
        for number in range(2):
            # Other tests have processes killed for memory meanwhile, which the kernel reports to everyone.
            network.on(f"n{number}", "sh", "-c", "test ! -e /dev/kmsg || mount --bind /dev/null /dev/kmsg")
            argv = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--node-rank", str(number)]
            argv += ["--nproc-per-node", str(RANKS // 2)]
            argv += ["--master-addr", network.address("n0", 0), "--master-port", "29500", str(TRAINING), str(folder)]
            environ = {**os.environ, "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1"}
            with (folder / f"n{number}.log").open("wb") as log:
                enter = network.holder(f"n{number}").enter(argv)
                agents.append(subprocess.Popen(enter, env=environ, stdout=log, stderr=subprocess.STDOUT))
        try:
            made.moves()
            yield made
        finally:
            for agent in agents:
                agent.kill()
                agent.wait(10)


def test_a_stopped_rank(job: Job, tmp_path: Path) -> None:
    """The recording has the evidence, from before the rank was woken up."""
    job.signal(3, "STOP")
    kept = tmp_path / "hang.jsonl.gz"
    try:
        code, lines = job.fabtui("hang", "--save", str(kept))
        run_code, run_lines = job.fabtui("run", "--read-only", "--no-record", "--quiet")
    finally:
        job.signal(3, "CONT")
    wanted = f"kill -CONT {job.pid(3)}"
    for found_code, found in ((code, lines), (run_code, run_lines)):
        assert found_code == 1, found
        assert found[0].startswith("the job on n[0-1] (4 ranks) ha"), found
        assert all(part in found[0] for part in ("hang", "rank 3 on n1", "stopped", wanted)), found
    done = fabtui("replay", str(kept), "--text", "--json", str(tmp_path / "x.json"))
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stdout.splitlines()[0].partition("ranks) ")[0] == lines[0].partition("ranks) ")[0]
    assert json.loads((tmp_path / "x.json").read_text())["job"]["behind"] == [3]
    job.moves()


def test_a_hang_that_is_waited_for_runs_the_command_of_the_user_once(job: Job, tmp_path: Path) -> None:
    printed, kept = tmp_path / "printed", tmp_path / "kept"
    words = ["hang", "--wait", "--nodes", "n0,n1", "--ssh-config", str(job.network.ssh_config), "--logs", str(job.log)]
    words += ["--on-hang", f'printf "%s\\n%s\\n" "$FABTUI_FINDING" "$FABTUI_REPORT" >> {kept}']
    with printed.open("wb") as out:
        dog = subprocess.Popen(
            [sys.executable, "-m", "fabtui", *words],
            env={**os.environ, "XDG_STATE_HOME": str(tmp_path)},
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        until = time.monotonic() + 90
        while " is making progress" not in printed.read_text():
            assert time.monotonic() < until, printed.read_text()
            time.sleep(0.1)
        job.signal(3, "STOP")
        assert dog.wait(120) == 1, printed.read_text()
    finally:
        dog.kill()
        job.signal(3, "CONT")
    text = printed.read_text()
    assert text.count("\nevidence\n") == 1
    assert "the command of --on-hang ended well" in text
    finding, path = kept.read_text().splitlines()
    assert finding.startswith("the job on n[0-1] (4 ranks) has been hanging for 0:"), finding
    assert f"kill -CONT {job.pid(3)}" in finding
    report = json.loads(Path(path).read_text())
    assert (report["job"], report["state"], report["behind"]) == (None, "hangs", [3])
    job.moves()
