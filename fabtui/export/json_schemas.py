"""Schemas (2020-12) of all JSON files, with their versions, in ``schema/``, and the texts of their values."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from fabtui.sanitize import clean

#: Version of each kind of file: its ``format``. A change that readers must know about has a new one, and a new file.
#: 2 of ``session``: ``findings`` is new; findings of ``mesh`` and ``preflight`` have rules and lists of commands.
#: 3: findings have ``id``, ``subject``, ``title`` (was ``text``), ``pairs`` as a list, ``share``, ``confidence`` and
#: ``rivals``.
#: 2 of ``preflight``: findings have rules, facts and lists of commands; ``severity`` was ``verdict``.
FORMATS = {"session": 3, "preflight": 2, "diff": 1, "planner": 1, "history": 1}
_ADDRESS = "https://raw.githubusercontent.com/fabtui/fabtui/main/fabtui/export/schema/"
_SHARED = "session"
#: Kinds of files whose schemas refer to the shared one.
_REFERRING = ("preflight", "diff")


def address(name: str) -> str:
    return f"{_ADDRESS}{_file(name)}"


def schema(name: str) -> dict[str, Any]:
    """Return the schema of a kind of file (`FORMATS`); those that it refers to are part of it.

    Nothing has to be fetched: a schema that others share is in ``$defs`` with its own ``$id``, as JSON Schema 2020-12
    defines it for compound documents.
    """
    found: dict[str, Any] = _read(name)
    if name in _REFERRING:
        found["$defs"] = {_SHARED: _read(_SHARED)}
    return found


def _read(name: str) -> Any:
    return json.loads((Path(__file__).parent / "schema" / _file(name)).read_text("utf-8"))


def _file(name: str) -> str:
    return f"{name}-{FORMATS[name]}.json"


def cleaned(value: Any) -> Any:
    """Return a JSON value with cleaned texts and without numbers that JSON does not have."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(str(name)): cleaned(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [cleaned(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
