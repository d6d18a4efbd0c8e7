"""NCCL Inspector: the late rank is the one whose collectives are short; the one with the least bandwidth waits."""

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from fabtui.diagnosis.job.inspector import BLIND, InspectorTimes, conclusion
from fabtui.importers.formats.job_dumps import results_of
from fabtui_node.parsers.nccl.inspector_records import operations
from fabtui_node.probes.job import inspector
from tests.unit.probes.places import SAMPLES
from tests.unit.probes.test_ras_client import process

LATE = [str(SAMPLES / "running-job-h100x2" / f"late_rank{rank}.log.gz") for rank in range(2)]
#: Lines of these files while both ranks were even, and the number of bytes of all_reduce.
EVEN = 300
SIZE = 67108864


def lines(rank: int) -> list[str]:
    with gzip.open(LATE[rank], "rt") as file:
        return file.read().splitlines()


def test_the_late_rank_is_named_and_not_the_one_with_the_least_bandwidth(tmp_path: Path) -> None:
    for rank in range(2):
        (tmp_path / f"vm-pid{rank}.log").write_text("\n".join(lines(rank)[-600:]) + "\n")
    (result,) = results_of([str(tmp_path / f"vm-pid{rank}.log") for rank in range(2)])
    assert [(row["rank"], row["operation"], row["bytes"]) for row in result.values["late"]] == [(1, "AllReduce", SIZE)]
    assert result.warnings == [
        "rank 1 on vm arrives last at AllReduce of 64 MiB: it takes 253 us there and 20.3 ms on rank 0 on vm, which"
        " waits (32 of the last 32)"
    ]
    least = next(row for row in result.values["operations"] if row["operation"] == "AllReduce")
    assert least["rank_of_min"] == 0


def test_even_ranks_and_one_file_alone(tmp_path: Path) -> None:
    for rank in range(2):
        (tmp_path / f"vm-pid{rank}.log").write_text("\n".join(lines(rank)[:EVEN]) + "\n")
    (result,) = results_of([str(tmp_path / f"vm-pid{rank}.log") for rank in range(2)])
    assert (result.values["late"], [one for one in result.warnings if "last to" in one]) == ([], [])
    (result,) = results_of([str(tmp_path / "vm-pid1.log")])
    assert (result.values["late"], len(result.values["ranks"])) == ([], 1)


def once(rank: int, version: str = "v4.3") -> list[dict[str, Any]]:
    """Return the records of a rank as v4.3 writes them: the header once per dump of ten."""
    found = [json.loads(line) for line in lines(rank)[-200:]]
    whole: list[dict[str, Any]] = []
    for start in range(0, len(found), 10):
        dump = found[start : start + 10]
        kinds = [next(key for key in one if key.endswith("_perf")) for one in dump]
        metadata = {**dump[0]["metadata"], "inspector_output_format_version": version}
        stats = {"coll_records": kinds.count("coll_perf"), "p2p_records": kinds.count("p2p_perf"), "proxy_records": 1}
        whole.append({"header": dump[0]["header"], "metadata": metadata, "dump_stats": stats})
        whole += [{kind: one[kind]} for kind, one in zip(kinds, dump, strict=True)]
        whole.append({"proxy_trace": {}})
    return whole


def test_a_header_once_per_dump(tmp_path: Path) -> None:
    """The header is once per dump from v4.3 on; the end of a file begins within a dump."""
    each = [list(operations(json.loads(line) for line in lines(rank)[-200:])) for rank in range(2)]
    for rank in range(2):
        values = once(rank)
        found = list(operations(values))
        assert [one._replace(version="v4.0") if one else None for one in found] == each[rank]
        # Those of a dump whose head is not there are of no known communicator.
        cut = list(operations(values[5:]))
        assert cut[:6] == [None] * 6
        assert cut[6:] == found[10:]
        path = tmp_path / f"vm-pid{rank}.jsonl"
        path.write_text("".join(json.dumps(value) + "\n" for value in values))
    (result,) = results_of([str(tmp_path / f"vm-pid{rank}.jsonl") for rank in range(2)])
    assert [row["rank"] for row in result.values["late"]] == [1]
    assert result.values["version"] == "v4.3"


