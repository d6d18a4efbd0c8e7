"""The judge of a running job: every state, from recorded samples and from invented ones."""

import gzip
import json
import math
import random
import re
from pathlib import Path
from typing import Any

import pytest

from fabtui.cli import main as entry
from fabtui.diagnosis.diagnosis import diagnose
from fabtui.diagnosis.job.job_verdict import JobState, JobVerdict, RankState
from fabtui.diagnosis.job.judge import job_verdict
from fabtui.export.json import as_json
from fabtui.export.junit import junit_text
from fabtui.importers.session import read_session
from fabtui.model.events import (
    InventoryUpdate,
    JobEvidence,
    NodeState,
    NodeUpdate,
    ProbeResult,
    SessionStart,
    event_from_line,
)
from fabtui.model.session_model import Model
from fabtui.presentation.cell_levels import CellStyle
from fabtui.presentation.findings import evidence, title
from fabtui.presentation.job_board import JobBoard
from fabtui.report.summary import summary
from fabtui.session.event_pipeline import Journal

from .played_job import SAMPLES, T0, PlayedJob, gpu, play, rank

#: Bytes over NVLinks in a second of work, and bytes of a second of a checkpoint.
LINK, FILE = 10 << 30, 300 << 20


def works(job: PlayedJob, seconds: int = 20, gpus: int = 2) -> None:
    for _ in range(seconds):
        moved = int(job.now) * LINK
        job.sample([spins(at, job) for at in range(gpus)], [gpu(at, 95, 698, moved) for at in range(gpus)])
        job.step()


def spins(number: int, job: PlayedJob, **more: Any) -> dict[str, Any]:
    return rank(number, state="R", wait=None, cpu=job.now, cpu_all=job.now, **more)


def sleeps(number: int, wait: str = "futex_wait_queue", **more: Any) -> dict[str, Any]:
    return rank(number, state="S", wait=wait, cpu=20.0, cpu_all=20.0, **more)


def stands(job: PlayedJob, awaited: dict[str, Any], seconds: int = 15, use: float = 0, **more: Any) -> JobVerdict:
    """Play a job whose rank 0 waits for the other one."""
    moved = 20 * LINK
    for _ in range(seconds):
        job.sample([spins(0, job), awaited], [gpu(0, 100, 126, moved), gpu(1, use, 124, moved)], **more)
        verdict = job.step()
    return verdict


@pytest.fixture
def job() -> PlayedJob:
    played = PlayedJob()
    works(played)
    return played


def first_hang(job: PlayedJob) -> float:
    return next((when for when, one in job.seen if one.state is JobState.HANGS), math.inf)


# -- recorded runs ----------------------------------------------------------------------------------------------------


