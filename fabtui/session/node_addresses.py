"""Names of nodes by their addresses: reports of libraries name nodes by address, users by name."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import socket
import threading
from collections.abc import Sequence

from fabtui.jobs.node_evidence import plain_address

#: Threads that resolve names, and the time (s) for all of them.
_THREADS = 16
_DEADLINE = 3.0


async def resolved(hosts: Sequence[str], deadline: float = _DEADLINE) -> dict[str, str]:
    """Return the names of nodes by the addresses that this machine resolves them to, as far as it does so in time.

    An address of two names is of neither.
    """
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    for host in hosts:
        waiting.put(host)
    found: dict[str, set[str]] = {}
    loop = asyncio.get_running_loop()
    done = asyncio.Event()
    left = len(hosts)

    def take(host: str, addresses: list[str]) -> None:
        nonlocal left
        for address in addresses:
            found.setdefault(address, set()).add(host)
        left -= 1
        if not left:
            done.set()

    def resolve() -> None:
        with contextlib.suppress(queue.Empty, RuntimeError):
            while True:
                host = waiting.get_nowait()
                loop.call_soon_threadsafe(take, host, addresses_of_name(host))

    for number in range(min(_THREADS, len(hosts))):
        # A resolver that hangs cannot be interrupted, and must not keep this process from ending.
        threading.Thread(target=resolve, name=f"resolve-{number}", daemon=True).start()
    if hosts:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(done.wait(), deadline)
    return {address: next(iter(names)) for address, names in found.items() if len(names) == 1}


def addresses_of_name(host: str) -> list[str]:
    """Return the addresses of a name other than loopback, none if it is unknown."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    addresses = {plain_address(str(entry[4][0])) for entry in found}
    return sorted(one for one in addresses if not one.startswith("127.") and one != "::1")
