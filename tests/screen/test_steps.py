"""The list of findings: selection, filter, and next steps that run."""

from collections.abc import Callable
from typing import Any

import pytest

from fabtui.diagnosis.knowledge.next_commands import login_words, on_node
from fabtui.diagnosis.preflight.checks import Preflight, latest_preflight
from fabtui.model.events import CommandEnd, CommandStart, NodeState
from fabtui.model.session_logs import CommandRun
from fabtui.presentation.wording import plain
from fabtui.screen.views.detail_base import RunScreen, SteppedScreen
from fabtui.screen.views.findings import FindingsScreen
from fabtui.screen.views.node import NodeScreen
from fabtui.screen.views.nodes import NodesScreen
from fabtui.screen.views.pair import PairScreen
from fabtui.screen.widgets.finding_lines import output_lines
from tests.conftest import ModelMaker
from tests.screen.conftest import Opened, press, screen_text, until
from tests.screen.fakefeed import FakeFeed, sweep_of_two

HOSTILE = "\x1b[31mred\x1b]0;title\x07\x1b[2J[bold]kept[/bold]\u202eevil\tend\r\n" * 3


def two_nodes(**more: Any) -> FakeFeed:
    return FakeFeed(sweep_of_two(failed_node=False).events, **more)


async def shown_findings(app: Any, pilot: Any, *next_steps: str) -> FindingsScreen:
    """Open the view of findings, whose first finding has these next steps."""
    # Not before all pairs are checked and searched: what is found later would replace these.
    await until(pilot, lambda: app.findings.known and app.findings.final and app.findings._search is None)
    if next_steps:
        app.findings.found = [app.findings.found[0].replace(next=next_steps), *app.findings.found[1:]]
    await press(pilot, "F", seconds=0.1)
    assert isinstance(app.screen, FindingsScreen)
    return app.screen


async def test_a_step_that_only_reads_runs_at_once_and_its_output_stands_below_it(opened: Opened) -> None:
    feed = two_nodes()
    async with opened(feed, size=(120, 40)) as (app, pilot):
        await shown_findings(app, pilot, "ssh n000 ip -s link show eth1")
        await press(pilot, "down")
        assert "enter runs it on n000" in screen_text(app)
        assert feed.ran == []
        await pilot.press("enter")
        await until(pilot, lambda: feed.ran)
        assert feed.ran[0].argv == ("ip", "-s", "link", "show", "eth1")
        assert feed.ran[0].node == "n000"
        await until(pilot, lambda: "running on n000" in screen_text(app))
        await press(pilot, "enter", seconds=0.1)
        assert len(feed.ran) == 1, "it is still running"
        feed.answer(output=HOSTILE, exit=0, dropped=7)
        await until(pilot, lambda: "n000: exit status 0, 3 lines, 7 more bytes not kept" in screen_text(app))
        text = screen_text(app)
        assert "[31mred]0;title[2J[bold]kept[/bold]evil" in text
        assert not {"\x1b", "\x07", "\u202e", "\t"} & set(text)
        assert [line.text for line in app.model.log if "you run" in line.text] == ["you run: ip -s link show eth1"]


async def test_in_a_lab_a_step_shows_where_it_runs_and_what_is_copied_works_where_it_is_pasted(opened: Opened) -> None:
    feed = two_nodes()
    async with opened(feed, size=(120, 40)) as (app, pilot):
        app.model.lab = "2x4"
        await shown_findings(app, pilot, on_node("n000", "ss -ltn", app.model))
        await pilot.press("y")
        assert "ssh n000 ss -ltn" in app.clipboard
        assert "lab:" not in app.clipboard
        await pilot.press("Y")
        assert "ssh n000 ss -ltn" in app.clipboard
        assert "lab:" not in app.clipboard
        await pilot.press("down", "y")
        assert "ssh n000 ss -ltn (lab: runs here)" in screen_text(app)
        assert app.clipboard == "ss -ltn"
        await pilot.press("enter")
        await until(pilot, lambda: feed.ran)
        assert (feed.ran[0].node, feed.ran[0].argv) == ("n000", ("ss", "-ltn"))


