"""Simulated nodes of a lab: an SSH server for each, on a loopback address, and its faults."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import logging
import os
import re
import signal
import socket
import sys
import time
import uuid
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

import asyncssh

from fabtui.lab.faults import Fault, LabSpec, parse_faults, places_of
from fabtui_node.probes.nvidia import nvml
from fabtui_node.runtime import processes

# The node sides end by themselves when their input closes; what has not ended by then is killed.
END_GRACE = 2.0
# Set for all processes on a node of a lab, with a value unique to the lab.
MARK = "FABTUI_LAB_MARK"

KILL_BOUND = 5.0
SHELL = "/bin/sh"

#: Variables of the caller that the nodes of a lab get.
_PASSED = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|LANG|LANGUAGE|TZ|TMPDIR|LD_LIBRARY_PATH|VIRTUAL_ENV|CONDA_PREFIX"
    r"|(?:LC|CUDA|NVIDIA|NCCL|GLOO|TORCH|OMP|KMP|MKL|OPENBLAS|MALLOC|FABTUI_(?!LAB_))_?[A-Z0-9_]*|PYTHON[A-Z]+"
)


def address_of(number: int) -> str:
    """Return the loopback address of the node with a number from 0: 127.0.60.10 and up."""
    high, low = divmod(number + 10, 256)
    return f"127.0.{60 + high}.{low}"


def node_environment(
    base: Mapping[str, str], name: str, address: str, endpoints: int, gpus: Sequence[str], python: str, mark: str
) -> dict[str, str]:
    """Return the environment of the commands on a node: what a login has, and what libraries of ranks read.

    All else of the caller's may be secret and would not reach a real node either.

    The interpreter is for the rank host. There are no GPUs for CPU ranks. The mark identifies the processes of this
    node among all others of the machine.
    """
    kept = {key: value for key, value in base.items() if _PASSED.fullmatch(key)}
    own = {
        "FABTUI_LAB_NODE": name,
        "FABTUI_LAB_ENDPOINTS": str(endpoints),
        "FABTUI_LAB_ADDRESS": address,
        "FABTUI_LAB_PYTHON": python,
        MARK: mark,
        # Empty, not unset: a node with CPU ranks has no GPUs, even if the machine has some.
        "CUDA_VISIBLE_DEVICES": ",".join(gpus),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }
    if gpus:
        # Makes NCCL believe that nodes are different hosts.
        own["NCCL_HOSTID"] = f"fabtui-lab-{name}"
    return {**kept, **own}


class _Server(asyncssh.SSHServer):
    def __init__(self, node: LabNode) -> None:
        self._node = node
        self._connection: asyncssh.SSHServerConnection | None = None

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connection = conn
        self._node.connections.add(conn)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._connection is not None:
            self._node.connections.discard(self._connection)


class LabNode:
    """A node: its listening socket, its connections and its commands, which get the environment."""

    def __init__(self, name: str, number: int, environment: Mapping[str, str], fault: Fault | None) -> None:
        self.name = name
        self.environment = environment
        home = environment.get("HOME", "/")
        self.home = home if os.path.isdir(home) else "/"
        self.connections: set[asyncssh.SSHServerConnection] = set()
        self.pids: set[int] = set()
        self._commands: set[asyncio.Task[None]] = set()
        self._fault = fault
        self._key = asyncssh.generate_private_key("ssh-ed25519")
        self._listener: asyncssh.SSHAcceptor | asyncio.Server | None = None
        self._client: asyncssh.SSHAuthorizedKeys | None = None
        self._dying: asyncio.Task[None] | None = None
        self.address = address_of(number)
        self._socket = self._bound(0)
        self.port = self._socket.getsockname()[1]

    def _bound(self, port: int) -> socket.socket:
        made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((self.address, port))
        return made

    @property
    def host_key(self) -> str:
        return self._key.export_public_key().decode("ascii").strip()

    async def turn(self, fault: Fault | None) -> None:
        """Plant a fault in a node that listens, or take it back: ``down`` kills its processes, ``stop`` stops them."""
        self.close()
        mark, pids = self.environment[MARK], frozenset(self.pids)
        if fault is None:
            await asyncio.to_thread(signal_marked, mark, pids, signal.SIGCONT)
        elif fault.kind.name == "stop":
            await asyncio.to_thread(signal_marked, mark, pids, signal.SIGSTOP)
        else:
            for connection in list(self.connections):
                connection.abort()
            await asyncio.to_thread(kill_marked, mark, pids)
        self._fault = fault
        self._socket.close()
        self._socket = self._bound(self.port)
        assert self._client is not None
        await self.listen(self._client)

    async def listen(self, client: asyncssh.SSHAuthorizedKeys) -> None:
        """Accept connections; a node that is down keeps its port, but does not listen."""
        self._client = client
        kind = "" if self._fault is None else self._fault.kind.name
        if kind == "down":
            return
        if kind == "stop":
            self._listener = await asyncio.start_server(self._never_answer, sock=self._socket)
            return
        self._listener = await asyncssh.listen(
            sock=self._socket,
            server_factory=lambda: _Server(self),
            process_factory=lambda process: self._begin(self._run(process)),
            server_host_keys=[self._key],
            authorized_client_keys=client,
            password_auth=False,
            kbdint_auth=False,
            gss_host=None,
            encoding=None,
            line_editor=False,
            allow_pty=False,
            agent_forwarding=False,
            config=None,
        )

    async def _never_answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.read(4096):
                pass
        except OSError:
            pass
        finally:
            writer.close()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._commands.add(task)
        task.add_done_callback(self._commands.discard)

    async def _run(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        """Run a command as an SSH server runs it: in its own session, its streams connected to the channel.

        When the channel ends, only its streams are closed, as with a real server: the command has to end itself.
        """
        argv = [SHELL] if process.command is None else [SHELL, "-c", process.command]
        (from_stdout, stdout), (from_stderr, stderr) = os.pipe(), os.pipe()
        try:
            command = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=stdout,
                stderr=stderr,
                env=dict(self.environment),
                cwd=self.home,
                start_new_session=True,
            )
        except OSError as error:
            for descriptor in (from_stdout, from_stderr):
                os.close(descriptor)
            with contextlib.suppress(OSError):
                process.stderr.write(f"cannot run {SHELL}: {error}\n".encode())
                process.exit(127)
            return
        finally:
            for descriptor in (stdout, stderr):
                os.close(descriptor)
        self._started(command.pid)
        await process.redirect(None, from_stdout, from_stderr, send_eof=False)
        self._begin(feed(process, command))
        if process.is_closing():
            # The channel ended while the command was started.
            process.connection_lost(None)
        status = await command.wait()
        self.pids.discard(command.pid)
        with contextlib.suppress(OSError, asyncssh.Error):
            # Its descendants may still print.
            await process.stdout.drain()
            await process.stderr.drain()
            if status < 0:
                process.exit_with_signal(signal.Signals(-status).name.removeprefix("SIG"))
            else:
                process.exit(status)

    def _started(self, pid: int) -> None:
        """Register a command's process; the first one starts the clock of a ``dead-after``."""
        self.pids.add(pid)
        if self._dying is None and self._fault is not None and self._fault.kind.name == "dead-after":
            self._dying = asyncio.get_running_loop().create_task(self._die(self._fault.value))

    async def _die(self, after: float) -> None:
        await asyncio.sleep(after)
        self.close()
        for connection in list(self.connections):
            connection.abort()
        await asyncio.to_thread(kill_marked, self.environment[MARK], frozenset(self.pids))

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None


