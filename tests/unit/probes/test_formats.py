"""Formats of nodes' tools: what no single output shows; outputs with their facts are cases of `fabtui read`."""

import pytest

from fabtui_node.parsers.nvidia import fabric_manager_log, smi_table, topo, values

from .places import sample

HANDLE = "Unable to determine the device handle for "
MISMATCH = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 535.161"


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


def test_a_cut_matrix_is_never_complete() -> None:
    text = sample("h200x8/topo-p2p-r.txt")
    for cut in range(0, text.index("Legend") - 8, 37):
        matrix = topo.parse_p2p(text[:cut]).values
        assert (matrix["complete"], matrix["p2p"]) == (False, None), cut


def test_the_version_of_the_fabric_manager() -> None:
    assert fabric_manager_log.parse_version("\n\tFabric Manager version is : 535.161.08\n") == "535.161.08"
    assert fabric_manager_log.parse_version("command not found") is None
