"""Collectives, the world layer and pairs both ways, on the devices that are threads."""

import itertools
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fabtui_node.ranks.measure import verify
from tests.wire.rank_controller import Controller, came_not

pytestmark = [pytest.mark.slow, pytest.mark.timeout(90)]

KINDS = verify.KINDS


@pytest.fixture
def controller() -> Iterator[Controller]:
    with Controller() as controller:
        yield controller


def started(controller: Controller, fake: Path, env: dict[str, str] | None = None, **more: Any) -> None:
    controller.spawn("n0", env={"LD_LIBRARY_PATH": str(fake), **(env or {})})
    controller.init("n0", [0, 1, 2, 3], 4, "127.0.60.21", engine="nccl", library=str(fake / "libnccl.so.2"), **more)
    controller.until(lambda: bool(controller.of("ready") or controller.of("failed")), 30)


def free(controller: Controller, number: int, ranks: int, seconds: float = 30) -> None:
    controller.until(lambda: len(controller.of("free", id=number)) == ranks, seconds)


ALL = [[(a, b) for a, b in pairs] for pairs in (([(0, 1), (2, 3)]), ([(1, 0), (3, 2)]), ([(0, 2), (1, 3)]))]
ALL += [[(2, 0), (3, 1)], [(0, 3), (1, 2)], [(3, 0), (2, 1)]]


@pytest.fixture(scope="module")
def lasting(fake_gpu: Path) -> Iterator[Controller]:
    with Controller() as controller:
        started(controller, fake_gpu)
        yield controller


@pytest.fixture(scope="module")
def corrupting(fake_gpu: Path) -> Iterator[Controller]:
    with Controller() as controller:
        started(controller, fake_gpu, env={"FAKE_CORRUPT": "1"})
        yield controller


@pytest.mark.parametrize("kind", KINDS)
def test_a_collective(lasting: Controller, kind: str) -> None:
    controller, sizes = lasting, [8, 4096, 1_000_003]
    for number, ranks in enumerate([[0, 1, 2, 3], [3, 1, 2], [0, 2]], 1 + 3 * KINDS.index(kind)):
        controller.collective(number, kind, ranks, sizes)
        free(controller, number, len(ranks))
        reduced = controller.of("reduced", id=number)
        assert [(m["rank"], m["bytes"]) for m in sorted(reduced, key=lambda m: ranks.index(m["rank"]))] == [
            (rank, size) for rank in ranks for size in sizes
        ]
        for m in reduced:
            assert m["ok"], m
            assert (m["kind"], m["wrong"], m["error"]) == (kind, 0, None)
            assert 0 < m["fastest"] <= m["seconds"]
            assert m["sent"] == verify.shape(kind, m["bytes"], len(ranks)).bytes
            reported = kind not in verify.TWICE and m["rank"] == ranks[0]
            assert m["algorithm"] == ("RING/SIMPLE" if reported else None)
            assert m["rings"] == ([[*range(len(ranks))]] if m["rank"] == ranks[0] else [])


def test_a_rank_that_begins_late_does_not_slow_the_timed_iterations(controller: Controller, fake_gpu: Path) -> None:
    # In a ring that reaches ranks further away only some iterations later, and would count.
    started(controller, fake_gpu, env={"FAKE_LATE": "2"})
    controller.collective(1, "sendrecv", [0, 1, 2, 3], [4096])
    free(controller, 1, 4)
    reports = controller.of("reduced", id=1)
    assert len(reports) == 4
    # The late rank is a second late; spread over five iterations that would be 0.2 s.
    assert all(m["ok"] and m["seconds"] < 0.1 for m in reports), reports


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_data_of_a_collective_is_counted(corrupting: Controller, kind: str) -> None:
    number = 1 + KINDS.index(kind)
    corrupting.collective(number, kind, [0, 1, 2], [100_000])
    free(corrupting, number, 3)
    assert len(corrupting.of("reduced", id=number)) == 3
    for m in corrupting.of("reduced", id=number):
        assert not m["ok"], m
        assert m["phase"] == "verify"
        assert m["wrong"] > 0
        assert m["seconds"] is None
        assert not m["timeout"]


