"""External tools between two nodes (iperf3, perftest): disjoint pairs, with a deadline on both sides."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from fabtui.model.events import Measured, PhaseStart, ProbeResult
from fabtui.model.facts.node_view import dicts
from fabtui.model.layers import Layer, layer_of_probe
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.schedule import each_round
from fabtui.sanitize import clean, one_line
from fabtui.session.measure.measurement_context import MeasurementContext
from fabtui.session.measure.p2p_result import number
from fabtui.session.measure.ping_mesh import addresses_of
from fabtui.session.node_client import NodeClient, ProbeFailed
from fabtui.transport.link import Message
from fabtui_node.probes.network.perftest_options import of_tool

#: The layers of each probe, in the order they run.
LAYERS = {probe: layer_of_probe(probe) for probe in ("iperf3", "perftest")}
#: Measuring time of a tool, and deadlines of both sides (s).
SECONDS = 2
CLIENT_DEADLINE = 10.0
SERVER_DEADLINE = 20.0
OPEN_DEADLINE = 6.0
#: Somebody else who connects to a server may end it or keep it busy: a failure is measured again, at another port.
TRIES = 3
#: Maximum number of nodes of which every pair is measured; of more, each is measured with the next one.
MAX_NODES = 16


class ToolPort(NamedTuple):
    """An end of a measurement."""

    name: str  #: What the measurement calls it: an address, or an RDMA port (``mlx5_0:1``).
    rail: int  #: Its rail, or its place among the node's ends where rails are not known.
    address: str  #: Where the server of the tool is asked, and what a client sends from.
    device: str | None = None
    ib_port: int = 1
    gid_index: int | None = None  #: The GID to use on RoCE, or None to leave it to the tool.
    node: str = ""


class PairTools:
    """Runs external tools between nodes."""

    def __init__(
        self, context: MeasurementContext, clients: dict[str, NodeClient], options: Sequence[str] = ()
    ) -> None:
        """``options``: further options of perftest, checked."""
        self._options = list(options)
        self._context = context
        self._pump = context.pump
        self._clients = clients

    async def run(self, probe: str, new: list[str], old: list[str]) -> None:
        """Measure between all pairs of nodes that have the tool, both directions, disjoint pairs at a time.

        Pairs of two nodes of ``old`` were measured before.
        """
        ends: dict[str, list[ToolPort]] = {}
        for node in [*old, *new]:
            tools = (self._pump.model.nodes[node].inventory or {}).get("tools")
            lacking = [str(layer) for layer in LAYERS[probe] if not (isinstance(tools, dict) and tools.get(str(layer)))]
            ports = ports_of(probe, self._pump.model.nodes[node].inventory)
            if lacking or not ports:
                why = f"no {lacking[0]} on this node" if lacking else "no RDMA port is active and has an address"
                self._pump.emit(ProbeResult(node=node, probe=probe, error=why))
            else:
                ends[node] = [port._replace(node=node) for port in ports]
        able = list(ends)
        rounds = list(each_round(len(able))) if len(able) <= MAX_NODES else _ring(len(able))
        if len(able) > MAX_NODES:
            self._pump.log("notice", f"{probe}: {len(able)} nodes, so each is measured with the next one only")
        named = [[(able[a], able[b]) for a, b in one] for one in rounds]
        pairs = [[(a, b) for a, b in one if a in new or b in new] for one in named]
        total = sum(len(_rails(ends[a], ends[b])) for one in pairs for a, b in one) * 2 * len(LAYERS[probe])
        self._pump.emit(PhaseStart(name=probe, total=total))
        for one in pairs:
            await self._context.go.wait()
            async with asyncio.TaskGroup() as group:
                for a, b in one:
                    group.create_task(self._pair(probe, _rails(ends[a], ends[b])))

    async def _pair(self, probe: str, rails: list[tuple[ToolPort, ToolPort]]) -> None:
        for here, there in rails:
            for layer in LAYERS[probe]:
                for source, target in ((here, there), (there, here)):
                    for _ in range(TRIES):
                        measured = await self._one(probe, layer, source, target)
                        self._pump.emit(Measured(measurements=[measured]))
                        if measured.verdict is not Verdict.FAILED:
                            break

    async def _one(self, probe: str, layer: Layer, source: ToolPort, target: ToolPort) -> Measurement:
        token = secrets.token_hex(8)
        loop = asyncio.get_running_loop()
        opened: asyncio.Future[int | None] = loop.create_future()

        def part(value: Message) -> None:
            port = value.get("port")
            if not opened.done():
                opened.set_result(port if isinstance(port, int) else None)

        serve = self._args(layer, target, target) | {"role": "serve", "token": token}
        server = asyncio.create_task(self._call(probe, target.node, serve, SERVER_DEADLINE, part))
        either: set[asyncio.Future[Any]] = {server, opened}
        try:
            await asyncio.wait(either, timeout=OPEN_DEADLINE, return_when=asyncio.FIRST_COMPLETED)
            port = opened.result() if opened.done() else None
            if port is None:
                reported = server.result().get("error") if server.done() else None
                why = f"{target.node} could not serve: {reported or 'its server did not listen in time'}"
                return self._measurement(layer, source, target, {"error": why})
            ask = self._args(layer, target, source) | {"role": "measure", "port": port, "source": source.address}
            value = await self._call(probe, source.node, ask | {"seconds": SECONDS}, CLIENT_DEADLINE)
        finally:
            opened.cancel()
            await self._call(probe, target.node, {"role": "end", "token": token}, 5.0)
            await asyncio.wait({server}, timeout=5.0)
            server.cancel()
        return self._measurement(layer, source, target, value)

    def _args(self, layer: Layer, target: ToolPort, mine: ToolPort) -> Message:
        args: Message = {"tool": str(layer), "address": target.address, "seconds": SECONDS}
        if mine.device is not None:
            args |= {"device": mine.device, "ib_port": mine.ib_port, "gid_index": mine.gid_index}
            args["options"] = self._options
        return args

    async def _call(
        self, probe: str, node: str, args: Message, deadline: float, part: Callable[..., None] | None = None
    ) -> Message:
        try:
            return await self._clients[node].probe(probe, args, deadline, part)
        except ProbeFailed as failed:
            return {"error": one_line(failed.text, 300), "timed_out": failed.kind == "timeout"}

    def _measurement(self, layer: Layer, source: ToolPort, target: ToolPort, value: Message) -> Measurement:
        found, unit, size = read(layer, value.get("values"))
        error = one_line(str(value["error"]), 300) if value.get("error") else None
        if found is None and error is None:
            error = f"{layer} printed no result"
        timed_out = value.get("timed_out") is True or "timed out" in (error or "")
        verdict = Verdict.OK if error is None else Verdict.TIMEOUT if timed_out else Verdict.FAILED
        extra = value.get("values")
        retransmits = number(extra.get("retransmits")) if isinstance(extra, dict) else None
        return Measurement(
            layer,
            source.node,
            target.node,
            verdict,
            found if error is None else None,
            unit,
            size,
            time.time(),
            how(layer, self._options),
            src_addr=source.name,
            dst_addr=target.name,
            attempts=self._context.attempt(str(layer), source.node, target.node, source.name, target.name),
            error=error,
            raw=clean(str(value["raw"]), 4000) if value.get("raw") else None,
            extra=None if retransmits is None else {"retransmits": retransmits},
        )


def how(layer: Layer, options: Sequence[str] = ()) -> str:
    """Return how a tool measures, with the options that were added."""
    more = of_tool(str(layer), options)
    timed = layer is not Layer.IB_READ_LAT and not {"-n", "-D"} & set(more)
    return ", ".join([str(layer), *([f"{SECONDS} s"] if timed else []), *([" ".join(more)] if more else [])])


def read(layer: Layer, values: Any) -> tuple[float | None, str, int | None]:
    """Return value, unit and message size of a tool's parsed output; None for what is missing."""
    values = values if isinstance(values, dict) else {}
    if layer is Layer.IPERF3:
        return number(values.get("bandwidth")), "GB/s", None
    rows = values.get("rows")
    row = rows[-1] if isinstance(rows, list) and rows and isinstance(rows[-1], dict) else {}
    size = number(row.get("bytes"))
    whole = None if size is None else int(size)
    if layer is Layer.IB_READ_LAT:
        typical = number(row.get("t_typical"))
        return (number(row.get("t_avg")) if typical is None else typical), "us", whole
    return number(row.get("bandwidth")), "GB/s", whole


