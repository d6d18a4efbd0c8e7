"""One node that sends arbitrary messages: the session continues, and what the others measured is complete."""

import asyncio
import importlib
import pkgutil
import random
from collections.abc import Callable
from typing import Any

import pytest

import fabtui.session
from fabtui.model.layers import Layer
from fabtui.model.measurement import Verdict
from fabtui.model.session_model import Model
from fabtui.session import node_client, probe_runner
from fabtui.session.feeds.live import LiveFeed
from fabtui.session.measure import communicator_cache, p2p
from fabtui.session.options import SessionOptions
from fabtui.session.ranks.rank_host import exit_reason
from fabtui.transport.link import Link
from tests.unit.session.fakenodes import FakeLink, FakeNodes, Script

pytestmark = pytest.mark.slow

Message = dict[str, Any]

JUNK: list[Any] = [
    *(None, True, -1, 0, 3, 2**70, 1e99, -0.5, "", "9" * 30, "x\x1b[2J\u202e[red]", "\ud800", "10.0.0.9"),
    *([], [[]], {}, {"a": []}, [1, "2", None], {"rows": [None, [1], {}]}, ["a", {}]),
]


#: The deadlines of a session that are made short: an answer that the node does not send is awaited until the deadline.
DEADLINES = (
    *("GRACE", "ABORT_PATIENCE", "LAG", "PROBE_PATIENCE", "SETTLE", "RANKS_SETTLE", "DEADLINE", "INVENTORY_DEADLINE"),
    *("PROBE_DEADLINE", "CLOCK_DEADLINE", "OPEN_DEADLINE", "START_DEADLINE", "SPAWN_DEADLINE", "CLIENT_DEADLINE"),
    *("SERVER_DEADLINE", "FORM_DEADLINE", "REACH_GRACE"),
)


@pytest.fixture(autouse=True)
def short_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    packages = pkgutil.walk_packages(fabtui.session.__path__, "fabtui.session.")
    modules = [importlib.import_module(found.name) for found in packages]
    for name in DEADLINES:
        owners = [module for module in modules if hasattr(module, name)]
        assert owners, name
        for module in owners:
            monkeypatch.setattr(module, name, 0.5)
    # It has to be longer than `GRACE`.
    monkeypatch.setattr(communicator_cache, "RELEASE_DEADLINE", 1.0)


class TwistedLink(FakeLink):
    twist: Callable[[Message], Any]

    async def receive(self) -> Message:
        twisted: Message = self.twist(await super().receive())
        return twisted


class OneTwisted(FakeNodes):
    """Nodes of which ``c`` twists the messages that it sends."""

    def __init__(self, script: Script, twist: Callable[[Message], Any]) -> None:
        super().__init__(script)
        self.twist = twist

    async def open(self, host: str) -> Link:
        if host != "c":
            return await super().open(host)
        link = self.links[host] = TwistedLink(host, self.script)
        link.twist = self.twist
        return link


async def _run(twist: Callable[[Message], Any], **options: Any) -> Model:
    nodes = OneTwisted(Script({"a": 1, "b": 1, "c": 1}), twist)
    feed = LiveFeed(SessionOptions(hosts=("a", "b", "c"), timeout=1.0, **options), nodes)
    try:
        async with asyncio.timeout(90):
            await feed.run()
    finally:
        await feed.close()
    return feed.model


def _others_are_whole(model: Model) -> bool:
    found = [m for m in model.measurements() if m.layer is Layer.P2P and not {m.src[0], m.dst[0]} & {"c"}]
    return len(found) == 2 and {model.verdict(m) for m in found} == {Verdict.OK}


def _in_ranks(change: Callable[[Message], Message]) -> Callable[[Message], Message]:
    return lambda message: {**message, "m": change(message["m"])} if message.get("t") == "rank" else message


def _with(op: str, /, **fields: Any) -> Callable[[Message], Message]:
    return _in_ranks(lambda m: {**m, **fields} if m.get("op") == op else m)


@pytest.mark.parametrize(
    "twist",
    [
        _with("side", id={}),
        _with("reduced", id=[1]),
        _with("rested", id=[1]),
        _with("ready", ranks=5),
        _with("ready", ranks=None),
        _with("worlded", rows=[]),
        _with("worlded", rows=[[[], {}, None]], seconds=3, at={}),
        _with("worlded", op="rows", rows=[[[], {}, None], 5, [0], [{}, 1, 2, 3, 4, 5, 6]]),
        _with("side", op="several"),
        _with("side", op="several", messages=[[], None, {"op": "several", "messages": [{}]}, {"op": "store"}]),
    ],
    ids=[
        *("side-id", "reduced-id", "rested-id", "ready-number", "ready-null"),
        *("no-rows", "rows", "early-rows", "several-without-messages", "several"),
    ],
)
async def test_a_message_with_a_wrong_field_is_that_nodes_problem_alone(twist: Callable[[Message], Message]) -> None:
    model = await _run(twist)
    assert _others_are_whole(model)


