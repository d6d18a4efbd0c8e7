"""Rules about the mesh of addresses.

An echo that does not come back does not show the direction in which it was lost. Where datagrams were counted at their
destination, these decide which direction is broken. Rules about flows come before those about single packets,
which would take one flow for the state of the pair.
"""

from __future__ import annotations

import ipaddress
import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import islice, permutations
from typing import Any, ClassVar, NamedTuple
from weakref import WeakKeyDictionary

from fabtui.diagnosis.finding import (
    AddressPair,
    Domain,
    Finding,
    Pair,
    Role,
    Severity,
    Steps,
    finished,
    in_steps,
    register,
    register_family,
    rules_of,
)
from fabtui.diagnosis.knowledge import load
from fabtui.diagnosis.knowledge.error_catalogue import error_kind, filled
from fabtui.diagnosis.knowledge.next_commands import on_node
from fabtui.diagnosis.mesh import neighbours as neighbours
from fabtui.diagnosis.mesh.addresses import AddressRule, is_bad
from fabtui.diagnosis.mesh.affected_components import BY_CHANCE, EQUAL_PATHS, SOMETIMES, ComponentKind, Scope
from fabtui.diagnosis.mesh.mesh import DEAD, Flows, Mesh, MeshRule, PathMeasurements, endpoint_pairs, is_blocked, loss
from fabtui.model.facts.node_view import field
from fabtui.model.layers import MESH, Layer
from fabtui.model.measurement import Extra, Verdict
from fabtui.model.session_model import Model
from fabtui.nodeset import fold
from fabtui.sanitize import one_line
from fabtui_node.protocol import ErrorKind

#: Minimum number of flows of a pair that always pass, and of those that never do; of a finding, of the latter.
_FEWEST, _FEWEST_OF_ALL = 2, 3
#: Maximum share of the flows of a pair that pass intermittently: a broken path drops all of a flow, always.
_MOST_UNSTEADY = 0.2

#: Rails of both ends, the lower one first.
_Rails = tuple[int | None, ...]
#: Rules about packets that belong to no connection drop nothing of a new one.
_NOT_NEW = re.compile(
    r"\binvalid\b|\biif(?:name)? \"?lo\b|-i lo\b|\btcp flags\b.* (?:== 0x0|fin\b)|--ctstate (?!.*NEW)\w"
)
_PROTOCOL = re.compile(r"\b(tcp|udp|icmp|icmpv6|ipv6-icmp|sctp)\b")
_PORTS = re.compile(r"(?:dport |--dports? )((?:[<>=!]+ )?(?:\{[^}]*\}|\S+))")
_SOURCES = re.compile(r"(?:\bsaddr |-s )(\{[^}]*\}|[0-9a-fA-F:./-]+)")
_LIMIT = re.compile(r"\blimit rate\b|\bct count\b|\bmeter\b|(?:hash|conn)?limit\b|-m recent\b")
_EPHEMERAL = 1024
#: A round trip is high from this multiple of the usual one of its class on, and from this excess (ms).
_HIGH_RATIO, _HIGH_MS = 10.0, 1.0
#: Options of ping that show a loss of a few percent, and a delay that varies. 0.2 s is the shortest interval for users.
_ECHOES_OF_LOSS, _ECHOES_OF_DELAY = "-q -c 80 -i 0.2", "-c 20 -i 0.2"
#: Maximum number of findings per rule.
_MOST = 24
#: Phases that fill the mesh: until they end, missing looks like lost.
_FILLING = frozenset(["flows", *(f"{layer}{again}" for layer in MESH for again in ("", " again"))])
_CACHE: WeakKeyDictionary[Model, _Cached] = WeakKeyDictionary()


def _drops_flows(flows: Flows | None) -> bool:
    """Return True if some of the flows of a pair always pass and others never do."""
    if flows is None or min(flows.always, flows.never) < _FEWEST:
        return False
    return flows.tried - flows.always - flows.never <= _MOST_UNSTEADY * flows.tried


