"""Every fault of a lab of namespaces is planted and healed without a trace, and the lab by hand stands and goes."""

import itertools
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fabtui.cli.main import main
from fabtui.lab.faults import FaultKind, kinds
from fabtui.lab.lab import StandingLab, labs_folder
from fabtui.lab.network import Network, missing
from tests.forked import fabtui

pytestmark = pytest.mark.skipif(missing() is not None, reason=f"no network: {missing()}")

NAMES = [f"n{number:03d}" for number in range(4)]


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    folder = tmp_path_factory.mktemp("faults")
    with Network(folder, rails=2, management="mgmt0", relayed=True, names=NAMES) as network:
        yield network


def state(network: Network, place: str) -> list[str]:
    """Return links, addresses, routes, rules and limits of a place, without counters and identifiers."""
    script = "ip -o link; ip -o -4 addr; ip rule; ip -4 route show table all; tc qdisc; nft list ruleset"
    text = network.fabric("sh", "-c", script) if place == "fabric" else network.on(place, "sh", "-c", script)
    lines = re.sub(r"\b(state|group|qlen) \S+|<[^>]*>|linkdown", "", text).split("\n")
    # A bridge takes an address from its first port, and keeps it.
    return sorted(line for line in lines if "elsewhere" not in line)


@pytest.fixture(scope="module")
def before(network: Network) -> dict[str, list[str]]:
    return {place: state(network, place) for place in ("fabric", *NAMES)}


def login(network: Network, name: str, seconds: int = 30) -> str:
    argv = ["ssh", "-F", str(network.ssh_config), "-o", f"ConnectTimeout={seconds}", name, "hostname"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout.strip() or done.stderr


@pytest.mark.parametrize("kind", kinds("root"), ids=lambda kind: f"{kind.place}-{kind.name}")
def test_a_fault_changes_something_and_leaves_nothing(
    network: Network, before: dict[str, list[str]], kind: FaultKind
) -> None:
    network.plant(kind.example)
    # A rule of the network, a link, an interface, or processes.
    if kind.place == "node" and kind.name in ("cut", "stop", "down"):
        assert login(network, "n002", 2) != "n002"
    elif kind.name not in ("pull", "down", "flap") and kind.place != "rail":
        assert any(state(network, place) != known for place, known in before.items())
    network.heal(kind.example)
    assert network.faults == {}
    end = time.monotonic() + 20
    for place, known in before.items():
        # Carriers take a moment.
        while (now := state(network, place)) != known and time.monotonic() < end:
            time.sleep(0.1)
        assert now == known
    assert login(network, "n002") == "n002"
    for name, rail in itertools.product(("n002", "n003"), network.rails):
        network.on(name, "ping", "-c1", "-W5", "-I", network.address(name, rail), network.address("n001", rail))


def test_what_two_faults_share_stays_broken_until_both_are_healed(network: Network) -> None:
    network.plant("n001=cut", "n001.eth0=pull")
    network.heal("n001")
    link = network.fabric("ip", "link", "show", "n001r0")
    assert ",UP" not in link
    network.heal()
    assert ",UP" in network.fabric("ip", "link", "show", "n001r0")


def test_a_lab_by_hand_is_tested_broken_and_gone(capsys: pytest.CaptureFixture[str]) -> None:
    def lab(*words: str) -> str:
        assert main(["lab", *words]) == 0
        return capsys.readouterr().out

    def found() -> tuple[int, str]:
        """Run the printed command as ``fabtui run``."""
        words = f"--nodes n[000-002] --ssh-config {config} --no-record --probes ping,udp"
        done = fabtui("run", *words.split())
        return done.returncode, done.stdout + done.stderr

    config = StandingLab("lab").ssh_config
    try:
        up = lab("up", "--nodes", "3")
        assert f"fabtui --nodes 'n[000-002]' --ssh-config {config}\n" in up
        code, printed = found()
        assert (code, "findings" in printed) == (0, False), printed
        assert lab("fault", "n001.eth1=pull") == "planted: n001.eth1=pull\n"
        code, printed = found()
        assert code == 1
        assert "  1 n001 rail 1 (eth1 10.2.0.2) is down" in printed, printed
        assert lab("heal") == "planted: nothing\n"
        # Killed, it leaves files alone: the namespaces go with its process.
        pid = int((labs_folder() / "lab.lock").read_text())
        held = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        os.kill(pid, signal.SIGKILL)
        end = time.monotonic() + 20
        while any(Path(f"/proc/{one}/ns/net").exists() for one in held) and time.monotonic() < end:
            time.sleep(0.05)
        assert not any(Path(f"/proc/{one}/ns/net").exists() for one in held)
    finally:
        assert lab("down") == "lab: removed\n"
    assert list(labs_folder().iterdir()) == []


def test_the_planted_share_of_packets_is_lost(network: Network) -> None:
    network.plant("n001.eth0=loss-out:20%")
    try:
        ping = network.on("n001", "sh", "-c", f"ping -q -i 0.002 -c 2000 {network.address('n000', 0)} || true")
        # Frames within a rail pass one table of rules, not two: that would be 36 %.
        assert 15 < float(re.findall(r"([\d.]+)% packet loss", ping)[0]) < 25
    finally:
        network.heal()
