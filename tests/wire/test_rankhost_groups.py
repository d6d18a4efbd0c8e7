"""Collectives, the world layer and faults that end processes, with real gloo ranks in real rank hosts."""

import itertools
import signal
import time
from typing import Any

import pytest

from fabtui_node.ranks.measure import verify
from tests.conftest import needs_torch
from tests.wire.rank_controller import Controller, came_not

pytestmark = [needs_torch, pytest.mark.timeout(180)]

ADDRESSES = {"n0": "127.0.60.12", "n1": "127.0.60.13"}
LAYOUT = {"n0": [0, 1], "n1": [2, 3]}


def started(controller: Controller, faults: list[dict[str, Any]] | None = None) -> None:
    for name in LAYOUT:
        controller.spawn(name)
    for name, ranks in LAYOUT.items():
        controller.init(name, ranks, 4, ADDRESSES[name], faults=faults or [])
    controller.until(lambda: all(controller.hosts[name].ready for name in LAYOUT), 90)


def free(controller: Controller, number: int, ranks: int, seconds: float = 40) -> float:
    took: float = controller.until(lambda: len(controller.of("free", id=number)) == ranks, seconds)
    return took


def sides(controller: Controller, number: int) -> dict[tuple[int, int, str], dict[str, Any]]:
    return {(m["src"], m["dst"], m["role"]): m for m in controller.of("side", id=number)}


def fault(src: int, dst: int, kind: str) -> dict[str, Any]:
    return {"src": src, "dst": dst, "kind": kind, "rate": None}


def test_collectives_and_worlds(controller: Controller) -> None:
    started(controller)
    sizes = [8, 4096, 1 << 20]
    numbers = itertools.count(1)
    for kind in verify.KINDS:
        for ranks in ([0, 1, 2, 3], [2, 0, 3]):
            number = next(numbers)
            controller.collective(number, kind, ranks, sizes)
            free(controller, number, len(ranks))
            reduced = controller.of("reduced", id=number)
            assert len(reduced) == len(sizes) * len(ranks)
            for m in reduced:
                assert m["ok"], m
                assert (m["kind"], m["wrong"], m["transport"]) == (kind, 0, "TCP")
                assert 0 < m["fastest"] <= m["seconds"]
                assert m["sent"] == verify.shape(kind, m["bytes"], len(ranks)).bytes
    rounds = [[(0, 2), (1, 3)], [(2, 0), (3, 1)], [(0, 1), (2, 3)], [(1, 0), (3, 2)], [(0, 3), (1, 2)]]
    number = next(numbers)
    controller.world(number, [0, 1, 2, 3], rounds)
    free(controller, number, 4)
    reports = {m["rank"]: m for m in controller.of("worlded", id=number)}
    for m in reports.values():
        assert (m["ok"], m["error"], m["at"]) == (True, None, None), m
        assert all(m["seconds"][name] >= 0 for name in ("init", "connect", "rounds"))
        for row in m["rows"]:
            assert row[1] == m["rank"]
            # Ranks that get no processor send a part of it, for their deadline.
            assert (1 << 20) % row[2] == 0
            assert row[3] > 1e4
            assert row[4:] == [True, None, "TCP", None]
    found = {(row[0], row[1]) for m in reports.values() for row in m["rows"]}
    assert found == {pair for round_ in rounds for pair in round_}
    number = next(numbers)
    controller.world(number, [3, 0, 2], [])
    free(controller, number, 3)
    assert all(m["ok"] for m in controller.of("worlded", id=number))


def test_a_world_without_one_of_its_ranks_ends_at_its_deadline(controller: Controller) -> None:
    started(controller)
    controller.rank_host[2] = "n0"  # so that n1 gets no message
    controller.world(1, [0, 1, 2], [[(0, 1)]], deadline=1.5)
    free(controller, 1, 2, 30)
    for m in controller.of("worlded", id=1):
        assert (m["ok"], m["timeout"], m["phase"]) == (False, True, "connect")
        assert came_not(m["error"], 2, 1.5), m
    controller.hosts["n0"].send({"op": "alive", "n": 5})
    controller.until(lambda: bool(controller.of("alive", n=5)), 20)


def test_both_directions_at_once_and_times(controller: Controller) -> None:
    started(controller)
    controller.pair(1, 2, 0, both=True)
    free(controller, 1, 2)
    for (_, _, role), side in sides(controller, 1).items():
        assert side["ok"], side
        if role == "dst":
            assert side["both_rate"] > 1e4
            times = side["times"]
            assert 1 <= times["count"] <= 20
            assert 0 < times["min"] <= times["median"] <= times["p99"] <= times["max"]
        else:
            assert side["both_rate"] is None


def test_absent_and_corrupt(controller: Controller) -> None:
    started(controller, [fault(2, 0, "absent"), fault(3, 1, "corrupt")])
    controller.pair(1, 0, 2, deadline=2.0)
    controller.pair(2, 1, 3, deadline=20.0, both=True)
    free(controller, 1, 2)
    free(controller, 2, 2)
    found = sides(controller, 1)
    assert set(found) == {(0, 2, "src"), (2, 0, "dst")}
    for side in found.values():
        assert (side["ok"], side["timeout"], side["made"], side["phase"]) == (False, True, True, "connect")
        assert came_not(side["error"], 2, 1.0, " (made by the lab: absent)"), side
    found = sides(controller, 2)
    for role in ("src", "dst"):
        good, bad = found[1, 3, role], found[3, 1, role]
        assert good["ok"]
        assert good["both_rate"] is None
        assert (bad["ok"], bad["timeout"], bad["made"], bad["phase"]) == (False, False, True, "verify")
        assert "1 byte wrong in the 1 MiB that were checked" in bad["error"]
    controller.pair(3, 1, 2)
    free(controller, 3, 2)
    assert all(side["ok"] for side in sides(controller, 3).values())


def test_kill_in_mid_transfer(controller: Controller) -> None:
    started(controller, [fault(2, 0, "kill")])
    controller.pair(1, 0, 2, deadline=20.0)
    controller.until(lambda: not controller.hosts["n1"].alive, 20)
    assert controller.hosts["n1"].process.wait(5) == -signal.SIGKILL
    controller.hosts["n0"].send({"op": "abort", "id": 1})
    controller.until(lambda: bool(controller.of("free", id=1, rank=0)), 15)
    found = sides(controller, 1)
    assert found[0, 2, "src"]["ok"]
    lost = found[2, 0, "dst"]
    assert (lost["ok"], lost["made"]) == (False, True)
    assert "made by the lab: kill" in lost["error"]
    controller.pair(2, 0, 1)
    free(controller, 2, 2)
    assert all(side["ok"] for side in sides(controller, 2).values())


def test_stop_in_mid_transfer(controller: Controller) -> None:
    started(controller, [fault(2, 0, "stop")])
    began = time.monotonic()
    controller.pair(1, 0, 2, deadline=4.0)
    controller.until(lambda: bool(controller.of("free", id=1, rank=0)), 20)
    assert time.monotonic() - began < 4.0 + 20.0
    lost = sides(controller, 1)[2, 0, "dst"]
    assert (lost["ok"], lost["timeout"], lost["made"], lost["phase"]) == (False, True, True, "transfer")
    controller.hosts["n1"].send({"op": "alive", "n": 9})
    controller.hosts["n0"].send({"op": "alive", "n": 9})
    controller.until(lambda: bool(controller.of("alive", n=9)), 20)
    assert {m["from"] for m in controller.of("alive", n=9)} == {"n0"}
    controller.hosts["n1"].kill()
    controller.until(lambda: not controller.hosts["n1"].alive, 20)
