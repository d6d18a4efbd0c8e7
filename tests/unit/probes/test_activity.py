"""Probe `activity`: ranks, GPUs, NICs and kernel reports, and what is kept between two readings."""

import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fabtui_node.probes import counters
from fabtui_node.probes.job import activity
from fabtui_node.probes.nvidia import nvml

from .places import Tree
from .playednvml import NOT_SUPPORTED, PlayedNvml
from .test_ras_client import process

STAT = " {state} 1 1 1 0 -1 0 0 0 0 0 {user} 5 0 0 20 0 1 0 45000 0 0\n"
FIELDS = {"NVML_FI_DEV_POWER_INSTANT": 186, "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX": 138}
FIELDS |= {"NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX": 139, "NVML_FI_DEV_NVLINK_COUNT_XMIT_BYTES": 204}


def rank(root: Path, pid: int, number: int, user: int = 95, state: str = "S", parent: int = 1, **more: str) -> Path:
    """Add a process with a rank; its processor time is (user + 5) ticks."""
    process(root, pid, parent, state, RANK=str(number), LOCAL_RANK=str(number), WORLD_SIZE="2", **more)
    folder = root / str(pid)
    folder.joinpath("stat").write_text(f"{pid} (python3){STAT.format(state=state, user=user)}")
    folder.joinpath("task", str(pid)).mkdir(parents=True)
    folder.joinpath("task", str(pid), "stat").write_text(f"{pid} (python3){STAT.format(state=state, user=user - 50)}")
    folder.joinpath("io").write_text("rchar: 1000\nwchar: 500\nwrite_bytes: 300\n")
    folder.joinpath("wchan").write_text("futex_wait_queue")
    return folder


def fields(power: int, sent: int, *, errors: bool = False) -> Any:
    """Return what answers `nvmlDeviceGetFieldValues` with a power (mW) and KiB over NVLinks."""
    known = {FIELDS["NVML_FI_DEV_POWER_INSTANT"]: power, FIELDS["NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX"]: sent}
    known[FIELDS["NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX"]] = 2 * sent

    def answer(asked: list[tuple[int, int]]) -> list[Any]:
        return [
            SimpleNamespace(
                nvmlReturn=0 if number in known and not errors else NOT_SUPPORTED,
                valueType=3,
                value=SimpleNamespace(ullVal=known.get(number, 0)),
            )
            for number, _ in asked
        ]

    return answer


@pytest.fixture
def library() -> PlayedNvml:
    played = PlayedNvml()
    for name, number in FIELDS.items():
        setattr(played, name, number)
    played.overrides["nvmlDeviceGetFieldValues"] = fields(126_400, 10)
    played.overrides["nvmlDeviceGetUtilizationRates"] = SimpleNamespace(gpu=100, memory=0)
    return played


