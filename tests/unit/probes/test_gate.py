"""The gate: what drains a node, what does not, and what is left behind when something hangs."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from fabtui.cli.commands.gate import archive, grave
from fabtui.transport.payload import node_modules
from fabtui_node import gate
from fabtui_node.gate import Check, CheckAnswer
from fabtui_node.probes import hostlink, mounts
from fabtui_node.probes.nvidia import gpu_health, nvlink
from fabtui_node.system import sysfs
from tests.unit.probes.playednvml import PlayedNvml

GRAVE = grave()
KMSG = "6,{at},{us},-;NVRM: Xid (PCI:0000:3b:00): {code}, pid='<unknown>', name=<unknown>, {text}"


def gpu_value(played: PlayedNvml) -> dict[str, Any]:
    return {
        **gpu_health.read(played, None),
        "on_pci": [f"0000:{at:02x}:00.0" for at in range(played.gpus)],
        "all_visible": True,
        "fabric_manager": {"switches": 4, "active": None, "installed": False, "version": None},
        "problems": [],
        "disagreements": [],
    }


def mount(path: str, **more: Any) -> dict[str, Any]:
    known = {"path": path, "type": "nfs4", "remote": True, "read_only": False, "free": 1 << 40, "size": 1 << 44}
    return {**known, "files": None, "seconds": 0.001, **more}


def port(state: str = "Active", rate: float = 400.0, physical: str = "LinkUp") -> dict[str, Any]:
    return {"port": 1, "state": state, "physical_state": physical, "rate": rate, "link_layer": "InfiniBand"}


def answers(gpus: dict[str, Any] | None = None, places: Any = (), ports: Any = ()) -> dict[str, CheckAnswer]:
    made = {"mounts": ({"mounts": list(places)}, mounts.judge)}
    cas = [{"ca": f"mlx5_{at}", "type": "MT4129", "ports": [one]} for at, one in enumerate(ports)]
    from fabtui_node.probes.rdma import ibstat

    made["ibstat"] = ({"cas": cas}, ibstat.judge)
    if gpus is not None:
        made["gpus"] = (gpus, gpu_health.judge)
    return {name: CheckAnswer(judged(value), gate.facts_of(name, value)) for name, (value, judged) in made.items()}


def test_ten_thousand_healthy_nodes_are_not_drained() -> None:
    """The variation is as in recordings: clocks, power, heat, corrected errors, traffic, ports without a cable."""
    rng = random.Random(51)
    played = PlayedNvml(8)
    good = gate.opinion(answers(gpu_value(played), [mount("/home")], [port()] * 8)).facts
    base = gpu_value(played)
    drained = []
    for run in range(10_000):
        for gpu in base["gpus"]:
            busy = rng.random() < 0.3
            gpu["utilization"], gpu["busy"] = (rng.randint(1, 100), True) if busy else (0, False)
            gpu["perf"] = "P0"
            gpu["power"], gpu["temperature"] = rng.uniform(70, 700), rng.randint(25, 86)
            gpu["clocks"]["sm"] = rng.randint(345, 1980)
            gpu["pcie"]["replays"] = rng.randint(0, 40)
            gpu["pcie"]["generation"] = 5 if busy else rng.choice([1, 5])
            gpu["reasons"] = rng.choice([[], ["idle"], ["sw_power_cap"], ["applications_clocks_setting"]])
            gpu["ecc_errors"]["corrected"] = rng.randint(0, 5)
        places = [mount("/home", seconds=rng.expovariate(1 / 0.02), free=rng.randint(1, 1 << 44))]
        ports = [port()] * 8 + [port("Down", 10.0, "Polling")] * rng.randint(0, 2)
        opinion = gate.opinion(answers(base, places, ports), good)
        if opinion.code != gate.FREE:
            drained.append((run, opinion.line))
    assert drained == []


@pytest.mark.parametrize(
    ("planted", "reason"),
    [
        ("lost", "GPU is lost"),
        ("missing", "7 answer"),
        ("ecc", "uncorrected memory errors"),
        ("rows", "remapping a row"),
        ("thermal", "too hot"),
        ("fabric", "NVLink fabric"),
        ("mount", "/home (nfs4) does not answer"),
        ("full", "is full"),
        ("port", "ports of the baseline missing: mlx5_0/1 400 Gb/s"),
        ("rate", "mlx5_0/1 400 Gb/s"),
        ("memory", "memory: "),
    ],
)
def test_each_planted_fault_drains_with_its_reason(planted: str, reason: str) -> None:
    played = PlayedNvml(8)
    good = gate.opinion(answers(gpu_value(played), [mount("/home")], [port()] * 2)).facts
    good["memory"] = 2 << 40
    value, places, ports = gpu_value(played), [mount("/home")], [port(), port()]
    facts = {"memory": 2 << 40}
    first = value["gpus"][0]
    if planted == "lost":
        first["lost"] = "GPU is lost"
    elif planted == "missing":
        del value["gpus"][3]
    elif planted == "ecc":
        first["ecc_errors"]["uncorrected"] = 2
    elif planted == "rows":
        first["rows"]["failure"] = True
    elif planted == "thermal":
        first["reasons"] = ["hw_thermal_slowdown"]
    elif planted == "fabric":
        first["fabric"] = {"state": "in progress", "status": None}
    elif planted == "mount":
        del places[0]["seconds"]
    elif planted == "full":
        places.append(mount("/tmp", type="ext4", remote=False, free=1000, size=1 << 38))
    elif planted == "port":
        ports[0] = port("Down", 10.0, "Polling")
    elif planted == "rate":
        ports[0] = port(rate=100.0)
    else:
        facts["memory"] = 1 << 40
    found = {**answers(value, places, ports), "host": CheckAnswer([], facts)}
    opinion = gate.opinion(found, good)
    assert opinion.code == gate.DRAIN, opinion
    assert reason in opinion.line
    assert len(opinion.line) <= gate.LONGEST + 10
    assert opinion.line.isprintable()


def test_an_xid_drains_until_the_driver_reports_that_the_gpu_is_well() -> None:
    entry = {
        "kind": "xid",
        "code": 79,
        "text": "GPU has fallen off the bus.",
        "count": 1,
        "age": 60.0,
        "bus": "0000:3b:00",
    }
    judged = gate.xids({"counts": [entry]}, GRAVE)
    assert judged[0]["verdict"] == "bad"
    kernel = {"kernel": CheckAnswer(judged, {})}
    assert "Xid 79" in gate.opinion(kernel).line
    assert gate.opinion(kernel).code == gate.DRAIN
    assert gate.opinion({**kernel, "gpus": CheckAnswer([], {"recovered": True})}).code == gate.FREE
    assert gate.xids({"counts": [{**entry, "code": 43}]}, GRAVE) == []
    assert gate.xids({"counts": [{**entry, "age": 30 * 86400.0}]}, GRAVE)[0]["verdict"] == "note"


def test_what_only_one_look_shows_drains_nothing() -> None:
    def hot() -> CheckAnswer:
        return CheckAnswer([{"subject": "clocks", "verdict": "bad", "text": "GPU 3: it is too hot"}], {})

    once, twice = gate.agreed(hot(), CheckAnswer([], {})), gate.agreed(hot(), hot())
    assert (gate.opinion({"gpus": once}).code, gate.opinion({"gpus": twice}).code) == (gate.FREE, gate.DRAIN)


def hangs() -> CheckAnswer:
    while True:
        signal.pause()


def spins() -> CheckAnswer:
    while True:
        pass


def test_what_hangs_is_ended_and_named() -> None:
    """A driver that never answers, and one that ends without an answer."""
    work = {"gpus": hangs, "nvlink": lambda: os._exit(3), "host": lambda: CheckAnswer([], {"cpus": 4})}
    began = time.monotonic()
    found, children = gate.ask(work, 0.5)
    assert time.monotonic() - began < 5
    assert found["host"].facts == {"cpus": 4}
    opinion = gate.opinion(found)
    assert opinion.code == gate.DRAIN
    assert "gpus does not answer" in opinion.bad[0]
    assert opinion.missing == ["nvlink ended without an answer"]
    assert not [child.pid for child in children if child.left(time.monotonic() + 5)]


def test_a_check_that_had_no_processor_drains_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel counts how long a thread was ready and had none (schedstat)."""
    text = sysfs.text
    played = lambda *path: "1000 900000000 3" if path[-1] == "schedstat" else text(*path)  # noqa: E731
    monkeypatch.setattr(sysfs, "text", played)
    found, children = gate.ask({"kernel": spins}, 0.3)
    assert gate.opinion(found).code == gate.UNKNOWN
    assert "too busy" in gate.opinion(found).line
    assert not [child for child in children if child.left(time.monotonic() + 5)]


