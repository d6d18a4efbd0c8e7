"""Output of benchmarks in other versions and with other options than in the recorded outputs."""

from __future__ import annotations

import json

import pytest

from fabtui.importers.to_model.dispatch import events
from fabtui.model.events import Measured

from .places import of_text, values_of

_SIDE = "     time   algbw   busbw #wrong"
_HEAD = f"#       size         count      type   redop    root{_SIDE}{_SIDE}\n"


# -- nccl-tests -------------------------------------------------------------------------------------------------------


def test_the_name_that_new_versions_print() -> None:
    text = (
        "# nccl-tests version 2.17.1 nccl-headers=22809 nccl-library=22809\n"
        "# Collective test starting: reduce_scatter_perf\n"
        "# nThread 1 nGpus 1 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 1 iters: 20 agg iters: 1 validation: 1"
        " graph: 0 unalign: 0\n#\n# Using devices\n"
        "#  Rank  0 Group  0 Pid   6899 on       n060 device  0 [0000:04:00] NVIDIA H200\n"
        "#  Rank  1 Group  0 Pid   6900 on       n061 device  0 [0000:05:00] NVIDIA H200\n#\n"
        + _HEAD
        + " 33554432 8388608 float sum -1    241.0  139.23   69.61      0    240.0  139.81   69.91      0\n"
        "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 69.76 \n#\n"
        "# Collective test concluded: reduce_scatter_perf\n"
    )
    table = values_of(text, "nccl-tests", version="2.17.1")["tables"][0]
    assert (table["operation"], table["operation_from"]) == ("reduce_scatter", "name")
    assert table["devices"][1] == {
        "rank": 1,
        "host": "n061",
        "device": 0,
        "bus": "0000:05:00",
        "name": "NVIDIA H200",
        "pid": 6900,
    }


def test_columns_of_each_iteration_and_time_stamps() -> None:
    text = (
        "#       size  count  type  redop  root  time  algbw  busbw  #wrong  i_min  i_max  i_p99  i_cv%"
        "  time  algbw  busbw  #wrong  i_min  i_max  i_p99  i_cv%  timestamp\n"
        "  1024  256  float  sum  -1  16.4  0.06  0.11  0  15.0  19.0  18.9  3.20"
        "  15.6  0.07  0.12  0  14.0  18.0  17.9  2.10  2026-07-09_16:03:21\n"
    )
    row = values_of(text, "nccl-tests")["tables"][0]["rows"][0]
    assert row["out_of_place"] == {
        "time": 16.4,
        "algbw": 0.06,
        "busbw": 0.11,
        "wrong": 0,
        "i_min": 15.0,
        "i_max": 19.0,
        "i_p99": 18.9,
        "i_cv": 3.2,
    }
    assert row["in_place"]["busbw"] == 0.12


def test_a_column_of_cpu_time() -> None:
    text = _HEAD.replace(" time", "cputime") + " 8 2 float sum -1 1.5 0.01 0.02 0 1.6 0.01 0.02 0\n"
    table = values_of(text, "nccl-tests")["tables"][0]
    assert table["time_is"] == "CPU time"
    assert table["rows"][0]["out_of_place"]["time"] == 1.5


def test_in_place_alone() -> None:
    text = _HEAD + "   1024   256   float   sum   -1                                  15.6   0.07   0.12   0\n"
    row = values_of(text, "nccl-tests")["tables"][0]["rows"][0]
    assert row["out_of_place"] is None
    assert row["in_place"]["busbw"] == 0.12


def test_old_tables_without_redop_and_root() -> None:
    text = (
        "# Using devices\n#   Rank  0 on       n060 device  0 [0x06] Tesla V100\n"
        "#       size         count    type     time   algbw   busbw  error     time   algbw   busbw  error\n"
        "     1048576        262144   float    45.82   22.88   11.44  0e+00    38.17   27.47   13.74  0e+00\n"
        " Out of bounds values : 0 OK\n"
    )
    table = values_of(text, "nccl-tests")["tables"][0]
    # Neither all_gather nor alltoall of the old versions names the operation.
    assert table["operation"] is None
    assert table["rows"][0]["root"] is None
    assert table["rows"][0]["in_place"] == {"time": 38.17, "algbw": 27.47, "busbw": 13.74, "error": 0.0}


