"""Real outputs, read in place: every file of the tools that only the login node reads gives the values it holds."""

from __future__ import annotations

from typing import Any

import pytest

from .places import at, index, read_file

pytestmark = pytest.mark.skipif(not index(), reason="no real samples here (FABTUI_REAL_SAMPLES)")

#: The kind of each folder.
FOLDERS = {
    "all_reduce_bench": "all_reduce_bench",
    "megatron-log": "megatron-log",
    "nccl-debug-log": "nccl-log",
    "nccl-tests": "nccl-tests",
    "nvbandwidth": "nvbandwidth",
    "osu": "osu",
    "p2pBandwidthLatencyTest": "p2pBandwidthLatencyTest",
    "perftest": "perftest",
    "ping": "ping",
    "slurm-sacct": "sacct",
    "slurm-scontrol": "scontrol",
    "slurm-sinfo": "sinfo",
    "slurm-squeue": "squeue",
    "slurmd-log": "slurmd-log",
    "torch-failure": "torch-log",
}

_OUT, _IN = "out_of_place.busbw", "in_place.busbw"

EXPECTED: dict[str, dict[str, Any]] = {
    "all_reduce_bench/jz-1x4-v100-opa-full-log.txt": {
        "by_rank.#": 4,
        "by_rank.0.printed_busbw": 997.0682,
        "by_rank.1.printed_busbw": 997.7959,
        "by_rank.2.printed_busbw": 997.4990,
        "by_rank.3.printed_busbw": 999.8120,
        "by_rank.0.busbw": 124.633525,
        "unit": "Gbps",
        "nccl": "2.7.8",
        "net": "IB hfi1_2,hfi1_0,hfi1_3,hfi1_1",
    },
    "all_reduce_bench/jz-4x8-a100-tail.txt": {
        "by_rank.0.printed_busbw": 40.4910,
        "by_rank.15.printed_busbw": 40.5143,
        "by_rank.20.printed_busbw": 40.5134,
        "by_rank.30.printed_busbw": 40.4912,
        "by_rank.31.printed_busbw": 40.4923,
        "by_rank.#": 32,
    },
    "all_reduce_bench/ml-eng-8xh200-table.txt": {
        "rows.#": 20,
        "rows.0.bytes": 32 * 1024,
        "rows.0.busbw": 1.44,
        "rows.-1.bytes": 16 * 1024**3,
        "rows.-1.busbw": 482.26,
        "rows.-1.algbw": 275.58,
        "unit": "GBps",
    },
    "all_reduce_bench/ml-eng-latency-comp.txt": {
        "rows.0.times": 1,
        "rows.0.payload": "4.0GB",
        "rows.0.printed_busbw": 3722.778,
        "rows.1.times": 1000,
        "rows.1.payload": "0.004GB",
        "rows.1.printed_busbw": 1146.127,
        "rows.1.busbw": 143.265875,
        "unit": "Gbps",
    },
    "all_reduce_bench/old-print-form-16ranks.txt": {
        "ranks": 16,
        "rows.0.algbw": 239.742,
        "rows.0.busbw": 449.515,
        "unit": "GBps",
    },
    "megatron-log/aws-meglm-label-prefix.txt": {
        "total": 73242187,
        "iterations.0.iteration": 25,
        "iterations.0.elapsed": 0.087,
        "iterations.0.loss": 10.86954,
        "iterations.1.elapsed": 0.0865,
        "iterations.2.elapsed": 0.0884,
        "elapsed_printed_in": "ms",
    },
    "megatron-log/aws-meglm-skipped-first-iters.txt": {
        "iterations.0.elapsed": 255.9405,
        "iterations.0.skipped": 1,
        "iterations.0.loss": None,
        "iterations.2.elapsed": 243.3444,
    },
    "megatron-log/meg-13b-loss-jump.txt": {
        "iterations.2.iteration": 29040,
        "iterations.2.loss": 2.768131,
        "iterations.3.loss": 7.343709,
        "iterations.4.loss": 8.715872,
        "iterations.4.loss_scale": 4096.0,
        "iterations.4.grad_norm": 0.0,
    },
    "megatron-log/meg-2021-base-n4.txt": {
        "total": 1000,
        "iterations.0.elapsed": 2.1522,
        "iterations.0.skipped": 10,
        "iterations.0.loss": None,
        "iterations.1.elapsed": 1.3549,
        "iterations.1.loss": 12.03115,
        "iterations.2.elapsed": 1.3761,
        "iterations.2.loss": 22.47505,
        "iterations.2.grad_norm": 16.999,
    },
    "megatron-log/meg-2021-perf-n16.txt": {
        "iterations.0.elapsed": 150.8917,
        "iterations.0.skipped": 1,
        "iterations.1.elapsed": 123.8963,
        "iterations.2.elapsed": 124.3622,
        "iterations.2.consumed_samples": 3072,
    },
    "megatron-log/meg-ds-104b-ms-tokens.txt": {
        "iterations.0.iteration": 6502,
        "iterations.0.elapsed": 31.0741,
        "iterations.0.consumed_tokens": 444334080,
        "iterations.0.loss": 3.876781,
        "iterations.0.grad_norm": 3246.595,
    },
    "megatron-log/meg-ds-176b-seconds-spike.txt": {
        "iterations.#": 11,
        "iterations.0.iteration": 31214,
        "iterations.0.elapsed": 106.46,
        "iterations.5.iteration": 31219,
        "iterations.5.loss": 5.098124,
        "iterations.5.grad_norm": 960.351,
        "iterations.-1.iteration": 31251,
        "iterations.-1.elapsed": 106.13,
        "elapsed_printed_in": "s",
    },
    "megatron-log/megatron-llm-fork.txt": {
        "iterations.0.elapsed": 86.5452,
        "iterations.0.loss": 2.504220,
        "iterations.-1.iteration": 126,
        "iterations.-1.elapsed": 89.6929,
        "iterations.-1.loss": None,
    },
    "nccl-debug-log/channel-net-ib-send-trees.txt": {
        "edges.0.src": 2,
        "edges.0.dst": 6,
        "edges.0.via": "NET/IB/0",
        "edges.0.channels": ["00/0", "01/0"],
        "edges.1.src": 6,
        "edges.1.dst": 2,
        "edges.1.via": "NET/IB/0",
        "hosts": ["SH-IDC1-10-142-5-57", "SH-IDC1-10-142-6-130"],
    },
    "nccl-debug-log/ib-error12-timeout.txt": {
        "warns.#": 1,
        "warns.0.host": "node-2",
        "warns.0.device": 0,
        "warns.0.peer": "10.2.0.5<33092>",
        "warns.0.error": 12,
        "warns.0.vendor_err": 129,
        "warns.0.direction": "Recv",
        "returns.0.code": 6,
        "returns.0.lines": 3,
    },
    "nccl-debug-log/init-complete-shm-commid.txt": {
        "edges.0.src": 0,
        "edges.0.dst": 1,
        "edges.0.via": "SHM/direct/direct",
        "channels.nvls": 0,
        "nranks": 8,
        "ranks.0.init": "complete",
    },
    "nccl-debug-log/net-lines-fastsocket-ib-socket-bond.txt": {
        "nics.0.net": "FastSocket",
        "nics.0.nics.#": 8,
        "nics.1.net": "IB",
        "nics.1.layers": ["IB"] * 8,
        "nics.2.net": "Socket",
        "nics.2.nics": ["eth0"],
        "nics.3.nics.#": 9,
        "nics.3.nics.8": "mlx5_bond_0",
        "nics.3.layers.8": "RoCE",
    },
    "nccl-debug-log/p2p-ipc-and-net-socket-mixed.txt": {"hosts.#": 2},
    "nccl-debug-log/socket-connect-abort-then-shm.txt": {
        "warns.#": 3,
        "warns.0.peer": "10.0.0.2<45763>",
        "first_cause": "socketStartConnect: Connect to 10.0.0.2<45763> failed : Software caused connection abort",
        "warns.2.peer": "node1<57557>",
        "edges.0.src": 5,
        "edges.0.dst": 4,
        "edges.0.via": "SHM/direct/direct",
    },
    "nccl-tests/aws-batch-2xp5-prefix-trailing-blanks.txt": {
        "tables.0.rows.#": 32,
        "tables.0.rows.-1.bytes": 17179869184,
        f"tables.0.rows.-1.{_OUT}": 483.05,
        f"tables.0.rows.-1.{_IN}": 483.35,
        "tables.0.average": 156.742,
    },
    "nccl-tests/aws-k8s-indented-elided.txt": {
        f"tables.0.rows.-1.{_OUT}": 437.79,
        f"tables.0.rows.-1.{_IN}": 437.89,
        "tables.0.average": 52.9753,
    },
    "nccl-tests/aws-srun-label-prefix.txt": {
        "tables.0.rows.0.bytes": 8,
        "tables.0.rows.0.out_of_place.time": 164.3,
        "tables.0.rows.-1.bytes": 536870912,
        f"tables.0.rows.-1.{_OUT}": 74.28,
        f"tables.0.rows.-1.{_IN}": 74.30,
    },
    "nccl-tests/aws-topology-elided.txt": {
        "tables.0.rows.0.out_of_place.time": 983.2,
        f"tables.0.rows.-1.{_OUT}": 369.86,
        f"tables.0.rows.-1.{_IN}": 369.42,
        "tables.0.average": 84.0569,
    },
    "nccl-tests/broadcast-warn-inside-header.txt": {
        "tables.0.ranks": 2,
        "tables.0.rows.#": 1,
        "tables.0.rows.0.root": 0,
        "tables.0.operation": "broadcast",
        "tables.0.rows.0.out_of_place.wrong": None,
    },
    "nccl-tests/cw-gb200-nvl72-tail.txt": {
        "tables.0.ranks": 72,
        "tables.0.rows.#": 5,
        f"tables.0.rows.-1.{_OUT}": 834.57,
        f"tables.0.rows.-1.{_IN}": 846.82,
        "tables.0.best": 846.82,
        "tables.0.average": 745.53,
        "tables.0.out_of_bounds": 0,
        "tables.0.operation": "all_reduce",
    },
    "nccl-tests/error-1e-07-2080ti.txt": {
        "tables.0.rows.#": 3,
        "tables.0.rows.0.out_of_place.error": 1e-07,
        "tables.0.rows.0.in_place.error": 0.0,
    },
    "nccl-tests/mpirun-tag-prefix.txt": {
        "tables.0.rows.#": 3,
        "tables.0.rows.2.bytes": 32,
        "tables.0.rows.2.out_of_place.time": 22.25,
    },
    "nccl-tests/multi-op-max-min-part.txt": {"tables.0.rows.#": 9},
    "nccl-tests/nii-h100-1x8.txt": {
        "tables.#": 3,
        "tables.0.ranks": 8,
        "tables.0.operation": "alltoall",
        "tables.0.average": 337.602,
        "tables.1.operation": "all_reduce",
        "tables.1.average": 436.423,
        "tables.2.operation": "all_gather",
        "tables.2.average": 347.304,
    },
    "nccl-tests/nii-h100-2x1.txt": {
        "tables.#": 3,
        "tables.0.ranks": 2,
        "tables.0.average": 25.2529,
        "tables.1.average": 47.1787,
        f"tables.1.rows.0.{_OUT}": 47.14,
        f"tables.1.rows.0.{_IN}": 47.22,
        "tables.2.average": 42.0968,
    },
    "nccl-tests/nii-h100-33x1.txt": {
        "tables.#": 3,
        "tables.2.ranks": 33,
        "tables.0.average": 24.421,
        "tables.1.average": 48.2763,
        "tables.2.average": 47.7737,
        "tables.2.rows.0.bytes": 536870400,
        f"tables.2.rows.0.{_OUT}": 47.72,
        f"tables.2.rows.0.{_IN}": 47.83,
    },
    "nccl-tests/nii-h100-4x8.txt": {
        "tables.#": 3,
        "tables.1.ranks": 32,
        "tables.0.average": 10.099,
        "tables.1.average": 165.585,
        "tables.2.average": 162.443,
    },
    "nccl-tests/nii-h100-8x8.txt": {
        "tables.#": 3,
        "tables.0.ranks": 64,
        "tables.0.average": 7.91524,
        "tables.1.average": 149.631,
        "tables.2.average": 116.647,
        f"tables.2.rows.0.{_OUT}": 120.14,
        f"tables.2.rows.0.{_IN}": 113.16,
    },
    "nccl-tests/sendrecv-2xa40-part.txt": {
        "tables.0.ranks": 2,
        "tables.0.hosts": ["gpu23", "gpu24"],
        "tables.0.rows.#": 5,
        "tables.0.rows.-1.bytes": 4096,
        f"tables.0.rows.-1.{_OUT}": 0.13,
        "tables.0.rows.-1.in_place.wrong": None,
        "tables.0.average": None,
        "tables.0.operation": "sendrecv",
    },
    "nvbandwidth/header-indent-lost.txt": {
        "tests.#": 2,
        "tests.0.matrices.0.cells.#": 1,
        "tests.0.matrices.0.cells.0.#": 8,
        "tests.0.matrices.0.cells.0.0": 35.19,
        "tests.1.matrices.0.cells.0.0": 52.77,
    },
    "nvbandwidth/readme-8x8-zero-diagonal.txt": {
        "tests.0.matrices.0.cells.#": 8,
        "tests.0.matrices.0.cells.0.1": 276.07,
        "tests.0.matrices.0.cells.6.0": 274.89,
        "tests.0.matrices.0.cells.3.3": None,
        "tests.0.sum": None,
    },
    "nvbandwidth/v07-assert-failure.txt": {
        "tests.0.matrices": [],
        "tests.0.status": "failed",
        "devices.#": 2,
        "version": "v0.7",
    },
    "nvbandwidth/v08-6xa6000-na-diagonal.txt": {
        "tests.0.matrices.0.cells.#": 6,
        "tests.0.matrices.0.cells.0.1": 26.34,
        "tests.0.matrices.0.cells.0.3": 21.95,
        "tests.0.matrices.0.cells.5.5": None,
        "tests.0.sum": 715.53,
    },
    "nvbandwidth/waived.txt": {
        "devices.#": 2,
        "tests.0.name": "device_to_device_memcpy_write_ce",
        "tests.0.status": "waived",
        "tests.0.matrices": [],
    },
    "osu/osu-bw-cuda-dd-v72.txt": {
        "tests.0.rows.#": 26,
        "tests.0.rows.-1.bytes": 33554432,
        "tests.0.rows.-1.bandwidth": 93130.52,
        "tests.0.units.bandwidth": "MB/s",
        "tests.0.buffers": "DEVICE to DEVICE",
    },
    "p2pBandwidthLatencyTest/4xa100-pcie-two-nvlink-pairs.txt": {
        "gpus": 4,
        "matrices.#": 9,
        "matrices.0.what": "access",
        "matrices.0.cells.0.1": 1,
        "matrices.0.cells.0.2": 0,
        "matrices.2.p2p": "enabled",
        "matrices.2.cells.0.1": 275.07,
        "matrices.2.cells.0.2": 21.62,
        "matrices.4.direction": "bidirectional",
        "matrices.4.cells.2.3": 517.45,
        "matrices.7.by": "gpu",
        "matrices.7.cells.0.1": 2.25,
        "matrices.8.by": "cpu",
        "devices.2.bus": "0003:00:00",
    },
    "p2pBandwidthLatencyTest/6xa100-sm-copy-writes-and-reads-part.txt": {
        "gpus": 6,
        "matrices.0.p2p": "disabled",
        "matrices.0.cells.0.1": 20.10,
        "matrices.1.way": "writes",
        "matrices.1.cells.0.1": 9.90,
        "matrices.2.way": "reads",
        "matrices.2.cells.0.2": 10.01,
    },
    "perftest/couldnt-connect.txt": {
        "rows": [],
        "error": "couldnt_connect",
        "target": "192.168.125.211:18515",
    },
    "perftest/failed-modify-qp-rtr.txt": {
        "rows": [],
        "error": "failed_modify_qp",
        "qp": 59,
        "qp_state": "RTR",
        "device": "mlx5_2",
    },
    "perftest/ib-send-bw-client-mib.txt": {
        "test": "Send BW",
        "unit": "MiB/s",
        "rows.-1.bytes": 16384,
        "rows.-1.average": 23547.97,
        "rows.-1.peak": None,
    },
    "perftest/ib-send-lat-client.txt": {
        "test": "Send Latency",
        "rows.#": 14,
        "rows.0.t_avg": 1.60,
        "rows.0.p99": 1.62,
        "rows.-1.bytes": 16384,
        "rows.-1.t_typical": 3.76,
        "rows.-1.p99_9": 5.58,
    },
    "perftest/ib-write-bw-duration-gbits.txt": {
        "test": "RDMA_Write Post List BW",
        "rows.0.bytes": 8,
        "rows.0.average": 0.48,
        "unit": "Gb/s",
        "rows.0.message_rate": 7.498617,
        "rows.0.peak": None,
        "rows.0.bandwidth": 0.06,
    },
    "perftest/ib-write-bw-loopback-interleaved.txt": {
        "rows.#": 1,
        "rows.0.bytes": 1000,
        "rows.0.peak": 4104.91,
        "rows.0.average": 4020.54,
        "unit": "MiB/s",
    },
    "ping/busybox-1of1.txt": {
        "runs.0.implementation": "busybox",
        "runs.0.sent": 1,
        "runs.0.received": 1,
        "runs.0.loss": 0.0,
        "runs.0.rtt_min": 1.637,
        "runs.0.rtt_max": 1.637,
        "runs.0.spread": None,
    },
    "ping/busybox-4of4-hostname.txt": {
        "runs.0.implementation": "busybox",
        "runs.0.received": 4,
        "runs.0.replies.0.seq": 0,
        "runs.0.rtt_avg": 1.345,
    },
    "ping/freebsd-3of3.txt": {"runs.0.sent": 3, "runs.0.received": 3, "runs.0.loss": 0.0, "runs.0.spread": 0.008},
    "ping/freebsd-ping6.txt": {
        "runs.0.ipv6": True,
        "runs.0.received": 3,
        "runs.0.loss": 0.0,
        "runs.0.replies.0.ttl": 64,
        "runs.0.replies.0.from": "::1",
    },
    "ping/iputils-O-D-no-answer.txt": {
        "runs.0.sent": 5,
        "runs.0.received": 0,
        "runs.0.loss": 100.0,
        "runs.0.no_answer": 4,
    },
    "ping/iputils-O-D-pattern-size1400.txt": {
        "runs.0.implementation": "iputils",
        "runs.0.destination": "turner-tls.map.fastly.net",
        "runs.0.payload": 1400,
        "runs.0.stamps": True,
        "runs.0.received": 20,
        "runs.0.rtt_avg": 34.468,
    },
    "ping/iputils-broadcast-dups.txt": {
        "runs.0.implementation": "iputils",
        "runs.0.address": "192.168.1.255",
        "runs.0.sent": 2,
        "runs.0.received": 2,
        "runs.0.duplicates": 19,
        "runs.0.rtt_avg": 504.260,
        "runs.0.pipe": 2,
    },
    "ping/iputils-empty-hostname.txt": {
        "runs.0.destination": None,
        "runs.0.address": "100.68.105.124",
        "runs.0.received": 1,
        "runs.0.rtt_avg": 0.040,
        "runs.0.spread": 0.0,
    },
    "ping/iputils-fedora-ipv6.txt": {
        "runs.0.ipv6": True,
        "runs.0.sent": 20,
        "runs.0.received": 20,
        "runs.0.rtt_avg": 37.536,
        "runs.0.stamps": True,
    },
    "ping/iputils-host-unreachable-pipe.txt": {
        "runs.0.sent": 3,
        "runs.0.received": 0,
        "runs.0.errors": 3,
        "runs.0.loss": 100.0,
        "runs.0.rtt_avg": None,
        "runs.0.pipe": 3,
    },
    "ping/iputils-ipv6-multicast-dup.txt": {
        "runs.0.ipv6": True,
        "runs.0.received": 5,
        "runs.0.duplicates": 4,
        "runs.0.rtt_avg": 4.726,
        "runs.0.address": "ff02::1%ens33",
    },
    "ping/macos-timeouts-unreachable.txt": {
        "runs.0.implementation": "bsd",
        "runs.0.sent": 8,
        "runs.0.received": 0,
        "runs.0.loss": 100.0,
    },
    "slurm-sacct/one-pending.txt": {
        "rows.#": 1,
        "rows.0.job": "3",
        "rows.0.state": "PENDING",
        "rows.0.account": None,
        "rows.0.cpus": 2,
    },
    "slurm-scontrol/idle-drain-gres-lower.txt": {
        "records.0.State": "IDLE+DRAIN",
        "records.0.reason": "gres/gpu count reported lower than configured (0 < 1)",
        "records.0.reason_by": "slurm",
        "records.0.reason_time": "2024-12-19T11:03:34",
        "records.0.CfgTRES": "cpu=8,mem=1M,billing=8,gres/gpu=1",
        "records.0.AllocTRES": None,
    },
    "slurm-sinfo/R-gres-gpu-reasons-truncated.txt": {
        "rows.#": 10,
        "rows.4.nodelist": "gpu002",
        "rows.4.reason": "gres/gpu count repor",
        "rows.6.nodelist": "gpu010",
        "rows.6.reason": "gres/gpu count repor",
    },
    "slurm-sinfo/drain-and-list-reasons.txt": {
        "rows.0.state": "drained",
        "rows.0.nodes": 3,
        "rows.0.expands_to": 3,
        "rows.1.reason": "Low RealMemory",
    },
    "slurm-sinfo/reboot-draining-fail-states.txt": {
        "rows.#": 9,
        "default_partition": "debug",
        "rows.0.partition": "cpu",
        "rows.0.state": "draining",
        "rows.0.flags": ["pending reboot"],
        "rows.0.nodes": 55,
        "rows.0.expands_to": 55,
        "rows.4.nodelist": "c[020-022]",
        "rows.4.printed_state": "fail*",
        "rows.4.time_limit": "14-00:00:0",
        "rows.7.partition": "idle",
        "rows.7.state": "idle",
    },
    "slurm-squeue/aws-nemo-wide-time.txt": {
        "rows.#": 1,
        "rows.0.job": "1234",
        "rows.0.state": "RUNNING",
        "rows.0.time": "00:19:40",
        "rows.0.nodes": 1,
        "rows.0.expands_to": 2,
    },
    "slurm-squeue/oci-nccl-running.txt": {
        "rows.#": 1,
        "rows.0.job": "22",
        "rows.0.state": "RUNNING",
        "rows.0.nodes": 2,
        "rows.0.nodelist": "h100-ord01-03-[14,294]",
        "rows.0.expands_to": 2,
    },
    "slurmd-log/stepd-terminated-not-ending.txt": {
        "steps.-1.job": 63532,
        "steps.-1.step": "0",
        "steps.-1.node": "cn106",
        "steps.-1.why": "job not ending with signals",
    },
    "torch-failure/cuda-ecc-uncorrectable-traceback.txt": {
        "class": "ecc_uncorrectable",
        "frames": 19,
        "classes": ["ecc_uncorrectable"],
    },
    "torch-failure/line-number-prefix-8ranks.txt": {
        "ranks": [0, 4],
        "timeouts.0.seq": 1580,
        "timeouts.0.enqueued": 1582,
        "timeouts.0.completed": 1579,
        "timeouts.1.completed": None,
    },
    "torch-failure/ncclremoteerror-ofi-rank-prefix.txt": {
        "class": "ncclRemoteError",
        "nccl": "2.28.8",
        "exceptions.0.rank": 3,
    },
    "torch-failure/ncclremoteerror-recv-reset.txt": {
        "class": "ncclRemoteError",
        "nccl": "2.21.5",
        "last_error": "socketProgressOpt: Call to recv from 172....<33759> failed : Connection reset by peer",
    },
    "torch-failure/one-line-runon-ncclremoteerror.txt": {
        "class": "ncclRemoteError",
        "nccl": "2.14.3",
        "ib_error": 12,
        "vendor_err": 129,
    },
    "torch-failure/watchdog-allreduce-timeout-3ranks.txt": {
        "timeouts.#": 3,
        "ranks": [0, 1, 2],
        "timeouts.0.seq": 808,
        "timeouts.0.op": "ALLREDUCE",
        "timeouts.0.limit": 600000,
        "timeouts.0.enqueued": 811,
        "timeouts.0.completed": 807,
        "timeouts.1.completed": 807,
        "timeouts.2.completed": None,
    },
}