#: Faults of a training on two H200s, observed from the event on for 15 s: the end of the sentence.
FAULTS = {
    "stopped": "has been hanging for 0:13 or longer: rank 1 on vm:1 is stopped; next: kill -CONT 718",
    "late-20-ms": "is slow: rank 1 on vm:1 is late: GPU busy 20 %, the others wait at 99 %; next: sudo cat /proc/",
    "late-50-ms": "is slow: rank 1 on vm:1 is late: GPU busy 11 %, the others wait at 100 %; next: sudo cat /proc/",
    "loader": "has been hanging for 0:14 or longer: rank 1 on vm:1 sleeps in hrtimer_nanosleep; next: sudo cat /proc/",
    "lock": "has been hanging for 0:14 or longer: rank 1 on vm:1 sleeps in futex_do_wait; next: sudo cat /proc/",
    "left": "has been hanging for 0:14 or longer: rank 1 on vm:1 sleeps in hrtimer_nanosleep; next: sudo cat /proc/",
    "receive": "has been hanging for 0:14 or longer: rank 0 on vm:0 has not matched a send or receive of the others; ",
    "collectives": "is making progress, but ranks 0-1 on vm call different collectives; next: sudo cat /proc/",
    "killed": "has been hanging for 0:13 or longer: rank 1 on vm:1 has ended while the others run; next: sudo dmesg -T",
    "checkpoint-one": "is making progress; rank 1 on vm wrote files for 0:10 just before",
    "checkpoint-all": "is making progress; all ranks wrote files for 0:09 just before",
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_of_a_training(name: str) -> None:
    model = Model()
    first, states = None, []
    with gzip.open(SAMPLES.parent / "running-job-h200x2" / f"{name}.jsonl.gz") as file:
        for event in map(event_from_line, file):
            model.apply(event)
            verdict = job_verdict(model)
            if verdict is not None:
                states.append(verdict.state)
                first = verdict if verdict.settled and first is None else first
    assert verdict is not None
    assert first is not None
    assert verdict.sentence.startswith(f"the job on vm (2 ranks) {FAULTS[name]}")
    # Settled in time, on the same ranks, and never anything else that is wrong.
    assert first.at - model.started <= 14.0
    if name.startswith("checkpoint"):
        assert first.state is JobState.PAUSED
        assert not {JobState.HANGS, JobState.SLOW} & set(states)
    else:
        assert (first.state, first.behind) == (verdict.state, verdict.behind)
        assert {state for state in states if state not in (JobState.MOVES, JobState.STARTING)} == {verdict.state}


@pytest.mark.parametrize("with_ras", [False, True])
@pytest.mark.parametrize("every", [1, 2])
def test_nothing_fires_on_the_even_run(with_ras: bool, every: int) -> None:
    seen = play("plain", with_ras, every)
    assert {verdict.state for _, verdict in seen} == {JobState.STARTING, JobState.MOVES}
    assert seen[-1][1].state is JobState.MOVES


@pytest.mark.parametrize("every", [1, 2])
def test_the_late_rank_is_named(every: int) -> None:
    seen = play("late", every=every, more=12.0)
    slow = [(when, one) for when, one in seen if one.state is JobState.SLOW]
    assert 12.0 < slow[0][0] <= 27.0
    assert all(one.behind[0].rank == 1 and len(one.behind) == 1 for _, one in slow)
    assert seen[-1][1].state is JobState.SLOW
    assert {one.state for when, one in seen if when < 12.0} <= {JobState.STARTING, JobState.MOVES}
    assert 11.0 <= slow[-1][1].since - T0 <= 13.0
    assert "is slow: rank 1 on vm:1 is late: GPU busy 2" in slow[-1][1].sentence


@pytest.mark.parametrize("with_ras", [False, True])
@pytest.mark.parametrize("every", [1, 2])
def test_the_stopped_rank_is_named_by_the_gpus_alone(with_ras: bool, every: int) -> None:
    seen = play("stop", with_ras, every)
    hangs = [(when, one) for when, one in seen if one.state is JobState.HANGS]
    assert 8.0 < hangs[0][0] <= 23.0
    assert hangs[-1][0] < 32.5
    assert all([place.rank for place in one.behind] == [1] for _, one in hangs)
    assert 7.5 <= hangs[0][1].since - T0 <= 10.0
    assert {one.state for when, one in seen if when < 8.0} <= {JobState.STARTING, JobState.MOVES}
    # It continues.
    assert {one.state for when, one in seen if when > 32.5} == {JobState.MOVES}
    # Rank 0 waits, and nobody names it.
    row = hangs[0][1].ranks[0]
    assert (row.state, row.utilization, row.nvlink) == (RankState.WAITING, 100, 0)
    assert hangs[0][1].ranks[1].state is RankState.AWAITED


# -- a rank that stands -----------------------------------------------------------------------------------------------


def test_a_stopped_rank_is_named_at_once(job: PlayedJob) -> None:
    verdict = stands(job, rank(1, state="T", wait="do_signal_stop"), 1)
    assert verdict.sentence == (
        "the job on n1 (2 ranks) hangs: rank 1 on n1:1 is stopped; next: ssh n1 kill -CONT 1041"
    )
    assert verdict.ranks[1].state is RankState.STOPPED
    assert verdict.settled
    assert verdict.bad


def test_a_debugger_that_reads_a_stack_stops_nobody(job: PlayedJob) -> None:
    for second in range(5):
        moved = int(job.now) * LINK
        traced = rank(1, state="t", wait="ptrace_stop", cpu=job.now, cpu_all=job.now)
        job.sample([spins(0, job), traced], [gpu(0, 95, 698, moved), gpu(1, 95, 698, moved)])
        assert job.step().state is (JobState.MOVES if second < 3 else JobState.HANGS)


def test_all_ranks_stopped_are_suspended(job: PlayedJob) -> None:
    job.sample([rank(at, state="T") for at in (0, 1)], [gpu(0, 0, 120), gpu(1, 0, 120)])
    assert job.verdict.state is JobState.PAUSED
    assert "all ranks are stopped (suspended)" in job.verdict.sentence


@pytest.mark.parametrize("wait", ["hrtimer_nanosleep", "futex_wait_queue"])
def test_a_sleeping_rank_is_named_in_time(job: PlayedJob, wait: str) -> None:
    verdict = stands(job, sleeps(1, wait))
    assert first_hang(job) <= 20 + 15
    assert f"rank 1 on n1:1 sleeps in {wait}; next: ssh n1 py-spy dump --pid 1041" in verdict.sentence


def test_the_frame_of_the_rank_is_reported(job: PlayedJob) -> None:
    stands(job, sleeps(1))
    frames = [{"name": "load", "site": "train.py:33"}]
    job.take("n1", "stacks", {"ranks": [{"rank": 1, "pid": 1041, "state": "S", "frames": frames, "by": "py-spy"}]})
    assert "rank 1 on n1:1 is in load (train.py:33)" in job.verdict.sentence


def test_a_dead_rank_is_named(job: PlayedJob) -> None:
    for _ in range(6):
        job.sample([spins(0, job)], [gpu(0, 100, 126, 20 * LINK), gpu(1, 0, 80, 0)], oom=0)
        verdict = job.step()
    assert [place.rank for place in verdict.behind] == [1]
    assert "rank 1 on n1:1 has ended while the others run; next: ssh n1 sudo dmesg" in verdict.sentence
    assert verdict.ranks[1].state is RankState.DEAD
    job.sample([spins(0, job)], [gpu(0, 100, 126, 20 * LINK)], oom=1)
    assert "was killed by the OOM killer" in job.verdict.sentence


def test_a_job_that_ends_is_no_hang(job: PlayedJob) -> None:
    for _ in range(3):
        job.sample([spins(0, job)], [gpu(0, 95, 698, int(job.now) * LINK)])
        job.step()
    for _ in range(5):
        job.sample([], [gpu(0, 0, 80, 0)])
        job.step()
    assert {one.state for _, one in job.seen} == {JobState.MOVES, JobState.ENDED}


def test_started_after_the_hang() -> None:
    job = PlayedJob()
    verdict = stands(job, sleeps(1, age=4000.0))
    assert first_hang(job) <= 12.0
    assert [place.rank for place in verdict.behind] == [1]
    # For a snapshot of 6 s.
    quick = PlayedJob(patience=4.0)
    assert stands(quick, sleeps(1), 6).state is JobState.HANGS


def test_ranks_that_all_wait_are_not_separated_by_gpus(job: PlayedJob) -> None:
    moved = 20 * LINK
    for _ in range(14):
        job.sample([spins(0, job), spins(1, job)], [gpu(0, 100, 126, moved), gpu(1, 100, 126, moved)])
        verdict = job.step()
    assert verdict.state is JobState.HANGS
    assert verdict.behind == ()
    assert "not enough evidence: all GPUs wait in a collective, send or receive" in verdict.sentence
    assert "flight recorder" in verdict.sentence
    # RAS reports that rank 0 is behind; its GPU waits as well, in what RAS does not count. So its partner is awaited.
    job.take("n1", "ras", {"text": ras({0: {"AllReduce": 419}, 1: {"AllReduce": 420}})})
    found = job.verdict
    assert [place.rank for place in found.behind] == [1]
    assert "has not matched a send or receive" in found.sentence
    reading = next(one for one in found.sources if one.name == "RAS")
    assert (reading.blind, reading.suspects) == ("it does not count send and receive", found.behind)


def test_different_collectives(job: PlayedJob) -> None:
    counts = {0: {"AllReduce": 421, "AllGather": 100}, 1: {"AllReduce": 420, "AllGather": 101}}
    moved = 20 * LINK
    for _ in range(14):
        job.sample([spins(0, job), spins(1, job)], [gpu(0, 100, 126, moved), gpu(1, 100, 126, moved)])
        job.take("n1", "ras", {"text": ras(counts)})
        verdict = job.step()
    assert verdict.state is JobState.HANGS
    assert "ranks 0-1 on n1 call different collectives" in verdict.sentence
    # With three ranks, the one apart from the others is named.
    third = PlayedJob()
    works(third, gpus=3)
    counts[2] = counts[0]
    for _ in range(14):
        third.sample([spins(at, third) for at in range(3)], [gpu(at, 100, 126, moved) for at in range(3)])
        third.take("n1", "ras", {"text": ras(counts)})
        verdict = third.step()
    assert [place.rank for place in verdict.behind] == [1]


def test_sources_that_contradict_are_both_shown(job: PlayedJob) -> None:
    stands(job, sleeps(1))
    suspect = {"rank": 0, "node": "n1", "pid": 1040}
    job.take("n1", "flight", {"sentences": ["rank 0 has not called all_reduce 7"], "suspects": [suspect]})
    found = job.verdict
    assert [place.rank for place in found.behind] == [1]
    assert "flight recorder names rank 0 instead" in found.sentence
    assert {one.name: [place.rank for place in one.suspects] for one in found.sources}["flight recorder"] == [0]


# -- held up, paused, healthy -----------------------------------------------------------------------------------------


def test_50_ms_late(job: PlayedJob) -> None:
    for _ in range(12):
        moved = int(job.now) * LINK // 20
        job.sample([spins(0, job), spins(1, job)], [gpu(0, 99, 240, moved), gpu(1, 15, 235, moved)])
        verdict = job.step()
    assert verdict.state is JobState.SLOW
    assert [place.rank for place in verdict.behind] == [1]


def test_a_gpu_whose_clock_is_limited() -> None:
    job = PlayedJob()
    for _ in range(12):
        moved = int(job.now) * LINK
        hot = gpu(1, 100, 340, moved, clock=345, throttle=["hw_thermal"])
        job.sample([spins(0, job), spins(1, job)], [gpu(0, 100, 360, moved), hot])
        verdict = job.step()
    assert verdict.state is JobState.SLOW
    text = "rank 1 on n1:1 is slowed by its GPU, which is limited to 345 MHz (hw_thermal); the others run at 1980"
    assert text in verdict.sentence


@pytest.mark.parametrize(("sends", "state"), [(True, JobState.SLOW), (False, JobState.UNKNOWN)])
def test_a_rank_without_gpu_that_computes_longer(sends: bool, state: JobState) -> None:
    job = PlayedJob(("n1",))
    for second in range(12):
        rows = []
        for number in range(4):
            cpu = (0.3 if number == 2 else 0.08) * second
            # In an evaluation of one rank, the others send nothing: processor time alone does not show progress.
            files = 1000 * second if sends else 0
            rows.append(rank(number, [], world=4, cpu=cpu, cpu_all=cpu, files=files))
        job.sample(rows, [])
        verdict = job.step()
    assert verdict.state is state
    if not sends:
        assert "no sign of progress for at least 0:11: rank 2 on n1:2 " in verdict.sentence
    else:
        text = "rank 2 on n1:2 is late: it computes for 30 % of the time, the others for 8 % at most"
        assert text in verdict.sentence


def test_a_stage_of_a_pipeline_with_less_work_holds_up_nobody() -> None:
    job = PlayedJob()
    for _ in range(30):
        moved = int(job.now) * LINK
        job.sample([spins(0, job), spins(1, job)], [gpu(0, 98, 650, moved), gpu(1, 50, 330, moved)])
        job.step()
    assert {one.state for _, one in job.seen[2:]} == {JobState.MOVES}


@pytest.mark.parametrize("all_write", [False, True])
def test_a_checkpoint_is_a_pause(job: PlayedJob, all_write: bool) -> None:
    moved = 20 * LINK
    for second in range(1, 13):
        written: dict[str, Any] = {"files": second * FILE, "written": second * FILE}
        writer = rank(1, state="D" if second % 2 else "R", cpu=20.0 + second, cpu_all=20.0 + second, **written)
        other = rank(0, cpu=20.0 + second, cpu_all=20.0 + second, **written) if all_write else spins(0, job)
        job.sample([other, writer], [gpu(0, 0 if all_write else 100, 126, moved), gpu(1, 0, 124, moved)])
        job.step()
    works(job, 5)
    states = [one.state for _, one in job.seen]
    assert JobState.HANGS not in states
    assert states.count(JobState.PAUSED) >= 9
    pause = next(one for when, one in job.seen if when == 30)
    expected = "all ranks write files, 629 MB/s" if all_write else "rank 1 on n1:1 writes files, 315 MB/s"
    assert expected in pause.sentence
    assert pause.settled
    assert states[-1] is JobState.MOVES
    who = "all ranks" if all_write else "rank 1 on n1"
    assert (
        job.seen[-1][1].sentence
        == f"the job on n1 (2 ranks) is making progress; {who} wrote files for 0:12 just before"
    )


def test_a_checkpoint_that_hangs_is_a_hang(job: PlayedJob) -> None:
    moved = 20 * LINK
    for second in range(1, 40):
        written = min(second, 5) * FILE
        job.sample([spins(0, job), sleeps(1, files=written)], [gpu(0, 100, 126, moved), gpu(1, 0, 124, moved)])
        job.step()
    assert 25 + 9 <= first_hang(job) <= 25 + 15


def test_an_evaluation_of_one_rank_is_no_hang(job: PlayedJob) -> None:
    moved = 20 * LINK
    for _ in range(60):
        job.sample([spins(0, job), spins(1, job)], [gpu(0, 100, 126, moved), gpu(1, 90, 600, moved)])
        job.step()
    assert {one.state for _, one in job.seen[2:]} == {JobState.MOVES}


def test_pauses_of_a_data_loader_are_no_hang() -> None:
    job = PlayedJob()
    for _ in range(6):
        works(job, 10)
        moved = (int(job.now) - 1) * LINK
        for _ in range(7):
            job.sample([spins(0, job), sleeps(1, "pipe_read")], [gpu(0, 100, 126, moved), gpu(1, 0, 124, moved)])
            job.step()
    assert {one.state for _, one in job.seen[2:]} <= {JobState.MOVES, JobState.PAUSED}


def test_longer_pauses_that_came_before_are_usual() -> None:
    job = PlayedJob()
    for _ in range(4):
        works(job, 10)
        moved = (int(job.now) - 1) * LINK
        for _ in range(13):
            job.sample([spins(0, job), sleeps(1)], [gpu(0, 100, 126, moved), gpu(1, 0, 124, moved)])
            job.step()
    late = [when for when, one in job.seen if one.state is JobState.HANGS]
    assert late
    assert max(late) < 46, "the third pause and the fourth are as long as the first two"


def test_helpers_that_work_are_a_pause(job: PlayedJob) -> None:
    moved = 20 * LINK
    for second in range(30):
        busy = rank(1, state="S", wait="pipe_read", cpu=20.0, cpu_all=20.0 + 3.0 * second)
        job.sample([spins(0, job), busy], [gpu(0, 100, 126, moved), gpu(1, 0, 124, moved)])
        verdict = job.step()
    assert JobState.HANGS not in {one.state for _, one in job.seen}
    assert "rank 1 on n1:1 computes on the CPU while the others wait" in verdict.sentence


def test_a_start_that_compiles_is_no_hang() -> None:
    job = PlayedJob()
    for second in range(120):
        at = float(second)
        rows = [rank(0, state="R", age=at, cpu=at, cpu_all=at), rank(1, age=at, cpu=at, cpu_all=4 * at)]
        job.sample(rows, [gpu(0, 100, 126), gpu(1, 0, 124)])
        job.step()
    works(job, 5)
    assert {one.state for _, one in job.seen} == {JobState.STARTING, JobState.MOVES}


def test_one_rank_waits_for_nobody() -> None:
    job = PlayedJob()
    for _ in range(60):
        job.sample([spins(0, job, world=1)], [gpu(0, 100, 126)])
        job.step()
    assert not any(one.bad for _, one in job.seen)


def test_an_xid_while_the_job_moves(job: PlayedJob) -> None:
    report = {"kind": "xid", "code": 79, "gpu": 1, "bus": "0000:9a:00", "at": "12:03", "text": "GPU has fallen off"}
    moved = int(job.now) * LINK
    job.sample([spins(0, job), spins(1, job)], [gpu(0, 95, 698, moved), gpu(1, 95, 698, moved)], kernel=[report])
    assert (
        "is making progress; rank 1 on n1:1 is on a GPU that reported Xid 79: GPU has fallen off the bus"
        in job.verdict.sentence
    )
    found = diagnose(job.model)
    assert found.all_findings[0].rule.id == "J22"
    assert found.code == 1
    assert JobBoard(job.verdict).style is CellStyle.SLOW


@pytest.mark.parametrize(
    ("code", "age", "reported", "grave"),
    [
        (
            79,
            600.0,
            "; rank 1 on n1:1 is on a GPU that reported Xid 79: GPU has fallen off the bus (12:03); next: ",
            True,
        ),
        # An Xid of a program that continued, and one of an earlier job.
        (13, 600.0, "", False),
        (79, 1000.0, "", False),
        # It wants a reset some time.
        (63, 600.0, "; rank 1 on n1:1 is on a GPU that reported Xid 63: ECC page retirement", False),
    ],
)
def test_an_xid_of_before_the_first_sample(job: PlayedJob, code: int, age: float, reported: str, grave: bool) -> None:
    """The kernel's log still has it; the processes are 900 s old."""
    event = {"kind": "xid", "code": code, "gpu": 1, "bus": "0000:9a:00", "at": "12:03", "age": age, "text": ""}
    job.take("n1", "kernel", {"log": "yes", "events": [event], "ports": []})
    assert job.verdict.sentence.startswith("the job on n1 (2 ranks) is making progress" + reported)
    assert reported or job.verdict.sentence.endswith("is making progress")
    assert (job.verdict.struck, job.verdict.bad, diagnose(job.model).code == 1) == (grave, False, grave)
    assert summary(diagnose(job.model)).splitlines()[0] == job.verdict.sentence
    if grave:
        assert job.verdict.next == ("ssh n1 nvidia-smi -q -i 1",)


def test_the_first_line_has_the_bad_finding_for_which_the_exit_code_is_1(job: PlayedJob) -> None:
    """An Xid of before the job is not a fault of the job, and of the node."""
    job.model.apply(NodeUpdate("n1", NodeState.READY))
    job.model.apply(InventoryUpdate("n1", {"gpus": [{"index": 1, "bus_id": "0000:9a:00.0"}]}))
    count = {"kind": "xid", "code": 79, "bus": "0000:9a:00", "count": 1, "age": 3000.0, "text": "GPU has fallen off"}
    job.model.apply(ProbeResult("n1", "kernel", {"readable": "yes", "counts": [count]}))
    found = diagnose(job.model)
    assert found.code == 1
    first = summary(found).splitlines()[0]
    assert first.startswith("the job on n1 (2 ranks) is making progress; but n1: Xid 79: GPU has fallen off the bus"), (
        first
    )


def test_an_old_report_names_nobody_in_a_hang_that_has_another_cause(job: PlayedJob) -> None:
    event = {"kind": "xid", "code": 63, "gpu": 0, "bus": "0000:18:00", "at": "11:53", "age": 600.0, "text": ""}
    job.take("n1", "kernel", {"log": "yes", "events": [event], "ports": []})
    verdict = stands(job, sleeps(1))
    assert [place.rank for place in verdict.behind] == [1]
    event["code"] = 79
    job.take("n1", "kernel", {"log": "yes", "events": [event], "ports": []})
    assert [place.rank for place in job.verdict.behind] == [0]
    stopped = stands(job, {**sleeps(1), "state": "T"}, 2)
    words = (
        "rank 1 on n1:1 is stopped; rank 0 on n1:0 is on a GPU that reported Xid 79: GPU has fallen off the bus (11:53)"
    )
    assert stopped.statement.endswith(words)


def test_a_rank_that_has_ended_on_a_gpu_with_an_xid(job: PlayedJob) -> None:
    report = {"kind": "xid", "code": 79, "gpu": 1, "bus": "0000:9a:00", "at": "12:03", "text": "GPU has fallen off"}
    for _ in range(6):
        job.sample([spins(0, job)], [gpu(0, 100, 126), gpu(1, 0, 124)], kernel=[report])
        verdict = job.step()
    words = "rank 1 on n1:1 has ended, on a GPU that reported Xid 79: GPU has fallen off the bus (12:03); next: "
    assert words in verdict.sentence


# -- ranks without GPUs -----------------------------------------------------------------------------------------------


def bare(number: int, node: str, share: float, job: PlayedJob, **more: Any) -> dict[str, Any]:
    cpu = share * job.now
    return rank(number, [], world=8, cpu=cpu, cpu_all=cpu, local_rank=number % 4, **more)


def play_bare(job: PlayedJob, seconds: int, odd: dict[str, Any] | None = None) -> JobVerdict:
    """Play eight ranks on two nodes; with ``odd``, rank 5 stands with these values, and the others wait for it."""
    for _ in range(seconds):
        for node in ("n1", "n2"):
            rows = []
            for number in range(4) if node == "n1" else range(4, 8):
                if odd is None:
                    rows.append(bare(number, node, 0.8, job, state="R", wait=None, files=int(1000 * job.now)))
                else:
                    still = rank(number, [], world=8, cpu=10.0, cpu_all=10.0, local_rank=number % 4)
                    rows.append({**still, **odd} if number == 5 else still)
            job.sample(rows, [], node)
        verdict = job.step()
    return verdict


@pytest.mark.parametrize(
    ("odd", "where"),
    [
        ({"state": "T", "wait": "do_signal_stop"}, "rank 5 on n2:1 is stopped; next: ssh n2 kill -CONT 1045"),
        ({"wait": "hrtimer_nanosleep"}, "rank 5 on n2:1 sleeps in hrtimer_nanosleep"),
        ({"wait": "unix_stream_read_generic"}, "rank 5 on n2:1 sleeps in unix_stream_read_generic"),
    ],
)
def test_ranks_without_gpus(odd: dict[str, Any], where: str) -> None:
    job = PlayedJob(("n1", "n2"))
    assert play_bare(job, 10).state is JobState.MOVES
    verdict = play_bare(job, 13, odd)
    assert verdict.state is JobState.HANGS
    assert verdict.title == "the job on n[1-2] (8 ranks)" or verdict.title == "the job on n1,n2 (8 ranks)"
    assert where in verdict.sentence
    assert first_hang(job) <= 10 + 15


@pytest.mark.parametrize(("missing", "state"), [(0, JobState.HANGS), (1, JobState.STARTING)])
def test_young_ranks_without_gpus_that_do_nothing_at_all(missing: int, state: JobState) -> None:
    """One that compiles or loads would use processor or files; if one is missing, the others may wait for it."""
    job = PlayedJob()
    for _ in range(9):
        rows = [rank(number, [], world=4, age=30.0 + job.now) for number in range(4 - missing)]
        rows[0]["wait"] = "hrtimer_nanosleep"
        job.sample(rows, [])
        verdict = job.step()
    assert verdict.state is state
    assert [place.rank for place in verdict.behind] == ([] if missing else [0])


def test_several_jobs() -> None:
    job = PlayedJob()
    for _ in range(14):
        rows = [{**spins(at, job), "job": "7"} for at in (0, 1)]
        others = [{**spins(0, job), "job": "8", "pid": 2040, "gpus": [2]}, {**sleeps(1), "pid": 2041, "gpus": [3]}]
        others[1]["job"] = "8"
        moved = int(job.now) * LINK
        gpus = [gpu(0, 95, 698, moved), gpu(1, 95, 698, moved), gpu(2, 100, 126), gpu(3, 0, 124)]
        job.sample([*rows, *others], gpus)
        verdict = job.step()
    assert (verdict.state, verdict.job) == (JobState.HANGS, "8")
    assert "; also, job 7 on n1 (2 ranks) is making progress; next: " in verdict.sentence


def test_jobs_without_slurm_are_named_by_a_process() -> None:
    job = PlayedJob()
    for _ in range(14):
        rows = [spins(at, job, env={"MASTER_PORT": "29500"}) for at in (0, 1)]
        others = [{**spins(0, job), "pid": 2040, "gpus": [2]}, {**sleeps(1), "pid": 2041, "gpus": [3]}]
        moved = int(job.now) * LINK
        gpus = [gpu(0, 95, 698, moved), gpu(1, 95, 698, moved), gpu(2, 100, 126), gpu(3, 0, 124)]
        job.sample([*rows, *({**one, "env": {"MASTER_PORT": "29501"}} for one in others)], gpus)
        verdict = job.step()
    assert verdict.sentence.startswith("the job of process 2040 on n1 (2 ranks) has been hanging for ")
    assert "; also, the job of process 1040 on n1 (2 ranks) is making progress; next: " in verdict.sentence


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}, {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}),
        ({"MASTER_ADDR": "n1", "MASTER_PORT": "29500"}, {"MASTER_ADDR": "n2", "MASTER_PORT": "29500"}),
        ({"PMIX_NAMESPACE": "prterun-n1-7@1"}, {"PMIX_NAMESPACE": "prterun-n1-9@1"}),
    ],
)
def test_jobs_of_the_same_size_at_the_same_port_are_two(first: dict[str, str], second: dict[str, str]) -> None:
    job = PlayedJob(("n1", "n2"))
    for _ in range(14):
        moved = int(job.now) * LINK
        works_there = [spins(at, job, env=first) for at in (0, 1)]
        job.sample(works_there, [gpu(at, 95, 698, moved) for at in (0, 1)], "n1")
        job.sample([spins(0, job, env=second), sleeps(1, env=second)], [gpu(0, 100, 126), gpu(1, 0, 124)], "n2")
        verdict = job.step()
    assert re.match(
        r"the job of process 1040 on n2 \(2 ranks\) has been hanging for \S+( or longer)?: rank 1 on n2",
        verdict.sentence,
    )
    assert "; also, the job of process 1040 on n1 (2 ranks) is making progress" in verdict.sentence


