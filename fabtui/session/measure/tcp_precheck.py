"""TCP check before the pair tests: all rank hosts connect to each other at once, so dead paths cost one deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from fabtui.sanitize import one_line
from fabtui.session.event_pipeline import EventPump
from fabtui.session.ranks.rank_host import HostLost, HostMessage, RankHost
from fabtui.session.ranks.reports import HostReports

#: Time (s) that the answers may take beyond the deadline of the connections.
_GRACE = 3.0


async def check_reach(
    hosts: list[RankHost], deadline: float, pump: EventPump
) -> dict[tuple[str, str], tuple[str, bool]]:
    """Return the dead paths: ordered pairs of nodes, each with the error and whether it was a timeout."""
    live = [host for host in hosts if host.numbers and host.port and host.address]
    missing = _MissingPairs([host.node for host in live])
    dead: dict[tuple[str, str], tuple[str, bool]] = {}
    # Each entry is sent to all others and kept once.
    entries = [(host, {"node": host.node, "address": host.address, "port": host.port}) for host in live]
    until = asyncio.get_running_loop().time() + deadline + _GRACE
    with HostReports(live) as reports:
        for host in live:
            if peers := [entry for peer, entry in entries if peer is not host]:
                host.send({"op": "reach", "peers": peers, "deadline": deadline})
        while missing.count and (left := until - asyncio.get_running_loop().time()) > 0:
            for report in await reports.take(left):
                if isinstance(report, HostLost):
                    report.host.broken = report.text
                    missing.discard_all(report.host.node)
                elif isinstance(report, HostMessage) and report.message.get("op") == "reach":
                    pair, message = (report.host.node, str(report.message.get("node"))), report.message
                    if missing.discard(*pair) and message.get("ok") is not True:
                        text = one_line(str(message.get("error") or "no TCP connection"), 500)
                        dead[pair] = (text, message.get("timeout") is True)
                        pump.log("warning", f"no TCP from {pair[0]} to {pair[1]}: {text}", pair[0])
    for a, b in missing.pairs():
        dead[a, b] = (f"the check of the path to {b} gave no answer within {deadline:.0f} s", True)
    return dead


class _MissingPairs:
    """Ordered pairs of nodes without an answer: one byte per pair, as hundreds of nodes have many."""

    def __init__(self, nodes: list[str]) -> None:
        self._nodes = nodes
        self._number = {node: number for number, node in enumerate(nodes)}
        self._open = [bytearray(b"\1" * len(nodes)) for _ in nodes]
        for number, row in enumerate(self._open):
            row[number] = 0
        self.count = len(nodes) * (len(nodes) - 1)

    def discard(self, a: str, b: str) -> bool:
        """Remove a pair; return True if it was there."""
        row, at = self._number.get(a), self._number.get(b)
        if row is None or at is None or not self._open[row][at]:
            return False
        self._open[row][at] = 0
        self.count -= 1
        return True

    def discard_all(self, a: str) -> None:
        """Remove the pairs that begin with a node."""
        for b in self._nodes:
            self.discard(a, b)

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Yield the remaining pairs."""
        for a, row in zip(self._nodes, self._open, strict=True):
            yield from ((a, b) for b, is_open in zip(self._nodes, row, strict=True) if is_open)
