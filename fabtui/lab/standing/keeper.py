"""The process that holds a standing lab: its nodes end with it, however it ends.

`fabtui.lab.standing.lab` starts it. It reads its order on standard input, and prints one line of JSON: where the nodes'
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
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from fabtui.lab.standing.held_network import HeldNetwork
from fabtui.lab.standing.held_servers import HeldServers
from fabtui.lab.standing.lab import SOCKET, Order
from fabtui.sanitize import one_line
from fabtui_node.runtime import reap

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


class Keeper:
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
        keeper = Keeper(order, lab)
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
