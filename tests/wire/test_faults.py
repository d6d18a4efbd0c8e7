"""What goes wrong spoils its own cells and nothing else: faults of every kind over the lab, with real ranks (gloo)."""

from __future__ import annotations

import csv
import importlib.util
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
    pytest.mark.timeout(300),
]

TIMEOUT = 10.0
#: One direction of one pair across the nodes.
SRC, DST = "n000:1", "n001:2"
#: An address that is reserved for documentation: no machine has it.
NO_ADDRESS = "192.0.2.1"
REASONS = {
    "absent": r"n000:1 did not come within",
    "corrupt": r"verify: .*wrong|verify: .*differ",
    "kill": r"the rank host of n000 ended with signal 9",
    "stop": r"the rank host of n000 is frozen: it answered nothing",
    "address": rf"cannot listen on {re.escape(NO_ADDRESS)}",
}

Pair = tuple[str, str]


class Run(NamedTuple):
    """A run: how long it took, its exit code, what it printed, and its rows by layer and pair."""

    seconds: float
    code: int
    printed: str
    rows: dict[tuple[str, str, str], dict[str, str]]

    def layer(self, name: str) -> dict[Pair, dict[str, str]]:
        return {(src, dst): row for (layer, src, dst), row in self.rows.items() if layer == name}

    def bad(self, layer: str = "p2p") -> dict[Pair, tuple[str, str]]:
        """Return verdict and error of the rows of a layer that are not ok."""
        found = self.layer(layer).items()
        return {pair: (row["verdict"], row["error"]) for pair, row in found if row["verdict"] != "ok"}


def _run(folder: Path, *faults: str) -> Run:
    path = folder / "s.csv"
    argv = [sys.executable, "-m", "fabtui", "run", "--lab", "2x4", "--probes", "p2p", "--timeout", str(TIMEOUT)]
    argv += ["--csv", str(path), "--no-record"]
    for fault in faults:
        argv += ["--lab-fault", fault]
    began = time.monotonic()
    done = subprocess.run(argv, capture_output=True, text=True, timeout=280, check=False)
    seconds = time.monotonic() - began
    with path.open(newline="") as file:
        rows = {(row["layer"], row["src"], row["dst"]): row for row in csv.DictReader(file)}
    return Run(seconds, done.returncode, done.stderr + done.stdout, rows)


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run without a fault, for its time."""
    run = _run(tmp_path_factory.mktemp("healthy"))
    assert run.code == 0, run.printed
    assert len(run.layer("p2p")) == 56
    assert not run.bad()
    return run


def _check(run: Run, healthy: Run, kind: str, verdict: str, cells: set[Pair]) -> None:
    print(f"{kind}: {run.seconds:.1f} s, healthy {healthy.seconds:.1f} s, deadline {TIMEOUT:.0f} s")
    bad = run.bad()
    assert set(bad) == cells, run.printed
    assert len(run.layer("p2p")) == 56
    assert Counter(found for found, _ in bad.values()) == {verdict: len(cells)}
    for pair, (_, error) in bad.items():
        assert [name for name, reason in REASONS.items() if re.search(reason, error)] == [kind], (pair, error)
    assert "Traceback" not in run.printed
    # Half of a healthy run is for starting ranks anew, which imports torch again.
    assert run.seconds <= 1.5 * healthy.seconds + TIMEOUT + 5.0


def test_a_pair_that_never_joins(tmp_path: Path, healthy: Run) -> None:
    run = _run(tmp_path, f"{SRC}>{DST}=absent")
    assert run.code == 1
    _check(run, healthy, "absent", "timeout", {(SRC, DST), (DST, SRC)})
    assert not run.bad("world")


def test_corrupt_data(tmp_path: Path, healthy: Run) -> None:
    run = _run(tmp_path, f"{SRC}>{DST}=corrupt")
    assert run.code == 1
    _check(run, healthy, "corrupt", "failed", {(SRC, DST)})
    assert not run.bad("world")


def test_a_rank_killed_in_mid_transfer(tmp_path: Path, healthy: Run) -> None:
    run = _run(tmp_path, f"{SRC}>{DST}=kill")
    assert run.code == 1
    _check(run, healthy, "kill", "failed", {(SRC, DST)})
    assert not run.bad("world")


def test_a_stopped_rank_host(tmp_path: Path, healthy: Run) -> None:
    run = _run(tmp_path, f"{SRC}>{DST}=stop")
    assert run.code == 1
    _check(run, healthy, "stop", "timeout", {(SRC, DST)})
    assert not run.bad("world")


def test_a_node_with_an_address_that_it_does_not_have(tmp_path: Path, healthy: Run) -> None:
    run = _run(tmp_path, f"n001=env:FABTUI_LAB_ADDRESS={NO_ADDRESS}")
    assert run.code == 3
    concerned = {pair for pair in healthy.layer("p2p") if "n001" in pair[0] + pair[1]}
    assert len(concerned) == 44
    _check(run, healthy, "address", "untested", concerned)
    assert len(run.layer("world")) == 12
    assert not run.bad("world"), "it forms without the ranks that cannot be used"
