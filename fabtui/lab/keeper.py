"""The process that holds a standing lab: its nodes end with it, however it ends.

`fabtui.lab.standing_lab` starts it. It reads its order on standard input, and prints one line of JSON: where the nodes'
SSH configuration is, or the problem. Then it serves requests on a socket in the lab's folder, one line of JSON each,
until SIGTERM. The lock that it inherits shows that it lives.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol, TypeVar

from fabtui.lab.namespaces.faults import Fault, LabShape, parse_faults, places_of
from fabtui.lab.namespaces.network import Network
from fabtui.lab.server import PARENT_CHECK, LabServer, end_all
from fabtui.lab.spec import LabSpec
from fabtui.lab.standing_lab import SOCKET, Order
from fabtui.sanitize import one_line
from fabtui_node.runtime import reap

#: What the faults of nodes are called in `fabtui.lab.spec`.
_KINDS = {"stop": "hang", "down": "down"}


class HeldServers:
    """The nodes of `fabtui.lab.server`, whose faults come and go."""

    def __init__(self, order: Order) -> None:
        spec = LabSpec((order.endpoints,) * order.nodes)
        self._shape = LabShape(spec.names, 0)
        self._server = LabServer(spec, (), Path(order.folder))
        self._faults: dict[str, Fault] = {}
        self._reaping: asyncio.Task[None] | None = None

    async def start(self) -> Path:
        """Make it; return the SSH configuration of its nodes."""
        await self._server.listen()
        self._reaping = asyncio.create_task(self._reap())
        return self._server.ssh_config

    async def _reap(self) -> None:
        while True:
            await asyncio.sleep(PARENT_CHECK)
            self._server.reap_orphans()

    @property
    def planted(self) -> list[str]:
        """The faults that are planted."""
        return [fault.text for fault in self._faults.values()]

    async def plant(self, texts: Sequence[str]) -> None:
        """Plant faults; raises ValueError if one cannot be planted."""
        for fault in parse_faults(texts, self._shape, self._faults.values()):
            self._faults[fault.where] = fault
            await self._server.turn(fault.nodes[0], _KINDS[fault.kind.name])

    async def heal(self, places: Sequence[str]) -> None:
        """Take faults back; raises ValueError if there is none at one of the places."""
        for where in places_of(places, self._faults):
            await self._server.turn(self._faults.pop(where).nodes[0], "")

    async def close(self) -> None:
        """Take it down."""
        if self._reaping is not None:
            self._reaping.cancel()
        # Stopped processes end as well: the signals are SIGTERM, and then SIGKILL.
        await end_all(self._server)


T = TypeVar("T")


class HeldNetwork:
    """A network whose calls do not block the event loop.

    All of them run in one thread that lives as long as the process: the namespaces end with the thread that made them.
    """

    def __init__(self, order: Order) -> None:
        spec = LabSpec((order.endpoints,) * order.nodes)
        self._order = order
        self._names = spec.names
        self._thread = ThreadPoolExecutor(1)
        self._network: Network | None = None

    async def start(self) -> Path:
        """Make it; return the SSH configuration of its nodes."""
        network = await self._in_thread(self._made)
        return network.ssh_config

    def _made(self) -> Network:
        variables = {
            "FABTUI_LAB_ENDPOINTS": str(self._order.endpoints),
            "FABTUI_LAB_PYTHON": sys.executable,
            # All nodes would have the same GPUs.
            "CUDA_VISIBLE_DEVICES": "",
        }
        self._network = Network(
            Path(self._order.folder),
            rails=self._order.rails,
            management="mgmt0",
            relayed=True,
            variables=variables,
            names=self._names,
        )
        return self._network.__enter__()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    @property
    def planted(self) -> list[str]:
        """The faults that are planted."""
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

    async def close(self) -> None:
        """Take it down."""
        if (network := self._network) is not None:
            await self._in_thread(network.close)


#: Longest request (bytes), and the time (s) in which it has to come.
_LONGEST, _PATIENCE = 1 << 16, 5.0


class Held(Protocol):
    """A lab that is held."""

    @property
    def planted(self) -> list[str]:
        """The faults that are planted."""

    async def start(self) -> Path:
        """Make it; return the SSH configuration of its nodes."""

    async def plant(self, texts: Sequence[str]) -> None:
        """Plant faults; raises ValueError if one cannot be planted."""

    async def heal(self, places: Sequence[str]) -> None:
        """Take faults back; raises ValueError if there is none at one of the places."""

    async def close(self) -> None:
        """Take it down."""


class LabKeeper:
    """A lab and its requests."""

    def __init__(self, order: Order, lab: Held) -> None:
        self._order = order
        self._lab = lab
        self._since = time.time()
        self._turn = asyncio.Lock()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one request."""
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
        order = self._order
        return {
            "nodes": order.nodes,
            "rails": order.rails,
            "endpoints": order.endpoints,
            "since": self._since,
            "faults": self._lab.planted,
        }


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


async def _keep(order: Order) -> None:
    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    lab: Held = HeldNetwork(order) if order.rails else HeldServers(order)
    try:
        config = await lab.start()
        keeper = LabKeeper(order, lab)
        async with await asyncio.start_unix_server(keeper.answer, sock=_listening(Path(order.folder)), limit=_LONGEST):
            _report({"ssh_config": str(config)})
            await over.wait()
    finally:
        await lab.close()


def _report(message: dict[str, Any]) -> None:
    """Print the only line, and let go of the terminal and of the pipes of who started this process."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(null, descriptor)
    os.close(null)


def main() -> int:
    """Hold a lab until SIGTERM; return the exit status."""
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    os.chdir("/")
    reap.become_subreaper()
    order = Order.from_json(sys.stdin.readline())
    try:
        asyncio.run(_keep(order))
    except (OSError, RuntimeError) as error:
        _report({"error": one_line(str(error), 500)})
        return 1
    finally:
        shutil.rmtree(order.folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
