"""Grids of a session as text: endpoint by endpoint, or node by node beyond 64 endpoints."""

from __future__ import annotations

import itertools
import shutil
import sys
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

from fabtui.config.values import listed
from fabtui.model.cell_level import FAIR_FROM, GOOD_FROM, ratio
from fabtui.model.endpoints import Endpoint
from fabtui.model.layers import Layer, Per, grid_layers, health_layers
from fabtui.model.measurement import Measurement, Verdict, worst
from fabtui.model.session_model import Model
from fabtui.presentation.cell_levels import SIGNS, transport_style
from fabtui.presentation.numbers import brief_text, percent_text, scales_text, size_text
from fabtui.report.document import Lines
from fabtui.sanitize import one_line

#: Maximum number of endpoints with a row and a column each.
MOST_ENDPOINTS = 64
#: Maximum number of nodes with a row and a column each.
MOST_NODES = 256
#: Width of grids in a pipe or a file.
USUAL_WIDTH = 240
SLOW_MARK = "!"
LEGEND = {sign: word for _, sign, word in SIGNS}
#: Characters of a cell without a number.
GLYPHS = {verdict: sign for verdict, sign, _ in SIGNS if verdict is not Verdict.SLOW}
_ROWS = "a row sends, a column receives"
_SHARES = (
    f"{percent_text(GOOD_FROM)} of the usual value of its class or better",
    f"{percent_text(FAIR_FROM)} or better",
)
_MEANINGS = dict(zip(".98", (*_SHARES, "less, and not slow"), strict=True)) | LEGEND
#: Meanings for layers where less is better.
_RATIOS = (f"up to {1 / GOOD_FROM:.2f} x the usual value of its class", f"up to {1 / FAIR_FROM:.2f} x")
_LESS_MEANINGS = dict(zip(".98", (*_RATIOS, "more than that"), strict=True)) | LEGEND

#: The pairs between two nodes: the worst verdict and the smallest share of the usual value of their class.
Block = tuple[Verdict, float | None]


class Shown(NamedTuple):
    """The grids of a summary (None: all with values; empty: p2p, and world if it differs), and its maximum width.

    Text is wrapped to ``text_width``; None: it is not wrapped.
    """

    layers: tuple[Layer, ...] | None = ()
    width: int = USUAL_WIDTH
    text_width: int | None = None


def shown_from(given: dict[str, Any], everything: bool = False) -> Shown:
    """Return the grids that the arguments request, by default all if ``everything``; InputError for unknown layers."""
    layers = chosen_layers(given["grids"]) if "grids" in given else None if everything else ()
    if not sys.stdout.isatty():
        # In a pipe a line stays whole: programs such as grep read it.
        return Shown(layers, USUAL_WIDTH)
    width = shutil.get_terminal_size((USUAL_WIDTH, 24)).columns
    return Shown(layers, width, width)


def chosen_layers(text: str) -> tuple[Layer, ...] | None:
    """Return the layers of ``--grids``; None for ``all``: those with values. InputError if one is unknown."""
    if text.strip() == "all":
        return None
    return tuple(map(Layer, listed([text], grid_layers(), "--grids", "layer", ", or all")))


def grids(model: Model, layers: Sequence[Layer] | None, dot: str, width: int) -> Iterator[Lines]:
    """Yield the grids of layers (None: those with values); ``dot`` is drawn on the diagonal."""
    shown = layers if layers is not None else [layer for layer in grid_layers() if has_values(model, layer)]
    for layer in shown:
        head, *lines = grid(model, layer, dot, width)
        yield Lines(head, lines)


def has_values(model: Model, layer: Layer) -> bool:
    """Return True if a layer has something to show."""
    if layer is Layer.CHANGE:
        return model.comparable
    if layer is Layer.TRANSPORT:
        return any(m.transport for m in model.measurements(Layer.P2P))
    # The first verdict is enough: a large fabric has hundreds of thousands.
    return bool(model.endpoints) if layer is Layer.HEALTH else any(True for _ in model.verdicts_in(layer))


def grid(model: Model, layer: Layer, dot: str, width: int) -> list[str]:
    """Return the grid of a layer: by endpoint up to 64 endpoints, else by node, as detailed as the width allows."""
    ends = model.rows
    if not ends:
        return [f"{layer}: no endpoints to test"]
    if layer is Layer.CHANGE and not model.comparable:
        return [f"{layer}: nothing to compare with: there is no earlier session or sweep"]
    if len(ends) > MOST_ENDPOINTS:
        return _of_nodes(model, layer, width)
    if layer is not Layer.HEALTH:
        lines = matrix(model, dot, layer)
        if max(map(len, lines)) <= width:
            return [f"{layer}, {unit_text(model, layer)}; {_ROWS}", *lines]
    cells = [[_sign(model, layer, a, b) for b in ends] for a in ends]
    label = max(len(one_line(str(end))) for end in ends)
    pitch = 2 if 2 * len(ends) + len(model.nodes) + label + 3 <= width else 1
    used = {sign for row in cells for sign in row}
    head = f"{layer}, {layer.spec.title}; {_ROWS}"
    return [head, *_signs(ends, cells, pitch), *_meanings(used, layer, width)]


