"""The dialog in which a server's questions at a login are answered."""

from __future__ import annotations

from fabtui.transport.login_answers import LoginQuestion
from tests.screen.conftest import Opened, screen_text
from tests.screen.fakefeed import FakeFeed, sweep_of_two

SECRET = "canary4711"


async def test_answers_are_typed_one_after_the_other_and_hidden(opened: Opened) -> None:
    feed = FakeFeed(sweep_of_two().events)
    feed.question = LoginQuestion(
        "n001", "alice", "[bold]Two factors[/] are needed", (("Password:", False), ("Device:", True)), refused=True
    )
    async with opened(feed) as (app, pilot):
        for _ in range(60):
            if len(app.screen_stack) > 1:
                break
            await pilot.pause(0.05)
        text = screen_text(app)
        for part in ("n001 has a question for alice", "[bold]Two factors[/]", "was refused", "Password:", "Device:"):
            assert part in text, text
        await pilot.press(*SECRET, "enter", *"phone")
        await pilot.pause()
        text = screen_text(app)
        assert "phone" in text
        assert SECRET not in text
        assert SECRET not in app.export_screenshot()
        await pilot.press("enter")
        await pilot.pause()
        assert feed.answered == [[SECRET, "phone"]]
        assert app.screen is app.main
