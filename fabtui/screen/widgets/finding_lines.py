"""Findings as lines, whole and in short, problems of a node, and styles of preflight lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from fabtui.diagnosis.finding import Finding
from fabtui.diagnosis.knowledge.step_command import judged_output
from fabtui.diagnosis.preflight.checks import Preflight
from fabtui.model.facts.compare import shown
from fabtui.model.measurement import Verdict
from fabtui.model.session_logs import CommandRun, outcome
from fabtui.model.session_model import NodeRecord
from fabtui.presentation import findings as finding_text
from fabtui.presentation.cell_levels import Glyphs
from fabtui.presentation.verdict_line import fault_text
from fabtui.presentation.wording import MUTED, Part, plain, state_style, verdict_tone, without_domain
from fabtui.presentation.wrapping import HEADING, Line, Lines, between, in_clauses, section, stacked, wrapped
from fabtui.sanitize import clean, one_line
from fabtui.screen.grid.axis import fit_text
from fabtui.screen.keys import RUN_KEY
from fabtui.screen.session_diagnosis import SessionDiagnosis
from fabtui.screen.widgets.text_line import TargetLine

#: Style of the number of a finding by its severity.
SEVERITY_STYLES = {"bad": "bold $error", "warn": "bold $warning", "note": "bold"}


#: Style of each role of a piece of a line.
STYLES = {
    "bad": "bold $error",
    "warn": "$warning",
    "note": "$secondary",
    "name": "bold",
    "head": HEADING,
    "dim": MUTED,
}


def styled(lines: Lines) -> Lines:
    return [[(text, STYLES.get(role, "")) for text, role in line] for line in lines]


#: Maximum number of pairs of a finding that are named.
_MAX_PAIRS = 8
#: Number of lines of output under a next step, and under the selected one.
FEW_LINES, MANY_LINES = 4, 400
_LONGEST_LINE = 500
#: Columns before the text of a next step.
_INDENT = 14
#: Columns before the second line of a sentence of evidence.
_EVIDENCE_INDENT = 8


def finding_block(one: Finding, width: int, number: int) -> Lines:
    steps = [step for at, command in enumerate(one.next) for step in step_lines(command, at, width, noted=False)]
    return [*head_lines(one, width, number), *detail_lines(one, width), *steps]


def head_lines(one: Finding, width: int, number: int, *, selected: bool = False) -> Lines:
    """Return number, title and number of pairs of a finding; the number of the selected one is marked."""
    title, pairs = finding_text.placed_title(one), finding_text.pairs_text(one)
    style = MUTED if one.known else _tone(one)
    mark: list[Part] = [(" ", ""), (f" {number}", f"{style} reverse")] if selected else [(f"  {number}", style)]
    line: list[Part] = [*mark, (" ", ""), *_title_parts(one, title, True)]
    line += [(f"   {text}", MUTED) for text in (pairs, one.rule.id) if text]
    known = finding_text.known_text(one)
    return stacked([line, *([[(f"      {known}", MUTED)]] if known else [])], width, _INDENT)


def detail_lines(one: Finding, width: int) -> Lines:
    """Return the evidence of a finding, and the first of its pairs unless the title names them."""
    lines = stacked([[(f"      {text}", "")] for text in finding_text.evidence(one)], width, _EVIDENCE_INDENT)
    if len(one.cells) > 1 or not all(name in finding_text.title(one) for pair in one.cells for name in pair):
        named = ", ".join(one_line(f"{src} > {dst}", 120) for src, dst in sorted(one.cells)[:_MAX_PAIRS])
        more = f" and {len(one.cells) - _MAX_PAIRS} more" if len(one.cells) > _MAX_PAIRS else ""
        lines += stacked([[("      pairs   ", MUTED), (named + more, MUTED)]], width, _INDENT)
    return lines


def step_lines(command: str, at: int, width: int, *, hint: str | None = None, noted: bool = True) -> Lines:
    """Return the next step at a place of the list.

    Args:
        command: The step.
        at: Its place.
        width: Width of the lines.
        hint: What Enter does to it, if it is selected.
        noted: Whether a remark states where it runs; texts to copy have none.
    """
    label = "next" if not at else ""
    text, note = finding_text.step_parts(command)
    behind: Line = [(f" {note}", MUTED)] if note and noted else []
    if hint is None:
        return stacked([[(f"      {label:<8}", MUTED), (text, "$primary"), *behind]], width, _INDENT)
    lines: Lines = [[(f"      {label:<6}", MUTED), ("> ", "bold $primary"), (text, "bold $primary reverse"), *behind]]
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


#: Pair at the beginning of the title of a finding about one.
_PAIR_FIRST = re.compile(r"\S+ [>-] \S+ ")
#: Maximum number of next steps and of lines of evidence of the open finding.
_MOST_STEPS, _MOST_REASONS = 2, 3
#: Minimum number of lines below the title of the open finding, where there is room for other findings.
_OPEN_LEAST = 2
#: Minimum width for the cause beside the title.
_WIDE_FROM = 72
#: Minimum number of lines per finding for blank lines between them.
_AIRY = 6


def open_place(findings: SessionDiagnosis, pair: tuple[str, str] | None) -> int:
    """Return the place of the finding that is open: the first about the cursor's ``pair``, else the first of all."""
    return next((at for at, one in enumerate(findings.found) if pair is not None and pair in one.cells), 0)


