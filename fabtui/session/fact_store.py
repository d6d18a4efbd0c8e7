"""Facts that many nodes have in common: each is asked for once, and kept once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from fabtui.transport.link import Message
from fabtui_node.protocol import digest

#: Number of nodes from which on large facts come as digests first: that takes a further question of one node of a kind.
DIGESTS_FROM = 129
#: Maximum number of facts that are kept.
_MOST = 50_000


class FactStore:
    """Facts by their digests."""

    def __init__(self) -> None:
        self._values: dict[str, object] = {}
        self._asked: dict[str, asyncio.Event] = {}

    async def complete(
        self, digests: Mapping[str, str], ask: Callable[[Sequence[str]], Awaitable[Message]]
    ) -> dict[str, object]:
        """Return the facts of some digests by name; ``ask`` gets facts from the node by name."""
        unknown = {name: text for name, text in digests.items() if text not in self._values}
        own = {name: text for name, text in unknown.items() if text not in self._asked}
        for text in own.values():
            self._asked[text] = asyncio.Event()
        facts: dict[str, object] = {}
        try:
            if own:
                facts = self._kept(digests, await ask(list(own)))
        finally:
            for text in own.values():
                if (event := self._asked.pop(text, None)) is not None:
                    event.set()
        for name, text in unknown.items() - own.items():
            if (event := self._asked.get(text)) is not None:
                await event.wait()
            if text not in self._values:
                # The node that was asked is gone.
                facts |= self._kept(digests, await ask([name]))
        return {name: self._values[text] for name, text in digests.items() if text in self._values} | facts

    def _kept(self, digests: Mapping[str, str], answer: Message) -> dict[str, object]:
        if len(self._values) > _MOST:
            self._values.clear()
        # What a node claims to be a fact of others is kept for them only if it is.
        self._values.update(
            {digests[name]: answer[name] for name in answer if digest(answer[name]) == digests.get(name)}
        )
        return {name: value for name, value in answer.items() if name in digests}