def test_processes_that_only_have_a_rank_are_no_job_beside_one() -> None:
    """Tests, shells and wrappers inherit such variables; one of them is even stopped."""
    job = PlayedJob()
    for _ in range(20):
        moved = int(job.now) * LINK
        idle = [rank(at, [], world=None, pid=2000 + at, cpu=0.02, cpu_all=0.02) for at in (1, 3)]
        idle[1]["state"] = "T"
        job.sample([spins(0, job), spins(1, job), *idle], [gpu(at, 95, 698, moved) for at in range(2)])
        verdict = job.step()
    assert verdict.sentence == "the job on n1 (2 ranks) is making progress"


# -- other sources, hostile values ------------------------------------------------------------------------------------


def ras(counts: dict[int, dict[str, int]], silent: tuple[int, ...] = ()) -> str:
    def place(number: int) -> dict[str, Any]:
        return {"rank": number, "host": "192.0.2.2", "pid": 1040 + number, "cuda_dev": number, "nvml_dev": number}

    ranks = [{**place(number), "status": {}, "collective_counts": rows} for number, rows in counts.items()]
    missing = [{**place(number), "status": {"unresponsive": True}} for number in silent]
    size = len(ranks) + len(missing)
    one = {"hash": "0x230ac0561b948aa7", "size": size, "ranks": ranks, "missing_ranks": missing}
    return json.dumps({"nccl_version": "2.28.9", "communicators_count": 1, "communicators": [one]})


