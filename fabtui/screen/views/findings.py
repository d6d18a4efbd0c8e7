"""Views of the findings and of the preflight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import BindingType

from fabtui.diagnosis.confirmation import planned
from fabtui.diagnosis.finding import Finding, Pair
from fabtui.diagnosis.preflight.rules import Preflight
from fabtui.model.events import Experiment
from fabtui.model.session_model import Model
from fabtui.nodeset import count
from fabtui.presentation import preflight_lines as text
from fabtui.presentation.wording import MUTED, Part
from fabtui.presentation.wrapping import Lines
from fabtui.sanitize import one_line
from fabtui.screen import feed_actions
from fabtui.screen.keys import shortcut
from fabtui.screen.session_diagnosis import PREFLIGHT_INTERVAL
from fabtui.screen.views.detail_base import DetailScreen, section
from fabtui.screen.widgets.finding_lines import finding_block, styled


def _why_no_experiment(model: Model, finding: Finding, experiments: Sequence[Experiment]) -> str:
    """Return why nothing can be tried about a finding."""
    if not finding.rule.trials:
        return f"{finding.rule.id} {finding.rule.name} has no experiments: run its next steps"
    nodes = dict.fromkeys(end.rpartition(":")[0] for pair in sorted(finding.cells) for end in pair)
    gone = [f"{one_line(node, 60)} is {record.state}" for node in nodes if (record := model.gone(node))]
    if gone:
        return f"cannot be tested: {', '.join(gone)}; restart fabtui to reconnect"
    problems = [f"{one.env_text} {one.problem}" for one in experiments]
    return "; ".join(problems) or "no pair of this finding can be tested again"


class FindingsScreen(DetailScreen):
    """All findings, most severe first, with evidence and next steps. A digit goes to the first pair of a finding.

    One finding is selected, for experiments that confirm it.
    """

    BINDING_GROUP_TITLE = "Findings"
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            shortcut(
                *(str(digit), f"go({digit})", f"findings.go-{digit}", f"go to the first pair of finding {digit}"),
                label="go to its pair" if digit == 1 else "",
            )
            for digit in range(1, 10)
        ),
        shortcut("tab", "choose(1)", "findings.next", "select the next finding", "next"),
        shortcut("shift+tab", "choose(-1)", "findings.previous", "select the previous finding"),
        shortcut("c", "confirm", "findings.confirm", "run experiments about the selected finding", "confirm"),
        shortcut("y", "copy", "findings.copy", "copy all findings as text", "copy"),
    ]
    #: Key of the selected finding, which stays selected when the order changes; None for the first one.
    _selected: tuple[str, str, frozenset[Pair]] | None = None

    def title_parts(self) -> list[Part]:
        found = self.context.findings.found
        cells = len({cell for one in found for cell in one.cells})
        parts: list[Part] = [(" findings ", "bold"), (f"  {len(found)}, {count(cells, 'pair')}", MUTED)]
        model = self.context.model
        if model.phase.name == "confirm":
            parts.append((f"  experiments: {model.done} of {model.phase.total} tests", "bold $warning"))
        return parts

    def body_lines(self, width: int) -> Lines:
        findings = self.context.findings
        if not findings.found:
            return [[], [(f"  {findings.none_text}", MUTED)]]
        chosen = self._place()
        blocks = [finding_block(one, width, at + 1, selected=at == chosen) for at, one in enumerate(findings.found)]
        return [line for block in blocks for line in ([], *block)]

    def _place(self) -> int:
        """Return the place of the selected finding."""
        keys = [(one.rule.id, one.topic, one.cells) for one in self.context.findings.found]
        return keys.index(self._selected) if self._selected in keys else 0

    def action_choose(self, step: int) -> None:
        found = self.context.findings.found
        if not found:
            return
        place = max(0, min(len(found) - 1, self._place() + step))
        one = found[place]
        self._selected = (one.rule.id, one.topic, one.cells)
        self.draw()
        width = max(20, self.size.width - 2)
        above = sum(len(finding_block(one, width, 1)) + 1 for one in found[:place])
        self.query_one("#detail-body").scroll_to(y=above, animate=False)

    def action_confirm(self) -> None:
        """Run the experiments about the selected finding, or report why there are none."""
        context, found = self.context, self.context.findings.found
        if not found:
            context.notify("there is no finding to confirm")
            return
        finding = found[self._place()]
        if feed_actions.testable(context) is None:
            return
        experiments = planned(context.model, finding)
        if any(not one.problem for one in experiments):
            feed_actions.confirm(context, experiments)
        else:
            context.notify(_why_no_experiment(context.model, finding, experiments), severity="warning")

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
