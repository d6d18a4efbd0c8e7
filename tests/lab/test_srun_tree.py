"""One srun for 64 nodes of a real Slurm."""

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.lab.slurm_cluster import SlurmCluster, missing, short_folder

pytestmark = [pytest.mark.slurm, pytest.mark.skipif(missing() is not None, reason=f"no Slurm: {missing()}")]
STEPS = (sys.executable, "-m", "tests.lab.job_steps", "--tree=on")


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    folder = short_folder("tree")
    with SlurmCluster(folder, each=16) as cluster:
        yield cluster
    shutil.rmtree(folder, ignore_errors=True)


def sides(cluster: SlurmCluster) -> int:
    return sum(len(cluster.processes(name)) for name in cluster.network.names)


def test_one_srun_reaches_64_nodes(cluster: SlurmCluster) -> None:
    job = cluster.job("-N64", "--mem=100")
    found = json.loads(cluster.run(*STEPS, "--bytes=20000000", job, *cluster.names).stdout)
    assert (found["links"], found["refused"], found["wrong"]) == (64, [], [])
    assert [text.split(" port")[0] for text in found["notices"]] == [
        "one srun starts 64 nodes, which call back to this machine"
    ]
    # srun and the process that watches it.
    assert len(found["sruns"]) == 2
    cluster._until(lambda: not cluster.steps(job) and sides(cluster) == 0, "the end of the step")


def test_nothing_is_left_after_a_kill(cluster: SlurmCluster) -> None:
    names = cluster.names[:16]
    job = cluster.job("-N16", f"--nodelist={','.join(names)}", "--mem=100")
    words = cluster.words(*STEPS, "--hold=100", job, *names)
    with subprocess.Popen(words, env=cluster.environment(), stdout=subprocess.DEVNULL) as process:
        cluster._until(lambda: sides(cluster) == len(names), "the node sides")
        assert cluster.steps(job) == ["fabtui"]
        process.send_signal(signal.SIGKILL)
        process.wait()
    cluster._until(lambda: not cluster.steps(job) and sides(cluster) == 0, "the end of the step")


def test_nodes_whose_slurmd_is_gone_are_named(cluster: SlurmCluster) -> None:
    names = cluster.names[:12]
    job = cluster.job("-N12", f"--nodelist={','.join(names)}", "--mem=100", "--no-kill")
    for name in names[3:6]:
        # In the namespace of its host.
        cluster.network.on(cluster._host(name), "pkill", "-KILL", "-f", f"slurmd -D .* -N {name}$")
    found = json.loads(cluster.run(*STEPS, job, *names).stdout)
    assert (found["links"], len(found["refused"])) == (9, 3), found
    assert all(any(name in text for text in found["refused"]) for name in names[3:6]), found
