"""Logs of a running job, with findings, nodes and iteration times; jobs to choose from."""

from __future__ import annotations

import asyncio
import time
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.content import Content

from fabtui.diagnosis.finding import Severity
from fabtui.diagnosis.job.logs.job_logs import KEPT, LogFile, Stream
from fabtui.diagnosis.job.logs.report import JobReport
from fabtui.nodeset import count
from fabtui.presentation import job_lines
from fabtui.presentation.findings import copied_step, step_parts
from fabtui.presentation.job_board import sentence_line, steps_of
from fabtui.presentation.job_lines import job_text
from fabtui.presentation.wording import MUTED, Part, clock_text
from fabtui.presentation.wrapping import Line, Lines, between, clipped, wrapped
from fabtui.sanitize import one_line
from fabtui.scheduler.slurm import OwnJob, own_jobs
from fabtui.screen import session_actions
from fabtui.screen.keys import shortcut
from fabtui.screen.views.detail_base import DetailScreen, TitledScreen, enter_text, run_step
from fabtui.screen.views.nodes import NodesTable
from fabtui.screen.widgets.finding_lines import output_lines
from fabtui.screen.widgets.key_bar import KeyBar
from fabtui.screen.widgets.sorted_table import Columns, TableCell, TableRow
from fabtui.screen.widgets.text_line import TextLine, content_of
from fabtui.session.options import JobQuery
from fabtui.session.running_job.monitor import ASK_EVERY, JobMonitor

#: Pause (s) between two readings; after a reading that takes long it is as many times longer.
EVERY, _SHARE = 2.0, 5.0
#: Least lines of the end of the log, and of the table with its headings.
_LEAST_LOG, _LEAST_TABLE = 4, 4


class JobTable(NodesTable):
    """One line per node of the job."""

    columns = Columns(job_lines.HEADINGS, job_lines.RIGHT, frozenset({"node", "state"}))
    BINDING_GROUP_TITLE = "Node table of a job"
    BINDINGS: ClassVar[list[BindingType]] = []


def job_rows(report: JobReport, width: int) -> list[TableRow]:
    """Return a row for each node; a column that does not fit is empty, and left out by the table."""
    found = job_lines.node_cells(report, folded=False)
    shown = job_lines.headings_for(found, width)
    quiet = {row.node: row.quiet for row in report.rows}
    rows = []
    for number, cells in enumerate(found):
        style = job_lines.state_style(cells.state)
        texts = [cells.texts[name] if name in shown else "" for name in job_lines.HEADINGS]
        keys: list[object] = [number, cells.state != "suspect", -(quiet[cells.nodes[0]] or 0.0), *texts[3:]]
        rows.append(TableRow(cells.nodes[0], [TableCell(*one, style) for one in zip(texts, keys, strict=True)]))
    return rows


