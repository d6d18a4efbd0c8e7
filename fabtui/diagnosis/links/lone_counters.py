"""Counters that grow on one node alone, or many times faster than on its peers; any name counts."""

from __future__ import annotations

import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fabtui.diagnosis.finding import RULES, Domain, Finding, Kind, Role, Rule, Severity, Subject, declared, register
from fabtui.diagnosis.knowledge import load
from fabtui.diagnosis.knowledge.next_commands import on_node
from fabtui.diagnosis.links.link_rules import error_counters, first_links
from fabtui.model.facts.node_view import dicts
from fabtui.model.growth_log import PhaseGrowth
from fabtui.model.pair_table import Floats
from fabtui.model.records import probed
from fabtui.model.session_model import Model
from fabtui.nodeset import count, fold
from fabtui.sanitize import one_line

#: How many times faster than on its peers a counter grows that stands out.
FACTOR = 5.0
#: Growth below which none does, by the unit in its name: bytes, micro- and nanoseconds, else counts.
_FLOORS = ((re.compile("bytes|octets", re.I), 1e5), (re.compile("_us(ec)?$"), 1e4), (re.compile("_(ns|time)$"), 1e7))
_LEAST = 5.0
#: Growth of traffic (bytes) that any node has.
_USUAL_BYTES = 1e6
#: Number of nodes from which two of them may stand out.
_MANY = 8
_TRAFFIC = re.compile(r":([rt]x_bytes|port_(xmit|rcv)_data)$")
_MOST_NAMED = 5


class Damage(NamedTuple):
    """Meaning of the name of a counter."""

    rule: str = ""  #: Id of the rule that it belongs to; "" where its name is not that of damage.
    words: str = ""
    near: bool = False
    least: float = _LEAST
    sender: bool = False
    rank: int = 1 << 30  #: Place in the table: the most specific ones first.


class GrownAlone(NamedTuple):
    """Counter that grew on one node alone, many times faster than on its peers, or on all of them and not there."""

    phase: str
    counter: str
    node: str
    amount: int  #: By how much it grew there.
    usual: int  #: The most that a peer's grew; the least, where only this one did not.
    others: int  #: Number of the peers.
    absent: bool  #: Whether it grew on all peers and not there.

    @property
    def times(self) -> float:
        return self.amount / max(self.usual, 1)

    def __str__(self) -> str:
        if self.absent:
            return f"{self.counter} {self.usual:,} or more"
        most = "at most " if self.usual else ""
        return f"{self.counter} {self.amount:,}, {most}{self.usual:,} on {count(self.others, 'other')}"


@lru_cache(maxsize=8192)
def damage_of(counter: str) -> Damage:
    """Return what a counter means by its name."""
    device, _, name = counter.rpartition(":")
    for rank, row in enumerate(load("counters")["counter"]):
        if re.search(row["pattern"], name) and device.startswith(row.get("device", "")):
            return Damage(**{key: row[key] for key in row.keys() - {"pattern", "device"}}, rank=rank)
    return Damage()


def least_growth(counter: str) -> float:
    """Return the growth during a phase below which a counter never stands out."""
    return next((floor for unit, floor in _FLOORS if unit.search(counter)), damage_of(counter).least)


def stand_out(phase: str, growth: PhaseGrowth, gauges: set[str]) -> Iterator[GrownAlone]:
    """Yield the counters that stand out on a node during a phase: per second and per byte of its traffic.

    RDMA ports and NVLinks of a single node are compared with each other.
    """
    counters, table = growth.table(gauges)
    nodes, seconds = list(growth.seconds), np.array(list(growth.seconds.values()))
    traffic = _USUAL_BYTES + table[[_TRAFFIC.search(counter) is not None for counter in counters]].sum(axis=0)
    if len(nodes) > 1:
        for row, at, usual, absent in _odd_ones(counters, table, _compared(counters, table), seconds, traffic):
            amount, others = int(table[row, at]), len(nodes) - 1
            yield GrownAlone(phase, counters[row], nodes[at], amount, usual, others, absent)
        return
    kinds: dict[str, dict[str, list[tuple[str, float]]]] = defaultdict(lambda: defaultdict(list))
    for counter, (amount,) in zip(counters, table, strict=True):
        device, _, name = counter.rpartition(":")
        if "/" in device:
            kinds[device[:6] if device.startswith("nvlink") else ""][name].append((device, amount))
    for kind, grew in kinds.items():
        devices = list(dict.fromkeys(device for rows in grew.values() for device, _ in rows))
        names, table = (
            list(grew),
            np.array([[dict(rows).get(device, 0.0) for device in devices] for rows in grew.values()]),
        )
        alike = np.ones(len(devices))
        for row, at, usual, absent in _odd_ones([f"{kind}:{name}" for name in names], table, table, alike, alike):
            if not absent:
                counter, others = f"{devices[at]}:{names[row]}", len(devices) - 1
                yield GrownAlone(phase, counter, nodes[0], int(table[row, at]), usual, others, absent)