def ports_of(probe: str, inventory: Any) -> list[ToolPort]:
    """Return the ends of a node that a tool measures between."""
    inventory = inventory if isinstance(inventory, dict) else {}
    addresses = [one for one in addresses_of({"": inventory})[""] if one.up]
    if probe == "iperf3":
        rails = [place if one.rail is None else one.rail for place, one in enumerate(addresses)]
        return [ToolPort(one.address, rail, one.address) for one, rail in zip(addresses, rails, strict=True)]
    ports = []
    for place, port in enumerate(dicts(inventory.get("ib"))):
        if port.get("state") != "Active" or not isinstance(port.get("ca"), str):
            continue
        # The tools meet over TCP: by the port's own interface, or any other where it has no address.
        own = next((one.address for one in addresses if one.nic and one.nic == port.get("netdev")), None)
        meet = own or (addresses[0].address if addresses else None)
        if meet is not None:
            which = port.get("port")
            number_ = which if isinstance(which, int) else 1
            ports.append(ToolPort(f"{port['ca']}:{number_}", place, meet, port["ca"], number_, _gid_index(port)))
    return ports


def _gid_index(port: Message) -> int | None:
    """Return the index of a RoCE port's first RoCE v2 GID of an IPv4 address, or None where there is none."""
    if port.get("link_layer") != "Ethernet":
        return None
    for entry in dicts(port.get("gids")):
        if entry.get("type") == "RoCE v2" and ":ffff:" in str(entry.get("gid")):
            index = entry.get("index")
            return index if isinstance(index, int) else None
    return None


def _rails(here: Iterable[ToolPort], there: Iterable[ToolPort]) -> list[tuple[ToolPort, ToolPort]]:
    others = {port.rail: port for port in there}
    return [(port, others[port.rail]) for port in here if port.rail in others]


def _ring(count: int) -> list[list[tuple[int, int]]]:
    pairs = [(at, (at + 1) % count) for at in range(count)]
    rounds = [pairs[0 : count - count % 2 : 2], pairs[1::2], pairs[count - count % 2 :]]
    return [one for one in rounds if one]
