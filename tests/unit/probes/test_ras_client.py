"""Client of the RAS service on the node: recorded answers in pieces of any size, and services that misbehave."""

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fabtui_node.probes.job import ras
from fabtui_node.probes.job.ras import NoReport, ask, endpoint
from fabtui_node.system import job_processes

from ..jobs.ras_texts import NCCL_2_27, recorded
from ..jobs.rasservice import RasService, body

STATES = ("running", "resumed", "killed", "skip", "p2phang")
NAMES = [f"{state}-{kind}" for state in STATES for kind in ("json", "verbose")]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("piece", [0, 1, 7])
def test_recorded_answers(name: str, piece: int) -> None:
    report = body(recorded(f"{name}.txt"))
    is_json = name.endswith("json")
    with RasService("no" if is_json else report, report if is_json else "", piece) as service:
        found = ask(service.address)
    assert found == (service.address, "json" if is_json else "text", report)
    assert service.lines == ["CLIENT PROTOCOL 2", "SET FORMAT json", "VERBOSE STATUS"]


class Scripted:
    """A connection that gives data in two pieces, split at a byte."""

    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces = pieces

    def recv(self, size: int) -> bytes:
        return self.pieces.pop(0) if self.pieces else b""

    def sendall(self, data: bytes) -> None:
        assert data.endswith(b"\n")

    def settimeout(self, seconds: float) -> None:
        assert seconds > 0

    def close(self) -> None:
        pass


@pytest.mark.parametrize("name", [*NAMES, *(f"{state}-status" for state in STATES), "stopped2s-status"])
def test_answers_split_at_every_byte(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    report = body(recorded(f"{name}.txt"))
    kind, second = ("json", b"OK\n") if name.endswith("json") else ("text", b"ERROR: Unknown command\n")
    answer = b"SERVER PROTOCOL 2\n" + second + report.encode()
    for at in range(len(answer) + 1):
        end = Scripted([piece for piece in (answer[:at], answer[at:]) if piece])
        monkeypatch.setattr(socket, "create_connection", lambda *_, end=end: end)
        assert ask("localhost:28028") == ("localhost:28028", kind, report)


def test_ipv6() -> None:
    try:
        service = RasService("report\n", host="::1")
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")
    with service:
        assert ask(service.address).text == "report\n"


def failure(address: str, **times: Any) -> NoReport:
    with pytest.raises(NoReport) as caught:
        ask(address, **times)
    return caught.value


def test_a_stopped_process_that_accepts_the_connection() -> None:
    with RasService("report\n", deaf=-1) as service:
        found = failure(service.address, attempts=2, first=0.1)
    assert found.kind == "silent"
    assert (
        "accepts connections and does not answer (2 attempts): the process that listens there is stopped" in found.text
    )
    # Another connection reaches another process.
    with RasService("report\n", deaf=1) as service:
        assert ask(service.address, first=0.3).text == "report\n"


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as end:
        address = f"127.0.0.1:{end.getsockname()[1]}"
    assert failure(address).kind == "refused"
    assert failure("no-such-host.invalid:28028").kind == "refused"
    assert failure("here").kind == "foreign"


@pytest.fixture
def speaker() -> Iterator[tuple[str, list[bytes]]]:
    """Yield the address of a service that sends some bytes to each connection and closes it."""
    data: list[bytes] = []
    end = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = end.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                connection.sendall(data[0])
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(100):
                    pass

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield f"127.0.0.1:{end.getsockname()[1]}", data
    end.shutdown(socket.SHUT_RDWR)
    end.close()
    thread.join(5)


@pytest.mark.parametrize(
    ("sent", "kind"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "foreign"),
        (b"", "foreign"),
        (b"x" * 10_000, "foreign"),
        (b"SERVER PROTOCOL 2\nOK\n", "cut"),
    ],
)
def test_other_services(speaker: tuple[str, list[bytes]], sent: bytes, kind: str) -> None:
    address, data = speaker
    data.append(sent)
    assert failure(address, whole=0.2).kind == kind


def test_a_report_that_does_not_end(speaker: tuple[str, list[bytes]], monkeypatch: pytest.MonkeyPatch) -> None:
    address, data = speaker
    monkeypatch.setattr(ras, "MOST_BYTES", 1000)
    data.append(b"SERVER PROTOCOL 2\nOK\n" + b"x" * 100_000)
    assert failure(address).kind == "large"


def test_addresses() -> None:
    assert endpoint("localhost:28028") == ("localhost", 28028)
    assert endpoint("[::1]:1") == ("::1", 1)
    for wrong in ("", "localhost", "localhost:0", "localhost:70000", "::1:28028", "a b:1", "-x;y:1"):
        assert endpoint(wrong) is None


def process(root: Path, pid: int, parent: int, state: str = "S", name: str = "python3", **variables: str) -> None:
    folder = root / str(pid)
    folder.mkdir(parents=True)
    folder.joinpath("environ").write_bytes(b"\0".join(f"{key}={value}".encode() for key, value in variables.items()))
    folder.joinpath("stat").write_text(f"{pid} ({name}) {state} {parent} 1 1 0 -1\n")
    uid, gid = os.geteuid(), os.getegid()
    folder.joinpath("status").write_text(f"Uid:\t{uid}\t{uid}\t{uid}\t{uid}\nGid:\t{gid}\t{gid}\t{gid}\t{gid}\n")


def test_the_address_of_the_job(tmp_path: Path) -> None:
    process(tmp_path, 10, 1, name="bash", RANK="0")
    with RasService(NCCL_2_27) as service:
        process(tmp_path, 11, 10, "T", RANK="0", NCCL_RAS_ADDR=service.address)
        process(tmp_path, 12, 11, RANK="0", NCCL_RAS_ADDR=service.address)
        process(tmp_path, 13, 1, "R", "odd) name (", SLURM_PROCID="5", NCCL_RAS_ADDR="127.0.0.1:1")
        process(tmp_path, 14, 1, HOME="/root")
        parts: list[dict[str, Any]] = []
        value = ras.run({}, parts.append, 10.0, proc=str(tmp_path))
    assert value["reports"] == 1
    assert value["problems"] == []
    assert [(one["pid"], one["rank"], one["state"], one["name"]) for one in value["processes"]] == [
        (11, 0, "T", "python3"),
        (13, 5, "R", "odd) name ("),
    ]
    assert [(part["report"], part["text"]) for part in parts] == [(0, NCCL_2_27)]
    (tmp_path / "11/environ").write_bytes(b"")
    (tmp_path / "12/environ").write_bytes(b"")
    value = ras.run({}, parts.append, 10.0, proc=str(tmp_path))
    assert (value["reports"], value["problems"][0]["kind"]) == (0, "refused")


def test_processes_of_this_machine() -> None:
    assert all(one["pid"] != os.getpid() for one in job_processes.find())
