"""The probe ``kernel``: where it reads the log, what it makes of one it may not read, and what is bad in it."""

import os
from pathlib import Path
from typing import Any

import pytest

from fabtui_node.probes import kernel_log
from fabtui_node.system import run_command

from .places import Tree

XID = "NVRM: Xid (PCI:0000:9b:00): 79, pid=1, name=x, GPU has fallen off the bus."
KMSG = f"6,1,5000000,-;usb 1-1: new device\n3,2,900000000,-;{XID}\n SUBSYSTEM=pci\n"


@pytest.fixture(autouse=True)
def no_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch)


def play(monkeypatch: pytest.MonkeyPatch, **prints: tuple[int, str, str]) -> None:
    def run(argv: Any, deadline: float, limit: int = 0) -> run_command.CommandResult:
        if argv[0] not in prints:
            return run_command.CommandResult(list(argv), None, "", "", missing=True)
        return run_command.CommandResult(list(argv), *prints[argv[0]])

    monkeypatch.setattr(run_command, "run", run)


def look(tree: Tree, kmsg: Path | str = "/nowhere/kmsg") -> dict[str, Any]:
    tree.files("proc", uptime="1000.00 900.00")
    return kernel_log.run({}, lambda part: None, 5.0, kmsg=str(kmsg), proc=str(tree.root / "proc"))


def judgements_of(value: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(one["subject"], one["verdict"], one["text"]) for one in kernel_log.judge(value)]


def test_the_device(tree: Tree, tmp_path: Path) -> None:
    device = tmp_path / "kmsg"
    device.write_text(KMSG)
    value = look(tree, device)
    assert (value["source"], value["readable"], value["error"], value["uptime"]) == ("kmsg", "yes", None, 1000.0)
    (event,) = value["events"]
    assert (event["kind"], event["code"], event["uptime"], event["age"]) == ("xid", 79, 900.0, 100.0)
    assert judgements_of(value) == []  # The controller explains Xids.


def test_not_permitted_is_a_value_and_no_error(tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = "dmesg: read kernel buffer failed: Operation not permitted"
    hint = "Hint: Users in groups 'adm' can see all messages.\nNo journal files were opened due to "
    play(monkeypatch, dmesg=(1, "", refused), journalctl=(1, "", hint + "insufficient permissions."))
    value = look(tree)
    assert (value["readable"], value["error"], value["events"]) == ("not permitted", None, [])
    assert [verdict for _, verdict, _ in judgements_of(value)] == ["note"]


def test_a_device_that_may_not_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any) -> int:
        raise PermissionError

    monkeypatch.setattr(os, "open", refuse)
    assert kernel_log.read_kmsg(str(tmp_path / "kmsg"), 1.0) == ("kmsg", "", False, None)


def test_dmesg_where_the_device_is_closed(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, dmesg=(0, f"[  900.000000] {XID}\n", ""))
    value = look(tree)
    assert (value["source"], value["readable"], len(value["events"])) == ("dmesg", "yes", 1)


def test_the_journal_where_dmesg_is_closed(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = (1, "", "dmesg: read kernel buffer failed: Operation not permitted")
    play(monkeypatch, dmesg=refused, journalctl=(0, f"[  900.000000] node1 kernel: {XID}\n", ""))
    value = look(tree)
    assert (value["source"], value["readable"], value["events"][0]["age"]) == ("journal", "yes", 100.0)


def test_no_log_at_all(tree: Tree) -> None:
    value = look(tree)
    assert (value["source"], value["readable"], value["lines"]) == ("none", "unknown", 0)
    assert judgements_of(value) == []


def test_only_the_end_of_a_long_log_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_log, "LIMIT", 100)
    device = tmp_path / "kmsg"
    device.write_text("".join(f"6,{n},{n}000000,-;line {n}\n" for n in range(100)))
    log = kernel_log.read_kmsg(str(device), 2.0)
    assert len(log.text) <= 100
    assert log.text.endswith("line 99")


def test_reports_are_bounded_and_the_worst_comes_first(tree: Tree, tmp_path: Path) -> None:
    device = tmp_path / "kmsg"
    noise = "".join(f"6,{n},{n}000000,-;mlx5_core 0000:9f:00.0 eth{n}: Link up\n" for n in range(300))
    device.write_text(noise + KMSG)
    value = look(tree, device)
    assert (len(value["events"]), len(value["counts"])) == (kernel_log.EVENTS, kernel_log.COUNTS)
    assert (value["counts"][0]["kind"], value["counts"][0]["verdict"]) == ("xid", None)
    assert value["lines"] > 300


def judged(*lines: str, uptime: float = 1000.0) -> list[tuple[str, str]]:
    from fabtui_node.parsers import dmesg

    values = dmesg.parse_kernel("\n".join(f"[  10.000000] {line}" for line in lines)).values
    for entry in values["counts"]:
        entry["age"] = uptime - 10.0
    return [(one["subject"], one["verdict"]) for one in kernel_log.judge(values)]


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (["nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 x"], [("sxid", "warn")]),
        (["pcieport 0000:00:02.0: AER: Uncorrected (Fatal) error received: id=0010"], [("aer", "bad")]),
        (["pcieport 0000:00:02.0: AER: Corrected error received: id=0010"], [("aer", "note")]),
        (["mlx5_core 0000:9f:00.0 ens1: Link down", "mlx5_core 0000:9f:00.0 ens1: Link up"], []),
        (["mlx5_core 0000:9f:00.0 ens1: Link down"] * 3, [("link", "warn")]),
        (["mlx5_core 0000:9f:00.0: Port module event: module 0, Cable plugged"], []),
        (["mlx5_core 0000:9f:00.0: Port module event[error]: module 0, Cable error, x"], [("link", "warn")]),
        (["NVRM: GPU 0000:0a:00.0: RmInitAdapter failed! (0x24:0x72:1568)"], [("kernel", "bad")]),
        (["mlx5_core 0004:01:00.0: 63.008 Gb/s available PCIe bandwidth (8.0 GT/s PCIe x8 link)"], []),
        (
            [
                "mlx5_core 0000:04:00.0: 126.016 Gb/s available PCIe bandwidth, limited by 16.0 GT/s PCIe x8 link at "
                "0000:01:00.0 (capable of 252.048 Gb/s with 16.0 GT/s PCIe x16 link)"
            ],
            [("pcie_link", "warn")],
        ),
    ],
)
def test_what_is_bad(lines: list[str], found: list[tuple[str, str]]) -> None:
    assert judged(*lines) == found


def test_what_was_long_ago_is_a_note() -> None:
    lost = "NVRM: GPU 0000:0a:00.0: RmInitAdapter failed! (0x24:0x72:1568)"
    assert judged(lost, uptime=kernel_log.OLD + 100.0) == [("kernel", "note")]
