"""The network of a running job by its sockets: the path that passes nothing, its direction, and what is only slow."""

from typing import Any

import pytest

from fabtui.diagnosis.job.job_verdict import JobState, JobVerdict, exit_code
from tests.unit.running_job.played_job import PlayedJob, rank

NODES = ("n000", "n001", "n002")
#: In each direction of the ring much data, in the others little.
RING = {(0, 2), (2, 1), (1, 0)}
Change = dict[str, Any]


def socket(source: int, target: int, second: float, **more: Any) -> dict[str, Any]:
    """Return the end of a connection at its source, of a job that sends 10 MB/s around the ring."""
    data, back = (
        int(1e7 * second) if pair in RING else int(2e4 + second) for pair in ((source, target), (target, source))
    )
    row: dict[str, Any] = {
        "local": [f"10.1.0.{source + 1}", 40000 + target],
        "remote": [f"10.1.0.{target + 1}", 40000 + source],
    }
    row |= {"rank": source, "pid": 1040 + source, "backoff": 0, "unacked": 0, "unread": 0, "unsent": 0, "mss": 8948}
    row |= {"acked": data, "received": back, "segments_out": data // 8948, "segments_in": back // 8948}
    return {**row, "retransmits": 0, "rtt": 120, "min_rtt": 20, "last_recv": 20, "last_sent": 20, **more}


def play(
    changes: dict[tuple[int, int], Change],
    *,
    stands: bool = False,
    carrier: bool = True,
    pings: Any = (),
    seconds: int = 7,
) -> JobVerdict:
    """Play three ranks for some seconds; ``changes`` of the ends by source and target, growing where they are lists."""
    job = PlayedJob(NODES)
    for step in range(7):
        second = 20.0 if stands else 20.0 + step
        for at, node in enumerate(NODES):
            job.sample([rank(at, [], world=3, local_rank=0, files=0 if stands else int(1e6 * second))], [], node)
            rows = []
            for other in {0, 1, 2} - {at}:
                more = {
                    name: value(step) if callable(value) else value
                    for name, value in changes.get((at, other), {}).items()
                }
                rows.append(socket(at, other, second, **more))
            nics = {"eth0": {"carrier": carrier or at != 1}}
            value = {"sockets": rows, "nics": nics, "addresses": {f"10.1.0.{at + 1}": "eth0"}, "problems": []}
            job.take(node, "network", {**value, "pings": pings if at == 0 else []})
        verdict = job.step()
    return verdict


def stuck(**more: Any) -> Change:
    return {"backoff": 6, "unacked": 1, "retransmits": 12, "last_recv": 17_000, **more}


PROOF = " (12 retransmits on the socket of rank 0 to rank 1)"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        # The other end has received no more than was acknowledged: the data are lost.
        ({(0, 1): stuck()}, "n000 > n001 on eth0 passes nothing" + PROOF),
        # It has: the acknowledgements are.
        ({(0, 1): stuck(acked=20_000), (1, 0): {"received": 20_096}}, "n001 > n000 on eth0 passes nothing" + PROOF),
        ({(0, 1): stuck(), (1, 0): stuck()}, "n000 - n001 on eth0 passes nothing" + PROOF),
        ({(0, 1): stuck(), (2, 1): stuck()}, "n001 on eth0 receives nothing from n[000,002]" + PROOF),
    ],
)
def test_a_path_that_passes_nothing_is_named_with_its_direction(
    changes: dict[tuple[int, int], Change], words: str
) -> None:
    verdict = play(changes, stands=True)
    assert verdict.state is JobState.HANGS
    assert verdict.settled
    assert f"has been hanging for 0:17 or longer: {words}; next: ssh n000 ping -c 3" in verdict.sentence


def test_no_carrier_is_the_cause() -> None:
    verdict = play({(0, 1): stuck(), (1, 0): stuck()}, stands=True, carrier=False)
    assert "n001 eth0, which its ranks use, has no carrier; next: ssh n001 ip -s link show dev eth0" in verdict.sentence


@pytest.mark.parametrize(
    ("large", "words"),
    [(0, "packets of 8988 bytes are lost, small ones pass: MTU"), (2, "ping passes: a firewall?")],
)
def test_echoes_separate_mtu_and_firewall(large: int, words: str) -> None:
    sizes = ((56, 2), (8960, large))
    pings = [{"src": "10.1.0.1", "dst": "10.1.0.2", "size": size, "sent": 2, "received": got} for size, got in sizes]
    assert words in play({(0, 1): stuck()}, stands=True, pings=pings).sentence


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rtt": 52_000}, "all paths with n002 are slow: a round trip takes 52 ms, at best 0.02"),
        (
            {"retransmits": lambda step: 100 * step},
            "all paths with n002 lose packets: 9 % of the segments are sent again",
        ),
    ],
)
def test_a_path_that_is_slow_or_loses_packets_makes_the_job_slow(change: Change, words: str) -> None:
    verdict = play({(0, 2): change, (2, 1): change})
    assert verdict.state is JobState.SLOW
    assert words in verdict.sentence
    assert exit_code(verdict) == 1


@pytest.mark.parametrize(
    "change", [{"retransmits": lambda step: 60 * (step > 3)}, {"rtt": lambda step: 12_200 if step == 6 else 120}]
)
def test_what_busy_processors_do_once_is_no_fault_of_a_path(change: Change) -> None:
    assert play({(0, 2): change, (2, 1): change}).state is JobState.MOVES


def test_processor_time_alone_is_no_progress() -> None:
    """An endless loop of one rank, while the others wait for it; the usual time of an iteration is unknown."""
    job = PlayedJob()
    for second in range(12):
        rows = [
            rank(at, [], world=3, cpu=float(second * (at == 1)), cpu_all=float(second * (at == 1))) for at in range(3)
        ]
        rows[1].update(state="R", wait=None)
        job.sample(rows, [])
        verdict = job.step()
    assert verdict.state is JobState.UNKNOWN
    assert exit_code(verdict) == 3
    assert "no sign of progress for at least 0:11: rank 1 on n1:1 runs on the CPU, the others wait" in verdict.sentence


def test_the_rank_that_the_others_wait_for_is_named_while_the_job_moves() -> None:
    job = PlayedJob()
    for second in range(8):
        job.sample([rank(at, [], world=3, files=1000 * second) for at in range(3)], [])
        seen = [{"futex_do_wait": 18, "": 2}, {"hrtimer_nanosleep": 19, "": 1}, {"futex_do_wait": 17, "": 3}]
        waits = [{"rank": at, "pid": 1040 + at, "seen": seen[at]} for at in range(3)]
        job.take("n1", "network", {"sockets": [], "nics": {}, "addresses": {}, "problems": [], "waits": waits})
        verdict = job.step()
    assert verdict.state is JobState.SLOW
    assert (
        "rank 1 on n1:1 makes the others wait 85 % of the time: it sleeps in hrtimer_nanosleep (95 %)"
        in verdict.sentence
    )


def test_a_node_that_gives_no_answer_while_ranks_are_missing() -> None:
    job = PlayedJob(("n1", "n2"))
    for _ in range(14):
        job.sample([rank(0, [], world=2)], [])
        verdict = job.step()
    assert verdict.state is JobState.HANGS
    assert "n2 gives no answer; 1 of 2 ranks is not seen; next: ssh n2 uptime" in verdict.sentence
