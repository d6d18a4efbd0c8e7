"""A healthy network on busy cores: no pair flaps, nothing is to be drained, nothing is bad."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fabtui.lab.namespaces.holder import missing
from tests.lab.field import network_in, run

pytestmark = [
    pytest.mark.skipif(missing() is not None, reason=f"no network: {missing()}"),
    pytest.mark.slow,
]

#: Number of runs, for example ``FABTUI_NOISE_RUNS=20``.
RUNS = int(os.environ.get("FABTUI_NOISE_RUNS", "3"))


@pytest.fixture
def burners() -> Iterator[None]:
    """Keep every core busy, at a lower priority."""
    words = ["nice", "-n", "19", sys.executable, "-c", "while True: pass"]
    started = [subprocess.Popen(words) for _ in range(os.cpu_count() or 1)]
    yield
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.usefixtures("burners")
def test_busy_cores_are_no_fault_of_the_fabric(tmp_path: Path) -> None:
    with network_in(tmp_path, 4, 2) as network:
        for _ in range(RUNS):
            found = run(network, tmp_path, "--ranks-per-node", "2", "--bytes", "1M", "--iters", "5", "--sizes", "64K")
            assert found.code == 0, found.printed
            rules = {one["id"] for one in found.saved["findings"]}
            assert rules <= {"FT029"}, found.printed
            assert not any(one["severity"] == "bad" for one in found.saved["findings"])
            assert "flaps" not in found.printed
            assert "to drain" not in found.printed
