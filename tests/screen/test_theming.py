import colorsys
import itertools
import math
import os
from pathlib import Path

import pytest
from rich.color import Color, ColorSystem, ColorType
from rich.style import Style
from textual.theme import BUILTIN_THEMES

from fabtui.errors import InputError
from fabtui.presentation.cell_levels import CellStyle
from fabtui.screen.app import FabricApp
from fabtui.screen.context import ScreenSettings
from fabtui.screen.terminal.ansi_strips import Palette, half_style
from fabtui.screen.themes import check, ramp_of, read_theme, read_theme_file, theme_names

COUNTS = ("24", "256", "16", "none")
#: The colours that must not be taken for each other.
DISTINCT = (
    *(CellStyle.GOOD, CellStyle.SLOW, CellStyle.TIMEOUT, CellStyle.FAILED),
    *(CellStyle.WRONG, CellStyle.RUNNING),
)

#: Colours as seen without the cones for red, green or blue (Machado, Oliveira and Fernandes 2009).
SIGHTS = {
    "all cones": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}
#: The sixteen colours of the Linux console, of xterm, of Windows and of VS Code.
PALETTES = {
    "vga": "000000 aa0000 00aa00 aa5500 0000aa aa00aa 00aaaa aaaaaa "
    "555555 ff5555 55ff55 ffff55 5555ff ff55ff 55ffff ffffff",
    "xterm": "000000 cd0000 00cd00 cdcd00 0000ee cd00cd 00cdcd e5e5e5 "
    "7f7f7f ff0000 00ff00 ffff00 5c5cff ff00ff 00ffff ffffff",
    "windows": "0c0c0c c50f1f 13a10e c19c00 0037da 881798 3a96dd cccccc "
    "767676 e74856 16c60c f9f1a5 3b78ff b4009e 61d6d6 f2f2f2",
    "vscode": "000000 cd3131 0dbc79 e5e510 2472c8 bc3fbc 11a8cd e5e5e5 "
    "666666 f14c4c 23d18b f5f543 3b8eea d670d6 29b8db e5e5e5",
}
Light = tuple[float, float, float]


def light_of(color: Color | None, unset: Light, palette: str = "vga") -> Light:
    """The linear RGB of a colour, ``unset`` if there is none."""
    if color is None or color.is_default:
        return unset
    own = bytes.fromhex(PALETTES[palette])[3 * (color.number or 0) :][:3]
    triplet = own if color.type is ColorType.STANDARD else color.get_truecolor()
    red, green, blue = (v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in (p / 255 for p in triplet))
    return red, green, blue


def linear(style: str, *, background: bool = True) -> Light:
    parsed = Style.parse(style)
    color = parsed.bgcolor if background else parsed.color
    assert color is not None
    return light_of(color, (0, 0, 0))


def seen(color: Light, sight: str) -> Light:
    red, green, blue = (
        min(1.0, max(0.0, sum(weight * part for weight, part in zip(row, color, strict=True)))) for row in SIGHTS[sight]
    )
    return red, green, blue


