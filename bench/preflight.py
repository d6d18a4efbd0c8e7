"""Warm probe of 64 nodes, against clush running five commands with fewer facts over warm ControlMaster connections.

    python bench/preflight.py [--nodes 64] [--rounds 5]

The nodes are real OpenSSH servers on loopback addresses of this machine, with an empty home folder, so that no shell
start file is measured. Both sides have their connections before the clock runs: clush those of its ControlMasters,
fabtui its links. In each round clush runs the five commands on all nodes one after the other. Then it runs all five in
one line, its best case. fabtui runs its probe ``host``. It reads the facts of those five commands, and ACS, IOMMU,
GPUDirect, control groups, NUMA and versions. Ratios are of the same round; their medians count. The servers and both
clients share the processors of this machine.
"""

import argparse
import asyncio
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import loopback
from bars import held

from fabtui.diagnosis.preflight.checks import preflight
from fabtui.model.events import InventoryUpdate, ProbeResult, SessionStart
from fabtui.model.session_model import Model
from fabtui.session.node_client import NodeClient
from fabtui.transport.connector import Connector, ConnectorOptions

BAR = 20.0
COMMANDS = (
    "ulimit -l",
    "cat /proc/meminfo",
    "cat /proc/cpuinfo",
    "df -B1 /dev/shm",
    "cat /proc/sys/kernel/random/boot_id",
)
DEADLINE = 60.0


class Round(NamedTuple):
    """The seconds of one round."""

    five: float
    one: float
    look: float


class Clush:
    """ClusterShell over ControlMaster connections."""

    def __init__(self, program: str, config: Path, nodes: list[str], sockets: Path) -> None:
        self._nodes = nodes
        masters = f"Host *\n  ControlMaster auto\n  ControlPath {sockets}/%n\n  ControlPersist 300\n"
        self._config = config.with_name("clush_config")
        self._config.write_text(masters + config.read_text())
        self._argv = [program, "-f", str(len(nodes)), "-w", ",".join(nodes), "-o", f"-F {self._config}", "-N", "-q"]

    def run(self, command: str) -> float:
        """Run a command on all nodes; returns the seconds it took."""
        began = time.perf_counter()
        done = subprocess.run([*self._argv, command], capture_output=True, text=True, timeout=DEADLINE)
        took = time.perf_counter() - began
        lines = done.stdout.count("\n")
        if done.returncode or lines < len(self._nodes):
            raise SystemExit(f"clush failed ({lines} lines): {done.stderr[-500:]}")
        return took

    def close(self) -> None:
        for node in self._nodes:
            argv = ["ssh", "-F", str(self._config), "-O", "exit", node]
            subprocess.run(argv, capture_output=True, timeout=DEADLINE)


async def _drain(client: NodeClient) -> None:
    async for _ in client.messages():
        pass


def _nothing(*_: Any) -> None:
    """Take what nobody waits for."""


async def look(remotes: list[NodeClient]) -> tuple[float, list[dict[str, Any]]]:
    """Look at all nodes; returns the seconds it took and what each gave."""
    began = time.perf_counter()
    found = await asyncio.gather(*(remote.probe("host", {}, DEADLINE) for remote in remotes))
    return time.perf_counter() - began, list(found)


async def measure(config: Path, nodes: list[str], clush: Clush, rounds: int) -> list[Round]:
    """Open the links, warm everything up, and run the rounds."""
    async with Connector(ConnectorOptions(ssh_config=config, connect_timeout=DEADLINE), notice=print) as reach:
        links = await asyncio.gather(*(reach.open(node) for node in nodes))
        remotes = [NodeClient(link) for link in links]
        serving = [asyncio.create_task(_drain(remote)) for remote in remotes]
        try:
            await asyncio.to_thread(clush.run, "true; echo")
            _, values = await look(remotes)
            check(nodes, values)
            found = []
            for _ in range(rounds):
                five = sum([await asyncio.to_thread(clush.run, command) for command in COMMANDS])
                one = await asyncio.to_thread(clush.run, "; ".join(COMMANDS))
                found.append(Round(five, one, (await look(remotes))[0]))
            return found
        finally:
            await asyncio.gather(*(link.close() for link in links))
            await asyncio.gather(*serving, return_exceptions=True)


def check(nodes: list[str], values: list[dict[str, Any]]) -> None:
    """Make sure that each node gave what the five commands print; show what comparing all of them costs."""
    for node, value in zip(nodes, values, strict=True):
        printed = [
            value["limits"]["memlock"]["soft"],
            value["memory"]["available"],
            value["processors"]["threads"],
            value["memory"]["shm_size"],
            value["identity"]["boot_id"],
        ]
        if any(word is None for word in printed):
            raise SystemExit(f"{node} did not print everything: {printed}")
    model = Model()
    model.apply(SessionStart(format=1, version="", nodes=nodes, options={}, faults=[], time=0.0))
    for node, value in zip(nodes, values, strict=True):
        model.apply(InventoryUpdate(node=node, value={"kernel": "x"}))
        model.apply(ProbeResult(node=node, probe="host", value=value))
    began = time.perf_counter()
    found = preflight(model)
    took = (time.perf_counter() - began) * 1e3
    print(f"{len(nodes)} nodes probed at and compared: {len(found.table.facts)} facts, {took:.0f} ms to compare them")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=64, help="how many nodes (64)")
    parser.add_argument("--rounds", type=int, default=5, help="how many rounds (5)")
    options = parser.parse_args()
    if lacking := loopback.lacking():
        print(f"not run: {lacking}")
        return 0
    program = loopback.clush()
    assert program is not None
    with loopback.nodes(options.nodes) as place:
        sockets = place.folder / "s"
        sockets.mkdir(mode=0o700)
        clush = Clush(program, place.config, place.names, sockets)
        try:
            rounds = asyncio.run(measure(place.config, place.names, clush, options.rounds))
        finally:
            clush.close()
    return show(rounds)


def show(rounds: list[Round]) -> int:
    """Print the medians and the ratios; returns the exit code."""
    look_time = statistics.median(one.look for one in rounds)
    print(f"{'':44} {'median s':>9} {'x look':>7} {'bar':>5}")
    print(f"{'fabtui, one look (host)':44} {look_time:9.3f}")
    ratios = {}
    for name, title in (("five", "clush, five commands"), ("one", "clush, the five in one line")):
        times = [getattr(one, name) for one in rounds]
        ratios[name] = statistics.median(time / one.look for time, one in zip(times, rounds, strict=True))
        bar = f"{BAR:.0f}" if name == "five" else ""
        kept = "" if name != "five" else held(ratios[name], BAR, least=True)
        print(f"{title:44} {statistics.median(times):9.3f} {ratios[name]:7.1f} {bar:>5} {kept}")
    return 0 if ratios["five"] >= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
