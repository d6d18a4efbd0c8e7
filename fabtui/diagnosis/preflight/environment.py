"""Rules about the surroundings of nodes: variables of the login environment, the scheduler, and expected facts."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from fabtui.diagnosis.finding import Finding, Severity, register
from fabtui.diagnosis.knowledge.error_catalogue import meaning_of, of_line
from fabtui.diagnosis.preflight.node_context import NodeContext, NodeRule
from fabtui.errors import InputError, argument
from fabtui.model.facts.catalogue import facts_for
from fabtui.model.facts.compare import Fact, shown
from fabtui.model.facts.node_view import ProbedNode, Value, dicts, field, text
from fabtui.nodeset import count, fold
from fabtui.sanitize import one_line
from fabtui.scheduler.slurm_text import is_broken, out_of_service

#: Interfaces of container engines, hypervisors and the host itself: they lead to no other node.
LOCAL_ONLY = ("docker", "virbr", "lo")
#: Values of CUDA_VISIBLE_DEVICES that hide all GPUs on purpose.
_NO_GPUS = ("-1", "none", "void", "nodevfiles")
_PATHS = {"missing": "does not exist", "not writable": "is not writable"}
_RANGE = re.compile(r"([0-9]{1,4})(?:-([0-9]{1,4}))?", re.ASCII)


class _Problem(NamedTuple):
    severity: Severity
    text: str


def _nics(node: ProbedNode) -> list[str] | None:
    nics = node.part("nics")
    return [str(nic.get("name")) for nic in dicts(nics)] if isinstance(nics, list) else None


def _ports(node: ProbedNode) -> list[tuple[str, str]] | None:
    ports = node.part("ib")
    return [(str(port.get("ca")), str(port.get("port"))) for port in dicts(ports)] if isinstance(ports, list) else None


def _missing(value: str, wanted: str, matches: Callable[[str], bool], result: str) -> Iterator[_Problem]:
    """Yield the problem of listed words that match nothing: bad if none does."""
    words = [word for word in value.split(",") if word]
    if lost := [word for word in words if not matches(word)]:
        names = ", ".join(one_line(word, 40) for word in lost[:4])
        severity, end = (Severity.BAD, f": {result}") if lost == words else (Severity.WARN, ", and it is ignored")
        yield _Problem(severity, f"no {wanted} {names}{end}")


def _ib_hca(node: ProbedNode, value: str) -> Iterator[_Problem]:
    """Judge NCCL_IB_HCA: prefixes, or exact names after ``=``, with or without a port; exclusions after ``^``."""
    ports = _ports(node)
    if ports is None or value.startswith("^"):
        return
    exact = value.startswith("=")

    def matches(word: str) -> bool:
        name, _, number = word.partition(":")
        same = [port for ca, port in ports if (ca == name if exact else ca.startswith(name))]
        return bool(same) and (not number or number in same)

    yield from _missing(value.lstrip("="), "RDMA device", matches, "NCCL falls back to TCP")


def _ucx_devices(node: ProbedNode, value: str) -> Iterator[_Problem]:
    """Judge UCX_NET_DEVICES: RDMA ports and interfaces by name; patterns and exclusions are not judged."""
    ports, nics = _ports(node), _nics(node)
    if ports is None or nics is None or value == "all" or re.search(r"[\^*?\[]", value):
        return
    known = {*nics, *(name for ca, port in ports for name in (ca, f"{ca}:{port}"))}
    yield from _missing(value, "device", known.__contains__, "UCX finds no network")


def _gloo_interfaces(node: ProbedNode, value: str) -> Iterator[_Problem]:
    """Judge GLOO_SOCKET_IFNAME: names of interfaces, one of which each process group takes in turn."""
    nics = _nics(node)
    if nics is None:
        return
    yield from _missing(value, "interface", nics.__contains__, "Gloo does not start")
    if local := [word for word in value.split(",") if word in nics and word.startswith(LOCAL_ONLY)]:
        names = ", ".join(one_line(word, 40) for word in local[:4])
        yield _Problem(Severity.BAD, f"{names} leads to no other node: Gloo connects no ranks of different nodes")


def _visible_gpus(node: ProbedNode, value: str) -> Iterator[_Problem]:
    """Judge CUDA_VISIBLE_DEVICES: the driver lists fewer GPUs than it names."""
    words = [word for word in value.split(",") if word.strip()]
    shown = node.part("gpus")
    if not isinstance(shown, list) or node.part("driver") is None or value.lower() in _NO_GPUS:
        return
    if len(shown) < len(words):
        few = f"programs see {len(shown) or 'none'} of them"
        yield _Problem(Severity.BAD, f"it names {count(len(words), 'GPU')}, {few}")


def _allocated_gpus(node: ProbedNode, value: str) -> Iterator[_Problem]:
    """Judge SLURM_JOB_GPUS: Slurm gave the job GPUs with higher numbers than there are GPUs on PCI."""
    there = node.part("pci_gpus")
    highest = max((int(last or first) for first, last in _RANGE.findall(value)), default=-1)
    if isinstance(there, list) and there and highest >= len(there):
        yield _Problem(Severity.BAD, f"Slurm gave the job GPU {highest}, and there are {len(there)} GPUs on PCI")


_CHECKS: Mapping[str, Callable[[ProbedNode, str], Iterator[_Problem]]] = {
    "NCCL_IB_HCA": _ib_hca,
    "UCX_NET_DEVICES": _ucx_devices,
    "GLOO_SOCKET_IFNAME": _gloo_interfaces,
    "CUDA_VISIBLE_DEVICES": _visible_gpus,
    "SLURM_JOB_GPUS": _allocated_gpus,
}


def _problems(node: ProbedNode, alone: bool) -> Iterator[tuple[str, _Problem]]:
    env, paths = node.part("env"), node.part("env_paths")
    for variable, value in env.items() if isinstance(env, dict) else ():
        if variable in _CHECKS and isinstance(value, str) and value and not (alone and value == "lo"):
            yield from ((variable, problem) for problem in _CHECKS[variable](node, value))
    for variable, path in paths.items() if isinstance(paths, dict) else ():
        if state := _PATHS.get(str(field(path, "state"))):
            yield one_line(str(variable), 60), _Problem(Severity.BAD, f"{text(field(path, 'path'))} {state}")


@register
class VariableRefersToNothing(NodeRule):
    """A variable of the login environment names an RDMA device, interface, GPU or file that the node does not have."""

    id = "FT322"

    def check(self, context: NodeContext) -> Iterator[Finding]:
        groups: dict[tuple[str, str | None, _Problem], list[str]] = {}
        # The nodes of a lab are one machine.
        alone = len(context.nodes) == 1 or bool(context.model.lab)
        for node in context.nodes:
            for variable, problem in _problems(node, alone):
                groups.setdefault((variable, text(node.part("env", variable)), problem), []).append(node.name)
        for (variable, value, problem), nodes in groups.items():
            yield self.finding(
                variable,
                severity=problem.severity,
                nodes=nodes,
                facts={"variable": variable, "value": value, "problem": problem.text},
                commands=(f"ssh {fold(nodes[:1])} env | grep {variable}",),
            )


@register
class OutOfService(NodeRule):
    """Slurm gives a node no jobs: it is drained, down, failing or in maintenance."""

    id = "FT330"
    not_in_lab = True

    def check(self, context: NodeContext) -> Iterator[Finding]:
        groups: dict[tuple[str, str], list[str]] = {}
        for record in context.model.nodes.values():
            known = record.probe_results.get("slurm")
            state, responds = text(field(known, "state")) or "", field(known, "responds")
            if out_of_service(state, responds):
                silent = responds is False and not is_broken(state)
                state = ", ".join([state, "not responding"]) if silent else state
                groups.setdefault((state, text(field(known, "reason")) or ""), []).append(record.name)
        for (state, reason), nodes in groups.items():
            facts = {"state": state, "where": fold(nodes), **({"reason": reason} if reason else {})}
            # Slurm's own reasons have fixed meanings; a person is asked about other ones.
            if (meaning := meaning_of(reason) if reason else None) is not None:
                facts |= of_line(meaning, reason).facts
            yield self.finding(
                reason or state,
                nodes=tuple(nodes),
                facts=facts,
                severity=Severity.BAD if is_broken(state) else Severity.WARN,
                commands=(f"scontrol show node {nodes[0]}",),
            )


def expectations(texts: Sequence[str]) -> dict[str, str]:
    """Return expected values by the name of the fact: ``FACT=VALUE``.

    Raises:
        InputError: There is no such fact, or no value.
    """
    known = {fact.name for fact in facts_for([])}
    expected: dict[str, str] = {}
    for word in texts:
        name, _, value = (part.strip() for part in word.partition("="))
        if not value:
            raise InputError(
                f"{argument('expect')}: {word[:60]!r} is not FACT=VALUE; expected something like gpus='8 x H200'"
            )
        if name not in known:
            near = difflib.get_close_matches(name, known, 3, 0.4) or sorted(known)
            raise InputError(f"{argument('expect')}: no fact {name[:40]!r}; similar facts: {', '.join(near)}")
        expected[name] = value
    return expected


def unknown(context: NodeContext) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the expected facts that are unknown of nodes: the nodes, and a line about them."""
    for fact, wanted, values in _expected(context):
        if nodes := tuple(node for node, value in values.items() if value is None):
            yield nodes, f"{fold(nodes)}: {fact.title}: unknown, expected {wanted}"