@pytest.fixture
def place(tmp_path: Path, library: PlayedNvml, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(counters, "data_interfaces", lambda root: ["eth0"])
    Tree(tmp_path).files("proc", uptime="500.0 1.0")
    (tmp_path / "kmsg").write_text("")
    folder = tmp_path / "sys/class/net/eth0/statistics"
    folder.mkdir(parents=True)
    for name, number in (("rx_bytes", 70), ("tx_bytes", 30), ("rx_errors", 2)):
        (folder / name).write_text(str(number))
    port = tmp_path / "sys/class/infiniband/mlx5_0/ports/1/counters"
    port.mkdir(parents=True)
    for name, number in (("port_rcv_data", 100), ("port_xmit_data", 25), ("symbol_error", 3)):
        (port / name).write_text(str(number))
    return {
        "proc": str(tmp_path / "proc"),
        "root": str(tmp_path / "sys"),
        "kmsg": str(tmp_path / "kmsg"),
        "open_library": lambda: library,
    }


def read(reader: activity.Activity, seconds: float = 5.0) -> dict[str, Any]:
    return reader.read(time.monotonic() + seconds)


def test_a_node(place: dict[str, Any], tmp_path: Path, library: PlayedNvml) -> None:
    proc = tmp_path / "proc"
    rank(proc, 40, 0, SLURM_JOB_ID="7", MASTER_PORT="29500", HOME="/root")
    rank(proc, 41, 1, state="T", SLURM_JOB_ID="7")
    # A data loader of rank 1.
    helper = rank(proc, 42, 1, parent=41)
    (helper / "stat").write_text((helper / "stat").read_text().replace(" S 1 1 1", " S 41 1 1"))
    running = [SimpleNamespace(pid=41)]
    library.overrides["nvmlDeviceGetComputeRunningProcesses"] = running
    reader = activity.Activity(**place)
    value = read(reader)
    first, second = value["ranks"]
    assert {key: first[key] for key in ("rank", "local_rank", "world", "pid", "name", "job", "env", "age")} == {
        **{"rank": 0, "local_rank": 0, "world": 2, "pid": 40, "name": "python3", "job": "7", "age": 50.0},
        "env": {"MASTER_PORT": "29500", "SLURM_JOB_ID": "7"},
    }
    assert (first["state"], first["wait"], first["cpu"], first["cpu_all"]) == ("S", "futex_wait_queue", 0.5, 1.0)
    assert (first["files"], first["written"]) == (1500, 300)
    assert (second["state"], second["cpu_all"], second["files"], second["written"]) == ("T", 2.0, 3000, 600)
    # NVML knows one of the processes: both GPUs show it.
    assert (first["gpus"], second["gpus"]) == ([], [0, 1])
    gpu = value["gpus"][1]
    assert (gpu["index"], gpu["uuid"], gpu["util"], gpu["power"], gpu["limit"]) == (1, "GPU-1", 100, 126.4, 700.0)
    assert (gpu["nvlink_tx"], gpu["nvlink_rx"], gpu["clock"], gpu["pids"]) == (10240, 20480, 345, [41])
    assert value["nics"]["eth0"] == {"rx": 70, "tx": 30, "errors": 2, "retransmits": None}
    assert value["nics"]["mlx5_0/1"] == {"rx": 400, "tx": 100, "errors": 3, "retransmits": None}
    assert (value["kernel"], value["problems"]) == ([], [])


def test_what_is_kept_between_readings(place: dict[str, Any], tmp_path: Path, library: PlayedNvml) -> None:
    proc = tmp_path / "proc"
    rank(proc, 40, 0)
    reader = activity.Activity(**place)
    read(reader)
    asked = dict(library.asked)
    rank(proc, 41, 1)
    value = read(reader)
    # New processes are searched for now and then only.
    assert [one["pid"] for one in value["ranks"]] == [40]
    again = {name: count - asked.get(name, 0) for name, count in library.asked.items()}
    assert {name: count for name, count in again.items() if count} == {
        "nvmlDeviceGetUtilizationRates": 2,
        "nvmlDeviceGetFieldValues": 2,
    }
    # By its rank within the node, as NVML knows no process.
    assert value["ranks"][0]["gpus"] == [0]
    # One that has ended is noticed at once, and the others are found with the next reading.
    (proc / "40" / "stat").write_text(f"40 (python3){STAT.format(state='Z', user=1)}")
    assert read(reader)["ranks"] == []
    assert [one["pid"] for one in read(reader)["ranks"]] == [41]


def test_gpus_of_ranks_by_their_variables(place: dict[str, Any], tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    rank(proc, 40, 0, CUDA_VISIBLE_DEVICES="1")
    rank(proc, 41, 1, CUDA_VISIBLE_DEVICES="1,0")
    rank(proc, 42, 2, CUDA_VISIBLE_DEVICES="GPU-abc")
    assert [one["gpus"] for one in read(activity.Activity(**place))["ranks"]] == [[1], [0], []]


def test_power_of_a_gpu_without_the_field(place: dict[str, Any], library: PlayedNvml) -> None:
    library.overrides["nvmlDeviceGetFieldValues"] = fields(0, 0, errors=True)
    reader = activity.Activity(**place)
    gpu = read(reader)["gpus"][0]
    assert (gpu["power"], gpu["nvlink_tx"]) == (78.1, None)
    asked = library.asked["nvmlDeviceGetFieldValues"]
    assert read(reader)["gpus"][0]["power"] == 78.1
    assert library.asked["nvmlDeviceGetFieldValues"] == asked, "what no GPU answers is not asked again"


def test_a_driver_that_does_not_answer(place: dict[str, Any], tmp_path: Path, library: PlayedNvml) -> None:
    rank(tmp_path / "proc", 40, 0)
    waiting = threading.Event()
    library.overrides["nvmlDeviceGetUtilizationRates"] = lambda: waiting.wait(20)
    reader = activity.Activity(**place)
    began = time.monotonic()
    value = read(reader, 0.3)
    again = read(reader, 0.3)
    waiting.set()
    assert time.monotonic() - began < 5
    assert value["gpus"] == again["gpus"] == []
    assert "NVML did not answer in time" in again["problems"]
    assert [one["pid"] for one in again["ranks"]] == [40]


def test_no_driver(place: dict[str, Any]) -> None:
    def none() -> Any:
        raise nvml.Unavailable("NVML: NVML Shared Library Not Found")

    value = read(activity.Activity(**{**place, "open_library": none}))
    assert (value["gpus"], value["problems"]) == ([], ["NVML: NVML Shared Library Not Found"])


def test_new_reports_of_the_kernel(place: dict[str, Any], tmp_path: Path) -> None:
    kmsg = tmp_path / "kmsg"
    kmsg.write_text("4,1,100000000,-;NVRM: Xid (PCI:0000:9a:00): 31, pid=7, name=python, old\n")
    tree = Tree(tmp_path)
    for bus in ("0000:18:00.0", "0000:9a:00.0"):
        tree.files(f"sys/bus/pci/devices/{bus}", vendor="0x10de", **{"class": "0x030200"})
    reader = activity.Activity(**place)
    assert read(reader)["kernel"] == []
    with kmsg.open("a") as file:
        file.write("4,2,200000000,-;NVRM: Xid (PCI:0000:9a:00): 79, GPU has fallen off the bus.\n")
        file.write("4,3,200000001,-;Out of memory: Killed process 1041 (python) total-vm:1kB\n")
        file.write("4,4,200000002,-;usb 1-1: new device\n")
    found = read(reader)["kernel"]
    assert [(one["kind"], one["code"], one["gpu"]) for one in found if one["kind"] == "xid"] == [("xid", 79, 1)]
    assert [one["kind"] for one in found] == ["xid", "oom"]
    assert read(reader)["kernel"] == []


def test_kills_for_memory(tmp_path: Path) -> None:
    proc, root = tmp_path / "proc", tmp_path / "cgroup"
    for pid, line in ((40, "0::/job/step\n"), (41, "9:memory:/job\n8:cpu:/\n0::/\n"), (42, "odd")):
        (proc / str(pid)).mkdir(parents=True)
        (proc / str(pid) / "cgroup").write_text(line)
    (root / "job/step").mkdir(parents=True)
    (root / "job/step/memory.events").write_text("low 0\noom 3\noom_kill 2\noom_group_kill 0\n")
    (root / "memory/job").mkdir(parents=True)
    (root / "memory/job/memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")
    files = [activity._cgroup_files(pid, str(proc), str(root)) for pid in (40, 41, 42)]
    assert [[os.path.relpath(path, root) for path in some] for some in files] == [
        ["job/step/memory.events"],
        ["memory/job/memory.oom_control"],
        [],
    ]
    ranks = activity.Ranks("")
    assert ranks.kills() is None
    for path, count in ((files[0][0], 2), (files[1][0], 3), ("/nowhere", 3)):
        ranks._cgroups[path] = None
        assert ranks.kills() == count


def test_this_node() -> None:
    value = activity.run({}, lambda _: None, 5.0)
    assert set(value) == {"time", "clock", "ranks", "gpus", "nics", "kernel", "oom", "problems", "cost"}
    assert 0 <= value["cost"] < 5
    assert value["clock"] <= time.monotonic()