@register
class CallerFails(MeshRule):
    """A node itself cannot send or connect: it has no free port, no route, too low a limit, or its firewall refuses.

    The number of the error of a call names its side: nothing was sent, so that the other end is not to blame.
    """

    id = "FT212"

    def check(self, mesh: Mesh) -> Iterator[Finding]:
        for (node, code), rows in mesh.unsent.items():
            known = load("next_commands")["caller"].get(str(code), {"why": "cannot send", "next": ["ss -s"]})
            cells = set(rows)
            if known.get("route"):
                # Answers to what others ask take the same route.
                back = ((layer, path.reverse) for layer, path in rows if layer is not Layer.UDP)
                cells |= {(one, path) for one, path in back if _is_bad(mesh, one, path)}
                mesh.clouded |= {one for _, path in rows for one in (path, path.reverse)}
            layer, path = min(rows)
            ends = {"route": f"{shlex.quote(path.dst_addr)} from {shlex.quote(path.src_addr)}"}
            reason = one_line(rows[layer, path].error or "", 120)
            facts = {"node": node, "why": known["why"], "count": len(rows), "reason": reason, "code": code}
            mesh.explained |= cells
            pairs = {pair for _, one in cells for way in (one, one.reverse) for pair in endpoint_pairs(mesh.model, way)}
            if not known.get("route"):
                # What a node lacks, it lacks for every pair.
                own, ends_ = mesh.model.table.of_node(node), mesh.model.endpoints
                pairs |= {(str(a), str(b)) for end in own for other in ends_ for a, b in permutations((end, other))}
            yield self.finding(
                node,
                nodes=(node,),
                cells=(pair for pair in pairs if _fails_in_p2p(mesh.model, pair)),
                facts=facts,
                commands=[on_node(node, filled(command, ends), mesh.model) for command in known["next"]],
                measurements=cells,
                weight=len(cells),
            )


def _is_bad(mesh: Mesh, layer: Layer, path: AddressPair) -> bool:
    m = mesh.paths[path].of(layer) if path in mesh.paths else None
    return m is not None and m.verdict in DEAD


def _fails_in_p2p(model: Model, pair: Pair) -> bool:
    m = model.latest(Layer.P2P, *pair)
    return m is not None and m.verdict in DEAD


@register
class PathDropsFlows(MeshRule):
    """Some source ports between the same addresses always pass, and others never do.

    Switches choose one of several equal paths (ECMP), and bonds one of their members, by a hash of addresses and
    ports: one of these drops what it gets. A single packet or connection shows only the path that it takes.
    """

    id = "FT209"

    def check(self, mesh: Mesh) -> Iterator[Finding]:
        bad = {
            path
            for path, found in mesh.paths.items()
            if path not in mesh.clouded and _drops_flows(found.flows(Layer.UDP))
        }
        for scope in mesh.scopes(bad, how=EQUAL_PATHS):
            counted = [flows for path in scope.pairs if (flows := mesh.paths[path].flows(Layer.UDP)) is not None]
            never = sum(flows.never for flows in counted)
            if never >= _FEWEST_OF_ALL:
                yield self._found(mesh, scope, never, sum(flows.tried for flows in counted))

    def _found(self, mesh: Mesh, scope: Scope, never: int, tried: int) -> Finding:
        """Return a finding about a scope; what else is bad between the same addresses is part of it."""
        hops = Counter(hop for path in scope.pairs if (hop := mesh.paths[path].last_hop) is not None)
        within, hull = _around(mesh, scope)
        steady = [path for path in within if _passes(mesh.paths[path])]
        facts = {
            "never": never,
            "tried": tried,
            "pairs": _unordered(scope.pairs),
            "source_ports": max(flows.tried for path in scope.pairs if (flows := mesh.paths[path].flows(Layer.UDP))),
            "steady": _unordered(steady) or None,
            "hop": one_line(hops.most_common(1)[0][0], 60) if hops else None,
        }
        path = min(scope.pairs)
        # From 16 source ports of this address, which the kernel chooses: some time out. Each is printed as it ends.
        here, there = f'("{path.src_addr}",0)', f'("{path.dst_addr}",22)'
        shown = f'print("lost" if s.connect_ex({there})==11 else "answered",flush=True)'
        made = f"socket.socket(socket.{'AF_INET6' if ':' in path.src_addr else 'AF_INET'})"
        loop = f"for s in [{made} for i in range(16)] if not (s.settimeout(1) or s.bind({here}))"
        words = shlex.quote(f"import socket;[{shown} {loop}]")
        command = on_node(path.src, shlex.quote(f"python3 -c {words}"), mesh.model)
        finding = mesh.finding(self, scope._replace(pairs=hull), MESH, facts, command)
        mesh.clouded |= hull | {path.reverse for path in hull}
        cells = {pair for path in hull for pair in endpoint_pairs(mesh.model, path)}
        return finding.replace(cells=finding.cells | cells)


