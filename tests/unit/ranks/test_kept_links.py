"""Links that are kept between tests, alone and in rank hosts with gloo."""

from __future__ import annotations

import importlib.util
import os
from typing import Any

import pytest

from fabtui_node.ranks.engine import Keepable, KeptLinks
from tests.wire.rank_controller import Controller

TASK: Any = None


class Recorded(Keepable):
    def __init__(self) -> None:
        self.calls: list[str] = []

    def pause(self) -> None:
        self.calls.append("pause")

    def renew(self, task: Any) -> None:
        self.calls.append("renew")

    def close(self, broken: bool) -> None:
        self.calls.append("abort" if broken else "close")


def test_a_link_is_in_one_place_only() -> None:
    kept, first, second, third = KeptLinks(), Recorded(), Recorded(), Recorded()
    kept.put((1, 16), "a", first)
    kept.put((1, 0), "b", second)
    assert [kept.name(key) for key in ((1, 16), (1, 0), (2, 0))] == ["a", "b", None]
    assert kept.take((1, 16), TASK) is first
    assert kept.name((1, 16)) is None
    kept.put((1, 0), "c", third)
    kept.close((7, 0), broken=True)
    kept.clear()
    assert len(kept) == 0
    assert [one.calls for one in (first, second, third)] == [["pause", "renew"], ["pause", "abort"], ["pause", "close"]]


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_tests_of_a_pair_take_no_more_descriptors_and_threads_each() -> None:
    with Controller() as controller:
        for number, node in enumerate(("n0", "n1")):
            controller.spawn(node)
            controller.init(node, [number], 2, f"127.0.60.{60 + number}")
        controller.until(lambda: len(controller.of("ready")) == 2, 60)

        def tested(number: int, keep: bool) -> list[tuple[int, int]]:
            controller.pair(number, 0, 1, bytes=65536, keep=keep)
            controller.until(lambda: len(controller.of("free", id=number)) == 2, 20)
            assert all(side["ok"] for side in controller.of("side", id=number))
            pids = [host.process.pid for host in controller.hosts.values()]
            return [(len(os.listdir(f"/proc/{pid}/fd")), len(os.listdir(f"/proc/{pid}/task"))) for pid in pids]

        first = tested(1, keep=True)
        later = [tested(number, keep=True) for number in range(2, 9)][-1]
        assert [key for key in controller.store if "/link" in key and not key.startswith("e1/1/")] == []
        assert all(now[0] <= then[0] + 2 and now[1] <= then[1] + 2 for now, then in zip(later, first, strict=True))
        # One end forgets it: both make a new one, and the other end closes what it had.
        controller.hosts["n0"].send({"op": "rest", "id": 20, "whole": False, "links": [[0, 1, 0, False]]})
        controller.until(lambda: bool(controller.of("free", id=20)), 20)
        tested(21, keep=True)
        assert any(key.startswith("e1/21/link1") for key in controller.store)
        before = tested(22, keep=False)
        after = [tested(number, keep=False) for number in range(23, 30)][-1]
        assert all(now[0] <= then[0] + 2 and now[1] <= then[1] + 2 for now, then in zip(after, before, strict=True))