#: What a file's own text complains of, in part.
WARNED = {
    "nccl-debug-log/net-lines-fastsocket-ib-socket-bond.txt": "mixed",
    "nccl-tests/aws-k8s-indented-elided.txt": "left out",
    "nccl-tests/aws-topology-elided.txt": "left out",
    "nccl-tests/broadcast-warn-inside-header.txt": "libibverbs",
    "nccl-tests/cw-gb200-nvl72-tail.txt": "1 of 72 ranks",
    "nccl-tests/sendrecv-2xa40-part.txt": "cut off",
    "nvbandwidth/v07-assert-failure.txt": "checking the pattern",
    "p2pBandwidthLatencyTest/6xa100-sm-copy-writes-and-reads-part.txt": "slower with P2P",
    "perftest/failed-modify-qp-rtr.txt": "GID is all zero",
    "perftest/ib-send-lat-client.txt": "left out",
    "megatron-log/megatron-llm-fork.txt": "cut off",
    "ping/iputils-host-unreachable-pipe.txt": "Destination Host Unreachable",
    "slurm-squeue/aws-nemo-wide-time.txt": "are 2 nodes, the column says 1",
    "slurmd-log/stepd-terminated-not-ending.txt": "not ending with signals",
}


def test_every_file_has_its_values() -> None:
    """No file of these folders is left without an expectation."""
    mine = {row["file"] for row in index() if row["command"] in FOLDERS}
    assert mine == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_values(name: str) -> None:
    result = read_file(name)
    assert result.kind == FOLDERS[name.partition("/")[0]]
    found = {path: at(result.values, path) for path in EXPECTED[name]}
    assert found == EXPECTED[name]
    assert not [line for line in result.unknown if "cut" not in " ".join(result.warnings)]
    assert WARNED.get(name, "") in "; ".join(result.warnings)


