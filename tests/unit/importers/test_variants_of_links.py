"""Output of perftest and iperf3 in other versions and with other options than in the recorded outputs."""

from __future__ import annotations

import json

import pytest

from .places import of_text, values_of

# -- perftest ---------------------------------------------------------------------------------------------------------


def test_perftest_in_old_megabytes() -> None:
    text = (
        "                    RDMA_Read BW Test\n Dual-port       : OFF\t\tDevice         : mlx5_0\n"
        " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n"
        " 65536      5000             11000.00            10000.00\t\t   0.160000\n"
    )
    values = values_of(text, "perftest", test="RDMA_Read BW", unit="MiB/s", device="mlx5_0")
    assert values["rows"][0]["bandwidth"] == pytest.approx(10.48576)
    assert any("2^20" in line for line in of_text(text).warnings)


def test_perftest_with_service_levels_and_cpu() -> None:
    text = (
        "                    Send Bidirectional BW Test\n"
        " #bytes    #sl      #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]    CPU_Util[%]\n"
        " 65536    3           5000           390.00            388.00                  0.740000  12.50\n"
    )
    row = values_of(text, "perftest")["rows"][0]
    assert (row["sl"], row["iterations"], row["cpu"]) == (3, 5000, 12.5)
    assert row["bandwidth"] == 48.5


def test_perftest_latency_of_a_duration() -> None:
    text = (
        "                    RDMA_Write Latency Test\n #bytes        #iterations       t_avg[usec]    tps average\n"
        " 2       1000000            1.05           476190.00\n"
    )
    assert values_of(text, "perftest")["rows"] == [
        {"bytes": 2, "iterations": 1000000, "t_avg": 1.05, "transactions": 476190.0}
    ]


def test_perftest_as_json() -> None:
    value = {
        "test_info": {"test": "RDMA_Write_BW_Test", "Device": "mlx5_0", "Link_type": "IB"},
        "results": {"MsgSize": 65536, "n_iterations": 5000, "BW_peak": 0.0, "BW_average": 392.1, "MsgRate": 0.74},
    }
    values = values_of(json.dumps(value), "perftest", measures="bandwidth", unit=None)
    assert values["rows"] == [
        {"bytes": 65536, "iterations": 5000, "peak": None, "average": 392.1, "message_rate": 0.74}
    ]  # without its unit, an average is not in GB/s


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("Couldn't connect to n061:18515", "couldnt_connect"),
        (" Unable to find the Infiniband/RoCE device", "no_device"),
        ("Failed to modify QP 1234 to RTS", "failed_modify_qp"),
        (" Completion with error at client", "completion_error"),
    ],
)
def test_perftest_failures(line: str, error: str) -> None:
    text = f"$ ib_write_bw -d mlx5_0 n061\n{line}\n Unable to init the socket connection\n"
    assert values_of(text, "perftest", error=error, rows=[])


# -- iperf3 -----------------------------------------------------------------------------------------------------------


IPERF3 = """\
Connecting to host 192.0.2.61, port 5201
[  5] local 192.0.2.60 port 41234 connected to 192.0.2.61 port 5201
[  7] local 192.0.2.60 port 41236 connected to 192.0.2.61 port 5201
[ ID] Interval           Transfer     Bitrate         Retr  Cwnd
[  5]   0.00-1.00   sec  1.10 GBytes  9.41 Gbits/sec    3   1.50 MBytes
- - - - - - - - - - - - - - - - - - - - - - - - -
[ ID] Interval           Transfer     Bitrate         Retr
[  5]   0.00-10.00  sec  5.50 GBytes  4.72 Gbits/sec   10             sender
[  5]   0.00-10.04  sec  5.50 GBytes  4.70 Gbits/sec                  receiver
[SUM]   0.00-10.00  sec  11.0 GBytes  9.44 Gbits/sec   21             sender
[SUM]   0.00-10.04  sec  11.0 GBytes  9.40 Gbits/sec                  receiver

iperf Done.
"""


def test_iperf3() -> None:
    values = values_of(IPERF3, "iperf3", local="192.0.2.60", remote="192.0.2.61", streams=2, protocol="TCP")
    assert [(row["stream"], row["side"], row["bandwidth"]) for row in values["totals"]] == [
        ("SUM", "sender", 1.18),
        ("SUM", "receiver", 1.175),
    ]
    assert values["totals"][0]["retransmits"] == 21
    assert len(values["intervals"]) == 1


def test_iperf3_of_datagrams_and_an_error() -> None:
    text = (
        "[  5]   0.00-10.00  sec  1.25 MBytes  1.05 Mbits/sec  0.012 ms  3/906 (0.33%)  receiver\n"
        "iperf3: error - unable to connect to server: Connection refused\n"
    )
    row = values_of(text, "iperf3", protocol="UDP")["totals"][0]
    assert (row["jitter"], row["lost"], row["packets"]) == (0.012, 3, 906)
    assert of_text(text).warnings == ["iperf3: error - unable to connect to server: Connection refused"]


def test_iperf3_as_json() -> None:
    value = {
        "start": {
            "connected": [{"local_host": "192.0.2.60", "remote_host": "192.0.2.61"}],
            "test_start": {"protocol": "TCP", "reverse": 0},
        },
        "intervals": [],
        "end": {
            "sum_sent": {"start": 0, "end": 10.0, "bytes": 100, "bits_per_second": 9.44e9, "retransmits": 21},
            "sum_received": {"start": 0, "end": 10.04, "bytes": 99, "bits_per_second": 9.4e9},
        },
    }
    values = values_of(json.dumps(value, indent=1), "iperf3", remote="192.0.2.61", protocol="TCP")
    assert [row["bandwidth"] for row in values["totals"]] == [1.18, 1.175]
    assert of_text(json.dumps({"start": {}, "end": {}, "error": "unable to connect"}), "iperf3").warnings == [
        "unable to connect"
    ]
