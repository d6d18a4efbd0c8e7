"""The NCCL engine against a libcuda and a libnccl whose devices are threads: calls, deadlines, checks, faults."""

import itertools
import re
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.wire.rank_controller import Controller, has

pytestmark = [pytest.mark.slow, pytest.mark.timeout(90)]


@pytest.fixture
def controller() -> Iterator[Controller]:
    with Controller() as controller:
        yield controller


def started(controller: Controller, fake: Path, env: dict[str, str] | None = None, **more: Any) -> None:
    controller.spawn("n0", env={"LD_LIBRARY_PATH": str(fake), **(env or {})})
    more.setdefault("library", str(fake / "libnccl.so.2"))
    controller.init("n0", [0, 1, 2, 3], 4, "127.0.60.20", engine="nccl", **more)
    controller.until(lambda: bool(controller.of("ready") or controller.of("failed")), 30)


def pair(
    controller: Controller, number: int, a: int, b: int, **more: Any
) -> dict[tuple[int, int, str], dict[str, Any]]:
    more = {"deadline": 10.0, "bytes": 5_000_000, **more}
    controller.pair(number, a, b, **more)
    controller.until(lambda: len(controller.of("free", id=number)) == 2, more["deadline"] + 6)
    return {(m["src"], m["dst"], m["role"]): m for m in controller.of("side", id=number)}


def test_ready(controller: Controller, fake_gpu: Path) -> None:
    started(controller, fake_gpu)
    ready = controller.of("ready")[0]
    assert ready["engine"] == "nccl"
    assert ready["version"] == "NCCL 2.28.9, CUDA driver 13.0"
    assert ready["ranks"] == [{"rank": rank, "ok": True, "error": None, "error_kind": None} for rank in range(4)]
    assert ready["port"] > 0


@pytest.mark.parametrize("library", ["libnccl.so.2", "another.so"])
def test_what_will_be_asked_for_is_loaded_ahead_and_touches_no_gpu(
    controller: Controller, fake_gpu: Path, tmp_path: Path, library: str
) -> None:
    trace = tmp_path / "trace"
    env = {"LD_LIBRARY_PATH": str(fake_gpu), "FAKE_TRACE": str(trace)}
    controller.spawn("n0", env=env, config={"engine": "nccl", "library": str(fake_gpu / library)})
    controller.until(lambda: trace.exists() and trace.read_text().endswith("\n"), 20)
    assert set(trace.read_text().splitlines()) == {"init PCI_BUS_ID"}
    assert not controller.messages
    controller.init("n0", [0, 1, 2, 3], 4, "127.0.60.20", engine="nccl", library=str(fake_gpu / "libnccl.so.2"))
    controller.until(lambda: bool(controller.of("ready")), 20)
    assert [m["op"] for m in controller.messages] == ["loaded", "ready"]
    # Before the engine was there, and once by it, also where the request names another library.
    assert sorted(trace.read_text().splitlines()) == [*["context -"] * 4, *["init PCI_BUS_ID"] * 2]
    assert all(side["ok"] for side in pair(controller, 1, 0, 3).values())


def test_an_unknown_engine_is_reported_at_the_init(controller: Controller, fake_gpu: Path) -> None:
    controller.spawn("n0", config={"engine": "smoke"})
    controller.init("n0", [0, 1], 2, "127.0.60.20", engine="smoke")
    controller.until(lambda: bool(controller.of("failed")), 20)
    assert "unknown engine" in controller.of("failed")[0]["error"]


@pytest.mark.parametrize("size", [1, 1000, 70_000, 5_000_000])
def test_all_pairs(controller: Controller, fake_gpu: Path, size: int) -> None:
    started(controller, fake_gpu)
    for number, (a, b) in enumerate(itertools.combinations(range(4), 2)):
        sides = pair(controller, number, a, b, bytes=size)
        assert len(sides) == 4
        for side in sides.values():
            assert side["ok"], side
            assert side["bytes"] == size
        assert sides[a, b, "dst"]["rate"] > 0
        assert sides[b, a, "src"]["latency"] > 0


