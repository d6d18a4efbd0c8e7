"""View of the preflight: node problems and differences."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType

from fabtui.diagnosis.preflight.rules import Preflight
from fabtui.presentation.preflight_lines import (
    ASCII,
    UNICODE,
    chosen_facts,
    cut,
    finding_lines,
    head_line,
    kind_lines,
    table_lines,
)
from fabtui.presentation.wording import MUTED, Part
from fabtui.presentation.wrapping import Lines
from fabtui.screen.session_diagnosis import PREFLIGHT_INTERVAL
from fabtui.screen.views.detail_base import DetailScreen, section
from fabtui.screen.widgets.preflight_text import styled

_COPY_WIDTH = 120


class PreflightScreen(DetailScreen):
    """Node problems, most severe first, with evidence and next step; then the facts by groups of nodes."""

    BINDING_GROUP_TITLE = "Preflight"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "all", "all facts", id="preflight.all", tooltip="show all facts, or only the relevant ones"),
        Binding("y", "copy", "copy", id="preflight.copy", tooltip="copy the preflight as text"),
    ]
    _all_facts = False

    def _found(self) -> Preflight:
        found, current = self.context.preflight()
        if not current:
            self.context.draw_within(PREFLIGHT_INTERVAL)
        return found

    def title_parts(self) -> list[Part]:
        """Return the number of nodes and the result."""
        (head, _), (text, _) = head_line(self._found())
        return [(f" {head.rstrip(': ')} ", "bold"), (f" {text}", MUTED)]

    def body_lines(self, width: int) -> Lines:
        """Return the problems and the facts."""
        found, glyphs = self._found(), ASCII if self.context.glyphs.plain else UNICODE
        lines: Lines = styled(kind_lines(found.table, width, glyphs))
        for finding in found.findings:
            lines += [[], *styled(finding_lines(finding, width, glyphs))]
        if found.missing:
            lines += section("not inspected")
            lines += [[(f"  {cut(line, width - 2, glyphs)}", "$warning")] for line in found.missing]
        facts = chosen_facts(found.table, self._all_facts)
        if table := table_lines(found.table, facts, width, glyphs):
            rest = len(found.table.facts) - len(facts)
            lines += section("facts", f"{rest} more without differences (a)" if rest else "")
            lines += styled(table)
        return lines

    def action_all(self) -> None:
        self._all_facts = not self._all_facts
        self.draw()

    def action_copy(self) -> None:
        self.copy_text(_COPY_WIDTH)
