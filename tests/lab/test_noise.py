"""A healthy network on busy cores: no pair flaps, nothing is to be drained, nothing is bad."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fabtui.lab.network import Network, missing
from tests.lab.field import network_in, run

pytestmark = [
    pytest.mark.skipif(missing() is not None, reason=f"no network: {missing()}"),
    pytest.mark.slow,
    pytest.mark.planted,
]

#: Number of runs, for example ``FABTUI_NOISE_RUNS=20``.
RUNS = int(os.environ.get("FABTUI_NOISE_RUNS", "1"))


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    """A network while every core is kept busy, at a lower priority."""
    words = ["nice", "-n", "19", sys.executable, "-c", "while True: pass"]
    started = [subprocess.Popen(words) for _ in range(os.cpu_count() or 1)]
    with network_in(tmp_path_factory.mktemp("noise"), 4, 2) as network:
        yield network
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.parametrize("number", range(RUNS))
def test_busy_cores_are_no_fault_of_the_fabric(network: Network, tmp_path: Path, number: int) -> None:
    found = run(network, tmp_path, "--ranks-per-node", "2", "--bytes", "1M", "--iters", "5", "--sizes", "64K")
    assert found.code == 0, found.printed
    assert {one["id"] for one in found.saved["findings"]} <= {"FT029"}, found.printed
    assert not any(one["severity"] == "bad" for one in found.saved["findings"])
    assert "flaps" not in found.printed
    assert "to drain" not in found.printed
