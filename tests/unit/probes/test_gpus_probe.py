"""The probes ``gpus`` and ``gpuload`` on a played NVML and a played nvidia-smi."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fabtui_node.parsers.nvidia import smi_query
from fabtui_node.probes.nvidia import gpu_health, gpu_rules, nvml
from fabtui_node.system import run_command

from .places import Tree, sample
from .playednvml import LOST, NO_PERMISSION, NOT_SUPPORTED, RESET, UNKNOWN, FabricInfo, PlayedNvml


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> PlayedNvml:
    library = PlayedNvml()
    monkeypatch.setattr(nvml, "open_library", lambda: library)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return library


Smi = Callable[..., None]


@pytest.fixture
def smi(monkeypatch: pytest.MonkeyPatch) -> Smi:
    """Play commands: what each of them prints, by its first or second word; all others are missing."""

    def play(**prints: str | tuple[int, str]) -> None:
        def run(argv: Any, deadline: float, *args: Any, **more: Any) -> run_command.CommandResult:
            key = {"nvidia-smi": "query" if argv[1].startswith("--") else "q"}.get(argv[0], Path(argv[0]).name)
            answer = prints.get(key.replace("-", "_"))
            if answer is None:
                return run_command.CommandResult(list(argv), None, "", "", missing=True)
            code, text = answer if isinstance(answer, tuple) else (0, answer)
            return run_command.CommandResult(list(argv), code, text, "")

        monkeypatch.setattr(run_command, "run", run)
        monkeypatch.setattr(
            run_command, "find", lambda name: f"/usr/bin/{name}" if name.replace("-", "_") in prints else None
        )

    play()
    return play


def look(tree: Tree, **args: Any) -> dict[str, Any]:
    value = gpu_health.run(args, lambda part: None, 10.0, root=str(tree.root), proc=str(tree.root / "proc"))
    json.dumps(value)
    return value


def judged(value: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(one["subject"], one["verdict"], one["text"]) for one in gpu_health.judge(value)]


def test_healthy_gpus(tree: Tree, played: PlayedNvml, smi: Smi) -> None:
    value = look(tree)
    assert (value["source"], value["driver"], value["cuda"], value["error"]) == ("nvml", "580.159.04", "13.0", None)
    gpu = value["gpus"][1]
    assert (gpu["index"], gpu["nvml_index"], gpu["uuid"], gpu["bus"]) == (1, 1, "GPU-1", "0000:01:00.0")
    assert gpu["pcie"] == {
        "generation": 5,
        "generation_max": 5,
        "generation_device_max": 5,
        "width": 16,
        "width_max": 16,
        "replays": 0,
    }
    assert (gpu["busy"], gpu["utilization"], gpu["perf"], gpu["reasons"]) == (False, 0, "P0", ["idle"])
    assert gpu["clocks"] == {"sm": 345, "memory": 345, "sm_max": 1980, "memory_max": 1980}
    assert (gpu["power"], gpu["power_limit"], gpu["temperature"], gpu["temperature_slowdown"]) == (78.1, 700.0, 34, 87)
    assert (gpu["ecc"], gpu["mig"]) == ({"on": True, "next": True}, {"on": False, "next": False})
    assert gpu["rows"] == {"correctable": 0, "uncorrectable": 0, "pending": False, "failure": False}
    assert (gpu["retired_pending"], gpu["compute_mode"], gpu["persistence"]) == (None, "default", True)
    assert gpu["fabric"] == {
        "state": "completed",
        "status": "success",
        "clique": 0,
        "cluster": None,
        "summary": None,
        "unhealthy": [],
    }
    assert (gpu["recovery"], gpu["errors"], gpu["lost"]) == ("none", {}, None)
    assert played.asked["nvmlShutdown"] == 1
    assert judged(value) == []


def test_one_question_that_fails_leaves_the_others(tree: Tree, played: PlayedNvml, smi: Smi) -> None:
    played.fails = {
        (0, "nvmlDeviceGetPowerUsage"): UNKNOWN,
        (0, "nvmlDeviceGetTotalEccErrors"): NO_PERMISSION,
        "nvmlDeviceGetMigMode": NOT_SUPPORTED,
    }
    value = look(tree)
    first, second = value["gpus"]
    assert (first["power"], second["power"]) == (None, 78.1)
    assert first["mig"] == {"on": None, "next": None}
    assert first["errors"] == {"power": "Unknown Error (NVML error 999)", "ecc_errors": "not permitted"}
    assert second["errors"] == {}
    assert judged(value) == [("gpus", "warn", "GPU 0: power cannot be read: Unknown Error (NVML error 999)")]


@pytest.mark.parametrize(("code", "word"), [(LOST, "GPU is lost"), (RESET, "GPU requires reset")])
@pytest.mark.parametrize("question", ["nvmlDeviceGetHandleByIndex", "nvmlDeviceGetName", "nvmlDeviceGetUUID"])
def test_a_dead_gpu(tree: Tree, played: PlayedNvml, smi: Smi, code: int, word: str, question: str) -> None:
    played.fails[1, question] = code
    value = look(tree)
    assert [gpu["lost"] for gpu in value["gpus"]] == [None, word]
    assert judged(value) == [("gpus", "bad", f"GPU 1: {word}; reset it or reboot the node")]
    # A GPU that is gone is not asked on and on: each question may take the driver seconds.
    assert played.asked["nvmlDeviceGetPowerUsage"] == 1


def test_an_old_driver_lacks_functions(tree: Tree, played: PlayedNvml, smi: Smi) -> None:
    played.lacks = {
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetGpuFabricInfoV",
        "nvmlDeviceGetRemappedRows",
    }
    played.overrides["nvmlDeviceGetCurrentClocksThrottleReasons"] = 0x40
    value = look(tree)
    assert value["gpus"][0]["reasons"] == ["hw_thermal_slowdown"]
    assert (value["gpus"][0]["fabric"], value["gpus"][0]["rows"]) == (None, None)
    assert judged(value) == [("clocks", "bad", "GPUs 0-1: it is too hot and the hardware slows it down")]


def test_answers_that_make_no_sense(tree: Tree, played: PlayedNvml, smi: Smi) -> None:
    for name in PlayedNvml._USUAL:
        played.overrides[name] = "?" if name != "nvmlDeviceGetGpuFabricInfoV" else None
    value = look(tree)
    assert value["gpus"][0]["pcie"]["width"] is None
    assert value["gpus"][0]["rows"] is None
    assert value["error"] is None
    gpu_health.judge(value)


def _fabric(**fields: Any) -> Any:
    def fill(info: FabricInfo) -> int:
        vars(info).update(fields)
        return 0

    return fill


@pytest.mark.parametrize(
    ("fields", "verdicts"),
    [
        ({"state": 0}, []),
        ({"state": 2}, ["the NVLink fabric is in progress: CUDA fails with 'system not yet initialized'"]),
        ({"status": 5}, ["joining the NVLink fabric ended with error number 5"]),
        ({"healthMask": 0b01 | 0b10 << 2}, ["NVLink fabric: degraded bandwidth"]),
        ({"healthMask": 4 << 8}, ["NVLink fabric: incorrect configuration: no partition"]),
        ({"healthMask": 14 << 8}, ["NVLink fabric: incorrect configuration: code 14"]),
        ({"healthMask": 1 << 8 | 1 << 12 | 1 << 14}, []),
        (
            {"healthMask": 2 << 12 | 2 << 14},
            ["NVLink fabric: no partition assigned", "NVLink fabric: global Fabric Manager not connected"],
        ),
        ({"healthSummary": 3}, ["the NVLink fabric is limited capacity"]),
        ({"clusterUuid": b"\1" * 16, "cliqueId": 7}, []),
    ],
)
def test_the_nvlink_fabric(
    tree: Tree, played: PlayedNvml, smi: Smi, fields: dict[str, Any], verdicts: list[str]
) -> None:
    played.overrides[0, "nvmlDeviceGetGpuFabricInfoV"] = _fabric(**fields)
    value = look(tree)
    assert judged(value) == [("fabric", "bad", f"GPU 0: {text}") for text in verdicts]
    if "cliqueId" in fields:
        fabric = value["gpus"][0]["fabric"]
        assert (fabric["clique"], fabric["cluster"]) == (7, "01010101-0101-0101-0101-010101010101")


@pytest.mark.parametrize(
    ("name", "answer", "judgement"),
    [
        ("nvmlDeviceGetRemappedRows", (1, 0, 1, 0), ("ecc", "warn", "will be replaced by spare memory")),
        ("nvmlDeviceGetRemappedRows", (0, 1, 0, 1), ("ecc", "bad", "remapping a row of its memory failed")),
        ("nvmlDeviceGetTotalEccErrors", 3, ("ecc", "bad", "3 uncorrected memory errors")),
        ("nvmlDeviceGetEccMode", [0, 0], ("ecc", "note", "ECC is off")),
        ("nvmlDeviceGetEccMode", [1, 0], ("ecc", "note", "ECC will be off after the next reset")),
        ("nvmlDeviceGetMigMode", [1, 1], ("mig", "note", "MIG is on")),
        ("nvmlDeviceGetComputeMode", 2, ("gpus", "bad", "prohibited")),
        ("nvmlDeviceGetComputeMode", 3, ("gpus", "note", "exclusive")),
        ("nvmlDeviceGetPersistenceMode", 0, ("gpus", "note", "persistence mode is off")),
        ("nvmlDeviceGetEnforcedPowerLimit", 400000, ("clocks", "note", "its power limit is 400 W, by default 700 W")),
        ("nvmlDeviceGetCurrPcieLinkWidth", 8, ("pcie", "warn", "PCIe at x8 of x16 while idle")),
        ("nvmlDeviceGetGpuMaxPcieLinkGeneration", 6, ("pcie", "note", "its slot gives PCIe generation 5")),
        ("nvmlDeviceGetCurrentClocksEventReasons", 0x88, ("clocks", "bad", "power supply slows it down")),
        ("nvmlDeviceGetCurrentClocksEventReasons", 0x8, ("clocks", "bad", "the hardware halves its clocks")),
        (
            "nvmlDeviceGetFieldValues",
            [SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(uiVal=1))],
            ("gpus", "bad", "the driver asks for recovery: GPU reset"),
        ),
    ],
)
def test_what_is_bad(
    tree: Tree, played: PlayedNvml, smi: Smi, name: str, answer: Any, judgement: tuple[str, str, str]
) -> None:
    played.overrides[1, name] = answer
    (found,) = judged(look(tree))
    assert found[:2] == judgement[:2]
    assert found[2].startswith("GPU 1: ")
    assert judgement[2] in found[2]


def test_an_idle_gpu_may_lower_its_generation(tree: Tree, played: PlayedNvml, smi: Smi) -> None:
    played.overrides["nvmlDeviceGetCurrPcieLinkGeneration"] = 1
    assert judged(look(tree)) == []
    played.overrides["nvmlDeviceGetUtilizationRates"] = SimpleNamespace(gpu=50)
    value = look(tree)
    assert value["gpus"][0]["busy"] is True
    assert judged(value) == [("pcie", "bad", "GPUs 0-1: PCIe generation 1 of 5 under load")]


def test_visible_devices(tree: Tree, played: PlayedNvml, smi: Smi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    value = look(tree)
    assert [(gpu["index"], gpu["nvml_index"]) for gpu in value["gpus"]] == [(0, 1)]
    assert value["all_visible"] is False


TABLE = (
    "index, uuid, pci.bus_id, driver_version, vbios_version, pcie.link.width.max, ecc.mode.current\n"
    "0, GPU-0, 00000000:00:00.0, 580.159.04, 96.00.A5.00.1A, 16, Enabled\n"
    "1, GPU-1, 00000000:01:00.0, 580.159.04, 96.00.A5.00.1A, 16, Enabled\n"
)


def test_nvidia_smi_agrees(tree: Tree, played: PlayedNvml, smi: Smi) -> None:
    smi(query=TABLE)
    value = look(tree)
    assert (value["disagreements"], value["problems"], value["raw"]) == ([], [], "")


def test_nvidia_smi_contradicts(tree: Tree, played: PlayedNvml, smi: Smi) -> None:
    text = TABLE.replace("96.00.A5.00.1A", "96.00.FF.00.00", 1).replace("GPU-1,", "GPU-9,").replace("580.", "570.")
    smi(query=text)
    value = look(tree)
    assert value["disagreements"] == [
        "GPU 0: vbios is 96.00.A5.00.1A by NVML and 96.00.FF.00.00 by nvidia-smi",
        "nvidia-smi does not list GPU 1 (GPU-1)",
        "the driver is 580.159.04 by NVML and 570.159.04 by nvidia-smi",
        "NVML does not list GPU-9",
    ]
    assert value["raw"] == text.strip()
    assert {verdict for _, verdict, _ in judged(value)} == {"warn"}


def test_nvidia_smi_is_not_asked_beside_tests(tree: Tree, played: PlayedNvml, smi: Smi) -> None:
    smi(query=TABLE)
    assert look(tree, check=False)["raw"] == ""


def test_nvidia_smi_complains(tree: Tree, played: PlayedNvml, smi: Smi) -> None:
    smi(query=(15, "Unable to determine the device handle for GPU1: 0000:01:00.0: Unknown Error\n"))
    value = look(tree)
    problem = "Unable to determine the device handle for GPU 0000:01:00.0: Unknown Error"
    assert value["problems"] == [problem]
    assert judged(value) == [("gpus", "bad", f"nvidia-smi: {problem}")]


def unavailable() -> None:
    raise nvml.Unavailable("NVML: Driver Not Loaded")


def test_without_nvml_nvidia_smi_is_read(tree: Tree, smi: Smi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "open_library", unavailable)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    smi(query=TABLE, q=sample("h200x8/nvidia-smi-q.txt"))
    value = look(tree)
    assert (value["source"], value["driver"], value["cuda"]) == ("nvidia-smi", "580.159.04", "13.0")
    assert len(value["gpus"]) == 8
    gpu = value["gpus"][7]
    assert (gpu["index"], gpu["bus"], gpu["vbios"]) == (7, "0000:00:0d.0", "96.00.A5.00.1A")
    assert (gpu["pcie"]["width"], gpu["pcie"]["width_max"], gpu["reasons"], gpu["power_limit"]) == (
        16,
        16,
        ["idle"],
        700,
    )
    assert gpu["memory"] == 143771 << 20
    assert gpu["ecc_errors"] == {"uncorrected": 0, "uncorrected_ever": 0, "corrected": 0}
    assert gpu["fabric"]["state"] == "completed"
    assert (gpu["recovery"], gpu["mig"]["on"], gpu["busy"]) == ("none", False, False)
    assert judged(value) == []


def test_the_text_of_visible_gpus(tree: Tree, smi: Smi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "open_library", unavailable)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "6,2")
    smi(q=sample("h200x8/nvidia-smi-q.txt"))
    found = [(gpu["index"], gpu["nvml_index"], gpu["bus"]) for gpu in look(tree)["gpus"]]
    assert found == [(0, 6, "0000:00:0c.0"), (1, 2, "0000:00:08.0")]


def test_the_text_gives_what_nvml_gives(tree: Tree, played: PlayedNvml, smi: Smi) -> None:
    (by_text, *_) = smi_query.parse_query(sample("h200x8/nvidia-smi-q.txt")).values["gpus"]
    assert set(gpu_health.from_query(0, by_text)) == set(look(tree)["gpus"][0])


def test_no_driver_at_all(tree: Tree, smi: Smi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "open_library", unavailable)
    words = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
    smi(query=(9, words), q=(9, words))
    tree.pci("pci0000:00/0000:00:06.0", vendor="0x10de", **{"class": "0x030200"})
    value = look(tree)
    assert (value["source"], value["gpus"], value["on_pci"]) == ("none", [], ["0000:00:06.0"])
    assert judged(value) == [("gpus", "bad", f"nvidia-smi: {words[:-1]}")]
    smi()
    value = look(tree)
    assert judged(value) == [("gpus", "bad", "1 GPUs on PCI and none usable: NVML: Driver Not Loaded")]


def test_a_gpu_that_only_pci_knows(tree: Tree, played: PlayedNvml, smi: Smi) -> None:
    for at in range(3):
        tree.pci(f"pci0000:00/0000:0{at}:00.0", vendor="0x10de", **{"class": "0x030200"})
    value = look(tree)
    value["container"] = None
    assert judged(value) == [("gpus", "warn", "3 GPUs are on PCI and 2 answer; not: 0000:02:00.0")]


def test_the_fabric_manager(tree: Tree, played: PlayedNvml, smi: Smi) -> None:
    tree.files("proc/77", comm="nv-fabricmanage")
    tree.pci("pci0000:00/0000:05:00.0", vendor="0x10de", **{"class": "0x068000"})
    smi(nv_fabricmanager="Fabric Manager version is : 580.95.05\n", systemctl=(3, "inactive\n"))
    value = look(tree)
    assert value["fabric_manager"] == {
        "installed": True,
        "active": True,
        "version": "580.95.05",
        "said": "inactive",
        "switches": 1,
    }
    text = "Fabric Manager 580.95.05 does not fit driver 580.159.04: they must be the same"
    assert judged(value) == [("fabric", "warn", text)]


def test_a_fabric_manager_that_does_not_run(tree: Tree, played: PlayedNvml, smi: Smi) -> None:
    played.overrides["nvmlDeviceGetGpuFabricInfoV"] = _fabric(state=1)
    smi(systemctl=(3, "failed\n"))
    value = look(tree)
    assert value["fabric_manager"]["active"] is False
    found = judged(value)
    assert ("fabric", "bad", "the Fabric Manager is failed") in found
    assert [verdict for _, verdict, _ in found] == ["bad", "bad"]


def test_a_fabric_manager_outside_of_the_virtual_machine_is_no_fault(tree: Tree, played: PlayedNvml, smi: Smi) -> None:
    smi(systemctl=(3, "inactive\n"))
    assert judged(look(tree)) == []
    assert gpu_health.fabric_manager(1.0, str(tree.root), str(tree.root / "proc"))["active"] is False


def test_under_load(played: PlayedNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_health, "EVERY", 0.0)
    loads = iter([0, 0, 30, 0, 0, 80])
    played.overrides["nvmlDeviceGetUtilizationRates"] = lambda: SimpleNamespace(gpu=next(loads))
    played.overrides["nvmlDeviceGetCurrPcieLinkWidth"] = 8
    value = gpu_health.run_load({"seconds": 30}, lambda part: None, 60.0)
    assert (value["samples"], value["busy"], value["error"]) == (3, 2, None)
    assert [gpu["utilization"] for gpu in value["gpus"]] == [30, 80]
    assert "vbios" not in value["gpus"][0]
    assert gpu_health.judge_load(value) == [
        {
            "subject": "pcie",
            "verdict": "bad",
            "text": "GPUs 0-1: PCIe at x8 of x16 under load",
            "devices": ["gpu:0", "gpu:1"],
            "check": "gpu-pcie",
        }
    ]


def test_no_load_is_no_judgement(played: PlayedNvml) -> None:
    played.overrides["nvmlDeviceGetCurrPcieLinkWidth"] = 8
    value = gpu_health.run_load({"seconds": 0}, lambda part: None, 20.0)
    assert (value["samples"], value["busy"]) == (1, 0)
    assert gpu_health.judge_load(value) == []


@pytest.mark.parametrize(("indexes", "words"), [([3], "GPU 3"), ([0, 1, 2, 7, None], "GPUs 0-2,7"), ([], "a GPU")])
def test_which(indexes: list[Any], words: str) -> None:
    assert gpu_rules.which(indexes) == words


def test_a_broken_driver_costs_the_deadline_only(tree: Tree, smi: Smi, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    never = threading.Event()
    monkeypatch.setattr(nvml, "open_library", lambda: never.wait(60))
    value = gpu_health.run({}, lambda part: None, 1.0, root=str(tree.root), proc=str(tree.root / "proc"))
    never.set()
    assert value["source"] == "none"
    assert value["error"].startswith("NVML did not answer")


@pytest.mark.parametrize(
    ("name", "cluster", "texts"),
    [
        (
            "NVIDIA GB200",
            None,
            ["GPU 0: the NVLink fabric gave it no cluster: it reaches no GPU of another node over NVLink"],
        ),
        ("NVIDIA GB200", "6c1f", []),
        ("NVIDIA H200", None, []),
        ("NVIDIA GB10", None, []),
    ],
)
def test_a_gpu_for_nvlink_between_nodes_needs_a_cluster(name: str, cluster: str | None, texts: list[str]) -> None:
    fabric = {"state": "completed", "status": "success", "clique": 0, "cluster": cluster}
    found = gpu_rules.judge({"gpus": [{"index": 0, "name": name, "fabric": fabric}]})
    assert [one["text"] for one in found] == texts


def test_the_health_of_the_fabric_in_text() -> None:
    text = sample("h200x8/nvidia-smi-q.txt")
    words = {
        "Status": ("Success", "Insufficient Resources"),
        "Incorrect Configuration": ("N/A", "Incorrect Chassis SN"),
        "Partition Assigned": ("N/A", "No"),
    }
    for name, (old, new) in words.items():
        text, changed = re.subn(rf"(\b{name} +: ){old}$", rf"\g<1>{new}", text, flags=re.MULTILINE)
        assert changed == 8
    fabric = gpu_health.from_query(0, smi_query.parse_query(text).values["gpus"][0])["fabric"]
    found = gpu_rules.judge({"gpus": [{"index": 0, "fabric": fabric}]})
    assert [one["text"] for one in found] == [
        "GPU 0: joining the NVLink fabric ended with insufficient resources",
        "GPU 0: NVLink fabric: incorrect configuration: incorrect chassis sn",
        "GPU 0: NVLink fabric: no partition assigned",
    ]
