"""Text from a node is shown literally: no markup, escape sequences, bidirectional text or broken columns."""

from typing import Any

import pytest
from rich.cells import cell_len
from textual.widgets import Static

from fabtui.model.events import InventoryUpdate, NodeState, ProbeResult
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.presentation.cell_levels import CellStyle
from tests.screen.ansi import strip_codes
from tests.screen.conftest import Opened, press, screen_text
from tests.screen.fakefeed import FakeFeed, Story

NASTY = (
    "[bold red]x[/] [@click=app.quit]q[/] $accent \x1b[2J\x1b]52;c;AAAA\x07 "
    "\u202etxet\u202c \x9b31m \x00 [/nothing] \\[ {x}"
)
SHOWN = "[bold red]x[/] [@click=app.quit]q[/] $accent [2J]52;c;AAAA"


def nasty_story(node: str = "bad[/]node\x1b[1m") -> Story:
    story = Story([node, "n001"], 2)
    for name in (node, "n001"):
        story.connect(name)
    story.add(InventoryUpdate(node="n001", value=nasty_inventory()))
    story.add(
        ProbeResult(node="n001", probe="ibstat", value={"cas": [NASTY, {"ca": NASTY, "ports": NASTY}], "raw": NASTY})
    )
    story.add(ProbeResult(node="n001", probe="nvlink", error=NASTY))
    story.add(ProbeResult(node="n001", probe="rdma", value=nasty_ports()))
    story.add(ProbeResult(node="n001", probe="ibfabric", value=nasty_fabric()))
    story.endpoints(node, "n001")
    story.phase("p2p", 12)
    story.log(NASTY, node, "error")
    story.measured(
        Measurement(
            Layer.P2P,
            f"{node}:0",
            "n001:1",
            Verdict.FAILED,
            unit="GB/s",
            error=NASTY,
            transport=NASTY,
            how=NASTY,
            raw=NASTY + "\n" + NASTY,
            src_addr=NASTY,
            dst_addr=NASTY,
            time=story.now,
        ),
        Measurement(Layer.P2P, "n001:1", f"{node}:0", Verdict.OK, 3.0, NASTY, transport=NASTY, time=story.now),
    )
    return story


def nasty_ports() -> dict[str, Any]:
    port = {"ca": NASTY, "port": NASTY, "netdev": NASTY, "gid_index": NASTY, "ipv4": NASTY, "pkeys": [NASTY] * 9}
    counts = {"active_mtu": NASTY, "max_mtu": NASTY, "errors": {NASTY: 3}, "saturated": [NASTY]}
    nic = {"interface": NASTY, "link": NASTY, "speed": NASTY, "pause": {"rx": NASTY}, "discards": {NASTY: 1}}
    return {"ports": [{**port, **counts}, NASTY], "nics": [nic, 4], "nccl": {"gid_why": NASTY, "hca_why": 7}}


def nasty_fabric() -> dict[str, Any]:
    leaf = {"guid": NASTY, "name": NASTY, "port": NASTY}
    link = {"lanes": NASTY, "rate": NASTY, "below": NASTY, "could_rate": NASTY}
    port = {"ca": NASTY, "port": 1, "leaf": leaf, "link": link, "peer_errors": {NASTY: 2}, "peer_saturated": NASTY}
    below = {"type": "switch", "guid": NASTY, "name": NASTY, "port": NASTY, "peer": {"guid": NASTY}, "below": [NASTY]}
    return {"ports": [port], "fabric": {"below": [below], "errors": [below], "leaves": {NASTY: leaf}}, "error": NASTY}


def nasty_inventory() -> dict[str, Any]:
    return {
        "host": NASTY,
        "os": [NASTY],
        "kernel": {"a": NASTY},
        "cpus": NASTY,
        "memory": NASTY,
        "gpus": [
            NASTY,
            None,
            {"name": NASTY, "index": NASTY, "pcie": NASTY, "processes": [{"pid": NASTY, "name": NASTY}, 3]},
        ],
        "nics": {"not": "a list"},
        "ib": [{"ca": NASTY, "rate": NASTY, "state": NASTY}],
        "data_addresses": [NASTY, {"address": NASTY}],
        "pythons": NASTY,
        "nccl": [{"path": NASTY, "version": 3}],
        "limits": [1],
        "tools": {NASTY: NASTY},
        "env": {NASTY: NASTY},
        "nvml_error": NASTY,
        "driver": NASTY,
    }


