"""Faults of a standing lab: their syntax, and what each kind does."""

import contextlib
import re
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabtui.lab.faults import FaultKind, LabSpec, kinds, parse_fault, parse_faults, places_of
from fabtui.lab.network import Network, effect_of
from tests.unit.mistakes import mistakes

SHAPE = LabSpec((1,) * 4, 2, standing=True)
ROOTLESS = LabSpec((1,) * 4, standing=True)


class Wires:
    mtu = 9000
    rails = range(2)

    def address(self, node: str, rail: int) -> str:
        return f"10.{rail + 1}.0.{SHAPE.names.index(node) + 1}"

    def routes(self, node: str, rail: int) -> str:
        return f"routes of {node} eth{rail}"

    def server(self, node: str) -> tuple[str, ...]:
        return ("sshd", node)


@pytest.mark.parametrize("kind", kinds("root"), ids=lambda kind: f"{kind.place}-{kind.name}")
def test_every_kind_has_an_example_that_is_planted_and_healed(kind: FaultKind) -> None:
    fault = parse_fault(kind.example, SHAPE)
    assert fault.kind is kind
    effect = effect_of(fault, cast(Network, Wires()))
    assert effect.plant or effect.rules or effect.loop
    assert bool(effect.heal) == bool(effect.plant or effect.loop), "rules go by themselves"
    assert "{" not in " ".join(effect.rules)


@pytest.mark.parametrize(
    ("text", "where", "nodes", "rails", "value"),
    [
        ("n003.eth1=slow-in:10MB", "n003.eth1", ("n003",), (1,), 1e7),
        ("n003.eth1=loss-out", "n003.eth1", ("n003",), (1,), 5.0),
        (" n003.eth0 = loss-in:0.2e ", None, (), (), 0.0),
        ("n001>n002=loss:2.5%", "n001>n002", ("n001", "n002"), (), 2.5),
        ("n001.eth0 > n002.eth1=blackhole:1400", "n001.eth0>n002.eth1", ("n001", "n002"), (0, 1), 1400.0),
        ("rail1=cut", "rail1", (), (1,), 0.0),
        ("n000=stop", "n000", ("n000",), (), 0.0),
    ],
)
def test_grammar(text: str, where: str | None, nodes: tuple[str, ...], rails: tuple[int, ...], value: float) -> None:
    if where is None:
        with pytest.raises(ValueError, match="expected loss-in:5%"):
            parse_fault(text, SHAPE)
        return
    fault = parse_fault(text, SHAPE)
    assert (fault.where, fault.nodes, fault.rails, fault.value) == (where, nodes, rails, value)


@pytest.mark.parametrize(("text", "problem"), mistakes("network-fault"))
def test_bad_words_are_one_line(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)) as found:
        parse_fault(text, SHAPE)
    assert "\n" not in str(found.value)


@given(st.text(max_size=30))
def test_any_text_is_a_fault_or_a_problem(text: str) -> None:
    for shape in (SHAPE, ROOTLESS):
        with contextlib.suppress(ValueError):
            assert parse_fault(text, shape).nodes


def test_a_lab_without_namespaces_has_few_kinds_and_names_them() -> None:
    assert [kind.name for kind in kinds("loopback")] == ["stop", "down"]
    assert parse_fault("n001=down", ROOTLESS).kind.name == "down"
    for text in ("n001.eth0=pull", "rail0=cut", "n001=crossed", "n001>n002=drop"):
        with pytest.raises(ValueError, match=r"has no network of its own, which needs root; .* stop, down"):
            parse_fault(text, ROOTLESS)


def test_a_place_has_one_fault() -> None:
    planted = parse_faults(["n001.eth0=pull", "n001=stop"], SHAPE, [])
    with pytest.raises(ValueError, match=r"there is 'n001.eth0=pull' already"):
        parse_faults(["n001.eth0=down"], SHAPE, planted)
    with pytest.raises(ValueError, match=r"there is 'n002=stop' already"):
        parse_faults(["n002=stop", "n002=cut"], SHAPE, planted)


def test_places_are_named_with_or_without_their_fault() -> None:
    planted = ["n001.eth0", "n001"]
    assert places_of([], planted) == planted
    assert places_of(["n001=stop", "n001"], planted) == ["n001"]
    assert places_of([" n001 . eth0 = pull"], planted) == ["n001.eth0"]
    with pytest.raises(ValueError, match="there is no fault at 'n002'"):
        places_of(["n002"], planted)
