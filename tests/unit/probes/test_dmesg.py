"""The kernel's log in all the ways it is printed, and what is made of its lines."""

from __future__ import annotations

from typing import Any

import pytest

from fabtui_node.parsers import dmesg

XID = "NVRM: Xid (PCI:0000:9b:00): 79, pid=123, name=python3, GPU has fallen off the bus."


def one(text: str) -> dict[str, Any]:
    reading = dmesg.parse_kernel(text)
    assert reading.unknown == []
    (event,) = reading.values["events"]
    return dict(event)


@pytest.mark.parametrize(
    ("start", "time", "uptime"),
    [
        ("", None, None),
        ("[  885.242168] ", None, 885.242168),
        ("[    0.000000][    T0] ", None, 0.0),
        ("[12345.678901] [ T1234] ", None, 12345.678901),
        ("<3>[   12.345678] ", None, 12.345678),
        ("kern  :err   : [  445.937186] ", None, 445.937186),
        ("[Sun Feb 23 16:24:18 2025] ", "Sun Feb 23 16:24:18 2025", None),
        ("[Sun Dec  1 14:54:40 2024] node1 kernel: ", "Sun Dec  1 14:54:40 2024", None),
        ("2024-11-15T05:39:15,491363+00:00 ", "2024-11-15T05:39:15,491363+00:00", None),
        ("2025-01-01T00:00:00.123456+01:00 node1 kernel: ", "2025-01-01T00:00:00.123456+01:00", None),
        ("2025-01-01T00:00:00+0000 node1.example kernel: ", "2025-01-01T00:00:00+0000", None),
        ("Tue 2024-12-03 11:22:33 UTC node1 kernel: ", "Tue 2024-12-03 11:22:33 UTC", None),
        ("Dec  2 11:49:53 worker4 kernel: [  885.242168] ", "Dec  2 11:49:53", 885.242168),
        ("Dec 02 11:49:53.123456 worker4 kernel: ", "Dec 02 11:49:53.123456", None),
        ("[  885.242168] worker4 kernel: ", None, 885.242168),
        ("6,1234,98765432,-;", None, 98.765432),
        ("3,1234,98765432,-,caller=T1;", None, 98.765432),
    ],
)
def test_the_beginnings_of_lines(start: str, time: str | None, uptime: float | None) -> None:
    assert dmesg.split(start + XID) == (time, uptime, XID)
    event = one(start + XID)
    assert (event["time"], event["uptime"]) == (time, uptime)
    assert (event["bus"], event["code"], event["pid"], event["name"]) == ("0000:9b:00", 79, 123, "python3")
    assert event["text"] == "GPU has fallen off the bus."


@pytest.mark.parametrize(
    ("text", "kind", "wanted"),
    [
        (
            "NVRM: Xid (PCI:0018:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 04 (0x02e8f7c6 0x00000000)",
            "xid",
            {"bus": "0018:01:00", "code": 149, "pid": None},
        ),
        ("NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=1, name=a b, Contained: x", "xid", {"pid": 1, "name": "a b"}),
        ("NVRM: Xid (0000:02:00): 79, GPU has fallen off the bus.", "xid", {"bus": "0000:02:00", "code": 79}),
        ("NVRM: Xid (PCI:0000:02:00): 999, new", "xid", {"code": 999, "text": "new"}),
        ("NVRM: Xid (PCI:0000:02:00): 43", "xid", {"code": 43, "text": ""}),
        (
            "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error (First)",
            "sxid",
            {"bus": "0000:05:00.0", "code": 12028, "switch": 3, "fatal": False, "link": 32},
        ),
        ("nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 24007, Fatal, Link 30 sourcetrack", "sxid", {"fatal": True}),
        ("NVRM: GPU 0000:03:00.0: GPU has fallen off the bus.", "gpu_lost", {"bus": "0000:03:00.0"}),
        (
            "Memory cgroup out of memory: Killed process 1041 (python) total-vm:9kB, anon-rss:8kB, UID:0",
            "oom",
            {"code": "cgroup", "pid": 1041, "name": "python", "bus": None},
        ),
        ("Out of memory: Killed process 7 (pt_main_thread) total-vm:9kB", "oom", {"code": "node", "pid": 7}),
        ("Killed process 8 (python) total-vm:9kB, anon-rss:8kB", "oom", {"code": None, "pid": 8}),
        ("NVRM: API mismatch: the client has the version 550.54.15, but", "driver_mismatch", {}),
        (
            "nvidia 0000:c1:00.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer, (ID)",
            "aer",
            {"bus": "0000:c1:00.0", "code": "nonfatal", "type": "Transaction Layer"},
        ),
        ("DMAR: [DMA Read] Request device [17:00.0] fault addr 0xff", "iommu", {"bus": "17:00.0"}),
        ("mlx5_core 0000:9f:00.0 ens1np0: Link down", "link_down", {"bus": "0000:9f:00.0", "interface": "ens1np0"}),
        ("mlx5_core 0000:9f:00.0 ens1np0: Link up", "link_up", {"interface": "ens1np0"}),
        ("infiniband mlx5_0: Port: 1 Link DOWN", "link_down", {"interface": "mlx5_0/1"}),
        ("bond0: (slave eth0): link status definitely down, disabling slave", "link_down", {"interface": "eth0"}),
        ("bnxt_en 0000:17:00.0 ens1f0np0: NIC Link is Down", "link_down", {"interface": "ens1f0np0"}),
        ("e1000e: eno1 NIC Link is Up 1000 Mbps Full Duplex", "link_up", {"interface": "eno1"}),
        ("mlx4_en: eth2: Link Down", "link_down", {"interface": "eth2"}),
        ("IPv6: ADDRCONF(NETDEV_CHANGE): ib0: link becomes ready", "link_up", {"interface": "ib0"}),
        ("mlx5_core 0000:5c:00.0: Port module event[error]: module 0, Cable error, x", "module", {"code": "error"}),
        ("mlx5_core 0000:5c:00.0: Port module event: module 1, Cable unplugged", "module", {"code": "unplugged"}),
        (
            "mlx5_core 0000:5c:00.0: mlx5_pcie_event:299:(pid 2): Detected insufficient power on the PCIe slot (27W).",
            "nic_power",
            {"power": 27},
        ),
        ("mlx5_core 0000:0d:00.0: poll_health:801:(pid 0): device's health compromised - x", "nic_health", {}),
        ("mlx5_core 0000:06:00.0: wait_func:1128:QUERY timeout. Will cause a leak of a command", "nic_command", {}),
    ],
)
def test_kinds(text: str, kind: str, wanted: dict[str, Any]) -> None:
    event = one("[  100.000000] " + text)
    assert event["kind"] == kind
    assert {key: event[key] for key in wanted} == wanted


