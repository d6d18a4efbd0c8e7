"""Which pairs run at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence, Set
from itertools import permutations


def circle_rounds(count: int) -> list[list[tuple[int, int]]]:
    """Return the rounds of `each_round`."""
    return list(each_round(count))


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
    """Cut pairs, in their order, into parts in each of which no endpoint has more than ``most`` of them."""
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


class Dispatcher:
    """Hands out pairs as their endpoints and NICs fall free, in the order of the rounds.

    There is no barrier between rounds: a pair that waits for its deadline holds its two endpoints only.

    Args:
        pairs: Unordered pairs of endpoint numbers in the order they are wanted.
        resources: For each endpoint number what else it needs alone (its NIC), or None. A pair
            within a node needs no NIC.
        node: For each endpoint number its node.
        width: How many pairs may run at once, or None.
    """

    def __init__(
        self,
        pairs: Sequence[tuple[int, int]],
        resources: Sequence[str | None],
        node: Sequence[str],
        width: int | None = None,
    ) -> None:
        self._width = width
        # Each with its place in the order.
        self._waiting = {pair: place for place, pair in enumerate(pairs)}
        self._resources = resources
        self._node = node
        self._busy: set[int] = set()
        self._held: set[tuple[str, str]] = set()
        self._running: dict[tuple[int, int], set[tuple[str, str]]] = {}

    @property
    def waiting(self) -> int:
        """How many pairs were not handed out yet."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """How many pairs were handed out and are not done."""
        return len(self._running)

    def wants(self, node: str) -> bool:
        """Say whether a pair that was not handed out yet has an endpoint of a node."""
        return any(self._node[end] == node for pair in self._waiting for end in pair)

    def _needs(self, a: int, b: int) -> set[tuple[str, str]]:
        if self._node[a] == self._node[b]:
            return set()
        return {(self._node[end], resource) for end in (a, b) if (resource := self._resources[end]) is not None}

    def take(self, held: Set[int] = frozenset()) -> list[tuple[int, int]]:
        """Return the pairs that may start now, and mark them as running; not those of the endpoints in ``held``."""
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
        # Few endpoints are free, as a rule: looking at each two of them is less than looking at all that waits.
        found = [pair for pair in permutations(free, 2) if pair in self._waiting]
        return sorted(found, key=self._waiting.__getitem__)

    def done(self, a: int, b: int) -> None:
        """Say that a running pair ended; its endpoints and NICs are free again."""
        needs = self._running.pop((a, b), None)
        if needs is not None:
            self._busy -= {a, b}
            self._held -= needs

    def drop(self, endpoint: int) -> list[tuple[int, int]]:
        """Take out the waiting pairs of an endpoint, and return them."""
        dropped = [pair for pair in self._waiting if endpoint in pair]
        for pair in dropped:
            del self._waiting[pair]
        return dropped
