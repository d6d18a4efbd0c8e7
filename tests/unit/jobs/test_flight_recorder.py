"""Flight recorder dumps: recorded ones of NCCL and gloo give their values, and the answers name who is behind."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabtui.diagnosis.job.flight_recorder import BLIND, FlightDump, answer, flight_dump, rank_of, stem_of
from fabtui.diagnosis.job.plain_pickle import read_plain
from fabtui.diagnosis.job.who_is_behind import WhoIsBehind

from ..probes.places import SAMPLES


def recorded(name: str) -> FlightDump:
    data = (SAMPLES / "ras" / name).read_bytes()
    dump = flight_dump(json.loads(data) if name.endswith(".json") else read_plain(data))
    assert dump is not None
    return dump


@pytest.mark.parametrize("state", ["live", "timeout"])
def test_a_rank_that_left_the_loop(state: str) -> None:
    dumps = {rank: recorded(f"{state}-fr_{rank}.pickle") for rank in range(2)}
    assert [(dump.version, dump.library, dump.entries) for dump in dumps.values()] == [
        ("2.10", "2.28.9", 271),
        ("2.10", "2.28.9", 251),
    ]
    group = dumps[0].groups["0"]
    assert (group.description, group.members, group.called, group.finished) == ("default_pg", (0, 1), 271, 251)
    assert [call.number for call in group.unfinished] == list(range(252, 272))
    assert (group.unfinished[0].operation, group.unfinished[0].shape) == ("all_reduce", "4194304 Float")
    found = answer(dumps)
    assert found.sentences == [
        "all_reduce 252 of default_pg (2 ranks): rank 1 has not called it (last 251); rank 0 waits at rank.py:16",
        "the last recorded call of rank 1: all_reduce 251 of default_pg at rank.py:16",
    ]
    assert found.hangs is True
    assert found.next[0].startswith("on the node of rank 1: py-spy dump")


def test_the_dump_of_one_rank() -> None:
    found = answer({0: recorded("live-fr_0.pickle")})
    assert found.sentences == ["no dump of rank 1 of default_pg, so whether all_reduce 252 was called there is unknown"]
    found = answer({1: recorded("live-fr_1.pickle")})
    assert found.sentences[-1] == BLIND
    assert found.hangs is None


def test_a_rank_that_waits_elsewhere_is_a_consequence() -> None:
    """Four ranks in two groups each: rank 3 stands, rank 1 and rank 2 wait for it, rank 0 for rank 2."""
    found = answer({rank: recorded(f"groups-fr_{rank}.json") for rank in range(4)})
    assert found.sentences[0] == "all_reduce 5 of DP 1 (2 ranks): rank 3 has not called it (last 4); rank 1 waits"
    assert found.sentences[1] == "the last recorded call of rank 3: all_reduce 4 of DP 1"
    assert found.sentences[2].startswith("2 more wait")
    assert len(found.next) == 1


def test_a_recorded_receive_without_a_send() -> None:
    """RAS shows nothing of this job."""
    found = answer({rank: recorded(f"p2phang-fr_{rank}.pickle") for rank in range(2)})
    assert found.sentences == [
        "recv 3 of default_pg: rank 0 waits in recv from rank 1 at rank.py:23; rank 1 has not called send",
        "the last recorded call of rank 1: all_reduce 249 of default_pg at rank.py:25",
    ]
    assert found.hangs is True


Row = tuple[str, int, str, bool]


def dump(*rows: Row, members: str = "[0, 1]", group: Sequence[str] = ("0", "default_pg")) -> FlightDump:
    """Return a dump with entries: operation, number, sizes, whether it has finished."""
    entries = [
        {
            "record_id": at,
            "process_group": list(group),
            "pg_id": 0,
            "profiling_name": f"nccl:{operation}",
            "collective_seq_id": number,
            "p2p_seq_id": number,
            "input_sizes": [[int(size)]],
            "input_dtypes": ["Float"],
            "state": "completed" if done else "started",
            "retired": done,
            "is_p2p": " " in operation,
            "frames": [{"name": "step", "filename": "/home/user/train.py", "line": 10 + at}],
        }
        for at, (operation, number, size, done) in enumerate(rows)
    ]
    found = flight_dump({"version": "2.10", "pg_config": {group[0]: {"ranks": members}}, "entries": entries})
    assert found is not None
    return found


def test_a_send_that_was_not_called() -> None:
    first = ("all_reduce", 1, "8", True)
    found = answer({0: dump(first, ("recv 0<-1", 1, "8", False)), 1: dump(first)})
    assert found.sentences == [
        "recv 1 of default_pg: rank 0 waits in recv from rank 1 at train.py:11; rank 1 has not called send",
        "the last recorded call of rank 1: all_reduce 1 of default_pg at train.py:10",
    ]
    assert found.hangs is True
    # Called on both sides: no rank is behind.
    both = answer({0: dump(first, ("recv 0<-1", 1, "8", False)), 1: dump(first, ("send 1->0", 1, "8", False))})
    assert both.sentences == ["send 1->0 of default_pg: both ranks have called it, but it does not finish"]
    alone = answer({0: dump(first, ("recv 0<-1", 1, "8", False))})
    assert alone.sentences[-1].endswith("rank 0 waits in recv from rank 1 at train.py:11; no dump of rank 1")


def test_ranks_of_a_group_are_not_those_of_the_job() -> None:
    waits = dump(("recv 0<-1", 1, "8", False), members="[2, 6]", group=("7", "PP 2"))
    late = dump(("send 1->0", 0, "8", True), members="[2, 6]", group=("7", "PP 2"))
    found = answer({2: waits, 6: late})
    assert found.sentences[0].startswith("recv 1 of PP 2: rank 2 waits in recv from rank 6")


def test_ranks_that_wait_for_each_other() -> None:
    found = answer({0: dump(("recv 0<-1", 1, "8", False)), 1: dump(("recv 1<-0", 1, "8", False))})
    assert "ranks 0, 1 wait for each other: a deadlock" in found.sentences


def test_ranks_that_call_different_collectives() -> None:
    found = answer({0: dump(("all_reduce", 1, "8", False)), 1: dump(("all_gather", 1, "8", False))})
    assert found.sentences == [
        "collective 1 of default_pg differs: rank 0 called all_reduce, rank 1 called all_gather: the program calls them"
        " in a different order"
    ]
    found = answer({0: dump(("all_reduce", 1, "8", False)), 1: dump(("all_reduce", 1, "9", False))})
    assert "rank 0 called all_reduce of 8 Float, rank 1 called all_reduce of 9 Float" in found.sentences[0]
    # Inputs of these may differ.
    found = answer({0: dump(("all_to_all", 1, "8", False)), 1: dump(("all_to_all", 1, "9", False))})
    assert "all ranks have called it, but it does not finish" in found.sentences[0]
    assert found.hangs is True


def test_a_dump_of_active_calls_only() -> None:
    """A rank without an active call has no entry, so that how far it came is not known."""
    late = flight_dump({"entries": [], "pg_config": {"0": {"ranks": "[0, 1]"}}})
    assert late is not None
    assert late.groups["0"].called is None
    found = answer({0: dump(("all_reduce", 2, "8", False)), 1: late})
    assert "rank 0 waits in all_reduce 2" in found.sentences[0]


def test_names_of_files() -> None:
    names = ("a/fr_12", "live-fr_3.pickle", "x.7.json", "trace", "fr_0.gz")
    assert [rank_of(name) for name in names] == [12, 3, 7, None, 0]
    assert stem_of("a/live-fr_3.pickle") == "a/live-fr_"


@pytest.mark.parametrize("value", [None, [], {}, {"entries": 1}, "x"])
def test_what_is_no_dump(value: object) -> None:
    assert flight_dump(value) is None


NAMES = ["record_id", "pg_id", "process_group", "collective_seq_id", "p2p_seq_id", "profiling_name", "state", "frames"]
NAMES += [
    *("retired", "input_sizes", "input_dtypes", "ranks", "desc", "filename", "line"),
    *("0", "last_enqueued_collective"),
]
odd = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["nccl:send 1->0", "completed", "0", "[0, 1]"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=8),
    max_leaves=12,
)


@given(entries=st.lists(odd, max_size=5), config=odd, status=odd)
def test_any_dump(entries: list[Any], config: Any, status: Any) -> None:
    found = flight_dump({"entries": entries, "pg_config": config, "pg_status": status})
    assert found is not None
    for dumps in ({0: found}, {0: found, 1: found, 5: dump(("all_reduce", 2, "8", False))}):
        result = answer(dumps)
        assert isinstance(result, WhoIsBehind)
        assert result.sentences
