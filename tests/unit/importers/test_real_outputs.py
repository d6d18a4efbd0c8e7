"""Real outputs, read in place: every file of the tools that only the login node reads gives the values it holds."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from fabtui.importers.result import Result
from fabtui.importers.to_model.dispatch import model
from fabtui.model.measurement import Verdict

from .places import at, cases, index, read_file

pytestmark = pytest.mark.skipif(not index(), reason="no real samples here (FABTUI_REAL_SAMPLES)")

CASES = {case["real"]: case for case in cases().values() if "real" in case}


def test_every_file_has_its_values() -> None:
    """No file of these folders is left without an expectation."""
    folders = {name.partition("/")[0] for name in CASES}
    assert {row["file"] for row in index() if row["command"] in folders} == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    case = CASES[name]
    result = read_file(name, case.get("as"))
    assert result.kind == case["kind"]
    values = json.loads(json.dumps(result.values))
    assert {path: at(values, path) for path in case["facts"]} == case["facts"]
    if "cut" not in " ".join(result.warnings):
        assert result.unknown == case.get("unknown", [])
    assert case.get("warned", "") in "; ".join(result.warnings)
    if name.partition("/")[0] in BENCHMARKS:
        _check_measurements(name, result)


def test_transports_of_pairs_are_not_mixed() -> None:
    edges = read_file("nccl-debug-log/p2p-ipc-and-net-socket-mixed.txt").values["edges"]
    transports = {(edge["src"], edge["dst"]): edge["via"] for edge in edges}
    assert transports[3, 2] == "P2P/IPC"
    assert transports[15, 0] == "NET/Socket/0"
    assert transports[7, 8] == "NET/Socket/0"


def test_operations_of_one_table() -> None:
    rows = read_file("nccl-tests/multi-op-max-min-part.txt").values["tables"][0]["rows"]
    assert [row["redop"] for row in rows] == ["max"] * 6 + ["min"] * 3
    assert rows[6]["bytes"] < rows[5]["bytes"]


def test_drained_nodes_are_counted() -> None:
    rows = read_file("slurm-sinfo/R-gres-gpu-reasons-truncated.txt").values["rows"]
    assert [row["user"] for row in rows].count("slurm") == 7
    assert sum(row["expands_to"] for row in rows if row["nodelist"].startswith("gpu")) == 46
    assert sum(row["expands_to"] for row in rows if row["nodelist"].startswith("cpu")) == 3


def test_a_gradient_of_zero_is_in_the_log() -> None:
    rows = read_file("megatron-log/meg-13b-loss-jump.txt").values["iterations"]
    assert {row["grad_norm"] for row in rows} == {0.0}
    assert len(rows) > 3


def test_the_error_of_the_network_is_kept() -> None:
    values = read_file("torch-failure/ncclremoteerror-ofi-rank-prefix.txt").values
    assert values["last_error"].startswith("NET/OFI")
    assert "RC: 113. Error: 2 (UNDELIVERABLE)" in values["last_error"]


BENCHMARKS = ("all_reduce_bench", "nccl-tests", "nvbandwidth", "osu", "p2pBandwidthLatencyTest", "perftest")
#: Benchmarks without a measurement between pairs or of a collective, and why.
NOT_MEASURED = {
    "all_reduce_bench/ml-eng-latency-comp.txt": "one payload whole and in pieces: not a size of a collective",
    "nccl-tests/error-1e-07-2080ti.txt": "neither the text nor the columns name the collective",
    "nccl-tests/mpirun-tag-prefix.txt": "neither the text nor the columns name the collective",
    "nvbandwidth/header-indent-lost.txt": "between a host and its GPUs",
    "nvbandwidth/v07-assert-failure.txt": "it failed before it measured",
    "nvbandwidth/waived.txt": "nothing was run",
    "perftest/couldnt-connect.txt": "it failed before it measured",
    "perftest/failed-modify-qp-rtr.txt": "it failed before it measured",
}


def numbers(value: Any) -> Iterator[float]:
    if isinstance(value, dict):
        for item in value.values():
            yield from numbers(item)
    elif isinstance(value, list):
        for item in value:
            yield from numbers(item)
    elif isinstance(value, float):
        yield value


def _check_measurements(name: str, result: Result) -> None:
    """Check that the results of a benchmark become measurements of the same numbers."""
    found = model([result])
    measured = [*found.measurements(), *found.results.arms()]
    assert bool(measured) == (name not in NOT_MEASURED)
    printed = {round(number, 6) for number in numbers(result.values)}
    printed |= {round(number / 1000, 6) for number in printed}
    for one in measured:
        assert one.value is None or round(one.value, 6) in printed, one
        assert (one.value is None) == (one.verdict is Verdict.FAILED)
    # Results with endpoints can be shown in the grid.
    assert all(found.table.number(one.src) is not None or one.src in (*found.nodes, "all") for one in measured)
