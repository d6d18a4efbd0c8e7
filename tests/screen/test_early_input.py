"""Keys that arrive at a prompt late, after keys that were typed into its input line."""

import pytest
from textual.app import App, ComposeResult
from textual.events import Key

from fabtui.screen.widgets.prompt import EarlyInput


class _OneLine(App[None]):
    def __init__(self, before: str) -> None:
        super().__init__()
        self.before = before

    def compose(self) -> ComposeResult:
        yield EarlyInput(self.before)


@pytest.mark.parametrize(("before", "expected"), [("", "n001:2"), ("n000>", "n000>n001:2")])
async def test_keys_that_are_passed_on_late_come_first(before: str, expected: str) -> None:
    async with _OneLine(before).run_test() as pilot:
        line = pilot.app.query_one(EarlyInput)
        line.focus()
        await pilot.press("2")
        for character in "n001:":
            assert await line.take(Key(character, character))
        assert line.value == expected
        assert line.cursor_position == len(expected)
        assert not await line.take(Key("escape", None))
        await pilot.press("!")
        assert line.value == expected + "!"
