"""Rules about pairs of endpoints.

They are checked in the order of this file, the largest causes first; those about components that explain bad pairs are
rows of ``knowledge/blame_rules.toml``. A pair that one finding explains is not explained
again.
"""

from __future__ import annotations

import itertools
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from fabtui.diagnosis.blame import Blame, blamed, blocked_across
from fabtui.diagnosis.experiment import PAIR_EXPERIMENTS, ends_of
from fabtui.diagnosis.finding import (
    AddressPair,
    Direction,
    Finding,
    Kind,
    Pair,
    Reach,
    Role,
    Route,
    Rule,
    Severity,
    Steps,
    Subject,
    declared,
    in_steps,
    register,
)
from fabtui.diagnosis.knowledge import load
from fabtui.diagnosis.knowledge.error_catalogue import ErrorFact, common_error, kind_of_error, meaning_of_measurement
from fabtui.diagnosis.knowledge.next_commands import (
    by_fabtui,
    flap_commands,
    gpu_commands,
    group_command,
    has_gpus,
    nic_commands,
    node_commands,
    on_node,
    session_command,
    slow_nic_commands,
    slow_node_commands,
)
from fabtui.diagnosis.mesh.affected_components import ComponentKind, scopes
from fabtui.diagnosis.mesh.mesh_rules import blocked_pairs
from fabtui.diagnosis.pairs.pair_context import MOST_INSPECTED, GroupResult, PairContext
from fabtui.diagnosis.pairs.past_rules import of_one_event, past_events, past_finding
from fabtui.model.counter_log import flatten
from fabtui.model.endpoints import WITHIN_RAIL, ClassKey, Endpoint, PairClass, node_of
from fabtui.model.events import NodeState
from fabtui.model.exit_codes import untested_reasons
from fabtui.model.interval_log import IntervalKind
from fabtui.model.layers import Layer
from fabtui.model.measurement import DEAD, Verdict, wrong_amount
from fabtui.model.records import NodeRecord
from fabtui.model.session_model import Model
from fabtui.nodeset import fold
from fabtui.sanitize import one_line
from fabtui_node.protocol import OF_CALLER

#: Weight that puts wrong data before everything else, lost nodes included.
_WRONG_DATA_FIRST = 1 << 31
_DIRECTIONS = {Direction.SENDS: " as sender", Direction.RECEIVES: " as receiver"}
#: Counters of an interface that count damaged frames; others count what a busy node drops.
_OF_INTERFACE = frozenset({"carrier_changes", "rx_crc_errors", "rx_errors", "tx_errors"})
#: Share of the value within the groups above which a taper is not worth a word.
_NOTABLE = 0.9
#: Maximum number of single pairs with the same error, or wrong data, that are reported one by one.
_MOST_SINGLE = 4
#: Words about a value that no second test has confirmed.
_ONCE = "one slow measurement"
#: Number of errors whose details are removed per step.
_FEW_ERRORS = 16
_MOST_REASONS = 4
#: Maximum time (s) between losses of nodes that have one cause: a loss is noticed after a while.
_AT_ONCE = 15.0
_MOST_SPREADS = 2
#: Weight that puts a lost node before everything else.
_FIRST = 1 << 30
#: Weight that puts a warning about this box after all others.
_LAST = -_FIRST
#: Minimum number of pairs that rails without a path to each other are blamed for.
_FEWEST_BLOCKED = 4
#: Minimum number of collectives over node pairs for which their common node is blamed.
_FEWEST_GROUPS = 2
#: Minimum number of slow pairs of a component that is blamed for them where CPU ranks share cores.
_FEWEST_BESIDE_LOAD = 3
#: Minimum share of its pairs that are slow then: load makes some of them slow, a slow part all that use it. (A NIC is
#: used by two thirds of the pairs of a node with two.)
_SHARE_BESIDE_LOAD = 0.65
#: Minimum number of pairs that contention is blamed for, and minimum share of all pairs.
_FEWEST_CONTENDED, _FEW = 8, 0.05
#: Share of the retested pairs that pass alone if contention is the cause.
_MOSTLY = 0.75


