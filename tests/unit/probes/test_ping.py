import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fabtui_node.parsers.net.ping import parse_fping
from fabtui_node.probes.network import icmp_socket, ping
from fabtui_node.system import run_command

from .places import sample

PLAN = ping.Plan(3, 0.5, 56)


@pytest.mark.parametrize("name", ["not-permitted", "wrong-source"])
def test_fping_that_could_not_ask(name: str) -> None:
    assert parse_fping(sample(f"ping/fping-{name}.txt")) == {}


def test_fping_text_that_is_no_answer() -> None:
    assert parse_fping("192.0.2.7 : 1.5 - -4\n")["192.0.2.7"]["received"] is None
    assert parse_fping("192.0.2.7 : address not found\n") == {}


def test_the_commands_have_no_room_for_options() -> None:
    assert ping.fping_argv("192.0.2.1", ["192.0.2.2"], PLAN)[-4:] == ["-S", "192.0.2.1", "--", "192.0.2.2"]
    assert ping.ping_argv("192.0.2.1", "192.0.2.2", PLAN)[-4:] == ["-I", "192.0.2.1", "--", "192.0.2.2"]
    assert "-6" in ping.ping_argv("", "2001:db8::1", PLAN)


def sweep(targets: list[dict[str, Any]], deadline: float = 30.0, **args: Any) -> tuple[dict[str, Any], list[Any]]:
    parts: list[Any] = []
    value = ping.run({"targets": targets, "count": 2, "wait": 0.5, **args}, parts.append, deadline)
    # The parts and the result agree.
    assert sorted(str(row) for part in parts for row in part["rows"]) == sorted(str(row) for row in value["rows"])
    return value, parts


def without(monkeypatch: pytest.MonkeyPatch, *missing: str) -> None:
    find = run_command.find
    hidden: Callable[[str], str | None] = lambda name: None if name in missing else find(name)  # noqa: E731
    monkeypatch.setattr(run_command, "find", hidden)


def pingable(name: str) -> bool:
    """Return whether a tool is here and may open its socket."""
    if not shutil.which(name):
        return False
    argv = [name, "-c", "1", "127.0.0.1"]
    return subprocess.run(argv, capture_output=True, timeout=30, check=False).returncode == 0


needs_fping = pytest.mark.skipif(not pingable("fping"), reason="fping is not here or may not open its socket")
needs_ping = pytest.mark.skipif(not pingable("ping"), reason="ping is not here or may not open its socket")


def check_loopback(value: dict[str, Any], tool: str) -> None:
    rows = {row["id"]: row for row in value["rows"]}
    assert set(rows) == {"a", "b", "c"}
    for row in (rows["a"], rows["b"]):
        assert (row["sent"], row["received"], row["loss"], row["error"]) == (2, 2, 0.0, None)
        assert 0 < row["rtt_min"] <= row["rtt_avg"] <= row["rtt_max"]
        assert row["tool"] == tool
        assert row["dst"] in row["raw"]
    assert rows["a"]["src"] == "127.0.0.1"
    assert (rows["c"]["received"], rows["c"]["loss"]) == (None, None)
    assert "assign requested address" in rows["c"]["error"]


LOOPBACK = [
    {"id": "a", "src": "127.0.0.1", "dst": "127.0.0.2"},
    {"id": "b", "src": "127.0.0.3", "dst": "127.0.0.2"},
    {"id": "c", "src": "203.0.113.1", "dst": "127.0.0.2"},
]


@needs_fping
@needs_ping
def test_real_fping() -> None:
    value, _ = sweep(LOOPBACK)
    check_loopback(value, "fping")
    assert value["tool"] == "fping+ping"


@needs_ping
def test_real_ping(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "fping")
    value, parts = sweep(LOOPBACK)
    check_loopback(value, "ping")
    assert value["tool"] == "ping"
    assert len(parts) == 3


@needs_fping
def test_one_target_asked_for_twice_is_answered_twice() -> None:
    # Half a second is too short for an answer on a busy machine.
    value, _ = sweep([{"id": number, "src": "127.0.0.1", "dst": "127.0.0.2"} for number in range(3)], wait=3.0)
    assert sorted((row["id"], row["received"]) for row in value["rows"]) == [(0, 2), (1, 2), (2, 2)]


def tools(folder: Path, monkeypatch: pytest.MonkeyPatch, **scripts: str) -> None:
    for name, script in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


ANSWER = "echo '2 packets transmitted, 2 received, 0% packet loss, time 1ms'"


def test_fping_that_may_not_falls_back_to_ping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools(tmp_path, monkeypatch, fping="exit 4", ping=ANSWER)
    value, _ = sweep(LOOPBACK)
    assert [(row["tool"], row["received"]) for row in value["rows"]] == [("ping", 2)] * 3


def test_a_ping_without_short_intervals_is_asked_again_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse = f"case \" $* \" in *' -i '*) echo \"ping: invalid option -- 'i'\" >&2; exit 2;; esac; {ANSWER}"
    tools(tmp_path, monkeypatch, fping="exit 4", ping=refuse)
    value, _ = sweep(LOOPBACK)
    assert [row["received"] for row in value["rows"]] == [2, 2, 2]


