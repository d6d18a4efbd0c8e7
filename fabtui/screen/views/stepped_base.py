"""Base of the detail views whose next steps can be selected and run."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from textual import events
from textual.binding import BindingType

from fabtui.diagnosis.finding import Finding
from fabtui.presentation.wrapping import Line, Lines
from fabtui.sanitize import one_line
from fabtui.screen.context import AppContext
from fabtui.screen.keys import shortcut
from fabtui.screen.views.detail_base import DetailScreen
from fabtui.screen.views.step_runs import enter_text, run_step
from fabtui.screen.widgets.finding_block import FEW_LINES, MANY_LINES, output_lines, step_lines


def step_block(context: AppContext, text: str, at: int, width: int, *, selected: bool) -> Lines:
    """Return the next step at a place of a list, with its output; the selected one shows what Enter does."""
    lines = step_lines(text, at, width, hint=enter_text(context, text) if selected else None)
    if (run := context.model.commands.latest(text)) is not None:
        lines += output_lines(run, width, context.glyphs.ellipsis, MANY_LINES if selected else FEW_LINES)
    return lines


class SteppedScreen(DetailScreen):
    """Text with next steps. None is selected at first."""

    BINDING_GROUP_TITLE = "Next steps in a view"
    BINDINGS: ClassVar[list[BindingType]] = [
        shortcut("tab", "select_step(1)", "steps.next", "select the next step below the selected one"),
        shortcut("shift+tab", "select_step(-1)", "steps.previous", "select the next step above the selected one"),
        shortcut("enter", "run_step", "steps.run", "run the selected next step on its node", "next steps"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.selected: str | None = None
        #: Next steps as they were drawn, each with its first line.
        self._drawn: list[tuple[str, Line]] = []
        self._lines: Lines = []

    @abstractmethod
    def stepped_lines(self, width: int) -> Lines:
        """Return the text of the view; it has the next steps as `steps_of` and `step` return them."""

    def body_lines(self, width: int) -> Lines:
        self._drawn = []
        self._lines = self.stepped_lines(width)
        return self._lines

    def steps_of(self, finding: Finding, width: int) -> Lines:
        """Return the lines of the next steps of a finding."""
        return [line for at, text in enumerate(finding.next) for line in self.step(text, at, width)]

    def step(self, text: str, at: int, width: int) -> Lines:
        """Return the lines of the next step at a place of a list."""
        lines = step_block(self.context, text, at, width, selected=text == self.selected)
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
        """Run the selected next step; select the first one if there is none."""
        if self.selected in [text for text, _ in self._drawn]:
            assert self.selected is not None
            run_step(self, self.selected)
        else:
            self.action_select_step(1)

    def action_copy(self) -> None:
        if self.selected is not None:
            self.context.copy(one_line(self.selected))
        else:
            self.copy_all()
            self.draw()

    def copy_all(self) -> None:
        """Copy the text of the view."""
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
        """Select the next step clicked; run it with a double click."""
        y = event.screen_y - self.query_one("#detail-text").region.y
        if event.screen_y >= self.query_one("#detail-body").region.bottom or y < 0:
            return
        clicked = [text for text, first in self._drawn if (row := self._row_of(first)) >= 0 and row == y]
        if clicked:
            self._select(clicked[0])
            if event.chain == 2:
                self.action_run_step()
