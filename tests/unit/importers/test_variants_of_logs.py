"""Output of jobs, pings and Slurm in other versions and with other options than in the recorded outputs."""

from __future__ import annotations

from .places import of_text, values_of

# -- logs -------------------------------------------------------------------------------------------------------------

NCCL = """\
[2026-07-09 16:03:21] n060:1:9 [0] transport/net_ib/p2p.cc:80 NCCL WARN NET/IB: Got completion from peer \
192.0.2.5<33092> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_SEND(0) vendor_err=129 hca mlx5_0
n060:1:9 [0] NCCL INFO Channel 00/1 : 0[0] -> 9[1] [send] via NET/IB/0(1)/GDRDMA/Shared
n060:1:9 [0] NCCL INFO Channel 01/1 : 0[0] -> 9[1] [send] via NET/Socket/1
n060:1:9 [0] NCCL INFO ncclCommInitRankConfig comm 0x5 \
rank 0 nranks 16 cudaDev 0 nvmlDev 0 busId 18000 commId 0x7 - Init START
n061:1:9 [1] NCCL INFO ncclCommInitRankConfig comm 0x5 \
rank 9 nranks 16 cudaDev 1 nvmlDev 1 busId 2a000 commId 0x7 - Init COMPLETE
n060:1:9 [0] NCCL INFO comm 0x5 rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0 MNNVL 0
n060:1:9 [0] NCCL INFO NCCL_IB_HCA set by environment to mlx5_0.
n060:1:9 [0] NCCL INFO NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'
n060:1:9 [0] NCCL INFO NCCL version 2.28.9+cuda12.9
"""


def test_the_log_of_new_versions() -> None:
    values = values_of(NCCL, "nccl-log", version="2.28.9", cuda="12.9", nodes=2, nranks=16)
    assert values["edges"][0]["via"] == "NET/Socket/1"
    assert values["edges"][0]["ways"] == ["NET/IB/0(1)/GDRDMA/Shared", "NET/Socket/1"]
    assert (values["warns"][0]["error"], values["warns"][0]["vendor_err"]) == (12, 129)
    assert values["environment"] == {"NCCL_IB_HCA": "mlx5_0"}
    assert values["gpu_direct"] == {"mlx5_0": "disabled"}
    assert {rank["rank"]: rank["init"] for rank in values["ranks"]} == {0: "started", 9: "complete"}
    assert "ranks that began to initialise and did not end: 0" in of_text(NCCL).warnings


def test_a_first_cause_is_no_consequence() -> None:
    text = (
        "a:1:1 [0] misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer b<5>\n"
        "a:1:1 [0] misc/x.cc:1 NCCL WARN Call to ibv_modify_qp failed with error Connection timed out errno 110\n"
    )
    assert values_of(text, "nccl-log")["first_cause"].startswith("Call to ibv_modify_qp failed")


def test_a_traceback_of_memory() -> None:
    text = "[rank2]: torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    values_of(text, "torch-log", **{"class": "out_of_memory", "ranks": [2]})


def test_a_timeout_on_two_lines_and_the_newest_words() -> None:
    text = (
        "[rank3] Watchdog caught collective operation timeout:\n"
        "WorkNCCL(SeqNum=64214, OpType=ALLGATHER, NumelIn=1, NumelOut=32, Timeout(ms)=600000)\n"
        "[rank3]:[E1218 20:27:21.4 ProcessGroupNCCL.cpp:2168] [PG ID 1 PG GUID 1 Rank 3]"
        "  failure detected by watchdog at work sequence id: 64214 PG status:"
        " last enqueued work: 64215, last completed work: 64213\n"
    )
    (timeout,) = values_of(text, "torch-log", **{"class": "collective_timeout"})["timeouts"]
    assert (timeout["rank"], timeout["seq"], timeout["op"], timeout["ran"]) == (3, 64214, "ALLGATHER", None)
    assert (timeout["enqueued"], timeout["completed"], timeout["at"]) == (64215, 64213, 64214)


