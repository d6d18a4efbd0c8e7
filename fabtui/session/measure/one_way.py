"""One-way datagrams and TCP connections between all addresses, to find broken directions and firewalls.

Between suspect pairs, several source ports are tried each way, as equal paths are chosen by a hash of ports.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import secrets
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from fabtui.model.events import Measured, PhaseStart
from fabtui.model.facts.node_view import dicts
from fabtui.model.layers import Layer
from fabtui.model.measurement import Extra, Measurement, Verdict
from fabtui.nodeset import count
from fabtui.sanitize import one_line
from fabtui.session.event_pipeline import EventPump
from fabtui.session.measure.p2p_result import number
from fabtui.session.measure.ping_mesh import A_REQUEST, MeshTest, Target, header_bytes, own_error
from fabtui.session.node_client import OnPart, ProbeFailed
from fabtui.transport.link import Message
from fabtui_node.protocol import ErrorKind

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
SMALL, BIG = 5, 3
#: Datagrams of an address in all, where there are few targets: enough to lose one at 1 % loss.
OF_ADDRESS = 600
#: Numbers of datagrams in the repetition after a loss: at least, at most, and of a node in all. 300 show 1 % loss.
SMALL_AGAIN, SMALL_AT_MOST, OF_NODE, BIG_AGAIN = 20, 300, 5000, 8
#: Connections to each target in the repetition: all of their SYNs are lost before one is called blocked.
TRIES_AGAIN = 3
#: Maximum number of targets that share an address with one that lost something, and are tested again as well.
MOST_BESIDE = 512
OPEN_DEADLINE = 10.0
LISTEN_DEADLINE = 120.0
#: Time (s) in which nodes that were asked to end report that they did.
END_PATIENCE = 5.0
#: Time (s) that the ports have to stay open for tests of several flows.
FLOWS_TAKE = 30.0
#: Time (s) between sending and counting.
SETTLE = 0.15

#: Ports for datagrams and connections, by node and address.
Ports = Mapping[tuple[str, str], tuple[int | None, int | None]]


class OneWay(MeshTest):
    """Makes nodes listen, send to each other, and count."""

    async def run(self, targets: list[Target]) -> None:
        """Test all targets, and again those with losses."""
        self._token = secrets.token_hex(16)
        self._pump.emit(PhaseStart(name="udp", total=2 * len(targets)))
        layers = (Layer.UDP, Layer.TCP)
        known = [t for t in targets if any(lost_flows(self._latest(layer, t)) for layer in layers)]
        wanted: dict[str, set[str]] = {}
        for target in targets:
            wanted.setdefault(target.peer, set()).add(target.there.address)
        opened = {node: asyncio.get_running_loop().create_future() for node in wanted}
        async with asyncio.TaskGroup() as group:
            listening = [
                group.create_task(self._listen(node, sorted(addresses), opened[node]))
                for node, addresses in wanted.items()
            ]
            await asyncio.wait(opened.values(), timeout=OPEN_DEADLINE)
            try:
                until = time.monotonic() + LISTEN_DEADLINE - FLOWS_TAKE
                ports: dict[tuple[str, str], tuple[int | None, int | None]] = {}
                for node, future in opened.items():
                    for address, pair in (future.result() if future.done() else {}).items():
                        ports[node, address] = pair
                of_address = max(Counter((t.node, t.here.address) for t in targets).values())
                small = max(SMALL, OF_ADDRESS // of_address)
                lost = await self._round(list(enumerate(targets)), ports, small, BIG)
                failed = [t for t in lost if _is_cut(self._latest(Layer.UDP, t), self._latest(Layer.TCP, t))]
                if lost:
                    lost = self._with_others(targets, lost)
                    self._pump.emit(PhaseStart(name="udp again", total=2 * len(lost)))
                    await self._again(lost, len(targets), ports)
                    # A node that stalled for a moment loses packets of any path: only a second loss counts.
                    await self._again(self._losing(Layer.UDP, lost), len(targets) + len(lost), ports)
                # What one source port meets is one path of several.
                if (lost or known) and time.monotonic() < until:
                    await FlowTest(self._pump, self._call, ports, 3 * len(targets)).run(targets, failed, known)
            finally:
                group.create_task(self._end(wanted, listening))

    def _with_others(self, targets: list[Target], lost: list[Target]) -> list[Target]:
        """Return targets that failed, with those that share an address and direction with one that lost something.

        A NIC that loses 1 % loses nothing of some targets by chance.
        """
        lossy = self._losing(Layer.UDP, lost)
        ends = {(t.node, t.here.address) for t in lossy}, {(t.peer, t.there.address) for t in lossy}
        beside = [t for t in targets if (t.node, t.here.address) in ends[0] or (t.peer, t.there.address) in ends[1]]
        return lost if len(beside) > MOST_BESIDE else list(dict.fromkeys([*lost, *beside]))

    async def _again(self, targets: list[Target], first: int, ports: Ports) -> None:
        of_node = max(Counter(target.node for target in targets).values(), default=1)
        small = max(SMALL_AGAIN, min(SMALL_AT_MOST, OF_NODE // of_node))
        await self._round(list(enumerate(targets, first)), ports, small, BIG_AGAIN, TRIES_AGAIN)

    async def _listen(self, node: str, addresses: list[str], opened: asyncio.Future[Any]) -> None:
        def part(value: Message) -> None:
            if not opened.done() and isinstance(value.get("ports"), list):
                opened.set_result(_ports(value["ports"]))

        try:
            await self._call(node, {"role": "listen", "addresses": addresses}, LISTEN_DEADLINE, part)
        finally:
            if not opened.done():
                opened.set_result({})

    async def _end(self, nodes: Iterable[str], listening: Iterable[asyncio.Task[None]]) -> None:
        """Have nodes end their ports; one that does not report that it did is not waited for."""
        await asyncio.gather(*(self._call(node, {"role": "end"}) for node in nodes))
        _, late = await asyncio.wait(listening, timeout=END_PATIENCE)
        for task in late:
            task.cancel()

    async def _call(self, node: str, args: Message, deadline: float = 10.0, on_part: OnPart | None = None) -> Message:
        try:
            return await self._clients[node].probe("udp", {"token": self._token, **args}, deadline, on_part)
        except ProbeFailed as failed:
            self._failed("udp", node, failed)
            return {}

    async def _round(
        self, targets: list[tuple[int, Target]], ports: Ports, small: int, big: int, tries: int = 1
    ) -> list[Target]:
        """Send to all targets, count, and report; return the targets with losses."""
        if not targets:
            return []
        sent = await self._send(targets, ports, {"small": small, "big": big, "tries": tries})
        await asyncio.sleep(SETTLE)
        nodes = sorted({target.peer for _, target in targets})
        counts = dict(zip(nodes, await asyncio.gather(*(self._call(n, {"role": "count"}) for n in nodes)), strict=True))
        arrived = _rows(counts.items())
        lost: list[Target] = []
        found: list[Measurement] = []
        for number_, target in targets:
            row = sent.get((target.node, number_))
            known = bool(counts.get(target.peer)) and (target.peer, target.there.address) in ports
            came = arrived.get((target.peer, number_), {}) if known else None
            both = [self._datagrams(target, row, came, counts[target.peer]), self._connection(target, row, ports)]
            if any(m.verdict.bad for m in both):
                lost.append(target)
            found += both
        self._pump.emit(Measured(measurements=found))
        await self._pump.flush()
        return lost

    async def _send(
        self, targets: list[tuple[int, Target]], ports: Ports, plan: dict[str, int]
    ) -> dict[tuple[str, int], Message]:
        by_node: dict[str, list[Message]] = {}
        for number_, target in targets:
            size = target.here.payload(target.there) or 0
            by_node.setdefault(target.node, []).append({**_entry(target, number_, ports), "size": size})
        parts = [
            (node, entries[at : at + A_REQUEST])
            for node, entries in by_node.items()
            for at in range(0, len(entries), A_REQUEST)
        ]
        values = await asyncio.gather(
            *(
                self._call(node, {"role": "send", "targets": part, **plan}, 30.0 + len(part) / 50)
                for node, part in parts
            )
        )
        return _rows((node, value) for (node, _), value in zip(parts, values, strict=True))

    def _datagrams(self, target: Target, row: Message | None, came: Message | None, counted: Message) -> Measurement:
        size = target.here.payload(target.there) or 0
        packet = size + header_bytes(target.here.address) if size else None
        extra: Extra = {"payload": size or None}
        verdict, error, loss = Verdict.INCONCLUSIVE, "the sender reported nothing", None
        extra |= self._failure_of(target.node if came is not None else target.peer) or {}
        if came is None:
            error = f"{target.peer} could not listen"
        elif row is not None:
            extra = {"payload": size or None}
            sent = {name: int(number(row.get(name)) or 0) for name in ("small", "big")}
            got = {name: min(sent[name], int(number(came.get(name)) or 0)) for name in sent}
            extra |= {"sent": sent, "arrived": got, "no_room": number(counted.get("no_room"))}
            extra |= {} if sent["small"] else own_error(row, "errno")
            source = one_line(str(came["src"]), 80) if came.get("src") else None
            if source and source != target.here.address:
                extra["came_from"] = source
            verdict, error = judge(sent, got, size, one_line(str(row["error"]), 200) if row.get("error") else None)
            total = sent["small"] + sent["big"]
            loss = 100.0 * (1 - (got["small"] + got["big"]) / total) if total else None
            if verdict is Verdict.SLOW and extra["no_room"]:
                verdict, error = Verdict.INCONCLUSIVE, f"{error}; {target.peer} had no room for some datagrams"
        return target.measurement(
            Layer.UDP,
            verdict,
            None if loss is None else round(loss, 2),
            "%",
            packet,
            how="datagrams one way, small ones and some that fill the MTU; the share that was lost",
            attempts=self._next_attempt(Layer.UDP, target),
            error=error or None,
            extra=None if verdict is Verdict.OK else extra,
        )

    def _connection(self, target: Target, row: Message | None, ports: Ports) -> Measurement:
        took, extra = number(row.get("connected")) if row else None, None
        failed = one_line(str(row["connect_error"]), 200) if row and row.get("connect_error") else None
        timed_out = row is not None and ErrorKind.of(row.get("connect_error_kind")) is ErrorKind.TIMEOUT
        if took is not None:
            verdict, error = Verdict.OK, None
        elif failed is not None:
            verdict, error = (Verdict.TIMEOUT if timed_out else Verdict.FAILED), failed
            extra = own_error(row, "connect_errno") or None
        else:
            listens = ports.get((target.peer, target.there.address), (None, None))[1] is not None
            verdict, error = Verdict.INCONCLUSIVE, None if listens else f"{target.peer} could not listen"
            error = error or "the sender reported nothing"
            extra = self._failure_of(target.node if listens else target.peer)
        how, attempts = "a TCP connection to a port that the kernel chose", self._next_attempt(Layer.TCP, target)
        more = {"how": how, "attempts": attempts, "error": error, "extra": extra}
        return target.measurement(Layer.TCP, verdict, took, "ms", None, **more)


def judge(sent: dict[str, int], got: dict[str, int], size: int, error: str | None) -> tuple[Verdict, str]:
    """Return the verdict on sent and received datagrams, and the error if it is not ok."""
    if not sent["small"]:
        return Verdict.FAILED, error or "nothing could be sent"
    if not got["small"] and not got["big"]:
        return Verdict.TIMEOUT, f"none of {sent['small'] + sent['big']} datagrams arrived"
    if sent["big"] and not got["big"]:
        return Verdict.TIMEOUT, f"none of {sent['big']} datagrams of {size} bytes arrived, small ones did"
    if size and not sent["big"] and error:
        return Verdict.FAILED, f"datagrams of {size} bytes cannot be sent: {error}"
    lost = sum(sent.values()) - sum(got.values())
    if lost:
        return Verdict.SLOW, f"{lost} of {sum(sent.values())} datagrams were lost"
    return Verdict.OK, ""


def _entry(target: Target, number_: int, ports: Ports) -> Message:
    udp, tcp = ports.get((target.peer, target.there.address), (None, None))
    return {"number": number_, "src": target.here.address, "dst": target.there.address, "udp": udp, "tcp": tcp}


def _rows(answers: Iterable[tuple[str, Message]]) -> dict[tuple[str, int], Message]:
    rows = ((node, row) for node, value in answers for row in dicts(value.get("rows")))
    return {(node, row["number"]): row for node, row in rows if isinstance(row.get("number"), int)}


def _ports(listed: Any) -> dict[str, tuple[int | None, int | None]]:
    found: dict[str, tuple[int | None, int | None]] = {}
    for entry in dicts(listed):
        udp, tcp = (
            port if isinstance(port := entry.get(name), int) and 0 < port < 65536 else None for name in ("udp", "tcp")
        )
        if udp is not None:
            found[str(entry.get("address"))] = (udp, tcp)
    return found


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
        some = self.tried - self.always - self.never
        never = f"{self.never} of {self.tried} source ports never pass" if self.never else ""
        now = f"{some} of {self.tried} pass intermittently" if some else ""
        return "; ".join(filter(None, (never, now)))


class _Outcome(NamedTuple):
    """Flows of a target."""

    udp: FlowCounts
    tcp: FlowCounts
    lost_port: int | None  #: Source port of a flow whose datagrams never arrive.


class FlowTest(MeshTest):
    """Tries several source ports between pairs of addresses whose tests failed or disagreed.

    ``first`` is the first number of targets that no other test uses.
    """

    def __init__(self, pump: EventPump, call: Call, ports: Ports, first: int) -> None:
        super().__init__(pump, {})
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
            if _is_cut(udp, tcp):
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
        plan = {"role": "flows", "flows": FLOWS, "rounds": ROUNDS, "datagrams": DATAGRAMS}
        asked = []
        for node, mine in by_node.items():
            entries = [_entry(target, numbers[target], self._ports) for target in mine]
            asked.append(self._call(node, {**plan, "pause_ms": round(1000 * PAUSE), "targets": entries}, DEADLINE))
        answers = await asyncio.gather(*asked)
        peers = sorted({target.peer for target in targets})
        counts = await asyncio.gather(*(self._call(node, {"role": "count"}, DEADLINE) for node in peers))
        arrived = {key for key, row in _rows(zip(peers, counts, strict=True)).items() if row.get("small")}
        counted = {peer for peer, value in zip(peers, counts, strict=True) if value}
        rows = _rows(zip(by_node, answers, strict=True))
        outcomes = {}
        for target, number_ in numbers.items():
            if (row := rows.get((target.node, number_))) is not None:
                at = {n for peer, n in arrived if peer == target.peer and number_ <= n < number_ + step}
                outcomes[target] = _outcome(row, number_, at if target.peer in counted else None)
        self._report(outcomes, {})
        await self._pump.flush()
        return outcomes

    async def _trace(self, found: Mapping[Target, _Outcome]) -> None:
        """Find the last router that answers for some of the lost flows, where others of the pair pass."""
        per_node: Counter[str] = Counter()
        chosen: dict[str, list[Target]] = {}
        for target in fair_sample([t for t, one in found.items() if one.udp.partly and one.lost_port]):
            if per_node[target.node] < MAX_TRACED_OF_NODE and per_node.total() < MAX_TRACED:
                per_node[target.node] += 1
                chosen.setdefault(target.node, []).append(target)
        asked = []
        for node, mine in chosen.items():
            entries = [{**_entry(t, at, self._ports), "port": found[t].lost_port} for at, t in enumerate(mine)]
            asked.append(self._call(node, {"role": "trace", "targets": entries}, TRACE_DEADLINE))
        answers = await asyncio.gather(*asked)
        hops: dict[Target, str] = {}
        for mine, value in zip(chosen.values(), answers, strict=True):
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


def _is_cut(udp: Measurement | None, tcp: Measurement | None) -> bool:
    return is_silent(udp) or (tcp is not None and tcp.verdict in DEAD)


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