def test_ras_alone_names_the_rank_that_is_behind() -> None:
    job = PlayedJob()
    counts = {0: {"AllReduce": 420}, 1: {"AllReduce": 400}}
    for second in range(14):
        cpu = float(second)
        rows = [rank(at, [], cpu=cpu, cpu_all=cpu) for at in (0, 1)]
        job.sample(rows, [], problems=["NVML: NVML Shared Library Not Found"])
        job.take("n1", "ras", {"text": ras(counts)})
        verdict = job.step()
    assert verdict.state is JobState.HANGS
    assert [place.rank for place in verdict.behind] == [1]


def test_ras_does_not_claim_that_counts_grow_which_have_grown_before() -> None:
    job = PlayedJob()
    for second in range(28):
        count = min(400 + 100 * second, 1000)
        rows = [rank(0, [], cpu=float(second), cpu_all=float(second)), rank(1, [], cpu=1.0, cpu_all=1.0)]
        job.sample(rows, [])
        job.take("n1", "ras", {"text": ras({0: {"AllReduce": count + 20 * (count == 1000)}, 1: {"AllReduce": count}})})
        verdict = job.step()
        text = next(one.text for one in verdict.sources if one.name == "RAS")
        assert "the job makes progress" not in text, "the verdict states that, from all sources"
        assert ("counts grow: " in text) == (0 < second < 9), (second, text)
    assert verdict.state is JobState.HANGS
    assert "rank 1" in text
    assert "the late ranks launched nothing between two reports" in text