def test_an_sxid_goes_on_over_lines_and_is_one() -> None:
    start = "[ 1.000000] nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, "
    text = (
        start
        + "Non-fatal, Link 32 egress\n"
        + start
        + "Severity 0 Engine instance 32\n"
        + start
        + "Data {0x00140004}\n"
    )
    assert one(text)["link"] == 32


def test_an_error_of_pcie_spans_several_lines() -> None:
    text = (
        "[1.000001] pcieport 0000:c0:01.1: AER: Multiple Corrected error message received from 0000:c1:00.0\n"
        "[1.000002] nvidia 0000:c1:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)\n"
        "[1.000003] nvidia 0000:c1:00.0:   device [10de:2330] error status/mask=00000001/0000a000\n"
        "[1.000004] nvidia 0000:c1:00.0:    [ 0] RxErr                  (First)\n"
    )
    event = one(text)
    assert (event["bus"], event["port"]) == ("0000:c1:00.0", "0000:c0:01.1")
    assert (event["code"], event["type"], event["detail"]) == ("corrected", "Physical Layer", "RxErr")


@pytest.mark.parametrize(
    "text",
    [
        "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.159.04",
        "mlx5_core 0000:9f:00.0: E-Switch: Total vports 10, per vport: max uc(1024)",
        "mlx5_core 0004:01:00.0: mlx5_pcie_event:294:(pid 542): PCIe slot advertised sufficient power (75W).",
        "IPv6: ADDRCONF(NETDEV_UP): ib0: link is not ready",
        "ACPI: PCI Interrupt Link [LNKA] enabled at IRQ 10",
        "usb 1-1: new high-speed USB device",
        "ata3: SATA link down (SStatus 0 SControl 300)",
        "IPv6: ADDRCONF(NETDEV_CHANGE): cali0123: link becomes ready",
    ],
)
def test_lines_that_mean_nothing(text: str) -> None:
    reading = dmesg.parse_kernel("[  1.000000] " + text)
    assert (reading.values["events"], reading.warnings, reading.unknown) == ([], [], [])


def test_unknown_messages_of_a_gpu_are_kept() -> None:
    line = "[  211.000000] NVRM: GPU 0000:0a:00.0: something new"
    assert dmesg.parse_kernel(line).unknown == [line]


def test_a_flood_is_counted_and_cut() -> None:
    line = "[  %d.000000] nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping\n"
    reading = dmesg.parse_kernel("[0.000001] " + XID + "\n" + "".join(line % number for number in range(3000)))
    assert len(reading.values["events"]) == dmesg.MOST_EVENTS
    counts = {count["kind"]: count for count in reading.values["counts"]}
    assert (counts["peermem"]["count"], counts["peermem"]["first"], counts["peermem"]["last"]) == (3000, 0.0, 2999.0)
    assert counts["xid"]["count"] == 1
    assert reading.values["xids"] == {"79": 1}


@pytest.mark.parametrize(
    "line",
    [
        "6,3964,206764307,-;nvidia-nvswitch2: open (major=510)",
        "kern  :info  : 2025-01-17T15:36:17,698869+00:00 pci 0000:01:00.0: can't claim BAR 6",
        "[    1.234567] usb 1-1: new device",
        "Dec  2 11:49:53 worker4 kernel: usb 1-1: new device",
    ],
)
def test_a_log_without_anything_to_report_is_known_by_its_look(line: str) -> None:
    assert dmesg.FORMATS[0].likely((line + "\n") * 20) >= 0.7
