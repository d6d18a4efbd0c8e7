"""Findings and class statistics as lines of the side panel, and styles of preflight lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fabtui.model.endpoints import PairClass
from fabtui.model.layers import Layer
from fabtui.model.session_model import Model
from fabtui.presentation import findings as finding_text
from fabtui.presentation.cell_levels import Glyphs, full_number
from fabtui.presentation.preflight_lines import Line as RoleLine
from fabtui.presentation.wording import CLASS_WORDS, MUTED, Part, plain
from fabtui.presentation.wrapping import Lines, between, stacked
from fabtui.screen.context import FindingsState
from fabtui.screen.grid.axis import without

if TYPE_CHECKING:
    from fabtui.diagnosis.finding import Finding

SEVERITY_STYLES = {"bad": "bold $error", "warn": "bold $warning", "note": "bold"}
#: Maximum number of lines of evidence of a finding in the panel.
_MAX_EVIDENCE = 2


def finding_lines(
    findings: FindingsState, pair: tuple[str, str] | None, width: int, height: int, glyphs: Glyphs
) -> Lines:
    """Return the findings in at most ``height`` lines; those of the cursor's pair are marked."""
    if not findings.found:
        return [[(findings.none_text, MUTED)]]
    listed = list(enumerate(findings.found[: max(1, height)], 1))
    for evidence in range(_MAX_EVIDENCE, -1, -1):
        blocks = [_block(number, one, pair, findings.domain, width, evidence, glyphs) for number, one in listed]
        if sum(map(len, blocks)) <= height:
            break
    lines: Lines = []
    for number, block in enumerate(blocks):
        last = number == len(findings.found) - 1
        if len(lines) + len(block) + (not last) > height:
            return [*lines, [(f"  and {len(findings.found) - number} more: F shows all", MUTED)]][:height]
        lines += block
    return lines


def _block(
    number: int, one: Finding, pair: tuple[str, str] | None, domain: str, width: int, evidence: int, glyphs: Glyphs
) -> Lines:
    """Return a finding: title, number of cells and a few lines of evidence."""
    style = SEVERITY_STYLES[one.severity]
    here = pair is not None and pair in one.cells
    title = without(domain, finding_text.title(one))
    head: list[Part] = [(f"{number}", f"{style} reverse" if here else style), (" ", ""), (title, "")]
    pairs = finding_text.pairs_text(one)
    count: list[Part] = [(pairs, MUTED)]
    lines: Lines = [between(head, count, width, glyphs.ellipsis)]
    if len(plain(head)) + len(pairs) + 1 > width:
        lines = stacked([head], width, 2)
        if len(plain(lines[-1])) + len(pairs) + 1 > width:
            lines.append([])
        lines[-1] = between(lines[-1], count, width, glyphs.ellipsis)
    texts = (without(domain, text) for text in finding_text.evidence(one))
    shown = stacked([[(f"  {text}", MUTED)] for text in texts], width, 2)
    if 0 < evidence < len(shown):
        # Half a sentence may mean the opposite of the complete one: mark that it continues.
        text = plain(shown[evidence - 1])[: width - 2].rstrip()
        shown[evidence - 1] = [(f"{text} {glyphs.ellipsis}", MUTED)]
    return lines + shown[:evidence]


def class_lines(
    model: Model, layer: Layer, bad: Counter[PairClass], tested: Counter[PairClass], width: int = 80
) -> Lines:
    """Return the statistics of a layer's classes, of p2p if it has no values.

    ``bad`` and ``tested`` count the pairs of p2p by class, those without a value as well; n is that of other layers.
    """
    own = any(model.values(layer, kind) for kind in CLASS_WORDS)
    layer = layer if own else Layer.P2P
    rows: list[list[str]] = []
    for kind, word in CLASS_WORDS.items():
        values = model.values(layer, kind)
        valued = 0 if values is None else len(values)
        count = max(valued, tested[kind]) if layer is Layer.P2P else valued
        if not count:
            continue
        ends = [None, None] if values is None else [values.lowest, values.highest]
        worst, best = reversed(ends) if layer.spec.less_is_better else ends
        middle = None if values is None else values.median
        numbers = [worst, middle, best, model.limit(layer, kind)]
        shown = ["-" if value is None else full_number(value) for value in numbers]
        rows.append([word, str(count), *shown, str(bad[kind]) if layer is Layer.P2P else ""])
    if not rows:
        return []
    slow = "slow >" if layer.spec.less_is_better else "slow <"
    headings = [str(layer), "n", "worst", "usual", "best", slow, "bad" if layer is Layer.P2P else ""]
    widths = [max(len(row[at]) for row in [headings, *rows]) for at in range(len(headings))]
    lines: Lines = []
    for number, row in enumerate([headings, *rows]):
        cells = [f"{row[0]:<{widths[0]}}", *(f"{text:>{w}}" for text, w in zip(row[1:], widths[1:], strict=True))]
        style = MUTED if number == 0 else ""
        gap = "  " if sum(widths) + 2 * (len(widths) - 1) <= width else " "
        lines.append([(gap.join(cells).rstrip(), style)])
    return lines


#: Style of each role of a piece of a line.
STYLES = {
    "bad": "bold $error",
    "warn": "$warning",
    "note": "$secondary",
    "name": "bold",
    "head": "bold $accent",
    "dim": MUTED,
}


def styled(lines: Sequence[RoleLine]) -> Lines:
    """Return lines with the styles of their roles."""
    return [[(text, STYLES.get(role, "")) for text, role in line] for line in lines]
