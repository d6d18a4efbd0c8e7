"""Which pairs a sweep tests: all of them, or few that still touch every endpoint, every node pair, every rail."""

from __future__ import annotations

from collections.abc import Sequence

from fabtui.fabric.endpoint import Endpoint
from fabtui.fabric.schedule import circle_rounds

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


def pairs_for(mode: str, endpoints: Sequence[Endpoint]) -> list[tuple[int, int]]:
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
    pairs = []
    for round_ in circle_rounds(len(numbers)):
        for i, j in round_:
            pair = (numbers[i], numbers[j])
            if chosen is None or frozenset(pair) in chosen:
                pairs.append(pair)
    return pairs


def _by_node(endpoints: Sequence[Endpoint]) -> list[list[Endpoint]]:
    nodes: dict[str, list[Endpoint]] = {}
    for endpoint in endpoints:
        nodes.setdefault(endpoint.node, []).append(endpoint)
    return list(nodes.values())


def _ring(numbers: Sequence[int]) -> set[frozenset[int]]:
    if len(numbers) < 2:
        return set()
    return {frozenset((a, b)) for a, b in zip(numbers, [*numbers[1:], numbers[0]], strict=True) if a != b}


def _quick(endpoints: Sequence[Endpoint]) -> set[frozenset[int]]:
    nodes = _by_node(endpoints)
    chosen: set[frozenset[int]] = set()
    for node in nodes:
        chosen |= _ring([endpoint.number for endpoint in node])
    most = max((len(node) for node in nodes), default=0)
    for place in range(most):
        # A node with fewer endpoints takes part in each ring with one of those it has.
        chosen |= _ring([node[place % len(node)].number for node in nodes])
    return chosen


def _sampled(endpoints: Sequence[Endpoint]) -> set[frozenset[int]]:
    nodes = _by_node(endpoints)
    chosen: set[frozenset[int]] = set()
    for at, node in enumerate(nodes):
        chosen |= {frozenset((a.number, b.number)) for a in node for b in node if a.number < b.number}
        for further, other in enumerate(nodes[at + 1 :], 1):
            for place, endpoint in enumerate(node):
                for sample in range(min(SAMPLES, len(other))):
                    # The same rail first; then one that differs from node to node, so that all rails are crossed.
                    shift = 0 if sample == 0 else 1 + (further + sample - 2) % max(1, len(other) - 1)
                    chosen.add(frozenset((endpoint.number, other[(place + shift) % len(other)].number)))
    return chosen
