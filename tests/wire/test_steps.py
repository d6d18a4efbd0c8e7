"""Next steps that run over real SSH connections: output, limits, deadline, and nothing left running."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from fabtui.diagnosis.knowledge.step_command import LineFilter, StepCommand
from fabtui.model.session_logs import CommandRun
from fabtui.session import probe_runner
from fabtui.session.feeds.live import LiveFeed
from fabtui.session.feeds.replay import ReplayFeed
from fabtui.session.options import SessionOptions
from tests.wire.nodeside import wait_until

# All tests of this file share a session, so that its nodes and their links start once.
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def feed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LiveFeed]:
    with pytest.MonkeyPatch.context() as patch:
        # It begins before the fixtures of a single test.
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        feed = LiveFeed(SessionOptions(lab="2x1", probes=("ping",)))
        try:
            await feed.run()
            yield feed
        finally:
            await feed.close()


async def run(feed: LiveFeed, *argv: str, **more: object) -> CommandRun:
    await feed.run_step(StepCommand(" ".join(argv), "n001", argv, **more))  # type: ignore[arg-type]
    return await ended(feed, " ".join(argv))


async def ended(feed: LiveFeed, text: str) -> CommandRun:
    for _ in range(500):
        if (found := feed.model.commands.latest(text)) is not None and found.end is not None:
            return found
        await asyncio.sleep(0.01)
    raise AssertionError("the end of the command is not in the model")


def running(mark: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark.encode() in path.read_bytes():
                found.append(path.parent.name)
        except OSError:
            continue
    return found


async def gone(mark: str) -> None:
    await asyncio.to_thread(wait_until, lambda: not running(mark), 20, "the command has ended")


async def test_steps_run_on_their_node_end_with_the_session_and_are_in_the_recording(tmp_path: Path) -> None:
    record = tmp_path / "r.jsonl.gz"
    mark = f"mark-{uuid.uuid4().hex}"
    feed = LiveFeed(SessionOptions(lab="2x1", probes=("ping",), record=record))
    try:
        await feed.run()
        found = await run(feed, "ip", "-s", "link", "show", "lo")
        assert found.end is not None
        assert found.end.exit == 0
        assert "LOOPBACK" in found.end.output
        many = await run(feed, "seq", "100000", greps=(LineFilter(("99999",)),))
        assert many.end is not None
        assert (many.end.output, many.end.lines) == ("99999\n", 100000)
        argv = ("sh", "-c", "sleep 1000 & trap '' TERM HUP; sleep 1000; sleep 1000", mark)
        step = asyncio.create_task(feed.run_step(StepCommand("step", "n001", argv)))
        await asyncio.to_thread(wait_until, lambda: running(mark), 20, "the command runs")
        await feed.close()
        await gone(mark)
        last = await ended(feed, "step")
        assert last.end is not None
        assert last.end.problem == "killed at the end of the session"
        step.cancel()
    finally:
        await feed.close()
    replay = ReplayFeed(record)
    await replay.run()
    again = replay.model.commands.latest("ip -s link show lo")
    assert again is not None
    assert again.end == found.end
    assert next(line.text for line in replay.model.log if "you run" in line.text) == "you run: ip -s link show lo"
    await replay.run_step(StepCommand("ls", "n001", ("ls",)))
    assert replay.model.commands.latest("ls") is None, "a replay runs nothing"


async def test_hostile_output_is_bounded(feed: LiveFeed) -> None:
    found = await run(feed, "sh", "-c", r"printf '\033]0;x\007\033[2J\377\000'; head -c 1000000000 /dev/zero")
    assert found.end is not None
    assert len(found.end.output) <= probe_runner.MOST_OUTPUT
    assert found.end.dropped > 200 << 20
    assert found.end.problem == "killed after 256 MiB of output"
    after = await run(feed, "echo", "the link works")
    assert after.end is not None
    assert after.end.output == "the link works\n"


async def test_a_command_without_end_is_killed_at_its_deadline(feed: LiveFeed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_runner, "DEADLINE", 2.0)
    mark = f"mark-{uuid.uuid4().hex}"
    found = await run(feed, "sh", "-c", "while :; do echo again; sleep 0.1; done", mark)
    assert found.end is not None
    assert "its deadline" in found.end.problem
    assert found.end.output.startswith("again\n")
    await gone(mark)


async def test_a_step_of_a_node_that_is_not_connected_fails(feed: LiveFeed) -> None:
    await feed.run_step(StepCommand("ls", "n009", ("ls",)))
    found = await ended(feed, "ls")
    assert found.end is not None
    assert found.end.problem == "the node is not connected"
