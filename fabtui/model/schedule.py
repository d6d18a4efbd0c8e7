"""Schedule of a sweep: which pairs are tested, and which of them at once."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence, Set
from types import MappingProxyType
from typing import overload

from fabtui.model.endpoints import Endpoint

Pair = tuple[int, int]

MODES = ("quick", "adaptive", "sampled", "full")
#: Maximum number of endpoints of which all pairs are tested by default: 8,128 pairs.
FULL_UP_TO = 128
#: Healthy endpoints with which each suspect of the ``adaptive`` mode is tested, besides all other suspects.
HEALTHY_PARTNERS = 4
#: Domains of endpoints without any.
_NO_DOMAINS: Mapping[int, str] = MappingProxyType({})
#: Endpoints of each other node that an endpoint is paired with in the ``sampled`` mode.
SAMPLES = 2
#: Maximum number of bad pairs that a sweep tests again; more have a common cause, and retests show nothing new.
MAX_SUSPECTS = 64
#: Maximum number of retests of a slow pair; only pairs that stay slow are slow.
SLOW_ROUNDS = 2
#: Ratio up to which two values of a slow direction agree, and share of the limit below which both leave no doubt.
AGREE, NO_DOUBT = 1.25, 0.5


def is_settled(values: Sequence[float | None], limit: float | None) -> bool:
    """Return True if a slow direction needs no further test: its last two values agree, far below the limit."""
    known = [value for value in values[-2:] if value]
    return limit is not None and len(known) == 2 and max(known) <= min(AGREE * min(known), NO_DOUBT * limit)


class PairArray(Sequence[Pair]):
    """Pairs of endpoint numbers in an order, eight bytes each.

    Args:
        pairs: Initial pairs.
    """

    __slots__ = ("_ends",)

    def __init__(self, pairs: Iterable[Pair] = ()) -> None:
        self._ends = array("I")
        for pair in pairs:
            self._ends.extend(pair)

    def append(self, a: int, b: int) -> None:
        self._ends.append(a)
        self._ends.append(b)

    def __len__(self) -> int:
        return len(self._ends) // 2

    def __iter__(self) -> Iterator[Pair]:
        ends = iter(self._ends)
        return zip(ends, ends, strict=True)

    @overload
    def __getitem__(self, at: int) -> Pair: ...
    @overload
    def __getitem__(self, at: slice) -> PairArray: ...
    def __getitem__(self, at: int | slice) -> Pair | PairArray:
        places = range(len(self))[at]
        if isinstance(places, int):
            return self._ends[2 * places], self._ends[2 * places + 1]
        if places.step == 1:
            part = PairArray()
            part._ends = self._ends[2 * places.start : 2 * places.stop]
            return part
        return PairArray(self[place] for place in places)


class PairSet(Collection[Pair]):
    """Set of unordered pairs of different endpoint numbers, one bit per possible pair.

    Args:
        pairs: Initial pairs, each in any order.
    """

    __slots__ = ("_bits", "_count")

    def __init__(self, pairs: Iterable[Pair] = ()) -> None:
        self._bits = bytearray()
        self._count = 0
        for a, b in pairs:
            self.add(a, b)

    def add(self, a: int, b: int) -> None:
        place = _bit_of(a, b)
        byte, bit = place >> 3, 1 << (place & 7)
        if byte >= len(self._bits):
            self._bits.extend(bytes(byte + 1 - len(self._bits)))
        if not self._bits[byte] & bit:
            self._bits[byte] |= bit
            self._count += 1

    def __contains__(self, pair: object) -> bool:
        if not isinstance(pair, tuple) or pair[0] == pair[1]:
            return False
        place = _bit_of(*pair)
        return place >> 3 < len(self._bits) and bool(self._bits[place >> 3] >> (place & 7) & 1)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Pair]:
        high, first = 1, 0
        for byte, bits in enumerate(self._bits):
            while bits:
                place = byte << 3 | (bits & -bits).bit_length() - 1
                bits &= bits - 1
                while place >= first + high:
                    first += high
                    high += 1
                yield place - first, high


def _bit_of(a: int, b: int) -> int:
    if a < b:
        a, b = b, a
    return a * (a - 1) // 2 + b


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


def mode_for(wanted: str, endpoints: int) -> str:
    """Return the requested mode, or the one that ``auto`` selects for a number of endpoints."""
    return wanted if wanted != "auto" else "full" if endpoints <= FULL_UP_TO else "adaptive"


def pairs_for(
    mode: str,
    endpoints: Sequence[Endpoint],
    domains: Mapping[int, str] = _NO_DOMAINS,
    leaves: Mapping[int, str] = _NO_DOMAINS,
) -> PairArray:
    """Return unordered pairs of endpoint numbers, in an order in which many can run at once.

    - ``full``: every pair.
    - ``sampled``: within a node every pair; of every other node `SAMPLES` endpoints each: the one of the same rail, and
      others that shift from node to node.
    - ``quick``: a ring within each node and, for each rail, a ring over the nodes: about two pairs per endpoint. An
      NVLink domain of several nodes has two permutations of all its GPUs in place of rings within the nodes. The rings
      over the nodes lead from domain to domain: NICs carry nothing within one.
    - ``adaptive``: the same, then each endpoint with one of its rail on another leaf switch, and with one of another
      rail: about three and a half pairs per endpoint. What is bad among them has further tests (`suspect_pairs`).

    Args:
        mode: One of `MODES`.
        endpoints: The endpoints.
        domains: NVLink domain of each GPU that has one, by number.
        leaves: Leaf switch of each endpoint that has one, by number.

    Raises:
        ValueError: There is no such mode.
    """
    numbers = [endpoint.number for endpoint in endpoints]
    if mode not in MODES:
        raise ValueError(f"unknown mode {mode!r}; there are {', '.join(MODES)}")
    if mode == "full":
        return PairArray((numbers[i], numbers[j]) for round_ in each_round(len(numbers)) for i, j in round_)
    # In the order of the rounds, without a walk through all of them: 16,384 endpoints have 134 million pairs.
    places = {number: at for at, number in enumerate(numbers)}
    count = len(numbers) + len(numbers) % 2
    chosen = _sampled(endpoints) if mode == "sampled" else _quick(endpoints, domains)
    if mode == "adaptive":
        for pair in _permuted(endpoints, leaves):
            chosen.add(*pair)
        return _side_by_side(chosen)
    # Numbers rather than tuples, which take four times as much memory for as long as they are sorted.
    rows = sorted(_seat(places[a], places[b], count) for a, b in chosen)
    return PairArray((numbers[row // count % count], numbers[row % count]) for row in rows)


def _seat(a: int, b: int, count: int) -> int:
    """Return one number for the round of a pair in `each_round`, its place there, and its ends; ``count`` is even."""
    a, b = min(a, b), max(a, b)
    turns = count - 1
    # In round r, number n > 0 sits at (n - 1 + r) mod turns + 1; those of a pair add up to turns.
    round_ = -b % turns if a == 0 else -(a + b) * (count // 2) % turns
    seats = (0 if n == 0 else (n - 1 + round_) % turns + 1 for n in (a, b))
    return ((round_ * count + min(seats)) * count + a) * count + b


def _by_node(endpoints: Sequence[Endpoint]) -> list[list[Endpoint]]:
    nodes: dict[str, list[Endpoint]] = {}
    for endpoint in endpoints:
        nodes.setdefault(endpoint.node, []).append(endpoint)
    return list(nodes.values())


def _ring(numbers: Sequence[int]) -> list[tuple[int, int]]:
    return [(a, b) for a, b in zip(numbers, [*numbers[1:], *numbers[:1]], strict=True) if a != b]


def _quick(endpoints: Sequence[Endpoint], domains: Mapping[int, str]) -> PairSet:
    nodes = _by_node(endpoints)
    places: dict[str, list[list[Endpoint]]] = {}
    for node in nodes:
        # A node without a domain is a place by itself.
        places.setdefault(domains.get(node[0].number, f"node {node[0].node}"), []).append(node)
    chosen = PairSet()
    for mine in places.values():
        for a, b in _permutations(mine) if len(mine) > 1 else _ring([endpoint.number for endpoint in mine[0]]):
            chosen.add(a, b)
    if len(places) == 1 and len(nodes) > 1:
        return chosen
    most = max(map(len, places.values()), default=0)
    order = [mine[turn] for turn in range(most) for mine in places.values() if turn < len(mine)]
    for place in range(max(map(len, order), default=0)):
        # A node with fewer endpoints takes part in each ring with one of those it has.
        for pair in _ring([node[place % len(node)].number for node in order]):
            chosen.add(*pair)
    return chosen


def _permutations(nodes: Sequence[Sequence[Endpoint]]) -> Iterator[tuple[int, int]]:
    """Yield two permutations of the GPUs of a domain: to the next node, and to another place of one far away."""
    for stride, shift in ((1, 0), (max(1, len(nodes) // 2), 1)):
        for at, node in enumerate(nodes):
            other = nodes[(at + stride) % len(nodes)]
            for place, endpoint in enumerate(node):
                yield endpoint.number, other[(place + shift) % len(other)].number


def _permuted(endpoints: Sequence[Endpoint], leaves: Mapping[int, str]) -> Iterator[Pair]:
    """Yield each endpoint with one of its rail half the fabric away, and with one of another rail, which differs."""
    # Nodes of a leaf switch stand together, so that half the list away is a different switch.
    nodes = sorted(_by_node(endpoints), key=lambda node: leaves.get(node[0].number, ""))
    for at, node in enumerate(nodes if len(nodes) > 1 else ()):
        far, across = nodes[(at + len(nodes) // 2) % len(nodes)], nodes[(at + len(nodes) // 4 + 1) % len(nodes)]
        for place, endpoint in enumerate(node):
            shift = 1 + at % max(1, len(across) - 1)
            for other in (far[place % len(far)], across[(place + shift) % len(across)]):
                if other.node != endpoint.node:
                    yield endpoint.number, other.number


def _side_by_side(pairs: Iterable[Pair]) -> PairArray:
    """Return pairs in phases of disjoint ones: each goes into the first phase in which both of its ends are free."""
    phases: list[list[Pair]] = []
    used: dict[int, int] = {}  #: Phases in which each end is taken, as bits.
    for a, b in pairs:
        taken = used.get(a, 0) | used.get(b, 0)
        phase = (~taken & taken + 1).bit_length() - 1
        used[a], used[b] = used.get(a, 0) | 1 << phase, used.get(b, 0) | 1 << phase
        phases += [[]] if phase == len(phases) else []
        phases[phase].append((a, b))
    return PairArray(pair for phase in phases for pair in phase)


def cover(pairs: Iterable[Pair]) -> list[int]:
    """Return few endpoints that together are in all of some pairs: those in most of them first."""
    left, ends = set(pairs), list[int]()
    while left:
        ends.append(Counter(end for pair in left for end in pair).most_common(1)[0][0])
        left = {pair for pair in left if ends[-1] not in pair}
    return ends


def suspect_pairs(bad: Sequence[Pair], endpoints: Sequence[Endpoint], tested: Container[Pair]) -> PairArray:
    """Return untested pairs of suspects, which are in bad pairs: all among them, and each with healthy endpoints.

    None if there are more than `MAX_SUSPECTS`: they have a common cause.
    """
    suspects, ends = cover(bad), {end for pair in bad for end in pair}
    healthy = [endpoint for endpoint in endpoints if endpoint.number not in ends]
    if len(suspects) > MAX_SUSPECTS or not healthy:
        return PairArray()
    node = {endpoint.number: endpoint.node for endpoint in endpoints}
    chosen = PairSet((a, b) for at, a in enumerate(suspects) for b in suspects[at + 1 :])
    for at, suspect in enumerate(suspects):
        for turn in range(HEALTHY_PARTNERS):
            # Spread over the fabric, and different for each suspect.
            other = healthy[(at + turn * len(healthy) // HEALTHY_PARTNERS) % len(healthy)].number
            if node[other] != node[suspect]:
                chosen.add(suspect, other)
    return _side_by_side((a, b) for a, b in chosen if (a, b) not in tested)


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


def _code(a: int, b: int) -> int:
    return a << 32 | b


class Dispatcher:
    """Starts pairs of endpoint numbers as their endpoints and NICs become free, in the order of the rounds.

    There is no barrier between rounds: a pair that waits for its deadline holds its two endpoints only. A step tries
    the pairs of endpoints that became free since the one before, as there may be tens of thousands of others.

    Args:
        pairs: Unordered pairs in order of preference.
        resources: NIC of each endpoint, used by one pair at a time, or None. A pair within a node needs none.
        node: Node of each endpoint.
        width: Maximum number of pairs at once, or None.
        domains: NVLink domain of each endpoint that has one: a pair within one needs no NIC either.
    """

    def __init__(
        self,
        pairs: Sequence[tuple[int, int]],
        resources: Sequence[str | None],
        node: Sequence[str],
        width: int | None = None,
        domains: Mapping[int, str] = _NO_DOMAINS,
    ) -> None:
        self._width = width
        self._domains = domains
        #: The pairs in order; when half of them have started, those are left out.
        self._order = pairs
        #: Number of each waiting pair in the order, by `_code`.
        self._numbers: dict[int, int] = {}
        for number, (a, b) in enumerate(pairs):
            self._numbers[_code(a, b)] = number
        self._resources = resources
        self._node = node
        self._busy: set[int] = set()
        self._held: set[tuple[str, str]] = set()
        self._running: dict[tuple[int, int], tuple[tuple[str, str], ...]] = {}
        self.is_full = False
        #: By endpoint the others of its pairs; those that no longer wait are left in.
        self._others: dict[int, array[int]] = {}
        self._left: Counter[int] = Counter()  #: Number of waiting pairs by endpoint.
        for a, b in pairs:
            for end, other in ((a, b), (b, a)):
                self._others.setdefault(end, array("I")).append(other)
                self._left[end] += 1
        #: Endpoints that are not busy and have waiting pairs.
        self._free = set(self._left)
        #: Those whose waiting pairs may have become possible; of all others none can start.
        self._fresh = set(self._left)
        users: dict[tuple[str, str], list[int]] = {}
        for end in self._left:
            if (nic := resources[end]) is not None:
                users.setdefault((node[end], nic), []).append(end)
        #: The endpoints that share a NIC.
        self._sharing = {nic: ends for nic, ends in users.items() if len(ends) > 1}

    @property
    def waiting(self) -> int:
        """Number of pairs not started yet."""
        return len(self._numbers)

    @property
    def pairs(self) -> Iterator[tuple[int, int]]:
        """The pairs not started yet, in order; pairs may start meanwhile."""
        return ((a, b) for a, b in self._order if _code(a, b) in self._numbers)

    @property
    def running(self) -> int:
        """Number of pairs started and not done."""
        return len(self._running)

    def wants(self, node: str) -> bool:
        """Return True if a waiting pair has an endpoint of a node."""
        return any(self._node[end] == node for end, left in self._left.items() if left)

    def _needs(self, a: int, b: int) -> tuple[tuple[str, str], ...]:
        domain = self._domains.get(a)
        if self._node[a] == self._node[b] or (domain is not None and domain == self._domains.get(b)):
            return ()
        return tuple((self._node[end], nic) for end in (a, b) if (nic := self._resources[end]) is not None)

    def take(
        self,
        held: Set[int] = frozenset(),
        fits: Callable[[int, int], bool] = lambda a, b: True,
        full: Set[int] = frozenset(),
    ) -> list[tuple[int, int]]:
        """Return the pairs that may start now, without those of ``held`` endpoints, and mark them as running.

        Pairs that do not fit wait; then `is_full` is set. ``full`` endpoints start pairs within their node only.
        """
        self.is_full = False
        started: list[tuple[int, int]] = []
        # What does not depend on running pairs alone is tried again the next time.
        again: set[int] = set()
        for a, b in self._candidates(full, again):
            if self._width is not None and len(self._running) >= self._width:
                again |= {a, b}
                break
            if a not in self._free or b not in self._free:
                continue
            if a in held or b in held:
                again |= {a, b}
                continue
            needs = self._needs(a, b)
            if not self._held.isdisjoint(needs):
                continue
            if not fits(a, b):
                self.is_full = True
                again |= {a, b}
                if self._width == 1:
                    # Their order counts.
                    break
                continue
            self._start(a, b, needs)
            started.append((a, b))
        self._fresh = again if self._width is None else set(self._free)
        return started

    def _start(self, a: int, b: int, needs: tuple[tuple[str, str], ...]) -> None:
        self._free -= {a, b}
        self._busy |= {a, b}
        self._held.update(needs)
        self._running[a, b] = needs
        self._remove(a, b)

    def _remove(self, a: int, b: int) -> None:
        del self._numbers[_code(a, b)]
        if 2 * len(self._numbers) < len(self._order):
            self._order = PairArray(self.pairs)
        for end in (a, b):
            self._left[end] -= 1
            if not self._left[end]:
                self._free.discard(end)
                del self._others[end]

    def _candidates(self, full: Set[int], again: set[int]) -> Iterator[tuple[int, int]]:
        """Yield the waiting pairs that might start, in their order; add the ends of the ``full`` ones to ``again``."""
        free, fresh, node = self._free, self._fresh & self._free, self._node
        if sum(min(len(free), len(self._others[end])) for end in fresh) >= len(self._numbers):
            for a, b in self.pairs:
                if node[a] == node[b] or not (a in full or b in full):
                    yield a, b
                else:
                    again |= fresh
                    fresh = set()
            return
        waiting: dict[int, tuple[int, int]] = {}
        for end in fresh:
            # Usually few endpoints are free.
            others, here = self._others[end], node[end]
            for other in free if len(free) < len(others) else free.intersection(others):
                if (end in full or other in full) and here != node[other]:
                    again.add(end)
                    continue
                for pair in ((end, other), (other, end)):
                    if (number := self._numbers.get(_code(*pair))) is not None:
                        waiting[number] = pair
        yield from (waiting[number] for number in sorted(waiting))

    def done(self, a: int, b: int) -> None:
        """Mark a running pair as done; its endpoints and NICs are free again."""
        needs = self._running.pop((a, b), None)
        if needs is None:
            return
        self._busy -= {a, b}
        self._held.difference_update(needs)
        self._free.update(end for end in (a, b) if self._left[end])
        self._fresh |= {a, b}
        for need in needs:
            self._fresh.update(self._sharing.get(need, ()))

    def drop(self, endpoint: int) -> list[tuple[int, int]]:
        others = set(self._others.get(endpoint, ()))
        both = (pair for other in others for pair in ((endpoint, other), (other, endpoint)))
        waiting = {pair for pair in both if _code(*pair) in self._numbers}
        dropped = sorted(waiting, key=lambda pair: self._numbers[_code(*pair)])
        for pair in dropped:
            self._remove(*pair)
        return dropped
