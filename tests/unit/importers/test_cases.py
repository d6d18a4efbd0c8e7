"""The cases in ``cases``, one file each: an output, the kind that it is read as, and facts of it."""

import json

import pytest

from fabtui.importers.result import read
from fabtui.importers.sources import Source
from fabtui.importers.to_model.dispatch import events
from fabtui.model.events import Measured

from .places import SAMPLES, at, cases, of_text, output_of


@pytest.mark.parametrize("name", [name for name, case in cases().items() if "real" not in case])
def test_a_case(name: str) -> None:
    case = cases()[name]
    result = of_text(output_of(name), case.get("as"))
    assert result.kind == case["kind"]
    values = json.loads(json.dumps(result.values, allow_nan=False))
    assert {path: at(values, path) for path in case["facts"]} == case["facts"]
    assert result.warnings == case.get("warnings", result.warnings)
    assert result.unknown == case.get("unknown", result.unknown)


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
    result = of_text(heading + rows)
    assert result.warnings == [f"n{at:03} {shown}" for at, shown in enumerate(states.values())]


def test_an_option_that_is_not_there() -> None:
    result = of_text((SAMPLES / "slurm/scontrol_json_unsupported.txt").read_text())
    assert "scontrol: unrecognized option '--json'" in result.warnings
    assert result.values["records"] == []


def test_a_value_that_is_none_is_no_measurement() -> None:
    result = of_text(output_of("osu-number-that-is-none-is-missing"), "osu")
    measured = next(event for event in events([result]) if isinstance(event, Measured)).measurements
    assert [one.bytes for one in measured] == [1]


def test_a_bench_behind_pages_of_a_log() -> None:
    text = "a:1:1 [0] NCCL INFO threadThresholds 8/8/64 | 64/8/64 | 8/8/512\n" * 1000
    text += "0:\n duration: 0.1 sec\n algo throughput: 1 bps, 8.0 Gbps\n busbw: 7.0 Gbps\n"
    assert of_text(text).kind == "all_reduce_bench"


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


_COLLECTIVE = "    all_reduce (torch/distributed/distributed_c10d.py:2501)\n    step (train.py:88)\n"
_LOADER = "    _try_get_data (torch/utils/data/dataloader.py:1133)\n    <module> (train.py:118)\n"
RANKS = "".join(
    f'Process {100 + rank}: python train.py --rank {rank}\nThread {100 + rank} (active): "MainThread"\n'
    + (_LOADER if rank == 2 else _COLLECTIVE)
    for rank in range(4)
)
FAULTHANDLER = """Thread 0x00007f1a2b3c4d5e (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 324 in wait

Current thread 0x00007f1a2b3c4d00 (most recent call first):
  File "/opt/torch/cuda/__init__.py", line 890 in synchronize
  File "/app/train.py", line 77 in main
"""
GDB = """Thread 2 (Thread 0x7f00 (LWP 812) "pt_main"):
#0  0x00007ffff7bc in pthread_cond_wait@@GLIBC_2.3.2 () from /lib/libpthread.so.0
#1  0x00007ffff6 in c10d::ProcessGroupNCCL::heartbeatMonitor() () from libtorch_cuda.so
Thread 1 (Thread 0x7f01 (LWP 811) "python3"):
#0  0x00007ffff5 in cuStreamSynchronize () from /usr/lib/libcuda.so.1
"""
PYSTACK = """Traceback for thread 5517 (python3) [] (most recent call last):
    (Python) File "/app/train.py", line 88, in main
        dist.barrier()
    (Python) File "/opt/torch/distributed/distributed_c10d.py", line 4525, in barrier
        work.wait()
"""


def test_the_rank_that_is_elsewhere_is_behind() -> None:
    values = read(Source("ranks.txt", RANKS)).values
    assert (values["hangs"], [place["rank"] for place in values["behind"]]) == (True, [2])
    assert values["answer"][0] == "rank 2 is elsewhere: the others wait for it in a collective"
    assert "data loader" in values["answer"][1]
    assert "py-spy dump --pid 102" in values["next"]


@pytest.mark.parametrize(
    ("text", "waits"),
    [
        (FAULTHANDLER, "for its GPU"),
        (GDB, "for its GPU"),
        (PYSTACK, "in a collective"),
        (RANKS[: len(RANKS) // 4], "in a c"),
    ],
)
def test_a_stack_shows_what_its_process_waits_for(text: str, waits: str) -> None:
    result = read(Source("stack.txt", text))
    assert (result.kind, len(result.values["processes"])) == ("stacks", 1)
    assert result.values["processes"][0]["waits"].startswith(waits)


PAIRS = """node-601 node-602 46.1
node-601 node-603 45.9
node-601 node-644 12.3
node-602 node-603 46.4
node-602 node-644 12.1
node-603 node-644 12.2
node-603 node-605 46.0
"""
NIXL = """Block Size (B)      Batch Size     B/W (GB/Sec)   Avg Lat. (us)
----------------------------------------------------------------
4096                1              1.234000       3.300000
"""
UCX = """|              |              |       overhead (usec)        |   bandwidth (MB/s)  |  message rate (msg/s) |
|    Stage     | # iterations | 50.0%ile | average | overall |  average |  overall |  average  |  overall  |
Final:                 50000     40.000    40.050    40.100    24960.00   24940.00       24960       24940
"""
NVSHMEM = """#shmem_put_bw
| size(B)                | BW GB/sec            |
| 1024                   | 0.123400             |
"""


def test_slow_pairs_name_the_node_that_they_share() -> None:
    result = read(Source("pairs.txt", PAIRS))
    assert (result.kind, len(result.values["pairs"]), result.values["slow"]) == ("node-pairs", 7, 3)
    assert result.values["answer"][0] == "node-644 is in all 3 slow pairs"


@pytest.mark.parametrize(
    ("text", "kind", "row"),
    [
        (NIXL, "nixlbench", {"block_size_b": 4096, "batch_size": 1, "b_w_gb_sec": 1.234, "avg_lat_us": 3.3}),
        (NVSHMEM, "nvshmem-perftest", {"size_b": 1024, "bw_gb_sec": 0.1234}),
    ],
)
def test_a_table_is_read(text: str, kind: str, row: dict[str, float]) -> None:
    result = read(Source("table.txt", text))
    assert (result.kind, result.values["rows"]) == (kind, [row])


def test_the_final_line_of_ucx_perftest_is_read() -> None:
    result = read(Source("ucx.txt", UCX))
    (row,) = result.values["rows"]
    assert (result.kind, row["final"], row["bandwidth"], row["average_overhead"]) == (
        "ucx_perftest",
        True,
        24960,
        40.05,
    )
