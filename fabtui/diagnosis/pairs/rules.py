"""Rules about pairs of endpoints.

They are checked in the order of this file, the largest causes first. A pair that one finding explains is not explained
again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from fabtui.diagnosis.finding import Finding, Pair, Route, Rule, Severity, register
from fabtui.diagnosis.knowledge.next_commands import (
    nic_commands,
    node_commands,
    pair_commands,
    path_commands,
    within_commands,
)
from fabtui.diagnosis.mesh.rules import blocked_pairs
from fabtui.diagnosis.pairs.context import FEWEST, PairContext, crosses_nodes, node_of
from fabtui.diagnosis.pairs.tally import DEAD, Tally, rail_of
from fabtui.model.endpoints import WITHIN_RAIL, PairClass
from fabtui.model.exit_codes import untested_reasons
from fabtui.model.layers import Layer
from fabtui.model.measurement import Verdict
from fabtui.nodeset import fold
from fabtui.sanitize import one_line

#: Fewer dead pairs than this are reported one by one.
_FEWEST_OF_SCOPE = 4
#: Maximum number of single pairs with the same error that are reported one by one.
_MOST_SINGLE = 4
_MOST_REASONS = 4
_MOST_SPREADS = 2
#: Weight that puts a lost node before everything else.
_FIRST = 1 << 30

_PairRule = Rule[PairContext]


@register
class NodeLost(_PairRule):
    """A node could not be reached, or was lost during the session. It explains all its failed pairs."""

    id = "FT001"
    name = "node-lost"
    title = "Node lost or not reachable"
    message = "{node} {state}"
    evidence = ("{reason}",)
    next_step = "Run the command of the hint, usually ssh to the node."

    def check(self, context: PairContext) -> Iterator[Finding]:
        for record in context.model.nodes.values():
            if not record.state.gone:
                continue
            mine = [p for p in context.unexplained if record.name in (node_of(p[0]), node_of(p[1]))]
            mine = [pair for pair in mine if context.unexplained[pair] in DEAD]
            for pair in mine:
                context.unexplained.pop(pair)
            # Results that the pairs had in other layers before the node was lost are no evidence.
            yield self.finding(
                record.name,
                nodes=(record.name,),
                cells=mine,
                facts={"node": record.name, "state": str(record.state), "reason": record.text},
                commands=(one_line(record.hint, 300),) if record.hint else (),
                weight=_FIRST,
            )


@register
class AllPairsFail(_PairRule):
    """Every tested pair fails, so no endpoint can be blamed."""

    id = "FT002"
    name = "all-pairs-fail"
    title = "All pairs fail"
    message = "all {pairs} pairs fail: check what they have in common"
    next_step = "Check the interface, library and environment that all ranks use."

    def check(self, context: PairContext) -> Iterator[Finding]:
        if not _all_dead(context.tally):
            return
        dead = {pair for pair, verdict in context.unexplained.items() if verdict in DEAD}
        if len(dead) >= _FEWEST_OF_SCOPE:
            yield context.explain(self, "", dead, error=context.error(dead), commands=context.first_commands(dead))


@register
class NodeDead(_PairRule):
    """All endpoints of a node fail with all others, including those on the node itself."""

    id = "FT003"
    name = "node-dead"
    title = "All pairs of a node fail"
    message = "all pairs of {node} fail, including those within the node"
    next_step = "Check the GPUs, the driver and the processes of the node."

    def check(self, context: PairContext) -> Iterator[Finding]:
        if _all_dead(context.tally):
            return
        for node in _dead_nodes(context.tally):
            dead = {pair for pair, verdict in context.unexplained.items() if verdict in DEAD}
            cells = {pair for pair in dead if node in (node_of(pair[0]), node_of(pair[1]))}
            if len(cells) >= _FEWEST_OF_SCOPE:
                yield context.explain(
                    self,
                    node,
                    cells,
                    facts={"node": node},
                    error=context.error(cells),
                    commands=node_commands(context.model, node),
                    nodes=(node,),
                )


@register
class RailIsolated(_PairRule):
    """All pairs across rails fail while pairs within rails work: the fabric has no path between rails."""

    id = "FT010"
    name = "rail-isolated"
    title = "Rails have no path to each other"
    message = "rail-isolated fabric"
    evidence = (
        "all {across} pairs across rails fail, all {within} pairs within a rail pass",
        "all {across_rails} pairs across rails fail; some pairs within rails pass",
    )
    next_step = "Add routes between rails, or keep NCCL within rails (PXN, NCCL_CROSS_NIC=0)."

    def check(self, context: PairContext) -> Iterator[Finding]:
        found = isolated_pairs(context)
        facts = {"across": len(found), "within": sum(context.tally.of_class[kind] for kind in WITHIN_RAIL)}
        if not found:
            nodes, cells = _blocked_between_nodes(context)
            if nodes != context.tally.across.keys():
                return
            found, facts = list(cells), {"across_rails": len(cells)}
        if found:
            yield context.explain(self, "", found, facts=facts, commands=context.first_commands(found))


@register
class RailsBlockedByNode(_PairRule):
    """Pairs across rails fail between certain nodes, which reach each other within rails."""

    id = "FT011"
    name = "rails-blocked-nodes"
    title = "No traffic across rails between certain nodes"
    message = "no traffic across rails[ among {among}][ from {source} to {destination}]"
    evidence = ("these nodes reach each other within rails",)
    next_step = "Compare routes between rails of these nodes with those of the others."

    def check(self, context: PairContext) -> Iterator[Finding]:
        nodes, cells = _blocked_between_nodes(context)
        if cells and not isolated_pairs(context):
            order = list(context.model.nodes)
            ends = [fold(sorted({pair[side] for pair in nodes}, key=order.index)) for side in (0, 1)]
            same = ends[0] == ends[1]
            facts = {"among": ends[0]} if same else {"source": ends[0], "destination": ends[1]}
            yield context.explain(self, "", cells, facts=facts, commands=context.first_commands(cells))


@register
class RailsBlocked(_PairRule):
    """All pairs between two rails fail on every node, while their endpoints work within the rails."""

    id = "FT012"
    name = "rails-blocked"
    title = "No traffic between two rails"
    message = "no traffic {rails:rails}"
    evidence = ("on all nodes; within their rails, all these endpoints reach others",)
    next_step = "Check the route between the two rails on the switches."

    def check(self, context: PairContext) -> Iterator[Finding]:
        if isolated_pairs(context):
            return
        tally = context.tally
        by_rails: dict[tuple[int, int], set[Pair]] = defaultdict(set)
        for pair in _dead_across(context):
            by_rails[rail_of(context.model, pair[0]), rail_of(context.model, pair[1])].add(pair)
        whole = {
            rails
            for rails, pairs in by_rails.items()
            if len(pairs) >= _FEWEST_OF_SCOPE
            and tally.lanes[rails][0] == tally.lanes[rails][1]
            and all(end in tally.alive for pair in pairs for end in pair)
        }
        for rails in sorted(whole):
            both = rails[::-1] in whole
            if both and rails > rails[::-1]:
                continue
            cells = by_rails[rails] | (by_rails[rails[::-1]] if both else set())
            facts = {"rails": Route(*rails, both)}
            yield context.explain(self, "", cells, facts=facts, commands=context.first_commands(cells))


@register
class NodeUnreachable(_PairRule):
    """All endpoints of a node fail with all other nodes, while the node works within itself."""

    id = "FT013"
    name = "node-unreachable"
    title = "Node reaches no other node"
    message = "{node} reaches no other node"
    next_step = "Check the network interfaces, routes and firewall of the node."

    def check(self, context: PairContext) -> Iterator[Finding]:
        for record in list(context.model.nodes.values()):
            ends = [str(e) for e in context.model.endpoints_of(record.name) if context.tally.tested[str(e), True]]
            if len(ends) < 2 or len(context.model.nodes) < 3 or not all(map(context.dead_off_node, ends)):
                continue
            if cells := context.off_node_cells(ends):
                yield context.explain(
                    self,
                    record.name,
                    cells,
                    facts={"node": record.name},
                    error=context.error(cells),
                    commands=context.first_commands(cells),
                    nodes=(record.name,),
                )


@register
class EndpointFails(_PairRule):
    """An endpoint fails with all others, or with all endpoints of other nodes."""

    id = "FT014"
    name = "endpoint-fails"
    title = "Endpoint fails with all others, or with all other nodes"
    message = (
        "{endpoint}[ fails with all {others} others: check {part}]"
        "[{off_node:flag} reaches no other node: check its NIC][ {nic}]"
    )
    next_step = "Check the GPU and its process; if it works within its node, check its NIC."

    def check(self, context: PairContext) -> Iterator[Finding]:
        for endpoint in context.endpoints_by_blame():
            name = str(endpoint)
            cells = {pair for pair in context.bad_pairs_of.get(name, ()) if context.unexplained.get(pair) in DEAD}
            if len(cells) < FEWEST:
                continue
            dead, tested = context.tally.dead, context.tally.tested
            everywhere = dead[name, False] + dead[name, True] == tested[name, False] + tested[name, True]
            if everywhere and tested[name, False]:
                others = len({end for pair in context.bad_pairs_of[name] for end in pair}) - 1
                part = "the GPU" if endpoint.kind == "gpu" else "its process"
                facts = {"endpoint": name, "others": others, "part": part}
                commands = within_commands(context.model, endpoint)[1:]
            elif context.dead_off_node(name) and any(map(crosses_nodes, cells)):
                cells = {pair for pair in cells if crosses_nodes(pair)}
                facts = {"endpoint": name, "off_node": True, "nic": endpoint.nic}
                commands = nic_commands(context.model, endpoint)
            else:
                continue
            yield context.explain(
                self,
                name,
                cells,
                facts=facts,
                error=context.error(cells),
                commands=commands,
                nodes=(endpoint.node,),
            )


@register
class NodePairBlocked(_PairRule):
    """All pairs between two nodes fail, in one direction or both."""

    id = "FT015"
    name = "node-pair-blocked"
    title = "No traffic between two nodes"
    message = "no traffic {route}"
    evidence = (
        "{pings_answered:flag}all pings between them are answered: check firewall, interface, GID and MTU",
        "{lost_pings} of {pings} address pairs answer no ping",
    )
    next_step = "Check route and firewall between the two nodes."

    def check(self, context: PairContext) -> Iterator[Finding]:
        by_nodes: dict[Pair, set[Pair]] = defaultdict(set)
        for pair, verdict in context.unexplained.items():
            if verdict in DEAD and crosses_nodes(pair):
                by_nodes[node_of(pair[0]), node_of(pair[1])].add(pair)
        between = context.tally.between
        whole = {n for n, cells in by_nodes.items() if len(cells) > 1 and between[n][0] == between[n][1]}
        for nodes in sorted(whole):
            both = nodes[::-1] in whole
            if both and nodes > nodes[::-1]:
                continue
            cells = by_nodes[nodes] | (by_nodes[nodes[::-1]] if both else set())
            yield context.explain(
                self,
                "",
                cells,
                facts={"route": Route(*nodes, both), **_pings(context, nodes)},
                error=context.error(cells),
                commands=context.first_commands(cells),
                nodes=nodes,
            )


@register
class PairsSameError(_PairRule):
    """Several pairs without a common end fail with the same error."""

    id = "FT016"
    name = "pairs-same-error"
    title = "Several pairs fail with the same error"
    message = "{pairs} pairs fail with the same error"
    next_step = "Look for what the pairs have in common: a switch, a rail, a library."

    def check(self, context: PairContext) -> Iterator[Finding]:
        # The mesh explains addresses between which nothing passes, and with them their pairs.
        for pair in [p for p, v in context.unexplained.items() if v in DEAD and p in blocked_pairs(context.model)]:
            context.unexplained.pop(pair)
        by_error: dict[str | None, set[Pair]] = defaultdict(set)
        for pair, verdict in context.unexplained.items():
            if verdict in DEAD:
                found = context.error([pair])
                by_error[None if found is None else found.fact.text].add(pair)
        for cells in by_error.values():
            if len({frozenset(pair) for pair in cells}) > _MOST_SINGLE:
                yield context.explain(
                    self, "", cells, error=context.error(cells), commands=context.first_commands(cells)
                )


@register
class PairFails(_PairRule):
    """A single pair fails, in one direction or both."""

    id = "FT017"
    name = "pair-fails"
    title = "Pair fails"
    message = "{pair:arrow} {verdict}"
    next_step = "Test the pair alone (Y in the pair view copies the command)."

    def check(self, context: PairContext) -> Iterator[Finding]:
        dead = {frozenset(pair) for pair, verdict in context.unexplained.items() if verdict in DEAD}
        for ends in sorted(map(sorted, dead)):
            pairs = [p for p in _both_directions(ends) if context.unexplained.get(p) in DEAD]
            yield _single(self, context, pairs)


@register
class NodeSlow(_PairRule):
    """All endpoints of a node are slow with other nodes: suspect what their NICs have in common."""

    id = "FT020"
    name = "node-slow"
    title = "Node is slow with other nodes"
    message = "{node} is slow with other nodes, on all its {endpoints} endpoints"
    evidence = ("slow with every other node: check what differs on this one",)
    next_step = "Compare PCIe topology, GPUDirect and IOMMU settings with another node."

    def check(self, context: PairContext) -> Iterator[Finding]:
        for record in context.model.nodes.values():
            mine = [str(end) for end in context.model.endpoints_of(record.name)]
            ends = [end for end in mine if context.tally.tested[end, True] >= FEWEST]
            if len(ends) < 2 or len(context.model.nodes) < 3 or not all(map(context.slow_off_node, ends)):
                continue
            if cells := context.off_node_cells(ends):
                facts = {"node": record.name, "endpoints": len(ends), "slowest": context.slowest(cells)}
                commands = node_commands(context.model, record.name)
                yield context.explain(self, record.name, cells, facts=facts, commands=commands, nodes=(record.name,))


@register
class EndpointSlow(_PairRule):
    """An endpoint is slow with most endpoints of other nodes, or of its own node."""

    id = "FT021"
    name = "endpoint-slow"
    title = "Endpoint is slow with other nodes, or within its node"
    message = (
        "{endpoint} is slow[{off_node:flag} with other nodes: check its NIC and PCIe link]"
        "[{on_node:flag} within its node: check its NVLinks]"
    )
    next_step = "Check the link width and speed of its NIC and PCIe slot, or its NVLinks."

    def check(self, context: PairContext) -> Iterator[Finding]:
        for endpoint in context.endpoints_by_blame():
            name = str(endpoint)
            for off in (True, False):
                tested = context.tally.tested[name, off]
                mine = [p for p in context.bad_pairs_of.get(name, ()) if p in context.unexplained]
                cells = {pair for pair in mine if crosses_nodes(pair) == off}
                if tested >= FEWEST and len(cells) >= max(FEWEST, 0.75 * tested):
                    facts = {"endpoint": name, "off_node": off, "on_node": not off, "slowest": context.slowest(cells)}
                    inspect = nic_commands if off else within_commands
                    commands = inspect(context.model, endpoint)[0 if off else 1 :]
                    yield context.explain(self, name, cells, facts=facts, commands=commands, nodes=(endpoint.node,))


@register
class PairsSlow(_PairRule):
    """Several pairs without a common end are slow."""

    id = "FT022"
    name = "pairs-slow"
    title = "Several pairs are slow"
    message = "{pairs} pairs are slow"
    next_step = "Look for what the pairs have in common: a switch, a rail, a leaf."

    def check(self, context: PairContext) -> Iterator[Finding]:
        if len({frozenset(pair) for pair in context.unexplained}) > _MOST_SINGLE:
            cells = set(context.unexplained)
            yield context.explain(self, "", cells, facts={"slowest": context.slowest(cells)})


@register
class PairSlow(_PairRule):
    """A single pair is below the limit of its class."""

    id = "FT023"
    name = "pair-slow"
    title = "Pair is slow"
    message = "{pair:arrow} slow"
    next_step = "Test the pair alone, and compare the transport it uses with that of its class."

    def check(self, context: PairContext) -> Iterator[Finding]:
        for ends in sorted(map(sorted, {frozenset(pair) for pair in context.unexplained})):
            yield _single(self, context, [pair for pair in _both_directions(ends) if pair in context.unexplained])


@register
class OnlyInWorld(_PairRule):
    """Pairs pass in a communicator of two ranks, but not in the world communicator."""

    id = "FT030"
    name = "fails-in-world"
    title = "Pairs pass alone, not in the world communicator"
    severity = Severity.WARN
    message = "{pairs} pairs pass alone, not in the world communicator"
    evidence = ("check what all ranks share, and what else failed in that communicator",)
    next_step = "Read the NCCL log of the world communicator."

    def check(self, context: PairContext) -> Iterator[Finding]:
        if cells := context.tally.only_inside:
            yield self.finding("", cells=cells, facts={"pairs": len(cells)})


@register
class PairFlaps(_PairRule):
    """The verdict of a pair changed repeatedly between attempts."""

    id = "FT031"
    name = "pair-flaps"
    title = "Pair flaps"
    severity = Severity.WARN
    message = "[{pair:arrow} flaps in {layer}][{flapping} pairs flap]"
    evidence = (
        "verdict changed {changes} times within its latest attempts",
        "worst: {worst:arrow}, whose verdict changed {worst_changes} times within its latest attempts in {worst_layer}",
    )
    next_step = "Check the cable and its error counters; retest the pair (r)."

    def check(self, context: PairContext) -> Iterator[Finding]:
        found = sorted(context.model.flapping.items(), key=lambda item: (-item[1], item[0]))
        if len(found) > _MOST_SINGLE:
            (layer, src, dst), changes = found[0]
            cells = {(key[1], key[2]) for key, _ in found}
            facts = {"flapping": len(cells), "worst": Route(src, dst, False), "worst_changes": changes}
            yield self.finding("", cells=cells, facts={**facts, "worst_layer": str(layer)})
            return
        for (layer, src, dst), changes in found:
            facts = {"pair": Route(src, dst, False), "layer": str(layer), "changes": changes}
            yield self.finding(f"{src} > {dst}", cells=((src, dst),), facts=facts)


@register
class SlowMessages(_PairRule):
    """Some messages of a pair take far longer than the median: a link that flaps, or a busy node."""

    id = "FT032"
    name = "slow-messages"
    title = "Some messages take far longer than the median"
    severity = Severity.NOTE
    message = "{pair:arrow}: some messages take far longer than the median"
    evidence = ("p99 {p99:us}, {ratio:.1f} x the median: a link that flaps, or a busy node",)
    next_step = "Check error counters of the link, and the load of both nodes."

    def check(self, context: PairContext) -> Iterator[Finding]:
        found = sorted(context.tally.spreads, key=lambda one: -one.ratio)
        # Times of CPU ranks always spread widely.
        most = _MOST_SPREADS if any(end.kind == "gpu" for end in context.model.endpoints) else 0
        for one in found[:most]:
            pair = one.measurement.src, one.measurement.dst
            facts = {"pair": Route(*pair, False), "p99": one.p99, "ratio": one.ratio}
            yield self.finding(f"{pair[0]} > {pair[1]}", cells=(pair,), facts=facts)


@register
class NotTested(_PairRule):
    """Pairs were not tested, for a reason other than a lost node."""

    id = "FT033"
    name = "not-tested"
    title = "Pairs not tested"
    severity = Severity.NOTE
    message = "{pairs:count_pair} not tested"
    evidence = ("{reason}",)
    next_step = "Remove the reason, then retest."

    def check(self, context: PairContext) -> Iterator[Finding]:
        reasons = {one_line(why, 300): pairs for why, pairs in untested_reasons(context.model).items()}
        gone = [one_line(record.text, 300) for record in context.model.nodes.values() if record.state.gone]
        listed = sorted(reasons.items(), key=lambda item: -len(item[1]))
        for why, cells in [entry for entry in listed if entry[0] not in gone][:_MOST_REASONS]:
            yield self.finding("", cells=cells, facts={"pairs": len(cells), "reason": why})


def isolated_pairs(context: PairContext) -> list[Pair]:
    """Return all pairs across rails, if all of them fail and all is well within rails; else nothing."""
    tally = context.tally
    dead = [p for p, kind in tally.kinds.items() if kind is PairClass.CROSS_RAIL and tally.bad[p] in DEAD]
    within = sum(tally.of_class[kind] for kind in WITHIN_RAIL)
    if not dead or not within or len(dead) != tally.of_class[PairClass.CROSS_RAIL]:
        return []
    broken = any(kind in WITHIN_RAIL and tally.bad[pair] in DEAD for pair, kind in tally.kinds.items())
    # If an endpoint is dead within its rail as well, the endpoint is at fault, not the path between rails.
    return [] if broken or any(end not in tally.alive for pair in dead for end in pair) else dead


def _all_dead(tally: Tally) -> bool:
    return tally.of_class.total() == sum(verdict in DEAD for verdict in tally.bad.values())


def _dead_nodes(tally: Tally) -> list[str]:
    """Return nodes of several endpoints, each of which fails with all others on its node and on other nodes."""
    ends: dict[str, list[str]] = {}
    for end in dict.fromkeys(end for end, _ in tally.tested):
        ends.setdefault(node_of(end), []).append(end)

    def dead(end: str) -> bool:
        return all(0 < tally.tested[end, off] == tally.dead[end, off] for off in (False, True))

    return [node for node, mine in ends.items() if len(mine) > 1 and all(map(dead, mine))]


def _dead_across(context: PairContext) -> set[Pair]:
    """Return unexplained pairs across rails that fail."""
    kinds = context.tally.kinds
    return {p for p, v in context.unexplained.items() if v in DEAD and kinds.get(p) is PairClass.CROSS_RAIL}


def _blocked_between_nodes(context: PairContext) -> tuple[set[Pair], set[Pair]]:
    """Return ordered pairs of nodes that fail across rails and work within rails, and their pairs of endpoints."""
    tally = context.tally
    whole = {nodes for nodes, (tested, lost) in tally.across.items() if 1 < tested == lost and nodes in tally.joined}
    cells = {pair for pair in _dead_across(context) if (node_of(pair[0]), node_of(pair[1])) in whole}
    return (whole, cells) if len(cells) >= _FEWEST_OF_SCOPE else (set(), set())


def _pings(context: PairContext, nodes: Pair) -> dict[str, object]:
    rows = context.model.by_address(Layer.PING, *nodes)
    lost = sum(row.verdict is not Verdict.OK for row in rows)
    return {"pings_answered": bool(rows) and not lost, "lost_pings": lost or None, "pings": len(rows)}


def _both_directions(ends: list[str]) -> list[Pair]:
    return [(ends[0], ends[1]), (ends[1], ends[0])]


def _single(rule: _PairRule, context: PairContext, pairs: list[Pair]) -> Finding:
    """Return the finding of a pair in one direction or both."""
    first = pairs[0]
    commands = pair_commands(context.model, *first)
    ends = [context.endpoint(name) for name in first]
    if not commands and ends[0] is not None and ends[1] is not None:
        inspect = path_commands if crosses_nodes(first) else within_commands
        commands = inspect(context.model, ends[0], ends[1])
    verdict = context.unexplained[first]
    slow = verdict not in DEAD
    facts = {
        "pair": Route(*first, len(pairs) == 2),
        "verdict": str(verdict),
        # A single pair is in the title already.
        "share" if len(pairs) == 1 else "slowest": context.slowest(pairs) if slow else None,
        **context.retest(pairs),
    }
    error = None if slow else context.error(pairs)
    return context.explain(rule, f"{first[0]} > {first[1]}", pairs, facts=facts, error=error, commands=commands)
