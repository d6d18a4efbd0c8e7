"""The tools: arguments, time and answers of calls; preflight and tests of a session, jobs, recordings, and texts."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from fabtui.config import values
from fabtui.diagnosis.diagnosis import RULES, Diagnosis, Evidence, diagnose
from fabtui.diagnosis.finding import Finding
from fabtui.diagnosis.job.job_verdict import exit_code
from fabtui.diagnosis.job.who_is_behind import NO_RANK
from fabtui.diagnosis.knowledge.failure_stage import explained_errors
from fabtui.diagnosis.preflight.environment import expectations
from fabtui.errors import InputError
from fabtui.exit_status import ALL_OK, BAD, NOT_TESTED
from fabtui.export.history import json_text as history_text
from fabtui.export.json import job_json, job_report_json, pair_json
from fabtui.export.preflight import json_text
from fabtui.history.components import node_at
from fabtui.history.file import history_file
from fabtui.history.query import read_overview, usual_start
from fabtui.importers.catalogue import chosen, recognise
from fabtui.importers.formats.job_dumps import results_of
from fabtui.importers.result import read
from fabtui.importers.session import compared, is_recording, read_session, replayed
from fabtui.importers.sources import Source, sources
from fabtui.importers.to_model.dispatch import findings_about
from fabtui.mcp.answer import Answer, job_coverage, not_asked_lines, session_answer, steps_of
from fabtui.mcp.permission import Permission, check_logs, checked_file, checked_files
from fabtui.model.endpoints import node_of
from fabtui.nodeset import chosen_nodes, count, fold
from fabtui.presentation.component_history import empty_text, overview_sentence
from fabtui.presentation.findings import as_json as finding_json
from fabtui.presentation.findings import placed_title
from fabtui.presentation.progress_estimate import phase_text
from fabtui.presentation.verdict_line import sentence_of
from fabtui.presentation.wording import verdict_words
from fabtui.report.explained import explained_logs, explained_text
from fabtui.report.recordings import recordings_in
from fabtui.report.session_diff import json_text as diff_text
from fabtui.report.text import text_lines
from fabtui.sanitize import one_line
from fabtui.session.feeds.live import LiveFeed
from fabtui.session.options import JobQuery, SessionOptions
from fabtui.session.running_job.job_session import PATIENCE, observed, reported
from fabtui.session.running_job.monitor import JobMonitor

ItemT = TypeVar("ItemT")
#: Returns the options of a command with some arguments, as the command line does, and where the logs of a job are.
Options = Callable[[str, dict[str, Any]], tuple[SessionOptions, JobQuery | None]]
#: For files. One of 64 MiB takes seconds, in which its thread cannot be interrupted, and 400 MiB of memory; more at
#: once would also take the processor from sessions on nodes, whose heartbeats must not wait.
_FILES = ThreadPoolExecutor(4, "fabtui-mcp-files")
Text = Annotated[str, Meta(min_length=1, max_length=4000)]
#: Maximum number of notices of connections.
_MOST_NOTICES = 10
#: Longest text (characters) that may be pasted, and width of the lines of an explanation.
_PASTED, _WIDTH = 512 * 1024, 120
#: The session that was asked about last, by path, time and size, with why it is not whole: assistants ask several
#: questions about one, and large ones take 20 s to read. One is read at a time.
_LATEST: dict[tuple[Path, int, int], tuple[Diagnosis, tuple[str, ...]]] = {}
_READING = threading.Lock()


@dataclass
class ToolCall:
    """A call of a tool."""

    options: Options
    recordings: Path  #: Folder of the user's recordings.
    permission: Permission  #: What is allowed.
    seconds: float  #: How long (s) it may take.
    step: Callable[[], str] = lambda: "working"  #: Returns what is done now, for people who wait.
    given_up: bool = False  #: Whether nobody is waiting for the answer.
    began: float = field(default_factory=time.monotonic)

    def while_wanted(self, items: Iterable[ItemT]) -> Iterator[ItemT]:
        """Yield items; raise TimeoutError when nobody is waiting for the answer, or its time is over."""
        for item in items:
            if self.given_up or time.monotonic() > self.began + self.seconds:
                raise TimeoutError
            yield item

    def reading(self, path: Path) -> Callable[[float], None]:
        """Return what is called with the share of a file that was read; it ends the reading when the time is over."""

        def progress(share: float) -> None:
            self.step = lambda: f"reading {one_line(path.name, 80)}: {share:.0%}" if share < 1.0 else "judging"
            # After the last event, what was read is used.
            list(self.while_wanted([share] if share < 1.0 else []))

        return progress


async def _session(call: ToolCall, options: SessionOptions, seconds: float) -> tuple[LiveFeed, tuple[str, ...]]:
    """Run a session to its end, or for a time (s); return it closed, and why it is not whole.

    It is closed when the call is cancelled, too: nothing is left on the nodes.
    """
    feed = LiveFeed(options)
    call.step = lambda: phase_text(feed.model)
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


class Tool(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """Arguments of a call. Its docstring is what assistants read about it, its class has its name."""

    seconds: ClassVar[float] = 120.0  #: How long (s) it may take.
    tests: ClassVar[bool] = False  #: Whether it loads GPUs and links.

    @classmethod
    def input_schema(cls) -> dict[str, Any]:
        """Return the JSON Schema of the arguments; its ``description`` describes the tool."""
        schema: dict[str, Any] = msgspec.json.schema_components([cls])[1][cls.__name__]
        return schema | {"description": " ".join(schema["description"].split())}

    @classmethod
    def takes_nodes(cls) -> bool:
        return "nodes" in cls.__struct_fields__

    async def answered(self, call: ToolCall) -> Answer:
        pool = None if getattr(self, "text", "") or isinstance(self, RulesTool) else _FILES
        return await asyncio.get_running_loop().run_in_executor(pool, copy_context().run, self.answer, call)

    def answer(self, call: ToolCall) -> Answer:
        """Return the answer; blocks."""
        raise NotImplementedError


def about(description: str, most: int | None = 4000) -> Meta:
    """Return what is known of an argument; ``most``: its maximum number of characters, or of items."""
    return Meta(description=description, min_length=most and 1, max_length=most)


class OnNodes(Tool):
    """A tool that asks nodes."""

    nodes: Annotated[str, about("Node set, as of Slurm: n[060-067],n070. Default: those of this server.")] = ""
    exclude: Annotated[str, about("Nodes to leave out, same syntax.")] = ""
    jobid: Annotated[str, about("Job of Slurm, instead of nodes, or with them for some of its nodes.", 60)] = ""

    def asked(self, call: ToolCall, command: str) -> tuple[SessionOptions, JobQuery | None]:
        """Return the options of a command, whose nodes and logs are allowed, and where the logs are; blocks."""
        for name in ("nodes", "exclude"):
            if "^" in getattr(self, name):
                raise InputError(f"{name}: name the nodes; ^FILE reads a file")
        # Groups of nodes may be looked up by commands of the site.
        call.permission.check(chosen_nodes([self.nodes], [], []) if self.nodes else ())
        check_logs(getattr(self, "logs", ()), "logs")
        options, query = call.options(command, msgspec.json.decode(msgspec.json.encode(self)))
        call.permission.check(options.hosts)
        return options, query and query._replace(assistant=True)


class OnJob(OnNodes):
    """A tool about a running job."""

    logs: Annotated[tuple[Text, ...], about("Where the logs are: '../log/{job}/*.out'. Default: Slurm's.", 16)] = ()


class PreflightTool(OnNodes):
    """Inspects nodes without a test: GPUs, NICs, drivers, limits, clocks, and what differs between nodes."""

    seconds = 300.0
    expect: Annotated[tuple[Text, ...], about("Expected values of facts: gpus=8 x H200, numa_nodes=2.")] = ()

    async def answered(self, call: ToolCall) -> Answer:
        expected = expectations(self.expect)
        options, _ = await asyncio.to_thread(self.asked, call, "preflight")
        feed, problems = await _session(call, options, call.seconds)

        def judged() -> Answer:
            diagnosis = diagnose(Evidence(feed.model, expected=expected))
            inspected = diagnosis.preflight
            answer = session_answer(diagnosis, options.record, problems)
            data, steps = json.loads(json_text(feed.model, inspected)), steps_of(inspected.findings)
            return replace(answer, data=data, code=inspected.exit_code, next=steps)

        return await asyncio.to_thread(judged)


class RunTool(OnNodes):
    """Tests GPU pairs and collectives between nodes, and finds what is slow or broken. Call preflight first.

    It loads GPUs and links, needs --allow-tests and spends node seconds of the budget. GPUs in use are not tested.
    """

    seconds = 1800.0
    tests = True
    probes: Annotated[tuple[Text, ...], about("Probes and tests, such as ping, p2p, all_reduce. Default: all.")] = ()
    mode: Annotated[Literal["quick", "sampled", "full"] | UnsetType, about("Which pairs are tested.", None)] = UNSET
    pair: Annotated[tuple[Text, ...], about("Only these pairs of endpoints, both directions: n060:3>n061:5.")] = ()
    layers: Annotated[tuple[Text, ...], about("Pair layers to test: world (all ranks), p2p (two ranks).", 2)] = ()
    bytes: Annotated[str, about("Message sizes of pairs: 256M or 8M,256M.", 200)] = ""
    collectives: Annotated[tuple[Text, ...], about("Collectives, or all. Default: all_reduce.")] = ()
    sizes: Annotated[str, about("Message sizes of collectives: 1M,64M or 8-1G:4.", 200)] = ""
    groups: Annotated[str, about("Collectives over the first 2, then 4, ... GPUs: 2,4,8.", 200)] = ""
    isolated: Annotated[bool, about("One pair at a time, without other traffic.", None)] = False
    bidirectional: Annotated[bool, about("Also test both directions at once.", None)] = False
    confirm: Annotated[bool, about("After the sweep, test what the first five findings blame.", None)] = False

    async def answered(self, call: ToolCall) -> Answer:
        call.permission.check_tests()
        options, _ = await asyncio.to_thread(self.asked, call, "run")
        # Those of a lab are the nodes that are allowed.
        with call.permission.spend(options.hosts or call.permission.nodes, call.seconds) as seconds:
            feed, problems = await _session(call, options, seconds)
        answer = await asyncio.to_thread(lambda: session_answer(feed.diagnosis(), options.record, problems))
        return replace(answer, data={**answer.data, "node_seconds_left": round(call.permission.left)})


class HangTool(OnJob):
    """Reports whether a running job hangs, which rank is behind and what a person should type next; only observes."""

    seconds = 180.0

    async def answered(self, call: ToolCall) -> Answer:
        options, query = await asyncio.to_thread(self.asked, call, "hang")
        notices: list[str] = []
        call.step = lambda: f"observing the job on {count(len(options.hosts), 'node')}"
        async with asyncio.timeout(call.seconds), observed(options, notices.append, query, PATIENCE) as session:
            verdict = await session.snapshot()
            unread, logs = session.unread(), session.unread_logs()
        findings = (await asyncio.to_thread(diagnose, session.model)).findings
        data: dict[str, Any] = {"findings": list(map(finding_json, findings)), "notices": notices[:_MOST_NOTICES]}
        code, record = exit_code(verdict), options.record
        if verdict is None:
            unread = unread or [f"{NO_RANK} {fold(options.hosts)}"]
            return Answer(unread[0], data, [], [*unread, *logs], code, record)
        (seen, unseen), steps = job_coverage(verdict), steps_of(findings, verdict.next)
        body = job_json(verdict) | data
        return Answer(verdict.sentence, body, seen, [*unread, *logs, *unseen], code, record, steps)


class JobTool(OnJob):
    """Reports on a running or ended job: state, errors in its logs, GPUs, iteration times, settings that differ."""

    async def answered(self, call: ToolCall) -> Answer:
        options, query = await asyncio.to_thread(self.asked, call, "job")
        assert query is not None
        notices, check, monitor = list[str](), call.permission.check, JobMonitor(query)
        call.step = lambda: f"reading the logs of job {query.job}" if query.job else "reading the logs"
        async with asyncio.timeout(call.seconds), reported(monitor, options, notices.append, check=check) as report:
            check([row.node for row in report.rows])
        body, facts = job_report_json(report) | {"notices": notices[:_MOST_NOTICES]}, report.facts
        # Not to be had: the text of any file that is called a log.
        for log in body["logs"] if self.logs else ():
            log.pop("tail")
        state = report.status.state or "unknown to Slurm"
        name = f"Job {query.job} ({state})" if query.job else "The job of these logs"
        first = f": {report.findings[0].facts['text']}" if report.findings else ""
        logs = [log.path for log in facts.logs.files.values()]
        asked = [node for node, reply in facts.nodes.items() if not reply.problem]
        seen = [f"{count(len(logs), 'log')}: {one_line(', '.join(logs), 600)}"]
        seen += [f"{count(len(asked), 'node')}: {one_line(fold(asked), 400)}"] if asked else []
        last = "" if (quiet := facts.logs.quiet()) is None else f"; its last output is {quiet:.0f} s old"
        unseen = [] if query.job else [f"whether the job still runs: without jobid Slurm was not asked{last}"]
        unseen += [] if facts.nodes else ["its nodes: no node was asked, as only those of a running job are"]
        text, steps = one_line(f"{name}: {report.verdict}{first}", 1000), steps_of(report.findings)
        return Answer(text, body, seen, [*report.unread, *unseen], report.exit_code, next=steps)


def read_latest(path: Path, progress: Callable[[float], object]) -> tuple[Diagnosis, tuple[str, ...]]:
    """Return the session of a file, and why it is not whole; blocks. What ``progress`` raises ends the reading."""
    with _READING:
        status = path.stat()
        key = (path, status.st_mtime_ns, status.st_size)
        if key not in _LATEST:
            _LATEST.clear()
            model, why = replayed(path, progress) if is_recording(path) else (read_session(str(path), progress), None)
            problems = () if why is None else (f"{why}; the part before it was examined, the rest was not",)
            _LATEST[key] = diagnose(model), problems
        return _LATEST[key]


class OnSession(Tool):
    """A tool about a recorded session."""

    file: Annotated[str, about("Recording, CSV or JSON: a path, or a name among the recordings. Default: newest.")] = ""
    demo: Annotated[str, about("Instead of file: a recording that ships: h200x4-lab-2x2-faults.", 100)] = ""

    def read(self, call: ToolCall) -> tuple[Path, Diagnosis, tuple[str, ...]]:
        """Return the file, its session and why it is not whole; raise `InputError` if it is not to be read."""
        if self.demo and self.file:
            raise InputError("give either file or demo")
        folder, name = call.recordings, self.file or self.demo
        # An empty one belongs to a session that has only begun.
        name = name or next((path.name for path in recordings_in(folder) if path.stat().st_size), "")
        if not name:
            raise InputError(f"there is no recording in {folder}; give file, or call preflight or run")
        name = str(folder / name) if "/" not in name and (folder / name).is_file() else name
        path = values.shipped_recording(self.demo) if self.demo else checked_file(name, "file", folder)
        diagnosis, problems = read_latest(path, call.reading(path))
        call.permission.check(diagnosis.model.nodes, f"{path.name}: nodes of the session")
        return path, diagnosis, problems


class FindingsTool(OnSession):
    """Returns the verdict and the findings of a recorded session, the worst first, with evidence and next commands."""

    def answer(self, call: ToolCall) -> Answer:
        path, diagnosis, problems = self.read(call)
        return session_answer(diagnosis, path, problems)


class PairTool(OnSession, kw_only=True):
    """Returns all measurements of one pair in both directions, and the findings about it and its ends."""

    pair: Annotated[str, about("Two endpoints: n060:3>n061:5.", 600)]

    def answer(self, call: ToolCall) -> Answer:
        (src, dst), *_ = values.pairs([self.pair], "pair")
        nodes = {node_of(src), node_of(dst)}
        call.permission.check(sorted(nodes), "pair")
        path, diagnosis, problems = self.read(call)
        model, directions, own, others = diagnosis.model, dict[str, Any](), list[Finding](), list[Finding]()
        for end in (src, dst):
            if model.table.number(end) is None:
                known = one_line(fold(model.nodes), 200)
                raise InputError(f"pair: there is no endpoint {end!r} in {path.name}; it has the nodes {known!r}")
        for one, other in ((src, dst), (dst, src)):
            measured, why = pair_json(diagnosis, one, other), one_line(model.untested.get((one, other), ""), 400)
            untested = why or (None if measured else "not tested in this session")
            verdicts = {row["layer"]: verdict_words(row["verdict"]) for row in measured}
            summary = ", ".join(map(" ".join, verdicts.items())) or (f"not tested: {why}" if why else untested)
            each = {"src": one, "dst": other, "summary": summary, "untested": untested, "measurements": measured}
            directions[f"{one} > {other}"] = each
        for finding in diagnosis.all_findings:
            if {(src, dst), (dst, src)} & finding.cells:
                own.append(finding)
            # One that explains pairs is about its subject.
            elif finding.subject.name in {src, dst} | nodes or not (finding.cells or nodes.isdisjoint(finding.nodes)):
                others.append(finding)
        data: dict[str, Any] = {"directions": list(directions.values()), "findings": list(map(finding_json, own))}
        data |= {"findings_of_its_ends": list(map(finding_json, others)), "session": sentence_of(diagnosis)}
        text = "; ".join(f"{name}: {each['summary']}" for name, each in directions.items())
        seen = [f"{name}: {count(len(each['measurements']), 'measurement')}" for name, each in directions.items()]
        unseen = [*problems, *(f"{name}: {each['untested']}" for name, each in directions.items() if each["untested"])]
        unseen += not_asked_lines(model)
        return Answer(text, data, seen, unseen, recording=path, next=steps_of([*own, *others]))


class DiffTool(Tool):
    """Compares two recorded sessions: pairs, facts of nodes and findings that are worse, new or gone."""

    before: Annotated[str, about("Earlier recording, CSV or JSON.")]
    after: Annotated[str, about("Later one.")]

    def answer(self, call: ToolCall) -> Answer:
        paths = [checked_file(getattr(self, name), name, call.recordings) for name in ("before", "after")]
        names = (str(paths[0]), str(paths[1]))
        then, now, diff, notices = compared(names, call.reading)
        call.permission.check([*then.nodes, *now.nodes], "nodes of the sessions")
        changes = ", ".join(f"{count(len(getattr(diff, name)), 'finding')} {name}" for name in ("new", "gone", "still"))
        seen, unseen = list[str](), list(notices)
        for path, name, model, other in zip(paths, ("earlier", "later"), (then, now), (now, then), strict=True):
            seen.append(f"{path.name}: {count(len(model.nodes), 'node')}, {count(len(model.endpoints), 'endpoint')}")
            if alone := [node for node in model.nodes if node not in other.nodes]:
                unseen.append(f"{one_line(fold(alone), 200)}: only in the {name} session, so not compared")
        worse, code = ("something is worse", BAD) if diff.worse else ("nothing is worse", ALL_OK)
        text = f"Between {paths[0].name} and {paths[1].name} {worse}: {changes}."
        return Answer(text, json.loads(diff_text(names, diff)), seen, unseen, code, paths[1], steps_of(diff.new))


class HistoryTool(Tool):
    """Returns components that are getting worse, flapping or new, or the course of one over all sessions."""

    seconds = 60.0
    subject: Annotated[str, about("A node, endpoint, port or identity; none: what stands out.", 200)] = ""
    since: Annotated[str, about("Since a date, or a time ago: 2026-09-01, 30d, 2w, 1y.", 40)] = ""
    labs: Annotated[bool, about("The history of the labs on this machine, kept in its own file.", None)] = False

    def answer(self, call: ToolCall) -> Answer:
        subject, allowed = self.subject.strip(), call.permission
        since = values.since(self.since, "since") if self.since else usual_start(subject)
        every = shown = read_overview(history_file(self.labs), since, subject)
        # An identity has no name of a node in it, and may have been in several.
        places = {course.component.node for course in every.courses} or {node_at(subject)}
        places |= {node_at(stay.place) for course in every.courses for stay in course.stays}
        allowed.check(sorted(places - {""}), "subject")
        if subject and not every.courses:
            raise InputError(f"{one_line(subject, 80)!r} is not a node, endpoint, port or identity in the history")
        if allowed.nodes:
            sessions = [each for each in every.sessions if allowed.is_within(each.nodes)]
            rows = [row for row in every.standouts if row.component.node and allowed.is_within([row.component.node])]
            # Versions are those of all nodes.
            shown = replace(every, total=len(sessions), sessions=sessions, standouts=rows, version_steps=())
        unseen = ["what no recorded session has tested, and what has happened since the last one"]
        unseen = unseen if shown.total else ["everything: no session is known"]
        if left_out := every.total - shown.total:
            unseen.append(f"{count(left_out, 'session')} on nodes that are not allowed")
        text = overview_sentence(shown) if shown.total else empty_text(shown)
        seen = f"the history of this site: {count(len(shown.sessions), 'session')}; no node was asked"
        return Answer(text, json.loads(history_text(shown)), [seen], unseen)


class TextTool(Tool):
    """A tool about a text, or files."""

    seconds = 60.0
    text: Annotated[str, about("A code, a line, a log, or the output of one command, as it was printed.", _PASTED)] = ""
    files: Annotated[tuple[Text, ...], about("Regular files on the machine of this server, none hidden.", 64)] = ()

    def checked_files(self) -> list[str]:
        """Return the paths; raise `InputError` unless there is either a text or files."""
        if bool(self.text) == bool(self.files):
            raise InputError("give either text or files")
        return checked_files(self.files, "files")


class ExplainTool(TextTool):
    """Explains a code (FT012, E13, 'xid 79', NET/IB/0/GDRDMA), an error line, or a log by its earliest cause."""

    def answer(self, call: ToolCall) -> Answer:
        files = self.checked_files()
        logs = call.while_wanted(sources(files))
        blocks, known, notices = explained_logs(logs) if files else explained_text(self.text)
        lines = text_lines(blocks, _WIDTH)
        return Answer(
            next(filter(None, lines), "nothing found"),
            {"known": known, "lines": lines},
            [f"{one_line(', '.join(files), 400) or 'the text'}; no node"],
            [*notices, *([] if known else ["what is unknown is not known to be harmless"])],
            ALL_OK if known else BAD,
        )


class ReadTool(TextTool, rename={"form": "as"}):
    """Judges outputs of nccl-tests, perftest, ibstat, nvidia-smi, Slurm, RAS, flight recorders and many others."""

    form: Annotated[str, about("With text: name of its format, instead of detecting it.", 60)] = ""

    def answer(self, call: ToolCall) -> Answer:
        files = self.checked_files()
        if self.form and files:
            # Read as a list of names, any file of the user would be quoted.
            raise InputError("as: only with text; the format of a file has to be recognised")
        kind = chosen(self.form).name if self.form else None
        results = list(call.while_wanted(results_of(files, None))) if files else [read(Source("text", self.text), kind)]
        every, bodies = list[Finding](), list[dict[str, Any]]()
        kinds, seen, unseen = list[str](), list[str](), list[str]()
        if kind and ((form := recognise(self.text).format) is None or form.name != kind):
            unseen.append(f"whether this is {kind}: only `as` names it so")
        for result in results:
            findings, name = findings_about(result), one_line(result.source.name, 200)
            every += findings
            bodies.append(result.as_json() | {"findings": list(map(finding_json, findings))})
            if files:
                # Text of a file of the user that is not an output of a tool may be anything.
                bodies[-1] |= {"unknown": len(result.unknown)}
                bodies[-1].pop("raw", None)
            if not result.known:
                unseen.append(f"{name}: of a format that is not known")
                continue
            kinds.append(f"{name}: {result.kind}")
            seen.append(f"{kinds[-1]}: {result.title}; no node")
            unseen += [f"{name}: {one_line(line, 300)}" for line in result.warnings]
            unseen += [f"{name}: {count(len(result.unknown), 'line')} not understood"] if result.unknown else []
        head = f"{count(len(every), 'finding')}: {placed_title(every[0])}" if every else "No finding"
        unknown = f"{count(len(results), 'text')} of a format that is not known."
        text = f"{head} ({'; '.join(kinds[:5])})." if kinds else unknown
        code = ALL_OK if len(kinds) == len(results) else NOT_TESTED
        return Answer(text, {"results": bodies}, seen, unseen, code, next=steps_of(every))


class RulesTool(Tool):
    """Lists the rules that findings cite, and the errors that logs are searched for."""

    seconds = 30.0
    search: Annotated[str, about("Only those that contain this text.", 200)] = ""
    kind: Annotated[Literal["rules", "errors"] | UnsetType, about("Only one of the two.", None)] = UNSET

    def answer(self, call: ToolCall) -> Answer:
        errors = sorted(explained_errors(), key=lambda error: int(error.code[1:]))
        catalogues: dict[str, tuple[Sequence[Any], Sequence[str]]] = {
            "rules": (sorted(RULES, key=lambda rule: rule.id), ("id", "name", "severity", "title", "description")),
            "errors": (errors, ("code", "id", "prints", "text")),
        }
        wanted, data = self.search.lower(), dict[str, list[dict[str, str]]]()
        for kind in catalogues if self.kind is UNSET else [self.kind]:
            entries, names = catalogues[kind]
            # All of them do not fit with their meanings: `explain` has these.
            shown = {name: name for name in names[:-1]} | ({"means": names[-1]} if wanted else {})
            rows = [{name: str(getattr(entry, member)) for name, member in shown.items()} for entry in entries]
            data[kind] = [row for row in rows if wanted in " ".join(row.values()).lower()]
        numbers = " and ".join(count(len(rows), kind.removesuffix("s")) for kind, rows in data.items())
        text = f"{numbers} {f'with {one_line(wanted, 80)!r}' if wanted else 'are known'}."
        unseen = "what these catalogues do not list: it is not known to be harmless"
        return Answer(text, data, ["the catalogues of this version of fabtui; no node"], [unseen])


TOOLS: dict[str, type[Tool]] = {
    kind.__name__.removesuffix("Tool").lower(): kind
    for kind in (
        *(PreflightTool, RunTool, HangTool, JobTool, FindingsTool, PairTool),
        *(DiffTool, HistoryTool, ExplainTool, ReadTool, RulesTool),
    )
}
