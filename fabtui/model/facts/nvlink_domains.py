"""NVLink domains of GPUs: racks of nodes whose GPUs access each other's memory through NVLink switches.

A domain is a cluster UUID and a clique, a partition of the cluster. Probe results come from nodes: no shape is assumed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from fabtui.model.endpoints import Endpoint
from fabtui.model.facts.node_view import Entry, dicts, field, gpu_of, number, text
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


def domain_in(gpu: Entry) -> NvlinkDomain | None:
    """Return the domain in an entry of the probe ``gpus``; None if the GPU is in none, or it is unknown."""
    fabric = gpu.get("fabric")
    cluster, clique = text(field(fabric, "cluster")), number(field(fabric, "clique"))
    return NvlinkDomain(cluster, clique) if cluster is not None and isinstance(clique, int) else None


def domain_of(endpoint: Endpoint, record: NodeRecord) -> NvlinkDomain | None:
    """Return the domain of the GPU of an endpoint, or None."""
    return domain_in(gpu_of(field(record.probe_results.get(DOMAIN_PROBE), "gpus"), endpoint))


def domain_names(domains: Iterable[str]) -> dict[str, str]:
    """Return a name of each domain for readers: the beginning of its UUID, or all of it, and its clique."""
    parts = {domain: domain.rpartition("/") for domain in domains}
    short = {domain: f"NVLink {cluster[:_UUID]}/{clique}" for domain, (cluster, _, clique) in parts.items()}
    counts = Counter(short.values())
    return {domain: name if counts[name] == 1 else f"NVLink {domain}" for domain, name in short.items()}


def fabrics_of(record: NodeRecord) -> dict[int, Entry]:
    """Return what each GPU of a node reports about its NVLink fabric, by index, those that report any."""
    gpus = dicts(field(record.probe_results.get(DOMAIN_PROBE), "gpus"))
    known = ((number(gpu.get("index")), gpu.get("fabric")) for gpu in gpus)
    return {int(index): fabric for index, fabric in known if index is not None and isinstance(fabric, dict)}
