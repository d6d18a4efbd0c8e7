"""Rank hosts with real gloo ranks on loopback addresses, driven by a small controller over socketpairs."""

import itertools
import os
import time
from functools import partial
from typing import Any

import pytest

from tests.conftest import needs_torch
from tests.wire.rank_controller import Controller, came_not, more_free

pytestmark = [needs_torch, pytest.mark.timeout(180)]

ADDRESSES = {"n0": "127.0.60.10", "n1": "127.0.60.11"}


def started(controller: Controller, layout: dict[str, list[int]], **more: Any) -> None:
    world = sum(len(ranks) for ranks in layout.values())
    for name in layout:
        controller.spawn(name)
    for name, ranks in layout.items():
        controller.init(name, ranks, world, ADDRESSES[name], **more)
    controller.until(lambda: all(controller.hosts[name].ready for name in layout), 90)
    assert all(rank["ok"] for name in layout for rank in controller.hosts[name].ready["ranks"])


def run_rounds(controller: Controller, pairs: list[tuple[int, int]], deadline: float, **more: object) -> None:
    """Run pairs, each as soon as both its ranks are free."""
    todo = list(enumerate(pairs, 100))
    busy: dict[int, list[int]] = {}
    while todo or busy:
        for item in list(todo):
            number, (a, b) = item
            if not any(rank in (a, b) for ranks in busy.values() for rank in ranks):
                busy[number] = [a, b]
                todo.remove(item)
                controller.pair(number, a, b, deadline=deadline, **more)
        before = len(controller.of("free"))
        controller.until(partial(more_free, controller, before), deadline + 5)
        for free in controller.of("free"):
            ranks = busy.get(free["id"], [])
            if free["rank"] in ranks:
                ranks.remove(free["rank"])
                if not ranks:
                    del busy[free["id"]]


def by_direction(controller: Controller) -> dict[tuple[int, int, str], dict[str, Any]]:
    return {(m["src"], m["dst"], m["role"]): m for m in controller.of("side")}


@pytest.mark.parametrize("layout", [{"n0": [0, 1, 2, 3]}, {"n0": [0, 1], "n1": [2, 3]}], ids=["1x4", "2x2"])
def test_all_pairs_and_all_reduce(controller: Controller, layout: dict[str, list[int]]) -> None:
    started(controller, layout)
    run_rounds(controller, list(itertools.combinations(range(4), 2)), 20.0)
    sides = by_direction(controller)
    assert set(sides) == {(s, d, r) for s, d in itertools.permutations(range(4), 2) for r in ("src", "dst")}
    for (src, dst, role), side in sides.items():
        assert side["ok"], side
        assert side["error"] is None
        assert not side["made"]
        # Ranks that get no processor send a part of it, for their deadline.
        assert (1 << 20) % side["bytes"] == 0
        assert side["transport"] == "TCP"
        where = [next(n for n, ranks in layout.items() if rank in ranks) for rank in (src, dst)]
        assert [side["src_addr"], side["dst_addr"]] == [ADDRESSES[name] for name in where]
        if role == "dst":
            assert 1e4 < side["rate"] < 1e12
        else:
            assert 1e-7 < side["latency"] < 10.0
    controller.all_reduce(900, [0, 1, 2, 3], [4096, 1 << 20])
    controller.until(lambda: len(controller.of("free", id=900)) == 4, 30)
    reduced = controller.of("reduced", id=900)
    assert len(reduced) == 8
    assert all(m["ok"] and m["wrong"] == 0 and m["seconds"] > 0 for m in reduced), reduced
    assert len(controller.of("free")) == 16


def test_reach(controller: Controller) -> None:
    started(controller, {"n0": [0], "n1": [1]})
    good = {"node": "n1", "address": ADDRESSES["n1"], "port": controller.hosts["n1"].ready["port"]}
    closed = {"node": "closed", "address": "127.0.60.12", "port": 9}
    controller.hosts["n0"].send({"op": "reach", "peers": [good, closed, {"node": "odd"}], "deadline": 2.0})
    controller.until(lambda: len(controller.of("reach")) == 3, 10)
    got = {m["node"]: m for m in controller.of("reach")}
    assert got["n1"]["ok"]
    assert got["n1"]["error"] is None
    assert not got["closed"]["ok"]
    assert not got["closed"]["timeout"]
    assert "127.0.60.12:9" in got["closed"]["error"]
    assert "refused" in got["closed"]["error"]
    assert [got[name]["error_kind"] for name in ("n1", "closed", "odd")] == [None, "connection_refused", "failed"]
    assert not got["odd"]["ok"]


def test_drop_fails_one_direction_after_its_deadline(controller: Controller) -> None:
    faults = [{"src": 1, "dst": 2, "kind": "drop", "rate": None}]
    started(controller, {"n0": [0, 1], "n1": [2, 3]}, faults=faults)
    began = time.monotonic()
    run_rounds(controller, [(1, 2)], 4.0)
    assert time.monotonic() - began < 4.0 + 20.0
    sides = by_direction(controller)
    for role in ("src", "dst"):
        dropped = sides[1, 2, role]
        assert not dropped["ok"]
        assert dropped["timeout"]
        assert dropped["made"]
        assert dropped["phase"] == "transfer"
        assert dropped["rate"] is None
        assert "made by the lab: drop" in dropped["error"]
        assert "from rank 1" in dropped["error"]
        assert sides[2, 1, role]["ok"], sides[2, 1, role]
        assert not sides[2, 1, role]["made"]


