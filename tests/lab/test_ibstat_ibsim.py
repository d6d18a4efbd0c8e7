"""The ibstat probe against the real ``ibstat`` on a simulated InfiniBand fabric."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fabtui_node.probes.rdma import ibstat
from fabtui_node.system import run_command

PRELOADS = sorted(Path("/usr/lib").glob("**/umad2sim/libumad2sim.so"))

pytestmark = pytest.mark.skipif(
    not (PRELOADS and shutil.which("ibsim") and run_command.find("ibstat")), reason="ibsim or ibstat is not here"
)

# One switch; the second host's link runs at a quarter of its width.
TOPOLOGY = """\
Switch	8 "leaf1"
[1]	"n000 mlx5_0"[1] w=3 s=7 e=7
[2]	"n001 mlx5_0"[1] w=1 s=7 e=7

Hca	1 "n000 mlx5_0"
[1]	"leaf1"[1] w=3 s=7 e=7

Hca	1 "n001 mlx5_0"
[1]	"leaf1"[2] w=1 s=7 e=7

"""

DEADLINE = 20.0

# ibsim listens on this many ports in a row, and ends if one is in use.
PORTS = 11


def free_ports() -> int:
    """Return the first of the ports of an ibsim, below those that the kernel hands out to others meanwhile."""
    for first in random.sample(range(20_000, 30_000, PORTS), 100):
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in range(first, first + PORTS):
                stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)).bind(("0.0.0.0", port))
            return first
    raise AssertionError("no ports are free for ibsim")


def is_bound(port: int) -> bool:
    return f":{port:04X} " in Path("/proc/net/udp").read_text()


class Fabric:
    """A running ``ibsim``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_ports()
        (folder / "lab.net").write_text(TOPOLOGY)
        self.log = folder / "log"
        argv = ["ibsim", "-s", "-r", "-l", str(self.port), "lab.net"]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                argv, cwd=folder, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
            )
        end = time.monotonic() + DEADLINE
        while not is_bound(self.port + PORTS - 1):
            assert time.monotonic() < end, self.log.read_text()
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.02)

    def send_command(self, command: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{command}\n".encode())
        self.process.stdin.flush()

    def stop(self) -> None:
        self.process.kill()
        self.process.wait(DEADLINE)

    def look(self, host: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
        """Run the probe as a node of this fabric."""
        tools = self.folder / "bin"
        tools.mkdir(exist_ok=True)
        # The preloaded library keeps files in the current folder, and is for the tool alone.
        (tools / "ibstat").write_text(
            f'#!/bin/sh\ncd "{self.folder}" && LD_PRELOAD={PRELOADS[0]} exec {run_command.find("ibstat")} "$@"\n'
        )
        (tools / "ibstat").chmod(0o755)
        with monkeypatch.context() as patch:
            patch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
            patch.setenv("SIM_HOST", f"{host} mlx5_0")
            patch.setenv("IBSIM_SERVER_NAME", "127.0.0.1")
            patch.setenv("IBSIM_SERVER_PORT", str(self.port))
            return ibstat.run({}, None, DEADLINE, str(self.folder / "no-sysfs"))


@pytest.fixture
def fabric(tmp_path: Path) -> Iterator[Fabric]:
    made = Fabric(tmp_path)
    yield made
    made.stop()


def only_port(value: dict[str, Any]) -> dict[str, Any]:
    assert (value["source"], value["error"]) == ("ibstat", None), value
    ((port,),) = (ca["ports"] for ca in value["cas"])
    return dict(port)


def test_two_nodes(fabric: Fabric, monkeypatch: pytest.MonkeyPatch) -> None:
    full, quarter = (only_port(fabric.look(host, monkeypatch)) for host in ("n000", "n001"))
    # No subnet manager runs: the links are up and not configured.
    assert (full["state"], full["physical_state"], full["lid"]) == ("Initializing", "LinkUp", 0)
    assert full["rate"] == 4 * quarter["rate"]
    assert full["guid"] != quarter["guid"]


def test_a_pulled_cable(fabric: Fabric, monkeypatch: pytest.MonkeyPatch) -> None:
    fabric.send_command('Unlink "n001 mlx5_0"[1]')
    end = time.monotonic() + DEADLINE
    port = only_port(fabric.look("n001", monkeypatch))
    while port["state"] != "Down" and time.monotonic() < end:
        port = only_port(fabric.look("n001", monkeypatch))
    assert (port["state"], port["physical_state"]) == ("Down", "Polling")
    assert only_port(fabric.look("n000", monkeypatch))["physical_state"] == "LinkUp"


def test_a_host_that_is_not_on_the_fabric(fabric: Fabric, monkeypatch: pytest.MonkeyPatch) -> None:
    value = fabric.look("n009", monkeypatch)
    assert (value["source"], value["cas"]) == ("none", [])
    assert "connect failed" in value["error"]
