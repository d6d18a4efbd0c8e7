"""ASCII mode: every view, dialogs and scroll bars of Textual included."""

import pytest

from fabtui.screen.terminal.internals import as_ascii
from tests.screen.conftest import Opened, press, screen_text
from tests.screen.fakefeed import FakeFeed, sweep_of_two

VIEWS = ["ctrl+p", "question_mark", "F", "t", "T", "P", "v", "L", "colon", "f", "ctrl+o", "n", "enter"]


@pytest.mark.parametrize("colors", ["24", "none"])
async def test_ascii_mode_draws_ascii_alone(opened: Opened, colors: str) -> None:
    async with opened(FakeFeed(sweep_of_two().events), size=(80, 24), colors=colors, ascii=True) as (app, pilot):
        for key in VIEWS:
            await press(pilot, key, seconds=0.05)
            text = screen_text(app)
            assert text.isascii(), f"{key}: {sorted({c for c in text if not c.isascii()})}"
            await press(pilot, "escape")


@pytest.mark.parametrize(
    ("text", "shown"), [("┌─│…", "+-|."), ("🔎 x", "?  x"), ("▁▔", "--"), ("a\u0301", "a"), ("日", "? ")]
)
def test_characters_keep_their_width(text: str, shown: str) -> None:
    assert as_ascii(text) == shown
