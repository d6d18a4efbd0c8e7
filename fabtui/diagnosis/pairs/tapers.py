"""Tapers: groups of nodes between which all pairs are evenly slower than within the groups."""

from __future__ import annotations

from typing import NamedTuple

from fabtui.model.endpoints import ClassKey, PairClass
from fabtui.model.layers import Layer
from fabtui.model.session_model import Model
from fabtui.nodeset import fold

#: Share of the value within the groups above which a taper is not worth a word.
_NOTABLE = 0.9


class Taper(NamedTuple):
    """A taper.

    Attributes:
        groups: The nodes of both groups, folded; "other nodes" for several.
        share: Usual value between the groups over that within them.
    """

    groups: tuple[str, str]
    share: float


def tapers(model: Model) -> list[Taper]:
    """Return the taper between the leaf switches of a fabric, if pairs between them are notably slower."""
    if len(set(model.leaves.values())) < 2:
        return []
    layer = Layer.P2P if model.median(Layer.P2P, PairClass.SAME_RAIL) is not None else Layer.WORLD
    pairs = ((PairClass.SAME_RAIL, PairClass.CROSS_LEAF), (PairClass.CROSS_RAIL, PairClass.CROSS_RAIL))
    for within, between in pairs:
        for hardware in model.hardware_pairs():
            near = model.median(layer, ClassKey(within, False, hardware))
            far = model.median(layer, ClassKey(between, True, hardware))
            if near and far and far < _NOTABLE * near:
                return [Taper(_groups(model), far / near)]
    return []


def _groups(model: Model) -> tuple[str, str]:
    by_leaf: dict[str, dict[str, None]] = {}
    for end in model.endpoints:
        if (leaf := model.leaves.get(end.number)) is not None:
            by_leaf.setdefault(leaf, {})[end.node] = None
    groups = [fold(list(nodes)) for nodes in by_leaf.values()]
    return (groups[0], groups[1]) if len(groups) == 2 else (f"nodes of {len(groups)} leaf switches", "each other")
