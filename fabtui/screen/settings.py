"""User settings of the screen; importable without Textual."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ScreenSettings:
    """User settings of the screen.

    Attributes:
        theme: Name of a theme file or of a Textual theme; None for the default.
        colors: Number of colours of the terminal: ``auto``, ``24`` (bits), ``256``, ``16`` or ``none``.
        ascii: Draw with ASCII characters only.
        title: Nodes or file as the user named them, for example ``n[060-061]``.
        csv: File that `e` writes; None for ``fabtui-<UTC time>.csv`` in the working folder.
        exit_on_end: Exit when the run of the session ends.
        theme_must_be: An invalid theme is an error, not only a warning.
        keys: Keys by binding id, from the user's settings.
        problems: Errors in the user's settings, one line each.
        baseline: Earlier session to compare with, or None.
        config: Path of the user's settings.
        recorded: The session is recorded.
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
