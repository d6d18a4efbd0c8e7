"""Nodes that answer the mesh with anything, or not at all: every target gets its row, and nothing breaks."""

import asyncio
import itertools
import random
from collections.abc import Callable
from typing import Any, cast

import pytest

from fabtui.diagnosis.mesh.mesh_rules import mesh_findings
from fabtui.model.layers import Layer
from fabtui.model.measurement import Verdict
from fabtui.model.session_model import Model
from fabtui.session.event_pipeline import EventPump
from fabtui.session.measure.one_way import OneWay
from fabtui.session.measure.ping_mesh import Address, PingMesh, Target
from fabtui.session.node_client import NodeClient, ProbeFailed

NODES = ["a", "b", "c"]
TARGETS = [
    Target(
        a,
        Address(f"10.0.0.{NODES.index(a) + 1}", 4, 0, "eth0", 9000),
        b,
        Address(f"10.0.0.{NODES.index(b) + 1}", 4, 0, "eth0", 9000),
    )
    for a, b in itertools.permutations(NODES, 2)
]
JUNK: list[Any] = [None, True, -1, 3, 1e308, float(2**70), "", "x\x1b[2J" * 50, [], [[]], {}, {"a": []}, [1, "2", None]]


class HostileNode:
    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.ended = asyncio.Event()

    def junk(self) -> Any:
        return self.chance.choice(JUNK)

    def row(self, target: dict[str, Any]) -> Any:
        """Return a row about a target, with some of its fields wrong."""
        names = [
            *("sent", "received", "loss", "rtt_avg", "size", "error", "raw", "tool", "path_mtu", "number", "small"),
            *("big", "connected", "connect_error"),
        ]
        names += ["src", "dst", "id"]
        row = {"sent": 3, "received": 3, "loss": 0.0, "rtt_avg": 0.1, "small": 5, "big": 3, "connected": 0.1, **target}
        for name in self.chance.sample(names, self.chance.randrange(0, 6)):
            row[name] = self.junk()
        return row if self.chance.random() < 0.9 else self.junk()

    async def probe(
        self, name: str, args: dict[str, Any], deadline: float, part: Callable[[dict[str, Any]], None] | None = None
    ) -> dict[str, Any]:
        if self.chance.random() < 0.1:
            raise ProbeFailed("failed", "it\x1b[31m broke")
        role = args.get("role")
        if role == "listen":
            assert part is not None
            part({"ports": self.junk()})
            part({"ports": [{"address": address, "udp": 5, "tcp": self.junk()} for address in args["addresses"]]})
            await asyncio.wait({asyncio.create_task(self.ended.wait())}, timeout=0.3)
            return {}
        if role == "end":
            self.ended.set()
        if role == "count":
            return {"rows": [self.row({"number": n, "src": "10.0.0.1"}) for n in range(20)], "no_room": self.junk()}
        rows = [self.row(target) for target in args.get("targets", [])]
        if part is not None and rows:
            part({"rows": rows[:1]})
        return {"rows": rows if self.chance.random() < 0.9 else self.junk()}


@pytest.mark.parametrize("seed", range(25))
async def test_any_answers(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fabtui.session.measure.one_way.SETTLE", 0.0)
    monkeypatch.setattr("fabtui.session.measure.one_way.OPEN_DEADLINE", 0.1)
    chance = random.Random(seed)
    model = Model()
    pump = EventPump(model, None)
    pumping = asyncio.create_task(pump.run())
    remotes = cast(dict[str, NodeClient], {node: HostileNode(chance) for node in NODES})
    async with asyncio.timeout(20):
        await PingMesh(pump, remotes).run(TARGETS)
        await OneWay(pump, remotes).run(TARGETS)
        await pump.flush()
    pumping.cancel()
    await asyncio.gather(pumping, return_exceptions=True)
    for layer in (Layer.PING, Layer.UDP, Layer.TCP):
        found = {(m.src, m.dst) for m in model.addresses.pairs(layer)}
        assert found == {(t.node, t.peer) for t in TARGETS}
    for m in model.addresses.everything():
        assert m.verdict in Verdict
        assert m.verdict is Verdict.OK or m.error
        assert all("\x1b" not in text for text in (m.error or "", m.how, m.src_addr or "", m.raw or ""))
    mesh_findings(model)


async def test_a_node_that_never_ends_its_ports_keeps_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless(HostileNode):
        async def probe(self, name: str, args: dict[str, Any], *more: Any) -> dict[str, Any]:
            if args["role"] == "listen":
                await asyncio.Event().wait()
            return {}

    monkeypatch.setattr("fabtui.session.measure.one_way.SETTLE", 0.0)
    monkeypatch.setattr("fabtui.session.measure.one_way.OPEN_DEADLINE", 0.01)
    monkeypatch.setattr("fabtui.session.measure.one_way.END_PATIENCE", 0.01)
    pump = EventPump(Model(), None)
    pumping = asyncio.create_task(pump.run())
    chance = random.Random(0)
    remotes = cast(dict[str, NodeClient], {node: Endless(chance) for node in NODES})
    async with asyncio.timeout(20):
        await OneWay(pump, remotes).run(TARGETS)
    pumping.cancel()
    await asyncio.gather(pumping, return_exceptions=True)
    assert {m.verdict for m in pump.model.addresses.pairs(Layer.UDP)} == {Verdict.INCONCLUSIVE}
