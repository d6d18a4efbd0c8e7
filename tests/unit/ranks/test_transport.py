"""Lines of NCCL's log, real ones and ones built after NCCL's source."""

from pathlib import Path

import pytest

from fabtui_node.parsers.nccl import log_lines
from fabtui_node.parsers.nccl.log_lines import Nic
from fabtui_node.ranks import rank_host
from fabtui_node.ranks.nccl import log_capture

LINES = {
    "send-ib": "node-1:11:22 [2] NCCL INFO Channel 00/0 : 2[50000] -> 6[63000] [send] via NET/IB/0",
    "gdr": "n0:1:2 [0] NCCL INFO Channel 01/0 : 9[1] -> 2[2] [receive] via NET/IB/3/GDRDMA/Shared",
    "pxn": "n0:1:2 [0] NCCL INFO Channel 01/0 : 0[0] -> 9[1] [send] via NET/IB/3(6)/GDRDMA",
    "c2c": "n0:1:2 [0] NCCL INFO Channel 01/0 : 0[0] -> 9[1] [send] via NET/IB/3/GDRDMA(PCI)",
    "ring": "ip-10-0-0-9:8544:8601 [7] NCCL INFO Ring 00 : 15 -> 0 [send] via NET/Socket/0",
    "p2p": "n0:1:2 [5] NCCL INFO Channel 03/1 : 0[5] -> 1[6] via P2P/CUMEM/read",
    "pointer": "n0:1:2 [5] NCCL INFO Channel 03/1 : 0[5] -> 1[6] via P2P/direct pointer",
    "shm": "ubuntu:39964:40049 [5] NCCL INFO Channel 20 : 5[5] -> 4[4] via SHM/direct/direct",
    "stamped": "[2026-11-20 10:11:12] n0:1:2 [0] NCCL INFO Channel 00/1 : 0[0] -> 1[1] via P2P/IPC",
    "warn": "node-2:57:59 [0] transport/net_ib.cc:1296 NCCL WARN NET/IB : Got completion with error 12, opcode 0",
}


@pytest.mark.parametrize(
    ("name", "channel", "way"),
    [
        ("send-ib", (2, 6, "send", "NET/IB/0"), "NET/IB/mlx5_0"),
        ("gdr", (9, 2, "receive", "NET/IB/3/GDRDMA/Shared"), "NET/IB/3/GDRDMA"),
        ("pxn", (0, 9, "send", "NET/IB/3(6)/GDRDMA"), "NET/IB/3/GDRDMA/PXN"),
        ("c2c", (0, 9, "send", "NET/IB/3/GDRDMA(PCI)"), "NET/IB/3/GDRDMA(PCI)"),
        ("ring", (15, 0, "send", "NET/Socket/0"), "NET/Socket/eth0"),
        ("p2p", (0, 1, None, "P2P/CUMEM/read"), "P2P/CUMEM/read"),
        ("pointer", (0, 1, None, "P2P/direct pointer"), "P2P/direct pointer"),
        ("shm", (5, 4, None, "SHM/direct/direct"), "SHM/direct"),
        ("stamped", (0, 1, None, "P2P/IPC"), "P2P/IPC"),
    ],
)
def test_channels(name: str, channel: tuple[object, ...], way: str) -> None:
    line = log_lines.parse_line(LINES[name])
    assert line is not None
    assert line.level == "INFO"
    found = log_lines.parse_channel(line.text)
    assert found is not None
    assert found[1:] == channel
    nics = {("IB", 0): Nic("mlx5_0", None), ("Socket", 0): Nic("eth0", "10.0.0.1")}
    assert log_lines.short_name(found.via, nics) == way


def test_a_line_knows_its_gpu_and_level() -> None:
    line = log_lines.parse_line(LINES["warn"])
    assert line is not None
    assert (line.host, line.pid, line.tid, line.device, line.level) == ("node-2", 57, 59, 0, "WARN")
    assert line.text.startswith("NET/IB : Got completion")
    named = log_lines.parse_line("n060:7:9 [2] transport/nvls.cc:254 (ncclNvlsSetup) NCCL WARN odd")
    assert named is not None
    assert (named.host, named.device, named.where, named.text) == ("n060", 2, "transport/nvls.cc:254", "odd")
    typed = log_lines.parse_line("n060:7:9 [2] ncclResult_t reg_mr(void*, int):617 NCCL WARN NET/OFI odd")
    assert typed is not None
    assert (typed.host, typed.level, typed.text) == ("n060", "WARN", "NET/OFI odd")
    assert log_lines.parse_line("") is None
    assert log_lines.parse_line("Traceback (most recent call last):") is None


def test_interfaces() -> None:
    text = "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_bond_0:1/RoCE [RO]; OOB ib0:10.0.12.82<0>"
    assert log_lines.parse_nics(text) == {("IB", 0): Nic("mlx5_0", None), ("IB", 1): Nic("mlx5_bond_0", None)}
    text = "NET/Socket : Using [0]eth0:10.0.0.23<0> [1]eth1:fe80::1%eth1<0>"
    nics = log_lines.parse_nics(text)
    assert nics == {("Socket", 0): Nic("eth0", "10.0.0.23"), ("Socket", 1): Nic("eth1", "fe80::1%eth1")}
    assert log_lines.address_of("NET/Socket/0", nics) == "10.0.0.23"
    assert log_lines.address_of("NET/Socket/7", nics) is None
    assert log_lines.address_of("P2P/CUMEM", nics) is None
    assert log_lines.parse_nics("NET/Socket: Using 2 threads and 8 sockets per thread") == {}
    joined = "NET/IB : Made virtual device [8] name=mlx5_0+mlx5_1 speed=800000 ndevs=2 rail=0 plane=3"
    nics = log_lines.parse_nics(joined)
    assert nics == {("IB", 8): Nic("mlx5_0+mlx5_1", None)}
    assert log_lines.short_name("NET/IB/8/GDRDMA", nics) == "NET/IB/mlx5_0+mlx5_1/GDRDMA"


