"""Tools that ask nodes: preflight and tests of a session, and questions about a running job."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from fabtui.diagnosis.diagnosis import Evidence, diagnose
from fabtui.diagnosis.preflight.environment import expectations
from fabtui.diagnosis.running_job.job_verdict import exit_code
from fabtui.diagnosis.running_job.who_is_behind import NO_RANK
from fabtui.export.json import job_json, job_report_json
from fabtui.export.preflight import json_text
from fabtui.jobs.monitor.report import JobReport
from fabtui.lab.faults import LabSpec
from fabtui.mcp.answer import Answer, steps_from, steps_of
from fabtui.mcp.file_access import checked_logs
from fabtui.mcp.session_answer import examined_lines, not_examined_lines, seen_lines, session_answer, unseen_lines
from fabtui.mcp.tool import FINDINGS, LINES, ROWS, SENTENCE, SESSION_BODY, Tool, ToolCall, switch, text, texts
from fabtui.mcp.worker_threads import in_thread
from fabtui.model.schedule import MODES
from fabtui.nodeset import count, fold
from fabtui.presentation.findings import as_json as finding_json
from fabtui.presentation.progress_estimate import phase_text
from fabtui.presentation.verdict_line import sentence_of
from fabtui.sanitize import one_line
from fabtui.session.feeds.live import LiveFeed
from fabtui.session.options import SessionOptions
from fabtui.session.running_job.job_report import reported
from fabtui.session.running_job.job_session import PATIENCE, observed
from fabtui.session.running_job.monitor import JobMonitor

#: Maximum number of notices of connections.
_MOST_NOTICES = 10


async def _session(call: ToolCall, options: SessionOptions, seconds: float) -> tuple[LiveFeed, tuple[str, ...]]:
    """Run a session to its end, or for a time (s); return it closed, and why it is not whole.

    It is closed when the call is cancelled, too: nothing is left on the nodes.
    """
    feed = LiveFeed(options)
    call.step = lambda: _progress(feed)
    problems: tuple[str, ...] = ()
    try:
        async with asyncio.timeout(seconds):
            await feed.run()
    except TimeoutError:
        problems = (f"the session was ended after {seconds:.0f} s, in {feed.model.phase.name}: the rest is not known",)
    finally:
        await feed.close()
    if feed.recording_stopped is not None:
        problems += (f"the recording is incomplete: {feed.recording_stopped}",)
    return feed, problems


def _progress(feed: LiveFeed) -> str:
    model = feed.model
    ready = sum(not record.state.gone for record in model.nodes.values())
    tests = f", {min(model.done, model.phase.total)} of {count(model.phase.total, 'test')}" if model.phase.total else ""
    return f"{phase_text(model)}: {count(ready, 'node')}{tests}"


def _names(options: SessionOptions) -> Sequence[str]:
    return options.hosts if options.lab is None else LabSpec.parse(options.lab).names


async def preflight(call: ToolCall) -> Answer:
    """Inspect nodes without tests."""
    expected = expectations(call.given.pop("expect", ()))
    options = await in_thread(lambda: call.requests.preflight(call.given))
    call.permission.check(options.hosts)
    feed, problems = await _session(call, options, call.seconds)

    def answer() -> Answer:
        found = diagnose(Evidence(feed.model, expected=expected))
        inspected = found.preflight
        return Answer(
            sentence_of(found),
            json.loads(json_text(feed.model, inspected)),
            examined=list(examined_lines(feed.model)),
            not_examined=[*problems, *not_examined_lines(found)],
            code=inspected.exit_code,
            recording=options.record,
            next=steps_of(inspected.findings),
        )

    return await in_thread(answer)


async def run(call: ToolCall) -> Answer:
    """Test GPUs and links."""
    call.permission.check_tests()
    options = await in_thread(lambda: call.requests.run(call.given))
    call.permission.check(options.hosts)
    with call.permission.spend(_names(options), call.seconds) as seconds:
        feed, problems = await _session(call, options, seconds)

    def answer() -> Answer:
        found = session_answer(feed.diagnosis(), options.record, problems)
        return replace(found, data={**found.data, "node_seconds_left": round(call.permission.left)})

    return await in_thread(answer)


def _with_logs(call: ToolCall) -> dict[str, Any]:
    """Return the arguments of a call with its logs checked; blocks."""
    checked_logs(call.given.get("logs", []), "logs")
    return call.given


async def hang(call: ToolCall) -> Answer:
    """Report whether a running job hangs."""
    options, query = await in_thread(lambda: call.requests.hang(_with_logs(call)))
    call.permission.check(options.hosts)
    notices: list[str] = []
    call.step = lambda: f"observing the job on {count(len(options.hosts), 'node')}"
    query = query and query._replace(assistant=True)
    async with asyncio.timeout(call.seconds), observed(options, notices.append, query, PATIENCE) as session:
        verdict = await session.snapshot()
        unread, logs = session.unread(), session.unread_logs()
    findings = (await in_thread(lambda: diagnose(session.model))).findings
    data: dict[str, Any] = {"findings": [finding_json(one) for one in findings], "notices": notices[:_MOST_NOTICES]}
    if verdict is None:
        unread = unread or [f"{NO_RANK} {fold(options.hosts)}"]
        return Answer(unread[0], data, [], [*unread, *logs], exit_code(verdict), options.record)
    return Answer(
        verdict.sentence,
        {**job_json(verdict), **data},
        examined=list(seen_lines(verdict)),
        not_examined=[
            *unread,
            *logs,
            *unseen_lines(verdict),
        ],
        code=exit_code(verdict),
        recording=options.record,
        next=[*steps_from(verdict.next), *steps_of(findings)],
    )


async def job(call: ToolCall) -> Answer:
    options, query = await in_thread(lambda: call.requests.job(_with_logs(call)))
    call.permission.check(query.nodes)
    notices: list[str] = []
    call.step = lambda: f"reading the logs of job {query.job}" if query.job else "reading the logs"
    monitor = JobMonitor(query._replace(assistant=True))
    async with (
        asyncio.timeout(call.seconds),
        reported(monitor, options, notices.append, check=call.permission.check) as report,
    ):
        pass
    call.permission.check([row.node for row in report.rows])
    logs = report.facts.logs.files
    body = job_report_json(report)
    if "logs" in call.given:
        # Not to be had: the text of any file that is called a log.
        for one in body["logs"]:
            one.pop("tail")
    title = f"Job {query.job} ({report.status.state or 'unknown to Slurm'})" if query.job else "The job of these logs"
    first = f": {report.findings[0].facts['text']}" if report.findings else ""
    asked = [node for node, facts in report.facts.nodes.items() if not facts.problem]
    return Answer(
        one_line(f"{title}: {report.verdict}{first}", 1000),
        {**body, "notices": notices[:_MOST_NOTICES]},
        examined=[
            f"{count(len(logs), 'log')}: {one_line(', '.join(file.path for file in logs.values()), 600)}",
            *([f"{count(len(asked), 'node')}: {one_line(fold(asked), 400)}"] if asked else []),
        ],
        not_examined=[*report.unread, *_unasked(report)],
        code=report.exit_code,
        next=steps_of(report.findings),
    )


def _unasked(report: JobReport) -> Iterator[str]:
    if not report.status.job:
        quiet = report.facts.logs.quiet()
        last = "" if quiet is None else f"; its last output is {quiet:.0f} s old"
        yield f"whether the job still runs: without jobid Slurm was not asked{last}"
    if not report.facts.nodes:
        yield "its nodes: no node was asked, as only those of a running job are"


_NODES = {
    "nodes": text("Node set, as of Slurm: n[060-067],n070. Default: all that this server was started for."),
    "exclude": text("Nodes to leave out, same syntax."),
}
_JOBID = {"jobid": text("Job of Slurm, instead of nodes, or with them for some of its nodes.", 60)}
_LOGS = {"logs": texts("Where the logs are, such as '../log/{job}/*.out'. Default: where Slurm writes them.", 16)}
NODE_TOOLS = (
    Tool(
        name="preflight",
        title="Inspect nodes without tests",
        description=(
            "Inspects nodes with light probes: GPUs, NICs, drivers, limits, clocks, and what differs between nodes. It "
            "starts no rank and loads no link: it does not show that pairs or collectives work."
        ),
        seconds=300.0,
        answer=preflight,
        arguments={**_NODES, **_JOBID, "expect": texts("Expected values of facts: gpus=8 x H200, numa_nodes=2.")},
        body={"findings": FINDINGS, "nodes": ROWS, "facts": ROWS, "verdicts": ROWS},
        on_nodes=True,
    ),
    Tool(
        name="run",
        title="Test pairs and collectives",
        description=(
            "Tests GPU pairs and collectives between nodes, and finds what is slow or broken. It loads GPUs and links, "
            "needs --allow-tests and spends node seconds of the budget. GPUs that a job uses are not tested; they are "
            "listed in not_examined. Call preflight first."
        ),
        seconds=1800.0,
        answer=run,
        arguments={
            **_NODES,
            **_JOBID,
            "probes": texts("Probes and tests, such as ping, p2p, all_reduce. Default: all."),
            "mode": {
                "type": "string",
                "enum": list(MODES),
                "description": "Which pairs are tested. Default: by size.",
            },
            "pair": texts("Only these pairs of endpoints, both ways: n060:3>n061:5."),
            "layers": texts("Pair layers to test: world (all ranks), p2p (two ranks).", 2),
            "bytes": text("Message sizes of pairs: 256M or 8M,256M.", 200),
            "collectives": texts("Collectives, or all. Default: all_reduce."),
            "sizes": text("Message sizes of collectives: 1M,64M or 8-1G:4.", 200),
            "groups": text("Collectives over the first 2, then 4, ... GPUs: 2,4,8.", 200),
            "isolated": switch("One pair at a time, without other traffic."),
            "bidirectional": switch("Also test both directions at once."),
            "confirm": switch("After the sweep, test what the first five findings blame."),
        },
        body={**SESSION_BODY, "node_seconds_left": {"type": "integer"}},
        tests=True,
        on_nodes=True,
    ),
    Tool(
        name="hang",
        title="Does a running job hang?",
        description=(
            "Reports whether a running job hangs, which rank is behind, by which evidence, and what a person should "
            "type next. It only observes: NVML, /proc, stacks, RAS, flight recorders, logs. The job does not notice."
        ),
        seconds=180.0,
        answer=hang,
        arguments={**_NODES, **_JOBID, **_LOGS},
        body={"state": SENTENCE, "ranks": ROWS, "sources": ROWS, "next": LINES, "findings": FINDINGS},
        on_nodes=True,
    ),
    Tool(
        name="job",
        title="State of a job",
        description=(
            "Reports on a running or ended job: state, errors in its logs, GPUs, iteration times, settings that differ "
            "between nodes. It only reads logs, Slurm and the nodes."
        ),
        seconds=120.0,
        answer=job,
        arguments={**_NODES, **_JOBID, **_LOGS},
        body={"verdict": SENTENCE, "findings": ROWS, "nodes": ROWS, "logs": ROWS, "unread": LINES},
        on_nodes=True,
    ),
)
