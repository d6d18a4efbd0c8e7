"""Bases of the detail views: scrolling text under a title, text with a filter, text whose next steps can be run."""

from __future__ import annotations

import shlex
from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import Screen
from textual.widget import Widget

from fabtui.diagnosis.finding import Finding
from fabtui.diagnosis.knowledge.step_command import CannotRunError, StepCommand, step_command
from fabtui.presentation.findings import copied_step
from fabtui.presentation.wording import MUTED, Part, plain
from fabtui.presentation.wrapping import (
    HEADING,
    Line,
    Lines,
    TableLine,
    between,
    filled,
    in_clauses,
    section,
    stacked,
    text_width,
)
from fabtui.sanitize import one_line
from fabtui.screen.context import AppContext, context_of
from fabtui.screen.keys import group_title, shortcut
from fabtui.screen.views.dialogs import Question
from fabtui.screen.widgets.finding_lines import FEW_LINES, MANY_LINES, output_lines, step_lines
from fabtui.screen.widgets.key_bar import KeyBar
from fabtui.screen.widgets.prompt import Prompt
from fabtui.screen.widgets.sorted_table import TableRow
from fabtui.screen.widgets.text_line import TextLine, content_of
from fabtui.session.feeds.base import Feed

#: Maximum width of a column of a table; the last column may wrap.
_MAX_COLUMN = 44
#: Columns before the rest of a line that is too long.
_CONTINUED = 4
#: Text of a cell of a table, or text and style.
Cell = str | Part


def pairs(rows: list[tuple[str, str]], width: int = 12) -> Lines:
    return [[(f"  {name:<{width}} ", MUTED), (value, "")] for name, value in rows]


def table(headings: list[str], rows: Sequence[Sequence[Cell]]) -> Lines:
    """Return a table. A column that is empty in every row is left out."""
    texts = [[cell if isinstance(cell, str) else cell[0] for cell in row] for row in rows]
    used = filled(texts)
    cut = [[row[at] if at == used[-1] else row[at][:_MAX_COLUMN] for at in used] for row in texts]
    shown = [[headings[at] for at in used], *cut]
    *columns, last = zip(*shown, strict=True)
    widths = [max(map(text_width, column)) for column in columns]
    # The last column may wrap between its words.
    widths.append(max(text_width(word) for text in last for word in text.split() or ("",)))
    styles = [[MUTED] * len(used)]
    styles += [["" if isinstance(row[at], str) else row[at][1] for at in used] for row in rows]
    return [
        TableLine(
            ("  ", ""), [([(text, style)], width) for text, style, width in zip(*line, widths, strict=True)], "  "
        )
        for line in zip(shown, styles, strict=True)
    ]


def table_section(title: str, headings: list[str], rows: Sequence[Sequence[Cell]], note: str = "") -> Lines:
    return section(title, note) + table(headings, rows) if rows else []


def _is_heading(line: Line) -> bool:
    text, style = line[0]
    return style == HEADING and not text.startswith(" ")


def as_text(lines: Lines) -> str:
    return "\n".join(plain(line).rstrip() for line in lines)


def crumbs(screen: TitledScreen) -> list[Part]:
    below: list[TitledScreen] = [one for one in screen.app.screen_stack if isinstance(one, TitledScreen)]
    names = [one.crumb for one in below[: below.index(screen)]] if screen in below else []
    whole = " / ".join(["fabtui", str(screen.context.layer), *names])
    if len(whole) > screen.size.width // 2:
        whole = f"{screen.context.glyphs.ellipsis} / {(names or [''])[-1]}".rstrip(" /")
    return [(f" {whole} /", MUTED)]


