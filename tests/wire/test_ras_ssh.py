"""`fabtui ras` and `fabtui flight` on a node behind a real SSH server, with a rank that is stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fabtui.diagnosis.running_job.node_evidence import addresses_of
from fabtui_node.probes.job import ras
from tests.forked import fabtui
from tests.unit.jobs.ras_texts import recorded
from tests.unit.jobs.rasservice import RasService, body
from tests.unit.probes.places import SAMPLES
from tests.wire import sshd

_RANK = Path(__file__).parents[1] / "unit" / "jobs" / "flight_rank.py"
_DUMPS = SAMPLES / "ras"


@pytest.fixture
def config(field: sshd.Field) -> Path:
    """The ssh_config of a node that is down and of one that runs."""
    field.nobody("n061")
    field.serve("n062")
    return field.config()


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Two ranks whose RAS service listens on an address of its own; the second is stopped."""
    found = []
    # The first connection reaches the stopped rank, which accepts it and does not answer.
    with RasService("", "{}", deaf=1) as service:
        for rank in range(2):
            variables = {"RANK": str(rank), "NCCL_RAS_ADDR": service.address}
            variables |= {"TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{tmp_path}/fr"}
            variables |= {"TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/trace_"}
            argv = [sys.executable, str(_RANK), str(_DUMPS / f"live-fr_{rank}.pickle")]
            process = subprocess.Popen(argv, env={**os.environ, **variables}, stdout=subprocess.PIPE)
            found.append(process)
            assert process.stdout is not None
            process.stdout.readline()
        report = body(recorded("skip-json.txt")).replace("192.0.2.2", addresses_of({"addresses": ras.addresses()})[0])
        service.document = report.replace('"pid": 742', f'"pid": {found[1].pid}')
        found[1].send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, found[1].pid, os.WSTOPPED)
        yield found
    for process in found:
        process.kill()
        with process:
            pass


def _fabtui(config: Path, *words: str) -> tuple[int, dict[str, Any]]:
    done = fabtui(*words, "--ssh-config", str(config), "--json", timeout=90)
    assert done.stdout.startswith("{"), done.stdout + done.stderr
    values: dict[str, Any] = json.loads(done.stdout)["values"]
    return done.returncode, values


def test_a_stopped_rank_of_a_job_with_an_address_of_its_own(
    config: Path, ranks: list[subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    code, values = _fabtui(config, "ras", "--nodes", "n061,n062", "--wait", "0.5")
    assert code == 1
    assert "(2 ranks): rank 1 on n062 has not called it (last 250)" in values["answer"][0]
    assert "rank 1 on n062: stopped (kill -CONT resumes it)" in values["answer"]
    assert values["next"] == [f"ssh -F {config} n062 kill -CONT {ranks[1].pid}"]
    words = ["flight", "--nodes", "n062", "--yes", "--within", "3", "--pipe", f"{tmp_path}/fr"]
    code, values = _fabtui(config, *words)
    assert code == 1
    assert values["answer"][0].startswith("no dump of rank 1 of default_pg")
    assert values["files"] == [f"n062:{tmp_path}/trace_0"]
    assert values["next"] == [f"ssh -F {config} n062 kill -CONT {ranks[1].pid}"]