def summary_lines(
    findings: SessionDiagnosis,
    pair: tuple[str, str] | None,
    width: int,
    height: int,
    glyphs: Glyphs,
    runs: Callable[[str], bool] = lambda step: False,
) -> list[TargetLine]:
    """Return the findings in at most ``height`` lines, each with the place of its finding.

    The one about the cursor's ``pair`` is open, else the first: with its cause, its evidence and its next step, which
    a key runs if ``runs`` returns True. The others have one line, and the cause and the step where there is room.
    """
    found = findings.found
    if not found or height < 1:
        return []
    here = open_place(findings, pair)
    # The open one, then the others as many as fit, worst first.
    places = [here, *(at for at in range(min(len(found), height)) if at != here)]
    blocks: dict[int, _Block] = {}
    used = 0
    # At least the cause and the step of the open one before the titles of all others.
    reserve = _OPEN_LEAST if height > 2 * _OPEN_LEAST else 0
    for at in places:
        block = _Block(at, found[at], at == here, pair, findings.domain, width, glyphs, runs)
        if used + len(block.title) + (len(blocks) + 1 < len(found)) > height - reserve and blocks:
            break
        blocks[at] = block
        reserve = min(reserve, blocks[here].most)
        used += len(block.title)
    left = len(found) - len(blocks)
    room = height - used - (left > 0)
    mine, others = [blocks.pop(here)], [*blocks.values()]
    for grown, chosen in (((0, 1), mine), ((1, 0), mine), ((1, 0), mine), ((0, 1), others), ((1, 0), others)):
        for block in chosen:
            room -= block.grow(*grown, room)
    while more := mine[0].grow(0, 1, room) or mine[0].grow(1, 0, room):
        room -= more
    shown = sorted([(here, mine[0]), *blocks.items()])
    airy = room >= len(shown) and height >= _AIRY
    lines: list[TargetLine] = []
    for at, block in shown:
        lines += [([], None)] if airy and lines else []
        lines += [(line, at) for line in block.lines]
    return [*lines, ([(f"  and {left} more: F shows all", MUTED)], len(found))][:height] if left else lines


class _Block:
    """Lines of one finding, as many as have been added."""

    def __init__(
        self,
        at: int,
        one: Finding,
        is_open: bool,
        pair: tuple[str, str] | None,
        domain: str,
        width: int,
        glyphs: Glyphs,
        runs: Callable[[str], bool],
    ) -> None:
        self._open = is_open
        style = MUTED if one.known else _tone(one)
        marked = is_open and pair is not None and pair in one.cells
        self._edge: Part = ("|" if glyphs.plain else "▌", style) if marked else (" ", "")
        title = without_domain(domain, fault_text(one))
        head: list[Part] = [(f"{at + 1}", style), (" ", "")]
        head += _title_parts(one, title, is_open)
        if one.acknowledged is not None:
            head.append((f"  known: {one_line(one.acknowledged.note, 300)}", MUTED))
        reasons = () if one.known else finding_text.evidence(one)
        steps = () if one.known else one.next[:_MOST_STEPS]
        # What the title states already needs no line.
        texts = [text for reason in reasons if (text := without_domain(domain, reason)) not in title]
        inner = width - 1
        room = inner - len(plain(head)) - 3
        if texts and width >= _WIDE_FROM and len(texts[0]) <= room:
            # The cause has room on the first line.
            head += [("   ", ""), (texts.pop(0), "" if is_open else MUTED)]
            count = ""
        else:
            count = finding_text.pairs_text(one) if len(one.cells) > 1 else ""
        self.title = _with_count(head, count, inner, glyphs)
        tone = "" if is_open else MUTED
        self._reasons = [stacked([[(f"  {text}", tone)]], inner, 2) for text in texts]
        self._reasons = self._reasons[: _MOST_REASONS if is_open else 1]
        blank: Line = [("  ", "")]
        run: Line = [*blank, (f"{RUN_KEY} ", "bold $primary"), ("run  ", MUTED)]
        here = next((at for at, step in enumerate(steps) if is_open and runs(step)), None)
        self._steps = [
            stacked([[*(run if at == here else blank), *_noted(step, inner - 8)]], inner, 4)
            if is_open
            else [in_clauses([("  ", ""), *_noted(step, inner - 2)], inner, glyphs.ellipsis)]
            for at, step in enumerate(steps if is_open else steps[:1])
        ]
        self._shown = (0, 0)

    @property
    def lines(self) -> Lines:
        reasons, steps = self._shown
        parts = [self.title, *self._reasons[:reasons], *self._steps[:steps]]
        return [[self._edge, *line] for part in parts for line in part]

    @property
    def most(self) -> int:
        """Number of lines below the title, if all are shown."""
        return self._length(len(self._reasons), len(self._steps))

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


