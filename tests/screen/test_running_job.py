"""The running job on the screen: the layer ``job``, the view of its ranks, and the verdict line."""

import os
from pathlib import Path
from typing import Any

import pytest

from fabtui.diagnosis.job.job_verdict import JobState, RankState
from fabtui.model.events import JobEvidence, PlanUpdate
from fabtui.presentation.cell_levels import ASCII, UNICODE
from fabtui.presentation.job_board import JobBoard, board_text, state_glyph
from fabtui.screen.app import FabricApp
from fabtui.screen.terminal.internals import screen_lines
from tests.screen.conftest import Opened, press_each, screen_text, settled, until
from tests.screen.fakefeed import START, FakeFeed, Story, sweep_of_two
from tests.screen.fakejob import NODES, SECONDS, Kind, job_story, judged_as, verdict_of

SIZES = [(60, 20), (80, 24), (120, 40), (200, 50)]


def styles_of(app: FabricApp, text: str) -> set[str]:
    pieces = (piece for strip in screen_lines(app.screen) for piece in strip if text in piece.text)
    return {str(piece.style.bgcolor.name) for piece in pieces if piece.style is not None and piece.style.bgcolor}


@pytest.mark.snapshot
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("kind", ["hang", "fabric", "slow", "healthy"])
async def test_screens(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, snapshot: Any, kind: Kind, size: tuple[int, int]
) -> None:
    """A job that hangs by a rank and by the fabric, one with a slow rank, a healthy one."""
    judged_as(monkeypatch, verdict_of(kind))
    async with opened(FakeFeed(job_story(kind).events), size=size) as (app, pilot):
        await until(pilot, lambda: app.main.findings is None or not app.main.findings.step(1.0))
        app.main.draw()
        await pilot.pause(0.1)
        assert "\n".join(line.rstrip() for line in screen_text(app).splitlines()) == snapshot


@pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=str)
async def test_a_job_that_hangs(opened: Opened, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]) -> None:
    """The layer opens by itself; the verdict, the rank at fault, those that wait for it, and the command are shown."""
    judged_as(monkeypatch, verdict_of("hang"))
    async with opened(FakeFeed(job_story("hang").events), size=size) as (app, pilot):
        text = screen_text(app)
        lines = text.splitlines()
        assert "0:13: rank 9 on n061:1 is stopped" in lines[0]
        assert "9 job 1 " in text
        assert "9 \u25a0" in text
        assert "~  n060:0-7 n061:0,2-7 wait for rank 9" in text
        assert "ssh n061 kill -CONT 41041" in text
        assert "rank 9 on n061, GPU 1, pid 41041" in text
        # Only what is wrong is loud.
        assert styles_of(app, "9 \u25a0") != styles_of(app, "8 ~")
        assert app.main.cursor_entries()[0].name == "n061:1"  # type: ignore[index]
        await press_each(pilot, "right", "right_square_bracket")
        assert (app.main.grid.row, app.main.grid.column) == (1, 1)
        # The other layers are as they were, and the ranks come back with their cursor.
        await press_each(pilot, "2")
        assert "9 \u25a0" not in screen_text(app)
        await press_each(pilot, "9")
        assert "9 \u25a0" in screen_text(app)
        assert app.main.cursor_entries()[0].name == "n061:1"  # type: ignore[index]
        # A command that is not on the list of those that only read is asked about.
        await press_each(pilot, "enter")
        assert "Run this on n061?" in screen_text(app)
        await press_each(pilot, "n", "2", "J", "s")
        assert app.screen is app.main
        # Each function of the stacks has a line.
        assert "next_batch (data.py:63)" in screen_text(app).replace("\n", " ")


@pytest.mark.parametrize(
    ("key", "expected"),
    [("e", "report written to"), ("r", "asking the nodes"), ("n", "NodeScreen"), ("J", "JobsScreen"), ("y", "copied")],
)
async def test_keys_over_the_ranks(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, key: str, expected: str
) -> None:
    monkeypatch.chdir(tmp_path)
    judged_as(monkeypatch, verdict_of("hang"))
    async with opened(FakeFeed(job_story("hang").events)) as (app, pilot):
        await press_each(pilot, key)
        await until(
            pilot,
            lambda: any(
                expected in one for one in [type(app.screen).__name__, *(n.message for n in app._notifications)]
            ),
        )
        assert key != "e" or os.listdir(tmp_path)


