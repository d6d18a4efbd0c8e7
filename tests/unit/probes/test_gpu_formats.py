"""The formats of GPU tools on outputs of one whole host."""

from __future__ import annotations

from typing import Any

import pytest

from fabtui.importers.catalogue import formats
from fabtui_node.parsers.base import Reading
from fabtui_node.parsers.nvidia import fabric_manager_log, topo

from .places import sample

GPUS = range(8)
BUSES = [f"00000000:00:{number:02X}.0" for number in range(6, 14)]
UUID = "GPU-0dd4612e-2829-6556-0dbf-0ce241d29412"


def read(form: str, text: str) -> Reading:
    reading = formats()[form].parse(text)
    assert reading.unknown == [], reading.unknown
    return reading


def test_the_table_of_a_whole_host() -> None:
    reading = read("nvidia-smi", sample("h200x8/smi.txt"))
    values = reading.values
    assert reading.warnings == []
    assert (values["smi"], values["driver"], values["cuda"]) == ("580.159.04", "580.159.04", "13.0")
    gpus = values["gpus"]
    assert [gpu["index"] for gpu in gpus] == list(GPUS)
    assert [gpu["bus"] for gpu in gpus] == BUSES
    assert [gpu["power"] for gpu in gpus] == [78, 77, 82, 78, 78, 76, 80, 77]
    assert {(gpu["power_limit"], gpu["memory_total"], gpu["mig"], gpu["persistence"]) for gpu in gpus} == {
        (700, 143771, "Disabled", True)
    }
    assert values["processes_told"] == "none"
    assert values["any_err"] is False


def test_the_list_of_a_whole_host() -> None:
    gpus = read("nvidia-smi-L", sample("h200x8/smi-L.txt")).values["gpus"]
    assert [gpu["index"] for gpu in gpus] == list(GPUS)
    assert gpus[0] == {"index": 0, "name": "NVIDIA H200", "uuid": UUID, "mig": []}


def test_everything_of_a_whole_host() -> None:
    reading = read("nvidia-smi-q", sample("h200x8/nvidia-smi-q.txt"))
    values = reading.values
    assert reading.warnings == []
    assert (values["driver"], values["cuda"], values["attached"]) == ("580.159.04", "13.0", 8)
    assert [gpu["bus"] for gpu in values["gpus"]] == BUSES
    gpu = values["gpus"][0]
    assert (gpu["uuid"], gpu["vbios"], gpu["minor"]) == (UUID, "96.00.A5.00.1A", 0)
    pcie = gpu["pcie"]
    assert [pcie[key] for key in ("generation", "generation_max", "width", "width_max")] == [5, 5, 16, 16]
    assert pcie["generation_host_max"] is None
    assert gpu["ecc"] == {"current": "Enabled", "pending": "Enabled"}
    assert gpu["ecc_errors"]["volatile"]["dram_uncorrectable"] == 0
    assert gpu["ecc_errors"]["unrepairable_memory"] is False
    assert gpu["remapped_rows"]["banks"] == {"max": 3072, "high": 0, "partial": 0, "low": 0, "none": 0}
    assert [name for name, active in gpu["clocks_event_reasons"].items() if active] == ["idle"]
    assert gpu["clocks_event_reasons"]["hw_power_brake_slowdown"] is False
    assert (gpu["clocks"]["sm"], gpu["max_clocks"]["sm"]) == (345, 1980)
    assert (gpu["power"]["current_power_limit"], gpu["temperature"]["gpu_current_temp"]) == (700, 34)
    assert gpu["memory"] == {"total": 143771, "reserved": 616, "used": 0, "free": 143156}
    assert (gpu["fabric"]["state"], gpu["fabric"]["status"], gpu["fabric"]["clique"]) == ("Completed", "Success", 0)
    assert gpu["fabric"]["health"]["bandwidth"] is None
    assert gpu["processes"] == []


def test_fields_as_csv() -> None:
    values = read("nvidia-smi-query", sample("h200x8/qgpu.txt")).values
    assert len(values["rows"]) == 8
    assert values["rows"][2] == {
        "index": 2,
        "name": "NVIDIA H200",
        "uuid": "GPU-5bb4d5f7-62b5-3908-1804-8b9915c14107",
        "pci.bus_id": "00000000:00:08.0",
        "vbios_version": "96.00.A5.00.1A",
        "driver_version": "580.159.04",
        "pcie.link.gen.current": 5,
        "pcie.link.gen.max": 5,
        "pcie.link.width.current": 16,
        "pcie.link.width.max": 16,
        "temperature.gpu": 34,
        "utilization.gpu": 0,
        "memory.used": 0,
        "memory.total": 143771,
        "power.draw": 82.44,
        "ecc.errors.uncorrected.volatile.total": 0,
    }
    units = {name: values["units"][name] for name in ("memory.used", "power.draw", "utilization.gpu")}
    assert units == {"memory.used": "MiB", "power.draw": "W", "utilization.gpu": "%"}