def test_wrong_results_are_reported() -> None:
    text = (
        _HEAD
        + "   8  2  float  sum  -1  12.9  0.00  0.00  3  12.8  0.00  0.00  1.2e+06\n# Out of bounds values : 2 FAILED\n"
    )
    result = of_text(text)
    assert "1200003 elements of results are wrong" in result.warnings
    assert any("FAILED" in line for line in result.warnings)


def test_a_row_that_is_cut_off_is_no_row() -> None:
    result = of_text(_HEAD + "   8  2  float  sum  -1  12.9  0.00  0.00  0  12.8  0.0")
    assert result.values["tables"] == []
    assert any("cut off" in line for line in result.warnings)


@pytest.mark.parametrize(
    ("row", "ranks", "operation"),
    [
        ("float sum -1 100 100.0 175.0 0 100 100.0 175.0 0", 8, "all_reduce"),
        ("float sum -1 100 100.0 100.0 0 100 100.0 100.0 0", 2, None),
        ("float sum -1 100 100.0 50.0 0 100 100.0 50.0 0", 2, None),
        ("float sum -1 100 100.0 100.0 0 100 100.0 100.0 N/A", 2, "sendrecv"),
        ("float none -1 100 100.0 87.5 0 100 100.0 87.5 N/A", 8, "alltoall"),
        ("float none -1 100 100.0 87.5 0 100 100.0 87.5 0", 8, None),
        ("float none 0 100 100.0 100.0 0 100 100.0 100.0 0", 8, None),
        ("float sum 0 100 100.0 100.0 0 100 100.0 100.0 0", 8, "reduce"),
    ],
)
def test_an_operation_is_set_only_if_one_prints_such(row: str, ranks: int, operation: str | None) -> None:
    devices = "".join(f"#  Rank {rank} Group 0 Pid 1 on n060 device {rank} [0x1] H200\n" for rank in range(ranks))
    (table,) = values_of(f"{devices}{_HEAD} 8388608 2097152 {row}\n", "nccl-tests")["tables"]
    assert table["operation"] == operation


def test_the_command_names_the_operation() -> None:
    text = f"$ ./build/all_gather_perf -b 8 -e 8\n{_HEAD} 8 2 float none -1 1.5 0.01 0.02 0 1.6 0.01 0.02 0\n"
    assert values_of(text, "nccl-tests")["tables"][0]["operation"] == "all_gather"


def test_a_table_that_somebody_halved() -> None:
    text = (
        "#       size    count   type  redop  root   time   algbw   busbw  #wrong\n"
        "#        (B)  (elements)                    (us)  (GB/s)  (GB/s)\n"
        "  34359738368 8589934592  float   sum    -1  875713  39.24   68.66       0\n# Avg bus bandwidth    : 68.6248\n"
    )
    table = values_of(text, "nccl-tests")["tables"][0]
    assert table["rows"][0]["out_of_place"]["busbw"] == 68.66
    assert table["rows"][0]["in_place"] is None
    assert (table["operation"], table["average"]) == ("all_reduce", 68.6248)


def test_the_file_that_nccl_tests_write() -> None:
    row = {"size": 16, "count": 4, "type": "float", "redop": "sum", "root": "    -1"}
    side = {"time": 838.8, "alg_bw": 320.0, "bus_bw": 560.0, "nwrong": 0.0}
    value = {
        "version": 1,
        "args": ["/opt/nccl-tests/build/all_reduce_perf", "-J", "x.json"],
        "env": [],
        "nccl_version": 22809,
        "config": {"nthreads": 1, "ngpus": 8, "iterations": 20},
        "devices": [
            {"rank": rank, "group": 0, "pid": 1, "hostname": "n060", "device": rank, "device_hex": "0000:18:00",
             "device_info": "NVIDIA H200"}
            for rank in range(8)
        ],
        "results": [
            {**row, "out_of_place": None, "in_place": side},
            {**row, "out_of_place": side, "in_place": {**side, "bus_bw": "nan"}},
        ],
        "out_of_bounds": {"count": 0, "okay": True},
        "average_bus_bandwidth": {"bandwidth": 560.0, "okay": "unchecked"},
    }  # fmt: skip
    values = values_of(json.dumps(value), "nccl-tests", nccl="2.28.9")
    (table,) = values["tables"]
    assert (table["operation"], table["ranks"], table["average"], table["hosts"]) == ("all_reduce", 8, 560.0, ["n060"])
    assert table["rows"][0]["out_of_place"] is None
    assert table["rows"][0]["in_place"] == {"time": 838.8, "algbw": 320.0, "busbw": 560.0, "wrong": 0}
    assert table["rows"][1]["root"] == -1
    assert table["rows"][1]["in_place"] is None


