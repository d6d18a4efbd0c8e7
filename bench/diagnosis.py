"""Truth of the diagnosis: planted faults, and whether the first finding names them.

    python bench/diagnosis.py [--seeds 20] [--kind TEXT] [--show] [--many] [--mixed] [--healthy] [--racks] [--labs]
                              [--cpu]

Fabrics of 2 to 32 nodes with noise (``bench/planted.py``) go through the model as events of a session. A finding is
right if its subject is the planted one, or one of its rivals is where the data cannot separate them. A fault found by
facts of a node may name the fact in its title or evidence. Racks of trays that share an NVLink domain are from
``bench/racks.py``, labs of CPU ranks on busy cores from ``bench/busylabs.py``.
"""

import argparse
import gc
import itertools
import random
import re
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bars import held
from busylabs import LABS, BusyLab
from planted import _RETRY, _TIMED_OUT, Fabric, Plan, Shape, port_down, shape, slow
from racks import FAULTS, RACKS, Planted, racks_of, two_faults

from fabtui.diagnosis.diagnosis import diagnose
from fabtui.model.endpoints import Endpoint, PairClass
from fabtui.model.events import EndpointsAdded, Measured, SessionStart
from fabtui.model.exit_codes import exit_code
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.schedule import pairs_for
from fabtui.model.session_model import Model
from fabtui.nodeset import fold
from fabtui.presentation.findings import as_json
from fabtui.screen.launch import COLLECTOR
from fabtui.screen.session_diagnosis import STEP, SessionDiagnosis

#: Bars: shares of planted faults that are named first, and of runs with two or three faults that are named whole.
FIRST, SEVERAL = 0.97, {2: 0.92, 3: 0.80}
#: Bars of several faults over mixed layers: shares of runs in which each has a finding, and nothing else has.
OWN, CAUSED = 0.90, 0.95
#: Bars of the search in a large fabric: seconds of CPU, and milliseconds without a pause.
SEARCH, STEP_MS = 1.5, 15.0
PASSES = 3

Found = dict[str, Any]
Make = Callable[[Fabric, random.Random], "Truth"]


class Truth(NamedTuple):
    """A planted fault, as findings may name it.

    Attributes:
        text: What was planted.
        subjects: Kinds and names of subjects that are right.
        words: Pattern that the title or the evidence has to match, or "".
        separable: Whether the data can separate it from its rivals.
    """

    text: str
    subjects: tuple[tuple[str, str], ...]
    words: str = ""
    separable: bool = True

    def named_by(self, finding: Found, *, rivals: bool) -> bool:
        """Return True if a finding names this fault."""
        named = [(finding["subject"]["kind"], finding["subject"]["name"])]
        if rivals:
            named += [(one["kind"], one["name"]) for one in finding["rivals"]]
        text = "\n".join([finding["title"], *finding["evidence"]])
        right = any(subject in self.subjects for subject in named)
        return right and (not self.words or re.search(self.words, text, re.IGNORECASE) is not None)


class Kind(NamedTuple):
    """Kind of fault, and the shapes it can be planted into."""

    name: str
    make: Make
    least_nodes: int = 2
    fixed: Mapping[str, Any] = MappingProxyType({})
    accepts: Callable[[Shape], bool] = lambda shape: True


KINDS: list[Kind] = []


def planted(
    name: str, accepts: Callable[[Shape], bool] = lambda shape: True, least_nodes: int = 2, **fixed: Any
) -> Callable[[Make], Make]:
    def register(make: Make) -> Make:
        KINDS.append(Kind(name, make, least_nodes, fixed, accepts))
        return make

    return register


# -- what many faults share -------------------------------------------------------------------------------------------


def _end(fabric: Fabric, chance: random.Random) -> Endpoint:
    return chance.choice(fabric.ends)


def _off(a: Endpoint, b: Endpoint) -> bool:
    return a.node != b.node


def _error(a: Endpoint, b: Endpoint) -> str:
    """Return an error with details that differ from pair to pair, as those of NCCL do."""
    key = zlib.crc32(f"{a}{b}".encode())
    return _RETRY.format(address=b.address, port=30000 + key % 20000) if key % 3 else _TIMED_OUT


def _dead(fabric: Fabric, true: Callable[[Endpoint, Endpoint], bool]) -> None:
    fabric.plan.errors.append(lambda a, b, layer: _error(a, b) if true(a, b) else None)


def _factor(fabric: Fabric, chance: random.Random) -> float:
    return chance.uniform(0.3, 0.6)


def _nic_name(end: Endpoint) -> str:
    return f"{end.node} {end.nic}"


def _across(node: str) -> Callable[[Endpoint, Endpoint], bool]:
    return lambda a, b: _off(a, b) and node in (a.node, b.node)


def _on_rail(rail: int | None) -> Callable[[Endpoint, Endpoint], bool]:
    return lambda a, b: _off(a, b) and rail in (a.rail, b.rail)


def _own_nic(end: Endpoint) -> Callable[[Endpoint, Endpoint], bool]:
    def true(a: Endpoint, b: Endpoint) -> bool:
        return _off(a, b) and any((one.node, one.nic) == (end.node, end.nic) for one in (a, b))

    return true


def _one_gpu(fabric: Fabric) -> bool:
    return fabric.shape.gpus == 1


def _as_endpoint(fabric: Fabric, end: Endpoint) -> tuple[tuple[str, str], ...]:
    return (("gpu", str(end)), *((("node", end.node),) if _one_gpu(fabric) else ()))


def _as_nic(fabric: Fabric, end: Endpoint) -> tuple[tuple[str, str], ...]:
    found = [("nic", _nic_name(end))]
    if fabric.shape.gpus_per_nic == 1:
        found.append(("gpu", str(end)))
    if fabric.nics() == 1:
        found.append(("node", end.node))
    return tuple(found)


def _mesh_dead(fabric: Fabric, true: Callable[[Endpoint, Endpoint], bool]) -> None:
    def find(layer: Layer, a: Endpoint, b: Endpoint) -> tuple[Verdict, float] | None:
        back = layer in (Layer.PING, Layer.MTU) and true(b, a)
        return (Verdict.TIMEOUT, 100.0) if true(a, b) or back else None

    fabric.plan.mesh.append(find)


