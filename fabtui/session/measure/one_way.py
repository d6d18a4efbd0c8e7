"""One-way datagrams and TCP connections between all addresses, to find broken directions and firewalls."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

from fabtui.model.events import Measured, PhaseStart
from fabtui.model.facts.node_view import dicts
from fabtui.model.layers import Layer
from fabtui.model.measurement import Extra, Measurement, Verdict
from fabtui.sanitize import one_line
from fabtui.session.measure.flow_test import DEAD, FlowTest, is_silent, lost_flows
from fabtui.session.measure.p2p_result import number
from fabtui.session.measure.ping_mesh import A_REQUEST, MeshTest, Target, header_bytes
from fabtui.session.node_client import OnPart, ProbeFailed
from fabtui.transport.link import Message
from fabtui_node.protocol import ErrorKind

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

Ports = dict[tuple[str, str], tuple[int | None, int | None]]


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
                ports: Ports = {}
                for node, future in opened.items():
                    for address, pair in (future.result() if future.done() else {}).items():
                        ports[node, address] = pair
                of_address = max(Counter((t.node, t.here.address) for t in targets).values())
                small = max(SMALL, OF_ADDRESS // of_address)
                lost = await self._round(list(enumerate(targets)), ports, small, BIG)
                failed = [target for target in lost if self._failed_at_first(target)]
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

    def _failed_at_first(self, target: Target) -> bool:
        udp, tcp = self._latest(Layer.UDP, target), self._latest(Layer.TCP, target)
        return is_silent(udp) or (tcp is not None and tcp.verdict in DEAD)

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
        """Have the nodes send; return the report of each node about each target."""
        by_node: dict[str, list[Message]] = {}
        for number_, target in targets:
            udp, tcp = ports.get((target.peer, target.there.address), (None, None))
            entry = {"number": number_, "src": target.here.address, "dst": target.there.address, "udp": udp, "tcp": tcp}
            entry["size"] = target.here.payload(target.there) or 0
            by_node.setdefault(target.node, []).append(entry)
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
