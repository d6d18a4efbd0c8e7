"""Whole findings and class statistics as lines, and styles of preflight lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fabtui.diagnosis.knowledge.step_output import judged_output
from fabtui.model.command_log import CommandRun, outcome
from fabtui.model.endpoints import PairClass
from fabtui.model.layers import Layer
from fabtui.model.session_model import Model
from fabtui.presentation import findings as finding_text
from fabtui.presentation.cell_levels import Glyphs
from fabtui.presentation.legends import class_rows
from fabtui.presentation.text_table import aligned
from fabtui.presentation.wording import MUTED, Part, plain, without_domain
from fabtui.presentation.wrapping import Line, Lines, between, stacked
from fabtui.sanitize import clean, one_line
from fabtui.screen.widgets.text_line import TargetLine

if TYPE_CHECKING:
    from fabtui.diagnosis.finding import Finding
    from fabtui.screen.session_diagnosis import SessionDiagnosis


#: Style of the number of a finding by its severity.
SEVERITY_STYLES = {"bad": "bold $error", "warn": "bold $warning", "note": "bold"}


def class_lines(
    model: Model, layer: Layer, bad: Counter[PairClass], tested: Counter[PairClass], width: int = 80
) -> Lines:
    """Return the statistics of a layer's classes, see `class_rows`."""
    headings, rows = class_rows(model, layer, bad, tested)
    if not rows:
        return []
    texts = aligned([headings, *rows], indent="")
    if max(map(len, texts)) > width:
        texts = aligned([headings, *rows], gap=" ", indent="")
    return [[(text, "" if number else MUTED)] for number, text in enumerate(texts)]


#: Style of each role of a piece of a line.
STYLES = {
    "bad": "bold $error",
    "warn": "$warning",
    "note": "$secondary",
    "name": "bold",
    "head": "bold $accent",
    "dim": MUTED,
}


def styled(lines: Lines) -> Lines:
    """Return lines with the styles of their roles."""
    return [[(text, STYLES.get(role, "")) for text, role in line] for line in lines]


#: Maximum number of pairs of a finding that are named.
_MAX_PAIRS = 8
#: Number of lines of output under a next step, and under the selected one.
FEW_LINES, MANY_LINES = 4, 400
_LONGEST_LINE = 500
#: Columns before the text of a next step.
_INDENT = 14


def finding_block(one: Finding, width: int, number: int) -> Lines:
    """Return a finding with its evidence, pairs and next steps, as it is copied."""
    steps = [step for at, command in enumerate(one.next) for step in step_lines(command, at, width, noted=False)]
    return [*head_lines(one, width, number), *detail_lines(one, width), *steps]


def head_lines(one: Finding, width: int, number: int, *, selected: bool = False) -> Lines:
    """Return number, title and number of pairs of a finding; the number of the selected one is marked."""
    title, pairs = finding_text.placed_title(one), finding_text.pairs_text(one)
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


def step_lines(command: str, at: int, width: int, *, hint: str | None = None, noted: bool = True) -> Lines:
    """Return the next step at a place of the list.

    Args:
        command: The step.
        at: Its place.
        width: Width of the lines.
        hint: What Enter does to it, if it is selected.
        noted: Whether a remark says where it runs; texts to copy have none.
    """
    label = "next" if not at else ""
    text, note = finding_text.step_parts(command)
    behind: Line = [(f" {note}", MUTED)] if note and noted else []
    if hint is None:
        return stacked([[(f"      {label:<8}", MUTED), (text, "$accent"), *behind]], width, _INDENT)
    lines: Lines = [[(f"      {label:<6}", MUTED), ("> ", "bold $primary"), (text, "bold $accent reverse"), *behind]]
    return stacked([*lines, [(" " * _INDENT + hint, MUTED)]], width, _INDENT)


def output_lines(run: CommandRun, width: int, ellipsis: str, most: int) -> Lines:
    """Return how a command ended, and at most a number of lines of its output."""
    margin = " " * _INDENT
    if run.end is None:
        return [[(f"{margin}running on {one_line(run.start.node, 60)}{ellipsis}", "bold $warning")]]
    style = "bold $primary" if run.end.exit == 0 else "bold $warning"
    lines: Lines = [[(f"{margin}{one_line(run.start.node, 60)}: {one_line(outcome(run.end), 600)}", style)]]
    texts = clean(run.end.output).splitlines()
    judged = judged_output(run, texts)
    style = "bold $warning" if judged.marked else MUTED
    lines += [[(f"{margin}{judged.sentence}", style)]] if judged.sentence else []
    # Where room is short, abnormal lines go first.
    shown = range(min(len(texts), most)) if most >= len(texts) else sorted(sorted(judged.marked)[:most] or range(most))
    for at in shown:
        text = texts[at].expandtabs()[:_LONGEST_LINE].rstrip()
        lines.append([(f"{margin}{text}", "bold $warning" if at in judged.marked else "")])
    if len(texts) > most:
        more = "Y copies them" if most >= MANY_LINES else "select the step"
        lines.append([(f"{margin}and {len(texts) - len(shown)} more lines: {more}", MUTED)])
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


