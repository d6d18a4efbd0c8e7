"""Counter deltas: differences between two readings, and a bounded history per node.

Deltas are a JSON object in the shape of the probe's value, without the zeros::

    {"hca": {"mlx5_0/1": {name: int}}, "net": {"eth0": {name: int}}, "nvlink": {"0": {"3": {name: int}}},
     "errors": [[...path]], "reset": [[...path]], "full": [[...path]], "still": ["mlx5_1/1"]}

A path is ``["hca", "mlx5_0/1", "symbol_error"]`` or ``["nvlink", "0", "3", "crc"]``. ``errors`` lists the counters of
errors; ``reset`` those that went down, or up by an implausible amount, whose difference is unknown; ``full`` those at
their limit, where they stop counting; ``still`` the RDMA ports that count data and had none. Empty parts are omitted.
"""

from __future__ import annotations

import itertools
import re
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from typing import Any, NamedTuple

from fabtui.model.endpoints import node_of
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement
from fabtui_node.probes.rdma.port_counters import CONGESTION, LIMITS

Path = tuple[str, ...]
Deltas = dict[str, Any]

#: Maximum number of intervals kept per node; the oldest are dropped.
MOST_INTERVALS = 600
#: Duration (s) from which the start of a test is kept: it lies several intervals back.
LONG = 1.0
_MOST_LONG = 4096
#: Levels of names below each part of a value.
_PARTS = {"hca": 2, "net": 2, "nvlink": 3}
_MOST_COUNTERS = 20_000
_MOST_STILL = 128
_NAME = re.compile(r"[A-Za-z0-9_.:@/-]{1,64}", re.ASCII)
#: Maximum plausible difference between two readings; beyond it the counter was replaced.
_IMPLAUSIBLE = 1 << 60
#: InfiniBand counts data in words of four octets.
_WORDS = frozenset({"port_xmit_data", "port_rcv_data"})
#: Number of notifications, marks or pauses during a test from which its port is called congested.
LEAST_CONGESTION = 10
#: Data that a port or an interface sent or received (bytes): the kernel's names, those of EFA, Broadcom and Intel.
_SENT = ("port_xmit_data", "tx_bytes", "rdma_write_bytes", "rdma_read_resp_bytes", "ip4OutOctets", "ip6OutOctets")
_RECEIVED = ("port_rcv_data", "rx_bytes", "rdma_write_recv_bytes", "rdma_read_bytes", "ip4InOctets", "ip6InOctets")
_DATA = frozenset((*_SENT, *_RECEIVED))
#: Words in the names of counters of lost packets, and of other errors.
_LOSS_WORDS = re.compile(
    "drop(s|ped)?|discards?|retrans(mits)?|retr(y|ies)|timeouts?|naks?|missed|oos|unresponsive|impaired"
)
_ERROR_WORDS = re.compile(
    "err(or)?s?|overruns?|i?crcs?|replays?|recovery|downed|integrity|violation|bad|invalid|exceeded"
)
#: Counters whose names contain none of these words, or the wrong one.
_LOSSES = frozenset(
    {"out_of_sequence", "out_of_buffer", "rx_out_of_buffer", "duplicate_request", "dup_req", "packet_seq_err"}
    | {"roce_slow_restart", "roce_slow_restart_trans"}
)
_ERRORS = frozenset({"link_downed", "carrier_changes"})
#: Work still posted when a connection is closed ends in these, in every test.
_USUAL = frozenset({"req_cqe_error", "req_cqe_flush_error", "resp_cqe_error", "resp_cqe_flush_error"})


class CounterMeaning(StrEnum):
    """Meaning of a counter that does not count traffic."""

    CONGESTION = "congested"  #: Marked packets, notifications of congestion, pauses: usual in moderation.
    LOSS = "lost"  #: Packets that were dropped, or sent again.
    ERROR = "error"  #: Any other error.


