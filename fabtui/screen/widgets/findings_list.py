"""The findings of a session for the screen: kept up to date a little with each frame, and put into words."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from fabtui.model.endpoints import PairClass
from fabtui.model.layers import Layer
from fabtui.model.session_model import Model
from fabtui.presentation import findings as finding_text
from fabtui.presentation.cell_levels import Glyphs, full_number
from fabtui.presentation.wording import CLASS_WORDS, MUTED, Part, plain
from fabtui.presentation.wrapping import Lines, between, stacked
from fabtui.screen.grid.axis import common_domain, without

if TYPE_CHECKING:
    from fabtui.diagnosis.finding import Finding
    from fabtui.diagnosis.pairs.tally import Survey, Tally

#: Seconds from one look at everything to the next, while things change.
_BETWEEN = 1.0
#: Seconds of looking at a time, and between two such times.
_WORK, _PAUSE = 0.002, 0.008
#: At most this share of the time goes into putting findings together.
_SHARE = 0.05
_STYLES = {"bad": "bold $error", "warn": "bold $warning", "note": "bold"}
#: Lines that the evidence of a finding gets in the panel.
_EVIDENCE = 2
#: The phases in which all that was wanted has been tested.
_OVER = ("done", "watch")


class Findings:
    """What is wrong, as of the latest whole look at all pairs.

    Args:
        model: What is known.
        told: Called when there is news.
    """

    def __init__(self, model: Model, told: Callable[[], None] = lambda: None) -> None:
        self._model = model
        self._told = told
        self._timer: asyncio.TimerHandle | None = None
        self._survey: Survey | None = None
        self._resting = 0.0
        self.found: list[Finding] = []
        #: The domain that all nodes have in common, which is not shown.
        self.domain = ""
        #: How many pairs of each class are bad.
        self.bad: Counter[PairClass] = Counter()
        self.known = False

    @property
    def tally(self) -> Tally:
        """The verdicts of all pairs as of the latest whole look."""
        from fabtui.diagnosis.pairs.tally import Tally

        return Tally() if self._survey is None else self._survey.tally

    @property
    def none_text(self) -> str:
        """What is told where there are no findings: that nothing is wrong only once everything was looked at."""
        if not self.known or self._survey is None:
            return "looking"
        if not self._survey.current:
            return "none so far: still looking"
        return "nothing is wrong" if self._model.phase.name in _OVER else "none so far: the sweep goes on"

    def follow(self) -> None:
        """Go on looking in the background until all is known, a little at a time: no key has to wait for it."""
        if self._timer is None and not (self._survey is not None and self._survey.current):
            wait = max(_PAUSE, self._resting - time.monotonic())
            self._timer = asyncio.get_running_loop().call_later(wait, self._look)

    def _look(self) -> None:
        self._timer = None
        had, said = self.found, self.none_text
        more = self.step(_WORK)
        if self.found is not had or self.none_text != said:
            self._told()
        if more:
            self.follow()

    def stop(self) -> None:
        """Look no further."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def step(self, budget: float) -> bool:
        """Go on looking for about ``budget`` seconds; say whether there is more to do."""
        # Diagnosis is much to import, and there is nothing to diagnose in the first frame.
        from fabtui.diagnosis.pairs.tally import Survey
        from fabtui.diagnosis.session import findings

        survey = self._survey = self._survey or Survey(self._model)
        now = time.monotonic()
        if now < self._resting or survey.current:
            return not survey.current
        if survey.step(budget):
            began = time.monotonic()
            tally = survey.tally
            self.found = findings(self._model, tally, settled=True)
            self.domain = common_domain(self._model.nodes)
            self.bad = Counter(tally.kinds.values())
            self.known = True
            took = time.monotonic() - began
            self._resting = began + max(_BETWEEN, took / _SHARE)
        return not survey.current

    def of_pair(self, src: str, dst: str) -> list[tuple[int, Finding]]:
        """Return the findings that explain a pair, with their numbers."""
        return [(number, one) for number, one in enumerate(self.found, 1) if (src, dst) in one.cells]


