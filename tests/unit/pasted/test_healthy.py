"""Samples without a fault: no cause in ``explain``, no finding but notes in ``read``."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fabtui.cli import main as entry
from fabtui.diagnosis.diagnosis import with_errors
from fabtui.diagnosis.finding import Severity
from fabtui.importers.result import read
from fabtui.importers.sources import sources
from fabtui.importers.to_model.dispatch import errors_in, examined
from fabtui.presentation.findings import title

from ..probes.places import REAL, SAMPLES

Out = pytest.CaptureFixture[str]

#: Samples that show a fault, by their folder; ``*`` stands for all of it.
FAULTY = {
    "docs": {"nccl.log", "pings.csv", "rank0.log", "rank3.log"},
    "fuzzed": {"*"},
    "gpu-lab": {"*"},
    "ibsim": {
        *("ib_write_bw.txt", "ibstat_hca_relinked_init.txt", "ibstat_hca_unlinked.txt", "ibv_devices.txt"),
        *("ibv_devinfo.txt", "perfquery_leaf1_p2.txt", "perfquery_saturated.txt"),
        *(f"iblinkinfo_{name}.txt" for name in ("after_unlink", "degraded_1x_edr", "line", "mad_loss60")),
        *(f"ibqueryerrors_{name}.txt" for name in ("bad", "data", "details")),
    },
    "imex": {"N-H-one-missing.txt", "N-j-waiting.json", "N-map-mismatch.txt"},
    "kernel": {"*"},
    "nvlink5": {"*"},
    "pasted": {"*"},
    "reports": {"*"},
    "ping": {"iputils-unknown-host.txt"},
    "ras": {"skip-rank0.log", "skip-rank1.log"},
    "running-job-h200x2": {"*"},
    "sessions": {"h200x8-lab-2x4-faults.jsonl.gz", "job-h100x2-stopped.jsonl.gz"},
    "slurm": {
        *(f"scontrol_show_node_{name}.txt" for name in ("down", "drain", "oneline")),
        *("scontrol_json_unsupported.txt", "sinfo.json", "sinfo.txt", "sinfo_N_long.txt", "sinfo_N_node_down.txt"),
        *("sinfo_fmt.txt", "sinfo_R_down.txt"),
    },
}
#: The same of real samples, which are not everywhere: the fault that each shows.
REAL_FAULTY = {
    "dcgmi-nvlink/all-links-down-2gpu.txt": "all links down",
    "megatron-log/meg-2021-perf-n16.txt": "ended at the time limit",
    "dmesg-pcie/gen5-limited-to-gen4.txt": "PCIe below what the device can do",
    "dmesg-xid/aer-then-xid79.txt": "Xid 79",
    "dmesg-xid/gpud-xid119-gsp-timeout.txt": "Xid 119",
    "dmesg-xid/gpud-xid48-63-94-iso.txt": "Xid 48",
    "dmesg-xid/nii-ansible-xid140.txt": "Xid 140",
    "dmesg-xid/rminitadapter-repeat-syslog.txt": "a GPU that does not start",
    "dmesg-xid/xid63-row-remap-single.txt": "Xid 63",
    "ethtool/eth0-100mb-link-partner.txt": "100 Mb/s",
    "fabricmanager-log/gpud-multicast-lines.txt": "SXid 12028",
    "ibstat/h100-12ca-all-roce-2-down.txt": "two ports down",
    "ibstat/h100-polling-elided-guids.txt": "a port without a signal",
    "nccl-debug-log/ib-error12-timeout.txt": "completion error 12",
    "nccl-debug-log/socket-connect-abort-then-shm.txt": "a refused connection",
    "nvbandwidth/v07-assert-failure.txt": "wrong data",
    "nvidia-smi/525-err-fan-one-gpu.txt": "ERR! in place of values",
    "nvidia-smi-q/remapped-rows-pending.txt": "rows wait to be remapped",
    "perftest/couldnt-connect.txt": "no server",
    "perftest/failed-modify-qp-rtr.txt": "modify QP",
    "slurm-scontrol/idle-drain-gres-lower.txt": "a drained node",
    "slurm-sinfo/drain-and-list-reasons.txt": "a drained node",
    "slurm-sinfo/reboot-draining-fail-states.txt": "nodes out of service",
}
#: Folders of outputs of what failed.
REAL_FAULTS = ("nvidia-smi-broken", "torch-failure", "slurmd-log")


def healthy() -> Iterator[Path]:
    for path in sorted(SAMPLES.rglob("*")):
        listed = FAULTY.get(path.relative_to(SAMPLES).parts[0], set())
        if path.is_file() and path.name != "README.md" and not {"*", path.name} & listed:
            yield path
    for path in sorted(REAL.rglob("*.txt")):
        name = path.relative_to(REAL)
        if str(name) not in REAL_FAULTY and name.parts[0] not in REAL_FAULTS:
            yield path


@pytest.mark.slow
@pytest.mark.parametrize("folder", sorted({path.parent for path in healthy()}), ids=lambda path: path.name)
def test_a_healthy_sample_has_neither_cause_nor_bad_finding(folder: Path, capsys: Out) -> None:
    for path in (path for path in healthy() if path.parent == folder):
        for source in sources([str(path)]):
            result = read(source)
            found = examined(result)
            found = with_errors(found, errors_in(result, found))
            # Our own samples are known to have nothing that is worth a note either.
            notes = () if SAMPLES in path.parents else (Severity.NOTE,)
            assert [title(one) for one in found.all_findings if one.severity not in notes] == [], path
        entry.main(["explain", str(path)])
        out = capsys.readouterr().out
        assert "earliest cause" not in out, out
        assert "earliest consequence" not in out, out


@pytest.mark.parametrize("name", REAL_FAULTY)
def test_a_faulty_real_sample_has_a_finding(name: str, capsys: Out) -> None:
    if not (REAL / name).is_file():
        pytest.skip("no real samples here")
    assert entry.main(["explain", str(REAL / name)]) == 0
    out = capsys.readouterr().out
    assert "cause:" in out or "findings:" in out