@lru_cache(maxsize=4096)
def meaning_of_counter(name: str) -> CounterMeaning | None:
    """Return what a counter of this name counts, or None for traffic."""
    if CONGESTION.fullmatch(name):
        return CounterMeaning.CONGESTION
    lower = re.sub("(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    words = re.split("[^a-z]+", lower)
    if lower in _USUAL:
        return None
    if lower in _LOSSES or any(map(_LOSS_WORDS.fullmatch, words)):
        return CounterMeaning.LOSS
    return CounterMeaning.ERROR if lower in _ERRORS or any(map(_ERROR_WORDS.fullmatch, words)) else None


def is_error(name: str) -> bool:
    """Return True if a counter of this name counts errors or lost packets rather than traffic."""
    return meaning_of_counter(name) in (CounterMeaning.LOSS, CounterMeaning.ERROR)


def counts_of(meaning: CounterMeaning, deltas: Deltas) -> dict[Path, int]:
    counts = flatten(deltas).items()
    return {path: count for path, count in counts if path[0] != "nvlink" and meaning_of_counter(path[-1]) is meaning}


def is_congested(found: Mapping[str, Deltas]) -> bool:
    """Return True if a port of a node saw congestion: some notifications are usual on a healthy fabric."""
    counts = [count for deltas in found.values() for count in counts_of(CounterMeaning.CONGESTION, deltas).values()]
    return max(counts, default=0) >= LEAST_CONGESTION


def flatten(value: Deltas) -> dict[Path, int]:
    """Return the counts of a probe's value, or of deltas, by path; other values are ignored."""
    counts: dict[Path, int] = {}
    for part, depth in _PARTS.items():
        for path, count in _leaves(value.get(part), (part,), depth):
            if len(counts) >= _MOST_COUNTERS:
                return counts
            counts[path] = count
    return counts


def counts_anything(value: Deltas) -> bool:
    """Return True if a probe's value has any count."""
    return any(True for part, depth in _PARTS.items() for _ in _leaves(value.get(part), (part,), depth))


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _leaves(value: Any, path: Path, depth: int) -> Iterator[tuple[Path, int]]:
    if depth == 0:
        if _is_count(value):
            yield path, value
    elif isinstance(value, dict):
        for name, below in value.items():
            if isinstance(name, str) and _NAME.fullmatch(name):
                yield from _leaves(below, (*path, name), depth - 1)


def _built(counts: dict[Path, int], errors: Iterable[Path], reset: Iterable[Path], full: Iterable[Path] = ()) -> Deltas:
    deltas: Deltas = {}
    for path, count in counts.items():
        here = deltas
        for name in path[:-1]:
            here = here.setdefault(name, {})
        here[path[-1]] = count
    for key, paths in (("errors", errors), ("reset", reset), ("full", full)):
        if listed := sorted(paths):
            deltas[key] = [list(path) for path in listed]
    return deltas


def deltas(before: dict[str, Any], after: dict[str, Any]) -> Deltas:
    """Return the differences between two values of the probe ``counters``; {} if there are none.

    Data of InfiniBand ports is in bytes. A counter that only one of the values has is left out.
    """
    counts: dict[Path, int] = {}
    reset: list[Path] = []
    full: list[Path] = []
    for part, depth in _PARTS.items():
        for path, was, now in _unlike(before.get(part), after.get(part), (part,), depth):
            moved = now - was
            if len(counts) + len(reset) >= _MOST_COUNTERS:
                break
            if not 0 < moved < _IMPLAUSIBLE:
                reset.append(path)
            else:
                counts[path] = moved * 4 if path[0] == "hca" and path[-1] in _WORDS else moved
                if path[0] == "hca" and now == LIMITS.get(path[-1]):
                    full.append(path)
    built = _built(counts, [path for path in counts if is_error(path[-1])], reset, full)
    if built and (still := _still(before.get("hca"), after.get("hca"))):
        built["still"] = still
    return built


def _still(before: Any, after: Any) -> list[str]:
    if not isinstance(before, dict) or not isinstance(after, dict):
        return []
    ports = []
    for port, counts in after.items():
        was = before.get(port)
        if isinstance(port, str) and _NAME.fullmatch(port) and isinstance(counts, dict) and isinstance(was, dict):
            known = [name for name in _DATA & counts.keys() if _is_count(counts[name])]
            if known and all(was.get(name) == counts[name] for name in known):
                ports.append(port)
    return sorted(ports)


def _unlike(old: Any, new: Any, path: Path, depth: int) -> Iterator[tuple[Path, int, int]]:
    """Yield the counts of both values that differ; equal parts, the usual case, are skipped quickly."""
    if old == new:
        return
    if depth == 0:
        if _is_count(old) and _is_count(new):
            yield path, old, new
    elif isinstance(old, dict) and isinstance(new, dict):
        for name, below in new.items():
            was = old.get(name)
            if was is not None and was != below and isinstance(name, str) and _NAME.fullmatch(name):
                yield from _unlike(was, below, (*path, name), depth - 1)


def paths_of(value: Any) -> frozenset[Path]:
    """Return the paths that deltas list under ``errors``, ``reset`` or ``full``; other entries are ignored."""
    listed = value if isinstance(value, list) else []
    return frozenset(
        tuple(path)
        for path in listed[:_MOST_COUNTERS]
        if isinstance(path, list)
        and path
        and len(path) == _PARTS.get(str(path[0]), -1) + 1
        and all(isinstance(name, str) and _NAME.fullmatch(name) for name in path)
    )


class NodeTraffic(NamedTuple):
    """Data of a node over a time, in bytes sent and received: of each RDMA port and of each interface."""

    ports: dict[str, tuple[int, int]]  #: RDMA ports (``mlx5_0/1``) that count data, also if they had none.
    interfaces: dict[str, tuple[int, int]]  #: Interfaces that had any.
    exact: bool  #: False if a counter of data was reset, or is at its limit.


@dataclass(frozen=True, slots=True)
class _Shape:
    """Counters that moved, shared by the intervals in which the same ones did."""

    paths: tuple[Path, ...]
    errors: frozenset[Path]
    reset: frozenset[Path]
    full: frozenset[Path]
    still: tuple[str, ...]
    #: Counters of data: place in ``paths``, the path, and whether it counts what was sent.
    data: tuple[tuple[int, Path, bool], ...] = field(default=(), compare=False)

    def indexed(self) -> _Shape:
        """Return it with ``data``."""
        listed = enumerate(self.paths)
        data = tuple((at, path, path[-1] in _SENT) for at, path in listed if path[0] != "nvlink" and path[-1] in _DATA)
        return replace(self, data=data)


class _Interval(NamedTuple):
    since: float
    until: float
    shape: _Shape
    counts: array[int]


def _data_of(intervals: list[_Interval]) -> NodeTraffic:
    data: dict[str, dict[str, tuple[int, int]]] = {"hca": {}, "net": {}}
    exact = True
    for interval in intervals:
        shape = interval.shape
        exact = exact and not any(path[-1] in _DATA for path in (*shape.reset, *shape.full))
        for port in shape.still:
            data["hca"].setdefault(port, (0, 0))
        for at, (part, name, _), out in shape.data:
            sent, received = data[part].get(name, (0, 0))
            count = interval.counts[at]
            data[part][name] = (sent + count * out, received + count * (not out))
    return NodeTraffic(data["hca"], data["net"], exact)


class CounterLog:
    """Deltas of all nodes over time; of each node at most ``most`` intervals are kept."""

    def __init__(self, most: int = MOST_INTERVALS) -> None:
        self._most = most
        self._nodes: dict[str, list[_Interval]] = {}
        self._shapes: dict[_Shape, _Shape] = {}
        self._began: dict[tuple[str, str], float] = {}
        self._long: dict[tuple[str, str, float], float] = {}
        self._worlds: list[float] = []
        #: Traffic by node and the intervals it is of: many pairs are tested in the same.
        self._traffic_of: dict[tuple[str, float, float], NodeTraffic] = {}
        self._in_world = False
        #: Changes of the carrier by node and interface, also of intervals that are not kept.
        self.carrier_changes: Counter[tuple[str, str]] = Counter()

    def take(self, node: str, since: float, until: float, found: Deltas) -> None:
        """Add the deltas of a node over an interval (seconds since the epoch)."""
        counts = {path: count for path, count in flatten(found).items() if count < 1 << 63}
        errors, reset, full = (paths_of(found.get(name)) for name in ("errors", "reset", "full"))
        ports = found.get("still")
        named = ports[:_MOST_STILL] if isinstance(ports, list) else []
        still = tuple(port for port in named if isinstance(port, str) and _NAME.fullmatch(port))
        shape = _Shape(tuple(counts), errors, reset, full, still)
        for path, count in counts.items():
            if path[0] == "net" and path[-1] == "carrier_changes":
                self.carrier_changes[node, path[1]] += count
        if len(self._shapes) > self._most:
            self._shapes.clear()
        shape = self._shapes.get(shape) or self._shapes.setdefault(shape, shape.indexed())
        self._traffic_of.clear()
        kept = self._nodes.setdefault(node, [])
        kept.append(_Interval(since, until, shape, array("q", counts.values())))
        del kept[: -self._most]

    def known(self, node: str) -> bool:
        """Return True if there are counters of a node."""
        return node in self._nodes

    def began(self, pairs: Iterable[tuple[str, str]], time: float) -> None:
        # World tests all begin with their phase, whose time is kept.
        if not self._in_world:
            self._began.update((pair, time) for pair in pairs)

    def phase(self, name: str, time: float) -> None:
        """Note that a part of the sweep has begun."""
        self._began.clear()
        self._in_world = name == Layer.WORLD
        if self._in_world:
            self._worlds.append(time)

    def ended(self, measurements: Iterable[Measurement]) -> None:
        """Note that tests of pairs have ended; the starts of long ones are kept."""
        for measurement in measurements if self._began else ():
            if measurement.layer is not Layer.P2P:
                continue
            began = self._began.pop((measurement.src, measurement.dst), None)
            if began is not None and measurement.time - began > LONG:
                if len(self._long) >= _MOST_LONG:
                    del self._long[next(iter(self._long))]
                self._long[measurement.src, measurement.dst, measurement.time] = began

    def between(self, node: str, since: float, until: float) -> Deltas:
        """Return the deltas of a node, merged over the intervals that overlap a time; {} if unknown.

        A moment (``since`` = ``until``) belongs to one interval: an interval holds its end and not its beginning.
        """
        counts: Counter[Path] = Counter()
        errors, reset, full = set[Path](), set[Path](), set[Path]()
        for interval in self._nodes.get(node, ()):
            if interval.since < until and (until <= interval.until if since == until else since < interval.until):
                for path, count in zip(interval.shape.paths, interval.counts, strict=True):
                    counts[path] += count
                errors |= interval.shape.errors
                reset |= interval.shape.reset
                full |= interval.shape.full
        return _built(counts, errors, reset, full)

    def traffic(self, measurement: Measurement) -> dict[str, NodeTraffic]:
        """Return the data of both nodes while a pair was measured, other tests of that time included.

        Nodes without known counters are left out.
        """
        # A short test may have begun in the interval before the one that it ended in.
        since = min(self.began_at(measurement), measurement.time - LONG)
        nodes = dict.fromkeys(map(node_of, (measurement.src, measurement.dst)))
        return {node: one for node in nodes if (one := self._traffic(node, since, measurement.time)) is not None}

    def _traffic(self, node: str, since: float, until: float) -> NodeTraffic | None:
        kept = self._nodes.get(node, ())
        # In the order of time, and there may be many.
        first = bisect_right(kept, since, key=lambda one: one.until) if kept else 0
        intervals = list(itertools.takewhile(lambda one: one.since < until, itertools.islice(kept, first, None)))
        if not intervals or intervals[-1].until < until:
            return None
        key = node, intervals[0].since, intervals[-1].until
        return self._traffic_of.get(key) or self._traffic_of.setdefault(key, _data_of(intervals))

    def of(self, measurement: Measurement) -> dict[str, Deltas]:
        """Return the deltas of the nodes of a measurement while it was made.

        Counters are per node and include other tests that ran at the same time. Nodes without known deltas are
        left out.
        """
        if measurement.layer not in (Layer.P2P, Layer.WORLD, Layer.LATENCY):
            return {}
        since = self.began_at(measurement)
        nodes = dict.fromkeys(map(node_of, (measurement.src, measurement.dst)))
        by_node = {node: self.between(node, since, measurement.time) for node in nodes}
        return {node: moved for node, moved in by_node.items() if moved}

    def began_at(self, measurement: Measurement) -> float:
        """Return when the test of a measurement began (epoch seconds); its end if that is unknown, or it was short."""
        if measurement.layer is Layer.WORLD:
            at = bisect_right(self._worlds, measurement.time)
            return self._worlds[at - 1] if at else measurement.time
        return self._long.get((measurement.src, measurement.dst, measurement.time), measurement.time)
