"""Open probes of a node whose link ends."""

import asyncio
import gc
from typing import Any

import pytest

from fabtui.session.node_client import MAX_TOGETHER, NodeClient, ProbeFailed
from fabtui.transport.link import LinkLost
from tests.unit.session.played import until


class GoneLink:
    """A link that takes nothing more and ends once `end` is set."""

    node = "a"

    def __init__(self) -> None:
        self.end = asyncio.Event()

    async def send(self, message: dict[str, Any]) -> None:
        await self.end.wait()
        await asyncio.sleep(0)
        raise LinkLost("closed", "the connection was cut")

    def put(self, message: dict[str, Any]) -> bool:
        return False

    async def receive(self) -> dict[str, Any]:
        await self.end.wait()
        raise LinkLost("closed", "the connection was cut")


async def _drain(client: NodeClient) -> None:
    async for _ in client.messages():
        pass


async def test_a_node_that_goes_while_a_question_is_sent_leaves_nothing_to_print() -> None:
    link = GoneLink()
    remote = NodeClient(link)  # type: ignore[arg-type]
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    serving = asyncio.create_task(_drain(remote))
    asking = asyncio.create_task(remote.probe("counters", {}, 5.0))
    await asyncio.sleep(0)
    link.end.set()
    # Nothing may hold the exception, whose frames hold what nobody waited for.
    await asyncio.wait({asking, serving})
    assert isinstance(asking.exception(), ProbeFailed)
    del asking, serving, remote
    gc.collect()
    await asyncio.sleep(0)
    assert reported == []


class TakingLink(GoneLink):
    def __init__(self) -> None:
        super().__init__()
        self.sent: list[dict[str, Any]] = []

    def put(self, message: dict[str, Any]) -> bool:
        self.sent.append(message["m"])
        return True


class WaitingLink(TakingLink):
    """A link that takes everything, but not at once."""

    def put(self, message: dict[str, Any]) -> bool:
        return False

    async def send(self, message: dict[str, Any]) -> None:
        await asyncio.sleep(0)
        self.sent.append(message["m"])


@pytest.mark.parametrize("kind", [TakingLink, WaitingLink])
async def test_what_is_posted_in_one_turn_travels_as_one_message(kind: type[TakingLink]) -> None:
    link = kind()
    remote = NodeClient(link)  # type: ignore[arg-type]
    for number in range(3):
        remote.post({"op": "alive", "n": number})
    await asyncio.sleep(0)
    remote.post({"op": "quit"})
    await until(lambda: len(link.sent) == 2)
    assert [one["n"] for one in link.sent[0]["messages"]] == [0, 1, 2]
    assert link.sent[1:] == [{"op": "quit"}]


@pytest.mark.parametrize("kind", [TakingLink, WaitingLink])
async def test_large_values_are_sent_in_several_messages(kind: type[TakingLink]) -> None:
    link = kind()
    remote = NodeClient(link)  # type: ignore[arg-type]
    for number in range(5):
        remote.post({"op": "store", "q": number, "value": "x" * (MAX_TOGETHER // 2 + 1), "error": None})
    await until(lambda: len(link.sent) == 3)
    numbers = [[one["q"] for one in message.get("messages", [message])] for message in link.sent]
    assert numbers == [[0, 1], [2, 3], [4]]
