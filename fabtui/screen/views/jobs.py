"""The user's jobs of Slurm, to choose one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.content import Content

from fabtui.nodeset import count
from fabtui.presentation.wording import MUTED
from fabtui.presentation.wrapping import between
from fabtui.sanitize import one_line
from fabtui.scheduler.slurm import OwnJob, own_jobs
from fabtui.screen.keys import shortcut
from fabtui.screen.views.detail_base import TitledScreen, crumbs
from fabtui.screen.views.nodes import NodesTable
from fabtui.screen.widgets.key_bar import KeyBar
from fabtui.screen.widgets.sorted_table import Columns, TableCell
from fabtui.screen.widgets.text_line import TextLine
from fabtui.session.options import JobQuery
from fabtui.session.running_job.monitor import ASK_EVERY, JobMonitor

if TYPE_CHECKING:
    from fabtui.session.running_job.watch import JobWatch

_HEADINGS = ("job", "state", "time", "nodes", "name")


class OwnJobRow(NamedTuple):
    """Row of a job, with a cell for each heading."""

    name: str
    cells: list[TableCell]


class JobsTable(NodesTable):
    """One line per job."""

    columns = Columns(_HEADINGS, frozenset({"time"}), frozenset({"job", "state"}))
    BINDING_GROUP_TITLE = "Table of jobs"
    BINDINGS: ClassVar[list[BindingType]] = []


def job_beside(job: str) -> JobWatch:
    """Return the watch of a job that is not the session's: its logs and what Slurm knows, without links."""
    from fabtui.session.running_job.watch import JobWatch

    return JobWatch(JobMonitor(JobQuery(job)))


def _row(one: OwnJob) -> OwnJobRow:
    style = "" if one.state == "RUNNING" else MUTED
    texts = (one.job, one.state, one.elapsed, one.nodes, one.name)
    return OwnJobRow(one.job, [TableCell(one_line(text, 60), text, style) for text in texts])


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
        """Ask Slurm now and then while the list is open."""
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
        title = [*crumbs(self), (" your jobs  ", "bold"), (state, MUTED)]
        self.title_line.show(Content.assemble(*between(title, [], self.size.width, self.context.glyphs.ellipsis)))
        nothing = (
            one_line(self._problem, 200) or "you have no job that waits or runs; fabtui job ID shows one that ended"
        )
        self.table.put([_row(one) for one in self._jobs or ()], "" if self._jobs is None else nothing)
        hint = " enter shows a job: by Slurm and its logs; fabtui job ID also asks its nodes"
        self.query_one("#jobs-hint", TextLine).show(Content.styled(hint, MUTED))

    @on(NodesTable.Chosen)
    def action_open(self) -> None:
        if self.table.chosen is not None:
            self.context.open_job(self.table.chosen)
        else:
            self.context.notify("no job is listed")
