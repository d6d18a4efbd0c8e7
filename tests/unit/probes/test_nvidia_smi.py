from __future__ import annotations

import pytest

from fabtui_node.parsers.nvidia import values
from fabtui_node.probes.nvidia import nvml

UUIDS = ["GPU-aa11", "GPU-aa22", "GPU-bb33", None]


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        (None, [0, 1, 2, 3]),
        ("", []),
        ("2,0", [2, 0]),
        (" 1 , 3 ", [1, 3]),
        ("1,-1,2", [1]),
        ("1,9,2", [1]),
        ("NoDevFiles", []),
        ("GPU-bb33,GPU-aa11", [2, 0]),
        ("GPU-bb", [2]),
        ("GPU-aa", []),
        ("gpu-BB33", [2]),
        ("0,0", []),
        ("0,GPU-aa11", []),
        ("0x1", []),
    ],
)
def test_visible_devices(setting: str | None, expected: list[int]) -> None:
    assert nvml.visible_devices(setting, UUIDS) == [(index, None) for index in expected]


def test_mig_instances_keep_their_name() -> None:
    assert nvml.visible_devices("MIG-7c5d,1", UUIDS) == [(-1, "MIG-7c5d"), (1, None)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("00000000:0A:00.0", "0000:0a:00.0"),
        ("0000:0a:00.0", "0000:0a:00.0"),
        ("00010000:0A:00.0", "10000:0a:00.0"),
        ("no bus", "no bus"),
        (None, None),
    ],
)
def test_bus_id(text: str | None, expected: str | None) -> None:
    assert nvml.bus_id(text) == expected


def one(text: str) -> tuple[str | None, str | None, str | None]:
    (error,) = values.parse_errors(text)
    return error["kind"], error["bus"], error["reason"]


def test_errors() -> None:
    handle = "Unable to determine the device handle for GPU"
    assert one(f"{handle} 0000:02:00.0: GPU is lost.  Reboot\n   the system") == (
        "gpu_lost",
        "0000:02:00.0",
        "GPU is lost",
    )
    assert one(f"{handle}\n 0000:02:00.0: GPU is\nlost") == ("gpu_lost", "0000:02:00.0", "GPU is lost")
    assert one(f"{handle}3: 0000:0B:00.0: Unknown Error\n") == ("device_handle", "0000:0B:00.0", "Unknown Error")
    assert one("No devices were found")[0] == "no_devices"
    assert one("Failed to initialize NVML: Driver/library version mismatch")[0] == "version"
    assert values.parse_errors("GPU 0: NVIDIA H200") == []


def test_two_broken_gpus_are_two_errors() -> None:
    handle = "Unable to determine the device handle for GPU"
    found = values.parse_errors(f"{handle} 0000:02:00.0: Unknown Error\n{handle} 0000:03:00.0: Unknown Error\n")
    assert [(error["bus"], error["reason"]) for error in found] == [
        ("0000:02:00.0", "Unknown Error"),
        ("0000:03:00.0", "Unknown Error"),
    ]
