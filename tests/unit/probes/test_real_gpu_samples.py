"""Outputs of GPUs and kernels that people have posted; these are not ours to ship, so they are read where they lie."""

from __future__ import annotations

import csv
import re
from collections import Counter
from typing import Any

import pytest

from fabtui.importers.catalogue import formats
from fabtui.importers.formats import dcgmi
from fabtui_node.parsers import dmesg
from fabtui_node.parsers.base import Reading
from fabtui_node.parsers.nvidia import fabric_manager_log, query_csv, smi_nvlink, smi_query, smi_table, topo

from .places import REAL

#: The format of each folder.
FOLDERS = {
    "dcgmi-diag": "dcgmi-diag",
    "dcgmi-nvlink": "dcgmi-nvlink",
    "dmesg-mlx5": "dmesg",
    "dmesg-pcie": "dmesg",
    "dmesg-xid": "dmesg",
    "fabricmanager-log": "fabricmanager-log",
    "nvidia-smi": "nvidia-smi",
    "nvidia-smi-broken": "nvidia-smi",
    "nvidia-smi-nvlink-e": "nvidia-smi-nvlink-e",
    "nvidia-smi-nvlink-status": "nvidia-smi-nvlink-s",
    "nvidia-smi-q": "nvidia-smi-q",
    "nvidia-smi-remapped-rows": "nvidia-smi-remapped-rows",
    "nvidia-smi-topo-m": "nvidia-smi-topo-m",
    "nvidia-smi-topo-p2p": "nvidia-smi-topo-p2p",
}


def index() -> dict[str, str]:
    if not (REAL / "INDEX.csv").is_file():
        return {}
    with (REAL / "INDEX.csv").open(newline="") as file:
        found = {row["file"]: row["expect"] for row in csv.DictReader(file)}
    return {name: expect for name, expect in found.items() if name.partition("/")[0] in FOLDERS}


pytestmark = pytest.mark.skipif(not index(), reason="no real samples here (FABTUI_REAL_SAMPLES)")


def text(name: str) -> str:
    return (REAL / name).read_text()


def rows(folder: str) -> list[Any]:
    chosen = [(name, expect) for name, expect in index().items() if name.startswith(folder + "/")]
    return [pytest.param(name, expect, id=name) for name, expect in chosen] or [pytest.param("", "")]


def expected_value(expect: str, pattern: str) -> str | None:
    found = re.search(pattern, expect)
    return found.group(1) if found else None


def joined(words: str) -> str:
    return " ".join(words.split())


def test_every_folder_is_used() -> None:
    assert {name.partition("/")[0] for name in index()} == set(FOLDERS)


@pytest.mark.parametrize("name", index() or [""])
def test_each_file_is_known_by_its_look(name: str) -> None:
    if not text(name).strip():
        pytest.skip("an empty text looks like nothing; real samples")
    known = formats()
    wanted = FOLDERS[name.partition("/")[0]]
    likely = {form: known[form].likely(text(name)[:65536]) for form in known}
    assert max(likely, key=lambda form: likely[form]) == wanted, likely
    assert known[wanted].parse(text(name)).values


@pytest.mark.parametrize(("name", "expect"), rows("nvidia-smi"))
def test_table(name: str, expect: str) -> None:
    values = smi_table.parse_nvidia_smi(text(name)).values
    gpus = values["gpus"]
    assert len(gpus) == int(expected_value(expect, r"gpus=(\d+)") or -1)
    assert values["any_err"] == (expected_value(expect, r"any_err=(\w+)") == "true")
    if "525" in name:
        assert gpus[0]["fan"] is None
        assert gpus[0]["errors"] == {"fan": "ERR!"}
        assert [gpus[0][key] for key in ("temperature", "power", "power_limit")] == [38, 49, 450]
        assert (gpus[0]["memory_used"], gpus[0]["memory_total"], gpus[0]["utilization"]) == (2021, 23028, 0)
        assert gpus[0]["compute_mode"] == "E. Process"
    else:
        assert (values["driver"], values["cuda"]) == ("550.90.07", "12.4")
        assert {gpu["memory_total"] for gpu in gpus} == {81559}
        assert {gpu["ecc_uncorrected"] for gpu in gpus} == {0}
        assert gpus[0]["bus"] == "00000000:19:00.0"
        assert values["processes_told"] == "none"


