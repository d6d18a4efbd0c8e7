"""Outputs as people paste them: no value is shifted, taken from another unit, or made of something else."""

from __future__ import annotations

import pytest

from fabtui.importers.result import read
from fabtui.importers.sources import Source

from .new_samples import NCCL_TOPOLOGY
from .places import SAMPLES, at, of_text, values_of

EARLY = """\
#                                                     out-of-place                    in-place
#      bytes             N    type      op     time  algbw  busbw      res     time  algbw  busbw      res
     1048576        262144   float     sum    0.020  52.43  52.43    1e-07    0.021  49.93  49.93    0e+00
    33554432       8388608   float     sum    0.320 104.86 104.86       30    0.325 103.24 103.24    0e+00
"""


def test_milliseconds_of_early_nccl_tests() -> None:
    rows = values_of(EARLY, "nccl-tests")["tables"][0]["rows"]
    assert [row["out_of_place"]["time"] for row in rows] == [20.0, 320.0]
    assert [row["out_of_place"]["error"] for row in rows] == [1e-07, 30.0]
    warnings = " ".join(of_text(EARLY).warnings)
    assert "times are in ms" in warnings
    assert "elements of results" not in warnings


def test_microseconds_stay() -> None:
    text = (
        EARLY.replace("bytes             N", "size         count").replace("   0.", "     ").replace("   res", "#wrong")
    )
    text = text.replace("1e-07", "    0")
    row = values_of(text, "nccl-tests")["tables"][0]["rows"][1]
    assert (row["out_of_place"]["time"], row["out_of_place"]["wrong"]) == (320.0, 30)
    few = "     8      2   float     sum      -1    12.34    0.00    0.00      0    12.11    0.00    0.00      0\n"
    assert values_of(few, "nccl-tests")["tables"][0]["best"] is None


HEADER = "\tGPU0\tGPU1\t" + "\t".join(f"NIC{at}" for at in range(13)) + "\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
MATRIX = (
    HEADER
    + "GPU0\t X \tNV18\t"
    + "\t".join(["PIX", "PXB", *["NODE"] * 10, "SYS"])
    + "\t0-15,32-47\t0\t\tN/A\nGPU1\tNV18\t X \t"
    + "\t".join(["PXB", "PIX", *["NODE"] * 10, "SYS"])
    + "\t0-15,32-47\t0\t\tN/A\n"
    + "".join(
        f"NIC{at}\tPIX\tPXB\t" + "\t".join("X" if at == other else "NODE" for other in range(13)) + "\n"
        for at in range(13)
    )
)


def test_names_of_columns_that_run_together() -> None:
    joined = MATRIX.replace("NIC11\tNIC12", "NIC11NIC12", 1)
    values = values_of(joined, "nvidia-smi-topo-m", nic_count=13, complete=True)
    assert values == of_text(MATRIX).values
    assert values["affinity"]["GPU0"] == {"cpu": "0-15,32-47", "numa": "0", "gpu_numa_id": None}


@pytest.mark.parametrize("change", [("NIC11\tNIC12\tCPU", "NIC12\tCPU"), ("NODE\tSYS\t0-15", "SYS\t0-15")])
def test_rows_that_do_not_fit_the_header_have_no_values(change: tuple[str, str]) -> None:
    """A column too few or too many: which one is missing is not known, so that no value is shifted."""
    result = of_text(MATRIX.replace(*change))
    assert result.kind == "nvidia-smi-topo-m"
    assert result.values["cells"][0] == [None] * len(result.values["columns"])
    assert result.values["affinity"]["GPU0"]["cpu"] == "0-15,32-47"
    assert any("the row of GPU0 does not have" in warning for warning in result.warnings)


NVLINK = "".join(
    f"GPU {gpu}: NVIDIA H100 80GB HBM3 (UUID: GPU-0{gpu})\n"
    + "".join(f"\t Link {at}: 26.562 GB/s\n" for at in range(18))
    for gpu in range(4)
)


@pytest.mark.parametrize("links", [0, 1, 17])
def test_a_list_of_links_that_is_cut_off_has_no_total(links: int) -> None:
    lines = NVLINK.splitlines()[: 19 * 2 + 1 + links]
    result = of_text("\n".join(lines) + "\n")
    assert result.values["links_total"] is None
    assert result.values["gpus"][2]["cut"] is True
    assert f"the text is cut off in GPU 2: {links} of 18 links listed" in result.warnings
    whole = of_text(NVLINK)
    assert whole.values["links_total"] == 72
    assert not any("cut" in gpu for gpu in whole.values["gpus"])


def test_lines_of_nccl_without_host() -> None:
    for line, place, device in (
        (
            "register_rail_mr_buffer:617 NCCL WARN NET/OFI Unable to register memory",
            "register_rail_mr_buffer:617",
            None,
        ),
        ("[3] misc/ibvwrap.cc:288 NCCL WARN Call to ibv_reg_mr failed", "misc/ibvwrap.cc:288", 3),
        ("NCCL WARN Bootstrap : no socket interface found", None, None),
    ):
        (warn,) = values_of(line + "\n", "nccl-log")["warns"]
        assert (warn["host"], warn["at"], warn["device"]) == (None, place, device)