#: Maximum number of next steps of a finding.
_MOST_STEPS = 2


def summary_lines(
    findings: SessionDiagnosis, pair: tuple[str, str] | None, width: int, height: int, glyphs: Glyphs
) -> list[TargetLine]:
    """Return the findings in at most ``height`` lines, each with the place of its finding; no sentence is cut.

    The numbers of the findings of the cursor's ``pair`` are reversed.
    """
    found = findings.found
    if not found:
        none: TargetLine = [(findings.none_text, MUTED)], None
        return [none][:height]
    blocks = [_Block(number, one, pair, findings.domain, width, glyphs) for number, one in enumerate(found[:height], 1)]
    titles, used = 0, 0
    for block in blocks:
        left = len(found) - titles - 1
        if used + len(block.title) + (left > 0) > height:
            break
        titles, used = titles + 1, used + len(block.title)
    blocks, left = blocks[:titles], len(found) - titles
    room = height - used - (left > 0)
    # The first step of the most severe, the reason of the worst; the first step and reason of each, then the rest.
    severe = [block for block, one in zip(blocks, found, strict=False) if one.severity is found[0].severity]
    for more, chosen in (((0, 1), severe), ((1, 0), severe[:1]), ((0, 1), blocks), ((1, 0), blocks)):
        for block in chosen:
            room -= block.grow(*more, room)
    for block in blocks:
        while grown := block.grow(1, 0, room) or block.grow(0, 1, room):
            room -= grown
    lines: list[TargetLine] = [(line, at) for at, block in enumerate(blocks) for line in block.lines]
    return [*lines, ([(f"  and {left} more: F shows all", MUTED)], len(found))][:height] if left else lines


class _Block:
    """Lines of one finding, as many as have been added."""

    def __init__(
        self, number: int, one: Finding, pair: tuple[str, str] | None, domain: str, width: int, glyphs: Glyphs
    ) -> None:
        style = MUTED if one.known else SEVERITY_STYLES[one.severity]
        here = pair is not None and pair in one.cells
        head: list[Part] = [(f"{number}", f"{style} reverse" if here else style), (" ", "")]
        head.append((without_domain(domain, finding_text.placed_title(one)), MUTED if one.known else ""))
        if one.acknowledged is not None:
            head.append((f"  known: {one_line(one.acknowledged.note, 300)}", MUTED))
        self.title = _with_count(head, finding_text.pairs_text(one), width, glyphs)
        self._reasons = [
            stacked([[(f"  {without_domain(domain, text)}", MUTED)]], width, 2)
            for text in (() if one.known else finding_text.evidence(one))
        ]
        self._steps = [
            stacked([[("  next  ", MUTED), *_noted(step)]], width, 8)
            for step in (() if one.known else one.next[:_MOST_STEPS])
        ]
        self._shown = (0, 0)

    @property
    def lines(self) -> Lines:
        reasons, steps = self._shown
        parts = [self.title, *self._reasons[:reasons], *self._steps[:steps]]
        return [line for part in parts for line in part]

    def _length(self, reasons: int, steps: int) -> int:
        return sum(map(len, (*self._reasons[:reasons], *self._steps[:steps])))

    def grow(self, reasons: int, steps: int, room: int) -> int:
        """Add further reasons and steps if there is room for them; return the number of lines added."""
        wanted = min(self._shown[0] + reasons, len(self._reasons)), min(self._shown[1] + steps, len(self._steps))
        more = self._length(*wanted) - self._length(*self._shown)
        if more > room:
            return 0
        self._shown = wanted
        return more


def _noted(step: str) -> Line:
    text, note = finding_text.step_parts(step)
    return [(text, "$accent"), *([(f" {note}", MUTED)] if note else [])]


def _with_count(head: Line, pairs: str, width: int, glyphs: Glyphs) -> Lines:
    """Return a title with its number of pairs at the right end, wrapped."""
    lines = stacked([head], width, 2)
    if pairs and len(plain(lines[-1])) + len(pairs) + 1 > width:
        lines.append([])
    if pairs:
        lines[-1] = between(lines[-1], [(pairs, MUTED)], width, glyphs.ellipsis)
    return lines