async def feed(process: asyncssh.SSHServerProcess[bytes], command: asyncio.subprocess.Process) -> None:
    """Pass on input and signals of the client. Not by a redirection of asyncssh, which loses input that has to wait."""
    assert command.stdin is not None
    with contextlib.suppress(OSError, asyncssh.Error):
        while not process.stdin.at_eof():
            try:
                command.stdin.write(await process.stdin.read(64 * 1024))
                await command.stdin.drain()
            except asyncssh.SignalReceived as received:
                number = getattr(signal, "SIG" + received.signal, None)
                if isinstance(number, signal.Signals):
                    # To the process group, as OpenSSH does.
                    os.killpg(command.pid, number)
    command.stdin.close()


def kill_marked(mark: str, pids: frozenset[int], bound: float = KILL_BOUND) -> None:
    """SIGKILL the processes of a node until none is left or the time (s) is over; blocks."""
    until = time.monotonic() + bound
    while signal_marked(mark, pids, signal.SIGKILL) and time.monotonic() <= until:
        time.sleep(0.02)


def signal_marked(mark: str, pids: frozenset[int], number: signal.Signals) -> bool:
    """Send a signal to the processes below this one that belong to a node; return True if there are any.

    The mark finds orphaned processes. Descendants of its commands ``pids`` belong to the node, marked or not.
    """
    wanted = f"{MARK}={mark}".encode()
    table = processes.process_table()
    below = processes.descendants([os.getpid()], table)
    roots = {pid for pid in below if pid in pids or wanted in processes.environment(pid)}
    targets = (roots | processes.descendants(roots, table)) & below
    processes.send(targets, number)
    return bool(targets)


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
        library = nvml.open_library()
    except nvml.Unavailable:
        return None
    count = nvml.number(nvml.ask(library.nvmlDeviceGetCount))
    nvml.ask(library.nvmlShutdown)
    return count


