"""The probes names and master, against name services that answer, fail and hang, and real listeners."""

import socket
import threading
import time
from typing import Any

import pytest

from fabtui_node.probes.network import names


def test_names_that_are_not_there_have_no_address_and_late_ones_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    hang = threading.Event()

    def getaddrinfo(name: str, *args: Any, **more: Any) -> list[Any]:
        if name == "slow":
            hang.wait(5)
        if name == "gone":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        if name == "broken":
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return [
            (2, 1, 6, "", ("10.0.0.2", 0)),
            (2, 1, 6, "", ("10.0.0.2", 0)),
            (10, 1, 6, "", ("fe80::1%eth0", 0, 0, 2)),
        ]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(socket, "gethostname", lambda: "h1")
    monkeypatch.setattr(socket, "getnameinfo", lambda *args: hang.wait(5))
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.9 4711 10.0.0.2 22")
    began = time.monotonic()
    found = names.run_names({"names": ["h2", "gone", "slow", "broken", 3], "addresses": ["10.0.0.3"]}, None, 0.3)
    assert time.monotonic() - began < 4
    hang.set()
    assert found["host"] == "h1"
    assert found["names"] == {"h1": ["10.0.0.2", "fe80::1"], "h2": ["10.0.0.2", "fe80::1"], "gone": []}
    assert found["reverse"] == {"10.0.0.9": None, "10.0.0.3": None}


def test_the_time_of_a_reverse_look_up_is_known_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_CONNECTION", raising=False)

    def getnameinfo(*args: Any) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getnameinfo", getnameinfo)
    (took,) = names.run_names({"addresses": ["10.0.0.3"]}, None, 5.0)["reverse"].values()
    assert 0 <= took < 5


def test_a_listener_is_reached_and_a_closed_port_refuses() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        found = names.run_master({"host": "127.0.0.1", "port": port}, None, 5.0)
        assert (found["state"], found["addresses"], found["error"]) == ("connected", ["127.0.0.1"], None)
    found = names.run_master({"host": "127.0.0.1", "port": port}, None, 5.0)
    assert found["state"] == "refused"


def test_a_name_that_does_not_resolve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "resolve", lambda name: [])
    assert names.run_master({"host": "nowhere", "port": 1}, None, 5.0)["state"] == "unresolved"
