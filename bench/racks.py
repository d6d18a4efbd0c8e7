"""NVLink racks with planted faults, as the events of a session: the second material of ``bench/diagnosis.py``.

Trays of four GPUs share an NVLink domain with the other trays of their rack (GB200 NVL72): 740 GB/s inside, 46 GB/s for
each NIC between racks. The values follow published results; no machine is asked.
"""

import random
from collections.abc import Callable
from typing import Any

from planted import Fabric, Plan, Shape, port_down, slow

from fabtui.model.endpoints import Endpoint

GPUS = 4
#: Racks, and trays of each.
RACKS: tuple[tuple[int, int], ...] = ((1, 18), (2, 4), (2, 9), (3, 4))
#: GB/s between two GPUs of a domain, and over one NIC.
NVLINK, NIC = 740.0, 46.0
LINKS, LINK_SPEED = 18, 53.125
_OVER_NVLINK, _OVER_RDMA = "P2P/MNNVL", "NET/IB/0/GDRDMA"


class Racks(Fabric):
    """Racks of trays, and what is planted into them.

    Args:
        racks: Number of racks.
        trays: Number of trays of each.
        seed: Seed of their noise.
    """

    def __init__(self, racks: int, trays: int, seed: int) -> None:
        chance = random.Random(seed)
        noise = chance.uniform(0.02, 0.06)
        shape = Shape(racks * trays, GPUS, ("NVIDIA GB200",), chance.choice(("ib", "roce")), 1, 1, False, noise)
        super().__init__(shape, seed)
        self.trays = trays
        #: Cluster UUID and clique of each tray; a tray without a cluster has None.
        self.domain: dict[str, tuple[str | None, int]] = {
            name: (f"{0xA0 + at // trays:08x}-c1c2-4d4e-8f90-a1b2c3d4e5f6", 32766) for at, name in enumerate(self.names)
        }
        self.imex = dict.fromkeys(self.names, "READY")
        #: Whether NCCL may use NVLink between trays.
        self.mnnvl = True

    def rack(self, number: int) -> list[str]:
        return self.names[number * self.trays : (number + 1) * self.trays]

    def in_domain(self, a: Endpoint, b: Endpoint) -> bool:
        """Return True if two trays are in one NVLink domain."""
        return self.domain[a.node] == self.domain[b.node] and self.domain[a.node][0] is not None

    def over_nvlink(self, a: Endpoint, b: Endpoint) -> bool:
        """Return True if NCCL uses NVLink between two GPUs."""
        ready = self.imex[a.node] == self.imex[b.node] == "READY"
        return a.node == b.node or (self.mnnvl and ready and self.in_domain(a, b))

    def usual(self, a: Endpoint, b: Endpoint) -> tuple[float, str]:
        """Return the usual value (GB/s) and transport of a pair."""
        if self.over_nvlink(a, b):
            return NVLINK, _OVER_NVLINK
        return NIC * (1.0 if a.rail == b.rail else 0.97), _OVER_RDMA

    def _probes(self, node: str, mine: list[Endpoint]) -> dict[str, dict[str, Any]]:
        probed = super()._probes(node, mine)
        cluster, clique = self.domain[node]
        for gpu, end in zip(probed["gpus"]["gpus"], mine, strict=True):
            gpu["uuid"] = end.uuid
            gpu["fabric"] = {"state": "completed", "status": "success", "clique": clique, "cluster": cluster}
            gpu["fabric"] |= {"summary": "healthy", "unhealthy": []}
        for gpu in probed["nvlink"]["gpus"]:
            for link in gpu["links"]:
                link["speed"] = LINK_SPEED
        state = self.imex[node]
        probed["imex"] = {"installed": True, "error": None, "state": state, "version": "570.86.15", "domain": "UP"}
        probed["imex"] |= {"channels": {"count": 1, "writable": 1}, "time": None, "nodes": []}
        return probed


def racks_of(sizes: tuple[int, int], seed: int) -> Racks:
    return Racks(*sizes, seed)


#: What is planted, the subjects that are right, the words that have to be in the finding, and the tray or None.
Planted = tuple[str, tuple[tuple[str, str], ...], str, str | None]
Plant = Callable[[Racks, random.Random, list[str]], Planted]


def _end(racks: Racks, chance: random.Random, trays: list[str]) -> Endpoint:
    return chance.choice([end for end in racks.ends if end.node in trays])