def test_a_collective_too_large_is_refused_by_all(controller: Controller, fake_gpu: Path) -> None:
    started(controller, fake_gpu)
    controller.collective(1, "alltoall", [0, 1], [4096, 2 << 30], deadline=60.0)
    free(controller, 1, 2, 20)
    for m in controller.of("reduced", id=1):
        assert not m["ok"]
        assert "2.0 GiB of GPU memory are needed" in m["error"]
        assert (m["phase"], m["timeout"], m["error_kind"]) == ("connect", False, "out_of_memory")


def test_a_rank_that_does_not_come_to_a_collective_is_named(controller: Controller, fake_gpu: Path) -> None:
    started(controller, fake_gpu)
    controller.rank_host[9] = "n0"
    controller.collective(1, "all_gather", [0, 1, 9], [4096], deadline=2.0)
    free(controller, 1, 2, 10)
    for m in controller.of("reduced", id=1):
        assert m["timeout"]
        assert came_not(m["error"], 9, 1.0), m


def test_a_rank_that_is_not_ready_spoils_a_group_at_once(controller: Controller, fake_gpu: Path) -> None:
    started(controller, fake_gpu, env={"FAKE_GPUS": "3"})
    controller.world(1, [0, 1, 3], [[(0, 3)]], deadline=60.0)
    free(controller, 1, 3, 20)
    for m in controller.of("worlded", id=1):
        assert not m["timeout"]
        assert m["phase"] == "connect"
        assert "rank 3 is not ready" in m["error"]
        assert m["error_kind"] == "not_ready"
        assert m["at"] is None


def test_a_world(controller: Controller, fake_gpu: Path) -> None:
    started(controller, fake_gpu)
    controller.world(1, [0, 1, 2, 3], ALL)
    free(controller, 1, 4)
    reports = {m["rank"]: m for m in controller.of("worlded", id=1)}
    assert set(reports) == {0, 1, 2, 3}
    rows = {(row[0], row[1]): row for m in reports.values() for row in m["rows"]}
    assert set(rows) == set(itertools.permutations(range(4), 2))
    for (src, dst), (_, _, size, rate, ok, error, transport, kind) in rows.items():
        assert (size, ok, error, kind) == (1 << 20, True, None, None)
        assert rate > 0
        assert rows[src, dst] in reports[dst]["rows"]
        assert transport == ("P2P/direct pointer" if dst < 2 and src < 2 else transport)
        assert transport is not None
    for m in reports.values():
        assert (m["ok"], m["timeout"], m["error"], m["at"]) == (True, False, None, None)
        assert all(m["seconds"][name] >= 0 for name in ("init", "connect", "rounds"))
    # And again in the same process, with pairs in between.
    controller.pair(2, 0, 1)
    free(controller, 2, 2)
    controller.world(3, [2, 0], [[(0, 2)]], bytes=5)
    free(controller, 3, 2)
    assert all(m["ok"] for m in controller.of("worlded", id=3))
    assert controller.of("worlded", id=3, rank=2)[0]["rows"][0][:3] == [0, 2, 5]


def test_a_world_without_transfers_connects_all(controller: Controller, fake_gpu: Path) -> None:
    started(controller, fake_gpu)
    controller.world(1, [0, 1, 2, 3], [])
    free(controller, 1, 4)
    assert all(m["ok"] and m["rows"] == [] for m in controller.of("worlded", id=1))


def test_wrong_data_in_a_world_fails_its_rows_alone(controller: Controller, fake_gpu: Path) -> None:
    started(controller, fake_gpu, env={"FAKE_CORRUPT": "1"})
    controller.world(1, [0, 1, 2, 3], ALL, bytes=100_000)
    free(controller, 1, 4)
    for m in controller.of("worlded", id=1):
        assert (m["ok"], m["timeout"], m["phase"], m["error_kind"]) == (False, False, "verify", "verify")
        assert len(m["rows"]) == 3
        assert all(row[3] is None and row[4] is False and "byte" in row[5] for row in m["rows"])
        assert {row[7] for row in m["rows"]} == {"verify"}