@register
class SomeConnections(MeshRule):
    """Datagrams and pings pass, and of many TCP connections some are accepted and others are not.

    A limit on new connections does that: a firewall rule, a full connection table, a full queue of a listener.
    """

    id = "FT210"

    def check(self, mesh: Mesh) -> Iterator[Finding]:
        left: set[AddressPair] = set()
        for path, found in mesh.paths.items():
            tcp, flows = found.tcp, found.flows(Layer.TCP)
            if path in mesh.clouded or tcp is None or not tcp.verdict.bad or not mesh.passes_small(path):
                continue
            some = flows is not None and flows.never < flows.tried
            if (some or _is_limited(mesh, path)) and not _loses_datagrams(mesh, path):
                left.add(path)
        # What is blocked on the way to (or from) the same node met the same limit.
        by_node: dict[tuple[str, bool], frozenset[AddressPair]] = defaultdict(frozenset)
        for scope in mesh.scopes(left, how=SOMETIMES):
            into = len(scope.nodes) == 2 or scope.direction != "out"
            node = scope.nodes[-1] if len(scope.nodes) in (1, 2) else min(scope.pairs).dst
            by_node[node, into] |= scope.pairs
        for (node, into), paths in by_node.items():
            yield self._finding(mesh, node, into, paths)

    def _finding(self, mesh: Mesh, node: str, into: bool, paths: frozenset[AddressPair]) -> Finding:
        sources = {path.src for path in paths}
        ends = (node,) if len(sources) > 1 or not into else (*sources, node)
        kind, direction = (
            (ComponentKind.PAIR, "out") if len(ends) == 2 else (ComponentKind.NODE, "in" if into else "out")
        )
        scope = Scope(kind, ends, direction=direction, pairs=paths)
        to = f"from {ends[0]} to {node}" if len(ends) == 2 else f"{'to' if into else 'from'} {node}"
        counted = [flows for path in paths if (flows := mesh.paths[path].flows(Layer.TCP)) is not None]
        seen = dropping_rules(mesh, node, "tcp", {path.src_addr for path in paths}) if into else None
        facts = {
            "to": to,
            "node": node,
            "where": node,
            "passed": sum(2 * flows.always + flows.unsteady for flows in counted) if counted else None,
            "tried": sum(2 * flows.tried for flows in counted),
            "unsteady": sum(flows.unsteady for flows in counted) or None,
            "rules": tuple(f"{node} has the rule: {rule}" for rule in seen or ()) or None,
            "p2p": passes_in_p2p(mesh, paths),
        }
        command = on_node(node, "'sudo nft list ruleset; sysctl net.netfilter.nf_conntrack_count'", mesh.model)
        finding = mesh.finding(self, scope, (Layer.TCP,), facts, command)
        mesh.clouded |= paths
        return finding


def passes_in_p2p(mesh: Mesh, paths: Iterable[AddressPair]) -> bool:
    """Return True if the data of all pairs of endpoints passes that takes some paths."""
    known = False
    for pair in {pair for path in paths for pair in endpoint_pairs(mesh.model, path)}:
        numbers = [mesh.model.table.number(end) for end in pair]
        if numbers[0] is None or numbers[1] is None:
            continue
        m = mesh.model.measured_for(Layer.P2P, numbers[0], numbers[1])
        if m is not None and m.verdict not in (Verdict.OK, Verdict.SLOW):
            return False
        known = known or m is not None
    return known


def firewall_of(mesh: Mesh, node: str) -> object:
    """Return the result of the probe ``firewall`` of a node, or None."""
    record = mesh.model.nodes.get(node)
    return record.probe_results.get("firewall") if record is not None else None


def dropping_rules(mesh: Mesh, node: str, protocol: str, sources: set[str]) -> tuple[str, ...] | None:
    """Return the rules of a node that may drop new traffic from some addresses to ephemeral ports; None if unknown."""
    value = firewall_of(mesh, node)
    listed, policy = field(value, "drops"), field(value, "input")
    # Values of older versions have no list.
    if not isinstance(listed, list):
        listed = []
        if policy != "drop":
            return None
    if policy not in ("accept", "drop"):
        return None
    rules = [one_line(rule, 200) for rule in listed if isinstance(rule, str) and _may_drop(rule, protocol, sources)]
    if policy == "drop" and not rules:
        rules = ["what no rule accepts is dropped"]
    return tuple(rules[:3])


def _is_limited(mesh: Mesh, path: AddressPair) -> bool:
    """Return True if all rules that may drop the connections of a path have a limit."""
    rules = dropping_rules(mesh, path.dst, "tcp", {path.src_addr}) or ()
    return bool(rules) and all(_LIMIT.search(rule) for rule in rules)


