"""Parts that follow the payload: packed once and sent ahead of the first message that needs them."""

import ast
import asyncio
import itertools
import json
import zlib
from typing import Any

import pytest

from fabtui.transport import payload
from fabtui.transport.byte_pipe import BytePipe, Ending
from fabtui.transport.framed_link import FramedLink, Limits
from fabtui.transport.link import LinkLost
from fabtui.transport.payload import PIECE, Cargo
from fabtui_node import protocol

NONCE = "ab"


class SlowPipe(BytePipe):
    """A pipe to a node that sends hello, answers heartbeats and reads slowly."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.frames = protocol.Decoder(pieces=True)
        self.taken: list[dict[str, Any]] = []
        self.begun = asyncio.Event()
        self.seconds = seconds
        self.reported: asyncio.Queue[bytes] = asyncio.Queue()
        self.broken = False
        hello = {"t": "hello", "protocol": protocol.VERSION, "pid": 1, "python": "3", "host": "n"}
        self.reported.put_nowait(protocol.marker(NONCE) + protocol.encode(hello))

    async def read(self) -> bytes:
        return await self.reported.get()

    async def read_error(self) -> bytes:
        await asyncio.sleep(600)
        return b""

    async def write(self, data: bytes) -> None:
        if self.broken:
            raise OSError("broken")
        await asyncio.sleep(self.seconds)
        if data != b"payload":
            self.taken += self.frames.feed(data)
            if self.kinds():
                self.begun.set()

    def write_eof(self) -> None:
        self.reported.put_nowait(b"")

    async def ending(self) -> Ending:
        return Ending(status=0)

    def abort(self) -> None:
        return

    async def wait_closed(self) -> None:
        return

    def kinds(self) -> list[str]:
        return [message["t"] for message in self.taken if message["t"] != "hb"]

    def modules(self) -> list[dict[str, str]]:
        """Return what came in whole, in order."""
        found, parts = b"", []
        for message in self.taken:
            if message["t"] == "modules":
                found += message["piece"]
                if message["last"]:
                    parts.append(json.loads(zlib.decompress(found)))
                    found = b""
        assert not found
        return parts


async def start(pipe: SlowPipe, limits: Limits | None = None, modules: dict[str, str] | None = None) -> FramedLink:
    shared = Cargo(payload.ENTRY, modules, (("fabtui_own.x", "y = 1"),))
    limits = limits or Limits(heartbeat=60)
    return await FramedLink.start(pipe, "n", "local", b"payload", NONCE, limits, cargo=shared)


async def test_each_part_goes_once_ahead_of_what_needs_it() -> None:
    pipe = SlowPipe()
    link = await start(pipe)
    await link.send({"t": "kill"})
    await asyncio.gather(*(link.send({"t": "probe", "name": "own", "id": number}) for number in range(3)))
    await link.send({"t": "spawn", "argv": None})
    await link.send({"t": "rank", "m": {}})
    await link.send({"t": "spawn", "argv": None})
    kinds = pipe.kinds()
    assert [kind for number, kind in enumerate(kinds) if kinds[number - 1 : number] != [kind] or kind != "modules"] == [
        *("kill", "modules", "probe", "probe", "probe", "modules", "spawn", "rank", "spawn")
    ]
    probes, ranks = pipe.modules()
    assert probes["fabtui_own.x"] == "y = 1"
    assert {"fabtui_node.registry", "fabtui_node.probes.user_probe"} < probes.keys()
    assert not {"fabtui_node.ranks.rank_host", "fabtui_node.runtime.supervisor"} & set(probes)
    # Each module once.
    assert not (probes.keys() | payload.first_modules().keys()) & ranks.keys()
    assert all(len(message["piece"]) <= PIECE for message in pipe.taken if message["t"] == "modules")
    await link.close()


@pytest.mark.parametrize("kind", ["spawn", "standby"])
@pytest.mark.slow
async def test_a_rank_host_waits_for_no_probes(kind: str) -> None:
    pipe = SlowPipe(0.001)
    link = await start(pipe)
    await asyncio.gather(link.send({"t": kind}), link.send({"t": "probe", "name": "inventory", "id": 1}))
    assert [name for name, _ in itertools.groupby(pipe.kinds()) if name != "modules"] == [kind, "probe"]
    ranks, probes = pipe.modules()
    assert "fabtui_node.ranks.rank_host" in ranks
    assert "fabtui_node.probes.inventory" in probes
    await link.close()


async def test_heartbeats_pass_between_the_pieces() -> None:
    pipe = SlowPipe(0.02)
    link = await start(pipe, Limits(heartbeat=0.01, send=5.0))
    await link.send({"t": "probe", "name": "inventory", "id": 1})
    kinds = [message["t"] for message in pipe.taken]
    pieces = [number for number, kind in enumerate(kinds) if kind == "modules"]
    assert len(pieces) > 2
    assert "hb" in kinds[pieces[0] : pieces[-1]]
    await link.close()


async def test_a_sender_that_gives_up_leaves_the_others_what_they_need() -> None:
    pipe = SlowPipe(0.02)
    link = await start(pipe)
    first = asyncio.create_task(link.send({"t": "probe", "name": "inventory", "id": 1}))
    second = asyncio.create_task(link.send({"t": "probe", "name": "inventory", "id": 2}))
    await pipe.begun.wait()
    first.cancel()
    await second
    assert len(pipe.modules()) == 1
    assert [message["id"] for message in pipe.taken if message["t"] == "probe"] == [2]
    await link.close()


async def test_a_link_that_breaks_on_the_way_is_lost() -> None:
    pipe = SlowPipe(0.01)
    link = await start(pipe)
    sending = [asyncio.create_task(link.send({"t": "probe", "name": "inventory", "id": number})) for number in range(2)]
    await pipe.begun.wait()
    pipe.broken = True
    pipe.write_eof()
    assert [type(error) for error in await asyncio.gather(*sending, return_exceptions=True)] == [LinkLost] * 2
    await link.close()


async def test_a_broken_installation_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone() -> dict[str, str]:
        raise FileNotFoundError("no node side sources")

    monkeypatch.setattr(payload, "node_modules", gone)
    link = await start(SlowPipe())
    with pytest.raises(LinkLost, match="installation is incomplete: no node side sources"):
        await link.send({"t": "probe", "name": "inventory", "id": 1})
    await link.close()


async def test_whoever_brings_modules_sends_nothing_else() -> None:
    pipe = SlowPipe()
    link = await start(pipe, modules={"entry": ""})
    await link.send({"t": "probe", "name": "inventory", "id": 1})
    assert pipe.kinds() == ["probe"]
    await link.close()


async def test_everything_is_packed_once_for_all_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    count: list[str] = []
    first = payload.first_modules

    def counted_first() -> dict[str, str]:
        count.append("first")
        return first()

    monkeypatch.setattr(payload, "first_modules", counted_first)
    shared = Cargo(payload.ENTRY, None, ())
    payloads = await asyncio.gather(*(shared.payload({"node": str(number)}) for number in range(64)))
    assert len(set(payloads)) == 64
    for part in ("inventory", "ranks"):
        packed = await asyncio.gather(*(shared.pieces(part, set()) for _ in range(64)))
        assert all(pieces is packed[0] for pieces in packed)
    assert count == ["first"]
    await shared.close()


def test_sources_lose_comments_and_docstrings_and_nothing_else() -> None:
    def code(source: str) -> str:
        tree = ast.parse(source)
        for part in ast.walk(tree):
            body = getattr(part, "body", None)
            if not isinstance(body, list) or not body:
                continue
            if isinstance(first := body[0], ast.Expr) and isinstance(first.value, ast.Constant):
                del body[0]
        return ast.dump(tree)

    lean = payload.node_modules()
    for path in payload._FOLDER.rglob("*.py"):
        source = path.read_text()
        parts = path.relative_to(payload._FOLDER.parent).with_suffix("").parts
        kept = lean[".".join(parts).removesuffix(".__init__")]
        assert kept.count("\n") == source.count("\n")
        assert code(kept) == code(source), path


async def test_a_large_session_sends_a_node_little() -> None:
    shared, sent = Cargo(payload.ENTRY, None, ()), set[str]()
    size = len(await shared.payload({}))
    for part in ("inventory", "clock", "ranks"):
        size += sum(map(len, await shared.pieces(part, sent)))
    assert size < 150_000
    await shared.close()


def test_pieces_among_messages() -> None:
    data = protocol.encode({"a": 1}) + protocol.encode_piece(b"xy", False) + protocol.encode_piece(b"", True)
    decoder = protocol.Decoder(pieces=True)
    found = [message for number in range(len(data)) for message in decoder.feed(data[number : number + 1])]
    assert found == [
        {"a": 1},
        {"t": "modules", "piece": b"xy", "last": False},
        {"t": "modules", "piece": b"", "last": True},
    ]


@pytest.mark.parametrize("data", [protocol.encode_piece(b"x", True), b"\x80\0\0\0", b"\xff\xff\xff\xff"])
def test_nobody_sends_modules_to_this_side(data: bytes) -> None:
    with pytest.raises(protocol.ProtocolError, match="over the limit"):
        protocol.Decoder().feed(data)


@pytest.mark.parametrize("data", [b"\x80\0\0\0", b"\xff\xff\xff\xff", b"\x80\x50\0\0"])
def test_pieces_have_a_length_within_bounds(data: bytes) -> None:
    with pytest.raises(protocol.ProtocolError, match="over the limit"):
        protocol.Decoder(pieces=True).feed(data)
