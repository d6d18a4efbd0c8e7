"""Fabrics with planted faults, as the events of a session: the material of ``bench/diagnosis.py``.

No machine is asked: all values are invented, with noise. A fault changes values, errors, transports, facts of nodes or
the mesh of addresses, as that fault would; slow pairs are tested again as a session tests them.
"""

import itertools
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from fabtui.model.endpoints import Endpoint
from fabtui.model.events import (
    EndpointsAdded,
    Event,
    InventoryUpdate,
    Measured,
    NodeState,
    NodeUpdate,
    PhaseStart,
    PlanUpdate,
    ProbeResult,
    SessionEnd,
    SessionStart,
)
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict, is_wrong_data
from fabtui.model.session_model import Model

GIB = 1 << 30
#: Maximum number of pairs that a session tests again.
_MOST_RETESTED = 64
_BOARDS = {"NVIDIA H200": (355.0, 18, 26.5625), "NVIDIA H100 80GB HBM3": (350.0, 18, 26.5625)}
_CARDS = {"NVIDIA L40S": 21.5, "NVIDIA RTX 6000 Ada Generation": 20.5}
_RETRY = (
    "NCCL: NET/IB: Got completion from peer {address}<{port}> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=0 len=0 "
    "vendor err 129 (Send)"
)
_TIMED_OUT = "transfer: timed out after 10.0 s"


@dataclass
class Shape:
    """Shape of a fabric.

    Attributes:
        nodes: Number of nodes.
        gpus: GPUs per node.
        board: GPU model, or two models for a mixed fabric.
        net: ``ib``, ``roce`` or ``tcp``.
        gpus_per_nic: GPUs that share a NIC.
        leaves: Number of leaf switches.
        leaves_known: Whether a probe found the leaf switches.
        noise: Standard deviation of the logarithm of a value.
        halves: Factor between the two NUMA halves of a node of PCIe cards.
        taper: Factor between leaf switches, by design.
    """

    nodes: int
    gpus: int
    models: tuple[str, ...]
    net: str
    gpus_per_nic: int
    leaves: int
    leaves_known: bool
    noise: float
    halves: float = 1.0
    taper: float = 1.0

    @property
    def pcie(self) -> bool:
        """Return True if the GPUs are PCIe cards."""
        return self.models[0] in _CARDS


def shape(chance: random.Random, least_nodes: int = 2, **fixed: Any) -> Shape:
    """Return a random shape of at most 64 endpoints."""
    pcie = fixed.pop("pcie", chance.random() < 0.25)
    nodes = chance.choice([n for n in (2, 3, 4, 4, 6, 8, 8, 12, 16, 32) if n >= least_nodes])
    gpus = chance.choice([g for g in (1, 2, 4, 4, 8, 8) if g * nodes <= 64] or [1])
    models = [chance.choice(list(_CARDS if pcie else _BOARDS))]
    leaves = 2 if nodes >= 4 and chance.random() < 0.4 else 1
    found: dict[str, Any] = {
        "nodes": nodes,
        "gpus": gpus,
        "models": tuple(models),
        "net": chance.choice(("ib", "ib", "roce", "tcp")),
        "gpus_per_nic": chance.choice((1, 1, 1, 2)) if gpus > 1 else 1,
        "leaves": leaves,
        "leaves_known": chance.random() < 0.5,
        "noise": chance.uniform(0.03, 0.08),
        "halves": chance.uniform(0.78, 0.95) if pcie else 1.0,
    }
    return Shape(**(found | fixed))


@dataclass
class Plan:
    """Faults of a fabric, as functions."""

    #: Factor of the value of a pair; ``loaded`` is False when it is tested alone.
    factors: list[Callable[[Endpoint, Endpoint, bool], float]] = field(default_factory=list)
    #: Error of a pair, or None.
    errors: list[Callable[[Endpoint, Endpoint, str], str | None]] = field(default_factory=list)
    #: Transport of a pair, or None for the usual one.
    transports: list[Callable[[Endpoint, Endpoint], str | None]] = field(default_factory=list)
    #: Changes of the inventory and the probe results of a node.
    probed: list[Callable[[str, dict[str, Any], dict[str, dict[str, Any]]], None]] = field(default_factory=list)
    #: Verdict and loss (percent) of a path between two addresses in a layer of the mesh, or None.
    mesh: list[Callable[[Layer, Endpoint, Endpoint], tuple[Verdict, float] | None]] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    flapping: list[frozenset[str]] = field(default_factory=list)
    world_error: str | None = None


