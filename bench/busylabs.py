"""Labs of CPU ranks on busy cores, with planted faults: the third material of ``bench/diagnosis.py``.

All nodes are namespaces of one machine, whose few cores the ranks and other programs share. Values are as in a lab
under load (messages of 64 KiB, 8 ranks on 2 cores, load 25). Most spread by a factor of two. Some are a tenth or a
hundredth of the others because a rank waits for a core. For some seconds one rank waits more often. No machine is
asked.
"""

import random
from typing import Any

from planted import Fabric, Shape

from fabtui.model.endpoints import Endpoint
from fabtui.session.measure.measurement_runner import SLOW_BELOW

#: GB/s between two ranks that have cores, on one node and of two nodes.
_INSIDE, _BETWEEN = 1.2, 0.6
#: Nodes, and ranks of each.
LABS: tuple[tuple[int, int], ...] = ((4, 2), (8, 1), (6, 2), (3, 4))
_CORES = 2


class BusyLab(Fabric):
    """A lab, and what is planted into it.

    Args:
        nodes: Number of nodes.
        ranks: Number of CPU ranks of each.
        seed: Seed of the load and its noise.
    """

    slow_below = SLOW_BELOW["gloo"]

    def __init__(self, nodes: int, ranks: int, seed: int) -> None:
        super().__init__(Shape(nodes, ranks, ("",), "roce", 1, 1, False, 0.5), seed)
        chance = random.Random(seed)
        self.load = chance.uniform(_CORES, 25.0)
        #: How often a rank waits for a core while others are tested beside it, and while it is tested alone.
        self._waits = (chance.uniform(0.02, 0.12), 0.02)
        #: The rank that waits more often, and in which part of the pairs.
        self._late, self._from = chance.choice(self.ends), chance.random()
        self._count = 0

    def endpoint(self, at: int, node: str, index: int) -> Endpoint:
        address = self.address(at, index)
        return Endpoint(
            at * self.shape.gpus + index, node, index, kind="cpu", nic=f"eth{index}", rail=index, address=address
        )

    def usual(self, a: Endpoint, b: Endpoint) -> tuple[float, str]:
        return (_INSIDE if a.node == b.node else _BETWEEN), "TCP"

    def value(self, a: Endpoint, b: Endpoint, loaded: bool) -> float:
        found = super().value(a, b, loaded)
        self._count += 1
        part = self._count / (len(self.ends) * (len(self.ends) - 1))
        late = loaded and self._late in (a, b) and self._from <= part <= self._from + 0.4
        waits = 0.5 if late else self._waits[not loaded]
        return found * (10 ** self.chance.uniform(-2.0, -0.5) if self.chance.random() < waits else 1.0)

    def _inventory(self, node: str, mine: list[Endpoint]) -> dict[str, Any]:
        return super()._inventory(node, []) | {"cpus": _CORES, "ib": []}

    def _probes(self, node: str, mine: list[Endpoint]) -> dict[str, dict[str, Any]]:
        host = super()._probes(node, [])["host"]
        identity = {"hostname": node, "boot_id": "b-lab", "machine_id": "m-lab", "container": None}
        processors = {"load": round(self.load, 2), "cpus_online": list(range(_CORES))}
        return {"host": {"limits": host["limits"], "identity": identity, "processors": processors}}
