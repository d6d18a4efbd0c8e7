"""Every key of every screen is pressed, and what it is for has to happen. A key without a case here fails."""

import asyncio
import gc
import importlib
import os
import pkgutil
import signal
import traceback
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from textual.binding import Binding
from textual.dom import DOMNode
from textual.pilot import Pilot
from textual.widgets import Input

import fabtui.screen
from fabtui.history.file import history_file
from fabtui.model.baseline import Baseline
from fabtui.model.events import NodeState
from fabtui.screen.app import FabricApp
from fabtui.screen.grid.navigation import Zoom
from fabtui.screen.keymap import check_keys, key_owners, key_rows
from fabtui.screen.keys import KeyRow, bindings_of
from fabtui.screen.start_app import StartApp
from fabtui.screen.views.findings import FindingsScreen
from fabtui.screen.views.history import HistoryTable
from fabtui.screen.views.nodes import NodesTable
from fabtui.screen.views.settings import SettingsTable
from fabtui.screen.views.topology import TopologyTree
from fabtui.session.feeds.base import Playback
from fabtui.session.options import JobQuery
from fabtui.session.running_job.monitor import JobMonitor
from fabtui.transport.login_answers import LoginQuestion
from tests.past import write_past
from tests.screen.conftest import Opened, press_each, screen_text
from tests.screen.fakefeed import FAILED, REFUSED, SLOW, TIMEOUT, FakeFeed, Story, big_sweep, sweep_of_two
from tests.screen.fakejob import job_story

TO_THE_BAD = ("right_square_bracket", "right_square_bracket")


@dataclass
class World:
    """The app when a key has been pressed, and what was before."""

    app: FabricApp
    feed: FakeFeed
    folder: Path
    before: dict[str, Any]

    @property
    def text(self) -> str:
        return screen_text(self.app)

    @property
    def notifications(self) -> str:
        return "\n".join(note.message for note in self.app._notifications)

    @property
    def screen(self) -> str:
        return type(self.app.screen).__name__

    @property
    def cursor(self) -> tuple[str, ...]:
        return tuple(entry.name for entry in self.app.main.cursor_entries() or ())

    @property
    def zoom(self) -> Zoom:
        return self.app.main.view_state.zoom

    @property
    def focus(self) -> str:
        focused = self.app.screen.focused
        return (focused.id or "") if focused is not None else ""

    @property
    def rows(self) -> list[str]:
        return [entry.name for entry in self.app.main.grid.source.rows.entries]

    @property
    def columns(self) -> list[str]:
        return [entry.name for entry in self.app.main.grid.source.columns.entries]

    @property
    def at(self) -> tuple[int, int]:
        return self.app.main.grid.row, self.app.main.grid.column

    @property
    def layer(self) -> str:
        return str(self.app.main.source.layer)

    @property
    def scrolled(self) -> float:
        return self.app.screen.query_one("#detail-body").scroll_y

    @property
    def line(self) -> int:
        return self.app.main.worst_pairs.cursor

    @property
    def node(self) -> str | None:
        table = self.app.screen.query("NodesTable")
        return table.first(NodesTable).chosen if table else None

    @property
    def part(self) -> str:
        row = self.app.screen.query_one(HistoryTable).selected
        return "" if row is None else row.cells[1].text

    @property
    def tree_line(self) -> int:
        tree = self.app.screen.query("#topology-tree")
        return tree.first(TopologyTree).cursor_line if tree else -1

    @property
    def typed(self) -> str | None:
        line = self.app.screen.query("#command-input")
        return line.first(Input).value if line else None

    @property
    def title(self) -> str:
        return self.text.splitlines()[0]


@dataclass(frozen=True)
class Case:
    """Steps before a key is pressed, and the check after it."""

    check: Callable[[World], bool]
    before: tuple[str, ...] = ()
    story: Callable[[], Story] = sweep_of_two
    size: tuple[int, int] = (120, 40)
    prepare: Callable[[FakeFeed], None] = lambda feed: None


def with_a_past(_: FakeFeed) -> None:
    write_past(history_file(lab=True))


def in_the_past(check: Callable[[World], bool], *keys: str, size: tuple[int, int] = (120, 40)) -> Case:
    return Case(check, before=("H", *keys), size=size, prepare=with_a_past)


def layer(name: str, first: str = "2") -> Case:
    return Case(lambda w: w.layer == name, before=(first,))


def moved(down: int, right: int) -> Callable[[World], bool]:
    return lambda w: w.at == (w.before["at"][0] + down, w.before["at"][1] + right)


