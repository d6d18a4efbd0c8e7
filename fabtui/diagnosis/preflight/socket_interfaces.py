"""Rules about the interfaces that NCCL picks for its bootstrap and its sockets."""

from __future__ import annotations

from collections.abc import Iterator

from fabtui.diagnosis.finding import Finding, register
from fabtui.diagnosis.preflight.context import NodeContext, NodeRule
from fabtui.model.facts.node_view import text
from fabtui.model.topology.nccl_interfaces import candidates, chosen

#: Interfaces of container engines, hypervisors and the host itself: they lead to no other node.
_LOCAL_ONLY = ("docker", "virbr", "lo")
_NEXT = "set NCCL_SOCKET_IFNAME to an interface that leads to the other nodes (ip -br addr)"
#: Maximum number of nodes and interfaces that are listed.
_MOST_LISTED = 8


class _InterfaceRule(NodeRule):
    not_in_lab = True
    next_step = "Set NCCL_SOCKET_IFNAME to an interface that leads to the other nodes."

    def _facts(self, found: list[str], setting: str | None) -> dict[str, str] | None:
        raise NotImplementedError

    def check(self, context: NodeContext) -> Iterator[Finding]:
        if len(context.nodes) < 2:
            return
        groups: dict[str, tuple[dict[str, str], list[tuple[tuple[str], str]]]] = {}
        for node in context.nodes:
            names = candidates(node.part("nics"), node.seen("host", "network", "indexes"))
            setting = text(node.part("env", "NCCL_SOCKET_IFNAME"))
            facts = self._facts(chosen(names, setting), setting) if names else None
            if facts is not None:
                listed = f"has {', '.join(names[:_MOST_LISTED])}"
                groups.setdefault(str(facts), (facts, []))[1].append(((node.name,), listed))
        for facts, by_node in groups.values():
            nodes = [names[0] for names, _ in by_node]
            merged = {**facts, "by_node": tuple(by_node[:_MOST_LISTED])}
            yield self.finding("nccl_interfaces", nodes=nodes, facts=merged, commands=(_NEXT,))


@register
class NoSocketInterface(_InterfaceRule):
    """NCCL_SOCKET_IFNAME matches no interface that has an address."""

    id = "FT320"
    name = "no-socket-interface"
    title = "NCCL_SOCKET_IFNAME matches no interface"
    message = "NCCL_SOCKET_IFNAME={setting} matches no interface that has an address: NCCL does not start"

    def _facts(self, found: list[str], setting: str | None) -> dict[str, str] | None:
        return None if found else {"setting": str(setting)}


@register
class LocalSocketInterface(_InterfaceRule):
    """NCCL picks an interface that leads to no other node."""

    id = "FT321"
    name = "local-socket-interface"
    title = "NCCL picks an interface that leads to no other node"
    message = "NCCL picks {interface} for its bootstrap, which leads to no other node"

    def _facts(self, found: list[str], setting: str | None) -> dict[str, str] | None:
        return {"interface": found[0]} if found and found[0].startswith(_LOCAL_ONLY) else None
