"""Formats of nodes' tools: what no single output shows; outputs with their facts are cases of `fabtui read`."""

from __future__ import annotations

from typing import Any

import pytest

from fabtui.importers.catalogue import formats
from fabtui_node.parsers.base import Reading
from fabtui_node.parsers.ib import fabric
from fabtui_node.parsers.nvidia import fabric_manager_log, smi_table, topo, values

from .places import sample

HANDLE = "Unable to determine the device handle for "
MISMATCH = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 535.161"
INTERFACE = "fabric manager NVIDIA GPU driver interface version 550.127.05 doesn't match with driver version 550.120"
#: What `nvidia-smi -q` of new and old drivers prints of a reset that a GPU needs.
RESET = "GPU Reset Status\n        Reset Required : {}\n        Drain and Reset Recommended : {}"


def read(form: str, text: str) -> Reading:
    reading = formats()[form].parse(text)
    assert reading.unknown == [], reading.unknown
    return reading


@pytest.mark.parametrize(
    ("text", "kind", "bus", "number"),
    [
        (HANDLE + "GPU0000:3B:00.0: GPU is lost", "gpu_lost", "0000:3B:00.0", None),
        (HANDLE + "GPU2: Unknown Error", "device_handle", None, "2"),
        (HANDLE + "GPU3: 0000:5E:00.0: Not Found", "device_handle", "0000:5E:00.0", "3"),
        (HANDLE + "gpu 0000:03:00.0: Unknown Error", "device_handle", "0000:03:00.0", None),
        (MISMATCH, "version", None, None),
        ("Failed to initialize NVML: Driver Not Loaded", "version", None, None),
        ("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.", "library", None, None),
        ("No devices were found", "no_devices", None, None),
        ("NVML: GPU requires reset", "requires_reset", None, None),
    ],
)
def test_the_wordings_of_what_is_broken(text: str, kind: str, bus: str | None, number: str | None) -> None:
    (error,) = values.parse_errors(text)
    assert (error["kind"], error["bus"], error["index"]) == (kind, bus, number)
    reading = smi_table.parse_nvidia_smi(text)
    assert reading.values["any_err"] is True
    assert reading.warnings


def test_a_dead_gpu_in_csv() -> None:
    text = (
        "index, pci.bus_id, power.draw [W], clocks_event_reasons.active, pcie.link.width.current\n"
        "0, 00000000:06:00.0, 78.06 W, 0x0000000000000004, 16\n"
        "1, 00000000:07:00.0, [GPU requires reset], [Unknown Error], [N/A]\n"
    )
    reading = read("nvidia-smi-query", text)
    first, second = reading.values["rows"]
    assert first["clocks_event_reasons.active"] == ["sw_power_cap"]
    assert (second["power.draw"], second["pcie.link.width.current"]) == (None, None)
    assert second["errors"] == {"power.draw": "GPU requires reset", "clocks_event_reasons.active": "Unknown Error"}
    assert len(reading.warnings) == 2


@pytest.mark.parametrize(
    ("lines", "action"),
    [
        ("GPU Recovery Action : None", "None"),
        ("GPU Recovery Action : Reset", "Reset"),
        (RESET.format("No", "N/A"), "None"),
        (RESET.format("Yes", "No"), "Reset"),
        (RESET.format("No", "Yes"), "Drain and Reset"),
        ("Product Name : X", None),
    ],
)
def test_what_a_gpu_needs_to_recover(lines: str, action: str | None) -> None:
    (gpu,) = read("nvidia-smi-q", f"GPU 00000000:01:00.0\n    {lines}\n").values["gpus"]
    assert gpu["recovery_action"] == action


