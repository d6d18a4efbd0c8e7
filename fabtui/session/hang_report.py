"""Report about a job that hangs: who is behind, by RAS, flight recorder or stacks, and what the nodes show."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from fabtui.jobs.answer import Answer, at_rank, stack_command
from fabtui.jobs.flight_answer import answer as flight_answer
from fabtui.jobs.stacks import STOPPED, StackGroup, grouped, rank_stacks
from fabtui.nodeset import fold
from fabtui.sanitize import clean
from fabtui.session.flight_inquiry import collect_dumps
from fabtui.session.job_evidence import completed
from fabtui.session.one_probe import AskNodes
from fabtui.session.options import SessionOptions
from fabtui.session.ras_inquiry import inquire

#: Deadlines (s) of dumps that are there already and of stacks, and time between two reports of RAS.
_DUMPS, _STACKS, BETWEEN = 60.0, 60.0, 10.0
#: Maximum number of groups of stacks, and of sentences of a source that names nobody.
_MOST_GROUPS = 4
_MOST_OTHERS = 3


class HangReport(NamedTuple):
    """Finding about a job that hangs.

    Attributes:
        when: Local time of the report.
        job: The id of the job, or "".
        nodes: Its nodes.
        signals: What showed that it hangs.
        answer: Who is behind, what the nodes show, and the next command.
        source: What named the ranks: ``RAS``, ``flight recorder``, ``stacks``; "" if nothing did.
    """

    when: str
    job: str
    nodes: tuple[str, ...]
    signals: tuple[str, ...]
    answer: Answer
    source: str

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
    return Answer(sentences, [at_rank(suspects[0], stack_command(suspects[0]))], True, suspects)
