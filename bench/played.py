"""Simulated nodes over real pipes, for the benchmarks: one process plays many, each over a socket of its own.

They speak the protocol of real nodes, including the store traffic of a meeting: presence, the communicator's id, the
outcome of each direction. Their reports are as long as real ones. Their measurements are synthetic and take no time, so
that the cost of the controller remains.
"""

import asyncio
import base64
import contextlib
import json
import os
import random
import resource
import socket
import sys
import zlib
from collections.abc import Coroutine, Generator
from multiprocessing import get_context
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from playednames import GPUS, NONCE, node_name

from fabtui.nodeset import expand_listed
from fabtui_node import protocol
from fabtui_node.runtime.call_back import SETTING, proof
from tests.unit.session.fakenodes import FakeLink, Script

Message = dict[str, Any]
Process = get_context("fork").Process
#: Processes that play the nodes of an srun.
PLAYERS = 4
Steps = Generator[Message, Message, None]

_RAW = (
    "NCCL INFO Channel 00/1 : {a}[{x}] -> {b}[{y}] [{role}] via NET/IB/{x}/GDRDMA\n"
    "NCCL_SOCKET_RETRY_CNT=5 NCCL_IB_TIMEOUT=17\n"
    "seconds: meet 0.00{meet}, init 0.{init:03d}, fill 0.003, first byte 0.049, data 0.{data:03d}, ping 0.02{ping}"
)


def _packed(value: Message | bytes) -> str:
    return base64.b64encode(value if isinstance(value, bytes) else json.dumps(value).encode()).decode()


class Player(FakeLink):
    """The node's end of a link: supervisor, probes and ranks of a node with eight GPUs and a NIC for each."""

    def __init__(self, number: int, script: Script, writer: asyncio.StreamWriter) -> None:
        super().__init__(node_name(number), script)
        self._number = number
        self._writer = writer
        self._waiting: dict[int, Steps] = {}
        self._asked = 0
        self._epoch, self._address = "", ""
        self._chance = random.Random(number)

    def say_hello(self, nonce: str = NONCE) -> None:
        self._writer.write(protocol.marker(nonce))
        hello = {"t": "hello", "protocol": protocol.VERSION, "pid": 1, "python": "3.11.0", "host": self.node}
        self._writer.write(protocol.encode(hello))

    async def take(self, message: Message) -> None:
        """Do what the controller asks, and send what comes of it."""
        if message["t"] == "hb":
            self._queue.put_nowait({"t": "hb", "n": message["n"], "rank": True})
        else:
            await self.send(message)
            self.sent.clear()
        ranks: list[Message] = []
        while not self._queue.empty():
            if isinstance(frame := self._queue.get_nowait(), dict):
                if frame["t"] == "rank":
                    ranks.append(frame["m"])
                else:
                    self._writer.write(protocol.encode(frame))
        # A supervisor passes on as one message what it reads at once.
        if len(ranks) > 1:
            self._writer.write(protocol.encode({"t": "rank", "m": {"op": "several", "messages": ranks}}))
        elif ranks:
            self._writer.write(protocol.encode({"t": "rank", "m": ranks[0]}))

    def _probe(self, message: Message) -> Message:
        value = super()._probe(message) or {}
        if message["name"] == "inventory":
            net = f"10.{self._number >> 8}.{self._number & 255}"
            nics = range(len(value["gpus"]))
            value["nics"] = [{"name": f"ib{i}", "rdma": f"mlx5_{i}"} for i in nics]
            value["data_addresses"] = [
                {"address": f"{net}.{1 + i}", "nic": f"mlx5_{i}", "rail": i, "family": 4} for i in nics
            ]
            for gpu in value["gpus"]:
                gpu["nic"] = f"mlx5_{gpu['index']}"
        return value

    # -- ranks --------------------------------------------------------------------------------------------------------

    def _rank(self, m: Message) -> None:
        if m["op"] == "store":
            if (steps := self._waiting.pop(m["q"], None)) is not None:
                self._go(steps, m)
            return
        if m["op"] == "init":
            self._epoch, self._address = m["epoch"], str(m["address"])
        super()._rank(m)

    def _go(self, steps: Steps, answer: Message | None) -> None:
        try:
            asked = next(steps) if answer is None else steps.send(answer)
        except StopIteration:
            return
        self._waiting[self._store(**asked)] = steps

    def _store(self, **request: Any) -> int:
        self._asked += 1
        self._say(op="store", q=self._asked, timeout=10.0, **request)
        return self._asked

    def _pair(self, m: Message) -> None:
        for rank in {m["a"], m["b"]} & set(self._ranks):
            self._go(self._meeting(m, rank), None)

    def _id(self) -> bytes:
        """Return an id of NCCL, which has an address of this node."""
        return (bytes(8) + b"\2\0\0\0" + socket.inet_aton(self._address)).ljust(128, b"\0")

    def _meeting(self, m: Message, rank: int) -> Steps:
        """Send the store requests and reports of one side of a pair; yield what it waits for."""
        prefix = f"{self._epoch}/{m['id']}/"
        peer = m["a"] + m["b"] - rank
        hello = {"node": self.node, "address": self._address, "closed_port": 40000, "faults": []}
        yield {"cmd": "swap", "key": f"{prefix}hello/{rank}", "value": _packed(hello), "peer": f"{prefix}hello/{peer}"}
        if rank < peer:
            self._say(op="store", cmd="set", key=f"{prefix}link1/id", value=_packed(self._id()))
        else:
            yield {"cmd": "get", "key": f"{prefix}link1/id"}
        for src, dst in ((m["a"], m["b"]), (m["b"], m["a"])):
            roles = ("src", "dst") if rank == src else ("dst", "src")
            verdict = {"ok": True, "timeout": False, "phase": "transfer", "error": None, "transport": "NET/IB/0/GDRDMA"}
            mine, other = (f"{prefix}{src}>{dst}/end/{one}" for one in roles)
            yield {"cmd": "swap", "key": mine, "value": _packed(verdict), "peer": other}
            self._side(m, src, dst, roles[0])
        self._say(op="free", id=m["id"], rank=rank)

    def _say(self, **message: Any) -> None:
        if message.get("op") == "side":
            src, dst = message["src"], message["dst"]
            # No two pairs are quite the same: what is alike would take less room than it really does.
            meet, init, data, ping = (self._chance.randrange(most) for most in (10, 200, 400, 10))
            raw = _RAW.format(
                **{"a": src, "b": dst, "x": src % GPUS, "y": dst % GPUS, "role": message["role"]},
                **{"meet": meet, "init": init, "data": data, "ping": ping},
            )
            least, median, most = sorted(self._chance.gauss(5e-3, 1e-4) for _ in range(3))
            times = {"count": 20, "min": least, "median": median, "p99": most, "max": most}
            message.update(raw=raw, src_addr=f"10.0.{src // GPUS}.1", dst_addr=f"10.0.{dst // GPUS}.1", times=times)
            for name in ("rate", "latency"):
                if message[name] is not None:
                    message[name] *= self._chance.gauss(1, 0.01)
        super()._say(**message)


