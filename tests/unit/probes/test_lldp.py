"""LLDP: texts and JSON of lldpctl, frames of systemd-networkd, and the probe."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from fabtui.importers.result import read
from fabtui.importers.sources import Source
from fabtui_node.parsers.net import lldp
from fabtui_node.probes.network import lldp as probe
from fabtui_node.system import run_command

SAMPLES = Path(__file__).parents[2] / "samples/lldp"
FIRST = {
    "interface": "ens1f0np0",
    "chassis": "02:00:00:aa:01:00",
    "chassis_type": "mac",
    "system": "leaf-r0-p1",
    "port": "swp4s0",
    "port_type": "ifname",
    "port_description": "n003 rail 0",
    "switch": True,
}


@pytest.mark.parametrize("name", ["two-rails.txt", "two-rails.json"])
def test_outputs_of_lldpctl(name: str) -> None:
    text = (SAMPLES / name).read_text()
    found = lldp.parse(text)
    first, second = found.values["neighbours"]
    assert (first, found.warnings, found.unknown) == (FIRST, [], [])
    assert (second["interface"], second["chassis"]) == ("ens2f0np0", "02:00:00:aa:02:00")
    assert second["switch"] is True
    assert read(Source(name, text)).kind == "lldpctl"


def test_one_interface_and_the_other_form_of_json() -> None:
    one = {"via": "LLDP", "chassis": {"leaf": {"id": {"type": "local", "value": "7"}}}, "port": {"id": {"value": "p1"}}}
    (found,) = lldp.parse(json.dumps({"lldp": {"interface": {"eth0": one}}})).values["neighbours"]
    assert (found["interface"], found["system"], found["chassis"], found["port"]) == ("eth0", "leaf", "7", "p1")
    assert found["switch"] is None
    plain = {
        "name": "eth0",
        "chassis": [{"id": [{"type": "mac", "value": "02:00:00:00:00:01"}], "name": [{"value": "leaf"}]}],
        "port": [{"id": [{"type": "ifname", "value": "p1"}], "descr": [{"value": "to n1"}]}],
    }
    (other,) = lldp.parse(json.dumps({"lldp": [{"interface": [plain]}]})).values["neighbours"]
    assert (other["interface"], other["system"], other["port_description"]) == ("eth0", "leaf", "to n1")
    assert lldp.parse('{"lldp": {}}').values == {"neighbours": []}
    assert lldp.parse('{"lldp": {"interface": [').warnings == ["the JSON is cut off or damaged"]


def tlv(kind: int, value: bytes) -> bytes:
    return struct.pack(">H", kind << 9 | len(value)) + value


def frame(system: bytes = b"leaf-1", capabilities: int = 0x14) -> bytes:
    head = bytes.fromhex("0180c200000e 020000aa0100 88cc")
    body = tlv(1, b"\x04" + bytes.fromhex("020000aa0100")) + tlv(2, b"\x05swp9") + tlv(3, b"\0\x78")
    return (
        head + body + tlv(4, b"to n1") + tlv(5, system) + tlv(7, struct.pack(">HH", 0x14, capabilities)) + tlv(0, b"")
    )


def test_frames_of_systemd_networkd() -> None:
    data = b"".join(struct.pack("<Q", len(one)) + one for one in (frame(), frame(b"host", 0x80)))
    first, second = lldp.parse_frames(data, "eth1")
    assert (first["interface"], first["chassis"], first["port"]) == ("eth1", "02:00:00:aa:01:00", "swp9")
    assert (first["system"], first["port_description"], first["switch"]) == ("leaf-1", "to n1", True)
    assert (second["system"], second["switch"]) == ("host", False)
    for cut in range(len(data)):
        assert len(lldp.parse_frames(data[:cut], "eth1")) <= 1
    assert lldp.parse_frames(struct.pack("<Q", 1 << 60) + frame(), "eth1") == []
    assert lldp.parse_frames(b"\xff" * 4000, "eth1") == []


@pytest.mark.parametrize(
    "value", [3, [], "x", {"interface": 3}, {"interface": [{"eth0": {"chassis": [7], "port": "x"}}]}]
)
def test_hostile_json(value: Any) -> None:
    assert all(isinstance(one, dict) for one in lldp.parse(json.dumps({"lldp": value})).values["neighbours"])


def test_the_probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = run_command.CommandResult(["lldpctl"], None, "", "", missing=True)
    monkeypatch.setattr(run_command, "run", lambda *args, **more: missing)
    assert probe.run({}, None, 5.0, str(tmp_path)) == {"source": None, "neighbours": []}
    (tmp_path / "sys/class/net/eth1").mkdir(parents=True)
    (tmp_path / "sys/class/net/eth1/ifindex").write_text("3\n")
    folder = tmp_path / "run/systemd/netif/lldp"
    folder.mkdir(parents=True)
    (folder / "3").write_bytes(struct.pack("<Q", len(frame())) + frame())
    (folder / "9").write_bytes(b"?")
    found = probe.run({}, None, 5.0, str(tmp_path))
    assert (found["source"], [one["interface"] for one in found["neighbours"]]) == ("systemd-networkd", ["eth1"])
    text = (SAMPLES / "two-rails.json").read_text()
    answer = run_command.CommandResult(["lldpctl"], 0, text, "")
    monkeypatch.setattr(run_command, "run", lambda *args, **more: answer)
    assert probe.run({}, None, 5.0)["neighbours"][0] == FIRST