def assert_clean(text: str) -> None:
    for line in text.splitlines():
        assert all(character.isprintable() for character in line), line


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (60, 15)])
async def test_text_from_a_node_is_only_text(opened: Opened, size: tuple[int, int]) -> None:
    async with opened(FakeFeed(nasty_story().events), size=size) as (app, pilot):
        for key in (
            *("right", "right", "right", "1", "7", "2", "L", "enter", "escape", "n", "G", "escape", "N", "escape"),
            *("y", "c"),
        ):
            await press(pilot, key)
            text = screen_text(app)
            assert_clean(text)
            assert all(cell_len(line) == size[0] for line in text.splitlines())
        assert app.is_running
        assert "\x1b" not in app.clipboard
        assert "[bold red]x[/]" in app.clipboard


async def test_it_is_shown_to_the_letter(opened: Opened) -> None:
    async with opened(FakeFeed(nasty_story().events), size=(200, 60)) as (app, pilot):
        await press(pilot, "right_square_bracket")
        assert SHOWN in screen_text(app)
        await press(pilot, "enter")
        assert screen_text(app).count(SHOWN) >= 4
        await press(pilot, "escape", "c", "enter")
        assert "bad[/]node[1m" in screen_text(app)


async def test_no_escape_sequence_of_a_node_reaches_the_terminal(opened: Opened) -> None:
    async with opened(FakeFeed(nasty_story().events)) as (app, pilot):
        await press(pilot, "right_square_bracket")
        for screen in ("main", "pair"):
            if screen == "pair":
                await press(pilot, "enter")
            for strip in app.screen._compositor.render_strips():
                assert "\x1b" not in strip_codes(strip.render(app.console))


@pytest.mark.parametrize(
    "name",
    ["n\u0301ode", "\u30ce\u30fc\u30c9", "\U0001f600", "a b\tc", "x" * 300, "\u202eabc", "-", "n\u200d1", "日本-node"],
)
async def test_odd_names_do_not_break_columns(opened: Opened, name: str) -> None:
    story = Story([name, "n001"], 3)
    for node in (name, "n001"):
        story.connect(node)
    story.endpoints(name, "n001")
    story.phase("p2p", 30)
    story.measured(*story.good(f"{name}:0", "n001:2"))
    for size in ((120, 30), (80, 24), (62, 16)):
        async with opened(FakeFeed(story.events), size=size) as (app, pilot):
            await press(pilot, "down", "right", "right")
            grid = app.main.grid
            lines = [strip.text for strip in grid.render_lines(grid.size.region)]
            assert all(cell_len(line) == len(line) == grid.size.width for line in lines)


async def test_a_state_with_nasty_words(opened: Opened) -> None:
    story = Story(["a"], 1)
    story.state("a", NodeState.FAILED, NASTY, NASTY)
    async with opened(FakeFeed(story.events, badges=[NASTY]), size=(120, 20), title=NASTY) as (app, pilot):
        await pilot.pause()
        text = screen_text(app)
        assert_clean(text)
        assert "[bold red]x[/]" in text


async def test_no_widget_can_write_to_the_terminal_what_it_would_act_on(opened: Opened) -> None:
    """Text that a view forgets to clean is filtered where it is drawn."""
    async with opened(FakeFeed(nasty_story().events), size=(120, 40)) as (app, pilot):
        app.main.title = NASTY
        await app.screen.mount(Static(NASTY.replace("\n", " "), markup=False), Static("x\u202ey\x9bz", markup=False))
        app.notify(NASTY, markup=False)
        await pilot.pause()
        palette = app.main.grid.palette
        runs: list[tuple[int, str]] = [(CellStyle.HEADER, NASTY)]
        drawn = [strip.render(app.console) for strip in app.screen._compositor.render_strips()]
        drawn += [palette.ready(runs), palette.strip(runs, None).render(app.console)]
        assert any("[2J]52;c;AAAA" in line for line in drawn)
        for line in drawn:
            assert strip_codes(line).isprintable(), line