def _may_drop(rule: str, protocol: str, sources: set[str]) -> bool:
    rule = rule.partition(" comment ")[0]
    if _NOT_NEW.search(rule):
        return False
    # "reject with tcp reset" names no protocol.
    named = set(_PROTOCOL.findall(re.sub(r"reject with .*|--reject-with .*", "", rule)))
    if named and protocol not in named:
        return False
    ports = _PORTS.search(rule)
    if ports and not re.search("[>!]", ports[1]):
        least = _EPHEMERAL + ("<" in ports[1])
        if not any(int(n) >= least for n in re.findall(r"\d{1,5}", ports[1])):
            return False
    given = _SOURCES.search(rule)
    return given is None or any(_holds(text, sources) for text in re.split(r"[{},\s]+", given[1]) if text)


def _holds(text: str, sources: set[str]) -> bool:
    """Return True if an address, network or range of a rule may hold one of some addresses."""
    try:
        network = ipaddress.ip_network(text, strict=False)
        return any(ipaddress.ip_address(one) in network for one in sources)
    except ValueError:
        return True


def _loses_datagrams(mesh: Mesh, path: AddressPair) -> bool:
    """Return True if datagrams of one flow are lost one way or back: connections fail by chance there."""
    ends = (mesh.paths.get(path), mesh.paths.get(path.reverse))
    return any(found is not None and found.lossy and found.udp and found.udp.verdict is Verdict.SLOW for found in ends)


def _around(mesh: Mesh, scope: Scope) -> tuple[frozenset[AddressPair], frozenset[AddressPair]]:
    """Return the paths within the groups of a scope, and those that may be one of its paths, on the same rails."""
    rails = {_rails(mesh, path) for path in scope.pairs}
    group = {node: at for at, nodes in enumerate(scope.groups) for node in nodes}
    ends = {frozenset((path.src, path.dst)) for path in scope.pairs}
    alike = [path for path in mesh.paths if path not in mesh.clouded and _rails(mesh, path) in rails]
    sides = {path: {group.get(path.src), group.get(path.dst)} for path in alike}
    within = frozenset(path for path, both in sides.items() if len(both) == 1 and None not in both)
    if scope.groups:
        return within, frozenset(path for path, both in sides.items() if len(both) == 2 and None not in both)
    return within, frozenset(path for path in alike if frozenset((path.src, path.dst)) in ends)


def _passes(found: PathMeasurements) -> bool:
    flows = found.flows(Layer.UDP)
    if flows is not None:
        return flows.always == flows.tried
    return found.udp is not None and found.udp.verdict is Verdict.OK


def _rails(mesh: Mesh, path: AddressPair) -> _Rails:
    return tuple(sorted(mesh.rails(path), key=lambda rail: -1 if rail is None else rail))


def _unordered(paths: Iterable[AddressPair]) -> int:
    return len({min(path, path.reverse) for path in paths})


class _InterfaceRule(MeshRule):
    """Base of the rules about interfaces whose nodes report a fault of them."""

    role = Role.REPORTED
    evidence: ClassVar[tuple[str, ...]] = ("{bad} of {count} address pairs at it fail or lose packets",)
    flaps: ClassVar[bool]

    def check(self, mesh: Mesh) -> Iterator[Finding]:
        for seat, fault in mesh.faults.items():
            if bool(fault.flaps) is self.flaps:
                scope = mesh.scope_of(seat)
                nic = shlex.quote(fault.nic)
                facts = {"nic": nic, "changes": fault.flaps, "off": fault.enabled is False, "on": fault.enabled is True}
                command = on_node(seat[0], f"ip -s -s link show {nic}", mesh.model)
                finding = mesh.finding(self, scope, MESH, facts, command)
                bad = len({path for _, path in finding.measurements})
                # A cable that was plugged in again, and whose paths work, is no longer a fault.
                once = fault.once and not bad
                severity = self.severity if bad else Severity.NOTE if once else Severity.WARN
                facts = {**finding.facts, "bad": bad or None, "once": once, "often": not once}
                yield finding.replace(facts=facts, severity=severity)


register_family(_InterfaceRule, {"FT220": {"flaps": True}, "FT221": {"flaps": False}})


@register
class ProbeFailedRule(MeshRule):
    """A probe of the mesh crashed on a node, or did not answer there. This is no evidence about cables."""

    id = "FT222"

    def check(self, mesh: Mesh) -> Iterator[Finding]:
        groups: dict[tuple[str, str, str], set[tuple[Layer, AddressPair]]] = {}
        for path, found in mesh.paths.items():
            for layer in MESH:
                m = found.of(layer)
                extra = (m.extra or {}) if m is not None and m.verdict is Verdict.INCONCLUSIVE else {}
                if isinstance(node := extra.get("probe_failed"), str):
                    probe = "ping" if layer in (Layer.PING, Layer.MTU) else "udp"
                    key = node, probe, one_line(str(extra.get("reason")), 200)
                    groups.setdefault(key, set()).add((layer, path))
        for (node, probe, reason), cells in groups.items():
            fresh = cells - mesh.explained
            mesh.explained |= cells
            facts = {"node": node, "probe": probe, "reason": reason, "count": len(fresh)}
            command = f"fabtui preflight --nodes {shlex.quote(node)}"
            yield self.finding(
                node, nodes=(node,), facts=facts, commands=(command,), measurements=fresh, weight=len(fresh)
            )


