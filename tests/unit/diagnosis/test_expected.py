"""Facts that differ from what the user expects, and those that are unknown."""

from typing import Any

import pytest

from fabtui.diagnosis.preflight.environment import UnexpectedValue, expectations, unknown
from fabtui.diagnosis.preflight.node_context import NodeContext
from fabtui.errors import InputError
from fabtui.model.facts.node_view import ProbedNode
from fabtui.model.session_model import Model
from fabtui.presentation.findings import title
from tests.unit.model.cluster import inventory, memlock, node

#: What is unknown of n2.
NODES = [
    *(node(name, inventory(host=name, driver=driver)) for name, driver in (("n0", "570"), ("n1", "550"))),
    ProbedNode("n2", {}, {}),
]


def context(nodes: list[ProbedNode] = NODES, **expected: str) -> NodeContext:
    return NodeContext(Model(), nodes, expected)


def unexpected(nodes: list[ProbedNode] = NODES, **expected: str) -> list[tuple[str, tuple[str, ...], str]]:
    found = UnexpectedValue().check(context(nodes, **expected))
    return [(one.topic, one.nodes, title(one)) for one in found]


def test_nodes_with_the_same_other_value_are_one_finding() -> None:
    assert unexpected(driver="570") == [("driver", ("n1",), "driver: 550, expected 570")]
    assert unexpected(driver="565") == [
        ("driver", ("n0",), "driver: 570, expected 565"),
        ("driver", ("n1",), "driver: 550, expected 565"),
    ]
    same = [node(name, inventory(host=name, driver="550")) for name in ("n3", "n4")]
    (one,) = UnexpectedValue().check(context(same, driver="570"))
    assert (one.nodes, one.next) == (("n3", "n4"), ("ssh n3 nvidia-smi --version",))


def test_what_is_unknown_is_no_other_value_and_is_listed() -> None:
    assert list(unknown(context(driver="570"))) == [(("n2",), "n2: driver: unknown, expected 570")]
    assert list(unknown(context(NODES[:2], driver="570"))) == []
    assert list(unknown(context(NODES[:2], vbios="96"))) == [(("n0", "n1"), "n[0-1]: VBIOS: unknown, expected 96")]


@pytest.mark.parametrize(("wanted", "count"), [("64 KiB", 0), ("64 kib", 0), ("65536", 0), ("64 MiB", 1)])
def test_a_value_is_written_as_in_json_or_as_in_the_table(wanted: str, count: int) -> None:
    nodes = [node("n0", host=memlock("n0", 65536))]
    assert len(unexpected(nodes, memlock=wanted)) == count


@pytest.mark.parametrize(
    ("lists", "lost"),
    [
        ({"gpus": [], "pci_gpus": []}, True),
        ({"gpus": [], "pci_gpus": None}, False),
        ({"gpus": None, "pci_gpus": []}, False),
    ],
)
def test_a_node_without_gpus_on_pci_and_in_the_driver_has_lost_them(lists: dict[str, Any], lost: bool) -> None:
    nodes = [ProbedNode("n0", {**inventory(), **lists}, {})]
    assert unexpected(nodes, gpus="8 x H200") == ([("gpus", ("n0",), "GPUs: none, expected 8 x H200")] if lost else [])
    assert len(list(unknown(context(nodes, gpus="8 x H200")))) == (not lost)


def test_expectations_name_a_fact_and_a_value() -> None:
    assert expectations([" driver = 570 ", "memlock=a=b"]) == {"driver": "570", "memlock": "a=b"}
    for text, why in (("drivers=570", "no fact 'drivers'; similar facts: driver"), ("driver=", "is not FACT=VALUE")):
        with pytest.raises(InputError, match=why):
            expectations([text])