async def test_a_slow_and_a_healthy_job(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    verdicts = [verdict_of("slow")]
    judged_as(monkeypatch, lambda _: verdicts[-1])
    feed = FakeFeed(job_story("slow").events)
    async with opened(feed) as (app, pilot):
        text = screen_text(app)
        assert "is slow: rank 9 on n061:1 is late by 20 ms per iteration" in text
        assert "n061:1 awaited" in text
        slow = styles_of(app, " ! awaited ") or styles_of(app, "9 !")
        verdicts.append(verdict_of("healthy"))
        feed.play([JobEvidence(node="", source="log", value={"iteration": 1500}, time=START + SECONDS)])
        await pilot.pause(1.0)
        text = screen_text(app)
        assert "is making progress: 414 iterations/min" in text
        assert "nobody: no rank holds the others up" in text
        assert "9 job 1!" not in text
        assert "n[060-061]:0-7 computing" in text
        assert not slow & styles_of(app, "9 \u25b8")


async def test_nothing_is_drawn_when_nothing_changed(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge is asked once per batch of evidence, and cells are read again only after another verdict."""
    asked: list[int] = []
    found = verdict_of("hang")

    def judge(model: Any) -> Any:
        asked.append(model.job.revision)
        return found

    monkeypatch.setattr("fabtui.screen.session_diagnosis.job_verdict", judge)
    feed = FakeFeed(job_story("hang").events)
    async with opened(feed) as (app, pilot):
        await pilot.pause(0.5)
        before, rows = len(asked), dict(app.main.grid._rows)
        for _ in range(5):
            app.main.draw()
        await pilot.pause()
        assert len(asked) == before
        assert app.main.grid._rows == rows
        # Evidence without another verdict leaves the cells alone as well.
        feed.play([JobEvidence(node="", source="log", value={"iteration": 1400}, time=START + SECONDS)])
        await pilot.pause(1.0)
        assert len(asked) == before + 1
        assert app.main.grid._rows == rows


async def test_text_of_a_node_is_harmless(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    evil = "\x1b]0;owned\x07[bold red]x[/] \u202e\r\nline"
    found = verdict_of("hang")
    sources = tuple(one._replace(text=evil, blind=evil, name=evil) for one in found.sources)
    ranks = tuple(row._replace(why=evil) for row in found.ranks)
    judged_as(
        monkeypatch,
        found._replace(sources=sources, ranks=ranks, where=evil, needs=evil, fabric=evil, next=(evil,), job=evil),
    )
    async with opened(FakeFeed(job_story("hang").events)) as (app, pilot):
        for keys in ((), ("s",)):
            await press_each(pilot, *keys)
            text = screen_text(app)
            assert "[bold red]x[/]" in text
            assert not any(ord(character) < 32 and character != "\n" for character in text)
            assert "\u202e" not in text


@pytest.mark.parametrize("settings", [{"colors": "16"}, {"colors": "none", "ascii": True}, {"theme": "light"}], ids=str)
async def test_few_colours_and_ascii(opened: Opened, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]) -> None:
    judged_as(monkeypatch, verdict_of("hang"))
    async with opened(FakeFeed(job_story("hang").events), size=(80, 24), **settings) as (app, pilot):
        sign = "#" if settings.get("ascii") else "\u25a0"
        for keys in ((), ("s",)):
            await press_each(pilot, *keys)
            text = screen_text(app)
            assert f"9 {sign}" in text
            assert not settings.get("ascii") or text.isascii()


def test_every_state_has_a_glyph_of_its_own() -> None:
    for glyphs in (UNICODE, ASCII):
        signs = [state_glyph(state, glyphs) for state in RankState]
        assert len(set(signs)) == len(signs)
        assert not glyphs.plain or all(map(str.isascii, signs))


def test_every_state_of_a_job_has_lines() -> None:
    for state in JobState:
        board = JobBoard(verdict_of("hang")._replace(state=state))
        assert board.legend(UNICODE)
        assert board_text(board, 80, UNICODE).startswith("job 4711 on n[060-061] (16 ranks) ")


async def test_pairs_show_traffic_only_where_counters_prove_it(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two GPUs of a node that are alone in the job: the pair has their NVLink traffic."""
    found = verdict_of("healthy")
    two = found._replace(nodes=("n060",), ranks=found.ranks[:2], world=2)
    assert [one.ends for one in JobBoard(two).traffic] == [("n060:0", "n060:1")]
    assert [one.ends for one in JobBoard(found).traffic] == [("n060", "n061")]
    judged_as(monkeypatch, two)
    async with opened(FakeFeed(job_story("healthy").events)) as (app, pilot):
        await press_each(pilot, "plus")
        text = screen_text(app)
        assert " 10.2 " in text
        assert "n060:0 and n060:0" not in text
        await press_each(pilot, "right", "right", "right")
        assert "no counter separates" in screen_text(app)


async def test_tests_that_found_worse_come_first(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """With results of tests, the layer does not open by itself, and a healthy job does not hide a bad pair."""
    judged_as(monkeypatch, verdict_of("healthy"))
    story = sweep_of_two()
    story.add(JobEvidence(node="n000", source="activity", value={}))
    async with opened(FakeFeed(story.events)) as (app, pilot):
        assert app.main.source.layer == "p2p"
        while app.main.findings is not None and app.main.findings.step(1.0):
            await pilot.pause(0.01)
        app.main.draw()
        await pilot.pause()
        assert "bad" in screen_text(app).splitlines()[0]


@pytest.mark.parametrize("left", [0, 2])
async def test_the_layer_opens_while_all_gpus_are_busy(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    """It opens before the session has ended, unless some pairs will be tested."""
    judged_as(monkeypatch, verdict_of("hang"))
    story = Story(NODES, 1)
    for node in NODES:
        story.connect(node)
    story.endpoints(*NODES)
    story.phase("ranks", 1)
    busy = [("n060:0", "n061:0", "busy"), ("n061:0", "n060:0", "busy")]
    story.add(PlanUpdate(untested=busy[left:]))
    story.add(JobEvidence(node="n060", source="activity", value={}))
    async with opened(FakeFeed(story.events)) as (app, _):
        assert app.main.source.layer == ("p2p" if left else "job")
        assert "rank 9 on n061:1 is stopped" in screen_text(app)


async def test_a_recording_without_endpoints_shows_the_ranks(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    judged_as(monkeypatch, verdict_of("hang"))
    story = job_story("hang", endpoints=False)
    async with opened(FakeFeed(story.events)) as (app, pilot):
        assert "9 \u25a0" in screen_text(app)
        await press_each(pilot, "down", "up", "plus", "escape", "minus", "x", "y", "v", "v", "f", "escape", "2", "J")
        assert "WHO IS BEHIND" in screen_text(app)


async def test_the_job_opens_once_nothing_can_be_tested(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    judged_as(monkeypatch, verdict_of("hang"))
    monkeypatch.setattr("fabtui.screen.views.main.has_nothing_to_test", lambda model: False)
    async with opened(FakeFeed(job_story("hang").events)) as (app, pilot):
        assert str(app.main.source.layer) != "job"
        monkeypatch.setattr("fabtui.screen.views.main.has_nothing_to_test", lambda model: True)
        app.main.draw()
        await settled(app, pilot)
        assert str(app.main.source.layer) == "job"


async def test_many_ranks_scroll(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """512 ranks: the one at fault is in view at once."""
    found = verdict_of("hang")
    nodes = tuple(f"n{number:03}" for number in range(64))
    ranks = []
    for number in range(512):
        node, gpu = nodes[number // 8], number % 8
        base = found.ranks[9 if number == 500 else 0]
        where = base.place._replace(rank=number, node=node, gpu=str(gpu))
        ranks.append(base._replace(place=where, endpoint=f"{node}:{gpu}"))
    judged_as(monkeypatch, found._replace(nodes=nodes, ranks=tuple(ranks), behind=(ranks[500].place,), world=512))
    async with opened(FakeFeed(job_story("hang", endpoints=False).events), size=(80, 24)) as (app, _):
        assert "500 \u25a0" in screen_text(app)


async def test_ranks_without_gpus_show_their_processor(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    found = verdict_of("hang")
    ranks = tuple(row._replace(utilization=None, power=None, nvlink=None, nic=None, cpu=0.25) for row in found.ranks)
    judged_as(monkeypatch, found._replace(ranks=ranks))
    async with opened(FakeFeed(job_story("hang").events)) as (app, _):
        lines = screen_text(app).splitlines()
        row = next(at for at, line in enumerate(lines) if line.startswith("n060 "))
        assert lines[row + 1].split()[:3] == ["CPU", "25", "%"]
        assert not lines[row + 2].split()[0].isalpha()
        assert "CPU 25 %" in screen_text(app)
