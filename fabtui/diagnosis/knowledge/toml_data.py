"""Loads the catalogues that lie beside this module as TOML."""

from __future__ import annotations

import functools
import tomllib
from importlib import resources
from typing import Any


@functools.cache
def load(name: str) -> dict[str, Any]:
    """Return a catalogue, for example ``errors`` for ``errors.toml``; each file is read once."""
    return tomllib.loads((resources.files(__package__) / f"{name}.toml").read_text("utf-8"))