class Fabric:
    """A fabric and what is planted into it.

    Args:
        shape: Its shape.
        seed: Seed of its noise.
    """

    #: Share of the usual value of a class below which a value is slow.
    slow_below = 0.7

    def __init__(self, shape: Shape, seed: int) -> None:
        self.shape = shape
        self.chance = random.Random(seed)
        self.plan = Plan()
        self.names = [f"n{number:02d}" for number in range(shape.nodes)]
        self.ends = [
            self.endpoint(at, node, index) for at, node in enumerate(self.names) for index in range(shape.gpus)
        ]
        self._persistent: dict[tuple[str, str], float] = {}
        self._time = 1000.0

    def endpoint(self, at: int, node: str, index: int) -> Endpoint:
        """Return an endpoint of a node, by the number of the node."""
        shape, nic = self.shape, index // self.shape.gpus_per_nic
        return Endpoint(
            at * shape.gpus + index,
            node,
            index,
            name=self.model_of(at),
            uuid=f"GPU-{at:04x}-{index:04x}",
            bus=f"0000:{0x10 + index:02x}:00.0",
            nic=f"mlx5_{nic}" if shape.net != "tcp" else "eth0",
            rail=nic if shape.net != "tcp" else 0,
            address=self.address(at, nic),
        )

    def model_of(self, at: int) -> str:
        """Return the GPU model of a node; a mixed fabric has the second one on its last third."""
        models = self.shape.models
        return models[0] if len(models) == 1 or at < self.shape.nodes * 2 // 3 else models[1]

    def address(self, at: int, nic: int) -> str:
        return f"10.{nic + 1 if self.shape.net != 'tcp' else 0}.0.{at + 1}"

    def nics(self) -> int:
        return 1 if self.shape.net == "tcp" else max(1, self.shape.gpus // self.shape.gpus_per_nic)

    def leaf(self, node: str) -> int:
        if self.shape.leaves > 2:
            return self.names.index(node) * self.shape.leaves // self.shape.nodes
        return 0 if self.shape.leaves == 1 else int(self.names.index(node) >= self.shape.nodes // 2)

    def half(self, end: Endpoint) -> int:
        return int(end.index >= self.shape.gpus / 2)

    # -- values -------------------------------------------------------------------------------------------------------

    def usual(self, a: Endpoint, b: Endpoint) -> tuple[float, str]:
        """Return the usual value (GB/s) and transport of a pair."""
        shape = self.shape
        if a.node == b.node:
            if a.name in _BOARDS:
                return _BOARDS[a.name][0], "P2P/CUMEM"
            across = self.half(a) != self.half(b)
            return _CARDS[a.name] * (shape.halves if across else 1.0), "P2P/IPC"
        taper = shape.taper if self.leaf(a.node) != self.leaf(b.node) else 1.0
        if shape.net == "tcp":
            return 2.9 * taper, "NET/Socket/0"
        slow = min(1.0, *(0.9 if one.name in _CARDS else 1.0 for one in (a, b)))
        cross = 1.0 if a.rail == b.rail else 0.97
        rate = 22.5 if shape.pcie else 46.0
        return rate * taper * cross * slow, "NET/IB/0/GDRDMA"

    def value(self, a: Endpoint, b: Endpoint, loaded: bool) -> float:
        """Return a noisy value, with the factors of the faults."""
        noise = self.shape.noise * (2.0 if self.shape.net == "tcp" and a.node != b.node else 1.0)
        key = (str(a), str(b))
        if key not in self._persistent:
            self._persistent[key] = self.chance.gauss(0, 0.8 * noise)
        usual = self.usual(a, b)[0]
        for factor in self.plan.factors:
            usual *= factor(a, b, loaded)
        return usual * math.exp(self._persistent[key] + self.chance.gauss(0, 0.6 * noise))

    def _measured(self, layer: Layer, a: Endpoint, b: Endpoint, attempt: int, loaded: bool) -> Measurement:
        self._time += 0.0005
        error = next((text for find in self.plan.errors if (text := find(a, b, str(layer)))), None)
        if error is None and frozenset((str(a), str(b))) in self.plan.flapping and attempt % 2:
            error = _TIMED_OUT
        if layer is Layer.WORLD and self.plan.world_error:
            error = self.plan.world_error
        transport = next((text for find in self.plan.transports if (text := find(a, b))), self.usual(a, b)[1])
        common: dict[str, Any] = {"unit": "GB/s", "bytes": 1 << 26, "time": self._time, "attempts": attempt}
        if error is not None:
            verdict = Verdict.TIMEOUT if "timed out" in error else Verdict.FAILED
            verdict = Verdict.WRONG if is_wrong_data(error, None) else verdict
            return Measurement(layer, str(a), str(b), verdict, how="nccl", error=error, **common)
        value = self.value(a, b, loaded)
        common["transport"] = transport
        return Measurement(layer, str(a), str(b), Verdict.OK, value, how="nccl", **common)

    # -- events -------------------------------------------------------------------------------------------------------

    def events(self, model: Model) -> Iterator[Event]:
        """Yield the events of a session; the caller applies each to ``model``, which decides what is tested again."""
        yield SessionStart(nodes=self.names, time=self._time, options={"probes": ["ping", "udp", "p2p"]})
        results: list[Event] = []
        for node in self.names:
            yield NodeUpdate(node=node, state=NodeState.CONNECTED, backend="asyncssh", time=self._time)
            inventory, probed = self.probed(node)
            for change in self.plan.probed:
                change(node, inventory, probed)
            yield InventoryUpdate(node=node, value=inventory, time=self._time)
            results += [
                ProbeResult(node=node, probe=probe, value=value, time=self._time) for probe, value in probed.items()
            ]
            yield NodeUpdate(node=node, state=NodeState.READY, backend="asyncssh", time=self._time)
        yield EndpointsAdded(endpoints=self.ends, time=self._time)
        yield from results
        yield PlanUpdate(slow_below=self.slow_below, time=self._time)
        yield from self._mesh()
        pairs = list(itertools.permutations(self.ends, 2))
        if len(self.ends) <= 32:
            yield from self._phase(Layer.WORLD, pairs)
        yield from self._phase(Layer.P2P, pairs)
        yield from self._again(model)
        yield PhaseStart(name="done", time=self._time)
        yield SessionEnd(exit=0, time=self._time)

    def _phase(self, layer: Layer, pairs: list[tuple[Endpoint, Endpoint]]) -> Iterator[Event]:
        yield PhaseStart(name=str(layer), total=len(pairs), time=self._time)
        rows = []
        for at, (a, b) in enumerate(pairs):
            if layer is Layer.P2P and at == len(pairs) // 2:
                for node in self.plan.lost:
                    text = "connection lost: no heartbeat for 10 s"
                    yield NodeUpdate(node=node, state=NodeState.LOST, text=text, time=self._time)
            if {a.node, b.node} & set(self.plan.lost) and layer is Layer.P2P and at >= len(pairs) // 2:
                yield PlanUpdate(untested=[(str(a), str(b), "connection lost: no heartbeat for 10 s")], time=self._time)
                continue
            rows.append(self._measured(layer, a, b, 1, True))
        yield Measured(measurements=rows, time=self._time)

    def _again(self, model: Model) -> Iterator[Event]:
        """Test slow pairs twice more, alone, and dead ones once; flapping ones as watching does."""
        ends = {str(end): end for end in self.ends}
        lost = set(self.plan.lost)
        for attempt in (2, 3):
            bad = []
            for src, dst in itertools.permutations(ends, 2):
                m = model.latest(Layer.P2P, src, dst)
                if m is not None and not {ends[src].node, ends[dst].node} & lost:
                    verdict = model.verdict(m)
                    if verdict is Verdict.SLOW or (verdict.bad and attempt == 2):
                        bad.append((src, dst))
            if len(bad) > _MOST_RETESTED:
                bad = self.chance.sample(bad, _MOST_RETESTED) if attempt == 2 else []
            rows = [self._measured(Layer.P2P, ends[a], ends[b], attempt, False) for a, b in bad]
            if rows:
                yield Measured(measurements=rows, time=self._time)
        for pair in self.plan.flapping:
            a, b = (ends[name] for name in sorted(pair))
            for attempt in range(4, 8):
                yield Measured(measurements=[self._measured(Layer.P2P, a, b, attempt, True)], time=self._time)

    def _mesh(self) -> Iterator[Event]:
        first = {(end.node, end.rail): end for end in reversed(self.ends)}
        pairs = [(a, b) for a in first.values() for b in first.values() if a.node != b.node]
        for layer, unit in ((Layer.PING, "ms"), (Layer.MTU, "B"), (Layer.UDP, "%"), (Layer.TCP, "ms")):
            yield PhaseStart(name=str(layer), total=len(pairs), time=self._time)
            rows = [self._path(layer, a, b, unit) for a, b in pairs]
            if layer is Layer.PING:
                # Large echoes are sent where small ones pass.
                echoed = {(m.src_addr, m.dst_addr) for m in rows if m.verdict not in (Verdict.FAILED, Verdict.TIMEOUT)}
            elif layer is Layer.MTU:
                rows = [m for m in rows if (m.src_addr, m.dst_addr) in echoed]
            yield Measured(measurements=rows, time=self._time)

    def _path(self, layer: Layer, a: Endpoint, b: Endpoint, unit: str) -> Measurement:
        found = next((one for find in self.plan.mesh if (one := find(layer, a, b))), None)
        verdict, loss = found or (Verdict.OK, 0.0)
        usual = {"ping": 0.1, "mtu": 9000.0, "udp": 0.0, "tcp": 0.2}[str(layer)]
        value: float | None = usual * math.exp(self.chance.gauss(0, 0.1))
        if layer is Layer.MTU:
            value = usual
        if verdict.bad:
            value = loss if layer is Layer.UDP and verdict is Verdict.SLOW else None
        extra: dict[str, Any] = {"loss": loss}
        if layer is Layer.UDP:
            small, big = (0 if loss >= 100 else 20), (0 if loss >= 100 else round(20 * (1 - loss / 100)))
            extra |= {"sent": {"small": 20, "big": 20}, "arrived": {"small": small, "big": big}}
        if layer is Layer.MTU:
            extra["payload"] = 8972
        error = None if verdict is Verdict.OK else f"{loss:.0f} % lost"
        ends: dict[str, Any] = {"src_addr": a.address, "dst_addr": b.address}
        more: dict[str, Any] = {"unit": unit, "bytes": 8972 if layer is not Layer.PING else 56, "time": self._time}
        return Measurement(
            layer, a.node, b.node, verdict, value, how=str(layer), error=error, extra=extra, **ends, **more
        )

    # -- facts --------------------------------------------------------------------------------------------------------

    def probed(self, node: str) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        mine = [end for end in self.ends if end.node == node]
        return self._inventory(node, mine), self._probes(node, mine)

    def _inventory(self, node: str, mine: list[Endpoint]) -> dict[str, Any]:
        shape, at = self.shape, self.names.index(node)
        rate = 25.0 if shape.net == "tcp" else 200.0 if shape.pcie else 400.0
        link = {"ib": "InfiniBand", "roce": "Ethernet"}.get(shape.net)
        addresses = [
            {"address": self.address(at, nic), "nic": f"eth{nic}", "rail": nic, "prefix": 24, "family": 4}
            for nic in range(self.nics())
        ]
        port = {"port": 1, "state": "Active", "rate": rate, "link_layer": link}
        wire = {"state": "up", "kind": "ethernet", "mtu": 9000, "speed_mbps": int(rate * 1000)}
        return {
            "host": node,
            "driver": "570.86.15",
            "cuda": "12.8",
            "gpus": [
                {
                    **{"index": end.index, "name": end.name, "uuid": end.uuid, "bus": end.bus, "memory": 141 * GIB},
                    **{"nic": end.nic, "nic_path": "PIX", "numa": self.half(end) if shape.leaves_known else None},
                    "pcie": {"gen": 5, "gen_max": 5, "width": 16, "width_max": 16},
                    "processes": [],
                }
                for end in mine
            ],
            "ib": [{**port, "ca": f"mlx5_{nic}", "netdev": f"eth{nic}"} for nic in range(self.nics() if link else 0)],
            "nics": [{**wire, "name": f"eth{nic}", "addresses": [addresses[nic]]} for nic in range(self.nics())],
            "data_addresses": addresses,
            "limits": {"memlock": {"soft": -1, "hard": -1}, "nofile": {"soft": 1 << 20, "hard": 1 << 20}},
            "pythons": [{"path": "/usr/bin/python3", "torch": "2.6.0", "nccl_version": "2.21.5"}],
            "env": {},
        }

    def _probes(self, node: str, mine: list[Endpoint]) -> dict[str, dict[str, Any]]:
        shape = self.shape
        clocks = {"sm": 1980, "sm_max": 1980}
        gpus = [{"index": end.index, "name": end.name, "busy": True, "reasons": [], "clocks": clocks} for end in mine]
        probed: dict[str, dict[str, Any]] = {
            "host": {
                "identity": {"hostname": node, "boot_id": f"b-{node}", "machine_id": f"m-{node}", "container": None},
                "limits": {"memlock": {"soft": -1, "hard": -1}, "nofile": {"soft": 1 << 20, "hard": 1 << 20}},
                "gpudirect": {"peermem": "nvidia_peermem", "registered": None, "open_driver": True, "dma_buf": True},
                "acs": {"state": "off", "on": []},
            },
            "gpus": {"gpus": [dict(gpu, pcie={"generation": 5, "width": 16}) for gpu in gpus]},
            "gpuload": {"gpus": [dict(gpu, pcie=_pcie(5, 16)) for gpu in gpus], "busy": len(gpus)},
            "kernel": {"source": "kmsg", "readable": "yes", "events": [], "counts": [], "xids": {}, "uptime": 90000.0},
        }
        if not shape.pcie:
            links = [{"link": n, "state": "active", "speed": 26.5625, "counters": {}, "other": {}} for n in range(18)]
            probed["nvlink"] = {
                "source": "nvml",
                "gpus": [
                    {"index": e.index, "name": e.name, "uuid": e.uuid, "links": [dict(x) for x in links]} for e in mine
                ],
            }
        if shape.net != "tcp":
            rate = 200.0 if shape.pcie else 400.0
            layer = "InfiniBand" if shape.net == "ib" else "Ethernet"
            port = {"port": 1, "state": "Active", "physical_state": "LinkUp", "rate": rate, "link_layer": layer}
            probed["ibstat"] = {
                "source": "ibstat",
                "cas": [{"ca": f"mlx5_{nic}", "type": "MT4129", "ports": [dict(port)]} for nic in range(self.nics())],
            }
        if shape.net == "ib" and shape.leaves_known:
            leaf = self.leaf(node)
            probed["ibfabric"] = {
                "ports": [
                    {
                        "ca": f"mlx5_{nic}",
                        "port": 1,
                        "leaf": {"guid": f"0xaa{leaf:02d}", "name": f"leaf{leaf}", "port": nic + 1},
                        "link": {"rate": 200.0 if shape.pcie else 400.0},
                    }
                    for nic in range(self.nics())
                ]
            }
        return probed


def _pcie(generation: int, width: int) -> dict[str, int]:
    return {"generation": generation, "generation_max": 5, "width": width, "width_max": 16}


def slow(fabric: Fabric, true: Callable[[Endpoint, Endpoint], bool], factor: float) -> None:
    fabric.plan.factors.append(lambda a, b, loaded: factor if true(a, b) else 1.0)


def port_down(fabric: Fabric, end: Endpoint) -> None:
    """Have the node report that the port of an endpoint is down."""

    def change(name: str, inventory: dict[str, Any], probed: dict[str, dict[str, Any]]) -> None:
        if name != end.node:
            return
        for port in inventory["ib"]:
            if port["ca"] == end.nic:
                port["state"] = "Down"
        for ca in probed["ibstat"]["cas"]:
            if ca["ca"] == end.nic:
                ca["ports"][0] |= {"state": "Down", "physical_state": "Disabled"}
        inventory["nics"][int(str(end.nic).rpartition("_")[2])]["state"] = "down"

    fabric.plan.probed.append(change)
