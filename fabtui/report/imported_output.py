"""An imported file as text, and as a section of a report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fabtui.importers.catalogue import formats, is_ours
from fabtui.importers.result import Result
from fabtui.importers.tables import is_matrix
from fabtui.importers.to_model.dispatch import examined, model
from fabtui.pictures.timeline import timeline_scene
from fabtui.report.collectives import sweep_tables
from fabtui.report.document import Block, Items, Lines, Paragraph, Picture, Section, Table
from fabtui.report.explained import reading_blocks
from fabtui.report.summary import summary
from fabtui.report.text import cut, text_lines
from fabtui.sanitize import clean, one_line

#: Maximum number of lines of a file of unknown format.
_RAW_LINES = 20
_LONGEST_RAW = 2000
#: Maximum number of rows of a table; --json has all.
MOST_ROWS = 200
_WIDEST_CELL = 200
#: Longer units are listed below the values.
_LONG_UNIT = 12
#: Columns that identify a row come first.
_IDS = ("gpu", "index", "interface", "ca", "node", "host", "name", "link", "port")
_ID_ENDS = ("name", "node", "rank", "bus", "guid", "kind", "bytes", "src")
_DEEPEST = 8
_NONE = "-"


def text_of(result: Result, width: int, plain: bool = False) -> str:
    """Return the text of a result for the width of a terminal, cleaned, ending in a newline; ``plain``: ASCII only."""
    about = result.kind
    if result.known:
        named = result.title.lower().startswith(result.kind.lower())
        about = result.title if named else f"{result.kind}: {result.title}"
    lines = [f"{one_line(result.source.name)}: {about}"]
    if is_ours(result.kind):
        lines += ["", *summary(examined(result), plain).splitlines()]
        if result.warnings:
            lines += ["", *text_lines([_texts("warnings", result.warnings)], width)]
    else:
        blocks = [*_blocks(result), *reading_blocks(result)]
        # Plain values are shown below the title.
        lines += [] if blocks and isinstance(blocks[0], Table) and not blocks[0].title else [""]
        lines += [f"  {line}" for line in text_lines(blocks, width - 2)]
    text = "\n".join(line.rstrip() for line in lines).rstrip("\n") + "\n"
    return text.encode("ascii", "replace").decode("ascii") if plain else text


def reading_section(result: Result, number: int) -> Section:
    about = f"{result.kind}: {result.title}" if result.known else "format not recognised"
    blocks: list[Block] = [Paragraph(about), *_blocks(result)]
    if diagnosed := text_lines(reading_blocks(result)):
        blocks.append(Lines("diagnosis", diagnosed))
    return Section(f"file-{number}", result.source.name.rpartition("/")[2], blocks)


def _blocks(result: Result) -> Iterator[Block]:
    values = result.values if result.known else {}
    answered = isinstance(values.get("answer"), list)
    hidden = {*formats()[result.kind].hidden, *(("answer", "next") if answered else ())} if result.known else set()
    for name in ("answer", "next") if answered else ():
        if texts := [one_line(str(text)) for text in values.get(name) or ()]:
            yield Items(name, texts, whole=name == "next")
    if timeline := values.get("timeline"):
        yield Picture("timers of the ranks by group", timeline_scene(timeline))
    if result.known and formats()[result.kind].sweeps:
        yield from sweep_tables(model([result]))
    shown = {name: value for name, value in values.items() if name not in hidden}
    yield from value_blocks(shown, result.units)
    units = [f"{name}: {unit}" for name, unit in result.units.items() if len(unit) > _LONG_UNIT]
    for title, texts in (("units", units), ("warnings", result.warnings), ("not understood", result.unknown)):
        if texts:
            yield _texts(title, texts)
    if not result.known and (lines := _raw_lines(result.source.text)):
        yield Items("text", lines, whole=True)


def _texts(title: str, texts: Sequence[str]) -> Items:
    return Items(title, [one_line(text) for text in texts])


def _raw_lines(text: str) -> list[str]:
    every = clean(text[: 64 * 1024]).splitlines()
    more = [f"and {len(every) - _RAW_LINES} more lines"] if len(every) > _RAW_LINES else []
    return [*(cut(line, _LONGEST_RAW) for line in every[:_RAW_LINES]), *more]


def value_blocks(values: dict[str, Any], units: dict[str, str], title: str = "", depth: int = 0) -> Iterator[Block]:
    """Yield the blocks of an object: plain values as a table, then its parts, each with its name; units by name."""
    own = values.get("units")
    if isinstance(own, dict) and all(isinstance(unit, str) for unit in own.values()):
        # Units in the text override those of the format.
        units, values = {**units, **own}, {name: value for name, value in values.items() if name != "units"}
    if is_matrix(values):
        # The whole output is a matrix: other values come first.
        rest = {name: value for name, value in values.items() if name not in ("rows", "columns", "cells")}
        yield from (*value_blocks(rest, units, title, depth), *_part(values, units, title, depth))
        return
    values = {name: values[name] for name in _ids_first(list(values))}
    texts = {name: _fact(name, value, units) for name, value in values.items()}
    shown = {name: text for name, text in texts.items() if text not in (None, _NONE)}
    if facts := [[_words(name), f"{text} {_unit(name, units)}".rstrip()] for name, text in shown.items()]:
        yield Table(title, [["", ""], *facts], (0, 1))
    for name, value in values.items():
        if texts[name] is None and depth < _DEEPEST:
            yield from _part(value, units, f"{title}, {_words(name)}" if title else _words(name), depth)


def _part(value: Any, units: dict[str, str], title: str, depth: int) -> Iterator[Block]:
    if is_matrix(value):
        yield _matrix(value, title)
    elif isinstance(value, dict):
        yield from value_blocks(value, units, title, depth + 1)
    elif not all(isinstance(item, dict) for item in value):
        items = ["  ".join(map(_cell, item)) if isinstance(item, list) else _cell(item) for item in value]
        yield Items(title, [*items[:MOST_ROWS], *_more(value)], whole=True)
    elif value:
        flat = [row for item in value[:MOST_ROWS] if not is_matrix(item) and (row := _flattened(item)) is not None]
        if len(flat) == len(value[:MOST_ROWS]):
            yield _table(flat, units, title, _more(value))
            return
        singular = title[:-1] if title.endswith("s") and not title.endswith("ss") else title
        for number, item in enumerate(value[:MOST_ROWS], 1):
            if is_matrix(item):
                yield from _part(item, units, title, depth)
            else:
                yield from value_blocks(item, units, f"{singular} {number} of {len(value)}", depth + 1)
        yield from map(Paragraph, _more(value))


def _more(items: list[Any]) -> list[str]:
    left = len(items) - MOST_ROWS
    return [f"and {left} more; --json has them all"] if left > 0 else []


def _table(rows: list[dict[str, Any]], units: dict[str, str], title: str, more: list[str]) -> Table:
    every = dict.fromkeys(name for row in rows for name in row)
    names = _ids_first([name for name in every if any(row.get(name) not in (None, [], {}) for row in rows)])
    head = ["\n".join((*map(_words, name.rpartition(".")[::2]), _unit(name, units))) for name in names]
    columns = [_even([_cell(row.get(name), _WIDEST_CELL) for row in rows]) for name in names]
    left = {at for at, name in enumerate(names) if any(isinstance(row.get(name), (str, list)) for row in rows)}
    return Table(title, [head, *zip(*columns, strict=True)], left, more)


def _matrix(value: dict[str, Any], name: str) -> Table:
    title, unit = one_line(str(value.get("title") or name), 200), str(value.get("unit") or "")
    columns = [one_line(str(column), 30) for column in value["columns"]]
    rows = [
        [one_line(str(row), 30), *(_cell(cell, _WIDEST_CELL) for cell in cells)]
        for row, cells in zip(value["rows"], value["cells"], strict=False)
        if isinstance(cells, list) and len(cells) == len(columns)
    ]
    # All numbers of a matrix have the same number of decimals, at most 3.
    most = min(max((_decimals(cell) for row in rows for cell in row[1:] if _is_number(cell)), default=0), 3)
    cells = [[row[0], *(f"{float(cell):.{most}f}" if _is_number(cell) else cell for cell in row[1:])] for row in rows]
    return Table(title if unit in title else f"{title}, {unit}", [["", *columns], *cells], grid=True)


def _fact(name: str, value: Any, units: dict[str, str]) -> str | None:
    if _is_plain(value):
        return _cell(value)
    if isinstance(value, dict) and _is_short(value) and not is_matrix(value):
        shown = [(key, _cell(item)) for key, item in value.items() if item is not None]
        # The unit of the object holds for all its values, and follows them.
        own = {} if _unit(name, units) else {key: _unit(key, units) for key, _ in shown}
        return ", ".join(f"{_words(key)} {text} {own.get(key, '')}".rstrip() for key, text in shown) or _NONE
    if value in ([], {}):
        return _NONE
    return ", ".join(map(_cell, value)) if isinstance(value, list) and all(map(_is_plain, value)) else None


def _unit(name: str, units: dict[str, str]) -> str:
    """Return the unit of a value by its name, or ""; long ones are listed apart."""
    group, _, own = name.rpartition(".")
    unit = units.get(group) or units.get(own, "")
    return unit if len(unit) <= _LONG_UNIT else ""


def _cell(value: Any, limit: int = 2000) -> str:
    if value is None or value == "":
        return _NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.10g}"
    if isinstance(value, dict):
        return f"{len(value)} values"
    if isinstance(value, list):
        return one_line(" ".join(map(_cell, value[:100])), limit) or _NONE
    return one_line(str(value), limit) or _NONE


def _ids_first(names: list[str]) -> list[str]:
    if not names or names[0] in _IDS or names[0].endswith(_ID_ENDS):
        return names
    ids = [name for name in _IDS if name in names]
    return ids + [name for name in names if name not in ids]


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (str, int, float, bool))


def _words(name: str) -> str:
    return one_line(name.replace("_", " "), 60)


def _flattened(item: dict[str, Any]) -> dict[str, Any] | None:
    """Return an object as a table row, small objects in it as columns; None if it is too deep."""
    row: dict[str, Any] = {}
    for name, value in item.items():
        short = isinstance(value, list) and len(value) <= 8 and all(_is_plain(inner) for inner in value)
        if _is_plain(value) or short:
            row[name] = value
        elif isinstance(value, dict) and len(value) <= 8 and all(_is_plain(inner) for inner in value.values()):
            row.update({f"{name}.{inner}": found for inner, found in value.items()})
        elif value in ([], {}):
            row[name] = None
        else:
            return None
    return row if len(row) <= 40 else None


def _is_short(value: dict[str, Any]) -> bool:
    return 0 < len(value) <= 12 and all(_is_plain(item) and len(str(item)) <= 24 for item in value.values())


def _even(cells: list[str]) -> list[str]:
    numbers = [cell for cell in cells if cell != _NONE]
    if not any("." in cell for cell in numbers) or not all(map(_is_number, numbers)):
        return cells
    most = max(map(_decimals, numbers))
    return cells if most > 6 else [cell if cell == _NONE else f"{float(cell):.{most}f}" for cell in cells]


def _is_number(cell: str) -> bool:
    return cell.replace(".", "", 1).isdecimal()


def _decimals(cell: str) -> int:
    return len(cell.partition(".")[2])
