"""The view of the search by halves: the halves, what is cleared and left, and the sentence, at two sizes."""

import pytest

from fabtui.model.events import BisectGroup, BisectRound, BisectStart, Event
from tests.screen.conftest import Opened, screen_text
from tests.screen.fakefeed import FakeFeed, sweep_of_two

UNITS = [f"n{number:03d}" for number in range(64)]
A, B = [*range(8)], [*range(8, 16)]
FILL = [*range(16, 40)], [*range(40, 64)]


def _events() -> list[Event]:
    groups = [BisectGroup(A, FILL[0], "slow", 12.5), BisectGroup(B, FILL[1], "ok", 171.0)]
    return [
        *sweep_of_two().events,
        BisectStart(units=UNITS, collective="all_reduce", bytes=1 << 28, ranks=512),
        BisectRound(number=1, purpose="all", groups=[BisectGroup([*range(64)], [], "slow", 11.0)], left=[*range(64)]),
        BisectRound(number=2, purpose="halves", groups=groups, left=A + B, cleared=FILL[0] + FILL[1]),
    ]


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_the_halves_and_what_is_left(opened: Opened, size: tuple[int, int]) -> None:
    async with opened(FakeFeed(_events()), size=size) as (app, pilot):
        await pilot.press("B")
        await pilot.pause()
        text = screen_text(app)
        assert "searching what makes all_reduce slow: 16 of 64 are left" in text
        assert "AAAAAAAA BBBBBBBB aaaaaaaa" in text.replace("\n", " ")
        assert "n[000-007] + 24 fill-ins" in text
        end = BisectRound(number=3, purpose="rest", culprits=[[5, 60]], outcome="found", cleared=[*range(5)])
        assert isinstance(app.feed, FakeFeed)
        app.feed.play([end])
        await pilot.pause(0.2)
        assert "all_reduce of 64 nodes is slow because of n005 with n060" in screen_text(app)
