"""Cells of endpoint pairs."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

from fabtui.model.endpoints import PairClass, pair_class
from fabtui.model.events import NodeState
from fabtui.model.layers import Layer, Per
from fabtui.model.session_model import Cell, Model
from fabtui.presentation.cell_levels import Glyphs, Slot, cell_text, ratio, short_number, slot_of, transport_of
from fabtui.screen.grid.axis import Axis
from fabtui.screen.grid.cell_source import CellSource
from fabtui.screen.grid.layout import NUMBER_WIDTH

if TYPE_CHECKING:
    from fabtui.screen.grid.filter import Filter

#: Maximum relative move of a median before all cells are drawn again at once.
_MEDIAN_STEP = 0.02

#: Maximum number of cells searched for the unit of the layer.
_MAX_UNIT_SEARCH = 2000

_FINE = frozenset({Slot.GOOD, Slot.FAIR, Slot.LOW})

_CLASSES = (
    PairClass.SAME_NODE,
    PairClass.SAME_RAIL,
    PairClass.CROSS_LEAF,
    PairClass.CROSS_RAIL,
    PairClass.NODE_PAIR,
    PairClass.ONE_NODE,
    PairClass.ALL,
)


class EndpointCells(CellSource):
    """Cells of one layer of a model, by endpoint.

    Args:
        model: Session model.
        layer: Initial layer.
        glyphs: Characters to draw with.

    Attributes:
        filter: Filter of cells, or None.
        highlighted: Cells, by positions, that changed a moment ago.
    """

    def __init__(self, model: Model, layer: Layer, glyphs: Glyphs) -> None:
        self.model = model
        self.layer = layer
        self.glyphs = glyphs
        super().__init__(Axis.of_model(model))
        self.filter: Filter | None = None
        self._axis_key = self._key()
        self._medians: dict[PairClass, float | None] = {}
        self._drawn_with: list[float | None] = []
        self._unit: tuple[str, int | None] | None = None
        self._unit_version = -1
        self.highlighted: set[tuple[int, int]] = set()
        self.take_medians()

    # -- what changed -------------------------------------------------------------------------------------------------

    def _key(self) -> tuple[object, ...]:
        return (self.model.layout, *(record.state.gone for record in self.model.nodes.values()))

    def axis_changed(self) -> bool:
        """Take over the axis of the model; return True if it changed."""
        key = self._key()
        if key == self._axis_key:
            return False
        self._axis_key = key
        self.axis = Axis.of_model(self.model)
        self.show_in()
        return True

    def read_medians(self) -> tuple[bool, bool]:
        """Return two flags: class medians or limits moved far, and moved at all, since `take_medians`.

        Cells are judged by the earlier medians until then.
        """
        latest = self._measures()
        if latest == self._drawn_with:
            return False, False
        pairs = zip(latest, self._drawn_with, strict=True)
        return any(_far(before, now) for now, before in pairs), True

    def take_medians(self) -> None:
        """Judge cells by the current medians from now on."""
        self._drawn_with = self._measures()
        self._medians = dict(zip(_CLASSES, self._drawn_with, strict=False))

    def _measures(self) -> list[float | None]:
        """Return the median of each class, then the slow limit of each."""
        layer = self.layer
        medians = [self.model.median(layer, kind) for kind in _CLASSES]
        return medians + [self.model.limit(layer, kind) for kind in _CLASSES]

    def show(self, layer: Layer) -> None:
        """Show another layer."""
        self.layer = layer
        self._unit = None
        self._unit_version = -1
        self.take_medians()

    def positions(self, changed: AbstractSet[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return the positions of cells given by endpoint numbers."""
        at = self.axis.position
        return [(at[src], at[dst]) for src, dst in changed if src in at and dst in at]

    # -- cells --------------------------------------------------------------------------------------------------------

    def row(self, row: int, first: int, last: int, width: int) -> tuple[bytearray, list[str] | None]:
        """Return slots and texts of some cells of a row."""
        if width >= NUMBER_WIDTH:
            return super().row(row, first, last, width)
        here, column_at, display = self.row_at[row], self.column_at, self.display
        return bytearray(display(here, column_at[column], width)[0] for column in range(first, last)), None

    def cell(self, row: int, column: int, width: int) -> tuple[int, str]:
        """Return slot and text of one cell."""
        slot, number = self.display(self.row_at[row], self.column_at[column], width)
        return slot, cell_text(slot, number, width, self.glyphs)

    def display(self, row: int, column: int, width: int) -> tuple[Slot, str]:
        """Return slot and number of the cell of two positions; the number fits the width."""
        slot, cell, _ = self.judge(row, column)
        if self.highlighted and (row, column) in self.highlighted:
            slot = Slot.FLASH
        if cell is None or width < NUMBER_WIDTH:
            return slot, ""
        if self.layer is Layer.TRANSPORT and cell.measurement is not None:
            return slot, (transport_of(cell.text)[1] if cell.text else "")[: width - 1]
        return slot, "" if cell.value is None else short_number(cell.value, min(width - 1, 4))

    def judge(self, row: int, column: int) -> tuple[Slot, Cell | None, float | None]:
        """Return slot, cell (if there is one) and share of the class median of two positions."""
        source, target = self.axis.seats[row], self.axis.seats[column]
        if row == column and self.layer.spec.per is not Per.NODE_PAIR:
            return (Slot.GONE if source.gone else Slot.DIAGONAL), None, None
        gone = source.gone or target.gone
        src, dst = source.number, target.number
        if src is None or dst is None:
            return (Slot.GONE if gone else Slot.UNTESTED), None, None
        cell = self.model.cell(self.layer, src, dst)
        if row == column and cell.measurement is None:
            return Slot.DIAGONAL, None, None
        if self.filter is not None and not self.filter.lets(self.model, cell, src, dst):
            return Slot.PAD, None, None
        share = None
        if cell.measurement is None or cell.value is None:
            slot = slot_of(cell.verdict, None)
        else:
            share = ratio(self.layer, cell.value, self._medians.get(self.class_of(cell, src, dst)))
            slot = slot_of(cell.verdict, share)
        if self.model.flapping and slot in _FINE and self.flaps(src, dst):
            slot = Slot.FLAPPING
        if slot is Slot.UNTESTED and self.model.untested and self._could_not(src, dst):
            slot = Slot.SKIPPED
        if self.layer is Layer.TRANSPORT and cell.text and slot in _FINE:
            slot = transport_of(cell.text)[0]
        if cell.running:
            slot = Slot.RUNNING
        elif gone and (slot in (Slot.UNTESTED, Slot.SKIPPED) or slot in _FINE):
            slot = Slot.GONE
        return slot, cell, share

    def flaps(self, src: int, dst: int) -> bool:
        """Return True if a pair is flapping in the layer; for health, in any layer."""
        names = str(self.model.endpoints[src]), str(self.model.endpoints[dst])
        layers = (Layer.P2P, Layer.WORLD) if self.layer is Layer.HEALTH else (self.layer,)
        return any((layer, *names) in self.model.flapping for layer in layers)

    def _could_not(self, src: int, dst: int) -> bool:
        """Return True if the reason why a pair was not tested is known."""
        endpoints = self.model.endpoints
        return (
            self.layer.spec.per is Per.ENDPOINT_PAIR
            and (str(endpoints[src]), str(endpoints[dst])) in self.model.untested
        )

    def class_of(self, cell: Cell, src: int, dst: int) -> PairClass:
        """Return the class whose median a cell is compared with."""
        if self.layer.spec.per is not Per.ENDPOINT_PAIR and cell.measurement is not None:
            return self.model.class_of(cell.measurement)
        endpoints = self.model.endpoints
        return pair_class(endpoints[src], endpoints[dst])

    # -- texts --------------------------------------------------------------------------------------------------------

    def unit(self) -> tuple[str, int | None]:
        """Return unit and message size of the values of the layer; the unit is "" while there are none."""
        if self._unit is None and self._unit_version != self.model.version:
            self._unit_version = self.model.version
            if self.layer.spec.derived:
                return "", None
            count = len(self.model.endpoints)
            for at in range(min(_MAX_UNIT_SEARCH, count * count)):
                found = self.model.measured_for(self.layer, at // count, at % count)
                if found is not None and found.value is not None:
                    self._unit = (found.unit, found.asked_bytes)
                    break
        return self._unit or ("", None)

    def medians(self) -> list[tuple[PairClass, float]]:
        """Return the class medians of the layer."""
        found = [(kind, self.model.median(self.layer, kind)) for kind in _CLASSES]
        return [(kind, median) for kind, median in found if median is not None]

    def state_of(self, node: str) -> NodeState | None:
        """Return the state of a node, or None if it is unknown."""
        record = self.model.nodes.get(node)
        return None if record is None else record.state


def _far(before: float | None, now: float | None) -> bool:
    if before is None or now is None:
        return before is not now
    return abs(now - before) > _MEDIAN_STEP * abs(before)
