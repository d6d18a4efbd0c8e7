"""Rules about flows: pairs of addresses between which some source ports pass, and others do not.

They are checked before the rules about single packets, which would take one flow for the state of the pair.
"""

from __future__ import annotations

import ipaddress
import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from fabtui.diagnosis.finding import AddressPair, Finding, register
from fabtui.diagnosis.knowledge.next_commands import on_node
from fabtui.diagnosis.mesh.affected_components import ComponentKind, Scope
from fabtui.diagnosis.mesh.mesh import DEAD, Flows, Mesh, MeshRule, PathMeasurements, endpoint_pairs
from fabtui.model.facts.node_view import field
from fabtui.model.layers import MESH, Layer
from fabtui.model.measurement import Verdict
from fabtui.sanitize import one_line

#: Minimum number of flows of a pair that always pass, and of those that never do; of a finding, of the latter.
_FEWEST, _FEWEST_OF_ALL = 2, 3
#: Maximum share of the flows of a pair that pass now and then: a broken path drops all of a flow, always.
_MOST_UNSTEADY = 0.2
#: Loss (%) of packets of one flow at which connections fail by chance.
MUCH_LOSS = 10.0

#: Rails of both ends, the lower one first.
_Rails = tuple[int | None, ...]


def _drops_flows(flows: Flows | None) -> bool:
    """Return True if some of the flows of a pair always pass and others never do."""
    if flows is None or min(flows.always, flows.never) < _FEWEST:
        return False
    return flows.tried - flows.always - flows.never <= _MOST_UNSTEADY * flows.tried


@register
class PathDropsFlows(MeshRule):
    """Some source ports between the same addresses always pass, and others never do.

    Switches choose one of several equal paths (ECMP), and bonds one of their members, by a hash of addresses and
    ports: one of these drops what it gets. A single packet or connection shows only the path that it takes.
    """

    id = "FT209"
    name = "path-drops-flows"
    title = "One of several equal paths drops packets"
    message = "{never} of {tried} flows {scope:between} never pass: one of several equal paths drops"
    evidence = (
        "{pairs:count_address pair}, {source_ports} source ports each, in rounds 2 s apart: the same ports fail",
        "{steady:count_address pair} within the groups pass with all ports",
        "{hop} is the last router that answers for a flow that is lost",
        "pings, datagrams and connections that fail there took this path",
    )
    next_step = "Take the next hops or the members of the bond out one by one, and look at their counters."

    def check(self, mesh: Mesh) -> Iterator[Finding]:
        bad = {
            path
            for path, found in mesh.paths.items()
            if path not in mesh.clouded and _drops_flows(found.flows(Layer.UDP))
        }
        for scope in mesh.scopes(bad, _tested(mesh, bad)) if bad else ():
            counted = [flows for path in scope.pairs if (flows := mesh.paths[path].flows(Layer.UDP)) is not None]
            never = sum(flows.never for flows in counted)
            if never >= _FEWEST_OF_ALL:
                yield self._found(mesh, scope, never, sum(flows.tried for flows in counted))

    def _found(self, mesh: Mesh, scope: Scope, never: int, tried: int) -> Finding:
        """Return a finding about a scope; what else is bad between the same addresses is part of it."""
        hops = Counter(hop for path in scope.pairs if (hop := mesh.paths[path].last_hop) is not None)
        rails = {_rails(mesh, path) for path in scope.pairs}
        group = {node: at for at, nodes in enumerate(scope.groups) for node in nodes}
        ends = {frozenset((path.src, path.dst)) for path in scope.pairs}

        def is_across(path: AddressPair) -> bool:
            """Return True if a path may be one of the equal paths."""
            if _rails(mesh, path) not in rails:
                return False
            if scope.groups and {path.src, path.dst} <= group.keys():
                return group[path.src] != group[path.dst]
            return frozenset((path.src, path.dst)) in ends

        hull = {path for path in mesh.paths if path not in mesh.clouded and is_across(path)}
        steady = [
            path
            for path, found in mesh.paths.items()
            if _rails(mesh, path) in rails
            and {path.src, path.dst} <= group.keys()
            and path not in hull
            and _passes(found)
        ]
        facts = {
            "never": never,
            "tried": tried,
            "pairs": _unordered(scope.pairs),
            "source_ports": max(flows.tried for path in scope.pairs if (flows := mesh.paths[path].flows(Layer.UDP))),
            "steady": _unordered(steady) or None,
            "hop": one_line(hops.most_common(1)[0][0], 60) if hops else None,
        }
        command = _many_connections(mesh, min(scope.pairs))
        found = mesh.finding(self, scope._replace(pairs=frozenset(hull)), MESH, facts, command)
        mesh.clouded |= hull | {path.reverse for path in hull}
        cells = {pair for path in hull for pair in endpoint_pairs(mesh.model, path)}
        return found.replace(cells=found.cells | cells)


