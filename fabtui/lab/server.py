"""Lab process: the SSH servers of all nodes of a lab.

`fabtui.lab.lab` starts it. It reads one line of JSON with the nodes to create, and prints one line of JSON with their
addresses. It ends, with all processes on its nodes, when its standard input closes or its parent ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import json
import logging
import os
import re
import shutil
import sys
import tempfile
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import asyncssh

from fabtui.lab.spec import Fault, LabSpec, NodeFault, parse_faults
from fabtui.lab.ssh_node import LabNode, Place, address_of, node_environment
from fabtui_node.runtime import reap

PARENT_CHECK = 0.5
# The node sides end by themselves when their input closes; what has not ended by then is killed.
END_GRACE = 2.0


def visible_gpus(dev: Path = Path("/dev")) -> list[str]:
    """Return what ``CUDA_VISIBLE_DEVICES`` may name here, one text per GPU; blocks for a moment.

    A list in the environment is respected: the user may have been given only these GPUs.
    """
    count = _nvml_count()
    if count is None:
        count = sum(1 for entry in dev.glob("nvidia*") if re.fullmatch(r"nvidia[0-9]+", entry.name))
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is None:
        return [str(index) for index in range(count)]
    names = [name.strip() for name in given.split(",") if name.strip() not in ("", "-1")]
    return names if count else []


def _nvml_count() -> int | None:
    try:
        import pynvml
    except ImportError:
        return None
    with contextlib.suppress(pynvml.NVMLError):
        pynvml.nvmlInit()
        try:
            return int(pynvml.nvmlDeviceGetCount())
        finally:
            pynvml.nvmlShutdown()
    return None


def divide(gpus: Sequence[str], endpoints: Sequence[int]) -> tuple[list[list[str]], str | None]:
    """Return the GPUs of each node by its number of endpoints, and a note for the user if there are none.

    Either every endpoint of the lab is a GPU, or none is: mixed endpoints cannot be compared.
    """
    wanted = sum(endpoints)
    if len(gpus) < wanted:
        found = f"{len(gpus)} GPU{'s' * (len(gpus) != 1)}" if gpus else "no GPU"
        note = f"this machine has {found}, the lab {wanted} endpoint{'s' * (wanted != 1)}: using CPU ranks"
        return [[] for _ in endpoints], note
    shares, start = [], 0
    for count in endpoints:
        shares.append(list(gpus[start : start + count]))
        start += count
    return shares, None


class LabServer:
    """The nodes of a lab, with a private folder for the files of the SSH client."""

    def __init__(self, spec: LabSpec, faults: Sequence[Fault], folder: Path) -> None:
        self._folder = folder
        self._lab = uuid.uuid4().hex
        self._shares, self._note = divide(visible_gpus(), spec.endpoints)
        self._endpoints = spec.endpoints
        self._nodes = [
            self._node(name, number, count, [f for f in faults if isinstance(f, NodeFault) and f.node == name])
            for number, (name, count) in enumerate(spec.nodes.items())
        ]

    def _node(self, name: str, number: int, endpoints: int, faults: list[NodeFault]) -> LabNode:
        mark = f"{self._lab}-{name}"
        environment = node_environment(
            os.environ, name, address_of(number), endpoints, self._shares[number], sys.executable, mark
        )
        environment.update(fault.variable for fault in faults if fault.variable is not None)
        return LabNode(name, number, environment, next((fault for fault in faults if fault.variable is None), None))

    async def listen(self) -> dict[str, Any]:
        """Open all nodes and write the client's files; return the report for the controller."""
        key = asyncssh.generate_private_key("ssh-ed25519")
        client = asyncssh.import_authorized_keys(key.export_public_key().decode("ascii"))
        for node in self._nodes:
            await node.listen(client)
        places = [node.place for node in self._nodes]
        config = write_files(self._folder, key, places)
        return {
            "dir": str(self._folder),
            "ssh_config": str(config),
            "note": self._note,
            "nodes": [
                {"name": p.name, "address": p.address, "port": p.port, "endpoints": endpoints, "gpus": gpus}
                for p, endpoints, gpus in zip(places, self._endpoints, self._shares, strict=True)
            ],
        }

    def reap_orphans(self) -> None:
        """Collect ended orphans that this process inherited; asyncio collects its own commands."""
        own = set().union(*(node.pids for node in self._nodes))
        while True:
            try:
                # Without collecting it: the next ended process may be a command that asyncio waits for.
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None or ended.si_pid in own:
                return
            os.waitpid(ended.si_pid, os.WNOHANG)

    def close(self) -> None:
        """Stop listening and cut all connections."""
        for node in self._nodes:
            node.close()
            for connection in list(node.connections):
                connection.abort()


