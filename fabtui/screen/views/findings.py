"""View of all findings."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from textual import events, on
from textual.binding import BindingType

from fabtui.diagnosis.experiment import planned
from fabtui.diagnosis.finding import Finding, Pair
from fabtui.diagnosis.knowledge.step_command import CannotRunError, step_command
from fabtui.diagnosis.merge_findings import finding_key
from fabtui.model.endpoints import node_of
from fabtui.model.events import Experiment
from fabtui.model.session_model import Model
from fabtui.nodeset import count
from fabtui.presentation.findings import copied_step, title
from fabtui.presentation.wording import MUTED, Part
from fabtui.presentation.wrapping import Lines
from fabtui.sanitize import one_line
from fabtui.screen import session_actions
from fabtui.screen.context import AppContext
from fabtui.screen.keys import shortcut
from fabtui.screen.views.detail_base import DetailScreen, as_text, run_step, runs_here, step_block
from fabtui.screen.widgets.finding_lines import (
    detail_lines,
    finding_block,
    head_lines,
    output_lines,
    searched_text,
    step_lines,
)
from fabtui.screen.widgets.prompt import Prompt

#: Purpose of the prompt for notes.
_NOTE = "known"


def _why_no_experiment(model: Model, finding: Finding, experiments: Sequence[Experiment]) -> str:
    if not finding.rule.experiments:
        return f"{finding.rule.id} {finding.rule.name} has no experiments: run its next steps"
    nodes = dict.fromkeys(node_of(end) for pair in sorted(finding.cells) for end in pair)
    gone = [f"{one_line(node, 60)} is {record.state}" for node in nodes if (record := model.gone(node))]
    if gone:
        return f"cannot be tested: {', '.join(gone)}; restart fabtui to reconnect"
    problems = [f"{one.env_text} {one.problem}" for one in experiments]
    return "; ".join(problems) or "no pair of this finding can be tested again"


#: Identifies a finding while the order of the list changes.
_Key = tuple[str, str, frozenset[Pair]]


class _Row(NamedTuple):
    """Row that can be selected: a finding by its number from 0, or one of its next steps."""

    number: int
    step: int | None


def _key_of(one: Finding) -> _Key:
    return one.rule.id, one.topic, one.cells


class FindingsScreen(DetailScreen):
    """All findings, most severe first. A digit goes to the first pair of a finding.

    One finding or one of its next steps is selected; that finding shows its evidence and next steps.
    """

    BINDING_GROUP_TITLE = "Findings"
    FILTER_PROMPT = "filter", "words that title, evidence, pairs or next steps of a finding have"
    BINDINGS: ClassVar[list[BindingType]] = [
        shortcut("F", "leave", "findings.here", "back to the previous view"),
        shortcut("enter", "open", "findings.open", "go to the pairs of the finding, or run the next step", "go, run"),
        shortcut("down,j", "move(1)", "findings.down", "select the next finding or step"),
        shortcut("up,k", "move(-1)", "findings.up", "select the previous finding or step"),
        shortcut("home", "edge(False)", "findings.first", "select the first finding"),
        shortcut("end,G", "edge(True)", "findings.last", "select the last finding or step"),
        *(
            shortcut(*(str(digit), f"go({digit})", f"findings.go-{digit}", f"go to the first pair of finding {digit}"))
            for digit in range(1, 10)
        ),
        shortcut("tab", "choose(1)", "findings.next", "select the next finding", "next"),
        shortcut("shift+tab", "choose(-1)", "findings.previous", "select the previous finding"),
        shortcut("slash,f", "filter", "findings.filter", "show only findings with some text", "filter"),
        shortcut(
            "a", "acknowledge", "findings.acknowledge", "mark the selected finding as known, with a note", "known"
        ),
        shortcut("A", "unacknowledge", "findings.unacknowledge", "stop showing the selected finding as known"),
        shortcut("c", "confirm", "findings.confirm", "run experiments about the selected finding", "confirm"),
        shortcut("y", "copy", "findings.copy", "copy the selected next step, or the selected finding", "copy"),
        shortcut("Y", "copy_all", "findings.copy-all", "copy all findings as text, with output", "copy all"),
    ]

    def __init__(self) -> None:
        super().__init__()
        #: The selected finding, which stays selected when the order changes; None for the first one.
        self._selected: _Key | None = None
        self._step: str | None = None  #: Its selected next step, or None for the finding itself.
        self._noted: Finding | None = None  #: The finding that the user writes a note about.
        #: First line of each row, number of lines, and the state that was drawn.
        self._starts: dict[_Row, int] = {}
        self._height = 0
        self._drawn_of: object = None

    def title_parts(self) -> list[Part]:
        found, shown = self.context.findings.found, self._shown()
        cells = len({cell for _, one in shown for cell in one.cells})
        of = f"{len(shown)} of " if self.filter else ""
        parts: list[Part] = [(f" {of}{count(len(found), 'finding')}{self.context.findings.so_far}", "bold")]
        parts += [(f", {count(cells, 'pair')}", "bold")] if cells else []
        model = self.context.model
        if model.phase.name == "confirm":
            parts.append((f"  experiments: {model.done} of {model.phase.total} tests", "bold $warning"))
        return parts

    def filtered_lines(self, width: int) -> Lines:
        return self.body_lines(width)

    def _shown(self) -> list[tuple[int, Finding]]:
        return [(at, one) for at, one in enumerate(self.context.findings.found) if self.matches(searched_text(one))]

    def body_lines(self, width: int) -> Lines:
        context, shown = self.context, self._shown()
        if not shown:
            none = f"no finding has the text {one_line(self.filter, 60)}" if self.filter else ""
            self._starts = {}
            return [[], [(f"  {none or context.findings.none_text}", MUTED)]]
        here, bad = self._row(shown), context.findings.tally.bad
        self._starts = {}
        lines: Lines = []
        for number, one in shown:
            chosen = here.number == number
            lines += [[]] if chosen or not lines or (lines[-1] and number == here.number + 1) else []
            self._starts[_Row(number, None)] = len(lines)
            lines += head_lines(one, width, number + 1, bad, selected=chosen and here.step is None)
            if chosen:
                lines += detail_lines(one, width)
                for at, step in enumerate(one.next):
                    self._starts[_Row(number, at)] = len(lines)
                    lines += step_block(context, step, at, width, selected=chosen and here.step == at)
        self._height = len(lines)
        return lines

    def draw(self) -> None:
        model, found = self.context.model, self.context.findings
        states = model.nodes_version, model.commands.version, model.phase.name, model.done
        made_of = (
            id(found.found),
            found.none_text,
            found.so_far,
            self.size,
            self.filter,
            self._selected,
            self._step,
            states,
        )
        if made_of != self._drawn_of and self.is_mounted and self.query("#detail-text"):
            self._drawn_of = made_of
            super().draw()

    @property
    def node(self) -> str | None:
        """Node of the selected next step, else the first node of the selected finding."""
        if not (shown := self._shown()):
            return None
        one = self.context.findings.found[self._row(shown).number]
        model = self.context.model
        with contextlib.suppress(CannotRunError):
            if self._step is not None:
                return step_command(model, self._step).node
        named = [*one.nodes, *(node_of(end) for pair in sorted(one.cells) for end in pair)]
        return next((name for name in named if name in model.nodes), None)

    def _row(self, shown: Sequence[tuple[int, Finding]]) -> _Row:
        for number, one in shown:
            if _key_of(one) == self._selected:
                return _Row(number, one.next.index(self._step) if self._step in one.next else None)
        return _Row(shown[0][0], None)

    def _select(self, row: _Row) -> None:
        one = self.context.findings.found[row.number]
        self._selected, self._step = _key_of(one), None if row.step is None else one.next[row.step]
        self.draw()
        self.call_after_refresh(self._bring_into_view, row)

    def _bring_into_view(self, row: _Row) -> None:
        """Scroll as little as shows a row, and of a finding and of the output of a step as much as fits."""
        if row not in self._starts:
            return
        body = self.query_one("#detail-body")
        starts = sorted(self._starts.values())
        top = self._starts[row]
        first = row.step is None and top == starts[0]
        below = [at for other, at in self._starts.items() if other.number != row.number and at > top]
        if row.step is not None:
            below += [at for at in starts if at > top]
        bottom = min(below, default=self._height)
        height = body.size.height
        at = int(body.scroll_y)
        if top - 1 < at or first:
            at = 0 if first else top - 1
        elif bottom > at + height:
            at = min(top - 1, bottom - height)
        if at != int(body.scroll_y):
            body.scroll_to(y=at, animate=False)

    def _rows(self) -> tuple[list[_Row], int]:
        rows = list(self._starts)
        shown = self._shown()
        here = self._row(shown) if shown else None
        return rows, rows.index(here) if here in rows else 0

    def action_move(self, step: int) -> None:
        rows, at = self._rows()
        if rows:
            self._select(rows[max(0, min(len(rows) - 1, at + step))])

    def action_edge(self, last: bool) -> None:
        rows, _ = self._rows()
        if rows:
            self._select(rows[-1 if last else 0])

    def action_choose(self, step: int) -> None:
        rows, at = self._rows()
        heads = [row for row in rows if row.step is None]
        if heads:
            here = next(place for place, head in enumerate(heads) if head.number == rows[at].number)
            self._select(heads[max(0, min(len(heads) - 1, here + step))])

    def action_open(self) -> None:
        shown = self._shown()
        if not shown:
            return
        row = self._row(shown)
        finding = self.context.findings.found[row.number]
        if row.step is None:
            self.action_go(row.number + 1)
        else:
            run_step(self, finding.next[row.step])

    def run_first_step(self, finding: Finding) -> None:
        """Select the first next step of a finding, and run it; without one only the finding is selected."""
        self._selected = _key_of(finding)
        self._step = next((step for step in finding.next if runs_here(self.context, step)), None)
        self.draw()
        if self._step is not None:
            run_step(self, self._step)

    def _selected_finding(self) -> Finding | None:
        shown = self._shown()
        return self.context.findings.found[self._row(shown).number] if shown else None

    async def action_acknowledge(self) -> None:
        if (one := self._selected_finding()) is not None and can_acknowledge(self.context):
            self._noted = one
            await self.ask(
                _NOTE, "why it is known, such as a ticket", "" if one.acknowledged is None else one.acknowledged.note
            )

    @on(Prompt.Given)
    def _note_given(self, message: Prompt.Given) -> None:
        if message.purpose == _NOTE and self._noted is not None:
            acknowledge(self.context, self._noted, message.text.strip() or "known")

    def action_unacknowledge(self) -> None:
        if (one := self._selected_finding()) is not None and can_acknowledge(self.context):
            if one.known:
                acknowledge(self.context, one, "")
            else:
                self.context.notify("this finding is not marked as known")

    def action_copy(self) -> None:
        shown = self._shown()
        if not shown:
            return
        row = self._row(shown)
        one = self.context.findings.found[row.number]
        if row.step is not None:
            self.context.copy(copied_step(one.next[row.step]))
        else:
            self.context.copy(as_text(finding_block(one, self.copy_width, row.number + 1)))

    def action_copy_all(self) -> None:
        lines: Lines = [self.title_parts()]
        for number, one in self._shown():
            lines += [[], *finding_block(one, self.copy_width, number + 1)]
            runs = [run for text in one.next if (run := self.context.model.commands.latest(text)) is not None]
            for run in runs:
                lines += step_lines(run.start.command, 0, self.copy_width, noted=False)
                lines += output_lines(run, self.copy_width, self.context.glyphs.ellipsis, sys.maxsize)
        self.context.copy(as_text(lines))

    def on_click(self, event: events.Click) -> None:
        text = self.query_one("#detail-text")
        y = event.screen_y - text.region.y
        rows = [row for row, start in self._starts.items() if start <= y]
        if event.screen_y < self.query_one("#detail-body").region.bottom and rows and y >= 0:
            if self._selected is not None and rows[-1] == self._row(self._shown()):
                self.action_open()
            else:
                self._select(rows[-1])

    def action_confirm(self) -> None:
        context, shown = self.context, self._shown()
        if not shown:
            context.notify("there is no finding to confirm")
            return
        finding = context.findings.found[self._row(shown).number]
        if session_actions.testable(context, "no experiment is run") is None:
            return
        experiments = planned(context.model, finding)
        if any(not one.problem for one in experiments):
            session_actions.confirm(context, experiments)
        else:
            context.notify(_why_no_experiment(context.model, finding, experiments), severity="warning")

    def action_go(self, number: int) -> None:
        context = self.context
        found = context.findings.found
        if number > len(found):
            context.notify(f"there is no finding {number}")
            return
        for pair in sorted(found[number - 1].cells):
            ends = [end for name in pair if (end := context.model.table.number(name)) is not None]
            if len(ends) == 2 and context.show_pair(ends[0], ends[1]):
                cells = found[number - 1].cells
                context.outline(f"finding {number}", cells)
                return
        context.notify("this finding concerns no pair of the grid")


def can_acknowledge(context: AppContext) -> bool:
    """Return True if notes about findings can be kept, else notify the user."""
    if context.feed is not None and context.feed.can_test:
        return True
    started = context.feed is not None
    context.notify("a recording cannot be changed" if started else "the session has not started yet")
    return False


def acknowledge(context: AppContext, finding: Finding, note: str) -> None:
    if context.feed is not None:
        request = context.feed.acknowledge(finding_key(finding), title(finding), note)
        context.run_worker(session_actions.report(context, request), "acknowledge", exit_on_error=False)