def test_a_single_file_runs_with_nothing_else(tmp_path: Path) -> None:
    left_out = ("fabtui_node.ranks",)
    modules = {name: text for name, text in node_modules().items() if not name.startswith(left_out)}
    path = tmp_path / "gate.pyz"
    path.write_bytes(archive(modules))
    argv = [sys.executable, "-IS", str(path)]
    printed = subprocess.run([*argv, "--json"], capture_output=True, text=True, cwd=tmp_path, timeout=60, check=False)
    assert printed.returncode in (gate.FREE, gate.DRAIN), printed.stdout + printed.stderr
    value = json.loads(printed.stdout)
    assert value["kind"] == gate.KIND
    assert value["missing"] == value["left_behind"] == []
    good = tmp_path / "good.json"
    good.write_text(json.dumps({**value, "facts": {**value["facts"], "cpus": 4096}}))
    worse = subprocess.run([*argv, "--baseline", str(good)], capture_output=True, text=True, timeout=60, check=False)
    assert worse.returncode == gate.DRAIN
    assert "CPUs: " in worse.stdout
    assert "4096 in the baseline" in worse.stdout
    for words in (["--baseline", str(tmp_path)], ["--nonsense"]):
        wrong = subprocess.run([*argv, *words], capture_output=True, text=True, timeout=60, check=False)
        assert (wrong.returncode, wrong.stdout) == (gate.USAGE, "")
        assert wrong.stderr.count("\n") == 1


def test_every_check_is_a_probe_of_its_module() -> None:
    for check in gate.CHECKS:
        assert isinstance(check, Check)
        assert gate.inspect(check, {}, 3.0).problem == ""


def test_links_below_their_best_and_gpus_below_their_peers_are_named() -> None:
    gpus = [
        {"index": at, "h2d": 55e9, "d2h": 54e9, "own": 4.1e12, "product": 6e14, "link": 504.1, "link_most": 504.1}
        for at in range(8)
    ]
    assert hostlink.judge(hostlink.summary(gpus)) == []
    gpus[2] |= {"h2d": 27e9, "d2h": 27e9, "link": 252.0}
    gpus[5] |= {"product": 4e14}
    gpus[6] |= {"wrong": 3}
    texts = [one["text"] for one in hostlink.judge(hostlink.summary(gpus))]
    assert any(text.startswith("GPU 2: its PCIe link passes 32 of 63 GB/s under load") for text in texts)
    assert any(text.startswith("GPU 5: the product of matrices at 400.0 TFLOP/s") for text in texts)
    assert any(text.startswith("GPU 6: 3 values") for text in texts)
    assert not any("GPU 0" in text for text in texts)
    assert nvlink.judge({"gpus": []}) == []
