import os
from pathlib import Path
from shlex import quote
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from fabtui_node.parsers.nvidia import smi_nvlink as nvlink_format
from fabtui_node.probes.nvidia import nvlink, nvml

from .places import sample

STATUS = sample("h200x8/nvlink-s.txt")


def test_the_message_that_all_links_are_inactive() -> None:
    text = "GPU 2: NVIDIA B200 (UUID: GPU-x)\nNVML: Unable to retrieve NVLink information as all links are inActive\n"
    (gpu,) = nvlink_format.parse_nvlink_status(text).values["gpus"]
    assert gpu["all_inactive"]
    (merged,) = nvlink.merge(
        [gpu], nvlink_format.parse_nvlink_errors("GPU 2: B200\n Link 0: Replay Errors: 0\n").values["gpus"]
    )
    assert [link["state"] for link in merged["links"]] == ["inactive"]


def test_visible() -> None:
    gpus = nvlink_format.parse_nvlink_status(STATUS).values["gpus"]
    assert [(gpu["index"], gpu["nvml_index"]) for gpu in nvlink.visible(gpus, "5,2")] == [(0, 5), (1, 2)]
    assert [(gpu["index"], gpu["nvml_index"]) for gpu in nvlink.visible(gpus[3:5], None)] == [(3, 3), (4, 4)]
    assert nvlink.visible(gpus, "") == []


class Library:
    """An NVML whose GPU 1 is broken and whose GPU 0 has two links, one of them down."""

    NVML_NVLINK_MAX_LINKS = 4
    NVML_NVLINK_ERROR_DL_REPLAY = 0
    NVML_NVLINK_ERROR_DL_RECOVERY = 1
    NVML_NVLINK_ERROR_DL_CRC_FLIT = 2
    NVML_FI_DEV_NVLINK_GET_SPEED = 164

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetName(self, handle: int) -> bytes:  # noqa: N802
        return b"NVIDIA X"

    def nvmlDeviceGetUUID(self, handle: int) -> str:  # noqa: N802
        return f"GPU-{handle}"

    def nvmlDeviceGetNvLinkState(self, handle: int, link: int) -> int:  # noqa: N802
        if handle or link > 1:
            raise RuntimeError("not supported")
        return 1 - link

    def nvmlDeviceGetNvLinkErrorCounter(self, handle: int, link: int, counter: int) -> int:  # noqa: N802
        if counter == 1:
            raise RuntimeError("not supported")
        return 10 + counter

    def nvmlDeviceGetFieldValues(self, handle: int, fields: list[tuple[int, int]]) -> list[Any]:  # noqa: N802
        return [SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(uiVal=26562))]


def test_from_nvml() -> None:
    healthy, broken = nvlink.from_library(Library())
    assert (healthy["name"], healthy["uuid"]) == ("NVIDIA X", "GPU-0")
    assert [(link["state"], link["speed"], link["counters"]) for link in healthy["links"]] == [
        ("active", 26.562, {"replay": 10, "crc": 12}),
        ("inactive", None, {}),
    ]
    assert broken["links"] == []


