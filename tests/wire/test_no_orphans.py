"""No process of ours is left running, no matter what is killed or frozen."""

import os
import signal
import time

import pytest

from tests.wire.doubles import keeper_of, nasty_everywhere
from tests.wire.nodeside import living, modules, wait_gone, wait_until


def test_nothing_is_left_after_the_controller_was_killed() -> None:
    node = nasty_everywhere()
    node.cut()
    wait_gone(node.token)


def test_nothing_is_left_after_the_controller_froze() -> None:
    node = nasty_everywhere(lease=2)
    begin = time.monotonic()
    while time.monotonic() - begin < 3:
        node.send({"t": "hb", "n": 1})
        node.expect("hb")
        time.sleep(0.3)
    assert node.process.poll() is None
    # No further heartbeat, while the pipes stay open.
    wait_gone(node.token, 20)
    node.end()


@pytest.mark.parametrize("clean", [False, True])
def test_nothing_is_left_after_the_supervisor_was_killed(clean: bool) -> None:
    node = nasty_everywhere(clean)
    os.kill(node.process.pid, signal.SIGKILL)
    wait_gone(node.token)
    node.end()


@pytest.mark.parametrize("clean", [False, True])
def test_nothing_is_left_after_the_keeper_was_killed(clean: bool) -> None:
    node = nasty_everywhere(clean)
    os.kill(keeper_of(node.process.pid), signal.SIGKILL)
    assert "keeper" in node.expect("log")["text"]
    wait_gone(node.token)
    node.end()


def test_nothing_but_the_stopped_supervisor_is_left_after_it_was_frozen() -> None:
    node = nasty_everywhere(lease=1)
    os.kill(node.process.pid, signal.SIGSTOP)
    wait_until(lambda: living(node.token) == [node.process.pid], 12, "the keeper waits for a frozen supervisor")
    os.kill(node.process.pid, signal.SIGCONT)
    wait_gone(node.token)
    node.end()


def test_a_frozen_keeper_is_ended_too() -> None:
    node = nasty_everywhere()
    os.kill(keeper_of(node.process.pid), signal.SIGSTOP)
    node.cut()
    wait_gone(node.token)


def test_a_supervisor_does_not_wait_for_ever_for_a_frozen_keeper() -> None:
    name = "fabtui_node.runtime.supervisor"
    node = nasty_everywhere(extra={name: modules()[name] + "\n\nMAX_UNANSWERED = 3\n"})
    keeper = keeper_of(node.process.pid)
    os.kill(keeper, signal.SIGSTOP)
    assert "keeper process hangs" in node.expect("log", 30)["text"]
    wait_gone(node.token)
    node.end()