def test_a_report_of_ras_about_another_job_names_nobody() -> None:
    """Any program that listens at the usual port answers."""
    job = PlayedJob()
    text = ras({0: {"AllReduce": 420}, 1: {"AllReduce": 400}}).replace('"pid": 104', '"pid": 204')
    for _ in range(14):
        moved = int(job.now) * LINK
        rows = [*(spins(at, job) for at in (0, 1)), rank(0, [], pid=2040, world=3)]
        job.sample(rows, [gpu(at, 95, 698, moved) for at in range(2)])
        job.take("n1", "ras", {"text": text})
        verdict = job.step()
    assert verdict.state is JobState.MOVES
    assert "RAS" not in {one.name for one in verdict.sources}


def test_a_log_with_iterations_shows_progress() -> None:
    job = PlayedJob()
    for _ in range(14):
        job.sample([spins(0, job), sleeps(1)], [gpu(0, 100, 126), gpu(1, 0, 124)])
        job.take("", "log", {"iteration": 7, "interval": 0.5, "late": 0.3, "quiet": 0.3})
        verdict = job.step()
    assert verdict.state is JobState.MOVES
    assert verdict.sentence == "the job on n1 (2 ranks) is making progress: 120 iterations/min"


def test_nothing_about_a_job() -> None:
    assert job_verdict(Model()) is None
    job = PlayedJob()
    job.sample([], [gpu(0, 0, 70)])
    assert job.verdict.state is JobState.UNKNOWN
    assert "no process with a rank" in job.verdict.sentence


