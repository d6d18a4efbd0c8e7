"""Letting the rank hosts tear down what tests have left, while nothing is under way."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from fabtui.sanitize import one_line
from fabtui.session.ranks.rank_host import RankHost

#: A rank host that is not through by then is started anew.
DEADLINE = 20.0


async def rest(hosts: Iterable[RankHost], number: int, world: int, *, whole: bool) -> list[str]:
    """Have all rank hosts let go of their communicators; those that hang in it are restarted.

    Args:
        hosts: The rank hosts; none of their ranks may be in a test.
        number: A number for this rest, never used twice in a session.
        world: How many endpoints there are.
        whole: Whether all communicators go, not only the broken ones.

    Returns:
        What went wrong, a line each.
    """
    live = [host for host in hosts if host.numbers]
    missing = {rank for host in live for rank in host.numbers}
    troubles: list[str] = []
    done = asyncio.Event()

    def take(host: RankHost, message: dict[str, Any]) -> None:
        if message.get("id") != number or message.get("op") not in ("rested", "free"):
            return
        if message["op"] == "rested" and message.get("error"):
            troubles.append(f"{host.node}: {one_line(str(message['error']), 300)}")
        if message["op"] == "free":
            missing.discard(message.get("rank", -1))
            if not missing:
                done.set()

    def gone(host: RankHost, text: str) -> None:
        if host.remote.lost is not None:
            host.broken = text
        else:
            host.down = True
            troubles.append(text)
        missing.difference_update(e.number for e in host.endpoints)
        if not missing:
            done.set()

    for host in live:
        host.on_test, host.on_gone = take, gone
        host.send({"op": "rest", "id": number, "whole": whole})
    try:
        if missing:
            async with asyncio.timeout(DEADLINE):
                await done.wait()
    except TimeoutError:
        for host in live:
            if missing & {e.number for e in host.endpoints}:
                troubles.append(f"{host.node}: the ranks did not let go of their communicators; they were started anew")
                host.on_gone = None
                await host.restart(world)
    finally:
        for host in live:
            host.on_test = host.on_gone = None
    return troubles
