"""Bandwidth between any two nodes and within each node, from the tests of their endpoints."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fabtui.diagnosis.rank_order import RankOrder, rank_order
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.pair_table import Flags, Floats, Ints, quantile
from fabtui.model.session_model import Model

#: Relation of a `PairTable` across rails.
_CROSS_RAIL = 3


class NodeBandwidth(NamedTuple):
    """Bandwidths of nodes (GB/s), NaN where unknown; rows and columns are nodes."""

    nodes: list[str]  #: Their names, in the order of the session.
    gpus: list[int]  #: Number of endpoints of each node.
    kinds: list[str]  #: Hardware of each node: the name of its GPUs, ``A + B`` for different ones.
    nics: list[int]  #: Number of NICs next to the endpoints of each node; 0 if unknown.
    inter: Floats  #: From the node of a row to the node of a column, over all NICs.
    intra: Floats  #: Median between two endpoints of a node.
    failed: Flags  #: Whether all tests from the node of a row to the node of a column failed or timed out.
    #: Whether all NICs were used at once (all_reduce of two nodes); else one rail times the number of NICs.
    at_once: bool
    #: A measurement behind ``inter``, for its method and message size; None if nothing is known.
    inter_of: Measurement | None
    intra_of: Measurement | None  #: One behind ``intra``.

    def order(self, *, ring: bool = True) -> RankOrder:
        """Return the nodes with a passing test to a second node, in the best order; see `best_order`.

        Neighbours between which nothing passes count as 0 GB/s. A node that is alone is an order.
        """
        linked = np.isfinite(self.inter) | np.isfinite(self.inter.T)
        kept = np.flatnonzero(linked.any(axis=1) | (len(self.nodes) == 1))
        hops = np.fmin(self.inter, self.inter.T)
        hops[self.failed | self.failed.T] = 0.0
        return rank_order(
            [self.nodes[at] for at in kept], hops[np.ix_(kept, kept)], [self.kinds[at] for at in kept], ring=ring
        )


def node_bandwidth(model: Model) -> NodeBandwidth:
    """Return what is known of the bandwidths of all nodes with endpoints.

    The bus bandwidth of all_reduce over two nodes uses all NICs at once. It counts if it is known between all nodes
    between which pairs of endpoints are. Else it is the slowest pair of a rail, times the number of NICs on rails that
    pass.
    """
    ends = [mine for name in model.nodes if (mine := model.table.of_node(name)) and mine[0].kind != "none"]
    nodes = [mine[0].node for mine in ends]
    nics = [len({end.nic if end.rail is None else end.rail for end in mine} - {None}) for mine in ends]
    pairs = _Pairs(model, Layer.P2P, {name: at for at, name in enumerate(nodes)})
    if not pairs.known.any():
        pairs = _Pairs(model, Layer.WORLD, pairs.places)
    one_rail, failed = pairs.between_nodes()
    together, of_groups = _together(model, pairs.places)
    at_once = bool(np.isfinite(together).any() and not (np.isfinite(one_rail) & np.isnan(together)).any())
    return NodeBandwidth(
        nodes,
        [len(mine) for mine in ends],
        [" + ".join(dict.fromkeys(end.name or end.kind for end in mine)) for mine in ends],
        nics,
        together if at_once else one_rail * np.maximum(1, np.minimum.outer(nics, nics)),
        pairs.within_nodes(),
        failed,
        at_once,
        of_groups if at_once else pairs.example(pairs.source != pairs.target),
        pairs.example(pairs.source == pairs.target),
    )


class _Pairs:
    """Pairs of endpoints of a layer, with the numbers of their nodes; ``places`` has these by name."""

    def __init__(self, model: Model, layer: Layer, places: dict[str, int]) -> None:
        table = model.pair_table(layer)
        node = np.array([places.get(end.node, -1) for end in model.endpoints], dtype=np.int64)
        self.places = places
        self.source, self.target = node[table.source], node[table.target]
        self._model, self._table = model, table
        self._values = values_at(model, layer, table.row)
        self.known = np.isfinite(self._values)

    def between_nodes(self) -> tuple[Floats, Flags]:
        """Return the slowest pair of a rail, scaled by the share of such pairs that pass, and where none passes.

        Where no pair of a rail was tested, pairs across rails count.
        """
        shape = (len(self.places), len(self.places))
        found, failed = np.full(shape, np.nan), np.zeros(shape, dtype=bool)
        crossing = self._table.kind == _CROSS_RAIL
        for mine in (crossing, ~crossing):
            mine = mine & (self.source != self.target) & (self.known | self._table.dead)
            slowest, passed, tested = np.full(shape, np.nan), np.zeros(shape), np.zeros(shape)
            at, good = (self.source[mine], self.target[mine]), self.known[mine]
            np.fmin.at(slowest, at, self._values[mine])
            np.add.at(passed, at, good)
            np.add.at(tested, at, 1)
            there = tested > 0
            found[there] = slowest[there] * (passed / np.maximum(tested, 1))[there]
            failed[there] = (passed == 0)[there]
        return found, failed

    def within_nodes(self) -> Floats:
        inside = self.known & (self.source == self.target)
        of_node = [self._values[inside & (self.source == at)] for at in range(len(self.places))]
        return np.array([quantile(values) if len(values) else np.nan for values in of_node])

    def example(self, mine: Flags) -> Measurement | None:
        rows = self._table.row[mine & self.known]
        return self._model.results.store.get(int(rows[0])) if len(rows) else None


def _together(model: Model, places: dict[str, int]) -> tuple[Floats, Measurement | None]:
    found, one = np.full((len(places), len(places)), np.nan), None
    for src, dst in model.pairs_in({Layer.BUSBW}):
        measured = model.latest(Layer.BUSBW, src, dst)
        if src != dst and src in places and dst in places and measured is not None and _passed(measured):
            a, b = places[src], places[dst]
            found[a, b] = found[b, a] = measured.value
            one = one or measured
    return found, one


def _passed(measured: Measurement) -> bool:
    return measured.value is not None and measured.verdict in (Verdict.OK, Verdict.SLOW)


def values_at(model: Model, layer: Layer, rows: Ints) -> Floats:
    """Return the values of rows of a `PairTable`; NaN for rows of a different layer or without a value."""
    shapes, shape_of, values = model.results.store.columns()
    mine = np.array([shape is not None and shape.layer is layer and shape.has_value for shape in shapes], dtype=bool)
    # A view of an array that may still grow would prevent that: the rows are copied.
    found: Floats = np.where(mine[np.array(shape_of)[rows]], np.array(values)[rows], np.nan)
    return found
