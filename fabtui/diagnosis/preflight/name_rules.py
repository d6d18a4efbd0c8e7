"""Rules about names, name services and logins: what nodes resolve each other's names to, and how long that takes."""

from __future__ import annotations

import ipaddress
import math
import shlex
import statistics
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from fabtui.diagnosis.finding import Finding, Severity, register
from fabtui.diagnosis.preflight.node_context import NodeContext, NodeRule
from fabtui.model.facts.compare import shown
from fabtui.model.facts.node_view import ProbedNode, dicts, number, text
from fabtui.nodeset import fold
from fabtui.sanitize import one_line
from fabtui_node.probes.judgement import texts

#: Minimum seconds by which a login or a reverse look-up is longer than on the other nodes, and minimum ratios: to the
#: usual one of them, and to the slowest.
_LONGER, _TIMES, _TIMES_SLOWEST = {"login": 4.0, "lookup": 1.0}, 4.0, 2.0
#: Time (s) that counts for a reverse query without an answer: what the probe waits for.
_NO_ANSWER = 2.0
_PROBLEMS = {
    "refused": "connection refused: nothing listens there, or a firewall rejects",
    "timeout": "no answer to a connection within 3 s",
    "unresolved": "the name does not resolve",
}


class _Resolved(NamedTuple):
    node: str  #: Where the name was resolved.
    name: str
    owner: str  #: Node that has the name.
    addresses: tuple[str, ...]


def _getent(node: str, name: str) -> str:
    return f"ssh {fold([node])} getent ahosts {shlex.quote(one_line(name, 255))}"


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _owners(context: NodeContext) -> dict[str, str]:
    owners: dict[str, set[str]] = {}
    for node in context.nodes:
        for name in {node.name, text(node.part("host")) or node.name}:
            owners.setdefault(name, set()).add(node.name)
    return {name: nodes.pop() for name, nodes in owners.items() if len(nodes) == 1}


def _held(node: ProbedNode) -> set[str]:
    return {str(entry.get("address")) for nic in dicts(node.part("nics")) for entry in dicts(nic.get("addresses"))}


def _resolved(context: NodeContext) -> Iterator[_Resolved]:
    owners = _owners(context)
    for node in context.nodes:
        names = node.seen("names", "names")
        for name, listed in names.items() if isinstance(names, Mapping) else ():
            if (owner := owners.get(str(name))) is not None and isinstance(listed, list) and listed:
                yield _Resolved(node.name, str(name), owner, tuple(text(address) or "?" for address in listed))


@register
class WrongAddressOfName(NodeRule):
    """A node resolves the name of a node to an address of a different node, to the loopback, or to an old address.

    A job whose MASTER_ADDR is that name connects elsewhere. Debian and Ubuntu write a node's own name to /etc/hosts as
    127.0.1.1: Gloo gives that address to ranks of other nodes unless GLOO_SOCKET_IFNAME is set.
    """

    id = "FT146"
    not_in_lab = True

    def check(self, context: NodeContext) -> Iterator[Finding]:
        held = {node.name: _held(node) for node in context.nodes}
        every = list(_resolved(context))
        #: The addresses of its owner that a name resolves to on any node.
        good: dict[str, dict[str, None]] = {}
        for name in every:
            good.setdefault(name.name, {}).update(dict.fromkeys(_right(name, held[name.owner])))
        groups: dict[tuple[_Wrong, str], list[str]] = {}
        for name in every:
            if name.node != name.owner and held[name.owner] and not _right(name, held[name.owner]):
                holders = [node for node in held if node != name.owner and held[node].intersection(name.addresses)]
                if (wrong := _wrong(name, holders, known=bool(good[name.name]))) is not None:
                    groups.setdefault((wrong, name.name), []).append(name.node)
        for (wrong, peer), nodes in groups.items():
            facts = {"peer": peer, "address": wrong.address, "whose": wrong.whose}
            if right := ", ".join(good[peer]):
                facts["right"] = f"its address is {right}"
            yield self._finding(peer, wrong.severity, nodes, facts)
        yield from self._own_names(context, every)

    def _own_names(self, context: NodeContext, every: list[_Resolved]) -> Iterator[Finding]:
        own = [one for one in every if one.node == one.owner]
        local = {one.node: one for one in own if all(map(_is_loopback, one.addresses))}
        set_for_gloo = {node.name for node in context.nodes if node.part("env", "GLOO_SOCKET_IFNAME")}
        # As Debian installs it, all nodes have it.
        odd = len(local) * 2 < len({one.node for one in own})
        groups: dict[tuple[str, Severity], list[str]] = {}
        for node, one in local.items():
            severity = Severity.WARN if odd and node not in set_for_gloo else Severity.NOTE
            groups.setdefault((", ".join(one.addresses[:2]), severity), []).append(node)
        for (address, severity), nodes in groups.items():
            yield self._finding(local[nodes[0]].name, severity, nodes, {"own": address})

    def _finding(self, name: str, severity: Severity, nodes: list[str], facts: Mapping[str, str]) -> Finding:
        commands = (_getent(nodes[0], name),)
        return self.finding("names", severity=severity, nodes=nodes, facts=facts, commands=commands)


class _Wrong(NamedTuple):
    address: str
    whose: str
    severity: Severity