def unit_text(model: Model, layer: Layer) -> str:
    """Return the unit and the message size of a layer, or its title."""
    if layer is Layer.CHANGE:
        return "current value / earlier value"
    found = (m.unit for m in model.measurements(layer) if m.value is not None and m.unit)
    # The first one is enough: a large fabric has hundreds of thousands.
    unit = one_line(next(found, ""), 20)
    if not unit:
        return layer.spec.title
    if layer.spec.less_is_better:
        return f"{unit}, less is better"
    if layer.spec.by_address:
        return unit
    sizes = model.results.sizes(layer)
    return unit + (f" at {size_text(sizes[-1])}" if sizes else "")


def _sign(model: Model, layer: Layer, src: Endpoint, dst: Endpoint) -> str:
    """Return the character of a cell without room for a number."""
    cell = model.cell(layer, src.number, dst.number)
    if cell.measurement is None:
        return " " if src is dst else sign_of(cell.verdict, None)
    share = None if layer is Layer.CHANGE else _share(model, layer, cell.measurement)
    return sign_of(cell.verdict, share)


def sign_of(verdict: Verdict, share: float | None) -> str:
    """Return the character of a verdict; of an ok cell, that of its share of the usual value of its class."""
    if verdict in GLYPHS:
        return GLYPHS[verdict]
    if verdict is Verdict.SLOW:
        return SLOW_MARK
    return "." if share is None or share >= GOOD_FROM else "9" if share >= FAIR_FROM else "8"


def _share(model: Model, layer: Layer, found: Measurement) -> float | None:
    if found.value is None or layer.spec.better is None:
        return None
    return ratio(layer, found.value, model.usual(found))


def _signs(ends: Sequence[Endpoint], cells: list[list[str]], pitch: int) -> list[str]:
    """Return lines with one character per cell and a blank between nodes."""
    gaps = [one.node != before.node for before, one in itertools.pairwise([ends[0], *ends])]
    columns = [at * pitch + gap for at, gap in enumerate(itertools.accumulate(gaps))]
    rows = ["".join(" " * gap + f"{sign:<{pitch}}" for gap, sign in zip(gaps, row, strict=True)) for row in cells]
    return _labelled(ends, [_names(ends, columns)], rows)


def _names(ends: Sequence[Endpoint], columns: Sequence[int]) -> str:
    """Return the names of the nodes, each over its first column; a long name overlaps others and shifts the next."""
    text = ""
    before: str | None = None
    for end, column in zip(ends, columns, strict=True):
        if end.node != before:
            text += " " * max(column - len(text), 1 if text else 0) + one_line(end.node)
            before = end.node
    return text


def _labelled(ends: Sequence[Endpoint], heads: list[str], rows: list[str]) -> list[str]:
    """Return lines of headings, and of rows with the names of their endpoints before them."""
    names = [""] * len(heads) + [one_line(str(end)) for end in ends]
    label = max(map(len, names))
    return [f"  {name:{label}} {text}".rstrip() for name, text in zip(names, [*heads, *rows], strict=True)]


def _meanings(used: Collection[str], layer: Layer, width: int) -> list[str]:
    meanings = _LESS_MEANINGS if layer.spec.less_is_better else _MEANINGS
    lines: list[str] = []
    for sign, word in ({**_MEANINGS, ".": "ok"} if layer.spec.derived else meanings).items():
        text = f"{sign} {word}"
        if sign in used and lines and len(lines[-1]) + 3 + len(text) <= width:
            lines[-1] += f"   {text}"
        elif sign in used:
            lines.append(f"  {text}")
    return lines


def _of_nodes(model: Model, layer: Layer, width: int) -> list[str]:
    """Return the grid of nodes; a cell is the worst pair from one node to the other."""
    names = list(dict.fromkeys(end.node for end in model.endpoints))
    count = len(names)
    if count > MOST_NODES:
        return [f"{layer}: {count} x {count} nodes, too many to print; --csv has all pairs, the app shows them"]
    blocks = _blocks(model, layer)
    nothing = (Verdict.UNTESTED, None)
    label = max(len(one_line(name)) for name in names)
    wide = layer.spec.better is not None and 5 * count + label + 3 <= width
    cells = {(a, b): _shown_block(*blocks.get((a, b), nothing), wide) for a in names for b in names}
    numbers = [f"{at:03d}" for at in range(count)]
    what = f"{len(model.rows)} endpoints, a cell is the worst pair of two nodes"
    lines = [f"{layer}, {layer.spec.title}; {what}; {_ROWS}"]
    if wide:
        lines.append(f"  {'':{label}} " + "".join(f"{number:>4} " for number in numbers).rstrip())
    else:
        lines += [f"  {'':{label}} " + "".join(number[place] for number in numbers) for place in range(3)]
    for name in names:
        row = "".join(_padded_percent(cells[name, other]) if wide else cells[name, other] for other in names)
        lines.append(f"  {one_line(name):{label}} {row}".rstrip())
    lines.append("  columns: the nodes in the order of the rows, from 000")
    used = set("".join(cells.values()))
    if wide:
        used -= set("0123456789")
        lines.append("  numbers: percent of the usual value of its class")
    return lines + _meanings(used, layer, width)


