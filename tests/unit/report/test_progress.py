import io
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import pytest

from fabtui.model.events import Event
from fabtui.model.session_model import Model
from fabtui.report import progress
from fabtui.report.progress import Progress
from fabtui.session.feeds.base import Feed

Maker = Callable[[], Any]


@pytest.fixture(autouse=True)
def _a_usual_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class FakeFeed(Feed):
    def __init__(self) -> None:
        self.model = Model()
        self.can_test = False
        self.badges: list[str] = []
        self._changed: Callable[[], None] = lambda: None

    def listen(self, changed: Callable[[], None]) -> None:
        self._changed = changed

    def play(self, events: Iterable[Event]) -> None:
        for event in events:
            self.model.apply(event)
            self._changed()

    async def run(self) -> None: ...
    async def close(self) -> None: ...
    async def retest(self, pairs: Any) -> None: ...
    async def sweep(self) -> None: ...
    def pause(self, on: bool) -> None: ...
    def watch(self, on: bool) -> None: ...
    async def look(self, nodes: Any) -> None: ...


def played(maker: Any, out: io.StringIO, quiet: bool = False, text: bool = False) -> str:
    feed = FakeFeed()
    shown = Progress(out, quiet=quiet, text=text)
    shown.watch(feed)
    feed.play(maker.events)
    shown.end()
    return out.getvalue()


def session(make_model: Maker) -> Any:
    maker = make_model().start(["n0", "n1"]).add("phase", name="connect")
    maker.add("node", node="n0", state="ready").add("node", node="n1", state="failed", text="refused", hint="is it up?")
    maker.add("log", level="warning", node="n1", text="a warning").add("log", level="info", text="not worth a line")
    maker.add("phase", name="p2p", total=56).measured("p2p", "a", "b")
    return maker.add("phase", name="done")


def test_without_a_terminal_each_step_is_a_line(make_model: Maker) -> None:
    assert played(session(make_model), io.StringIO()).splitlines() == [
        "start",
        "connect",
        "n1: failed: refused (next: is it up?)",
        "warning: n1: a warning",
        "p2p: 56 tests",
        "done",
    ]


