"""Rules about RoCE ports: the class of their traffic, and halves of a port that carry nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from fabtui.diagnosis.finding import Domain, Finding, Kind, Rule, Severity, Subject, register
from fabtui.diagnosis.knowledge.next_commands import on_node
from fabtui.diagnosis.pairs.traffic_path import latest_pairs
from fabtui.diagnosis.preflight.node_context import NodeContext, NodeRule
from fabtui.model.endpoints import node_of
from fabtui.model.facts.network import priorities_text
from fabtui.model.facts.node_view import Entry, ProbedNode, active_ports, dicts, field, number, text
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.records import NodeRecord, listed
from fabtui.model.session_model import Model
from fabtui.nodeset import fold, ranges
from fabtui.sanitize import one_line

_DSCPS = range(64)
#: Share of the rate of a port from which the PCIe link of one function fills it.
_FILLS = 0.9
#: Share of what the busier half of a port carried, below which the other one is unused.
_UNUSED = 0.02
_Ports = list[Entry]


class _Class(NamedTuple):
    """The priority that packets of NCCL get on a port, and what chose it."""

    priority: int
    chosen_by: str  #: ``NCCL_IB_TC=106: DSCP 26``.
    given: bool  #: False if nothing chooses it, as settings of jobs may be elsewhere.


class _Problem(NamedTuple):
    without: str  #: What the priority does not have.
    priority: int
    having: str  #: The priorities that have it.
    chosen_by: str
    given: bool
    trust: str
    dscps: str  #: DSCPs of the priorities that have it.


@register
class RoceClass(NodeRule):
    """NCCL's RoCE packets are in a priority without flow control (PFC) or congestion notification (ECN).

    Other priorities of the port have it. Where no priority has PFC, the network is lossy by design, and nothing is
    reported. Nodes whose trust, DSCPs, PFC or ECN differ from the others are FT302.
    """

    id = "FT150"

    def check(self, context: NodeContext) -> Iterator[Finding]:
        given = context.model.options.get("env")
        session = dict(str(word).partition("=")[::2] for word in given) if isinstance(given, (list, tuple)) else {}
        groups: dict[_Problem, dict[str, list[str]]] = {}
        interface = ""
        for node in context.nodes:
            variables = _variables(node, session)
            for port in dicts(node.seen("rdma", "qos")):
                for problem in _problems(port, variables):
                    groups.setdefault(problem, {}).setdefault(node.name, []).append(_device(port))
                    interface = interface or text(port.get("interface")) or ""
        for problem, ports in groups.items():
            devices = tuple(dict.fromkeys(name for names in ports.values() for name in names))
            command = f"ssh {fold([next(iter(ports))])} mlnx_qos -i {interface or '{nic}'}"
            yield self.finding(
                "roce-class",
                severity=Severity.WARN if problem.given else Severity.NOTE,
                nodes=tuple(ports),
                facts={**problem._asdict(), "dscps": problem.dscps or None, "devices": devices},
                commands=[command],
            ).replace(about=tuple(_nic(node, name) for node, names in ports.items() for name in names))


def _device(port: Mapping[str, Any]) -> str:
    """Return the name of a port; an output of a tool alone does not name it."""
    known = f"{port.get('ca')}/{port.get('port')}" if port.get("ca") else str(port.get("interface") or "an interface")
    return one_line(known, 60)


def _nic(node: str, port: str) -> Subject:
    return Subject(Kind.NIC, f"{node} {port.partition('/')[0]}")


def _variables(node: ProbedNode, session: Mapping[str, str]) -> Mapping[str, Any] | None:
    """Return the variables that NCCL sees on a node; None if they are not known."""
    env, conf = node.part("env"), node.seen("rdma", "conf")
    if not isinstance(env, dict):
        return None
    return {**(conf if isinstance(conf, dict) else {}), **env, **session}


def _problems(port: Mapping[str, Any], variables: Mapping[str, Any] | None) -> Iterator[_Problem]:
    trust = text(port.get("trust"))
    by_level = _by_level(variables) if trust == "pcp" and variables is not None else None
    chosen = _by_dscp(port, variables) if trust == "dscp" else by_level
    if chosen is None or trust is None:
        return
    notify, slow = (_priorities(port.get(name)) or () for name in ("ecn_np", "ecn_rp"))
    ecn = [priority for priority in notify if priority in slow]
    for what, having in (("PFC", _priorities(port.get("pfc"))), ("ECN", ecn)):
        if having and chosen.priority not in having:
            dscps = [dscp for priority in having for dscp in _dscps_of(port, priority)]
            shown = priorities_text(having) or ""
            yield _Problem(what, chosen.priority, shown, chosen.chosen_by, chosen.given, trust, ranges(dscps))


def _priorities(value: Any) -> list[int] | None:
    return [priority for priority in value if isinstance(priority, int)] if isinstance(value, list) else None


def _dscps_of(port: Mapping[str, Any], priority: int) -> list[int]:
    return [dscp for dscp in _priorities(field(port, "dscp", str(priority))) or () if dscp in _DSCPS]


def _by_dscp(port: Mapping[str, Any], variables: Mapping[str, Any] | None) -> _Class | None:
    own, setting = port.get("class"), _whole((variables or {}).get("NCCL_IB_TC"))
    if isinstance(own, int) and 0 <= own < 256:
        traffic, why = own, f"the NIC's own traffic class, {own}, replaces NCCL_IB_TC"
    elif variables is None:
        return None
    else:
        traffic, why = setting or 0, "NCCL_IB_TC is not set" if setting is None else f"NCCL_IB_TC={setting}"
    dscp = traffic >> 2
    priority = next((priority for priority in range(8) if dscp in _dscps_of(port, priority)), None)
    given = own is not None or setting is not None
    return None if priority is None else _Class(priority, f"{why}: DSCP {dscp}", given)


def _by_level(variables: Mapping[str, Any]) -> _Class | None:
    """Return the class by the priority of a VLAN tag, which is NCCL's service level; a DSCP is ignored then."""
    level, traffic = (_whole(variables.get(name)) for name in ("NCCL_IB_SL", "NCCL_IB_TC"))
    ignored = f"; NCCL_IB_TC={traffic} is ignored" if traffic else ""
    # Without a word about a class, the port may not be meant for NCCL.
    if level is None and not traffic:
        return None
    why = "NCCL_IB_SL is not set" if level is None else f"NCCL_IB_SL={level}"
    return _Class((level or 0) & 7, why + ignored, True)


