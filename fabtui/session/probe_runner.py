"""Probe runner: the probes of nodes before, between and beside tests."""

from __future__ import annotations

import asyncio
import ipaddress
import itertools
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fabtui.model.events import CommandEnd, CommandStart, InventoryUpdate, ProbeResult
from fabtui.model.facts.node_view import dicts
from fabtui.model.facts.states import PROBE as STATE
from fabtui.model.facts.states import Facts, packed, unpacked
from fabtui.model.layers import MESH, Layer
from fabtui.model.records import listed
from fabtui.nodeset import fold
from fabtui.sanitize import one_line
from fabtui.session.event_pipeline import EventPump
from fabtui.session.measure.p2p_result import whole
from fabtui.session.node_client import NodeClient, ProbeFailed
from fabtui.session.options import SessionOptions
from fabtui.session.user_probes import OwnProbe
from fabtui_node import registry

if TYPE_CHECKING:
    from fabtui.diagnosis.knowledge.step_command import StepCommand


INVENTORY_DEADLINE = 30.0
PROBE_DEADLINE = 20.0
CLOCK_DEADLINE = 5.0
OWN_DEADLINE = 5.5
#: Number of clock samples; the fastest one is the most exact.
CLOCK_SAMPLES = 5
#: Interval (s) of looks for other sessions, which read the list of processes, and their deadline.
NEWCOMER_INTERVAL = 20.0
NEWCOMER_DEADLINE = 5.0
#: Maximum number of nodes that try to walk the InfiniBand fabric, one after the other; not all have the rights.
MAX_WALKERS = 3
#: Maximum number of address pairs of a node whose routes are looked up.
MOST_ROUTES = 64

#: Number of nodes each of which resolves the names of all, and of names that it resolves where there are more.
FEW_NAMES, MOST_NAMES = 64, 16

#: Probes that run as soon as a session has nodes: quick, and without the NVIDIA driver, which is busy then.
EARLY = registry.probes_in("inspect")
#: Time (s) that a command gets.
DEADLINE = 20.0
#: Maximum number of characters of output: a node keeps to it, unless it is not to be trusted.
MOST_OUTPUT = 64 * 1024


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return True


def inventory_args(options: SessionOptions) -> dict[str, Any]:
    return {"pythons": [options.remote_python] if options.remote_python else []}