def write_files(folder: Path, key: asyncssh.SSHKey, places: Sequence[Place]) -> Path:
    """Write client key, known_hosts and ssh_config into a private folder; returns the path of the ssh_config."""
    key_file, known_hosts, config = folder / "client_key", folder / "known_hosts", folder / "ssh_config"
    key_file.touch(mode=0o600)
    key_file.write_bytes(key.export_private_key())
    known_hosts.write_text("".join(f"[{p.address}]:{p.port} {p.host_key}\n" for p in places))
    config.write_text("\n".join(_host(place, key_file, known_hosts) for place in places))
    return config


def _host(place: Place, key_file: Path, known_hosts: Path) -> str:
    # The only characters that a temporary folder's name could hold and an ssh_config could misread.
    key, known = ('"' + str(path).replace("%", "%%") + '"' for path in (key_file, known_hosts))
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        # For users without a name: the servers accept any.
        user = "fabtui"
    lines = [
        f"HostName {place.address}",
        f"Port {place.port}",
        f"User {user}",
        f"IdentityFile {key}",
        "IdentitiesOnly yes",
        "IdentityAgent none",
        f"UserKnownHostsFile {known}",
        "GlobalKnownHostsFile /dev/null",
        "StrictHostKeyChecking yes",
        "BatchMode yes",
        "ControlPath none",
        "LogLevel ERROR",
    ]
    return f"Host {place.name}\n" + "".join(f"    {line}\n" for line in lines)


async def _until_not_needed(server: LabServer, parent: int) -> None:
    """Wait for the end of standard input or of the parent process."""
    over = asyncio.Event()

    def read_input() -> None:
        if not os.read(0, 4096):
            over.set()

    loop = asyncio.get_running_loop()
    loop.add_reader(0, read_input)
    while not over.is_set() and os.getppid() == parent:
        try:
            async with asyncio.timeout(PARENT_CHECK):
                await over.wait()
        except TimeoutError:
            server.reap_orphans()
    loop.remove_reader(0)


async def _serve(server: LabServer, parent: int) -> None:
    try:
        found = await server.listen()
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()
        await _until_not_needed(server, parent)
    finally:
        server.close()
        # Lets the streams of the commands close before this process blocks in ending them.
        await asyncio.sleep(0.05)
        # The processes are collected there; asyncio would log warnings about them.
        logging.disable()
        reap.end_descendants(grace=END_GRACE)


def main() -> int:
    """Run a lab until it is not needed any more; return the exit status."""
    parent = os.getppid()
    reap.become_subreaper()
    spec, faults = read_order(_first_line())
    folder = Path(tempfile.mkdtemp(prefix="fabtui-lab-"))
    try:
        asyncio.run(_serve(LabServer(spec, faults, folder), parent))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def read_order(line: str) -> tuple[LabSpec, list[Fault]]:
    """Return the nodes and faults that a line of JSON asks for."""
    given = json.loads(line)
    spec = LabSpec(tuple(given["endpoints"]))
    return spec, parse_faults(given["faults"], spec)


def _first_line() -> str:
    line = b""
    # Byte by byte: what follows is watched for its end.
    while not line.endswith(b"\n") and (more := os.read(0, 1)):
        line += more
    return line.decode("utf-8")


if __name__ == "__main__":
    sys.exit(main())
