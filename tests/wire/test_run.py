"""`fabtui run` as a user runs it, over the lab: real SSH, real supervisors, real gloo."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fabtui.model.recording import read_events
from tests.conftest import needs_torch, replayed
from tests.forked import fabtui
from tests.labrun import Pair, Run, check_cells, check_healthy, run_lab

pytestmark = [needs_torch, pytest.mark.timeout(240)]

Rows = list[dict[str, str]]

#: Fewer and smaller messages than usual, which take a fifth of the time; 64 KiB would be too few to compare.
LIGHT = ("--bytes", "1M", "--iters", "5")


def _outputs(folder: Path) -> list[str]:
    return ["--csv", str(folder / "s.csv"), "--record", str(folder / "r")]


def _command(folder: Path, *args: str) -> list[str]:
    return [sys.executable, "-m", "fabtui", "run", *_outputs(folder), *LIGHT, *args]


def _run(folder: Path, *args: str) -> tuple[subprocess.CompletedProcess[str], Rows]:
    done = fabtui("run", *_outputs(folder), *LIGHT, *args, timeout=200)
    with (folder / "s.csv").open(newline="") as file:
        return done, list(csv.DictReader(file))


def _of(rows: Rows, layer: str) -> dict[tuple[str, str], dict[str, str]]:
    return {(row["src"], row["dst"]): row for row in rows if row["layer"] == layer}


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run without a fault, over nodes with different numbers of endpoints."""
    # Nothing waits for this deadline; ranks on a busy machine may need more than the usual one.
    run = run_lab(tmp_path_factory.mktemp("healthy"), "2,3", "--timeout", "60", *LIGHT, "--sizes", "64K,1M")
    check_healthy(run.code, run.rows, run.story())
    return run


def test_a_healthy_lab(healthy: Run) -> None:
    p2p = healthy.layer("p2p")
    assert len(p2p) == 20
    assert all(float(row["value"]) > 0 and row["unit"] == "GB/s" for row in p2p.values())
    busbw = [row for row in healthy.rows if row["layer"] == "busbw"]
    assert {(row["src"], row["dst"]) for row in busbw} == {("n000", "n000"), ("n001", "n001"), ("n000", "n001")}
    assert all(0.001 < float(row["value"]) < 1000 for row in busbw)
    assert set(healthy.layer("ping")) == {("n000", "n001"), ("n001", "n000")}


#: Deadline (s) of a test in labs with faults.
TIMEOUT = 10.0
#: An address that is reserved for documentation: no machine has it.
NO_ADDRESS = "192.0.2.1"
REASONS = {
    "drop": r"n000:2.*drop|drop.*n000:2",
    "refuse": r"[Rr]efused",
    "absent": r"n000:1 did not come within",
    "corrupt": r"verify: .*(wrong|differ)",
    "kill": r"the rank host of n000 ended with signal 9",
    "stop": r"the rank host of n001 is frozen: no answer",
    "address": rf"cannot listen on {re.escape(NO_ADDRESS)}",
}


def _run_faults(folder: Path, shape: str, *args: str, faults: Sequence[str]) -> Run:
    return run_lab(folder, shape, "--timeout", str(TIMEOUT), *LIGHT, *args, faults=faults)


def _check(run: Run, healthy: Run, expected: dict[Pair, tuple[str, str]], pairs: int) -> None:
    """See that faults spoil their own cells and nothing else, each in its time."""
    kinds = sorted({kind for _, kind in expected.values()})
    print(f"\n{kinds}: {run.seconds:.1f} s, healthy {healthy.seconds:.1f} s, deadline {TIMEOUT:.0f} s")
    check_cells(run, expected, REASONS, pairs, unsteady=["slow"])
    assert not [row for row in run.rows if row["layer"] != "p2p" and row["verdict"] not in ("ok", "slow")], run.story()
    # A healthy run more for starting ranks again (which imports torch again), and one for a machine that was idle then.
    # Three pairs whose deadlines follow each other, twice each, would take six of them.
    assert run.seconds <= 3 * healthy.seconds + TIMEOUT + 10.0, run.story()


def test_each_fault_of_a_pair_is_one_bad_row(tmp_path: Path, healthy: Run) -> None:
    faults = ["n000:1>n001:2=absent", "n000:0>n001:1=corrupt", "n000:2>n001:0=drop"]
    run = _run_faults(tmp_path, "2x3", faults=[*faults, "n000:0>n001:0=refuse", "n001:1>n000:2=slow:5MB"])
    assert run.code == 1, run.story()
    expected = {
        ("n000:1", "n001:2"): ("timeout", "absent"),
        ("n001:2", "n000:1"): ("timeout", "absent"),
        ("n000:0", "n001:1"): ("wrong", "corrupt"),
        ("n000:2", "n001:0"): ("timeout", "drop"),
        ("n000:0", "n001:0"): ("failed", "refuse"),
    }
    _check(run, healthy, expected, 30)
    p2p = run.layer("p2p")
    assert p2p["n000:2", "n001:0"]["value"] == ""
    slow = p2p["n001:1", "n000:2"]
    assert slow["verdict"] == "slow"
    assert float(slow["value"]) == pytest.approx(0.005, rel=0.5)