@pytest.mark.parametrize("zone", ["+00:00", "+0200", "-08:00", "Z"])
def test_a_time_zone_is_no_part_of_a_host(zone: str) -> None:
    text = f"2026-11-20T10:22:41.123{zone}ip-10-0-0-60:100:120 [0] NCCL INFO NET/OFI Selected Provider is efa\n"
    assert values_of(text * 3, "nccl-log")["hosts"] == ["ip-10-0-0-60"]


def test_the_log_of_imex_is_not_the_fabric_managers() -> None:
    record = "[Jan 21 2026 17:28:41] [INFO] [tid 4711] {}\n"
    assert of_text(record.format("IMEX version 570.86.15 is running") * 2).kind == "imex-log"
    assert of_text(record.format("Fabric Manager version 570.86.15 is running") * 2).kind == "fabricmanager-log"


KERNEL = (
    "mlx5_core 0000:3b:00.0 ens1f0np0: TX timeout detected",
    "watchdog: BUG: soft lockup - CPU#12 stuck for 22s! [ksoftirqd/12:81]",
)


@pytest.mark.parametrize(
    "before", ["", "kernel: ", "[Fri Nov 20 10:12:40 2026] ", "[ 4711.123456] ", "Nov 20 10:12:40 n060 kernel: "]
)
def test_a_kernel_log_is_known_by_its_lines(before: str) -> None:
    assert of_text("".join(f"{before}{line}\n" for line in KERNEL)).kind == "dmesg"


@pytest.mark.parametrize(
    "text",
    [
        " Completion with error at client\n Failed status 12: wr_id 0 syndrom 0x81\nscnt=128, ccnt=0\n",
        "Couldn't allocate MR\nfailed to create mr\nFailed to create MR\n Couldn't create IB resources\n",
        "Couldn't connect to 10.0.0.61:18515\nUnable to open file descriptor for socket connection\n"
        "Unable to init the socket connection\n",
        " Failed to complete run_iter_bw function successfully\n",
    ],
)
def test_a_perftest_that_only_failed(text: str) -> None:
    assert values_of(text, "perftest")["rows"] == []
    # A sentence about it is not an output of it.
    assert of_text("Has anybody seen Couldn't allocate MR with ib_x?\n").kind == "unknown"


@pytest.mark.parametrize(
    ("text", "kind", "path", "value"),
    [
        ("bytes iterations BW peak[Gb/sec] BW average[Gb/sec] MsgRate[Mpps]\n 64 5000 2.10 2.05 0.747\n",
         "perftest", "rows.0.average", 2.05),
        ("OSU MPI Allreduce Latency Test v7.3\nSize       Avg Latency(us)\n4                      10.25\n",
         "osu", "tests.0.rows.0.avg_latency", 10.25),
        ("NCCL version 2.18.3+cuda12.1\n", "nccl-log", "version", "2.18.3"),
        ("IB device mlx5_9 not found\n Unable to find the Infiniband/RoCE device\n", "perftest", "error", "no_device"),
        ("ethernet_read_keys: Couldn't read remote address\n Unable to read to socket/rdma_cm\n",
         "perftest", "error", "socket"),
    ],
)  # fmt: skip
def test_versions_and_variants_of_tools(text: str, kind: str, path: str, value: object) -> None:
    assert at(values_of(text, kind), path) == value


def test_a_topology_of_nccl_that_is_cut_off() -> None:
    result = of_text(NCCL_TOPOLOGY)
    assert "mlx5_0: 200 Gb/s behind PCIe 8 GT/s x16: at most 126 Gb/s" in result.warnings
    assert "no GPUDirect RDMA (gdr=0): mlx5_0" in result.warnings
    cut = of_text(NCCL_TOPOLOGY[: NCCL_TOPOLOGY.index("<nic>")])
    assert (cut.kind, cut.values["complete"], cut.values["nics"]) == ("nccl-topology", False, [])


MONTHS = [(month, f"{month}04") for month in range(1, 13)] + [(month, f"{month:02}04") for month in range(1, 10)]


@pytest.mark.parametrize(("month", "stamp"), MONTHS)
def test_stamps_of_pytorch_in_every_month(month: int, stamp: str) -> None:
    """PyTorch prints the month without a leading zero, glog with one: E704 and E0704 are the 4th of July."""
    watchdog = (
        "[rank2]:[E{}13:48:58.123456789 ProcessGroupNCCL.cpp:629] [Rank 2] Watchdog caught collective operation "
        "timeout: WorkNCCL(SeqNum=4, OpType=BROADCAST, NumelIn=1, NumelOut=1, Timeout(ms)=600000) "
        "ran for 600010 milliseconds.\n"
    )
    november, found = of_text(watchdog.format("1104 ")), of_text(watchdog.format(f"{stamp} "))
    assert (found.kind, found.values) == ("torch-log", november.values)
    for name in ("ibsim/ibstat_n061.txt", "h200x8/topo-m.txt"):
        plain = (SAMPLES / name).read_text()
        logged = "".join(f"I{stamp} 13:48:58.123456 4711 launch.py:88] {line}\n" for line in plain.splitlines())
        assert read(Source("text", logged)).values == of_text(plain).values, month
