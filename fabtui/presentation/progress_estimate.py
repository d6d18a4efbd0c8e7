"""Progress of the tests: phase, round, rate and remaining time."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping

from fabtui.model.layers import COLLECTIVES, Layer
from fabtui.model.measurement import SEVERITY, Verdict
from fabtui.model.session_model import Model
from fabtui.presentation.cell_levels import Glyphs
from fabtui.presentation.wording import MUTED, Part, about_text, clock_text
from fabtui.sanitize import one_line

#: Window (s) over which the rate is measured.
WINDOW = 10.0
#: Phases that run in rounds.
_IN_ROUNDS = ("p2p", "world")
#: Phases that are not named after tests.
_PHASES = {"look": "probing nodes", "ranks": "starting ranks", "reach": "TCP between ranks", "bisect": "searching"}


class Pace:
    """Rate of completed tests."""

    def __init__(self) -> None:
        self._phase: tuple[str, float] = ("", 0.0)
        self._seen: deque[tuple[float, int]] = deque()

    def take(self, model: Model, elapsed: float) -> None:
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
        """Tests per second, or None while unknown."""
        if not self._seen:
            return None
        (since, had), (until, has) = self._seen[0], self._seen[-1]
        return (has - had) / (until - since) if until - since > 0.5 and has > had else None

    def left(self, model: Model) -> float | None:
        """Return the remaining time (s) of this phase, or None while unknown."""
        rate = self.rate
        # What follows the last test of a phase is not known.
        if rate is None or model.done >= model.phase.total or model.paused:
            return None
        return (model.phase.total - model.done) / rate


def phase_text(model: Model) -> str:
    return one_line(_PHASES.get(model.phase.name, model.phase.name), 20)


def layer_to_show(model: Model, bad: Mapping[Layer, Mapping[Verdict, int]]) -> Layer | None:
    """Return the layer that is tested, or None; after a sweep p2p, or the worst by its bad pairs."""
    name = model.phase.name
    if name in COLLECTIVES or name == "collectives":
        return Layer.BUSBW
    if name != "done":
        return next((layer for layer in (Layer.PING, Layer.WORLD, Layer.P2P) if layer == name), None)

    def badness(layer: Layer) -> int:
        # A value beside all other traffic may be low by chance.
        verdicts = [one for one in bad.get(layer, ()) if layer is not Layer.WORLD or one is not Verdict.SLOW]
        return max(map(SEVERITY.index, verdicts), default=0)

    tested = [one for one in (Layer.P2P, Layer.WORLD, Layer.PING, Layer.BUSBW) if one in model.layers]
    return max(tested, key=badness, default=None)


def round_text(model: Model) -> str:
    """Return the current round, as ``round 3 of 7``, or "" if the phase has no rounds."""
    count = sum(count for (kind, _), count in model.kinds.items() if kind != "none")
    each = 2 * (count // 2)
    if model.phase.name not in _IN_ROUNDS or not each or model.phase.total < 2 * each:
        return ""
    rounds = math.ceil(model.phase.total / each)
    return f"round {min(rounds, model.done // each + 1)} of {rounds}"


def sweep_lines(model: Model, elapsed: float, pace: Pace, glyphs: Glyphs, width: int) -> list[list[Part]]:
    if model.exit_code is not None or model.phase.name in ("start", "connect", "done"):
        return []
    paused: list[Part] = [("   PAUSED", "bold reverse")] if model.paused else []
    rate = pace.rate
    unit = "nodes/s" if model.phase.name == "ranks" else "tests/s"
    speed = "-" if rate is None else f"{rate:.0f} {unit}" if rate >= 10 else f"{rate:.2g} {unit}"
    clock = clock_text(elapsed)
    if not model.phase.total:
        # A phase without a number of tests may have none at all.
        what = "re-tests" if model.watching and model.phase.name == "watch" else "done"
        tests = f"   {model.done} {what}" if model.done else ""
        first: list[Part] = [(phase_text(model), "bold"), (tests, ""), *paused]
        return [first, [(f"{speed}   {clock}" if model.done else clock, MUTED)]]
    done = min(model.done, model.phase.total)
    tests = f" {done}/{model.phase.total}  {done / model.phase.total:.0%}"
    again = done == model.phase.total and model.phase.name in _IN_ROUNDS
    # The verdict has the number of pairs.
    tail = "" if again else f" {done / model.phase.total:.0%}" if model.phase.name in _IN_ROUNDS else tests
    bar = max(4, width - len(tail))
    full = round(bar * done / model.phase.total)
    left = pace.left(model)
    rounds = "testing suspects again" if again and model.running else round_text(model)
    return [
        [(phase_text(model), "bold"), (f"   {rounds}" if rounds else "", ""), *paused],
        [(glyphs.bar[0] * full, "$primary"), (glyphs.bar[1] * (bar - full), MUTED), (tail, "")],
        [
            (clock if rate is None else f"{speed}   {clock}", ""),
            ("" if left is None else f"   {about_text(left)}", MUTED),
        ],
    ]
