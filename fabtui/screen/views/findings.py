"""View of all findings with their evidence and next steps."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType

from fabtui.nodeset import count
from fabtui.presentation.wording import MUTED, Part
from fabtui.presentation.wrapping import Lines
from fabtui.screen.views.detail_base import DetailScreen
from fabtui.screen.widgets.finding_lines import finding_block

_KEYS = 9


class FindingsScreen(DetailScreen):
    """All findings, most severe first, with evidence and next steps. A digit goes to the first pair of a finding."""

    BINDING_GROUP_TITLE = "Findings"
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(
                str(digit),
                f"go({digit})",
                "go to its pair" if digit == 1 else "",
                id=f"findings.go-{digit}",
                show=digit == 1,
                tooltip=f"go to the first pair of finding {digit}",
            )
            for digit in range(1, _KEYS + 1)
        ),
        Binding("y", "copy", "copy", id="findings.copy", tooltip="copy all findings as text"),
    ]

    def title_parts(self) -> list[Part]:
        """Return the number of findings and of their cells."""
        found = self.context.findings.found
        cells = len({cell for one in found for cell in one.cells})
        return [(" findings ", "bold"), (f"  {len(found)}, {count(cells, 'pair')}", MUTED)]

    def body_lines(self, width: int) -> Lines:
        """Return all findings."""
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

    def action_copy(self) -> None:
        self.copy_text()
