"""Texts of logs and commands, from ``texts.json``, with what is made of each."""

import json
from pathlib import Path
from typing import Any

_TABLES: dict[str, list[Any]] = json.loads(Path(__file__).with_name("texts.json").read_text("utf-8"))


def texts(name: str) -> list[Any]:
    """Return the rows of a table: a text alone, or a text and what is made of it."""
    return [tuple(row) if isinstance(row, list) else row for row in _TABLES[name]]
