"""Rules about IMEX, the service that lets GPUs of several nodes share memory over NVLink."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from fabtui.diagnosis.finding import Finding, Severity, register
from fabtui.diagnosis.preflight.node_context import NodeContext, NodeRule
from fabtui.model.facts.node_view import ProbedNode, dicts, field, number, text, yes
from fabtui.nodeset import fold

_READY = "READY"
_WAITING = "WAITING_FOR_PEERS"
_VERSIONS = "version mismatch"
#: States of a node, and what they mean.
_STATES = {
    "UNAVAILABLE": "it is not running, or does not answer on its command port",
    _WAITING: "it is waiting for other nodes on its list",
    "WAITING_FOR_RECOVERY": "it is waiting for GPUs to be reset, or for the memory of a lost node to be released",
    "SHUTTING_DOWN": "it ends",
}
#: GPUs that are built for NVLink between nodes.
_BETWEEN_NODES = re.compile(r"\bGB[0-9]00\b")
_VERSION = re.compile(r"[0-9]{3,4}(?:\.[0-9]{1,4}){1,3}", re.ASCII)
#: Maximum number of nodes that a line names which are not in the session.
_MOST_NAMED = 6


class _Apart(NamedTuple):
    """Two nodes, both ready, without a connection, and why."""

    one: str
    other: str
    why: str


class _Domains:
    """IMEX domains as the nodes of a session see them; other nodes have their address as a name."""

    def __init__(self, context: NodeContext) -> None:
        self.nodes = {node.name: node for node in context.nodes if _relevant(node)}
        self._names: dict[str, str] = {}
        for node in self.nodes.values():
            mine = [entry for entry in dicts(node.seen("imex", "nodes")) if yes(entry.get("own"))]
            words = [node.name, node.part("host"), *(entry.get(key) for entry in mine for key in ("host", "hostname"))]
            words += [entry.get("address") for entry in dicts(node.part("data_addresses"))]
            for word in filter(None, map(text, words)):
                self._names.setdefault(word, node.name)
        #: State of each node of the session by its own report, and of others by the reports of these.
        self.states = {name: state for name, node in self.nodes.items() if (state := text(node.seen("imex", "state")))}
        self.reported: dict[str, tuple[str, list[str]]] = {}
        self.apart: dict[_Apart, None] = {}
        for name, node in self.nodes.items():
            self._listen(name, node)
        #: Whether nodes were asked, so that others are outside of the session.
        self.session = any("installed" in node.probe_results.get("imex", {}) for node in self.nodes.values())

    def name(self, entry: object) -> str:
        words = [word for key in ("hostname", "host") if (word := text(field(entry, key)))]
        return next((self._names[word] for word in words if word in self._names), words[0] if words else "a node")

    def _listen(self, reporter: str, node: ProbedNode) -> None:
        by_number = {number(entry.get("node")): entry for entry in dicts(node.seen("imex", "nodes"))}
        for entry in by_number.values():
            name, state = self.name(entry), text(entry.get("state")) or _READY
            if state != _READY and name not in self.states:
                self.reported.setdefault(name, (state, []))[1].append(reporter)
            elif state != _READY and self.states[name] == _READY and name != reporter:
                self.apart[_Apart(reporter, name, f"{reporter} gets no answer")] = None
        for link in dicts(node.seen("imex", "apart")):
            one, two = sorted(self.name(by_number.get(number(link.get(end)))) for end in ("from", "to"))
            self.apart[_Apart(one, two, text(link.get("state")) or "not connected")] = None

    def ready(self, name: str) -> bool:
        """Return True if a node is ready as far as is known."""
        return self.states.get(name, _READY) == _READY and name not in self.reported


def _relevant(node: ProbedNode) -> bool:
    """Return True if the node may have NVLink to other nodes: elsewhere an IMEX that does not run is not a fault."""
    gpus = [*dicts(node.seen("gpus", "gpus")), *dicts(node.part("gpus"))]
    return not gpus or any(
        field(gpu, "fabric", "cluster") or _BETWEEN_NODES.search(text(gpu.get("name")) or "") for gpu in gpus
    )


def _some(names: Iterable[str], known: Iterable[str]) -> str:
    """Return names of nodes: those of the session folded, of the others the first ones."""
    listed, ours = list(dict.fromkeys(names)), set(known)
    folded = [fold(mine)] if (mine := [name for name in listed if name in ours]) else []
    others = [name for name in listed if name not in ours]
    more = [f"{len(others) - _MOST_NAMED} more"] if len(others) > _MOST_NAMED else []
    return ", ".join([*folded, *others[:_MOST_NAMED], *more])


class _ImexRule(NodeRule):
    def _about(self, nodes: Iterable[str], severity: Severity, facts: dict[str, object], command: str) -> Finding:
        names = list(dict.fromkeys(nodes))
        commands = [f"ssh {fold(names[:1])} {one}" for one in ("nvidia-imex-ctl -N -H", command)]
        return self.finding("imex", severity=severity, nodes=names, facts=facts, commands=commands)


@register
class ImexNotReady(_ImexRule):
    """IMEX of a node is not ready, or has no connection to other nodes of its domain.

    Their GPUs then do not share memory over NVLink. On machines without NVLink between nodes IMEX does not matter.
    """

    id = "FT127"

    def check(self, context: NodeContext) -> Iterator[Finding]:
        domains = _Domains(context)
        states = {name: (state, list[str]()) for name, state in domains.states.items() if state != _READY}
        mine = {**states, **{name: reported for name, reported in domains.reported.items() if name in domains.nodes}}
        waiting = [name for name, (state, _) in mine.items() if state == _WAITING]
        causes = {name: reported for name, reported in {**domains.reported, **mine}.items() if reported[0] != _WAITING}
        apart = [pair for pair in domains.apart if domains.ready(pair.one) and domains.ready(pair.other)]
        apart = [pair for pair in apart if pair.why != _VERSIONS]
        follow = waiting if causes or apart else []
        groups: dict[str, list[str]] = {}
        for name, (state, _) in mine.items():
            if name not in follow:
                groups.setdefault(state, []).append(name)
        for state, names in groups.items():
            facts: dict[str, object] = {"state": state, "meaning": _STATES.get(state, "it has not started yet")}
            heard = [node for name in names for node in domains.reported.get(name, ("", []))[1] if node not in names]
            facts |= {"reporters": _some(heard, domains.nodes) or None, "waiting": _some(follow, domains.nodes) or None}
            # Where it runs nowhere, it may be meant to start with a job.
            nowhere = len(names) == len(domains.states) > 1
            severity = Severity.WARN if nowhere else Severity.BAD
            yield self._about(names, severity, facts, "systemctl status nvidia-imex")
        for name, (state, reporters) in domains.reported.items():
            if name not in domains.nodes and not (state == _WAITING and causes):
                # In the output of a command all nodes are what it is about.
                severity = Severity.NOTE if domains.session else Severity.BAD
                facts = {"peer": name, "peer_state": state, "outside": domains.session or None}
                yield self._about(reporters, severity, facts, "systemctl status nvidia-imex")
        yield from self._apart(domains, apart)

    def _apart(self, domains: _Domains, apart: list[_Apart]) -> Iterator[Finding]:
        left = list(apart)
        while left:
            often = Counter(end for pair in left for end in (pair.one, pair.other))
            # Among equals, a node of the session can be looked at.
            end = max(often, key=lambda name: (often[name], name in domains.nodes))
            mine = [pair for pair in left if end in pair[:2]]
            left = [pair for pair in left if end not in pair[:2]]
            others = [pair.other if pair.one == end else pair.one for pair in mine]
            facts = {"apart": _some(others, domains.nodes), "why": ", ".join(dict.fromkeys(pair.why for pair in mine))}
            nodes = [end]
            if end not in domains.nodes:
                nodes = [name for name in others if name in domains.nodes] or list(domains.nodes)[:1]
                facts["apart"] = end
            yield self._about(nodes, Severity.BAD, {**facts}, "cat /etc/nvidia-imex/nodes_config.cfg")


def _version(value: object) -> tuple[str, ...] | None:
    """Return the parts of a version; None for another text, such as ``NO_GPU``."""
    word = text(value) or ""
    return tuple(word.split(".")) if _VERSION.fullmatch(word) else None


def _fits(version: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Return True if two versions are one: IMEX shows fewer parts than the driver."""
    return all(mine == theirs for mine, theirs in zip(version, other, strict=False))