def fake_smi(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    tool = folder / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def no_library() -> Any:
        raise nvml.Unavailable("NVML: not here")

    monkeypatch.setattr(nvml, "open_library", no_library)


def test_run_with_the_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    samples = Path(__file__).resolve().parents[2] / "samples/h200x8"
    fake_smi(tmp_path, monkeypatch, f'[ "$1" = nvlink ] && cat {samples}/nvlink$2.txt')
    found = nvlink.run({}, None, 20.0)
    assert (found["source"], found["error"]) == ("nvidia-smi", None)
    assert len(found["gpus"]) == 8
    assert found["gpus"][7]["links"][17] == {
        "link": 17,
        "state": "active",
        "speed": 26.562,
        "counters": {"replay": 0, "recovery": 0, "crc": 0},
        "other": {},
    }
    assert found["raw"]["s"] == STATUS


def test_run_with_a_lost_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = "Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost.  Reboot the system"
    fake_smi(tmp_path, monkeypatch, f"echo '{lost}'; exit 15")
    found = nvlink.run({}, None, 20.0)
    assert (found["source"], found["gpus"]) == ("none", [])
    assert found["error"] == "Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost"


def test_run_without_nvlink_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_smi(tmp_path, monkeypatch, "exit 0")
    found = nvlink.run({}, None, 20.0)
    assert (found["source"], found["gpus"], found["error"]) == ("none", [], None)


def test_run_when_the_tool_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_smi(tmp_path, monkeypatch, "exec sleep 60")
    assert nvlink.run({}, None, 1.0)["error"] == "nvidia-smi did not end in time"


def test_no_tool_is_started_where_nvml_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_smi(tmp_path, monkeypatch, f"touch {quote(str(tmp_path))}/asked")
    assert nvlink.run({"check": False}, None, 20.0)["source"] == "none"
    assert (tmp_path / "asked").exists()
    (tmp_path / "asked").unlink()
    monkeypatch.setattr(nvml, "open_library", Library)
    found = nvlink.run({"check": False}, None, 20.0)
    assert (found["source"], [len(gpu["links"]) for gpu in found["gpus"]]) == ("nvml", [2, 0])
    assert not (tmp_path / "asked").exists()


Played = tuple[str, float | None, dict[str, int | None]]


def judged(*gpus: list[Played], names: str = "AAAA", **more: Any) -> list[tuple[str, str]]:
    """Judge GPUs, each given as its links: state, speed, counters."""
    found = [
        {
            "index": index,
            "name": names[index],
            "links": [
                {"link": at, "state": state, "speed": speed, "counters": counters}
                for at, (state, speed, counters) in enumerate(links)
            ],
            **more,
        }
        for index, links in enumerate(gpus)
    ]
    return [(one["verdict"], one["text"]) for one in nvlink.judge({"gpus": found})]


FINE: Played = ("active", 25.0, {"crc": 0, "replay": None})
OFF: Played = ("inactive", None, {})


def test_healthy_links_are_not_bad() -> None:
    assert judged([FINE] * 4, [FINE] * 4) == []
    assert judged([OFF] * 3, [OFF] * 3) == [], "no bridge is plugged in"
    assert judged([FINE, OFF], [FINE, OFF]) == [], "one bridge on each"
    assert judged([FINE] * 4, [OFF] * 4, names="AB") == [], "another kind of GPU"
    assert judged([], []) == []


def test_a_gpu_with_fewer_links() -> None:
    text = "GPU 1: 10 of the 12 NVLinks that other GPUs have are active: 10, 11 inactive"
    assert judged([FINE] * 12, [FINE] * 10 + [OFF] * 2, [FINE] * 12) == [("bad", text)]
    text = "GPU 1: 0 of the 12 NVLinks that other GPUs have are active"
    assert judged([FINE] * 12, [OFF] * 12) == [("bad", text)]
    assert judged([FINE] * 12, [], all_inactive=True)[-1] == ("bad", text)
    text = "GPU 1: 0 of the 4 NVLinks that other GPUs have are active"
    assert judged([FINE] * 4, [OFF] * 4) == [("warn", text)], "there may be one bridge only"


def test_slow_links() -> None:
    slow: Played = ("active", 12.5, {})
    text = "GPU 1: NVLinks 0 are slower than the usual 25 GB/s"
    assert judged([FINE] * 4, [slow, FINE, FINE, FINE]) == [("warn", text)]


def test_counted_errors() -> None:
    noisy: Played = ("active", 25.0, {"crc": 3, "replay": 1, "fec_errors_0": 10**9, "tx_packets": 5})
    text = "GPU 0: NVLink errors since the driver was loaded: 3 crc, 1 replay"
    assert judged([noisy, FINE]) == [("note", text)]
    failed: Played = ("active", 25.0, {"link_recovery_failed_events": 1})
    assert judged([failed])[0][0] == "warn"


class Blackwell(Library):
    """A GPU 0 with NVLink5: its first link has many bit errors."""

    NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS = 215
    NVML_FI_DEV_NVLINK_COUNT_EFFECTIVE_BER = 220
    NVML_FI_DEV_NVLINK_COUNT_SYMBOL_BER = 222
    NVML_FI_DEV_NVLINK_COUNT_FEC_HISTORY_0 = 235
    NVML_FI_DEV_NVLINK_COUNT_FEC_HISTORY_15 = 250
    VALUES: ClassVar[dict[int, int]] = {164: 53125, 215: 40, 220: 3 << 8 | 8, 222: 15 << 8 | 255, 235: 10**9, 250: 20}

    def nvmlDeviceGetFieldValues(self, handle: int, fields: list[tuple[int, int]]) -> list[Any]:  # noqa: N802
        value = [SimpleNamespace(ullVal=self.VALUES[code], uiVal=self.VALUES[code]) for code, _ in fields]
        return [SimpleNamespace(nvmlReturn=0, valueType=1, value=one) for one in value]


def test_error_rates_from_nvml() -> None:
    link = nvlink.from_library(Blackwell())[0]["links"][0]
    assert link["speed"] == 53.125
    assert link["rates"] == {"effective_ber": 3e-8, "symbol_ber": 15e-255}
    assert link["fec"] == {"0": 10**9, "15": 20}
    assert link["counters"]["total_link_recovery_events"] == 40


def noisy(uptime: float | None = None, name: str = "NVIDIA GB200", **link: Any) -> list[tuple[str, str, str]]:
    """Judge a GPU whose link 7 has these values, and link 8 those of a healthy link."""
    healthy = {"state": "active", "speed": 53.125, "rates": {"effective_ber": 15e-255, "symbol_ber": 15e-255}}
    links = [{"link": 7, **healthy, **link}, {"link": 8, **healthy, "fec": {"0": 10**12, "3": 10**6}}]
    found = nvlink.judge({"gpus": [{"index": 3, "name": name, "links": links}], "uptime": uptime})
    return [
        (one["verdict"], one.get("check", ""), one["text"]) for one in found if one.get("check") != "nvlink-counters"
    ]


def test_bit_error_rates_above_their_limits() -> None:
    assert noisy() == []
    assert noisy(rates={"effective_ber": 1e-9, "symbol_ber": 1e-25}) == []
    assert noisy(rates={"effective_ber": 3e-8, "symbol_ber": 1.5e-11}) == [
        (
            "warn",
            "nvlink-error-rate",
            "GPU 3: NVLink 7: effective BER up to 3e-08 (limit 1e-09), symbol BER up to 1.5e-11 (limit 1e-25);"
            " limits of Google's health checks",
        )
    ]


def test_recoveries_in_an_hour() -> None:
    counters = {"total_link_recovery_events": 505}
    assert noisy(5 * 86400.0, counters=counters) == [
        (
            "warn",
            "nvlink-error-rate",
            "GPU 3: NVLink 7: up to 4.2 recoveries an hour since the node was booted, more than 1",
        )
    ]
    assert noisy(counters=counters) == [], "the time is unknown"
    assert noisy(900 * 3600.0, counters=counters) == []
    assert noisy(3600.0, counters={"total_link_recovery_events": 9}) == [], "links may recover when they start"


def test_the_tail_of_the_histogram_of_fec() -> None:
    ((verdict, check, text),) = noisy(fec={"0": 10**9, "12": 20, "15": 1, "x": 7})
    assert (verdict, check) == ("note", "nvlink-error-rate")
    assert text == (
        "GPU 3: NVLink 7: FEC had to correct 12 or more symbols in a share of up to 2.1e-08 of the codewords;"
        " no limit is published"
    )
    assert noisy(fec={"0": 10**12, "12": 20}) == []


@pytest.mark.parametrize("name", ["NVIDIA H100 NVL", "NVIDIA H100 PCIe", "NVIDIA RTX A6000"])
def test_links_without_a_bridge_are_inactive_by_design(name: str) -> None:
    """An H100 NVL has 12 of 18 links active with all of its bridges, and none without."""
    bridged = [{"link": at, "state": "inactive" if at % 6 > 3 else "active", "speed": 26.562} for at in range(18)]
    bare = [{"link": at, "state": "inactive", "speed": None} for at in range(18)]
    gpus = [{"index": at, "name": name, "links": links} for at, links in enumerate((bridged, bridged, bare, bare))]
    assert nvlink.judge({"gpus": gpus}) == []
    lines = [f"GPU {at}: {name} (UUID: GPU-{at})\n" for at in range(2)]
    lines[0] += "".join(f"\t Link {at}: {'<inactive>' if at % 6 > 3 else '26.562 GB/s'}\n" for at in range(18))
    lines[1] += "".join(f"\t Link {at}: <inactive>\n" for at in range(18))
    reading = nvlink_format.parse_nvlink_status("".join(lines))
    assert reading.warnings == []
    assert reading.values["gpus"][0]["links"][4]["state"] == "inactive"