def finding_lines(found: Findings, pair: tuple[str, str] | None, width: int, height: int, glyphs: Glyphs) -> Lines:
    """Return the findings in a width and at most so many lines; those of the cursor's pair are marked.

    Args:
        found: The findings.
        pair: The cursor's pair, or None.
        width: Characters across.
        height: Lines there are.
        glyphs: The characters to draw with.
    """
    if not found.found:
        return [[(found.none_text, MUTED)]]
    # No more than that many can have a line.
    listed = list(enumerate(found.found[: max(1, height)], 1))
    for evidence in range(_EVIDENCE, -1, -1):
        blocks = [_block(number, one, pair, found.domain, width, evidence, glyphs) for number, one in listed]
        if sum(map(len, blocks)) <= height:
            break
    lines: Lines = []
    for number, block in enumerate(blocks):
        last = number == len(found.found) - 1
        if len(lines) + len(block) + (not last) > height:
            return [*lines, [(f"  and {len(found.found) - number} more: F shows all", MUTED)]][:height]
        lines += block
    return lines


def _block(
    number: int, one: Finding, pair: tuple[str, str] | None, domain: str, width: int, evidence: int, glyphs: Glyphs
) -> Lines:
    """Return the lines of a finding: its title with how many cells it has, and a few lines of what says so."""
    style = _STYLES[one.severity]
    pairs = finding_text.pairs_text(one)
    here = pair is not None and pair in one.cells
    title = without(domain, finding_text.title(one))
    head: list[Part] = [(f"{number}", f"{style} reverse" if here else style), (" ", ""), (title, "")]
    count: list[Part] = [(pairs, MUTED)]
    lines: Lines = [between(head, count, width, glyphs.ellipsis)]
    if len(plain(head)) + len(pairs) + 1 > width:
        lines = stacked([head], width, 2)
        if len(plain(lines[-1])) + len(pairs) + 1 > width:
            lines.append([])
        lines[-1] = between(lines[-1], count, width, glyphs.ellipsis)
    said = (without(domain, text) for text in finding_text.evidence(one))
    told = stacked([[(f"  {text}", MUTED)] for text in said], width, 2)
    if 0 < evidence < len(told):
        # That there is more has to show: half a sentence may say the opposite of the whole.
        text = plain(told[evidence - 1])[: width - 2].rstrip()
        told[evidence - 1] = [(f"{text} {glyphs.ellipsis}", MUTED)]
    return lines + told[:evidence]


def class_lines(model: Model, layer: Layer, bad: Counter[PairClass], width: int = 80) -> Lines:
    """Return the statistics of a layer's classes: how many values, the worst, the median, the best, the limit to slow.

    Args:
        model: What is known.
        layer: The layer; of those without values of their own the statistics are those of p2p.
        bad: How many pairs of each class are bad, in p2p.
        width: Characters there are; where they are few, the columns stand closer.
    """
    own = any(model.values(layer, kind) for kind in CLASS_WORDS)
    layer = layer if own else Layer.P2P
    rows: list[list[str]] = []
    for kind, word in CLASS_WORDS.items():
        values = model.values(layer, kind)
        if values is None or not len(values):
            continue
        ends = [values.lowest, values.highest]
        worst, best = reversed(ends) if layer.spec.less_is_better else ends
        numbers = [full_number(value) if value is not None else "-" for value in (worst, values.median, best)]
        limit = model.limit(layer, kind)
        count = str(bad[kind]) if layer is Layer.P2P else ""
        rows.append([word, str(len(values)), *numbers, "-" if limit is None else full_number(limit), count])
    if not rows:
        return []
    headings = [
        str(layer),
        "n",
        "worst",
        "median",
        "best",
        "slow >" if layer.spec.less_is_better else "slow <",
        "bad" if layer is Layer.P2P else "",
    ]
    widths = [max(len(row[at]) for row in [headings, *rows]) for at in range(len(headings))]
    lines: Lines = []
    for number, row in enumerate([headings, *rows]):
        cells = [f"{row[0]:<{widths[0]}}", *(f"{text:>{w}}" for text, w in zip(row[1:], widths[1:], strict=True))]
        style = MUTED if number == 0 else ""
        gap = "  " if sum(widths) + 2 * (len(widths) - 1) <= width else " "
        lines.append([(gap.join(cells).rstrip(), style)])
    return lines
