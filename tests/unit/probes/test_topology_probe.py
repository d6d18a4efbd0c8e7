"""The probe ``topology`` on a played nvidia-smi."""

from typing import Any

import pytest

from fabtui_node.parsers.nvidia import topo
from fabtui_node.probes.nvidia import nvml, topology
from fabtui_node.system import run_command

from .places import sample
from .playednvml import NOT_SUPPORTED, UNKNOWN, PlayedNvml

NEAR = sample("h200x8/topo-m.txt")
P2P = sample("h200x8/topo-p2p-r.txt")

WITH_NICS = """\
\tGPU0\tGPU1\tNIC0\tNIC1\tNIC2\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID
GPU0\t X \tNV18\tPIX\tNODE\tPIX\t0-51\t0\t\tN/A
GPU1\tNV18\t X \tSYS\tPXB\tSYS\t0-51\t0\t\tN/A
NIC0\tPIX\tSYS\t X \tSYS\tSYS
NIC1\tNODE\tPXB\tSYS\t X \tSYS
NIC2\tPIX\tSYS\tSYS\tSYS\t X

NIC Legend:

  NIC0: mlx5_0
  NIC1: mlx5_3
"""


@pytest.fixture(autouse=True)
def no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def unavailable() -> None:
        raise nvml.Unavailable("no driver")

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(nvml, "open_library", unavailable)


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> PlayedNvml:
    library = PlayedNvml(8)
    library.overrides["nvmlDeviceGetP2PStatus"] = 0
    monkeypatch.setattr(nvml, "open_library", lambda: library)
    return library


def play(monkeypatch: pytest.MonkeyPatch, **prints: str | None) -> None:
    def run(argv: Any, deadline: float, *args: Any) -> run_command.CommandResult:
        text = prints.get(argv[-1] if argv[-1] != "-m" else "m")
        if text is None:
            return run_command.CommandResult(list(argv), 2, "", "unknown option")
        return run_command.CommandResult(list(argv), 0, text, "")

    monkeypatch.setattr(run_command, "run", run)


def look() -> dict[str, Any]:
    return topology.run({}, lambda part: None, 10.0)


def test_a_whole_host(monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, m=NEAR, **dict.fromkeys("rwna", P2P))
    value = look()
    assert value["error"] is None
    assert value["matrix"]["cells"][0][1] == "NV18"
    assert value["matrix"]["complete"] is True
    # The driver of that host does not know the fifth.
    assert set(value["p2p"]) == {"read", "write", "nvlink", "atomics"}
    assert value["p2p"]["read"]["p2p"] is True
    assert value["raw"]["m"] == NEAR
    assert len(topology.gpu_pairs(value["matrix"])) == 28
    assert topology.judge(value) == []


@pytest.mark.parametrize("setting", ["4,5", "GPU-dd52808a-17d2-b13f-7d55-57385e3edcd2,GPU-cca903b5"])
def test_only_visible_gpus(monkeypatch: pytest.MonkeyPatch, setting: str) -> None:
    broken = P2P.replace(" GPU0\tX\tOK", " GPU0\tX\tTNS")
    play(monkeypatch, m=NEAR, r=broken, **{"-L": sample("h200x8/smi-L.txt")})
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", setting)
    value = look()
    assert value["matrix"]["columns"] == value["matrix"]["rows"] == ["GPU4", "GPU5"]
    assert value["matrix"]["cells"] == [["X", "NV18"], ["NV18", "X"]]
    assert set(value["matrix"]["affinity"]) == {"GPU4", "GPU5"}
    assert (value["p2p"]["read"]["p2p"], value["p2p"]["read"]["bad"]) == (True, [])
    assert topology.judge(value) == []


def test_visible_gpus_that_are_not_known_hide_none(monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, m=NEAR)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert len(look()["matrix"]["rows"]) == 8


def test_p2p_by_nvml(monkeypatch: pytest.MonkeyPatch, played: PlayedNvml) -> None:
    play(monkeypatch, m=NEAR)
    value = look()
    assert set(value["p2p"]) == {"read", "write", "nvlink", "atomics", "pcie"}
    text = {name: topo.parse_p2p(P2P).values[name] for name in value["p2p"]["read"]}
    assert value["p2p"]["read"] == text, "as nvidia-smi has it"
    assert topology.judge(value) == []


def test_p2p_by_nvml_in_all_its_words(monkeypatch: pytest.MonkeyPatch, played: PlayedNvml) -> None:
    play(monkeypatch, m=NEAR)
    codes = iter([0, 1, 2, 3, 4, 5, 6, 7])
    played.overrides[0, "nvmlDeviceGetP2PStatus"] = lambda other, index: next(codes, 0) if index == 0 else 0
    played.fails[7, "nvmlDeviceGetP2PStatus"] = UNKNOWN
    value = look()
    assert value["p2p"]["read"]["cells"][0] == ["X", "OK", "CNS", "GNS", "TNS", "DR", "NS", "U"]
    assert value["p2p"]["read"]["cells"][7] == [None] * 7 + ["X"]
    assert (value["p2p"]["read"]["p2p"], value["p2p"]["write"]["p2p"]) == (False, None)
    assert len(value["p2p"]["read"]["bad"]) == 5