def running() -> Story:
    return sweep_of_two(end=False)


def asking() -> Story:
    story = sweep_of_two()
    story.state("n002", NodeState.FAILED, REFUSED, "ssh n000 sudo dmesg")
    return story


def large() -> Story:
    return big_sweep(8, 8)


def wide() -> Story:
    return big_sweep(16, 8, part=0.02)


def with_an_earlier_session(feed: FakeFeed) -> None:
    feed.model.baseline = Baseline.of("earlier", 0.0, sweep_of_two().shadow.measurements())


def as_replay(feed: FakeFeed) -> None:
    feed.replay = Playback(50.0, 100.0, 1.0)


def with_a_job(feed: FakeFeed) -> None:
    for node in ("n000", "n001", "n002"):
        Path(f"{node}.out").write_text("".join(f"line {number} of {node}\n" for number in range(60)))
        Path(f"{node}.err").write_text(f"ValueError: of {node}\n" if node == "n001" else "a warning\n")
        Path(f"{node}.gpu").write_text("[0] NVIDIA A10       | 61'C,  97 % | 14020 / 22731 MB | me(13980M)\n")
    feed.job = JobMonitor(JobQuery("", logs=(os.getcwd(),)))


def with_a_question(feed: FakeFeed) -> None:
    feed.question = LoginQuestion("n001", "alice", "", (("Password:", False),))


def in_the_job(check: Callable[[World], bool], *before: str) -> Case:
    return Case(check, before=("J", *before), prepare=with_a_job)


def hanging() -> Story:
    return job_story("hang")


def talkative() -> Story:
    story = sweep_of_two()
    for number in range(80):
        story.log(f"line {number}")
    return story


def log_from(first: int) -> Callable[[World], bool]:
    return lambda w: f"{first} to {first + 18} of 82" in w.text


def chosen(node: str, *before: str) -> Case:
    return Case(lambda w: w.node == node, before=("t", *before))


def sorted_by(heading: str, *before: str) -> Case:
    return Case(lambda w: heading in w.text, before=("t", *before))


IN_THE_MIDDLE = ("down", "down", "right", "right")


def marked_finding(world: World) -> str:
    segments = [segment for strip in world.app.screen._compositor.render_strips() for segment in strip]
    return next((one.text.strip() for one in segments if one.style is not None and one.style.reverse), "")


ASKED = ("F", "down", "down", "enter")
SMALL = (60, 15)
DETAIL = (80, 12)


def chosen_setting(world: World) -> str | None:
    row = world.app.screen.query_one(SettingsTable).selected
    return None if row is None else str(row.name)


def setting(name: str, *before: str) -> Case:
    return Case(lambda w: chosen_setting(w) == name, before=("f2", *before))


def settings_by(heading: str, *before: str) -> Case:
    return Case(lambda w: heading in w.text.splitlines()[1], before=("f2", *before))


