"""The TCP check before the pairs: rank hosts connect to each other at once, so dead paths cost one deadline in all."""

from __future__ import annotations

import asyncio
from typing import Any

from fabtui.fabric.text import one_line
from fabtui.session.pump import EventPump
from fabtui.session.ranks import RankHost


async def check_reach(
    hosts: list[RankHost], deadline: float, pump: EventPump
) -> dict[tuple[str, str], tuple[str, bool]]:
    """Return for each ordered pair of nodes whose path is dead the error and whether it was a timeout."""
    live = [host for host in hosts if host.numbers and host.port and host.address]
    missing = {(a.node, b.node) for a in live for b in live if a.node != b.node}
    dead: dict[tuple[str, str], tuple[str, bool]] = {}
    ended = asyncio.Event()

    def take(host: RankHost, message: dict[str, Any]) -> None:
        key = (host.node, str(message.get("node")))
        if message.get("op") != "reach" or key not in missing:
            return
        missing.discard(key)
        if message.get("ok") is not True:
            text = one_line(str(message.get("error") or "no TCP connection"), 500)
            dead[key] = (text, message.get("timeout") is True)
            pump.log("warning", f"no TCP from {key[0]} to {key[1]}: {text}", host.node)
        if not missing:
            ended.set()

    def gone(host: RankHost, text: str) -> None:
        host.broken = text
        missing.difference_update([key for key in missing if key[0] == host.node])
        if not missing:
            ended.set()

    for host in live:
        host.on_test, host.on_gone = take, gone
        peers = [{"node": p.node, "address": p.address, "port": p.port} for p in live if p is not host]
        if peers:
            host.send({"op": "reach", "peers": peers, "deadline": deadline})
    try:
        if missing:
            async with asyncio.timeout(deadline + 3.0):
                await ended.wait()
    except TimeoutError:
        for a, b in missing:
            dead[a, b] = (f"the check of the path to {b} gave no answer within {deadline:.0f} s", True)
    finally:
        for host in live:
            host.on_test = host.on_gone = None
    return dead
