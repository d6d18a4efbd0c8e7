from typing import Any

import pytest
from asyncssh.constants import MSG_CHANNEL_DATA, MSG_IGNORE

from fabtui.nodes.asyncssh_link import leave_out_empty_packets


class Connection:
    """Sends an empty packet ahead of each other one, as asyncssh's does."""

    def __init__(self, cipher: str | None) -> None:
        self.cipher = cipher
        self.sent: list[tuple[int, bytes, Any]] = []

    def get_extra_info(self, name: str) -> str | None:
        return self.cipher if name == "send_cipher" else None

    def send_packet(self, kind: int, *args: bytes, handler: Any = None) -> None:
        if kind != MSG_IGNORE:
            self.send_packet(MSG_IGNORE, b"")
        self.sent.append((kind, b"".join(args), handler))


@pytest.mark.parametrize(
    ("cipher", "kinds"),
    [
        ("aes128-gcm@openssh.com", [MSG_CHANNEL_DATA]),
        ("chacha20-poly1305@openssh.com", [MSG_CHANNEL_DATA]),
        ("aes128-cbc", [MSG_IGNORE, MSG_CHANNEL_DATA]),
        ("aes256-ctr", [MSG_IGNORE, MSG_CHANNEL_DATA]),
        (None, [MSG_IGNORE, MSG_CHANNEL_DATA]),
    ],
)
def test_empty_packets_are_left_out_where_the_cipher_needs_none(cipher: str | None, kinds: list[int]) -> None:
    connection = Connection(cipher)
    leave_out_empty_packets(connection)  # type: ignore[arg-type]
    channel = object()
    connection.send_packet(MSG_CHANNEL_DATA, b"a", b"b", handler=channel)
    assert [kind for kind, _, _ in connection.sent] == kinds
    assert connection.sent[-1] == (MSG_CHANNEL_DATA, b"ab", channel)