class ProbeRunner:
    """Runs probes on nodes; more nodes are added during the session. `own` are the user's probes by name."""

    def __init__(self, options: SessionOptions, pump: EventPump, clients: Mapping[str, NodeClient]) -> None:
        self._options = options
        self._pump = pump
        self._clients = clients
        self.own: Mapping[str, OwnProbe] = {}
        #: Key of the digests of what may be a secret: nodes have the same, and it is kept nowhere else.
        self._key = secrets.token_hex(16)
        #: The node whose state the others refer to, and its facts.
        self._base: tuple[str, Facts] = ("", {})

    async def early(self, nodes: Sequence[str]) -> None:
        await self.run(nodes, self._chosen(EARLY))
        await self._run_user_probes(nodes)

    async def watch_for_newcomers(self) -> None:
        """Report sessions of others that connect to the nodes, or leave them, as long as this session lasts."""
        while "host" in self._options.chosen_probes:
            await asyncio.sleep(NEWCOMER_INTERVAL)
            async with asyncio.TaskGroup() as group:
                for node, client in self._clients.items():
                    if client.lost is None:
                        group.create_task(self._newcomers(node))

    async def _newcomers(self, node: str) -> None:
        known = self._pump.model.nodes[node].probe_results.get("host", {})
        if "sessions" not in known:
            return
        try:
            value = await self._clients[node].probe("host", {"sessions": True}, NEWCOMER_DEADLINE)
        except ProbeFailed:
            # The node is lost, or busy: the next look is soon.
            return
        before, now = (
            {pid: one for one in dicts(of.get("sessions")) if (pid := whole(one.get("pid"))) is not None}
            for of in (known, value)
        )
        if before.keys() == now.keys():
            return
        self._pump.emit(ProbeResult(node=node, probe="host", value={**known, "sessions": list(now.values())}))
        for pid, one in now.items():
            if pid not in before:
                who = one_line(f"user {one.get('user')}, pid {pid}", 100)
                text = f"another fabtui has connected to this node ({who}): both may test at the same time"
                self._pump.log("notice", text, node)

    async def again(self, nodes: Sequence[str]) -> None:
        """Probe nodes again beside the tests: inventory first, then the light probes."""
        async with asyncio.TaskGroup() as group:
            for node in nodes:
                group.create_task(self._inventory(node))
        await self.run(nodes, self._chosen(registry.probes_in("inspect", "driver")), beside_tests=True)

    def _chosen(self, probes: Iterable[str]) -> list[str]:
        return [probe for probe in probes if probe in self._options.chosen_probes]

    async def _inventory(self, node: str) -> None:
        try:
            value = await self._clients[node].probe("inventory", inventory_args(self._options), INVENTORY_DEADLINE)
        except ProbeFailed as failed:
            self._pump.log("warning", f"inventory: {one_line(failed.text, 300)}", node)
        else:
            self._pump.emit(InventoryUpdate(node=node, value=value))

    async def all(self, nodes: Sequence[str]) -> None:
        """Run all probes of a preflight; in a prolog without tools that take seconds where NVML answers."""
        async with asyncio.TaskGroup() as group:
            if self._options.master is not None:
                target = dict(zip(("host", "port"), self._options.master, strict=True))
                for node in nodes:
                    group.create_task(self._probe(node, "master", target))
            await self.run(nodes, self._chosen(registry.PREFLIGHT), {"check": False} if self._prolog else {})
        if len(self._clients) > 1:
            await self.routes(nodes)
        if not self._options.read_only:
            await self._run_user_probes(nodes)
        elif self.own:
            self._pump.log(
                "notice", f"your probes are not run, because the session is read-only: {', '.join(self.own)}"
            )

    def _names_for(self, node: str) -> dict[str, Any]:
        """Return the names that a node resolves, and addresses of some peers; of many nodes those that follow it."""
        if self._options.lab is not None:
            return {}
        known = [record for record in self._pump.model.nodes.values() if record.inventory is not None]
        at = next((at for at, record in enumerate(known) if record.name == node), 0)
        ring = [*known[at:], *known[:at]][: len(known) if len(known) <= FEW_NAMES else MOST_NAMES]
        names = dict.fromkeys(
            str(name) for one in ring for name in (one.name, (one.inventory or {}).get("host")) if name
        )
        addresses = [str(entry.get("address")) for one in ring[1:4] for entry in listed(one, "data_addresses")[:1]]
        return {"names": [name for name in names if not _is_address(name)], "addresses": addresses}

    @property
    def _prolog(self) -> bool:
        return self._options.preflight_only and self._options.transport == "local"

    async def run(
        self,
        nodes: Iterable[str],
        probes: Iterable[str],
        given: Mapping[str, Any] | None = None,
        *,
        beside_tests: bool = False,
    ) -> None:
        """Run probes on the nodes that meet their requirements; beside tests with arguments that do not disturb."""
        names = list(nodes)
        async with asyncio.TaskGroup() as group:
            for probe in probes:
                required = registry.PROBES[probe].requires
                facts = {node: self._pump.model.nodes[node].inventory or {} for node in names}
                able = [node for node in names if not required or facts[node].get(required)]
                if probe == "ibfabric":
                    group.create_task(self._fabric(able))
                    continue
                for node in able:
                    if probe == "names":
                        group.create_task(self._probe(node, probe, self._names_for(node)))
                        continue
                    args = registry.PROBES[probe].beside_tests if beside_tests else given
                    own = {"clock": self._clock, STATE: self._state}.get(probe)
                    group.create_task(self._probe(node, probe, args) if own is None else own(node))

    async def _probe(self, node: str, probe: str, args: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        """Run a probe on a node, emit the result, and return the value; empty if it failed."""
        try:
            value = await self._clients[node].probe(probe, dict(args or {}), PROBE_DEADLINE)
        except ProbeFailed as failed:
            self._pump.emit(ProbeResult(node=node, probe=probe, error=one_line(failed.text, 500)))
            return {}
        self._pump.emit(ProbeResult(node=node, probe=probe, value=value))
        return value

    async def routes(self, nodes: Sequence[str]) -> None:
        """Have nodes report their neighbours, and the routes of address pairs that failed."""
        failed: dict[str, dict[tuple[str, str], None]] = {node: {} for node in nodes}
        for layer in MESH:
            for m in self._pump.model.addresses.pairs(layer):
                if m.verdict.bad and m.src_addr and m.dst_addr:
                    failed.get(m.src, {})[m.src_addr, m.dst_addr] = None
                    failed.get(m.dst, {})[m.dst_addr, m.src_addr] = None
        async with asyncio.TaskGroup() as group:
            for node, pairs in failed.items():
                args = {"pairs": [list(pair) for pair in sorted(pairs)[:MOST_ROUTES]]}
                group.create_task(self._probe(node, "routes", args))

    async def firewalls(self, nodes: Sequence[str]) -> None:
        """Have nodes report their rules that datagrams or connections do not reach."""
        log = self._pump.model.addresses
        silent = {m.dst for layer in (Layer.UDP, Layer.TCP) for m in log.pairs(layer) if m.verdict.bad}
        async with asyncio.TaskGroup() as group:
            for node in nodes:
                if node in silent:
                    group.create_task(self._probe(node, "firewall"))

    async def _fabric(self, nodes: list[str]) -> None:
        """Have each node inspect its own cables; one node with the rights walks the fabric for all of them."""
        walked = any(self._walked(node.probe_results.get("ibfabric")) for node in self._pump.model.nodes.values())
        # A prolog is about its node: it neither waits for the fabric nor blames the node for it.
        first = [] if walked or self._prolog else nodes[:MAX_WALKERS]
        async with asyncio.TaskGroup() as group:
            for node in nodes:
                if node not in first:
                    group.create_task(self._probe(node, "ibfabric", {"whole": False}))
            for at, node in enumerate(first):
                if self._walked(await self._probe(node, "ibfabric", {"whole": True})):
                    for other in first[at + 1 :]:
                        group.create_task(self._probe(other, "ibfabric", {"whole": False}))
                    break

    @staticmethod
    def _walked(value: Mapping[str, Any] | None) -> bool:
        return isinstance((value or {}).get("fabric"), dict)

    async def _run_user_probes(self, nodes: Iterable[str]) -> None:
        """Run the user's probes; log those that fail, which is not an error of the node."""
        problems: dict[tuple[str, str], list[str]] = {}

        async def run(node: str, name: str) -> None:
            try:
                value = await self._clients[node].probe("own", {"name": name}, OWN_DEADLINE)
            except ProbeFailed as failed:
                value = {"own": True, "problem": failed.text}
            if problem := value.get("problem"):
                problems.setdefault((name, one_line(str(problem), 300)), []).append(node)
            value = {**value, "title": self.own[name].title}
            self._pump.emit(ProbeResult(node=node, probe=name, value=value))

        async with asyncio.TaskGroup() as group:
            for node in nodes:
                for name in self.own:
                    group.create_task(run(node, name))
        for (name, problem), names in problems.items():
            self._pump.log("warning", f"your probe {name} did not work on {fold(names)}: {problem}")

    async def _state(self, node: str) -> None:
        """Read the state of a node; what it has in common with the first node is kept once."""
        try:
            value = await self._clients[node].probe(STATE, {"key": self._key}, PROBE_DEADLINE)
            facts = unpacked(value)
        except (ProbeFailed, ValueError) as error:
            self._pump.emit(ProbeResult(node=node, probe=STATE, error=one_line(str(error), 500)))
            return
        kept = packed(facts, *self._base)
        self._base = self._base if self._base[1] else (node, facts)
        failed = value.get("failed")
        unread = {"failed": failed} if failed and isinstance(failed, dict) else {}
        self._pump.emit(ProbeResult(node=node, probe=STATE, value={**kept, **unread}))

    async def _clock(self, node: str) -> None:
        """Measure the clock offset: the node's time lies between request and answer."""
        best: dict[str, Any] | None = None
        try:
            for _ in range(CLOCK_SAMPLES):
                asked, began = time.time(), time.monotonic()
                value = await self._clients[node].probe("clock", {}, CLOCK_DEADLINE)
                half = (time.monotonic() - began) / 2
                clock = value.get("time")
                if not isinstance(clock, (int, float)) or isinstance(clock, bool):
                    raise ProbeFailed("bad_value", "the clock probe returned no time")
                if best is None or half < best["uncertainty"]:
                    best = {**value, "offset": round(clock - asked - half, 6), "uncertainty": round(half, 6)}
        except ProbeFailed as failed:
            if best is None:
                self._pump.emit(ProbeResult(node=node, probe="clock", error=one_line(failed.text, 500)))
                return
        self._pump.emit(ProbeResult(node=node, probe="clock", value=best))


class StepRunner:
    """Runs commands on nodes and emits their start and their end."""

    def __init__(self, pump: EventPump, clients: Mapping[str, NodeClient]) -> None:
        self._pump = pump
        self._clients = clients
        #: Numbers of commands, unique within a recording, which may have an earlier part.
        self.numbers = itertools.count(1)
        self._running: set[int] = set()

    def close(self) -> None:
        """End what still runs: the links are about to be closed, and its output is lost."""
        for number in sorted(self._running):
            self._finish(CommandEnd(number=number, problem="killed at the end of the session"))

    def _finish(self, end: CommandEnd) -> None:
        if end.number in self._running:
            self._running.discard(end.number)
            self._pump.emit(end)

    async def run(self, step: StepCommand) -> None:
        """Run a command on its node; its end has the reason if there is no output."""
        number = next(self.numbers)
        self._running.add(number)
        self._pump.emit(CommandStart(number=number, node=step.node, command=step.text, argv=step.argv))
        args = {"argv": list(step.argv), "grep": [one.as_json() for one in step.greps], "last": step.last}
        try:
            if (client := self._clients.get(step.node)) is None:
                raise ProbeFailed("lost", "the node is not connected")
            value = await client.probe("command", args, DEADLINE)
        except ProbeFailed as failed:
            self._finish(CommandEnd(number=number, problem=one_line(failed.text, 500)))
        else:
            self._finish(_end(number, value))


def _end(number: int, value: Mapping[str, Any]) -> CommandEnd:
    output, status = value.get("output"), whole(value.get("exit"))
    text = output if isinstance(output, str) else ""
    return CommandEnd(
        number=number,
        output=text[:MOST_OUTPUT],
        lines=whole(value.get("lines")) or 0,
        dropped=(whole(value.get("dropped")) or 0) + len(text[MOST_OUTPUT:]),
        exit=status,
        problem=one_line(str(value.get("problem") or ""), 500),
    )
