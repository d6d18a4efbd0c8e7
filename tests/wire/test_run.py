"""`fabtui run` as a user runs it, over the lab: real SSH, real supervisors, real gloo."""

from __future__ import annotations

import csv
import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fabtui.model.recording import read_events
from fabtui.model.session_model import Model
from tests.labrun import check_healthy

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
    pytest.mark.timeout(240),
]

Rows = list[dict[str, str]]

#: Fewer and smaller messages than usual, which take a fifth of the time; 64 KiB would be too few to compare.
LIGHT = ("--bytes", "1M", "--iters", "5")


def _command(folder: Path, *args: str) -> list[str]:
    files = ("--csv", str(folder / "s.csv"), "--record", str(folder / "r"))
    return [sys.executable, "-m", "fabtui", "run", *files, *LIGHT, *args]


def _run(folder: Path, *args: str) -> tuple[subprocess.CompletedProcess[str], Rows]:
    done = subprocess.run(_command(folder, *args), capture_output=True, text=True, timeout=200, check=False)
    with (folder / "s.csv").open(newline="") as file:
        return done, list(csv.DictReader(file))


def _of(rows: Rows, layer: str) -> dict[tuple[str, str], dict[str, str]]:
    return {(row["src"], row["dst"]): row for row in rows if row["layer"] == layer}


def test_a_healthy_lab(tmp_path: Path) -> None:
    # Nothing waits for this deadline; ranks on a busy machine may need more than the usual one.
    done, rows = _run(tmp_path, "--lab", "2x4", "--timeout", "60", "--sizes", "64K,1M")
    check_healthy(done.returncode, rows, done.stderr + done.stdout)
    p2p = _of(rows, "p2p")
    assert len(p2p) == 56
    assert all(float(row["value"]) > 0 and row["unit"] == "GB/s" for row in p2p.values())
    busbw = [row for row in rows if row["layer"] == "busbw"]
    assert {(row["src"], row["dst"]) for row in busbw} == {
        ("n000", "n000"),
        ("n001", "n001"),
        ("n000", "n001"),
    }
    assert all(0.001 < float(row["value"]) < 1000 for row in busbw)
    ping = _of(rows, "ping")
    assert set(ping) == {("n000", "n001"), ("n001", "n000")}


def test_each_fault_of_a_pair_is_one_bad_row(tmp_path: Path) -> None:
    faults = ("n000:1>n001:2=drop", "n000:0>n001:0=refuse", "n001:1>n000:2=slow:5MB")
    words = [word for fault in faults for word in ("--lab-fault", fault)]
    done, rows = _run(tmp_path, "--lab", "2x3", *words, "--timeout", "8")
    assert done.returncode == 1, done.stderr + done.stdout
    p2p = _of(rows, "p2p")
    assert len(p2p) == 30
    bad = [row for row in rows if row["verdict"] not in ("ok", "slow")]
    assert sorted((row["layer"], row["src"], row["dst"], row["verdict"]) for row in bad) == [
        ("p2p", "n000:0", "n001:0", "failed"),
        ("p2p", "n000:1", "n001:2", "timeout"),
    ]
    dropped, refused, slow = p2p["n000:1", "n001:2"], p2p["n000:0", "n001:0"], p2p["n001:1", "n000:2"]
    assert "drop" in dropped["error"]
    assert "n000:1" in dropped["error"]
    assert dropped["value"] == ""
    assert "refused" in refused["error"].lower()
    assert slow["verdict"] == "slow"
    assert float(slow["value"]) == pytest.approx(0.005, rel=0.5)


def test_nodes_with_different_numbers_of_endpoints(tmp_path: Path) -> None:
    done, rows = _run(tmp_path, "--lab", "2,3")
    check_healthy(done.returncode, rows, done.stderr + done.stdout)
    assert len(_of(rows, "p2p")) == 20


def test_one_node_alone(tmp_path: Path) -> None:
    done, rows = _run(tmp_path, "--lab", "1x2")
    check_healthy(done.returncode, rows, done.stderr + done.stdout)
    assert len(_of(rows, "p2p")) == 2
    assert Counter(row["layer"] for row in rows)["ping"] == 0


def test_a_node_that_is_down_and_one_that_dies_are_reported(tmp_path: Path) -> None:
    faults = ["--lab-fault", "n001=down", "--lab-fault", "n002=dead-after:4"]
    done, rows = _run(tmp_path, "--lab", "3x2", *faults, "--timeout", "4")
    assert done.returncode in (1, 3), done.stderr + done.stdout
    p2p = _of(rows, "p2p")
    assert {p2p["n000:0", "n000:1"]["verdict"], p2p["n000:1", "n000:0"]["verdict"]} <= {"ok", "slow"}
    assert "n001" in done.stdout
    model = _replayed(tmp_path / "r")
    assert model.nodes["n001"].state == "failed"
    assert model.nodes["n002"].state == "lost"