def test_who_completed_least_is_named() -> None:
    line = (
        "[rank{0}]:[E626 06:24:44.9 ProcessGroupNCCL.cpp:1785] [PG ID 0 PG GUID 0(default_pg) Rank {0}] Exception"
        " (either an error or timeout) detected by watchdog at work: {1}, last enqueued NCCL work: 20, last completed"
        " NCCL work: {1}.\n"
    )
    result = of_text(line.format(0, 11) + line.format(1, 7) + line.format(2, 11))
    assert "ranks 1 completed least: look there first" in result.warnings


def test_a_new_megatron_line() -> None:
    text = (
        " [2026-01-01 10:00:00] iteration        5/     100 | consumed samples:          640 | elapsed time per"
        " iteration (ms): 1500.5 | throughput per GPU (TFLOP/s/GPU): 412.3 | learning rate: 1.0E-04 |"
        " global batch size:   128 | lm loss: 1.0E+01 | loss scale: 1.0 | grad norm: 1.5 |"
        " number of skipped iterations:   0 | number of nan"
        " iterations:   0 |\n"
    )
    row = values_of(text, "megatron-log")["iterations"][0]
    assert (row["elapsed"], row["tflops"], row["time"]) == (1.5005, 412.3, "2026-01-01 10:00:00")


def test_a_slow_iteration_is_named() -> None:
    line = " iteration {0}/ 100 | consumed samples: 1 | elapsed time per iteration (ms): {1} |\n"
    result = of_text("".join(line.format(at, 1000 if at != 4 else 9000) for at in range(1, 8)))
    assert "iteration 4 took 9 s, the median is 1 s" in result.warnings


# -- ping, CSV, jobs --------------------------------------------------------------------------------------------------


def test_several_pings_in_a_text() -> None:
    one = (
        "PING n06{0} (192.0.2.6{0}) 56(84) bytes of data.\n"
        "64 bytes from n06{0} (192.0.2.6{0}): icmp_seq=1 ttl=64 time=0.1 ms\n\n"
        "--- n06{0} ping statistics ---\n1 packets transmitted, 1 received, 0% packet loss, time 0ms\n"
        "rtt min/avg/max/mdev = 0.1/0.1/0.1/0.0 ms\n\n"
    )
    runs = values_of(one.format(0) + one.format(1), "ping")["runs"]
    assert [(run["destination"], run["received"]) for run in runs] == [("n060", 1), ("n061", 1)]


PING_CSV = """\
SourceNode,SourceIP,DestinationNode,DestinationIP,NetworkSegment,Status
a001-gw,10.1.0.1,a002-gw,10.1.0.2,10.1.0,Success
a001-gw,10.2.0.1,a002-gw,10.2.0.2,10.2.0,Failure
a002-gw,10.1.0.2,a001-gw,10.1.0.1,10.1.0,Success
a002-gw,10.1.0.2,a001-gw,10.2.0.1,10.1.0->10.2.0,Failure
a002-gw,10.2.0.2,a001-gw,10.2.0.1,10.2.0,perhaps
a001-gw,10.1.0.1,a0
"""


def test_the_older_ping_csv() -> None:
    result = of_text(PING_CSV)
    assert result.kind == "ping-csv"
    assert result.values["counts"] == {"ok": 2, "failed": 2, "unknown": 1}
    assert result.values["matrix"]["cells"] == [[None, "1/2"], ["1/3", None]]
    assert [entry["failed"] for entry in result.values["segments"]] == [0, 1, 1]
    assert result.warnings == ["status 'perhaps' is not known", "a row is cut off"]
    assert result.unknown == ["a001-gw,10.1.0.1,a0"]