def test_ping_that_hangs_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools(tmp_path, monkeypatch, fping="exit 4", ping="exec sleep 60")
    value, _ = sweep(LOOPBACK[:1], deadline=1.0)
    (row,) = value["rows"]
    assert (row["received"], row["loss"], row["error"]) == (None, None, "ping did not end in time")


def test_no_tool_and_no_right_to_send_echoes(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise icmp_socket.NotPermitted("no ping on this node")

    without(monkeypatch, "fping", "ping")
    monkeypatch.setattr(icmp_socket, "open_socket", refuse)
    value, _ = sweep(LOOPBACK)
    assert [(row["received"], row["error"]) for row in value["rows"]] == [(None, "no ping on this node")] * 3


def test_no_tool_but_the_right_to_send_echoes(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "fping", "ping")
    try:
        icmp_socket.open_socket("127.0.0.1", "127.0.0.2")[0].close()
    except icmp_socket.NotPermitted as error:
        pytest.skip(str(error))
    value, _ = sweep(LOOPBACK)
    assert value["tool"] == "icmp"
    assert {row["id"]: row["loss"] for row in value["rows"]} == {"a": 0.0, "b": 0.0, "c": None}


@pytest.mark.parametrize(
    ("src", "dst"),
    [
        ("127.0.0.1", "-f"),
        ("-x", "127.0.0.1"),
        ("127.0.0.1", "::1"),
        ("", ""),
        ("127.0.0.1", "localhost"),
        ("", "1%$(x)"),
    ],
)
def test_what_is_no_pair_of_addresses_is_never_run(src: str, dst: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*args: Any) -> None:
        raise AssertionError(args)

    monkeypatch.setattr(run_command, "run", never)
    value, _ = sweep([{"id": 7, "src": src, "dst": dst}])
    assert [(row["id"], row["error"]) for row in value["rows"]] == [(7, "not two addresses of one family")]


def test_odd_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "fping", "ping")
    assert ping.run({}, lambda part: None, 5.0) == {"rows": [], "tool": "none"}
    value, _ = sweep([LOOPBACK[0], "x"], count="many", wait=float("nan"), size=True)  # type: ignore[list-item]
    assert len(value["rows"]) == 1
    with pytest.raises(ValueError, match="at most"):
        ping.run({"targets": [LOOPBACK[0]] * 10000}, lambda part: None, 5.0)


def test_a_large_result_leaves_the_raw_text_to_the_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools(tmp_path, monkeypatch, fping="exit 4", ping=ANSWER)
    monkeypatch.setattr(ping, "_ALL_RAW_LIMIT", 10)
    parts: list[dict[str, Any]] = []
    value = ping.run({"targets": LOOPBACK}, parts.append, 20.0)
    assert [row["raw"] for row in value["rows"]] == ["", "", ""]
    assert all("2 received" in row["raw"] for part in parts for row in part["rows"])


def test_whole_packets_are_asked_of_each_tool() -> None:
    whole = PLAN._replace(whole=True, size=8972)
    assert "-M" in ping.fping_argv("", ["192.0.2.2"], whole)
    assert "-M" not in ping.fping_argv("", ["192.0.2.2"], PLAN)
    argv = ping.ping_argv("", "192.0.2.2", whole)
    assert argv[argv.index("-M") : argv.index("-M") + 2] == ["-M", "do"]
    assert argv[argv.index("-s") + 1] == "8972"


def test_targets_have_sizes_of_their_own() -> None:
    sized = {"id": 1, "src": "192.0.2.1", "dst": "192.0.2.2", "size": 100}
    targets, bad = ping._targets({"targets": [sized, {"src": "", "dst": "192.0.2.3"}]}, 56)
    assert [target["size"] for target in targets] == [100, 56]
    assert not bad
    assert len(ping._groups(targets)) == 2


def test_a_ping_that_cannot_forbid_fragments_proves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    busybox = tmp_path / "ping"
    busybox.write_text("#!/bin/sh\necho \"ping: invalid option -- 'M'\" >&2\nexit 1\n")
    busybox.chmod(0o755)
    monkeypatch.setattr(run_command, "find", lambda name: str(busybox) if name == "ping" else None)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    args = {"targets": [{"id": "b", "src": "127.0.0.1", "dst": "127.0.0.1", "size": 1000}], "whole": True, "count": 1}
    (row,) = ping.run(args, lambda value: None, 10.0)["rows"]
    assert row["tool"] == "icmp"


@pytest.mark.parametrize(("received", "outdated"), [(2, True), (0, False), (None, None)])
def test_a_path_mtu_in_the_cache_alone_is_outdated(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, received: int | None, outdated: bool | None
) -> None:
    def ask(*_: Any) -> dict[str, Any]:
        if received is None:
            raise icmp_socket.NotPermitted
        return {"received": received}

    text = "ping: local error: message too long, mtu=1500\n2 packets transmitted, 0 received, 100% packet loss"
    tools(tmp_path, monkeypatch, fping="exit 4", ping=f"echo '{text}'; exit 1")
    monkeypatch.setattr(icmp_socket, "ask", ask)
    value, _ = sweep(LOOPBACK[:1], whole=True, reasons=True)
    assert [(row["path_mtu"], row["outdated"]) for row in value["rows"]] == [(1500, outdated)]
    value, _ = sweep(LOOPBACK[:1])
    assert "outdated" not in value["rows"][0]