def test_the_rank_that_waits_for_nobody_among_many() -> None:
    times = InspectorTimes()
    for serial in range(40):
        for rank in range(8):
            times.take("c", rank, "AllReduce", SIZE, serial, 300.0 if rank == 5 else 9000.0 + rank)
            # Small ones differ by chance.
            times.take("c", rank, "AllGather", 64, serial, 20.0 if rank == serial % 8 else 90.0)
    (late,) = times.late()
    assert (late.place.rank, late.last, late.compared, late.waiting.rank) == (5, 32, 32, 7)
    # Another rank each time: uneven work, and no rank that holds the others up.
    for serial in range(40, 80):
        for rank in range(8):
            times.take("c", rank, "AllReduce", SIZE, serial, 300.0 if rank == serial % 8 else 9000.0)
    assert times.late() == []


def test_the_probe_reads_the_ends_of_the_files_that_the_environment_names(tmp_path: Path) -> None:
    dumps = tmp_path / "dumps"
    dumps.mkdir()
    host = os.uname().nodename
    for rank in range(2):
        process(tmp_path / "proc", 40 + rank, 1, RANK=str(rank), NCCL_INSPECTOR_DUMP_DIR=str(dumps))
        (dumps / f"{host}-pid{40 + rank}.log").write_text("\n".join(lines(rank)) + "\n")
    # A process of the same number on another node, an older job, and what is not a file.
    (dumps / "elsewhere-pid40.log").write_text("\n".join(lines(1)) + "\n")
    (dumps / f"{host}-pid7.log").write_text("x\n")
    os.mkfifo(dumps / f"{host}-pid41.jsonl")
    value = inspector.run({}, lambda _: None, 5.0, str(tmp_path / "proc"))
    found = sorted((row["rank"], row["pid"], len(row["operations"])) for row in value["ranks"])
    assert found == [(0, 40, 96), (1, 41, 96)]
    assert (value["folders"], value["problems"]) == ([str(dumps)], [])
    shown = conclusion({"n060": value})
    assert shown["suspects"] == [{"rank": 1, "node": "n060", "pid": 41, "gpu": ""}]
    assert shown["sentences"][0].startswith("rank 1 on n060 arrives last at AllReduce of 64 MiB: it takes 253 us there")
    assert shown["blind"] == BLIND


def test_ranks_of_two_nodes_are_compared_and_one_alone_is_not(tmp_path: Path) -> None:
    rows = []
    for rank in range(2):
        found = [
            one for one in operations(json.loads(line) for line in lines(rank)[-100:]) if one and one.kind == "coll"
        ]
        rows.append([[one.operation, one.size, one.serial, one.time] for one in found])
    values = {
        f"n06{rank}": {"ranks": [{"communicator": "0x1", "rank": rank, "pid": 40, "operations": rows[rank]}]}
        for rank in range(2)
    }
    assert conclusion(values)["suspects"] == [{"rank": 1, "node": "n061", "pid": 40, "gpu": ""}]
    del values["n061"]
    alone = conclusion(values)
    assert (alone["suspects"], alone["sentences"]) == ([], ["records of 1 rank: nothing to compare with"])
    assert conclusion({"n060": {"ranks": "x"}, "n061": {"ranks": [{"rank": 1}, 7]}})["sentences"] == []


@pytest.mark.parametrize(
    "text", ["", "{", '{"coll_perf": 1}', '{"header": 7, "coll_perf": {"coll": []}}', '{"dump_stats": {}}']
)
def test_damaged_records(text: str, tmp_path: Path) -> None:
    process(tmp_path / "proc", 40, 1, RANK="0", NCCL_INSPECTOR_DUMP_DIR=str(tmp_path))
    (tmp_path / "h-pid40.log").write_text(text + "\n")
    assert inspector.run({}, lambda _: None, 5.0, str(tmp_path / "proc"))["ranks"] == []


def test_a_rank_without_the_inspector(tmp_path: Path) -> None:
    process(tmp_path / "proc", 40, 1, RANK="0")
    process(tmp_path / "proc", 41, 1, RANK="1", NCCL_INSPECTOR_DUMP_DIR=str(tmp_path / "none"))
    value = inspector.run({}, lambda _: None, 5.0, str(tmp_path / "proc"))
    assert (value["ranks"], value["problems"]) == ([], [f"{tmp_path}/none: No such file or directory"])
