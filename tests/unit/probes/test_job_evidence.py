"""Evidence of a node about a running job: kernel reports since its start, the GPUs they mean, variables and logs."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fabtui_node.probes import kernel_log
from fabtui_node.probes.job import evidence, node_log

from .places import Tree
from .playednvml import PlayedNvml
from .test_ras_client import process

LOG = """\
[  100.000000] NVRM: Xid (PCI:0000:9a:00): 31, pid=7, name=python, old
[ 5000.000000] NVRM: Xid (PCI:0000:9a:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
[ 5001.000000] mlx5_core 0000:5e:00.0 ens3: Link down
[ 5002.000000] pcieport 0000:00:01.0: AER: Corrected error received: 0000:18:00.0
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    log = kernel_log._Log("dmesg", LOG, True)
    monkeypatch.setattr(kernel_log, "read_log", lambda *_: log)
    monkeypatch.setattr(evidence, "_WINDOW", 0.0)
    tree = Tree(tmp_path)
    for bus in ("0000:18:00.0", "0000:9a:00.0"):
        tree.files(f"sys/bus/pci/devices/{bus}", vendor="0x10de", **{"class": "0x030200"})
    tree.files("proc", uptime="6000.00 1.0")
    return {"proc": str(tmp_path / "proc"), "sys": str(tmp_path / "sys")}


def start(root: Path, pid: int, started: int) -> None:
    path = root / "proc" / str(pid) / "stat"
    path.write_text(path.read_text().strip() + " 0" * 13 + f" {started} 0\n")


def test_reports_since_the_job_started(place: dict[str, Any], tmp_path: Path) -> None:
    process(tmp_path / "proc", 40, 1, RANK="3")
    start(tmp_path, 40, 450_000)
    value = evidence.run({}, lambda _: None, 10.0, **place)
    assert value["since"] == pytest.approx(1500.0)
    assert [(one["kind"], one["code"], one["gpu"], one["interface"]) for one in value["events"]] == [
        ("xid", 79, 1, None),
        ("link_down", None, None, "ens3"),
    ]
    assert len(value["events"][0]["at"]) == 5


def test_a_node_without_the_job(place: dict[str, Any]) -> None:
    value = evidence.run({}, lambda _: None, 10.0, **place)
    assert value["since"] == 86400.0
    assert value["log"] == "yes"
    assert [one["code"] for one in value["events"]] == [31, 79, None]


def test_unknown_values_of_a_gpu_are_none_and_others_have_their_units() -> None:
    library = PlayedNvml(gpus=3)
    library.overrides[(1, "nvmlDeviceGetUtilizationRates")] = SimpleNamespace(gpu=97, memory=50)
    library.overrides[(1, "nvmlDeviceGetComputeRunningProcesses")] = [SimpleNamespace(pid=7)]
    library.fails[(0, "nvmlDeviceGetMemoryInfo")] = 999
    first, second = node_log.gpus(library, "1,0")
    assert (first["utilization"], first["power"], first["processes"]) == (97, 78.06, 1)
    assert first["memory"] == 143771 << 20
    assert (second["memory"], second["memory_used"]) == (None, None)


def test_only_ranks_of_the_job_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for pid, job in ((7, "12"), (8, "13"), (9, None)):
        folder = tmp_path / str(pid)
        folder.mkdir()
        environ = f"RANK={pid}\0" + (f"SLURM_JOB_ID={job}\0" if job else "")
        (folder / "environ").write_text(environ)
        (folder / "stat").write_text(f"{pid} (python) S 1 1")
        (folder / "cmdline").write_text("python\0train.py\0")
    (tmp_path / "log.out").write_text("one\ntwo")
    parts: list[dict[str, Any]] = []
    args = {"job": "12", "patterns": [f"{tmp_path}/*.out"], "known": [], "addresses": True}
    value = node_log.run(args, parts.append, 10.0, proc=str(tmp_path))
    # A launcher without Slurm's variables may start ranks of any job.
    assert [one["rank"] for one in value["ranks"]] == [7, 9]
    assert [(one["text"], one["unfinished"]) for one in parts] == [("one\n", "two")]
    assert all(not address.startswith("127.") for address in value["addresses"])


def test_variables_of_the_ranks(tmp_path: Path) -> None:
    for pid, gpu in ((7, "0"), (8, "1"), (9, "1")):
        (tmp_path / str(pid)).mkdir()
        environ = f"CUDA_VISIBLE_DEVICES={gpu}\0HOME=/root\0NCCL_DEBUG={'x' * 999}\0TOKEN=secret\0"
        (tmp_path / str(pid) / "environ").write_text(environ)
    found = node_log.variables([7, 8, 9, 10], ("CUDA_VISIBLE", "NCCL_"), str(tmp_path))
    assert found == {"CUDA_VISIBLE_DEVICES": ["0", "1"], "NCCL_DEBUG": ["x" * 200]}
