"""The matrix of a layer: who sends to whom, by verdict or by value."""

from __future__ import annotations

from collections.abc import Sequence

from fabtui.errors import InputError
from fabtui.model.layers import Layer, LayerSpec
from fabtui.model.measurement import Verdict
from fabtui.model.session_model import Model
from fabtui.pictures.cells import Cells, cells_of
from fabtui.pictures.heatmap import MODES, Heatmap, Mode, method_text
from fabtui.pictures.png import png
from fabtui.pictures.scene import Scene, label
from fabtui.pictures.svg import svg
from fabtui.presentation.cell_levels import CellStyle, transport_style
from fabtui.presentation.legends import layer_title, meanings
from fabtui.presentation.numbers import spoken_text
from fabtui.sanitize import one_line


def matrix_svg(model: Model, layer: LayerSpec | str, mode: Mode = "verdict", ends: Sequence[int] | None = None) -> str:
    """Return the matrix of a layer as an ``<svg>`` element; arguments as for `matrix_scene`."""
    return svg(matrix_scene(model, layer, mode, ends))


def matrix_png(
    model: Model, layer: LayerSpec | str, mode: Mode = "verdict", ends: Sequence[int] | None = None
) -> bytes:
    """Return the matrix of a layer as a PNG; arguments as for `matrix_scene`."""
    return png(matrix_scene(model, layer, mode, ends))


def matrix_scene(model: Model, layer: LayerSpec | str, mode: Mode, ends: Sequence[int] | None = None) -> Scene:
    """Return the matrix of a layer.

    Args:
        model: The session.
        layer: The layer or its name.
        mode: ``verdict``, or ``value`` for a scale of the values.
        ends: Numbers of the endpoints in the order of the rows; None for all in their own order.

    Raises:
        InputError: The layer has no values, or a name is unknown.
    """
    name = layer.name if isinstance(layer, LayerSpec) else str(layer)
    try:
        known = Layer(name)
    except ValueError:
        raise InputError(f"there is no layer {name[:40]!r}") from None
    if mode not in MODES:
        raise InputError(f"there is no mode {str(mode)[:40]!r}; modes: {', '.join(MODES)}")
    if mode == "value" and known.spec.better is None:
        raise InputError(f"the layer {known} has no values; use the mode verdict")
    return _heatmap(model, known, cells_of(model, known, ends)).scene(mode)


def _heatmap(model: Model, layer: Layer, cells: Cells) -> Heatmap:
    notes = [method_text(cells.method, cells.methods)]
    if not cells.numbers and cells.names:
        notes.append(f"{len(model.rows)} endpoints: a cell is the worst pair of two nodes")
    if model.synthetic or model.lab:
        notes.append("synthetic results, no GPU was tested" if model.synthetic else "from a lab on one machine")
    return Heatmap(
        title=f"{layer}: {layer_title(layer)}",
        names=cells.names,
        groups=cells.nodes,
        slots=cells.slots,
        values=cells.values,
        method=cells.method,
        notes=[note for note in notes if note],
        words=words_of(layer),
        describe=lambda row, column: _describe(model, layer, cells, row, column),
    )


def words_of(layer: Layer) -> list[tuple[CellStyle, str]]:
    """Return the meanings of the verdicts of a layer in the order of a legend."""
    found = [one for one in meanings(layer) if one[0] not in (CellStyle.GOOD, CellStyle.FAIR, CellStyle.LOW)]
    return [*([] if layer is Layer.TRANSPORT else [(CellStyle.GOOD, "ok")]), *found, (CellStyle.UNTESTED, "not tested")]


def _describe(model: Model, layer: Layer, cells: Cells, row: int, column: int) -> str:
    pair = f"{label(cells.names[row])} > {label(cells.names[column])}"
    if not cells.numbers:
        return f"{pair}: worst pair {CellStyle(cells.slots[row, column]).key}"
    cell = model.cell(layer, cells.numbers[row], cells.numbers[column])
    slot = CellStyle(cells.slots[row, column])
    word = slot.key if cell.verdict is Verdict.UNTESTED else str(cell.verdict)
    parts = [word, "" if cell.value is None else spoken_text(cell.value, one_line(cell.unit, 20))]
    if layer is Layer.TRANSPORT and cell.text:
        parts.append(transport_style(cell.text)[1] + f" ({one_line(cell.text, 40)})")
    elif cell.text:
        parts.append(one_line(cell.text, 80))
    if cell.measurement is not None and cell.measurement.error:
        parts.append(one_line(cell.measurement.error, 120))
    return f"{pair}: {', '.join(part for part in parts if part)}"
