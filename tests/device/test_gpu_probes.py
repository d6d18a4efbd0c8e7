"""GPU probes on a machine with GPUs: NVML and nvidia-smi must agree."""

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from fabtui.lab.server import visible_gpus
from fabtui_node.parsers.nvidia import smi_query, smi_table, topo
from fabtui_node.probes import kernel_log
from fabtui_node.probes.nvidia import gpu_health, nvlink, nvml, topology


def nvidia_smi(*argv: str) -> str:
    return subprocess.run(["nvidia-smi", *argv], capture_output=True, text=True, timeout=120, check=False).stdout


def nothing(value: dict[str, Any]) -> None:
    raise AssertionError(value)


@pytest.fixture(scope="module", autouse=True)
def all_gpus() -> Iterator[None]:
    if not visible_gpus():
        pytest.skip("needs an NVIDIA GPU")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        yield


@pytest.fixture(scope="module")
def probed(all_gpus: None) -> dict[str, Any]:
    return gpu_health.run({}, nothing, 60.0)


#: What does not change from one moment to the next.
KEPT = (
    *("uuid", "name", "bus", "serial", "vbios", "persistence", "compute_mode", "mig", "ecc", "ecc_errors", "rows"),
    *("retired_pending", "memory", "power_limit", "power_limit_default", "recovery"),
)


def test_nvml_and_nvidia_smi_agree(probed: dict[str, Any]) -> None:
    text = smi_query.parse_query(nvidia_smi("-q"))
    assert text.unknown == []
    assert (probed["source"], probed["error"], probed["disagreements"]) == ("nvml", None, [])
    assert (probed["driver"], probed["cuda"]) == (text.values["driver"], text.values["cuda"])
    expected = [gpu_health.from_query(at, gpu) for at, gpu in enumerate(text.values["gpus"])]
    assert len(expected) == len(probed["gpus"]) > 0
    for mine, other in zip(probed["gpus"], expected, strict=True):
        assert {key: mine[key] for key in KEPT} == {key: other[key] for key in KEPT}
        for key in ("generation_max", "width_max"):
            assert mine["pcie"][key] == other["pcie"][key]
        assert mine["clocks"]["sm_max"] == other["clocks"]["sm_max"]
        fabric = [(gpu["fabric"] or {}).get("state") for gpu in (mine, other)]
        assert fabric[0] == fabric[1]
        assert (mine["lost"], mine["errors"]) == (None, {})
    print("NVML took", probed["seconds"], "s; judged:", gpu_health.judge(probed))


def test_the_list_and_the_table(probed: dict[str, Any]) -> None:
    listed = smi_table.parse_list(nvidia_smi("-L"))
    table = smi_table.parse_nvidia_smi(nvidia_smi())
    assert [gpu["uuid"] for gpu in listed.values["gpus"]] == [gpu["uuid"] for gpu in probed["gpus"]]
    assert (listed.unknown, table.unknown) == ([], [])
    assert len(table.values["gpus"]) == len(probed["gpus"])
    assert table.values["driver"] == probed["driver"]


def test_topology() -> None:
    value = topology.run({}, nothing, 60.0)
    assert value["error"] is None
    assert value["matrix"]["complete"] is True
    by_nvml, error = nvml.NvmlTask(topology.read_p2p_status).result(60.0)
    assert error is None
    for letter, name in topo.CAPABILITIES.items():
        text = topo.parse_p2p(nvidia_smi("topo", "-p2p", letter)).values
        if text["columns"]:
            assert by_nvml["tables"][name]["cells"] == text["cells"], name
    print("judged:", topology.judge(value))


def test_nvlinks() -> None:
    value = nvlink.run({}, nothing, 60.0)
    assert value["error"] is None
    print("judged:", nvlink.judge(value))


def test_a_look_under_load_is_quick() -> None:
    value = gpu_health.run_load({"seconds": 0}, nothing, 60.0)
    assert value["error"] is None
    assert all(gpu["pcie"]["width"] for gpu in value["gpus"])
    print("took", value["seconds"], "s for", len(value["gpus"]), "GPUs")


def test_the_kernel() -> None:
    value = kernel_log.run({}, nothing, 20.0)
    assert value["readable"] in ("yes", "not permitted", "unknown")
    print(value["source"], value["readable"], value["lines"], "lines;", kernel_log.judge(value))
