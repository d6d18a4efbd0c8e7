"""The engine that runs a process a rank, as torch's users do, with gloo standing in for NCCL."""

from __future__ import annotations

import importlib.util
import os
import signal
import time
from functools import partial
from pathlib import Path

import pytest

from tests.wire.rank_controller import Controller, has

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
    pytest.mark.timeout(180),
]

ADDRESSES = {"n0": "127.0.60.14", "n1": "127.0.60.15"}


def started(controller: Controller, layout: dict[str, list[int]]) -> None:
    for name in layout:
        controller.spawn(name)
    world = sum(len(ranks) for ranks in layout.values())
    for name, ranks in layout.items():
        controller.init(name, ranks, world, ADDRESSES[name], engine="torch", library="gloo")
    controller.until(lambda: all(controller.hosts[name].ready for name in layout), 120)


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] == "Z"
    except OSError:
        return True


def test_pairs_collectives_and_worlds(controller: Controller) -> None:
    started(controller, {"n0": [0, 1], "n1": [2]})
    assert [rank["rank"] for rank in controller.hosts["n0"].ready["ranks"]] == [0, 1]
    assert all(rank["ok"] for host in controller.hosts.values() for rank in host.ready["ranks"])
    processes = children(controller.hosts["n0"].process.pid)
    assert len(processes) == 2
    for number, (a, b) in enumerate([(0, 1), (1, 2)], 1):
        controller.pair(number, a, b, both=True)
        controller.until(partial(has, controller, number, 2), 30)
        assert len(controller.of("side", id=number)) == 4
        assert all(side["ok"] for side in controller.of("side", id=number)), controller.of("side", id=number)
    controller.collective(3, "all_gather", [0, 1, 2], [1 << 20])
    controller.until(lambda: len(controller.of("free", id=3)) == 3, 30)
    assert [m["ok"] for m in controller.of("reduced", id=3)] == [True] * 3
    controller.world(4, [0, 1, 2], [[(0, 2)], [(2, 1)]])
    controller.until(lambda: len(controller.of("free", id=4)) == 3, 30)
    assert [m["ok"] for m in controller.of("worlded", id=4)] == [True] * 3
    peer = {"node": "n1", "address": ADDRESSES["n1"], "port": controller.hosts["n1"].ready["port"]}
    controller.hosts["n0"].send({"op": "reach", "peers": [peer], "deadline": 2.0})
    controller.until(lambda: bool(controller.of("reach")), 10)
    assert [m["ok"] for m in controller.of("reach")] == [True]
    controller.hosts["n0"].send({"op": "quit"})
    assert controller.hosts["n0"].process.wait(10) == 0
    controller.until(lambda: all(gone(pid) for pid in processes), 20)


def test_alive_means_all_processes_and_one_that_dies_takes_the_rank_host_along(controller: Controller) -> None:
    started(controller, {"n0": [0, 1]})
    host = controller.hosts["n0"]
    processes = children(host.process.pid)
    host.send({"op": "alive", "n": 1})
    controller.until(lambda: bool(controller.of("alive", n=1)), 20)
    os.kill(processes[1], signal.SIGSTOP)
    host.send({"op": "alive", "n": 2})
    end = time.monotonic() + 1
    controller.until(lambda: time.monotonic() > end, 20)
    assert not controller.of("alive", n=2)
    os.kill(processes[1], signal.SIGCONT)
    controller.until(lambda: bool(controller.of("alive", n=2)), 20)
    assert len(controller.of("alive")) == 2
    os.kill(processes[0], signal.SIGKILL)
    assert host.process.wait(10) == -signal.SIGKILL
    controller.until(lambda: all(gone(pid) for pid in processes), 20)


def test_a_torch_without_gpus_is_reported(controller: Controller) -> None:
    controller.spawn("n0")
    controller.init("n0", [0, 1], 2, ADDRESSES["n0"], engine="torch")
    controller.until(lambda: bool(controller.of("ready") or controller.of("failed")), 90)
    if controller.of("ready"):
        pytest.skip("this torch has NCCL and GPUs")
    assert len(controller.of("failed")) == 1
    failed = controller.of("failed")[0]
    assert (failed["stage"], failed["error_kind"]) == ("import", "no_library")
    assert "torch" in controller.of("failed")[0]["error"]
