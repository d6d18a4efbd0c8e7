"""Published bandwidths of collectives (``published.toml``) beside those that a session measured."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from fabtui.diagnosis.knowledge.toml_data import load
from fabtui.model.endpoints import Endpoint
from fabtui.model.facts.leaf_switches import data_rate
from fabtui.model.layers import COLLECTIVES
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.session_model import Model

_NVLS = "nvls"
#: Boards with a bridge of a few NVLinks: values of others are not theirs.
_BRIDGED = "NVL"


class PublishedRange(NamedTuple):
    """A row of ``published.toml``."""

    gpu: str
    gpus: int
    nodes: tuple[int, int]
    nics: tuple[int, int] | None
    test: str
    bytes: int | None
    algorithm: str
    low: float
    high: float
    source: str
    date: str

    def is_of(self, gpu: str) -> bool:
        """Return whether the product name of a GPU is one of this row."""
        words, wanted = set(re.split(r"[ -]", gpu)), self.gpu.split(" ")
        return words.issuperset(wanted) and (_BRIDGED not in words or _BRIDGED in wanted)


class PublishedComparison(NamedTuple):
    """A measured collective, and the rows about the same hardware."""

    measured: Measurement
    where: str  #: The node or nodes, as the group is named.
    nodes: int  #: Number of nodes.
    gpus: int  #: Number of GPUs.
    gpu: str  #: GPU, in the words of the rows.
    algorithm: str  #: Algorithm that the library reported, in lower case; "" if it is unknown.
    rows: tuple[PublishedRange, ...]

    @property
    def nvls_used(self) -> bool | None:
        """True if NVLink SHARP was used; None if that is unknown."""
        return self.algorithm.startswith(_NVLS) if self.algorithm else None


@functools.cache
def published_ranges() -> tuple[PublishedRange, ...]:
    return tuple(_row(row) for row in load("published")["published"])


def _row(row: dict[str, Any]) -> PublishedRange:
    first, last = row["nodes"]
    nics = row.get("nics")
    low, high = row["busbw"]
    algorithm = row.get("algorithm", "")
    rest = (row["test"], row.get("bytes"), algorithm, low, high, row["source"], row["date"])
    return PublishedRange(row["gpu"], row["gpus"], (first, last), None if nics is None else (nics[0], nics[1]), *rest)


def published(model: Model, kind: str) -> list[PublishedComparison]:
    """Return a collective over all nodes, and over the slowest node, beside what was published for such hardware."""
    found = []
    for where, ends, one in _groups(model, kind):
        nodes = dict.fromkeys(end.node for end in ends)
        counts = {sum(end.node == name for end in ends) for name in nodes}
        names = {end.name for end in ends}
        if len(counts) > 1 or len(names) > 1 or any(end.kind != "gpu" for end in ends):
            continue
        rows = tuple(row for row in published_ranges() if _fits(model, row, kind, ends, len(nodes)))
        if rows:
            algorithm = str((one.extra or {}).get("algorithm") or "").lower()
            found.append(PublishedComparison(one, where, len(nodes), len(ends), rows[0].gpu, algorithm, rows))
    return found


def _groups(model: Model, kind: str) -> Iterator[tuple[str, Sequence[Endpoint], Measurement]]:
    names = [name for name in model.nodes if any(end.kind != "none" for end in model.table.of_node(name))]
    layer = COLLECTIVES[kind]
    alone: list[tuple[float, str, Measurement]] = []
    for name in names:
        one = model.latest(layer, name, name)
        if one is not None and _counts(one, len(model.table.of_node(name))):
            assert one.value is not None
            alone.append((one.value, name, one))
    if alone:
        _, name, one = min(alone, key=lambda found: found[0])
        yield name, model.table.of_node(name), one
    ends = [end for name in names for end in model.table.of_node(name)]
    group = ("all", "all") if len(names) > 2 else tuple(names)
    if len(group) == 2:
        whole = model.latest(layer, *group)
        if whole is not None and _counts(whole, len(ends)):
            yield "all nodes", ends, whole


def _counts(one: Measurement, ranks: int) -> bool:
    passed = one.verdict in (Verdict.OK, Verdict.SLOW) and one.value is not None
    return passed and one.arm is None and (one.extra or {}).get("ranks") == ranks


def _fits(model: Model, row: PublishedRange, kind: str, ends: Sequence[Endpoint], nodes: int) -> bool:
    if row.test != kind or not row.is_of(ends[0].name) or row.gpus * nodes != len(ends):
        return False
    if not row.nodes[0] <= nodes <= row.nodes[1]:
        return False
    if row.nics is None:
        # Without NICs the value is of one node, or of one NVLink domain.
        domains = {model.table.domains.get(end.number) for end in ends}
        return nodes == 1 or (len(domains) == 1 and None not in domains)
    names = {name: {end.nic for end in ends if end.node == name} - {None} for name in {end.node for end in ends}}
    rates = {data_rate(model.nodes[name].inventory) for name in names}
    return {len(nics) for nics in names.values()} == {row.nics[0]} and rates == {float(row.nics[1])}