async def test_sessions_of_others_with_odd_numbers_of_processes_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_runner, "NEWCOMER_INTERVAL", 0.02)
    odd: list[Any] = [[], {}, "7", None, -1]
    facts = {"sessions": [{"pid": wrong} for wrong in odd]}
    feed = LiveFeed(
        SessionOptions(hosts=("a",), probes=("host",)),
        FakeNodes(Script({"a": 1}, probe_results={"a": {"host": facts}})),
    )
    await feed.run()
    facts["sessions"] = [*facts["sessions"], {"pid": 7}]
    async with asyncio.timeout(20):
        while not any("pid 7)" in line.text for line in feed.model.log):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await feed.close()


@pytest.mark.parametrize("wrong", [{"id": []}, {"rank": {}}], ids=["id", "rank"])
async def test_ranks_that_never_come_free_are_their_nodes_problem_alone(wrong: Message) -> None:
    assert _others_are_whole(await _run(_with("free", **wrong), probes=("p2p",), layers=("p2p",)))


async def test_what_cannot_be_handled_ends_the_link_of_that_node_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(pair: p2p.PairSweep, host: Any, message: Message) -> None:
        if host.node == "c":
            raise ZeroDivisionError("a mistake of ours")
        take(pair, host, message)

    take = p2p.PairSweep._take
    monkeypatch.setattr(p2p.PairSweep, "_take", broken)
    model = await _run(lambda message: message)
    assert _others_are_whole(model)
    assert model.nodes["c"].state == "lost"
    assert model.nodes["c"].text == "a message cannot be read: ZeroDivisionError: a mistake of ours"


async def test_an_inventory_that_cannot_be_handled_ends_the_link_of_that_node_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def broken(feed: LiveFeed, name: str, client: node_client.NodeClient, *, back: bool) -> None:
        if name == "c":
            raise ZeroDivisionError("a mistake of ours")
        await look(feed, name, client, back=back)

    look = LiveFeed._inventory
    monkeypatch.setattr(LiveFeed, "_inventory", broken)
    model = await _run(lambda message: message, probes=("p2p",))
    assert _others_are_whole(model)
    assert model.nodes["c"].text == "a message cannot be read: ZeroDivisionError: a mistake of ours"


async def test_a_node_that_floods_the_store_is_lost_and_named() -> None:
    pokes = [{"op": "store", "cmd": "set", "key": f"e/{n}/hello/0", "value": "AAAA"} for n in range(2000)]
    model = await _run(_in_ranks(lambda m: {"op": "several", "messages": pokes} if m.get("op") == "side" else m))
    assert _others_are_whole(model)
    assert model.nodes["c"].state == "lost"
    assert "its ranks send messages about tests of other nodes" in model.nodes["c"].text


async def test_a_node_whose_queue_is_never_empty_leaves_others_their_turn() -> None:
    link = FakeLink("a", Script({"a": 1}))
    for _ in range(1000):
        link._queue.put_nowait({"t": "rank", "m": {}})
    link.lose("lost", "gone")
    turns: list[int] = []
    other = asyncio.ensure_future(asyncio.sleep(0))
    other.add_done_callback(lambda _: turns.append(taken))
    taken = 0
    async for _ in node_client.NodeClient(link).messages():
        taken += 1
    assert taken == 1000
    assert turns
    assert turns[0] < 1000


async def test_a_node_that_prints_without_end_fills_neither_log_nor_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_client, "MAX_LINES", 5)
    printed: list[str] = []
    link = FakeLink("a", Script({"a": 1}))
    for number in range(50):
        link._queue.put_nowait({"t": "log", "text": str(number)})
    link.lose("lost", "gone")
    async for message in node_client.NodeClient(link).messages():
        assert message["t"] == "log"
        printed.append(message["text"])
    assert printed == ["0", "1", "2", "3", "4", "5 lines were printed here; further lines are dropped"]


@pytest.mark.parametrize(
    ("message", "how"),
    [
        ({"code": 3, "stderr": "a\nlast\x1b[2J\n"}, "exit code 3: last[2J"),
        ({"code": None, "signal": 9}, "signal 9"),
        ({"code": "x\x1b[2J\n" * 100}, "exit code " + "x[2J " * 9 + "x[2J\u2026"),
        ({}, "exit code None"),
    ],
    ids=["code", "signal", "junk", "nothing"],
)
def test_how_a_rank_host_ended_is_one_clean_line(message: Message, how: str) -> None:
    assert exit_reason("c", message)[0] == f"the rank host of c ended with {how}"


class Twister:
    """Puts junk in places chosen by a seed; what makes a message of the protocol stays, as a rule."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.share = self.chance.choice([0.01, 0.03, 0.1, 0.3])

    def __call__(self, message: Message) -> Any:
        if self.chance.random() < 0.05:
            twisted = self._twisted(message)
            return twisted if isinstance(twisted, dict) else {"t": twisted}
        names = ("value", "m", "error", "text", "code", "signal", "stderr")
        return {name: self._twisted(part) if name in names else part for name, part in message.items()}

    def _twisted(self, value: Any) -> Any:
        if self.chance.random() < self.share:
            return self.chance.choice(JUNK)
        if isinstance(value, dict):
            return {name: self._twisted(part) for name, part in value.items() if self.chance.random() >= self.share / 4}
        return [self._twisted(part) for part in value] if isinstance(value, list) else value


@pytest.mark.parametrize("seed", range(1, 5))
async def test_a_node_that_sends_anything(seed: int) -> None:
    assert _others_are_whole(await _run(Twister(seed)))
