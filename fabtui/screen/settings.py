"""User settings of the screen; importable without Textual."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ScreenSettings:
    """User settings of the screen."""

    #: Name of a theme file or of a Textual theme; None for the default.
    theme: str | None = None
    #: Number of colours of the terminal: ``auto``, ``24`` (bits), ``256``, ``16`` or ``none``.
    colors: str = "auto"
    ascii: bool = False
    #: How the terminal reports what has happened: ``off``, ``bell``, ``osc9`` or ``osc777``.
    notify: str = "off"
    #: Nodes or file as the user named them, for example ``n[060-061]``.
    title: str = ""
    #: File that `e` writes; None for ``fabtui-<UTC time>.csv`` in the working folder.
    csv: Path | None = None
    #: Earlier session to compare with.
    baseline: Path | None = None
    exit_on_end: bool = False
    #: An invalid theme is an error, not only a warning.
    theme_must_be: bool = True
    #: Keys by binding id, from the user's settings.
    keys: Mapping[str, str] = field(default_factory=dict)
    #: Errors in the user's settings, one line each.
    problems: tuple[str, ...] = ()
    #: Path of the user's settings.
    config: Path | None = None
    recorded: bool = False
    #: Name of the view that is opened when the session has begun (`fabtui.screen.context.ViewName`), or "".
    first_view: str = ""