# -- nvbandwidth ------------------------------------------------------------------------------------------------------

MULTINODE = """\
nvbandwidth Version: v0.8
Built from Git version: v0.8

MPI version: Open MPI v4.1.5
CUDA Runtime Version: 12080
CUDA Driver Version: 12080
Driver Version: 570.86.10

Process 0 (n060): device 0: NVIDIA GB200 (00000008:01:00)
Process 1 (n061): device 0: NVIDIA GB200 (00000008:01:00)

Running multinode_device_to_device_memcpy_write_ce.
memcpy CE GPU(row) <- GPU(column) bandwidth (GB/s)
           0         1
 0       N/A    820.10
 1    819.50       N/A

SUM multinode_device_to_device_memcpy_write_ce 1639.60

NOTE: The reported results may not reflect the full capabilities of the platform.
"""


def test_nvbandwidth_of_several_nodes() -> None:
    values = values_of(MULTINODE, "nvbandwidth", mpi="Open MPI v4.1.5")
    assert [(device["host"], device["device"]) for device in values["devices"]] == [("n060", 0), ("n061", 0)]
    assert values["tests"][0]["matrices"][0]["cells"] == [[None, 820.10], [819.50, None]]
    assert not of_text(MULTINODE).unknown


def test_nvbandwidth_with_tables_of_one_test_each_way() -> None:
    text = (
        "Running device_to_device_bidirectional_memcpy_read_ce.\n"
        "memcpy CE GPU(row) <-> GPU(column) Read1 bandwidth (GB/s)\n           0         1\n"
        " 0       N/A    180.00\n 1    181.00       N/A\n\n"
        "SUM device_to_device_bidirectional_memcpy_read_ce_read1 361.00\n\n"
        "memcpy CE GPU(row) <-> GPU(column) Total bandwidth (GB/s)\n           0         1\n"
        " 0       N/A    360.00\n 1    362.00       N/A\n\n"
        "SUM device_to_device_bidirectional_memcpy_read_ce_total 722.00\n\n"
        "Running device_to_device_latency_sm.\n"
        "Device to Device Latency SM GPU(row) <-> GPU(column) (ns)\n           0         1\n"
        " 0       N/A    700.55\n 1    701.11       N/A\n\nSUM device_to_device_latency_sm 1401.66\n"
    )
    tests = values_of(text, "nvbandwidth")["tests"]
    assert [len(test["matrices"]) for test in tests] == [2, 1]
    assert tests[1]["matrices"][0]["unit"] == "ns"
    assert tests[1]["sum"] == 1401.66


def test_nvbandwidth_as_json() -> None:
    value = {
        "nvbandwidth": {
            "CUDA Runtime Version": 12080,
            "Driver Version": "570.86.10",
            "GPU Device list": ["0: NVIDIA H200 (00000000:18:00): (n060)", "1: NVIDIA H200 (00000000:2a:00): (n060)"],
            "git_version": "v0.8",
            "testcases": [
                {
                    "bandwidth_description": "memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)",
                    "bandwidth_matrix": [["N/A", "392.5"], ["393.25", "N/A"]],
                    "name": "device_to_device_memcpy_read_ce",
                    "status": "Passed",
                    "sum": 785.75,
                },
                {"name": "multinode_device_to_device_memcpy_read_ce", "status": "Waived"},
            ],
            "version": "v0.8",
        }
    }
    values = values_of(json.dumps(value, indent=3), "nvbandwidth", version="v0.8")
    assert values["devices"][1] == {"host": "n060", "device": 1, "name": "NVIDIA H200", "bus": "00000000:2a:00"}
    assert values["tests"][0]["matrices"][0]["cells"] == [[None, 392.5], [393.25, None]]
    assert [test["status"] for test in values["tests"]] == ["passed", "waived"]