def _expected(context: NodeContext) -> Iterator[tuple[Fact, str, Mapping[str, Value]]]:
    facts = {fact.name: fact for fact in facts_for([])}
    nothing: dict[str, Value] = dict.fromkeys(node.name for node in context.nodes)
    for name, wanted in context.expected.items():
        values = dict(context.table.values.get(name, nothing))
        for node in context.nodes if name == "gpus" else ():
            # A node that lost all of its GPUs has no models to count.
            if values[node.name] is None and node.part("gpus") == [] == node.part("pci_gpus"):
                values[node.name] = "none"
        yield facts[name], wanted, values


@register
class UnexpectedValue(NodeRule):
    """A fact of a node is not what ``--expect`` asks for: GPUs, power limit, CPUs, NUMA nodes, or any other."""

    id = "FT303"

    def check(self, context: NodeContext) -> Iterator[Finding]:
        for fact, wanted, values in _expected(context):
            groups: dict[str, list[str]] = {}
            for node, value in values.items():
                # Written as in JSON, or as in the table.
                words = str(value), shown(value, fact.unit)
                if value is not None and wanted.casefold() not in map(str.casefold, words):
                    groups.setdefault(words[1], []).append(node)
            for word, nodes in groups.items():
                commands = [fact.next.replace("{node}", fold(nodes[:1]))] if fact.next else []
                facts = {"title": fact.title, "found": word, "wanted": wanted}
                yield self.finding(fact.name, nodes=nodes, facts=facts, commands=commands)
