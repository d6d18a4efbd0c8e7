"""Nodes that go and come back, over real SSH servers and real ranks (gloo)."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from fabtui.model.events import Measured, NodeUpdate
from fabtui.model.layers import Layer
from fabtui.model.measurement import Verdict
from fabtui.model.recording import read_events
from fabtui.session import reconnection
from fabtui.session.feeds.live import LiveFeed
from tests.conftest import needs_torch
from tests.wire import sshd
from tests.wire.live import session

pytestmark = [needs_torch, pytest.mark.timeout(300)]


def verdicts(feed: LiveFeed) -> dict[tuple[str, str], Verdict]:
    pairs = [m for m in feed.model.measurements() if m.layer is Layer.P2P]
    return {} if feed.model.exit_code is None else {(m.src, m.dst): feed.model.verdict(m) for m in pairs}


async def until(true: Callable[[], bool]) -> None:
    await sshd.until(true, 90.0)


async def test_a_server_that_is_late_and_one_that_goes_are_joined_again_and_a_changed_host_key_is_not(
    field: sshd.Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconnection, "LONGEST", 0.5)
    field.serve("a")
    # Its key is known before: a try that is under way when the server starts has read the known hosts already.
    late = field.serve("b")
    late.stop()
    # Nothing waits for this deadline.
    async with session(field, "a", "b", timeout=60.0) as feed:
        record = feed.model.nodes["b"]
        assert (record.state, feed.model.exit_code) == ("failed", 3)
        assert record.retry is not None
        server = field.serve("b", port=late.port)
        await until(lambda: len(verdicts(feed)) == 2)
        assert set(verdicts(feed)) == {("a:0", "b:0"), ("b:0", "a:0")}
        # Busy processors slow pairs of CPU ranks.
        assert set(verdicts(feed).values()) <= {Verdict.OK, Verdict.SLOW}, feed.model.log
        assert not feed.model.untested
        for pid in server.sessions():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await until(lambda: record.state == "lost")
        await until(lambda: record.state == "ready")
        await feed.sweep()
        assert feed.model.exit_code is not None
        assert not feed.model.untested
        server.stop()
        await until(lambda: "refused" in record.text)
        assert record.retry is not None
        (field.folder / "host_b").unlink()
        field.serve("b", port=late.port, known=False)
        await until(lambda: record.retry is None)
        assert "HOST KEY CHANGED" in record.text
        tries = [line.text for line in feed.model.log if line.node == "b" and "HOST KEY CHANGED" in line.text]
        await asyncio.sleep(4 * reconnection.LONGEST)
        assert len(tries) == 1
        assert record.state == "lost"


def test_a_controller_that_is_stopped_blames_no_node_and_tests_again(tmp_path: Path) -> None:
    record = tmp_path / "r.jsonl"
    argv = [sys.executable, "-m", "fabtui", "run", "--lab", "2x2", "--lease", "3", "--record", str(record)]
    # Many messages, one pair at a time: the sweep lasts for some seconds.
    argv += ["--probes", "p2p", "--layers", "p2p", "--bytes", "256K", "--iters", "500", "--isolated", "--timeout", "6"]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    over = threading.Timer(150.0, process.kill)
    over.start()
    lines: list[str] = []
    stopped = False
    assert process.stdout is not None
    for line in process.stdout:
        lines.append(line)
        if line.startswith("p2p: ") and not stopped:
            stopped = True
            process.send_signal(signal.SIGSTOP)
            # Longer than the lease, so that the nodes end themselves.
            time.sleep(5.0)
            process.send_signal(signal.SIGCONT)
    code = process.wait()
    over.cancel()
    printed = "".join(lines)
    events = list(read_events(record))
    states = {event.state for event in events if isinstance(event, NodeUpdate)}
    assert states.isdisjoint({"lost", "failed"}), printed
    measured = [m for event in events if isinstance(event, Measured) for m in event.measurements]
    assert {m.verdict for m in measured} == {Verdict.OK}, printed
    assert len({(m.src, m.dst) for m in measured if m.layer is Layer.P2P}) == 12, printed
    assert printed.count("this machine slept, or fabtui was stopped or got no processor, for ") == 1
    assert code in (0, 1), "busy processors slow pairs of CPU ranks"