class JobScreen(TitledScreen):
    """A running job, read again every two seconds while the view is open."""

    DEFAULT_CSS = """
    JobScreen #job-findings, JobScreen #job-watch, JobScreen #job-summary { height: auto; }
    JobScreen #job-log { height: 1fr; }
    JobScreen #job-log-title { background: $panel; }
    """
    BINDING_GROUP_TITLE = "Job"
    BINDINGS: ClassVar[list[BindingType]] = [
        shortcut("escape,backspace,J", "leave", "job.back", "back to the previous view", "back"),
        shortcut("enter", "open_log", "job.log", "show the whole end of the log, or run the chosen next step", "log"),
        # The screen would move the focus.
        shortcut("tab", "step(1)", "job.step", "choose the next step to run or copy", "next steps", priority=True),
        shortcut("shift+tab", "step(-1)", "job.step-back", "choose the step before", priority=True),
        shortcut("r", "ask", "job.ask", "ask the nodes for stacks and dumps of their ranks", "ask nodes"),
        shortcut("o", "log('out')", "job.out", "show what the node has printed", "output"),
        shortcut("e", "log('err')", "job.err", "show the errors that the node has printed", "errors"),
        # The table would go to its first line.
        shortcut("g", "log('gpu')", "job.gpu", "show the log of the node's GPUs", "GPUs", priority=True),
        shortcut("f", "follow", "job.follow", "hold the view as it is, or follow the job", "hold"),
        shortcut("n", "node", "job.node", "show the node", "node"),
        shortcut("O", "jobs", "job.jobs", "choose another of your jobs", "jobs"),
        shortcut("y", "copy", "job.copy", "copy the chosen next step, or the whole report as text", "copy"),
    ]

    def __init__(self, monitor: JobMonitor) -> None:
        super().__init__()
        self._job = monitor
        self._stream: Stream | None = None
        self._step: str | None = None
        self._following = True
        self._report = monitor.report
        self._read: float | None = None
        self._problem = ""
        names = ("job-findings", "job-watch", "job-summary", "job-log-title", "job-log")
        lines = [TextLine(id=name) for name in names]
        self._findings, self._watch_text, self._summary, self._log_title, self._log = lines

    def compose(self) -> ComposeResult:
        yield self.title_line
        yield self._findings
        yield self._watch_text
        yield JobTable(self.context.glyphs, id="job-table")
        yield self._summary
        yield self._log_title
        yield self._log
        yield KeyBar(id="job-keys")

    @property
    def table(self) -> JobTable:
        return self.query_one(JobTable)

    def on_mount(self) -> None:
        self.table.focus()
        self.run_worker(self._watch(), name="job", exit_on_error=False)
        self.set_interval(1.0, self.draw)

    async def _watch(self) -> None:
        while True:
            began = time.monotonic()
            try:
                report = await self._job.refresh()
                self._problem = ""
            except Exception as error:
                # The view stays, with what was read before.
                self._problem = one_line(f"{type(error).__name__}: {error}", 200)
            else:
                if self._following:
                    self._report, self._read = report, time.monotonic()
            self.draw()
            await asyncio.sleep(max(EVERY, (time.monotonic() - began) * _SHARE))

    def draw(self) -> None:
        if not self.is_mounted or not self.query("#job-table"):
            return
        width, height = self.size
        report = self._report
        if report is None:
            self.show_title([(f" job  {self._problem or 'reading the job'}", "bold")])
            return
        self.show_title(job_lines.title_line(report), self._age())
        findings = self._finding_lines(report, width, max(3, height // 4))
        watch, summary = self._watch_lines(width), self._summary_lines(report, width)
        for widget, shown in ((self._findings, findings), (self._watch_text, watch), (self._summary, summary)):
            widget.show(content_of(shown), layout=True)
            widget.display = bool(shown)
        # Title, heading of the log and key bar have a line each.
        room = height - len(findings) - len(watch) - len(summary) - 3
        lines = max(_LEAST_TABLE, min(len(report.rows) + 1, room - max(_LEAST_LOG, room // 3)))
        self.table.styles.height = lines
        rows = job_rows(report, width - 2)
        self.table.put(self.matching_rows(rows), "no node has these words" if rows else "the nodes are not known yet")
        if self._step is None:
            self._draw_log(report, width, max(1, room - lines))
        else:
            self._draw_step(self._step, width, max(1, room - lines))

    def _age(self) -> Line:
        age = "" if self._read is None else f"{clock_text(time.monotonic() - self._read)} ago "
        parts: list[Part] = [] if self._following else [("held, f follows  ", "bold $warning")]
        parts += [(f"{self._problem}  ", "bold $error")] if self._problem else []
        return [*parts, (age, MUTED)]

    def _finding_lines(self, report: JobReport, width: int, most: int) -> Lines:
        """Return the findings that fit, each with its next step if there is room."""
        glyphs = self.context.glyphs
        unread = [
            clipped([(f" could not be read: {text}", "$warning")], width, glyphs.ellipsis) for text in report.unread
        ]
        for with_next in (True, False):
            found = [
                job_lines.finding_lines(one, width, glyphs, with_next=with_next and one.severity is not Severity.NOTE)
                for one in report.findings
            ]
            lines = [*(line for block in found for line in block), *unread[:2]]
            if len(lines) <= most:
                return lines
        heads = [clipped(block[0], width, glyphs.ellipsis) for block in found]
        left = len(heads) + len(unread[:1]) - (most - 1)
        kept = [*heads, *unread[:1]][: most - 1]
        return [*kept, [(f"   {count(left, 'more line')}; y copies all", MUTED)]]

    def _watch_lines(self, width: int) -> Lines:
        board, glyphs = self.context.job(), self.context.glyphs
        lines: Lines = [] if board is None else [sentence_line(board, width, glyphs, self.context.now())]
        for command in [] if board is None else steps_of(board)[:1]:
            text, note = step_parts(command, 400)
            step = [("           next: ", MUTED), (text, ""), (f" {note}" if note else "", MUTED)]
            lines += wrapped(step, width, 17)
        return lines

    @property
    def _steps(self) -> list[str]:
        board = self.context.job()
        found = [] if board is None else steps_of(board)
        if self._report is not None:
            found = [*found, *(command for one in self._report.findings for command in one.next)]
        return list(dict.fromkeys(found))

    def _draw_step(self, text: str, width: int, lines: int) -> None:
        context = self.context
        command, note = step_parts(text, 400)
        title: list[Part] = [(" > ", "bold $primary"), (command, "bold $accent"), (f" {note}" if note else "", MUTED)]
        self._log_title.show(Content.assemble(*clipped(title, width, context.glyphs.ellipsis)))
        hint = (
            "enter asks here: the stacks of the ranks, dumps, kernel reports"
            if _asks(text)
            else enter_text(context, text)
        )
        shown: Lines = wrapped([(f" {hint}", MUTED)], width, 1)
        if (run := context.model.commands.latest(text)) is not None:
            shown += output_lines(run, width, context.glyphs.ellipsis, lines)
        self._log.show(content_of(shown[:lines]))

    def _summary_lines(self, report: JobReport, width: int) -> Lines:
        glyphs = self.context.glyphs
        iterations = job_lines.iteration_line(report, glyphs)
        lines = [clipped(iterations, width, glyphs.ellipsis)] if iterations else []
        settings, most = job_lines.setting_lines(report, width), 2 if self.size.height < 30 else 3
        if len(settings) > most:
            settings[most - 1].append((glyphs.ellipsis, MUTED))
        return [*lines, *settings[:most]]

    @property
    def shown_log(self) -> LogFile | None:
        """The log whose end is shown: of the node of the cursor; its errors first if it has some."""
        if self._report is None or self.table.chosen is None:
            return None
        streams: tuple[Stream, ...] = (self._stream,) if self._stream is not None else ("err", "out", "gpu")
        for stream in streams:
            files = job_lines.tail_files(self._report, self.table.chosen, stream)
            if self._stream is None and stream == "err" and not any(file.errors.count for file in files):
                continue
            if files:
                return files[-1]
        return None

    def _draw_log(self, report: JobReport, width: int, lines: int) -> None:
        ellipsis = self.context.glyphs.ellipsis
        file = self.shown_log
        if file is None:
            what = "log" if self._stream is None else job_lines.STREAM_NAMES[self._stream]
            self._log_title.show(Content.assemble((f" {self.table.chosen or ''}: no {what} was found", MUTED)))
            self._log.show(Content(""))
            return
        age = report.facts.logs.age(file)
        more = f"{count(file.lines, 'line')}{' and more' if file.skipped else ''}"
        right = f"{more}, written {clock_text(age)} ago " if age is not None else more
        left: list[Part] = [(f" {one_line(file.path, 300)}", "bold")]
        left += [(f"  {count(file.errors.count, 'line')} with errors", "bold $warning")] if file.errors.count else []
        self._log_title.show(Content.assemble(*between(left, [(right, MUTED)], width, ellipsis)))
        self._log.show(content_of(job_lines.tail_of(file, lines, width, ellipsis)))

    @on(NodesTable.Moved)
    def moved(self) -> None:
        self._step = None
        self.draw()

    def action_log(self, stream: Stream) -> None:
        self._stream, self._step = stream, None
        self.draw()

    def action_step(self, by: int) -> None:
        """Choose the next step after the chosen one; beyond the last one the log is shown again."""
        steps: list[str | None] = [None, *self._steps]
        if len(steps) == 1:
            self.context.notify("there is no next step")
        at = steps.index(self._step) if self._step in steps else 0
        self._step = steps[(at + by) % len(steps)]
        self.draw()

    def action_ask(self) -> None:
        if not self._job.linked:
            self.context.notify(
                "No links to the nodes are open here: fabtui job ID opens them, as does fabtui hang in a shell",
                severity="warning",
            )
        else:
            self.run_worker(session_actions.ask_job(self.context), name="ask", exit_on_error=False)

    def action_jobs(self) -> None:
        self.context.open_view("jobs")

    @on(NodesTable.Chosen)
    def action_open_log(self) -> None:
        if self._step is not None:
            if _asks(self._step):
                self.action_ask()
            else:
                run_step(self, self._step)
            self.draw()
        elif (file := self.shown_log) is not None:
            self.app.push_screen(JobLogScreen(file))

    def action_follow(self) -> None:
        self._following = not self._following
        if self._following:
            self._report = self._job.report
        self.draw()

    def action_node(self) -> None:
        if self.table.chosen is not None:
            self.context.open_node(self.table.chosen)

    def action_copy(self) -> None:
        if self._step is not None:
            self.context.copy(copied_step(self._step))
        elif self._report is not None:
            self.context.copy(job_text(self._report, 120, ascii_only=False))


def _asks(step: str) -> bool:
    return step.startswith("fabtui hang")


class JobLogScreen(DetailScreen):
    """The last lines of a log of a job, followed while the end is in view."""

    BINDING_GROUP_TITLE = "Log of a job"
    BINDINGS: ClassVar[list[BindingType]] = [shortcut("y", "copy", "job-log.copy", "copy the lines", "copy")]

    def __init__(self, file: LogFile) -> None:
        super().__init__()
        self._file = file

    def on_mount(self) -> None:
        self.draw()
        self.set_interval(1.0, self.draw)
        self.call_after_refresh(self.action_scroll_edge, True)

    def draw(self) -> None:
        body = self.query("#detail-body")
        at_end = bool(body) and body.first().scroll_y >= body.first().max_scroll_y
        super().draw()
        if at_end:
            self.call_after_refresh(self.action_scroll_edge, True)

    def title_parts(self) -> list[Part]:
        return [(f" {one_line(self._file.path, 300)} ", "bold"), (f" {count(self._file.lines, 'line')}", MUTED)]

    def body_lines(self, width: int) -> Lines:
        return [[(f" {one_line(line, 2000)}", "")] for line in self._file.tail(KEPT)]


_HEADINGS = ("job", "state", "time", "nodes", "name")


class JobsTable(NodesTable):
    """One line per job."""

    columns = Columns(_HEADINGS, frozenset({"time"}), frozenset({"job", "state"}))
    BINDING_GROUP_TITLE = "Table of jobs"
    BINDINGS: ClassVar[list[BindingType]] = []


def job_beside(job: str) -> JobMonitor:
    """Return the monitor of a job that is not the session's: its logs and what Slurm knows, without links."""
    return JobMonitor(JobQuery(job))


def _row(one: OwnJob) -> TableRow:
    style = "" if one.state == "RUNNING" else MUTED
    texts = (one.job, one.state, one.elapsed, one.nodes, one.name)
    return TableRow(one.job, [TableCell(one_line(text, 60), text, style) for text in texts])


class JobsScreen(TitledScreen):
    """The jobs that wait or run, as squeue lists them."""

    BINDING_GROUP_TITLE = "Jobs"
    BINDINGS: ClassVar[list[BindingType]] = [
        shortcut("escape,backspace", "leave", "jobs.back", "back to the previous view", "back"),
        shortcut("enter", "open", "jobs.open", "show the job", "job"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._jobs: list[OwnJob] | None = None
        self._problem = ""

    def compose(self) -> ComposeResult:
        yield self.title_line
        yield JobsTable(self.context.glyphs, id="jobs-table")
        yield TextLine(id="jobs-hint")
        yield KeyBar(id="jobs-keys")

    @property
    def table(self) -> JobsTable:
        return self.query_one(JobsTable)

    def on_mount(self) -> None:
        self.table.focus()
        self.draw()
        self.run_worker(self._ask(), name="jobs", exit_on_error=False)

    async def _ask(self) -> None:
        while True:
            self._jobs, self._problem = await asyncio.to_thread(own_jobs)
            self.draw()
            await asyncio.sleep(ASK_EVERY)

    def draw(self) -> None:
        if not self.is_mounted or not self.query("#jobs-table"):
            return
        state = "asking squeue" if self._jobs is None else count(len(self._jobs), "job")
        self.show_title([(" your jobs  ", "bold"), (state, MUTED)])
        nothing = (
            f"{one_line(self._problem, 200)}; without Slurm: fabtui hang --nodes NODES finds a job on them"
            if self._problem
            else "you have no job that waits or runs; fabtui job ID shows one that ended"
        )
        rows = [_row(one) for one in self._jobs or ()]
        nothing = "no job has these words" if rows else nothing
        self.table.put(self.matching_rows(rows), "" if self._jobs is None else nothing)
        hint = " enter shows a job: by Slurm and its logs; fabtui job ID also asks its nodes"
        self.query_one("#jobs-hint", TextLine).show(Content.styled(hint, MUTED))

    @on(NodesTable.Chosen)
    def action_open(self) -> None:
        if self.table.chosen is not None:
            self.context.open_job(self.table.chosen)
        else:
            self.context.notify("no job is listed")