def test_a_rank_that_is_missing_from_a_world(controller: Controller, fake_gpu: Path) -> None:
    started(controller, fake_gpu)
    controller.rank_host[9] = "n0"
    controller.world(1, [0, 1, 9], [[(0, 1)]], deadline=1.0)
    free(controller, 1, 2, 10)
    for m in controller.of("worlded", id=1):
        assert (m["ok"], m["timeout"], m["phase"], m["error_kind"]) == (False, True, "connect", "peer_missing")
        assert came_not(m["error"], 9, 1.0), m
    controller.pair(2, 0, 1)
    free(controller, 2, 2)
    assert all(side["ok"] for side in controller.of("side", id=2))


def test_a_transfer_that_hangs_ends_a_world_at_its_deadline(controller: Controller, fake_gpu: Path) -> None:
    """A message that this stand-in never delivers; a transfer that depends on it comes too late as well."""
    started(controller, fake_gpu, env={"FAKE_LOSE": "0>1"})
    controller.world(1, [0, 1, 2], [[(2, 0)], [(0, 1)], [(1, 2)]], deadline=1.5)
    free(controller, 1, 3, 10)
    reports = {m["rank"]: m for m in controller.of("worlded", id=1)}
    for m in reports.values():
        assert (m["ok"], m["timeout"], m["phase"]) == (False, True, "transfer")
    assert [reports[rank]["at"] for rank in range(3)] == [[0, 1], [0, 1], [1, 2]]
    assert [row[:2] for row in reports[0]["rows"]] == [[2, 0]]
    assert reports[1]["rows"] == reports[2]["rows"] == []
    controller.hosts["n0"].send({"op": "rest", "id": 2})
    free(controller, 2, 4, 20)
    controller.world(3, [1, 2, 3], [[(3, 1)], [(2, 3)]])
    free(controller, 3, 3)
    assert all(m["ok"] for m in controller.of("worlded", id=3))


def test_a_world_that_is_called_off(controller: Controller, fake_gpu: Path) -> None:
    started(controller, fake_gpu, env={"FAKE_LOSE": "0>1"})
    controller.world(1, [0, 1], [[(0, 1)]], deadline=60.0)
    soon = time.monotonic() + 1
    controller.until(lambda: time.monotonic() > soon, 20)
    controller.hosts["n0"].send({"op": "abort", "id": 1})
    assert controller.until(lambda: len(controller.of("free", id=1)) == 2, 20) < 10
    for m in controller.of("worlded", id=1):
        assert (m["ok"], m["timeout"], m["at"]) == (False, False, [0, 1])
        assert m["error_kind"] == "cancelled"


def sides(controller: Controller, number: int) -> dict[tuple[int, int, str], dict[str, Any]]:
    return {(m["src"], m["dst"], m["role"]): m for m in controller.of("side", id=number)}


@pytest.mark.parametrize("size", [1000, 3_000_000, 9_000_000])
def test_both_directions_at_once_and_times(controller: Controller, fake_gpu: Path, size: int) -> None:
    started(controller, fake_gpu)
    controller.pair(1, 2, 0, bytes=size, both=True)
    free(controller, 1, 2)
    found = sides(controller, 1)
    for (_, _, role), side in found.items():
        assert side["ok"], side
        if role == "src":
            assert side["both_rate"] is None
            assert side["times"] is None
        else:
            assert side["both_rate"] > 0
            times = side["times"]
            assert 1 <= times["count"] <= 20
            assert 0 < times["min"] <= times["median"] <= times["p99"] <= times["max"]
            assert 0.9 < side["rate"] * times["min"] / size < 1.1 or side["rate"] < size / times["min"]
    controller.pair(2, 2, 0, bytes=size)
    free(controller, 2, 2)
    assert all(side["both_rate"] is None for side in sides(controller, 2).values())