def test_on_a_terminal_a_line_is_drawn_over(make_model: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_FRAME", 0.0)
    text = played(session(make_model), Terminal())
    frames = text.split("\r\x1b[K")
    assert "p2p: 1/2 nodes, 1 gone, 1/56 tests, 4 s" in frames
    assert frames[-1] == "", "the live line is taken away at the end"
    assert [frame for frame in frames if frame.endswith("\n")] == [
        "n1: failed: refused (next: is it up?)\n",
        "warning: n1: a warning\n",
    ]


def test_the_remaining_time_is_shown_on_a_terminal(make_model: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_FRAME", 0.0)
    maker = make_model().start(["n0"]).add("phase", name="p2p", total=8)
    for number in range(4):
        maker.measured("p2p", "n0:0", f"n0:{number + 1}", value=1.0, unit="GB/s")
    (last,) = [frame for frame in played(maker, Terminal()).split("\r\x1b[K") if "4/8 tests" in frame]
    assert last.endswith("left")
    assert "left" not in played(maker, io.StringIO())


def test_the_live_line_is_drawn_a_few_times_a_second(make_model: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_FRAME", 3600.0)
    maker = make_model().start(["n0"])
    for _ in range(500):
        maker.add("running", pairs=[])
    assert played(maker, Terminal()).count("\x1b[K") <= 3


@pytest.mark.parametrize(
    ("interval", "out", "text"), [("_SPARSE", Terminal(), True), ("_RARE", io.StringIO(), False)], ids=["text", "pipe"]
)
def test_without_a_live_line_the_remaining_time_stands_on_lines_of_its_own_now_and_then(
    make_model: Maker, monkeypatch: pytest.MonkeyPatch, interval: str, out: io.StringIO, text: bool
) -> None:
    monkeypatch.setattr(progress, interval, 0.0)
    maker = make_model().start(["n0"]).add("phase", name="p2p", total=8)
    for number in range(4):
        maker.measured("p2p", "n0:0", f"n0:{number + 1}", value=1.0, unit="GB/s")
    last = played(maker, out, text=text).splitlines()[-1]
    assert "4/8 tests" in last
    assert last.endswith("left")
    monkeypatch.setattr(progress, interval, 30.0)
    assert "left" not in played(maker, type(out)(), text=text)


@pytest.mark.parametrize(("term", "text"), [("dumb", False), ("", False), ("xterm", True)])
def test_nothing_is_redrawn_where_that_cannot_be_or_is_not_wanted(
    make_model: Maker, monkeypatch: pytest.MonkeyPatch, term: str, text: bool
) -> None:
    monkeypatch.setenv("TERM", term)
    shown = played(session(make_model), Terminal(), text=text)
    assert "\x1b" not in shown
    assert "\r" not in shown
    assert "p2p: 56 tests\n" in shown


def test_quiet_is_quiet(make_model: Maker) -> None:
    assert played(session(make_model), io.StringIO(), quiet=True) == ""
    assert played(session(make_model), Terminal(), quiet=True) == ""


def test_each_line_of_the_log_is_shown_once(make_model: Maker) -> None:
    maker = make_model().start(["n0"])
    for number in range(6):
        maker.add("log", level="error", text=f"line {number}")
        maker.events[-1] = msgspec.structs.replace(maker.events[-1], time=maker.START + 10 + number // 3)
    shown = [line for line in played(maker, io.StringIO()).splitlines() if line.startswith("error")]
    assert shown == [f"error: line {number}" for number in range(6)]


def test_nothing_is_reported_twice_of_a_node(make_model: Maker) -> None:
    maker = make_model().start(["n0"]).add("node", node="n0", state="failed", text="refused", hint="is sshd up?")
    maker.add("log", level="error", node="n0", text="refused")
    maker.add("log", level="error", node="n0", text="something else")
    maker.add("log", level="warning", node="n0", text="the rank host of n0 ended")
    maker.add("phase", name="ping again", total=1)
    assert played(maker, io.StringIO()).splitlines() == [
        "start",
        "n0: failed: refused (next: is sshd up?)",
        "error: n0: something else",
        "warning: the rank host of n0 ended",
        "ping again: 1 test",
    ]


def test_hostile_text_is_cleaned(make_model: Maker) -> None:
    maker = make_model().start(["n0"]).add("node", node="n0", state="failed", text="\x1b]0;x\x07\nsecond\x9b2J")
    maker.add("log", level="error", node="n0", text="\x1b[2J\u202e\nthird")
    lines = played(maker, io.StringIO()).splitlines()
    assert lines == ["start", "n0: failed: ]0;x second2J", "error: n0: [2J third"]


class Gone(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError


def test_a_terminal_that_goes_away_does_not_end_the_session(make_model: Maker) -> None:
    played(session(make_model), Gone())


def test_pairs_that_are_tested_again_are_no_more_than_all(make_model: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_FRAME", 0.0)
    maker = make_model().start(["n0"]).add("phase", name="p2p", total=2)
    for number in (1, 2, 1):
        maker.measured("p2p", "n0:0", f"n0:{number}", value=1.0, unit="GB/s")
    frames = played(maker, Terminal()).split("\r\x1b[K")
    assert [frame for frame in frames if "tests" in frame][-1].startswith("p2p: 0/1 nodes, 2/2 tests, ")


def test_ranks_are_counted_by_node(make_model: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_FRAME", 0.0)
    maker = make_model().start(["n0", "n1"]).add("node", node="n0", state="ready").add("phase", name="ranks", total=2)
    text = played(maker, Terminal())
    assert "starting ranks: 1/2 nodes, ranks on 0/2, " in text


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


def test_reading_is_shown_only_where_it_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    quick, slow, piped, slow_pipe = Terminal(), Terminal(), io.StringIO(), io.StringIO()
    shown = [progress.ReadingProgress(out, "run.jsonl.gz") for out in (quick, slow, piped, slow_pipe)]
    for one in shown:
        one(0.2)
    shown[0](1.0)
    shown[0].step("looking for causes")
    clock.now += 1.1
    for one in shown[1:3]:
        one(0.4)
        one(0.41)
        one(1.0)
        one.step("looking for causes")
        one.end()
    assert quick.getvalue() == piped.getvalue() == ""
    clear = "\r\x1b[K"
    assert slow.getvalue() == f"{clear}reading run.jsonl.gz: 40%{clear}{clear}run.jsonl.gz: looking for causes{clear}"
    clock.now += 4.0
    shown[3](0.4)
    shown[3](0.41)
    shown[3].step("looking for causes")
    shown[3].end()
    assert slow_pipe.getvalue() == "reading run.jsonl.gz: 40%\nrun.jsonl.gz: looking for causes\n"