@register
class WrongData(Rule[PairContext]):
    """Data arrives different from what was sent: a job would compute wrong results without an error."""

    id = "FT007"

    def check(self, context: PairContext) -> Iterator[Finding | None]:
        if any(counts[Verdict.WRONG] for counts in (context.tally.counts, *context.tally.layers.values())):
            yield from self._pairs(context)
        groups = [one for one in context.bad_groups if one.verdict is Verdict.WRONG]
        context.bad_groups = [one for one in context.bad_groups if one.verdict is not Verdict.WRONG]
        for one in groups[:_MOST_SINGLE]:
            yield self._of_group(context, one)

    def _pairs(self, context: PairContext) -> Iterator[Finding | None]:
        mine = {pair for pair, verdict in context.unexplained.items() if verdict is Verdict.WRONG}
        yield None
        for blame in (yield from _blames(context, mine)):
            cells = context.pairs_at(blame.bad)
            mine.difference_update(cells)
            component = blame.subject.name + _DIRECTIONS.get(blame.direction, "")
            facts = {"component": component, "bad": len(cells), "tested": blame.tested}
            error = yield from context.error(cells)
            commands = context.first_commands(cells, blame.subject.node)
            finding = yield from context.explain(
                self, blame.subject.name, cells, facts=facts, error=error, commands=commands
            )
            yield finding.replace(
                blames=blame.subject,
                tested=blame.tested,
                confidence=blame.confidence,
                rivals=blame.rivals,
                weight=_WRONG_DATA_FIRST,
            )
        inside = [pair for pair in context.only_inside if _in_world(context, pair)]
        context.only_inside = [pair for pair in context.only_inside if pair not in set(inside)]
        left = sorted({*mine, *inside})
        routes = sorted({tuple(sorted(pair)) for pair in left})
        if len(routes) > _MOST_SINGLE:
            yield (yield from self._found(context, left, None))
            return
        for first, second in routes:
            pairs = [pair for pair in ((first, second), (second, first)) if pair in left]
            yield (yield from self._found(context, pairs, Route(*pairs[0], len(pairs) == 2)))

    def _found(self, context: PairContext, pairs: list[Pair], route: Route | None) -> Steps[Finding]:
        first = context.model.latest(Layer.P2P, *pairs[0])
        if first is None or first.verdict is not Verdict.WRONG:
            first = context.model.latest(Layer.WORLD, *pairs[0])
        amount = "" if first is None else wrong_amount(first.error, first.bytes)
        facts = {"pair": route, "many": None if route else len(pairs), "wrong": amount or None}
        facts["verdict"] = Verdict.WRONG
        facts |= context.retest(pairs)
        error = yield from context.error(pairs)
        topic = "" if route is None else f"{route.source} > {route.destination}"
        finding = yield from context.explain(
            self, topic, pairs, facts=facts, error=error, commands=context.first_commands(pairs)
        )
        if route is None:
            return finding.replace(weight=_WRONG_DATA_FIRST)
        name = f"{route.source} - {route.destination}" if route.both else topic
        return finding.replace(weight=_WRONG_DATA_FIRST, blames=Subject(Kind.PAIR, name))

    def _of_group(self, context: PairContext, one: GroupResult) -> Finding:
        measured = one.measured
        meaning = meaning_of_measurement(measured)
        facts = {
            "group": str(one),
            "wrong": wrong_amount(measured.error, None) or None,
            "error": ErrorFact(one_line(measured.error or "wrong data", 200)),
            **({} if meaning is None else meaning.facts),
        }
        commands = (group_command(context.model, one.nodes, one.kind),) if measured.src in context.model.nodes else ()
        nodes = one.nodes if measured.src in context.model.nodes else ()
        return self.finding(str(one), nodes=nodes, facts=facts, commands=commands, weight=_WRONG_DATA_FIRST)


def _in_world(context: PairContext, pair: Pair) -> bool:
    inside = context.model.latest(Layer.WORLD, *pair)
    return inside is not None and inside.verdict is Verdict.WRONG


def _blames(context: PairContext, mine: set[Pair]) -> Steps[list[Blame]]:
    """Return the components that all have their data wrong; pairs that are bad otherwise are no evidence."""
    table, places = context.tally.table, context.tally.places
    if table is None or places is None or len(mine) < 2:
        return []
    blames: list[Blame] = []
    others = [place for pair, place in context.tally.place.items() if pair not in mine]
    yield
    for blame in blamed(table, places, context.model.endpoints, others):
        blames += [blame] if blame is not None else []
        yield
    return blames