def _whole(value: Any) -> int | None:
    """Return a variable as NCCL reads it, decimal, hexadecimal or octal, if it is a traffic class."""
    try:
        return int(str(value), 0) if 0 <= int(str(value), 0) < 256 else None
    except ValueError:
        return None


@register
class HalfPort(Rule[Model]):
    """One of two PCI functions that lead to a connector carries nothing, and the other cannot fill the port.

    This is the case on a DGX Spark (GB10), whose functions have four PCIe lanes each, and with adapters that are
    connected to both sockets. Counters of the ports show it while pairs are tested, or one half is not active.
    """

    id = "FT151"
    domain = Domain.LINKS

    def check(self, model: Model) -> Iterator[Finding]:
        pairs: list[Measurement] | None = None
        for record in model.nodes.values():
            for halves in _halves(listed(record, "ib")):
                pairs = latest_pairs(model) if pairs is None else pairs
                unused, how = _unused(model, record.name, halves, pairs)
                if unused is not None:
                    yield self._of_half(model, record, halves, unused, how)

    def _of_half(self, model: Model, record: NodeRecord, halves: _Ports, unused: Entry, how: str) -> Finding:
        used = next(port for port in halves if port is not unused)
        names = [one_line(str(port.get("ca")), 40) for port in halves]
        setting = field(record.inventory, "env", "NCCL_IB_HCA")
        variables = one_line(f"NCCL_IB_HCA={setting} on {record.name}", 120) if setting else None
        name, hca = one_line(str(unused.get("ca")), 40), ",".join(names)
        facts = {"node": record.name, "unused": name, "how": how, "hca": hca, "variables": variables}
        facts |= {"used": one_line(str(used.get("ca")), 40)}
        numbers = {"pcie": number(used.get("pcie_rate")), "rate": number(used.get("rate"))}
        return self.finding(
            f"{record.name} {name}",
            nodes=(record.name,),
            facts={**facts, **numbers},
            commands=(f"export NCCL_IB_HCA={hca}", on_node(record.name, "ibdev2netdev", model)),
            weight=1,
            blames=Subject(Kind.NIC, f"{record.name} {name}"),
        )


def _halves(ports: _Ports) -> Iterator[_Ports]:
    connectors = dict.fromkeys(name for port in ports if isinstance(name := port.get("connector"), str))
    for halves in ([port for port in ports if port.get("connector") == name] for name in connectors):
        rates = [(number(port.get("pcie_rate")), number(port.get("rate"))) for port in active_ports(halves)]
        if len(halves) == 2 and rates and all(pcie and rate and pcie < _FILLS * rate for pcie, rate in rates):
            yield halves


def _unused(model: Model, node: str, halves: _Ports, pairs: Iterable[Measurement]) -> tuple[Entry | None, str]:
    down = [port for port in halves if port.get("state") != "Active"]
    if down:
        return down[0], "is not active"
    names = [f"{port.get('ca')}/{port.get('port')}" for port in halves]
    moved, most = [0, 0], 0
    for one in pairs:
        ends = node_of(one.src), node_of(one.dst)
        if one.verdict is not Verdict.OK or ends[0] == ends[1] or node not in ends:
            continue
        traffic = model.counters.traffic(one).get(node)
        if traffic is not None and traffic.exact and all(name in traffic.ports for name in names):
            moved = [total + sum(traffic.ports[name]) for total, name in zip(moved, names, strict=True)]
            most = max(most, one.bytes or 0)
    if not most or max(moved) < most or min(moved) >= _UNUSED * max(moved):
        return None, ""
    return halves[moved.index(min(moved))], "carried nothing while pairs were tested"
