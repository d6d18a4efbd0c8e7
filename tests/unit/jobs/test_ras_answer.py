"""Answers of RAS reports: who is behind, which silence means what, and what RAS cannot see."""

from fabtui.diagnosis.job.ras_report import BLIND, RasCommunicator, RasReport, answer, report_of
from fabtui.diagnosis.job.who_is_behind import JobPlace, UnmatchedOperation, causes_first, ranks_text, suspects
from fabtui.nodeset import ranges
from fabtui_node.parsers.base import Notes

from .ras_texts import LEADERS_LISTED, NCCL_2_24, NCCL_2_27, recorded


def report(text: str) -> RasReport:
    return report_of(text, Notes())


def test_a_rank_that_left_the_loop() -> None:
    for name in ("skip-json.txt", "skip-verbose.txt", "skip-status.txt"):
        found = answer(report(recorded(name)))
        assert found.sentences[0] == (
            "AllReduce 251 of communicator f88f135d92df96f2 (2 ranks): rank 1 on 192.0.2.2 has not called it (last"
            " 250); the others are at 270"
        )
        assert "ask again" in found.sentences[1]
        assert found.next == ["ssh 192.0.2.2 py-spy dump --pid 742"]
        assert found.hangs is None


def test_silent_ranks() -> None:
    found = answer(report(recorded("stopped2s-status.txt")))
    assert found.sentences == [
        "process 560 on 192.0.2.2 (GPU 1), rank 1 of communicator ea9a40d216467915 (2 ranks): RAS has no data on it:"
        " it is stopped, busy, or its node is cut off"
    ]
    assert found.next == ["ssh 192.0.2.2 ps -o pid,stat,wchan:32,etime,args -p 560"]
    for name, pid in (("killed-json.txt", 560), ("killed-verbose.txt", 560), ("resumed-status.txt", 559)):
        found = answer(report(recorded(name)))
        assert f"process {pid} on 192.0.2.2" in found.sentences[0]
        assert "considers it dead" in found.sentences[0]
        # It may run all the same: the recorded one did.
        assert "does not notice if it resumes later" in found.sentences[1]
        assert found.hangs is None


def test_a_silent_process_of_two_communicators_is_one_sentence() -> None:
    """A job has a communicator for collectives and others for groups and pairs."""
    found = report(recorded("killed-json.txt"))
    (one,) = found.communicators.values()
    found.communicators["ab"] = RasCommunicator("ab", 2, dict(one.places), silent=dict(one.silent))
    sentences = answer(found).sentences
    assert "rank 1 of communicator ea9a40d216467915 (2 ranks) and of 1 more communicator: RAS" in sentences[0]
    assert not any("communicator ab" in sentence for sentence in sentences)
    # Ranks of which the process is not known are not taken for each other.
    one.places.clear()
    found.communicators["ab"].places.clear()
    assert sum("a process that RAS does not name" in sentence for sentence in answer(found).sentences) == 2


def test_what_ras_cannot_see() -> None:
    found = answer(report(recorded("p2phang-json.txt")))
    assert found.sentences[0].startswith("in 1 communicator all ranks have launched the same number")
    assert found.sentences[-1] == BLIND
    assert found.next[0] == "ssh 192.0.2.2 py-spy dump --pid 909"
    found = answer(report(recorded("p2phang-json.txt")), report(recorded("p2phang-json.txt")))
    assert "no count grew between two reports" in found.sentences
    assert found.hangs is None


def test_a_running_job_moves() -> None:
    later = recorded("running-json.txt").replace("4230", "4300")
    found = answer(report(later), report(recorded("running-json.txt")))
    assert found.hangs is False
    assert "went from 4230 to 4300" in found.sentences[-1]
    assert BLIND not in found.sentences
    # Counts that differ for the moment are not a hang.
    uneven = later.replace("4300", "4299", 1)
    assert answer(report(uneven), report(recorded("running-json.txt"))).hangs is False
    # Those that launch nothing between two reports are behind.
    found = answer(report(recorded("skip-json.txt")), report(recorded("skip-json.txt")))
    assert found.hangs is True
    assert found.sentences[-1] == "the late ranks launched nothing between two reports"


def test_a_rank_that_ras_gave_up_may_run() -> None:
    before, after = recorded("resumed-json.txt"), recorded("resumed-json.txt").replace("9490", "9600")
    assert answer(report(after), report(before)).hangs is False
    assert answer(report(before), report(before)).hangs is True


def test_ranks_that_are_not_listed() -> None:
    found = answer(report(LEADERS_LISTED))
    assert found.sentences[0] == (
        "AllReduce 1 of communicator 00c264af53edbe98 (32 ranks): 30 ranks that the report does not name have not"
        " called it (none so far); the others are at 1"
    )


def test_silence_and_errors_come_first() -> None:
    found = answer(report(NCCL_2_27))
    assert "process 3487 on 192.0.2.13 (GPU 5), rank 21" in found.sentences[0]
    assert "rank 9 on 192.0.2.11 has not called it (last 6649)" in found.sentences[1]
    found = answer(report(NCCL_2_24))
    assert (
        "rank 3 on 192.0.2.10 of communicator cf264af53edbe986: Remote process error or network error"
        in found.sentences
    )
    assert any("rank 2 on 192.0.2.10 has not called it (last 11)" in sentence for sentence in found.sentences)