def test_absent(controller: Controller, fake_gpu: Path) -> None:
    started(controller, fake_gpu, faults=[{"src": 1, "dst": 0, "kind": "absent", "rate": None}])
    controller.pair(1, 0, 1, deadline=2.0)
    free(controller, 1, 2, 10)
    found = sides(controller, 1)
    assert set(found) == {(0, 1, "src"), (1, 0, "dst")}
    for side in found.values():
        assert (side["ok"], side["timeout"], side["made"], side["phase"]) == (False, True, True, "connect")
        assert came_not(side["error"], 1, 1.0, " (made by the lab: absent)"), side
    controller.pair(2, 0, 2)
    free(controller, 2, 2)
    assert all(side["ok"] for side in sides(controller, 2).values())


@pytest.mark.parametrize("size", [1, 1000, 9_000_000])
def test_corrupt(controller: Controller, fake_gpu: Path, size: int) -> None:
    started(controller, fake_gpu, faults=[{"src": 1, "dst": 0, "kind": "corrupt", "rate": None}])
    for number in (1, 2):
        controller.pair(number, 0, 1, bytes=size, both=True)
        free(controller, number, 2)
        found = sides(controller, number)
        for role in ("src", "dst"):
            assert found[0, 1, role]["ok"]
            bad = found[1, 0, role]
            assert (bad["ok"], bad["timeout"], bad["made"], bad["phase"]) == (False, False, True, "verify")
            assert bad["error_kind"] == "verify"
            assert "1 byte wrong in" in bad["error"]
            assert "made by the lab: corrupt" in bad["error"]
    controller.pair(3, 1, 2, bytes=size)
    free(controller, 3, 2)
    assert all(side["ok"] for side in sides(controller, 3).values())


def test_kill(controller: Controller, fake_gpu: Path) -> None:
    started(controller, fake_gpu, faults=[{"src": 1, "dst": 0, "kind": "kill", "rate": None}])
    controller.pair(1, 0, 1)
    controller.until(lambda: not controller.hosts["n0"].alive, 20)
    assert controller.hosts["n0"].process.wait(5) == -signal.SIGKILL
    assert all(side["ok"] for side in controller.of("side", id=1))


def test_stop(controller: Controller, fake_gpu: Path) -> None:
    started(controller, fake_gpu, faults=[{"src": 1, "dst": 0, "kind": "stop", "rate": None}])
    controller.hosts["n0"].send({"op": "alive", "n": 1})
    controller.until(lambda: bool(controller.of("alive", n=1)), 20)
    controller.pair(1, 0, 1)
    stat = Path(f"/proc/{controller.hosts['n0'].process.pid}/stat")
    controller.until(lambda: stat.read_text().rpartition(") ")[2][0] == "T", 20)
    controller.hosts["n0"].send({"op": "alive", "n": 2})
    controller.serve(0.3)
    assert not controller.of("alive", n=2)
    controller.hosts["n0"].process.send_signal(signal.SIGCONT)
    controller.until(lambda: bool(controller.of("alive", n=2)), 20)
    free(controller, 1, 2)
    assert all(side["ok"] for side in sides(controller, 1).values())


def test_alive_is_answered_while_ranks_wait(controller: Controller, fake_gpu: Path) -> None:
    started(controller, fake_gpu, faults=[{"src": 0, "dst": 1, "kind": "drop", "rate": None}])
    controller.pair(1, 0, 1, deadline=30.0)
    controller.serve(0.5)
    controller.hosts["n0"].send({"op": "alive", "n": 77})
    controller.until(lambda: bool(controller.of("alive", n=77)), 20)
    assert not controller.of("free", id=1), "the ranks still wait"
    controller.hosts["n0"].send({"op": "abort", "id": 1})
    free(controller, 1, 2)
