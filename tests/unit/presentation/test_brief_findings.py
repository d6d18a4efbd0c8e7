"""Findings in short sentences: title, causes and steps of the side panel."""

from typing import Any

import pytest

from fabtui.diagnosis.finding import Finding, Route
from fabtui.diagnosis.pairs.pair_rules import PairFails
from fabtui.model.measurement import Verdict
from fabtui.presentation.findings import brief_sentences, brief_title, short_step


@pytest.mark.parametrize(
    ("step", "shown"),
    [
        ("ssh -F /run/lab/ssh_config n003 ping -c 2 n001", "ssh -F ... n003 ping -c 2 n001"),
        ("ssh -F '/my lab/ssh config' n003 uptime", "ssh -F ... n003 uptime"),
        ("fabtui run --lab 2x2 --lab-fault 'a>b=drop' --lab-fault c=slow --pair 'a>b'",
         "fabtui run --lab 2x2 --lab-fault ... --pair 'a>b'"),
        ("fabtui run --ssh-config c.conf --nodes n0", "fabtui run --ssh-config ... --nodes n0"),
        ("ssh n003 grep -Fx word file", "ssh n003 grep -Fx word file"),
        ("ssh n003 ip link", "ssh n003 ip link"),
    ],
)  # fmt: skip
def test_what_all_commands_of_a_session_have_is_shortened(step: str, shown: str) -> None:
    assert short_step(step) == shown


PATH = "the path between them is at fault: both ends work with other partners (n0:0 with n1:1)"
ALONE = "no other GPU on n0 to compare with: either GPU, or the link between them, is at fault"


@pytest.mark.parametrize(
    ("facts", "sentences"),
    [
        ({"retest": PATH}, ["Only this path: both GPUs work with others."]),
        ({"retest": ALONE}, ["GPU 0, GPU 1 or the link between them."]),
        ({"retest": PATH, "wrong": "1 byte wrong in 64 KiB"}, ["Only this path: both GPUs work with others.",
                                                            "1 byte wrong in 64 KiB."]),
        ({"meaning": "E18, nothing listens there"}, ["Nothing listens there."]),
        (
            {"by_node": [(("n0",), "transfer: no byte in 2 s (made by the lab: drop)")]},
            ["n0: transfer: no byte in 2 s."],
        ),
        ({}, []),
    ],
)  # fmt: skip
def test_causes_are_short_sentences(facts: dict[str, Any], sentences: list[str]) -> None:
    pair = {"pair": Route("n0:1", "n0:0", False), "verdict": Verdict.FAILED}
    found = Finding(PairFails(), PairFails.severity, "", facts={**pair, **facts})
    assert brief_title(found) == ("n0:1 > n0:0", "failed")
    assert brief_sentences(found, "GPU") == sentences
