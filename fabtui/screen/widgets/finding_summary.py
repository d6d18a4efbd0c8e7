"""Findings in a number of lines: all titles first, then reasons and next steps, those of the worst finding first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fabtui.presentation import findings as finding_text
from fabtui.presentation.cell_levels import Glyphs
from fabtui.presentation.domain import without
from fabtui.presentation.wording import MUTED, Part, plain
from fabtui.presentation.wrapping import Line, Lines, between, stacked
from fabtui.sanitize import one_line
from fabtui.screen.context import FindingsState
from fabtui.screen.widgets.finding_lines import SEVERITY_STYLES
from fabtui.screen.widgets.text_line import TargetLine

if TYPE_CHECKING:
    from fabtui.diagnosis.finding import Finding

#: Maximum number of next steps of a finding.
_MOST_STEPS = 2


def summary_lines(
    findings: FindingsState, pair: tuple[str, str] | None, width: int, height: int, glyphs: Glyphs
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
    for block in severe:
        room -= block.add_step(room)
    for block in severe[:1]:
        room -= block.add_reason(room)
    for grow in (_Block.add_step, _Block.add_reason, _Block.add_all):
        for block in blocks:
            room -= grow(block, room)
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
        head.append((without(domain, finding_text.title(one)), MUTED if one.known else ""))
        if one.acknowledged is not None:
            head.append((f"  known: {one_line(one.acknowledged.note, 300)}", MUTED))
        self.title = _with_count(head, finding_text.pairs_text(one), width, glyphs)
        self._reasons = [
            stacked([[(f"  {without(domain, text)}", MUTED)]], width, 2)
            for text in (() if one.known else finding_text.evidence(one))
        ]
        self._steps = [
            stacked([[("  next  ", MUTED), (one_line(step, 4000), "$accent")]], width, 8)
            for step in (() if one.known else one.next[:_MOST_STEPS])
        ]
        self._shown = (0, 0)

    @property
    def lines(self) -> Lines:
        reasons, steps = self._shown
        parts = [self.title, *self._reasons[:reasons], *self._steps[:steps]]
        return [line for part in parts for line in part]

    def add_step(self, room: int) -> int:
        """Add the next step if there is room for it; return the number of lines added."""
        return self._grow(0, 1, room)

    def add_reason(self, room: int) -> int:
        """Add the next reason if there is room for it; return the number of lines added."""
        return self._grow(1, 0, room)

    def add_all(self, room: int) -> int:
        """Add the remaining reasons and steps that fit; return the number of lines added."""
        added = 0
        while grown := self.add_reason(room - added) or self.add_step(room - added):
            added += grown
        return added

    def _length(self, reasons: int, steps: int) -> int:
        return sum(map(len, (*self._reasons[:reasons], *self._steps[:steps])))

    def _grow(self, reasons: int, steps: int, room: int) -> int:
        wanted = min(self._shown[0] + reasons, len(self._reasons)), min(self._shown[1] + steps, len(self._steps))
        more = self._length(*wanted) - self._length(*self._shown)
        if more > room:
            return 0
        self._shown = wanted
        return more


def _with_count(head: Line, pairs: str, width: int, glyphs: Glyphs) -> Lines:
    """Return a title with its number of pairs at the right end, wrapped."""
    lines = stacked([head], width, 2)
    if pairs and len(plain(lines[-1])) + len(pairs) + 1 > width:
        lines.append([])
    if pairs:
        lines[-1] = between(lines[-1], [(pairs, MUTED)], width, glyphs.ellipsis)
    return lines
