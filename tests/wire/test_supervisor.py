"""The supervisor over pipes: messages, probes and the rank host."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from fabtui.transport import payload
from fabtui_node import protocol
from fabtui_node.runtime import processes
from fabtui_node.runtime.bootloader import BOOT
from tests.wire.doubles import EXTRA, probe, spawn_rank_host
from tests.wire.nodeside import NodeSide, living, modules, wait_gone, wait_until


@pytest.fixture
def node() -> Iterator[NodeSide]:
    side = NodeSide(EXTRA)
    side.listen()
    yield side
    side.end()


def test_hello_comes_first_after_the_marker(node: NodeSide) -> None:
    hello = node.expect("hello")
    assert not node.before
    assert node.banner == b""
    assert hello == {
        "t": "hello",
        "protocol": protocol.VERSION,
        "pid": node.process.pid,
        "python": sys.version.split()[0],
        "host": os.uname().nodename,
        "gpus": os.path.exists("/dev/nvidiactl"),
    }


def test_heartbeat_is_answered_at_once_with_its_number(node: NodeSide) -> None:
    node.expect("hello")
    for number in (1, 2, 77):
        node.send({"t": "hb", "n": number})
        assert node.expect("hb", 2) == {"t": "hb", "n": number, "rank": False}


def test_a_supervisor_that_was_stopped_reports_for_how_long(node: NodeSide) -> None:
    node.expect("hello")
    node.process.send_signal(signal.SIGSTOP)
    time.sleep(3.3)
    node.process.send_signal(signal.SIGCONT)
    node.send({"t": "hb", "n": 1})
    assert 3.0 <= node.expect("hb", 5)["stood"] < 60
    node.send({"t": "hb", "n": 2})
    assert "stood" not in node.expect("hb", 5)


def test_probe_gives_parts_in_order_and_a_result(node: NodeSide) -> None:
    node.send(probe(5, "echo", 7.5, parts=3))
    result = node.expect("result")
    assert result == {"t": "result", "id": 5, "ok": True, "value": {"args": {"parts": 3}, "deadline": 7.5}}
    assert [m["value"]["part"] for m in node.before if m["t"] == "part" and m["id"] == 5] == [0, 1, 2]


def test_probes_run_side_by_side_and_a_stuck_one_gets_a_timeout(node: NodeSide) -> None:
    node.send(probe(1, "stuck", 0.5))
    node.send(probe(2, "echo"))
    assert node.expect("result")["id"] == 2
    late = node.expect("result", 10)
    assert (late["id"], late["ok"], late["error"]["kind"]) == (1, False, "timeout")
    # The thread that hangs goes with its worker, and probes still run.
    node.send(probe(3, "echo"))
    assert node.expect("result")["ok"]


@pytest.mark.parametrize(
    ("name", "kind"), [("fails", "failed"), ("no-such", "unknown_probe"), ("odd", "bad_value"), ("big", "bad_value")]
)
def test_probe_without_a_value_reports_why(node: NodeSide, name: str, kind: str) -> None:
    node.send(probe(1, name))
    result = node.expect("result")
    assert (result["ok"], result["error"]["kind"]) == (False, kind)
    assert result["error"]["text"]


def test_traceback_of_a_probe_shows_source_lines(node: NodeSide) -> None:
    node.send(probe(1, "fails"))
    # What it printed and its result come by different ways, in any order.
    shown: list[str] = []
    while "ValueError: no such port" not in shown:
        shown.append(next(node.messages(10)).get("text", ""))
    assert '    raise ValueError("no such port")' in shown


def test_worker_that_dies_fails_its_probes_and_comes_back(node: NodeSide) -> None:
    node.send(probe(1, "stuck", 60))
    node.send(probe(2, "dies"))
    results = [node.expect("result"), node.expect("result")]
    assert {r["id"] for r in results} == {1, 2}
    assert {r["error"]["kind"] for r in results} == {"worker_died"}
    assert "signal 9" in results[0]["error"]["text"]
    node.send(probe(3, "echo"))
    assert node.expect("result")["value"]["args"] == {}


def test_processes_of_a_dead_worker_are_ended(node: NodeSide) -> None:
    node.send(probe(1, "leaves"))
    value = node.expect("result")["value"]
    os.kill(value["worker"], signal.SIGKILL)
    wait_until(lambda: processes.read_stat(value["pid"]) is None, 8, "the child of the worker lives on")
    node.send({"t": "hb", "n": 1})
    assert node.expect("hb")["n"] == 1


def test_children_cannot_read_the_protocol(node: NodeSide) -> None:
    node.send(probe(1, "reads"))
    assert node.expect("result")["value"] == {"stdin": "", "fd": "/dev/null"}


def test_chatty_probe_is_cut_counted_and_delays_nothing(node: NodeSide) -> None:
    node.send(probe(1, "prints", lines=5000))
    node.send({"t": "hb", "n": 1})
    node.expect("hb", 3)
    node.expect("result")
    note = node.expect("log", 5)
    while "more lines were printed" not in note["text"]:
        node.before.append(note)
        note = node.expect("log", 5)
    shown = [m["text"] for m in node.before if m["t"] == "log"]
    assert "line 0" in shown
    counted = int(note["text"].split()[0].lstrip("["))
    assert len(shown) < 1000
    assert counted + len(shown) <= 5002
    assert all(len(text) <= 2048 for text in shown)


def test_rank_host_echoes_over_its_socket(node: NodeSide) -> None:
    node.send({"t": "spawn", "argv": None, "env": {"NCCL_TEST": "1"}, "config": {"mark": 3}})
    spawned, first = node.expect_spawned()
    assert spawned["python"] == sys.executable
    assert first["config"]["mark"] == 3
    assert first["config"]["env"] == {"NCCL_TEST": "1"}
    assert (first["variable"], first["stdin"], first["blocking"]) == ("1", "/dev/null", True)
    assert first["sid"] == spawned["pid"]
    assert first["path"] == []
    node.send({"t": "rank", "m": {"op": "hello", "text": "x" * 100000}})
    assert node.expect("rank")["m"] == {"op": "hello", "text": "x" * 100000, "echoed": True}
    node.send({"t": "hb", "n": 1})
    assert node.expect("hb")["rank"] is True


def test_rank_host_gets_the_environment_of_the_session_and_of_the_spawn() -> None:
    node = NodeSide(EXTRA, env_={"NCCL_TEST": "session"})
    node.listen()
    try:
        node.send({"t": "spawn", "argv": None, "env": {}, "config": {}})
        assert node.expect("rank")["m"]["variable"] == "session"
        node.send({"t": "spawn", "argv": None, "env": {"NCCL_TEST": "spawn"}, "config": {}})
        assert node.expect("rank")["m"]["variable"] == "spawn"
    finally:
        node.end()


def test_rank_host_that_ends_reports_how(node: NodeSide) -> None:
    spawn_rank_host(node)
    node.send({"t": "rank", "m": {"op": "quit", "code": 3}})
    assert node.expect("exit") == {"t": "exit", "code": 3, "signal": None, "stderr": "rank host starts\n"}
    spawn_rank_host(node)
    node.send({"t": "rank", "m": {"op": "crash"}})
    end = node.expect("exit")
    assert end["code"] == 1
    assert len(end["stderr"]) <= 4096
    assert "the last words" in end["stderr"]
    assert "RuntimeError: engine broke" in end["stderr"]
    node.send({"t": "hb", "n": 1})
    assert node.expect("hb")["rank"] is False


def test_kill_ends_the_rank_host_and_all_it_started(node: NodeSide) -> None:
    pid = spawn_rank_host(node)["pid"]
    before = set(living(node.token))
    node.send({"t": "rank", "m": {"op": "nasty"}})
    node.expect("rank")
    # One of them is just being replaced by another program, and carries no token meanwhile.
    wait_until(lambda: len(set(living(node.token)) - before) == 2, 10.0, "both processes that it started")
    others = set(living(node.token)) - before
    node.send({"t": "kill"})
    assert node.expect("exit") == {"t": "exit", "code": None, "signal": 9, "stderr": "rank host starts\n"}
    assert not (set(living(node.token)) & (others | {pid}))
    spawn_rank_host(node)


def test_spawn_replaces_a_living_rank_host(node: NodeSide) -> None:
    first = spawn_rank_host(node)["pid"]
    node.send({"t": "rank", "m": {"op": "nasty"}})
    node.expect("rank")
    node.send({"t": "spawn", "argv": None, "env": {}, "config": {}})
    assert node.expect("exit")["signal"] == 9
    assert not any(m["t"] == "spawned" for m in node.before)
    second, _ = node.expect_spawned()
    assert second["pid"] != first


def test_a_process_stands_by_for_the_next_spawn_of_the_same(node: NodeSide) -> None:
    first = spawn_rank_host(node)["pid"]
    before = set(living(node.token))
    node.send({"t": "standby", "on": True, "argv": None, "env": {}, "config": {}})
    node.send({"t": "standby", "on": True, "argv": None, "env": {}, "config": {}})
    wait_until(lambda: set(living(node.token)) - before, 10.0, "nothing stands by")
    (waiting,) = set(living(node.token)) - before
    node.send({"t": "rank", "m": {"op": "hello"}})
    assert node.expect("rank")["m"]["echoed"] is True, "a different rank host"
    second = spawn_rank_host(node)["pid"]
    assert second == waiting
    assert not {first} & set(living(node.token))
    node.send({"t": "rank", "m": {"op": "crash"}})
    assert "engine broke" in node.expect("exit")["stderr"]


def test_what_stands_by_is_ended_when_it_is_of_no_use(node: NodeSide) -> None:
    spawn_rank_host(node)
    before = set(living(node.token))
    for useless in ({"t": "standby", "on": False}, {"t": "kill"}):
        node.send({"t": "standby", "on": True, "argv": None, "env": {}, "config": {"mark": 1}})
        wait_until(lambda: set(living(node.token)) - before, 10.0, "nothing stands by")
        node.send(useless)
        wait_until(lambda: not set(living(node.token)) - before, 10.0, "it still stands by")
    assert node.expect("exit")["signal"] == 9
    node.send({"t": "standby", "on": True, "argv": None, "env": {}, "config": {"mark": 1}})
    node.send({"t": "spawn", "argv": None, "env": {}, "config": {"mark": 2}})
    _, first = node.expect_spawned()
    assert first["config"]["mark"] == 2


def test_standby_process_that_died_is_reported_at_the_spawn(node: NodeSide) -> None:
    broken = {"argv": ["/no/such/python"], "env": {}, "config": {}}
    spawn_rank_host(node)
    node.send({"t": "standby", "on": True, **broken})
    node.send({"t": "spawn", **broken})
    ends = [node.expect("exit"), node.expect("exit")]
    assert [end["signal"] or end["code"] for end in ends] == [9, 127]
    assert "cannot run /no/such/python" in ends[1]["stderr"]
    node.send({"t": "standby", "on": True, "argv": "python3", "env": {}, "config": {}})
    assert "argv is not a list of words" in node.expect("log")["text"]


def test_a_stopped_rank_host_is_reported(node: NodeSide) -> None:
    pid = spawn_rank_host(node)["pid"]
    for number, on in ((signal.SIGSTOP, True), (signal.SIGCONT, False), (signal.SIGSTOP, True)):
        os.kill(pid, number)
        assert node.expect("stopped")["on"] is on
    node.send({"t": "kill"})
    assert node.expect("exit")["signal"] == 9


def test_rank_host_that_cannot_be_started_is_reported(node: NodeSide) -> None:
    node.send({"t": "spawn", "argv": ["/no/such/python"], "env": {}, "config": {}})
    end = node.expect("exit")
    assert end["code"] == 127
    assert "cannot run /no/such/python" in end["stderr"]
    node.send({"t": "spawn", "argv": None, "env": {"A=B": "c"}, "config": {}})
    assert "environment variable" in node.expect("exit")["stderr"]


def test_rank_host_that_breaks_its_channel_is_killed(node: NodeSide) -> None:
    spawn_rank_host(node)
    node.send({"t": "rank", "m": {"op": "garbage"}})
    assert node.expect("exit")["signal"] == 9


def test_chatty_rank_host_does_not_stop_the_heartbeat(node: NodeSide) -> None:
    spawn_rank_host(node)
    node.send({"t": "rank", "m": {"op": "chatty"}})
    for number in range(10):
        node.send({"t": "hb", "n": number})
        node.expect("hb", n=number)
        time.sleep(0.1)
    node.send({"t": "kill"})
    node.expect("exit")


def test_nonsense_is_logged_and_survived(node: NodeSide) -> None:
    for message in (
        {"t": "probe"},
        {"t": "probe", "id": "x", "name": "echo", "args": {}, "deadline": 1},
        {"t": "hb"},
        {"t": "rank", "m": []},
        {"t": "no-such"},
        {"t": "modules"},
        {"t": "modules", "piece": "text", "last": True},
        {},
    ):
        node.send(message)
        assert "ignored" in node.expect("log")["text"]
    node.send({"t": "hb", "n": 9})
    assert node.expect("hb")["n"] == 9


def packed(modules: dict[str, str]) -> bytes:
    return zlib.compress(json.dumps(modules).encode())


def test_modules_that_come_later_are_there_for_the_worker_and_the_rank_host() -> None:
    node = NodeSide(sources=payload.first_modules())
    node.listen()
    try:
        node.expect("hello")
        node.ship(b"rubbish")
        assert "invalid modules were ignored" in node.expect("log")["text"]
        node.ship(packed({"fabtui_node.registry": EXTRA["fabtui_node.registry"], "fill": os.urandom(99_999).hex()}))
        node.send({"t": "hb", "n": 1})
        node.expect("hb", n=1)
        node.send(probe(2, "echo", word="w"))
        assert node.expect("result", id=2)["value"]["args"] == {"word": "w"}
        node.send({"t": "spawn", "argv": None, "env": {}, "config": {}})
        assert "fabtui_node.ranks" in node.expect("exit")["stderr"]
        node.ship(packed({"fabtui_node.ranks.rank_host": EXTRA["fabtui_node.ranks.rank_host"]}))
        spawn_rank_host(node)
        node.send({"t": "rank", "m": {"op": "hello"}})
        assert node.expect("rank")["m"] == {"op": "hello", "echoed": True}
    finally:
        node.end()


def test_no_frame_ends_the_link(node: NodeSide) -> None:
    node.expect("hello")
    assert node.process.stdin is not None
    node.process.stdin.write(b"\xff\xff\xff\xff")
    node.process.stdin.flush()
    assert node.process.wait(8) == 0


def test_bye_ends_everything(node: NodeSide) -> None:
    spawn_rank_host(node)
    node.send(probe(1, "stuck", 60))
    node.send({"t": "bye"})
    node.process.wait(8)
    wait_gone(node.token)


def test_controller_that_does_not_read_gets_back_pressure_then_everything() -> None:
    node = NodeSide(EXTRA)
    try:
        node.send({"t": "spawn", "argv": None, "env": {}, "config": {}})
        node.send({"t": "rank", "m": {"op": "flood", "count": 2000}})
        for number in range(20):
            node.send({"t": "hb", "n": number})
            time.sleep(0.1)
        assert node.process.poll() is None
        node.listen()
        node.expect("hb", 20, n=19)
        node.expect("rank", 20, m={"op": "flood", "count": 2000, "echoed": True})
        assert sum(m["t"] == "rank" for m in node.before) == 2001
    finally:
        node.end()


def test_a_node_without_room_for_processes_reports_it() -> None:
    full = "\n\ndef full(*a, **k):\n    raise BlockingIOError(11, 'Resource temporarily unavailable')\n"
    spawning = modules()["fabtui_node.runtime.processes"] + full + "start = full\n"
    node = NodeSide({**EXTRA, "fabtui_node.runtime.processes": spawning})
    node.listen()
    try:
        node.send({"t": "spawn", "argv": None, "env": {}, "config": {}})
        assert "cannot fork" in node.expect("exit")["stderr"]
        node.send(probe(1, "echo"))
        assert node.expect("result")["error"]["kind"] == "worker_died"
        node.send({"t": "hb", "n": 1})
        assert node.expect("hb")["rank"] is False
    finally:
        node.end()


def test_payload_cut_short_ends_the_first_stage() -> None:
    node = NodeSide(EXTRA)
    other = subprocess.Popen([sys.executable, "-IS", "-c", BOOT], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    other.communicate(b"00001000 only this", timeout=10)
    assert other.returncode == 3
    node.end()


def find_python_3_8() -> str | None:
    candidates = [shutil.which("python3.8"), *map(str, Path("~/.pyenv/versions").expanduser().glob("3.8*/bin/python"))]
    for path in filter(None, candidates):
        found = subprocess.run(
            [path, "-c", "import sys; print(sys.executable)"], capture_output=True, text=True, check=False
        )
        if found.returncode == 0:
            return found.stdout.strip()
    return None


def test_whole_node_side_runs_on_python_3_8() -> None:
    old = find_python_3_8()
    if old is None:
        pytest.skip("no Python 3.8 here")
    node = NodeSide(EXTRA, python=old)
    node.listen()
    try:
        assert node.expect("hello")["python"].startswith("3.8")
        node.send(probe(1, "echo", parts=1))
        assert node.expect("result")["ok"]
        spawn_rank_host(node)
        node.send({"t": "rank", "m": {"op": "nasty"}})
        node.expect("rank")
        node.send({"t": "kill"})
        assert node.expect("exit")["signal"] == 9
    finally:
        node.end()
