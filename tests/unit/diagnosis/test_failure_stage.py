"""Stages of failures: by source file, by words and numbers; other programs' lines have none."""

from __future__ import annotations

import re

import pytest

from fabtui.diagnosis.knowledge.error_catalogue import programs_in
from fabtui.diagnosis.knowledge.failure_stage import stage_failure, stage_of_file, stages
from fabtui.diagnosis.knowledge.log_causes import LogReader


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("n1:4:5 [1] transport/nvls.cc:9 NCCL WARN Odd 401", "E200", "NVLink SHARP (NVLS) set-up failed"),
        ("[2026-11-20 10:12:01] n1:4:5 [1] transport/shm.cc:7 NCCL WARN odd", "E207", "shared memory"),
        ("n1:4:5 [1] transport/p2p.cc:7 (p2pConnect) NCCL WARN Cuda failure 'odd'", "E208", "peer-to-peer"),
        ("n1:4:5 [1] transport/net_ib/p2p.cc:7 NCCL WARN odd", "E206", "RDMA"),
        ("n1:4:5 [1] misc/ibvwrap.cc:7 NCCL WARN odd", "E205", "libibverbs"),
        ("n1:4:5 [1] include/socket.h:361 NCCL WARN odd", "E210", "TCP"),
        ("n1:4:5 [1] bootstrap.cu:19 NCCL WARN odd", "E210", "TCP"),
        ("n1:4:5 [1] /long/rccl/src/graph/xml.cc:19 NCCL WARN odd", "E214", "topology"),
        ("mnnvl.cc:74 NCCL WARN odd", "E201", "MNNVL"),
        ("include/socket.h:344 WARN Odd : Connection refused", "E210", "errno 111"),
        ("n1:4:5 [0] bootstrap.cu:19 WARN odd", "E210", "TCP"),
        ("n1:4:5 [1] NCCL WARN NET/OFI odd thing. RC: -22, Error: Invalid argument", "E202", "errno 22 (invalid"),
        ("n1:4:5 [1] NCCL WARN odd shared memory segment, error: No space left on device (28)", "E207", "errno 28"),
        ("n1:4:5 [1] NCCL INFO transport/coll_net.cc:68 -> 3", "E203", "NCCL result 3"),
        ("[rank1]:[E1120 10:12:01.123 TCPStore.cpp:138] [c10d] odd", "E222", "rendezvous"),
        ("RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:5] odd", "E221", "Gloo"),
        ("[1699.1] [n1:1:0] ib_mlx5_log.c:143 UCX  ERROR odd on mlx5_0:1/RoCE", "E225", "UCX failed"),
        ("[ 12.1] mlx5_core 0000:3b:00.0: odd command failed, status 0x5", "E227", "driver of the node"),
        ("RuntimeError: CUDA error: odd, cudaErrorLaunchFailure", "E212", "CUDA error 719"),
    ],
)
def test_a_failure_has_a_stage_and_its_number(line: str, code: str, words: str) -> None:
    found = stage_failure(line)
    assert found is not None
    assert (found.code, words in found.text) == (code, True), found.text


def test_perftest_prints_words_of_many_programs() -> None:
    line = "Couldn't create receive completion channel of the QP"
    assert stage_failure(line) is None
    found = stage_failure(line, programs=programs_in(f"$ ib_write_bw n061\n{line}"))
    assert found is not None
    assert found.code == "E224"


@pytest.mark.parametrize(
    "line",
    [
        "x.cc:3 NCCL WARN odd thing",
        "n1:4:5 [1] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC",
        "n1:4:5 [1] NCCL INFO NVLS multicast support is available on dev 0",
        "ncclCommInitRank comm 0x5 rank 0 nranks 16 cudaDev 0 busId 18000 - Init START",
        "sshd[81]: error: kex_exchange_identification: Connection closed by remote host",
        "src/main.cc:17: error: expected ';' before '}' token",
        "nginx: [emerg] bind() to 0.0.0.0:80 failed (98: Address already in use)",
        "FileNotFoundError: [Errno 2] No such file or directory: 'train.json'",
        "ERROR 1045 (28000): Access denied for user 'root'@'localhost'",
        "make: *** [Makefile:12: all] Error 2",
        "E: Unable to locate package libnccl2",
        "[E1120 10:12:01.123 1234 server.cpp:138] cannot open socket",
        "kernel: usb 1-1: device descriptor read/64, error -71",
        "systemd[1]: Failed to start Network Manager.",
        "fatal: unable to access 'https://example.org/': Could not resolve host",
        "docker: Error response from daemon: could not select device driver",
        "ssh: connect to host n060 port 22: Connection timed out",
        "curl: (7) Failed to connect to example.org port 443: Connection refused",
        "segfault at 0 ip 00007f in libc.so.6",
        "panic: runtime error: invalid memory address or nil pointer dereference",
        "TypeError: unsupported operand type(s) for +: 'int' and 'str'",
        "the socket of the lamp failed, check the topology of the plugin",
    ],
)
def test_other_lines_have_no_stage(line: str) -> None:
    assert stage_failure(line) is None
    if "Init START" in line:
        return  # Without its end it is the sign of another failure.
    reader = LogReader()
    reader.add(line)
    assert reader.result().causes == []


def test_the_first_step_fits_the_number() -> None:
    found = stage_failure("n1:4:5 [1] transport/p2p.cc:7 NCCL WARN Cuda failure 35 'odd'")
    assert found is not None
    assert found.next.startswith("Compare the driver (nvidia-smi) with the CUDA version")
    assert "NCCL_P2P_DISABLE=1" in found.next


def test_the_stages_are_valid() -> None:
    found = stages()
    assert len({one.id for one in found}) == len({one.meaning.code for one in found}) == len(found)
    for one in found:
        assert re.fullmatch(r"E2\d\d", one.meaning.code)
        assert one.meaning.next.endswith(".")
        for pattern in filter(None, (one.files, one.words)):
            assert not re.search(r"\{\d+,\}|\)[*+]|\.[*+]", pattern), one.id


@pytest.mark.parametrize(
    ("path", "stage"),
    [
        ("src/transport/net_ib/p2p.cc", "rdma"),
        ("transport/p2p.cc", "p2p"),
        ("misc/socket.cc", "tcp"),
        ("socket.cpp", "store"),
        ("ProcessGroupNCCL.cpp", "watchdog"),
        ("gloo/transport/tcp/socket.cc", "gloo"),
        ("main.cc", None),
    ],
)
def test_a_source_file_belongs_to_a_stage(path: str, stage: str | None) -> None:
    found = stage_of_file(path)
    assert (found and found.id) == stage
