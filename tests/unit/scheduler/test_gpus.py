"""GPUs that jobs hold: which are tested, and how a node learns it."""

from typing import Any

import pytest

from fabtui.scheduler.slurm import GpuUse, gpu_use
from fabtui_node.runtime.supervisor import limit_gpus

from .conftest import Fake

HELD = "     Nodes=n[060-061] CPU_IDs=0 Mem=1000 GRES=gpu:a10:2(IDX:0-1)"


def test_a_job_is_tested_with_its_own_gpus(fake: Fake) -> None:
    fake("scontrol", f"echo 'JobId=12'; echo '{HELD}'; echo '     Nodes=n062 CPU_IDs=0 Mem=1 GRES=gpu:a10:1(IDX:3)'")
    found = gpu_use(["n060", "n062", "n063"], "12")
    assert found.own == {"n060": (0, 1), "n061": (0, 1), "n062": (3,)}
    assert found.setting("n062.cluster.example") == {"only": [3], "constrained": False}
    assert found.setting("n063") is None, "a job without GPUs on a node limits nothing"


def test_gpus_of_other_users_are_left_out_without_a_job(fake: Fake) -> None:
    fake("squeue", "echo '77|somebody|gres:gpu:a10:2'; echo '78|somebody|N/A'")
    fake("scontrol", f"[ $1$2$4 = showjob77 ] && echo '{HELD}'; [ $2 = config ] && echo 'ConstrainDevices = yes'; true")
    found = gpu_use(["n060", "n062"], "")
    assert found.setting("n060") == {"without": [0, 1], "constrained": True}
    assert found.setting("n062") is None


def test_nodes_that_slurm_does_not_know_have_no_jobs(fake: Fake) -> None:
    fake("squeue", "echo 'Invalid node name n060' >&2; exit 1")
    assert gpu_use(["n060"], "") == GpuUse({}, {})
    fake("squeue", "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1")
    assert "Unable to contact" in gpu_use(["n060"], "").problem


DEVICES = ["null", "nvidia0", "nvidia1", "nvidia10", "nvidia2", "nvidiactl", "nvidia-uvm"]


@pytest.mark.parametrize(
    ("limit", "before", "cgroup", "after"),
    [
        ({"only": [2, 3]}, {}, "0::/", "2,3"),
        ({"without": [0, 2]}, {}, "0::/", "1,10"),
        ({"without": [0, 1, 2, 10]}, {}, "0::/", ""),
        ({"only": [2]}, {"CUDA_VISIBLE_DEVICES": "5"}, "0::/", "5"),
        ({"only": [2], "constrained": True}, {}, "0::/system.slice/slurmd/job_12/step_extern", None),
        ({"only": [2], "constrained": True}, {}, "0::/user.slice", "2"),
        (None, {}, "0::/", None),
        ("nonsense", {}, "0::/", None),
    ],
)
def test_a_node_limits_itself(limit: Any, before: dict[str, str], cgroup: str, after: str | None) -> None:
    environ = dict(before)
    limit_gpus(limit, environ, cgroup, DEVICES)
    assert environ.get("CUDA_VISIBLE_DEVICES") == after
