"""A preflight over the nodes of a lab: real SSH, real probes, no rank."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from fabtui.cli import main as entry
from tests.forked import fabtui

pytestmark = pytest.mark.slow


def preflight(*argv: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return fabtui("preflight", *argv, env={**os.environ, "COLUMNS": "100", **environment})


def test_the_nodes_of_a_lab_are_probed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = tmp_path / "fabtui/probes"
    own.mkdir(parents=True)
    (own / "color.py").write_text("def run(args, emit, deadline):\n    return {'color': 'blue'}\n")
    (own / "broken.py").write_text("def run(:\n")
    before, record = tmp_path / "before.json", tmp_path / "r.jsonl.gz"
    argv = ["--lab", "2x1", "--json", str(before), "--record", str(record)]
    done = preflight(*argv, XDG_CONFIG_HOME=str(tmp_path))
    assert done.returncode in (0, 1), done.stdout + done.stderr
    assert done.stdout.startswith("preflight: 2 nodes inspected, ")
    assert "  color: color" in done.stdout
    assert "broken.py is left out: line 1: invalid syntax" in done.stderr
    nodes = json.loads(before.read_text())["nodes"]
    assert [node["name"] for node in nodes] == ["n000", "n001"]
    for node in nodes:
        assert node["facts"]["memlock"] is not None
        assert abs(node["facts"]["clock"]) < 5
        assert node["facts"]["boot_id"] == nodes[0]["facts"]["boot_id"]
    again = preflight("--lab", "2x1", "--no-record", "--quiet", "--baseline", str(record))
    assert f"since {record}: no changes\n" in again.stdout, again.stdout + again.stderr
    entry.main(["replay", "--text", str(record)])
    assert capsys.readouterr().out.startswith("preflight: 2 nodes inspected, ")


def test_a_node_that_is_down_is_reported_and_the_others_are_compared() -> None:
    argv = ["--lab", "3x1", "--lab-fault", "n001=down", "--no-record", "--quiet", "--ascii"]
    done = preflight(*argv)
    assert done.returncode in (1, 3), done.stdout + done.stderr
    assert done.stdout.startswith("preflight: 2 nodes inspected, ")
    assert "\nnot inspected\n  n001: " in done.stdout