@pytest.mark.parametrize("view", [PairScreen, NodeScreen, NodesScreen])
async def test_steps_of_the_other_views_run_alike(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, view: type[SteppedScreen]
) -> None:
    feed = two_nodes()
    async with opened(feed, size=(120, 40)) as (app, pilot):
        await until(pilot, lambda: app.findings.known)
        steps = ("ssh n001 ip -s link show eth1", "ssh n001 sudo ip route flush cache", "ssh other uptime")
        found = app.preflight()
        one = app.findings.found[0].replace(nodes=("n000",), next=steps, cells=frozenset({("n000:0", "n000:1")}))
        app.findings.found = [one]
        monkeypatch.setattr(app.findings, "follow", lambda: None)
        monkeypatch.setattr(app.findings, "preflight", lambda: (found._replace(findings=[one]), True))
        await pilot.press(
            "ctrl+home", "home", "right", *{PairScreen: ["enter"], NodeScreen: ["n"], NodesScreen: ["P"]}[view]
        )
        await pilot.pause(0.1)
        assert isinstance(app.screen, view)
        assert steps[0] in screen_text(app)
        first = "tab" if view is NodesScreen else "enter"
        assert f"{first} next steps" in screen_text(app).splitlines()[-1]
        await press(pilot, first, seconds=0.1)
        assert feed.ran == [], "the first press selects"
        assert "enter runs it on n001" in screen_text(app)
        await pilot.press("enter")
        await until(pilot, lambda: feed.ran)
        assert (feed.ran[0].node, feed.ran[0].argv) == ("n001", ("ip", "-s", "link", "show", "eth1"))
        feed.answer(output=HOSTILE, exit=0)
        await until(pilot, lambda: "n001: exit status 0, 3 lines" in screen_text(app))
        await press(pilot, "tab", "enter", seconds=0.1)
        assert isinstance(app.screen, RunScreen)
        await press(pilot, "n", "tab", "y", "enter", seconds=0.1)
        assert app.clipboard == steps[2]
        assert "other is not a node of this session" in screen_text(app)
        assert len(feed.ran) == 1
        line = next(y for y, text in enumerate(screen_text(app).splitlines()) if steps[0] in text)
        await pilot.click(offset=(30, line), times=2)
        await until(pilot, lambda: len(feed.ran) == 2)


