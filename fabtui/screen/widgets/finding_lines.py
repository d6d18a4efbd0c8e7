"""Findings as lines, whole and in short, problems of a node, and styles of preflight lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import islice

from fabtui.diagnosis.finding import Finding, Pair
from fabtui.diagnosis.knowledge.step_command import judged_output
from fabtui.diagnosis.preflight.checks import Preflight
from fabtui.model.facts.compare import shown
from fabtui.model.measurement import Verdict
from fabtui.model.session_logs import CommandRun, outcome
from fabtui.model.session_model import NodeRecord
from fabtui.presentation import findings as finding_text
from fabtui.presentation.cell_levels import Glyphs
from fabtui.presentation.numbers import percent_text
from fabtui.presentation.wording import MUTED, Part, plain, state_style, verdict_tone, without_domain
from fabtui.presentation.wrapping import HEADING, Line, Lines, between, clipped, in_clauses, section, stacked, wrapped
from fabtui.sanitize import clean, one_line
from fabtui.screen.grid.axis import fit_text
from fabtui.screen.keys import RUN_KEY
from fabtui.screen.session_diagnosis import SessionDiagnosis
from fabtui.screen.widgets.text_line import TargetLine

#: Style of the number of a finding by its severity.
SEVERITY_STYLES = {"bad": "bold $error", "warn": "bold $warning", "note": "bold"}

#: Style of each role of a piece of a line.
STYLES = {"bad": "bold $error", "warn": "$warning", "note": "$secondary", "name": "bold", "head": HEADING, "dim": MUTED}


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


def head_lines(
    one: Finding, width: int, number: int, bad: Mapping[Pair, Verdict] | None = None, *, selected: bool = False
) -> Lines:
    title, pairs = finding_text.placed_title(one), finding_text.pairs_text(one)
    style = MUTED if one.known else _tone(one, bad)
    mark: list[Part] = [(" ", ""), (f" {number}", f"{style} reverse")] if selected else [(f"  {number}", style)]
    line: list[Part] = [*mark, (" ", ""), *_title_parts(one, title, style)]
    line += [(f"   {text}", MUTED) for text in (pairs, one.rule.id) if text]
    known = finding_text.known_text(one)
    return stacked([line, *([[(f"      {known}", MUTED)]] if known else [])], width, _INDENT)


def detail_lines(one: Finding, width: int) -> Lines:
    """Return the evidence of a finding, and the first of its pairs unless the title names them."""
    texts = finding_text.evidence(one)
    # The conclusion first; the rest is calm.
    lines = stacked(
        [[(f"      {text}", MUTED if at else "")] for at, text in enumerate(texts)], width, _EVIDENCE_INDENT
    )
    if len(one.cells) > 1 or not all(name in finding_text.title(one) for pair in one.cells for name in pair):
        named = ", ".join(one_line(f"{src} > {dst}", 120) for src, dst in sorted(one.cells)[:_MAX_PAIRS])
        more = f" and {len(one.cells) - _MAX_PAIRS} more" if len(one.cells) > _MAX_PAIRS else ""
        lines += stacked([[("      pairs   ", MUTED), (named + more, MUTED)]], width, _INDENT)
    return lines


def step_lines(command: str, at: int, width: int, *, hint: str | None = None, noted: bool = True) -> Lines:
    """Return a next step; with a ``hint`` it is selected. ``noted``: in short, or with where it runs; else to copy."""
    label = "next" if not at else ""
    text, note = finding_text.step_parts(command)
    behind: Line = [(f" {note}", MUTED)] if note and noted else []
    if hint is None:
        text = finding_text.short_step(command) if noted else text
        return stacked([[(f"      {label:<8}", MUTED), (text, "$primary")]], width, _INDENT)
    lines: Lines = [[(f"      {label:<6}", MUTED), ("> ", "bold $primary"), (text, "bold $primary reverse"), *behind]]
    return stacked([*lines, [(" " * _INDENT + hint, MUTED)]], width, _INDENT)


def output_lines(run: CommandRun, width: int, ellipsis: str, most: int) -> Lines:
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


#: Maximum numbers of lines of the open finding, and of its title, its first sentence and its command.
_MOST_OPEN, _MOST_WRAPPED = 5, 2
#: Minimum number of lines of the open finding: title and command.
_OPEN_LEAST = 2
#: Number of pairs of a finding whose verdicts give its colour.
_SAMPLED = 64
#: Longest beginning of a sentence that has a place before a command.
_LONGEST_CAUSE = 24


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
    noun: str = "end",
    keys: str = "",
) -> list[TargetLine]:
    """Return the findings in at most ``height`` lines, each with the place of its finding.

    The one about the cursor's ``pair`` is open, else the first: with its cause and its next step, which a key runs if
    ``runs`` returns True. The others have a line with their step, or one for each where that is too long and there is
    room. ``noun``: what the ends of pairs are called; ``keys``: what else can be done about the open one.
    """
    found = findings.found
    if not found or height < 1:
        return []
    here = open_place(findings, pair)
    most = max(0, min(len(found) - 1, height - _OPEN_LEAST))
    # The line about those without room takes one as well.
    most -= most < len(found) - 1 and most > 0
    places = sorted([here, *[at for at in range(len(found)) if at != here][:most]])
    left = len(found) - len(places)
    texts = {at: _Brief(at, found[at], findings, width, glyphs, noun) for at in places}
    room = height - most - (left > 0 and height > 1)
    marked = pair is not None and pair in found[here].cells
    edge: Part = ("|" if glyphs.plain else "▌", texts[here].tone) if marked else (" ", "")
    blocks = {here: [[edge, *line] for line in texts[here].opened(min(room, _MOST_OPEN), runs, keys)]}
    room += most - len(blocks[here])
    for at in places:
        if at != here:
            blocks[at] = texts[at].closed(room - sum(other > at for other in places if other != here))
            room -= len(blocks[at])
    airy = room >= len(places)
    lines: list[TargetLine] = []
    for at in places:
        lines += [([], None)] if airy and lines else []
        lines += [(line, at) for line in blocks[at]]
    return [*lines, ([(f"  and {left} more: F shows all", MUTED)], len(found))][:height] if left else lines


class _Brief:
    """A finding in short sentences."""

    def __init__(
        self, at: int, one: Finding, findings: SessionDiagnosis, width: int, glyphs: Glyphs, noun: str
    ) -> None:
        domain, self.tone = findings.domain, MUTED if one.known else _tone(one, findings.tally.bad)
        self._one, self._width, self._glyphs = one, width - 1, glyphs
        self._number: Line = [(f"{at + 1}", self.tone), (" ", "")]
        sentences = () if one.known else finding_text.brief_sentences(one, noun)
        self._sentences = [without_domain(domain, text) for text in sentences]
        self._steps = () if one.known else one.next
        self._title = [(without_domain(domain, text), style) for text, style in self._title_parts()]

    def _title_parts(self) -> Line:
        ends, words = finding_text.brief_title(self._one)
        known = self._one.acknowledged
        if known is not None:
            return [(f"{ends} {words}  known: {one_line(known.note, 300)}", MUTED)]
        return [(f"{ends} ", "bold"), (words, self.tone)] if ends else [(words, "bold")]

    def opened(self, most: int, runs: Callable[[str], bool], keys: str) -> Lines:
        """Return the title, the causes, the first step, the one that a key runs, and the keys, as far as they fit."""
        one, width = self._one, self._width
        count = finding_text.pairs_text(one) if len(one.cells) > 1 else ""
        title = _with_count([*self._number, *self._title], count, width, self._glyphs)[:_MOST_WRAPPED]
        run: Line = [(f"{RUN_KEY} ", "bold $primary"), ("run  ", MUTED)]
        runnable = next((step for step in self._steps if runs(step)), None)
        shown = dict.fromkeys(filter(None, [*self._steps[:1], runnable]))
        step_lines = [
            [("  ", ""), *(run if step == runnable else []), (finding_text.short_step(step), "$primary")]
            for step in shown
        ]
        steps = stacked(step_lines, width, 4)
        if len(steps) > _MOST_WRAPPED:
            steps = [clipped(step, width, self._glyphs.ellipsis) for step in step_lines]
        sure = f"{percent_text(one.confidence)} sure" if one.confidence is not None else ""
        last = [[(f"  {text}", MUTED)] for text in [" · ".join(filter(None, (sure, keys)))] if text and not one.known]
        room = most - len(title) - len(steps)
        causes: Lines = []
        for text in self._sentences:
            own = stacked([[(f"  {text}", "")]], width, 2)
            free = min(_MOST_WRAPPED, room - len(causes))
            if len(own) > free > 0 and not causes:
                # Part of the first sentence is more than none.
                rest: Line = [
                    ("  ", ""),
                    (text[len(" ".join(plain(line).strip() for line in own[: free - 1])) :].lstrip(), ""),
                ]
                own = [*own[: free - 1], in_clauses(rest, width, self._glyphs.ellipsis)]
            causes += own if len(own) <= free else []
        return [*title, *causes, *steps, *last[: max(0, room - len(causes))]][:most]

    def closed(self, room: int) -> Lines:
        title: Line = [(" ", ""), *self._number, *((text, style.removeprefix("bold ")) for text, style in self._title)]
        step, width = finding_text.short_step(next(iter(self._steps), "")), self._width + 1
        if not step or len(plain(title)) + len(step) + 3 <= width:
            return [clipped([*title, (f"   {step}" if step else "", "$primary")], width, self._glyphs.ellipsis)]
        head = in_clauses(title, width, self._glyphs.ellipsis)
        cause = next(iter(self._sentences), "").partition(":")[0]
        cause = f"{cause}.  " if len(cause) < _LONGEST_CAUSE and len(cause) + len(step) + 6 <= width else ""
        below: Line = [("   ", ""), (cause, MUTED), (step, "$primary")]
        return [head, clipped(below, width, self._glyphs.ellipsis)] if room > 1 else [head]


def _tone(one: Finding, bad: Mapping[Pair, Verdict] | None = None) -> str:
    """Return the style of a finding's number: that of most of its ``bad`` pairs in the grid, or of its severity."""
    verdict = Verdict.SLOW if "slowest" in one.facts else one.facts.get("verdict") or one.facts.get("seen")
    # A lost node has no colour of a verdict.
    if bad and one.facts.get("state") is None:
        seen = Counter(filter(None, map(bad.get, islice(one.cells, _SAMPLED))))
        verdict = next((found for found, _ in seen.most_common(1)), verdict)
    return f"bold {verdict_tone(verdict)}" if isinstance(verdict, Verdict) else SEVERITY_STYLES[one.severity]


def _title_parts(one: Finding, title: str, tone: str) -> Line:
    style, (ends, _) = MUTED if one.known else "bold", finding_text.brief_title(one)
    if one.known or not ends or not title.startswith(ends):
        return [(title, style)]
    return [(ends, style), (title[len(ends) :], tone)]


def _with_count(head: Line, pairs: str, width: int, glyphs: Glyphs) -> Lines:
    lines = stacked([head], width, 2)
    if pairs and len(plain(lines[-1])) + len(pairs) + 1 > width:
        lines.append([])
    if pairs:
        lines[-1] = between(lines[-1], [(pairs, MUTED)], width, glyphs.ellipsis)
    return lines


_GLYPHS = {"bad": ("✗", "x", "bold $error"), "warn": ("▲", "!", "$warning"), "note": ("·", ".", "")}


def problem_lines(record: NodeRecord, width: int) -> Lines:
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
