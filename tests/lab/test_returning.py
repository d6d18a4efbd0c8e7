"""A node whose network is cut for a while, end to end."""

import re
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from fabtui.lab.network import Network, missing
from fabtui.model.measurement import Verdict
from fabtui.model.recording import read_events
from fabtui.model.session_model import Model
from tests.lab.field import network_in

pytestmark = pytest.mark.skipif(missing() is not None, reason=f"no network: {missing()}")

#: Faults with their time (s) and what is reported: a cut link is silent, a node without power ends its connections.
FAULTS = {"cut": (14.0, "lost: no answer for 1"), "down": (3.0, "lost: Connection lost")}


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    with network_in(tmp_path_factory.mktemp("cut"), 3, 1, management="mgmt0") as network:
        yield network


@pytest.mark.parametrize("fault", FAULTS)
def test_a_node_that_is_gone_in_mid_sweep_comes_back_and_its_pairs_are_tested(network: Network, fault: str) -> None:
    seconds, lost = FAULTS[fault]
    record = network.folder / f"{fault}.jsonl"
    argv = [sys.executable, "-m", "fabtui", "run", "--nodes", ",".join(network.names), "--ssh-config"]
    argv += [
        str(network.ssh_config),
        "--remote-python",
        sys.executable,
        "--ranks-per-node",
        "2",
        "--record",
        str(record),
    ]
    # Many messages, one pair at a time: the sweep lasts for some seconds.
    argv += ["--probes", "p2p", "--layers", "p2p", "--bytes", "256K", "--iters", "3000", "--isolated", "--timeout", "8"]
    process = subprocess.Popen(network.controller(argv), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    over = threading.Timer(150.0, process.kill)
    over.start()
    assert process.stdout is not None
    lines: list[str] = []
    cut = False
    for line in map(bytes.decode, process.stdout):
        lines.append(line)
        if line.startswith("p2p: ") and not cut:
            cut = True
            network.plant(f"n1={fault}")
            threading.Timer(seconds, network.heal).start()
    code = process.wait()
    over.cancel()
    printed = "".join(lines)
    model = Model()
    for event in read_events(record):
        model.apply(event)
    assert f"n1: {lost}" in printed
    assert "n1: is back" in printed
    assert re.search(r"n1 was gone for \d+ s, and is back", printed), printed
    assert "frozen" not in printed
    assert not model.untested, printed
    verdicts = {(m.src, m.dst): model.verdict(m) for m in model.measurements() if m.layer == "p2p"}
    assert len(verdicts) == 30, printed
    assert not {pair for pair, verdict in verdicts.items() if verdict not in (Verdict.OK, Verdict.SLOW)}, printed
    assert code in (0, 1), "busy processors slow pairs of CPU ranks"
