"""The dialog in which a server's questions at a login are answered."""

from fabtui.transport.login_answers import LoginQuestion
from tests.screen.conftest import Opened, press, screen_text, until
from tests.screen.fakefeed import FakeFeed, sweep_of_two

SECRET = "canary4711"


async def test_answers_are_typed_one_after_the_other_and_hidden(opened: Opened) -> None:
    feed = FakeFeed(sweep_of_two().events)
    feed.question = LoginQuestion(
        "n001", "alice", "[bold]Two factors[/] are needed", (("Password:", False), ("Device:", True)), refused=True
    )
    async with opened(feed) as (app, pilot):
        await until(pilot, lambda: len(app.screen_stack) > 1)
        text = screen_text(app)
        for part in ("n001 has a question for alice", "[bold]Two factors[/]", "was refused", "Password:", "Device:"):
            assert part in text, text
        await press(pilot, *SECRET, "enter", *"phone")
        text = screen_text(app)
        assert "phone" in text
        assert SECRET not in text
        assert SECRET not in app.export_screenshot()
        await press(pilot, "enter")
        assert feed.answered == [[SECRET, "phone"]]
        assert app.screen is app.main