CASES: dict[str, Case] = {
    "app.csv": Case(lambda w: "rows written to" in w.notifications and bool(list(w.folder.glob("*.csv")))),
    "app.svg": Case(lambda w: len(list(w.folder.glob("*.svg"))) == 1),
    "app.report": Case(lambda w: "report written to" in w.notifications and len(list(w.folder.glob("*.html"))) == 1),
    "app.picture": Case(
        lambda w: "pictures written to" in w.notifications and len(list(w.folder.glob("*.?[vn]g"))) == 2
    ),
    "app.help": Case(lambda w: w.screen == "HelpScreen"),
    "app.commands": Case(lambda w: w.screen == "CommandPalette"),
    "app.login": Case(lambda w: "type elsewhere: " in w.notifications, before=TO_THE_BAD),
    "app.jump": Case(lambda w: w.screen == "JumpScreen"),
    "app.settings": Case(lambda w: w.screen == "SettingsScreen"),
    "settings.back": Case(lambda w: w.app.screen is w.app.main, before=("f2",)),
    "settings.change": Case(lambda w: w.focus == "prompt-input", before=("f2",)),
    "settings.default": Case(lambda w: w.app.setting_texts == {"screen.theme": "default"}, before=("f2",)),
    "settings.save": Case(lambda w: "nothing to save" in w.notifications, before=("f2",)),
    "settings.up": setting("screen.theme", "down"),
    "settings.down": setting("screen.colors"),
    "settings.first": setting("screen.theme", "end"),
    "settings.last": setting("recording.folder"),
    "settings.page-up": setting("screen.theme", "end"),
    "settings.page-down": setting("recording.folder"),
    "settings.sort-next": settings_by("value \u25be"),
    "settings.sort-previous": settings_by("setting \u25be", "right"),
    "settings.invert": settings_by("setting \u25b4"),
    "help.search": Case(lambda w: w.focus == "prompt-input", before=("question_mark",)),
    "app.command-line": Case(lambda w: w.screen == "CommandLine"),
    "app.quit": Case(lambda w: w.feed.closed == 1),
    "app.interrupt": Case(lambda w: w.feed.closed == 1),
    # Tests have no terminal: what a shell does is tested in test_run.
    "app.suspend": Case(lambda w: "cannot be suspended here" in w.notifications),
    "main.pair": Case(lambda w: w.screen == "PairScreen" and FAILED[0] in w.title, before=TO_THE_BAD),
    "main.node": Case(lambda w: w.screen == "NodeScreen" and " n000 " in w.title, before=TO_THE_BAD),
    "main.column-node": Case(lambda w: w.screen == "NodeScreen" and " n001 " in w.title, before=TO_THE_BAD),
    "main.next-bad": Case(lambda w: w.cursor == FAILED, before=TO_THE_BAD[:1]),
    "main.previous-bad": Case(lambda w: w.cursor == FAILED, before=(*TO_THE_BAD, "right_square_bracket")),
    "main.retest": Case(lambda w: w.feed.retested == [FAILED], before=TO_THE_BAD),
    "main.run": Case(lambda w: w.screen == "FindingsScreen" and "> ssh n000 ibstat" in w.text, before=TO_THE_BAD),
    "main.sweep": Case(lambda w: w.feed.swept == 1),
    "main.watch": Case(lambda w: w.feed.model.watching),
    "main.topology": Case(lambda w: w.screen == "TopologyScreen"),
    "topology.back": Case(lambda w: w.app.screen is w.app.main, before=("T",)),
    "topology.node": Case(lambda w: w.screen == "NodeScreen", before=("T", "end")),
    "topology.copy": Case(lambda w: "rails" in w.app.clipboard, before=("T",)),
    "tree.up": Case(lambda w: w.tree_line == 1, before=("T", "down", "down")),
    "tree.down": Case(lambda w: w.tree_line == 1, before=("T",)),
    "tree.open": Case(lambda w: w.text.count("NUMA node 0") == 2, before=("T", "end")),
    "tree.close": Case(lambda w: w.screen == "TopologyScreen" and "rail 3" not in w.text, before=("T",)),
    "tree.toggle": Case(lambda w: w.screen == "TopologyScreen" and "rail 3" not in w.text, before=("T",)),
    "tree.page-up": Case(lambda w: w.tree_line == 0, before=("T", "down", "down")),
    "tree.page-down": Case(lambda w: w.tree_line > 4, before=("T",)),
    "tree.first": Case(lambda w: w.tree_line == 0, before=("T", "down", "down")),
    "tree.last": Case(lambda w: w.tree_line > 4, before=("T",)),
    "main.preflight": Case(lambda w: w.screen == "NodesScreen"),
    "main.pause": Case(lambda w: w.feed.model.paused),
    "main.nodes": Case(lambda w: w.screen == "NodesScreen"),
    "log.up": Case(log_from(63), before=("L",), story=talkative),
    "log.down": Case(log_from(63), before=("L", "up", "up"), story=talkative),
    "log.page-up": Case(log_from(46), before=("L",), story=talkative),
    "log.page-down": Case(log_from(64), before=("L", "up"), story=talkative),
    "log.first": Case(log_from(1), before=("L",), story=talkative),
    "log.last": Case(log_from(64), before=("L", "up"), story=talkative),
    "log.filter": Case(lambda w: w.focus == "prompt-input", before=("L",), story=talkative),
    "log.leave": Case(lambda w: "event log" not in w.text, before=("L",), story=talkative),
    "node.look": Case(lambda w: w.feed.probed == ["n000"], before=("n",)),
    "nodes.up": chosen("n002", "down"),
    "nodes.down": chosen("n000"),
    "nodes.first": chosen("n002", "end"),
    "nodes.last": chosen("n001"),
    "nodes.page-up": chosen("n002", "end"),
    "nodes.page-down": chosen("n001"),
    "nodes.sort-next": sorted_by("own pairs \u25be"),
    "nodes.sort-previous": sorted_by("fault \u25be", "right"),
    "nodes.invert": sorted_by("fault \u25b4"),
    "nodes.back": Case(lambda w: w.app.screen is w.app.main, before=("t",)),
    "nodes.open": Case(lambda w: w.screen == "NodeScreen", before=("t",)),
    "nodes.look": Case(lambda w: w.feed.probed == ["n002"], before=("t",)),
    "nodes.copy": Case(lambda w: "n002" in w.app.clipboard and "memlock" in w.app.clipboard, before=("t",)),
    "main.bisect": Case(lambda w: w.screen == "BisectionScreen"),
    "bisect.back": Case(lambda w: w.app.screen is w.app.main, before=("B",)),
    "bisect.start": Case(lambda w: w.feed.bisected == 1, before=("B",)),
    "bisect.copy": Case(lambda w: "Enter starts it" in w.app.clipboard, before=("B",)),
    "main.history": Case(lambda w: w.screen == "HistoryScreen"),
    "history.back": Case(lambda w: w.app.screen is w.app.main, before=("H",)),
    "history.node": in_the_past(lambda w: "no node with this component" in w.notifications),
    "history.more": in_the_past(lambda w: w.scrolled > 0, size=(80, 16)),
    "history.copy": in_the_past(lambda w: "GPU n061:3" in w.app.clipboard),
    "history.up": in_the_past(lambda w: w.part == "GPU n061:3", "down"),
    "history.down": in_the_past(lambda w: w.part == "port n060 mlx5_0/1"),
    "history.first": in_the_past(lambda w: w.part == "GPU n061:3", "end"),
    "history.last": in_the_past(lambda w: w.part == "node n062"),
    "history.page-up": in_the_past(lambda w: w.part == "GPU n061:3", "end"),
    "history.page-down": in_the_past(lambda w: w.part == "node n062"),
    "history.sort-next": in_the_past(lambda w: "component \u25be" in w.text),
    "history.sort-previous": in_the_past(lambda w: "component \u25be" not in w.text, "right"),
    "history.invert": in_the_past(lambda w: "\u25b4" in w.text),
    "main.layer-health": layer("health"),
    "main.layer-p2p": layer("p2p", "3"),
    "main.layer-world": layer("world"),
    "main.layer-latency": layer("latency"),
    "main.layer-ping": layer("ping"),
    "main.layer-busbw": layer("busbw"),
    "main.layer-transport": layer("transport"),
    "main.layer-change": Case(lambda w: w.layer == "change", prepare=with_an_earlier_session),
    "main.layer-job": Case(lambda w: w.layer == "job", before=("2",), story=hanging),
    "main.copy": Case(lambda w: w.app.clipboard.startswith(" > ".join(FAILED)), before=TO_THE_BAD),
    "main.connecting": Case(lambda w: w.screen == "NodesScreen"),
    "main.log": Case(lambda w: int(w.app.main.event_log.size.height) > w.before["log"]),
    "main.panel": Case(lambda w: not w.app.main.panel.display),
    "grid.up": Case(moved(-1, 0), before=IN_THE_MIDDLE),
    "grid.down": Case(moved(1, 0), before=IN_THE_MIDDLE),
    "grid.left": Case(moved(0, -1), before=IN_THE_MIDDLE),
    "grid.right": Case(moved(0, 1), before=IN_THE_MIDDLE),
    "grid.first-column": Case(lambda w: w.at == (w.before["at"][0], 0), before=IN_THE_MIDDLE),
    "grid.last-column": Case(lambda w: w.at == (w.before["at"][0], 8), before=IN_THE_MIDDLE),
    "grid.first-row": Case(lambda w: w.at == (0, w.before["at"][1]), before=IN_THE_MIDDLE),
    "grid.last-row": Case(lambda w: w.at == (8, w.before["at"][1]), before=IN_THE_MIDDLE),
    "grid.page-up": Case(lambda w: w.at[0] < w.before["at"][0] - 5, before=("G",), story=large),
    "grid.page-down": Case(lambda w: w.at[0] > w.before["at"][0] + 5, story=large),
    "grid.wider": Case(lambda w: w.text != w.before["text"], before=("less_than_sign", "less_than_sign")),
    "grid.narrower": Case(lambda w: w.text != w.before["text"]),
    "replay.back": Case(lambda w: w.feed.sought == [45.0], prepare=as_replay),
    "replay.forward": Case(lambda w: w.feed.sought == [55.0], prepare=as_replay),
    "replay.next-change": Case(lambda w: w.feed.turned == [1] and "no later" in w.notifications, prepare=as_replay),
    "replay.previous-change": Case(lambda w: w.feed.turned == [-1], prepare=as_replay),
    "replay.seek": Case(lambda w: "(+30, -0:10)" in w.text and w.focus == "prompt-input", prepare=as_replay),
    "replay.faster": Case(lambda w: w.feed.speeds == [2.0], prepare=as_replay),
    "replay.slower": Case(lambda w: w.feed.speeds == [0.5], prepare=as_replay),
    "main.zoom-in": Case(lambda w: w.zoom is Zoom.NODES and w.cursor == FAILED, before=TO_THE_BAD),
    "main.zoom-out": Case(lambda w: w.zoom is Zoom.FABRIC and w.cursor == FAILED, before=TO_THE_BAD),
    "main.back": Case(lambda w: w.zoom is Zoom.GPUS and w.cursor == FAILED, before=(*TO_THE_BAD, "plus")),
    "main.filter": Case(lambda w: "n060>" in w.text and w.focus == "prompt-input"),
    "main.unfilter": Case(lambda w: w.app.main.view_state.filter is None, before=("f", *"slow", "enter")),
    "main.jump": Case(lambda w: "n060:3>n061:5" in w.text and w.typed == "go "),
    "main.sort": Case(lambda w: w.rows[:2] == ["n000:1", "n000:3"] and "worst first" in w.text),
    "main.blame": Case(lambda w: w.rows[0] == w.columns[0] == "n002" and "likely causes first" in w.text),
    "main.grouping": Case(lambda w: w.rows[:2] == ["n000:0", "n001:0"] and " by rail " in w.text),
    "main.list": Case(lambda w: w.app.main.view == "worst"),
    "main.other-way": Case(lambda w: w.cursor == FAILED[::-1], before=TO_THE_BAD),
    "main.map": Case(lambda w: not w.app.main.minimap.display, before=("plus",), story=wide, size=(100, 30)),
    "prompt.close": Case(lambda w: w.focus == "grid", before=("f",)),
    "worst.up": Case(lambda w: w.line == 1, before=("end",), size=SMALL),
    "worst.down": Case(lambda w: w.line == 1, size=SMALL),
    "worst.first": Case(lambda w: w.line == 0, before=("end",), size=SMALL),
    "worst.last": Case(lambda w: w.line == 2, size=SMALL),
    "worst.page-up": Case(lambda w: w.line < 2, before=("end",), size=SMALL),
    "worst.page-down": Case(lambda w: w.line > 0, size=SMALL),
    "worst.sort-next": Case(lambda w: "pair ▾" in w.text, size=SMALL),
    "worst.sort-previous": Case(lambda w: "message ▾" in w.text, size=SMALL),
    "worst.invert": Case(lambda w: "▴" in w.text and w.app.main.worst_pairs.sorting.inverted, size=SMALL),
    "main.sort-worst": Case(lambda w: "pair ▾" in w.text, before=("v",), size=(120, 60)),
    "pair.retest": Case(lambda w: w.feed.retested == [FAILED], before=(*TO_THE_BAD, "enter")),
    "pair.retest-both": Case(lambda w: w.feed.retested == [FAILED, FAILED[::-1]], before=(*TO_THE_BAD, "enter")),
    "pair.turn": Case(lambda w: f" {FAILED[1]} > {FAILED[0]} " in w.title, before=(*TO_THE_BAD, "enter")),
    "pair.node": Case(lambda w: w.screen == "NodeScreen" and " n000 " in w.title, before=(*TO_THE_BAD, "enter")),
    "pair.other-node": Case(lambda w: w.screen == "NodeScreen" and " n001 " in w.title, before=(*TO_THE_BAD, "enter")),
    "pair.copy": Case(lambda w: " > ".join(FAILED) in w.app.clipboard, before=(*TO_THE_BAD, "enter")),
    "node.next": Case(lambda w: " n001 " in w.title, before=("n",)),
    "node.previous": Case(lambda w: " n002 " in w.title, before=("n",)),
    "node.copy": Case(lambda w: "n000" in w.app.clipboard, before=("n",)),
    "preflight.all": Case(lambda w: w.text != w.before["text"], before=("P",), size=(120, 60)),
    "nodes.more": Case(lambda w: w.scrolled > 0, before=("t",), size=(80, 16)),
    "nodes.step": Case(lambda w: "enter runs it on n000" in w.text, before=("t",)),
    "app.findings": Case(lambda w: w.screen == "FindingsScreen"),
    "findings.go-1": Case(lambda w: "concerns no pair of the grid" in w.notifications, before=("F",)),
    "findings.go-2": Case(lambda w: w.screen == "MainScreen" and w.cursor == FAILED, before=("F",)),
    "findings.go-3": Case(lambda w: w.screen == "MainScreen" and w.cursor == TIMEOUT, before=("F",)),
    "findings.go-4": Case(lambda w: w.screen == "MainScreen" and w.cursor == SLOW, before=("F",)),
    **{
        f"findings.go-{number}": Case(lambda w: "concerns no pair of the grid" in w.notifications, before=("F",))
        for number in (5, 6)
    },
    "findings.go-7": Case(lambda w: "there is no finding 7" in w.notifications, before=("F",)),
    "findings.go-8": Case(lambda w: "there is no finding 8" in w.notifications, before=("F",)),
    "findings.go-9": Case(lambda w: "there is no finding 9" in w.notifications, before=("F",)),
    "findings.next": Case(lambda w: marked_finding(w) == "2", before=("F",)),
    "findings.previous": Case(lambda w: marked_finding(w) == "2", before=("F", "tab", "tab")),
    "findings.here": Case(lambda w: w.app.screen is w.app.main, before=("F",)),
    "findings.confirm": Case(lambda w: [one.rule for one in w.feed.confirmed] == ["FT017"] * 3, before=("F", "tab")),
    "findings.acknowledge": Case(lambda w: w.focus == "prompt-input" and "ticket" in w.text, before=("F",)),
    "findings.unacknowledge": Case(lambda w: "is not marked as known" in w.notifications, before=("F",)),
    "findings.copy": Case(lambda w: "n002 failed" in w.app.clipboard, before=("F",)),
    "findings.copy-all": Case(lambda w: "n000:1 > n001:2 failed" in w.app.clipboard, before=("F",)),
    "findings.open": Case(lambda w: w.screen == "MainScreen" and w.cursor == FAILED, before=("F", "tab")),
    "findings.down": Case(lambda w: "> ssh n000 sudo dmesg" in w.text, before=("F", "down"), story=asking),
    "findings.up": Case(lambda w: marked_finding(w) == "1", before=("F", "down"), story=asking),
    "findings.first": Case(lambda w: marked_finding(w) == "1", before=("F", "tab")),
    "findings.last": Case(lambda w: "> ssh n001 nvidia-smi nvlink -e" in w.text, before=("F", "end"), size=(120, 60)),
    "view.filter": Case(lambda w: w.focus == "prompt-input", before=("t",)),
    "findings.filter": Case(lambda w: w.focus == "prompt-input", before=("F",)),
    "steps.run": Case(lambda w: "> fabtui run" in w.text, before=(*TO_THE_BAD, "enter")),
    "steps.next": Case(lambda w: "> fabtui run" in w.text, before=(*TO_THE_BAD, "enter")),
    "steps.previous": Case(lambda w: "> fabtui run" in w.text, before=(*TO_THE_BAD, "enter", "tab", "tab")),
    "run.yes": Case(lambda w: [one.argv for one in w.feed.ran] == [("sudo", "dmesg")], before=ASKED, story=asking),
    "run.no": Case(lambda w: w.screen == "FindingsScreen" and not w.feed.ran, before=ASKED, story=asking),
    "pair.copy-command": Case(lambda w: w.app.clipboard.startswith("fabtui "), before=(*TO_THE_BAD, "enter")),
    "main.job": Case(lambda w: "line 59 of n000" in w.text, prepare=with_a_job),
    "job.back": in_the_job(lambda w: w.app.screen is w.app.main),
    "job.log": in_the_job(lambda w: w.screen == "JobLogScreen" and "line 59 of n000" in w.text),
    "job.out": in_the_job(lambda w: "n001.out" in w.text, "down"),
    "job.err": in_the_job(lambda w: "a warning" in w.text),
    "job.gpu": in_the_job(lambda w: "NVIDIA A10" in w.text and w.node == "n001", "down"),
    "job.step": in_the_job(lambda w: "> fabtui explain" in w.text),
    "job.step-back": in_the_job(lambda w: "> fabtui explain" in w.text),
    "job.ask": in_the_job(lambda w: "No links to the nodes are open" in w.notifications),
    "job.jobs": in_the_job(lambda w: w.screen == "JobsScreen"),
    "jobs.open": in_the_job(lambda w: "no job is listed" in w.notifications, "O"),
    "jobs.back": in_the_job(lambda w: w.screen == "JobScreen", "O"),
    "job.follow": in_the_job(lambda w: "held, f follows" in w.text),
    "job.node": in_the_job(lambda w: w.screen == "NodeScreen"),
    "job.copy": in_the_job(lambda w: w.app.clipboard.startswith("logs  suspect  3 nodes")),
    "job-log.copy": in_the_job(lambda w: "line 3 of n000" in w.app.clipboard, "enter"),
    "detail.back": Case(lambda w: w.app.screen is w.app.main, before=("enter",)),
    "detail.down": Case(lambda w: w.scrolled == 1, before=("question_mark",), size=DETAIL),
    "detail.up": Case(lambda w: w.scrolled == w.before["scrolled"] - 1, before=("question_mark", "end"), size=DETAIL),
    "detail.page-down": Case(lambda w: w.scrolled > 3, before=("question_mark",), size=DETAIL),
    "detail.page-up": Case(
        lambda w: w.scrolled < w.before["scrolled"] - 3, before=("question_mark", "end"), size=DETAIL
    ),
    "detail.top": Case(lambda w: w.scrolled == 0, before=("question_mark", "end"), size=DETAIL),
    "detail.bottom": Case(lambda w: w.scrolled > 20, before=("question_mark",), size=DETAIL),
    "confirm.yes": Case(lambda w: w.feed.closed == 1, before=("q",), story=running),
    "confirm.no": Case(lambda w: w.app.screen is w.app.main and w.feed.closed == 0, before=("q",), story=running),
    "login.cancel": Case(lambda w: w.feed.answered == [None] and w.app.screen is w.app.main, prepare=with_a_question),
    "jump.leave": Case(lambda w: w.app.screen is w.app.main, before=("ctrl+o",)),
    "command.leave": Case(lambda w: w.app.screen is w.app.main, before=("colon",)),
    "command.complete": Case(lambda w: w.typed == "findings", before=("colon", *"fin")),
    "command.previous": Case(lambda w: w.typed == "nodes", before=("colon", *"nodes", "enter", "colon")),
    "command.next": Case(lambda w: w.typed == "", before=("colon", *"nodes", "enter", "colon", "up")),
}