def _cut(fabric: Fabric, true: Callable[[Endpoint, Endpoint], bool]) -> None:
    """Let nothing pass, of ranks and of the mesh."""
    _dead(fabric, true)
    _mesh_dead(fabric, true)


def _look(fabric: Fabric, node: str, change: Callable[[dict[str, Any], dict[str, dict[str, Any]]], None]) -> None:
    def apply(name: str, inventory: dict[str, Any], probed: dict[str, dict[str, Any]]) -> None:
        if name == node:
            change(inventory, probed)

    fabric.plan.probed.append(apply)


# -- endpoints --------------------------------------------------------------------------------------------------------


@planted("endpoint dead", least_nodes=3)
def endpoint_dead(fabric: Fabric, chance: random.Random) -> Truth:
    end = _end(fabric, chance)
    _dead(fabric, lambda a, b: end in (a, b))
    return Truth(f"{end} dead", _as_endpoint(fabric, end))


@planted("endpoint dead, one direction", least_nodes=3)
def endpoint_one_way(fabric: Fabric, chance: random.Random) -> Truth:
    end, side = _end(fabric, chance), chance.choice((0, 1))
    _dead(fabric, lambda a, b: (a, b)[side] is end)
    return Truth(
        f"{end} dead as {'receiver' if side else 'sender'}", _as_endpoint(fabric, end), r"receive|send|direction"
    )


@planted("endpoint slow", least_nodes=3)
def endpoint_slow(fabric: Fabric, chance: random.Random) -> Truth:
    end, factor = _end(fabric, chance), _factor(fabric, chance)
    slow(fabric, lambda a, b: end in (a, b), factor)
    return Truth(f"{end} slow x{factor:.2f}", _as_endpoint(fabric, end), "slow")


@planted("GPU throttled", least_nodes=2, accepts=lambda s: s.gpus > 1)
def throttled(fabric: Fabric, chance: random.Random) -> Truth:
    end, factor = _end(fabric, chance), _factor(fabric, chance)
    slow(fabric, lambda a, b: end in (a, b), factor)

    def change(inventory: dict[str, Any], probed: dict[str, dict[str, Any]]) -> None:
        probed["gpuload"]["gpus"][end.index]["reasons"] = ["hw_slowdown", "hw_thermal_slowdown"]

    _look(fabric, end.node, change)
    return Truth(f"{end} throttled", _as_endpoint(fabric, end), "slowdown|too hot|throttl")


@planted("Xid or ECC on a GPU", least_nodes=2, accepts=lambda s: s.gpus > 1)
def xid(fabric: Fabric, chance: random.Random) -> Truth:
    end = _end(fabric, chance)
    _dead(fabric, lambda a, b: end in (a, b))

    def change(inventory: dict[str, Any], probed: dict[str, dict[str, Any]]) -> None:
        text = "GPU has fallen off the bus."
        entry = {"kind": "xid", "code": 79, "bus": end.bus, "text": text, "count": 1, "last": 89000.0, "age": 1000.0}
        probed["kernel"]["counts"] = [entry | {"verdict": "bad"}]
        probed["kernel"]["xids"] = {"79": 1}

    _look(fabric, end.node, change)
    return Truth(f"{end} Xid 79", _as_endpoint(fabric, end), "Xid 79")


@planted("GPU at PCIe x4", least_nodes=2, accepts=lambda s: s.gpus > 1 and s.net != "tcp")
def pcie_width(fabric: Fabric, chance: random.Random) -> Truth:
    end = _end(fabric, chance)
    pcie = fabric.shape.pcie
    slow(fabric, lambda a, b: end in (a, b) and (_off(a, b) or pcie), 0.3)

    def change(inventory: dict[str, Any], probed: dict[str, dict[str, Any]]) -> None:
        probed["gpuload"]["gpus"][end.index]["pcie"]["width"] = 4

    _look(fabric, end.node, change)
    return Truth(f"{end} at x4", (*_as_endpoint(fabric, end), *_as_nic(fabric, end)), "x4 of x16")


@planted("NVLink degraded on a GPU", accepts=lambda s: s.gpus >= 4, pcie=False)
def nvlink(fabric: Fabric, chance: random.Random) -> Truth:
    end = _end(fabric, chance)
    slow(fabric, lambda a, b: end in (a, b) and not _off(a, b), 0.5)

    def change(inventory: dict[str, Any], probed: dict[str, dict[str, Any]]) -> None:
        for link in probed["nvlink"]["gpus"][end.index]["links"][:9]:
            link["state"] = "inactive"

    _look(fabric, end.node, change)
    return Truth(f"{end} with 9 NVLinks", _as_endpoint(fabric, end), "NVLink")


@planted("data corrupted at a GPU", least_nodes=3)
def corrupt(fabric: Fabric, chance: random.Random) -> Truth:
    end = _end(fabric, chance)
    fabric.plan.errors.append(
        lambda a, b, layer: "verify: 131072 of 16777216 elements are wrong" if end in (a, b) else None
    )
    return Truth(f"{end} corrupts", _as_endpoint(fabric, end), "wrong|corrupt")


# -- NICs, rails, nodes -----------------------------------------------------------------------------------------------


@planted("NIC dead", least_nodes=3)
def nic_dead(fabric: Fabric, chance: random.Random) -> Truth:
    end = _end(fabric, chance)
    _cut(fabric, _own_nic(end))
    return Truth(f"{_nic_name(end)} dead", _as_nic(fabric, end))


@planted("NIC slow", least_nodes=3)
def nic_slow(fabric: Fabric, chance: random.Random) -> Truth:
    end, factor = _end(fabric, chance), _factor(fabric, chance)
    slow(fabric, _own_nic(end), factor)
    return Truth(f"{_nic_name(end)} slow x{factor:.2f}", _as_nic(fabric, end), "slow")


@planted("NIC slow, one direction", least_nodes=3)
def nic_one_way_slow(fabric: Fabric, chance: random.Random) -> Truth:
    end, factor, side = _end(fabric, chance), _factor(fabric, chance), chance.choice((0, 1))
    slow(fabric, lambda a, b: _off(a, b) and (a, b)[side].node == end.node and (a, b)[side].nic == end.nic, factor)
    return Truth(f"{_nic_name(end)} slow one way", _as_nic(fabric, end), "send|receive|direction")


