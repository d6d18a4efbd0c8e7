"""Tables of bandwidths by the number of GPUs, as reports and READMEs have them: HTML, or cells between bars.

Grammar: the first column is the number of GPUs, ranks or nodes; headings of one or two rows name ``busbw`` and
``algbw``, and above them what is compared (``RDMA``, ``NO RDMA``), over several columns (HTML's ``colspan``). A dash or
nothing is a value that is missing. The headings give the unit, or the only one in the text counts.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

from fabtui.importers.to_model import benchmarks
from fabtui_node.parsers.base import Format, Notes, Reading, first_of
from fabtui_node.parsers.lines import number, plain_lines, whole

_TABLE = re.compile(r"<table\b", re.I)
_UNIT = re.compile(r"\b(G[bB]ps|G[bB]it/s|G[bB]/s(?:ec)?)(?!\w)")
_FIRST = re.compile(r"(?:#|number of |num[_ ])?(gpus?|ranks?|nodes?|devices?)", re.I)
_COLLECTIVE = re.compile(r"\b(?:all[-_ ]?(?:reduce|gather|to[-_ ]?all)|reduce[-_ ]?scatter|sendrecv)(?![a-z])", re.I)
_KINDS = ("busbw", "algbw")
#: Maximum numbers of characters of a table of HTML, of its rows and of its columns.
_MOST, _MOST_ROWS, _MOST_COLUMNS = 256 * 1024, 4096, 64


class _Rows(HTMLParser):
    """Collects the cells of HTML tables; a cell over several columns is in each."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self._span = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "tr" and len(self.rows) < _MOST_ROWS:
            self.rows.append([])
        elif tag in ("td", "th") and self.rows:
            span = whole(dict(attrs).get("colspan") or "1") or 1
            self._span = min(max(span, 1), _MOST_COLUMNS - len(self.rows[-1]))
            self.rows[-1] += [""] * self._span

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th", "tr"):
            self._span = 0

    def handle_data(self, data: str) -> None:
        if self._span:
            at = len(self.rows[-1])
            self.rows[-1][at - self._span :] = [cell + data.strip() for cell in self.rows[-1][at - self._span :]]


def _tables(text: str) -> list[list[list[str]]]:
    found = []
    for table in list(_TABLE.finditer(text))[:64]:
        parser = _Rows()
        parser.feed(text[table.start() : table.start() + _MOST].partition("</table>")[0])
        found.append(parser.rows)
    bars: list[list[str]] = []
    for line in [*plain_lines(text), ""]:
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")][:_MOST_COLUMNS]
        if len(cells) > 1 and len(bars) < _MOST_ROWS:
            # The rule below the headings has no cell.
            bars += [] if all(re.fullmatch(r":?-{1,80}:?", cell) for cell in cells) else [cells]
        elif bars:
            found.append(bars)
            bars = []
    return found


def _table(rows: list[list[str]]) -> dict[str, Any] | None:
    """Return a table by GPUs; None if there is no table."""
    start = next((at for at, row in enumerate(rows) if row and whole(row[0]) is not None), len(rows))
    heads = rows[:start][-2:]
    width = max(map(len, heads), default=0)
    first = next((head[0] for head in reversed(heads) if head and head[0]), "")
    by = _FIRST.match(first)
    names = [[head[at] for head in heads if at < len(head)] for at in range(width)]
    columns = [(at, kind, _arm(name, kind)) for at, name in enumerate(names) for kind in _KINDS if _is(kind, name)]
    if by is None or not any(kind == "busbw" for _, kind, _ in columns):
        return None
    found = []
    for row in rows[start:]:
        count = whole(row[0]) if row else None
        if count is None or count <= 0:
            continue
        for arm in dict.fromkeys(arm for _, _, arm in columns):
            cells = {kind: row[at] if at < len(row) else "" for at, kind, name in columns if name == arm}
            found.append({"number": count, "arm": arm, **{kind: number(cells.get(kind, "")) for kind in _KINDS}})
    units = {unit for name in names for part in name for unit in _UNIT.findall(part)}
    return {"by": by[1].lower().rstrip("s") + "s", "unit": units.pop() if len(units) == 1 else None, "rows": found}


def _is(kind: str, name: list[str]) -> bool:
    return any(kind in part.lower() for part in name)


def _arm(name: list[str], kind: str) -> str | None:
    """Return what is compared: the headings without the kind of bandwidth and the unit."""
    parts = [re.sub(rf"(?i)\b{kind}\b", "", _UNIT.sub("", part)).strip(" ()[],:-") for part in name]
    return " ".join(part for part in parts if part) or None


def parse(text: str) -> Reading:
    """Return ``operation``, if the text names one collective, and ``tables``.

    A table has ``by`` (gpus, ranks or nodes), ``unit`` as printed, and ``rows`` of ``busbw`` and ``algbw``.
    """
    notes = Notes()
    tables = [table for rows in _tables(text) if (table := _table(rows)) is not None]
    units = set(_UNIT.findall(text))
    for table in tables:
        table["unit"] = table["unit"] or (next(iter(units)) if len(units) == 1 else None)
        if table["unit"] is None:
            notes.warn("the text gives no unit for the bandwidths, or several")
        if not table["rows"]:
            notes.warn("a table has no rows")
    if not tables:
        notes.warn("no table of bus bandwidths by GPUs")
    named = {re.sub("[^a-z]", "", name.lower()) for name in _COLLECTIVE.findall(text[:_MOST])}
    return notes.reading({"operation": named.pop() if len(named) == 1 else None, "tables": tables})


_LIKELY = first_of(
    (0.9, r"(?i)<t[dh]\b[^<>]{0,200}>[ \t]{0,20}busbw\b"),
    (0.9, r"(?i)^\|?[ \t]{0,20}(?:#|number of )?(?:gpus?|ranks?|nodes?|devices?)[ \t]{0,40}\|.{0,400}\bbusbw\b"),
)
_TITLE = "table of bus bandwidths by the number of GPUs, HTML or with bars"
FORMATS = [Format("busbw-table", _TITLE, _LIKELY, parse, convert=benchmarks.busbw_tables, sweeps=True)]