@register
class BlockedBetweenGroups(MeshRule):
    """Traffic between groups of nodes fails on a rail while it passes within each group: a path between leaf switches.

    What fails is everything, packets that fill the MTU, TCP, or UDP.
    """

    id = "FT211"

    def check(self, mesh: Mesh) -> Iterator[Finding]:
        for scope in _splits(mesh.dead_scopes):
            facts: dict[str, Any] = {"dead": True, **mesh.udp_errors(scope)}
            yield self._found(mesh, scope, MESH, facts, _ping_command(mesh, scope, []))
            mesh.clouded |= scope.pairs
        for scope in _splits(mesh.mtu_scopes):
            extras = mesh.mtu_extras(scope)
            sizes = _sizes(mesh, scope, extras)
            if _path_mtu(extras) is None:
                # With the headers of IP and ICMP (or UDP).
                header = 48 if any(":" in path.src_addr for path in scope.pairs) else 28
                size, passes = (None if (n := sizes[name]) is None else n + header for name in ("blocked", "passes"))
                facts = {"size": size, "passes": passes, "large": size is None}
                yield self._found(mesh, scope, (Layer.MTU, Layer.UDP), facts, _ping_command(mesh, scope, extras))
        for scope in _splits(mesh.port_scopes):
            tcp = scope.pairs & mesh.refusing
            layer = Layer.TCP if 2 * len(tcp) >= len(scope.pairs) else Layer.UDP
            yield self._found(mesh, scope, (Layer.TCP, Layer.UDP), {str(layer): True}, mesh.route_command(scope))
            mesh.clouded |= scope.pairs

    def _found(self, mesh: Mesh, scope: Scope, layers: Iterable[Layer], facts: dict[str, Any], command: str) -> Finding:
        within, hull = _around(mesh, scope)
        facts |= {"within": bool(within) and not any(is_bad(mesh, path) for path in within)}
        finding = mesh.finding(self, scope, layers, {**facts, "equal_paths": scope.partly}, command)
        if not scope.partly:
            return finding
        # Pairs choose a path by their addresses and ports: those that fail across the border took the bad one.
        pairs = {pair for path in hull for pair in endpoint_pairs(mesh.model, path)}
        return finding.replace(cells=finding.cells | {pair for pair in pairs if _fails_in_p2p(mesh.model, pair)})


def _splits(found: Iterable[Scope]) -> list[Scope]:
    return [scope for scope in found if scope.kind is ComponentKind.SPLIT]


class _DeadScopes(MeshRule):
    """Base of the rules about scopes that pass nothing."""

    message = "{scope:unreachable}"
    evidence = (
        "{scope:usual_cause}",
        "{count} of {total} address pairs pass nothing",
        "{node} reports {interface} {interface_state}[{beyond:flag}: the fault lies beyond it]",
        "no datagrams could be counted, which would show the direction: {udp_error}",
        "{echoes_only:flag}only echo requests were sent, which do not show the direction; --probes udp does",
    )
    both: ClassVar[bool]

    def check(self, mesh: Mesh) -> Iterator[Finding]:
        for scope in mesh.dead_scopes:
            if (scope.direction == "both") is self.both and scope.kind is not ComponentKind.SPLIT:
                facts = {**mesh.interface_state(scope), **mesh.udp_errors(scope)}
                yield mesh.finding(self, scope, MESH, facts, mesh.echo_commands(scope))


register_family(_DeadScopes, {"FT201": {"both": True}, "FT202": {"both": False}})


@register
class IcmpDropped(MeshRule):
    """No echo is answered while UDP datagrams pass in both directions. Jobs are not affected."""

    id = "FT203"

    def check(self, mesh: Mesh) -> Iterator[Finding]:
        bad = []
        for path, found in mesh.paths.items():
            back = mesh.paths.get(path.reverse)
            if found.no_echo and found.small_arrived and back is not None and back.small_arrived:
                bad.append(path)
        for scope in mesh.scopes(bad):
            setting = on_node(min(scope.pairs).dst, "sysctl net.ipv4.icmp_echo_ignore_all", mesh.model)
            yield mesh.finding(self, scope, (Layer.PING,), {}, [setting, *mesh.echo_commands(scope)[:1]])