async def test_a_view_without_next_steps_reports_that(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(two_nodes(), size=(120, 40)) as (app, pilot):
        await until(pilot, lambda: app.findings.known)
        monkeypatch.setattr(
            app.findings, "preflight", lambda: (Preflight([], latest_preflight(app.model).table, []), True)
        )
        await press(pilot, "n", "tab", seconds=0.1)
        assert isinstance(app.screen, NodeScreen)
        assert list(app._notifications)[-1].message == "there is no next step here"


async def test_a_step_that_may_change_something_asks_and_enter_is_no_yes(opened: Opened) -> None:
    feed = two_nodes()
    async with opened(feed, size=(120, 40)) as (app, pilot):
        await shown_findings(app, pilot, "ssh n001 sudo ip route flush cache")
        await press(pilot, "down", "enter", seconds=0.1)
        assert isinstance(app.screen, RunScreen)
        assert "Run this on n001?" in screen_text(app)
        assert "sudo ip route flush cache" in screen_text(app)
        for no in ("enter", "n", "escape", "q"):
            if not isinstance(app.screen, RunScreen):
                await press(pilot, "enter", seconds=0.1)
            await press(pilot, no, seconds=0.1)
            assert isinstance(app.screen, FindingsScreen), no
        assert feed.ran == []
        await press(pilot, "enter", seconds=0.1)
        await pilot.press("y")
        await until(pilot, lambda: feed.ran)
        assert feed.ran[0].argv == ("sudo", "ip", "route", "flush", "cache")


async def test_a_read_only_session_refuses_tests_and_steps_that_may_change_something(opened: Opened) -> None:
    feed = two_nodes()
    feed.read_only = True
    async with opened(feed, size=(120, 40)) as (app, pilot):
        await until(pilot, lambda: app.findings.known)
        for key, why in (("r", "no pair is tested"), ("w", "watching would test pairs")):
            await press(pilot, key, seconds=0.1)
            assert list(app._notifications)[-1].message == f"this session is read-only (--read-only): {why}"
        await shown_findings(app, pilot, "ssh n001 sudo ip route flush cache", "ssh n000 ip -s link")
        await press(pilot, "c", seconds=0.1)
        assert list(app._notifications)[-1].message.endswith("no experiment is run")
        await press(pilot, "down", seconds=0.1)
        assert "This session is read-only" in screen_text(app)
        await press(pilot, "enter", seconds=0.1)
        assert isinstance(app.screen, FindingsScreen), "it is refused, not asked"
        await pilot.press("down", "enter")
        await until(pilot, lambda: feed.ran)
        assert [step.argv for step in feed.ran] == [("ip", "-s", "link")]
    assert feed.retested == []
    assert not feed.model.watching


@pytest.mark.parametrize(
    ("step", "why"),
    [
        ("fabtui run --lab 2x2", "runs fabtui itself"),
        ("ssh n001 'sysctl -a; ip rule'", "needs a shell (;)"),
        ("ssh n001 cat /etc/hosts > /tmp/x", "needs a shell (>)"),
        ("ssh n001 ls $HOME", "needs a shell ('$')"),
        ("ssh other uptime", "other is not a node of this session"),
    ],
)
async def test_a_step_that_cannot_run_shows_why_and_is_copied(opened: Opened, step: str, why: str) -> None:
    feed = two_nodes()
    async with opened(feed, size=(120, 40)) as (app, pilot):
        await shown_findings(app, pilot, step)
        await press(pilot, "down", "enter", "y", seconds=0.1)
        assert why in screen_text(app)
        assert feed.ran == []
        assert isinstance(app.screen, FindingsScreen)
        assert app.clipboard == step


async def test_nothing_runs_on_the_nodes_of_a_recording_or_on_a_lost_node(opened: Opened) -> None:
    feed = two_nodes(can_test=False)
    async with opened(feed, size=(120, 40)) as (app, pilot):
        await shown_findings(app, pilot, "ip -s link")
        await press(pilot, "down", "enter", seconds=0.1)
        assert "Nothing runs on the nodes of a recording. y copies it." in screen_text(app)
        feed.can_test = True
        app.findings.found[0] = app.findings.found[0].replace(next=("ssh n001 uptime",))
        feed.model.nodes["n001"].state = NodeState.LOST
        await press(pilot, "up", "down", "enter", seconds=0.1)
        assert feed.ran == []
        assert "n001 is lost" in list(app._notifications)[-1].message


async def test_arrows_reach_every_finding_and_enter_goes_to_its_pairs(opened: Opened) -> None:
    feed = two_nodes()
    async with opened(feed, size=(80, 24)) as (app, pilot):
        screen = await shown_findings(app, pilot)
        one = app.findings.found[0]
        pair = ("n001:2", "n000:0")
        many = [one.replace(topic=str(at), cells=frozenset({pair}), next=("ip -s link",)) for at in range(300)]
        app.findings.found = many
        screen.draw()
        await press(pilot, "end", "down", seconds=0.1)
        assert "  300 " in screen_text(app) or " 300 " in screen_text(app)
        assert "> ip -s link" in screen_text(app), "only the selected finding is open, and it is in view"
        await press(pilot, "shift+tab", "enter", seconds=0.1)
        assert app.screen is app.main
        assert [entry.name for entry in app.main.cursor_entries() or ()] == list(pair)


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50)])
async def test_the_pairs_of_a_finding_are_outlined_until_esc(opened: Opened, size: tuple[int, int]) -> None:
    async with opened(two_nodes(), size=size) as (app, pilot):
        await shown_findings(app, pilot)
        one = app.findings.found[0]
        cells = frozenset({("n001:2", "n000:0"), ("n001:2", "n000:3"), ("n000:0", "n001:1")})
        app.findings.found = [one.replace(cells=cells)]
        await press(pilot, "enter", seconds=0.1)
        assert "finding 1, pair 1 of 3   [ ] step   esc leave" in screen_text(app)
        await press(pilot, "right_square_bracket", seconds=0.1)
        assert "finding 1, pair 2 of 3" in screen_text(app)
        await pilot.press("left_square_bracket")
        grid = app.main.grid
        names = [entry.name for entry in grid.source.rows.entries]
        marked = {names[row]: len(columns) for row, columns in grid._outlined.items()}
        assert marked == {"n001:2": 2, "n000:0": 1}
        rows = [grid.render_line(grid._lines_of(at)[0]).text for at in range(len(names))]
        # The cursor's brackets are in place of the outline of the first pair.
        assert {name: text.count("⟦") for name, text in zip(names, rows, strict=True) if "⟦" in text} == {"n000:0": 1}
        assert [text.count("(") + text.count("⟦") for text in rows] == [marked.get(name, 0) for name in names]
        await press(pilot, "minus", seconds=0.1)
        assert {row: len(columns) for row, columns in grid._outlined.items()} == {0: 1, 1: 1}, "blocks of nodes"
        await press(pilot, "escape", seconds=0.1)
        assert "(" not in "".join(grid.render_line(y).text for y in range(2, grid.size.height))
        assert "[ ] step" not in screen_text(app)


