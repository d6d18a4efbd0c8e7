"""`fabtui run` against real OpenSSH servers with strict host keys, good nodes and bad ones together."""

import csv
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from fabtui.model.recording import read_events
from fabtui.model.session_model import Model
from tests.conftest import needs_torch
from tests.forked import fabtui
from tests.wire import sshd

pytestmark = [needs_torch, pytest.mark.timeout(240)]


def _node(field: sshd.Field, name: str, *lines: str) -> sshd.Server:
    address = f"127.0.1.{len(field.servers) + 10}"
    return field.serve(name, sshd=[f"SetEnv FABTUI_LAB_NODE={name} FABTUI_LAB_ADDRESS={address}", *lines])


def _run(folder: Path, config: Path, nodes: str, *more: str) -> tuple[subprocess.CompletedProcess[str], Model]:
    record = folder / "recording"
    words = ["run", "--nodes", nodes, "--ssh-config", str(config), "--ranks-per-node", "2"]
    words += ["--remote-python", sys.executable, "--csv", str(folder / "s.csv"), "--record", str(record), *more]
    done = fabtui(*words, timeout=200)
    model = Model()
    for event in read_events(record):
        model.apply(event)
    return done, model


#: The only bad finding about nodes that are this machine.
ALIASES = "one machine under several names"

#: Options of sessions that are about nodes, not about values; nothing waits for the deadline.
FAST = ("--timeout", "60", "--bytes", "512K", "--iters", "5")


def _rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "s.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_bad_nodes_are_distinguished_and_do_not_hold_the_good_ones(field: sshd.Field, tmp_path: Path) -> None:
    for name in ("n060", "n061"):
        _node(field, name)
    changed = field.serve("changed", known=False)
    field.know(changed.known_name, sshd.make_key(field.folder / "old"))
    field.serve("unknown", known=False)
    field.nobody("down")
    field.silent("hangs")
    noise = "i=0; while [ $i -lt 1000 ]; do echo " + shlex.quote("x" * 99) + "; i=$((i+1)); done\n"
    script = field.script("chatty.sh", f'#!/bin/sh\n{noise}exec sh -c "$SSH_ORIGINAL_COMMAND"\n')
    _node(field, "chatty", f"ForceCommand '{script}'")
    nodes = "n[060-061],changed,unknown,down,hangs,chatty"
    strict = ("--host-key-policy", "strict", "--connect-timeout", "20")
    done, model = _run(tmp_path, field.config(), nodes, *strict, *FAST)
    # These nodes are one machine, which is a finding.
    assert ALIASES in done.stdout
    assert done.returncode == 1, done.stderr + done.stdout
    assert "42 of 72 pairs could not be tested, 30 are ok" in done.stdout
    assert "Traceback" not in done.stderr + done.stdout
    tested = [row for row in _rows(tmp_path) if row["verdict"] != "untested"]
    assert {row["verdict"] for row in tested} <= {"ok", "slow"}, done.stderr + done.stdout
    assert sum(row["layer"] == "p2p" for row in tested) == 30
    assert sum(row["layer"] == "ping" for row in tested) == 6
    good = ("n060", "n061", "chatty")
    assert {model.nodes[name].backend for name in good} == {"asyncssh"}
    texts = {name: record.text for name, record in model.nodes.items()}
    assert "changed" in texts["changed"].lower()
    assert "unknown" in texts["unknown"].lower() or "not known" in texts["unknown"].lower()
    assert texts["changed"] != texts["unknown"]
    assert "refused" in texts["down"].lower()
    assert "banner" in texts["hangs"].lower()
    since = {name: record.since for name, record in model.nodes.items()}
    measured = [m.time for m in model.measurements() if m.layer == "p2p"]
    assert min(measured) < since["hangs"], "the good nodes were tested before the hanging one was given up"
    assert not any(server.sessions() for server in field.servers.values() if server.process), "nothing is left on them"