VALUES: list[Any] = [
    *(None, True, -1, 0, 7, 1e99, 2**62, "", "x" * 1000, "\x1b[2J", [], {}, [[]], [{}], {"a": []}),
    {"rank": 0, "pid": 1, "gpus": [0, "x", -1], "env": {"MASTER_PORT": 5}, "state": 7},
    {"text": '{"communicators": [{"hash": "0x1", "ranks": [7, {"rank": 1}]}]}'},
]
NAMES = [
    *("time", "clock", "ranks", "gpus", "nics", "kernel", "oom", "problems", "text", "events", "ports", "sentences"),
    *("suspects", "hangs", "blind", "late", "interval", "quiet", "timeout", "per_minute", "addresses", "log", "since"),
    *("rank", "pid", "index", "util", "power", "limit", "kind", "code", "gpu", "frames", "cpu", "state", "wait"),
]


def odd(chance: random.Random, depth: int = 0) -> Any:
    kind = chance.random()
    if depth < 4 and kind < 0.35:
        return {chance.choice(NAMES): odd(chance, depth + 1) for _ in range(chance.randint(0, 6))}
    if depth < 4 and kind < 0.55:
        return [odd(chance, depth + 1) for _ in range(chance.randint(0, 4))]
    return chance.choice(VALUES)