def _odd_ones(
    counters: Sequence[str], table: Floats, compared: Floats, seconds: Floats, traffic: Floats
) -> Iterator[tuple[int, int, int, bool]]:
    """Yield row and column of what stands out, what is usual there, and whether all others grew and it did not."""
    by_bytes = np.array([[_TRAFFIC.search(counter) is None] for counter in counters])
    usual = np.maximum(_of_peers(compared / seconds) * seconds, by_bytes * (_of_peers(compared / traffic) * traffic))
    floors = np.array([[least_growth(counter)] for counter in counters])
    for row, at in np.argwhere((table >= floors) & (table > FACTOR * usual + 3 * np.sqrt(usual))):
        yield row, at, int(usual[row, at]), False
    for row, counter in enumerate(counters if table.shape[1] > 2 else ()):
        if damage_of(counter).sender:
            at = int(table[row].argmin())
            rest = np.delete(table[row], at).min()
            if rest >= floors[row, 0] and rest > FACTOR * table[row, at]:
                yield row, at, int(rest), True


def _compared(counters: Sequence[str], table: Floats) -> Floats:
    """Return what the nodes are compared by: where a node has no such device, the most of any device that it has."""
    devices, most = defaultdict[str, list[int]](list), dict[str, Floats]()
    for row, counter in enumerate(counters):
        device, _, name = counter.rpartition(":")
        devices[device].append(row)
        most[name] = np.maximum(most[name], table[row]) if name in most else table[row]
    compared = table.copy()
    for device, rows in devices.items():
        without = ~table[rows].any(axis=0)
        for row in rows if device else ():
            compared[row, without] = most[counters[row].rpartition(":")[2]][without]
    return compared


def _of_peers(rates: Floats) -> Floats:
    """Return, for each node, the highest rate of the other nodes; of many nodes the second highest."""
    nth = 2 if rates.shape[1] >= _MANY else 1
    ranked = np.sort(rates, axis=1)[:, ::-1]
    return np.where(rates >= ranked[:, nth - 1 : nth], ranked[:, nth : nth + 1], ranked[:, nth - 1 : nth])


def command_for(counter: str) -> str:
    """Return the command that prints a counter on its node."""
    matches = ((re.match(row["pattern"], counter), row["command"]) for row in load("counters")["shown"])
    return next(str(command).format(**match.groupdict()) for match, command in matches if match)


class _CounterRule(Rule[Model]):
    role = Role.COUNTER
    domain = Domain.LINKS
    severity = Severity.WARN
    message = "{what}[ during {phases}]"
    evidence = ("also {others}", "{counters} since the start")

    def check(self, context: Model) -> Iterator[Finding | None]:
        return iter(())


for _row in load("counters")["rule"]:
    register(type(_row["name"], (_CounterRule,), declared(_row)))


