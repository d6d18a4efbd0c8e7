"""One-way datagrams and TCP connections between sockets of this machine."""

import queue
import socket
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from fabtui_node.probes.network import udp_one_way

TOKEN = "00112233445566778899aabbccddeeff"
HERE = ["127.0.0.1", "127.0.0.2"]


class Listening:
    """A listener in a thread, as the worker runs it."""

    def __init__(self, addresses: list[str]) -> None:
        self.parts: queue.Queue[dict[str, Any]] = queue.Queue()
        self.value: dict[str, Any] = {}
        args = {"role": "listen", "token": TOKEN, "addresses": addresses}
        self.thread = threading.Thread(target=self._run, args=(args,))
        self.thread.start()
        self.ports = {port["address"]: port for port in self.parts.get(timeout=10)["ports"]}

    def _run(self, args: dict[str, Any]) -> None:
        self.value = udp_one_way.run(args, self.parts.put, 30.0)

    def count(self) -> dict[int, dict[str, Any]]:
        value = udp_one_way.run({"role": "count", "token": TOKEN}, self.parts.put, 5.0)
        return {row["number"]: row for row in value["rows"]}

    def until(self, number: int, small: int, big: int) -> dict[str, Any]:
        end = time.monotonic() + 10
        while True:
            row = self.count().get(number, {})
            if (row.get("small"), row.get("big")) == (small, big) or time.monotonic() > end:
                return row
            time.sleep(0.02)

    def end(self) -> None:
        assert udp_one_way.run({"role": "end", "token": TOKEN}, self.parts.put, 5.0) == {}
        self.thread.join(10)
        assert not self.thread.is_alive()


@pytest.fixture
def listening() -> Iterator[Listening]:
    found = Listening(HERE)
    yield found
    found.end()


def send(*targets: dict[str, Any], small: int = 3, big: int = 2, **more: int) -> list[dict[str, Any]]:
    args = {"role": "send", "token": TOKEN, "targets": list(targets), "small": small, "big": big, **more}
    rows: list[dict[str, Any]] = udp_one_way.run(args, lambda value: None, 20.0)["rows"]
    return sorted(rows, key=lambda row: row["number"])


def target(number: int, port: dict[str, Any], **more: Any) -> dict[str, Any]:
    ports = {"udp": port["udp"], "tcp": port["tcp"]}
    return {"number": number, "id": "b", "src": "127.0.0.1", "dst": port["address"], "size": 8000, **ports, **more}


def test_what_is_sent_arrives_and_is_counted_by_target(listening: Listening) -> None:
    rows = send(*(target(n, listening.ports[address]) for n, address in enumerate(HERE)))
    for number, address in enumerate(HERE):
        found = listening.until(number, 3, 2)
        assert found == {"dst": address, "number": number, "src": "127.0.0.1", "small": 3, "big": 2}
        assert (rows[number]["small"], rows[number]["big"], rows[number]["error"]) == (3, 2, None)
        assert rows[number]["connected"] is not None
        assert rows[number]["connect_error"] is None


def test_without_a_size_nothing_big_is_sent(listening: Listening) -> None:
    (row,) = send(target(7, listening.ports[HERE[0]], size=0))
    assert (row["small"], row["big"]) == (3, 0)
    assert listening.until(7, 3, 0)["big"] == 0


def test_what_is_not_of_this_test_is_not_counted(listening: Listening) -> None:
    port = listening.ports[HERE[0]]["udp"]
    head = struct.Struct("!16sIHH")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for payload in (
            b"",
            b"hello",
            head.pack(b"x" * 16, 1, 0, 64).ljust(64, b"\0"),
            head.pack(bytes.fromhex(TOKEN), 1, 0, 64).ljust(60, b"\0"),
            head.pack(bytes.fromhex(TOKEN), 1, 60000, 64).ljust(64, b"\0"),
        ):
            sock.sendto(payload, (HERE[0], port))
    send(target(2, listening.ports[HERE[0]]))
    assert listening.until(2, 3, 2)["small"] == 3
    assert 1 not in listening.count()


def test_the_same_datagram_twice_counts_once(listening: Listening) -> None:
    send(target(3, listening.ports[HERE[0]]))
    send(target(3, listening.ports[HERE[0]]))
    assert listening.until(3, 3, 2)["small"] == 3


def test_nobody_listens() -> None:
    udp_port = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp_port.bind(("127.0.0.3", 0))
    closed = udp_port.getsockname()[1]
    udp_port.close()
    (row,) = send({"number": 0, "id": "b", "src": "127.0.0.1", "dst": "127.0.0.3", "udp": closed, "tcp": closed})
    assert "refused" in row["connect_error"]
    assert row["connect_error_kind"] == "connection_refused"
    (row,) = send({"number": 0, "id": "b", "src": "192.0.2.1", "dst": "127.0.0.1", "udp": closed, "tcp": closed})
    assert row["small"] == 0
    assert row["error"]
    assert row["connect_error"]


def test_invalid_addresses_and_missing_ports() -> None:
    found = Listening(["127.0.0.1", "192.0.2.1", "no address"])
    assert found.ports["127.0.0.1"]["error"] is None
    assert [found.ports[a]["udp"] for a in ("192.0.2.1", "no address")] == [None, None]
    assert all(found.ports[a]["error"] for a in ("192.0.2.1", "no address"))
    (row,) = send({"number": 0, "id": "b", "src": "127.0.0.1", "dst": "127.0.0.1", "udp": None, "tcp": 99999})
    assert (row["small"], row["connected"], row["connect_error"]) == (0, None, None)
    found.end()


