"""The preflight on the screen, in short while nodes connect, and what the user's own probes gave."""

import asyncio
from typing import Any

import pytest

from fabtui.model.events import InventoryUpdate, NodeState, ProbeResult
from fabtui.screen.session_diagnosis import SessionDiagnosis
from fabtui.screen.views.node import NodeScreen
from fabtui.screen.views.nodes import NodesScreen
from tests.screen.conftest import make_app, press, settled
from tests.screen.fakefeed import FakeFeed, Story
from tests.screen.test_snapshots import Compare, pressed
from tests.unit.model.cluster import clock, host, inventory, memlock, node

NAMES = [f"n{i:03}" for i in range(60, 76)]


def story() -> Story:
    """Return sixteen nodes of eight H200s: one with memlock, one with an older driver and a slow port, one late."""
    session = Story(NAMES, 8)
    for name in NAMES:
        one = node(name)
        if name == "n062":
            one = node(name, host=memlock(name, 65536))
        elif name == "n067":
            found = inventory(host=name, driver="550.54.15")
            found["ib"][3]["rate"] = 200.0
            one = node(name, found, clock=clock(-3.25))
        session.state(name, NodeState.CONNECTING)
        if name == "n070":
            session.state(name, NodeState.FAILED, "no route to host", "ping n070")
            continue
        session.add(InventoryUpdate(node=name, value=dict(one.inventory)))
        for probe, value in one.probe_results.items():
            session.add(ProbeResult(node=name, probe=probe, value=dict(value)))
        session.state(name, NodeState.READY)
    return session


def test_preflight_view(snap_compare: Compare) -> None:
    app = make_app(FakeFeed(story().events))
    assert snap_compare(app, terminal_size=(120, 40), run_before=pressed("P"))


def test_while_connecting(snap_compare: Compare) -> None:
    app = make_app(FakeFeed(story().events))
    assert snap_compare(app, terminal_size=(120, 40), run_before=pressed())


def test_ascii_and_no_colour(snap_compare: Compare) -> None:
    app = make_app(FakeFeed(story().events), colors="none", ascii=True)
    assert snap_compare(app, terminal_size=(80, 24), run_before=pressed("P"))


async def test_all_facts_and_the_way_back() -> None:
    app = make_app(FakeFeed(story().events))
    async with app.run_test(size=(120, 200)) as pilot:
        await settled(app, pilot)
        await press(pilot, "P")
        screen = app.screen
        assert isinstance(screen, NodesScreen)

        def text() -> str:
            return "\n".join("".join(part for part, _ in line) for line in screen.body_lines(118))

        assert "≠ memlock" in text()
        assert "NUMA nodes" not in text()
        await pilot.press("a")
        assert "NUMA nodes" in text()
        await pilot.press("escape")
        assert app.screen is app.main


async def test_it_follows_the_session() -> None:
    feed = FakeFeed(story().events, hold=True)
    app = make_app(feed)
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(app, pilot)
        feed.advance(1)
        await press(pilot, "P")
        screen = app.screen
        assert isinstance(screen, NodesScreen)
        assert "0 nodes inspected" in "".join(text for text, _ in screen.title_parts())
        feed.advance()
        while "15 nodes inspected" not in "".join(text for text, _ in screen.title_parts()):
            await pilot.pause(0.05)


def test_it_is_not_evaluated_again_for_unrelated_events() -> None:
    session = story()
    latest = SessionDiagnosis(session.shadow)
    found, current = latest.preflight()
    session.log("something")
    assert current
    assert latest.preflight() == (found, True)
    assert latest.preflight()[0] is found


async def test_a_later_preflight_holds_up_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    session = story()
    latest = SessionDiagnosis(session.shadow)
    first, _ = latest.preflight()
    session.state(NAMES[0], NodeState.FAILED, "no route to host", "ping n060")
    monkeypatch.setattr("fabtui.screen.session_diagnosis.STEP", 0.0)
    turns = 0
    while not (found := latest.preflight())[1]:
        assert found[0] is first
        turns += 1
        await asyncio.sleep(0.001)
    assert turns > 10
    assert (NAMES[0],) in {nodes for nodes, _ in found[0].missing}


async def test_a_probe_of_the_users_own_is_shown_with_its_node() -> None:
    session = Story(["n000"], 1)
    session.connect("n000")
    judged = [{"subject": "scratch", "verdict": "warn", "text": "/scratch is \x1b[31m93 % full"}]
    value: dict[str, Any] = {"own": True, "title": "scratch", "value": {"used": 93}, "units": {"used": "%"}}
    session.add(ProbeResult(node="n000", probe="scratch", value={**value, "judged": judged, "problem": None}))
    session.add(ProbeResult(node="n000", probe="bad", value={"own": True, "problem": "a set, which is not a value"}))
    app = make_app(FakeFeed(session.events))
    async with app.run_test(size=(120, 100)) as pilot:
        await settled(app, pilot)
        app.open_node("n000")
        await pilot.pause()
        screen = app.screen
        assert isinstance(screen, NodeScreen)
        text = "\n".join("".join(part for part, _ in line) for line in screen.body_lines(118))
        assert "your probe scratch" in text
        assert "93 %" in text
        assert "! /scratch is [31m93 % full" in text
        assert "did not work: a set, which is not a value" in text


def test_a_host_name_that_is_not_one_node_alone() -> None:
    """Two nodes that are one machine are session on the screen as they are in text."""
    session = Story(["a", "b"], 8)
    for name in ("a", "b"):
        same = host("x")
        session.add(InventoryUpdate(node=name, value=inventory(host="x")))
        session.add(ProbeResult(node=name, probe="host", value=same))
    found, _ = SessionDiagnosis(session.shadow).preflight()
    assert [finding.topic for finding in found.findings] == ["machine"]