def test_nvbandwidth_that_stands_indented() -> None:
    text = "".join(f"      {line}\n" for line in MULTINODE.splitlines())
    values = values_of(text, "nvbandwidth", version="v0.8")
    assert len(values["devices"]) == 2
    assert values["tests"][0]["sum"] == 1639.6


def test_nccl_tests_heading_whose_first_column_is_unreadable() -> None:
    text = (
        "#       size         count      type   redop    ro?time   algbw   busbw #wrong\n"
        " 134217728 33554432 float sum -1 1950.5 68.81 129.02 0 1725.6 77.78 145.83 0\n"
    )
    assert values_of(text, "nccl-tests")["tables"][0]["rows"][0]["in_place"]["busbw"] == 145.83


# -- OSU --------------------------------------------------------------------------------------------------------------


def test_osu_latency() -> None:
    text = "# OSU MPI Latency Test v5.9\n# Size          Latency (us)\n0             1.21\n1             1.25\n"
    test = values_of(text, "osu")["tests"][0]
    assert test["measures"] == "latency"
    assert test["rows"] == [{"bytes": 0, "latency": 1.21}, {"bytes": 1, "latency": 1.25}]
    assert test["units"] == {"latency": "us"}


def test_osu_number_that_is_none_is_missing() -> None:
    text = (
        "# OSU MPI Bandwidth Test v5.9\n# Size      Bandwidth (MB/s)\n1            1.21\n2      16.61e9995\n4     N/A\n"
    )
    result = of_text(text, "osu")
    assert [row["bandwidth"] for row in result.values["tests"][0]["rows"]] == [1.21, None, None]
    assert len(result.unknown) == 2
    measured = next(event for event in events([result]) if isinstance(event, Measured)).measurements
    assert [one.bytes for one in measured] == [1]


def test_osu_of_long_ago() -> None:
    text = "# OSU MPI Latency Test (Version 2.1)\n# Size\t\tLatency (us)\n0\t\t0.64\n1\t\t0.67\n...\n"
    test = values_of(text, "osu")["tests"][0]
    assert (test["test"], test["version"]) == ("MPI Latency", "2.1")
    assert test["rows"][1] == {"bytes": 1, "latency": 0.67}


def test_osu_collectives_with_all_columns() -> None:
    text = (
        "# OSU MPI Allreduce Latency Test v7.0\n"
        "# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations\n"
        "4                      86.56             21.32            126.27        1000\n"
    )
    row = values_of(text, "osu")["tests"][0]["rows"][0]
    assert row == {"bytes": 4, "avg_latency": 86.56, "min_latency": 21.32, "max_latency": 126.27, "iterations": 1000}


def test_osu_message_rate_validation_and_barrier() -> None:
    text = (
        "# OSU MPI Multiple Bandwidth / Message Rate Test v5.9\n# [ pairs: 2 ] [ window size: 64 ]\n"
        "# Size                  MB/s        Messages/s\n1                       6.05        6054321.10\n"
        "# OSU MPI Bi-Directional Bandwidth Test v7.2\n# Size      Bandwidth (MB/s)        Validation\n"
        "1                       1.01              Pass\n2                       2.02              Fail\n"
        "# OSU MPI Barrier Latency Test v5.9\n# Avg Latency(us)\n             1.32\n"
    )
    tests = values_of(text, "osu")["tests"]
    assert tests[0]["settings"] == {"pairs": "2", "window size": "64"}
    assert tests[0]["rows"] == [{"bytes": 1, "bandwidth": 6.05, "message_rate": 6054321.1}]
    assert tests[1]["measures"] == "bidirectional bandwidth"
    assert tests[2]["rows"] == [{"avg_latency": 1.32}]
    assert "wrong data with messages of 2 bytes" in of_text(text).warnings
