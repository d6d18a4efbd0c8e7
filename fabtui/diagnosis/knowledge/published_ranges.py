"""Published bandwidths of collectives (``published.toml``) beside those that a session measured."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from fabtui.diagnosis.knowledge import load
from fabtui.model.endpoints import Endpoint
from fabtui.model.facts.leaf_switches import data_rate
from fabtui.model.layers import COLLECTIVES
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.session_model import Model


class PublishedRange(msgspec.Struct, frozen=True, array_like=True):
    """A row of ``published.toml``, which explains the fields."""

    gpu: str
    gpus: int
    nodes: tuple[int, int]
    nics: tuple[int, ...]
    test: str
    bytes: int
    algorithm: str
    busbw: tuple[float, float]
    date: str
    source: str

    def is_of(self, gpu: str) -> bool:
        """Return whether the product name of a GPU is one of this row."""
        words, wanted = set(re.split(r"[ -]", gpu)), self.gpu.split(" ")
        # Boards with a bridge of a few NVLinks: values of others are not theirs.
        return words.issuperset(wanted) and ("NVL" not in words or "NVL" in wanted)


class PublishedComparison(NamedTuple):
    """A measured collective, and the rows about the same hardware."""

    measured: Measurement
    where: str  #: The node or nodes, as the group is named.
    ends: Sequence[Endpoint]  #: The GPUs that took part.
    rows: tuple[PublishedRange, ...]


@functools.cache
def published_ranges() -> tuple[PublishedRange, ...]:
    return msgspec.convert(load("published")["published"], tuple[PublishedRange, ...])


def published(model: Model, kind: str) -> list[PublishedComparison]:
    """Return a collective over all nodes, and over the slowest node, beside what was published for such hardware."""
    comparisons = []
    for where, ends, measured in _groups(model, kind):
        nodes = Counter(end.node for end in ends)
        alike = len(set(nodes.values())) == len({end.name for end in ends}) == 1
        if alike and all(end.kind == "gpu" for end in ends):
            rows = tuple(row for row in published_ranges() if row.test == kind and _fits(model, row, ends, len(nodes)))
            if rows:
                comparisons.append(PublishedComparison(measured, where, ends, rows))
    return comparisons


def _groups(model: Model, kind: str) -> Iterator[tuple[str, Sequence[Endpoint], Measurement]]:
    names = [name for name in model.nodes if any(end.kind != "none" for end in model.table.of_node(name))]

    def passed(src: str, dst: str, ranks: int) -> tuple[float, Measurement] | None:
        row = model.latest(COLLECTIVES[kind], src, dst)
        if row is None or row.value is None or row.verdict not in (Verdict.OK, Verdict.SLOW) or row.arm is not None:
            return None
        return (row.value, row) if (row.extra or {}).get("ranks") == ranks else None

    alone = {name: row for name in names if (row := passed(name, name, len(model.table.of_node(name))))}
    if alone:
        slowest = min(alone, key=lambda name: alone[name][0])
        yield slowest, model.table.of_node(slowest), alone[slowest][1]
    ends = [end for name in names for end in model.table.of_node(name)]
    src, dst = names if len(names) == 2 else ("all", "all")
    if len(names) > 1 and (whole := passed(src, dst, len(ends))):
        yield "all nodes", ends, whole[1]


def _fits(model: Model, row: PublishedRange, ends: Sequence[Endpoint], nodes: int) -> bool:
    if not row.is_of(ends[0].name) or row.gpus * nodes != len(ends) or not row.nodes[0] <= nodes <= row.nodes[1]:
        return False
    if not row.nics:
        # Without NICs the value is of one node, or of one NVLink domain.
        domains = {model.table.domains.get(end.number) for end in ends}
        return nodes == 1 or (len(domains) == 1 and None not in domains)
    names = {name: {end.nic for end in ends if end.node == name} - {None} for name in {end.node for end in ends}}
    rates = {data_rate(model.nodes[name].inventory) for name in names}
    return {len(nics) for nics in names.values()} == {row.nics[0]} and rates == {float(row.nics[1])}
