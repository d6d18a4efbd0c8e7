"""All findings with what says so and what to type next."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType

from fabtui.diagnosis.finding import Finding
from fabtui.nodeset import count
from fabtui.presentation.findings import evidence, pairs_text, title
from fabtui.presentation.wording import MUTED, Part, plain
from fabtui.presentation.wrapping import stacked
from fabtui.sanitize import one_line
from fabtui.screen.views.detail_base import DetailScreen, Lines

_STYLES = {"bad": "bold $error", "warn": "bold $warning", "note": "bold"}
#: Cells of a finding that are named.
_MOST_CELLS = 8
_JUMPS = 9


class FindingsScreen(DetailScreen):
    """The findings, numbered; a digit goes to the first cell of a finding."""

    BINDING_GROUP_TITLE = "Findings"
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(
                str(digit),
                f"go({digit})",
                "to its cell" if digit == 1 else "",
                id=f"findings.go-{digit}",
                show=digit == 1,
                tooltip=f"go to the first cell of finding {digit}",
            )
            for digit in range(1, _JUMPS + 1)
        ),
        Binding("y", "copy", "copy", id="findings.copy", tooltip="copy all findings as text"),
    ]

    @property
    def found(self) -> list[Finding]:
        """The findings as they are now."""
        return self.fabric_app.main.findings.found

    def title_parts(self) -> list[Part]:
        """Return the title."""
        cells = len({cell for one in self.found for cell in one.cells})
        return [(" findings ", "bold"), (f"  {len(self.found)}, {count(cells, 'pair')}", MUTED)]

    def body_lines(self, width: int) -> Lines:
        """Return all findings."""
        if not self.found:
            return [[], [(f"  {self.fabric_app.main.findings.none_text}", MUTED)]]
        lines: Lines = []
        for number, one in enumerate(self.found, 1):
            lines += [[], *cause_lines(one, width, number)]
        return lines

    def action_go(self, number: int) -> None:
        """Go to the first cell of a finding."""
        app = self.fabric_app
        if number > len(self.found):
            app.tell(f"there is no finding {number}")
            return
        cells = self.found[number - 1].cells
        place = app.main.scope.source.axis.position
        for pair in sorted(cells):
            ends = [app.model.number(name) for name in pair]
            at = [place.get(end) for end in ends if end is not None]
            if len(at) == 2 and at[0] is not None and at[1] is not None:
                self.action_leave()
                app.main.go_to((at[0], at[1]))
                return
        app.tell("this finding is about no cell of the grid")

    def action_copy(self) -> None:
        """Copy all findings."""
        self.fabric_app.copy("\n".join(plain(line).rstrip() for line in self.body_lines(200)).strip())


def cause_lines(one: Finding, width: int, number: int | None = None) -> Lines:
    """Return a finding with its evidence, its cells and the commands that look further."""
    lead = "" if number is None else f"{number} "
    lines: Lines = [
        [(f"  {lead}", _STYLES[one.severity]), (title(one), "bold"), (f"   {pairs_text(one)}", MUTED)],
    ]
    lines += [[(f"      {text}", "")] for text in evidence(one)]
    if one.cells:
        named = ", ".join(one_line(f"{src} > {dst}", 120) for src, dst in sorted(one.cells)[:_MOST_CELLS])
        more = f" and {len(one.cells) - _MOST_CELLS} more" if len(one.cells) > _MOST_CELLS else ""
        lines.append([("      pairs   ", MUTED), (named + more, MUTED)])
    for at, command in enumerate(one.next):
        lines.append([("      next    " if not at else "              ", MUTED), (one_line(command, 4000), "$accent")])
    return stacked(lines, width, 14)