class _MtuRule(MeshRule):
    """Base of the rules about packets that fill the MTU."""

    role = Role.CAUSE
    evidence = ("{count} of {total} address pairs lose packets that fill the MTU, and pass small ones",)
    silent: ClassVar[bool]  #: Whether no router reports a lower MTU.

    def check(self, mesh: Mesh) -> Iterator[Finding]:
        for scope in mesh.mtu_scopes:
            extras = mesh.mtu_extras(scope)
            mtu = _path_mtu(extras)
            if mtu is None and scope.kind is ComponentKind.SPLIT:
                continue
            if (mtu is None) is self.silent:
                facts = {**_sizes(mesh, scope, extras), "mtu": mtu}
                yield mesh.finding(self, scope, (Layer.MTU, Layer.UDP), facts, _ping_command(mesh, scope, extras))


register_family(_MtuRule, {"FT204": {"silent": True}, "FT205": {"silent": False}})


@register
class OutdatedPathMtu(MeshRule):
    """The kernel of a node remembers a smaller path MTU than the path has now, for ten minutes after it was learned."""

    id = "FT235"

    def check(self, mesh: Mesh) -> Iterator[Finding]:
        by_mtu: dict[int | None, set[AddressPair]] = {}
        for path, found in mesh.paths.items():
            if found.mtu is not None and (found.mtu.extra or {}).get("outdated") is True and path not in mesh.clouded:
                by_mtu.setdefault(_path_mtu([found.mtu.extra or {}]), set()).add(path)
        for mtu, paths in by_mtu.items():
            extras = [m.extra or {} for path in sorted(paths) if (m := mesh.paths[path].mtu) is not None]
            nodes = tuple(node for node in mesh.order if any(path.src == node for path in paths))
            # Several nodes that learned the same value are one finding.
            kind = ComponentKind.NODE if len(nodes) == 1 else ComponentKind.MANY
            scope = Scope(kind, nodes, direction="out", pairs=frozenset(paths))
            facts = {"node": fold(nodes), "mtu": mtu, **_sizes(mesh, scope, extras)}
            commands = [mesh.route_command(scope), on_node(nodes[0], "sudo ip route flush cache", mesh.model)]
            yield mesh.finding(self, scope, (Layer.MTU,), facts, commands)