def test_visible_gpus_by_nvml(monkeypatch: pytest.MonkeyPatch, played: PlayedNvml) -> None:
    play(monkeypatch, m=NEAR)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-6,2")
    value = look()
    assert value["matrix"]["columns"] == value["p2p"]["read"]["columns"] == ["GPU2", "GPU6"]


def test_a_driver_without_p2p_status(monkeypatch: pytest.MonkeyPatch, played: PlayedNvml) -> None:
    played.fails["nvmlDeviceGetP2PStatus"] = NOT_SUPPORTED
    play(monkeypatch, m=NEAR, r=P2P)
    assert list(look()["p2p"]) == ["read"], "nvidia-smi is asked then"


def test_no_nvidia_smi(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        run_command, "run", lambda argv, *args: run_command.CommandResult(list(argv), None, "", "", missing=True)
    )
    assert look() == {"matrix": None, "p2p": {}, "raw": {}, "error": None}


def test_a_failing_nvidia_smi(monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch)
    value = look()
    assert (value["matrix"], value["p2p"]) == (None, {})
    assert value["error"] == "nvidia-smi exited with 2: unknown option"
    assert topology.judge(value) == []


def test_nics_are_named_and_are_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, m=WITH_NICS)
    matrix = look()["matrix"]
    assert {nic: matrix["nics"].get(nic) for nic in ("NIC0", "NIC1")} == {"NIC0": "mlx5_0", "NIC1": "mlx5_3"}
    assert topology.gpu_pairs(matrix) == [["GPU0", "GPU1", "NV18"]]


def judged(near: str, **p2p: str) -> list[tuple[str, str, str]]:
    tables = {name: topo.parse_p2p(text).values for name, text in p2p.items()}
    value = {"matrix": topo.parse_topology(near).values, "p2p": tables}
    return [(one["subject"], one["verdict"], one["text"]) for one in topology.judge(value)]


def without_nvlink(text: str, lost: int) -> str:
    lines = []
    for line in text.splitlines():
        words = line.split("\t")
        if words[0].startswith("GPU"):
            mine = words[0] == f"GPU{lost}"
            words = [w.replace("NV18", "SYS") if mine or at == lost + 1 else w for at, w in enumerate(words)]
        lines.append("\t".join(words))
    return "\n".join(lines)


def test_a_gpu_without_nvlink() -> None:
    text = "GPU3 without NVLink, which the 7 other GPUs have with each other (NV18): links down, or fabric not joined"
    assert judged(without_nvlink(NEAR, 3)) == [("nvlink", "bad", text)]


NICS = """\
\tGPU0\tGPU1\tGPU2\tNIC0\tmlx5_1\tCPU Affinity
GPU0\t X \tNODE\tSYS\tPIX\tSYS\t0-31
GPU1\tNODE\t X \tSYS\tPXB\tSYS\t0-31
GPU2\tSYS\tSYS\t X \tSYS\tNODE\t32-63
NIC0\tPIX\tPXB\tSYS\t X \tSYS
mlx5_1\tSYS\tSYS\tNODE\tSYS\t X
"""


def test_gpus_without_a_near_nic_and_gpus_that_share_one() -> None:
    far = "GPU2: no NIC below their PCIe switch (nearest: NODE), as GPU0, GPU1 have:"
    far += " over another GPU (PXN) or without GPUDirect RDMA"
    shared = "2 GPUs share 1 near NICs: they share the bandwidth when all send at once"
    assert judged(NICS) == [("near_nic", "note", far), ("near_nic", "note", shared)]
    assert judged(NICS.replace("PIX", "PHB").replace("PXB", "PHB")) == [], "as in a virtual machine"
    assert judged(NICS.replace("SYS\tNODE\t32-63", "")) == [("near_nic", "note", shared)], "cut rows prove nothing"


def test_fewer_links_between_two() -> None:
    text = NEAR.replace("GPU0\t X \tNV18", "GPU0\t X \tNV12").replace("GPU1\tNV18", "GPU1\tNV12")
    assert judged(text) == [("nvlink", "warn", "fewer NVLinks than the usual 18: GPU0-GPU1 NV12")]


def test_a_machine_without_nvlink_is_as_it_is() -> None:
    text = NEAR.replace("NV18", "SYS")
    none = P2P.replace("OK", "CNS")
    assert judged(text, read=none, write=none) == [
        ("p2p", "note", "P2P read: no GPU can (CNS the chipset does not support it)"),
        ("p2p", "note", "P2P write: no GPU can (CNS the chipset does not support it)"),
    ]


def test_one_pair_that_cannot() -> None:
    broken = P2P.replace(" GPU0\tX\tOK", " GPU0\tX\tTNS")
    text = "no P2P read: GPU0>GPU1 (TNS the way between them does not support it)"
    assert judged(NEAR, read=broken) == [("p2p", "bad", text)]
    assert judged(NEAR.replace("NV18", "NODE"), read=broken) == [("p2p", "warn", text)]
