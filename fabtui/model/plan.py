"""Which pairs a sweep tests: all of them, or few that still touch every endpoint, every node pair, every rail."""

from __future__ import annotations

from collections.abc import Sequence

from fabtui.model.endpoints import Endpoint
from fabtui.model.pairs import PairArray, PairSet
from fabtui.model.schedule import each_round

MODES = ("quick", "sampled", "full")
#: From this many endpoints on, the default is ``sampled``: all pairs of 128 endpoints are 8,128 meetings.
SAMPLED_FROM = 128
#: How many endpoints of each other node an endpoint meets in the ``sampled`` mode.
SAMPLES = 2


def mode_for(wanted: str, endpoints: int) -> str:
    """Return the mode that ``auto`` stands for with so many endpoints, or the wanted one."""
    if wanted != "auto":
        return wanted
    return "sampled" if endpoints >= SAMPLED_FROM else "full"


def pairs_for(mode: str, endpoints: Sequence[Endpoint]) -> PairArray:
    """Return unordered pairs of endpoint numbers, in an order in which many can run at once.

    - ``full``: every pair.
    - ``sampled``: within a node every pair; of every other node `SAMPLES` endpoints each: the one of the same rail, and
      others that shift from node to node.
    - ``quick``: a ring within each node and, for each rail, a ring over the nodes: about two pairs an endpoint.

    Raises:
        ValueError: There is no such mode.
    """
    numbers = [endpoint.number for endpoint in endpoints]
    if mode == "full":
        chosen = None
    elif mode == "sampled":
        chosen = _sampled(endpoints)
    elif mode == "quick":
        chosen = _quick(endpoints)
    else:
        raise ValueError(f"unknown mode {mode!r}; there are {', '.join(MODES)}")
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
    most = max((len(node) for node in nodes), default=0)
    for place in range(most):
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