def test_experiments_about_findings_are_evidence_live_and_in_a_replay(tmp_path: Path) -> None:
    fault = ("--lab-fault", "n000:1>n001:0=drop")
    done, rows = _run(tmp_path, "--lab", "2x3", *fault, "--timeout", "4", "--probes", "p2p", "--confirm")
    assert done.returncode == 1, done.stderr + done.stdout
    assert {row["layer"] for row in rows} == {"world", "p2p", "latency"}, "experiments are not part of the grid"
    assert len(_of(rows, "p2p")) == 30
    assert "confirmed: n000:1 > n001:0 fails alone, so other traffic is not the reason" in done.stdout
    assert "with other partners, so the endpoints work, and the path does not" in done.stdout
    assert "not tried: NCCL_NET=Socket needs ranks of NCCL; these are CPU ranks" in done.stdout
    assert "94 % confidence after 2 experiments" in done.stdout
    argv = [sys.executable, "-m", "fabtui", "replay", "--text", str(tmp_path / "r")]
    again = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    # What was written stands before the last line, which is the first one once more.
    texts = [one.stdout.partition("findings:")[2].splitlines() for one in (again, done)]
    assert texts[0] == [line for line in texts[1] if not line.startswith(("wrote ", "recorded in "))]


def _replayed(path: Path) -> Model:
    model = Model()
    for event in read_events(path):
        model.apply(event)
    return model


def _ours(token: str) -> list[str]:
    """Return the processes whose environment holds a token."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if token.encode() in (entry / "environ").read_bytes():
                found.append(f"{entry.name} {(entry / 'cmdline').read_bytes()!r:.2000}")
        except OSError:
            continue
    return found


def _pairs(path: Path) -> int:
    """Return the number of pairs that a recording has so far."""
    events = (event for event in _events(path) if event["kind"] == "measured")
    return sum(m["layer"] == "p2p" for event in events for m in event["measurements"])


def _events(path: Path) -> list[dict[str, Any]]:
    try:
        return [event.to_json() for event in read_events(path)]
    except Exception:
        return []


def test_kill_9_in_mid_sweep_leaves_nothing_and_a_recording(tmp_path: Path) -> None:
    token = f"FABTUI_TEST_TOKEN={tmp_path.name}-{os.getpid()}"
    name, _, value = token.partition("=")
    args = _command(tmp_path, "--lab", "2x3", "--lab-fault", "n000:1>n001:2=drop", "--timeout", "30", "--probes", "p2p")
    args += ["--env", "NCCL_CANARY=canary"]
    controller = subprocess.Popen(
        args, env={**os.environ, name: value}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        until = time.monotonic() + 90
        while _pairs(tmp_path / "r") < 10:
            assert controller.poll() is None, "it ended before it was killed"
            assert time.monotonic() < until, "no measurement came"
            time.sleep(0.1)
        assert len(_ours(token)) >= 5, "controller, lab, and on each node a supervisor with its processes"
        others = [line for line in _ours(token) if not line.startswith(f"{controller.pid} ")]
        assert not [line for line in others if "canary" in line], "values of --env are in a list of processes"
    finally:
        controller.send_signal(signal.SIGKILL)
        controller.wait()
    until = time.monotonic() + 15
    while (left := _ours(token)) and time.monotonic() < until:
        time.sleep(0.1)
    assert not left
    model = _replayed(tmp_path / "r")
    assert model.phase.name == "p2p"
    assert _pairs(tmp_path / "r") >= 10


def test_ctrl_c_leaves_a_valid_snapshot(tmp_path: Path) -> None:
    token = f"FABTUI_TEST_TOKEN={tmp_path.name}-{os.getpid()}"
    name, _, value = token.partition("=")
    args = _command(tmp_path, "--lab", "1x2", "--lab-fault", "n000:0>n000:1=drop", "--timeout", "60")
    controller = subprocess.Popen(
        args, env={**os.environ, name: value}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    until = time.monotonic() + 90
    while not any(e["kind"] == "running" for e in _events(tmp_path / "r")):
        assert controller.poll() is None
        assert time.monotonic() < until
        time.sleep(0.1)
    controller.send_signal(signal.SIGINT)
    out, err = controller.communicate(timeout=30)
    assert controller.returncode == 130, out + err
    assert "Traceback" not in out + err
    with (tmp_path / "s.csv").open(newline="") as file:
        assert csv.DictReader(file).fieldnames is not None
    until = time.monotonic() + 15
    while (left := _ours(token)) and time.monotonic() < until:
        time.sleep(0.1)
    assert not left