def test_hostile_values_never_raise() -> None:
    chance = random.Random(26)
    sources = ["activity", "ras", "stacks", "flight", "log", "inspector", "kernel", "other"]
    for _ in range(60):
        model = Model()
        for at in range(30):
            value = odd(chance)
            source = chance.choice(sources)
            node = chance.choice(["n1", "n2", ""])
            if isinstance(value, dict):
                if source == "activity" and chance.random() < 0.7:
                    value |= {"ranks": [rank(0), rank(1), odd(chance)], "gpus": [gpu(0, 100, 126), odd(chance)]}
                model.apply(JobEvidence(node, source, value, time=T0 + at))
            verdict = job_verdict(model)
            assert verdict is None or "\x1b" not in verdict.sentence
        diagnose(model)


def test_the_rate_now_is_that_of_the_last_seconds_also_where_a_step_is_longer() -> None:
    job = PlayedJob()
    for _ in range(40):
        moved = int(job.now) * LINK
        job.sample([spins(0, job), spins(1, job)], [gpu(0, 95, 698, moved), gpu(1, 95, 698, moved)])
        job.step()
    for _ in range(3):
        job.sample([spins(0, job), spins(1, job)], [gpu(0, 100, 126, moved), gpu(1, 100, 126, moved)])
        job.step()
    (nvlink,) = JobBoard(job.verdict, job.model.job).rates(8, 7.5)
    assert (nvlink.usual or 0) > 0
    assert (nvlink.values[-1] or 0) > 0
    assert nvlink.now == 0


