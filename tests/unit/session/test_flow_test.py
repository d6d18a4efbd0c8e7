"""Flows of suspect pairs of addresses: which are tried, and what becomes of their measurements."""

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from fabtui.model.events import Measured
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.session_model import Model
from fabtui.session.event_pipeline import EventPump
from fabtui.session.measure import one_way
from fabtui.session.measure.one_way import FLOWS, MAX_OF_NODE, MAX_SUSPECTS, FlowCounts, FlowTest, fair_sample, judged
from fabtui.session.measure.ping_mesh import Address, Target

Passes = Callable[[Target, int, int], int]


def targets_of(nodes: int, rails: int = 1) -> list[Target]:
    addresses = {f"n{n}": [Address(f"10.{r}.0.{n}", 4, r) for r in range(rails)] for n in range(nodes)}
    return [
        Target(a, here, b, there)
        for a, b in itertools.permutations(addresses, 2)
        for here in addresses[a]
        for there in addresses[b]
    ]


class Fabric:
    """Nodes whose flows pass according to functions of the target, the flow and the round; 1, 0 or -1 (refused)."""

    def __init__(self, targets: list[Target]) -> None:
        self.targets = targets
        self.udp: Passes = lambda *_: 1
        self.tcp: Passes = lambda *_: 1
        self.asked: Counter[str] = Counter()
        self.tried: list[Target] = []
        self.arrived: list[tuple[str, int]] = []
        self.hops: Any = None
        self.model = Model()

    async def call(self, node: str, args: dict[str, Any], deadline: float) -> dict[str, Any]:
        self.asked[args["role"]] += 1
        if args["role"] == "count":
            rows = [{"number": number, "small": 3} for peer, number in self.arrived if peer == node]
            return {"rows": rows, "no_room": 0}
        if args["role"] == "trace":
            return {"rows": [{"number": at, "hops": self.hops} for at, _ in enumerate(args["targets"])]}
        return {"rows": [self.row(node, entry, args["rounds"]) for entry in args["targets"]]}

    def row(self, node: str, entry: dict[str, Any], rounds: int) -> dict[str, Any]:
        ends = (node, entry["src"], entry["dst"])
        target = next(t for t in self.targets if (t.node, t.here.address, t.there.address) == ends)
        self.tried.append(target)
        flows = []
        for at in range(FLOWS):
            passed = [self.udp(target, at, n) for n in range(rounds)]
            self.arrived += [(target.peer, entry["number"] + at * rounds + n) for n, one in enumerate(passed) if one]
            tcp = [self.tcp(target, at, n) for n in range(rounds)]
            flows.append({"port": 40000 + at, "sent": [3] * rounds, "refused": False, "tcp": tcp})
        return {"number": entry["number"], "flows": flows}

    async def run(
        self,
        bad: Callable[[Layer, Target], object],
        failed: list[Target] | None = None,
        lossy: Callable[[Layer, Target], object] = lambda *_: False,
        known: list[Target] | None = None,
    ) -> None:
        """Run the test after one of single packets, of which some were bad."""
        pump = EventPump(self.model, None)
        pumping = asyncio.create_task(pump.run())
        rows = [
            t.measurement(
                layer,
                Verdict.TIMEOUT if bad(layer, t) else Verdict.SLOW if lossy(layer, t) else Verdict.OK,
                0.1,
                "%",
                None,
            )
            for layer in (Layer.PING, Layer.UDP, Layer.TCP)
            for t in self.targets
        ]
        pump.emit(Measured(measurements=rows))
        await pump.flush()
        ports = {(t.peer, t.there.address): (5, 6) for t in self.targets}
        await FlowTest(pump, self.call, ports, 1000).run(self.targets, failed or [], known or [])
        await pump.flush()
        pumping.cancel()

    def of(self, layer: Layer, target: Target) -> Measurement:
        m = self.model.addresses.last(layer, target.node, target.peer, target.here.address, target.there.address)
        assert m is not None
        return m


@pytest.fixture
def fabric() -> Fabric:
    return Fabric(targets_of(4))


def across(target: Target) -> bool:
    return (target.node in ("n0", "n1")) is not (target.peer in ("n0", "n1"))


async def test_healthy_pairs_are_not_tried(fabric: Fabric) -> None:
    await fabric.run(lambda layer, t: False, [fabric.targets[0]])
    assert fabric.asked == {}, "a connection that failed once and then passed is chance"
    # A node that answers no ping drops them; a node that reaches nobody does so from any port.
    await fabric.run(lambda layer, t: layer is Layer.PING and "n3" in (t.node, t.peer))
    await fabric.run(lambda layer, t: "n3" in (t.node, t.peer))
    assert fabric.asked == {}


