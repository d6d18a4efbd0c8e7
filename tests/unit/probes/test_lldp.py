"""LLDP: texts and JSON of lldpctl, frames of systemd-networkd, and the probe."""

import struct
from pathlib import Path

import pytest

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