def test_a_cut_matrix_is_never_complete() -> None:
    text = sample("h200x8/topo-p2p-r.txt")
    for cut in range(0, text.index("Legend") - 8, 37):
        matrix = topo.parse_p2p(text[:cut]).values
        assert (matrix["complete"], matrix["p2p"]) == (False, None), cut


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("SXid (PCI:0000:c1:00.0): 23001, Fatal, Link 12 x", "nvswitch"),
        (INTERFACE, "version"),
        ("not all the available links are trained", "topology"),
        ("something else", "other"),
    ],
)
def test_reports_of_the_fabric_manager(text: str, kind: str) -> None:
    record = "[Jul 09 2024 18:14:07] [ERROR] [tid 12727] " + text
    (event,) = fabric_manager_log.parse_log(record).values["events"]
    assert (event["kind"], event["time"]) == (kind, "Jul 09 2024 18:14:07")


def test_the_version_of_the_fabric_manager() -> None:
    assert fabric_manager_log.parse_version("\n\tFabric Manager version is : 535.161.08\n") == "535.161.08"
    assert fabric_manager_log.parse_version("command not found") is None


# -- a simulated fabric: two leaves, a spine, four nodes of two adapters ----------------------------------------------


def links(reading: Reading) -> dict[tuple[str, int], dict[str, Any]]:
    return {(link["name"], link["port"]): link for link in reading.values["links"]}


@pytest.mark.parametrize(("name", "ports"), [("ibnetdiscover.txt", 24), ("ibnetdiscover_ports.txt", 56)])
def test_the_two_forms_of_a_topology_agree(name: str, ports: int) -> None:
    reading = fabric.parse_topology(sample(f"ibsim/{name}"))
    assert (len(reading.values["links"]), reading.warnings, reading.unknown) == (ports, [], [])
    end = {"type": "CA", "name": "n063 mlx5_1", "guid": "0x000000000010000f", "lid": 11, "port": 1}
    peer = {"type": "switch", "name": "leaf2", "guid": "0x0000000000200001", "lid": 3, "port": 4}
    assert links(reading)["n063 mlx5_1", 1] == {**end, "lanes": 1, "speed": "HDR", "rate": 50.0, "peer": peer}
    assert links(reading)["spine1", 2]["peer"]["name"] == "leaf1"
    assert links(reading)["spine1", 2]["rate"] == 100.0


def test_a_port_without_a_cable_has_no_rate() -> None:
    free = links(fabric.parse_topology(sample("ibsim/ibnetdiscover_ports.txt")))["leaf1", 14]
    assert (free["peer"], free["rate"], free["speed"]) == (None, None, "SDR")


@pytest.mark.parametrize("name", ["iblinkinfo_line.txt", "iblinkinfo_degraded_1x_edr.txt"])
def test_links_below_what_both_ends_can_do(name: str) -> None:
    reading = fabric.parse_links(sample(f"ibsim/{name}"))
    assert (reading.warnings, reading.unknown) == ([], [])
    below = {(end, port): link["below"] for (end, port), link in links(reading).items() if link["below"]}
    # All ports report 12X as possible; it has no meaning.
    width, speed = [("n063 mlx5_1", 1), ("leaf2", 4)], [("leaf1", 16), ("spine1", 2)]
    assert below == {**{port: ["width"] for port in width}, **{port: ["speed"] for port in speed}}
    slow = links(reading)["leaf1", 16]
    assert (slow["lane_rate"], slow["could_lane_rate"], slow["rate"]) == (25.78125, 53.125, 100.0)
    assert links(reading)["n060 mlx5_0", 1]["type"] == "CA"
    assert links(reading)["leaf1", 16]["type"] == "switch"


def test_a_pulled_cable_is_down_on_the_switch_and_missing_of_the_adapter() -> None:
    ends = links(fabric.parse_links(sample("ibsim/iblinkinfo_after_unlink.txt")))
    assert ("n062 mlx5_1", 1) not in ends
    port = ends["leaf2", 3]
    assert (port["state"], port["physical_state"], port["peer"], port["rate"]) == ("Down", "Polling", None, None)


def test_a_fabric_that_answers_in_part() -> None:
    reading = fabric.parse_links(sample("ibsim/iblinkinfo_mad_loss60.txt"))
    assert any("timed out" in warning for warning in reading.warnings)
    assert reading.unknown == []
    lost = links(reading)["", 15]
    assert (lost["lanes"], lost["lane_rate"], lost["rate"], lost["below"]) == (None, None, None, [])
