"""Evidence of nodes: names for addresses, what is most likely the cause comes first, and one next command."""

from __future__ import annotations

from typing import Any

import pytest

from fabtui.diagnosis.running_job.node_evidence import (
    NodeEvidence,
    addresses_of,
    node_evidence,
    plain_address,
    with_evidence,
)
from fabtui.diagnosis.running_job.who_is_behind import JobPlace, WhoIsBehind, over_ssh

LATE = JobPlace(8, "n062", 742, "0")
BEHIND = WhoIsBehind(
    ["AllReduce 6650: rank 8 on n062 has not called it"], ["ssh n062 py-spy dump --pid 742"], True, (LATE,)
)
ACTIVE = {"name": "mlx5_0/1", "state": "Active", "physical_state": "LinkUp"}
STACK = {
    "rank": 3,
    "pid": 99,
    "asked": 742,
    "state": "S",
    "wait": "futex_do_wait",
    "cpu": 0.0,
    "frames": [{"name": "get", "site": "dataloader.py:12"}],
}


def event(kind: str, code: int | str | None = None, gpu: int | None = None, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "code": code, "gpu": gpu, "at": "12:03", "age": 60.0, "text": "words", **more}


def evidence(**value: Any) -> NodeEvidence:
    whole = {"log": "yes", "since": 7500.0, "events": [], "ports": [ACTIVE], "ranks": [], "gone": [], **value}
    return node_evidence("n062", whole, [LATE, JobPlace(9, "n063", 742)])


def found(one: NodeEvidence, *, drain: bool = False) -> tuple[list[str], list[str]]:
    answer = with_evidence(BEHIND, [one], over_ssh, drain)
    return answer.sentences[1:], answer.next


def test_a_late_rank_that_writes_a_checkpoint_does_not_hang() -> None:
    answer = with_evidence(BEHIND, [evidence(ranks=[{**STACK, "files": 512_000_000}])], over_ssh)
    assert answer.hangs is None
    assert answer.sentences[-1] == (
        "rank 8 on n062 read or wrote 512 MB of files within a second: a checkpoint or data, not a hang so far"
    )
    assert with_evidence(BEHIND, [evidence(ranks=[{**STACK, "files": 4096}])], over_ssh).hangs is True


def test_the_gpu_of_the_late_rank_comes_first() -> None:
    one = evidence(events=[event("xid", 31, 3), event("link_down", interface="ens3"), event("xid", 79, 0)])
    sentences, following = found(one)
    assert sentences[0] == "n062:0: Xid 79 at 12:03: GPU has fallen off the bus"
    assert sentences[1].startswith("n062:3: Xid 31 at 12:03: GPU memory page fault")
    assert sentences[2] == "n062 ens3: link down at 12:03: words"
    assert not any("no sign" in sentence for sentence in sentences)
    assert following == ["ssh n062 nvidia-smi -q -i 0"]
    assert found(one, drain=True)[1] == ["scontrol update nodename=n062 state=drain reason='Xid 79'"]


@pytest.mark.parametrize(
    ("value", "sentence", "command"),
    [
        (
            {"events": [event("oom", "cgroup", pid=742, text="Killed process 742 (python) for memory")]},
            "n062: out of memory at 12:03: Killed process 742 (python) for memory",
            "sudo dmesg -T | grep -iE 'oom-kill|killed process' | tail",
        ),
        # A tool that is not on the node is not a next step.
        (
            {"ranks": [{**STACK, "frames": [], "problem": "neither py-spy nor pystack is on the node"}]},
            "rank 8 on n062: sleeping in futex_do_wait",
            "ps -o pid,stat,wchan:32,etime,args -p 99",
        ),
        ({"events": [event("link_down", interface="ens3")]}, "n062 ens3: link down at 12:03", "ip -s link show ens3"),
        (
            {"ports": [ACTIVE, {"name": "mlx5_3/1", "state": "Down", "physical_state": "Polling"}]},
            "n062: port mlx5_3/1 is Down (physical state Polling) while others are Active",
            "ibstat mlx5_3",
        ),
        ({"gone": [742]}, "process 742 of n062 has ended", "sudo dmesg -T | grep -iE 'out of memory"),
        ({"ranks": [STACK]}, "rank 8 on n062: sleeping in futex_do_wait, in get (dataloader.py:12)", "py-spy dump"),
        ({"ranks": [{**STACK, "state": "T"}]}, "rank 8 on n062: stopped", "kill -CONT 99"),
    ],
)
def test_what_a_node_shows(value: dict[str, Any], sentence: str, command: str) -> None:
    sentences, following = found(evidence(**value))
    assert sentences[0].startswith(sentence)
    assert following[0].startswith(f"ssh n062 {command}")
    assert len(following) == 1


def test_what_does_not_point_at_the_fabric() -> None:
    sentences, following = found(evidence())
    assert sentences == [
        "no sign of a fabric fault on n062: no Xid, PCIe or link report in the last 2 h, 1 RDMA port not down"
    ]
    assert following == BEHIND.next
    (sentence,), _ = found(evidence(log="not permitted", ports=[]))
    assert sentence.startswith("no sign of a fabric fault on n062: no RDMA port; the kernel's log cannot be read")
    # A port without a cable, on a node without any other, is not a sign.
    (sentence,), _ = found(evidence(ports=[{"name": "mlx5_0/1", "state": "Down", "physical_state": "Polling"}]))
    assert "no sign" in sentence
    # A process with the same number on another node is not meant.
    assert evidence(gone=[742, 5]).gone == {742}
    assert node_evidence("n061", {"gone": [742], "ranks": [STACK]}, [LATE]).gone == frozenset()


@pytest.mark.parametrize("value", [{}, {"events": 1, "ports": "x", "ranks": {}, "gone": None, "log": 5, "since": "x"}])
def test_a_node_that_answers_anything(value: dict[str, Any]) -> None:
    answer = with_evidence(BEHIND, [node_evidence("n062", value, [LATE])], over_ssh)
    assert answer.next == BEHIND.next
    odd = {"events": [{}, {"kind": 5, "gpu": "x"}], "ports": [{}], "ranks": [{"asked": [1]}], "gone": [[1]]}
    assert isinstance(node_evidence("n062", {**odd, "gone": []}, [LATE]), NodeEvidence)


def test_addresses() -> None:
    assert plain_address("fd00:0::2%eth0") == "fd00::2"
    assert plain_address("::ffff:192.0.2.7") == "192.0.2.7"
    assert plain_address("n062") == "n062"
    value = {"addresses": ["127.0.0.1", "::1", "fe80::1", "192.0.2.7", 5, "fd00::2"]}
    assert addresses_of(value) == ["192.0.2.7", "fd00::2"]
    assert addresses_of({"addresses": 5}) == []