def test_the_jobs_of_a_pair_each() -> None:
    text = (
        "==> runs/p2p-test-0-9-101.out <==\nn060 [0/16]\nn061 [9/16]\nn060 [0] : BEG send 0 -> 9 132\n"
        "n061 [9] : BEG recv\nn061 [9] : END recv 9 <- 0 132\nn061 [9] : OK 0 -> 9\n"
        "==> runs/p2p-test-0-10-102.out <==\nn060 [0/16]\nn061 [10/16]\nn060 [0] : BEG send 0 -> 10 133\n"
        "==> runs/p2p-test-0-10-102.err <==\ntorch.distributed.DistBackendError: NCCL error: remote process failed\n"
        "==> runs/p2p-test-1-9-103.out <==\nn060 [1/16]\n"
        "==> runs/p2p-test-1-9-99.out <==\nn061 [9] : OK 1 -> 9\n"
    )
    values = values_of(text, "p2p-test", world=16)
    pairs = {(pair["src"], pair["dst"]): pair for pair in values["pairs"]}
    assert {key: pair["status"] for key, pair in pairs.items()} == {(0, 9): "ok", (0, 10): "failed", (1, 9): "unknown"}
    assert pairs[0, 10]["error"].startswith("torch.distributed.DistBackendError")
    assert pairs[1, 9]["job"] == "103"
    places = {entry["rank"]: (entry["host"], entry["index"]) for entry in values["ranks"]}
    assert places == {0: ("n060", 0), 1: ("n060", 1), 9: ("n061", 0), 10: ("n061", 1)}


def test_another_order_of_a_bench_table() -> None:
    text = "| payload |    algbw   |    busbw   |\n| ------: | ---------: | ---------: |\n"
    text += "|    1GiB | 264.90GBps | 463.58GBps |\n"
    assert values_of(text, "all_reduce_bench")["rows"] == [
        {"bytes": 1024**3, "payload": "1GiB", "algbw": 264.9, "busbw": 463.58}
    ]


def test_the_newest_bench() -> None:
    text = (
        "Environment:\n- software: torch=2.7.1, cuda=12.8, nccl=(2, 26, 5)\n- hardware: NVIDIA H200\n\n"
        "The average bandwidth of all_reduce over 8 ranks (5 warmups / 20 trials):\n\n"
        "| payload |    busbw   |    algbw   |\n| ------: | ---------: | ---------: |\n"
        "|    4GiB | 473.10GBps | 270.34GBps |\n"
    )
    values = values_of(text, "all_reduce_bench", ranks=8, nccl="2.26.5", torch="2.7.1", trials=20)
    assert values["rows"][0]["busbw"] == 473.1


def test_a_profile_of_one_payload() -> None:
    text = (
        "The 4GiB payload bandwidth of all_reduce over 16 ranks (5 warmups / 2 trials):\n\n"
        "|    busbw   |    algbw   |\n| ---------: | ---------: |\n"
        "| 473.10GBps | 270.34GBps |\n| 100.00GBps |  57.14GBps |\n"
    )
    rows = values_of(text, "all_reduce_bench", ranks=16)["rows"]
    assert [(row["bytes"], row["busbw"]) for row in rows] == [(4 * 1024**3, 473.1), (4 * 1024**3, 100.0)]


def test_blocks_of_ranks_with_their_hosts() -> None:
    block = "{0}:\n duration: 0.012 sec\n algbw: 800.000 Gbps\n busbw: {1} Gbps\n"
    text = block.format("n060:0", "700.000") + block.format("n061:0", "600.000")
    values = values_of(text, "all_reduce_bench", ranks=2)
    assert [(rank["host"], rank["rank"], rank["busbw"]) for rank in values["by_rank"]] == [
        ("n060", 0, 87.5),
        ("n061", 0, 75.0),
    ]


def test_a_bench_behind_pages_of_a_log() -> None:
    text = "a:1:1 [0] NCCL INFO threadThresholds 8/8/64 | 64/8/64 | 8/8/512\n" * 1000
    values_of(
        text + "0:\n duration: 0.1 sec\n algo throughput: 1 bps, 8.0 Gbps\n busbw: 7.0 Gbps\n", "all_reduce_bench"
    )


