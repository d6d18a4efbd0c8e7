"""Report about a hanging job: which ranks are behind, by RAS, flight recorder or stacks, and evidence from nodes."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from fabtui.diagnosis.running_job.flight_recorder import answer as flight_answer
from fabtui.diagnosis.running_job.node_evidence import NodeEvidence, Typed, addresses_of, node_evidence, with_evidence
from fabtui.diagnosis.running_job.who_is_behind import (
    STOPPED,
    Answer,
    JobPlace,
    StackGroup,
    at_rank,
    grouped,
    over_ssh,
    rank_stacks,
)
from fabtui.nodeset import fold
from fabtui.sanitize import clean
from fabtui.session.options import SessionOptions
from fabtui.session.running_job.inquiry import AskNodes, Reply, collect_dumps, inquire
from fabtui.transport.registry import command_on_node

#: Deadlines (s) of dumps that are there already and of stacks, and time between two reports of RAS.
_DUMPS, _STACKS, BETWEEN = 60.0, 60.0, 10.0
#: Maximum number of groups of stacks, and of sentences of a source that names nobody.
_MOST_GROUPS = 4
_MOST_OTHERS = 3


class HangReport(NamedTuple):
    """Finding about a job that hangs."""

    when: str  #: Local time of the report.
    job: str  #: The id of the job, or "".
    nodes: tuple[str, ...]  #: Its nodes.
    signals: tuple[str, ...]  #: What showed that it hangs.
    answer: Answer  #: Who is behind, what the nodes show, and the next command.
    source: str  #: What named the ranks: ``RAS``, ``flight recorder``, ``stacks``; "" if nothing did.

    @property
    def title(self) -> str:
        """The finding in one sentence."""
        job = f"job {self.job}" if self.job else "the job"
        return f"{job} hangs on {fold(self.nodes)}: {'; '.join(self.signals)}"

    def values(self) -> dict[str, Any]:
        """Return it as JSON-able values."""
        found = self.answer.values()
        return {
            "finding": clean(self.title),
            "time": self.when,
            "job": self.job or None,
            "nodes": list(self.nodes),
            "signals": [clean(signal) for signal in self.signals],
            "named_by": self.source or None,
            "answer": [clean(sentence) for sentence in found["answer"]],
            "next": [clean(command) for command in found["next"]],
        }


async def report_hang(
    options: SessionOptions, signals: tuple[str, ...], ask: AskNodes, between: float = BETWEEN
) -> HangReport:
    """Collect the evidence about a job that hangs; nothing is started in the job, written or changed.

    Args:
        options: The nodes, the job, and how nodes are reached.
        signals: What shows that it hangs.
        ask: Asker of the nodes.
        between: Time (s) between two reports of RAS.
    """
    ras = await inquire(ask, options.hosts, "", between)
    dumps = await collect_dumps(ask, options.hosts, {"existing": True}, _DUMPS)
    recorded = flight_answer(dumps.dumps, dumps.places) if dumps.dumps else None
    inspected = await ask(options.hosts, "stacks", {}, _STACKS, lambda _: False)
    groups = grouped(
        one for reply in inspected if reply.value is not None for one in rank_stacks(reply.node, reply.value)
    )
    sources = {"RAS": ras.answer, "flight recorder": recorded, "stacks": _of_stacks(groups)}
    known = {name: found for name, found in sources.items() if found is not None}
    source = next((name for name, found in known.items() if found.suspects), "")
    base = known.pop(source) if source else Answer(["no source shows which rank is behind"], [], None)
    others = [f"{name}: {sentence}" for name, found in known.items() for sentence in found.sentences[:_MOST_OTHERS]]
    others += [group.sentence() for group in groups[:_MOST_GROUPS]] if source != "stacks" else []
    whole = await completed(base._replace(next=base.next[:1]), options, ras.names, ask)
    unread = [f"{reply.node}: {reply.problem}" for reply in inspected if reply.value is None]
    sentences = list(dict.fromkeys([*whole.sentences, *others, *unread]))
    when = time.strftime("%Y-%m-%d %H:%M:%S")
    return HangReport(when, options.job, options.hosts, signals, whole._replace(sentences=sentences), source)


def _of_stacks(groups: list[StackGroup]) -> Answer | None:
    """Return the ranks that are stopped, else those that stand apart from most; None if there are none."""
    ranks = sum(len(group.ranks) for group in groups)
    chosen = next((group for group in groups if group.ranks[0].activity == STOPPED), None)
    if chosen is None and len(groups) > 1 and 2 * len(groups[0].ranks) < ranks:
        chosen = groups[0]
    if chosen is None:
        return None
    suspects = tuple(one.place for one in chosen.ranks)
    sentences = [group.sentence() for group in (chosen, *(group for group in groups[::-1] if group is not chosen))][:2]
    return Answer(sentences, [at_rank(suspects[0], chosen.ranks[0].command)], True, suspects)


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
        problems[f"{address} is the address of none of the nodes that were asked: nothing is known of it"] = None
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


async def completed(who: Answer, options: SessionOptions, names: dict[str, str], ask: AskNodes) -> Answer:
    """Return an answer with the evidence of the nodes of its ranks, and with one next command."""
    collected = await collect(options.hosts, who.suspects, names, ask)
    found = with_evidence(who, collected.evidence, typed_for(options, collected.backends), bool(options.job))
    found.sentences.extend(collected.problems)
    return found
