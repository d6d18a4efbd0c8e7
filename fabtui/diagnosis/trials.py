"""Experiments about findings: environment, pairs, and the meaning of each outcome."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from fabtui.diagnosis.finding import Kind, Pair, Subject, Trial
from fabtui.model.endpoints import Endpoint, node_of
from fabtui.model.facts.node_view import active_ports, dicts, text
from fabtui.model.session_model import Model
from fabtui_node.parsers.nccl.transports import Path

#: Returns the variables of an experiment with some pairs, or None where it shows nothing.
Env = Callable[[Model, Subject, Sequence[Pair]], Mapping[str, str] | None]

_ANY = frozenset(Kind)
_CONTENTION = frozenset({Kind.CONTENTION})
#: Components whose pairs are those of their endpoints.
COMPONENTS = frozenset({Kind.GPU, Kind.NIC, Kind.NODE, Kind.RAIL})
_NICS = frozenset({Kind.NIC, Kind.RAIL})
_OVER_TCP = frozenset({Path.TCP, Path.GLOO})
_RAILS = frozenset({Kind.CROSS_RAIL, Kind.RAIL_PAIR})


class Outcome(NamedTuple):
    """Meaning of an outcome: in words, and the kinds of components that it makes likelier or less likely."""

    text: str
    likelier: frozenset[Kind] = frozenset()
    unlikelier: frozenset[Kind] = frozenset()


class TrialSpec(NamedTuple):
    """Declaration of an experiment.

    Attributes:
        name: What is changed, for readers.
        env: Variables of the ranks.
        works: Meaning if the pairs pass.
        fails: Meaning if they do not.
        inside: Whether it is about pairs within nodes (True), of different nodes (False), or both (None).
        dead: Whether it is about pairs that fail, not about slow ones.
        paths: Paths that count as success; none: any.
        needless: Paths of pairs that it would not change.
    """

    name: str
    env: Env
    works: Outcome
    fails: Outcome
    inside: bool | None = None
    dead: bool = False
    paths: frozenset[Path] = frozenset()
    needless: frozenset[Path] = frozenset()


def _fixed(**env: str) -> Env:
    return lambda model, subject, pairs: env


def _nodes(model: Model, pairs: Sequence[Pair]) -> list[str]:
    return list(dict.fromkeys(node_of(end) for pair in pairs for end in pair))


def _active_ports(model: Model, node: str) -> list[dict[str, Any]]:
    return active_ports((model.nodes[node].inventory or {}).get("ib"))


def ends_of(model: Model, subject: Subject, pairs: Sequence[Pair] = ()) -> list[Endpoint]:
    """Return the endpoints of a component: of a GPU, NIC, node or rail; of others those of some pairs."""
    ends = model.endpoints
    match subject.kind:
        case Kind.GPU:
            return [end for end in ends if str(end) == subject.name]
        case Kind.NIC:
            return [end for end in ends if f"{end.node} {end.port_name}" == subject.name]
        case Kind.NODE:
            return model.endpoints_of(subject.name)
        case Kind.RAIL:
            return [end for end in ends if str(end.index if end.rail is None else end.rail) == subject.name]
    named = dict.fromkeys(name for pair in pairs for name in pair)
    return [ends[number] for name in named if (number := model.number(name)) is not None]


def _without_hca(model: Model, subject: Subject, pairs: Sequence[Pair]) -> Mapping[str, str] | None:
    """Return the variable that excludes the HCA of a component, if all nodes have a second one."""
    if subject.kind not in (Kind.GPU, Kind.NIC, Kind.RAIL):
        return None
    names = {end.nic for end in ends_of(model, subject)}
    name = names.pop() if len(names) == 1 else None
    devices = [{port.get("ca") for port in _active_ports(model, node)} for node in _nodes(model, pairs)]
    if name is None or not any(name in one for one in devices) or not all(one - {name} for one in devices):
        return None
    return {"NCCL_IB_HCA": f"^={name}"}


def _roce_gid(model: Model, subject: Subject, pairs: Sequence[Pair]) -> Mapping[str, str] | None:
    """Return the variable for the first GID index that is RoCE v2 over IPv4 on all ports of all nodes."""
    ports = [port for node in _nodes(model, pairs) for port in _active_ports(model, node)]
    common: set[int] | None = None
    for port in ports:
        found = {gid["index"] for gid in dicts(port.get("gids")) if _is_roce_v2(gid) and "index" in gid}
        common = found if common is None else common & found
    if not common or any(port.get("link_layer") != "Ethernet" for port in ports):
        return None
    return {"NCCL_IB_GID_INDEX": str(min(common))}


def _is_roce_v2(gid: Mapping[str, Any]) -> bool:
    try:
        address = ipaddress.IPv6Address(text(gid.get("gid")) or "")
    except ValueError:
        return False
    return "v2" in str(gid.get("type")) and address.ipv4_mapped is not None and isinstance(gid.get("index"), int)


def subject_text(model: Model, subject: Subject) -> str:
    """Return a component in words."""
    if subject.kind is Kind.GPU and (ends := ends_of(model, subject)):
        return f"{'GPU' if ends[0].kind == 'gpu' else 'endpoint'} {subject.name}"
    if subject.kind is Kind.NIC:
        node, _, nic = subject.name.partition(" ")
        return nic if nic.startswith("NIC of ") else f"NIC {nic} of {node}"
    return f"{str(subject.kind).replace('-', ' ')} {subject.name}"


TRIALS: dict[Trial, TrialSpec] = {
    Trial.ALONE: TrialSpec(
        "alone",
        _fixed(),
        Outcome("so only other traffic, or chance, makes it bad", _CONTENTION, _ANY - _CONTENTION),
        Outcome("so other traffic is not the reason", _ANY - _CONTENTION, _CONTENTION),
    ),
    # The meaning of results follows from the components that carry the pairs.
    Trial.PARTNERS: TrialSpec("with other partners", _fixed(), Outcome(""), Outcome("")),
    Trial.OTHER_HCA: TrialSpec(
        "with another HCA (NCCL_IB_HCA)",
        _without_hca,
        Outcome("so this HCA or its rail is at fault, and the GPUs are not", _NICS, frozenset({Kind.GPU, Kind.NODE})),
        Outcome("so this HCA and its rail are not the reason", frozenset({Kind.GPU, Kind.NODE}), _NICS),
        inside=False,
        needless=_OVER_TCP,
    ),
    Trial.SOCKET: TrialSpec(
        "with NCCL_NET=Socket",
        _fixed(NCCL_NET="Socket"),
        Outcome("so RDMA is at fault, and the GPUs and IP are not", _ANY - {Kind.GPU}, frozenset({Kind.GPU})),
        Outcome("so it is not RDMA alone"),
        inside=False,
        needless=_OVER_TCP,
    ),
    Trial.GID: TrialSpec(
        "with another GID index (NCCL_IB_GID_INDEX)",
        _roce_gid,
        Outcome("so the GID index is at fault: set this variable", _ANY - {Kind.GPU}, frozenset({Kind.GPU})),
        Outcome("so the GID index is not the reason"),
        inside=False,
        needless=_OVER_TCP,
        dead=True,
    ),
    Trial.ONE_RAIL: TrialSpec(
        "with NCCL_CROSS_NIC=0",
        _fixed(NCCL_CROSS_NIC="0"),
        Outcome("so only traffic that leaves its rail is blocked", _RAILS, _ANY - _RAILS),
        Outcome("so it is not the path between rails alone"),
        inside=False,
        dead=True,
    ),
    Trial.NO_P2P: TrialSpec(
        "with NCCL_P2P_DISABLE=1",
        _fixed(NCCL_P2P_DISABLE="1"),
        Outcome("so P2P over NVLink or PCIe is at fault, and the GPUs are not", _ANY),
        Outcome("so P2P is not the reason"),
        inside=True,
        dead=True,
        needless=frozenset(Path) - {Path.UNKNOWN, Path.P2P},
    ),
    Trial.P2P: TrialSpec(
        "with NCCL_P2P_DISABLE=0",
        _fixed(NCCL_P2P_DISABLE="0", NCCL_P2P_LEVEL="SYS"),
        Outcome("so the hardware allows P2P: a variable keeps NCCL from it", _ANY),
        Outcome("so it is not a variable: check ACS, IOMMU and nvidia-smi topo -p2p r", _ANY),
        inside=True,
        paths=frozenset({Path.P2P}),
    ),
    Trial.RDMA: TrialSpec(
        "with NCCL_NET=IB",
        _fixed(NCCL_IB_DISABLE="0", NCCL_NET="IB"),
        Outcome("so RDMA works: a variable or a plug-in keeps NCCL from it", _ANY),
        Outcome("so NCCL cannot use RDMA, and the error gives the reason", _ANY),
        inside=False,
        paths=frozenset({Path.RDMA, Path.GPUDIRECT}),
    ),
    Trial.GPUDIRECT: TrialSpec(
        "with NCCL_NET_GDR_LEVEL=SYS",
        _fixed(NCCL_NET_GDR_LEVEL="SYS"),
        Outcome("so GPUDirect works: the distance of GPU and NIC, or a variable, keeps NCCL from it", _ANY),
        Outcome("so GPUDirect does not work: check nvidia-peermem, DMA-BUF, ACS and IOMMU", _ANY),
        inside=False,
        paths=frozenset({Path.GPUDIRECT}),
    ),
}

#: Experiments about an end, about a path between nodes that is dead or slow, and within a node.
END_TRIALS = (Trial.ALONE, Trial.PARTNERS, Trial.OTHER_HCA, Trial.SOCKET, Trial.NO_P2P)
PATH_TRIALS = (Trial.ALONE, Trial.OTHER_HCA, Trial.SOCKET, Trial.GID)
PAIR_TRIALS = (Trial.ALONE, Trial.PARTNERS, Trial.SOCKET, Trial.GID, Trial.NO_P2P)


def trials_text(trials: Sequence[Trial]) -> str:
    """Return experiments in words: ``alone; with other partners``."""
    return "; ".join(TRIALS[trial].name for trial in trials)