def _tone(one: Finding) -> str:
    """Return the style of a finding's number: the verdict of its pairs if they have one, or its severity."""
    verdict = Verdict.SLOW if "slowest" in one.facts else one.facts.get("verdict")
    return f"bold {verdict_tone(verdict)}" if isinstance(verdict, Verdict) else SEVERITY_STYLES[one.severity]


def _title_parts(one: Finding, title: str, is_open: bool) -> Line:
    plain_style = MUTED if one.known else "bold" if is_open else ""
    match = _PAIR_FIRST.match(title)
    if one.known or match is None or not isinstance(one.facts.get("verdict"), Verdict):
        return [(title, plain_style)]
    return [(match[0], plain_style), (title[match.end() :], _tone(one))]


def _noted(step: str, width: int) -> Line:
    """Return a step with its remark, which is left out if it would need a line."""
    text, note = finding_text.step_parts(step)
    return [(text, "$primary"), *([(f" {note}", MUTED)] if note and len(text) + len(note) < width else [])]


def _with_count(head: Line, pairs: str, width: int, glyphs: Glyphs) -> Lines:
    lines = stacked([head], width, 2)
    if pairs and len(plain(lines[-1])) + len(pairs) + 1 > width:
        lines.append([])
    if pairs:
        lines[-1] = between(lines[-1], [(pairs, MUTED)], width, glyphs.ellipsis)
    return lines


_GLYPHS = {"bad": ("✗", "x", "bold $error"), "warn": ("▲", "!", "$warning"), "note": ("·", ".", "")}


def problem_lines(record: NodeRecord, width: int) -> Lines:
    """Return what went wrong with a node, and what to try; nothing of a node that is fine."""
    lines: Lines = []
    for text, style in ((record.text, state_style(record.state)), (record.note, "$warning")):
        if text:
            lines += wrapped([(f"  {one_line(text, 600)}", style)], width)
    if record.hint:
        lines += wrapped([("  try: ", MUTED), (one_line(record.hint, 600), "$primary")], width)
    return lines


def odd_lines(
    found: Preflight, record: NodeRecord, width: int, glyphs: Glyphs, steps_of: Callable[[Finding], Lines]
) -> Lines:
    mine = [one for one in found.findings if record.name in one.nodes]
    odd = [one for one in found.table.odd if record.name in one.values]
    if not mine and not odd:
        if len(found.table.nodes) < 2:
            return []
        return [*section("preflight"), [("  no differences from nodes of its kind", MUTED)]]
    lines = section("preflight", "problems and differences from other nodes")
    for one in mine:
        fine, plain, style = _GLYPHS.get(one.severity, _GLYPHS["note"])
        lines += wrapped([(f"  {plain if glyphs.plain else fine} ", style), (finding_text.title(one), style)], width, 6)
        lines += steps_of(one)
    for difference in odd:
        fact = difference.fact
        fine, plain, style = _GLYPHS.get(fact.verdict, _GLYPHS["note"])
        own = shown(difference.values[record.name], fact.unit)
        usual = "no majority" if difference.tie else f"others: {shown(difference.usual, fact.unit)}"
        mark, name = f"  {plain if glyphs.plain else fine} ", f"{fit_text(fact.title, 32):<32}  "
        value = (one_line(own, 60), style or "bold")
        lines.append([(mark, style), (name, ""), value, (f"   {one_line(usual, 80)}", MUTED)])
    return lines
