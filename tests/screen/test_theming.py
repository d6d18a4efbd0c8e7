from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from rich.style import Style

from fabtui.errors import InputError
from fabtui.presentation.cell_levels import CURSOR_ON, Slot
from fabtui.screen.app import FabricApp
from fabtui.screen.settings import ScreenSettings
from fabtui.screen.themes.ramps import ramp_of, read_theme, read_theme_file, theme_names

COUNTS = ("24", "256", "16", "none")
#: The colours that must not be taken for each other.
DISTINCT = (Slot.GOOD, Slot.SLOW, Slot.TIMEOUT, Slot.FAILED, Slot.RUNNING)

#: Colours as seen without the cones for red, or for green (Machado, Oliveira and Fernandes 2009).
SIGHTS = {
    "all cones": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
}


def linear(style: str, *, background: bool = True) -> tuple[float, float, float]:
    color = Style.parse(style).bgcolor if background else Style.parse(style).color
    assert color is not None
    triplet = color.get_truecolor()
    values = [part / 255 for part in triplet]
    red, green, blue = (v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in values)
    return red, green, blue


def seen(color: tuple[float, float, float], sight: str) -> tuple[float, float, float]:
    red, green, blue = (
        min(1.0, max(0.0, sum(weight * part for weight, part in zip(row, color, strict=True)))) for row in SIGHTS[sight]
    )
    return red, green, blue


def lab(color: tuple[float, float, float]) -> tuple[float, float, float]:
    red, green, blue = color
    x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.95047
    y = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.08883
    fx, fy, fz = (v ** (1 / 3) if v > 0.008856 else 7.787 * v + 16 / 116 for v in (x, y, z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


def luminance(color: tuple[float, float, float]) -> float:
    return 0.2126 * color[0] + 0.7152 * color[1] + 0.0722 * color[2]


def contrast(style: str) -> float:
    light, dark = sorted((luminance(linear(style, background=False)), luminance(linear(style))), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_the_themes_that_ship() -> None:
    assert {"dark", "light", "high-contrast", "mono", "ansi"} <= set(theme_names())


@pytest.mark.parametrize("name", theme_names())
@pytest.mark.parametrize("count", COUNTS)
def test_every_ramp_names_every_slot_with_a_style(name: str, count: str) -> None:
    ramp = ramp_of(name, read_theme(name).dark, count)
    assert set(ramp) == {slot.key for slot in Slot if slot is not Slot.PAD and slot not in CURSOR_ON.values()}
    for style in ramp.values():
        Style.parse(style or "none")


@pytest.mark.parametrize("name", ["dark", "light", "high-contrast"])
@pytest.mark.parametrize("count", ["24", "256"])
@pytest.mark.parametrize("sight", list(SIGHTS))
def test_verdicts_are_distinct_for_every_color_vision(name: str, count: str, sight: str) -> None:
    ramp = ramp_of(name, read_theme(name).dark, count)
    for one, other in itertools.combinations(DISTINCT, 2):
        first, second = (lab(seen(linear(ramp[slot.key]), sight)) for slot in (one, other))
        distance = sum((a - b) ** 2 for a, b in zip(first, second, strict=True)) ** 0.5
        assert distance > 20, f"{one.key} and {other.key}: {distance:.0f}"


@pytest.mark.parametrize(("name", "least"), [("dark", 4.5), ("light", 4.5), ("mono", 4.5), ("high-contrast", 7.0)])
@pytest.mark.parametrize("count", ["24", "256"])
def test_what_stands_in_a_cell_can_be_read(name: str, least: float, count: str) -> None:
    ramp = ramp_of(name, read_theme(name).dark, count)
    for key, style in ramp.items():
        if " on " in style and key not in ("skipped", "gone"):
            assert contrast(style) >= least, f"{key}: {contrast(style):.1f}"


def test_an_unknown_theme_is_reported_with_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"no theme 'purple'; themes: .*dark"):
        FabricApp(lambda: None, ScreenSettings(theme="purple"))  # type: ignore[arg-type,return-value]


def test_one_of_textuals_own_themes_will_do() -> None:
    app = FabricApp(lambda: None, ScreenSettings(theme="textual-light", colors="24"))  # type: ignore[arg-type,return-value]
    assert app.theme == "textual-light"
    assert ramp_of("textual-light", False, "24")["good"] == ramp_of("light", False, "24")["good"]


@pytest.mark.parametrize("text", ["", "[colors", "title = 3", "colors = 3", "\x00"])
def test_a_broken_theme_file_is_one_clear_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "odd.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=r"theme file .*odd\.toml cannot be used"):
        read_theme_file(path)


@pytest.mark.parametrize("name", ["mono"])
@pytest.mark.parametrize("count", ["24", "256", "16"])
def test_the_grey_theme_is_grey_and_keeps_verdicts_distinct(name: str, count: str) -> None:
    ramp = ramp_of(name, True, count)
    for style in map(Style.parse, ramp.values()):
        for color in (style.color, style.bgcolor):
            if color is not None and not color.is_default:
                red, green, blue = color.get_truecolor()
                assert red == green == blue
    kinds = [ramp[slot.key] for slot in DISTINCT]
    assert len(set(kinds)) == len(kinds)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[colors]\nprimary = 'bleu3'\n", "primary = 'bleu3' in [colors] is not a colour"),
        ("[colors]\nprimry = 'red'\n", "unknown colour 'primry' in [colors]; did you mean primary?"),
        ("[colors]\nsecondary = 'red'\n", "has no primary"),
        ("[colors]\nprimary = 'red'\n[ramp.24]\ngod = 'red'\n", "unknown slot 'god' in [ramp.24]; did you mean good?"),
        ("[colors]\nprimary = 'red'\n[ramp.24]\ngood = 'rred on'\n", "good = 'rred on' in [ramp.24] is not a style"),
        ("[colors]\nprimary = 'red'\n[ramp.12]\ngood = 'red'\n", "unknown ramp [ramp.12]; there are 24, 256, 16, none"),
    ],
)
def test_a_theme_of_the_user_is_checked_before_it_is_drawn_with(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "own.toml"
    path.write_text(text)
    with pytest.raises(InputError) as raised:
        read_theme_file(path)
    assert words in str(raised.value)