@register
class SomeConnections(MeshRule):
    """Datagrams and pings pass, and of many TCP connections some are accepted and others are not.

    A limit of new connections does that: a firewall rule, a full table of connections, a full queue of a listener.
    """

    id = "FT210"
    name = "some-connections"
    title = "Only some connections pass"
    message = "only some connections {to} pass"
    evidence = (
        "{passed} of {tried} connections were accepted, while pings and datagrams pass",
        "{unsteady} of the source ports pass at one time and not at another",
        "{rules:lines}",
        "{p2p:flag}the pairs pass in p2p, where connections are tried again; many ranks that start at once may fail",
        "usual cause: a limit of new connections, in a firewall or in the table of connections of {where}",
    )
    next_step = "Look for limits in the firewall of the node, and for a full table of connections."

    def check(self, mesh: Mesh) -> Iterator[Finding]:
        left: set[AddressPair] = set()
        for path, found in mesh.paths.items():
            tcp, flows = found.tcp, found.flows(Layer.TCP)
            if path in mesh.clouded or tcp is None or not tcp.verdict.bad or not mesh.passes_small(path):
                continue
            some = flows is not None and flows.never < flows.tried
            if (some or _is_limited(mesh, path)) and not _loses_datagrams(mesh, path):
                left.add(path)
        while left:
            to, nodes, paths = _largest(left)
            # What is blocked from the same side met the same limit.
            more = {
                path
                for path, found in mesh.paths.items()
                if path not in mesh.clouded
                and found.tcp is not None
                and found.tcp.verdict in (*DEAD, Verdict.SLOW)
                and all(getattr(path, side) == node for side, node in nodes.items())
            }
            yield self._finding(mesh, to, nodes, paths | more)
            left -= paths

    def _finding(self, mesh: Mesh, to: str, nodes: dict[str, str], paths: set[AddressPair]) -> Finding:
        node = nodes.get("dst") or nodes["src"]
        counted = [flows for path in paths if (flows := mesh.paths[path].flows(Layer.TCP)) is not None]
        ends = tuple(dict.fromkeys(nodes[side] for side in ("src", "dst") if side in nodes))
        kind, direction = (ComponentKind.PAIR, "out") if len(ends) > 1 else (ComponentKind.NODE, "in")
        direction = direction if "dst" in nodes else "out"
        scope = Scope(kind, ends, direction=direction, pairs=frozenset(paths))
        seen = dropping_rules(mesh, node, "tcp", {path.src_addr for path in paths}) if "dst" in nodes else None
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
        found = mesh.finding(self, scope, (Layer.TCP,), facts, command)
        mesh.clouded |= paths
        return found


def _largest(left: set[AddressPair]) -> tuple[str, dict[str, str], set[AddressPair]]:
    """Return the node into which (or from which) most bad pairs of several others go, or else two nodes."""
    best: tuple[int, str, dict[str, str], set[AddressPair]] | None = None
    for side, other, word in (("dst", "src", "to"), ("src", "dst", "from")):
        groups: dict[str, set[AddressPair]] = defaultdict(set)
        for path in left:
            groups[getattr(path, side)].add(path)
        for node, paths in groups.items():
            several = len({getattr(path, other) for path in paths}) > 1
            if several and (best is None or len(paths) > best[0]):
                best = len(paths), f"{word} {node}", {side: node}, paths
    if best is not None:
        return best[1:]
    first = min(left)
    paths = {path for path in left if (path.src, path.dst) == (first.src, first.dst)}
    return f"from {first.src} to {first.dst}", {"src": first.src, "dst": first.dst}, paths


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


