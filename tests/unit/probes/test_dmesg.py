"""The kernel's log in all the ways it is printed, and what is made of its lines."""

import pytest

from fabtui_node.parsers import dmesg

XID = "NVRM: Xid (PCI:0000:9b:00): 79, pid=123, name=python3, GPU has fallen off the bus."


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
