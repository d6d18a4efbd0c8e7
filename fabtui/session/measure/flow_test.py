"""Flows of suspect pairs of addresses: several source ports each way, as equal paths are chosen by a hash of ports."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from fabtui.model.events import Measured, PhaseStart
from fabtui.model.facts.node_view import dicts
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.nodeset import count
from fabtui.sanitize import one_line
from fabtui.session.event_pipeline import EventPump
from fabtui.session.measure.p2p_result import number
from fabtui.session.measure.ping_mesh import Target
from fabtui.transport.link import Message

#: Source ports of a pair in each direction and for each protocol; rounds, and the pause (s) between them.
FLOWS, ROUNDS, PAUSE = 16, 2, 2.0
#: Datagrams of a flow in a round.
DATAGRAMS = 3
#: Maximum number of suspect pairs, of all nodes and of a sending node: all flows of a node are in the air at once.
MAX_SUSPECTS, MAX_OF_NODE = 256, 16
#: Maximum number of lost flows whose routers are asked, and of those of one sending node.
MAX_TRACED, MAX_TRACED_OF_NODE = 8, 2
DEADLINE, TRACE_DEADLINE = 30.0, 15.0
DEAD = (Verdict.TIMEOUT, Verdict.FAILED)

#: Runs the probe on a node: its name, the arguments, a deadline.
Call = Callable[[str, Message, float], Coroutine[Any, Any, Message]]
#: Ports for datagrams and connections, by node and address.
Ports = Mapping[tuple[str, str], tuple[int | None, int | None]]


class FlowCounts(NamedTuple):
    """Number of flows of a pair by their results in all rounds."""

    tried: int = 0
    always: int = 0  #: Passed in each round.
    never: int = 0  #: Passed in none.
    refused: int = 0  #: Number of flows without a pass that were answered with an error.

    @property
    def partly(self) -> bool:
        """Return True if some flows always pass and others never do."""
        return self.always > 0 and self.never > 0

    @property
    def passes(self) -> bool:
        """Return True if all flows pass; one that did not once is chance."""
        return self.never == 0 and self.always + 1 >= self.tried

    def text(self) -> str:
        """Return what is wrong, or "" if all flows pass."""
        some = self.tried - self.always - self.never
        never = f"{self.never} of {self.tried} source ports never pass" if self.never else ""
        now = f"{some} of {self.tried} pass intermittently" if some else ""
        return "; ".join(filter(None, (never, now)))


class _Outcome(NamedTuple):
    """Flows of a target."""

    udp: FlowCounts
    tcp: FlowCounts
    lost_port: int | None  #: Source port of a flow whose datagrams never arrive.


class FlowTest:
    """Tries several source ports between pairs of addresses whose tests failed or disagreed.

    Args:
        pump: The sink of the results.
        call: Runs the probe on a node.
        ports: The ports that nodes listen on.
        first: First number of targets that no other test uses.
    """

    def __init__(self, pump: EventPump, call: Call, ports: Ports, first: int) -> None:
        self._pump = pump
        self._call = call
        self._ports = ports
        self._next = first

    async def run(self, targets: Sequence[Target], failed: Iterable[Target], known: Iterable[Target] = ()) -> None:
        """Try the suspects among targets, and where some flows are lost, the other pairs of the same rails.

        Args:
            targets: All tested pairs.
            failed: Those of which a test failed at first, even if it passed later.
            known: Those of which some flows did not pass when they were tried before.
        """
        chosen = fair_sample(self._suspects(targets, set(failed), set(known)))
        if not chosen:
            return
        self._pump.log("info", f"several source ports are tried: {count(len(chosen), 'address pair')}")
        found = await self._try(chosen)
        rails = {_rails(target) for target, one in found.items() if one.udp.partly or one.tcp.partly}
        if rails:
            # Who shares the fault shows only beside who does not.
            beside = [target for target in targets if _rails(target) in rails and target not in found]
            found |= await self._try(fair_sample(beside))
        await self._trace(found)

    def _suspects(self, targets: Sequence[Target], failed: set[Target], known: set[Target]) -> list[Target]:
        """Return the pairs whose TCP or UDP test failed, or whose directions or tests disagree.

        Pairs of an address that reaches nobody are left out: other ports do not help.
        """
        bad = set(known)
        no_echo: set[Target] = set()
        alive: dict[str, set[tuple[str, str]]] = {name: set() for name in ("sends", "receives", "echoes")}
        for target in targets:
            ping, udp, tcp = (self._latest(layer, target) for layer in (Layer.PING, Layer.UDP, Layer.TCP))
            here, there = (target.node, target.here.address), (target.peer, target.there.address)
            if any(_answers(m) for m in (ping, udp, tcp)):
                alive["sends"].add(here)
                alive["receives"].add(there)
            if _answers(ping):
                alive["echoes"] |= {here, there}
            elif ping is not None and ping.verdict in DEAD:
                no_echo.add(target)
            if is_silent(udp) or (tcp is not None and tcp.verdict in DEAD):
                bad.add(target)
        # One lost packet is chance; a node that answers nobody's echoes drops them.
        bad |= failed if len({_ends(target) for target in failed}) > 1 else set()
        bad |= {t for t in no_echo if {(t.node, t.here.address), (t.peer, t.there.address)} <= alive["echoes"]}
        ends = {_ends(target) for target in bad}
        return [
            target
            for target in targets
            if _ends(target) in ends
            and target.here.up
            and target.there.up
            and (target.node, target.here.address) in alive["sends"]
            and (target.peer, target.there.address) in alive["receives"]
        ]

    def _latest(self, layer: Layer, target: Target) -> Measurement | None:
        ends = (target.node, target.peer, target.here.address, target.there.address)
        return self._pump.model.addresses.last(layer, *ends)

    async def _try(self, targets: list[Target]) -> dict[Target, _Outcome]:
        if not targets:
            return {}
        self._pump.emit(PhaseStart(name="flows", total=len(targets)))
        step = FLOWS * ROUNDS
        numbers = {target: self._next + at * step for at, target in enumerate(targets)}
        self._next += len(targets) * step
        by_node: dict[str, list[Target]] = {}
        for target in targets:
            by_node.setdefault(target.node, []).append(target)
        plan = {"flows": FLOWS, "rounds": ROUNDS, "datagrams": DATAGRAMS, "pause_ms": round(1000 * PAUSE)}
        answers = await asyncio.gather(
            *(
                self._call(
                    node, {"role": "flows", "targets": [self._entry(t, numbers[t]) for t in mine], **plan}, DEADLINE
                )
                for node, mine in by_node.items()
            )
        )
        peers = sorted({target.peer for target in targets})
        counts = await asyncio.gather(*(self._call(node, {"role": "count"}, DEADLINE) for node in peers))
        arrived = {
            (peer, row["number"])
            for peer, value in zip(peers, counts, strict=True)
            for row in dicts(value.get("rows"))
            if isinstance(row.get("number"), int) and row.get("small")
        }
        counted = {peer for peer, value in zip(peers, counts, strict=True) if value}
        rows = {
            (node, row["number"]): row
            for node, value in zip(by_node, answers, strict=True)
            for row in dicts(value.get("rows"))
            if isinstance(row.get("number"), int)
        }
        found = {}
        for target, number_ in numbers.items():
            if (row := rows.get((target.node, number_))) is not None:
                at = {n for peer, n in arrived if peer == target.peer and number_ <= n < number_ + step}
                found[target] = _outcome(row, number_, at if target.peer in counted else None)
        self._report(found, {})
        await self._pump.flush()
        return found

    def _entry(self, target: Target, number_: int) -> Message:
        udp, tcp = self._ports.get((target.peer, target.there.address), (None, None))
        return {"number": number_, "src": target.here.address, "dst": target.there.address, "udp": udp, "tcp": tcp}

    async def _trace(self, found: Mapping[Target, _Outcome]) -> None:
        """Find the last router that answers for some of the lost flows, where others of the pair pass."""
        per_node: Counter[str] = Counter()
        chosen: dict[str, list[Target]] = {}
        for target in fair_sample([t for t, one in found.items() if one.udp.partly and one.lost_port]):
            if per_node[target.node] < MAX_TRACED_OF_NODE and per_node.total() < MAX_TRACED:
                per_node[target.node] += 1
                chosen.setdefault(target.node, []).append(target)
        answers = await asyncio.gather(
            *(
                self._call(
                    node,
                    {
                        "role": "trace",
                        "targets": [{**self._entry(t, at), "port": found[t].lost_port} for at, t in enumerate(mine)],
                    },
                    TRACE_DEADLINE,
                )
                for node, mine in chosen.items()
            )
        )
        hops: dict[Target, str] = {}
        for (_, mine), value in zip(chosen.items(), answers, strict=True):
            for row in dicts(value.get("rows")):
                at, listed = row.get("number"), row.get("hops")
                if isinstance(at, int) and 0 <= at < len(mine) and isinstance(listed, list) and listed:
                    hops[mine[at]] = one_line(str(listed[-1]), 60)
        self._report({target: found[target] for target in hops}, hops)
        await self._pump.flush()

    def _loses(self, target: Target) -> bool:
        """Return True if datagrams of one flow were lost on the path to a target, or back."""
        back = Target(target.peer, target.there, target.node, target.here)
        rows = (self._latest(Layer.UDP, one) for one in (target, back))
        return any(m is not None and m.verdict is Verdict.SLOW and not _flows_of(m) for m in rows)

    def _report(self, found: Mapping[Target, _Outcome], hops: Mapping[Target, str]) -> None:
        rows = []
        for target, one in found.items():
            for layer, counts in ((Layer.UDP, one.udp), (Layer.TCP, one.tcp)):
                before = self._latest(layer, target)
                # Where packets of one flow are lost, so are connections now and then.
                chance = layer is Layer.TCP and counts.never < counts.tried and self._loses(target)
                if before is not None and counts.tried and not chance and not (hops and layer is Layer.TCP):
                    rows.append(judged(before, counts, hops.get(target)))
        if rows:
            self._pump.emit(Measured(measurements=rows))


def judged(before: Measurement, counts: FlowCounts, hop: str | None = None) -> Measurement:
    """Return a measurement of a pair with the results of its flows; single packets decide only where these agree."""
    extra = {**(before.extra or {}), "flows": counts._asdict()}
    if hop is not None:
        extra["last_hop"] = hop
    changes: dict[str, Any] = {"extra": extra, "attempts": before.attempts + 1, "time": time.time()}
    lost = round(100.0 * counts.never / counts.tried, 2) if before.layer is Layer.UDP else None
    if counts.never == counts.tried:
        verdict = Verdict.FAILED if counts.refused else Verdict.TIMEOUT
        changes["verdict"] = before.verdict if before.verdict in DEAD else verdict
        why = before.error if before.verdict in DEAD else "no answer"
        changes |= {"value": lost, "error": f"{why}; none of {counts.tried} source ports passes"}
    elif counts.passes:
        # What failed before was not all of the path, or passes now.
        changes |= {"verdict": Verdict.OK, "value": lost, "error": None} if before.verdict in DEAD else {}
    elif before.verdict is not Verdict.SLOW:
        changes |= {"verdict": Verdict.SLOW, "value": lost, "error": counts.text()}
    return replace(before, **changes)


def lost_flows(m: Measurement | None) -> bool:
    """Return True if flows of a pair were tried and did not all pass."""
    return m is not None and m.verdict.bad and bool(_flows_of(m))


def _flows_of(m: Measurement) -> object:
    return (m.extra or {}).get("flows")


def is_silent(udp: Measurement | None) -> bool:
    """Return True if no datagram arrived. Large ones alone are a question of the MTU."""
    if udp is None or udp.verdict not in DEAD:
        return False
    arrived = (udp.extra or {}).get("arrived")
    return not (isinstance(arrived, dict) and arrived.get("small"))


def _answers(m: Measurement | None) -> bool:
    return m is not None and m.verdict in (Verdict.OK, Verdict.SLOW)


def _ends(target: Target) -> frozenset[tuple[str, str]]:
    return frozenset(((target.node, target.here.address), (target.peer, target.there.address)))


def _outcome(row: Mapping[str, Any], first: int, arrived: set[int] | None) -> _Outcome:
    udp, tcp = Counter[str](), Counter[str]()
    lost_port = None
    for at, flow in enumerate(dicts(row.get("flows"))[:FLOWS]):
        sent = flow.get("sent")
        rounds = [n for n, some in enumerate(sent[:ROUNDS] if isinstance(sent, list) else ()) if number(some)]
        if arrived is not None and rounds:
            kind = _kind([first + at * ROUNDS + n in arrived for n in rounds], flow.get("refused") is True, udp)
            if kind == "never" and isinstance(port := flow.get("port"), int) and 0 < port < 65536:
                lost_port = lost_port or port
        tries = flow.get("tcp")
        known = [one for one in (tries[:ROUNDS] if isinstance(tries, list) else ()) if one in (1, 0, -1)]
        if known:
            _kind([one == 1 for one in known], -1 in known, tcp)
    return _Outcome(_counts(udp), _counts(tcp), lost_port)


def _kind(passed: list[bool], refused: bool, counted: Counter[str]) -> str:
    kind = "always" if all(passed) else "some" if any(passed) else "never"
    counted[kind] += 1
    counted["refused"] += kind == "never" and refused
    return kind


def _counts(counted: Counter[str]) -> FlowCounts:
    tried = counted["always"] + counted["some"] + counted["never"]
    return FlowCounts(tried, counted["always"], counted["never"], counted["refused"])


def _rails(target: Target) -> tuple[int | None, int | None]:
    return target.here.rail, target.there.rail


def fair_sample(targets: Sequence[Target]) -> list[Target]:
    """Return targets up to the maximum, spread over pairs of rails and of nodes; each with its opposite direction."""
    if len(targets) <= MAX_OF_NODE:
        return list(targets)
    by_rails: dict[Any, dict[Any, list[Target]]] = {}
    for target in targets:
        by_rails.setdefault(frozenset(_rails(target)), {}).setdefault(_ends(target), []).append(target)
    queues = [list(pairs.values()) for pairs in by_rails.values()]
    # A sample of all groups of nodes, the same each time.
    order = random.Random(0)
    for queue in queues:
        order.shuffle(queue)
    chosen: list[Target] = []
    of_node: Counter[str] = Counter()
    for queue in itertools.cycle(queues):
        if not any(queues) or len(chosen) >= MAX_SUSPECTS:
            break
        if queue:
            pair = queue.pop()
            if all(of_node[target.node] < MAX_OF_NODE for target in pair):
                chosen += pair
                of_node.update(target.node for target in pair)
    return chosen
