"""Themes and colour ramps, read from the theme files."""

from __future__ import annotations

import contextlib
import tomllib
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from textual.theme import BUILTIN_THEMES

from fabtui.config.values import nearest
from fabtui.errors import InputError
from fabtui.paths import UnsafeFileError, open_strictly, theme_folder, user_theme_folder
from fabtui.screen.themes import styles

Stamp = tuple[int, int, int]

#: Maximum size of a theme file (bytes).
MAX_FILE = 1 << 20

DEFAULT = "dark"
#: Default theme for 16 colours or none.
FEW_COLORS = "ansi"

#: The ramp of each of Rich's colour systems.
RAMP_OF_SYSTEM = {"truecolor": "24", "256": "256", "standard": "16", "windows": "16"}


class ThemeFile(NamedTuple):
    """Content of a theme file."""

    #: Stem of the file name.
    name: str
    title: str
    dark: bool
    #: Uses the terminal's own colours and background.
    ansi: bool
    #: Textual's colours by name, and its design variables.
    colors: dict[str, str]
    variables: dict[str, str]
    #: For each number of colours (``24``, ``256``, ``16``, ``none``) the style of each slot.
    ramps: dict[str, dict[str, str]]


def theme_paths() -> dict[str, Path]:
    """Return the theme files by name: those shipped with fabtui and the user's own, which take precedence."""
    paths = {path.stem: path for path in theme_folder().glob("*.toml")}
    with contextlib.suppress(OSError):
        paths.update({path.stem: path for path in user_theme_folder().glob("*.toml")})
    return dict(sorted(paths.items()))


def theme_names() -> list[str]:
    return list(theme_paths())


def all_theme_names() -> list[str]:
    own = theme_names()
    return [*own, *(name for name in sorted(BUILTIN_THEMES) if name not in own)]


def theme_problem(name: str) -> str | None:
    """Return the error in a theme, or None if it is valid."""
    if name not in theme_paths() and styles.is_builtin(name):
        return None
    try:
        read_theme(name)
    except InputError as error:
        return str(error)
    return None


def read_theme(name: str) -> ThemeFile:
    """Read a theme file by its name; raise `InputError` if it does not exist or is invalid."""
    path = theme_paths().get(name)
    if path is None:
        known = all_theme_names()
        raise InputError(f"there is no theme {name!r}; themes: {', '.join(known)}{nearest(name, known)}")
    return read_theme_file(path)


def stamp_of(path: Path) -> Stamp | None:
    """Return the time of the last change (ns), size and inode of a file; None if it does not exist."""
    try:
        found = path.stat()
    except OSError:
        return None
    # Also of its owner and mode, which change neither its time nor its content.
    return found.st_ctime_ns, found.st_size, found.st_ino


def read_theme_file(path: Path) -> ThemeFile:
    """Read a theme file; cached until the file changes. Raises `InputError` if it is not a theme."""
    return _read(path, stamp_of(path))


@lru_cache(64)
def _read(path: Path, _stamp: Stamp | None) -> ThemeFile:
    own = path.parent != theme_folder()
    try:
        with open(open_strictly(path) if own else path, "rb") as file:
            data = file.read(MAX_FILE + 1)
        if len(data) > MAX_FILE:
            raise ValueError("it is larger than 1 MiB")
        value = tomllib.loads(data.decode())
        theme = ThemeFile(
            name=path.stem,
            title=str(value.get("title", path.stem)),
            dark=bool(value.get("dark", True)),
            ansi=bool(value.get("ansi", False)),
            colors=_texts(value["colors"]),
            variables=_texts(value.get("variables", {})),
            ramps={str(count): _texts(ramp) for count, ramp in value.get("ramp", {}).items()},
        )
        if own:
            # Shipped themes are checked by the tests, not before each first frame.
            styles.check(theme.colors, theme.variables, theme.ramps)
    except UnsafeFileError as error:
        raise InputError(f"the theme file {path} is not used: {error}") from None
    except OSError as error:
        raise InputError(f"the theme file {path} cannot be read: {error.strerror}") from None
    except KeyError as error:
        raise InputError(f"the theme file {path} cannot be used: it has no {error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, AttributeError, ValueError, RecursionError) as error:
        raise InputError(f"the theme file {path} cannot be used: {error}") from None
    return theme


def _texts(table: dict[str, object]) -> dict[str, str]:
    return {key: str(text) for key, text in table.items()}


def ramp_of(theme: str, dark: bool, count: str) -> dict[str, str]:
    """Return the ramp of a theme, by its name or, for one of Textual's own, by its background.

    Missing entries come from the default theme of that background. Cells that are ok are alike, unless a theme of the
    user grades those without a number.
    """
    base = dict(read_theme(DEFAULT).ramps[count])
    if not dark and "light" in theme_names():
        base.update(read_theme("light").ramps.get(count, {}))
    if theme != DEFAULT and theme in theme_names():
        base.update(read_theme(theme).ramps.get(count, {}))
    return {**dict.fromkeys(("fair", "low"), base["good"]), **base}
