"""Each GPU alone, a soak and the gate on a real GPU; see README.md for how to run them."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fabtui.lab.server import visible_gpus

pytestmark = pytest.mark.skipif(not visible_gpus(), reason="needs an NVIDIA GPU")

RUN = (sys.executable, "-m", "fabtui", "run", "--transport", "local", "--no-record", "--quiet")
#: Reference for copies: nvbandwidth's method, copies of 512 MiB from and to pinned memory.
REFERENCE = """
import time, torch
size, rates = 512 << 20, {}
host = torch.empty(size, dtype=torch.uint8).pin_memory()
device = torch.empty(size, dtype=torch.uint8, device="cuda")
for name, to, source in (("h2d", device, host), ("d2h", host, device)):
    best = 0.0
    for _ in range(16):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record(); to.copy_(source, non_blocking=True); end.record(); torch.cuda.synchronize()
        best = max(best, size / begin.elapsed_time(end) / 1e6)
    rates[name] = best
print(rates["h2d"], rates["d2h"])
"""


def measured(tmp_path: Path, *more: str) -> dict[str, Any]:
    path = tmp_path / "session.json"
    subprocess.run([*RUN, *more, "--json", str(path)], check=False, timeout=900)
    value: dict[str, Any] = json.loads(path.read_text())
    return value


def test_copies_are_within_three_per_cent_of_the_reference(tmp_path: Path) -> None:
    printed = subprocess.run([sys.executable, "-c", REFERENCE], capture_output=True, text=True, check=True).stdout
    reference = dict(zip(("h2d", "d2h"), map(float, printed.split()), strict=True))
    value = measured(tmp_path, "--probes", "hostlink")["nodes"][0]["looks"]["hostlink"]
    first = value["gpus"][0]
    print(json.dumps(value))
    assert not first.get("error")
    assert "no_product" not in first, first["no_product"]
    assert first["product"] > 1e14
    assert first["wrong"] == 0
    for name, rate in reference.items():
        assert first[name] / 1e9 == pytest.approx(rate, rel=0.03), (name, value, reference)


def test_a_soak_without_an_alarm(tmp_path: Path) -> None:
    seconds = os.environ.get("FABTUI_SOAK", "600")
    node = measured(tmp_path, "--probes", "all,hostlink", "--soak", seconds)["nodes"][0]
    assert node["looks"]["soak"]["bad"] == 0
    assert node["looks"]["soak"]["slower"] == []


def test_three_hundred_gates_drain_nothing(tmp_path: Path) -> None:
    """At most 2 s wall and 0.5 s of processor time each, on an idle node."""
    gate = tmp_path / "gate.pyz"
    subprocess.run([sys.executable, "-m", "fabtui", "gate", "--build", str(gate)], check=True)
    good = subprocess.run([sys.executable, "-IS", str(gate), "--json"], capture_output=True, text=True, check=True)
    (tmp_path / "good.json").write_text(good.stdout)
    argv = [sys.executable, "-IS", str(gate), "--json", "--baseline", str(tmp_path / "good.json")]
    runs = [json.loads(subprocess.run(argv, capture_output=True, text=True, check=False).stdout) for _ in range(300)]
    assert [run["reason"] for run in runs if run["exit"]] == []
    print("seconds", max(run["seconds"] for run in runs), "cpu", max(run["cpu"] for run in runs))
    assert sorted(run["seconds"] for run in runs)[285] < 2
    assert sorted(run["cpu"] for run in runs)[285] < 0.5


def test_a_driver_that_never_answers_ends_within_ten_seconds(tmp_path: Path) -> None:
    """A library in the place of NVML, whose loading never ends."""
    if shutil.which("gcc") is None:
        pytest.skip("no gcc")
    source = "#include <unistd.h>\n__attribute__((constructor)) static void hang(void) { for (;;) pause(); }\n"
    (tmp_path / "hang.c").write_text(source)
    subprocess.run(["gcc", "-shared", "-o", "libnvidia-ml.so.1", "hang.c"], cwd=tmp_path, check=True)
    environ = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    argv = [sys.executable, "-m", "fabtui", "gate"]
    done = subprocess.run(argv, capture_output=True, text=True, env=environ, timeout=12, check=False)
    assert done.returncode == 1
    assert re.search(r"gpus does not answer", done.stdout), done.stdout
