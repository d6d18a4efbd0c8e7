"""NVLink domains of GPUs: racks of nodes whose GPUs access each other's memory through NVLink switches.

A domain is a cluster UUID and a clique, a partition of the cluster. Probe results come from nodes: no shape is assumed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from fabtui.model.endpoints import Endpoint
from fabtui.model.facts.node_view import dicts, field, gpu_of, number, text
from fabtui.model.records import NodeRecord

#: Probe that reports the domains.
DOMAIN_PROBE = "gpus"
_UUID = 8


class NvlinkDomain(NamedTuple):
    """NVLink domain of a GPU."""

    cluster: str  #: UUID of the cluster, one for all GPUs that the switches connect.
    clique: int  #: Partition of the cluster.

    def __str__(self) -> str:
        return f"{self.cluster}/{self.clique}"

    @property
    def short(self) -> str:
        """Name for readers: the beginning of the UUID, and the clique."""
        return f"{self.cluster[:_UUID]}/{self.clique}"


def domain_in(gpu: dict[str, Any]) -> NvlinkDomain | None:
    """Return the domain in an entry of the probe ``gpus``; None if the GPU is in none, or it is unknown."""
    fabric = gpu.get("fabric")
    cluster, clique = text(field(fabric, "cluster")), number(field(fabric, "clique"))
    return NvlinkDomain(cluster, clique) if cluster is not None and isinstance(clique, int) else None


def domain_of(endpoint: Endpoint, record: NodeRecord) -> NvlinkDomain | None:
    """Return the domain of the GPU of an endpoint, or None."""
    return domain_in(gpu_of(field(record.probe_results.get(DOMAIN_PROBE), "gpus"), endpoint))


def short_names(names: Iterable[str]) -> dict[str, str]:
    """Return a short name for each domain: its beginning and its clique, or all of it where that is ambiguous."""
    listed = list(dict.fromkeys(names))
    short = {}
    for name in listed:
        cluster, _, clique = name.rpartition("/")
        short[name] = f"{cluster[:_UUID]}/{clique}"
    return {name: one if list(short.values()).count(one) == 1 else name for name, one in short.items()}


def fabrics_of(record: NodeRecord) -> dict[int, dict[str, Any]]:
    """Return what each GPU of a node reports about its NVLink fabric, by index, those that report any."""
    gpus = dicts(field(record.probe_results.get(DOMAIN_PROBE), "gpus"))
    found = {number(gpu.get("index")): gpu for gpu in gpus if isinstance(gpu.get("fabric"), dict)}
    return {int(index): gpu["fabric"] for index, gpu in found.items() if index is not None}
