"""Evidence from the nodes of ranks that a source names, and the command to type next."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from fabtui.diagnosis.running_job.node_evidence import NodeEvidence, Typed, addresses_of, node_evidence, with_evidence
from fabtui.diagnosis.running_job.who_is_behind import (
    JobPlace,
    WhoIsBehind,
    over_ssh,
)
from fabtui.session.options import SessionOptions
from fabtui.session.running_job.inquiry import AskNodes, Reply
from fabtui.transport.registry import command_on_node

#: Maximum number of nodes whose evidence is collected.
_MOST_NODES = 4
#: Time (s) for a node, and for finding the nodes of addresses.
_DEADLINE = 30.0
_SEARCH = 60.0


class Collected(NamedTuple):
    """Evidence of nodes, the names of nodes by address, why nodes gave none, and how nodes were reached."""

    evidence: list[NodeEvidence]
    names: dict[str, str]
    problems: list[str]
    backends: dict[str, str]


async def collect(
    hosts: Sequence[str], suspects: Sequence[JobPlace], names: dict[str, str], ask: AskNodes
) -> Collected:
    """Return the evidence about ranks, from their nodes.

    Nodes of addresses that nobody knows are searched for: every node is asked until all are found.
    """
    wanted = list(dict.fromkeys(names.get(place.node, place.node) for place in suspects if place.node))
    known = [node for node in wanted if node in hosts][:_MOST_NODES]
    unknown = {node for node in wanted if node not in hosts}
    arguments = {"pids": [place.pid for place in suspects if place.pid is not None]}
    answers: dict[str, Reply] = {}
    names = dict(names)

    def complete(reply: Reply) -> bool:
        # Asked more than once about a reply.
        answers[reply.node] = reply
        for address in addresses_of(reply.value or {}):
            names.setdefault(address, reply.node)
        return not unknown - names.keys()

    async def search(nodes: Sequence[str], enough: Callable[[Reply], bool]) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SEARCH):
                await ask(nodes, "evidence", arguments, _DEADLINE, enough)

    if known:
        await search(known, lambda reply: complete(reply) and False)
    others = [host for host in hosts if host not in known]
    if others and unknown - names.keys():
        await search(others, complete)
    return _collected(list(answers.values()), suspects, names, unknown)


def _collected(
    answers: Sequence[Reply], suspects: Sequence[JobPlace], names: dict[str, str], unknown: set[str]
) -> Collected:
    places = [place._replace(node=names.get(place.node, place.node)) for place in suspects]
    wanted = {place.node for place in places}
    found: dict[str, NodeEvidence] = {}
    problems: dict[str, None] = {}
    for reply in answers:
        if reply.node in wanted and reply.value is not None:
            found[reply.node] = node_evidence(reply.node, reply.value, places)
        elif reply.node in wanted:
            problems[f"{reply.node}: {reply.problem}"] = None
    for address in sorted(unknown - names.keys()):
        problems[f"{address} is the address of none of the nodes that were asked: nothing is known about it"] = None
    backends = {reply.node: reply.backend for reply in answers}
    return Collected(list(found.values())[:_MOST_NODES], names, list(problems), backends)


def typed_for(options: SessionOptions, backends: Mapping[str, str]) -> Typed:
    """Return what makes a command for a node the one that is typed here, in the terms of what reached the node."""
    recorded = options.recorded()

    def typed(node: str, command: str) -> str:
        if node not in options.hosts:
            return over_ssh(node, command)
        return command_on_node(recorded, node, command, backends.get(node, ""))

    return typed


async def completed(who: WhoIsBehind, options: SessionOptions, names: dict[str, str], ask: AskNodes) -> WhoIsBehind:
    """Return an answer with the evidence of the nodes of its ranks, and with one next command."""
    collected = await collect(options.hosts, who.suspects, names, ask)
    found = with_evidence(who, collected.evidence, typed_for(options, collected.backends), bool(options.job))
    found.sentences.extend(collected.problems)
    return found
