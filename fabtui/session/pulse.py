"""Whether busy rank hosts are still alive: asked each second, so that a stopped one is found before a deadline."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Collection

from fabtui.session.ranks import RankHost

PERIOD = 1.0
#: A rank host answers from a thread that does nothing else; on a crowded node it may still be late.
PATIENCE = 3.0


class Pulse:
    """Asks rank hosts whether they live, and tells of those that are silent.

    Args:
        hosts: The rank hosts.
        busy: Says on which nodes something runs; the others are left alone.
        frozen: Called with a rank host that answered nothing, and for how many seconds.
    """

    def __init__(
        self, hosts: Collection[RankHost], busy: Callable[[], set[str]], frozen: Callable[[RankHost, float], None]
    ) -> None:
        self._hosts = hosts
        self._busy = busy
        self._frozen = frozen
        self._asked: dict[str, float] = {}

    async def run(self) -> None:
        """Ask for ever; cancel it to stop."""
        for number in itertools.count():
            await asyncio.sleep(PERIOD)
            now = time.monotonic()
            busy = self._busy()
            for host in self._hosts:
                asked = self._asked.get(host.node)
                if host.node not in busy or host.broken:
                    self._asked.pop(host.node, None)
                elif asked is None or host.heard > asked:
                    self._asked[host.node] = now
                    host.send({"op": "alive", "n": number})
                elif now - asked > PATIENCE:
                    self._asked.pop(host.node, None)
                    self._frozen(host, now - asked)
