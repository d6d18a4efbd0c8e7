"""Level of a cell: its verdict, its share of the usual value and its state, as one of few degrees of severity."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from fabtui.model.layers import Layer, Per
from fabtui.model.measurement import Verdict
from fabtui_node.parsers.nccl.transports import Path, path_of

if TYPE_CHECKING:
    from fabtui.model.session_model import Cell, Model


class Level(IntEnum):
    """Kinds of cells in order of severity; a block of cells has the kind of its worst cell."""

    HIDDEN = 0
    DIAGONAL = 1
    UNTESTED = 2
    P2P = 3
    SHM = 4
    RDMA = 5
    SOCKET = 6
    OTHER = 7
    GOOD = 8
    FAIR = 9
    LOW = 10
    GONE = 11
    SKIPPED = 12
    RUNNING = 13
    INCONCLUSIVE = 14
    FLAPPING = 15
    SLOW = 16
    TIMEOUT = 17
    FAILED = 18
    WRONG = 19


#: Minimum shares of the class median for a good and for a fair cell; below it is low. The verdict decides on slow.
GOOD_FROM = 0.95
FAIR_FROM = 0.85
#: Levels of good values.
FINE = frozenset({Level.GOOD, Level.FAIR, Level.LOW})
BY_VERDICT = {verdict: Level.GOOD if verdict is Verdict.OK else Level[verdict.name] for verdict in Verdict}
BY_PATH = {
    Path.UNKNOWN: Level.OTHER,
    Path.P2P: Level.P2P,
    Path.SHM: Level.SHM,
    Path.TCP: Level.SOCKET,
    Path.RDMA: Level.RDMA,
    Path.GPUDIRECT: Level.RDMA,
    Path.GLOO: Level.SOCKET,
}


class Judged(NamedTuple):
    """A cell with its level and its share of the usual value; no cell where the grid shows none."""

    level: Level
    cell: Cell | None = None
    share: float | None = None


def ratio(layer: Layer, value: float | None, median: float | None) -> float | None:
    """Return a value relative to the median of its class, or None if unknown: 1 is the median, less is worse.

    In the layer ``change``, 1 is unchanged.
    """
    if layer is Layer.CHANGE:
        # Its values are ratios.
        return value
    if value is None or median is None or median <= 0 or value < 0:
        return None
    if layer.spec.less_is_better:
        return median / value if value > 0 else 1.0
    return value / median


def level_of(verdict: Verdict, share: float | None) -> Level:
    """Return the level of a verdict; if it is ok, that of its share of the class median."""
    if verdict is not Verdict.OK or share is None or share >= GOOD_FROM:
        return BY_VERDICT[verdict]
    return Level.FAIR if share >= FAIR_FROM else Level.LOW


def judge(
    model: Model, layer: Layer, src: int, dst: int, lets: Callable[[Model, Cell, int, int], bool] | None = None
) -> Judged:
    """Judge the cell of two endpoint numbers; ``lets`` returns False for a cell that is hidden."""
    ends = model.endpoints
    if src == dst and layer.spec.per is not Per.NODE_PAIR:
        return Judged(Level.DIAGONAL if model.gone(ends[src].node) is None else Level.GONE)
    if layer is Layer.CHANGE and not model.comparable:
        return Judged(Level.UNTESTED)
    cell = model.cell(layer, src, dst)
    if src == dst and cell.measurement is None:
        return Judged(Level.DIAGONAL)
    if lets is not None and not lets(model, cell, src, dst):
        return Judged(Level.HIDDEN)
    share = None
    if cell.measurement is not None and cell.value is not None:
        share = ratio(layer, cell.value, model.usual(cell.measurement))
    level = level_of(cell.verdict, share)
    if level in FINE and model.results.flapping and flaps(model, layer, src, dst):
        level = Level.FLAPPING
    elif layer is Layer.TRANSPORT and level in FINE and cell.text:
        return Judged(BY_PATH[path_of(cell.text)], cell, share)
    elif level is Level.UNTESTED and model.untested and layer.spec.per is Per.ENDPOINT_PAIR:
        # The reason why a pair was not tested is known.
        level = Level.SKIPPED if (str(ends[src]), str(ends[dst])) in model.untested else level
    if cell.running:
        level = Level.RUNNING if cell.measurement is None else level
    elif level <= Level.UNTESTED or level is Level.SKIPPED or level in FINE:
        level = Level.GONE if model.gone(ends[src].node) or model.gone(ends[dst].node) else level
    return Judged(level, cell, share)


def flaps(model: Model, layer: Layer, src: int, dst: int) -> bool:
    """Return True if a pair is flapping in a layer; for health, in any layer."""
    names = str(model.endpoints[src]), str(model.endpoints[dst])
    layers = (Layer.P2P, Layer.WORLD) if layer is Layer.HEALTH else (layer,)
    return any((of, *names) in model.results.flapping for of in layers)
