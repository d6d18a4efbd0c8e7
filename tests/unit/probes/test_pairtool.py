"""Tools between two nodes, played by scripts that print what the tools print."""

import os
import queue
import re
import stat
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from fabtui_node.probes.network import external_tools

TABLE = """\
---------------------------------------------------------------------------------------
                    RDMA_Write BW Test
 Dual-port       : OFF          Device         : mlx5_0
 Link type       : Ethernet
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 1048576    9000             0.00               380.00               0.045300
---------------------------------------------------------------------------------------
"""
SERVER = """\
#!{python}
import socket, sys, time
port = int(sys.argv[sys.argv.index("-p") + 1])
if sys.argv[-1].count("."):
    print({text!r})
else:
    sock = socket.create_server(("127.0.0.1", port))
    print("waiting", flush=True)
    time.sleep(60)
"""


def play(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> None:
    path = folder / name
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


ARGS = {"tool": "ib_write_bw", "address": "127.0.0.1", "device": "mlx5_0", "ib_port": 1, "gid_index": 3, "token": "t"}


def test_a_server_reports_its_port_and_ends_on_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    play(tmp_path, monkeypatch, "ib_write_bw", SERVER.format(python=sys.executable, text=TABLE))
    parts: queue.Queue[dict[str, Any]] = queue.Queue()
    ended: list[dict[str, Any]] = []
    serve = {**ARGS, "role": "serve"}
    thread = threading.Thread(target=lambda: ended.append(external_tools.run(serve, parts.put, 60.0)))
    thread.start()
    port = parts.get(timeout=20)["port"]
    value = external_tools.run({**ARGS, "role": "measure", "port": port, "source": "127.0.0.1"}, parts.put, 20.0)
    assert value["error"] is None
    assert value["values"]["rows"] == [
        {
            "bytes": 1048576,
            "iterations": 9000,
            "peak": None,
            "average": 380.0,
            "message_rate": 0.0453,
            "bandwidth": 47.5,
        }
    ]
    assert external_tools.run({"role": "end", "token": "t"}, parts.put, 5.0) == {}
    thread.join(10)
    assert not thread.is_alive()
    assert ended[0]["error"] is None
    assert external_tools.run({"role": "end", "token": "gone"}, parts.put, 5.0) == {}


def test_a_client_that_hangs_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    play(tmp_path, monkeypatch, "ib_send_bw", "#!/bin/sh\nsleep 60 &\nsleep 60\n")
    began = time.monotonic()
    value = external_tools.run({**ARGS, "tool": "ib_send_bw", "role": "measure", "port": 5}, lambda value: None, 1.5)
    assert value["timed_out"] is True
    assert value["values"]["rows"] == []
    assert time.monotonic() - began < 30


def test_a_server_that_fails_reports_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    play(tmp_path, monkeypatch, "ib_write_bw", "#!/bin/sh\necho ' IB device mlx5_0 not found' >&2\nexit 1\n")
    value = external_tools.run({**ARGS, "role": "serve"}, lambda value: None, 10.0)
    assert value["error"] == "IB device mlx5_0 not found"


def test_the_commands() -> None:
    args = external_tools._checked({**ARGS, "port": 7, "source": "127.0.0.2", "seconds": 2})
    assert external_tools.client_argv(args) == [
        *("ib_write_bw", "-d", "mlx5_0", "-i", "1", "-p", "7", "-F", "-x", "3"),
        *("--report_gbits", "-s", "1048576", "-D", "2", "127.0.0.1"),
    ]
    args["tool"], args["gid_index"] = "ib_read_lat", None
    assert external_tools.server_argv(args, 9) == [
        "ib_read_lat",
        *["-d", "mlx5_0", "-i", "1", "-p", "9", "-F", "-s", "8", "-n", "2000"],
    ]
    args["tool"] = "iperf3"
    assert external_tools.server_argv(args, 9) == ["iperf3", *["-s", "-B", "127.0.0.1", "-p", "9"]]
    assert external_tools.client_argv(args)[:8] == ["iperf3", *["-c", "127.0.0.1", "-p", "7", "-B", "127.0.0.2", "-J"]]


@pytest.mark.parametrize(
    "wrong",
    [
        {"role": "sit"},
        {"tool": "rm"},
        {"address": "-h"},
        {"address": None},
        {"device": "-d; reboot"},
        {"device": "--help"},
        {"gid_index": "3"},
        {"port": 70000},
        {"options": "-q 4"},
    ],
)
def test_arguments_that_are_none(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"."):
        external_tools.run({**ARGS, "role": "measure", "port": 1, **wrong}, lambda value: None, 5.0)


def test_options_are_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    play(tmp_path, monkeypatch, "ib_send_bw", '#!/bin/sh\necho "$@"\n')
    more = {"options": ["--qp=4", "-r64", "--size", "64K", "--report_gbits"], "tool": "ib_send_bw"}
    value = external_tools.run({**ARGS, **more, "role": "measure", "port": 5}, lambda value: None, 30.0)
    ours = "-d mlx5_0 -i 1 -p 5 -F -x 3 --report_gbits -s 1048576 -D 1"
    assert value["raw"].strip() == f"{ours} -q 4 -r 64 -s 65536 --report_gbits 127.0.0.1"
    args = external_tools._checked({**ARGS, **more, "tool": "ib_read_lat"})
    assert external_tools.server_argv(args, 9)[10:] == ["-s", "8", "-n", "2000", "-s", "65536"], "only what it has"
    args = external_tools._checked({**ARGS, "options": ["-n", "500"]})
    assert external_tools.server_argv(args, 9)[10:] == ["--report_gbits", "-s", "1048576", "-n", "500"]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["-d", "mlx5_9"], "'-d' is not an option that can be added; there are -q, -m, "),
        (["-p", "80"], "'-p' is not"),
        (["10.0.0.9"], "'10.0.0.9' is not"),
        (["--run_infinitely"], "'--run_infinitely' is not"),
        (["--out_json_file=/etc/passwd"], "'--out_json_file=/etc/passwd' is not"),
        (["-D", "3600"], "-D: '3600' is not a whole number from 1 to 5"),
        (["-n", "1e9"], "-n: '1e9' is not a whole number"),
        (["-n", "\u0662\u0663"], "is not a whole number from 5"),
        (["-s", "1G"], "-s: '1G' is not a whole number"),
        (["-q"], "-q: '' is not a whole number"),
        (["-m", "3000"], "-m: 3000 is not an MTU of RDMA"),
        (["-F1"], "-F takes no value"),
        (["-q", "2", "--qp", "4"], "-q is given twice"),
        (["-n", "5", "-D", "1"], "-n and -D exclude each other"),
        (["-F"] * 41, "41 words; at most 40"),
    ],
)
def test_options_that_are_not_added(words: list[str], problem: str) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)):
        external_tools.run({**ARGS, "role": "serve", "options": words}, lambda value: None, 5.0)


def test_who_listens() -> None:
    rows = ("  sl  local_address rem_address   st", " 0: 0100007F:1F90 0:0 0A", " 1: 0100007F:1F91 0:0 01")
    text = "\n".join(rows)
    assert external_tools.listens(0x1F90, [text])
    assert not external_tools.listens(0x1F91, [text, ""])