@register
class ImexVersion(_ImexRule):
    """IMEX of a node does not have the version of its driver, or of the other nodes of its domain."""

    id = "FT128"

    def check(self, context: NodeContext) -> Iterator[Finding]:
        domains = _Domains(context)
        command = "cat /proc/driver/nvidia/version"
        unfit: dict[tuple[str, str, bool], list[str]] = {}
        for name, node in domains.nodes.items():
            driver = text(node.part("driver")) or text(node.seen("gpus", "driver")) or ""
            mine, theirs = _version(node.seen("imex", "version")), _version(driver)
            if mine and theirs and not _fits(mine, theirs):
                unfit.setdefault((".".join(mine), driver, domains.ready(name)), []).append(name)
        for (version, driver, ready), nodes in unfit.items():
            severity = Severity.WARN if ready else Severity.BAD
            yield self._about(nodes, severity, {"version": version, "driver": driver}, command)
        named = {name for nodes in unfit.values() for name in nodes}
        refused = [pair for pair in domains.apart if pair.why == _VERSIONS]
        odd = list(dict.fromkeys(each for node in domains.nodes.values() for each in self._odd(domains, node)))
        severity = Severity.BAD if refused else Severity.WARN
        for peers, version, usual in odd:
            if not named & set(peers):
                ours = [name for name in peers if name in domains.nodes] or list(domains.nodes)[:1]
                facts = {"peers": _some(peers, domains.nodes), "version_of": version, "usual": usual}
                yield self._about(ours, severity, {**facts}, command)
        if refused and not odd and not unfit:
            ends = [end for pair in refused for end in pair[:2]]
            nodes = [end for end in dict.fromkeys(ends) if end in domains.nodes] or list(domains.nodes)[:1]
            others = [end for end in ends if end not in nodes] or ends
            facts = {"apart": _some(others, domains.nodes), "why": _VERSIONS}
            yield self._about(nodes, severity, {**facts}, command)

    def _odd(self, domains: _Domains, node: ProbedNode) -> Iterator[tuple[tuple[str, ...], str, str]]:
        by_version: dict[tuple[str, ...], list[str]] = {}
        for entry in dicts(node.seen("imex", "nodes")):
            if version := _version(entry.get("version")):
                same = next((known for known in by_version if _fits(known, version)), version)
                by_version.setdefault(same, []).append(domains.name(entry))
        usual = max(by_version, key=lambda version: len(by_version[version]), default=())
        for version, names in by_version.items():
            if version != usual:
                yield tuple(sorted(names)), ".".join(version), ".".join(usual)