def test_no_two_ways_are_mixed() -> None:
    edges = read_file("nccl-debug-log/p2p-ipc-and-net-socket-mixed.txt").values["edges"]
    ways = {(edge["src"], edge["dst"]): edge["via"] for edge in edges}
    assert ways[3, 2] == "P2P/IPC"
    assert ways[15, 0] == "NET/Socket/0"
    assert ways[7, 8] == "NET/Socket/0"


def test_operations_of_one_table() -> None:
    rows = read_file("nccl-tests/multi-op-max-min-part.txt").values["tables"][0]["rows"]
    assert [row["redop"] for row in rows] == ["max"] * 6 + ["min"] * 3
    assert rows[6]["bytes"] < rows[5]["bytes"]


def test_drained_nodes_are_counted() -> None:
    rows = read_file("slurm-sinfo/R-gres-gpu-reasons-truncated.txt").values["rows"]
    assert [row["user"] for row in rows].count("slurm") == 7
    assert sum(row["expands_to"] for row in rows if row["nodelist"].startswith("gpu")) == 46
    assert sum(row["expands_to"] for row in rows if row["nodelist"].startswith("cpu")) == 3


def test_a_gradient_of_nothing_is_what_the_log_says() -> None:
    rows = read_file("megatron-log/meg-13b-loss-jump.txt").values["iterations"]
    assert {row["grad_norm"] for row in rows} == {0.0}
    assert len(rows) > 3


def test_the_error_of_the_network_is_kept() -> None:
    values = read_file("torch-failure/ncclremoteerror-ofi-rank-prefix.txt").values
    assert values["last_error"].startswith("NET/OFI")
    assert "RC: 113. Error: 2 (UNDELIVERABLE)" in values["last_error"]
