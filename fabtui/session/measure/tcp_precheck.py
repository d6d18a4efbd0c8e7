"""The TCP check before the pairs: rank hosts connect to each other at once, so dead paths cost one deadline in all."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from fabtui.sanitize import one_line
from fabtui.session.event_pipeline import EventPump
from fabtui.session.ranks.rank_host import RankHost


async def check_reach(
    hosts: list[RankHost], deadline: float, pump: EventPump
) -> dict[tuple[str, str], tuple[str, bool]]:
    """Return for each ordered pair of nodes whose path is dead the error and whether it was a timeout."""
    live = [host for host in hosts if host.numbers and host.port and host.address]
    missing = _Missing([host.node for host in live])
    dead: dict[tuple[str, str], tuple[str, bool]] = {}
    ended = asyncio.Event()

    def take(host: RankHost, message: dict[str, Any]) -> None:
        key = (host.node, str(message.get("node")))
        if message.get("op") != "reach" or not missing.take(*key):
            return
        if message.get("ok") is not True:
            text = one_line(str(message.get("error") or "no TCP connection"), 500)
            dead[key] = (text, message.get("timeout") is True)
            pump.log("warning", f"no TCP from {key[0]} to {key[1]}: {text}", host.node)
        if not missing.count:
            ended.set()

    def gone(host: RankHost, text: str) -> None:
        host.broken = text
        missing.take_all(host.node)
        if not missing.count:
            ended.set()

    # Each is told to all others, and takes room once.
    told = [(host, {"node": host.node, "address": host.address, "port": host.port}) for host in live]
    for host in live:
        host.on_test, host.on_gone = take, gone
        peers = [entry for peer, entry in told if peer is not host]
        if peers:
            host.send({"op": "reach", "peers": peers, "deadline": deadline})
    try:
        if missing.count:
            async with asyncio.timeout(deadline + 3.0):
                await ended.wait()
    except TimeoutError:
        for a, b in missing.pairs():
            dead[a, b] = (f"the check of the path to {b} gave no answer within {deadline:.0f} s", True)
    finally:
        for host in live:
            host.on_test = host.on_gone = None
    return dead


class _Missing:
    """Ordered pairs of nodes of which nothing was heard yet: a byte each, as hundreds of nodes make many."""

    def __init__(self, nodes: list[str]) -> None:
        self._nodes = nodes
        self._number = {node: number for number, node in enumerate(nodes)}
        self._open = [bytearray(b"\1" * len(nodes)) for _ in nodes]
        for number, row in enumerate(self._open):
            row[number] = 0
        self.count = len(nodes) * (len(nodes) - 1)

    def take(self, a: str, b: str) -> bool:
        """Take a pair out; say whether it was there."""
        row, at = self._number.get(a), self._number.get(b)
        if row is None or at is None or not self._open[row][at]:
            return False
        self._open[row][at] = 0
        self.count -= 1
        return True

    def take_all(self, a: str) -> None:
        """Take the pairs out that begin with a node."""
        for b in self._nodes:
            self.take(a, b)

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Yield the pairs that are left."""
        for a, row in zip(self._nodes, self._open, strict=True):
            yield from ((a, b) for b, is_open in zip(self._nodes, row, strict=True) if is_open)