def test_rank_hosts_that_are_killed_or_stopped_in_mid_transfer(tmp_path: Path, healthy: Run) -> None:
    faults = ["n000:1>n001:2=kill", "n001:0>n000:0=stop"]
    run = _run_faults(tmp_path, "2x3", "--probes", "p2p", faults=faults)
    assert run.code == 1, run.story()
    expected = {("n000:1", "n001:2"): ("failed", "kill"), ("n001:0", "n000:0"): ("timeout", "stop")}
    _check(run, healthy, expected, 30)


def test_a_node_with_an_address_that_it_does_not_have(tmp_path: Path, healthy: Run) -> None:
    run = _run_faults(tmp_path, "2,1", "--probes", "p2p", faults=[f"n001=env:FABTUI_LAB_ADDRESS={NO_ADDRESS}"])
    assert run.code == 3, run.story()
    concerned = [pair for pair in run.layer("p2p") if "n001:0" in pair]
    assert len(concerned) == 4
    _check(run, healthy, dict.fromkeys(concerned, ("untested", "address")), 6)
    assert len(run.layer("world")) == 2, "it forms without the ranks that cannot be used"


def test_a_node_that_is_down_and_one_that_dies_are_reported(tmp_path: Path) -> None:
    # A busy machine needs seconds until the node is ready. A pair that waits keeps the session until the node dies.
    faults = ["--lab-fault", "n001=down", "--lab-fault", "n002=dead-after:12", "--lab-fault", "n000:1>n002:1=drop"]
    done, rows = _run(tmp_path, "--lab", "3x2", *faults, "--timeout", "25")
    assert done.returncode in (1, 3), done.stderr + done.stdout
    p2p = _of(rows, "p2p")
    assert {p2p["n000:0", "n000:1"]["verdict"], p2p["n000:1", "n000:0"]["verdict"]} <= {"ok", "slow"}
    assert "n001" in done.stdout
    model = replayed(tmp_path / "r")
    assert model.nodes["n001"].state == "failed"
    assert model.nodes["n002"].state == "lost"


def test_experiments_about_findings_are_evidence_live_and_in_a_replay(tmp_path: Path) -> None:
    fault = ("--lab-fault", "n000:1>n001:0=drop")
    done, rows = _run(tmp_path, "--lab", "2x2", *fault, "--timeout", "4", "--probes", "p2p", "--confirm")
    assert done.returncode == 1, done.stderr + done.stdout
    assert {row["layer"] for row in rows} == {"world", "p2p", "latency"}, "experiments are not part of the grid"
    assert len(_of(rows, "p2p")) == 12
    assert "confirmed: n000:1 > n001:0 fails alone, so other traffic is not the reason" in done.stdout
    assert "with other partners, so the endpoints work, and the path does not" in done.stdout
    assert "not tried: NCCL_NET=Socket needs ranks of NCCL; these are CPU ranks" in done.stdout
    assert "94 % confidence after 2 experiments" in done.stdout
    again = fabtui("replay", "--text", str(tmp_path / "r"))
    # What was written comes before the last line, which is the first one once more.
    texts = [one.stdout.partition("findings:")[2].splitlines() for one in (again, done)]
    assert texts[0] == [line for line in texts[1] if not line.startswith(("wrote ", "recorded in "))]


def _ours(token: str) -> list[str]:
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
    model = replayed(tmp_path / "r")
    assert model.phase.name == "p2p"
    assert _pairs(tmp_path / "r") >= 10


def test_a_search_by_halves_runs_groups_side_by_side(tmp_path: Path) -> None:
    record = tmp_path / "r.jsonl.gz"
    # Any value is enough: ranks of a busy machine are slow.
    limits = ("--sizes", "256K", "--iters", "2", "--timeout", "60", "--below", "0.000001")
    done = fabtui("bisect", "--lab", "4x1", *limits, "--json", "-", "--record", str(record), timeout=200)
    found = json.loads(done.stdout)
    assert (done.returncode, found["outcome"], found["units"]) == (0, "nothing", ["n000", "n001", "n002", "n003"])
    assert [len(group["suspects"]) for entry in found["rounds"] for group in entry["groups"]] == [2, 2, 4, 4]
    assert {group["verdict"] for entry in found["rounds"] for group in entry["groups"]} == {"ok"}
    assert (last := replayed(record).bisection.last) is not None
    assert last.outcome == "nothing"
