"""TCP sockets of this machine by netlink."""

import socket

from fabtui_node.system import sock_diag


def test_a_connection_is_listed_from_both_ends_with_what_it_carried() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        accepted, _ = server.accept()
        with accepted:
            client.sendall(b"x" * 5000)
            ends = list(map(list, (client.getsockname(), server.getsockname())))
            rows = {row["local"][1]: row for row in sock_diag.sockets() if row["local"] in ends}
    sent, arrived = (rows[port] for _, port in ends)
    assert (sent["remote"], arrived["remote"]) == (ends[1], ends[0])
    assert (arrived["received"], arrived["unread"], sent["backoff"]) == (5000, 5000, 0)
