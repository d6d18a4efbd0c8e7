"""Text of prices: what a collective gains."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fabtui.nodeset import count
from fabtui.presentation.numbers import percent_text, size_text, spoken_texts
from fabtui.sanitize import one_line

if TYPE_CHECKING:
    # The first frame of the screen needs titles of findings, but no cost model.
    from fabtui.diagnosis.pricing.price import Gain, PriceFact

#: Change (%) that is too small to count.
_NONE = 0.5


def price_lines(fact: PriceFact) -> list[str]:
    """Return the price of a finding, and how far the model behind it is off."""
    what = f"{fact.collective} of {size_text(fact.bytes)} over these {count(fact.nodes, 'node')}"
    if not fact.fits:
        return [f"price unknown: for {what}, {_misfit(fact.error, fact.compared)}"]
    changes = []
    if fact.without is not None and fact.node is not None:
        changes.append(f"without {one_line(fact.node, 80)}: {_change(fact.busbw, fact.without)}")
    if fact.fixed is not None:
        changes.append(f"with its slow links as usual: {_change(fact.busbw, fact.fixed)}")
    if not changes:
        return [f"price unknown: a bandwidth on the path of {what} is unknown"]
    lines = [f"{what}: {'; '.join(changes)}"]
    if fact.share is not None:
        lines.append(f"one such {fact.collective} takes {percent_text(fact.share)} of an iteration of the job")
    return [*lines, f"by the cost model: {_error(fact.error, fact.compared)}"]


def _change(before: float, gain: Gain) -> str:
    percent = 100 * (gain.ratio - 1)
    sign = "no change" if abs(percent) < _NONE else f"{percent:+.0f} %"
    first, second = spoken_texts([before, gain.busbw], "GB/s")
    return f"{first} -> {second} ({sign})"


def _error(error: float, compared: int) -> str:
    if not compared:
        return f"{percent_text(error)} off what was measured, without another collective to compare with"
    return f"error {percent_text(error)} in {count(compared, 'other measured collective')}"


def _misfit(error: float, compared: int) -> str:
    others = f"{count(compared, 'other measured collective')}" if compared else "the measured collective"
    return f"the cost model is {percent_text(error)} off in {others}"
