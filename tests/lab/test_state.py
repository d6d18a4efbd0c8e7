"""Settings of single nodes that no rule is about, over real SSH servers in namespaces: all are compared and named."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from fabtui.lab.network import Network, missing
from tests.lab.field import QUICK, network_in, run
from tests.lab.test_node_facts import bind, change, preflight

pytestmark = [pytest.mark.skipif(missing() is not None, reason=f"no network: {missing()}"), pytest.mark.planted]

CONF = Path("/etc/nccl.conf")
#: What is planted on nodes, and the keys that differ.
COMMANDS = {
    "n1": (
        ("sysctl -wq net.ipv4.tcp_rmem='4096 8192 8192'", "sysctl.net.ipv4.tcp_rmem"),
        ("ip link set eth1 mtu 1500", "link.eth1.mtu"),
        ("mount -t tmpfs -o size=64k,noexec tmpfs /dev/shm", "fs./dev/shm.size"),
    ),
    "n2": (
        ("sysctl -wq net.ipv4.ip_local_port_range='40000 40999'", "sysctl.net.ipv4.ip_local_port_range"),
        ("ip route add blackhole 10.77.0.0/16", "route.254 10.77.0.0/16"),
        ("ip rule add from 10.9.0.0/16 lookup main pref 77", "rule.2.77"),
    ),
    "n3": (("sysctl -wq net.core.somaxconn=16", "sysctl.net.core.somaxconn"),),
}


def typed(network: Network, step: str) -> str:
    done = subprocess.run(["sh", "-c", step], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, (step, done.stderr)
    return done.stdout


def plant(network: Network) -> None:
    for node, planted in COMMANDS.items():
        for command, _ in planted:
            network.on(node, "sh", "-c", command)
    bind(network, "n1", "nccl.conf", "NCCL_SOCKET_IFNAME=mgmt0\nNCCL_P2P_DISABLE=1\n", str(CONF))
    own = (network.folder / "sshd_config").read_text()
    odd = own.replace("SetEnv ", 'SetEnv "GLOO_SOCKET_IFNAME=mgmt0" "https_proxy=http://ada:hunter2@10.0.0.9:3128" ')
    bind(network, "n3", "sshd", odd, str(network.folder / "sshd_config"))
    change(network, "n3", "taskset -c 0 prlimit --nofile=5000:5000 --nproc=9000:9000 ")


def test_settings_that_no_rule_is_about_are_named_with_node_and_value(network: Network) -> None:
    plant(network)
    # n0 has the MAC address of n3 for n2, which passes everything on.
    there = network.on("n3", "cat", "/sys/class/net/eth0/address").strip()
    network.on("n0", "ip", "neigh", "replace", "10.1.0.3", "lladdr", there, "nud", "permanent", "dev", "eth0")
    code, found, printed = preflight(network, "--all")
    assert code == 1, printed
    differs = {node["name"]: set(node["differs_in"]) for node in found["nodes"]}
    for node, planted in COMMANDS.items():
        assert {key for _, key in planted} <= differs[node], printed
    assert {"nccl.conf./etc.NCCL_SOCKET_IFNAME", "nccl.conf./etc.NCCL_P2P_DISABLE"} <= differs["n1"]
    assert {"env.GLOO_SOCKET_IFNAME", "env.https_proxy", "cpus", "nofile", "limit.processes"} <= differs["n3"]
    assert differs["n0"] == {"lladdr 10.1.0.3"}, printed
    texts = "\n".join(f"{one['nodes']} {one['title']} {' '.join(one['evidence'])}" for one in found["findings"])
    for words in (
        "net.ipv4.tcp_rmem: 8 KiB 8 KiB, not 128 KiB",
        "route.254 10.77.0.0/16: blackhole",
        "n0 has a permanent neighbour entry with the MAC of n3 for n2",
        "net.core.somaxconn 16, 4096 on 3 others",
        "GLOO_SOCKET_IFNAME: mgmt0, not none as on 3 others",
        "usable CPUs: 1, not",
    ):
        assert words in texts, printed
    assert "hunter2" not in printed + str(found)
    steps = [step for one in found["findings"] for step in one["next"] if one["rule"] == "fact-differs"]
    results = [typed(network, step) for step in dict.fromkeys(steps) if "sudo" not in step and "findmnt" not in step]
    assert any("affinity list: 0\n" in text for text in results), steps


def test_a_run_has_the_differences_of_a_node_that_something_else_blames(network: Network) -> None:
    network.plant("n2=firewall")
    network.on("n2", "sysctl", "-wq", "net.ipv4.tcp_rmem=4096 8192 8192", "kernel.msgmax=4242")
    outcome = run(network, network.folder, "--layers", "p2p", *QUICK)
    assert outcome.code == 1, outcome.printed
    lines: list[Any] = [line for one in outcome.saved["findings"] for line in one["evidence"]]
    assert any(str(line).startswith("differs on n2: net.ipv4.tcp_rmem 8 KiB") for line in lines), outcome.printed


@pytest.fixture
def network(tmp_path_factory: pytest.TempPathFactory) -> Any:
    there = CONF.exists()
    CONF.touch()
    try:
        with network_in(tmp_path_factory.mktemp("state"), 4, 2) as network:
            yield network
    finally:
        if not there:
            CONF.unlink()