def test_remapped_rows_of_a_whole_host() -> None:
    reading = read("nvidia-smi-remapped-rows", sample("h200x8/remapped.txt"))
    assert [row["gpu_bus_id"] for row in reading.values["rows"]] == BUSES
    assert reading.warnings == []


def test_the_remote_ends_that_a_virtual_machine_does_not_see() -> None:
    gpus = read("nvidia-smi-nvlink-R", sample("h200x8/nvlink-R.txt")).values["gpus"]
    assert [len(gpu["links"]) for gpu in gpus] == [18] * 8
    assert gpus[7]["links"][17] == {"link": 17, "remote_bus": None, "remote_link": None}


def test_remote_ends() -> None:
    text = "GPU 0: NVIDIA A100 (UUID: GPU-1)\n\t Link 3: Remote Device 00000000:C7:00.0: Link 31\n"
    (gpu,) = read("nvidia-smi-nvlink-R", text).values["gpus"]
    assert gpu["links"] == [{"link": 3, "remote_bus": "00000000:C7:00.0", "remote_link": 31}]


def test_capabilities() -> None:
    gpus = read("nvidia-smi-nvlink-c", sample("h200x8/nvlink-c.txt")).values["gpus"]
    assert [len(gpu["links"]) for gpu in gpus] == [18] * 8
    assert gpus[0]["links"][17]["supported"] == {
        "p2p": True,
        "access_to_system_memory": True,
        "p2p_atomics": True,
        "system_memory_atomics": True,
        "sli": True,
        "link": True,
    }


def test_topology_of_a_whole_host() -> None:
    values = read("nvidia-smi-topo-m", sample("h200x8/topo-m.txt")).values
    assert values["columns"] == [f"GPU{number}" for number in GPUS]
    assert values["complete"] is True
    assert {word for at, row in enumerate(values["cells"]) for word in row[at + 1 :]} == {"NV18"}
    assert values["affinity"]["GPU7"] == {"cpu": "0-127", "numa": "0", "gpu_numa_id": None}
    assert values["legend"]["NV#"] == "Connection traversing a bonded set of # NVLinks"


@pytest.mark.parametrize("letter", topo.CAPABILITIES)
def test_p2p_of_a_whole_host(letter: str) -> None:
    if letter == "p":
        text = sample("h200x8/topo-p2p-r.txt").replace("-p2p r", "-p2p p").replace("OK\t", "CNS\t", 1)
        values = read("nvidia-smi-topo-p2p", text).values
        assert values["bad"] == [["GPU0", "GPU1", "CNS"]]
        assert (values["capability"], values["p2p"]) == ("pcie", False)
        return
    values = read("nvidia-smi-topo-p2p", sample(f"h200x8/topo-p2p-{letter}.txt")).values
    assert (values["p2p"], values["bad"]) == (True, [])
    assert values["capability"] == topo.CAPABILITIES[letter]


@pytest.mark.parametrize("cut", range(0, 1100, 37))
def test_a_cut_matrix_is_never_complete(cut: int) -> None:
    text = sample("h200x8/topo-p2p-r.txt")
    body = text.index("Legend")
    values = topo.parse_p2p(text[: min(cut, body - 8)]).values
    assert values["complete"] is False
    assert values["p2p"] is None


DIAG_4 = """\
Successfully ran diagnostic for group.
+---------------------------+------------------------------------------------+
| Diagnostic                | Result                                         |
+===========================+================================================+
|-----  Metadata  ----------+------------------------------------------------|
| DCGM Version              | 4.4.2                                          |
| Driver Version Detected   | 580.95.05                                      |
| GPU Device IDs Detected   | 2330, 2330                                     |
|-----  Deployment  --------+------------------------------------------------|
| software                  | Pass                                           |
|                           | GPU0: Pass                                     |
|                           | GPU1: Pass                                     |
+-----  Hardware  ----------+------------------------------------------------+
| memory                    | Fail                                           |
|                           | GPU0: Pass                                     |
|                           | GPU1: Fail                                     |
| Warning: GPU1             | A volatile double-bit ECC error was seen on G  |
|                           | PU 1. Drain the GPU and reset it.              |
| nvbandwidth               | Skip                                           |
|                           | GPU0: Skip                                     |
+---------------------------+------------------------------------------------+
"""


