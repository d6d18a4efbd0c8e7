"""Experiments about findings: what was tried, and the results of pairs."""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple

from fabtui.model.events import EXPERIMENT_ARM, Experiment, Pair
from fabtui.model.layers import COLLECTIVES, Layer
from fabtui.model.measurement import Measurement


class Tried(NamedTuple):
    """An experiment that has ended, with its measurements."""

    event: Experiment
    results: dict[Pair, Measurement]  #: The p2p measurement of each ordered pair.
    groups: dict[Pair, Measurement]  #: The measurement of the collective over each group, of the largest message.


class ExperimentLog:
    """Latest experiment of each kind about each finding. Their measurements do not change the grid."""

    def __init__(self) -> None:
        self._tried: dict[tuple[str, tuple[str, ...], str], Tried] = {}
        self._running: dict[Pair, Measurement] = {}
        self._groups: dict[Pair, Measurement] = {}

    def __bool__(self) -> bool:
        return bool(self._tried)

    def add(self, event: Experiment) -> None:
        """Take an experiment that has ended; it replaces an earlier one of its kind."""
        key = event.rule, tuple(event.subject), event.trial
        self._tried.pop(key, None)
        self._tried[key] = Tried(event, self._running, self._groups)
        self._running, self._groups = {}, {}

    def take(self, measurement: Measurement) -> bool:
        """Take a measurement if it belongs to an experiment, and return whether it does."""
        if measurement.arm is None or not measurement.arm.startswith(EXPERIMENT_ARM):
            return False
        if measurement.layer is Layer.P2P:
            self._running[measurement.src, measurement.dst] = measurement
        elif measurement.layer in COLLECTIVES.values():
            self._groups[measurement.src, measurement.dst] = measurement
        return True

    def about(self, rule: str, subjects: Container[tuple[str, ...]], since: float) -> list[Tried]:
        """Return the experiments about a finding of a rule that ended after a time, in their order."""
        found = self._tried.values()
        return [
            one
            for one in found
            if one.event.rule == rule and tuple(one.event.subject) in subjects and one.event.time >= since
        ]