def divide(gpus: Sequence[str], endpoints: Sequence[int]) -> tuple[list[list[str]], str | None]:
    """Return the GPUs of each node by its number of endpoints, and a note for the user if there are none.

    Either every endpoint of the lab is a GPU, or none is: mixed endpoints cannot be compared.
    """
    wanted = sum(endpoints)
    if len(gpus) < wanted:
        there = f"{len(gpus)} GPU{'s' * (len(gpus) != 1)}" if gpus else "No GPU"
        note = f"{there} here: the lab runs {wanted} CPU rank{'s' * (wanted != 1)}"
        return [[] for _ in endpoints], note
    shares, start = [], 0
    for count in endpoints:
        shares.append(list(gpus[start : start + count]))
        start += count
    return shares, None


class LabServer:
    """The simulated nodes of a lab, with a private folder for the files of the SSH client."""

    def __init__(self, spec: LabSpec, faults: Sequence[Fault], folder: Path) -> None:
        self._spec = spec
        self._folder = folder
        self._lab = uuid.uuid4().hex
        self._shares, self._note = divide(visible_gpus(), spec.endpoints)
        self._faults = {fault.where: fault for fault in faults}
        self._nodes = {
            name: self._node(name, number, count, [f for f in faults if f.kind.place == "node" and f.nodes == (name,)])
            for number, (name, count) in enumerate(spec.nodes.items())
        }

    def _node(self, name: str, number: int, endpoints: int, faults: list[Fault]) -> LabNode:
        mark = f"{self._lab}-{name}"
        environment = node_environment(
            os.environ, name, address_of(number), endpoints, self._shares[number], sys.executable, mark
        )
        environment.update(fault.variable for fault in faults if fault.variable is not None)
        return LabNode(name, number, environment, next((fault for fault in faults if fault.variable is None), None))

    async def start(self) -> dict[str, Any]:
        """Open all nodes and write the client's files; return the report for who wanted the lab."""
        key = asyncssh.generate_private_key("ssh-ed25519")
        client = asyncssh.import_authorized_keys(key.export_public_key().decode("ascii"))
        nodes = list(self._nodes.values())
        for node in nodes:
            await node.listen(client)
        return {
            "ssh_config": str(write_files(self._folder, key, nodes)),
            "note": self._note,
            "nodes": [
                {"name": node.name, "address": node.address, "port": node.port, "endpoints": endpoints, "gpus": gpus}
                for node, endpoints, gpus in zip(nodes, self._spec.endpoints, self._shares, strict=True)
            ],
        }

    @property
    def planted(self) -> list[str]:
        return [fault.text for fault in self._faults.values()]

    async def plant(self, texts: Sequence[str]) -> None:
        """Plant faults; raises ValueError if one cannot be planted."""
        for fault in parse_faults(texts, self._spec, self._faults.values()):
            self._faults[fault.where] = fault
            await self._nodes[fault.nodes[0]].turn(fault)

    async def heal(self, places: Sequence[str]) -> None:
        """Take faults back; raises ValueError if there is none at one of the places."""
        for where in places_of(places, self._faults):
            await self._nodes[self._faults.pop(where).nodes[0]].turn(None)

    def reap_orphans(self) -> None:
        """Collect ended orphans that this process inherited; asyncio collects its own commands."""
        own = set().union(*(node.pids for node in self._nodes.values()))
        while True:
            try:
                # Without collecting it: the next ended process may be a command that asyncio waits for.
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None or ended.si_pid in own:
                return
            os.waitpid(ended.si_pid, os.WNOHANG)

    async def close(self) -> None:
        """End all processes on the nodes, and the servers; the last thing that this process does."""
        for node in self._nodes.values():
            node.close()
            for connection in list(node.connections):
                connection.abort()
        # Lets the streams of the commands close before this process blocks in ending them.
        await asyncio.sleep(0.05)
        # The processes are collected there; asyncio would log warnings about them.
        logging.disable()
        processes.end_descendants(grace=END_GRACE)


def write_files(folder: Path, key: asyncssh.SSHKey, nodes: Sequence[LabNode]) -> Path:
    """Write client key, known_hosts and ssh_config into a private folder; returns the path of the ssh_config."""
    key_file, known_hosts, config = folder / "client_key", folder / "known_hosts", folder / "ssh_config"
    key_file.touch(mode=0o600)
    key_file.write_bytes(key.export_private_key())
    known_hosts.write_text("".join(f"[{node.address}]:{node.port} {node.host_key}\n" for node in nodes))
    config.write_text("\n".join(_host(node, key_file, known_hosts) for node in nodes))
    return config


def _host(node: LabNode, key_file: Path, known_hosts: Path) -> str:
    # The only characters that a temporary folder's name could hold and an ssh_config could misread.
    key, known = ('"' + str(path).replace("%", "%%") + '"' for path in (key_file, known_hosts))
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        # For users without a name: the servers accept any.
        user = "fabtui"
    lines = [
        f"HostName {node.address}",
        f"Port {node.port}",
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
    return f"Host {node.name}\n" + "".join(f"    {line}\n" for line in lines)