def _right(one: _Resolved, held: set[str]) -> list[str]:
    return [address for address in one.addresses if address in held and not _is_loopback(address)]


def _wrong(one: _Resolved, holders: list[str], *, known: bool) -> _Wrong | None:
    """Return what is wrong with a name none of whose addresses its owner has; ``known``: others resolve it rightly."""
    address = ", ".join(one.addresses[:2])
    if all(map(_is_loopback, one.addresses)):
        return _Wrong(address, "the node itself", Severity.BAD)
    if holders:
        return _Wrong(address, f"an address of {fold(holders)}", Severity.BAD)
    # An address that no node has may be translated on the way.
    return _Wrong(address, f"which {one.owner} does not have", Severity.WARN) if known else None


def _slower(values: Mapping[str, float], kind: str) -> dict[str, float]:
    slower = {}
    for node, value in values.items():
        others = [other for name, other in values.items() if name != node] or [value]
        # On a busy machine all take long, and none as long as a fault.
        slowest = max(others) if len(others) > 1 else math.inf
        for usual, times in ((statistics.median(others), _TIMES), (slowest, _TIMES_SLOWEST)):
            if value - usual >= _LONGER[kind] and value >= times * usual:
                slower[node] = statistics.median(others)
    return slower


def _lookups(context: NodeContext) -> dict[str, tuple[float, str]]:
    """Return the slowest reverse look-up of each node, with its address; `_NO_ANSWER` stands for no answer."""
    slowest = {}
    for node in context.nodes:
        times = node.seen("names", "reverse")
        items = times.items() if isinstance(times, Mapping) else ()
        known = [(_NO_ANSWER if number(time) is None else float(time), str(address)) for address, time in items]
        if known:
            slowest[node.name] = max(known)
    return slowest


def _lookup_text(seconds: float, address: str) -> str:
    took = "more than 2 s" if seconds >= _NO_ANSWER else shown(seconds, "s")
    return f"looking up the name of {text(address)} takes {took}"


@register
class SlowLogin(NodeRule):
    """Logging in to a node takes much longer than to the others, as with a slow name service or shell start file."""

    id = "FT147"
    not_in_lab = True

    def check(self, context: NodeContext) -> Iterator[Finding]:
        logins = {
            node.name: float(s) for node in context.nodes if (s := number(node.seen("login", "seconds"))) is not None
        }
        lookups = _lookups(context)
        for node, usual in _slower(logins, "login").items():
            facts = {"seconds": shown(round(logins[node], 1), "s"), "usual": shown(round(usual, 1), "s")}
            if node in lookups and lookups[node][0] >= 1.0:
                facts["lookup"] = _lookup_text(*lookups[node])
            python = shlex.quote(one_line(str(context.model.options.get("remote_python") or "python3"), 200))
            started = shlex.quote(f"time {python} -c pass")
            commands = [f"ssh -v {fold([node])} true", f"ssh {fold([node])} {started}"]
            # What a login does not wait for, the interpreter does.
            yield self.finding(
                "login", nodes=(node,), facts=facts, commands=commands[:: 1 if "lookup" in facts else -1]
            )


@register
class SlowNameService(NodeRule):
    """Looking up the name of a peer's address takes much longer than on the others: sshd and Kerberos wait for it."""

    id = "FT148"
    not_in_lab = True

    def check(self, context: NodeContext) -> Iterator[Finding]:
        lookups = _lookups(context)
        times = {node: seconds for node, (seconds, _) in lookups.items()}
        slow_login = {finding.nodes[0] for finding in SlowLogin().check(context)}
        for node, usual in _slower(times, "lookup").items():
            if node not in slow_login:
                facts = {"lookup": _lookup_text(*lookups[node]), "usual": shown(usual, "s")}
                yield self.finding("names", nodes=(node,), facts=facts, commands=[_getent(node, lookups[node][1])])


@register
class MasterNotReached(NodeRule):
    """A node does not connect to the address and port of ``--master``, as ranks do to MASTER_ADDR and MASTER_PORT."""

    id = "FT149"

    def check(self, context: NodeContext) -> Iterator[Finding]:
        groups: dict[tuple[str, str, str, str], list[str]] = {}
        reached = 0
        for node in context.nodes:
            value = node.probe_results.get("master", {})
            if (state := text(value.get("state"))) is None:
                continue
            reached += state == "connected"
            if state != "connected":
                host, port = text(value.get("host")) or "?", f"{number(value.get('port')) or 0:.0f}"
                problem = _PROBLEMS.get(state) or text(value.get("error")) or state
                addresses = ", ".join(texts(value.get("addresses"))[:3])
                groups.setdefault((host, port, problem, addresses), []).append(node.name)
        nobody = not reached and len(groups) == 1
        for (host, port, problem, addresses), nodes in groups.items():
            target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            facts: dict[str, object] = {"target": target, "problem": problem, "reached": reached or None}
            facts["resolved"] = f"{host} is {addresses} there" if addresses not in ("", host) else None
            severity = Severity.WARN if nobody and problem == _PROBLEMS["refused"] else Severity.BAD
            commands = (_getent(nodes[0], host),)
            yield self.finding("master", severity=severity, nodes=nodes, facts=facts, commands=commands)