def all_kinds() -> list[type[DOMNode]]:
    """Every class of the screen that has bindings, whether it is in a list or not."""
    found: dict[str, type[DOMNode]] = {}
    for module in pkgutil.walk_packages(fabtui.screen.__path__, "fabtui.screen."):
        for thing in vars(importlib.import_module(module.name)).values():
            ours = isinstance(thing, type) and issubclass(thing, DOMNode) and thing.__module__.startswith("fabtui.")
            if ours and thing.__dict__.get("BINDINGS"):
                found[thing.__qualname__] = thing
    return list(found.values())


#: Those of the start screen are pressed in `test_start`.
KINDS = [kind for kind in all_kinds() if kind is not StartApp]
KEYS = [(one.id or "", key) for kind in KINDS for one in bindings_of(kind) for key in one.key.split(",")]


def test_every_binding_has_an_id_words_and_a_place_in_the_help() -> None:
    listed = key_owners(FabricApp)
    for kind in all_kinds():
        assert kind in listed, f"{kind.__name__} is not among key_owners()"
        for binding in kind.__dict__["BINDINGS"]:
            assert binding.id, f"a binding of {kind.__name__} has no id: {binding}"
            assert binding.tooltip, f"{binding.id} has no words"


async def test_a_binding_is_added_in_one_place(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """One more binding of a class is in the key bar, the help, the palette, the user's keymap and the table of keys."""
    added = Binding("f7", "copy", "duplicate", id="findings.duplicate", tooltip="copy the findings twice")
    monkeypatch.setattr(FindingsScreen, "BINDINGS", [added, *FindingsScreen.BINDINGS])
    monkeypatch.setattr(FindingsScreen, "_merged_bindings", FindingsScreen._merge_bindings())
    rows = {row.id: row for row in key_rows(FabricApp)}
    assert rows["findings.duplicate"] == KeyRow(
        "findings.duplicate", "f7", "copy the findings twice", "FindingsScreen", "Findings"
    )
    assert check_keys({"findings.duplicate": "f8"}, FabricApp) == ({"findings.duplicate": "f8"}, [])
    async with opened(FakeFeed(sweep_of_two().events), keys={"findings.duplicate": "f8"}) as (app, pilot):
        await press_each(pilot, "F")
        assert "f8 duplicate" in screen_text(app).splitlines()[-1]
        assert "Copy the findings twice" in {
            command.title.partition("  (")[0] for command in app.get_system_commands(app.screen)
        }
        await press_each(pilot, "f8")
        assert "n002 failed" in app.clipboard
        await press_each(pilot, "question_mark")
        assert any(
            "f8" in line and "copy the findings twice" in line and "findings.duplicate" in line
            for line in screen_text(app).splitlines()
        )


def test_every_binding_has_a_case() -> None:
    ids = {name for name, _ in KEYS}
    assert ids - set(CASES) == set(), "these keys are pressed by no test; add a case each"
    assert set(CASES) - ids == set(), "these cases are of keys that are gone"


#: Keys by what the app is brought into before they are pressed.
States = dict[tuple[str, ...], list[tuple[str, str]]]
#: Maximum number of such states in one test, as tests run side by side.
_MOST_STATES = 12


def _sessions() -> Iterator[tuple[Case, States]]:
    """Group the keys by the session and the size in which they are pressed, and by the keys before them."""
    found: dict[tuple[object, ...], States] = {}
    for name, key in KEYS:
        if case := CASES.get(name):
            states = found.setdefault((case.story, case.size, case.prepare), {})
            states.setdefault(case.before, []).append((name, key))
    for states in found.values():
        befores = list(states)
        for at in range(0, len(befores), _MOST_STATES):
            part = {before: states[before] for before in befores[at : at + _MOST_STATES]}
            yield CASES[part[befores[at]][0][0]], part


@pytest.mark.parametrize(
    ("case", "states"),
    [pytest.param(case, states, id=next(iter(states.values()))[0][0]) for case, states in _sessions()],
)
async def test_a_key_does_what_it_is_for(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: Case, states: States
) -> None:
    """Each key is pressed in a copy of the process, and each state is reached in one: the app starts once."""
    monkeypatch.chdir(tmp_path)
    feed = FakeFeed(case.story().events)
    case.prepare(feed)
    async with opened(feed, size=case.size) as (app, pilot):
        world = World(app, feed, tmp_path, {})
        # A copy shares its memory with its origin, where nothing writes to it; looking for garbage does.
        gc.freeze()
        try:
            wrong = [
                await in_a_copy(partial(press_in_a_state, world, pilot, before, keys))
                for before, keys in states.items()
            ]
        finally:
            gc.unfreeze()
    assert not any(wrong), "\n".join(wrong)


async def press_in_a_state(
    world: World, pilot: Pilot[int], before: tuple[str, ...], keys: list[tuple[str, str]]
) -> str:
    """Bring the app into a state, press each key in a copy of it, and return what is wrong then."""
    await press_each(pilot, *before)
    body = world.app.screen.query("#detail-body")
    scrolled = body.first().scroll_y if body else 0
    log = int(world.app.main.event_log.size.height)
    world.before.update(at=world.at, text=world.text, scrolled=scrolled, log=log)
    found = [await in_a_copy(partial(press_and_check, world, pilot, name, key)) for name, key in keys]
    return "\n".join(filter(None, found))


async def in_a_copy(work: Callable[[], Awaitable[str]]) -> str:
    """Do something in a copy of this process, and return what it returns, or its exception."""
    loop = asyncio.get_running_loop()
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        wrong = "the copy did not come to an end"
        try:
            gc.disable()
            # A copy has no threads, and its loop has to be marked as running.
            loop._default_executor = None  # type: ignore[attr-defined]
            asyncio._set_running_loop(loop)
            wrong = await work()
        except BaseException:
            wrong = f"{work}: {traceback.format_exc()}"
        finally:
            os.write(writer, wrong.encode()[:30_000])
            os._exit(0)
    os.close(writer)
    try:
        with os.fdopen(reader, "rb") as reported:
            return reported.read().decode(errors="replace")
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)  # noqa: ASYNC222 - it is dead


async def press_and_check(world: World, pilot: Pilot[int], name: str, key: str) -> str:
    check = CASES[name].check
    world = replace(world, folder=world.folder / f"{name}-{key}")
    world.folder.mkdir()
    os.chdir(world.folder)
    if check(world):
        return f"what {key} ({name}) is for holds before it is pressed"
    await press_each(pilot, key)
    for _ in range(60):
        if check(world):
            return ""
        await pilot.pause(0.05)
    return f"{key} ({name}) had no effect; notifications: {world.notifications!r}\n{world.text}"


def test_the_working_folder_is_as_it_was() -> None:
    assert not [name for name in os.listdir() if name.startswith("fabtui-2")]


async def test_a_line_of_the_topology_with_nothing_below_reports_it(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events)) as (app, pilot):
        await press_each(pilot, "T", "space")
        assert not app._notifications, "rails are below this one"
        await press_each(pilot, "end", "right", "down", "space")
        assert [note.message for note in app._notifications] == ["nothing is below this line"]
