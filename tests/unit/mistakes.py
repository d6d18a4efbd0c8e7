"""Mistakes of users, from ``mistakes.toml``: what they typed, and words of the line that reports it."""

import functools
import tomllib
from pathlib import Path


@functools.cache
def _tables() -> dict[str, list[tuple[str, str]]]:
    tables = tomllib.loads(Path(__file__).with_name("mistakes.toml").read_text("utf-8"))
    return {name: [(typed, words) for typed, words in rows] for name, rows in tables.items()}


def mistakes(name: str) -> list[tuple[str, str]]:
    """Return the mistakes of a table, each with words of the line that reports it."""
    return _tables()[name]
