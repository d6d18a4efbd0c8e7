"""Values of files: times, CSV that no spreadsheet runs, JSON with its schemas, and labels of metrics."""

from __future__ import annotations

import csv
import datetime
import io
import json
import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fabtui.errors import InputError
from fabtui.sanitize import clean

_FORMULA_STARTS = "=+-@\t\r\uff1d\uff0b\uff0d\uff20"
_MARK = "'"
#: Version of each kind of file: its ``format``. A change that readers must know about has a new one, and a new file.
#: 2 of ``session``: ``findings`` is new; findings of ``mesh`` and ``preflight`` have rules and lists of commands.
#: 3: findings have ``id``, ``subject``, ``title`` (was ``text``), ``pairs`` as a list, ``share``, ``confidence`` and
#: ``rivals``.
#: 2 of ``preflight``: findings have rules, facts and lists of commands; ``severity`` was ``verdict``.
#: 2 of ``job``: one form for ``job`` and ``hang``; what Slurm knows is in ``slurm``, rows of nodes are in ``by_node``.
FORMATS = {"session": 3, "preflight": 2, "diff": 1, "planner": 1, "history": 1, "job": 2}
_SCHEMAS = Path(__file__).parent / "schema"
_ADDRESS = "https://raw.githubusercontent.com/fabtui/fabtui/main/fabtui/export/schema/"
_SHARED = "session"
#: Kinds of files whose schemas refer to the shared one.
_REFERRING = ("preflight", "diff", "job")
#: Labels of our own metrics, which a user's label must not replace.
_TAKEN = frozenset(
    (
        *("version", "engine", "layer", "verdict", "class", "bytes", "quantile", "kind", "group", "node", "state"),
        *("severity", "component", "subject", "endpoint", "src", "dst", "job", "instance", "le"),
    )
)
JsonObject = dict[str, Any]
_LABEL = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]{0,63}")


def when(seconds: float) -> str | None:
    """Return a time as ISO 8601 in UTC to the millisecond, or None if unknown."""
    if not seconds:
        return None
    moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def escaped(text: str) -> str:
    """Return a text cell that no spreadsheet runs: an apostrophe precedes what resembles a formula.

    A text that begins with an apostrophe gets a second one, so that `unescaped` restores it exactly.
    """
    first = text.lstrip()[:1]
    risky = text[:1] in ("\t", "\r") or (first != "" and first in _FORMULA_STARTS)
    return _MARK + text if risky or text.startswith(_MARK) else text


def unescaped(text: str) -> str:
    return text[1:] if text.startswith(_MARK) else text


def table_text(columns: Sequence[str], table: Iterable[Iterable[Any]]) -> str:
    """Return a table as CSV; None is an empty cell, and no spreadsheet runs a text as a formula."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([escaped(cell) if isinstance(cell, str) else cell for cell in row] for row in table)
    return text.getvalue()


def address(name: str) -> str:
    return f"{_ADDRESS}{name}-{FORMATS[name]}.json"


def schema(name: str) -> JsonObject:
    """Return the schema (2020-12) of a kind of file (`FORMATS`); those that it refers to are part of it.

    Nothing has to be fetched: a schema that others share is in ``$defs`` with its own ``$id``, as JSON Schema 2020-12
    defines it for compound documents.
    """
    value: JsonObject = json.loads((_SCHEMAS / f"{name}-{FORMATS[name]}.json").read_text("utf-8"))
    return value | {"$defs": {_SHARED: schema(_SHARED)}} if name in _REFERRING else value


def head(kind: str) -> JsonObject:
    """Return the first members of a file of a kind other than ``session`` and ``preflight``."""
    return {"kind": f"fabtui {kind}", "format": FORMATS[kind], "$schema": address(kind)}


def members(one: object, *names: str) -> JsonObject:
    return {name: getattr(one, name) for name in names}


def cleaned_object(value: JsonObject) -> JsonObject:
    return {clean(str(name)): cleaned(item) for name, item in value.items()}


def cleaned(value: Any) -> Any:
    """Return a JSON value with cleaned texts and without numbers that JSON does not have."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return cleaned_object(value)
    if isinstance(value, (list, tuple)):
        return [cleaned(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def json_text(value: JsonObject) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


class Exposition(NamedTuple):
    """Contents of a file of metrics besides the measurements."""

    pairs: bool = False  #: Whether each pair has series of its own; 1,024 endpoints have about a million in each layer.
    labels: tuple[tuple[str, str], ...] = ()  #: Labels that the user adds to every series.

    @classmethod
    def of(cls, pairs: bool, labels: Sequence[str]) -> Exposition:
        """Return the contents that options ask for; InputError for a label that is not a valid ``NAME=VALUE``."""
        values: dict[str, str] = {}
        for text in labels:
            name, equals, value = text.partition("=")
            if not equals or not _LABEL.fullmatch(name):
                raise InputError(f"--prom-label: {text!r}: write NAME=VALUE, such as fabric=rack1")
            if name in _TAKEN or name in values:
                raise InputError(f"--prom-label: the label {name} is in use; choose another name")
            values[name] = value
        return cls(pairs, tuple(values.items()))
