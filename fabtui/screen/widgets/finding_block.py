"""A finding with its evidence, pairs, next steps and their output, as lines of a view."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

from fabtui.model.command_log import CommandRun, outcome
from fabtui.presentation import findings as finding_text
from fabtui.presentation.wording import MUTED, Part
from fabtui.presentation.wrapping import Lines, stacked
from fabtui.sanitize import clean, one_line
from fabtui.screen.widgets.finding_lines import SEVERITY_STYLES

if TYPE_CHECKING:
    from fabtui.diagnosis.finding import Finding

#: Maximum number of pairs of a finding that are named.
_MAX_PAIRS = 8
#: Number of lines of output under a next step, and under the selected one.
FEW_LINES, MANY_LINES = 4, 400
_LONGEST_LINE = 500
#: Columns before the text of a next step.
_INDENT = 14


def finding_block(one: Finding, width: int, number: int) -> Lines:
    """Return a finding with its evidence, pairs and next steps."""
    steps = [step for at, command in enumerate(one.next) for step in step_lines(command, at, width)]
    return [*head_lines(one, width, number), *detail_lines(one, width), *steps]


def head_lines(one: Finding, width: int, number: int, *, selected: bool = False) -> Lines:
    """Return number, title and number of pairs of a finding; the number of the selected one is marked."""
    title, pairs = finding_text.title(one), finding_text.pairs_text(one)
    style = MUTED if one.known else SEVERITY_STYLES[one.severity]
    mark: list[Part] = [(" ", ""), (f" {number} ", f"{style} reverse")] if selected else [(f"  {number} ", style)]
    line: list[Part] = [*mark, (title, MUTED if one.known else "bold")]
    line += [(f"   {pairs}", MUTED), (f"   {one.rule.id}", MUTED)]
    known = finding_text.known_text(one)
    return stacked([line, *([[(f"      {known}", MUTED)]] if known else [])], width, _INDENT)


def detail_lines(one: Finding, width: int) -> Lines:
    """Return the evidence of a finding, and the first of its pairs."""
    lines: Lines = [[(f"      {text}", "")] for text in finding_text.evidence(one)]
    if one.cells:
        named = ", ".join(one_line(f"{src} > {dst}", 120) for src, dst in sorted(one.cells)[:_MAX_PAIRS])
        more = f" and {len(one.cells) - _MAX_PAIRS} more" if len(one.cells) > _MAX_PAIRS else ""
        lines.append([("      pairs   ", MUTED), (named + more, MUTED)])
    return stacked(lines, width, _INDENT)


def step_lines(command: str, at: int, width: int, *, hint: str | None = None) -> Lines:
    """Return the next step at a place of the list; ``hint``: it is selected, and this is what Enter does."""
    label = "next" if not at else ""
    text = one_line(command, 4000)
    if hint is None:
        return stacked([[(f"      {label:<8}", MUTED), (text, "$accent")]], width, _INDENT)
    lines: Lines = [[(f"      {label:<6}", MUTED), ("> ", "bold $primary"), (text, "bold $accent reverse")]]
    return stacked([*lines, [(" " * _INDENT + hint, MUTED)]], width, _INDENT)


def output_lines(run: CommandRun, width: int, ellipsis: str, most: int) -> Lines:
    """Return how a command ended, and at most a number of lines of its output."""
    margin = " " * _INDENT
    if run.end is None:
        return [[(f"{margin}running on {one_line(run.start.node, 60)}{ellipsis}", "bold $warning")]]
    style = "bold $primary" if run.end.exit == 0 else "bold $warning"
    lines: Lines = [[(f"{margin}{one_line(run.start.node, 60)}: {one_line(outcome(run.end), 600)}", style)]]
    texts = clean(run.end.output).splitlines()
    lines += [[(f"{margin}{text.expandtabs()[:_LONGEST_LINE].rstrip()}", "")] for text in islice(texts, most)]
    if len(texts) > most:
        more = "Y copies them" if most >= MANY_LINES else "select the step"
        lines.append([(f"{margin}and {len(texts) - most} more lines: {more}", MUTED)])
    return stacked(lines, width, _INDENT)


def searched_text(one: Finding) -> str:
    """Return the text of a finding that a filter searches, in lower case."""
    cells: Sequence[str] = [f"{src}>{dst}" for src, dst in one.cells]
    parts = (
        finding_text.title(one),
        finding_text.known_text(one),
        *finding_text.evidence(one),
        *one.next,
        one.rule.id,
        one.rule.name,
        *one.nodes,
    )
    return "\n".join((*parts, *cells)).lower()