@pytest.mark.parametrize(
    "args",
    [{}, {"role": "count"}, {"role": "listen", "token": "00"}, {"role": "dance", "token": TOKEN}, {"token": TOKEN}],
)
def test_arguments_that_are_none(args: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"role|token"):
        udp_one_way.run(args, lambda value: None, 1.0)


def test_too_many_targets() -> None:
    with pytest.raises(ValueError, match="at most"):
        send(*({"number": n} for n in range(9000)))


def test_drops_of_our_ports() -> None:
    head = (
        "  sl  local_address rem_address st tx_queue rx_queue tr tm->when retrnsmt uid timeout inode ref pointer drops"
    )
    row = " {0}: 0100007F:{1} 00000000:0000 07 00000000:00000000 00:00000000 00000000 0 0 1 2 0000000000000000 {2}"
    text = "\n".join([head, row.format(1, "1F90", 7), row.format(2, "1F91", 9), ""])
    assert udp_one_way.parse_drops(text, {0x1F90}) == 7
    assert udp_one_way.parse_drops(text, {0x1F90, 0x1F91}) == 16
    assert udp_one_way.parse_drops(text, {5}) is None
    assert udp_one_way.parse_drops("what\n1 2 3\n", {5}) is None


def test_connections_that_do_not_come_about_end_in_time() -> None:
    # A backlog that is full answers nothing more.
    with socket.socket() as server, socket.socket() as first, socket.socket() as second:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for sock in (first, second):
            sock.setblocking(False)
            sock.connect_ex(server.getsockname())
        row: dict[str, Any] = {"src": "127.0.0.1", "dst": "127.0.0.1", "tcp": server.getsockname()[1]}
        rows = [dict(row, connected=None, connect_error=None) for _ in range(3)]
        udp_one_way.connect(rows, time.monotonic() + 0.3)
    assert all((row["connected"] is None) == ("no answer" in (row["connect_error"] or "")) for row in rows)
    assert rows[-1]["connected"] is None


def test_one_of_several_connections_is_enough(listening: Listening, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []
    start = udp_one_way._start_connection

    def lose_the_first(src: str, dst: str, port: int) -> socket.socket:
        tried.append(port)
        if len(tried) in (1, 3):
            raise OSError(110, "Connection timed out")
        return start(src, dst, port)

    monkeypatch.setattr(udp_one_way, "_start_connection", lose_the_first)
    (row,) = send(target(0, listening.ports[HERE[0]]), tries=3)
    assert len(tried) == 3
    assert row["connected"] is not None


def flows(*targets: dict[str, Any], **more: int) -> list[dict[str, Any]]:
    plan = {"flows": 4, "rounds": 2, "datagrams": 3, "pause_ms": 0, **more}
    args = {"role": "flows", "token": TOKEN, "targets": list(targets), **plan}
    found: list[dict[str, Any]] = udp_one_way.run(args, lambda value: None, 20.0)["rows"]
    return found


def test_flows_have_the_same_ports_in_each_round_and_are_counted_apart(listening: Listening) -> None:
    rows = flows(target(100, listening.ports[HERE[0]]), target(200, listening.ports[HERE[1]]))
    assert [row["number"] for row in rows] == [100, 200]
    for row in rows:
        assert len({flow["port"] for flow in row["flows"]}) == 4
        for at, flow in enumerate(row["flows"]):
            assert flow == {"port": flow["port"], "sent": [3, 3], "refused": False, "tcp": [1, 1]}
            for number in range(2):
                assert listening.until(row["number"] + 2 * at + number, 3, 0)["small"] == 3
    assert len(listening.count()) == 16


def test_flows_that_are_refused() -> None:
    with socket.socket() as sock:
        sock.bind((HERE[0], 0))
        port = sock.getsockname()[1]
        (row,) = flows(target(0, {"address": HERE[0], "udp": port, "tcp": port}), flows=2)
    assert [flow["tcp"] for flow in row["flows"]] == [[-1, -1], [-1, -1]]
    assert all(flow["refused"] for flow in row["flows"]), "ICMP: port unreachable"


def test_flows_without_ports_or_bounds(listening: Listening) -> None:
    (row,) = flows({**target(3, listening.ports[HERE[0]]), "udp": None, "tcp": None}, flows=10**9)
    assert len(row["flows"]) == 1
    assert row["flows"][0] | {"port": 0} == {"port": 0, "sent": [], "refused": False, "tcp": []}
    (row,) = flows({**target(3, listening.ports[HERE[0]]), "src": "192.0.2.1"}, flows=1)
    assert row["flows"][0]["sent"] == [0, 0]
    assert row["flows"][0]["tcp"] == [None, None], "the address is not of this node"


def test_nobody_answers_for_a_flow_within_this_machine(listening: Listening) -> None:
    args = {"role": "trace", "token": TOKEN, "targets": [5, {**target(7, listening.ports[HERE[0]]), "port": 40123}]}
    assert udp_one_way.run(args, lambda value: None, 20.0) == {"rows": [{"number": 7, "hops": []}]}
    args["targets"] = [target(7, listening.ports[HERE[0]])]
    assert udp_one_way.run(args, lambda value: None, 20.0) == {"rows": []}
