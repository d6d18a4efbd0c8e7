"""Views of the findings and of the preflight."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import BindingType

from fabtui.diagnosis.preflight.rules import Preflight
from fabtui.nodeset import count
from fabtui.presentation import preflight_lines as text
from fabtui.presentation.wording import MUTED, Part
from fabtui.presentation.wrapping import Lines
from fabtui.screen.keys import shortcut
from fabtui.screen.session_diagnosis import PREFLIGHT_INTERVAL
from fabtui.screen.views.detail_base import DetailScreen, section
from fabtui.screen.widgets.finding_lines import finding_block, styled


class FindingsScreen(DetailScreen):
    """All findings, most severe first, with evidence and next steps. A digit goes to the first pair of a finding."""

    BINDING_GROUP_TITLE = "Findings"
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            shortcut(
                *(str(digit), f"go({digit})", f"findings.go-{digit}", f"go to the first pair of finding {digit}"),
                label="go to its pair" if digit == 1 else "",
            )
            for digit in range(1, 10)
        ),
        shortcut("y", "copy", "findings.copy", "copy all findings as text", "copy"),
    ]

    def title_parts(self) -> list[Part]:
        found = self.context.findings.found
        cells = len({cell for one in found for cell in one.cells})
        return [(" findings ", "bold"), (f"  {len(found)}, {count(cells, 'pair')}", MUTED)]

    def body_lines(self, width: int) -> Lines:
        findings = self.context.findings
        if not findings.found:
            return [[], [(f"  {findings.none_text}", MUTED)]]
        return [
            line for number, one in enumerate(findings.found, 1) for line in ([], *finding_block(one, width, number))
        ]

    def action_go(self, number: int) -> None:
        context = self.context
        found = context.findings.found
        if number > len(found):
            context.notify(f"there is no finding {number}")
            return
        for pair in sorted(found[number - 1].cells):
            ends = [end for name in pair if (end := context.model.number(name)) is not None]
            if len(ends) == 2 and context.show_pair(ends[0], ends[1]):
                self.action_leave()
                return
        context.notify("this finding concerns no pair of the grid")


class PreflightScreen(DetailScreen):
    """Node problems, most severe first, with evidence and next step; then the facts by groups of nodes."""

    BINDING_GROUP_TITLE = "Preflight"
    BINDINGS: ClassVar[list[BindingType]] = [
        shortcut("a", "all", "preflight.all", "show all facts, or only the relevant ones", "all facts"),
        shortcut("y", "copy", "preflight.copy", "copy the preflight as text", "copy"),
    ]
    copy_width = 120
    _all_facts = False

    def _found(self) -> Preflight:
        found, current = self.context.preflight()
        if not current:
            self.context.draw_within(PREFLIGHT_INTERVAL)
        return found

    def title_parts(self) -> list[Part]:
        (head, _), (result, _) = text.head_line(self._found())
        return [(f" {head.rstrip(': ')} ", "bold"), (f" {result}", MUTED)]

    def body_lines(self, width: int) -> Lines:
        found, glyphs = self._found(), text.ASCII if self.context.glyphs.plain else text.UNICODE
        lines: Lines = styled(text.kind_lines(found.table, width, glyphs))
        for finding in found.findings:
            lines += [[], *styled(text.finding_lines(finding, width, glyphs))]
        if found.missing:
            lines += section("not inspected")
            lines += [[(f"  {text.cut(line, width - 2, glyphs)}", "$warning")] for _, line in found.missing]
        facts = text.chosen_facts(found.table, self._all_facts)
        if table := text.table_lines(found.table, facts, width, glyphs):
            rest = len(found.table.facts) - len(facts)
            lines += section("facts", f"{rest} more without differences (a)" if rest else "")
            lines += styled(table)
        return lines

    def action_all(self) -> None:
        self._all_facts = not self._all_facts
        self.draw()
