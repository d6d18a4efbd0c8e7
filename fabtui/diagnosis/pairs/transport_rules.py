"""Rules about transports: pairs that take a slower path than their hardware allows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, ClassVar, NamedTuple

import numpy as np

from fabtui.diagnosis.finding import (
    Domain,
    Finding,
    Kind,
    Route,
    Rule,
    Severity,
    Steps,
    Subject,
    register,
)
from fabtui.diagnosis.knowledge.error_catalogue import meaning_named
from fabtui.diagnosis.knowledge.next_commands import on_node
from fabtui.diagnosis.links.link_rules import gpus_in_use
from fabtui.diagnosis.pairs.pair_context import PairContext, without_nvlink
from fabtui.model.endpoints import PAIR_CLASSES, ClassKey, PairClass, node_of
from fabtui.model.facts.link_limits import LEAST_BYTES, PCIE, Limit, LinkLimits
from fabtui.model.facts.node_view import active_ports, dicts, field, is_efa, number, text
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement
from fabtui.model.pair_table import SAME_DOMAIN, SAME_NODE, Flags, Ints, PairTable, parts
from fabtui.model.places import Places
from fabtui.model.records import listed, probed
from fabtui.nodeset import fold
from fabtui.sanitize import one_line
from fabtui_node.parsers.nccl.transports import NETWORK, Path, device_of, transport_of

_EFA_COMMAND = "fi_info -p efa"
#: Environment variables that keep NCCL from a faster transport.
_VARIABLES = {
    "Socket": ("NCCL_IB_DISABLE", "NCCL_IB_HCA", "NCCL_NET", "NCCL_NET_PLUGIN"),
    "IB": ("NCCL_NET_GDR_LEVEL", "NCCL_NET_GDR_READ", "NCCL_IB_CUDA_SUPPORT"),
    "P2P": ("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_CUMEM_ENABLE", "NCCL_SHM_DISABLE"),
    "MNNVL": ("NCCL_MNNVL_ENABLE", "NCCL_CUMEM_ENABLE", "NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_MNNVL_UUID"),
    "device": ("NCCL_IB_HCA", "NCCL_SOCKET_IFNAME", "NCCL_NET", "NCCL_TOPO_FILE", "UCX_NET_DEVICES"),
    "rate": (
        *("NCCL_MAX_NCHANNELS", "NCCL_MAX_P2P_NCHANNELS", "NCCL_MAX_CTAS", "NCCL_BUFFSIZE", "NCCL_P2P_NVL_CHUNKSIZE"),
        *("NCCL_P2P_NET_CHUNKSIZE", "NCCL_IB_HCA", "NCCL_IB_QPS_PER_CONNECTION", "NCCL_NCHANNELS_PER_NET_PEER"),
    ),
}
#: Minimum number of nodes that send over one device of a rail, before another is odd.
_FEWEST_ALIKE = 2
#: Share of the pairs of a node from which the node as a whole is named.
_MOSTLY = 0.9
#: Minimum share of its link limit that is usual in a healthy class: over NVLink or RDMA, and by P2P over PCIe.
_LEAST_SHARE, _LEAST_PCIE = 0.5, 0.3
#: The same for host memory and TCP, which processors limit: below it, a note.
_LEAST_NOTED = 0.2
#: Distance (of logarithms) from the usual value of a class within which a pair stands for it, and number of such pairs.
_USUAL, _SAMPLE = 0.2, 32


#: Which pairs of a part of a table take the slower path, and which could take the faster one.
_Judge = Callable[[slice], tuple[Flags, Flags]]


class TransportRule(Rule[PairContext]):
    """Base of the rules about transports."""

    domain = Domain.PAIRS
    severity = Severity.BAD
    variables: ClassVar[str]  #: Key of the environment variables that cause it.
    commands: ClassVar[tuple[str, ...]]  #: Commands that inspect a node, besides the list of its variables.
    error: ClassVar[str]  #: The entry of the catalogue of errors about the same, which logs show.

    def check(self, context: PairContext) -> Iterator[Finding | None]:
        table, places = context.tally.table, context.tally.places
        if table is None or places is None or not len(table):
            return
        judge = self._judge(context, table, places)
        yield None
        odd, tested = np.empty((2, len(table)), dtype=bool)
        for part in parts(len(table)):
            odd[part], tested[part] = judge(part)
            yield None
        count = np.count_nonzero(odd)
        if not count:
            return
        names = places.nodes
        if count >= _MOSTLY * np.count_nonzero(tested):
            yield (yield from self._finding(context, Subject(Kind.FABRIC, "all nodes"), np.flatnonzero(odd), names))
            return
        left = np.flatnonzero(odd)
        for where, nodes in self._groups(table, places):
            mine = where[left]
            if mine.any() and np.count_nonzero(mine) >= _MOSTLY * np.count_nonzero(where & tested):
                yield (yield from self._finding(context, Subject(Kind.NODES, fold(nodes)), left[mine], nodes))
                left = left[~mine]
            yield None
        # A node all of whose pairs take the slower path explains them.
        tested_of = yield from _per_node(table, places, np.flatnonzero(tested))
        odd_of = yield from _per_node(table, places, left)
        for node in np.flatnonzero((tested_of > 0) & (odd_of >= _MOSTLY * tested_of)).tolist():
            mine = (places.node[table.source[left]] == node) | (places.node[table.target[left]] == node)
            if mine.any():
                yield (yield from self._finding(context, Subject(Kind.NODE, names[node]), left[mine], [names[node]]))
                left = left[~mine]
            yield None
        if len(left):
            named = [names[node] for node in np.flatnonzero((yield from _per_node(table, places, left))).tolist()]
            yield (yield from self._finding(context, Subject(Kind.NODES, fold(named)), left, named))

    def _judge(self, context: PairContext, table: PairTable, places: Places) -> _Judge:
        raise NotImplementedError

    def _groups(self, table: PairTable, places: Places) -> Iterator[tuple[Flags, list[str]]]:
        yield from ()

    def _finding(self, context: PairContext, subject: Subject, odd: Ints, nodes: Sequence[str]) -> Steps[Finding]:
        cells = context.pairs_at(odd)
        yield
        variables = _set_variables(context, nodes, self.variables)
        where = fold(list(nodes)) if subject.kind is not Kind.FABRIC else "all nodes"
        facts: dict[str, Any] = {"where": where, "pairs": len(cells), "variables": variables or None}
        facts |= {"slowest": context.slowest(cells), **self._error_facts(variables)}
        facts |= self._facts(context, nodes)
        command = on_node(nodes[0], "env | grep -E '^(NCCL|UCX)_'", context.model)
        return self.finding(
            subject.name if subject.kind is Kind.NODE else "",
            nodes=nodes,
            cells=cells,
            facts=facts,
            commands=(command, *(on_node(nodes[0], one, context.model) for one in self._commands(context, nodes[0]))),
            blames=subject,
        )

    def _facts(self, context: PairContext, nodes: Sequence[str]) -> dict[str, Any]:
        return {}

    def _commands(self, context: PairContext, node: str) -> tuple[str, ...]:
        """Return the commands that inspect a node; libfabric lists the adapters of AWS, which verbs do not explain."""
        efa = any(map(is_efa, active_ports(listed(context.model.nodes.get(node), "ib"))))
        return (_EFA_COMMAND, *self.commands[1:]) if efa and self.variables == "Socket" else self.commands

    def _error_facts(self, variables: str) -> dict[str, str]:
        return meaning_named(self.error).facts


def _per_node(table: PairTable, places: Places, pairs: Ints) -> Steps[Ints]:
    """Return the number of some pairs at each node; a pair of two nodes counts for both."""
    counts = np.zeros(len(places.nodes), dtype=np.int64)
    for part in parts(len(pairs)):
        source, target = (places.node[end[pairs[part]]] for end in (table.source, table.target))
        for ends in (source, target[source != target]):
            counts += np.bincount(ends, minlength=len(counts))
        yield
    return counts


def _set_variables(context: PairContext, nodes: Sequence[str], key: str) -> str:
    """Return the environment variables of nodes, and those given for the session, that force the slower path."""
    variables: dict[str, None] = {}
    given = context.model.options.get("env")
    for entry in given if isinstance(given, (list, tuple)) else []:
        name = str(entry).partition("=")[0]
        if name in _VARIABLES[key]:
            variables[one_line(f"{entry} (--env)", 120)] = None
    for node in nodes:
        record = context.model.nodes.get(node)
        known = None if record is None else field(record.inventory, "env")
        for name in _VARIABLES[key]:
            if isinstance(known, dict) and name in known:
                variables[one_line(f"{name}={known[name]} on {node}", 120)] = None
    return ", ".join(list(variables)[:3])


@register
class SocketFallback(TransportRule):
    """Pairs between nodes with active RDMA ports use TCP sockets."""

    id = "FT040"
    variables = "Socket"
    commands = ("ibv_devinfo", "ls /dev/infiniband")
    error = "uses-sockets"

    def _judge(self, context: PairContext, table: PairTable, places: Places) -> _Judge:
        ports = [active_ports(listed(context.model.nodes.get(node), "ib")) for node in places.nodes]
        able = np.array(list(map(bool, ports)))[places.node]

        def judge(part: slice) -> tuple[Flags, Flags]:
            tested = (table.kind[part] > 0) & np.isin(table.path[part], NETWORK)
            tested &= able[table.source[part]] & able[table.target[part]]
            return tested & (table.path[part] == Path.TCP), tested

        return judge


@register
class NoGpuDirect(TransportRule):
    """Pairs move data over RDMA through host memory, while others of the fabric use GPUDirect RDMA."""

    id = "FT041"
    variables = "IB"
    commands = ("lsmod | grep -E 'nvidia_peermem|nv_peer_mem'",)
    error = "gpudirect-off"

    def _judge(self, context: PairContext, table: PairTable, places: Places) -> _Judge:
        # Across rails a NIC may be too far from the GPU. Where no pair of a relation has it, that is the setup.
        setup = np.bincount(table.kind[table.path == Path.GPUDIRECT], minlength=len(PAIR_CLASSES)) > 0
        setup[0] = False

        def judge(part: slice) -> tuple[Flags, Flags]:
            tested = setup[table.kind[part]] & np.isin(table.path[part], (Path.RDMA, Path.GPUDIRECT))
            return tested & (table.path[part] == Path.RDMA), tested

        return judge


@register
class NoPeerToPeer(TransportRule):
    """GPUs of a node that NVLink or P2P connects exchange data through host memory or a network."""

    id = "FT042"
    variables = "P2P"
    commands = ("nvidia-smi topo -p2p n",)
    error = "p2p-disabled"

    def _error_facts(self, variables: str) -> dict[str, str]:
        # Without a variable, the hardware or the system is the reason.
        return super()._error_facts(variables) if variables else {}

    def _judge(self, context: PairContext, table: PairTable, places: Places) -> _Judge:
        active = {
            node: {
                str(gpu.get("index"))
                for gpu in probed(context.model.nodes.get(node), "nvlink", "gpus")
                if any(link.get("state") == "active" for link in dicts(gpu.get("links")))
            }
            for node in places.nodes
        }
        connected = np.array([str(end.index) in active[end.node] for end in context.model.endpoints])

        def judge(part: slice) -> tuple[Flags, Flags]:
            tested = (table.kind[part] == SAME_NODE) & np.isin(table.path[part], (Path.P2P, Path.SHM, *NETWORK))
            tested &= connected[table.source[part]] & connected[table.target[part]]
            return tested & (table.path[part] != Path.P2P), tested

        return judge


@register
class NvlinkUnused(TransportRule):
    """GPUs of different nodes use the network, though they are in one NVLink domain (MNNVL, multi-node NVLink)."""

    id = "FT126"
    variables = "MNNVL"
    commands = ("nvidia-imex-ctl -N", "ls /dev/nvidia-caps-imex-channels")
    error = "imex"

    def _error_facts(self, variables: str) -> dict[str, str]:
        return {}

    def _facts(self, context: PairContext, nodes: Sequence[str]) -> dict[str, Any]:
        states: dict[str, list[str]] = {}
        # IMEX of one node is a finding that explains this one.
        for node in nodes if len(nodes) > 1 else ():
            record = context.model.nodes.get(node)
            state = text(field(record.probe_results.get("imex"), "state")) if record is not None else None
            if state is not None and state != "READY":
                states.setdefault(state, []).append(node)
        return {"imex": ", ".join(f"{state} on {fold(named)}" for state, named in states.items()) or None}

    def _groups(self, table: PairTable, places: Places) -> Iterator[tuple[Flags, list[str]]]:
        together = table.kind == SAME_DOMAIN
        for domain in np.unique(places.domain[places.domain >= 0]).tolist():
            nodes = [places.nodes[at] for at in np.unique(places.node[places.domain == domain]).tolist()]
            yield together & (places.domain[table.source] == domain), nodes

    def _judge(self, context: PairContext, table: PairTable, places: Places) -> _Judge:
        def judge(part: slice) -> tuple[Flags, Flags]:
            return without_nvlink(table, part), (table.kind[part] == SAME_DOMAIN) & (table.path[part] != Path.UNKNOWN)

        return judge


@register
class LoginNetwork(Rule[PairContext]):
    """NCCL sends over the interface that SSH came in by, though the nodes have others for data.

    Without a variable, NCCL takes any interface that is up: which pairs use it differs from run to run. Rule FT040 is
    about sockets in place of RDMA.
    """

    id = "FT045"

    def check(self, context: PairContext) -> Iterator[Finding | None]:
        table, places = context.tally.table, context.tally.places
        if table is None or places is None or not len(table):
            return
        sent = yield from _devices_used(context, table, places)
        data = {node: nics for node in places.nodes if (nics := _data_nics(context, node))}
        used, tested, nodes = Counter[str](), 0, dict[str, None]()
        for (node, _), counts in sorted(sent.items()):
            if node in data and not active_ports(listed(context.model.nodes.get(node), "ib")):
                tested += counts.total()
                for device in sorted(counts.keys() & _login_nics(context, node)):
                    used[device] += counts[device]
                    nodes[node] = None
        yield None
        if nodes:
            yield self._found(context, list(nodes), used, tested, data)

    def _found(
        self, context: PairContext, nodes: list[str], used: Counter[str], tested: int, data: dict[str, tuple[str, ...]]
    ) -> Finding:
        everywhere = len(nodes) > len(data) / 2
        nics = Counter(data[node] for node in nodes).most_common(1)[0][0]
        facts: dict[str, Any] = {
            "where": "all nodes" if everywhere else fold(nodes),
            "device": used.most_common(1)[0][0],
            "data": ", ".join(nics),
            "has": "carries" if len(nics) == 1 else "carry",
            "variable": f"NCCL_SOCKET_IFNAME={','.join(nics)}",
            "pairs": used.total(),
            "tested": tested,
            "variables": _set_variables(context, nodes, "device") or None,
        }
        blames = Subject(Kind.FABRIC, "all nodes") if everywhere else None
        command = on_node(nodes[0], "env | grep -E '^(NCCL|UCX)_'", context.model)
        return self.finding(nodes=nodes, facts=facts, commands=[command], blames=blames)


def _login_nics(context: PairContext, node: str) -> set[str]:
    """Return the interfaces that SSH came in by, and that have no RDMA."""
    nics = listed(context.model.nodes.get(node), "nics")
    return {str(nic.get("name")) for nic in nics if nic.get("login") is True and not nic.get("rdma")}


def _data_nics(context: PairContext, node: str) -> tuple[str, ...]:
    """Return the interfaces with an address for data, without those that SSH came in by."""
    names = [str(entry.get("nic")) for entry in listed(context.model.nodes.get(node), "data_addresses")]
    login = _login_nics(context, node)
    return tuple(one_line(name, 40) for name in dict.fromkeys(names) if name not in login)


@register
class OddDevice(Rule[PairContext]):
    """A node sends over a different NIC of a rail from most nodes, though it has the usual one, too.

    Where a node uses both, the library spreads its traffic; that the network of SSH is used is rule FT045.
    """

    id = "FT044"

    def check(self, context: PairContext) -> Iterator[Finding | None]:
        table, places, model = context.tally.table, context.tally.places, context.model
        if table is None or places is None or not len(table):
            return
        devices = {node: _active_devices(context, node) for node in places.nodes}
        yield None
        sent = yield from _devices_used(context, table, places)
        for rail in sorted({rail for _, rail in sent}):
            yield None
            used = {node: count.most_common(1)[0][0] for (node, of), count in sent.items() if of == rail}
            usual, most = Counter(used.values()).most_common(1)[0]
            mixed = any(len(count) > 1 for (_, of), count in sent.items() if of == rail)
            if most < _FEWEST_ALIKE or most <= len(used) / 2 or mixed:
                continue
            for node, device in used.items():
                # Where devices have other names, that is the setup.
                if device != usual and {device, usual} <= devices[node] - _login_nics(context, node):
                    facts = {"node": node, "device": device, "rail": rail, "usual": usual}
                    facts["variables"] = _set_variables(context, [node], "device") or None
                    command = on_node(node, "env | grep -E '^(NCCL|UCX)_'", model)
                    yield self.finding(node, nodes=[node], facts=facts, commands=[command])


def _devices_used(context: PairContext, table: PairTable, places: Places) -> Steps[dict[tuple[str, int], Counter[str]]]:
    """Return how often each node sends over each device on each rail, to other nodes."""
    shapes, shape_of, _ = context.model.results.store.columns()
    device_named = cache(lambda transport: one_line(device_of(transport), 40))
    named = ["" if shape is None else device_named(shape.transport) for shape in shapes]
    names = sorted(set(named))
    number_of = {name: at for at, name in enumerate(names)}
    device = np.array([number_of[name] for name in named])
    yield
    rails = int(places.rail.max(initial=0)) + 1
    end = places.node * rails + places.rail
    counts = np.zeros((int(end.max(initial=0)) + 1) * len(names), dtype=np.int64)
    yield
    for part in parts(len(table)):
        # A lasting view of an array that may still grow would prevent that.
        off = (table.kind[part] > 0) & np.isin(table.path[part], NETWORK)
        code = end[table.source[part][off]] * len(names) + device[np.asarray(shape_of)[table.row[part][off]]]
        counts += np.bincount(code, minlength=len(counts))
        yield
    devices: dict[tuple[str, int], Counter[str]] = {}
    for code in np.flatnonzero(counts).tolist():
        place, name = divmod(code, len(names))
        if names[name]:
            devices.setdefault((places.nodes[place // rails], place % rails), Counter())[names[name]] += int(
                counts[code]
            )
    return devices


def _active_devices(context: PairContext, node: str) -> set[str]:
    record = context.model.nodes.get(node)
    ports = {str(port.get("ca")) for port in active_ports(listed(record, "ib"))}
    return ports | {str(nic.get("name")) for nic in listed(record, "nics") if nic.get("state") == "up"}


class _Sample(NamedTuple):
    """A pair with about the usual value of its class."""

    limit: Limit
    path: int
    measurement: Measurement


@register
class BelowLinkLimit(Rule[PairContext]):
    """The usual value of a class in p2p is far below the theoretical limit of its links, so that no pair stands out.

    Limits come from active NVLinks, PCIe links, RDMA ports and interfaces. SHM, TCP and labs get notes, and so do
    plug-ins that may use several NICs: their limit is the sum of all that are near.
    """

    id = "FT043"

    def check(self, context: PairContext) -> Iterator[Finding | None]:
        samples: dict[ClassKey, list[_Sample]] = {}
        for sample in _usual_pairs(context):
            if sample is not None:
                samples.setdefault(context.model.key_of(sample.measurement), []).append(sample)
            yield None
        for where, inside in (("within nodes", True), ("between nodes", False)):
            mine = {key: findings for key, findings in samples.items() if (key.kind is PairClass.SAME_NODE) is inside}
            # Pairs of different leaf switches, or halves of a node, may be slower by design.
            near = {key: findings for key, findings in mine.items() if not key.apart} or mine
            # So may pairs of different hardware, which is often on different leaf switches.
            alike = {key for key in near if len(set(key.hardware)) == 1} or set(near)
            below = {key: one for key in near if (one := self._below(context, where, key, near[key]))}
            findings = [one for key, one in below.items() if key in alike]
            findings = findings or [one.replace(severity=Severity.NOTE) for one in below.values()]
            yield from sorted(findings, key=lambda one: (one.severity.rank, one.facts["share"]))[:1]

    def _below(self, context: PairContext, where: str, key: ClassKey, samples: list[_Sample]) -> Finding | None:
        """Return the finding of a class, or None if it reaches enough of its limit."""
        model = context.model
        limit, path, m = sorted(samples, key=lambda one: one.limit)[len(samples) // 2]
        values = model.results.values(Layer.P2P, key)
        usual, manner = (values.median if values is not None else None) or 0.0, "usually"
        if values is not None and values.limit(model.results.slow_below) is None:
            # Too few pairs to call one slow, so each counts.
            limit, path, m = min(samples, key=lambda one: (one.measurement.value or 0.0) / one.limit.value)
            usual, manner = m.value or 0.0, "at worst"
        noted = path in (Path.SHM, Path.TCP)
        several = path in (Path.RDMA, Path.GPUDIRECT) and not transport_of(m.transport).one_nic
        given = number(model.options.get("limit_share"))
        least = _LEAST_PCIE if path == Path.P2P and limit.what == PCIE else _LEAST_SHARE
        share = _LEAST_NOTED if noted else least if given is None else min(given, 1.0)
        if not 0 < usual < share * limit.value:
            return None
        nodes = list(dict.fromkeys((node_of(m.src), node_of(m.dst))))
        facts = {"where": where, "share": usual / limit.value, "what": limit.what, "pairs_class": str(key.kind)}
        facts |= {"transport": one_line(m.transport or "", 60), "manner": manner, "usual": usual, "limit": limit.value}
        facts |= {"example": Route(m.src, m.dst, False), "variables": _set_variables(context, nodes, "rate") or None}
        commands = [on_node(nodes[0], f"nvidia-smi {what}", model) for what in ("topo -m", "-q -d PERFORMANCE,CLOCK")]
        severity = Severity.NOTE if noted or several or model.lab is not None else Severity.BAD
        ends = {end for one in samples for end in (one.measurement.src, one.measurement.dst)}
        busy = tuple(Subject(Kind.GPU, end) for end in gpus_in_use(model) if end in ends)
        return self.finding(severity=severity, facts=facts, commands=commands).replace(rivals=busy)


def _usual_pairs(context: PairContext) -> Iterator[_Sample | None]:
    """Yield pairs with a known limit, of each relation and transport: some with about the usual value of their class.

    All pairs of classes that are too small for that.

    None is for a pair without one.
    """
    table, limits = context.tally.table, LinkLimits(context.model)
    if table is None:
        return
    usual_places = []
    for part in parts(len(table)):
        share = table.share[part]
        stands_for_class = (np.abs(share) < _USUAL) | (np.isneginf(table.limit[part]) & ~np.isnan(share))
        usual_places.append(part.start + np.flatnonzero(stands_for_class & (table.path[part] != Path.UNKNOWN)))
        yield None
    usual = np.concatenate(usual_places)
    code = table.kind[usual] * 8 + table.path[usual]
    yield None
    for one in np.flatnonzero(np.bincount(code)):
        mine = usual[code == one]
        for at in mine[:: -(-len(mine) // _SAMPLE)].tolist():
            m = context.model.results.store.get(int(table.row[at]))
            limit = limits.of(m)
            known = limit is not None and limit.exact and (m.bytes or 0) >= LEAST_BYTES
            yield _Sample(limit, int(table.path[at]), m) if known and limit else None
