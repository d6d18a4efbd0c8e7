"""What is wrong, told once: named causes, each with the cells it explains, what says so, and the next command.

The large causes are looked for first, and a cell that one explains is not explained again.
"""

from __future__ import annotations

import heapq
import itertools
from collections import defaultdict
from collections.abc import Iterable

from fabtui.diagnosis.knowledge.error_catalogue import common_error, meant
from fabtui.diagnosis.knowledge.next_commands import (
    nic_commands,
    node_commands,
    pair_commands,
    path_commands,
    within_commands,
)
from fabtui.diagnosis.links.link_states import link_causes
from fabtui.diagnosis.links.rdma_ports import PortNotes
from fabtui.diagnosis.mesh.grid_cells import closed_pairs, mesh_causes
from fabtui.diagnosis.pairs.p2p_vs_world import RailIsolation
from fabtui.diagnosis.pairs.rail_crossings import crossings
from fabtui.diagnosis.pairs.tally import DEAD, Pair, Survey, Tally
from fabtui.diagnosis.pairs.wholes import wholes
from fabtui.diagnosis.preflight.rules import preflight_causes
from fabtui.diagnosis.reports import Cause
from fabtui.model.endpoints import WITHIN_RAIL, Endpoint, PairClass
from fabtui.model.exit_codes import untested_reasons
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.session_model import Model
from fabtui.sanitize import one_line

__all__ = ["Cause", "causes", "causes_of"]

#: Of single pairs with the same error so many are told one by one; more are one cause.
_MOST_SINGLE = 4
#: Reasons for untested pairs, and pairs with notable times, that are told.
_MOST_REASONS = 4
_MOST_SPREADS = 2
_MOST_COMMANDS = 4
#: So many cells of a cause are asked for what looks tell of their ports.
_MOST_ASKED = 64
#: The weight of a node that is gone.
_MOST_OF_ALL = 1 << 30
#: An endpoint in fewer tests than this is not blamed for all of them.
_FEWEST = 3


def causes(model: Model, tally: Tally) -> list[Cause]:
    """Return what is wrong, the worst and largest first.

    Args:
        model: What is known.
        tally: The verdicts of its pairs.
    """
    return _Search(model, tally).run()


def causes_of(model: Model) -> list[Cause]:
    """Return what is wrong with everything that is known now."""
    return causes(model, Survey(model).finish())


def pair_causes(model: Model) -> list[Cause]:
    """Return what is wrong with pairs of endpoints, the largest first; not nodes that are gone and isolated rails."""
    return _Search(model, Survey(model).finish()).of_pairs()


