"""Places of endpoints as arrays, and the classes of pairs of them."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fabtui.model.endpoints import PAIR_CLASSES, ClassKey, EndpointTable, address_order
from fabtui.model.measurement import Verdict
from fabtui.model.measurement_store import MeasurementStore

if TYPE_CHECKING:
    Ints = np.ndarray[Any, np.dtype[np.signedinteger[Any]]]


@dataclass(slots=True)
class Places:
    """Places of endpoints, by number: node, rail, leaf, NUMA half, NVLink domain and hardware; -1 where unknown."""

    nodes: list[str]  #: Names of the nodes, by the numbers in ``node``.
    node: Ints
    rail: Ints
    leaf: Ints
    half: Ints
    domain: Ints
    hardware: Ints
    order: Ints  #: Order of the addresses of CPU ranks with a rail.

    @classmethod
    def of(cls, table: EndpointTable) -> Places:
        nodes: dict[str, int] = {}
        leaves: dict[str, int] = {}
        domains: dict[str, int] = {}
        node = [nodes.setdefault(end.node, len(nodes)) for end in table.endpoints]
        rail = [end.index if end.rail is None else end.rail for end in table.endpoints]
        leaf = [
            -1 if (name := table.leaves.get(end.number)) is None else leaves.setdefault(name, len(leaves))
            for end in table.endpoints
        ]
        half = [table.halves.get(end.number, -1) for end in table.endpoints]
        domain = [
            -1 if (name := table.domains.get(end.number)) is None else domains.setdefault(name, len(domains))
            for end in table.endpoints
        ]
        sockets = {end.number: address_order(end.address or "") for end in table.endpoints if end.by_sockets}
        ranks = {address: at for at, address in enumerate(sorted(set(sockets.values())))}
        order = [ranks[sockets[end.number]] if end.number in sockets else -1 for end in table.endpoints]
        columns = (node, rail, leaf, half, domain, table.hardware, order)
        return cls(list(nodes), *(np.array(column, dtype=np.int32) for column in columns))

    def carriers(self, source: Ints, target: Ints) -> tuple[Ints, Ints]:
        """Return the endpoints over whose NICs the data of pairs goes, see `EndpointTable.carriers`."""
        first, second = self.order[source], self.order[target]
        moved = (first >= 0) & (second >= 0) & (self.node[source] != self.node[target])
        moved &= self.rail[source] != self.rail[target]
        if not moved.any():
            return source, target
        names, rails = np.unique(self.rail, return_inverse=True)
        rail = np.where(first < second, rails[source], rails[target])
        # The first endpoint of each node on each rail.
        first_of = np.full((len(self.nodes), len(names)), -1)
        numbers = np.arange(len(self.node))[::-1]
        first_of[self.node[numbers], rails[numbers]] = numbers
        there, back = (np.where(moved, first_of[self.node[ends], rail], ends) for ends in (source, target))
        return np.where(there < 0, source, there), np.where(back < 0, target, back)

    def classes(self, source: Ints, target: Ints) -> tuple[Ints, Ints]:
        """Return the relation of pairs, as in `relations`, and a number of the class of each, for `key`."""
        size = self._kinds()
        kind, apart = relations(self, source, target)
        one, other = self.hardware[source], self.hardware[target]
        return kind, ((kind * 2 + apart) * size + np.minimum(one, other)) * size + np.maximum(one, other)

    def key(self, number: int) -> ClassKey:
        rest, second = divmod(number, self._kinds())
        rest, first = divmod(rest, self._kinds())
        return ClassKey(PAIR_CLASSES[rest // 2], bool(rest % 2), (first, second))

    def _kinds(self) -> int:
        return int(self.hardware.max(initial=0)) + 1


def relations(places: Places, source: Ints, target: Ints) -> tuple[Ints, Ints]:
    """Return the relation of pairs, a place in `PAIR_CLASSES`, and whether they are apart, as in `ClassKey`."""
    same_node = places.node[source] == places.node[target]
    sockets = (places.order[source] >= 0) & (places.order[target] >= 0)
    same_rail = (places.rail[source] == places.rail[target]) | sockets
    leaf, other_leaf = places.leaf[source], places.leaf[target]
    half, other_half = places.half[source], places.half[target]
    apart_leaf = (leaf >= 0) & (other_leaf >= 0) & (leaf != other_leaf)
    apart_half = (half >= 0) & (other_half >= 0) & (half != other_half)
    together = (places.domain[source] >= 0) & (places.domain[source] == places.domain[target]) & ~same_node
    kind = np.where(same_node, 0, np.where(together, 4, np.where(~same_rail, 3, np.where(apart_leaf, 2, 1))))
    return kind, np.where(same_node, apart_half, apart_leaf & ~together).astype(np.int32)


def endpoints_of_ends(store: MeasurementStore, table: EndpointTable) -> Ints:
    numbers = [table.number(name) for name in store.end_names()]
    return np.array([-1 if number is None else number for number in numbers], dtype=np.int32)


def picked_ends(store: MeasurementStore, endpoints: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """Return the endpoints of rows, their sources and their destinations, see `endpoints_of_ends`."""
    # A lasting view of an array that may still grow would prevent that; picking copies.
    source, target = (endpoints[np.frombuffer(column, column.typecode)[rows]] for column in store.end_columns)
    return source, target


def values_by_class(
    store: MeasurementStore, table: EndpointTable, places: Places, rows: array[int]
) -> Iterator[tuple[ClassKey, list[float]]]:
    """Yield each class of some rows, in the order of its first row, and its good values."""
    shapes, shape_of, value_of = store.columns()
    chosen = np.array(rows, dtype=np.int64)
    numbers, which = np.unique(np.frombuffer(shape_of, shape_of.typecode)[chosen], return_inverse=True)
    used = [shapes[number] for number in numbers.tolist()]
    good = np.array([one is not None and one.verdict is Verdict.OK and one.has_value for one in used])[which]
    values = np.frombuffer(value_of)[chosen]
    source, target = picked_ends(store, endpoints_of_ends(store, table), chosen)
    known = (source >= 0) & (target >= 0)
    code = places.classes(source[known], target[known])[1]
    _, first, which = np.unique(code, return_index=True, return_inverse=True)
    for at in np.argsort(first).tolist():
        yield places.key(int(code[first[at]])), values[known][(which == at) & good[known]].tolist()
    for at in np.flatnonzero(~known).tolist():
        yield table.key_between(*store.ends(rows[at])), values[at : at + 1][good[at : at + 1]].tolist()