@register
class Firewall(MeshRule):
    """Pings pass, but ephemeral TCP or UDP ports do not accept traffic. NCCL listens on such ports.

    The node's firewall is named if a rule was seen there, or if connections are refused, as firewalls do.
    """

    id = "FT206"

    def check(self, mesh: Mesh) -> Iterator[Finding]:
        for scope in mesh.port_scopes:
            if scope.kind is not ComponentKind.SPLIT:
                yield self._finding(mesh, *self._side(mesh, scope))

    def _side(self, mesh: Mesh, scope: Scope) -> tuple[Scope, str]:
        """Return a scope with the direction in which packets are lost, and the node whose rules may drop them.

        A connection needs both ways, so that datagrams show the direction, or rules that drop: a firewall belongs to
        the node that receives.
        """
        if scope.kind not in (ComponentKind.PAIR, ComponentKind.NODE, ComponentKind.ADDRESS):
            return scope, ""
        ends = scope.nodes if scope.kind is ComponentKind.PAIR else scope.nodes[:1]
        if len({path.dst_addr for path in mesh.paths if path.dst == ends[0]}) == 1 == len(ends):
            scope = scope._replace(kind=ComponentKind.NODE)
        udp = scope.pairs & mesh.deaf
        if scope.direction == "both" and udp and len(ends) == 1:
            out = sum(path.src == ends[0] for path in udp)
            scope = scope._replace(direction="out" if 2 * out > len(udp) else "in")
        elif scope.direction == "both":
            blocks = [node for node in ends if dropping_rules(mesh, node, "tcp", _sources(scope, node))]
            node = blocks[0] if blocks else ends[-1]
            nodes = tuple(sorted(ends, key=lambda one: one == node))
            scope = scope._replace(direction="out" if len(ends) > 1 else "in", nodes=nodes)
        return scope, "" if scope.direction == "out" and len(ends) == 1 else scope.nodes[-1]

    def _finding(self, mesh: Mesh, scope: Scope, node: str) -> Finding:
        into = [path for path in scope.pairs & mesh.refusing if node in ("", path.dst)]
        rows = [m for path in into if (m := mesh.paths[path].tcp) is not None]
        counted = {"TCP": scope.pairs & mesh.refusing, "UDP": scope.pairs & mesh.deaf}
        names = [name for name, bad in counted.items() if 2 * len(bad) >= len(scope.pairs)]
        protocols = " and ".join(names) or "TCP"
        # Echoes are answered, so that a refusal comes from somebody on the path.
        # Recordings of fabtui 0.1.0 have no kind.
        kinds = [(error_kind(m), m.error or "") for m in rows]
        refused = protocols == "TCP" and all(
            "refused" in text if kind is None else kind == ErrorKind.CONNECTION_REFUSED.value for kind, text in kinds
        )
        errors = Counter(m.error for m in rows if m.error)
        rules = dropping_rules(mesh, node, protocols[:3].lower(), _sources(scope, node)) if node else None
        passes = "TCP" in protocols and passes_in_p2p(mesh, scope.pairs)
        known = bool(node) and (refused or bool(rules and not passes))
        silent = bool(node) and not known
        facts = {
            "node": node,
            "action": ("refuses" if refused else "blocks") if known else None,
            "silent": node if silent and "TCP" in protocols else None,
            "deaf": node if silent and "TCP" not in protocols else None,
            "sender": not node and scope.direction == "out",
            "wide": not node and scope.direction != "out",
            "protocols": protocols,
            "rules": tuple(f"{node} has the rule: {rule}" for rule in rules or ()) or None,
            "unread": rules is None and silent,
            "unruled": rules == () and silent,
            "why": one_line(str(field(firewall_of(mesh, node), "why") or "its rules were not read"), 120),
            "p2p": passes,
            "tcp_errors": tuple(text for text, _ in errors.most_common(2)) or None,
        }
        commands = [on_node(node or min(scope.pairs).dst, "sudo nft list ruleset", mesh.model)]
        if facts["sender"]:
            commands = [*_checksum_commands(mesh, scope), on_node(scope.nodes[0], "sudo nft list ruleset", mesh.model)]
        finding = mesh.finding(self, scope, (Layer.TCP, Layer.UDP), facts, commands)
        cells = {pair for path in scope.pairs & mesh.refusing for pair in endpoint_pairs(mesh.model, path.reverse)}
        if node and known and scope.kind is ComponentKind.NODE:
            # Connections within the node meet the same rules.
            cells |= set(permutations(map(str, mesh.model.table.of_node(node)), 2))
        cells = {pair for pair in cells if _fails_in_p2p(mesh.model, pair)}
        return finding.replace(cells=finding.cells | cells, severity=Severity.WARN if passes else finding.severity)


def _sources(scope: Scope, node: str) -> set[str]:
    return {path.src_addr if path.dst == node else path.dst_addr for path in scope.pairs}


def _checksum_commands(mesh: Mesh, scope: Scope) -> list[str]:
    """Return commands about an interface whose TCP and UDP do not arrive, and about checksums that receivers count."""
    node, path = scope.nodes[0], min(path for path in scope.pairs if path.src == scope.nodes[0])
    nic = shlex.quote(one_line(mesh.model.addresses.seat(node, scope.address or path.src_addr).nic, 40))
    counted = on_node(path.dst, "nstat -asz UdpInCsumErrors TcpInCsumErrors", mesh.model)
    return [counted, on_node(node, f"ethtool -k {nic}", mesh.model)]


@register
class PacketLoss(MeshRule):
    """Some packets are lost, but not all."""

    id = "FT207"

    def check(self, mesh: Mesh) -> Iterator[Finding]:
        paths = [(path, found) for path, found in mesh.paths.items() if path not in mesh.clouded]
        one_way = {p for p, found in paths if found.udp and found.udp.verdict is Verdict.SLOW}
        lossy = mesh.scopes(one_way, how=BY_CHANCE)
        # An echo is lost with either direction.
        sure = {one for scope in lossy for path in scope.pairs for one in (path, path.reverse)}
        echoes = {p for p, found in paths if found.lossy} - sure - mesh.dead
        for scope in [*lossy, *mesh.scopes(echoes, how=BY_CHANCE)]:
            shares = [share for path in scope.pairs if (share := loss(mesh, path)) is not None]
            facts = {
                "loss": (min(shares, default=0.0), max(shares, default=0.0)),
                "lossy": len(scope.pairs & (one_way | echoes)),
            }
            yield mesh.finding(self, scope, MESH, facts, mesh.echo_commands(scope, _ECHOES_OF_LOSS))


