"""Catalogues of error messages and next commands, in TOML, and what reads them."""

from __future__ import annotations

import functools
import tomllib
from pathlib import Path
from typing import Any


@functools.cache
def load(name: str) -> dict[str, Any]:
    """Return a catalogue, for example ``errors`` for ``errors.toml``; each file is read once."""
    return tomllib.loads(Path(__file__).with_name(f"{name}.toml").read_text("utf-8"))
