"""Texts of public reports, made again: the first paragraph of the answer names the cause, not the stage."""

import re
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from ..probes.places import SAMPLES
from .test_cases import Out, answer

REPORTS = SAMPLES / "reports"


class Report(NamedTuple):
    first: str  #: Pattern of the first paragraph, across line ends.
    whole: str = ""  #: Pattern anywhere in the answer.
    never: str = "no failure in"  #: Pattern that the answer must not have.


ANSWERS = {
    "01-nvshmem-map-uar.txt": Report("E300.*doorbell.*PeerMappingOverride=1", "grep -r PeerMappingOverride", "Xid"),
    "02-nvshmem-not-mlx5.txt": Report("E301.*erdma_0 is not an mlx5 NIC", "NVSHMEM_REMOTE_TRANSPORT"),
    "03-nvshmem-modify-qp-110.txt": Report("E9 .*GID of the other NIC does not resolve", "show_gids", "peermem"),
    "04-ucx-without-cuda.txt": Report("E310.*built without CUDA", "ucx_info -v | grep with-cuda"),
    "05-mooncake-register.txt": Report("E37 .*nvidia_peermem.*expandable_segments", "ALLOC_CONF"),
    "06-ucx-shm.txt": Report("E29 .*/dev/shm", "shm-size", "ucx_info"),
    "07-ucx-uar-limit.txt": Report("E317.*UAR pages", "mlxconfig -d 0000:61:00.0 query"),
    "08-ucx-umr-bond.txt": Report("E314.*LACP.*mlx5_bond_0.*UCX_TLS=.gga_mlx5"),
    "09-zmq-in-use.txt": Report("E251.*port 40113", "grep 40113"),
    "10-nixl-tcp.txt": Report("E315.*TCP.*UCX_TLS=.cuda_ipc excludes", "fabric handle"),
    "11-peermem-symbols.txt": Report("E320.*built for another OFED", "driver pod"),
    "12-fm-version.txt": Report(r"E322.*\(530\.30\.02\).*\(530\.41\.03\)", "nvidia-fabricmanager"),
    "13-bnxt-abi.txt": Report("E325.*user library of bnxt_re.*ABI 6", "Broadcom", "driver is not loaded.*earliest"),
    "14-nvrm-mismatch.txt": Report(r"E324.*535\.54\.03.*530\.30\.02", "unattended"),
    "15-sxid-numbers.txt": Report("sxid 24007", "Xid 45"),
    "16-dcgmi-nvlink.txt": Report("all 18 NVLinks are down", "fabricmanager"),
    "17-scontrol-gres.txt": Report("7 of 8 gres/gpu", "Xid 79", "Ask the person"),
    "18-gids-of-pod.txt": Report("NCCL_IB_GID_INDEX=3.*empty.*index 7", "Unset NCCL_IB_GID_INDEX"),
    "19-slurmctld.txt": Report(r"E340.*above.*1963622 < 2064000", "slurmd -C"),
    "20-sinfo-R.txt": Report("E342.*gpu-14", r"gpu-\[20-21\].*gpu-33"),
    "21-desync-report.txt": Report("rank 7 is behind.*182.*183"),
    "22-stack-1.txt": Report("file_baton|lock file", "torch_extensions"),
    "23-pmix.txt": Report("waits for ml-1", "", "seq=0slurmstepd"),
    "24-ras.txt": Report("rank 0 on 10.44.0.1 has not called it"),
    "25-old-nccl.txt": Report("bug of NCCL 2.21.5: it is too old", "2.25.1 ends it"),
    "26-pyxis-permission.txt": Report("E350.*/run/enroot", "ENROOT_RUNTIME_PATH"),
    "27-enomem-not-memlock.txt": Report("E354.*limit is not the cause.*CmaTotal 0 kB"),
    "28-port-event.txt": Report("E26 .*mlx5_7.*port went down"),
    "29-ucx-no-transport.txt": Report("E312.*cannot report a dead peer", "rc,tcp"),
    "30-amdgpu.txt": Report("E327.*0000:e6:00.0", "amdgpu-hangs"),
    "31-stub.txt": Report("E353.*stub of libcuda", "LD_LIBRARY_PATH", "arguments of this call"),
    "32-rdma-plugin.txt": Report("E329.*0000:e1:00.0.*issm"),
    "33-loki.json": Report(r"earliest cause: E1 .*gpu-17 \[3\]", "", "resultType"),
    "34-dmesg-x.txt": Report("1 rank1: Xid 79", "2 rank1: nic timeout"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_the_cause_comes_first(name: str, capsys: Out, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.chdir(tmp_path)
    shutil.copy(REPORTS / name, given := f"rank1{Path(name).suffix}")
    code, text = answer(capsys, "explain", given)
    first, every = (" ".join(part.split()) for part in (text.partition("\n\n")[0], text))
    right = Report(*(pattern or "(?:)" for pattern in ANSWERS[name]))
    assert (code, bool(re.search(right.first, first)), bool(re.search(right.whole, every))) == (0, True, True), text
    assert not re.search(right.never, every), text


def test_every_report_has_an_answer() -> None:
    assert {path.name for path in REPORTS.iterdir()} == set(ANSWERS)
