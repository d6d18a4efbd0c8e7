"""Faults of every kind over the lab, with real ranks (gloo): each spoils its own cells and nothing else."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from tests.labrun import Pair, Run, check_cells, check_healthy, run_lab

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
    pytest.mark.timeout(300),
]

TIMEOUT = 10.0
#: One direction of one pair across the nodes.
SRC, DST = "n000:1", "n001:2"
#: Ordered pairs of two nodes of three ranks.
PAIRS = 30
#: An address that is reserved for documentation: no machine has it.
NO_ADDRESS = "192.0.2.1"
REASONS = {
    "absent": r"n000:1 did not come within",
    "corrupt": r"verify: .*(wrong|differ)",
    "kill": r"the rank host of n000 ended with signal 9",
    "stop": r"the rank host of n000 is frozen: no answer",
    "address": rf"cannot listen on {re.escape(NO_ADDRESS)}",
}


def _run(folder: Path, *faults: str, timeout: float = TIMEOUT) -> Run:
    light = ("--bytes", "64K", "--iters", "3", "--warmup", "1")
    return run_lab(folder, "2x3", "--probes", "p2p", "--timeout", str(timeout), *light, faults=faults)


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run without a fault, for its time."""
    # Nothing waits for this deadline; ranks on a busy machine may need more than the other one.
    run = _run(tmp_path_factory.mktemp("healthy"), timeout=60.0)
    check_healthy(run.code, run.rows, run.story())
    assert len(run.layer("p2p")) == PAIRS, run.story()
    return run


def _check(run: Run, healthy: Run, expected: dict[Pair, tuple[str, str]]) -> None:
    kinds = sorted({kind for _, kind in expected.values()})
    print(f"\n{kinds}: {run.seconds:.1f} s, healthy {healthy.seconds:.1f} s, deadline {TIMEOUT:.0f} s")
    check_cells(run, expected, REASONS, PAIRS, unsteady=["slow"])
    # A healthy run more, and a little, for starting ranks again (which imports torch again) and for a busy machine.
    assert run.seconds <= 2 * healthy.seconds + TIMEOUT + 5.0, run.story()


def broken_in_world(run: Run) -> set[object]:
    """Pairs that fail in the world communicator; busy processors slow some of CPU ranks."""
    return {pair for pair, (verdict, *_) in run.bad("world").items() if verdict != "slow"}


def test_a_pair_that_never_joins_and_corrupt_data(tmp_path: Path, healthy: Run) -> None:
    run = _run(tmp_path, f"{SRC}>{DST}=absent", "n000:0>n001:1=corrupt")
    assert run.code == 1
    absent, corrupt = ("timeout", "absent"), ("wrong", "corrupt")
    _check(run, healthy, {(SRC, DST): absent, (DST, SRC): absent, ("n000:0", "n001:1"): corrupt})
    assert not broken_in_world(run)


@pytest.mark.parametrize(("kind", "verdict"), [("kill", "failed"), ("stop", "timeout")])
def test_a_rank_host_that_is_killed_or_stopped_in_mid_transfer(
    tmp_path: Path, healthy: Run, kind: str, verdict: str
) -> None:
    run = _run(tmp_path, f"{SRC}>{DST}={kind}")
    assert run.code == 1
    _check(run, healthy, {(SRC, DST): (verdict, kind)})
    assert not broken_in_world(run)


def test_a_node_with_an_address_that_it_does_not_have(tmp_path: Path, healthy: Run) -> None:
    run = _run(tmp_path, f"n001=env:FABTUI_LAB_ADDRESS={NO_ADDRESS}")
    assert run.code == 3
    concerned = [pair for pair in healthy.layer("p2p") if "n001" in pair[0] + pair[1]]
    assert len(concerned) == PAIRS - 6
    _check(run, healthy, dict.fromkeys(concerned, ("untested", "address")))
    assert len(run.layer("world")) == 6
    assert not broken_in_world(run), "it forms without the ranks that cannot be used"
