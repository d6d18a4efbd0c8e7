"""IMEX: the output of nvidia-imex-ctl, and the probe. No output is of real hardware."""

import json
import os
from pathlib import Path
from shlex import quote
from typing import Any

import pytest

from fabtui_node.parsers.nvidia import imex_ctl
from fabtui_node.probes.nvidia import imex
from fabtui_node.system import run_command


def _no_parts(value: dict[str, Any]) -> None:
    raise AssertionError(value)


def read(text: str) -> dict[str, Any]:
    reading = imex_ctl.parse(text)
    assert not reading.warnings
    assert not reading.unknown
    return reading.values


@pytest.mark.parametrize("text", ["", "READY\n", "{}", '{"nodes": []}', '{"nodes": {"0": 3, "x": {}}}', "Node #1\n"])
def test_what_is_no_domain(text: str) -> None:
    assert imex_ctl.parse(text).values == {"domain": None, "time": None, "nodes": [], "apart": []}


def test_the_state_of_a_node_alone() -> None:
    assert imex_ctl.parse_state("READY\n") == "READY"
    assert imex_ctl.parse_state("connecting\nWAITING_FOR_PEERS\n") == "WAITING_FOR_PEERS"
    assert imex_ctl.parse_state("cannot connect to 127.0.0.1\n") is None


def _tool(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "nvidia-imex-ctl"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def _domain(folder: Path, host: str) -> Path:
    nodes = {
        "0": {"status": "UNAVAILABLE", "host": "192.0.2.11", "connections": {}, "version": ""},
        "1": {"status": "READY", "host": host, "connections": {}, "version": "580.105.08"},
    }
    path = folder / "domain.json"
    path.write_text(json.dumps({"nodes": nodes, "status": "DEGRADED"}))
    return path


def test_the_probe_knows_its_node_by_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _tool(tmp_path, f"cat {quote(str(_domain(tmp_path, '127.0.0.1')))}", monkeypatch)
    value = imex.run({}, _no_parts, 10.0, str(tmp_path / "none"))
    assert (value["state"], value["version"], value["domain"]) == ("READY", "580.105.08", "DEGRADED")
    assert [one["own"] for one in value["nodes"]] == [None, True]
    assert value["channels"] is None
    assert value["error"] is None


def test_a_node_that_is_not_in_its_own_list_is_asked_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _domain(tmp_path, "192.0.2.12")
    _tool(tmp_path, f'[ "$1" = -q ] && echo INITIALIZING || cat {path}', monkeypatch)
    value = imex.run({}, _no_parts, 10.0, str(tmp_path / "none"))
    assert (value["state"], value["version"]) == ("INITIALIZING", None)


def test_a_service_without_a_list_of_nodes_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _tool(tmp_path, "echo 'cannot read /etc/nvidia-imex/nodes_config.cfg' >&2; exit 255", monkeypatch)
    value = imex.run({}, _no_parts, 10.0, str(tmp_path / "none"))
    assert value["installed"] is True
    assert value["state"] is None
    assert value["nodes"] == []
    assert value["error"] == "nvidia-imex-ctl exited with 255: cannot read /etc/nvidia-imex/nodes_config.cfg"


def test_without_the_tool_nothing_is_known_and_nothing_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_command, "find", lambda name: None)
    channels = tmp_path / "channels"
    channels.mkdir()
    (channels / "channel0").touch()
    assert imex.run({}, _no_parts, 10.0, str(channels)) == {
        **{"installed": False, "error": None},
        **{"channels": {"count": 1, "writable": 1}},
    }
