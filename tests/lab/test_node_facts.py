"""Limits, names, folders and logins that are wrong on single nodes, over real SSH servers in namespaces."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fabtui.lab.network import Network, missing
from tests.forked import fabtui
from tests.lab.field import QUICK, network_in, run

pytestmark = [pytest.mark.skipif(missing() is not None, reason=f"no network: {missing()}"), pytest.mark.planted]

CGROUPS = Path("/sys/fs/cgroup")
PORT = 29500
LISTENER = f"import socket,time; s=socket.create_server(('0.0.0.0',{PORT})); print('up',flush=True); time.sleep(600)"
HOSTS = "127.0.0.1 localhost\n10.1.0.1 n0\n10.1.0.2 n1\n10.1.0.3 n2\n10.1.0.4 n3\n"
#: On n0, its own name is on the loopback; n2 does not know n3; on n3, n1 is at the address of n2.
ODD = {"n0": ("10.1.0.1 n0", "127.0.1.1 n0"), "n2": ("10.1.0.4 n3\n", ""), "n3": ("10.1.0.2 n1", "10.1.0.3 n1")}


class Group:
    """Control group (version 1) with a limit, which the logins of one node enter."""

    def __init__(self, controller: str, file: str, limit: int) -> None:
        self._controller, self._file, self._limit = controller, file, limit
        self.folder = CGROUPS / controller / f"fabtui-test-{os.getpid()}"

    def __enter__(self) -> Group:
        self.folder.mkdir()
        (self.folder / self._file).write_text(str(self._limit))
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run(
            ["sh", "-c", f"for n in 1 2 3 4 5 6 7 8; do rmdir {self.folder} && break; sleep 1; done"], check=False
        )

    def wrap(self, network: Network, node: str) -> None:
        """Have the logins of a node enter the group, and show it to the node."""
        controller = self._controller
        network.on(
            node, "sh", "-c", f"mkdir -p /sys/fs/cgroup && mount -t cgroup -o {controller} {controller} /sys/fs/cgroup"
        )
        change(network, node, f"sh -c 'echo $$ > {self.folder}/tasks; exec \"$@\"' sh ")


def change(network: Network, node: str, before: str) -> None:
    config = network.ssh_config.read_text()
    changed = config.replace(f"Host {node}\n ProxyCommand ", f"Host {node}\n ProxyCommand {before}")
    assert changed != config
    network.ssh_config.write_text(changed)


def without(controller: str, file: str) -> bool:
    return not (CGROUPS / controller / file).exists() or not os.access(CGROUPS / controller, os.W_OK)


@pytest.fixture
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    with network_in(tmp_path_factory.mktemp("facts"), 4, 2) as network:
        yield network


def preflight(network: Network, *args: str) -> tuple[int, dict[str, Any], str]:
    """Return the exit code, the JSON, and what was printed."""
    path = network.folder / "found.json"
    words = ["--no-record", "--json", str(path), "--remote-python", sys.executable]
    done = fabtui("preflight", "--nodes", "n[0-3]", *words, "--ssh-config", str(network.ssh_config), *args)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, json.loads(path.read_text()), done.stdout


def bind(network: Network, node: str, name: str, text: str, target: str) -> None:
    source = network.folder / f"{node}-{name}"
    source.write_text(text)
    network.on(node, "mount", "--bind", str(source), target)


def plant(network: Network) -> None:
    """Plant the faults, each on one node."""
    for node in network.names:
        bind(network, node, "hosts", HOSTS.replace(*ODD.get(node, ("", ""))), "/etc/hosts")
    # n0 has no PyTorch; n1 sends at a limited rate and has folders without exec.
    config = (network.folder / "sshd_config").read_text()
    empty = network.folder / "empty"
    empty.mkdir()
    network.on("n0", "mount", "--bind", str(empty), sysconfig.get_paths()["purelib"])
    bind(network, "n0", "sshd", re.sub(r'"PYTHONPATH=[^"]*"', "", config), str(network.folder / "sshd_config"))
    network.plant("n1.eth1=slow-out:6MB")
    network.on("n1", "sh", "-c", "mount --bind /var/tmp /var/tmp && mount -o remount,bind,noexec /var/tmp")
    home = network.folder
    network.on("n1", "sh", "-c", f"mount --bind '{home}' '{home}' && mount -o remount,bind,ro '{home}'")
    # The table of n2 is full, its name server does not answer, and a login takes 9 s.
    bind(network, "n2", "resolv", "nameserver 10.1.0.99\n", "/etc/resolv.conf")
    maximum = Path("/proc/sys/net/netfilter/nf_conntrack_max").read_text()
    bind(network, "n2", "count", maximum, "/proc/sys/net/netfilter/nf_conntrack_count")
    change(network, "n2", "sh -c 'sleep 9; exec \"$@\"' sh ")
    # NCCL finds no interface on n3, and Gloo takes the loopback.
    odd = config.replace("SetEnv ", 'SetEnv "NCCL_SOCKET_IFNAME=ib9" "GLOO_SOCKET_IFNAME=lo" ')
    assert odd != config
    bind(network, "n3", "sshd", odd, str(network.folder / "sshd_config"))


def test_what_is_wrong_with_the_surroundings_of_single_nodes(network: Network) -> None:
    plant(network)
    listener = subprocess.Popen(
        network.holder("n1").enter([sys.executable, "-c", LISTENER]), stdout=subprocess.PIPE, text=True
    )
    try:
        assert listener.stdout is not None
        assert listener.stdout.readline() == "up\n"
        code, found, printed = preflight(network, "--master", f"n1:{PORT}")
    finally:
        listener.kill()
        listener.wait()
    assert code == 1, printed
    serious = {(*one["nodes"], one["title"]) for one in found["findings"] if one["severity"] != "note"}
    login, reason = next((one["title"], one["evidence"]) for one in found["findings"] if one["topic"] == "login")
    assert re.fullmatch(r"the login takes \d+(\.\d)? s until Python runs, .* on the others", login), printed
    assert reason == ["looking up the name of 10.1.0.4 takes more than 2 s: sshd waits for it (UseDNS)"], printed
    maximum = Path("/proc/sys/net/netfilter/nf_conntrack_max").read_text().strip()
    assert serious - {("n2", login)} == {
        ("n0", "PyTorch: none, not 2.13.0+cpu as on 3 others"),
        ("n1", "eth1 has the queueing discipline tbf, which limits the rate"),
        ("n1", "/var/tmp mounted noexec: libraries that programs compile there cannot be loaded"),
        ("n1", "the home is read-only: caches of PyTorch extensions, Triton and CUDA cannot be written"),
        (
            "n2",
            f"the table of tracked connections is full (nf_conntrack_count {maximum} of {maximum}): "
            "packets of new connections are dropped",
        ),
        ("n3", "n1 resolves to 10.1.0.3, an address of n2"),
        ("n0", "its own name resolves to 127.0.1.1"),
        ("n3", "NCCL_SOCKET_IFNAME=ib9 matches no interface that has an address: NCCL does not start"),
        ("n3", "GLOO_SOCKET_IFNAME: lo leads to no other node: Gloo connects no ranks of different nodes"),
        ("n3", f"n1:{PORT}: connection refused: nothing listens there, or a firewall rejects, 3 nodes connect"),
    }, printed


def python3_version(path: str) -> str:
    """Return the version of an interpreter, or "" without one."""
    try:
        found = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20, check=False)
    except OSError:
        return ""
    return found.stdout.removeprefix("Python ").strip()


@pytest.mark.skipif(
    python3_version("/usr/bin/python3") in ("", platform.python_version()), reason="no other version of Python here"
)
def test_another_pytorch_and_another_python_are_named_by_their_nodes(tmp_path: Path) -> None:
    with network_in(tmp_path, 5, 1) as network:
        config = network.folder / "sshd_config"
        plain, own = config.read_text(), Path(sys.executable).parent
        # On n2, another python3 without PyTorch comes first.
        other = network.folder / "other"
        other.mkdir()
        (other / "python3").write_text('#!/bin/sh\nunset PYTHONPATH\nexec /usr/bin/python3 "$@"\n')
        (other / "python3").chmod(0o755)
        for node, first in (("n0", own), ("n1", own), ("n2", other), *((name, own) for name in ("n3", "n4"))):
            text = plain.replace("SetEnv ", f'SetEnv "PATH={first}:/usr/sbin:/usr/bin:/sbin:/bin" ')
            assert text != plain
            bind(network, node, "sshd", text, str(config))
        version = Path(sysconfig.get_paths()["purelib"]) / "torch" / "version.py"
        text = re.sub(r"__version__ = .*", "__version__ = '2.1.0+cpu'", version.read_text())
        bind(network, "n1", "version", text, str(version))
        code, found, printed = preflight(network, "--nodes", "n[0-4]", "--remote-python", "python3")
    assert code == 1, printed
    serious = {(*one["nodes"], one["title"]) for one in found["findings"] if one["severity"] != "note"}
    assert serious == {
        ("n1", "n2", "PyTorch: 2.1.0+cpu, none, not 2.13.0+cpu as on 3 others"),
        (
            "n2",
            f"python3 in PATH: {python3_version('/usr/bin/python3')}, not {platform.python_version()} as on 4 others",
        ),
    }, printed
    # A wrong version beside others is a fact about its node, not about a list.
    assert "n1: 2.1.0+cpu" in printed
    assert "n2: none" in printed


@pytest.mark.skipif(without("cpu", "cpu.cfs_quota_us"), reason="no control groups of version 1 with CPU quotas")
def test_a_cpu_quota_is_named(network: Network) -> None:
    with Group("cpu", "cpu.cfs_quota_us", 50_000) as group:
        group.wrap(network, "n1")
        code, found, printed = preflight(network)
    assert code == 1, printed
    (one,) = [one for one in found["findings"] if one["topic"] == "cgroup_cpus"]
    assert one["nodes"] == ["n1"]
    assert one["title"].startswith("CPU limited to 0.5 of a core (cgroup cpu.cfs_quota_us)"), printed


@pytest.mark.skipif(without("memory", "memory.limit_in_bytes"), reason="no control groups of version 1 with limits")
def test_ranks_killed_for_lack_of_memory_say_so(network: Network) -> None:
    with Group("memory", "memory.limit_in_bytes", 60 << 20) as group:
        group.wrap(network, "n1")
        found = run(
            network, network.folder, "--ranks-per-node", "1", *QUICK[2:], "--probes", "host,p2p", "--layers", "p2p"
        )
    assert found.code in (1, 3)
    reason = r"the rank host of n1 ended with signal 9: out of memory: oom_kill \d+ in /proc/vmstat; its control group "
    assert re.search(reason + r"is limited to 60 MiB \(memory.limit_in_bytes\)", found.printed), found.printed
    assert any("memory limited to 60 MiB" in title for title in found.titles), found.printed