#: Rules about packets that belong to no connection drop nothing of a new one.
_NOT_NEW = re.compile(
    r"\binvalid\b|\biif(?:name)? \"?lo\b|-i lo\b|\btcp flags\b.* (?:== 0x0|fin\b)|--ctstate (?!.*NEW)\w"
)
_PROTOCOL = re.compile(r"\b(tcp|udp|icmp|icmpv6|ipv6-icmp|sctp)\b")
_PORTS = re.compile(r"(?:dport |--dports? )((?:[<>=!]+ )?(?:\{[^}]*\}|\S+))")
_SOURCES = re.compile(r"(?:\bsaddr |-s )(\{[^}]*\}|[0-9a-fA-F:./-]+)")
_LIMIT = re.compile(r"\blimit rate\b|\bct count\b|\bmeter\b|(?:hash|conn)?limit\b|-m recent\b")
_EPHEMERAL = 1024


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
    found = [one_line(rule, 200) for rule in listed if isinstance(rule, str) and _may_drop(rule, protocol, sources)]
    if policy == "drop" and not found:
        found = ["what no rule accepts is dropped"]
    return tuple(found[:3])


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


def loss(mesh: Mesh, path: AddressPair) -> float | None:
    """Return the share (%) of the packets of one flow that are lost; None if none or all are."""
    found = mesh.paths.get(path)
    if found is None or not found.lossy:
        return None
    if found.udp is not None and found.udp.verdict is Verdict.SLOW:
        return found.udp.value
    shares = [(m.extra or {}).get("loss") for m in (found.ping, found.mtu) if m is not None]
    known = [share for share in shares if isinstance(share, (int, float)) and share > 0]
    return float(max(known)) if known else None


def _passes(found: PathMeasurements) -> bool:
    flows = found.flows(Layer.UDP)
    if flows is not None:
        return flows.always == flows.tried
    return found.udp is not None and found.udp.verdict is Verdict.OK


def _tested(mesh: Mesh, bad: set[AddressPair]) -> set[AddressPair]:
    """Return the paths that are evidence about groups of nodes between which flows are lost.

    Of a large fabric only a sample has several flows. A path with one flow shows that nodes of one side reach each
    other, and nothing about nodes of different sides.
    """
    peers: dict[str, set[str]] = defaultdict(set)
    for path in bad:
        peers[path.src].add(path.dst)
        peers[path.dst].add(path.src)
    side: dict[str, int] = {}
    for first in peers:
        waiting = [] if first in side else [first]
        side.setdefault(first, 0)
        while waiting:
            node = waiting.pop()
            fresh = peers[node] - side.keys()
            side.update(dict.fromkeys(fresh, 1 - side[node]))
            waiting += fresh
    rails = {_rails(mesh, path) for path in bad}
    return {
        path
        for path, found in mesh.paths.items()
        if found.flows(Layer.UDP) is not None
        or _rails(mesh, path) not in rails
        or side.get(path.src) == side.get(path.dst)
    }


def _rails(mesh: Mesh, path: AddressPair) -> _Rails:
    return tuple(sorted(mesh.rails(path), key=lambda rail: -1 if rail is None else rail))


def _unordered(paths: Iterable[AddressPair]) -> int:
    return len({min(path, path.reverse) for path in paths})


def _many_connections(mesh: Mesh, path: AddressPair) -> str:
    """Return a command that connects from 16 source ports, which the kernel chooses: some time out."""
    each = f"timeout 2 bash -c '</dev/tcp/{path.dst_addr}/22' 2>/dev/null; [ $? = 124 ] && echo lost || echo answered"
    return on_node(path.src, shlex.quote(f"for i in $(seq 16); do {each}; done | sort | uniq -c"), mesh.model)
