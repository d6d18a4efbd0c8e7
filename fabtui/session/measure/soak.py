"""Soak: pairs, collectives and products in turn for a time, with checked data."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from fabtui.model.endpoints import Endpoint
from fabtui.model.events import PhaseStart, ProbeResult
from fabtui.model.layers import COLLECTIVES, Layer
from fabtui.model.measurement import Verdict
from fabtui.model.schedule import Pair, each_round
from fabtui.model.slower_node import PairedTest, majority
from fabtui.session.measure.group_tests import groups_of
from fabtui.session.measure.host_link import HostLinks
from fabtui.session.measure.measurement_context import MeasurementContext
from fabtui.session.measure.measurement_runner import MeasurementRunner

#: Quantities by which endpoints are compared, and what they are called.
_COMPARED = {"product": "the product of matrices", "own": "copies within its memory", "pairs": "its pairs"}
_DECIDED = (Verdict.OK, Verdict.SLOW, Verdict.WRONG)


class Soak:
    """Loads what is there, turn by turn; a turn has a round of disjoint pairs, a collective, and each GPU alone."""

    def __init__(self, context: MeasurementContext, runner: MeasurementRunner) -> None:
        self._context, self._runner = context, runner
        self._model = context.pump.model
        self._tested: list[tuple[str, str]] = []
        self._wrong: list[tuple[str, str]] = []
        self._bytes: dict[str, int] = {}
        self._compared = {name: PairedTest() for name in _COMPARED}

    async def run(self, nodes: Sequence[str], seconds: float) -> None:
        """Run turns for a time, and report a result for each node."""
        await self._context.settled()
        ready = self._context.ready()
        ends = [end for end in self._context.endpoints if end.node in nodes and end.number in ready]
        if not ends:
            return
        loop = asyncio.get_running_loop()
        began, turns = loop.time(), 0
        self._context.pump.emit(PhaseStart(name="soak", total=0))
        # The sweep before it has tested each pair once.
        swept = [((m.src, m.dst), m.verdict) for m in self._model.measurements(Layer.P2P) if m.verdict in _DECIDED]
        self._tested += [pair for pair, _ in swept]
        self._wrong += [pair for pair, verdict in swept if verdict is Verdict.WRONG]
        # The rounds of the circle method: each pair once, no endpoint twice in a round.
        rounds = list(each_round(len(ends))) if len(ends) > 1 else [[]]
        while loop.time() - began < seconds:
            pairs = [(ends[a].number, ends[b].number) for a, b in rounds[turns % len(rounds)]]
            await self._turn(ends, pairs)
            turns += 1
        self._report(ends, turns, loop.time() - began)

    async def _turn(self, ends: Sequence[Endpoint], pairs: Sequence[Pair]) -> None:
        if pairs:
            await self._runner.soak_pairs(pairs)
            await self._context.pump.flush()
            self._take_pairs(pairs)
        groups = groups_of(ends, list(dict.fromkeys(end.node for end in ends)))
        # The last group is the largest.
        for group in groups[-1:]:
            await self._runner.groups_alone("all_reduce", [group])
            await self._context.pump.flush()
            latest = self._model.latest(COLLECTIVES["all_reduce"], group.src, group.dst)
            if latest is not None and latest.verdict is Verdict.WRONG:
                self._context.pump.log("error", f"soak: the all_reduce of {len(group.ranks)} ranks has wrong results")
        values = await HostLinks(self._context).measured(ends)
        self._tested += [(str(end), str(end)) for end in ends]
        self._wrong += [(str(end), str(end)) for end in ends if values[end.number].get("wrong")]
        if not self._shares_cores:
            for quantity in ("product", "own"):
                known = {str(end): float(values[end.number].get(quantity) or 0.0) for end in ends}
                self._compared[quantity].add(known)

    @property
    def _shares_cores(self) -> bool:
        """Ranks on CPUs wait for each other's cores: a slower one there is no sign of a fault."""
        return any(host.engine.name == "gloo" for host in self._context.hosts.values())

    def _take_pairs(self, pairs: Iterable[Pair]) -> None:
        shares: dict[str, list[float]] = {}
        for a, b in pairs:
            for src, dst in ((a, b), (b, a)):
                names = str(self._context.endpoints[src]), str(self._context.endpoints[dst])
                latest = self._model.latest(Layer.P2P, *names)
                if latest is None or latest.verdict not in _DECIDED:
                    continue
                self._tested.append(names)
                self._wrong += [names] if latest.verdict is Verdict.WRONG else []
                messages = (latest.extra or {}).get("times", {}).get("count", 1)
                usual = self._model.usual(latest)
                for name in names:
                    self._bytes[name] = self._bytes.get(name, 0) + int((latest.bytes or 0) * messages)
                    if latest.value and usual:
                        shares.setdefault(name, []).append(latest.value / usual)
        if not self._shares_cores:
            self._compared["pairs"].add({name: sum(each) / len(each) for name, each in shares.items()})

    def _report(self, ends: Sequence[Endpoint], turns: int, seconds: float) -> None:
        suspects = {one.name: one for one in majority(self._tested, self._wrong)}
        slower = [(what, one) for name, what in _COMPARED.items() for one in self._compared[name].slower()]
        for node in dict.fromkeys(end.node for end in ends):
            mine = {str(end): end.index for end in ends if end.node == node}
            wrong = [{**suspects[name]._asdict(), "index": mine[name]} for name in mine if name in suspects]
            slow = [
                {**one._asdict(), "index": mine[one.name], "what": what} for what, one in slower if one.name in mine
            ]
            value: dict[str, Any] = {"seconds": round(seconds, 1), "sweeps": turns, "bad": len(wrong)}
            value |= {"wrong": wrong, "slower": slow, "bytes": sum(self._bytes.get(name, 0) for name in mine)}
            self._context.pump.emit(ProbeResult(node=node, probe="soak", value=value))
        names = ", ".join(itertools.islice(suspects, 4))
        text = f"wrong data has {names} in common" if names else "no wrong data"
        self._context.pump.log("error" if names else "info", f"soak: {turns} turns in {seconds:.0f} s; {text}")