@planted("port down", least_nodes=3, accepts=lambda s: s.net != "tcp")
def dead_port(fabric: Fabric, chance: random.Random) -> Truth:
    end = _end(fabric, chance)
    _cut(fabric, _own_nic(end))
    port_down(fabric, end)
    return Truth(f"{_nic_name(end)} port down", _as_nic(fabric, end), "down|Disabled")


@planted("IB link at x2", least_nodes=3, accepts=lambda s: s.net == "ib" and s.gpus // s.gpus_per_nic > 1)
def width(fabric: Fabric, chance: random.Random) -> Truth:
    end = _end(fabric, chance)
    slow(fabric, _own_nic(end), 0.5)

    def change(inventory: dict[str, Any], probed: dict[str, dict[str, Any]]) -> None:
        for port in inventory["ib"]:
            if port["ca"] == end.nic:
                port["rate"] /= 2
        for ca in probed["ibstat"]["cas"]:
            if ca["ca"] == end.nic:
                ca["ports"][0]["rate"] /= 2

    _look(fabric, end.node, change)
    return Truth(f"{_nic_name(end)} at half rate", _as_nic(fabric, end), r"(100|200) Gb/s")


@planted("IB symbol errors", least_nodes=3, accepts=lambda s: s.net == "ib")
def symbols(fabric: Fabric, chance: random.Random) -> Truth:
    end, factor = _end(fabric, chance), chance.uniform(0.72, 0.95)
    slow(fabric, _own_nic(end), factor)

    def change(inventory: dict[str, Any], probed: dict[str, dict[str, Any]]) -> None:
        counters = {"symbol_error": 65535, "link_error_recovery": 20, "port_rcv_errors": 4000}
        port = {"ca": end.nic, "port": 1, "state": "Active", "errors": counters}
        probed["rdma"] = {"ports": [port], "nics": []}

    _look(fabric, end.node, change)
    return Truth(f"{_nic_name(end)} symbol errors", _as_nic(fabric, end), "symbol|error")


@planted("rail dead", least_nodes=3, accepts=lambda s: s.gpus // s.gpus_per_nic > 1 and s.net != "tcp")
def rail_dead(fabric: Fabric, chance: random.Random) -> Truth:
    rail = _end(fabric, chance).rail
    _cut(fabric, _on_rail(rail))
    return Truth(f"rail {rail} dead", (("rail", str(rail)),))


@planted("rail slow", least_nodes=3, accepts=lambda s: s.gpus // s.gpus_per_nic > 2 and s.net != "tcp")
def rail_slow(fabric: Fabric, chance: random.Random) -> Truth:
    rail, factor = _end(fabric, chance).rail, _factor(fabric, chance)
    slow(fabric, _on_rail(rail), factor)
    return Truth(f"rail {rail} slow", (("rail", str(rail)),), "slow")


@planted("node dead", least_nodes=3)
def node_dead(fabric: Fabric, chance: random.Random) -> Truth:
    node = _end(fabric, chance).node
    _cut(fabric, _across(node))
    return Truth(f"{node} dead", (("node", node), *((("gpu", f"{node}:0"),) if _one_gpu(fabric) else ())))


@planted("node slow", least_nodes=3)
def node_slow(fabric: Fabric, chance: random.Random) -> Truth:
    node, factor = _end(fabric, chance).node, _factor(fabric, chance)
    slow(fabric, _across(node), factor)
    return Truth(f"{node} slow", (("node", node), *((("gpu", f"{node}:0"),) if _one_gpu(fabric) else ())), "slow")


@planted("node lost", least_nodes=3)
def node_lost(fabric: Fabric, chance: random.Random) -> Truth:
    node = _end(fabric, chance).node
    fabric.plan.lost.append(node)
    return Truth(f"{node} lost", (("node", node),), "lost")


@planted("TCP fallback on a node", least_nodes=3, accepts=lambda s: s.net != "tcp")
def tcp_fallback(fabric: Fabric, chance: random.Random) -> Truth:
    node = _end(fabric, chance).node
    true = _across(node)
    slow(fabric, true, chance.uniform(1.5, 4) / 46)
    fabric.plan.transports.append(lambda a, b: "NET/Socket/0" if true(a, b) else None)
    return Truth(f"{node} over TCP", (("node", node),), "Socket")


@planted("GPUDirect RDMA off on a node", least_nodes=3, accepts=lambda s: s.net != "tcp")
def gdr_off(fabric: Fabric, chance: random.Random) -> Truth:
    node, factor = _end(fabric, chance).node, chance.uniform(0.35, 0.6)
    true = _across(node)
    slow(fabric, true, factor)
    fabric.plan.transports.append(lambda a, b: "NET/IB/0" if true(a, b) else None)

    def change(inventory: dict[str, Any], probed: dict[str, dict[str, Any]]) -> None:
        probed["host"]["gpudirect"] |= {"peermem": None, "dma_buf": False}

    _look(fabric, node, change)
    return Truth(f"{node} without GPUDirect", (("node", node),), "GPUDirect")


@planted("halves of a node slow", least_nodes=3, accepts=lambda s: s.gpus >= 4)
def halves(fabric: Fabric, chance: random.Random) -> Truth:
    node, factor = _end(fabric, chance).node, _factor(fabric, chance)
    slow(fabric, lambda a, b: a.node == b.node == node and fabric.half(a) != fabric.half(b), factor)
    return Truth(f"halves of {node} slow", (("halves", node),), "slow")


@planted("memlock on a node", least_nodes=3, accepts=lambda s: s.net != "tcp")
def memlock(fabric: Fabric, chance: random.Random) -> Truth:
    node = _end(fabric, chance).node
    text = "NCCL: Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory"
    fabric.plan.errors.append(lambda a, b, layer: text if _off(a, b) and node in (a.node, b.node) else None)

    def change(inventory: dict[str, Any], probed: dict[str, dict[str, Any]]) -> None:
        limit = {"soft": 8 << 20, "hard": 8 << 20}
        inventory["limits"]["memlock"] = limit
        probed["host"]["limits"]["memlock"] = limit

    _look(fabric, node, change)
    return Truth(f"memlock on {node}", (("node", node),), "memlock")


@planted("driver differs on a node", least_nodes=3)
def driver(fabric: Fabric, chance: random.Random) -> Truth:
    node = _end(fabric, chance).node
    _look(fabric, node, lambda inventory, probed: inventory.update(driver="535.54.03"))
    return Truth(f"driver on {node}", (("node", node),), "driver")


@planted("MTU black hole at a NIC", least_nodes=3, accepts=lambda s: s.net != "ib")
def mtu(fabric: Fabric, chance: random.Random) -> Truth:
    end = _end(fabric, chance)
    true = _own_nic(end)
    _dead(fabric, true)

    def find(layer: Layer, a: Endpoint, b: Endpoint) -> tuple[Verdict, float] | None:
        here = any((one.node, one.address) == (end.node, end.address) for one in (a, b))
        return (Verdict.TIMEOUT, 100.0) if layer is Layer.MTU and here else None

    fabric.plan.mesh.append(find)
    return Truth(f"{_nic_name(end)} MTU", _as_nic(fabric, end), "MTU")


@planted("one-way loss at a NIC", least_nodes=3)
def loss(fabric: Fabric, chance: random.Random) -> Truth:
    end, share = _end(fabric, chance), chance.uniform(5, 30)

    def find(layer: Layer, a: Endpoint, b: Endpoint) -> tuple[Verdict, float] | None:
        out, back = (a.node, a.address) == (end.node, end.address), (b.node, b.address) == (end.node, end.address)
        if layer is Layer.UDP:
            return (Verdict.SLOW, share) if out else None
        return (Verdict.SLOW, share) if layer is Layer.PING and (out or back) else None

    fabric.plan.mesh.append(find)
    return Truth(f"{_nic_name(end)} loses {share:.0f} %", _as_nic(fabric, end), "lost|loss")


@planted("firewall of a node", least_nodes=3)
def firewall(fabric: Fabric, chance: random.Random) -> Truth:
    node = _end(fabric, chance).node
    _dead(fabric, _across(node))
    fabric.plan.mesh.append(
        lambda layer, a, b: (Verdict.TIMEOUT, 100.0) if layer is Layer.TCP and b.node == node else None
    )

    def change(inventory: dict[str, Any], probed: dict[str, dict[str, Any]]) -> None:
        rules = ["tcp flags & (syn|ack) == syn tcp dport 1024-65535 drop"]
        probed["firewall"] = {"source": "nft", "input": "accept", "rules": 1, "drops": rules, "why": None}

    _look(fabric, node, change)
    return Truth(f"{node} firewall", (("node", node),), "blocks incoming TCP")


@planted("firewall for one peer", least_nodes=4)
def firewall_for_one(fabric: Fabric, chance: random.Random) -> Truth:
    here, there = _two_nodes(fabric, chance)
    _dead(fabric, lambda a, b: {a.node, b.node} == {here, there})
    fabric.plan.mesh.append(
        lambda layer, a, b: (
            (Verdict.TIMEOUT, 100.0) if layer is Layer.TCP and (a.node, b.node) == (here, there) else None
        )
    )
    return Truth(f"{here} to {there} firewall", _as_node_pair(fabric, [here, there]), "ephemeral ports")


@planted("another Python on a node", least_nodes=3)
def python(fabric: Fabric, chance: random.Random) -> Truth:
    node = _end(fabric, chance).node
    other = [{"path": "/opt/conda/bin/python3", "torch": "2.4.0", "nccl_version": "2.20.5"}]
    _look(fabric, node, lambda inventory, probed: inventory.update(pythons=other))
    return Truth(f"{node} another Python", (("node", node),), "python|torch|nccl")


# -- paths ------------------------------------------------------------------------------------------------------------


def _two_nodes(fabric: Fabric, chance: random.Random) -> list[str]:
    return chance.sample(fabric.names, 2)


@planted("node pair dead", least_nodes=4)
def node_pair_dead(fabric: Fabric, chance: random.Random) -> Truth:
    nodes = _two_nodes(fabric, chance)
    _cut(fabric, lambda a, b: {a.node, b.node} == set(nodes))
    return Truth(f"{nodes} dead", _as_node_pair(fabric, nodes))


def _as_node_pair(fabric: Fabric, nodes: list[str]) -> tuple[tuple[str, str], ...]:
    names = [" - ".join(sorted(nodes)), " > ".join(nodes)]
    ends = [" - ".join(f"{node}:0" for node in sorted(nodes)), " > ".join(f"{node}:0" for node in nodes)]
    single = tuple(("pair", name) for name in ends) if _one_gpu(fabric) else ()
    return (*(("node-pair", name) for name in names), *single)


@planted("node pair dead one way", least_nodes=4)
def node_pair_one_way(fabric: Fabric, chance: random.Random) -> Truth:
    nodes = _two_nodes(fabric, chance)
    _cut(fabric, lambda a, b: [a.node, b.node] == nodes)
    return Truth(f"{nodes} dead one way", _as_node_pair(fabric, nodes))


@planted("node pair slow", least_nodes=4)
def node_pair_slow(fabric: Fabric, chance: random.Random) -> Truth:
    nodes, factor = _two_nodes(fabric, chance), _factor(fabric, chance)
    slow(fabric, lambda a, b: {a.node, b.node} == set(nodes), factor)
    return Truth(f"{nodes} slow", _as_node_pair(fabric, nodes), "slow")


@planted("single pair dead", least_nodes=3, accepts=lambda s: s.gpus > 1)
def pair_dead(fabric: Fabric, chance: random.Random) -> Truth:
    a, b = chance.sample(fabric.ends, 2)
    _dead(fabric, lambda x, y: {x, y} == {a, b})
    return Truth(f"{a} - {b} dead", (("pair", " - ".join(sorted((str(a), str(b))))),))


@planted("single pair slow", least_nodes=3, accepts=lambda s: s.gpus > 1)
def pair_slow(fabric: Fabric, chance: random.Random) -> Truth:
    a, b = chance.sample(fabric.ends, 2)
    slow(fabric, lambda x, y: {x, y} == {a, b}, _factor(fabric, chance))
    names = (" - ".join(sorted((str(a), str(b)))), f"{a} > {b}", f"{b} > {a}")
    return Truth(f"{a} - {b} slow", tuple(("pair", name) for name in names), "slow")


@planted("cross-rail dead, world ok", accepts=lambda s: s.gpus // s.gpus_per_nic > 1 and s.net != "tcp")
def cross_rail(fabric: Fabric, chance: random.Random) -> Truth:
    def true(a: Endpoint, b: Endpoint) -> bool:
        return _off(a, b) and a.rail != b.rail

    fabric.plan.errors.append(lambda a, b, layer: _error(a, b) if layer == "p2p" and true(a, b) else None)
    _mesh_dead(fabric, true)
    return Truth("rails isolated", (("cross-rail", "all rails"),), "rail")


@planted("all cross-node dead", accepts=lambda s: s.gpus > 1)
def cross_node(fabric: Fabric, chance: random.Random) -> Truth:
    _dead(fabric, _off)
    two = (("node-pair", " - ".join(fabric.names)),) if len(fabric.names) == 2 else ()
    return Truth("all cross-node dead", (("cross-node", "all nodes"), *two))


@planted("leaf cut dead", least_nodes=4, leaves=2)
def leaf_dead(fabric: Fabric, chance: random.Random) -> Truth:
    _cut(fabric, lambda a, b: fabric.leaf(a.node) != fabric.leaf(b.node))
    return Truth("leaf cut dead", tuple(("leaf-cut", name) for name in _cut_names(fabric)))


def _cut_names(fabric: Fabric) -> list[str]:
    sides = [fold([n for n in fabric.names if fabric.leaf(n) == leaf]) for leaf in (0, 1)]
    return [" - ".join(sides), "leaf0 - leaf1"]


@planted("inter-leaf slow", least_nodes=4, leaves=2)
def leaf_slow(fabric: Fabric, chance: random.Random) -> Truth:
    factor = _factor(fabric, chance)
    slow(fabric, lambda a, b: fabric.leaf(a.node) != fabric.leaf(b.node), factor)
    # A designed taper has the same results: the finding names the cut and both causes.
    return Truth("inter-leaf slow", tuple(("leaf-cut", name) for name in _cut_names(fabric)), separable=False)


@planted("uplinks of a leaf degraded", least_nodes=8, leaves=4, accepts=lambda s: s.nodes % 4 == 0)
def leaf_degraded(fabric: Fabric, chance: random.Random) -> Truth:
    leaf, factor = chance.randrange(4), _factor(fabric, chance)
    slow(fabric, lambda a, b: fabric.leaf(a.node) != fabric.leaf(b.node) and leaf in _leaves(fabric, a, b), factor)
    mine = fold([name for name in fabric.names if fabric.leaf(name) == leaf])
    names = [("leaf", mine), ("leaf", f"leaf{leaf}")]
    if not fabric.shape.leaves_known:
        # Where no probe reports the other leaf switches, these are the two groups that results show.
        other = fold([name for name in fabric.names if fabric.leaf(name) != leaf])
        names += [("leaf-cut", f"{mine} - {other}"), ("leaf-cut", f"{other} - {mine}")]
    return Truth(f"uplinks of {mine} x{factor:.2f}", tuple(names), "slow|reach")


def _leaves(fabric: Fabric, a: Endpoint, b: Endpoint) -> tuple[int, int]:
    return fabric.leaf(a.node), fabric.leaf(b.node)


@planted("inter-leaf slow one way", least_nodes=4, leaves=2)
def leaf_one_way(fabric: Fabric, chance: random.Random) -> Truth:
    factor, way = _factor(fabric, chance), chance.choice(((0, 1), (1, 0)))
    slow(fabric, lambda a, b: _leaves(fabric, a, b) == way, factor)
    sides = [fold([n for n in fabric.names if fabric.leaf(n) == leaf]) for leaf in way]
    names = (" > ".join(sides), " > ".join(f"leaf{leaf}" for leaf in way))
    return Truth("inter-leaf slow one way", tuple(("leaf-cut", name) for name in names))


@planted("one of the uplinks degraded", least_nodes=6, leaves=2, accepts=lambda s: s.nodes * s.gpus >= 16)
def uplink_degraded(fabric: Fabric, chance: random.Random) -> Truth:
    factor, share = _factor(fabric, chance), chance.uniform(0.25, 0.5)
    # Each connection keeps the uplink that its addresses and ports choose.
    hit = {(str(a), str(b)): chance.random() < share for a in fabric.ends for b in fabric.ends}
    slow(fabric, lambda a, b: fabric.leaf(a.node) != fabric.leaf(b.node) and hit[str(a), str(b)], factor)
    return Truth("one of the uplinks degraded", tuple(("leaf-cut", name) for name in _cut_names(fabric)))


@planted("contention: slow under load only", least_nodes=3)
def contention(fabric: Fabric, chance: random.Random) -> Truth:
    factor = chance.uniform(0.3, 0.55)
    slow = set(chance.sample(fabric.names, max(2, len(fabric.names) // 2)))
    fabric.plan.factors.append(
        lambda a, b, loaded: factor if loaded and a.node in slow and b.node in slow and _off(a, b) else 1.0
    )
    names = tuple(("contention", name) for name in ("fabric", "all nodes"))
    return Truth("contention", names, separable=False)


@planted("pair flaps", least_nodes=3)
def flaps(fabric: Fabric, chance: random.Random) -> Truth:
    a, b = chance.sample(fabric.ends, 2)
    fabric.plan.flapping.append(frozenset((str(a), str(b))))
    names = (" - ".join(sorted((str(a), str(b)))), f"{a} > {b}", f"{b} > {a}")
    return Truth(f"{a} - {b} flaps", tuple(("pair", name) for name in names), "flap")


@planted("world does not form", accepts=lambda s: 4 <= s.nodes * s.gpus <= 32 and s.net != "tcp")
def world(fabric: Fabric, chance: random.Random) -> Truth:
    fabric.plan.world_error = "connect: NCCL: Call to ibv_create_cq failed with error Cannot allocate memory"
    return Truth("world does not form", (("world", "world communicator"),))


@planted("GPU busy with another process", least_nodes=2, accepts=lambda s: s.gpus > 1)
def busy(fabric: Fabric, chance: random.Random) -> Truth:
    end = _end(fabric, chance)
    slow(fabric, lambda a, b: end in (a, b), _factor(fabric, chance))

    def change(inventory: dict[str, Any], probed: dict[str, dict[str, Any]]) -> None:
        process = {"pid": 4711, "name": "python", "user": "eve", "memory": 40 << 30}
        inventory["gpus"][end.index]["processes"] = [process]
        inventory["gpus"][end.index]["memory_used"] = 40 << 30

    _look(fabric, end.node, change)
    return Truth(f"{end} busy", _as_endpoint(fabric, end), "4711|process|in use")


HEALTHY: dict[str, dict[str, Any]] = {
    "boards, RDMA": {"pcie": False, "net": "ib"},
    "two leaves": {"pcie": False, "leaves": 2, "least_nodes": 4, "net": "roce"},
    "TCP": {"net": "tcp"},
    "PCIe, halves 0.78 to 0.95": {"pcie": True},
    "PCIe, halves 0.5 to 0.7": {"pcie": True, "halves": (0.5, 0.7)},
    "two GPU models, boards and cards": {"models": ("NVIDIA H200", "NVIDIA L40S"), "least_nodes": 3, "pcie": False},
    "two GPU models, boards": {"models": ("NVIDIA H200", "NVIDIA H100 80GB HBM3"), "least_nodes": 3, "pcie": False},
    "two leaves, 2:1 taper": {"leaves": 2, "least_nodes": 4, "taper": 0.5, "pcie": False, "net": "ib"},
}


# -- runs -------------------------------------------------------------------------------------------------------------


def run(fabric: Fabric) -> tuple[Model, list[Found]]:
    """Return the model of a session on a fabric, and its findings as JSON."""
    model = Model()
    for event in fabric.events(model):
        model.apply(event)
    return model, [as_json(one) for one in diagnose(model).findings]


def _seeded(name: str, seed: int) -> random.Random:
    return random.Random(zlib.crc32(name.encode()) + seed)


def _shaped(kind: Kind, chance: random.Random) -> Shape:
    while True:
        found = shape(chance, kind.least_nodes, **kind.fixed)
        if kind.accepts(found):
            return found


def _print(found: Iterable[Found]) -> None:
    for at, one in enumerate(found, 1):
        rivals = ", ".join(f"{r['kind']} {r['name']}" for r in one["rivals"]) or "-"
        subject = f"{one['subject']['kind']} {one['subject']['name']}"
        print(f"      {at} [{one['severity']}] {one['id']} {subject}: {one['title']}")
        print(f"          {len(one['pairs'])} pairs; rivals: {rivals}")
        for line in one["evidence"][:4]:
            print(f"          {line}")


def planted_fabric(kind: Kind, seed: int) -> tuple[Fabric, Truth]:
    """Return a fabric with a fault of a kind, and what was planted."""
    chance = _seeded(kind.name, seed)
    fabric = Fabric(_shaped(kind, chance), seed)
    return fabric, kind.make(fabric, chance)


def healthy_fabric(name: str, seed: int) -> Fabric:
    """Return a fabric without a fault."""
    chance, fixed = _seeded(name, seed), dict(HEALTHY[name])
    if isinstance(halves := fixed.get("halves"), tuple):
        fixed["halves"] = chance.uniform(*halves)
    return Fabric(shape(chance, **fixed), seed)


def serious(found: list[Found]) -> list[Found]:
    """Return the findings without notes; the notes if there is nothing else."""
    return [one for one in found if one["severity"] != "note"] or found


def single(seeds: int, only: str, show: bool) -> None:
    totals = [0, 0, 0, 0]
    print(f"{'planted':34} {'n':>3} {'first':>5} {'in 3':>5} {'tie':>4} {'silent':>6} {'shown':>6}")
    for kind in (one for one in KINDS if only in one.name):
        first = third = tie = silent = shown = 0
        for seed in range(seeds):
            fabric, truth = planted_fabric(kind, seed)
            model, found = run(fabric)
            listed = serious(found)
            hit = bool(listed) and truth.named_by(listed[0], rivals=False)
            tied = bool(listed) and not hit and truth.named_by(listed[0], rivals=True)
            first, tie = first + hit, tie + tied
            third += any(truth.named_by(one, rivals=True) for one in listed[:3])
            quiet = not found and exit_code(model) == 0
            silent, shown = silent + quiet, shown + len(listed)
            if show and not hit:
                print(f"   seed {seed}: {truth.text} {fabric.shape}")
                _print(found[:4])
        totals = [totals[0] + seeds, totals[1] + first + tie, totals[2] + first, totals[3] + silent]
        print(f"{kind.name:34} {seeds:3} {first:5} {third:5} {tie:4} {silent:6} {shown / seeds:6.1f}")
    n, named, _, silent = totals
    kept = held(named / n, FIRST, least=True)
    print(
        f"first, ties included: {named} of {n} = {named / n:.1%} (bar {FIRST:.0%} {kept}); "
        f"silent: {silent} (bar 0 {held(silent, 0)})"
    )


def healthy(seeds: int, show: bool) -> None:
    """Count alarms on fabrics without a fault."""
    for name in HEALTHY:
        alarms = lines = 0
        for seed in range(seeds):
            fabric = healthy_fabric(name, seed)
            model, found = run(fabric)
            listed = [one for one in found if one["severity"] != "note"]
            alarms += bool(listed) or exit_code(model) == 1
            lines += len(listed)
            if show and (listed or exit_code(model) == 1):
                print(f"   seed {seed}: exit {exit_code(model)} {model.counts()} {fabric.shape}")
                _print(found[:3])
        print(f"healthy: {name:36} {alarms} of {seeds} with an alarm (bar 0 {held(alarms, 0)}), {lines} lines")


def _apart(fabric: Fabric, kinds: list[Kind], chance: random.Random, many: int, *, differ: bool = False) -> list[Truth]:
    """Plant faults on components that are not parts of each other: a part of what is dead cannot be seen."""
    truths: list[Truth] = []
    while len(truths) < many:
        plan, fabric.plan = fabric.plan, Plan()
        kind = chance.choice(kinds)
        truth = kind.make(fabric, chance)
        new, fabric.plan = fabric.plan, plan
        nodes = set(re.findall(r"n\d\d", truth.text))
        if any(
            nodes & set(re.findall(r"n\d\d", one.text)) or one.text.split()[0] == truth.text.split()[0]
            for one in truths
        ):
            continue
        truths.append(truth)
        kinds = [one for one in kinds if one is not kind or not differ]
        for name in ("factors", "errors", "mesh", "probed"):
            getattr(plan, name).extend(getattr(new, name))
    return truths


def several(seeds: int, show: bool) -> None:
    places = ("endpoint", "NIC", "rail", "node", "node pair", "single pair")
    kinds = [
        kind for kind in KINDS if kind.name in {f"{place} {state}" for place in places for state in ("dead", "slow")}
    ]
    for many in (2, 3):
        whole = lines = 0
        for seed in range(seeds):
            chance = _seeded(f"several {many}", seed)
            fixed = {"nodes": chance.choice((6, 8)), "gpus": chance.choice((4, 8)), "gpus_per_nic": 1}
            fabric = Fabric(shape(chance, 6, net=chance.choice(("ib", "roce")), **fixed), seed)
            truths = _apart(fabric, kinds, chance, many)
            _, found = run(fabric)
            listed = [one for one in found if one["severity"] != "note"]
            lines += len(listed)
            missed = [t for t in truths if not any(t.named_by(one, rivals=True) for one in listed[: many + 1])]
            whole += not missed
            if show and missed:
                print(f"   seed {seed}: {[t.text for t in truths]}, missed {[t.text for t in missed]}")
                _print(listed[: many + 2])
        bar, shown = SEVERAL[many], lines / seeds
        kept = held(whole / seeds, bar, least=True)
        print(
            f"{many} faults: all within the first {many + 1}: {whole} of {seeds} = {whole / seeds:.0%} "
            f"(bar {bar:.0%} {kept}); {shown:.1f} findings shown"
        )


def mixed(seeds: int, show: bool) -> None:
    """Plant two and three faults of different layers at once: each is a finding, and nothing else is."""
    names = [
        *("NIC slow, one direction", "firewall of a node", "firewall for one peer", "MTU black hole at a NIC"),
        *("one-way loss at a NIC", "another Python on a node", "NIC dead", "node slow"),
    ]
    kinds = [kind for kind in KINDS if kind.name in names]
    own = caused = runs = 0
    for many in (2, 3):
        for seed in range(seeds):
            chance = _seeded(f"mixed {many}", seed)
            fixed = {"nodes": chance.choice((6, 8)), "gpus": chance.choice((2, 4)), "gpus_per_nic": 1, "net": "roce"}
            fabric = Fabric(shape(chance, 6, **fixed), seed)
            truths = _apart(fabric, kinds, chance, many, differ=True)
            _, found = run(fabric)
            listed = [one for one in found if one["severity"] != "note"]
            missed = [truth for truth in truths if not any(truth.named_by(one, rivals=True) for one in listed)]
            strange = [one for one in listed if not any(_is_about(truth, one) for truth in truths)]
            own, caused, runs = own + (not missed), caused + (not strange), runs + 1
            if show and (missed or strange):
                print(f"   {many} faults, seed {seed}: {[t.text for t in truths]}, missed {[t.text for t in missed]}")
                _print(strange or listed[: many + 2])
    for what, hits, bar in (("each has a finding", own, OWN), ("no finding without a planted cause", caused, CAUSED)):
        kept = held(hits / runs, bar, least=True)
        print(f"mixed layers, 2 and 3 faults: {what}: {hits} of {runs} = {hits / runs:.0%} (bar {bar:.0%} {kept})")


def _is_about(truth: Truth, finding: Found) -> bool:
    """Return True if a finding is about a planted fault: its component, or the nodes of it alone."""
    nodes = set(re.findall(r"n\d\d", truth.text))
    return truth._replace(words="").named_by(finding, rivals=True) or (bool(nodes) and nodes >= set(finding["nodes"]))


def racks(seeds: int, only: str, show: bool) -> None:
    """Plant faults of NVLink racks, one alone and two at once, and none."""
    silent = hits = runs = 0
    for sizes in RACKS:
        name = "{} x {} trays".format(*sizes)
        counts: dict[str, int] = {}
        for kind in (one for one in ("healthy", *FAULTS, "two at once") if only in one):
            for seed in range(seeds):
                fabric, chance = racks_of(sizes, seed), _seeded(f"{name} {kind}", seed)
                if kind == "two at once":
                    truths = [rack_truth(one) for one in two_faults(fabric, chance)]
                else:
                    truths = [rack_truth(FAULTS[kind](fabric, chance, fabric.names))] if kind in FAULTS else []
                model, found = run(fabric)
                listed = serious(found) if truths else [one for one in found if one["severity"] != "note"]
                first = listed[: len(truths) + (len(truths) > 1)]
                missed = [one for one in truths if not any(one.named_by(other, rivals=True) for other in first)]
                quiet = bool(truths) or not (listed or exit_code(model))
                right = quiet and not missed
                silent, hits, runs = silent + (not quiet), hits + (right and bool(truths)), runs + bool(truths)
                counts[kind] = counts.get(kind, 0) + right
                if show and not right:
                    print(f"   seed {seed}: {[one.text for one in truths] or 'healthy'} {fabric.shape}")
                    _print(listed[:4])
        print(f"{name:14} " + ", ".join(f"{kind} {count}" for kind, count in counts.items()) + f" of {seeds}")
    if runs:
        kept = held(hits / runs, 1.0, least=True)
        print(f"racks: planted cause first: {hits} of {runs} = {hits / runs:.1%} (bar 100% {kept})")
    print(f"racks: healthy ones with an alarm: {silent} (bar 0 {held(silent, 0)})")


#: The statement that cores are busy is right in a busy lab.
_BUSY = "FT029"
#: Kinds of faults that are planted into busy labs. A slow part is far slower than what waits for cores.
_LAB_KINDS = ("NIC dead", "node dead", "single pair dead", "NIC slow")
_LAB_FACTOR = 0.02


def labs(seeds: int, only: str, show: bool) -> None:
    """Plant faults into busy labs of CPU ranks, and none."""
    alarms = hits = runs = 0
    for sizes in LABS:
        counts = dict.fromkeys((one for one in ("healthy", *_LAB_KINDS) if only in one), 0)
        for kind in counts:
            for seed in range(seeds):
                lab = BusyLab(*sizes, seed)
                truth = None if kind == "healthy" else lab_fault(kind, lab, _seeded(f"lab {sizes} {kind}", seed))
                model, found = run(lab)
                listed = [one for one in found if one["severity"] != "note" and one["id"] != _BUSY]
                if truth is None:
                    right = not listed and diagnose(model).code == 0
                    alarms += not right
                else:
                    right = bool(listed) and truth.named_by(listed[0], rivals=True)
                    # How slow a NIC has to be depends on the load: no bar.
                    hits, runs = hits + (right and kind != "NIC slow"), runs + (kind != "NIC slow")
                counts[kind] += right
                if show and not right:
                    print(f"   seed {seed}: {truth.text if truth else 'healthy'}, load {lab.load:.1f}")
                    _print(listed[:4])
        name = "{} x {} ranks".format(*sizes)
        print(f"{name:14} " + ", ".join(f"{kind} {count}" for kind, count in counts.items()) + f" of {seeds}")
    if runs:
        kept = held(hits / runs, FIRST, least=True)
        print(f"busy labs: what is dead first: {hits} of {runs} = {hits / runs:.1%} (bar {FIRST:.0%} {kept})")
    print(f"busy labs: healthy ones with an alarm: {alarms} of {seeds * len(LABS)} (bar 0 {held(alarms, 0)})")


def lab_fault(kind: str, lab: BusyLab, chance: random.Random) -> Truth:
    if kind != "NIC slow":
        return next(one for one in KINDS if one.name == kind).make(lab, chance)
    end = _end(lab, chance)
    slow(lab, _own_nic(end), _LAB_FACTOR)
    nodes = (("node", end.node),) if lab.shape.gpus == 1 else ()
    return Truth(f"NIC of {end} slow", (("nic", _nic_name(end)), ("gpu", str(end)), *nodes))


def rack_truth(planted: Planted) -> Truth:
    text, subjects, words, _ = planted
    return Truth(text, subjects, words)


def large_fabric() -> Model:
    """Return the model of a large sampled fabric with 5 % of bad cells, as a screen has it."""
    fabric = Fabric(Shape(128, 8, ("NVIDIA H200",), "ib", 1, 2, False, 0.04), 1)
    chance = random.Random(5)
    model = Model()
    model.apply(SessionStart(nodes=fabric.names, time=1.0))
    model.apply(EndpointsAdded(endpoints=fabric.ends, time=1.0))
    _dead(fabric, lambda a, b: chance.random() < 0.025)
    fabric.plan.factors.append(lambda a, b, loaded: 0.4 if chance.random() < 0.025 else 1.0)
    for i, j in pairs_for("sampled", fabric.ends):
        rows = [fabric._measured(Layer.P2P, fabric.ends[a], fabric.ends[b], 1, True) for a, b in ((i, j), (j, i))]
        model.apply(Measured(measurements=rows, time=2.0))
    # A screen reads the references of classes all the time, so that few values wait to be sorted in.
    for kind in PairClass:
        model.median(Layer.P2P, kind)
    return model


def priced_fabric() -> Model:
    """Return the model of a fabric with a slow node whose pairs and collectives over two nodes were all measured."""
    fabric = Fabric(Shape(32, 8, ("NVIDIA H200",), "ib", 1, 2, False, 0.04), 1)
    slow = fabric.names[1]
    fabric.plan.factors.append(lambda a, b, loaded: 0.4 if slow in (a.node, b.node) and a.node != b.node else 1.0)
    model = Model()
    model.apply(SessionStart(nodes=fabric.names, time=1.0))
    model.apply(EndpointsAdded(endpoints=fabric.ends, time=1.0))
    for a, b in itertools.combinations(fabric.ends, 2):
        rows = [fabric._measured(Layer.P2P, *pair, 1, True) for pair in ((a, b), (b, a))]
        model.apply(Measured(measurements=rows, time=2.0))
    groups = [(one, 16, 120.0 if slow in one else 300.0) for one in itertools.combinations(fabric.names, 2)]
    groups.append((("all", "all"), 256, 130.0))
    rows = [
        Measurement(Layer.BUSBW, *ends, Verdict.OK, value, "GB/s", 1 << 30, 2.0, extra={"ranks": ranks})
        for ends, ranks, value in groups
    ]
    model.apply(Measured(measurements=rows, time=2.0))
    for kind in PairClass:
        model.median(Layer.P2P, kind)
    return model


def search_steps(model: Model) -> tuple[int, list[float]]:
    """Search a model as the screen does; return the number of findings, and the seconds of CPU of each step."""
    steps: list[float] = []
    diagnosis = SessionDiagnosis(model)
    more = True
    while more:
        before = time.thread_time()
        more = diagnosis.step(STEP)
        steps.append(time.thread_time() - before)
    return len(diagnosis.found), steps


def cpu() -> None:
    """Time the search in two large fabrics; the least of several counts, because other work only adds to it."""
    gc.set_threshold(*COLLECTOR)
    _print_steps("1,024 endpoints sampled", large_fabric)
    _print_steps("256 endpoints with collectives and prices", priced_fabric)


def _print_steps(name: str, make: Callable[[], Model]) -> None:
    # A model for each, because it keeps tables that a search has made.
    passes = [search_steps(make()) for _ in range(PASSES)]
    count = passes[0][0]
    whole = min(sum(steps) for _, steps in passes)
    longest, above = min((1e3 * max(steps), sum(1e3 * one > STEP_MS for one in steps)) for _, steps in passes)
    # It loads what later ones have.
    first = 1e3 * max(passes[0][1])
    print(
        f"{name}: {count} findings in {whole:.2f} s of CPU (bar {SEARCH:g} {held(whole, SEARCH)}), "
        f"{len(passes[0][1])} steps, the longest {longest:.1f} ms (bar {STEP_MS:g} {held(longest, STEP_MS)}), "
        f"{above} above; of the first search {first:.1f} ms ({held(first, STEP_MS)})"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--kind", default="")
    parts: dict[str, Callable[[], None]] = {
        "single": lambda: single(args.seeds, args.kind, args.show),
        "many": lambda: several(args.seeds, args.show),
        "mixed": lambda: mixed(args.seeds, args.show),
        "healthy": lambda: healthy(args.seeds, args.show),
        "racks": lambda: racks(args.seeds, args.kind, args.show),
        "labs": lambda: labs(args.seeds, args.kind, args.show),
        "cpu": cpu,
    }
    for name in ("show", *parts):
        parser.add_argument(f"--{name}", action="store_true")
    args = parser.parse_args()
    for run_part in [part for name, part in parts.items() if getattr(args, name)] or parts.values():
        run_part()
    return 0


if __name__ == "__main__":
    sys.exit(main())
