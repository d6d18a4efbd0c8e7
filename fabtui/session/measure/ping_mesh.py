"""Ping mesh: every address of a node to every address of the others, with small echoes and large ones.

Targets that do not answer are asked again before they are reported. Echoes that fill the MTU are sent where small ones
pass. Where large ones fail, smaller sizes are tried, and ``ping`` itself is run once for its error message.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from fabtui.model.events import Measured, PhaseStart
from fabtui.model.facts.node_view import Entry, dicts
from fabtui.model.layers import Layer
from fabtui.model.measurement import Extra, Measurement, Verdict
from fabtui.nodeset import count
from fabtui.sanitize import clean, one_line
from fabtui.session.event_pipeline import EventPump
from fabtui.session.measure.p2p_result import number, whole
from fabtui.session.node_client import NodeClient, ProbeFailed
from fabtui.transport.link import Message

#: Maximum number of targets per request.
A_REQUEST = 4096
#: Maximum number of ordered pairs of addresses that are all tested; of more, a sample is tested.
MAX_PAIRS = 16_000
#: Bytes of the headers of IP and ICMP or UDP, which have the same length.
_HEADERS = {4: 28, 6: 48}
#: Maximum length of an IPv4 packet.
_LARGEST = 65_535
#: Minimum MTU; smaller values are ignored.
_MIN_MTU = 576
COUNT = 3
WAIT = 1.0
#: Maximum round trip (s) of the first echoes; slower targets are asked again.
FIRST_WAIT = 0.5
#: Number and interval (s) of the echoes that distinguish a lossy path from one accidental loss.
LOSS_COUNT = 20
LOSS_PERIOD = 0.05
WHOLE_COUNT = 2
WHOLE_COUNT_AGAIN = 5
#: Packet sizes (bytes) to try below the MTU: usual in clouds, InfiniBand, Ethernet and tunnels, and IPv6's minimum.
LADDER = (8900, 4096, 2044, 1500, 1450, 1400, 1280)
#: Maximum number of failed large echoes per node that are examined; the others have the same cause.
MAX_EXAMINED = 64
#: Maximum number of targets whose printed output is kept even if they pass.
MAX_RAW_TARGETS = 5000
#: Payload (bytes) of an echo where none is asked for.
SMALL = 56


class Address(NamedTuple):
    """An address of a node, with its rail (None when unknown) and its interface; the MTU is in bytes."""

    address: str
    family: int = 4
    rail: int | None = None
    nic: str = ""
    mtu: int | None = None
    up: bool = True

    def payload(self, other: Address) -> int | None:
        """Return the bytes of an echo or a datagram that fill the MTU of both ends, or None when that is not known."""
        if self.mtu is None or other.mtu is None:
            return None
        mtu = min(self.mtu, other.mtu, _LARGEST)
        return mtu - _HEADERS[self.family] if mtu > _MIN_MTU else None


def header_bytes(address: str) -> int:
    return _HEADERS[6 if ":" in address else 4]


class Target(NamedTuple):
    """Ordered pair of addresses to test."""

    node: str
    here: Address
    peer: str
    there: Address

    @property
    def key(self) -> tuple[str, str, str]:
        return self.peer, self.here.address, self.there.address

    def measurement(
        self, layer: Layer, verdict: Verdict, value: float | None, unit: str, size: int | None, **more: Any
    ) -> Measurement:
        ends: dict[str, Any] = {"src_addr": self.here.address, "dst_addr": self.there.address}
        return Measurement(layer, self.node, self.peer, verdict, value, unit, size, time.time(), **ends, **more)


class MeshTest:
    """Base of the tests between addresses: the sink of the results, and the nodes by name."""

    def __init__(self, pump: EventPump, clients: Mapping[str, NodeClient]) -> None:
        self._pump = pump
        self._clients = clients
        #: Why the probe failed on a node, for its last failure.
        self._failures: dict[str, str] = {}

    def _failed(self, probe: str, node: str, failed: ProbeFailed) -> str:
        why = one_line(failed.text, 300)
        if self._failures.get(node) != why:
            self._pump.log("warning", f"{probe}: {why}", node)
        # A lost node is reported as that.
        if failed.kind != "lost":
            self._failures[node] = why
        return why

    def _failure_of(self, node: str) -> Message | None:
        """Return further values of a measurement that is missing because the probe failed on a node."""
        return {"probe_failed": node, "reason": self._failures[node]} if node in self._failures else None

    def _latest(self, layer: Layer, target: Target) -> Measurement | None:
        ends = (target.node, target.peer, target.here.address, target.there.address)
        return self._pump.model.addresses.last(layer, *ends)

    def _losing(self, layer: Layer, targets: Iterable[Target]) -> list[Target]:
        return [t for t in targets if (m := self._latest(layer, t)) is not None and m.verdict is Verdict.SLOW]

    def _next_attempt(self, layer: Layer, target: Target) -> int:
        before = self._latest(layer, target)
        return 1 if before is None else before.attempts + 1


def addresses_of(inventories: Mapping[str, Any]) -> dict[str, list[Address]]:
    """Return the addresses of each node, by its inventory.

    An address whose interface is down counts if the same network is up on another node: a cable may be unplugged.
    """
    listed = {node: inventory if isinstance(inventory, dict) else {} for node, inventory in inventories.items()}
    addresses = {node: _listed(inventory, "data_addresses", up=True) for node, inventory in listed.items()}
    networks = {node: _networks(inventory) for node, inventory in listed.items()}
    alive = {networks[node][one.address] for node in listed for one in addresses[node] if one.address in networks[node]}
    for node, inventory in listed.items():
        down = _listed(inventory, "down_addresses", up=False)
        addresses[node] += [one for one in down if networks[node].get(one.address) in alive]
    return addresses


def _listed(inventory: Entry, name: str, *, up: bool) -> list[Address]:
    mtus = {str(nic.get("name")): nic.get("mtu") for nic in dicts(inventory.get("nics"))}
    addresses = []
    for entry in dicts(inventory.get(name)):
        address, nic = entry.get("address"), entry.get("nic")
        try:
            ipaddress.ip_address(address if isinstance(address, str) else "")
        except ValueError:
            continue
        nic = nic if isinstance(nic, str) else ""
        family = 6 if entry.get("family") == 6 else 4
        addresses.append(Address(str(address), family, whole(entry.get("rail")), nic, whole(mtus.get(nic)), up))
    return addresses


def _networks(inventory: Entry) -> dict[str, str]:
    networks = {}
    for nic in dicts(inventory.get("nics")):
        for entry in dicts(nic.get("addresses")):
            try:
                interface = ipaddress.ip_interface(f"{entry.get('address')}/{entry.get('prefix')}")
            except ValueError:
                continue
            networks[str(interface.ip)] = str(interface.network)
    return networks


def targets_between(
    new: Sequence[str], old: Sequence[str], addresses: Mapping[str, list[Address]]
) -> tuple[list[Target], int]:
    """Return the ordered pairs of addresses of one family in which a node of ``new`` takes part, and how many exist.

    Above `MAX_PAIRS`, each pair of nodes keeps one pair of addresses across rails. If that is not enough, each node is
    paired with its neighbours in the list, and with others at even distances.
    """
    fresh = set(new)
    nodes = [*old, *new]
    pairs = [(i, j) for i in range(len(nodes)) for j in range(len(nodes)) if i != j and {nodes[i], nodes[j]} & fresh]

    def between(i: int, j: int, thin: bool) -> list[Target]:
        targets = [
            Target(nodes[i], here, nodes[j], there)
            for here in addresses.get(nodes[i], [])
            for there in addresses.get(nodes[j], [])
            if here.family == there.family
        ]
        return _thinned(targets) if thin else targets

    counts = [Counter(address.family for address in addresses.get(node, [])) for node in nodes]
    total = sum(counts[i][family] * counts[j][family] for i, j in pairs for family in _HEADERS)
    if total <= MAX_PAIRS:
        return [target for i, j in pairs for target in between(i, j, False)], total
    rails = max((len(found) for found in addresses.values()), default=1)
    share = MAX_PAIRS / (len(pairs) * (rails + 1))
    near = _distances(len(nodes), share)
    return [t for i, j in pairs if (j - i) % len(nodes) in near for t in between(i, j, True)], total


def _thinned(targets: list[Target]) -> list[Target]:
    same = [t for t in targets if t.here.rail is not None and t.here.rail == t.there.rail]
    cross = [t for t in targets if t not in same]
    # A different choice for each pair of nodes, so that all rails occur.
    return same + [cross[sum(f"{t.node}>{t.peer}".encode()) % len(cross)] for t in cross[:1]]


def _distances(count: int, share: float) -> set[int]:
    if share >= 1:
        return set(range(1, count))
    half = max(1, int(share * (count - 1) / 2))
    step = max(1.0, (count // 2 - 1) / half)
    near = {1 + round(step * at) for at in range(half)}
    return {distance for one in near for distance in (one, count - one)}


#: Targets, each with the payload in bytes, or None for the usual one.
Asked = list[tuple[Target, int | None]]
Key = tuple[str, str, str]
#: Makes the result of a row; of a target without a row, from the reason.
Read = Callable[[Message | str, Target, int | None], Measurement | None]


class PingMesh(MeshTest):
    """Pings all targets."""

    _keep = True

    async def run(self, targets: list[Target]) -> None:
        """Ping all targets, and again those that did not answer."""
        self._phase("ping", len(targets))
        self._keep = len(targets) <= MAX_RAW_TARGETS
        await self._ask_small(targets, count=COUNT, wait=FIRST_WAIT)
        await self._pump.flush()
        silent: list[Target] = []
        lossy: list[Target] = []
        for target in targets:
            found = self._latest(Layer.PING, target)
            if found is None or found.verdict.bad:
                (lossy if found is not None and found.verdict is Verdict.SLOW else silent).append(target)
        if bad := len(silent) + len(lossy):
            self._pump.log("info", f"address pairs that did not answer every ping are asked again: {bad}")
            self._phase("ping again", bad)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._ask_small(silent, count=COUNT))
                group.create_task(self._ask_small(lossy, count=LOSS_COUNT, period=LOSS_PERIOD))
            await self._pump.flush()
            # Three echoes show that a path works, not its loss. A node that stalled for a moment loses packets of any
            # path: only a second loss counts.
            still = self._losing(Layer.PING, silent + lossy)
            await self._ask_small(still, count=LOSS_COUNT, period=LOSS_PERIOD)
            await self._pump.flush()
        await self._whole(targets)

    def _phase(self, name: str, total: int) -> None:
        self._pump.emit(PhaseStart(name=name, total=total))

    def _report(self, found: Iterable[Measurement]) -> None:
        if rows := list(found):
            self._pump.emit(Measured(measurements=rows))

    async def _ask_small(self, targets: list[Target], **plan: Any) -> None:
        asked: Asked = [(target, None) for target in targets]
        await self._ask(asked, {"wait": WAIT, **plan}, partial(self._read, Layer.PING))

    def _read(self, layer: Layer, row: Message | str, target: Target, size: int | None) -> Measurement:
        if isinstance(row, str):
            unit = "ms" if layer is Layer.PING else "B"
            extra = self._failure_of(target.node)
            return target.measurement(layer, Verdict.INCONCLUSIVE, None, unit, None, error=row, extra=extra)
        attempts = self._next_attempt(layer, target)
        if layer is Layer.PING:
            return read_row(row, target, attempts, self._keep)
        return read_whole(row, target, size or 0, attempts)

    async def _whole(self, targets: list[Target]) -> None:
        """Send large echoes where small ones pass; where they fail, find the size that passes."""
        asked: Asked = []
        for target in targets:
            small = self._latest(Layer.PING, target)
            size = target.here.payload(target.there)
            if size is not None and small is not None and small.verdict in (Verdict.OK, Verdict.SLOW):
                asked.append((target, size))
        if not asked:
            return
        self._phase("mtu", len(asked))
        await self._ask_whole(asked, count=WHOLE_COUNT)
        await self._pump.flush()
        bad = [pair for pair in asked if (m := self._latest(Layer.MTU, pair[0])) is None or m.verdict.bad]
        if bad:
            await self._explain(bad)

    async def _ask_whole(self, asked: Asked, **plan: Any) -> None:
        await self._ask(asked, {"wait": WAIT, "whole": True, **plan}, partial(self._read, Layer.MTU))

    async def _explain(self, bad: Asked) -> None:
        """Ask again with a tool that gives error messages, and try smaller sizes."""
        self._phase("mtu again", len(bad))
        self._pump.log("info", f"smaller sizes are tried, as the MTU does not pass: {count(len(bad), 'address pair')}")
        chosen = _first_of_each(bad, MAX_EXAMINED)
        smaller: Asked = [
            (target, payload)
            for target, size in chosen
            for packet in LADDER
            if (payload := packet - header_bytes(target.here.address)) < (size or 0)
        ]
        passed: dict[Target, int] = {}

        def read(row: Message | str, target: Target, size: int | None) -> None:
            if not isinstance(row, str) and row.get("received") and size:
                passed[target] = max(passed.get(target, 0), size)

        async with asyncio.TaskGroup() as group:
            group.create_task(self._ask(smaller, {"wait": WAIT, "whole": True, "count": 1}, read))
            group.create_task(self._ask_whole(chosen, count=WHOLE_COUNT_AGAIN, reasons=True))
            examined = set(chosen)
            rest = [pair for pair in bad if pair not in examined]
            group.create_task(self._ask_whole(rest, count=WHOLE_COUNT_AGAIN))
        await self._pump.flush()
        lossy = set(self._losing(Layer.MTU, (target for target, _ in bad)))
        still = [pair for pair in bad if pair[0] in lossy]
        await self._ask_whole(still, count=LOSS_COUNT, period=LOSS_PERIOD)
        await self._pump.flush()
        explained = []
        for target, _ in chosen:
            m = self._latest(Layer.MTU, target)
            if m is not None and m.verdict in (Verdict.TIMEOUT, Verdict.FAILED):
                explained.append(_explained(m, passed.get(target)))
        self._report(explained)
        await self._pump.flush()

    async def _ask(self, asked: Asked, plan: Message, read: Read) -> None:
        """Have all nodes ask their targets; each target gives one result, or a failure."""
        by_node: dict[str, Asked] = {}
        for target, size in asked:
            by_node.setdefault(target.node, []).append((target, size))
        async with asyncio.TaskGroup() as group:
            for node, mine in by_node.items():
                group.create_task(self._ask_node(node, mine, plan, read))

    async def _ask_node(self, node: str, asked: Asked, plan: Message, read: Read) -> None:
        for start in range(0, len(asked), A_REQUEST):
            part = asked[start : start + A_REQUEST]
            open_targets = {(target.key, size): (target, size) for target, size in part}

            def take(value: Message, waiting: dict[Any, tuple[Target, int | None]] = open_targets) -> None:
                rows = value.get("rows")
                measurements = []
                for row in rows if isinstance(rows, list) else []:
                    key = key_of(row)
                    pair = waiting.pop((key, row["size"]), None) if key and isinstance(row.get("size"), int) else None
                    pair = pair or (waiting.pop((key, None), None) if key else None)
                    if pair is not None and (m := read(row, *pair)) is not None:
                        measurements.append(m)
                self._report(measurements)

            why = await self._request(node, part, plan, take)
            self._report(m for target, size in open_targets.values() if (m := read(why, target, size)) is not None)

    async def _request(self, node: str, asked: Asked, plan: Message, take: Callable[[Message], None]) -> str:
        """Run the probe on a node, and return the reason for targets without an answer."""
        targets = [
            {"id": t.peer, "src": t.here.address, "dst": t.there.address, **({} if size is None else {"size": size})}
            for t, size in asked
        ]
        deadline = plan["count"] * WAIT * (1 + len(targets) / 64) + 10.0
        try:
            take(await self._clients[node].probe("ping", {"targets": targets, **plan}, deadline, take))
        except ProbeFailed as failed:
            return self._failed("ping", node, failed)
        return "the ping probe gave no row for it"


def _first_of_each(asked: Asked, most: int) -> Asked:
    counted = Counter[str]()
    kept = []
    for pair in asked:
        counted[pair[0].node] += 1
        if counted[pair[0].node] <= most:
            kept.append(pair)
    return kept


def _explained(m: Measurement, payload: int | None) -> Measurement:
    extra = m.extra or {}
    narrow = extra.get("path_mtu")
    text = f"{extra.get('payload')} bytes do not pass"
    if payload is not None:
        text += f", {payload} do"
    if narrow:
        text += f"; the path reports an MTU of {narrow:.0f}"
    value = None if payload is None else float(payload + header_bytes(m.src_addr or ""))
    # If the path reports its MTU, senders use smaller packets, which costs speed. Otherwise large packets are lost.
    verdict = Verdict.SLOW if narrow and payload is not None else m.verdict
    return replace(m, verdict=verdict, value=value, error=text, extra={**extra, "passes": payload})


def key_of(row: Any) -> Key | None:
    if not isinstance(row, dict):
        return None
    key = row.get("id"), row.get("src"), row.get("dst")
    return key if all(isinstance(part, str) for part in key) else None  # type: ignore[return-value]


def read_row(row: Mapping[str, Any], target: Target, attempts: int, keep: bool = True) -> Measurement:
    """Return the measurement of one row of the ping probe: a round trip, in ms.

    Without ``keep``, the printed output is dropped if the target passes; there may be 100,000 of them.
    """
    sent, loss, verdict, text = _echoes(row)
    return target.measurement(
        Layer.PING,
        verdict,
        number(row.get("rtt_avg")) if verdict in (Verdict.OK, Verdict.SLOW) else None,
        "ms",
        int(number(row.get("size")) or SMALL),
        how=f"{_tool(row)}, average round trip of {sent or 0:.0f}",
        attempts=attempts,
        error=text,
        raw=raw_of(row) if keep or verdict is not Verdict.OK else None,
        extra={
            **{"loss": loss, "rtt_min": number(row.get("rtt_min")), "rtt_max": number(row.get("rtt_max"))},
            **own_error(row if verdict.bad else None, "errno"),
        },
    )


def own_error(row: Mapping[str, Any] | None, field: str) -> Extra:
    """Return the number of the error of a call that failed for a reason of its own node, as extra; {} without one."""
    value = number((row or {}).get(field))
    return {} if value is None else {"errno": value}


def _error(row: Mapping[str, Any]) -> str | None:
    return one_line(str(row["error"]), 300) if row.get("error") else None


def _echoes(row: Mapping[str, Any]) -> tuple[float | None, float | None, Verdict, str | None]:
    """Return the number of sent echoes, the loss (%), the verdict and its error."""
    sent, received, loss = (number(row.get(name)) for name in ("sent", "received", "loss"))
    return sent, loss, *judge(sent, received, loss, _error(row))


def judge(
    sent: float | None, received: float | None, loss: float | None, error: str | None
) -> tuple[Verdict, str | None]:
    """Return the verdict on echoes, and the error if it is not ok."""
    if received is None:
        return Verdict.INCONCLUSIVE, error or "ping gave no answer that could be read"
    if loss is None and sent:
        loss = 100.0 * (1 - received / sent)
    if received == 0:
        # A router or the kernel reports "unreachable"; no answer is a timeout.
        silent = error is None or "lost" in error or "no answer" in error or "loss" in error
        return (Verdict.TIMEOUT if silent else Verdict.FAILED), error or f"no answer, {sent or 0:.0f} sent"
    if loss:
        return Verdict.SLOW, error or f"{loss:.0f} % loss"
    return Verdict.OK, None


def read_whole(row: Mapping[str, Any], target: Target, payload: int, attempts: int) -> Measurement:
    """Return the measurement of the echo that fills the MTU: the largest packet that passes, in bytes."""
    _, loss, verdict, text = _echoes(row)
    packet = payload + header_bytes(target.here.address)
    extra = {"loss": loss, "payload": payload, "path_mtu": number(row.get("path_mtu"))}
    if row.get("outdated") is True:
        extra["outdated"] = True
    if verdict is Verdict.SLOW:
        text = f"{loss or 0:.0f} % loss of echoes of {payload} bytes"
    elif verdict is not Verdict.OK and verdict is not Verdict.INCONCLUSIVE:
        text = f"{payload} bytes do not pass" + (f": {error}" if (error := _error(row)) else "")
    return target.measurement(
        Layer.MTU,
        verdict,
        float(packet) if verdict in (Verdict.OK, Verdict.SLOW) else None,
        "B",
        packet,
        how=f"{_tool(row)}, echoes of {payload} bytes that may not be fragmented",
        attempts=attempts,
        error=text,
        raw=None if verdict is Verdict.OK else raw_of(row),
        extra=None if verdict is Verdict.OK else extra,
    )


def raw_of(row: Mapping[str, Any]) -> str | None:
    return clean(str(row["raw"]), 2000) if row.get("raw") else None


def _tool(row: Mapping[str, Any]) -> str:
    return one_line(str(row.get("tool") or "ping"), 20)