def lab(color: Light) -> Light:
    red, green, blue = color
    x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.95047
    y = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.08883
    fx, fy, fz = (v ** (1 / 3) if v > 0.008856 else 7.787 * v + 16 / 116 for v in (x, y, z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


def luminance(color: Light) -> float:
    return 0.2126 * color[0] + 0.7152 * color[1] + 0.0722 * color[2]


def contrast_of(one: Light, other: Light) -> float:
    dark, light = sorted(map(luminance, (one, other)))
    return (light + 0.05) / (dark + 0.05)


def contrast(style: str) -> float:
    return contrast_of(linear(style, background=False), linear(style))


def distance(one: Light, other: Light, sight: str) -> float:
    first, second = (lab(seen(color, sight)) for color in (one, other))
    return math.dist(first, second)


def screen_of(name: str, count: str) -> Light:
    """The background of the screen: that of the theme, else that of usual terminals."""
    theme = read_theme(name)
    own = theme.colors["background"]
    usual = "#000000" if theme.dark else "#ffffff"
    return light_of(Color.parse(own if count != "16" and own.startswith("#") else usual), (0, 0, 0))


def test_the_themes_that_ship() -> None:
    assert {"dark", "light", "high-contrast", "mono", "ansi"} <= set(theme_names())


@pytest.mark.parametrize("name", theme_names())
@pytest.mark.parametrize("count", COUNTS)
def test_every_ramp_names_every_slot_with_a_style(name: str, count: str) -> None:
    ramp = ramp_of(name, read_theme(name).dark, count)
    assert set(ramp) == {slot.key for slot in CellStyle if slot is not CellStyle.PAD}
    for style in ramp.values():
        Style.parse(style or "none")


@pytest.mark.parametrize("name", ["dark", "light", "high-contrast"])
@pytest.mark.parametrize("count", ["24", "256"])
@pytest.mark.parametrize("sight", list(SIGHTS))
def test_verdicts_are_distinct_for_every_color_vision(name: str, count: str, sight: str) -> None:
    ramp = ramp_of(name, read_theme(name).dark, count)
    for one, other in itertools.combinations(DISTINCT, 2):
        apart = distance(linear(ramp[one.key]), linear(ramp[other.key]), sight)
        # Nothing is wrong with either of the first two; wrong data is what must not be overlooked.
        least = {CellStyle.RUNNING: 19, CellStyle.WRONG: 40}.get(other, 20) if one is CellStyle.GOOD else 20
        least = 40 if {one, other} == {CellStyle.FAILED, CellStyle.WRONG} else least
        assert apart > least, f"{one.key} and {other.key}: {apart:.0f}"
    for other in DISTINCT[:5]:
        assert distance(linear(ramp["few"]), linear(ramp[other.key]), sight) > 20, other.key


@pytest.mark.parametrize("name", ["dark", "light", "high-contrast", "mono"])
@pytest.mark.parametrize("count", ["24", "256"])
@pytest.mark.parametrize("sight", list(SIGHTS))
def test_a_worse_verdict_differs_by_brightness(name: str, count: str, sight: str) -> None:
    """Two cells in one character have neither sign nor text; wrong data has the one extreme of all."""
    ramp = ramp_of(name, read_theme(name).dark, count)
    dark = read_theme(name).dark
    tiers = (("good",), ("slow",), ("timeout", "failed"), ("wrong",))
    away = [[lab(seen(linear(ramp[key]), sight))[0] * (1 if dark else -1) for key in keys] for keys in tiers]
    for at, (better, worse) in enumerate(itertools.pairwise(away)):
        apart = min(worse) - max(better)
        assert apart > (10 if at == 2 else 6), f"{tiers[at]} and {tiers[at + 1]}: {apart:.1f}"
    for key, style in ramp.items():
        if " on " in style and key not in ("wrong", "cursor"):
            assert abs(lab(seen(linear(style), sight))[0] - abs(away[3][0])) > 10, key


@pytest.mark.parametrize("name", theme_names())
@pytest.mark.parametrize("count", ["24", "256", "16"])
def test_a_result_that_has_changed_and_is_ok_stays_as_calm_as_it_is(name: str, count: str) -> None:
    ramp = ramp_of(name, read_theme(name).dark, count)
    flash, good = Style.parse(ramp["flash"]), Style.parse(ramp["good"] or "none")
    assert flash.bold
    assert (flash.bgcolor, bool(flash.reverse)) == (good.bgcolor, False)


def hue(style: str) -> float:
    color = Style.parse(style).bgcolor
    assert color is not None
    return colorsys.rgb_to_hsv(*(part / 255 for part in color.get_truecolor()))[0] * 360


@pytest.mark.parametrize("name", ["dark", "light", "high-contrast"])
@pytest.mark.parametrize("count", ["24", "256"])
def test_a_verdict_has_the_same_hue_in_all_themes(name: str, count: str) -> None:
    ramp = ramp_of(name, read_theme(name).dark, count)
    for key, low, high in (("slow", 25, 39), ("timeout", 40, 51), ("failed", 298, 302), ("good", 195, 240)):
        assert low <= hue(ramp[key]) <= high, f"{key}: {hue(ramp[key]):.0f}"
    assert Style.parse(ramp["wrong"]).bold
    assert hue(ramp["slow"]) + 3 < hue(ramp["timeout"]), "orange, then amber"


@pytest.mark.parametrize("name", sorted(BUILTIN_THEMES))
@pytest.mark.parametrize("sight", list(SIGHTS))
def test_verdicts_stand_out_on_the_backgrounds_of_the_themes_of_textual(name: str, sight: str) -> None:
    theme = BUILTIN_THEMES[name]
    background = theme.background or ("#121212" if theme.dark else "#e0e0e0")
    if background.startswith("ansi"):
        return
    ramp = ramp_of(name, theme.dark, "24")
    screen = light_of(Color.parse(background), (0, 0, 0))
    for key in ("good", "slow", "timeout", "failed", "wrong"):
        assert contrast(ramp[key]) >= 4.5
        assert distance(linear(ramp[key]), screen, sight) > 15, key
    for key in ("header", "header-here", "header-node", "header-gone"):
        assert contrast_of(linear(ramp[key], background=False), screen) >= 3, key


@pytest.mark.parametrize("name", ["dark", "light", "high-contrast", "ansi"])
@pytest.mark.parametrize("palette", list(PALETTES))
@pytest.mark.parametrize("sight", list(SIGHTS))
def test_verdicts_are_distinct_in_sixteen_colors(name: str, palette: str, sight: str) -> None:
    ramp, screen = ramp_of(name, read_theme(name).dark, "16"), screen_of(name, "16")
    kinds = (CellStyle.GOOD, CellStyle.SLOW, CellStyle.TIMEOUT, CellStyle.FAILED)
    styles = {slot: Style.parse(ramp[slot.key]) for slot in kinds}
    for one, other in itertools.combinations(kinds, 2):
        fills = [light_of(styles[slot].bgcolor, screen, palette) for slot in (one, other)]
        texts = [light_of(styles[slot].color, screen, palette) for slot in (one, other)]
        apart = max(distance(a, b, sight) for a, b in (fills, texts))
        assert apart > 15, f"{one.key} and {other.key}: {apart:.0f}"


@pytest.mark.parametrize("name", ["dark", "light", "high-contrast", "ansi"])
@pytest.mark.parametrize("count", ["24", "256", "16"])
def test_two_cells_in_one_character_have_a_fill_for_each_verdict(name: str, count: str) -> None:
    system = {"24": ColorSystem.TRUECOLOR, "256": ColorSystem.EIGHT_BIT, "16": ColorSystem.STANDARD}[count]
    palette = Palette(Style(), ramp_of(name, read_theme(name).dark, count), system)
    slots = (CellStyle.GOOD, CellStyle.FEW, CellStyle.SLOW, CellStyle.TIMEOUT, CellStyle.FAILED, CellStyle.WRONG)
    shown = {
        (palette.half_text(half_style(slot, slot)), palette.style(half_style(slot, slot)).bgcolor) for slot in slots
    }
    assert len(shown) == len(slots)


def prominence(name: str, count: str, palette: str, slot: CellStyle) -> tuple[float, float]:
    ramp, screen = ramp_of(name, read_theme(name).dark, count), screen_of(name, count)
    fill, good = (light_of(Style.parse(ramp[one.key]).bgcolor, screen, palette) for one in (slot, CellStyle.GOOD))
    return contrast_of(fill, screen), contrast_of(fill, good)


@pytest.mark.parametrize("name", theme_names())
@pytest.mark.parametrize(("count", "palette"), [("24", "vga"), ("256", "vga"), *(("16", one) for one in PALETTES)])
@pytest.mark.parametrize("slot", [CellStyle.TIMEOUT, CellStyle.FAILED])
def test_failed_and_timeout_stand_out_more_than_slow(name: str, count: str, palette: str, slot: CellStyle) -> None:
    # Terminals choose the sixteen colours.
    least = 1.2 if count == "16" else 1.35
    ramp = ramp_of(name, read_theme(name).dark, count)
    dead, slow = (prominence(name, count, palette, one) for one in (slot, CellStyle.SLOW))
    for mine, its in zip(dead, slow, strict=True):
        assert mine >= least * its, f"{mine:.1f} against {its:.1f} of slow"
    assert Style.parse(ramp[slot.key]).bold


@pytest.mark.parametrize("name", theme_names())
def test_without_color_failed_and_timeout_are_filled_and_slow_is_not(name: str) -> None:
    ramp = ramp_of(name, read_theme(name).dark, "none")
    filled = [
        bool(Style.parse(ramp[slot.key]).reverse) for slot in (CellStyle.SLOW, CellStyle.TIMEOUT, CellStyle.FAILED)
    ]
    assert filled == [False, True, True]
    assert ramp["slow"] not in ("", ramp["good"])


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


def test_variables_of_all_themes_are_right() -> None:
    of_all = [read_theme(name).variables for name in theme_names()]
    for variables in (*of_all, *(theme.variables for theme in BUILTIN_THEMES.values())):
        check({"primary": "red"}, variables, {})


def test_a_theme_that_others_can_change_or_that_never_ends_is_one_clear_line(tmp_path: Path) -> None:
    """Such as themes in a settings folder that is shared by a group; a named pipe is not waited for."""
    path = tmp_path / "theirs.toml"
    path.write_text("[colors]\nprimary = 'red'\n")
    assert read_theme_file(path).name == "theirs"
    path.chmod(0o666)
    with pytest.raises(InputError, match=r"theirs\.toml is not used: others may write to .*; chmod go-w "):
        read_theme_file(path)
    if os.geteuid() == 0:
        path.chmod(0o600)
        os.chown(path, 65534, -1)
        with pytest.raises(InputError, match="belongs to another user"):
            read_theme_file(path)
    (tmp_path / "huge.toml").write_bytes(b"#" * (2 << 20))
    with pytest.raises(InputError, match=r"huge\.toml cannot be used: it is larger than 1 MiB"):
        read_theme_file(tmp_path / "huge.toml")
    os.mkfifo(tmp_path / "pipe.toml")
    with pytest.raises(InputError, match="is not a regular file"):
        read_theme_file(tmp_path / "pipe.toml")


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
        (
            "[colors]\nprimary = 'red'\n[variables]\nscrollbar = '}{ x'\n",
            "scrollbar = '}{ x' in [variables] is not a col",
        ),
        ("[colors]\nprimary = 'red'\n[variables]\nlink-style = '12'\n", "'12' in [variables] is not a text style"),
        ("[colors]\nprimary = 'red'\n[variables]\n'a;b' = 'red'\n", "'a;b' in [variables] is not the name of a var"),
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
