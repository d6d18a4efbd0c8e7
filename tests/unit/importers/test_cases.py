"""The cases in ``cases``, one file each: an output, the kind that it is read as, and facts of it."""

from __future__ import annotations

import json

import pytest

from fabtui.importers.result import read
from fabtui.importers.sources import Source
from fabtui.importers.to_model.dispatch import events
from fabtui.model.events import Measured

from .places import SAMPLES, at, cases, of_text, output_of


@pytest.mark.parametrize("name", [name for name, case in cases().items() if "real" not in case])
def test_a_case(name: str) -> None:
    case = cases()[name]
    result = of_text(output_of(name), case.get("as"))
    assert result.kind == case["kind"]
    values = json.loads(json.dumps(result.values, allow_nan=False))
    assert {path: at(values, path) for path in case["facts"]} == case["facts"]
    assert result.warnings == case.get("warnings", result.warnings)
    assert result.unknown == case.get("unknown", result.unknown)


def test_every_state_that_is_bad_is_a_warning() -> None:
    states = {
        "down*": "down, not responding",
        "down": "down",
        "down~": "down",
        "fail": "fail",
        "failg": "failing",
        "unk": "unknown",
        "drain*": "drained, not responding",
        "drng": "draining",
    }
    heading = "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\n"
    rows = "".join(
        f"gpu*         up 2-00:00:00      1 {state:>6} n{at:03}\n"
        for at, state in enumerate([*states, "idle", "mix-", "alloc"])
    )
    result = of_text(heading + rows)
    assert result.warnings == [f"n{at:03} {shown}" for at, shown in enumerate(states.values())]


def test_an_option_that_is_not_there() -> None:
    result = of_text((SAMPLES / "slurm/scontrol_json_unsupported.txt").read_text())
    assert "scontrol: unrecognized option '--json'" in result.warnings
    assert result.values["records"] == []


def test_a_value_that_is_none_is_no_measurement() -> None:
    result = of_text(output_of("osu-number-that-is-none-is-missing"), "osu")
    measured = next(event for event in events([result]) if isinstance(event, Measured)).measurements
    assert [one.bytes for one in measured] == [1]


def test_a_bench_behind_pages_of_a_log() -> None:
    text = "a:1:1 [0] NCCL INFO threadThresholds 8/8/64 | 64/8/64 | 8/8/512\n" * 1000
    text += "0:\n duration: 0.1 sec\n algo throughput: 1 bps, 8.0 Gbps\n busbw: 7.0 Gbps\n"
    assert of_text(text).kind == "all_reduce_bench"


MONTHS = [(month, f"{month}04") for month in range(1, 13)] + [(month, f"{month:02}04") for month in range(1, 10)]


@pytest.mark.parametrize(("month", "stamp"), MONTHS)
def test_stamps_of_pytorch_in_every_month(month: int, stamp: str) -> None:
    """PyTorch prints the month without a leading zero, glog with one: E704 and E0704 are the 4th of July."""
    watchdog = (
        "[rank2]:[E{}13:48:58.123456789 ProcessGroupNCCL.cpp:629] [Rank 2] Watchdog caught collective operation "
        "timeout: WorkNCCL(SeqNum=4, OpType=BROADCAST, NumelIn=1, NumelOut=1, Timeout(ms)=600000) "
        "ran for 600010 milliseconds.\n"
    )
    november, found = of_text(watchdog.format("1104 ")), of_text(watchdog.format(f"{stamp} "))
    assert (found.kind, found.values) == ("torch-log", november.values)
    for name in ("ibsim/ibstat_n061.txt", "h200x8/topo-m.txt"):
        plain = (SAMPLES / name).read_text()
        logged = "".join(f"I{stamp} 13:48:58.123456 4711 launch.py:88] {line}\n" for line in plain.splitlines())
        assert read(Source("text", logged)).values == of_text(plain).values, month
