from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fabtui_node.probes.job import node_log

from .playednvml import PlayedNvml


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