async def test_a_click_selects_a_row_and_a_double_click_opens_it(opened: Opened) -> None:
    feed = two_nodes()
    async with opened(feed, size=(80, 24)) as (app, pilot):
        screen = await shown_findings(app, pilot, "ip -s link", "ssh n001 lsmod")
        line = next(y for y, text in enumerate(screen_text(app).splitlines()) if "lsmod" in text)
        await pilot.click(offset=(20, line))
        await pilot.pause(0.1)
        assert "> ssh n001 lsmod" in screen_text(app)
        assert feed.ran == []
        await pilot.click(offset=(20, line), times=2)
        await until(pilot, lambda: feed.ran)
        assert [one.argv for one in feed.ran] == [("lsmod",)]
        await pilot.click(offset=(20, 0))
        await pilot.pause(0.1)
        assert app.screen is screen


async def test_typing_filters_the_findings(opened: Opened) -> None:
    async with opened(two_nodes(), size=(120, 40)) as (app, pilot):
        await shown_findings(app, pilot)
        total = len(app.findings.found)
        await press(pilot, "slash", *"n000:3", seconds=0.1)
        assert f"1 of {total}" in screen_text(app)
        await press(pilot, "enter", "down", "escape", seconds=0.1)
        assert isinstance(app.screen, FindingsScreen), "esc shows all first"
        assert f"1 of {total}" not in screen_text(app)
        await press(pilot, "slash", *"nothing has this", "enter", seconds=0.1)
        assert "no finding has the text nothing has this" in screen_text(app)
        await pilot.press("down", "enter", "y", "c")


async def test_the_login_is_on_the_node_of_the_view(opened: Opened) -> None:
    feed = two_nodes()
    async with opened(feed, size=(120, 40)) as (app, pilot):
        await until(pilot, lambda: app.findings.known)
        entries = app.main.cursor_entries()
        assert entries is not None
        assert getattr(app.screen, "node", None) == entries[0].node == "n000"
        await press(pilot, "n", "n", seconds=0.1)
        assert getattr(app.screen, "node", None) == "n001"
        await press(pilot, "escape", "F", "end", seconds=0.1)
        assert getattr(app.screen, "node", None) == app.findings.found[-1].nodes[0]
        feed.can_test = False
        await press(pilot, "exclamation_mark", seconds=0.1)
        assert "no login" in list(app._notifications)[-1].message


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, ["ssh", "--", "n001"]),
        ({"ssh_config": "/a b"}, ["ssh", "-F", "/a b", "--", "n001"]),
        ({"transport": "local"}, []),
    ],
)
def test_the_words_of_a_login(make_model: Callable[[], ModelMaker], options: dict[str, str], words: list[str]) -> None:
    assert login_words(make_model().start(["n001"], options=options).model(), "n001") == words
    assert login_words(make_model().start(["n001"], lab="1x1").model(), "n001") == []


def test_blanks_at_the_end_of_a_line_of_output_take_no_line() -> None:
    start = CommandStart(number=1, node="n000", command="cat x", argv=("cat", "x"), time=1.0)
    run = CommandRun(start, CommandEnd(number=1, exit=0, output=f"mcast{' ' * 200}\nnext\n", time=2.0))
    lines = [plain(line) for line in output_lines(run, 60, "…", 10)]
    assert [line.strip() for line in lines] == ["n000: exit status 0, 2 lines", "mcast", "next"]
