"""How far the tests are, how fast they go, and how long they still take."""

from __future__ import annotations

import math
from collections import deque

from fabtui.model.session_model import Model
from fabtui.presentation.cell_levels import Glyphs
from fabtui.presentation.wording import MUTED, Part, about_text, clock_text

#: Seconds over which the rate is taken.
WINDOW = 10.0
#: Phases in which endpoints meet in rounds.
_IN_ROUNDS = ("p2p", "world")


class Pace:
    """Remembers how many tests were done when."""

    def __init__(self) -> None:
        self._phase: tuple[str, float] = ("", 0.0)
        self._seen: deque[tuple[float, int]] = deque()

    def take(self, model: Model, elapsed: float) -> None:
        """Note how far a model is now."""
        phase = (model.phase.name, model.phase.since)
        if phase != self._phase:
            self._phase = phase
            self._seen.clear()
            self._seen.append((model.phase.since - model.started, 0))
        if elapsed > self._seen[-1][0]:
            self._seen.append((elapsed, model.done))
        while len(self._seen) > 2 and self._seen[1][0] < elapsed - WINDOW:
            self._seen.popleft()

    @property
    def rate(self) -> float | None:
        """Tests a second, or None while that cannot be said."""
        if not self._seen:
            return None
        (since, had), (until, has) = self._seen[0], self._seen[-1]
        return (has - had) / (until - since) if until - since > 0.5 and has > had else None

    def left(self, model: Model) -> float | None:
        """Return the seconds that are left in this phase, or None while that cannot be said."""
        rate = self.rate
        if rate is None or not model.phase.total or model.paused:
            return None
        return max(0, model.phase.total - model.done) / rate


def round_text(model: Model) -> str:
    """Return which round of how many runs, or "" where tests do not go in rounds.

    A round is as many meetings as there are pairs of endpoints; each meeting is two tests, one each way.
    """
    count = sum(endpoint.kind != "none" for endpoint in model.endpoints)
    each = 2 * (count // 2)
    if model.phase.name not in _IN_ROUNDS or not each or model.phase.total < 2 * each:
        return ""
    rounds = math.ceil(model.phase.total / each)
    return f"round {min(rounds, model.done // each + 1)} of {rounds}"


def sweep_lines(model: Model, elapsed: float, pace: Pace, glyphs: Glyphs, width: int) -> list[list[Part]]:
    """Return the sweep: its phase and round, a bar, the rate, the time it took and takes; nothing before and after."""
    if model.exit_code is not None or model.phase.name in ("start", "connect", "done"):
        return []
    paused: list[Part] = [("   PAUSED", "bold reverse")] if model.paused else []
    rate = pace.rate
    speed = "-" if rate is None else f"{rate:.0f} tests/s" if rate >= 10 else f"{rate:.2g} tests/s"
    clock = clock_text(elapsed)
    if not model.phase.total:
        what = "re-tests" if model.watching and model.phase.name == "watch" else "done"
        lines: list[list[Part]] = [[(model.phase.name, "bold"), (f"   {model.done} {what}", ""), *paused]]
        return [*lines, [(f"{speed}   {clock}", MUTED)]]
    done = min(model.done, model.phase.total)
    tail = f" {done}/{model.phase.total}  {done / model.phase.total:.0%}"
    bar = max(4, width - len(tail))
    full = round(bar * done / model.phase.total)
    left = pace.left(model)
    rounds = round_text(model)
    return [
        [(model.phase.name, "bold"), (f"   {rounds}" if rounds else "", ""), *paused],
        [(glyphs.bar[0] * full, "$primary"), (glyphs.bar[1] * (bar - full), MUTED), (tail, "")],
        [(speed, ""), (f"   {clock}", ""), (f"   {about_text(left)}" if left is not None else "", MUTED)],
    ]
