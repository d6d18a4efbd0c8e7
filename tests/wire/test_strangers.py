"""A stranger who connects to every port of the node side: no result is wrong because of that."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import needs_torch
from tests.labrun import Run, run_lab
from tests.wire import stranger

pytestmark = [needs_torch, pytest.mark.timeout(300)]
#: What those do who look for services. None of it is a message of gloo or iperf3, or has the token of the probe udp.
HARMLESS = ("nothing", "random bytes", "half a handshake", "datagrams")
#: Small messages, few iterations: this is about who reaches whom.
LIGHT = ("--bytes", "1M", "--iters", "5")


@contextlib.contextmanager
def strangers(pause: float, *kinds: str) -> Iterator[dict[str, Any]]:
    """Have a stranger attack all node sides that this process starts; what it did is known in the end."""
    visits: dict[str, Any] = {}
    argv = [sys.executable, stranger.__file__, str(os.getpid()), str(pause), *kinds]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield visits
        finally:
            visits.update(json.loads(process.communicate(timeout=60)[0]))


def bad(run: Run) -> dict[Any, Any]:
    return {
        (row["layer"], row["src"], row["dst"]): (row["verdict"], row["error"])
        for row in run.rows
        if row["verdict"] not in ("ok", "slow")
    }


def test_strangers_spoil_no_cell(tmp_path: Path) -> None:
    with strangers(0.01, *HARMLESS) as visits:
        run = run_lab(tmp_path, "2x2", "--probes", "udp,p2p,all_reduce", *LIGHT)
    assert not bad(run), run.story()
    assert {row["layer"] for row in run.rows} > {"udp", "p2p", "world", "busbw"}
    assert set(visits["done"]) == set(HARMLESS)
    # The addresses of the nodes of the lab, and never all addresses.
    assert {address for _, address, _ in visits["seen"]} == {"127.0.60.10", "127.0.60.11"}


def test_who_takes_the_place_of_a_peer_does_not_fail_a_pair(tmp_path: Path) -> None:
    with strangers(0.1, "handshake") as visits:
        # Ranks on a busy machine may need more than the usual deadline.
        run = run_lab(tmp_path, "2x2", "--probes", "p2p", "--layers", "p2p", "--timeout", "30", *LIGHT)
    assert not bad(run), run.story()
    assert visits["done"]["handshake"] > stranger.NUMBERS


def test_an_external_tool_measures_all_the_same(tmp_path: Path) -> None:
    with strangers(0.5, *HARMLESS) as visits:
        run = run_lab(tmp_path, "2x1", "--probes", "iperf3")
    assert not bad(run), run.story()
    assert len(run.layer("iperf3")) == 2
    assert set(visits["done"]) == set(HARMLESS[:-1])
