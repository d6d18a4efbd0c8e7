"""How the screen is to look; importable without textual."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ScreenSettings:
    """What the user chose for the screen.

    Attributes:
        theme: The name of a theme file, or of one of Textual's own themes; None for the default.
        colors: How many colours the terminal has: ``auto``, ``24`` (bits), ``256``, ``16`` or ``none``.
        ascii: Draw with ASCII characters alone.
        title: What is looked at, as the user named it, for example ``n[060-061]``.
        csv: Where `e` writes, or None for ``fabtui-<UTC time>.csv`` in the working folder.
        exit_on_end: Leave the screen when the session's run ends.
        theme_must_be: Whether a theme that cannot be used is an error, or only told.
        keys: Keys by the ids of bindings, as the user's settings have them.
        problems: What is wrong in the user's settings, a line each.
        baseline: An earlier session to compare with, or None.
        config: Where those settings lie.
        recorded: Whether the session is recorded.
    """

    theme: str | None = None
    colors: str = "auto"
    ascii: bool = False
    title: str = ""
    csv: Path | None = None
    baseline: Path | None = None
    exit_on_end: bool = False
    theme_must_be: bool = True
    keys: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    config: Path | None = None
    recorded: bool = False
