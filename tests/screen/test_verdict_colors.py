"""The colours of a verdict in all views are those of its cell."""

from collections.abc import Iterator

import pytest
from textual.color import Color

from fabtui.model.measurement import Verdict
from fabtui.presentation.cell_levels import CellStyle
from fabtui.presentation.wording import verdict_style, verdict_tone
from fabtui.screen.app import FabricApp
from fabtui.screen.terminal.ansi_strips import codes_of
from fabtui.screen.themes import cell_variables, ramp_of, read_theme, theme_names
from tests.screen.conftest import Opened, press
from tests.screen.fakefeed import FakeFeed, sweep_of_two
from tests.screen.test_verdict import diagnosed

SLOTS = {"failed": CellStyle.FAILED, "timeout": CellStyle.TIMEOUT, "slow": CellStyle.SLOW}
#: Keys that open a view with the pair that failed, and what is there about a verdict.
VIEWS = {
    "verdict sentence": ((), {"failed": " n002 failed "}),
    "color key": ((), {"failed": " x ", "timeout": " T ", "slow": " ▾ "}),
    "list of worst pairs": (("v",), {"failed": "x failed", "timeout": "T timed out", "slow": "▾ slow"}),
    "table of nodes": (("t",), {"failed": "failed"}),
    "node": (("n",), {"failed": "x", "timeout": "T", "slow": "▾"}),
    "topology": (("T",), {"failed": "1 failed", "timeout": "1 timed out", "slow": "1 slow"}),
    "pair": (("enter",), {"failed": "x failed"}),
}


def codes_on_screen(app: FabricApp, text: str) -> Iterator[str]:
    """The codes of all pieces of the screen with a text, or one of several."""
    for strip in app.screen._compositor.render_strips():
        for segment in strip:
            if segment.text in text.split("|") and segment.style is not None:
                yield codes_of(segment.style, app.main.grid.palette.system)


@pytest.mark.parametrize(
    ("theme", "count"), [("light", "24"), ("dark", "256"), ("dark", "16"), (None, "16"), (None, "none")]
)
async def test_a_verdict_has_the_colors_of_the_grid(opened: Opened, theme: str | None, count: str) -> None:
    async with opened(FakeFeed(sweep_of_two().events), size=(100, 34), theme=theme, colors=count) as (app, pilot):
        await diagnosed(app, pilot)
        await pilot.press("right_square_bracket", "right_square_bracket")
        palette = app.main.grid.palette
        for view, (keys, texts) in VIEWS.items():
            await press(pilot, *keys, seconds=0.2)
            for name, text in texts.items():
                wanted = codes_of(palette.styles[SLOTS[name]], palette.system)
                assert wanted in list(codes_on_screen(app, text)), f"{view}: {name} as {text!r}"
            await pilot.press(*(("escape",) if keys else ()))


@pytest.mark.parametrize("theme", theme_names())
def test_every_verdict_has_a_style_and_a_tone_that_can_be_read(theme: str) -> None:
    read = read_theme(theme)
    ramp = ramp_of(theme, read.dark, "24")
    found = cell_variables(ramp, ramp, read.colors)
    for verdict in Verdict:
        if verdict is not Verdict.UNTESTED:
            assert verdict_style(verdict).removeprefix("$") in found
        if verdict.bad and read.colors["background"].startswith("#"):
            tone, behind = Color.parse(found[verdict_tone(verdict)[1:]]), Color.parse(read.colors["background"])
            lights = sorted(0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in map(_linear, (tone, behind)))
            assert (lights[1] + 0.05) / (lights[0] + 0.05) >= 4.4


def _linear(color: Color) -> list[float]:
    return [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in color.normalized]
