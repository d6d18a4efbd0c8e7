"""Probe `evidence`: reports since the job started, and the GPU that they mean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fabtui_node.probes import kernel_log
from fabtui_node.probes.job import evidence

from .places import Tree
from .test_ras_client import process

LOG = """\
[  100.000000] NVRM: Xid (PCI:0000:9a:00): 31, pid=7, name=python, old
[ 5000.000000] NVRM: Xid (PCI:0000:9a:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
[ 5001.000000] mlx5_core 0000:5e:00.0 ens3: Link down
[ 5002.000000] pcieport 0000:00:01.0: AER: Corrected error received: 0000:18:00.0
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    log = kernel_log._Log("dmesg", LOG, True)
    monkeypatch.setattr(kernel_log, "read_log", lambda *_: log)
    monkeypatch.setattr(evidence, "_WINDOW", 0.0)
    tree = Tree(tmp_path)
    for bus in ("0000:18:00.0", "0000:9a:00.0"):
        tree.files(f"sys/bus/pci/devices/{bus}", vendor="0x10de", **{"class": "0x030200"})
    tree.files("proc", uptime="6000.00 1.0")
    return {"proc": str(tmp_path / "proc"), "sys": str(tmp_path / "sys")}


def start(root: Path, pid: int, started: int) -> None:
    path = root / "proc" / str(pid) / "stat"
    path.write_text(path.read_text().strip() + " 0" * 13 + f" {started} 0\n")


def test_reports_since_the_job_started(place: dict[str, Any], tmp_path: Path) -> None:
    process(tmp_path / "proc", 40, 1, RANK="3")
    start(tmp_path, 40, 450_000)
    value = evidence.run({}, lambda _: None, 10.0, **place)
    assert value["since"] == pytest.approx(1500.0)
    assert [(one["kind"], one["code"], one["gpu"], one["interface"]) for one in value["events"]] == [
        ("xid", 79, 1, None),
        ("link_down", None, None, "ens3"),
    ]
    assert len(value["events"][0]["at"]) == 5


def test_a_node_without_the_job(place: dict[str, Any]) -> None:
    value = evidence.run({}, lambda _: None, 10.0, **place)
    assert value["since"] == 86400.0
    assert value["log"] == "yes"
    assert [one["code"] for one in value["events"]] == [31, 79, None]