@pytest.mark.parametrize(("name", "expect"), rows("nvidia-smi-broken"))
def test_broken(name: str, expect: str) -> None:
    values = smi_table.parse_nvidia_smi(text(name)).values
    (error,) = values["errors"]
    assert values["gpus"] == []
    assert error["kind"] == expected_value(expect, r"error=(\w+)")
    assert error["bus"] == expected_value(expect, r"(?:^|; )pci=([0-9A-F:.]+)")
    kernel = [(event["kind"], event["bus"], event["code"]) for event in values["kernel"]]
    assert kernel == ([("gpu_init", "0000:01:00.0", "0x22:0x56:884")] if "kernel: RmInitAdapter" in expect else [])
    reason = expected_value(expect, r"; reason=([^;]+)")
    assert reason is None or error["reason"] == reason


def links(reading: Reading) -> list[dict[str, Any]]:
    return [link for gpu in reading.values["gpus"] for link in gpu["links"]]


@pytest.mark.parametrize(("name", "expect"), rows("nvidia-smi-nvlink-e"))
def test_nvlink_errors(name: str, expect: str) -> None:
    reading = formats()["nvidia-smi-nvlink-e"].parse(text(name))
    assert len(reading.values["gpus"]) == int(expected_value(expect, r"gpus=(\d+)") or -1)
    assert len(links(reading)) == int(expected_value(expect, r"links(?: listed)?=(\d+)") or -1)
    wanted = {
        counter: int(expected_value(expect, rf"{counter}=(\d+)") or -1) for counter in ("replay", "recovery", "crc")
    }
    assert all(link["counters"] == wanted for link in links(reading))
    assert reading.unknown == []


@pytest.mark.parametrize(("name", "expect"), rows("nvidia-smi-nvlink-status"))
def test_nvlink_status(name: str, expect: str) -> None:
    reading = formats()["nvidia-smi-nvlink-s"].parse(text(name))
    gpus = reading.values["gpus"]
    assert len(gpus) == int(expected_value(expect, r"\bgpus=(\d+)") or -1)
    assert len(links(reading)) == int(expected_value(expect, r"links(?:_total| listed)?=(\d+)") or -1)
    speed = expected_value(expect, r"speed=([0-9.]+) GB/s")
    assert {link["speed"] for link in links(reading)} == ({float(speed)} if speed else set())
    assert any(gpu["all_inactive"] for gpu in gpus) == ("all_inactive" in expect)
    if "all_inactive" in expect:
        assert gpus[0]["index"] == 2
        assert any("inActive" in warning for warning in reading.warnings)
    if not gpus:
        assert reading.warnings == ["no output: a machine without NVLink prints none"]


@pytest.mark.parametrize(("name", "expect"), rows("nvidia-smi-q"))
def test_query(name: str, expect: str) -> None:
    reading = smi_query.parse_query(text(name))
    (gpu,) = reading.values["gpus"]
    assert gpu["bus"] == expected_value(expect, r"gpu=([0-9A-F:.]+)")
    assert gpu["ecc_errors"]["volatile"]["dram_correctable"] == int(expected_value(expect, r"volatile=(\d+)") or -1)
    remapped = gpu["remapped_rows"]
    found = (remapped["correctable"], remapped["uncorrectable"], remapped["pending"], remapped["failure"])
    assert found == (1, 0, True, False)
    assert any("left out" in warning for warning in reading.warnings)
    assert reading.unknown == []


@pytest.mark.parametrize(("name", "expect"), rows("nvidia-smi-remapped-rows"))
def test_remapped_rows(name: str, expect: str) -> None:
    reading = query_csv.parse_remapped(text(name))
    found = reading.values["rows"]
    assert len(found) == int(expected_value(expect, r"gpus=(\d+)") or -1)
    assert [row["remapped_rows.uncorrectable"] for row in found] == [0, 1, 0, 0]
    assert {(row["remapped_rows.pending"], row["remapped_rows.failure"]) for row in found} == {(False, False)}
    assert ["pending Yes" in line for line in reading.unknown] == [True]


def cell(values: dict[str, Any], row: str, column: str) -> Any:
    return values["cells"][values["rows"].index(row)][values["columns"].index(column)]


def device(word: str) -> str:
    return f"GPU{word}" if word.isdecimal() else word


