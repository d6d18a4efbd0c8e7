"""Values in the file of a history that no fabtui wrote: a damaged disk, or another program, left them there."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from fabtui.history.component import PartKind

if TYPE_CHECKING:
    import sqlite3

#: What reading of foreign values raises.
READING_ERRORS = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError)
#: The latest time (epoch seconds) that dates can have, end of the year 9999.
_LATEST = 253_402_300_799.0
#: Types of values, by the declared type of their column.
_TYPES = {"INTEGER": "'integer'", "REAL": "'real', 'integer'", "TEXT": "'text'"}
#: Columns that may have no value.
_OPTIONAL = {("session", "exit"), ("finding", "component"), ("reading", "total")}
#: Conditions of values, by their column.
_WRONG = {
    "kind": f"component.kind NOT IN ({', '.join(repr(str(kind)) for kind in PartKind)})",
    "severity": "severity NOT IN ('bad', 'warn', 'note')",
    "sessions": "sessions < 1",
    **{name: f"{name} NOT BETWEEN 0 AND {_LATEST}" for name in ("started", "ended", "since", "until", "first", "time")},
    "day": f"day NOT BETWEEN 0 AND {_LATEST / 86400}",
}
#: Columns that hold JSON, and what it is.
_JSON: dict[str, type] = {"nodes": list, "verdicts": dict, "versions": dict, "settings": dict}
#: Columns that hold the number of a row of another table.
_NUMBERS = dict.fromkeys(("component", "gpu", "port"), "component")
_NUMBERS |= dict.fromkeys(("place", "counter", "key", "rule", "subject", "title"), "word")


def moment(value: Any) -> float:
    """Return a time (epoch seconds); raise ValueError if dates cannot have it."""
    seconds = float(value)
    if not 0.0 <= seconds <= _LATEST:
        raise ValueError("no time")
    return seconds


@lru_cache(1024)
def mapping(text: Any) -> dict[str, Any]:
    """Return an object of JSON, which stays as it is; raise ValueError if the text is not one."""
    value = json.loads(str(text))
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value


def foreign_column(base: sqlite3.Connection) -> str:
    """Return the column, as ``table.column``, of a value that no fabtui wrote; "" if there is none. Reads all of it."""
    tables = [name for (name,) in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    for table in filter(re.compile(r"[a-z_]+").fullmatch, tables):
        for _, column, kind, *_ in base.execute(f"PRAGMA table_info({table})").fetchall():
            if re.fullmatch("[a-z_]+", column) and _is_foreign(base, table, column, kind):
                return f"{table}.{column}"
    return ""


def _is_foreign(base: sqlite3.Connection, table: str, column: str, kind: str) -> bool:
    optional = (table, column) in _OPTIONAL
    wrong = [f"typeof({column}) NOT IN ({_TYPES.get(kind, repr(''))}{', ' + repr('null') if optional else ''})"]
    if column in _WRONG and (column != "kind" or table == "component"):
        wrong.append(_WRONG[column])
    if column in _NUMBERS and table != "session":
        wrong.append(f"{column} NOT IN (SELECT number FROM {_NUMBERS[column]})")  # noqa: S608  # nosec B608
    # Names are ours, or of plain letters.
    query = f"SELECT 1 FROM {table} WHERE {' OR '.join(wrong)} LIMIT 1"  # noqa: S608  # nosec B608
    if base.execute(query).fetchone() is not None:
        return True
    if table != "session" or column not in _JSON:
        return False
    rows = base.execute(f"SELECT DISTINCT {column} FROM session")  # noqa: S608  # nosec B608
    return any(not _is_json(text, _JSON[column]) for (text,) in rows)


def _is_json(text: str, kind: type) -> bool:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return False
    each = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return isinstance(value, kind) and (kind is dict or all(isinstance(one, str) for one in each))
