"""Rules about a job that runs on the nodes of a session. Their context is the session model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from fabtui.diagnosis.finding import Domain, Finding, Kind, Rule, Severity, Subject, register, register_family
from fabtui.diagnosis.job.job_verdict import JobState, JobVerdict
from fabtui.diagnosis.job.judge import job_verdict
from fabtui.diagnosis.job.who_is_behind import ranks_text
from fabtui.model.session_model import Model
from fabtui.nodeset import count

#: Weight of a running job among findings of the same severity: it comes first.
_FIRST = 1 << 30
#: Maximum number of ranks that are far from their GPUs and listed.
_MOST_FAR = 8
#: Source of evidence of each fact.
SOURCE_OF_FACT = {
    "gpus": "NVML",
    "processes": "/proc",
    "ras": "RAS",
    "stacks": "stacks",
    "recorder": "flight recorder",
    "inspector": "Inspector",
    "log": "log",
    "kernel": "kernel",
}


class _RunningJobRule(Rule[Model]):
    domain = Domain.RUNNING
    state: ClassVar[JobState]  #: State of the job that it reports.
    evidence = (
        "GPUs (NVML): {gpus}",
        "processes (/proc): {processes}",
        "NCCL RAS: {ras}",
        "stacks: {stacks}",
        "flight recorder: {recorder}",
        "NCCL Inspector: {inspector}",
        "log: {log}",
        "kernel: {kernel}",
        "fabric: {fabric}",
        "{needs}",
    )

    def check(self, context: Model) -> Iterator[Finding]:
        verdict = job_verdict(context)
        if verdict is not None and verdict.state is self.state:
            yield self._about(verdict)

    def _about(self, verdict: JobVerdict) -> Finding:
        return self.finding(
            "job",
            nodes=dict.fromkeys(filter(None, (*(place.node for place in verdict.behind), *verdict.nodes))),
            commands=verdict.next,
            facts=facts_of(verdict),
            weight=_FIRST,
            blames=_blamed(verdict),
        )


def facts_of(verdict: JobVerdict) -> dict[str, Any]:
    """Return the facts of a finding about a running job."""
    found: dict[str, Any] = {"job": verdict.title, "seconds": verdict.duration if verdict.lasts else None}
    if not verdict.lasts:
        found["brief"] = True
    texts = {one.name: one.text for one in verdict.sources}
    found |= {fact: texts[name] for fact, name in SOURCE_OF_FACT.items() if name in texts}
    if verdict.behind:
        found["who"] = f"{ranks_text(verdict.behind)} {verdict.where}".strip()
    for name, text in (("fabric", verdict.fabric), ("needs", verdict.needs)):
        if text and text != found.get("kernel"):
            found[name] = text
    return found


def _blamed(verdict: JobVerdict) -> Subject | None:
    if not verdict.behind:
        return None
    first = verdict.behind[0]
    row = next((row for row in verdict.ranks if row.place == first), None)
    if row is not None and first.gpu:
        return Subject(Kind.GPU, row.endpoint)
    return Subject(Kind.NODE, first.node) if first.node else None


_STATES = {"J20": JobState.HANGS, "J21": JobState.SLOW, "J23": JobState.DIVERGES}
register_family(_RunningJobRule, {rule_id: {"state": state} for rule_id, state in _STATES.items()})


@register
class RankStruck(_RunningJobRule):
    """The kernel reported an Xid or an OOM kill that struck a rank of a running job, which still makes progress."""

    id = "J22"
    state = JobState.MOVES

    def check(self, context: Model) -> Iterator[Finding]:
        """Yield the finding about ranks that a report struck while the job makes progress."""
        for found in super().check(context):
            if found.facts.get("who"):
                verdict = job_verdict(context)
                yield found.replace(severity=Severity.BAD) if verdict is not None and verdict.struck else found


@register
class RankFarFromGpu(Rule[Model]):
    """A rank may not run, or have memory, on the NUMA node of its GPU, or its settings name a NIC far from it."""

    id = "J28"
    name = "rank-far-from-gpu"
    title = "Rank far from its GPU"
    domain = Domain.RUNNING
    severity = Severity.WARN
    message = "{ranks} far from their GPUs: {first}"
    evidence = ("{each:lines}",)
    next_step = "Bind each rank to the NUMA node of its GPU."

    def check(self, context: Model) -> Iterator[Finding]:
        samples = [sample for node in context.job.nodes if (sample := context.job.latest(node)) is not None]
        far = [rank for sample in samples for rank in sample.ranks if rank.far]
        if far:
            lines = [f"rank {rank.process.rank} on {rank.process.endpoint}: {rank.far}" for rank in far]
            facts = {"ranks": count(len(far), "rank"), "first": lines[0], "each": tuple(lines[:_MOST_FAR])}
            yield self.finding("placement", nodes=dict.fromkeys(rank.process.node for rank in far), facts=facts)
