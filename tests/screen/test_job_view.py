from pathlib import Path
from typing import Any

import pytest

from fabtui.model.events import JobEvidence
from fabtui.session.options import JobQuery
from fabtui.session.running_job.monitor import JobMonitor
from tests.screen.conftest import Opened, press, screen_text
from tests.screen.fakefeed import FakeFeed, sweep_of_two
from tests.screen.fakejob import judged_as, verdict_of
from tests.unit.jobs.job_texts import gpustat, healthy, iteration, settings


async def shows(app: Any, pilot: Any, text: str) -> str:
    """Wait until the screen has a text, and return the screen."""
    for _ in range(1200):
        if text in screen_text(app):
            return screen_text(app)
        await pilot.pause(0.05)
    raise AssertionError(screen_text(app))


@pytest.mark.parametrize("size", [(100, 30), (80, 24)])
async def test_the_view_has_findings_nodes_iterations_and_the_end_of_a_log(
    opened: Opened, tmp_path: Path, size: tuple[int, int]
) -> None:
    faulty = {
        "n062_out": settings(2, GLOBAL_BATCH_SIZE="32"),
        "n062_gpu": gpustat("n062", 40, busy=False),
        "n061_err": "\x1b]0;owned\x07RuntimeError: CUDA error: x[bold]\n",
    }
    for name, text in healthy(**faulty).items():
        (tmp_path / name).write_text(text)
    feed = FakeFeed(sweep_of_two().events)
    feed.job = JobMonitor(JobQuery("", logs=(str(tmp_path),)))
    async with opened(feed, size=size) as (app, pilot):
        await pilot.press("J")
        await shows(app, pilot, "n060")
        await press(pilot, "down")
        text = screen_text(app)
        lines = text.splitlines()
        assert lines[0].startswith(" fabtui / p2p / logs  suspect  4 nodes, 16 GPUs")
        assert any(line.startswith(" x J03 n062: 0 of 4 GPUs are busy") for line in lines)
        assert any(line.startswith(" x J06 GLOBAL_BATCH_SIZE differs") for line in lines)
        assert any(line.startswith(" n063    ok") and " 40/50 " in line and " 4/4 " in line for line in lines)
        assert any(line.startswith(" iteration 40/50  1.401 1.424 1.374 s") for line in lines)
        # The errors of the node under the cursor come first, as text.
        assert f" {tmp_path}/n061.err"[:40] in text
        assert text.count("RuntimeError: CUDA error: x[bold]") == 2
        (tmp_path / "n063.out").open("a").write(iteration(50, 1409.8))
        await shows(app, pilot, "iteration 50/50")


@pytest.fixture
def squeue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = "12|RUNNING|41:07|n[060-063]|megatron-xl\n13|PENDING|0:00||evaluation\n"
    script = f"#!/bin/sh\ncase \"$*\" in *--user=*) cat <<'END'\n{lines}END\n;; *) exit 1;; esac\n"
    (tmp_path / "squeue").write_text(script)
    (tmp_path / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")


@pytest.mark.parametrize("keys", [("J",), (*":job", "enter")])
@pytest.mark.usefixtures("squeue")
async def test_a_session_without_a_job_lists_those_of_the_user(opened: Opened, keys: tuple[str, ...]) -> None:
    async with opened(FakeFeed(sweep_of_two().events), size=(100, 30)) as (app, pilot):
        await pilot.press(*keys)
        text = await shows(app, pilot, "megatron-xl")
        assert text.splitlines()[2].split() == ["12", "RUNNING", "41:07", "n[060-063]", "megatron-xl"]
        assert "2 jobs" in text
        await pilot.press("down", "enter")
        await shows(app, pilot, "job 13")


@pytest.mark.usefixtures("squeue")
async def test_a_job_is_chosen_by_its_id(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events), size=(100, 30)) as (app, pilot):
        await pilot.press(*":job four", "enter")
        await shows(app, pilot, "job: 'four' is not a job id")
        await pilot.press("escape", *":job 12", "enter")
        await shows(app, pilot, "job 12")
        # Its nodes are not those of the session.
        await pilot.press("r")
        assert any("No links to the nodes are open here" in note.message for note in app._notifications)


class LinkedMonitor(JobMonitor):
    linked = True


async def test_dumps_of_ranks_alone_name_who_is_behind(opened: Opened) -> None:
    story = sweep_of_two()
    late = {"rank": 1, "node": "", "pid": None, "gpu": ""}
    value = {"sentences": ["rank 1 has not called it"], "suspects": [late], "hangs": True, "next": ["py-spy dump"]}
    story.add(JobEvidence(node="", source="flight", value=value))
    async with opened(FakeFeed(story.events), size=(100, 30)) as (app, pilot):
        await pilot.press("J")
        text = await shows(app, pilot, "flight recorder rank 1 has not called it")
        assert "the job hangs: rank 1; next: py-spy dump" in text
        assert "rank 1 on" not in text


async def test_the_logs_name_who_is_behind_and_run_a_next_step(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in healthy().items():
        (tmp_path / name).write_text(text)
    judged_as(monkeypatch, verdict_of("hang")._replace(next=("ssh n001 cat /proc/interrupts",)))
    story = sweep_of_two()
    story.add(JobEvidence(node="n001", source="activity", value={}))
    feed = FakeFeed(story.events)
    feed.job = LinkedMonitor(JobQuery("", logs=(str(tmp_path),)))
    async with opened(feed, size=(100, 30)) as (app, pilot):
        await pilot.press("J", "J")
        text = await shows(app, pilot, "n060")
        assert "job 4711 has been hanging for 0:13: rank 9 on n061:1 is stopped" in text.replace(
            " on n[060-061] (16 ranks)", ""
        )
        assert "next: ssh n001 cat /proc/interrupts" in text
        await press(pilot, "r")
        assert feed.asked == 1
        await pilot.press("tab")
        await shows(app, pilot, "> ssh n001 cat /proc/interrupts")
        assert "enter runs it on n001" in screen_text(app)
        await pilot.press("enter")
        assert [one.argv for one in feed.ran] == [("cat", "/proc/interrupts")]
        feed.answer(output="  0:  41  IR-IO-APIC  timer\n", exit=0)
        await shows(app, pilot, "IR-IO-APIC  timer")
        # The node table shows logs again.
        await pilot.press("down")
        await shows(app, pilot, "NODE_RANK: 1")