@pytest.mark.parametrize(("name", "expect"), rows("nvidia-smi-topo-m"))
def test_topology(name: str, expect: str) -> None:
    reading = topo.parse_topology(text(name))
    values = reading.values
    for row, column, word in re.findall(r"\[(\w+)\]\[(\w+)\]=(\w+)", expect):
        assert cell(values, device(row), device(column)) == word
    size = expected_value(expect, r"matrix=(\d)x")
    if size:
        assert (len(values["rows"]), len(values["columns"]), values["complete"]) == (int(size), int(size), True)
    counts = re.search(r"rows(?: shown)?=(\d+)(?: of (\d+))?", expect)
    if counts:
        assert len(values["rows"]) == int(counts.group(1))
        assert not values["complete"]
        assert any("cut off" in warning for warning in reading.warnings)
        assert counts.group(2) is None or len(values["columns"]) == int(counts.group(2))
    for key, pattern in (("gpus", r"(?:\bgpus|GPU columns)=(\d+)"), ("nic_count", r"(?:\bnics|NIC columns)=(\d+)")):
        wanted = expected_value(expect, pattern)
        assert wanted is None or values[key] == int(wanted)
    affinity = values["affinity"]
    for gpu, cpus in re.findall(r"(?:cpu|cpu_affinity) (?i:gpu)(\d)=([0-9,-]+)", expect):
        assert affinity[f"GPU{gpu}"]["cpu"] == cpus
    for gpu, cpus in re.findall(r"cpu_affinity GPU(\d)=([0-9,]+)", expect):
        assert affinity[f"GPU{gpu}"]["cpu"] == cpus
    for gpu, numa in re.findall(r"numa (?i:gpu)(\d)=(\d)", expect):
        assert affinity[f"GPU{gpu}"]["numa"] == numa
    if "numa=N/A" in expect:
        assert {row["numa"] for row in affinity.values()} == {None}
    pairs = Counter(word for at, row in enumerate(values["cells"]) for word in row[at + 1 :])
    for word, count in re.findall(r"(PIX|NODE|SYS)=(\d+)", expect):
        assert pairs[word] == int(count)
    if "all off-diagonal NV18" in expect:
        assert set(pairs) == {"NV18"}
    if "NIC rows have no affinity" in expect:
        assert affinity["NIC0"] == {"cpu": None, "numa": None, "gpu_numa_id": None}


@pytest.mark.parametrize(("name", "expect"), rows("nvidia-smi-topo-p2p"))
def test_p2p(name: str, expect: str) -> None:
    values = topo.parse_p2p(text(name)).values
    size = int(expected_value(expect, r"matrix=(\d)x") or -1)
    assert (len(values["rows"]), len(values["columns"])) == (size, size)
    words = Counter(word for row in values["cells"] for word in row if word != "X")
    if "CNS" in expect:
        assert words == {"CNS": 2}
        assert values["p2p"] is False
    else:
        assert words == {"OK": 56}
        assert (values["bad"], values["p2p"]) == ([], True)


@pytest.mark.parametrize(("name", "expect"), rows("dcgmi-diag"))
def test_diag(name: str, expect: str) -> None:
    reading = dcgmi.parse_diag(text(name))
    values = reading.values
    assert reading.unknown == []
    by_name = {test["test"]: test for test in values["tests"]}
    if "gpu-memory" in name:
        entities = by_name["GPU Memory"]["entities"]
        assert [number for _, number, word in entities if word == "Pass"] == [1, 2, 3, 4, 5, 6, 7]
        assert [number for _, number, word in entities if word == "Fail"] == [0]
        (message,) = values["messages"]
        assert message["text"].startswith("GPU 0 Thermal violations totaling 13.3 seconds started at 9.7 seconds")
        assert message["text"].endswith("fans, and any other components.")
    elif "row-remap" in name:
        (message,) = values["messages"]
        wanted = joined(expected_value(expect, r'Error="([^"]+)"') or "")
        assert (message["kind"], message["section"], message["gpus"]) == ("error", "Deployment", [3])
        assert joined(message["text"]) == wanted
    elif "nvlink-down" in name:
        assert (by_name["PCIe"]["result"], by_name["PCIe"]["of"]) == ("Fail", "All")
        (message,) = values["messages"]
        assert re.findall(r"NvLink link (\d+) is currently down", message["text"]) == ["0", "1", "2", "3"]
        assert message["gpus"] == [0]
    else:
        assert (values["dcgm"], values["driver"]) == ("3.3.7", "560.35.03")
        assert by_name["Denylist"]["result"] == "Pass"
        assert values["failed"] == []


@pytest.mark.parametrize(("name", "expect"), rows("dcgmi-nvlink"))
def test_link_status(name: str, expect: str) -> None:
    values = dcgmi.parse_link_status(text(name)).values
    wanted = {key: int(count) for key, count in re.findall(r"(\w+)=(\d+)", expect)}
    found = {"gpus": len(values["gpus"]), "links": values["links_total"], "switches": len(values["switches"])}
    assert found | {"down": values["down"], "up": values["up"]} == wanted


