from typing import Any

import pytest

from fabtui.screen.views.node import gpu_state_lines, kernel_lines, nvlink_lines

NASTY = "\x1b[31m[red]\u202e evil"


def gpu(index: int, **more: Any) -> dict[str, Any]:
    return {
        "index": index,
        "pcie": {"generation": 1, "generation_max": 5, "width": 16, "width_max": 16},
        "clocks": {"sm": 345, "sm_max": 1980},
        "reasons": ["idle"],
        "power": 78.1,
        "power_limit": 700.0,
        "temperature": 34,
        "ecc": {"on": True},
        "ecc_errors": {"uncorrected": 0},
        "rows": {"uncorrectable": 0, "pending": False, "failure": False},
        "fabric": {"state": "completed"},
        "errors": {},
        "lost": None,
        **more,
    }


def look(*gpus: dict[str, Any], **more: Any) -> dict[str, Any]:
    manager = {"installed": True, "active": True, "version": "580.1"}
    return {"source": "nvml", "gpus": list(gpus), "fabric_manager": manager, "problems": [], **more}


def text(lines: Any) -> list[str]:
    return ["".join(part for part, _ in line).rstrip() for line in lines]


def styled(lines: Any) -> set[str]:
    return {part.strip() for line in lines for part, style in line if "warning" in style or "error" in style}


def test_healthy_gpus_are_plain() -> None:
    busy = gpu(0, busy=True, pcie={"generation": 5, "generation_max": 5, "width": 16, "width_max": 16})
    lines = gpu_state_lines(look(gpu(0), gpu(1)), {"gpus": [busy]})
    assert text(lines) == [
        "",
        "GPU state  from nvml",
        "  GPU  PCIe      under load  SM MHz       power W    C   ECC  rows  fabric",
        "  0    gen1 x16  gen5 x16    345 of 1980  78 of 700  34  on   0     completed",
        "  1    gen1 x16  -           345 of 1980  78 of 700  34  on   0     completed",
        "  Fabric Manager 580.1, running",
    ]
    assert styled(lines) == set()


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ({"pcie": {"generation": 5, "generation_max": 5, "width": 8, "width_max": 16}}, "gen5 x8 of gen5 x16"),
        ({"reasons": ["hw_thermal_slowdown"]}, "hw thermal slowdown"),
        ({"ecc_errors": {"uncorrected": 3}}, "3 uncorrected"),
        ({"rows": {"pending": True}}, "pending"),
        ({"rows": {"failure": True}}, "failed"),
        ({"fabric": {"state": "in progress"}}, "in progress"),
        ({"lost": "GPU is lost"}, "GPU is lost"),
        ({"errors": {"power": "Unknown Error", "mig": "x"}}, "power: Unknown Error and 1 more"),
    ],
)
def test_what_is_bad_stands_out(more: dict[str, Any], word: str) -> None:
    assert styled(gpu_state_lines(look(gpu(0, **more)), None)) == {word}


def test_a_lower_generation_counts_under_load_only() -> None:
    assert styled(gpu_state_lines(look(gpu(0)), {"gpus": [gpu(0, busy=True)]})) == {"gen1 x16 of gen5 x16"}
    assert styled(gpu_state_lines(look(gpu(0)), {"gpus": [gpu(0, busy=False)]})) == set()


def test_what_the_tools_complain_of() -> None:
    lines = gpu_state_lines(look(problems=["GPU is lost"], disagreements=["x", NASTY]), None)
    assert text(lines)[1:3] == ["  GPU is lost", "  x"]
    assert "\x1b" not in str(text(lines))


def test_the_kernel() -> None:
    counts = [{"kind": "xid", "code": 79, "bus": "0000:9b:00", "count": 2, "age": 100.0, "text": "GPU has fallen"}]
    counts[0]["verdict"] = "bad"
    lines = kernel_lines({"readable": "yes", "source": "kmsg", "counts": counts})
    assert text(lines)[1:] == [
        "kernel  from kmsg",
        "       report  device      count  last       text",
        "  bad  xid 79  0000:9b:00  2      1 min ago  GPU has fallen",
    ]
    assert styled(lines) == {"bad"}
    assert "not permitted" in text(kernel_lines({"readable": "not permitted", "counts": []}))[-1]
    assert "no GPU, PCIe or link events since boot" in text(kernel_lines({"readable": "yes", "counts": []}))[-1]
    assert kernel_lines(None) == kernel_lines({"error": "x"}) == []


@pytest.mark.parametrize(("uuid", "grown"), [("GPU-1", True), ("GPU-2", False)])
def test_growth_of_nvlink_counters_goes_by_uuid(uuid: str, grown: bool) -> None:
    def look(uuid: str, crc: int) -> dict[str, Any]:
        links = [{"link": 0, "state": "active", "speed": 25.0, "counters": {"crc": crc}}]
        return {"gpus": [{"index": 0, "uuid": uuid, "links": links}]}

    text = "".join(text for line in nvlink_lines(look(uuid, 9), look("GPU-1", 1)) for text, _ in line)
    assert "crc 9" in text
    assert ("+8 since session start" in text) is grown


@pytest.mark.parametrize(("name", "marked"), [("NVIDIA H100 NVL", False), ("NVIDIA H100 80GB HBM3", True)])
def test_links_of_cards_without_a_bridge_are_no_warning(name: str, marked: bool) -> None:
    links = [{"link": at, "state": "inactive" if at % 6 > 3 else "active", "speed": 26.562} for at in range(18)]
    lines = nvlink_lines({"gpus": [{"index": 0, "name": name, "links": links}]}, None)
    assert "12 of 18" in "".join(text for line in lines for text, _ in line)
    assert any("$warning" in style for line in lines for _, style in line) is marked
    assert any("inactive" in text for line in lines for text, _ in line) is marked
