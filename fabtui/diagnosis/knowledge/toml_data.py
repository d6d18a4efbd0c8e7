"""Loads the catalogues that lie beside this module as TOML."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any


@functools.cache
def load(name: str) -> dict[str, Any]:
    """Return a catalogue, for example ``errors`` for ``errors.toml``; each file is read once."""
    return tomllib.loads(_text(name))


def entries(name: str, table: str) -> Iterator[dict[str, Any]]:
    """Yield the tables of an array of tables, for example ``error``, one by one: a whole file takes milliseconds."""
    mark = f"[[{table}]]\n"
    for text in _text(name).split(f"\n{mark}")[1:]:
        yield tomllib.loads(mark + text)[table][0]


def _text(name: str) -> str:
    return Path(__file__).with_name(f"{name}.toml").read_text("utf-8")