async def test_where_half_of_the_flows_are_lost_the_pairs_beside_are_tried(fabric: Fabric) -> None:
    fabric.udp = lambda t, at, n: int(not (across(t) and at < 5))
    fabric.hops = [None, "10.9.0.1", None, "10.9.1.1"]
    await fabric.run(lambda layer, t: layer is Layer.TCP and (t.node, t.peer) == ("n0", "n2"))
    assert set(fabric.tried) == set(fabric.targets), "those within the groups show who is healthy"
    assert len(fabric.tried) == len(fabric.targets)
    for target in fabric.targets:
        m = fabric.of(Layer.UDP, target)
        assert m.extra is not None
        if across(target):
            assert (m.verdict, m.value, m.error) == (Verdict.SLOW, 31.25, "5 of 16 source ports never pass")
            assert m.extra["flows"] == {"tried": 16, "always": 11, "never": 5, "refused": 0}
        else:
            assert (m.verdict, m.error, m.extra["flows"]["always"]) == (Verdict.OK, None, 16)
    traced = [t for t in fabric.targets if (fabric.of(Layer.UDP, t).extra or {}).get("last_hop") == "10.9.1.1"]
    assert 0 < len(traced) <= one_way.MAX_TRACED
    assert fabric.of(Layer.TCP, fabric.targets[1]).verdict is Verdict.OK, "its connections pass from all ports"


async def test_connections_that_pass_now_and_then(fabric: Fabric) -> None:
    fabric.tcp = lambda t, at, n: int(not (t.peer == "n0" and (at + n) % 4))
    await fabric.run(lambda layer, t: layer is Layer.TCP and t.peer == "n0")
    m = fabric.of(Layer.TCP, next(t for t in fabric.targets if t.peer == "n0"))
    assert (m.verdict, m.value) == (Verdict.SLOW, None)
    assert m.error == "8 of 16 source ports never pass; 8 of 16 pass intermittently"
    assert fabric.asked["trace"] == 0
    assert all("n0" in (t.node, t.peer) for t in fabric.tried)


async def test_where_datagrams_are_lost_connections_fail_by_chance(fabric: Fabric) -> None:
    fabric.tcp = lambda t, at, n: int(not ("n0" in (t.node, t.peer) and (at + n) % 4 == 0))
    lossy = lambda layer, t: "n0" in (t.node, t.peer) and layer is Layer.UDP  # noqa: E731
    await fabric.run(lambda layer, t: False, fabric.targets, lossy)
    assert len(fabric.tried) == len(fabric.targets)
    assert {fabric.of(Layer.TCP, t).verdict for t in fabric.targets} == {Verdict.OK}


async def test_pairs_with_lost_flows_are_tried_in_later_tests_as_well(fabric: Fabric) -> None:
    fabric.udp = lambda t, at, n: int(not (across(t) and at < 5))
    known = [t for t in fabric.targets if across(t)]
    await fabric.run(lambda layer, t: False, known=known)
    assert all(fabric.of(Layer.UDP, t).error == "5 of 16 source ports never pass" for t in known)
    assert all(one_way.lost_flows(fabric.of(Layer.UDP, t)) is across(t) for t in fabric.targets)


@pytest.mark.parametrize(
    ("before", "counts", "verdict", "error"),
    [
        (Verdict.TIMEOUT, (16, 16, 0, 0), Verdict.OK, None),
        (Verdict.OK, (16, 16, 0, 0), Verdict.OK, None),
        (Verdict.SLOW, (16, 16, 0, 0), Verdict.SLOW, "was"),
        (Verdict.INCONCLUSIVE, (16, 16, 0, 0), Verdict.INCONCLUSIVE, "was"),
        (Verdict.TIMEOUT, (16, 0, 16, 0), Verdict.TIMEOUT, "was; none of 16 source ports passes"),
        (Verdict.FAILED, (16, 0, 16, 16), Verdict.FAILED, "was; none of 16 source ports passes"),
        (Verdict.OK, (16, 0, 16, 16), Verdict.FAILED, "no answer; none of 16 source ports passes"),
        (Verdict.OK, (16, 15, 0, 0), Verdict.OK, None),
        (Verdict.OK, (16, 14, 0, 0), Verdict.SLOW, "2 of 16 pass intermittently"),
        (Verdict.SLOW, (16, 12, 0, 0), Verdict.SLOW, "was"),
        (Verdict.TIMEOUT, (16, 3, 13, 0), Verdict.SLOW, "13 of 16 source ports never pass"),
    ],
)
def test_what_many_flows_say_of_a_pair(before: Verdict, counts: tuple[int, ...], verdict: Verdict, error: str) -> None:
    reason = None if before is Verdict.OK else "was"
    m = targets_of(2)[0].measurement(Layer.TCP, before, 0.1, "ms", None, error=reason, extra={"came_from": "x"})
    after = judged(m, FlowCounts(*counts))
    assert (after.verdict, after.error, after.attempts) == (verdict, error, 2)
    assert after.extra == {"came_from": "x", "flows": FlowCounts(*counts)._asdict()}


def test_of_many_suspects_a_sample_is_tried_that_covers_rails_and_nodes() -> None:
    targets = targets_of(32, 4)
    chosen = fair_sample(targets)
    assert len(chosen) <= MAX_SUSPECTS + 1
    assert max(Counter(t.node for t in chosen).values()) <= MAX_OF_NODE
    assert len({t.node for t in chosen}) >= 30
    assert {(t.here.rail, t.there.rail) for t in chosen} == set(itertools.product(range(4), repeat=2))
    ends = {(t.node, t.here.address, t.peer, t.there.address) for t in chosen}
    assert {(c, d, a, b) for a, b, c, d in ends} == ends, "each with its opposite direction"
    halves = Counter((int(t.node[1:]) < 16, int(t.peer[1:]) < 16) for t in chosen)
    assert min(halves.values()) >= len(chosen) / 8, halves
