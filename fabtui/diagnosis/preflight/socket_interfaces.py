"""Whether NCCL would find its way between nodes: the interfaces it takes for its bootstrap and its sockets."""

from __future__ import annotations

from collections.abc import Sequence

from fabtui.diagnosis.finding import Finding
from fabtui.model.facts.node_view import Looked, text
from fabtui.model.topology.nccl_interfaces import candidates, chosen
from fabtui.nodeset import fold

#: Made by container engines and hypervisors, or this host's own: they lead to no other node.
_NOWHERE = ("docker", "virbr", "lo")


def sockets(nodes: Sequence[Looked]) -> list[Finding]:
    """Return nodes on which NCCL takes no interface, or one that leads to no other node; nothing for a node alone."""
    if len(nodes) < 2:
        return []
    groups: dict[str, list[tuple[str, str]]] = {}
    for node in nodes:
        names = candidates(node.part("nics"), node.seen("host", "network", "indexes"))
        setting = text(node.part("env", "NCCL_SOCKET_IFNAME"))
        found = chosen(names, setting)
        if names and not found:
            why = f"NCCL_SOCKET_IFNAME={setting} matches no interface that has an address: NCCL does not start"
            groups.setdefault(why, []).append((node.name, f"has {', '.join(names[:8])}"))
        elif found and found[0].startswith(_NOWHERE):
            why = f"NCCL takes {found[0]} for its bootstrap, which leads to no other node"
            groups.setdefault(why, []).append((node.name, f"has {', '.join(names[:8])}"))
    return [
        Finding(
            "bad",
            "nccl_interfaces",
            why,
            tuple(name for name, _ in found),
            tuple(f"{fold([name])}: {told}" for name, told in found[:8]),
            "set NCCL_SOCKET_IFNAME to an interface that leads to the other nodes (ip -br addr)",
        )
        for why, found in groups.items()
    ]
