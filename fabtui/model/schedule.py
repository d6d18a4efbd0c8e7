"""Schedule of a sweep: which pairs are tested, and which of them at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence, Set
from itertools import permutations

from fabtui.model.endpoints import Endpoint
from fabtui.model.pair_index import PairArray, PairSet

MODES = ("quick", "sampled", "full")
#: Minimum number of endpoints for which the default is ``sampled``: 128 endpoints have 8,128 pairs.
SAMPLED_FROM = 128
#: Endpoints of each other node that an endpoint is paired with in the ``sampled`` mode.
SAMPLES = 2


def each_round(count: int) -> Iterator[list[tuple[int, int]]]:
    """Yield rounds of disjoint unordered pairs that together hold every pair of ``count`` once.

    The circle method: one stays, the others turn; ``count - 1`` rounds for an even count, ``count`` for an odd one (one
    sits out in each round).
    """
    seats: list[int | None] = list(range(count))
    if count % 2:
        seats.append(None)
    for _ in range(len(seats) - 1):
        pairs = []
        for left, right in zip(seats[: len(seats) // 2], reversed(seats[len(seats) // 2 :]), strict=True):
            if left is not None and right is not None:
                pairs.append((min(left, right), max(left, right)))
        if pairs:
            yield pairs
        seats = [seats[0], seats[-1], *seats[1:-1]]


def in_parts(pairs: Sequence[tuple[int, int]], most: int) -> Iterator[Sequence[tuple[int, int]]]:
    """Split pairs, in order, into parts in which no endpoint has more than ``most`` pairs."""
    counts: Counter[int] = Counter()
    first = 0
    for at, pair in enumerate(pairs):
        if any(counts[end] >= most for end in pair):
            yield pairs[first:at]
            first = at
            counts.clear()
        counts.update(pair)
    if first < len(pairs):
        yield pairs[first:]


def mode_for(wanted: str, endpoints: int) -> str:
    """Return the requested mode, or the one that ``auto`` selects for a number of endpoints."""
    return wanted if wanted != "auto" else "sampled" if endpoints >= SAMPLED_FROM else "full"


def pairs_for(mode: str, endpoints: Sequence[Endpoint]) -> PairArray:
    """Return unordered pairs of endpoint numbers, in an order in which many can run at once.

    - ``full``: every pair.
    - ``sampled``: within a node every pair; of every other node `SAMPLES` endpoints each: the one of the same rail, and
      others that shift from node to node.
    - ``quick``: a ring within each node and, for each rail, a ring over the nodes: about two pairs per endpoint.

    Raises:
        ValueError: There is no such mode.
    """
    numbers = [endpoint.number for endpoint in endpoints]
    if mode not in MODES:
        raise ValueError(f"unknown mode {mode!r}; there are {', '.join(MODES)}")
    chosen = None if mode == "full" else _sampled(endpoints) if mode == "sampled" else _quick(endpoints)
    every = ((numbers[i], numbers[j]) for round_ in each_round(len(numbers)) for i, j in round_)
    return PairArray(every if chosen is None else (pair for pair in every if pair in chosen))


def _by_node(endpoints: Sequence[Endpoint]) -> list[list[Endpoint]]:
    nodes: dict[str, list[Endpoint]] = {}
    for endpoint in endpoints:
        nodes.setdefault(endpoint.node, []).append(endpoint)
    return list(nodes.values())


def _ring(numbers: Sequence[int]) -> list[tuple[int, int]]:
    return [(a, b) for a, b in zip(numbers, [*numbers[1:], *numbers[:1]], strict=True) if a != b]


def _quick(endpoints: Sequence[Endpoint]) -> PairSet:
    nodes = _by_node(endpoints)
    chosen = PairSet(pair for node in nodes for pair in _ring([endpoint.number for endpoint in node]))
    for place in range(max(map(len, nodes), default=0)):
        # A node with fewer endpoints takes part in each ring with one of those it has.
        for pair in _ring([node[place % len(node)].number for node in nodes]):
            chosen.add(*pair)
    return chosen


def _sampled(endpoints: Sequence[Endpoint]) -> PairSet:
    nodes = _by_node(endpoints)
    chosen = PairSet((a.number, b.number) for node in nodes for a in node for b in node if a.number < b.number)
    for at, node in enumerate(nodes):
        for further, other in enumerate(nodes[at + 1 :], 1):
            for place, endpoint in enumerate(node):
                for sample in range(min(SAMPLES, len(other))):
                    # The same rail first; then one that differs from node to node, so that all rails are crossed.
                    shift = 0 if sample == 0 else 1 + (further + sample - 2) % max(1, len(other) - 1)
                    chosen.add(endpoint.number, other[(place + shift) % len(other)].number)
    return chosen


class Dispatcher:
    """Starts pairs of endpoint numbers as their endpoints and NICs become free, in the order of the rounds.

    There is no barrier between rounds: a pair that waits for its deadline holds its two endpoints only.

    Args:
        pairs: Unordered pairs in order of preference.
        resources: NIC of each endpoint, used by one pair at a time, or None. A pair within a node needs none.
        node: Node of each endpoint.
        width: Maximum number of pairs at once, or None.
    """

    def __init__(
        self,
        pairs: Sequence[tuple[int, int]],
        resources: Sequence[str | None],
        node: Sequence[str],
        width: int | None = None,
    ) -> None:
        self._width = width
        # Place of each pair in the order.
        self._waiting = {pair: place for place, pair in enumerate(pairs)}
        self._resources = resources
        self._node = node
        self._busy: set[int] = set()
        self._held: set[tuple[str, str]] = set()
        self._running: dict[tuple[int, int], set[tuple[str, str]]] = {}

    @property
    def waiting(self) -> int:
        """Number of pairs not started yet."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Number of pairs started and not done."""
        return len(self._running)

    def wants(self, node: str) -> bool:
        """Return True if a waiting pair has an endpoint of a node."""
        return any(self._node[end] == node for pair in self._waiting for end in pair)

    def _needs(self, a: int, b: int) -> set[tuple[str, str]]:
        if self._node[a] == self._node[b]:
            return set()
        return {(self._node[end], resource) for end in (a, b) if (resource := self._resources[end]) is not None}

    def take(self, held: Set[int] = frozenset()) -> list[tuple[int, int]]:
        """Return the pairs that may start now, without those of ``held`` endpoints, and mark them as running."""
        started: list[tuple[int, int]] = []
        free = set(range(len(self._node))) - self._busy - held
        if len(free) < 2:
            return started
        for a, b in self._candidates(free):
            if self._width is not None and len(self._running) >= self._width:
                break
            if a not in free or b not in free:
                continue
            needs = self._needs(a, b)
            if needs & self._held:
                continue
            free -= {a, b}
            self._busy |= {a, b}
            self._held |= needs
            self._running[a, b] = needs
            del self._waiting[a, b]
            started.append((a, b))
        return started

    def _candidates(self, free: Set[int]) -> list[tuple[int, int]]:
        """Return the waiting pairs that might start, in their order."""
        if len(free) ** 2 >= len(self._waiting):
            return list(self._waiting)
        # Usually few endpoints are free: trying each two of them is faster than trying all waiting pairs.
        found = [pair for pair in permutations(free, 2) if pair in self._waiting]
        return sorted(found, key=self._waiting.__getitem__)

    def done(self, a: int, b: int) -> None:
        """Mark a running pair as done; its endpoints and NICs are free again."""
        needs = self._running.pop((a, b), None)
        if needs is not None:
            self._busy -= {a, b}
            self._held -= needs

    def drop(self, endpoint: int) -> list[tuple[int, int]]:
        """Remove the waiting pairs of an endpoint, and return them."""
        dropped = [pair for pair in self._waiting if endpoint in pair]
        for pair in dropped:
            del self._waiting[pair]
        return dropped
