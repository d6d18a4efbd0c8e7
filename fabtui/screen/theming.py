"""Themes and colour ramps, read from the theme files."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fabtui.data import theme_folder
from fabtui.fabric.errors import InputError

if TYPE_CHECKING:
    from textual.theme import Theme

DEFAULT = "dark"
#: What carries the screen where there are sixteen colours or none.
FEW_COLORS = "ansi"

#: The ramp of each of Rich's colour systems.
RAMP_OF_SYSTEM = {"truecolor": "24", "256": "256", "standard": "16", "windows": "16"}


@dataclass(frozen=True, slots=True)
class ThemeFile:
    """A theme as its file says it.

    Attributes:
        name: The file's stem, which is what users call it.
        title: One line for users.
        dark: Whether its background is dark.
        ansi: Whether it uses the terminal's own colours and background.
        colors: Textual's colours by name.
        variables: Textual's design variables.
        ramps: For each number of colours (``24``, ``256``, ``16``, ``none``) the style of each slot.
    """

    name: str
    title: str
    dark: bool
    ansi: bool
    colors: dict[str, str]
    variables: dict[str, str]
    ramps: dict[str, dict[str, str]]

    def to_textual(self) -> Theme:
        """Return it as a theme that Textual can register."""
        from textual.theme import Theme

        return Theme(name=self.name, dark=self.dark, ansi=self.ansi, variables=self.variables, **_colors(self.colors))


def _colors(colors: dict[str, str]) -> dict[str, Any]:
    return dict(colors)


def theme_names() -> list[str]:
    """Return the names of the theme files."""
    return sorted(path.stem for path in theme_folder().glob("*.toml"))


def read_theme(name: str) -> ThemeFile:
    """Read a theme file by its name.

    Raises:
        InputError: There is no such theme, or its file is not one.
    """
    path = theme_folder() / f"{name}.toml"
    if name not in theme_names():
        raise InputError(f"there is no theme {name!r}; themes: {', '.join(theme_names())}")
    return read_theme_file(path)


@lru_cache
def read_theme_file(path: Path) -> ThemeFile:
    """Read a theme file.

    Raises:
        InputError: It cannot be read, or is not a theme.
    """
    try:
        value = tomllib.loads(path.read_text(encoding="utf-8"))
        return ThemeFile(
            name=path.stem,
            title=str(value.get("title", path.stem)),
            dark=bool(value.get("dark", True)),
            ansi=bool(value.get("ansi", False)),
            colors={key: str(text) for key, text in value["colors"].items()},
            variables={key: str(text) for key, text in value.get("variables", {}).items()},
            ramps={
                str(count): {key: str(text) for key, text in ramp.items()}
                for count, ramp in value.get("ramp", {}).items()
            },
        )
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError, KeyError, AttributeError) as error:
        raise InputError(f"the theme file {path} cannot be used: {error}") from None


def ramp_of(theme: str, dark: bool, count: str) -> dict[str, str]:
    """Return the ramp of a theme for a number of colours; what its file lacks is taken from the default's.

    Args:
        theme: The theme's name; it may be one of Textual's own, which have no ramp.
        dark: Whether that theme is dark.
        count: ``24``, ``256``, ``16`` or ``none``.
    """
    base = dict(read_theme(DEFAULT).ramps[count])
    if not dark and "light" in theme_names():
        base.update(read_theme("light").ramps.get(count, {}))
    if theme in theme_names():
        base.update(read_theme(theme).ramps.get(count, {}))
    return base
