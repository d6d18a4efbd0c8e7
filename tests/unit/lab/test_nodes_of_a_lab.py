import fcntl
from pathlib import Path
from typing import Any

import pytest

from fabtui.lab import lab_daemon, server
from fabtui.lab.faults import LabSpec, parse_faults
from fabtui.lab.server import address_of, divide, node_environment, visible_gpus


def test_addresses_are_on_loopback_and_apart() -> None:
    addresses = [address_of(number) for number in range(256)]
    assert addresses[0] == "127.0.60.10"
    assert len(set(addresses)) == 256
    assert all(0 <= int(part) <= 255 for address in addresses for part in address.split("."))


def test_gpus_are_divided_in_order() -> None:
    assert divide(list("01234567"), (4, 4)) == ([["0", "1", "2", "3"], ["4", "5", "6", "7"]], None)
    assert divide(list("01234567"), (2, 3)) == ([["0", "1"], ["2", "3", "4"]], None)


def test_too_few_gpus_mean_cpu_ranks_everywhere_and_a_note() -> None:
    shares, note = divide(["0"], (1, 1))
    assert shares == [[], []]
    assert note == "1 GPU here: the lab runs 2 CPU ranks"
    _, note = divide([], (4, 4))
    assert note is not None
    assert "No GPU" in note


def test_gpus_are_counted_by_their_device_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fabtui.lab.server._nvml_count", lambda: None)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for name in ("nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    assert visible_gpus(tmp_path) == ["0", "1", "2"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4, 5")
    assert visible_gpus(tmp_path) == ["4", "5"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert visible_gpus(tmp_path) == []


def test_environment_of_a_node() -> None:
    base = {"HOME": "/h", "SSH_AUTH_SOCK": "/s", "FABTUI_LAB_NODE": "outer", "CUDA_VISIBLE_DEVICES": "7", "LANG": "C"}
    base |= {"AWS_SECRET_ACCESS_KEY": "x", "MY_TOKEN": "x", "https_proxy": "http://user:x@proxy", "OPENAI_API_KEY": "x"}
    found = node_environment(base, "n001", "127.0.60.11", 2, ["2", "3"], "/py", "mark")
    assert found == {
        "HOME": "/h",
        "LANG": "C",
        "FABTUI_LAB_NODE": "n001",
        "FABTUI_LAB_ENDPOINTS": "2",
        "FABTUI_LAB_ADDRESS": "127.0.60.11",
        "FABTUI_LAB_PYTHON": "/py",
        "FABTUI_LAB_MARK": "mark",
        "CUDA_VISIBLE_DEVICES": "2,3",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "NCCL_HOSTID": "fabtui-lab-n001",
    }
    without = node_environment(base, "n001", "127.0.60.11", 2, [], "/py", "mark")
    assert without["CUDA_VISIBLE_DEVICES"] == ""
    assert "NCCL_HOSTID" not in without


def test_folders_of_killed_labs_are_removed_and_no_others(tmp_path: Path) -> None:
    for name in ("fabtui-lab-dead", "fabtui-lab-alive", "fabtui-lab-starting", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "client_key").touch()
    for name in ("dead", "alive"):
        (tmp_path / f"fabtui-lab-{name}" / "lock").touch()
    (tmp_path / "fabtui-lab-link").symlink_to(tmp_path / "other")
    (tmp_path / "other" / "lock").touch()
    with (tmp_path / "fabtui-lab-alive" / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        lab_daemon.remove_leftovers(tmp_path)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"fabtui-lab-alive", "fabtui-lab-starting", "fabtui-lab-link", "other"}
    assert (tmp_path / "other" / "client_key").exists()


def test_variables_are_those_of_their_node_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[str, tuple[Any, Any]] = {}
    monkeypatch.setattr(server, "LabNode", lambda name, number, env, fault: made.update({name: (env, fault)}))
    spec = LabSpec((1, 1))
    faults = parse_faults(["n001=env:A=1", "n001=dead-after:3", "n001=env:FABTUI_LAB_ADDRESS=192.0.2.1"], spec)
    server.LabServer(spec, faults, tmp_path)
    assert "A" not in made["n000"][0]
    assert made["n000"][1] is None
    assert made["n001"][0]["A"] == "1"
    assert made["n001"][0]["FABTUI_LAB_ADDRESS"] == "192.0.2.1"
    assert made["n001"][1] == faults[1]
