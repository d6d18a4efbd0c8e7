"""Themes and colour ramps: their files and checks, styles of cells for other widgets, and the choice of one."""

from __future__ import annotations

import contextlib
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rich.color import Color as RichColor
from rich.errors import StyleSyntaxError
from rich.style import Style
from textual.app import App
from textual.color import Color, ColorParseError
from textual.theme import BUILTIN_THEMES, Theme

from fabtui.config.values import nearest
from fabtui.errors import InputError
from fabtui.paths import UnsafeFileError, open_strictly, theme_folder, user_theme_folder
from fabtui.presentation.cell_levels import CellStyle
from fabtui.sanitize import one_line
from fabtui.screen.context import ScreenSettings

#: Names of Textual's colours.
COLORS = (
    *("primary", "secondary", "accent", "warning", "error", "success"),
    *("foreground", "background", "surface", "panel", "boost"),
)
#: Names of ramps: numbers of colours.
COLOR_COUNTS = ("24", "256", "16", "none")

#: Words of a style of text.
_TEXT_STYLES = {
    "none",
    "not",
    "bold",
    "b",
    "dim",
    "d",
    "italic",
    "i",
    "underline",
    "u",
    "reverse",
    "r",
    "strike",
    "blink",
}
#: Share of a colour, as in ``auto 87%``.
_SHARE = re.compile(r"(?<=\S)\s+\d{1,3}(\.\d+)?%")


def check(colors: Mapping[str, str], variables: Mapping[str, str], ramps: Mapping[str, Mapping[str, str]]) -> None:
    for name, text in colors.items():
        if name not in COLORS:
            raise ValueError(f"unknown colour {name!r} in [colors]{nearest(name, COLORS)}")
        try:
            Color.parse(text)
        except ColorParseError:
            raise ValueError(f"{name} = {text!r} in [colors] is not a colour") from None
    if "primary" not in colors:
        raise ValueError("[colors] has no primary")
    for name, text in variables.items():
        # Anything else would be parsed as a part of the style sheet, and end the app.
        if not re.fullmatch(r"[a-z][a-z0-9-]*", name):
            raise ValueError(f"{name!r} in [variables] is not the name of a variable")
        if not (
            (text.split() and _TEXT_STYLES.issuperset(text.split())) if "style" in name.split("-") else _is_color(text)
        ):
            kind = "text style" if "style" in name.split("-") else "colour"
            raise ValueError(f"{name} = {text!r} in [variables] is not a {kind}")
    slots = [slot.key for slot in CellStyle if slot is not CellStyle.PAD]
    for count, ramp in ramps.items():
        if count not in COLOR_COUNTS:
            raise ValueError(f"unknown ramp [ramp.{count}]; there are {', '.join(COLOR_COUNTS)}")
        for name, text in ramp.items():
            if name not in slots:
                raise ValueError(f"unknown slot {name!r} in [ramp.{count}]{nearest(name, slots)}")
            try:
                Style.parse(text or "none")
            except StyleSyntaxError:
                raise ValueError(f"{name} = {text!r} in [ramp.{count}] is not a style") from None


def _is_color(text: str) -> bool:
    try:
        return text == "initial" or Color.parse(_SHARE.sub("", text, count=1)) is not None
    except ColorParseError:
        return False


#: Minimum contrast of a tone with the background.
_CONTRAST = 4.5
#: Step towards white or black until a tone has that contrast.
_STEP = 0.03
_ATTRIBUTES = ("bold", "dim", "italic", "underline", "reverse")
#: Style with neither text colour nor fill: a variable cannot be empty.
_NO_STYLE = "not bold"


def cell_variables(ramp: Mapping[str, str], full: Mapping[str, str], theme: Mapping[str, str]) -> dict[str, str]:
    """Return ``cell-SLOT`` and ``tone-SLOT``, its colour as text; ``full``: ramp for tones on a background in RGB."""
    background = theme["background"]
    shades = ramp if background.startswith("ansi_") else full
    return {
        **{f"cell-{name}": _words(Style.parse(text or "none")) for name, text in ramp.items()},
        **{f"tone-{name}": _tone(text, shades["good"], background) for name, text in shades.items()},
    }


