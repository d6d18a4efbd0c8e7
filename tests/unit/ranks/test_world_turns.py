"""Time of the transfers of a world: a slow one leaves the others their turns."""

import contextlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from fabtui_node.protocol import ErrorKind
from fabtui_node.ranks import base
from fabtui_node.ranks.base import TRANSFER, Failed
from fabtui_node.ranks.measure import groups


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


def report_of(monkeypatch: pytest.MonkeyPatch, *needs: float) -> tuple[dict[str, Any], list[float]]:
    """Return what rank 0 reports whose transfers need some seconds each, of 10, and how long each of them took."""
    clock, took = Clock(), list[float]()
    monkeypatch.setattr(groups, "time", clock)
    monkeypatch.setattr(base, "time", clock)

    def send(job: Any, end: float) -> None:
        seconds = min(needs[len(took)], end - clock.now)
        took.append(seconds)
        clock.now += seconds
        if clock.now >= end:
            raise Failed(TRANSFER, "no answer", kind=ErrorKind.TIMEOUT)

    group = SimpleNamespace(link=lambda rank: SimpleNamespace(send=send), connect=lambda peers, end: None)
    group.close = lambda broken: None

    def run(task: object, work: Callable[[], Any], phase: str, end: float) -> Any:
        return group if phase == base.CONNECT else work()

    endpoint: Any = SimpleNamespace(rank=SimpleNamespace(rank=0), run=run, join=print, world_channels=None)
    monkeypatch.setattr(groups, "meet", lambda *_: None)
    message = {"ranks": [0, 1, 2, 3], "rounds": [[[0, 1]], [[0, 2]], [[0, 3]]], "bytes": 4, "iters": 1, "warmup": 1}
    task: Any = SimpleNamespace(id=1, deadline=10.0)
    sent = list[dict[str, Any]]()
    with contextlib.suppress(IndexError):
        groups.World(groups.parse_world({**message, "turn": 0.25}), endpoint, task).run(sent.append)
    return sent[-1], took


def test_a_transfer_that_began_with_little_time_reports_it(monkeypatch: pytest.MonkeyPatch) -> None:
    report, took = report_of(monkeypatch, 60.0)
    assert (report["at"], report["short"], took) == ([0, 1], False, [9.5])
    report, took = report_of(monkeypatch, 9.25, 60.0)
    assert (report["at"], report["short"], took) == ([0, 2], True, [9.25, 0.5])
    report, took = report_of(monkeypatch, 0.1, 0.1, 0.1)
    assert (report["at"], report["ok"]) == (None, True)
