import socket
import struct
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabtui_node.probes.network import icmp_socket


def _permitted() -> bool:
    try:
        icmp_socket.open_socket("127.0.0.1", "127.0.0.2")[0].close()
    except icmp_socket.NotPermitted:
        return False
    return True


@pytest.mark.skipif(not _permitted(), reason="this user may not send ICMP echoes")
def test_echoes_over_loopback_come_back() -> None:
    row = icmp_socket.ask("127.0.0.1", "127.0.0.2", 3, 10.0, 56, time.monotonic() + 30)
    assert (row["sent"], row["received"], row["loss"], row["duplicates"], row["error"]) == (3, 3, 0.0, 0, None)
    assert 0 < row["rtt_min"] <= row["rtt_avg"] <= row["rtt_max"] < 30_000


@pytest.mark.skipif(not _permitted(), reason="this user may not send ICMP echoes")
def test_an_address_that_is_not_ours_is_reported() -> None:
    row = icmp_socket.ask("192.0.2.77", "127.0.0.1", 1, 0.2, 56, time.monotonic() + 2)
    assert (row["sent"], row["received"], row["loss"]) == (0, 0, None)
    assert row["error"]


@pytest.mark.skipif(not _permitted(), reason="this user may not send ICMP echoes")
def test_silence_is_loss_and_ends_in_time() -> None:
    began = time.monotonic()
    row = icmp_socket.ask("127.0.0.1", "127.0.0.2", 5, 5.0, 56, began)
    assert row["received"] == 0
    assert time.monotonic() - began < 15, "the wait for five answers of 5 s each"


def test_missing_permission_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> socket.socket:
        raise PermissionError

    monkeypatch.setattr(socket, "socket", refuse)
    with pytest.raises(icmp_socket.NotPermitted, match="no ping on this node"):
        icmp_socket.ask("127.0.0.1", "127.0.0.2", 1, 1.0, 56, time.monotonic() + 1)


def test_packets() -> None:
    packet = icmp_socket.request(4, 7, 3, b"token678abc")
    assert icmp_socket.checksum(packet) == 0
    reply = b"\0" + packet[1:]
    assert icmp_socket.reply_number(reply, 4, False, b"token678") == 3
    assert icmp_socket.reply_number(packet, 4, False, b"token678") is None, "a request is not a reply"
    assert icmp_socket.reply_number(reply, 4, False, b"other678") is None
    assert icmp_socket.reply_number(b"\x45" + bytes(19) + reply, 4, True, b"token678") == 3
    assert icmp_socket.reply_number(struct.pack("!BBHHH", 129, 0, 0, 1, 9) + b"token678", 6, True, b"token678") == 9


@given(st.binary(max_size=64), st.sampled_from([4, 6]), st.booleans())
def test_any_packet_is_read_or_passed_over(data: bytes, version: int, raw: bool) -> None:
    assert icmp_socket.reply_number(data, version, raw, b"token678") is None
