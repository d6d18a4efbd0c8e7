"""Notifications of the terminal about what happens in a live session."""

import contextlib
import os
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from textual.drivers._writer_thread import WriterThread

from fabtui.model.events import Event, NodeState, SessionEnd, Watching
from fabtui.model.measurement import Verdict
from fabtui.screen import app as app_module
from fabtui.screen import notifier
from fabtui.screen.terminal.internals import NullWriter, is_behind, sequence, write_codes
from tests.screen.conftest import Opened
from tests.screen.fakefeed import FakeFeed, Story, big_sweep, sweep_of_two


@pytest.mark.parametrize(
    ("method", "tmux", "expected"),
    [
        ("bell", True, "\a"),
        ("osc9", False, "\x1b]9;fabtui: 4,1,99 [0m x\a"),
        ("osc777", False, "\x1b]777;notify;fabtui;4,1,99 [0m x\a"),
        ("osc9", True, "\x1bPtmux;\x1b\x1b]9;fabtui: 4,1,99 [0m x\a\x1b\\"),
    ],
)
def test_text_of_nodes_can_neither_end_the_sequence_nor_add_fields(method: str, tmux: bool, expected: str) -> None:
    assert sequence(method, "4;1;99\a \x1b[0m\x9c\nx", tmux=tmux) == expected


def test_a_long_text_is_cut() -> None:
    assert len(sequence("osc9", "x" * 10_000, tmux=True)) < 250


class Terminal:
    def __init__(self, thread: Any) -> None:
        self._writer_thread = thread
        self.written: list[str] = []

    def write(self, text: str) -> None:
        self.written.append(text)


def test_only_a_terminal_that_the_app_has_now_is_written_to() -> None:
    with open(os.devnull, "w") as out:
        thread = WriterThread(out)
        driver = Terminal(thread)
        assert not write_codes(driver, "x"), "not yet"
        thread.start()
        assert write_codes(driver, "x")
        thread.stop()
        assert not write_codes(driver, "x"), "ssh has it"
    driver._writer_thread = NullWriter()
    assert not write_codes(driver, "x"), "it is gone"
    assert driver.written == ["x"]
    assert not write_codes(object(), "x"), "a browser has none"


def test_a_frame_waits_while_the_terminal_has_not_taken_the_last_one() -> None:
    reader, writer = os.pipe()
    with open(writer, "w") as out:
        driver = Terminal(WriterThread(out))
        assert not is_behind(driver)
        os.set_blocking(writer, False)
        with contextlib.suppress(BlockingIOError):
            while os.write(writer, b"x" * 4096):
                pass
        assert is_behind(driver)
        os.read(reader, 1 << 20)
        assert not is_behind(driver)
        driver._writer_thread.write("waits")
        assert is_behind(driver)
    os.close(reader)
    assert not is_behind(object())


async def test_the_title_of_the_terminal_has_the_verdict_and_is_restored(opened: Opened) -> None:
    story = sweep_of_two()
    async with opened(FakeFeed([*story.events, SessionEnd(exit=1, time=story.now)]), notify="bell") as (app, _):
        written: list[str] = []
        title = notifier.Notifier(app, lambda _: None, written.append)
        for verdict in ("2 of 56 pairs are bad", "All ok; healed 0:01 ago; 2", "All ok; healed 0:02 ago; 2"):
            title.name(verdict)
        title.stop()
        title.stop()
    first, second = "fabtui: 2 of 56 pairs are bad", "fabtui: All ok"
    assert written == [f"\x1b[22;2t\x1b]2;{first}\a", f"\x1b]2;{second}\a", "\x1b[23;2t"]


@pytest.fixture
def notified(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The notifications, each with its method."""
    found: list[tuple[str, str]] = []
    monkeypatch.setattr(notifier, "SETTLING", 0.2)
    monkeypatch.setattr(notifier, "INTERVAL", 0.3)
    monkeypatch.setattr(app_module, "notify_terminal", lambda _, method, text: found.append((method, text)))
    return found


def after(story: Story, *more: Event) -> list[Event]:
    found, story.events[:] = list(story.events), []
    return [*found, *(msgspec.structs.replace(event, time=story.now) for event in more)]


async def test_the_end_of_a_sweep_is_notified_with_its_findings(
    opened: Opened, notified: list[tuple[str, str]]
) -> None:
    story = sweep_of_two(end=False, failed_node=False)
    feed = FakeFeed(story.events)
    async with opened(feed, notify="osc9") as (app, pilot):
        await pilot.pause(0.3)
        assert not notified, "what is bad at first is not a change"
        story.events.clear()
        story.end(1)
        feed.play(after(story))
        app.findings._resting_until = 0.0
        while app.findings._survey is None or not app.findings.final:
            app.findings.step(1.0)
        await pilot.pause(0.6)
        worst = "n000:1 > n001:2 failed, n000:3 > n001:2 timed out, n000:1 > n001:1 27 % of usual"
        sentence = f"3 of 56 GPU pairs are bad: {worst}"
        assert notified == [("osc9", f"sweep ended: {sentence}")]
        story.phase("re-test", 2)
        story.end(1)
        feed.play(after(story))
        await pilot.pause(0.6)
        assert len(notified) == 1, "the user waits for a test that was asked for"


async def test_changes_while_watching_are_notified_together(opened: Opened, notified: list[tuple[str, str]]) -> None:
    story = big_sweep(1, 4)
    story.end(0)
    feed = FakeFeed(after(story), hold=True)
    async with opened(feed, notify="bell") as (_, pilot):
        feed.advance()
        await pilot.pause(0.6)
        notified.clear()
        feed.play([Watching(on=True, time=story.now)])
        story.phase("watch")
        for number in range(1, 4):
            bad = story.good("n000:0", f"n000:{number}", verdict=Verdict.FAILED)[0]
            story.measured(replace(bad, value=None))
        feed.play(after(story))
        await pilot.pause(0.05)
        story.measured(*story.good("n000:0", "n000:1"))
        feed.play(after(story))
        await pilot.pause(1.0)
        first, second = (text for _, text in notified)
        assert first == "n000:0 > n000:1 p2p: failed, was ok and 2 more changes"
        assert second.startswith("n000:0 > n000:1 p2p: ok at 3")
        assert notified[0][0] == "bell"


async def test_a_node_that_is_lost_or_returns_is_notified_and_logged(
    opened: Opened, notified: list[tuple[str, str]]
) -> None:
    story = big_sweep(2, 2)
    feed = FakeFeed(after(story))
    async with opened(feed, notify="bell") as (app, pilot):
        story.state("n001", NodeState.LOST, "the connection was cut")
        feed.play(after(story))
        await pilot.pause(0.4)
        story.state("n001", NodeState.READY)
        feed.play(after(story))
        await pilot.pause(0.4)
        assert [text for _, text in notified] == ["n001 lost: the connection was cut", "n001 is back"]
        assert (app.model.log[-1].node, app.model.log[-1].text) == ("n001", "is back")


@pytest.mark.parametrize(("can_test", "notify"), [(False, "bell"), (True, "off")])
async def test_nothing_is_notified_of_a_recording_or_unasked(
    opened: Opened, notified: list[tuple[str, str]], can_test: bool, notify: str
) -> None:
    story = sweep_of_two()
    async with opened(
        FakeFeed([*story.events, SessionEnd(exit=1, time=story.now)], can_test=can_test), notify=notify
    ) as (_, pilot):
        await pilot.pause(0.6)
    assert not notified
