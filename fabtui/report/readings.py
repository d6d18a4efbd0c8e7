"""Sections on outputs of other tools that hold no pairs: their values as tables and lists."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fabtui.importers.matrix import is_matrix
from fabtui.importers.result import Result
from fabtui.importers.to_model.dispatch import model
from fabtui.pictures.timeline import timeline_svg
from fabtui.report.document import Block, Items, Lines, Paragraph, Picture, Section, Table
from fabtui.report.imported_output import diagnosis_lines, raw_lines, shown_values
from fabtui.report.session_tables import sweep_blocks
from fabtui.report.tables import MOST_ROWS, Layout, flattened, is_plain, words

_DEEPEST = 8
_UNLIMITED = 10_000


def reading_section(result: Result, number: int) -> Section:
    """Return the section of a file; ``number`` makes its anchor unique."""
    about = f"{result.kind}: {result.title}" if result.known else "format not recognised"
    blocks: list[Block] = [Paragraph(about)]
    for name in ("answer", "next"):
        texts = result.values.get(name) if isinstance(result.values.get("answer"), list) else None
        blocks += [Items(name, [str(text) for text in texts])] if texts else []
    if timeline := result.values.get("timeline"):
        blocks.append(Picture("timers of the ranks by group", timeline_svg(timeline)))
    if result.kind == "busbw-table":
        blocks += sweep_blocks(model([result]))
    blocks += _values(Layout(result.units, _UNLIMITED), shown_values(result), "", 0)
    for title, texts in (("warnings", result.warnings), ("not understood", result.unknown)):
        blocks += [Items(title, texts)] if texts else []
    if diagnosed := diagnosis_lines(result, _UNLIMITED):
        blocks.append(Lines("diagnosis", diagnosed))
    if not result.known:
        blocks.append(Lines("text", raw_lines(result.source.text)))
    return Section(f"file-{number}", result.source.name.rpartition("/")[2], blocks)


def _values(layout: Layout, values: dict[str, Any], title: str, depth: int) -> Iterator[Block]:
    """Yield plain values as a table, then the parts of an object, each with its name."""
    texts = {name: layout.fact(name, value) for name, value in values.items()}
    shown = {name: text for name, text in texts.items() if text not in (None, "-")}
    facts = [[words(name), f"{text} {layout.unit(name)}".strip()] for name, text in shown.items()]
    if facts:
        yield Table(title, [["value", ""], *facts], (0, 1))
    for name, value in values.items():
        label = f"{title}, {words(name)}" if title else words(name)
        if texts[name] is None and depth < _DEEPEST:
            yield from _part(layout, value, label, name, depth)


def _part(layout: Layout, value: Any, title: str, name: str, depth: int) -> Iterator[Block]:
    if is_matrix(value):
        rows = [[str(row), *map(layout.cell, cells)] for row, cells in zip(value["rows"], value["cells"], strict=False)]
        unit = str(value.get("unit") or "")
        label = f"{value.get('title') or title}{f', {unit}' if unit else ''}"
        yield Table(label, [["", *map(str, value["columns"])], *rows], grid=True)
    elif isinstance(value, dict):
        yield from _values(layout, value, title, depth + 1)
    elif value and all(isinstance(item, dict) for item in value):
        flat = [flattened(item) for item in value[:MOST_ROWS]]
        if all(row is not None for row in flat):
            yield _table(layout, [row for row in flat if row is not None], title, len(value))
            return
        for number, item in enumerate(value[:MOST_ROWS], 1):
            yield from _values(layout, item, f"{title} {number} of {len(value)}", depth + 1)
    elif value:
        items = [" ".join(map(layout.cell, item)) if isinstance(item, list) else layout.cell(item) for item in value]
        yield Lines(title, items[:MOST_ROWS])


def _table(layout: Layout, rows: list[dict[str, Any]], title: str, total: int) -> Table:
    names = [
        name for name in dict.fromkeys(name for row in rows for name in row) if any(_known(row, name) for row in rows)
    ]
    head = [f"{words(name)} {layout.unit(name)}".strip() for name in names]
    cells = [[layout.cell(row.get(name), 200) for name in names] for row in rows]
    left = {at for at, name in enumerate(names) if any(isinstance(row.get(name), (str, list)) for row in rows)}
    more = [f"and {total - len(rows)} more; fabtui read --json has them all"] if total > len(rows) else []
    return Table(title, [head, *cells], left | {0}, more)


def _known(row: dict[str, Any], name: str) -> bool:
    value = row.get(name)
    return value is not None if is_plain(value) else bool(value)