def outside(racks: Racks, chance: random.Random, trays: list[str]) -> Planted:
    """Take a tray out of its domain: its GPUs have no cluster, or another clique."""
    tray = chance.choice(trays)
    cluster, clique = racks.domain[tray]
    racks.domain[tray] = chance.choice(((None, clique), (cluster, clique - 1)))
    return f"{tray} outside its domain", (("node", tray),), "NVLink domain", tray


def imex_down(racks: Racks, chance: random.Random, trays: list[str]) -> Planted:
    tray = chance.choice(trays)
    racks.imex[tray] = chance.choice(("UNAVAILABLE", "WAITING_FOR_PEERS", "INITIALIZING"))
    return f"IMEX down on {tray}", (("node", tray),), "IMEX", tray


def split(racks: Racks, chance: random.Random, trays: list[str]) -> Planted:
    number = chance.randrange(len(racks.names) // racks.trays)
    mine = racks.rack(number)
    at = chance.randrange(2, len(mine) - 1)
    for tray in mine[at:]:
        cluster, clique = racks.domain[tray]
        racks.domain[tray] = (cluster, clique - 1)
    from fabtui.nodeset import fold

    return f"the domain of {fold(mine)} split", (("nodes", fold(mine)), ("fabric", "all nodes")), "split", None


def over_rdma(racks: Racks, chance: random.Random, trays: list[str]) -> Planted:
    """Keep NCCL from NVLink between trays, though all domains are complete."""
    racks.mnnvl = False
    return "all over RDMA", (("fabric", "all nodes"),), "MNNVL|multi-node NVLink", None


def gpu_slow(racks: Racks, chance: random.Random, trays: list[str]) -> Planted:
    end, factor = _end(racks, chance, trays), chance.uniform(0.3, 0.6)
    slow(racks, lambda a, b: end in (a, b), factor)
    return f"{end} slow x{factor:.2f}", (("gpu", str(end)),), "slow", end.node


def nic_dead(racks: Racks, chance: random.Random, trays: list[str]) -> Planted:
    """Take a NIC down: its port, its addresses, and what NCCL sends over it."""
    end = _end(racks, chance, trays)

    def own(a: Endpoint, b: Endpoint) -> bool:
        return a.node != b.node and any((one.node, one.nic) == (end.node, end.nic) for one in (a, b))

    from diagnosis import _error, _mesh_dead

    racks.plan.errors.append(lambda a, b, layer: _error(a, b) if own(a, b) and not racks.over_nvlink(a, b) else None)
    _mesh_dead(racks, own)

    port_down(racks, end)
    return f"{end.node} {end.nic} dead", (("nic", f"{end.node} {end.nic}"), ("gpu", str(end))), "", end.node


def link_down(racks: Racks, chance: random.Random, trays: list[str]) -> Planted:
    """Take one NVLink of a GPU down: too little to make its pairs slow."""
    end, link = _end(racks, chance, trays), chance.randrange(LINKS)
    slow(racks, lambda a, b: end in (a, b) and racks.over_nvlink(a, b), (LINKS - 1) / LINKS)

    def change(name: str, inventory: dict[str, Any], probed: dict[str, dict[str, Any]]) -> None:
        if name == end.node:
            probed["nvlink"]["gpus"][end.index]["links"][link]["state"] = "inactive"

    racks.plan.probed.append(change)
    return f"{end} with 17 NVLinks", (("gpu", str(end)), ("node", end.node)), "NVLink", end.node


#: Faults that are planted alone, and faults that are planted in pairs, on different trays.
FAULTS: dict[str, Plant] = {
    "tray outside its domain": outside,
    "IMEX down on a tray": imex_down,
    "domain split": split,
    "all over RDMA": over_rdma,
    "slow GPU": gpu_slow,
    "dead NIC": nic_dead,
    "one link of 18 down": link_down,
}
_BESIDE: tuple[Plant, ...] = (outside, imex_down, gpu_slow, nic_dead, link_down)


def two_faults(racks: Racks, chance: random.Random) -> list[Planted]:
    """Plant two faults at once, on different trays."""
    first, second = chance.sample(_BESIDE, 2)
    one = first(racks, chance, list(racks.names))
    return [one, second(racks, chance, [name for name in racks.names if name != one[3]])]


__all__ = ["FAULTS", "RACKS", "Plan", "Planted", "Racks", "racks_of", "two_faults"]