@pytest.mark.parametrize(("name", "expect"), rows("fabricmanager-log"))
def test_fabric_manager(name: str, expect: str) -> None:
    assert "continuation" in expect
    reading = fabric_manager_log.parse_log(text(name))
    values = reading.values
    assert values["records"] == sum(1 for line in text(name).splitlines() if line.startswith("["))
    assert reading.unknown == []
    (event,) = values["events"]
    assert (event["kind"], event["code"], event["fatal"], event["port"]) == ("nvswitch", 12028, False, 61)
    assert event["bus"] == "00000000:86:00.0"


def events(name: str, kind: str) -> list[dict[str, Any]]:
    return [event for event in dmesg.parse_kernel(text(name)).values["events"] if event["kind"] == kind]


@pytest.mark.parametrize(("name", "expect"), rows("dmesg-xid"))
def test_xids(name: str, expect: str) -> None:
    reading = dmesg.parse_kernel(text(name))
    values = reading.values
    assert reading.unknown == []
    found = events(name, "xid")
    for number in re.findall(r"(?:\bxid|Xid)=(\d+)", expect):
        assert found[0]["code"] == int(number)
    for number, count in re.findall(r"count\((\d+)\)=(\d+)", expect):
        assert values["xids"][number] == int(count)
    seen = expected_value(expect, r"xids seen: ([\d,]+)")
    assert seen is None or set(values["xids"]) == set(seen.split(","))
    distinct = expected_value(expect, r"distinct events=(\d+)")
    assert distinct is None or len(found) == int(distinct)
    bus = expected_value(expect, r"pci=([0-9a-f:.]+)")
    assert {event["bus"] for event in [*found, *events(name, "gpu_init")]} == {bus}
    if "pid=" in expect:
        assert found[0]["pid"] == int(expected_value(expect, r"pid=(\d+)") or -1)
    assert "name=nvidia-smi" not in expect or found[0]["name"] == "nvidia-smi"
    serial = expected_value(expect, r"serial[= ](\d+)")
    assert serial is None or values["boards"][0]["serial"] == serial
    assert "text contains Row Remapper" not in expect or "Row Remapper" in found[0]["text"]
    if "AER" in expect:
        aer = [(event["code"], event["type"], event["detail"]) for event in events(name, "aer")]
        wanted = [("corrected", "Data Link Layer", "Replay Timer Timeout")]
        assert aer == [*wanted, ("fatal", "Transaction Layer", "Surprise Down Error")]
    if "RmInitAdapter" in expect:
        assert values["xids"] == {}
        assert [event["code"] for event in events(name, "gpu_init")] == ["0x24:0x72:1568"] * 3
        assert [event["minor"] for event in events(name, "gpu_init")] == [5] * 3


@pytest.mark.parametrize(("name", "expect"), rows("dmesg-pcie"))
def test_pcie_limited(name: str, expect: str) -> None:
    found = events(name, "pcie_limited")
    assert [event["bus"] for event in found] == ["0000:04:00.0", "0000:8b:00.0"]
    assert {event["ratio"] for event in found} == {float(expected_value(expect, r"ratio=([\d.]+)") or -1)}
    limits = {(event["available"], event["capable"], event["speed"], event["width"]) for event in found}
    assert limits == {(252.048, 504.112, 16.0, 16)}


@pytest.mark.parametrize(("name", "expect"), rows("dmesg-mlx5"))
def test_mlx5(name: str, expect: str) -> None:
    assert "not limited" in expect
    reading = dmesg.parse_kernel(text(name))
    (bandwidth,) = events(name, "pcie_bandwidth")
    assert [bandwidth[key] for key in ("bus", "available", "speed", "width")] == ["0004:01:00.0", 63.008, 8.0, 8]
    assert [event["code"] for event in events(name, "module")] == ["plugged"]
    assert (len(reading.values["events"]), reading.warnings) == (2, [])
    assert reading.values["devices"] == {"0004:01:00.0": {"firmware": "16.27.2048"}}


def test_the_kernel_lines_beside_no_devices() -> None:
    (event,) = events("nvidia-smi-broken/no-devices-found-plus-syslog.txt", "gpu_init")
    assert (event["bus"], event["code"]) == ("0000:01:00.0", "0x22:0x56:884")


def test_the_shared_parsers_are_those_of_the_probe() -> None:
    name = "nvidia-smi-nvlink-status/a100-8gpu-12links-25.txt"
    assert (
        smi_nvlink.parse_nvlink_status(text(name)).values["gpus"]
        == formats()["nvidia-smi-nvlink-s"].parse(text(name)).values["gpus"]
    )