async def _play(number: int, script: Script, fd: int) -> None:
    reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=fd))
    await _obey(Player(number, script, writer), NONCE, reader, writer)


async def _obey(
    player: Player, nonce: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, dies: int = 0
) -> None:
    player.say_hello(nonce)
    decoder = protocol.Decoder(pieces=True)
    pairs = 0
    while data := await reader.read(1 << 18):
        for message in decoder.feed(data):
            if message["t"] == "bye":
                writer.close()
                return
            pairs += b'"pairs"' in json.dumps(message).encode() if dies and message["t"] == "rank" else 0
            if dies and pairs >= dies:
                # As a node that loses its power and comes back, or whose slurmd ends all.
                writer.transport.abort()
                return
            if message["t"] != "modules":
                await player.take(message)
        await writer.drain()


async def _call_back(number: int, script: Script, setting: list[str], dies: int) -> None:
    secret, step, port, address, _ = setting
    reader, writer = await asyncio.open_connection(address.replace("-", "127.0.0.1"), int(port), limit=1 << 20)
    greeting = f"{step} {node_name(number)} {number} {random.randbytes(16).hex()}"
    writer.write(f"{greeting}\n".encode())
    controller = (await reader.readline()).decode().split()[0]
    writer.write(f"{proof(secret, 'node', greeting, controller)}\n".encode())
    packed = await reader.readexactly(int(await reader.readexactly(8), 16))
    # The configuration comes last.
    config = json.loads(zlib.decompress(packed))["config"]
    await _obey(Player(number, script, writer), config["nonce"], reader, writer, dies)


async def _call_all(numbers: list[int], setting: list[str], dying: int) -> None:
    """Play the nodes that an srun started; some of them die after a few pairs."""
    script = Script({node_name(number): GPUS for number in numbers})
    chance = random.Random(setting[1])
    doomed = set(chance.sample(numbers, min(dying, len(numbers))))
    async with asyncio.TaskGroup() as group:
        for number in numbers:
            dies = chance.randrange(1, 4) if number in doomed else 0
            group.create_task(_alone(_call_back(number, script, setting, dies)))


async def _alone(playing: Coroutine[Any, Any, None]) -> None:
    # A link that breaks belongs to one node.
    with contextlib.suppress(OSError):
        await playing


def _as_srun() -> None:
    """Be srun: processes that play the nodes of ``--nodelist``, as many as there are cores for them."""
    text = next(word for word in sys.argv if word.startswith("--nodelist="))
    numbers = [int(name[1:]) for name in expand_listed(text.partition("=")[2]) or ()]
    setting = os.environ[SETTING].split()
    dying = int(os.environ.get("PLAYED_DYING", "0"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    players = [
        Process(target=lambda part=part: asyncio.run(_call_all(part, setting, dying // PLAYERS)))
        for part in (numbers[first::PLAYERS] for first in range(PLAYERS))
    ]
    for player in players:
        player.start()
    for player in players:
        player.join()


async def _play_all(first: int, nodes: int, fds: list[int]) -> None:
    script = Script({node_name(number): GPUS for number in range(nodes)})
    async with asyncio.TaskGroup() as group:
        for at, fd in enumerate(fds):
            group.create_task(_play(first + at, script, fd))


if __name__ == "__main__":
    if sys.argv[1] == "srun":
        _as_srun()
    else:
        asyncio.run(_play_all(int(sys.argv[1]), int(sys.argv[2]), [int(word) for word in sys.argv[3].split(",")]))