NEXT = "ssh n1 kill -CONT 1041"


def events() -> list[JobEvidence | SessionStart]:
    """Return the events of a session that only observed a job whose rank 1 is stopped."""
    found: list[JobEvidence | SessionStart] = [SessionStart(["n1"], time=T0)]
    for second in range(6):
        rows = [rank(0, state="R"), rank(1, state="T")]
        value = {"clock": 5.0 + second, "ranks": rows, "gpus": [gpu(0, 100, 126), gpu(1, 0, 124)]}
        found.append(JobEvidence("n1", "activity", value, time=T0 + second))
    return found


def test_doors(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    path = tmp_path / "job.jsonl.gz"
    journal = Journal(path)
    journal.append(events())
    journal.close()
    found = diagnose(read_session(str(path)))
    first = found.all_findings[0]
    assert (first.rule.id, first.nodes, first.next, str(first.subject.name)) == ("J20", ("n1",), (NEXT,), "n1:1")
    assert title(first) == "the job on n1 (2 ranks) has been hanging for 0:05 or longer: rank 1 on n1 is stopped"
    lines = evidence(first)
    assert lines[0].startswith("GPUs (NVML): GPU of rank 0 waits in a kernel (100 % at 126 W)")
    assert any(line.startswith("processes (/proc): ") and "rank 1 on n1 is stopped" in line for line in lines)
    assert found.code == 1
    assert as_json(found)["findings"][0]["id"] == "J20"
    assert 'failures="1"' in junit_text(found)
    assert entry.main(["replay", str(path), "--text"]) == 1
    text = capsys.readouterr().out
    assert "J20" in text
    assert NEXT in text
    assert entry.main(["explain", "J20"]) == 0
    assert "running-job-hangs" in capsys.readouterr().out