def test_transports_and_addresses(controller: Controller, fake_gpu: Path) -> None:
    started(controller, fake_gpu)
    sides = pair(controller, 1, 0, 1)
    for role in ("src", "dst"):
        assert sides[0, 1, role]["transport"] == "P2P/direct pointer"
        assert (sides[0, 1, role]["src_addr"], sides[0, 1, role]["dst_addr"]) == ("0000:10:00.0", "0000:11:00.0")
    sides = pair(controller, 2, 2, 3)
    assert sides[2, 3, "src"]["transport"] == "NET/Socket/fake0"
    assert sides[2, 3, "dst"]["transport"] == "NET/Socket/fake1"
    assert (sides[2, 3, "src"]["src_addr"], sides[2, 3, "src"]["dst_addr"]) == ("192.0.2.1", "192.0.2.2")
    assert "NET/Socket/0" in sides[2, 3, "src"]["raw"]


def test_all_reduce(controller: Controller, fake_gpu: Path) -> None:
    started(controller, fake_gpu)
    for number, ranks in enumerate([[0, 1, 2, 3], [1, 2, 3]], 1):
        controller.all_reduce(number, ranks, [4, 4096, 3_000_000])
        controller.until(partial(has, controller, number, len(ranks)), 30)
        reduced = controller.of("reduced", id=number)
        assert len(reduced) == 3 * len(ranks)
        assert all(m["ok"] and m["wrong"] == 0 and m["seconds"] > 0 for m in reduced), [
            m for m in reduced if not m["ok"] or not m["seconds"]
        ]


def test_wrong_data_is_seen(controller: Controller, fake_gpu: Path) -> None:
    started(controller, fake_gpu, env={"FAKE_CORRUPT": "1"})
    sides = pair(controller, 1, 0, 1, bytes=1_000_000)
    for side in sides.values():
        assert not side["ok"]
        assert (side["phase"], side["error_kind"]) == ("verify", "verify")
        assert not side["timeout"]
        assert side["rate"] is None
        assert "the first at 500000" in side["error"]


def test_drop(controller: Controller, fake_gpu: Path) -> None:
    started(controller, fake_gpu, faults=[{"src": 1, "dst": 0, "kind": "drop", "rate": None}])
    sides = pair(controller, 1, 0, 1, deadline=3.0)
    for role in ("src", "dst"):
        assert sides[0, 1, role]["ok"]
        dropped = sides[1, 0, role]
        assert not dropped["ok"]
        assert dropped["timeout"]
        assert dropped["made"]
        assert re.search(r"no first byte came from rank 1 within \d\.\d s", dropped["error"])
        assert "made by the lab: drop" in dropped["error"]
    assert all(side["ok"] for side in pair(controller, 2, 0, 2).values())
    assert all(side["ok"] for side in pair(controller, 3, 1, 0, deadline=3.0).values() if side["src"] == 0)


def test_refuse(controller: Controller, fake_gpu: Path) -> None:
    started(controller, fake_gpu, faults=[{"src": 1, "dst": 0, "kind": "refuse", "rate": None}])
    sides = pair(controller, 1, 0, 1)
    for role in ("src", "dst"):
        assert sides[0, 1, role]["ok"]
        assert sides[1, 0, role]["made"]
        assert "Connection refused" in sides[1, 0, role]["error"]
        assert sides[1, 0, role]["error_kind"] == "connection_refused"
        assert sides[0, 1, role]["error_kind"] is None


def test_slow(controller: Controller, fake_gpu: Path) -> None:
    started(controller, fake_gpu, faults=[{"src": 1, "dst": 0, "kind": "slow", "rate": 4e6}])
    sides = pair(controller, 1, 0, 1)
    assert sides[1, 0, "dst"]["ok"]
    assert sides[1, 0, "dst"]["made"]
    assert 0.2e6 < sides[1, 0, "dst"]["rate"] < 4.4e6
    assert sides[0, 1, "dst"]["rate"] > 2 * 4.4e6


def test_a_peer_that_never_joins(controller: Controller, fake_gpu: Path) -> None:
    """A communicator nobody else comes to is left at the deadline, and the GPU continues."""
    started(controller, fake_gpu)
    controller.rank_host[9] = "n0"
    controller.pair(1, 0, 9, deadline=2.0)
    controller.until(lambda: len(controller.of("free", id=1)) == 1, 10)
    assert all(side["timeout"] and "rank 9 did not come" in side["error"] for side in controller.of("side", id=1))
    assert all(side["ok"] for side in pair(controller, 2, 0, 1).values())


