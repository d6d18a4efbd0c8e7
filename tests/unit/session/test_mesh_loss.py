"""Loss in the mesh: only a second loss counts, as a machine that stalls for a moment loses packets."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any, cast

import pytest

from fabtui.model.layers import Layer
from fabtui.model.measurement import Verdict
from fabtui.model.session_model import Model
from fabtui.session.event_pipeline import EventPump
from fabtui.session.measure.one_way import OneWay
from fabtui.session.measure.ping_mesh import Address, PingMesh, Target, targets_between
from fabtui.session.node_client import NodeClient

HERE, THERE = (Address(f"10.0.0.{n}", 4, 0, "eth0", 9000) for n in (1, 2))
TARGET = Target("a", HERE, "b", THERE)


class LossyNode:
    """A node that loses one packet of each of the first requests of a kind.

    Args:
        times: Number of these requests; small echoes, large ones and datagrams are counted apart.
    """

    def __init__(self, times: int) -> None:
        self.times = times
        self.asked: Counter[str] = Counter()
        self.sent: dict[int, tuple[int, int]] = {}
        self.ended = asyncio.Event()

    def loses(self, kind: str) -> bool:
        self.asked[kind] += 1
        return self.asked[kind] <= self.times

    async def probe(
        self, name: str, args: dict[str, Any], deadline: float, part: Callable[[dict[str, Any]], None] | None = None
    ) -> dict[str, Any]:
        if name == "ping":
            return self.ping(args)
        if args["role"] == "listen":
            assert part is not None
            part({"ports": [{"address": THERE.address, "udp": 5, "tcp": 6, "error": None}]})
            await self.ended.wait()
        elif args["role"] == "end":
            self.ended.set()
        elif args["role"] == "send":
            (target,) = args["targets"]
            self.sent[target["number"]] = args["small"] - self.loses("udp"), args["big"]
            return {"rows": [{**target, "small": args["small"], "big": args["big"], "connected": 0.1}]}
        else:
            rows = [
                {"number": n, "src": HERE.address, "dst": THERE.address, "small": small, "big": big}
                for n, (small, big) in self.sent.items()
            ]
            return {"rows": rows, "no_room": 0}
        return {}

    def ping(self, args: dict[str, Any]) -> dict[str, Any]:
        """Answer echoes; the ladder of sizes is not counted."""
        count = args["count"]
        kind = "large" if args.get("whole") else "small"
        lost = count > 1 and self.loses(kind)
        row = {"sent": count, "received": count - lost, "rtt_avg": 0.1}
        return {"rows": [{"size": 56, **target, **row} for target in args["targets"]]}


@pytest.mark.parametrize(("times", "verdict"), [(0, Verdict.OK), (1, Verdict.OK), (2, Verdict.OK), (3, Verdict.SLOW)])
async def test_what_is_lost_is_lost_three_times(times: int, verdict: Verdict, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fabtui.session.measure.one_way.SETTLE", 0.0)
    model = Model()
    pump = EventPump(model, None)
    pumping = asyncio.create_task(pump.run())
    node = LossyNode(times)
    remotes = cast(dict[str, NodeClient], {"a": node, "b": node})
    async with asyncio.timeout(20):
        await PingMesh(pump, remotes).run([TARGET])
        await OneWay(pump, remotes).run([TARGET])
        await pump.flush()
    pumping.cancel()
    await asyncio.gather(pumping, return_exceptions=True)
    found = {m.layer: m for m in model.addresses.everything()}
    assert {layer: found[layer].verdict for layer in (Layer.PING, Layer.MTU, Layer.UDP)} == dict.fromkeys(
        (Layer.PING, Layer.MTU, Layer.UDP), verdict
    )
    assert found[Layer.UDP].attempts == min(times, 2) + 1


class CountedNodes:
    """Nodes that lose one datagram of one pair in the first round, and note what they are asked to send."""

    def __init__(self, targets: list[Target], loser: Target) -> None:
        self.number = targets.index(loser)
        self.plans: list[dict[str, Any]] = []
        self.sent: dict[int, dict[str, int]] = {}
        self.over = asyncio.Event()

    async def probe(
        self, name: str, args: dict[str, Any], deadline: float, part: Callable[[dict[str, Any]], None] | None = None
    ) -> dict[str, Any]:
        match args["role"]:
            case "listen":
                assert part is not None
                part({"ports": [{"address": a, "udp": 5, "tcp": 6, "error": None} for a in args["addresses"]]})
                await self.over.wait()
            case "end":
                self.over.set()
            case "count":
                rows = [
                    {"number": n, **sent, "small": sent["small"] - (n == self.number)} for n, sent in self.sent.items()
                ]
                return {"rows": rows, "no_room": 0}
            case "send":
                self.plans.append(args)
                counts = {"small": args["small"], "big": args["big"]}
                self.sent |= {target["number"]: counts for target in args["targets"]}
                return {"rows": [{**target, **counts, "connected": 0.1} for target in args["targets"]]}
        return {}


@pytest.mark.parametrize(("nodes", "small"), [(2, 150), (4, 50), (10, 16)])
async def test_few_targets_get_more_datagrams_and_those_beside_a_loss_are_tested_again(
    nodes: int, small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fabtui.session.measure.one_way.SETTLE", 0.0)
    there = {
        f"n{n}": [Address(f"10.{rail}.0.{n}", 4, rail, f"eth{rail}", 9000) for rail in range(4)] for n in range(nodes)
    }
    targets, _ = targets_between(list(there), [], there)
    loser = next(t for t in targets if (t.node, t.here.rail, t.peer, t.there.rail) == ("n1", 0, "n0", 2))
    counted = CountedNodes(targets, loser)
    pump = EventPump(Model(), None)
    pumping = asyncio.create_task(pump.run())
    async with asyncio.timeout(20):
        await OneWay(pump, cast(dict[str, NodeClient], dict.fromkeys(there, counted))).run(targets)
    pumping.cancel()
    await asyncio.gather(pumping, return_exceptions=True)
    first, again = ([plan for plan in counted.plans if (plan["tries"] == 1) is once] for once in (True, False))
    assert {plan["small"] for plan in first} == {small}
    asked = [(target["src"], target["dst"]) for plan in again for target in plan["targets"]]
    ends = loser.here.address, loser.there.address
    # All that goes out of the one address or into the other may lose as much.
    assert asked
    assert all(src == ends[0] or dst == ends[1] for src, dst in asked)
    assert len(asked) == len(set(asked)) == 2 * 4 * (nodes - 1) - 1
    assert {plan["tries"] for plan in again} == {3}
    assert all(20 <= plan["small"] <= 300 for plan in again)
