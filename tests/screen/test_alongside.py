"""The verdict about pairs that are slow beside other traffic only."""

from __future__ import annotations

from dataclasses import replace

from fabtui.model.layers import Layer
from tests.screen.conftest import Opened, screen_text, settled
from tests.screen.fakefeed import FakeFeed, Story, big_sweep


def sweep_with_world() -> Story:
    story = big_sweep(2, 4)
    for pair in story.ordered_pairs():
        p2p = story.good(*pair)[0]
        assert p2p.value is not None
        story.measured(replace(p2p, layer=Layer.WORLD, value=p2p.value / 2))
    return story


async def test_a_session_whose_pairs_are_slow_only_beside_others_is_not_titled_all_ok(opened: Opened) -> None:
    story = sweep_with_world()
    story.end(0)
    async with opened(FakeFeed(story.events)) as (app, pilot):
        await settled(app, pilot)
        title = screen_text(app).splitlines()[0]
        assert "All 56 GPU pairs are ok " in title
        assert "alone" not in title
    story = sweep_with_world()
    story.measured(replace(story.good("n000:0", "n001:1")[0], layer=Layer.WORLD, value=2.0))
    story.end(0)
    async with opened(FakeFeed(story.events)) as (app, pilot):
        await settled(app, pilot)
        title = screen_text(app).splitlines()[0]
        assert "All 56 GPU pairs are ok  alone; 1 slow alongside other traffic" in title