def test_abort_ends_a_wait_for_data(controller: Controller, fake_gpu: Path) -> None:
    started(controller, fake_gpu, faults=[{"src": 0, "dst": 1, "kind": "drop", "rate": None}])
    controller.pair(1, 0, 1, deadline=60.0)
    controller.until(lambda: "e1/1/link1/id" in controller.store, 10)
    time.sleep(0.3)
    controller.hosts["n0"].send({"op": "abort", "id": 1})
    assert controller.until(lambda: len(controller.of("free", id=1)) == 2, 20) < 10
    assert not any(side["ok"] for side in controller.of("side", id=1))
    assert {side["error_kind"] for side in controller.of("side", id=1)} <= {"cancelled", "peer_lost"}
    assert all(side["ok"] for side in pair(controller, 2, 0, 2).values())


def test_a_gpu_that_is_not_there(controller: Controller, fake_gpu: Path) -> None:
    started(controller, fake_gpu, env={"FAKE_GPUS": "3"})
    states = {rank["rank"]: rank for rank in controller.of("ready")[0]["ranks"]}
    assert [states[rank]["ok"] for rank in range(4)] == [True, True, True, False]
    assert "no device 3" in states[3]["error"]
    sides = pair(controller, 1, 0, 3)
    assert len(sides) == 4
    assert all("no device 3" in side["error"] and not side["timeout"] for side in sides.values())
    assert {side["error_kind"] for side in sides.values()} == {"not_ready"}


def test_rest_lets_go_of_what_tests_left(controller: Controller, fake_gpu: Path) -> None:
    started(controller, fake_gpu, faults=[{"src": 1, "dst": 0, "kind": "drop", "rate": None}])
    pair(controller, 1, 0, 1, deadline=2.0)
    pair(controller, 2, 2, 3)
    controller.hosts["n0"].send({"op": "rest", "id": 3})
    controller.until(lambda: len(controller.of("free", id=3)) == 4, 20)
    assert sorted(m["rank"] for m in controller.of("rested", id=3)) == [0, 1, 2, 3]
    assert all(m["error"] is None for m in controller.of("rested", id=3))
    assert all(side["ok"] for side in pair(controller, 4, 0, 2).values())


def test_a_kept_communicator_is_used_again_while_both_ends_have_it(controller: Controller, fake_gpu: Path) -> None:
    started(controller, fake_gpu)
    made = "NCCL INFO Channel 00/1 : 0[0] -> 1[1] via P2P/direct pointer"

    def links() -> list[str]:
        return sorted(key.removeprefix("e1/") for key in controller.store if "/link" in key)

    first = pair(controller, 1, 2, 3, keep=True, ctas=16)
    again = pair(controller, 2, 3, 2, keep=True, ctas=16)
    assert links() == ["1/link1/id"]
    assert all(side["ok"] for side in (*first.values(), *again.values()))
    for way in ((2, 3, "src"), (3, 2, "dst")):
        assert again[way]["transport"] == first[way]["transport"]
    assert all(side["held"] is not None for side in first.values())
    assert all(side["held"] is None for side in again.values())
    pair(controller, 3, 2, 3, keep=True)
    assert links() == ["1/link1/id", "3/link1/id"], "of other CTAs"
    pair(controller, 4, 0, 1, keep=True)
    assert made in pair(controller, 5, 0, 1, keep=True)[0, 1, "src"]["raw"]
    controller.hosts["n0"].send({"op": "rest", "id": 6, "whole": False, "links": [[2, 3, 16, False], [0, 1, 0, True]]})
    controller.until(lambda: len(controller.of("free", id=6)) == 4, 20)
    assert all(m["error"] is None for m in controller.of("rested", id=6))
    for number, (a, b), ctas in ((7, (2, 3), 0), (8, (2, 3), 16), (9, (0, 1), 0)):
        assert all(side["ok"] for side in pair(controller, number, a, b, keep=True, ctas=ctas).values())
    assert links() == [f"{number}/link1/id" for number in (1, 3, 4, 8, 9)]


