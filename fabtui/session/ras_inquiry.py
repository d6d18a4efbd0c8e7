"""Question to NCCL's RAS service on the nodes of a job: two reports, who is behind, and names instead of addresses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from fabtui.jobs.answer import Answer
from fabtui.jobs.node_evidence import addresses_of
from fabtui.jobs.ras_answer import answer
from fabtui.jobs.ras_reading import report_of
from fabtui.jobs.ras_report import RasReport
from fabtui.session.node_addresses import resolved
from fabtui.session.one_probe import AskNodes, Reply
from fabtui_node.parsers.base import Notes

#: Time (s) for the reports, without the time between them.
_DEADLINE = 90.0


class RasInquiry(NamedTuple):
    """Result of the question.

    Attributes:
        replies: The answers of the nodes that were asked.
        node: The node that has a report; "" if none has.
        address: The address of its service.
        report: The latest report, or None.
        answer: Who is behind; None without a report.
        names: Names of nodes by address.
        notes: What in the report was not understood.
    """

    replies: list[Reply]
    node: str
    address: str
    report: RasReport | None
    answer: Answer | None
    names: dict[str, str]
    notes: Notes


async def inquire(ask: AskNodes, hosts: Sequence[str], address: str, wait: float) -> RasInquiry:
    """Ask nodes until one has a report; ask it again after ``wait`` seconds (0: once)."""
    arguments = {"address": address, "wait": wait}
    found = await ask(hosts, "ras", arguments, _DEADLINE + wait, lambda reply: bool(texts_of(reply)))
    names = {address: reply.node for reply in found for address in addresses_of(reply.value or {})}
    asked = next((reply for reply in found if texts_of(reply)), None)
    notes = Notes()
    if asked is None:
        return RasInquiry(found, "", "", None, None, names, notes)
    texts = texts_of(asked)
    latest = report_of(texts[-1], notes)
    earlier = report_of(texts[0], Notes()) if len(texts) > 1 else None
    if any(host not in names and host not in hosts for host in latest.hosts()):
        names = {**await resolved(hosts), **names}
    # A job on one node may use the loopback interface.
    names.update({host: asked.node for host in latest.hosts() if host.startswith("127.") or host == "::1"})
    latest.rename(names)
    who = answer(latest, earlier)
    if stopped := stopped_ranks(asked):
        who.sentences.append(stopped)
    where = next((str(part.get("address", ""))[:300] for part in asked.parts if part.get("address")), "")
    return RasInquiry(found, asked.node, where, latest, who, names, notes)


def texts_of(reply: Reply) -> list[str]:
    """Return the whole reports in the answer of a node, the latest last."""
    texts: dict[int, list[str]] = {}
    for part in reply.parts:
        number, text = part.get("report"), part.get("text")
        if number in (0, 1) and isinstance(text, str):
            texts.setdefault(number, []).append(text)
    complete = reply.value.get("reports") if reply.value else None
    # Of a report that was cut off by the deadline there may be parts.
    return ["".join(texts[number]) for number in sorted(texts)][: complete if isinstance(complete, int) else 0]


def processes(reply: Reply) -> list[dict[str, Any]]:
    """Return the processes with a rank on a node."""
    found = (reply.value or {}).get("processes")
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def stopped_ranks(reply: Reply) -> str:
    """Return which processes with a rank are stopped on a node, or nothing."""
    stopped = [str(one.get("pid")) for one in processes(reply) if one.get("state") in ("T", "t")]
    if not stopped:
        return ""
    return f"stopped (state T) on {reply.node}: process {', '.join(stopped[:8])}; kill -CONT lets it go on"
