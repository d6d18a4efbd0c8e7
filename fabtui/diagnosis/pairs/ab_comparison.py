"""Comparison of the arms of an A/B test: values, transports, ratios."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from fabtui.model.endpoints import PairClass
from fabtui.model.layers import COLLECTIVES, Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.session_model import Model

PAIRS = (Layer.WORLD, Layer.P2P, Layer.LATENCY)
KINDS = {layer: kind for kind, layer in COLLECTIVES.items()}


class Arm(NamedTuple):
    """Measurements of one quantity in one arm (such as ``NCCL_P2P_DISABLE=1``)."""

    name: str
    values: list[float]  #: Values of measurements that passed.
    failed: int  #: Number of measurements that did not pass.
    transports: list[str]  #: The transports, the most frequent first.

    @property
    def median(self) -> float | None:
        """Median of the values, or None if there are none."""
        return statistics.median(self.values) if self.values else None


class Compared(NamedTuple):
    """One quantity in all arms, the first one first."""

    layer: Layer
    what: str  #: A class of pairs, or the group of a collective (``all``, ``n060``, ``n060+n061``).
    bytes: int | None  #: Requested message size, or None.
    unit: str
    arms: list[Arm]

    def ratio(self, arm: Arm) -> float | None:
        """Return the median of an arm over the median of the first arm, or None if one of them has none."""
        first, other = self.arms[0].median, arm.median
        return other / first if first and other is not None else None


def group_name(measurement: Measurement) -> str:
    """Return the name of the group of a collective: ``all``, a node, a rail, or two nodes (``n060+n061``)."""
    same = measurement.src == measurement.dst
    return measurement.src if same else f"{measurement.src}+{measurement.dst}"


def compared(model: Model) -> list[Compared]:
    """Return the rows of an A/B comparison: pairs by layer, class and size, then collectives by group and size."""
    if len(model.comparison) < 2:
        return []
    groups: dict[tuple[Layer, str], dict[str, list[Measurement]]] = {}
    for arm, measurements in ((model.comparison[0], model.measurements()), (None, model.results.arms())):
        for m in measurements:
            if m.layer in PAIRS or m.layer in KINDS:
                what = group_name(m) if m.layer in KINDS else model.table.class_between(m.src, m.dst).value
                where = groups.setdefault((m.layer, what), {name: [] for name in model.comparison})
                where.setdefault(arm or m.arm or "", []).append(m)
    rows = [row for (layer, what), arms in groups.items() for row in _rows(layer, what, arms, model.comparison)]
    layers = [*PAIRS, *KINDS]
    place = {what: number for number, what in enumerate([*(kind.value for kind in PairClass), *model.nodes])}
    rows.sort(key=lambda row: (layers.index(row.layer), place.get(row.what, len(place)), row.bytes or 0))
    return rows


def _rows(layer: Layer, what: str, arms: dict[str, list[Measurement]], names: Iterable[str]) -> list[Compared]:
    sizes = sorted({size for found in arms.values() for m in found if (size := m.asked_bytes) is not None})
    unit = next((m.unit for found in arms.values() for m in found if m.unit), "")
    rows = []
    wanted: list[int | None] = [*sizes] or [None]
    for size in wanted:
        # A failure before the first message counts for all sizes.
        chosen = {name: [m for m in arms.get(name, []) if m.asked_bytes in (size, None)] for name in names}
        rows.append(Compared(layer, what, size, unit, [_arm(name, found) for name, found in chosen.items()]))
    return rows


def _arm(name: str, found: list[Measurement]) -> Arm:
    good = [m for m in found if m.verdict in (Verdict.OK, Verdict.SLOW) and m.value is not None]
    transports = [transport for transport, _ in Counter(m.transport for m in good if m.transport).most_common()]
    return Arm(name, [m.value for m in good if m.value is not None], len(found) - len(good), transports)
