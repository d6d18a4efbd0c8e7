"""Where the grid reads its cells: from a model, through a narrow door, so that a benchmark can stand in for it."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Protocol

from fabtui.fabric.endpoint import PairClass, pair_class
from fabtui.fabric.events import NodeState
from fabtui.fabric.measurement import Layer
from fabtui.fabric.model import Cell, Model
from fabtui.screen.axis import Axis
from fabtui.screen.gridlayout import NUMBER_WIDTH
from fabtui.screen.levels import Glyphs, Slot, cell_text, ratio, short_number, slot_of, transport_of

#: How far a median may move before everything drawn against it is drawn anew at once, as a share of it.
_MEDIAN_STEP = 0.02

#: Cells that are looked at to find the layer's unit.
_LOOKED_FOR_UNIT = 2000

#: The layers in which a pair that could not be tested has no value.
_OF_PAIRS = frozenset({Layer.HEALTH, Layer.P2P, Layer.WORLD, Layer.LATENCY, Layer.TRANSPORT, Layer.CHANGE})

_WELL = frozenset({Slot.GOOD, Slot.FAIR, Slot.LOW})

_CLASSES = (
    PairClass.SAME_NODE,
    PairClass.SAME_RAIL,
    PairClass.CROSS_LEAF,
    PairClass.CROSS_RAIL,
    PairClass.NODE_PAIR,
    PairClass.ONE_NODE,
    PairClass.ALL,
)


class CellSource(Protocol):
    """What the grid draws: an axis, and for each cell a slot of the ramp and a text.

    Attributes:
        axis: The rows and columns.
    """

    axis: Axis

    def row(self, row: int, first: int, last: int, width: int) -> tuple[bytearray, list[str] | None]:
        """Return slots and texts of the cells ``first`` to ``last`` (not included) of a row.

        Each text is exactly ``width`` cells wide. Below `NUMBER_WIDTH` there are none: the slot's glyph is all there is
        room for.
        """

    def cell(self, row: int, column: int, width: int) -> tuple[int, str]:
        """Return slot and text of one cell; the text is of no matter below `NUMBER_WIDTH`."""


class ModelSource:
    """The cells of one layer of a model.

    Args:
        model: The model.
        layer: The layer to begin with.
        glyphs: The characters to draw with.
    """

    def __init__(self, model: Model, layer: Layer, glyphs: Glyphs) -> None:
        self.model = model
        self.layer = layer
        self.glyphs = glyphs
        self.axis = Axis.of_model(model)
        self._axis_key = self._key()
        self._medians: dict[PairClass, float | None] = {}
        self._drawn_with: list[float | None] = []
        self._unit: tuple[str, int | None] | None = None
        self._unit_looked = -1
        #: Cells, by row and column, that have just changed.
        self.flashing: set[tuple[int, int]] = set()
        self.take_medians()

    # -- what changed -------------------------------------------------------------------------------------------------

    def _key(self) -> tuple[object, ...]:
        return (self.model.layout, *(record.state.gone for record in self.model.nodes.values()))

    def axis_changed(self) -> bool:
        """Take over a new axis if there is one, and say so."""
        key = self._key()
        if key == self._axis_key:
            return False
        self._axis_key = key
        self.axis = Axis.of_model(self.model)
        return True

    def read_medians(self) -> tuple[bool, bool]:
        """Compare the class medians and limits with those drawn with; say whether they moved much, and at all.

        What was drawn against them stays true to them until `take_medians`.
        """
        latest = self._measures()
        if latest == self._drawn_with:
            return False, False
        pairs = zip(latest, self._drawn_with, strict=True)
        return any(_far(before, now) for now, before in pairs), True

    def take_medians(self) -> None:
        """Draw against the medians of now."""
        self._drawn_with = self._measures()
        self._medians = dict(zip(_CLASSES, self._drawn_with, strict=False))

    def _measures(self) -> list[float | None]:
        """Return what every cell's colour depends on: the median of each class, then the limit to slow of each."""
        layer = self.layer
        medians = [self.model.median(layer, kind) for kind in _CLASSES]
        return medians + [self.model.limit(layer, kind) for kind in _CLASSES]

    def show(self, layer: Layer) -> None:
        """Show another layer."""
        self.layer = layer
        self._unit = None
        self._unit_looked = -1
        self.take_medians()

    def positions(self, changed: AbstractSet[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return the rows and columns of cells given by endpoint numbers."""
        at = self.axis.position
        return [(at[src], at[dst]) for src, dst in changed if src in at and dst in at]

    # -- cells --------------------------------------------------------------------------------------------------------

    def row(self, row: int, first: int, last: int, width: int) -> tuple[bytearray, list[str] | None]:
        """Return slots and texts of some cells of a row."""
        slots = bytearray(last - first)
        if width < NUMBER_WIDTH:
            for column in range(first, last):
                slots[column - first], _ = self.look(row, column, width)
            return slots, None
        texts = []
        for column in range(first, last):
            slots[column - first], text = self.cell(row, column, width)
            texts.append(text)
        return slots, texts

    def cell(self, row: int, column: int, width: int) -> tuple[int, str]:
        """Return slot and text of one cell."""
        slot, number = self.look(row, column, width)
        return slot, cell_text(slot, number, width, self.glyphs)

    def look(self, row: int, column: int, width: int) -> tuple[Slot, str]:
        """Return slot and number of one cell, the number short enough for a cell of a width."""
        source, target = self.axis.seats[row], self.axis.seats[column]
        if row == column and self.layer is not Layer.BUSBW:
            return (Slot.GONE if source.gone else Slot.DIAGONAL), ""
        gone = source.gone or target.gone
        if source.number is None or target.number is None:
            return (Slot.GONE if gone else Slot.UNTESTED), ""
        cell = self.model.cell(self.layer, source.number, target.number)
        if row == column and cell.measurement is None:
            return Slot.DIAGONAL, ""
        number = "" if cell.value is None or width < NUMBER_WIDTH else short_number(cell.value, min(width - 1, 4))
        slot = self._slot(cell, source.number, target.number)
        if self.model.flapping and slot in _WELL and self.flaps(source.number, target.number):
            slot = Slot.FLAPPING
        if slot is Slot.UNTESTED and self.model.untested and self._could_not(source.number, target.number):
            slot = Slot.SKIPPED
        if self.layer is Layer.TRANSPORT and cell.measurement is not None:
            kind, number = transport_of(cell.text) if cell.text else (Slot.OTHER, "")
            number = number[: width - 1]
            slot = kind if slot in (Slot.GOOD, Slot.FAIR, Slot.LOW, Slot.SLOW) and cell.text else slot
        if self.flashing and (row, column) in self.flashing:
            return Slot.FLASH, number
        if cell.running:
            return Slot.RUNNING, number
        if gone and slot in (Slot.UNTESTED, Slot.GOOD, Slot.FAIR, Slot.LOW):
            return Slot.GONE, number
        return slot, number

    def flaps(self, src: int, dst: int) -> bool:
        """Say whether a pair flaps in the layer, or in health in any."""
        names = str(self.model.endpoints[src]), str(self.model.endpoints[dst])
        layers = (Layer.P2P, Layer.WORLD) if self.layer is Layer.HEALTH else (self.layer,)
        return any((layer, *names) in self.model.flapping for layer in layers)

    def _could_not(self, src: int, dst: int) -> bool:
        """Whether it is known why a pair was not tested."""
        endpoints = self.model.endpoints
        return self.layer in _OF_PAIRS and (str(endpoints[src]), str(endpoints[dst])) in self.model.untested

    def _slot(self, cell: Cell, src: int, dst: int) -> Slot:
        if cell.measurement is None or cell.value is None:
            return slot_of(cell.verdict, None)
        median = self._medians.get(self.class_of(cell, src, dst))
        return slot_of(cell.verdict, ratio(self.layer, cell.value, median))

    def class_of(self, cell: Cell, src: int, dst: int) -> PairClass:
        """Return the class that a cell's value is compared within."""
        if self.layer not in _OF_PAIRS and cell.measurement is not None:
            return self.model.class_of(cell.measurement)
        endpoints = self.model.endpoints
        return pair_class(endpoints[src], endpoints[dst])

    # -- words --------------------------------------------------------------------------------------------------------

    def unit(self) -> tuple[str, int | None]:
        """Return the unit and the message size of the layer's values; "" while there are none."""
        if self._unit is None and self._unit_looked != self.model.version:
            self._unit_looked = self.model.version
            if self.layer in (Layer.HEALTH, Layer.TRANSPORT, Layer.CHANGE):
                return "", None
            count = len(self.model.endpoints)
            for at in range(min(_LOOKED_FOR_UNIT, count * count)):
                found = self.model.measured_for(self.layer, at // count, at % count)
                if found is not None and found.value is not None:
                    self._unit = (found.unit, found.bytes)
                    break
        return self._unit or ("", None)

    def medians(self) -> list[tuple[PairClass, float]]:
        """Return the medians of the layer's classes that have one."""
        found = [(kind, self.model.median(self.layer, kind)) for kind in _CLASSES]
        return [(kind, median) for kind, median in found if median is not None]

    def state_of(self, node: str) -> NodeState | None:
        """Return the state of a node, or None when it is not known."""
        record = self.model.nodes.get(node)
        return None if record is None else record.state


def _far(before: float | None, now: float | None) -> bool:
    if before is None or now is None:
        return before is not now
    return abs(now - before) > _MEDIAN_STEP * abs(before)