def test_a_diagnostic_of_dcgm_4() -> None:
    values = read("dcgmi-diag", DIAG_4).values
    assert (values["dcgm"], values["driver"], values["devices"]) == ("4.4.2", "580.95.05", "2330, 2330")
    assert [(test["section"], test["test"], test["result"]) for test in values["tests"]] == [
        ("Deployment", "software", "Pass"),
        ("Hardware", "memory", "Fail"),
        ("Hardware", "nvbandwidth", "Skip"),
    ]
    assert values["tests"][1]["entities"] == [["GPU", 0, "Pass"], ["GPU", 1, "Fail"]]
    (message,) = values["messages"]
    assert (message["kind"], message["test"], message["gpus"]) == ("warning", "memory", [1])
    assert message["text"] == "A volatile double-bit ECC error was seen on GPU 1. Drain the GPU and reset it."
    assert values["failed"] == ["memory"]
    assert formats()["dcgmi-diag"].parse("nothing of the kind").warnings == ["no result in this text"]


def test_links_of_switches() -> None:
    text = "GPUs:\n    gpuId 0:\n        U U D X\nNvSwitches:\n    physicalId 8:\n        U D _ _\n"
    values = formats()["dcgmi-nvlink"].parse(text).values
    assert (values["up"], values["down"], values["disabled"], values["links_total"]) == (2, 1, 1, 4)
    assert values["switches"] == [{"id": 8, "links": ["up", "down", "unsupported", "unsupported"]}]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("SXid (PCI:0000:c1:00.0): 23001, Fatal, Link 12 x", "nvswitch"),
        (
            "fabric manager NVIDIA GPU driver interface version 550.127.05 doesn't match with driver version 550.120",
            "version",
        ),
        ("not all the available links are trained", "topology"),
        ("something else", "other"),
    ],
)
def test_reports_of_the_fabric_manager(text: str, kind: str) -> None:
    record = "[Jul 09 2024 18:14:07] [ERROR] [tid 12727] " + text
    (event,) = fabric_manager_log.parse_log(record).values["events"]
    assert event["kind"] == kind
    assert event["time"] == "Jul 09 2024 18:14:07"


def test_the_version_of_the_fabric_manager() -> None:
    assert fabric_manager_log.parse_version("\n\tFabric Manager version is : 535.161.08\n") == "535.161.08"
    assert fabric_manager_log.parse_version("command not found") is None


@pytest.mark.parametrize("name", formats())
def test_each_format_is_whole(name: str) -> None:
    form = formats()[name]
    empty: Any = form.parse("")
    assert isinstance(empty, Reading)
    assert form.title
    assert 0 <= form.likely("") <= 1


def test_an_error_rate_beyond_a_double_stays_text() -> None:
    text = "GPU 0: NVIDIA H200 (UUID: GPU-1)\n\t Link 0: Effective BER: 15e-255\n\t Link 1: Effective BER: 15e255\n"
    text += "\t Link 2: Effective BER: 15e999\n"
    first, *others = read("nvidia-smi-nvlink-e", text).values["gpus"][0]["links"]
    assert first["rates"] == dict.fromkeys(first["other"], 1.5e-254)
    assert [link.get("rates") for link in others] == [None, None]
    assert all(link["other"] for link in others)


VERBOSE = """\
+-----  Integration  -------+------------------------------------------------+
| PCIe                      | Pass - All                                     |
| Info                      | GPU 0 GPU to Host bandwidth:  13.13 GB/s, GPU  |
|                           |  0 Host to GPU bandwidth:  12.37 GB/s          |
+-----  Hardware  ----------+------------------------------------------------+
| Diagnostic                | Pass - All                                     |
| EUD Test                  | Skip - All                                     |
"""


def test_a_diagnostic_with_more_details() -> None:
    reading = read("dcgmi-diag", VERBOSE)
    found = [(test["test"], test["result"], test["of"]) for test in reading.values["tests"]]
    assert found == [("PCIe", "Pass", "All"), ("Diagnostic", "Pass", "All"), ("EUD Test", "Skip", "All")]
    (message,) = reading.values["messages"]
    assert message["kind"] == "info"
    assert message["text"].endswith("13.13 GB/s, GPU 0 Host to GPU bandwidth:  12.37 GB/s")
    assert reading.warnings == []
