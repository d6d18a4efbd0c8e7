"""Reports of NCCL about itself, in the words of its source: each has a finding with rank, host and next command."""

import re
from pathlib import Path

import pytest

from .test_cases import Out, answer

_P2P = "srcRank=2 srcCudaDev=2 srcNvmlDev=2 dstRank=5 dstCudaDev=5 dstNvmlDev=5 path={} handle={}"
_PAIR = (
    "net bw: mode=same server_rank=0 server_host=n1 server_device=mlx5_0 client_rank=8 client_host=n2 "
    "client_device=mlx5_1 memory=cuda {} in comm 0x7a3f"
)
#: A line behind its tag, and patterns of the answer.
REPORTS = (
    (
        f"p2p: write mismatch {_P2P.format('NVL', 'cuMem')} expected=0x1 got=0x0 verify=0x0; check x",
        "E370.*rank 2.*rank 5",
    ),
    (f"p2p: read mismatch {_P2P.format('PIX', 'ipc')} expected=0x1 got=0x0; check x", "E370.*over PIX: read mismatch"),
    (
        f"p2p: peer-memory import failed {_P2P.format('NVL', 'fd')} reason=import; check x",
        "E370.*import failed.*topo -p2p",
    ),
    (f"p2p: launch/check failed {_P2P.format('SYS', 'fd')} reason=launch; inspect x", "E370.*GPU 2.*GPU 5"),
    ("p2p: only 52/56 GPU-to-GPU peer accesses passed verification", "E112.*52/56.*nvlink -s"),
    ("p2p: setup failed on rank 3 result=2", "E112.*rank 3"),
    (
        "net bw: same-nic rank 3 (n7): 265.1 Gbit/s, >30% off median 391.5 Gbit/s in comm 0x7a",
        "E371.*rank 3 on n7.*265.1",
    ),
    (_PAIR.format("tool run timed out"), "E372.*mlx5_0 of n1.*mlx5_1 of n2.*timed out.*ib_write_bw -d mlx5_0"),
    (_PAIR.format("server did not start"), "E372.*rank 8.*did not start.*getent hosts n2"),
    ("net bw: required external tool missing in comm 0x7a", "E373.*which ib_write_bw"),
    ("net bw: test unable to complete in allocated time; ran 1 of 2 test phases in comm 0x7a", "E373.*1 of 2"),
    (
        "GPU inventory: count mismatch across 16 ranks in comm 0x12, rank(s) {8,9} differ from rank 0 (8)",
        r"E375.*\{8,9\}.*nvidia-smi -L",
    ),
    (
        "CUDA driver version: mismatch across 16 ranks in comm 0x12, rank(s) {8} differ from rank 0 (13000)",
        "E375.*13000",
    ),
    ("NCCL environment: mismatch across 8 ranks in comm 0x1234 for NCCL_IB_HCA", "E375.*NCCL_IB_HCA.*env . grep NCCL_"),
    (
        "ECC: uncorrected volatile errors on rank(s) {3} (worst=2) across 8 ranks in comm 0x12",
        r"E376.*\{3\}.*ROW_REMAPPER",
    ),
    ("NVLink: inactive link(s) on rank(s) {5,6,...} (N=12) across 16 ranks in comm 0x12", r"E377.*\(N=12\).*nvlink -s"),
    (
        "Xid 79 detected 1 time on host n7. The NVIDIA Xid catalog recommends resetting the affected GPU.",
        "E378.*n7.*explain Xid 79",
    ),
    (
        "SXid 24007 detected 3 times (NVSwitch driver reported Fatal, link(s) {3}) on host n8. See the",
        "E378.*n8.*SXid 24007",
    ),
    (
        "Net device mlx5_3:1: reported on only 1 of 2 nodes in comm 0x12 (device may be missing)",
        "E379.*mlx5_3:1.*ibv_devinfo",
    ),
    (
        "ATS state: ATSCtl disabled on 2 rank/NIC pair(s) in comm 0x12; first rank 3 NIC 0000:3b:00.0",
        "E380.*rank 3 NIC 0000:3b",
    ),
    ("ECC: diagnostics incomplete, gathered 14/16 ranks in comm 0x1/0x2/0x3", "E381.*14/16.*ncclras -v"),
)
MONITOR = "[2026-11-19 13:07:07] PEER_DEAD: Process 1524345 on node 10.0.0.5 managing GPU 1\n"
MONITOR_JSON = """{
  "group": "LIFECYCLE",
  "event": "PEER_DEAD",
  "peer": {"host": "10.0.0.5", "pid": 1524345, "cuda_devs": [1]}
}
"""
HEALTHY = (
    "n1:4101 NCCL DIAG === NCCL Diagnostics ===\n"
    "n1:4101 NCCL DIAG [OK]   p2p: verified P2P access in both directions between every GPU pair (56 peer accesses)\n"
    "n1:4101 NCCL DIAG NCCL diagnostics completed in 245.3 ms across 8 ranks\n"
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        *((f"n1:4101 NCCL DIAG [INFO] {line}\n", words) for line, words in REPORTS),
        (MONITOR, "E382.*1524345 on 10.0.0.5"),
        (MONITOR_JSON, "E382.*1524345 on 10.0.0.5"),
    ],
)
def test_a_report_has_a_finding(text: str, words: str, capsys: Out, tmp_path: Path) -> None:
    (tmp_path / "diag.log").write_text(text)
    code, out = answer(capsys, "explain", str(tmp_path / "diag.log"))
    shown = " ".join(out.split())
    assert (code, "unknown" in shown) == (0, False), out
    assert re.search(words, shown), out


def test_a_report_without_findings_is_no_failure(capsys: Out, tmp_path: Path) -> None:
    (tmp_path / "diag.log").write_text(HEALTHY)
    code, out = answer(capsys, "explain", str(tmp_path / "diag.log"))
    assert (code, out.startswith("no failure in this log")) == (1, True), out
