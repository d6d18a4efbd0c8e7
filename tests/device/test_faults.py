"""Faults of every kind over a lab of two nodes with NCCL: each affects its own cells only."""

import re
from collections.abc import Callable

import pytest

from tests.labrun import Pair, Run, check_cells, run_lab

TIMEOUT = 10.0
REASONS = {
    "absent": r"n000:0 did not come within",
    "corrupt": r"verify: ",
    "kill": r"the rank host of n000 ended with signal 9",
    "stop": r"the rank host of n001 is frozen: no answer",
    "interface": r"no socket interface found|nosuch",
}
Lab = Callable[..., Run]
Expected = dict[Pair, tuple[str, str]]


@pytest.fixture(scope="module")
def each(gpus: list[str]) -> int:
    return len(gpus) // 2


@pytest.fixture(scope="module")
def lab(each: int, tmp_path_factory: pytest.TempPathFactory) -> Lab:
    def run(*faults: str) -> Run:
        args = ("--probes", "p2p", "--bytes", "16M", "--timeout", str(TIMEOUT))
        return run_lab(tmp_path_factory.mktemp("lab"), f"2x{each}", *args, faults=faults)

    return run


@pytest.fixture(scope="module")
def healthy(lab: Lab) -> Run:
    """A run without a fault, for its time."""
    run = lab()
    print(f"\nhealthy: {run.seconds:.1f} s")
    assert run.code == 0, run.story()
    assert not run.bad(), run.story()
    return run


def _check(run: Run, healthy: Run, expected: Expected, *, deadlines: int = 1) -> None:
    more = run.seconds - healthy.seconds
    print(f"\n{run.seconds:.1f} s, {more:.1f} s more than healthy; deadline {TIMEOUT:.0f} s")
    for pair, (verdict, error) in run.bad().items():
        print(f"  {pair[0]} > {pair[1]}: {verdict}: {error}")
    for line in run.story().splitlines():
        if re.search(r"phase |rank host of|tested again", line) and " > " not in line:
            print(f"  {line.strip()}")
    check_cells(run, expected, REASONS, len(healthy.layer("p2p")))
    # A healthy run more, and a little: ranks that are restarted make their CUDA contexts again. What is to be had is
    # one deadline more; how it is spent is in the lines above.
    assert more <= healthy.seconds + deadlines * TIMEOUT + 5.0, run.story()


def test_pairs_that_never_join_and_wrong_data(lab: Lab, healthy: Run, each: int) -> None:
    expected: Expected
    if each == 1:
        run = lab("n000:0>n001:0=absent")
        expected = {("n000:0", "n001:0"): ("timeout", "absent"), ("n001:0", "n000:0"): ("timeout", "absent")}
        _check(run, healthy, expected)
        run = lab("n000:0>n001:0=corrupt")
        expected = {("n000:0", "n001:0"): ("wrong", "corrupt")}
    else:
        # One pair over the network, and one within a node.
        run = lab("n000:0>n001:0=absent", "n000:1>n001:1=corrupt", "n001:0>n001:1=corrupt")
        expected = {("n000:0", "n001:0"): ("timeout", "absent"), ("n001:0", "n000:0"): ("timeout", "absent")}
        expected |= {("n000:1", "n001:1"): ("wrong", "corrupt"), ("n001:0", "n001:1"): ("wrong", "corrupt")}
    assert run.code == 1
    _check(run, healthy, expected)
    assert not run.bad("world"), run.story()


def test_a_rank_killed_in_mid_transfer(lab: Lab, healthy: Run) -> None:
    run = lab("n000:0>n001:0=kill")
    assert run.code == 1
    _check(run, healthy, {("n000:0", "n001:0"): ("failed", "kill")})
    assert not run.bad("world"), run.story()


def test_a_stopped_rank_host(lab: Lab, healthy: Run) -> None:
    run = lab("n001:0>n000:0=stop")
    assert run.code == 1
    _check(run, healthy, {("n001:0", "n000:0"): ("timeout", "stop")})
    assert not run.bad("world"), run.story()


def test_both_at_once(lab: Lab, healthy: Run, each: int) -> None:
    if each == 1:
        pytest.skip("needs four NVIDIA GPUs: two pairs that share none")
    run = lab("n000:0>n001:0=kill", "n001:1>n000:1=stop")
    assert run.code == 1
    expected = {("n000:0", "n001:0"): ("failed", "kill"), ("n001:1", "n000:1"): ("timeout", "stop")}
    _check(run, healthy, expected)


def test_a_node_whose_nccl_has_a_wrong_interface(lab: Lab, healthy: Run) -> None:
    run = lab("n001=env:NCCL_SOCKET_IFNAME=nosuch")
    assert run.code == 1
    concerned = [pair for pair in healthy.layer("p2p") if "n001" in pair[0] + pair[1]]
    _check(run, healthy, dict.fromkeys(concerned, ("failed", "interface")))
    world = run.bad("world")
    assert set(world) <= set(concerned), run.story()
    assert all(verdict == "failed" for verdict, _ in world.values()), run.story()
