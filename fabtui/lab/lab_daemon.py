"""The process that holds a lab: its nodes end with it, however it ends.

`fabtui.lab.lab` starts it. It reads its order on standard input, and prints one line of JSON: where the nodes' SSH
configuration is, or the problem. Then it serves requests on a socket in the lab's folder, one line of JSON each, until
SIGTERM. A lab without a folder of its own belongs to a session: it ends with that process, or with standard input.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import shutil
import signal
import socket
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from fabtui.lab.faults import LabSpec, parse_faults
from fabtui.lab.lab import SOCKET, Order
from fabtui.lab.network import Network
from fabtui.lab.server import LabServer
from fabtui.sanitize import one_line
from fabtui_node.runtime import processes

#: Pause (s) between two looks at whether the session still lives.
PARENT_CHECK = 0.5
#: Beginning of the name of the folder of a session's lab, and the file in it that this process has locked.
_FOLDER, _LOCK = "fabtui-lab-", "lock"
#: Longest request (bytes), and the time (s) in which it has to come.
_LONGEST, _PATIENCE = 1 << 16, 5.0

T = TypeVar("T")


class HeldNetwork:
    """A network with the methods of `LabServer`, which do not block the event loop.

    All of them run in one thread that lives as long as the process: the namespaces end with the thread that made them.
    """

    def __init__(self, spec: LabSpec, folder: Path) -> None:
        self._spec = spec
        self._folder = folder
        self._thread = ThreadPoolExecutor(1)
        self._network: Network | None = None

    async def start(self) -> dict[str, Any]:
        """Make it; return where the SSH configuration of its nodes is."""
        return {"ssh_config": str((await self._in_thread(self._made)).ssh_config)}

    def _made(self) -> Network:
        self._network = Network(
            self._folder,
            rails=self._spec.rails,
            management="mgmt0",
            relayed=True,
            own=self._variables,
            names=self._spec.names,
        )
        return self._network.__enter__()

    def _variables(self, name: str) -> dict[str, str]:
        """Return the variables of a node: of its CPU ranks, or its part of the GPUs of this machine."""
        spec, variables = self._spec, {"FABTUI_LAB_PYTHON": sys.executable}
        endpoints = spec.endpoints[0]
        if not spec.gpus:
            # All nodes would have the same GPUs.
            return {**variables, "FABTUI_LAB_ENDPOINTS": str(endpoints), "CUDA_VISIBLE_DEVICES": ""}
        first = spec.names.index(name) * endpoints
        chosen = dict.fromkeys(str((first + number) % spec.gpus) for number in range(endpoints))
        # Without it NCCL would take the management network.
        return {**variables, "CUDA_VISIBLE_DEVICES": ",".join(chosen), "NCCL_SOCKET_IFNAME": "eth"}

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    @property
    def planted(self) -> list[str]:
        return [] if self._network is None else [fault.text for fault in self._network.faults.values()]

    async def plant(self, texts: Sequence[str]) -> None:
        """Plant faults; raises ValueError if one cannot be planted."""
        network = self._network
        assert network is not None
        await self._in_thread(lambda: network.plant(*texts))

    async def heal(self, places: Sequence[str]) -> None:
        """Take faults back; raises ValueError if there is none at one of the places."""
        network = self._network
        assert network is not None
        await self._in_thread(lambda: network.heal(*places))

    def reap_orphans(self) -> None:
        """Collect nothing: the first process of each node does that."""

    async def close(self) -> None:
        if (network := self._network) is not None:
            await self._in_thread(network.close)


class LabKeeper:
    """A lab, its requests, and its end."""

    def __init__(self, order: Order) -> None:
        self._order = order
        spec, folder = order.spec, Path(order.folder)
        self._lab: HeldNetwork | LabServer
        if spec.rails:
            self._lab = HeldNetwork(spec, folder)
        else:
            self._lab = LabServer(spec, parse_faults(order.faults, spec), folder)
        self._since = time.time()
        self._turn = asyncio.Lock()

    async def keep(self, parent: int) -> None:
        """Make the lab and serve its requests until SIGTERM or, for a session, the end of the parent process."""
        over = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, over.set)
        folder = Path(self._order.folder)
        standing = self._order.spec.standing
        try:
            report = await self._lab.start()
            async with await asyncio.start_unix_server(self.answer, sock=_listening(folder), limit=_LONGEST):
                _report(report | {"folder": str(folder)}, range(0 if standing else 1, 3))
                if not standing:
                    loop.add_reader(0, lambda: None if os.read(0, 4096) else over.set())
                while not over.is_set() and (standing or os.getppid() == parent):
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(PARENT_CHECK):
                            await over.wait()
                    self._lab.reap_orphans()
        finally:
            loop.remove_reader(0)
            await self._lab.close()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_PATIENCE):
                request = json.loads(await reader.readline())
            async with self._turn:
                reply = await self._do(request)
        except (OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
            reply = {"error": one_line(str(error), 500)}
        writer.write(json.dumps(reply).encode() + b"\n")
        writer.close()

    async def _do(self, request: dict[str, Any]) -> dict[str, Any]:
        words = [str(word) for word in request.get("words", ())]
        if request["do"] == "fault":
            await self._lab.plant(words)
        elif request["do"] == "heal":
            await self._lab.heal(words)
        spec = self._order.spec
        planted = [one_line(text, 200) for text in self._lab.planted]
        return {"nodes": len(spec.names), "rails": spec.rails, "since": self._since, "faults": planted}


def _listening(folder: Path) -> socket.socket:
    """Return a listening socket in a folder; its path may be longer than the kernel allows for sockets."""
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.bind(f"/proc/self/fd/{descriptor}/{SOCKET}")
    finally:
        os.close(descriptor)
    made.listen()
    return made


def _report(message: dict[str, Any], released: range) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in released:
        os.dup2(null, descriptor)
    os.close(null)


def _session_folder() -> Path:
    """Return a new folder, locked until this process ends, however it does; remove the folders of killed labs."""
    remove_leftovers(Path(tempfile.gettempdir()))
    folder = Path(tempfile.mkdtemp(prefix=_FOLDER))
    fcntl.flock(os.open(folder / _LOCK, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600), fcntl.LOCK_EX)
    return folder


def remove_leftovers(folder: Path) -> None:
    """Remove the folders of labs of this user whose process was killed together with its session."""
    for left in folder.glob(f"{_FOLDER}*"):
        with contextlib.suppress(OSError):
            state = left.lstat()
            if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.getuid():
                continue
            # Without a lock file it is of a lab that starts just now.
            lock = os.open(left / _LOCK, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(left, ignore_errors=True)
            finally:
                os.close(lock)


def main() -> int:
    parent = os.getppid()
    for number in (signal.SIGHUP, signal.SIGINT):
        # Not SIG_IGN, which all commands on the nodes would inherit.
        signal.signal(number, lambda *_: None)
    os.chdir("/")
    processes.become_subreaper()
    order = msgspec.json.decode(sys.stdin.readline(), type=Order)
    if not order.spec.standing:
        order = replace(order, folder=str(_session_folder()))
    try:
        asyncio.run(LabKeeper(order).keep(parent))
    except (OSError, RuntimeError, ValueError) as error:
        _report({"error": one_line(str(error), 500)}, range(3))
        return 1
    finally:
        shutil.rmtree(order.folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