class _Search:
    def __init__(self, model: Model, tally: Tally) -> None:
        self.model = model
        self.tally = tally
        self.left: dict[Pair, Verdict] = dict(tally.bad)
        self.found: list[Cause] = []
        #: A measurement for each error that was told.
        self.examples: dict[str, Measurement] = {}
        self.notes = PortNotes(model)
        self.at: dict[str, list[Pair]] = defaultdict(list)
        for pair in self.left:
            for end in pair:
                self.at[end].append(pair)

    def run(self) -> list[Cause]:
        self._gone()
        self._wholes()
        self._rails()
        self._nodes()
        self._endpoints()
        self._node_pairs()
        self._singles()
        self._slow()
        self._inside()
        self._flapping()
        self.found += link_causes(self.model)
        self.found += mesh_causes(self.model)
        self.found += preflight_causes(self.model)
        self._spreads()
        self._untested()
        ranks = {"bad": 0, "warn": 1, "note": 2}
        return sorted(self.found, key=lambda one: (ranks[one.verdict], -len(one.cells) - one.more))

    def of_pairs(self) -> list[Cause]:
        self._gone()
        isolated = self._isolated()
        self.found.clear()
        if not isolated:
            self._rails()
        for look in (self._wholes, self._nodes, self._endpoints, self._node_pairs, self._singles, self._slow):
            look()
        return sorted(self.found, key=lambda one: -len(one.cells))

    # -- telling ------------------------------------------------------------------------------------------------------

    def _tell(
        self,
        title: str,
        cells: Iterable[Pair],
        evidence: Iterable[str] = (),
        commands: Iterable[str] = (),
        more: int = 0,
    ) -> None:
        explained = frozenset(cells)
        for pair in explained:
            self.left.pop(pair, None)
        evidence = list(evidence)
        means, first = meant(self.model, self._example(explained, evidence)) if more < _MOST_OF_ALL else ([], [])
        # What the pairs of a node passed before it went is no news of what can run now.
        relayed = self._relayed(explained) if more < _MOST_OF_ALL else []
        told = [*evidence, *means, *self._known(explained), *relayed]
        # What many pairs have in common is looked at before one of them.
        following = list(dict.fromkeys([*first, *commands] if len(explained) <= 2 else [*commands, *first]))
        self.found.append(Cause("bad", title, explained, tuple(told), tuple(following[:_MOST_COMMANDS]), more))

    def _known(self, cells: frozenset[Pair]) -> list[str]:
        """Return what looks tell of the ports and cables of most of the cells."""
        counted: dict[str, int] = defaultdict(int)
        for pair in sorted(cells)[:_MOST_ASKED]:
            for note in self.notes.of(*pair):
                counted[note] += 1
        least = min(len(cells), _MOST_ASKED) / 2
        return [note for note, count in sorted(counted.items(), key=lambda item: -item[1]) if count >= least][:2]

    def _relayed(self, cells: frozenset[Pair]) -> list[str]:
        """Say what the communicator of all makes of cells that are bad alone."""
        if any(self._made(pair) for pair in cells):
            return ["made on purpose by the lab"]
        inside = [self.tally.inside[pair] for pair in cells if pair in self.tally.inside]
        passed = sum(verdict is Verdict.OK for verdict in inside)
        if not inside or not passed:
            return []
        gpus = all(end.kind == "gpu" for end in self.model.endpoints)
        so = ": jobs that use collectives can run" if gpus and passed == len(cells) else ""
        return [f"{passed} of {len(cells)} pass inside the communicator of all{so}"]

    def _made(self, pair: Pair) -> bool:
        latest = self.model.latest(Layer.P2P, *pair)
        return latest is not None and latest.made

    def _end(self, name: str) -> Endpoint | None:
        number = self.model.number(name)
        return None if number is None else self.model.endpoints[number]

    # -- what is dead -------------------------------------------------------------------------------------------------

    def _gone(self) -> None:
        for record in self.model.nodes.values():
            if not record.state.gone:
                continue
            mine = [p for p in self.left if record.name in (p[0].rpartition(":")[0], p[1].rpartition(":")[0])]
            mine = [pair for pair in mine if self.left[pair] in DEAD]
            hint = (one_line(record.hint, 300),) if record.hint else ()
            title = f"{one_line(record.name, 64)} {record.state}"
            self._tell(title, mine, [one_line(record.text, 300)], hint, _MOST_OF_ALL)

    def _wholes(self) -> None:
        for one in wholes(self.tally, self.left):
            commands = self._way(one.cells) if one.node is None else node_commands(self.model, one.node)
            self._tell(one.title, one.cells, self._errors(one.cells), commands)

    def _rails(self) -> None:
        if not self._isolated():
            for one in crossings(self.model, self.tally, self.left):
                self._tell(one.title, one.cells, one.evidence, self._way(one.cells))

    def _isolated(self) -> bool:
        """Tell that no rail has a route to another, where that is so and all is well within rails."""
        across = [p for p, kind in self.tally.kinds.items() if kind is PairClass.CROSS_RAIL]
        dead = [pair for pair in across if self.tally.bad[pair] in DEAD]
        within = sum(self.tally.of_class[kind] for kind in WITHIN_RAIL)
        if not dead or not within or len(dead) != self.tally.of_class[PairClass.CROSS_RAIL]:
            return False
        broken = any(kind in WITHIN_RAIL and self.tally.bad[pair] in DEAD for pair, kind in self.tally.kinds.items())
        if broken or any(end not in self.tally.alive for pair in dead for end in pair):
            return False
        inside = [self.tally.inside[pair] for pair in dead if pair in self.tally.inside]
        passed = sum(verdict in (Verdict.OK, Verdict.SLOW) for verdict in inside) if inside else None
        text = RailIsolation(within, len(dead), passed).text
        self._tell("rail-isolated fabric", dead, [text.removeprefix("rail-isolated fabric: ")], self._way(dead))
        return True

    def _way(self, cells: Iterable[Pair]) -> list[str]:
        return pair_commands(self.model, *min(cells))

    def _dead_off(self, end: str) -> bool:
        tested = self.tally.tested[end, True]
        return tested >= _FEWEST and self.tally.dead[end, True] == tested

    def _nodes(self) -> None:
        for record in list(self.model.nodes.values()):
            ends = [str(e) for e in self.model.endpoints_of(record.name) if self.tally.tested[str(e), True]]
            if len(ends) < 2 or len(self.model.nodes) < 3 or not all(self._dead_off(end) for end in ends):
                continue
            cells = {pair for end in ends for pair in self.at[end] if pair in self.left and self._is_off(pair)}
            if cells:
                self._tell(f"{record.name} reaches no other node", cells, self._errors(cells), self._way(cells))

    def _is_off(self, pair: Pair) -> bool:
        return pair[0].rpartition(":")[0] != pair[1].rpartition(":")[0]

    def _endpoints(self) -> None:
        """Blame endpoints that fail with all others, the one with the most cells first."""
        for endpoint in sorted(self.model.endpoints, key=lambda e: -len(self.at.get(str(e), ()))):
            name = str(endpoint)
            cells = {pair for pair in self.at.get(name, ()) if self.left.get(pair) in DEAD}
            everywhere = self.tally.dead[name, False] + self.tally.dead[name, True]
            tested = self.tally.tested[name, False] + self.tally.tested[name, True]
            if len(cells) < _FEWEST:
                continue
            if everywhere == tested and self.tally.tested[name, False]:
                what = "look at the GPU" if endpoint.kind == "gpu" else "look at its process"
                others = {end for pair in self.at[name] for end in pair}
                title = f"{name} fails with all {len(others) - 1} others: {what}"
                self._tell(title, cells, self._errors(cells), within_commands(self.model, endpoint)[1:])
            elif self._dead_off(name) and (off := {pair for pair in cells if self._is_off(pair)}):
                nic = f": look at its NIC{f' {one_line(endpoint.nic, 40)}' if endpoint.nic else ''}"
                self._tell(
                    f"{name} reaches no other node{nic}", off, self._errors(off), nic_commands(self.model, endpoint)
                )

    def _node_pairs(self) -> None:
        by_nodes: dict[Pair, set[Pair]] = defaultdict(set)
        for pair, verdict in self.left.items():
            if verdict in DEAD and self._is_off(pair):
                by_nodes[pair[0].rpartition(":")[0], pair[1].rpartition(":")[0]].add(pair)
        whole = {
            nodes
            for nodes, cells in by_nodes.items()
            if len(cells) > 1 and self.tally.between.get(nodes, [0, 0])[0] == self.tally.between[nodes][1]
        }
        for nodes in sorted(whole):
            if nodes[::-1] in whole and nodes > nodes[::-1]:
                continue
            both = nodes[::-1] in whole
            cells = by_nodes[nodes] | (by_nodes[nodes[::-1]] if both else set())
            way = f"between {nodes[0]} and {nodes[1]}" if both else f"from {nodes[0]} to {nodes[1]}"
            self._tell(
                f"nothing gets through {way}", cells, [*self._errors(cells), *self._pings(nodes)], self._way(cells)
            )

    def _pings(self, nodes: Pair) -> list[str]:
        rows = self.model.by_address(Layer.PING, *nodes)
        if not rows:
            return []
        good = sum(row.verdict is Verdict.OK for row in rows)
        if good == len(rows):
            return ["all pings between them are answered: a firewall, an interface, a GID or an MTU"]
        return [f"{len(rows) - good} of {len(rows)} address pairs answer no ping"]

    def _errors(self, cells: Iterable[Pair]) -> list[str]:
        """Return the error that most cells have, with how many."""
        found = common_error(self.model, cells)
        if found is None:
            return []
        self.examples[found.told] = found.example
        return [found.told]

    def _example(self, cells: frozenset[Pair], evidence: list[str]) -> Measurement | None:
        """Return a measurement with the error of some cells: that which their evidence tells, else one of a few."""
        for line in evidence:
            if line in self.examples:
                return self.examples[line]
        if not any(self.tally.bad.get(pair) in DEAD for pair in itertools.islice(cells, 1)):
            return None
        found = common_error(self.model, heapq.nsmallest(_MOST_ASKED, cells))
        return None if found is None else found.example

    def _singles(self) -> None:
        """Tell of dead pairs that nothing larger explains; many with one error as one."""
        # The mesh tells of addresses between which nothing passes: their pairs are not told again.
        for pair in [p for p, verdict in self.left.items() if verdict in DEAD and p in closed_pairs(self.model)]:
            self.left.pop(pair)
        by_error: dict[tuple[str, ...], set[Pair]] = defaultdict(set)
        for pair, verdict in self.left.items():
            if verdict in DEAD:
                by_error[tuple(self._errors([pair]))].add(pair)
        for error, cells in by_error.items():
            unordered = {(min(p), max(p)) for p in cells}
            if len(unordered) > _MOST_SINGLE:
                self._tell(f"{len(cells)} pairs fail alike", cells, error, self._way(cells))
        for a, b in sorted({(min(p), max(p)) for p, verdict in self.left.items() if verdict in DEAD}):
            ways = [pair for pair in ((a, b), (b, a)) if self.left.get(pair) in DEAD]
            name = f"{a} - {b}" if len(ways) == 2 else f"{ways[0][0]} > {ways[0][1]}"
            word = self.left[ways[0]]
            told = [one_line(self.model.suspects[pair], 300) for pair in ways if pair in self.model.suspects][:1]
            self._tell(f"{name} {word}", ways, [*self._errors(ways), *told], self._commands(ways))

    def _commands(self, ways: list[Pair]) -> list[str]:
        commands = pair_commands(self.model, *ways[0])
        ends = [self._end(name) for name in ways[0]]
        if not commands and ends[0] is not None and ends[1] is not None:
            look = path_commands if self._is_off(ways[0]) else within_commands
            commands = look(self.model, ends[0], ends[1])
        return commands

    # -- what is slow -------------------------------------------------------------------------------------------------

    def _slow_nodes(self) -> None:
        """Blame nodes of which every endpoint is slow with other nodes: what their NICs have in common."""
        for record in self.model.nodes.values():
            ends = [str(e) for e in self.model.endpoints_of(record.name) if self.tally.tested[str(e), True] >= _FEWEST]
            if len(ends) < 2 or len(self.model.nodes) < 3 or not all(self._slow_off(end) for end in ends):
                continue
            cells = {pair for end in ends for pair in self.at[end] if pair in self.left and self._is_off(pair)}
            if cells:
                told = [*self._shares(cells), "whichever node is at the other end: look for what differs on this one"]
                title = f"{record.name} is slow with other nodes, on all its {len(ends)} endpoints"
                self._tell(title, cells, told, node_commands(self.model, record.name))

    def _slow_off(self, end: str) -> bool:
        return self.tally.slow[end, True] >= 0.75 * self.tally.tested[end, True]

    def _slow(self) -> None:
        self._slow_nodes()
        for endpoint in sorted(self.model.endpoints, key=lambda e: -len(self.at.get(str(e), ()))):
            name = str(endpoint)
            for off in (True, False):
                tested = self.tally.tested[name, off]
                cells = {p for p in self.at.get(name, ()) if p in self.left and self._is_off(p) == off}
                if tested >= _FEWEST and len(cells) >= max(_FEWEST, 0.75 * tested):
                    where = "other nodes" if off else "its own node"
                    what = "look at its NIC and PCIe link" if off else "look at its NVLinks"
                    commands = nic_commands(self.model, endpoint) if off else within_commands(self.model, endpoint)[1:]
                    self._tell(f"{name} is slow with {where}: {what}", cells, self._shares(cells), commands)
        single = sorted({(min(p), max(p)) for p in self.left})
        if len(single) > _MOST_SINGLE:
            cells = set(self.left)
            self._tell(f"{len(cells)} pairs are slow", cells, self._shares(cells))
            return
        for a, b in single:
            ways = [pair for pair in ((a, b), (b, a)) if pair in self.left]
            name = f"{a} - {b}" if len(ways) == 2 else f"{ways[0][0]} > {ways[0][1]}"
            told = [one_line(self.model.suspects[pair], 300) for pair in ways if pair in self.model.suspects][:1]
            self._tell(f"{name} slow", ways, [*self._shares(ways), *told], self._commands(ways))

    def _shares(self, cells: Iterable[Pair]) -> list[str]:
        """Return how slow the slowest of some pairs is."""
        worst: tuple[float, str] | None = None
        for pair in cells:
            latest = self.model.latest(Layer.P2P, *pair) or self.model.latest(Layer.WORLD, *pair)
            if latest is None or latest.value is None:
                continue
            median = self.model.median(latest.layer, self.model.class_of(latest))
            if median:
                text = f"{pair[0]} > {pair[1]}: {latest.value:.3g} of {median:.3g} {latest.unit}"
                worst = min(filter(None, (worst, (latest.value / median, text))))
        return [] if worst is None else [worst[1]]

    # -- what is worth a word -----------------------------------------------------------------------------------------

    def _inside(self) -> None:
        cells = frozenset(self.tally.only_inside)
        if cells:
            text = "alone they pass: look at what all share, and at what else broke in the communicator"
            title = f"{len(cells)} pairs pass alone, not inside the communicator of all"
            self.found.append(Cause("warn", title, cells, (text,)))

    def _flapping(self) -> None:
        """Tell of pairs that flap, one by one; many as one."""
        found = sorted(self.model.flapping.items(), key=lambda item: (-item[1], item[0]))
        for (layer, src, dst), turned in found if len(found) <= _MOST_SINGLE else found[:0]:
            text = f"turned {turned} times within its latest attempts"
            self.found.append(Cause("warn", f"{src} > {dst} flaps in {layer}", frozenset({(src, dst)}), (text,)))
        if len(found) > _MOST_SINGLE:
            (layer, src, dst), turned = found[0]
            cells = frozenset((key[1], key[2]) for key, _ in found)
            text = f"the most of them {src} > {dst}, which turned {turned} times within its latest attempts in {layer}"
            self.found.append(Cause("warn", f"{len(cells)} pairs flap", cells, (text,)))

    def _spreads(self) -> None:
        found = sorted(self.tally.spreads, key=lambda one: -one.ratio)
        most = _MOST_SPREADS if any(end.kind == "gpu" for end in self.model.endpoints) else 0
        for one in found[:most]:
            m = one.measurement
            text = f"p99 {one.p99 * 1e6:.3g} us, {one.ratio:.1f} x the median: a link that flaps, or a busy node"
            title = f"{m.src} > {m.dst}: some messages take far longer"
            self.found.append(Cause("note", title, frozenset({(m.src, m.dst)}), (text,)))

    def _untested(self) -> None:
        reasons = {one_line(why, 300): pairs for why, pairs in untested_reasons(self.model).items()}
        gone = [one_line(record.text, 300) for record in self.model.nodes.values() if record.state.gone]
        listed = sorted(reasons.items(), key=lambda item: -len(item[1]))
        for why, cells in [entry for entry in listed if entry[0] not in gone][:_MOST_REASONS]:
            self.found.append(Cause("note", f"{len(cells)} pairs not tested", frozenset(cells), (why,)))
