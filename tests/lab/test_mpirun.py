"""One mpirun of OpenMPI for several nodes, which it reaches by ssh."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fabtui.lab import network as holder
from fabtui.lab.network import Network
from tests.lab.field import network_in

pytestmark = pytest.mark.skipif(
    holder.path_of("mpirun") is None or holder.missing() is not None, reason="no mpirun, or no network namespaces"
)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    with network_in(tmp_path_factory.mktemp("mpirun"), nodes=8, rails=1, management="mgmt0") as network:
        yield network


def opened(network: Network, *args: str) -> dict[str, Any]:
    """Open links to all nodes by mpirun and return what came of it."""
    # OpenMPI refuses root, and it forwards nothing of its parent's environment.
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    allowed["OMPI_MCA_plm_rsh_agent"] = f"ssh -F {network.ssh_config} -o StrictHostKeyChecking=no"
    words = network.controller([sys.executable, "-m", "tests.lab.job_steps", "--transport=mpirun", *args, "0"])
    done = subprocess.run(
        # Their names are known to nobody here: a process belongs to the node with its address.
        [*words, *map(network.login_address, network.names)],
        env={**os.environ, **allowed, "PATH": f"{os.environ['PATH']}:/usr/bin:/usr/sbin"},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_one_mpirun_reaches_all_nodes_and_ends(network: Network) -> None:
    found = opened(network, "--bytes=1000000", "--hold=1")
    assert (found["links"], found["refused"], found["wrong"]) == (8, [], [])
    (notice,) = found["notices"]
    assert notice.startswith("one mpirun starts 8 nodes, which call back to 10.99.0.254 port ")
    # It has ended, and the node sides have not.
    assert found["starters"] == []
    assert not [name for name in network.names if "fabtui" in network.on(name, "ps", "-eo", "args")]


def test_a_node_that_mpirun_does_not_reach_is_named(network: Network) -> None:
    for name in ("n2", "n5", "n6"):
        network.on(name, "ip", "link", "set", "mgmt0", "down")
    found = opened(network)
    assert found["links"] == 5, found
    assert len(found["refused"]) == 3
