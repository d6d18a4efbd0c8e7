"""A session that watches while two bursts of random faults come and go.

By hand, eight nodes for half an hour: ``python bench/soak.py --seconds 1800``.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from fabtui.lab.network import missing

pytestmark = pytest.mark.skipif(missing() is not None, reason=f"no network: {missing()}")

SOAK = Path(__file__).parents[2] / "bench" / "soak.py"


@pytest.mark.timeout(900)
def test_faults_that_come_and_go_leave_nothing_behind() -> None:
    argv = [sys.executable, str(SOAK), "--bursts", "2", "--nodes", "4", "--seed", "1"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=880, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.rstrip().endswith("0 wrong"), done.stdout