def test_the_worst_way_of_a_direction_counts() -> None:
    texts = [
        "h:1:2 [0] NCCL INFO Channel 00/1 : 0[0] -> 1[1] [send] via NET/IB/0/GDRDMA",
        "h:1:2 [0] NCCL INFO Channel 01/1 : 0[0] -> 1[1] [send] via NET/IB/1",
        "h:1:2 [0] NCCL INFO Channel 01/1 : 1[1] -> 0[0] [receive] via NET/Socket/1",
    ]
    lines = [line for line in map(log_lines.parse_line, texts) if line is not None]
    assert log_lines.worst(log_lines.transports(lines, 0, 1, sending=True)) == "NET/IB/1"
    assert log_lines.worst(log_lines.transports(lines, 1, 0, sending=True)) is None
    assert log_lines.worst(log_lines.transports(lines, 1, 0, sending=False)) == "NET/Socket/1"
    order = ["P2P/CUMEM", "SHM/direct", "NET/IB/0/GDRDMA", "NET/IB/0", "NET/Socket/0", "unheard of"]
    assert sorted(set(order), key=log_lines.cost_of) == order


def test_the_root_of_several_warnings() -> None:
    texts = [
        "u:1:2 [0] misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer node1<57557>",
        "u:1:2 [0] misc/socket.cc:483 NCCL WARN socketStartConnect: Connect to 10.0.0.2<45763> failed",
        "u:1:2 [0] misc/socket.cc:483 NCCL WARN socketStartConnect: Connect to 10.0.0.2<45763> failed",
        "u:1:2 [0] NCCL INFO transport/net.cc:1134 -> 6",
    ]
    lines = [line for line in map(log_lines.parse_line, texts) if line is not None]
    found = log_lines.warnings(lines)
    assert len(found) == 2
    assert log_lines.root(found) == "socketStartConnect: Connect to 10.0.0.2<45763> failed"
    assert log_lines.root(found[:1]) == found[0]
    assert log_lines.root([]) is None


def test_the_log_is_read_as_it_grows(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("wb", buffering=0) as writer, path.open("rb") as reader:
        log = log_capture.Log(reader.fileno())
        writer.write((LINES["p2p"] + "\n").encode())
        mark = log.mark()
        writer.write(("\n" + LINES["warn"] + "\n" + LINES["pointer"][:40]).encode())
        assert log.since(mark, 5) == []
        assert [line.level for line in log.since(mark, 0)] == ["WARN"]
        writer.write((LINES["pointer"][40:] + "\n\xff\xfe no line\n").encode("latin-1"))
        assert [line.text for line in log.since(mark, 5)] == [LINES["pointer"].partition("NCCL INFO ")[2]]
        writer.write(b"h:1:2 [0] NCCL INFO NET/Socket : Using [0]eth7:10.0.0.7<0>\n")
        assert log.nics() == {("Socket", 0): Nic("eth7", "10.0.0.7")}
        assert "Got completion" in log_capture.summary(log.since(0, 0))


def test_warnings_of_no_gpu_are_found(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("wb", buffering=0) as writer, path.open("rb") as reader:
        log = log_capture.Log(reader.fileno())
        writer.write(b"h:1:2 [-1] bootstrap.cc:116 NCCL WARN Bootstrap : no socket interface found\n")
        assert [line.text for line in log.warned(0)] == ["Bootstrap : no socket interface found"]
        assert log.since(0, 0) == []
        assert log.warned(log.mark()) == []


@pytest.mark.slow
def test_a_log_in_memory_gives_its_memory_back() -> None:
    fd = rank_host.memory_file()
    with open(f"/proc/self/fd/{fd}", "wb", buffering=0) as writer:
        log = log_capture.Log(fd)
        for _ in range(80):
            writer.write((LINES["p2p"] + "\n").encode() * 1000)
        last = log.mark()
        assert last == 80_000
        writer.write((LINES["warn"] + "\n").encode())
        assert [line.level for line in log.since(last, 0)] == ["WARN"]
        assert len(log.since(0, 5)) <= 2 * log_capture.KEEP


def test_the_users_own_variables_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in list(os.environ):
        if name.startswith("NCCL_") or name == "CUDA_DEVICE_ORDER":
            monkeypatch.delenv(name)
    for name in ("NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE", "NCCL_COMM_BLOCKING", "NCCL_RAS_ENABLE"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    for name in (*rank_host.SHORT_TIMEOUTS, "CUDA_DEVICE_ORDER"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("NCCL_IB_TIMEOUT", "22")
    monkeypatch.delenv("CUDA_DEVICE_MAX_CONNECTIONS", raising=False)
    monkeypatch.setenv("NCCL_NVLS_ENABLE", "0")
    monkeypatch.setenv("NCCL_DEBUG", "warn")
    notes = rank_host.set_environment(9)
    assert notes == ["NCCL_SOCKET_RETRY_CNT=5"]
    assert os.environ["NCCL_IB_TIMEOUT"] == "22"
    assert "CUDA_DEVICE_MAX_CONNECTIONS" not in os.environ, "fewer queues hold up the stream after a dead kernel"
    assert os.environ["NCCL_NVLS_ENABLE"] == "0"
    assert os.environ["NCCL_DEBUG"] == "INFO"
    assert os.environ["NCCL_DEBUG_FILE"] == "/proc/self/fd/9"