def test_a_held_stream_goes_on_by_itself(fake_gpu: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fabtui_node.ranks.nccl import ctypes_cuda

    device = ctypes_cuda.CudaDevice(ctypes_cuda.Driver(str(fake_gpu / "libcuda.so.1")), 0)

    def queue_and_look() -> None:
        device.record(device.events(1)[0])
        with pytest.raises(ctypes_cuda.CudaError, match="still busy"):
            device.wait(time.monotonic() + 0.01)

    with monkeypatch.context() as patient:
        patient.setattr(ctypes_cuda, "HELD_MOST", 60.0)
        device.held(queue_and_look)
    device.wait(time.monotonic() + 5)
    # Work that waits for the device itself.
    device.held(partial(device.wait, time.monotonic() + 20 * ctypes_cuda.HELD_MOST))
    device.held(lambda: None)
    device.wait(time.monotonic() + 5)


def test_memory_that_is_not_there(controller: Controller, fake_gpu: Path) -> None:
    started(controller, fake_gpu)
    sides = pair(controller, 1, 0, 1, bytes=2 << 30, deadline=4.0)
    assert all(
        not side["ok"] and "2.0 GiB of GPU memory are needed, 1.0 GiB of 1.0 GiB are free" in side["error"]
        for side in sides.values()
    )
    assert {side["error_kind"] for side in sides.values()} == {"out_of_memory"}


def test_a_gpu_is_found_by_its_uuid(controller: Controller, fake_gpu: Path) -> None:
    controller.spawn("n0", env={"LD_LIBRARY_PATH": str(fake_gpu)})
    uuids = ["GPU-13131313-1313-1313-1313-131313131313", "GPU-00000000-0000-0000-0000-000000000000"]
    library = str(fake_gpu / "libnccl.so.2")
    controller.init("n0", [0, 1], 2, "127.0.60.20", engine="nccl", library=library, uuids=dict(enumerate(uuids)))
    controller.until(lambda: bool(controller.of("ready")), 30)
    good, bad = controller.of("ready")[0]["ranks"]
    assert good["ok"]
    assert "GPU-00000000" in bad["error"]


def test_without_any_driver_it_is_what_is_missed(controller: Controller, tmp_path: Path) -> None:
    controller.spawn("n0", env={"LD_LIBRARY_PATH": str(tmp_path)})
    controller.init("n0", [0, 1], 2, "127.0.60.25", engine="nccl")
    controller.until(lambda: bool(controller.of("failed")), 30)
    assert "libcuda.so.1" in controller.of("failed")[0]["error"]


@pytest.mark.parametrize("healed", [True, False])
def test_what_is_left_of_a_cut_transfer_reaches_no_later_test(
    controller: Controller, fake_gpu: Path, healed: bool
) -> None:
    started(controller, fake_gpu, env={"FAKE_CUT": "2"})
    # In mid-transfer; until its communicator is aborted, its old data arrives again and again.
    cut = pair(controller, 1, 0, 1, deadline=3.0)
    assert cut[0, 1, "dst"]["timeout"]
    if healed:
        assert all(side["ok"] for side in pair(controller, 2, 0, 1).values())
    # A test of one of its ends with a third rank, in both directions.
    for number, (a, b) in enumerate([(1, 2), (3, 1), (0, 3)], 3):
        sides = pair(controller, number, a, b, iters=30, both=True)
        assert {key: side["error"] for key, side in sides.items()} == dict.fromkeys(sides)
    controller.hosts["n0"].send({"op": "rest", "id": 20, "whole": True})
    controller.until(lambda: len(controller.of("rested", id=20)) == 4, 10)
    assert [m["error"] for m in controller.of("rested", id=20)] == [None] * 4
    assert all(side["ok"] for side in pair(controller, 21, 0, 1).values())


@pytest.mark.parametrize("seed", range(3))
def test_cut_transfers_in_any_order_spoil_no_later_test(controller: Controller, fake_gpu: Path, seed: int) -> None:
    chance = Random(seed)
    # A test has at most 50 messages over 1 MB: none is cut that follows on a cut one.
    cuts = [20 + 130 * number + chance.randrange(30) for number in range(4)]
    started(controller, fake_gpu, env={"FAKE_CUT": ",".join(map(str, cuts))})
    last, was_cut, cut = (0, 1), False, 0
    for number in range(1, 100):
        if cut == len(cuts) and not was_cut:
            break
        # After a cut, one of its ends with another partner.
        a = chance.choice(last)
        b = chance.choice([rank for rank in range(4) if rank not in last])
        sides = pair(controller, number, a, b, deadline=3.0, keep=chance.random() < 0.5)
        late = {key for key, side in sides.items() if side["timeout"]}
        assert not (was_cut and late), sides
        assert {key for key, side in sides.items() if not side["ok"]} == late, sides
        last, was_cut, cut = (a, b), bool(late), cut + bool(late)
    assert cut == len(cuts)
