"""Rules about identities that two nodes must not share. NCCL identifies hosts by some of these."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import ClassVar

from fabtui.diagnosis.finding import Finding, Severity, register
from fabtui.diagnosis.preflight.context import NodeContext, NodeRule
from fabtui.model.facts.node_view import ProbedNode, dicts, text
from fabtui.nodeset import fold

#: Maximum number of shared values that are kept as evidence.
_MOST_VALUES = 20


class _IdentityRule(NodeRule):
    not_in_lab = True


@register
class SameMachine(_IdentityRule):
    """One machine is listed under several names. Tests between these names go nowhere."""

    id = "FT310"
    name = "same-machine"
    title = "One machine under several names"
    message = "one machine under several names: NCCL takes them for one host, and tests go nowhere"
    evidence = ("host name {hostname}, boot id {boot_id}",)
    next_step = "Name each machine once."

    def check(self, context: NodeContext) -> Iterator[Finding]:
        for boot, group in _shared(context.nodes, _boot).items():
            for name, same in _shared(group, _host_name).items():
                facts = {"hostname": name, "boot_id": boot}
                yield self.finding("machine", nodes=_names(same), facts=facts, commands=("name each machine once",))


@register
class SharedMachine(_IdentityRule):
    """Several nodes are containers on one machine, and share its GPUs and NICs."""

    id = "FT311"
    name = "shared-machine"
    title = "Several containers on one machine"
    severity = Severity.NOTE
    message = "containers on one machine: they share its GPUs and NICs"
    evidence = ("boot id {boot_id}",)

    def check(self, context: NodeContext) -> Iterator[Finding]:
        for boot, group in _shared(context.nodes, _boot).items():
            same = [node for nodes in _shared(group, _host_name).values() for node in nodes]
            apart = [node for node in group if node not in same]
            if len(apart) > 1:
                yield self.finding("machine", nodes=_names(apart), facts={"boot_id": boot})


@register
class SameHostName(_IdentityRule):
    """Different machines have the same host name."""

    id = "FT312"
    name = "same-hostname"
    title = "Different machines with the same host name"
    severity = Severity.WARN
    message = "different machines with the same host name {hostname}"
    next_step = "Check `hostnamectl` on each of them."

    def check(self, context: NodeContext) -> Iterator[Finding]:
        for name, group in _shared(context.nodes, _host_name).items():
            boots = [_boot(node) for node in group]
            if len(set(boots)) < 2:
                continue
            by_node = tuple(
                ((node.name,), f"boot id {boot or 'unknown'}") for node, boot in zip(group, boots, strict=True)
            )
            command = f"ssh {fold([group[-1].name])} hostnamectl"
            facts = {"hostname": name, "by_node": by_node}
            yield self.finding("hostname", nodes=_names(group), facts=facts, commands=(command,))


@register
class SameMachineId(_IdentityRule):
    """Different machines have the same machine id, as copies of one image do."""

    id = "FT313"
    name = "same-machine-id"
    title = "Different machines with the same machine id"
    severity = Severity.NOTE
    message = "same machine id, as copies of one image: DHCP may assign them one address"
    evidence = ("machine id {machine_id}",)
    next_step = "Remove /etc/machine-id from the image."

    def check(self, context: NodeContext) -> Iterator[Finding]:
        groups = _shared(context.nodes, lambda node: text(node.seen("host", "identity", "machine_id")))
        for name, group in groups.items():
            if len({_boot(node) for node in group}) == len(group):
                yield self.finding("machine-id", nodes=_names(group), facts={"machine_id": name})


class _SharedValueRule(_IdentityRule):
    """Base of the rules about values that several machines share."""

    evidence = ("{shared:lines}",)
    subject: ClassVar[str]
    command: ClassVar[str]

    def _values(self, node: ProbedNode) -> list[str]:
        raise NotImplementedError

    def check(self, context: NodeContext) -> Iterator[Finding]:
        holders: dict[str, list[ProbedNode]] = {}
        for node in context.nodes:
            for value in dict.fromkeys(self._values(node)):
                holders.setdefault(value, []).append(node)
        groups: dict[tuple[str, ...], list[str]] = {}
        for value, group in holders.items():
            machines = {(_boot(node) or node.name, _host_name(node)) for node in group}
            # Names of one machine share everything, which another rule reports; containers do not.
            if len(machines) > 1:
                groups.setdefault(_names(group), []).append(value)
        for names, values in groups.items():
            command = self.command.replace("{node}", fold(names[:1]))
            facts = {"first": tuple(values[:3]), "shared": tuple(values[:_MOST_VALUES])}
            yield self.finding(self.subject, nodes=names, facts=facts, commands=(command,))


@register
class SameAddress(_SharedValueRule):
    """Several machines have the same IP address on a data interface."""

    id = "FT314"
    name = "same-address"
    title = "Several machines with the same address"
    message = "same address {first}: packets reach only one of them"
    next_step = "Assign different addresses."
    subject = "address"
    command = "ssh {node} ip -br addr"

    def _values(self, node: ProbedNode) -> list[str]:
        return [word for entry in dicts(node.part("data_addresses")) if (word := text(entry.get("address")))]


@register
class SameGuid(_SharedValueRule):
    """Several machines have an InfiniBand adapter with the same node GUID."""

    id = "FT315"
    name = "same-guid"
    title = "Several machines with the same node GUID"
    message = "same node GUID {first}: the subnet manager takes them for one"
    next_step = "Reprogram the GUID of one adapter."
    subject = "guid"
    command = "ssh {node} ibstat"

    def _values(self, node: ProbedNode) -> list[str]:
        found = [text(ca.get("node_guid")) for ca in dicts(node.seen("ibstat", "cas"))]
        return [guid for guid in found if guid and guid.strip("0x:.")]


@register
class SameHostId(_SharedValueRule):
    """Several machines set the same NCCL_HOSTID."""

    id = "FT316"
    name = "same-nccl-hostid"
    title = "Several machines with the same NCCL_HOSTID"
    message = "same NCCL_HOSTID {first}: NCCL takes them for one host"
    next_step = "Unset NCCL_HOSTID."
    subject = "hostid"
    command = "unset NCCL_HOSTID"

    def _values(self, node: ProbedNode) -> list[str]:
        word = text(node.part("env", "NCCL_HOSTID"))
        return [word] if word else []


def _boot(node: ProbedNode) -> str | None:
    return text(node.seen("host", "identity", "boot_id"))


def _host_name(node: ProbedNode) -> str | None:
    return text(node.seen("host", "identity", "hostname")) or text(node.part("host"))


def _shared(nodes: Iterable[ProbedNode], key: Callable[[ProbedNode], str | None]) -> dict[str, list[ProbedNode]]:
    """Return nodes by a value that several of them have."""
    groups: dict[str, list[ProbedNode]] = {}
    for node in nodes:
        if (value := key(node)) is not None:
            groups.setdefault(value, []).append(node)
    return {value: group for value, group in groups.items() if len(group) > 1}


def _names(nodes: Sequence[ProbedNode]) -> tuple[str, ...]:
    return tuple(node.name for node in nodes)
