"""Facts that nodes have in common: asked for once, kept once, and never taken from a node that lies about them."""

import asyncio
from collections.abc import Sequence
from typing import Any

from fabtui.session.fact_store import FactStore
from fabtui_node.protocol import digest

FACTS = {"modules": ["ib_core"] * 90, "limits": {"nofile": 1024}}
DIGESTS = {name: digest(value) for name, value in FACTS.items()}


class Node:
    def __init__(self, facts: dict[str, Any], seconds: float = 0.0) -> None:
        self.facts, self.seconds, self.asked = facts, seconds, list[str]()

    async def ask(self, names: Sequence[str]) -> dict[str, Any]:
        self.asked += names
        await asyncio.sleep(self.seconds)
        if not self.facts:
            raise ConnectionError
        return {name: self.facts[name] for name in names}


async def test_one_node_of_a_kind_is_asked() -> None:
    store, nodes = FactStore(), [Node(FACTS, 0.01) for _ in range(50)]
    values = await asyncio.gather(*(store.complete(DIGESTS, node.ask) for node in nodes))
    assert all(value == FACTS for value in values)
    assert [len(node.asked) for node in nodes] == [2] + [0] * 49
    assert values[0]["modules"] is values[49]["modules"]
    other = {**FACTS, "limits": {"nofile": 8}}
    node = Node(other)
    assert await store.complete({name: digest(value) for name, value in other.items()}, node.ask) == other
    assert node.asked == ["limits"]


async def test_the_others_ask_when_the_first_node_is_gone() -> None:
    store, nodes = FactStore(), [Node({}, 0.01), Node(FACTS), Node(FACTS)]
    lost, *values = await asyncio.gather(*(store.complete(DIGESTS, n.ask) for n in nodes), return_exceptions=True)
    assert isinstance(lost, ConnectionError)
    assert values == [FACTS, FACTS]


async def test_a_node_that_lies_changes_no_fact_of_another() -> None:
    store, liar = FactStore(), Node({**FACTS, "limits": {"nofile": 1}})
    assert (await store.complete(DIGESTS, liar.ask))["limits"] == {"nofile": 1}
    assert await store.complete(DIGESTS, Node(FACTS).ask) == FACTS