class TitledScreen(Screen[None]):
    """View with a title, drawn again for each size, and filtered while the user types.

    Leaving a filtered view shows everything first.
    """

    DEFAULT_CSS = "TitledScreen .screen-title { background: $panel; }"
    BINDING_GROUP_TITLE = "All views"
    #: Purpose and hint of the prompt.
    FILTER_PROMPT: ClassVar[tuple[str, str]] = ("filter", "words that a line must have")
    BINDINGS: ClassVar[list[BindingType]] = [
        shortcut("slash,f", "filter", "view.filter", "show only lines with some words", "filter"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.title_line = TextLine(classes="screen-title")
        self.filter = ""  #: Words to look for; "" shows everything.
        self._prompt: Prompt | None = None
        self._focus_before: Widget | None = None

    @property
    def context(self) -> AppContext:
        return context_of(self)

    @property
    def crumb(self) -> str:
        return group_title(type(self)).lower()

    def on_mount(self) -> None:
        self.draw()

    def on_resize(self) -> None:
        self.draw()

    @abstractmethod
    def draw(self) -> None:
        """Draw the current state."""

    def show_title(self, left: Line, right: Sequence[Part] = ()) -> None:
        """Show the way to the view and a title, and parts at the right end of the line."""
        chip: Line = []
        if self.filter:
            chip = [("  ", ""), (f" filter: {one_line(self.filter, 60)} ", "bold reverse"), (" esc: show all", MUTED)]
        width, ellipsis = self.size.width, self.context.glyphs.ellipsis
        shown = in_clauses([*crumbs(self), *left, *chip], width - len(plain(list(right))) - 1, ellipsis)
        line = between(shown, list(right), width, ellipsis)
        self.title_line.show(Content.assemble(*line))

    def matches(self, text: str) -> bool:
        lowered = text.lower()
        return all(word in lowered for word in self.filter.lower().split())

    def matching_rows(self, rows: list[TableRow]) -> list[TableRow]:
        return [row for row in rows if self.matches(" ".join(cell.text for cell in row.cells))]

    async def action_filter(self) -> None:
        await self.ask(*self.FILTER_PROMPT, self.filter)

    async def ask(self, purpose: str, hint: str, text: str) -> None:
        if self._prompt is None:
            self._focus_before = self.focused
            self._prompt = Prompt(purpose, hint, text, id="prompt")
            await self.mount(self._prompt)

    @on(Prompt.Typed)
    def _filter_typed(self, message: Prompt.Typed) -> None:
        if self._prompt is not None and self._prompt.purpose == self.FILTER_PROMPT[0]:
            self.filter = message.text.strip()
            self.draw()

    @on(Prompt.Closed)
    @on(Prompt.Given)
    def _close_prompt(self) -> None:
        prompt, self._prompt = self._prompt, None
        if prompt is not None:
            self.set_focus(self._focus_before)
            prompt.remove()

    def action_leave(self) -> None:
        if self.filter:
            self.filter = ""
            self.draw()
        else:
            self.app.pop_screen()


class DetailScreen(TitledScreen):
    """Text that scrolls, under a title. Subclasses return the title and the text."""

    DEFAULT_CSS = """
    DetailScreen #detail-body { height: 1fr; scrollbar-size-vertical: 1; }
    DetailScreen #detail-text { height: auto; }
    """
    BINDING_GROUP_TITLE = "Detail views"
    copy_width = 200  #: Width of the lines of copied text.
    BINDINGS: ClassVar[list[BindingType]] = [
        shortcut("escape,backspace", "leave", "detail.back", "back to the previous view", "back", bar=("always",)),
        shortcut("down,j", "scroll(1)", "detail.down", "one line down"),
        shortcut("up,k", "scroll(-1)", "detail.up", "one line up"),
        shortcut("pagedown,ctrl+d", "scroll_page(1)", "detail.page-down", "one screen down"),
        shortcut("pageup,ctrl+u", "scroll_page(-1)", "detail.page-up", "one screen up"),
        shortcut("home", "scroll_edge(False)", "detail.top", "top of the text"),
        shortcut("end,G", "scroll_edge(True)", "detail.bottom", "end of the text"),
    ]

    def compose(self) -> ComposeResult:
        yield self.title_line
        yield from self.above()
        with VerticalScroll(id="detail-body", can_focus=False):
            yield TextLine(id="detail-text")
        yield KeyBar(id="detail-keys")

    def above(self) -> Sequence[Widget]:
        """Return what is between the title and the text."""
        return ()

    @abstractmethod
    def title_parts(self) -> list[Part]: ...

    @abstractmethod
    def body_lines(self, width: int) -> Lines: ...

    def filtered_lines(self, width: int) -> Lines:
        """Return the lines that match the filter, under their headings; of a heading that matches all its lines."""
        lines = self.body_lines(width)
        if not self.filter:
            return lines
        found: Lines = []
        heading: Line | None = None
        whole = False
        for line in filter(None, lines):
            if _is_heading(line):
                heading, whole = line, self.matches(plain(line))
            elif whole or self.matches(plain(line)):
                found += [line] if heading is None else [[], heading, line]
                heading = None
        return found or [[], [(f"  no line has the words {one_line(self.filter, 60)}", MUTED)]]

    def draw(self) -> None:
        if not self.is_mounted or not self.query("#detail-text"):
            return
        width = max(20, self.size.width - 2)
        self.show_title(self.title_parts())
        lines = stacked(self.filtered_lines(width), width, _CONTINUED)
        self.query_one("#detail-text", TextLine).show(content_of(lines), layout=True)

    def action_copy(self) -> None:
        lines = [self.title_parts(), *self.filtered_lines(self.copy_width)]
        self.context.copy(as_text(lines))

    def action_scroll(self, lines: int) -> None:
        self.query_one("#detail-body").scroll_relative(y=lines, animate=False)

    def action_scroll_page(self, pages: int) -> None:
        body = self.query_one("#detail-body")
        body.scroll_relative(y=pages * max(1, body.size.height - 1), animate=False)

    def action_scroll_edge(self, end: bool) -> None:
        body = self.query_one("#detail-body")
        (body.scroll_end if end else body.scroll_home)(animate=False)

    def action_more(self) -> None:
        """Show the next screen of the text; after its end, its beginning."""
        body = self.query_one("#detail-body")
        if not body.max_scroll_y:
            self.context.notify("all of the text is shown")
        elif body.scroll_y >= body.max_scroll_y:
            self.action_scroll_edge(False)
        else:
            self.action_scroll_page(1)


class RunScreen(Question):
    """Question before a command that may change something: Enter, which opened it, does not answer yes."""

    BINDING_GROUP_TITLE = "Question before a command"
    BINDINGS: ClassVar[list[BindingType]] = [
        shortcut("y", "answer(True)", "run.yes", "run the command", "run", priority=True),
        shortcut("n,escape,enter,q", "answer(False)", "run.no", "do not run it", "no", priority=True),
    ]


def _possible(context: AppContext, text: str) -> tuple[Feed, StepCommand]:
    """Return what runs a next step, and its command; CannotRunError if it cannot be run now."""
    if (feed := context.feed) is None or not feed.can_test:
        raise CannotRunError("Nothing runs on the nodes of a recording.")
    command = step_command(context.model, text)
    if (record := context.model.gone(command.node)) is not None:
        raise CannotRunError(f"{command.node} is {record.state}: no connection is open.")
    if feed.read_only and not command.read_only:
        raise CannotRunError("This session is read-only, and this is not on the list of commands that only read.")
    if (run := context.model.commands.latest(text)) is not None and run.end is None:
        raise CannotRunError(f"It is still running on {command.node}.")
    return feed, command


def runs_here(context: AppContext, text: str) -> bool:
    """Return True if a next step can be run now, and is known to only read."""
    try:
        return _possible(context, text)[1].read_only
    except CannotRunError:
        return False


def enter_text(context: AppContext, text: str) -> str:
    try:
        _, command = _possible(context, text)
    except CannotRunError as error:
        return f"{one_line(str(error), 300)} y copies it."
    node = one_line(command.node, 60)
    return f"enter runs it on {node}" if command.read_only else f"enter asks, then runs it on {node}"


def run_step(screen: Screen[None], text: str) -> None:
    """Run a next step that the user has chosen; ask first unless it only reads, or report why it cannot be run."""
    context = context_of(screen)
    try:
        feed, command = _possible(context, text)
    except CannotRunError as error:
        context.notify(f"{one_line(str(error), 300)} y copies it.", severity="warning")
        return
    if command.read_only:
        _start(context, feed, command)
        return
    question = RunScreen(
        f"Run this on {one_line(command.node, 100)}?",
        f"{one_line(shlex.join(command.argv), 1000)}\n\nIt may change the node: it is not on the list of commands that "
        "only read. It runs as your user, without a shell.",
        "run it",
        "do not run it",
        plain=context.glyphs.plain,
    )
    screen.app.push_screen(question, lambda yes: _start(context, feed, command) if yes else None)


def _start(context: AppContext, feed: Feed, command: StepCommand) -> None:
    context.run_worker(_report(context, feed, command), "step", exit_on_error=False)


async def _report(context: AppContext, feed: Feed, command: StepCommand) -> None:
    try:
        await feed.run_step(command)
    except Exception as error:
        context.notify(f"the command failed: {one_line(f'{type(error).__name__}: {error}', 200)}", severity="warning")
    context.request_draw()


def step_block(context: AppContext, text: str, at: int, width: int, *, selected: bool, noted: bool = True) -> Lines:
    """Return the next step at a place of a list, with its output; the selected one shows what Enter does."""
    lines = step_lines(text, at, width, hint=enter_text(context, text) if selected else None, noted=noted)
    if (run := context.model.commands.latest(text)) is not None:
        lines += output_lines(run, width, context.glyphs.ellipsis, MANY_LINES if selected else FEW_LINES)
    return lines


class SteppedScreen(DetailScreen):
    """Text with next steps. None is selected at first."""

    BINDING_GROUP_TITLE = "Next steps in a view"
    BINDINGS: ClassVar[list[BindingType]] = [
        shortcut("tab", "select_step(1)", "steps.next", "select the next step below the selected one"),
        shortcut("shift+tab", "select_step(-1)", "steps.previous", "select the next step above the selected one"),
        shortcut(
            "enter", "run_step", "steps.run", "run the selected next step on its node", "next steps", bar=("first",)
        ),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.selected: str | None = None
        self._drawn: list[tuple[str, Line]] = []  #: Next steps as they were drawn, each with its first line.
        self._lines: Lines = []
        self._copies = False  #: True while the text of the view is made for copying.

    @abstractmethod
    def stepped_lines(self, width: int) -> Lines:
        """Return the text of the view; it has the next steps as `steps_of` and `step` return them."""

    def body_lines(self, width: int) -> Lines:
        self._drawn = []
        return self.stepped_lines(width)

    def filtered_lines(self, width: int) -> Lines:
        self._lines = super().filtered_lines(width)
        return self._lines

    def steps_of(self, finding: Finding, width: int) -> Lines:
        return [line for at, text in enumerate(finding.next) for line in self.step(text, at, width)]

    def step(self, text: str, at: int, width: int) -> Lines:
        lines = step_block(self.context, text, at, width, selected=text == self.selected, noted=not self._copies)
        self._drawn.append((text, lines[0]))
        return lines

    def action_select_step(self, by: int) -> None:
        texts = list(dict.fromkeys(text for text, _ in self._drawn))
        if not texts:
            self.context.notify("there is no next step here")
        elif self.selected in texts:
            self._select(texts[max(0, min(len(texts) - 1, texts.index(self.selected) + by))])
        else:
            self._select(texts[0 if by > 0 else -1])

    def action_run_step(self) -> None:
        if self.selected in [text for text, _ in self._drawn]:
            assert self.selected is not None
            run_step(self, self.selected)
        else:
            self.action_select_step(1)

    def action_copy(self) -> None:
        if self.selected is not None:
            self.context.copy(copied_step(self.selected))
        else:
            self._copies = True
            self.copy_all()
            self._copies = False
            self.draw()

    def copy_all(self) -> None:
        super().action_copy()

    def _select(self, text: str | None) -> None:
        self.selected = text
        self.draw()
        self.call_after_refresh(self._bring_into_view)

    def _row_of(self, first: Line) -> int:
        return next((y for y, line in enumerate(self._lines) if line is first), -1)

    def _bring_into_view(self) -> None:
        row = next((self._row_of(first) for text, first in self._drawn if text == self.selected), -1)
        body = self.query_one("#detail-body")
        top, height = int(body.scroll_y), body.size.height
        # With the hint and the first lines of output.
        if row >= 0 and not top <= row <= top + height - FEW_LINES:
            body.scroll_to(y=max(0, row - height // 2), animate=False)

    def on_click(self, event: events.Click) -> None:
        y = event.screen_y - self.query_one("#detail-text").region.y
        if event.screen_y >= self.query_one("#detail-body").region.bottom or y < 0:
            return
        clicked = [text for text, first in self._drawn if (row := self._row_of(first)) >= 0 and row == y]
        if clicked:
            if clicked[0] == self.selected:
                self.action_run_step()
            else:
                self._select(clicked[0])