def _padded_percent(cell: str) -> str:
    return f"{cell:>5}" if cell.endswith(SLOW_MARK) and len(cell) > 1 else f"{cell:>4} "


def _shown_block(verdict: Verdict, share: float | None, wide: bool) -> str:
    if not wide or verdict in GLYPHS or share is None:
        return sign_of(verdict, share)
    return f"{min(999, round(100 * share))}{SLOW_MARK if verdict is Verdict.SLOW else ''}"


def _blocks(model: Model, layer: Layer) -> dict[tuple[str, str], Block]:
    """Return the blocks between nodes, from the measurements: there are millions of cells."""
    wanted = health_layers() if layer is Layer.HEALTH else (Layer(layer.spec.shows or layer),)
    found: dict[tuple[str, str], Block] = {}
    for each in wanted:
        if each in model.layers and each.spec.per is Per.ENDPOINT_PAIR:
            for pair, verdict, share in model.node_blocks(each):
                _add_block(found, pair, (verdict, None if layer.spec.better is None else share))
    others = [each for each in wanted if each.spec.per is not Per.ENDPOINT_PAIR]
    for m in model.measurements(*others) if others else ():
        src, dst = _node(model, m.src), _node(model, m.dst)
        if src is None or dst is None:
            continue
        block = (model.verdict(m), None if layer is Layer.HEALTH else _share(model, layer, m))
        for pair in {(src, dst), (dst, src)} if m.layer.spec.per is Per.NODE_PAIR else {(src, dst)}:
            _add_block(found, pair, block)
    return found


def _add_block(found: dict[tuple[str, str], Block], pair: tuple[str, str], block: Block) -> None:
    known = found.get(pair, block)
    shares = [share for share in (known[1], block[1]) if share is not None]
    found[pair] = (worst([known[0], block[0]]), min(shares, default=None))


def _node(model: Model, name: str) -> str | None:
    """Return the node of an endpoint or a node; None for a group such as a rail."""
    number = model.number(name)
    if number is not None:
        return model.endpoints[number].node
    return name if name in model.nodes else None


def matrix(model: Model, diagonal: str, layer: Layer = Layer.P2P) -> list[str]:
    """Return the lines of the grid: two lines of heading, one row per endpoint, and the meanings of its characters."""
    ends = model.rows
    cells = [[cell_text(model, layer, src.number, dst.number, diagonal) for dst in ends] for src in ends]
    width = max(3, *(len(cell.removesuffix(SLOW_MARK)) for row in cells for cell in row))
    # The mark of a slow value is in the gap after its column, so that the digits are aligned.
    slow = any(cell.endswith(SLOW_MARK) for row in cells for cell in row)
    gap = "  " if slow else " "
    names = _names(ends, [at * (width + len(gap)) for at in range(len(ends))])
    indexes = gap.join(f"{'-' if end.kind == 'none' else end.index:>{width}}" for end in ends)
    rows = [(" " if slow else "").join(_padded(cell, width) for cell in row) for row in cells]
    shown_signs = {cell[-1] for row in cells for cell in row}
    used = [f"{sign} {word}" for sign, word in LEGEND.items() if sign in shown_signs]
    scales = scales_text(model.lowest(layer), layer.spec.unit)
    used += [scales] if scales else []
    return _labelled(ends, [names, indexes], rows) + (["  " + "   ".join(used)] if used else [])


def cell_text(model: Model, layer: Layer, src: int, dst: int, diagonal: str) -> str:
    """Return the text of a cell: a value, or the character of a verdict."""
    cell = model.cell(layer, src, dst)
    if src == dst and cell.measurement is None:
        return diagonal
    if cell.verdict in GLYPHS:
        return GLYPHS[cell.verdict]
    if layer is Layer.TRANSPORT:
        return transport_style(cell.text)[1] if cell.text else "-"
    # A change without a ratio is shown as a word.
    text = cell.text if cell.value is None and cell.text else brief_text(cell.value, cell.unit)
    return text + (SLOW_MARK if cell.verdict is Verdict.SLOW else "")


def _padded(cell: str, width: int) -> str:
    mark = SLOW_MARK if cell.endswith(SLOW_MARK) else " "
    return f"{cell.removesuffix(SLOW_MARK):>{width}}{mark}"
