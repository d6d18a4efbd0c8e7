"""Slurm's outputs as recorded on a small cluster of ours: the values each one holds."""

from __future__ import annotations

from typing import Any

import pytest

from fabtui.importers.result import read
from fabtui.importers.sources import Source

from .places import SAMPLES, at

EXPECTED: dict[str, dict[str, Any]] = {
    "scontrol_show_job.txt": {
        "records.#": 1,
        "records.0.JobState": "RUNNING",
        "records.0.NodeList": "n[060-061]",
        "records.0.expands_to": 2,
        "records.0.Command": "/scratch/lab/slurm/out/job.sh 300",
        "records.0.TresPerNode": "gres:gpu:8",
        "records.0.Account": None,
    },
    "scontrol_show_job_array.txt": {
        "records.0.ArrayTaskId": "1-5%1",
        "records.1.JobId": "8",
        "records.0.NodeList": None,
    },
    "scontrol_show_job_d.txt": {
        "records.0.JOB_GRES": "gpu:h100:16",
        "records.0.details.0.Nodes": "n[060-061]",
        "records.0.details.0.GRES": "gpu:h100:8(IDX:0-7)",
    },
    "scontrol_show_node.txt": {
        "records.0.states": ["mixed"],
        "records.0.OS": "Linux 6.18.44-fc-v669 #1 SMP PREEMPT_DYNAMIC @0",
        "records.0.AllocTRES": "cpu=1",
    },
    "scontrol_show_node_down.txt": {
        "records.0.states": ["down", "not_responding"],
        "records.0.reason": "Not responding",
        "records.0.reason_by": "root",
    },
    "scontrol_show_node_drain.txt": {"records.0.reason": "IB link flap port mlx5_3", "records.0.states.1": "drain"},
    "scontrol_show_node_oneline.txt": {
        "records.#": 4,
        "records.3.NodeName": "n063",
        "records.3.reason": "IB link flap port mlx5_3",
        "records.0.Partitions": "gpu",
    },
    "scontrol_show_partition.txt": {"records.#": 2, "records.1.Nodes": "n063", "records.0.MaxTime": "2-00:00:00"},
    "sinfo.txt": {"rows.#": 2, "default_partition": "gpu", "rows.1.state": "draining", "rows.0.expands_to": 3},
    "sinfo_N_long.txt": {
        "rows.#": 4,
        "rows.3.reason": "IB link flap port ml",
        "rows.3.cpus": 16,
        "rows.0.s_c_t": "16:1:1",
    },
    "sinfo_N_node_down.txt": {
        "rows.2.state": "down",
        "rows.2.flags": ["not responding"],
        "rows.2.reason": "Not responding",
    },
    "sinfo_R.txt": {"rows.0.reason": "IB link flap port ml", "rows.0.user": "root", "rows.0.nodelist": "n063"},
    "sinfo_R_down.txt": {"rows.0.reason": "Not responding", "rows.0.nodelist": "n062"},
    "squeue.txt": {
        "rows.#": 6,
        "rows.0.job": "4_[1-5%1]",
        "rows.0.reason": "JobArrayTaskLimit",
        "rows.3.state": "RUNNING",
        "rows.3.nodelist": "n[060-061]",
    },
    "squeue_after_cancel.txt": {"rows.#": 10, "rows.0.time_limit": "2-00:00:00", "rows.0.nodes": 4, "rows.5.nodes": 3},
    "squeue_after_node_death.txt": {
        "rows.0.nodelist": "n061",
        "rows.0.nodes": 1,
        "rows.1.reason": "PartitionNodeLimit",
    },
    "squeue_long_array.txt": {"rows.#": 10, "rows.9.job": "6", "rows.9.partition": "gpu-debug"},
    "squeue_me_steps.txt": {"rows.#": 3, "rows.1.step": "4_0.batch", "rows.1.nodelist": "n062"},
    "squeue_steps.txt": {"rows.0.step": "11.0", "rows.0.expands_to": 3},
}


@pytest.mark.parametrize("name", EXPECTED)
def test_values(name: str) -> None:
    result = read(Source(name, (SAMPLES / "slurm" / name).read_text()))
    tool = name.partition(".")[0].partition("_")[0]
    assert result.kind == tool
    assert {path: at(result.values, path) for path in EXPECTED[name]} == EXPECTED[name]


def test_every_state_that_is_bad_is_a_warning() -> None:
    states = {
        "down*": "down, not responding",
        "down": "down",
        "down~": "down",
        "fail": "fail",
        "failg": "failing",
        "unk": "unknown",
        "drain*": "drained, not responding",
        "drng": "draining",
    }
    heading = "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\n"
    rows = "".join(
        f"gpu*         up 2-00:00:00      1 {state:>6} n{at:03}\n"
        for at, state in enumerate([*states, "idle", "mix-", "alloc"])
    )
    result = read(Source("-", heading + rows))
    assert result.warnings == [f"n{at:03} {shown}" for at, shown in enumerate(states.values())]


def test_an_option_that_is_not_there() -> None:
    result = read(Source("-", (SAMPLES / "slurm/scontrol_json_unsupported.txt").read_text()))
    assert "scontrol: unrecognized option '--json'" in result.warnings
    assert result.values["records"] == []
