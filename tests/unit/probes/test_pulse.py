"""Probe `pulse`: traffic of all kinds of links in bytes, and bytes of files of the ranks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from fabtui_node.probes import counters
from fabtui_node.probes.job import pulse

from .places import Tree
from .test_ras_client import process


def test_traffic() -> None:
    value = {
        "hca": {"mlx5_0/1": {"port_rcv_data": 10, "port_xmit_data": 5, "symbol_error": 7}},
        "net": {"eth0": {"rx_bytes": 100, "tx_bytes": 200, "rx_errors": 9}},
        "nvlink": {"GPU-1": {"all": {"tx_bytes": 1000, "rx_bytes": 2000}, "0": {"replay": 3}}},
    }
    assert pulse.traffic(value) == 15 * 4 + 300 + 3000
    assert pulse.traffic({"hca": {}, "net": {}, "nvlink": {}}) is None


def test_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, Any] = {"hca": {}, "net": {}, "nvlink": {}}
    monkeypatch.setattr(counters, "run", lambda *_: found)
    assert pulse.run({}, lambda _: None, 1.0, proc=str(tmp_path)) == {
        "traffic": None,
        "files": None,
        "age": None,
        "ranks": 0,
        "states": {},
    }
    for pid, state in ((10, "D"), (11, "T")):
        process(tmp_path, pid, 1, state, RANK=str(pid))
        (tmp_path / str(pid) / "io").write_text(f"rchar: {pid}\nwchar: 100\nsyscr: 5\n")
    Tree(tmp_path).files(".", uptime="500.0 1.0")
    value = pulse.run({}, lambda _: None, 1.0, proc=str(tmp_path))
    assert (value["files"], value["ranks"], value["states"]) == (221, 2, {"D": 1, "T": 1})


def test_this_process() -> None:
    before = pulse.file_bytes(os.getpid())
    assert before is not None
    Path("/proc/self/status").read_text()
    assert (pulse.file_bytes(os.getpid()) or 0) > before
    assert pulse.file_bytes(0) is None
