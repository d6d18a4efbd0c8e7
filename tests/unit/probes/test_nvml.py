"""Answers of NVML and nvidia-smi about GPUs: identities, visible devices, errors."""

import sys
import threading
from typing import Any

import pytest

from fabtui_node.parsers.nvidia import values
from fabtui_node.probes.nvidia import nvml


class Library:
    closed = 0

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.closed += 1


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    made = Library()
    monkeypatch.setattr(nvml, "open_library", lambda: made)
    return made


def test_a_task_gives_its_value_and_closes_the_library(library: Library) -> None:
    assert nvml.NvmlTask(lambda given: given is library).result(30) == (True, None)
    assert library.closed == 1


def test_a_task_that_fails_reports_why(library: Library) -> None:
    def fail(library: Any) -> None:
        raise KeyError("x")

    assert nvml.NvmlTask(fail).result(30) == (None, "NVML: KeyError: 'x'")
    assert library.closed == 1


def test_a_task_that_hangs_costs_its_deadline_only(library: Library) -> None:
    never = threading.Event()
    value, error = nvml.NvmlTask(lambda library: never.wait(60)).result(0.05)
    never.set()
    assert value is None
    assert error == "NVML did not answer within 0.1 s"


def test_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def unavailable() -> None:
        raise nvml.Unavailable("NVML: no driver")

    monkeypatch.setattr(nvml, "open_library", unavailable)
    assert nvml.NvmlTask(lambda library: 1).result(30) == (None, "NVML: no driver")


@pytest.mark.parametrize(
    ("value", "expected"), [(7, 7), (0, 0), (True, None), (None, None), ("7", None), (0xFFFFFFFFFFFFFFFF, None)]
)
def test_number(value: Any, expected: int | None) -> None:
    assert nvml.number(value) == expected


def test_ask() -> None:
    def fail(*args: Any) -> None:
        raise RuntimeError("not supported")

    assert nvml.ask(fail, 1) is None
    assert nvml.ask(None, 1) is None
    assert nvml.ask(max, 1, 2) == 2


def test_without_the_driver_pynvml_is_not_even_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "DRIVER", "libno-such-driver.so.1")
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    with pytest.raises(nvml.Unavailable, match="NVML: NVML Shared Library Not Found"):
        nvml.open_library()
    assert "pynvml" not in sys.modules


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


def test_two_broken_gpus_are_two_errors() -> None:
    handle = "Unable to determine the device handle for GPU"
    found = values.parse_errors(f"{handle} 0000:02:00.0: Unknown Error\n{handle} 0000:03:00.0: Unknown Error\n")
    assert [(error["bus"], error["reason"]) for error in found] == [
        ("0000:02:00.0", "Unknown Error"),
        ("0000:03:00.0", "Unknown Error"),
    ]