@register
class LoneCounters(_CounterRule):
    """A counter grew on one node alone, or many times faster than on its peers, per second and per byte of traffic.

    Compared are all counters of the kernel, interfaces, drivers, RDMA ports, NVLinks, PCIe and control groups. They are
    read at the border of each phase. Names that mean damage have findings of their own; others are evidence of
    findings about the node.
    """

    id = "FT160"

    def check(self, context: Model) -> Iterator[Finding | None]:
        """Yield a finding for each node and kind of damage; None between phases."""
        if not context.growth.phases:
            yield from self._of_links(context)
        rows: list[GrownAlone] = []
        for phase, growth in context.growth.phases.items():
            rows += stand_out(phase, growth, context.growth.gauges)
            yield None
        near = {(row.phase, row.node): row for row in rows[::-1] if damage_of(row.counter).near}
        groups: dict[tuple[str, str], list[GrownAlone]] = defaultdict(list)
        for row in sorted(rows, key=lambda row: (damage_of(row.counter).rank, -row.times)):
            damage = damage_of(row.counter)
            rule = damage.rule
            if not damage.near and any(phase == row.phase for phase, _ in near):
                # What peers of a node with a fault of its own repeat follows from it, and what it repeats is a part.
                here = near.get((row.phase, row.node))
                rule = damage_of(here.counter).rule if rule and here is not None else ""
            if rule or not row.absent:
                groups[row.node, rule].append(row)
        for (node, rule), members in sorted(groups.items(), key=lambda group: not group[0][1]):
            yield self._of(context, node, rule, members)

    def _of_links(self, model: Model) -> Iterator[Finding]:
        """Yield errors of NVLinks since the start of a session that counted nothing else, such as one of fabtui 0.2."""
        rule = next(rule for rule in RULES if rule.id == "FT102")
        for record in model.nodes.values():
            before = first_links(record)
            for gpu in probed(record, "nvlink", "gpus"):
                grown = Counter[str]()
                for link in dicts(gpu.get("links")):
                    first = error_counters(before.get((str(gpu.get("index")), str(link.get("link"))), {}))
                    # A counter that went down was reset.
                    now = {name: n - first[name] for name, n in error_counters(link).items() if name in first}
                    grown += +Counter(now)
                if grown:
                    index, node = one_line(str(gpu.get("index")), 8), record.name
                    counts = tuple(f"{one_line(name, 40)} +{number}" for name, number in sorted(grown.items()))
                    yield rule.finding(
                        f"{node} GPU {index}",
                        nodes=(node,),
                        facts={"what": f"{node} GPU {index}: NVLink errors", "counters": counts},
                        commands=[on_node(node, f"nvidia-smi nvlink -{letter}", model) for letter in "se"],
                        weight=1,
                        blames=Subject(Kind.GPU, f"{node}:{index}"),
                    )

    def _of(self, model: Model, node: str, rule_id: str, rows: Sequence[GrownAlone]) -> Finding:
        largest: dict[str, GrownAlone] = {}
        for row in rows:
            if row.counter not in largest or row.amount + row.usual > sum(largest[row.counter][3:5]):
                largest[row.counter] = row
        first, *rest = largest.values()
        words, seen = damage_of(first.counter).words, {row.phase for row in rows}
        *before, last = [phase for phase in model.growth.phases if phase in seen]
        phases = f"{', '.join(before)} and {last}" if before else last
        others = list(map(str, rest[:_MOST_NAMED]))
        commands = [on_node(node, command_for(row.counter), model) for row in (first, *rest[:1])]
        what = f"{node}: {words}: {first}"
        if first.absent:
            peers = [name for name in model.growth.phases[first.phase].seconds if name != node]
            what = f"{node} sends {words}: {first} on {fold(peers)}, {first.amount:,} there"
            nics = dict.fromkeys(end.nic for end in model.table.of_node(node) if end.nic)
            commands = [*(on_node(node, f"ethtool -k {shlex.quote(nic)}", model) for nic in nics)][:2]
            commands.append(on_node(peers[0], command_for(first.counter), model))
        elif not rule_id:
            what, others = f"{node}: counters that grow there alone: {'; '.join([str(first), *others])}", []
        return next((rule for rule in RULES if rule.id == rule_id), self).finding(
            f"{node} {words}".strip(),
            severity=Severity.WARN if rule_id else Severity.NOTE,
            nodes=(node,),
            facts={
                "what": what,
                "phases": phases,
                "text": f"{what} during {phases}",
                "others": "; ".join(others) or None,
                "damages": first.absent or None,
            },
            commands=dict.fromkeys(commands),
            weight=1,
            blames=_subject(model, node, first.counter),
        )


def _subject(model: Model, node: str, counter: str) -> Subject:
    device = re.split("[:/]", counter)[0]
    if device.startswith("nvlink"):
        return Subject(Kind.GPU, f"{node}:{device.removeprefix('nvlink')}")
    used = {name for end in model.table.of_node(node) for name in (end.nic, end.port_name) if name}
    return Subject(Kind.NIC, f"{node} {device}") if device in used else Subject(Kind.NODE, node)