def test_no_communicator() -> None:
    assert "no communicator" in answer(RasReport()).sentences[0]


def test_a_rank_that_waits_elsewhere_is_a_consequence() -> None:
    """Rank 0 of the data-parallel group is late because its tensor-parallel partner is."""
    a, b, c, d = (JobPlace(rank, "192.0.2.10", 100 + rank, str(rank)) for rank in range(4))
    across = RasCommunicator("a" * 16, 2, {0: a, 1: c}, {"AllReduce": {0: 4, 1: 5}})
    inner = RasCommunicator("b" * 16, 2, {0: a, 1: b}, {"AllGather": {0: 9, 1: 8}})
    found = answer(RasReport(communicators={one.name: one for one in (across, inner)}))
    assert found.sentences[0].startswith("AllGather 9 of communicator bbbbbbbbbbbbbbbb (2 ranks): rank 1")
    assert found.next == ["ssh 192.0.2.10 py-spy dump --pid 101"]
    waits = UnmatchedOperation("AllReduce", 5, "x", 2, (a,), 0, (c, d), 5)
    late = UnmatchedOperation("AllGather", 9, "y", 2, (b,), 0, (a,), 9)
    assert causes_first([waits, late]) == [late, waits]
    assert suspects([waits, late]) == [b]


def test_words_for_ranks() -> None:
    assert ranges([3, 1, 2, 7]) == "1-3,7"
    assert ranges(range(0, 40, 2)) == "0,2,4,6,8,10,12,14 and 12 more"
    assert ranks_text([JobPlace(1, "n061")]) == "rank 1 on n061"
    assert ranks_text([JobPlace(rank, "n062") for rank in range(8, 12)]) == "ranks 8-11 on n062"
    assert ranks_text([JobPlace(8, "n062"), JobPlace(16, "n063")]) == "ranks 8 on n062 and 16 on n063"
    assert ranks_text([JobPlace(rank, f"n06{rank}") for rank in range(5)]) == "ranks 0-4 on 5 nodes"
    assert ranks_text([JobPlace(3)]) == "rank 3"


def uneven(**changed: dict[str, int]) -> RasReport:
    """Return a report of two ranks with other counts, by operation and rank."""
    found = report(recorded("running-json.txt"))
    (one,) = found.communicators.values()
    one.counts.update({name: dict(enumerate(counts.values())) for name, counts in changed.items()})
    return found


def test_ranks_in_different_collectives() -> None:
    """Rank 0 has one more AllReduce, rank 1 one more AllGather: neither is behind the other."""
    later = uneven(AllReduce={"0": 421, "1": 420}, AllGather={"0": 11, "1": 12})
    for earlier in (None, later):
        found = answer(later, earlier)
        assert found.sentences[0] == (
            "ranks are in different collectives of communicator ea9a40d216467915 (2 ranks): rank 0 on 192.0.2.2 has"
            " launched AllGather 11 and AllReduce 421, rank 1 on 192.0.2.2 has launched AllGather 12 and AllReduce 420"
        )
        assert [place.rank for place in found.suspects] == [0, 1]
        assert "no rank is behind" not in found.sentences
        assert found.hangs is (None if earlier is None else True)
    # Even where counts grow, as ranks do not call them in the same order.
    before = uneven(AllReduce={"0": 400, "1": 400}, AllGather={"0": 10, "1": 10})
    assert answer(later, before).sentences[0].startswith("ranks are in different collectives")


def test_a_rank_that_is_behind_in_all_operations_is_in_no_other_collective() -> None:
    for counts in ({"0": 421, "1": 420}, {"0": 5, "1": 4}):
        late = uneven(AllReduce=counts, AllGather={"0": 12, "1": 11})
        (one,) = late.communicators.values()
        assert one.diverging() == []
        assert "rank 1 on 192.0.2.2 has not called it" in answer(late, late).sentences[0]


def test_the_odd_rank_of_many_is_named() -> None:
    late = uneven()
    (one,) = late.communicators.values()
    one.counts = {"AllReduce": dict.fromkeys(range(8), 421), "AllGather": dict.fromkeys(range(8), 11)}
    one.counts["AllReduce"][5], one.counts["AllGather"][5] = 420, 12
    assert [place.rank for place in one.diverging()] == [5]
    assert "rank 5 has launched AllReduce 420 and AllGather 12, rank 0 on 192.0.2.2 has" in answer(late).sentences[0]


def test_a_late_rank_may_wait_in_a_receive_that_ras_does_not_count() -> None:
    """Rank 0 waits in recv, rank 1 skipped its send and waits in AllReduce 420: RAS names the victim."""
    late = uneven(AllReduce={"0": 419, "1": 420})
    found = answer(late, late)
    assert found.sentences[0].startswith("AllReduce 420 of communicator ea9a40d216467915 (2 ranks): rank 0")
    assert found.sentences[1].startswith("RAS does not count send and recv: rank 0 on 192.0.2.2 may wait in one, and")