def _tone(text: str, good: str, background: str) -> str:
    style = Style.parse(text or "none")
    # A cell that is filled as a good one, or without a hue, differs by its text.
    same = style.bgcolor == Style.parse(good or "none").bgcolor and text != good
    by_text = same or style.bgcolor is None or (_is_grey(style.bgcolor) and style.color and not _is_grey(style.color))
    tone = style.color if by_text else style.bgcolor
    return "auto" if tone is None else _readable(_name(tone), background)


def _is_grey(color: RichColor) -> bool:
    return len(set(color.get_truecolor())) == 1


def _words(style: Style) -> str:
    words = [name for name in _ATTRIBUTES if getattr(style, name)]
    words += [_name(style.color)] if style.color is not None else []
    words += ["on", _name(style.bgcolor)] if style.bgcolor is not None else []
    return " ".join(words) or _NO_STYLE


def _name(color: RichColor) -> str:
    """Return a colour as Textual names it: the terminal's sixteen by name, all others in RGB."""
    if color.number is not None and color.number < 16:
        return f"ansi_{color.name}"
    return color.get_truecolor().hex


def _readable(name: str, background: str) -> str:
    """Return a colour, brighter or darker if it cannot be read on a background; terminals choose their own sixteen."""
    if name.startswith("ansi_") or background.startswith("ansi_"):
        return name
    color, behind = Color.parse(name), Color.parse(background)
    away = Color.parse("white" if behind.brightness < 0.5 else "black")
    share = 0.0
    while _contrast(color, behind) < _CONTRAST and share < 1:
        share += _STEP
        color = Color.parse(name).blend(away, share)
    return color.hex


def _contrast(one: Color, other: Color) -> float:
    """Return the contrast of two colours (WCAG 2): 1 to 21."""
    dark, light = sorted(map(_luminance, (one, other)))
    return (light + 0.05) / (dark + 0.05)


def _luminance(color: Color) -> float:
    red, green, blue = (v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in color.normalized)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


#: Maximum size of a theme file (bytes).
MAX_FILE = 1 << 20

DEFAULT = "dark"
#: Default theme for 16 colours or none.
FEW_COLORS = "ansi"

#: The ramp of each of Rich's colour systems.
RAMP_OF_SYSTEM = {"truecolor": "24", "256": "256", "standard": "16", "windows": "16"}


class ThemeFile(NamedTuple):
    """Content of a theme file."""

    name: str  #: Stem of the file name.
    title: str
    dark: bool
    ansi: bool  #: Uses the terminal's own colours and background.
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
    if name not in theme_paths() and name in BUILTIN_THEMES:
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


def read_theme_file(path: Path) -> ThemeFile:
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
            check(theme.colors, theme.variables, theme.ramps)
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
    elif theme != DEFAULT and dark:
        # Some backgrounds of Textual's themes are about as blue as a calm healthy cell.
        base["good"] = read_theme("high-contrast").ramps[count]["good"]
    return {**dict.fromkeys(("fair", "low"), base["good"]), **base}


class ThemeChoice:
    """Registers themes with an app, and uses one of them."""

    def __init__(self, app: App[Any], settings: ScreenSettings, color_count: str) -> None:
        self._app = app
        self._settings = settings
        self._default = FEW_COLORS if color_count in ("16", "none") else DEFAULT

    def choose(self) -> str | None:
        """Use the theme of the settings, else the default and return the error; on the command line, raise it."""
        try:
            self.use(self._settings.theme)
        except InputError as error:
            if self._settings.theme_must_be:
                raise
            self.use(None)
            return str(error)
        return None

    def use(self, name: str | None) -> None:
        """Use a theme, None: the default; raise `InputError` if there is none of that name."""
        name = name or self._default
        if name in theme_names():
            self._app.register_theme(textual_theme(read_theme(name)))
        elif name not in self._app.available_themes:
            read_theme(name)
        self._app.theme = name

    def register_all(self) -> None:
        """Register all theme files, so that they can be chosen; the user learns which cannot be used."""
        for name in theme_names():
            if name not in self._app.available_themes:
                try:
                    self._app.register_theme(textual_theme(read_theme(name)))
                except InputError as error:
                    self._app.notify(one_line(str(error), 300), severity="warning")


def textual_theme(theme: ThemeFile) -> Theme:
    colors: dict[str, Any] = dict(theme.colors)
    return Theme(name=theme.name, dark=theme.dark, ansi=theme.ansi, variables=theme.variables, **colors)