@pytest.mark.parametrize(("src", "dst"), [(0, 2), (2, 0)])
def test_refuse_fails_one_direction_at_once(controller: Controller, src: int, dst: int) -> None:
    faults = [{"src": src, "dst": dst, "kind": "refuse", "rate": None}]
    started(controller, {"n0": [0, 1], "n1": [2, 3]}, faults=faults)
    began = time.monotonic()
    run_rounds(controller, [(0, 2)], 60.0)
    assert time.monotonic() - began < 30.0, "no deadline was waited for"
    sides = by_direction(controller)
    for role in ("src", "dst"):
        refused = sides[src, dst, role]
        assert not refused["ok"]
        assert refused["made"]
        assert not refused["timeout"]
        assert refused["phase"] == "connect"
        assert "Connection refused" in refused["error"]
        assert refused["error_kind"] == "connection_refused"
        assert "made by the lab: refuse" in refused["error"]
        assert sides[dst, src, role]["ok"], sides[dst, src, role]


def test_slow_is_slow_in_one_direction(controller: Controller) -> None:
    faults = [{"src": 0, "dst": 1, "kind": "slow", "rate": 2e6}]
    started(controller, {"n0": [0], "n1": [1]}, faults=faults)
    run_rounds(controller, [(0, 1)], 10.0, bytes=8 << 20)
    sides = by_direction(controller)
    slow = sides[0, 1, "dst"]
    assert slow["ok"]
    assert slow["made"]
    assert 0.1e6 < slow["rate"] < 2.2e6
    assert slow["bytes"] < 8 << 20
    assert sides[1, 0, "dst"]["ok"]
    assert not sides[1, 0, "dst"]["made"]
    assert sides[1, 0, "dst"]["rate"] > 2 * 2.2e6


def test_a_killed_peer_is_a_failed_pair_and_nothing_more(controller: Controller) -> None:
    faults = [{"src": 2, "dst": 0, "kind": "drop", "rate": None}]
    started(controller, {"n0": [0, 1], "n1": [2, 3]}, faults=faults)
    controller.pair(1, 0, 2, deadline=60.0)
    # 0->2 passes, then 0 waits for 2, which sends nothing and is killed meanwhile.
    controller.until(lambda: bool(controller.of("side", src=0, dst=2, role="dst")), 20)
    controller.until(lambda: bool(controller.of("side", src=0, dst=2, role="src")), 20)
    controller.hosts["n1"].kill()
    began = time.monotonic()
    controller.until(lambda: not controller.hosts["n1"].alive, 20)
    controller.hosts["n0"].send({"op": "abort", "id": 1})
    controller.until(lambda: bool(controller.of("free", id=1, rank=0)), 20)
    assert time.monotonic() - began < 40, "the deadline of 60 s was not waited for"
    lost = controller.of("side", src=2, dst=0, role="dst")[0]
    assert not lost["ok"]
    assert lost["error"]
    run_rounds(controller, [(0, 1)], 10.0)
    assert controller.of("side", src=0, dst=1, role="dst")[0]["ok"]


def test_a_peer_that_never_comes_costs_half_the_deadline(controller: Controller) -> None:
    started(controller, {"n0": [0, 1], "n1": [2, 3]})
    controller.rank_host[2] = "n0"  # so that n1 gets no message
    controller.pair(1, 0, 2, deadline=2.0)
    controller.until(lambda: bool(controller.of("free", id=1, rank=0)), 20)
    sides = by_direction(controller)
    assert {key[2] for key in sides} == {"src", "dst"}
    for side in sides.values():
        assert not side["ok"]
        assert side["timeout"]
        assert side["phase"] == "connect"
        assert came_not(side["error"], 2, 1.0), side
        assert side["error_kind"] == "peer_missing"


def test_abort_ends_a_wait_at_once(controller: Controller) -> None:
    started(controller, {"n0": [0, 1], "n1": [2, 3]})
    controller.rank_host[2] = "n0"
    controller.pair(1, 0, 2, deadline=60.0)
    controller.serve(0.2)
    controller.hosts["n0"].send({"op": "abort", "id": 1})
    controller.until(lambda: bool(controller.of("free", id=1, rank=0)), 30)
    assert all(not side["ok"] and not side["timeout"] for side in controller.of("side"))
    assert {side["error_kind"] for side in controller.of("side")} <= {"cancelled", "peer_lost"}


def test_tests_of_a_pair_take_no_more_descriptors_and_threads_each(controller: Controller) -> None:
    started(controller, {"n0": [0], "n1": [1]})

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


def test_a_missing_library_is_reported() -> None:
    # A process of its own: the variable counts from its start.
    with Controller() as controller:
        controller.spawn("n0", env={"LD_LIBRARY_PATH": "/nonexistent"})
        controller.init("n0", [0], 1, ADDRESSES["n0"], engine="nccl", library="/nonexistent/libnccl.so.2")
        controller.until(lambda: bool(controller.of("failed")), 60)
        failed = controller.of("failed")[0]
        assert (failed["stage"], failed["error_kind"]) == ("import", "no_library")
        assert failed["error"]


def test_an_address_of_another_host_is_reported(controller: Controller) -> None:
    controller.spawn("n0")
    controller.init("n0", [0], 1, "203.0.113.7")
    controller.until(lambda: bool(controller.of("failed")), 60)
    failed = controller.of("failed")[0]
    assert failed["stage"] == "listen"
    assert "203.0.113.7" in failed["error"]


def test_the_end_of_the_line_ends_the_process(controller: Controller) -> None:
    started(controller, {"n0": [0, 1]})
    controller.pair(1, 0, 1, deadline=60.0)
    host = controller.hosts["n0"]
    host.sock.close()
    assert host.process.wait(10) == 0
