"""Evidence of nodes: names for addresses, what is most likely the cause comes first, and one next command."""

from typing import Any

import pytest

from fabtui.diagnosis.job.job_sources import NodeEvidence, addresses_of, node_evidence, plain_address
from fabtui.diagnosis.job.who_is_behind import JobPlace

LATE = JobPlace(8, "n062", 742, "0")
ACTIVE = {"name": "mlx5_0/1", "state": "Active", "physical_state": "LinkUp"}


def event(kind: str, code: int | str | None = None, gpu: int | None = None, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "code": code, "gpu": gpu, "at": "12:03", "age": 60.0, "text": "words", **more}


def evidence(**value: Any) -> NodeEvidence:
    whole = {"log": "yes", "since": 7500.0, "events": [], "ports": [ACTIVE], **value}
    return node_evidence("n062", whole, [LATE, JobPlace(9, "n063", 742)])


def texts(**value: Any) -> list[str]:
    return [f"{sign.place}: {sign.text}" for sign in evidence(**value).signs]


def test_the_gpu_of_the_late_rank_comes_first() -> None:
    sentences = texts(events=[event("xid", 31, 3), event("link_down", interface="ens3"), event("xid", 79, 0)])
    assert sentences[0] == "n062:0: Xid 79 at 12:03: GPU has fallen off the bus"
    assert sentences[1].startswith("n062:3: Xid 31 at 12:03: GPU memory page fault")
    assert sentences[2] == "n062 ens3: link down at 12:03: words"


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (
            {"events": [event("oom", "cgroup", pid=742, text="Killed process 742 (python) for memory")]},
            "n062: out of memory at 12:03: Killed process 742 (python) for memory",
        ),
        ({"events": [event("link_down", interface="ens3")]}, "n062 ens3: link down at 12:03"),
        (
            {"ports": [ACTIVE, {"name": "mlx5_3/1", "state": "Down", "physical_state": "Polling"}]},
            "n062: port mlx5_3/1 is Down (physical state Polling) while others are Active",
        ),
    ],
)
def test_what_a_node_shows(value: dict[str, Any], sentence: str) -> None:
    assert texts(**value)[0].startswith(sentence)


def test_a_port_without_a_cable_on_a_node_without_any_other_is_no_sign() -> None:
    assert texts(ports=[{"name": "mlx5_0/1", "state": "Down", "physical_state": "Polling"}]) == []


@pytest.mark.parametrize("value", [{}, {"events": 1, "ports": "x", "log": 5, "since": "x"}])
def test_a_node_that_answers_anything(value: dict[str, Any]) -> None:
    assert node_evidence("n062", value, [LATE]) == NodeEvidence((), "unknown")
    odd = {"events": [{}, {"kind": 5, "gpu": "x"}], "ports": [{}]}
    assert isinstance(node_evidence("n062", odd, [LATE]), NodeEvidence)


def test_addresses() -> None:
    assert plain_address("fd00:0::2%eth0") == "fd00::2"
    assert plain_address("::ffff:192.0.2.7") == "192.0.2.7"
    assert plain_address("n062") == "n062"
    value = {"addresses": ["127.0.0.1", "::1", "fe80::1", "192.0.2.7", 5, "fd00::2"]}
    assert addresses_of(value) == ["192.0.2.7", "fd00::2"]
    assert addresses_of({"addresses": 5}) == []
