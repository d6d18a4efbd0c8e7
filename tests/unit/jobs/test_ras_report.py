"""Reports of NCCL RAS: every recorded answer and every version gives its values."""

import json

import pytest

from fabtui.diagnosis.job.ras_report import ANY, Process, RasReport, json_of, report_of
from fabtui.diagnosis.job.who_is_behind import JobPlace
from fabtui_node.parsers.base import Notes

from .ras_texts import LEADERS_LISTED, NCCL_2_24, NCCL_2_27, recorded

#: Communicator, launched AllReduce by rank, and silent ranks of each recorded answer in JSON.
JSON = {
    "running": ("ea9a40d216467915", {0: 4230, 1: 4230}, {}),
    "resumed": ("ea9a40d216467915", {0: 9490}, {1: "dead"}),
    "killed": ("ea9a40d216467915", {0: 9510}, {1: "dead"}),
    "skip": ("f88f135d92df96f2", {0: 270, 1: 250}, {}),
    "p2phang": ("bd377c9601a10150", {0: 250, 1: 250}, {}),
}
#: Errors of the table, silent ranks, and AllReduce by rank of each recorded text.
TEXT = {
    "running-status": ("OK", {}, {}),
    "running-verbose": ("OK", {}, {}),
    "stopped2s-status": ("INCOMPLETE", {1: "missing"}, {}),
    "resumed-status": ("INCOMPLETE", {0: "dead"}, {}),
    "resumed-verbose": ("INCOMPLETE", {0: "dead"}, {}),
    "killed-status": ("INCOMPLETE", {1: "dead"}, {}),
    "killed-verbose": ("INCOMPLETE", {1: "dead"}, {}),
    "skip-status": ("MISMATCH", {}, {0: 270, 1: 250}),
    "skip-verbose": ("MISMATCH", {}, {0: 270, 1: 250}),
    "p2phang-status": ("OK", {}, {}),
    "p2phang-verbose": ("OK", {}, {}),
}


def report(text: str) -> RasReport:
    notes = Notes()
    found = report_of(text, notes)
    assert notes.unknown == []
    assert notes.warnings == []
    assert found.complete
    return found


@pytest.mark.parametrize("name", JSON)
def test_json(name: str) -> None:
    communicator, launched, silent = JSON[name]
    found = report(recorded(f"{name}-json.txt"))
    assert (found.nccl, found.cuda_runtime, found.cuda_driver, found.timeouts) == ("2.28.9", 13000, 13000, 0)
    assert (found.nodes, found.processes, found.gpus) == (1, 2, 2)
    assert list(found.communicators) == [communicator]
    one = found.communicators[communicator]
    assert one.size == 2
    assert one.counts["AllReduce"] == launched
    assert one.counts["AllGather"] == dict.fromkeys(launched, 1)
    assert one.silent == silent
    assert {rank: place.gpu for rank, place in one.places.items()} == {0: "0", 1: "1"}


@pytest.mark.parametrize("name", TEXT)
def test_text(name: str) -> None:
    errors, silent, launched = TEXT[name]
    found = report(recorded(f"{name}.txt"))
    assert (found.nccl, found.cuda_runtime, found.cuda_driver) == ("2.28.9", 13000, 13000)
    assert (found.nodes, found.processes, found.gpus) == (1, 2, 2)
    assert found.timeouts == (name == "stopped2s-status")
    (row,) = found.groups
    assert (row.communicators, row.ranks_per_communicator, row.status, row.errors) == (1, 2, "RUNNING", errors)
    assert row.ranks == 2 - len(silent)
    assert bool(found.communicators) == (errors != "OK")
    for one in found.communicators.values():
        assert one.size == 2
        assert one.silent == silent
        assert one.counts == ({"AllReduce": launched} if launched else {})
    dead = "dead" in silent.values()
    assert found.missing == [Process(559 + rank, "192.0.2.2", str(rank), dead) for rank in silent]


def test_the_comma_that_nccl_leaves_out() -> None:
    text = recorded("killed-json.txt")
    with pytest.raises(json.JSONDecodeError):
        json.loads(text[text.index("{") :])
    assert json_of(text)["communicators"][0]["missing_ranks"][0]["status"]["considered_dead"] is True
    # With the comma, as later versions may have it.
    assert json_of(text.replace('"nvml_dev": 1\n', '"nvml_dev": 1,\n')) == json_of(text)


def test_many_ranks() -> None:
    found = report(NCCL_2_27)
    assert (found.nodes, found.processes, found.gpus, found.timeouts) == (4, 32, 32, 2)
    one = found.communicators["00c264af53edbe98"]
    assert one.silent == {21: "missing"}
    assert one.states == {21: "NOCOMM"}
    assert one.counts == {"AllReduce": {0: 6651, 1: 6651, 9: 6649}}
    assert one.tallies == {"AllReduce": {6650: 28, 6651: 2}}
    assert one.places[1] == JobPlace(1, "192.0.2.10", 12, "1")
    (gap,) = one.gaps()
    assert [place.rank for place in gap.behind] == [9]
    assert (gap.number, gap.unlisted, gap.highest) == (6650, 0, 6651)


def test_the_listed_side_may_be_ahead() -> None:
    one = report(LEADERS_LISTED).communicators["00c264af53edbe98"]
    assert one.counts == {"AllReduce": {0: 1, 1: 1}}
    (gap,) = one.gaps()
    assert gap.behind == ()
    assert (gap.number, gap.unlisted, gap.size) == (1, 30, 32)
    assert 1 not in one.places


def test_collectives_together() -> None:
    found = report(NCCL_2_24)
    assert (found.nodes, found.processes, found.gpus) == (4, 31, 31)
    one = found.communicators["cf264af53edbe986"]
    assert one.silent == {1: "missing", 5: "missing", 6: "missing"}
    assert one.errors == {3: "Remote process error or network error", 4: "Internal error"}
    assert one.counts == {ANY: {2: 11}}
    assert one.tallies == {ANY: {12: 28}}
    assert [place.rank for place in one.gaps()[0].behind] == [2]


@pytest.mark.parametrize("text", [NCCL_2_27, NCCL_2_24, recorded("skip-verbose.txt"), recorded("killed-json.txt")])
def test_a_cut_is_reported(text: str) -> None:
    whole = report(text)
    for end in range(0, len(text) - 60, 7):
        notes = Notes()
        found = report_of(text[:end], notes)
        if not found.complete:
            assert notes.warnings
        known = set(whole.communicators)
        assert set(found.communicators) <= known


@pytest.mark.parametrize("prefix", ["[1,0]<stdout>:", "2026-11-22T02:22:22.123456789Z stdout F ", "\x1b[0m"])
def test_prefixes(prefix: str) -> None:
    for name in ("skip-verbose.txt", "skip-json.txt"):
        text = recorded(name)
        labelled = "".join(f"{prefix}{line}\n" for line in text.splitlines())
        assert report(labelled) == report(text)