@register
class HighRoundTrip(MeshRule):
    """Pings take far longer than is usual in their class."""

    id = "FT208"

    def check(self, mesh: Mesh) -> Iterator[Finding]:
        slow: dict[AddressPair, tuple[float, float]] = {}
        for path, found in mesh.paths.items():
            m = found.ping
            if m is None or m.value is None or m.verdict is not Verdict.OK:
                continue
            usual = mesh.model.usual(m)
            # The fastest echo counts: a busy node delays single ones.
            least = (m.extra or {}).get("rtt_min")
            took = float(least) if isinstance(least, (int, float)) else m.value
            if usual is not None and took > max(_HIGH_RATIO * usual, usual + _HIGH_MS):
                slow[path] = (took, usual)
        for scope in mesh.scopes(slow, [path for path, found in mesh.paths.items() if found.echo]):
            worst, usual = max(slow[path] for path in scope.pairs)
            facts = {"worst": worst, "median": usual}
            yield mesh.finding(self, scope, (), facts, mesh.echo_commands(scope, _ECHOES_OF_DELAY))


def mesh_findings(model: Model) -> list[Finding]:
    """Return the findings about addresses, the most serious first; none if nothing was tested."""
    return finished(mesh_findings_in_steps(model))


def mesh_findings_in_steps(model: Model) -> Steps[list[Finding]]:
    """Return `mesh_findings`; yield after each rule."""
    mesh = Mesh(model)
    findings: list[Finding] = []
    for rule in rules_of(Domain.MESH):
        yield
        findings += islice(filter(None, rule.check(mesh)), _MOST)
    return findings


class _Cached(NamedTuple):
    version: int
    findings: list[Finding]
    blocked: frozenset[Pair]


def settled_mesh_findings(model: Model) -> Steps[list[Finding]]:
    """Return the findings about addresses; while the mesh is being filled, those found before."""
    return (yield from _cached(model)).findings


def blocked_pairs(model: Model) -> frozenset[Pair]:
    """Return the pairs of endpoints between whose addresses nothing passes, or no TCP, or nothing large."""
    return finished(_cached(model)).blocked


def _cached(model: Model) -> Steps[_Cached]:
    known = _CACHE.get(model, _Cached(-1, [], frozenset()))
    if model.phase.name in _FILLING or known.version == model.addresses.version:
        return known
    version = model.addresses.version
    findings = yield from mesh_findings_in_steps(model)
    blocked: set[Pair] = set()
    for some in in_steps(path for finding in findings for path in _blocked_paths(finding)):
        blocked.update(pair for path in some for pair in endpoint_pairs(model, path))
        yield
    known = _CACHE[model] = _Cached(version, findings, frozenset(blocked))
    return known


def _blocked_paths(finding: Finding) -> set[AddressPair]:
    if isinstance(finding.rule, (AddressRule, _DeadScopes)) or finding.rule.id in ("FT204", "FT221"):
        return {path for _, path in finding.measurements}
    if isinstance(finding.rule, BlockedBetweenGroups) and not finding.facts.get("udp"):
        return {path for _, path in finding.measurements}
    if isinstance(finding.rule, (PathDropsFlows, CallerFails)):
        return {path for layer, path in finding.measurements if layer in (Layer.UDP, Layer.TCP)}
    return {path for layer, path in finding.measurements if isinstance(finding.rule, Firewall) and layer is Layer.TCP}


def _path_mtu(extras: list[Extra]) -> int | None:
    values = [extra.get("path_mtu") for extra in extras]
    narrow = Counter(value for value in values if isinstance(value, (int, float)) and value > 0)
    return round(narrow.most_common(1)[0][0]) if narrow else None


def _sizes(mesh: Mesh, scope: Scope, extras: list[Extra]) -> dict[str, int | None]:
    sizes = [size for extra in extras if isinstance(size := extra.get("payload"), int)]
    datagrams = [udp for path in sorted(scope.pairs) if (udp := mesh.paths[path].udp) is not None]
    sizes += [size for udp in datagrams if isinstance(size := (udp.extra or {}).get("payload"), int)]
    passes = [size for extra in extras if isinstance(size := extra.get("passes"), int)]
    return {"blocked": min(sizes, default=None), "passes": min(passes) if sizes and passes else None}


def _ping_command(mesh: Mesh, scope: Scope, extras: list[Extra]) -> str:
    # Datagrams may take another of several paths than echoes.
    path = min(scope.pairs, key=lambda one: ((m := mesh.paths[one].mtu) is None or not is_blocked(m), one))
    ends = f"{shlex.quote(path.src_addr)} {shlex.quote(path.dst_addr)}"
    if not extras:
        return on_node(path.src, f"ping -c 3 -I {ends}", mesh.model)
    payload = next((value for extra in extras if (value := extra.get("payload"))), None)
    if payload is None:
        return ""
    return on_node(path.src, f"ping -M do -s {payload} -c 3 -I {ends}", mesh.model)
