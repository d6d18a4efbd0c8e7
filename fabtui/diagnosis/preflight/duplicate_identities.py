"""What no two nodes may have: a host name, a boot id, an address, a GUID. NCCL tells hosts apart by some of these."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from fabtui.diagnosis.finding import Finding
from fabtui.model.facts.node_view import Looked, dicts, text
from fabtui.nodeset import fold


def clashes(nodes: Sequence[Looked]) -> list[Finding]:
    """Return what several nodes have and only one may have."""
    found = [*_machines(nodes), *_names(nodes), *_images(nodes)]
    found += _shared(
        nodes,
        _addresses,
        "address",
        "bad",
        "have the same address {}: what is sent there reaches only one of them",
        "ssh {node} ip -br addr",
    )
    found += _shared(
        nodes, _guids, "guid", "bad", "have the same node GUID {}: the fabric takes them for one", "ssh {node} ibstat"
    )
    found += _shared(
        nodes,
        _host_ids,
        "hostid",
        "bad",
        "have the same NCCL_HOSTID {}: NCCL takes them for one host",
        "unset NCCL_HOSTID",
    )
    return found


def _boot(node: Looked) -> str | None:
    return text(node.seen("host", "identity", "boot_id"))


def _host_name(node: Looked) -> str | None:
    return text(node.seen("host", "identity", "hostname")) or text(node.part("host"))


def _together(nodes: Iterable[Looked], key: Callable[[Looked], str | None]) -> dict[str, list[Looked]]:
    groups: dict[str, list[Looked]] = {}
    for node in nodes:
        if (value := key(node)) is not None:
            groups.setdefault(value, []).append(node)
    return {value: group for value, group in groups.items() if len(group) > 1}


def _names_of(nodes: Iterable[Looked]) -> tuple[str, ...]:
    return tuple(node.name for node in nodes)


def _machines(nodes: Sequence[Looked]) -> list[Finding]:
    found = []
    for boot, group in _together(nodes, _boot).items():
        alike = _together(group, _host_name)
        for name, same in alike.items():
            found.append(
                Finding(
                    "bad",
                    "machine",
                    "are one machine under several names: NCCL takes them for one host, and tests go nowhere",
                    _names_of(same),
                    (f"host name {name}, boot id {boot}",),
                    "name each machine once",
                )
            )
        apart = [node for node in group if all(node not in same for same in alike.values())]
        if len(apart) > 1:
            told = "are on one machine, in containers of their own: they share its GPUs and NICs"
            found.append(Finding("note", "machine", told, _names_of(apart), (f"boot id {boot}",)))
    return found


def _names(nodes: Sequence[Looked]) -> list[Finding]:
    found = []
    for name, group in _together(nodes, _host_name).items():
        boots = [_boot(node) for node in group]
        if len(set(boots)) < 2:
            continue
        told = f"are different machines that all call themselves {name}"
        evidence = tuple(
            f"{fold([node.name])}: boot id {boot or 'unknown'}" for node, boot in zip(group, boots, strict=True)
        )
        found.append(
            Finding("warn", "hostname", told, _names_of(group), evidence, f"ssh {fold([group[-1].name])} hostnamectl")
        )
    return found


def _images(nodes: Sequence[Looked]) -> list[Finding]:
    found = []
    for name, group in _together(nodes, lambda node: text(node.seen("host", "identity", "machine_id"))).items():
        if len({_boot(node) for node in group}) == len(group):
            told = "have the same machine id, as copies of one image: DHCP may give them one address"
            found.append(Finding("note", "machine-id", told, _names_of(group), (f"machine id {name}",)))
    return found


def _addresses(node: Looked) -> list[str]:
    return [word for entry in dicts(node.part("data_addresses")) if (word := text(entry.get("address")))]


def _guids(node: Looked) -> list[str]:
    found = [text(ca.get("node_guid")) for ca in dicts(node.seen("ibstat", "cas"))]
    return [guid for guid in found if guid and guid.strip("0x:.")]


def _host_ids(node: Looked) -> list[str]:
    word = text(node.part("env", "NCCL_HOSTID"))
    return [word] if word else []


def _shared(
    nodes: Sequence[Looked],
    values: Callable[[Looked], list[str]],
    subject: str,
    verdict: str,
    told: str,
    command: str,
) -> list[Finding]:
    """Return values that several machines have, those of one group of machines together."""
    holders: dict[str, list[Looked]] = {}
    for node in nodes:
        for value in dict.fromkeys(values(node)):
            holders.setdefault(value, []).append(node)
    groups: dict[tuple[str, ...], list[str]] = {}
    for value, group in holders.items():
        machines = {(_boot(node) or node.name, _host_name(node)) for node in group}
        # Names of one machine are told as such, and share everything; its containers do not.
        if len(machines) > 1:
            groups.setdefault(_names_of(group), []).append(value)
    return [
        Finding(
            verdict,
            subject,
            told.format(", ".join(values[:3])),
            names,
            tuple(values[:20]),
            command.replace("{node}", fold(names[:1])),
        )
        for names, values in groups.items()
    ]