class LinkSigns:
    """Counters of the interfaces and ports of a session that moved and count errors."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._of_node: dict[str, dict[str, str]] = {}

    def of(self, src: str, dst: str) -> str:
        """Return a sign at the NIC of an end of a pair as text, or ""; pairs within a node use no NIC."""
        if node_of(src) == node_of(dst):
            return ""
        numbers = [self._model.table.number(end) for end in (src, dst)]
        ends = [self._model.endpoints[number] for number in numbers if number is not None]
        signs = (self._at(end.node).get(end.nic or "") for end in ends)
        return next((sign for sign in signs if sign), "")

    def _at(self, node: str) -> dict[str, str]:
        if node not in self._of_node:
            signs = self._of_node.setdefault(node, {})
            moved = self._model.counters.between(node, float("-inf"), float("inf"))
            errors = {tuple(path) for path in moved.get("errors", ())}
            for path, count in flatten(moved).items():
                counts = path in errors and (path[0] == "hca" or path[-1] in _OF_INTERFACE)
                if path[0] in ("hca", "net") and counts:
                    nic = path[1].partition("/")[0]
                    signs.setdefault(nic, one_line(f"{node} {nic}: {path[-1]} + {count} during the session", 200))
            for (of, nic), count in self._model.counters.carrier_changes.items():
                if of == node:
                    signs[nic] = one_line(f"{node} {nic}: carrier changed {count} times during the session", 200)
        return self._of_node[node]


def taper(model: Model) -> float | None:
    """Return the usual value between the leaf switches of a fabric over that within them, if it is notably lower."""
    if len(set(model.table.leaves.values())) < 2:
        return None
    layer = Layer.P2P if model.median(Layer.P2P, PairClass.SAME_RAIL) is not None else Layer.WORLD
    pairs = ((PairClass.SAME_RAIL, PairClass.CROSS_LEAF), (PairClass.CROSS_RAIL, PairClass.CROSS_RAIL))
    for within, between in pairs:
        for hardware in itertools.combinations_with_replacement(sorted(set(model.table.hardware)), 2):
            near = model.median(layer, ClassKey(within, False, hardware))
            far = model.median(layer, ClassKey(between, True, hardware))
            if near and far and far < _NOTABLE * near:
                return far / near
    return None


def _groups(model: Model) -> tuple[str, str]:
    by_leaf: dict[str, dict[str, None]] = {}
    for end in model.endpoints:
        if (leaf := model.table.leaves.get(end.number)) is not None:
            by_leaf.setdefault(leaf, {})[end.node] = None
    groups = [fold(list(nodes)) for nodes in by_leaf.values()]
    return (groups[0], groups[1]) if len(groups) == 2 else (f"nodes of {len(groups)} leaf switches", "each other")


_PairRule = Rule[PairContext]


@register
class NodeLost(_PairRule):
    """A node could not be reached, or was lost during the session. It explains all its failed pairs.

    One that came back is a warning: a machine that restarts, or a network that was away.
    """

    id = "FT001"

    def check(self, context: PairContext) -> Iterator[Finding | None]:
        for event in (yield from past_events(context)):
            if event.kind is IntervalKind.ABSENCE:
                yield past_finding(self, context, event)
        model = context.model
        away = [record for record in model.nodes.values() if record.state.gone]
        dead = {pair for pair, verdict in context.unexplained.items() if verdict in DEAD}
        lost = {record.name: record.since for record in away if record.state is NodeState.LOST}
        if len(away) == len(model.nodes) > 1 and all(map(_is_of_caller, away)):
            state = f"reaches none of {fold(list(model.nodes))}"
            yield self._of_this_machine(model.nodes, state, away[0].text)
            return
        if len(lost) == len(away) and _are_all_at_once(model, lost):
            for pair in dead:
                context.unexplained.pop(pair)
            state = f"is cut off: {fold(list(lost))} were lost at the same time"
            finding = self._of_this_machine(lost, state, away[0].text)
            yield finding.replace(cells=frozenset(dead))
            return
        for record in away:
            mine = [pair for pair in dead if record.name in map(node_of, pair) and pair in context.unexplained]
            for pair in mine:
                context.unexplained.pop(pair)
            hint = one_line(record.hint or "", 300)
            # A question can be answered, not typed.
            asks = hint.endswith("?")
            # Results that the pairs had in other layers before the node was lost are no evidence.
            yield self.finding(
                record.name,
                nodes=(record.name,),
                cells=mine,
                facts={
                    "node": record.name,
                    "state": str(record.state),
                    "reason": f"{record.text}: {hint}" if asks else record.text,
                },
                commands=(on_node(record.name, "uptime", context.model) if asks or not hint else hint,),
                weight=_FIRST,
            )

    def _of_this_machine(self, nodes: Iterable[str], state: str, reason: str) -> Finding:
        facts = {"node": "this machine, or its link,", "state": state, "reason": one_line(reason, 300)}
        # Without a node: typed here.
        return self.finding("", nodes=nodes, facts=facts, commands=("ip -s -s link", "ip route"), weight=_FIRST)


def _is_of_caller(record: NodeRecord) -> bool:
    """Return True if a call on this machine ended the login, before anything was sent to the node."""
    return any(os.strerror(code) in record.text for code in OF_CALLER)


def _are_all_at_once(model: Model, since: Mapping[str, float]) -> bool:
    """Return True if all nodes that were reached were lost at about the same time: they share this machine alone."""
    reached = {name for name, record in model.nodes.items() if record.inventory is not None}
    times = since.values()
    return len(reached) > 1 and reached <= since.keys() and max(times) - min(times) <= _AT_ONCE


@register
class Contention(_PairRule):
    """Pairs that are slow alongside other traffic pass when they are tested alone: the fabric is short of bandwidth."""

    id = "FT028"

    def check(self, context: PairContext) -> Iterator[Finding | None]:
        passed = retested = 0
        for judged in in_steps(context.model.retested()):
            retested += sum(slow for slow, _ in judged)
            passed += sum(slow and passes for slow, passes in judged)
            yield None
        inside = []
        for some in in_steps(context.only_inside):
            inside += [pair for pair in some if context.slow_inside(pair)]
            yield None
        many = len(inside) >= max(_FEWEST_CONTENDED, _FEW * len(context.tally.table or ()))
        proven = retested >= _FEWEST_CONTENDED and passed >= _MOSTLY * retested
        if max(passed, len(inside)) < 2:
            return
        if context.cores.only_cpus and not context.cores.enough:
            context.contended = {"passed": passed or None, "retested": retested, "inside": len(inside) or None}
            return
        cells = [pair for pair, verdict in context.unexplained.items() if proven and verdict is Verdict.SLOW]
        yield None
        facts = {"slow": max(passed + len(cells), len(inside)), "passed": passed or None}
        facts |= {"retested": retested, "inside": len(inside) or None}
        subject = Subject(Kind.CONTENTION, "fabric")
        commands = (session_command(context.model, "--isolated"),)
        if proven or many:
            explained = [*cells, *(inside if many else [])]
            finding = yield from context.explain(self, "", explained, facts=facts, commands=commands)
            yield finding.replace(blames=subject)
        else:
            # A few pairs may be slow once by chance.
            yield self.finding("", severity=Severity.NOTE, facts=facts, commands=commands, blames=subject)


@register
class RailsBlockedByNode(_PairRule):
    """Pairs across rails fail between certain nodes, which reach each other within rails."""

    id = "FT011"

    def check(self, context: PairContext) -> Iterator[Finding | None]:
        table, places = context.tally.table, context.tally.places
        if table is None or places is None or not context.unexplained:
            return
        codes = yield from blocked_across(table, places)
        nodes = {(places.nodes[a], places.nodes[b]) for a, b in codes}
        across = [pair for pair in context.unexplained if nodes and context.tally.kinds[pair] is PairClass.CROSS_RAIL]
        cells = [pair for pair in across if (node_of(pair[0]), node_of(pair[1])) in nodes]
        cells = [pair for pair in cells if context.unexplained[pair] in DEAD]
        yield None
        # Where it holds for all nodes, the fabric has no path between rails, which is a different rule.
        if len(cells) >= _FEWEST_BLOCKED:
            order = list(context.model.nodes)
            ends = [fold(sorted({pair[side] for pair in nodes}, key=order.index)) for side in (0, 1)]
            same = ends[0] == ends[1]
            facts: dict[str, Any] = {"among": ends[0]} if same else {"source": ends[0], "destination": ends[1]}
            commands = context.first_commands(cells)
            finding = yield from context.explain(self, "", cells, facts=facts, commands=commands)
            alone = tuple(node for node in order if 2 * len(_partners(node, nodes)) > len(order))
            if 0 < 2 * len(alone) < len(order):
                facts = {**finding.facts, "culprits": alone}
                finding = finding.replace(facts=facts, blames=Subject(Kind.NODES, fold(alone)))
            yield finding


def _partners(node: str, pairs: set[Pair]) -> set[str]:
    return {end for pair in pairs if node in pair for end in pair} - {node}


class BlameRule(_PairRule):
    """Base of the rules about components that explain bad pairs, which ``knowledge/blame_rules.toml`` declares."""

    kinds: ClassVar[frozenset[tuple[Kind, Reach]]]  #: Kinds of components, with the pairs they explain.
    dead: ClassVar[bool]  #: Whether the pairs fail; else they are slow.

    def check(self, context: PairContext) -> Iterator[Finding | None]:
        yield from context.search()
        for blame in context.blames or ():
            kind, name = blame.subject
            if blame.dead is not self.dead or (kind, blame.reach) not in self.kinds:
                continue
            cells = context.pairs_at(blame.bad)
            yield None
            least = max(_FEWEST_BESIDE_LOAD, _SHARE_BESIDE_LOAD * blame.tested)
            few = len(cells) < least or blame.reach is Reach.INSIDE
            # What other components explain is not a finding about this one.
            # All at once are slow where the load of the cores moves what is usual.
            few |= kind in (Kind.CROSS_NODE, Kind.CROSS_RAIL, Kind.FABRIC)
            if not cells or (few and not blame.dead and context.by_cores(cells)):
                continue
            facts = self._facts(context, blame, cells)
            if not blame.dead:
                facts["slowest"] = context.slowest(cells)
            alike = blame.dead and kind not in (Kind.CROSS_RAIL, Kind.RAIL_PAIR)
            finding = yield from context.explain(
                self,
                name if kind in (Kind.NODE, Kind.GPU, Kind.NIC) else "",
                cells,
                facts=facts,
                error=(yield from context.error(cells)) if alike else None,
                commands=self._commands(context, blame, cells),
                nodes=None if blame.subject.node is None else (blame.subject.node,),
            )
            yield finding.replace(
                blames=blame.subject, tested=blame.tested, confidence=blame.confidence, rivals=blame.rivals
            )

    def _facts(self, context: PairContext, blame: Blame, cells: list[Pair]) -> dict[str, Any]:
        kind, name = blame.subject
        one_way = "" if blame.direction is Direction.BOTH else blame.direction
        facts: dict[str, Any] = {"one_way": one_way, "bad_of_tested": (len(cells), blame.tested)}
        if not blame.dead:
            facts |= {"slowest": None, "factor": blame.factor}
        match kind:
            case Kind.NODE | Kind.HALVES:
                facts |= {"partly" if blame.partly else "node": name}
                facts |= {"endpoints": len(context.model.table.of_node(name))}
                facts |= {"off_node": blame.reach is Reach.OFF_NODE, "inside": blame.reach is Reach.INSIDE}
                facts |= {"domain": blame.reach is Reach.DOMAIN, "network": blame.reach is Reach.NETWORK}
            case Kind.GPU:
                inside = blame.reach is Reach.INSIDE
                facts |= {"inside": name} if inside else {"endpoint": name, "others": blame.others}
                facts["part"] = _part_to_check(context.model, blame)
            case Kind.NIC:
                sharing = ends_of(context.model, blame.subject)
                nic, ends = sharing[0].nic if sharing else None, ", ".join(map(str, sharing)) or name
                facts |= {"sharing" if nic or not blame.dead else "no_nic": ends, "nic": nic}
            case Kind.RAIL | Kind.LEAF:
                facts |= {str(kind): name}
            case Kind.LEAF_CUT:
                facts["leaf_a"], facts["leaf_b"] = _two_ends(blame)
                facts["partly"] = len(blame.bad) / blame.tested if blame.reach is Reach.NETWORK else None
            case Kind.RAIL_PAIR | Kind.NODE_PAIR:
                route = Route(*_two_ends(blame), blame.direction is Direction.BOTH)
                facts |= {"rails" if kind is Kind.RAIL_PAIR else "route": route}
            case Kind.CROSS_NODE if blame.reach is Reach.NETWORK:
                facts |= {"cross_domain": True}
            case _:
                facts |= {str(kind).replace("-", "_"): True}
        return facts

    def _commands(self, context: PairContext, blame: Blame, cells: Sequence[Pair]) -> list[str]:
        kind, name = blame.subject
        if kind is Kind.HALVES:
            return node_commands(context.model, name)
        if blame.partly:
            into = next((pair for pair in cells if node_of(pair[1]) == name), cells[0])
            return context.first_commands([into])
        ends = ends_of(context.model, blame.subject) if kind in (Kind.GPU, Kind.NIC) else []
        if not ends:
            return context.first_commands(cells, blame.subject.node) if cells else []
        own = (gpu_commands if kind is Kind.GPU else nic_commands)(context.model, ends[0])
        if kind is Kind.GPU and cells and blame.reach is not Reach.INSIDE and _is_only_endpoint(context.model, ends[0]):
            # The first one tests the path without the GPU, too.
            again = by_fabtui(context.model, *cells[0], debug=True)
            nic = (nic_commands if blame.dead else slow_nic_commands)(context.model, ends[0])
            return [again, *nic, *(own if ends[0].kind != "cpu" else ())]
        if ends[0].kind != "cpu" or not cells:
            return own
        # A pair that the component sends shows it from its own node.
        names = set(map(str, ends))
        first = next((pair for pair in cells if pair[0] in names), cells[0])
        if blame.dead:
            return [*context.first_commands([first])[:2], *own]
        if blame.reach is Reach.INSIDE:
            return [by_fabtui(context.model, *first), on_node(ends[0].node, "uptime", context.model)]
        return [by_fabtui(context.model, *first), *slow_nic_commands(context.model, ends[0])]


def _is_only_endpoint(model: Model, end: Endpoint) -> bool:
    """Return True if all tests of an endpoint use its NIC: nothing separates the two."""
    return len(model.table.of_node(end.node)) == 1


def _part_to_check(model: Model, blame: Blame) -> str:
    ends = ends_of(model, blame.subject)
    own = "the GPU" if any(end.kind == "gpu" for end in ends) else "its process"
    if blame.reach is not Reach.INSIDE and ends and _is_only_endpoint(model, ends[0]):
        nic = f" {one_line(ends[0].nic, 40)}" if ends[0].nic else ""
        return f"its NIC{nic}, {own} or the node"
    if own == "its process":
        return own if blame.dead else "its process and its cores"
    if blame.reach is not Reach.INSIDE:
        return own
    return "its NVLinks or PCIe" if blame.dead else "its NVLinks"


def _two_ends(blame: Blame) -> Pair:
    first, _, second = blame.subject.name.partition(" - " if blame.direction is Direction.BOTH else " > ")
    return first, second


class _WholeNode(BlameRule):
    def _commands(self, context: PairContext, blame: Blame, cells: Sequence[Pair]) -> list[str]:
        model, node = context.model, blame.subject.name
        if not blame.dead and not has_gpus(model, node) and blame.reach is not Reach.INSIDE:
            return slow_node_commands(model, node)
        if blame.reach is Reach.INSIDE and not has_gpus(model, node):
            return [on_node(node, "uptime", model)]
        return node_commands(model, node)


class _RailIsolated(BlameRule):
    def _facts(self, context: PairContext, blame: Blame, cells: list[Pair]) -> dict[str, Any]:
        tally = context.tally
        broken = any(kind in WITHIN_RAIL and tally.bad[pair] in DEAD for pair, kind in tally.kinds.items())
        if broken or len(blame.bad) < tally.of_class[PairClass.CROSS_RAIL]:
            mine = {"across_rails": len(blame.bad), "tested": blame.tested}
        else:
            mine = {"across": len(blame.bad), "within": sum(tally.of_class[kind] for kind in WITHIN_RAIL)}
        return super()._facts(context, blame, cells) | mine

    def _commands(self, context: PairContext, blame: Blame, cells: Sequence[Pair]) -> list[str]:
        model = context.model
        own = super()._commands(context, blame, cells)
        # Without PXN, pairs across rails have to fail in the world communicator too.
        gpus = model.lab is None and all(end.kind == "gpu" for end in model.endpoints)
        return [session_command(model, "--probes", "p2p", "--ab", "NCCL_PXN_DISABLE=0,1"), *own] if gpus else own


class _NodePairBlocked(BlameRule):
    def _facts(self, context: PairContext, blame: Blame, cells: list[Pair]) -> dict[str, Any]:
        rows = context.model.addresses.latest(Layer.PING, *_two_ends(blame))
        lost = sum(row.verdict is not Verdict.OK for row in rows)
        pings = {"pings_answered": bool(rows) and not lost, "lost_pings": lost or None, "pings": len(rows)}
        return super()._facts(context, blame, cells) | pings


#: Rules with their own facts or commands.
_SPECIAL: dict[str, type[BlameRule]] = {
    "node-dead": _WholeNode,
    "rail-isolated": _RailIsolated,
    "node-pair-blocked": _NodePairBlocked,
    "node-slow": _WholeNode,
}


for _row in load("blame_rules")["rule"]:
    _own = {**declared(_row), "role": Role.DEAD if _row["dead"] else Role.SLOW}
    register(type(_row["name"], (_SPECIAL.get(_row["name"], BlameRule),), _own))


@register
class LeafTaper(_PairRule):
    """Pairs between two groups of nodes are evenly slower than within them: leaf switches with too few uplinks.

    A degraded link between the leaf switches has the same effect; only its state or an earlier session separates them.
    """

    id = "FT027"

    def check(self, context: PairContext) -> Iterator[Finding | None]:
        if (share := taper(context.model)) is not None:
            groups = _groups(context.model)
            facts = {"leaf_a": groups[0], "leaf_b": groups[1], "share": share}
            subject = Subject(Kind.LEAF_CUT, " - ".join(groups))
            commands = (session_command(context.model, "--probes", "ibfabric"),)
            yield self.finding("", facts=facts, commands=commands, blames=subject)


@register
class PairsSameError(_PairRule):
    """Several pairs without a common end fail with the same error."""

    id = "FT016"

    def check(self, context: PairContext) -> Iterator[Finding | None]:
        # The mesh explains addresses between which nothing passes, and with them their pairs.
        blocked = blocked_pairs(context.model)
        dead = [pair for pair, verdict in context.unexplained.items() if verdict in DEAD]
        by_error: dict[str | None, list[Pair]] = defaultdict(list)
        for number, pair in enumerate(dead):
            if pair in blocked:
                context.unexplained.pop(pair)
            else:
                by_error[context.error_kind(pair)].append(pair)
            if number % _FEW_ERRORS == 0:
                yield None
        for cells in by_error.values():
            if _are_many(cells):
                # All have one error.
                error = yield from context.error(cells[:1])
                commands = context.first_commands(cells)
                yield (yield from context.explain(self, "", cells, error=error, commands=commands))


class _SinglePair(_PairRule):
    """Base of the rules about single pairs, in one direction or both."""

    dead: ClassVar[bool]
    experiments = PAIR_EXPERIMENTS

    def check(self, context: PairContext) -> Iterator[Finding | None]:
        mine = {pair for pair, verdict in context.unexplained.items() if (verdict in DEAD) is self.dead}
        for first, second in sorted(tuple(sorted(ends)) for ends in {frozenset(pair) for pair in mine}):
            pairs = [pair for pair in ((first, second), (second, first)) if pair in mine]
            yield (yield from self._found(context, pairs))

    def _found(self, context: PairContext, pairs: list[Pair]) -> Steps[Finding]:
        first = pairs[0]
        commands = context.first_commands(pairs)
        facts = {
            "pair": Route(*first, len(pairs) == 2),
            "verdict": context.unexplained[first],
            # A single pair is in the title already.
            "of_usual" if len(pairs) == 1 else "slowest": None if self.dead else context.slowest(pairs),
            **context.retest(pairs),
        }
        error = (yield from context.error(pairs)) if self.dead else None
        finding = yield from context.explain(
            self, f"{first[0]} > {first[1]}", pairs, facts=facts, error=error, commands=commands
        )
        name = " - ".join(sorted(first)) if len(pairs) == 2 else " > ".join(first)
        return finding.replace(blames=Subject(Kind.PAIR, name))


@register
class PairFails(_SinglePair):
    """A single pair fails, in one direction or both."""

    id = "FT017"
    dead = True


@register
class NodeOfCollectives(_PairRule):
    """All collectives over two nodes that share a node are slow or fail, and those without it work."""

    id = "FT034"

    def check(self, context: PairContext) -> Iterator[Finding | None]:
        pairs = [one for one in context.groups if len(one.nodes) == 2]
        rows: dict[AddressPair, list[GroupResult]] = defaultdict(list)
        for one in pairs:
            for a, b in itertools.permutations(one.nodes):
                rows[AddressPair(a, "", b, "")].append(one)
        yield None
        bad = {row for row, results in rows.items() if all(one.bad for one in results)}
        common = scopes(bad, rows, lambda *_: None, context.model.nodes)
        nodes = [scope.nodes[0] for scope in common if scope.kind is ComponentKind.ADDRESS]
        good = sum(not one.bad for one in pairs if set(nodes).isdisjoint(one.nodes))
        # What pairs show about a node explains its collectives.
        blamed = {blame.subject.node for blame in context.blames or ()}
        for node in nodes if good else ():
            mine = [one for one in pairs if node in one.nodes and one.bad]
            context.bad_groups = [one for one in context.bad_groups if node not in one.nodes]
            least = _FEWEST_BESIDE_LOAD if context.cores.on((node,)) else _FEWEST_GROUPS
            if node not in blamed and len({frozenset(one.nodes) for one in mine}) >= least:
                yield self._found(context, node, mine, good)
            yield None

    def _found(self, context: PairContext, node: str, mine: list[GroupResult], good: int) -> Finding:
        model = context.model
        slow = all(one.slow for one in mine)
        worst = min(mine, key=lambda one: (one.slow, one.share or 0.0))
        kinds = ", ".join(dict.fromkeys(one.kind for one in mine))
        facts: dict[str, Any] = {"node": node, "bad": len(mine), "good": good, "kinds": kinds}
        facts |= {"do": "are slow", "do_not": "are not"} if slow else {"do": "fail or are slow", "do_not": "are well"}
        if worst.slow:
            facts |= {"worst": str(worst), "value": worst.value, "unit": worst.unit, "share": worst.share}
            facts["reduced"] = worst.measured.reduced
        else:
            facts["worst_failed"] = str(worst)
        command = "nvidia-smi -q -d PERFORMANCE,POWER,TEMPERATURE" if has_gpus(model, node) else "uptime"
        commands = (group_command(model, worst.nodes, worst.kind), on_node(node, command, model))
        return self.finding(node, nodes=(node,), facts=facts, commands=commands, weight=len(mine))


@register
class CoresBusy(_PairRule):
    """CPU ranks share the cores of a machine with each other or with other programs, so that some values are low.

    Such values are no evidence about the fabric. Pairs that share a NIC, a node or a path are reported as such.
    """

    id = "FT029"

    def check(self, context: PairContext) -> Iterator[Finding | None]:
        busy = context.cores.busy
        slow = [pair for pair, verdict in context.unexplained.items() if verdict is Verdict.SLOW]
        cells = [pair for pair in slow if not context.cores.enough and context.by_cores([pair])]
        yield None
        groups = [one for one in context.bad_groups if one.slow and busy and context.cores.on(one.nodes)]
        if not (cells or groups or context.contended):
            return
        nodes = list(dict.fromkeys(node for one in busy for node in one.nodes))
        some = (node_of(end) for pair in sorted(cells) for end in pair)
        listed = nodes or list(dict.fromkeys(some)) or list(dict.fromkeys(end.node for end in context.model.endpoints))
        load = max((one.load for one in busy if one.load is not None and one.load >= one.number), default=None)
        names = [f"{src} > {dst}" for src, dst in sorted(cells)]
        finding = yield from context.explain(
            self,
            "",
            cells,
            nodes=listed,
            facts={
                "busy": fold(nodes) if nodes else None,
                "unknown": None if nodes else fold(listed),
                "ranks": sum(one.ranks for one in busy),
                "cores": round(sum(one.number for one in busy)),
                "load": load,
                "slow": len(cells) or None,
                "names": tuple(names[:_MOST_SINGLE]),
                "groups": tuple(map(str, groups[:_MOST_SINGLE])) or None,
                **context.contended,
            },
            commands=(on_node(listed[0], "uptime", context.model), session_command(context.model, "--isolated")),
        )
        severity = Severity.WARN if cells or groups else Severity.NOTE
        subject = Subject(Kind.CORES, fold(listed))
        # Other warnings are about something to repair.
        yield finding.replace(severity=severity, blames=subject, weight=_LAST)


@register
class PairsSlow(_PairRule):
    """Several pairs without a common end are slow."""

    id = "FT022"

    def check(self, context: PairContext) -> Iterator[Finding | None]:
        if _are_many(context.unexplained):
            cells = list(context.unexplained)
            yield None
            slowest = context.slowest(cells)
            first = cells[0] if slowest is None else (slowest.source, slowest.destination)
            commands = [by_fabtui(context.model, *first), *context.first_commands([first])]
            facts = {"slowest": slowest}
            yield (yield from context.explain(self, "", cells, facts=facts, commands=commands))


@register
class PairSlow(_SinglePair):
    """A single pair is below the limit of its class."""

    id = "FT023"
    dead = False

    def _found(self, context: PairContext, pairs: list[Pair]) -> Steps[Finding]:
        finding, results = (yield from super()._found(context, pairs)), context.model.results
        before = [attempts[0] for pair in pairs if len(attempts := results.history(Layer.P2P, *pair, 2)) == 2]
        if len(before) < len(pairs) or any(results.was_slow(one) or one.verdict is not Verdict.OK for one in before):
            return finding
        # It was good before: what other tests showed is not about this value.
        facts = {**finding.facts, "retest": None, "once": _ONCE, "at_fault": _ONCE}
        return finding.replace(severity=Severity.WARN, facts=facts)


def _has_begun(model: Model, pair: Pair) -> bool:
    """Return True if the transfer of a pair began in the world communicator, which had been formed."""
    m = model.latest(Layer.WORLD, *pair)
    return m is not None and m.bytes is not None


@register
class OnlyInWorld(_PairRule):
    """Pairs pass in a communicator of two ranks, but not in the world communicator."""

    id = "FT030"

    def check(self, context: PairContext) -> Iterator[Finding | None]:
        cells = [pair for pair in context.only_inside if not context.slow_inside(pair)]
        # A world in which two ranks do not reach each other does not form, also where these two reach all others.
        ends = {end for pair, verdict in context.tally.bad.items() if verdict in DEAD for end in pair}
        if cells := [pair for pair in cells if ends.isdisjoint(pair) or _has_begun(context.model, pair)]:
            subject = Subject(Kind.WORLD, "world communicator")
            inside = [m for pair in cells[:MOST_INSPECTED] if (m := context.model.latest(Layer.WORLD, *pair))]
            kinds = {at: kind_of_error(m.error) for at, m in enumerate(inside) if m.error}
            rows = {kind: at for at, kind in reversed(kinds.items())}
            error = common_error(Counter(kinds.values()), rows, inside.__getitem__)
            facts = {"pairs": len(cells), "error": None if error is None else error.fact}
            commands = (session_command(context.model, "--probes", "p2p", "--layers", "world"),)
            yield self.finding("", cells=cells, facts=facts, commands=commands, blames=subject)


@register
class PairFlaps(_PairRule):
    """The verdict of a pair changed repeatedly, and each change outlasted a retest, or its link shows a sign of it.

    Of CPU ranks, which share cores, results of several sweeps count, or such a sign.
    """

    id = "FT031"

    def check(self, context: PairContext) -> Iterator[Finding | None]:
        results, signs = context.model.results, LinkSigns(context.model)
        shown = {key: sign for key in results.turning if (sign := signs.of(key[1], key[2]))}
        lasting = {**results.flapping, **{key: results.turning[key] for key in shown}}
        once = yield from of_one_event(context)
        lasting = {key: turned for key, turned in lasting.items() if key not in once}
        flapping = sorted(lasting.items(), key=lambda item: (-item[1], item[0]))
        if len(flapping) > _MOST_SINGLE:
            (layer, src, dst), changes = flapping[0]
            cells = {(key[1], key[2]) for key, _ in flapping}
            facts = {"flapping": len(cells), "worst": Route(src, dst, False), "worst_changes": changes}
            facts |= {"worst_layer": str(layer), "sign": shown.get((layer, src, dst))}
            yield self.finding("", cells=cells, facts=facts, commands=flap_commands(context.model, src, dst))
            return
        for (layer, src, dst), changes in flapping:
            facts = {"pair": Route(src, dst, False), "layer": str(layer), "changes": changes}
            facts["sign"] = shown.get((layer, src, dst))
            yield self.finding(
                f"{src} > {dst}",
                cells=((src, dst),),
                facts=facts,
                commands=flap_commands(context.model, src, dst),
                blames=Subject(Kind.PAIR, f"{src} > {dst}"),
            )


@register
class SlowMessages(_PairRule):
    """Some messages of a pair take far longer than the median: a flapping link, or a busy node."""

    id = "FT032"

    def check(self, context: PairContext) -> Iterator[Finding | None]:
        spreads = sorted(context.tally.spreads, key=lambda one: -one.ratio)
        # Times of CPU ranks always spread widely.
        most = _MOST_SPREADS if any(end.kind == "gpu" for end in context.model.endpoints) else 0
        for one in spreads[:most]:
            pair = one.measurement.src, one.measurement.dst
            facts = {"pair": Route(*pair, False), "p99": one.p99, "ratio": one.ratio}
            yield self.finding(f"{pair[0]} > {pair[1]}", cells=(pair,), facts=facts)


@register
class NotTested(_PairRule):
    """Pairs were not tested, for a reason other than a lost node."""

    id = "FT033"

    def check(self, context: PairContext) -> Iterator[Finding | None]:
        gone = {record.name for record in context.model.nodes.values() if record.state.gone}
        reasons = {
            one_line(why, 300): [pair for pair in pairs if gone.isdisjoint(map(node_of, pair))]
            for why, pairs in untested_reasons(context.model).items()
        }
        listed = sorted(reasons.items(), key=lambda item: -len(item[1]))
        for why, cells in [entry for entry in listed if entry[1]][:_MOST_REASONS]:
            yield self.finding("", cells=cells, facts={"pairs": len(cells), "reason": why})


def _are_many(pairs: Iterable[Pair]) -> bool:
    """Return True if there are more pairs, both directions counted as one, than are reported one by one."""
    routes = set()
    for pair in pairs:
        routes.add(frozenset(pair))
        if len(routes) > _MOST_SINGLE:
            return True
    return False
