"""An imported file as text, and as a section of a report."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fabtui.importers.catalogue import formats
from fabtui.importers.matrix import is_matrix
from fabtui.importers.result import Result
from fabtui.importers.to_model.dispatch import errors_in, examined, model
from fabtui.pictures.timeline import timeline_svg
from fabtui.presentation.cell_levels import ASCII, UNICODE
from fabtui.report.collectives import sweep_tables
from fabtui.report.document import Block, Items, Lines, Paragraph, Picture, Section, Table
from fabtui.report.explanation import causes_lines
from fabtui.report.problems import problems
from fabtui.report.summary import summary
from fabtui.report.tables import LONG_UNIT, MOST_ROWS, Layout, flattened, is_plain, words
from fabtui.report.text import cut, text_lines, wrapped
from fabtui.sanitize import clean, one_line

#: Maximum number of lines of a file of unknown format.
_RAW_LINES = 20
#: Minimum width of the causes in a log.
_NARROWEST = 40


def text_of(result: Result, width: int, plain: bool = False) -> str:
    """Return the text of a result for the width of a terminal, cleaned, ending in a newline; ``plain``: ASCII only."""
    about = result.kind
    if result.known:
        named = result.title.lower().startswith(result.kind.lower())
        about = result.title if named else f"{result.kind}: {result.title}"
    lines = [f"{one_line(result.source.name)}: {about}"]
    if result.kind.startswith("fabtui-"):
        lines += ["", *summary(examined(result), plain).splitlines()]
    elif result.known:
        answered = result.values if isinstance(result.values.get("answer"), list) else {}
        lines += _section("answer", [str(sentence) for sentence in answered.get("answer", [])], width)
        lines += _section("next", [str(command) for command in answered.get("next", [])], width)
        lines += [""] if answered else []
        lines += Layout(result.units, width).lines(shown_values(result))
        long_units = [f"{name}: {unit}" for name, unit in result.units.items() if len(unit) > LONG_UNIT]
        lines += _section("units", long_units, width)
    lines += _section("warnings", result.warnings, width)
    lines += _section("not understood", result.unknown, width)
    if result.known and not result.kind.startswith("fabtui-"):
        diagnosed = [f"  {line}" for line in diagnosis_lines(result, width - 2, plain)]
        lines += ["", *diagnosed] if diagnosed else []
    if not result.known:
        lines += _raw(result.source.text, width)
    text = "\n".join(line.rstrip() for line in lines) + "\n"
    return text.encode("ascii", "replace").decode("ascii") if plain else text


def shown_values(result: Result) -> dict[str, Any]:
    """Return the values of a result without those that are shown apart, or that only ``--json`` has."""
    answered = isinstance(result.values.get("answer"), list)
    left_out = (*(formats()[result.kind].hidden if result.known else ()), *(("answer", "next") if answered else ()))
    return {name: value for name, value in result.values.items() if name not in left_out}


def diagnosis_lines(result: Result, width: int, plain: bool = False) -> list[str]:
    """Return the problems that an output shows: as in the summary of a session, and as ``fabtui explain`` of a log."""
    found, errors = examined(result), errors_in(result)
    parts = [text_lines(problems(found, ASCII if plain else UNICODE))]
    if errors.causes or errors.notices:
        parts.append(causes_lines(errors._replace(unknown=[]), [""], max(width, _NARROWEST)))
    return [cut(line, width) for part in parts if part for line in ["", *part]][1:]


def _section(title: str, texts: list[str], width: int) -> list[str]:
    lines = [line for text in texts for line in wrapped("    ", one_line(text), width)]
    return ["", f"  {title}", *lines] if texts else []


def raw_lines(text: str) -> list[str]:
    """Return the first lines of a text of unknown format, cleaned."""
    every = clean(text[: 64 * 1024]).splitlines()
    more = [f"and {len(every) - _RAW_LINES} more lines"] if len(every) > _RAW_LINES else []
    return [*every[:_RAW_LINES], *more]


def _raw(text: str, width: int) -> list[str]:
    shown = [f"    {line[: max(width - 4, 40)]}" for line in raw_lines(text)]
    return ["", "  text", *shown] if shown else []


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
        blocks += sweep_tables(model([result]))
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