def test_bsd_counts_answers_that_come_again() -> None:
    text = (
        "PING 192.0.2.255 (192.0.2.255): 56 data bytes\n64 bytes from 192.0.2.1: icmp_seq=0 ttl=64 time=0.1 ms\n"
        "64 bytes from 192.0.2.2: icmp_seq=0 ttl=64 time=4.2 ms\n\n--- 192.0.2.255 ping statistics ---\n"
        "1 packets transmitted, 1 packets received, +1 duplicates, 0.0% packet loss\n"
        "round-trip min/avg/max/stddev = 0.1/2.1/4.2/2.0 ms\n"
    )
    run = values_of(text, "ping")["runs"][0]
    assert [reply["duplicate"] for reply in run["replies"]] == [False, True]
    assert run["duplicates"] == 1


# -- limits ----------------------------------------------------------------------------------------------------------


def test_limits_of_a_shell() -> None:
    text = (
        "core file size              (blocks, -c) 0\nmax locked memory           (kbytes, -l) 64\n"
        "open files                          (-n) 20000\nstack size                  (kbytes, -s) 8192\n"
        "max user processes                  (-u) unlimited\n"
    )
    limits = {entry["name"]: entry for entry in values_of(text, "ulimit")["limits"]}
    assert limits["max locked memory"] == {"name": "max locked memory", "soft": 65536, "hard": None, "unit": "bytes"}
    assert limits["open files"]["soft"] == 20000
    assert limits["max user processes"]["soft"] == "unlimited"
    assert of_text(text).warnings == ["locked memory is limited to 64 kB: RDMA cannot register its buffers (ulimit -l)"]


def test_limits_of_a_process() -> None:
    text = (
        "Limit                     Soft Limit           Hard Limit           Units     \n"
        "Max open files            1024                 524288               files     \n"
        "Max locked memory         unlimited            unlimited            bytes     \n"
        "Max nice priority         0                    0                    \n"
    )
    limits = {entry["name"]: entry for entry in values_of(text, "ulimit")["limits"]}
    assert (limits["open files"]["soft"], limits["open files"]["hard"]) == (1024, 524288)
    assert limits["max locked memory"]["soft"] == "unlimited"
    assert len(limits) == 3
    assert of_text(text).warnings == ["only 1024 files can be open at once (ulimit -n)"]


# -- Slurm ------------------------------------------------------------------------------------------------------------


def test_columns_of_ones_own() -> None:
    text = "NODELIST|STATE|REASON\nn[060-061]|down*|Not responding\n"
    row = values_of(text, "sinfo")["rows"][0]
    assert (row["nodelist"], row["state"], row["flags"], row["expands_to"]) == (
        "n[060-061]",
        "down",
        ["not responding"],
        2,
    )


def test_a_reason_with_a_blank_where_its_heading_ends() -> None:
    text = (
        "REASON               USER      TIMESTAMP           NODELIST\n"
        "broken cable         root      2025-04-02T16:01:38 cpu242\n"
    )
    row = values_of(text, "sinfo")["rows"][0]
    assert (row["reason"], row["user"], row["nodelist"]) == ("broken cable", "root", "cpu242")


def test_a_heading_that_lost_its_indent() -> None:
    text = (
        "hii$ squeue --me\n   JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)\n"
        "              8503 standardq my_scrip   abc123  R       0:02      1 node01fl\n"
    )
    row = values_of(text, "squeue")["rows"][0]
    assert (row["job"], row["name"], row["state"], row["nodelist"]) == ("8503", "my_scrip", "RUNNING", "node01fl")


def test_a_name_wider_than_its_column() -> None:
    text = (
        "             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)\n"
        "          12345678      ckpt klone-container UWNetID  R      00:01      1 n3219\n"
        "              4_11      ckpt sh UWNetID PD      00:00      1 \n"
    )
    rows = values_of(text, "squeue")["rows"]
    assert (rows[0]["name"], rows[0]["user"], rows[0]["nodelist"]) == ("klone-container", "UWNetID", "n3219")
