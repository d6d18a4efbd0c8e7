"""Findings about flows: one of several equal paths that drops, and connections that are limited."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fabtui.diagnosis.finding import Finding
from fabtui.diagnosis.mesh.mesh_rules import mesh_findings
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.presentation.findings import evidence, title
from tests.unit.diagnosis.test_mesh import Net

#: Returns the flows of a way (tried, always, never), or None where one source port was tried.
Counts = Callable[[str, int, str, int], tuple[int, int, int] | None]


class Flows(Net):
    """A network of which some flows are lost, beside faults of single packets."""

    def __init__(self, udp: Counts | None = None, tcp: Counts | None = None, nodes: int = 4, rails: int = 2) -> None:
        super().__init__(nodes, rails)
        self.counts = {Layer.UDP: udp, Layer.TCP: tcp}
        self.hop = ""

    def _way(self, *way: Any) -> list[Measurement]:
        return [self._counted(m, way) for m in super()._way(*way)]

    def _counted(self, m: Measurement, way: Any) -> Measurement:
        counts = self.counts.get(m.layer)
        found = counts(*way) if counts is not None else None
        if found is None:
            return m
        tried, always, never = found
        extra = {**(m.extra or {}), "flows": {"tried": tried, "always": always, "never": never, "refused": 0}}
        if self.hop and always and never:
            extra["last_hop"] = self.hop
        verdict = m.verdict if never == tried else Verdict.SLOW if always < tried else Verdict.OK
        value = 100.0 * never / tried if m.layer is Layer.UDP else m.value
        return replace(m, verdict=verdict, value=value, extra=extra)


def across(a: str, r: int, b: str, s: int) -> bool:
    return r == s == 0 and (a in ("n0", "n1")) is not (b in ("n0", "n1"))


def ecmp(never: int = 5) -> Counts:
    def counts(a: str, r: int, b: str, s: int) -> tuple[int, int, int] | None:
        return (16, 16 - never * across(a, r, b, s), never * across(a, r, b, s)) if r == s == 0 else None

    return counts


def test_one_of_several_equal_paths_drops() -> None:
    net = Flows(ecmp(), ecmp(9))
    net.hop = "10.9.1.1"
    # What single packets made of it: echoes and connections of some pairs.
    net.icmp = lambda a, r, b, s: across(a, r, b, s) and (a, b) in (("n0", "n2"), ("n1", "n3"))
    (found,) = net.findings()
    assert title(found) == (
        "40 of 128 flows between n[0-1] and n[2-3] on rail 0 never pass: one of several equal paths drops them"
    )
    assert evidence(found) == (
        "4 address pairs, 16 source ports each, in rounds 2 s apart: the same ports fail",
        "2 address pairs within the groups pass with all ports",
        "10.9.1.1 is the last router that answers for a flow that is lost",
        "pings, datagrams and connections that fail there took this path",
    )
    assert found.subject == ("leaf-cut", "n[0-1] - n[2-3] on rail 0")
    assert '("10.1.0.3",22)' in found.next[0]
    assert 's.bind(("10.1.0.1",0))' in found.next[0]


def test_pairs_between_the_groups_that_were_not_tried_belong_to_it() -> None:
    def counts(a: str, r: int, b: str, s: int) -> tuple[int, int, int] | None:
        return (16, 8, 8) if across(a, r, b, s) and (a, b) not in (("n0", "n3"), ("n3", "n0")) else None

    net = Flows(counts)
    net.drops = lambda a, r, b, s: across(a, r, b, s) and (a, b) == ("n0", "n3")
    assert [one.rule.id for one in net.findings()] == ["FT209"]


def test_one_direction_and_one_address() -> None:
    net = Flows(lambda a, r, b, s: (16, 8, 8) if across(a, r, b, s) and a in ("n0", "n1") else (16, 16, 0))
    assert net.texts() == [
        "32 of 64 flows from n[0-1] to n[2-3] on rail 0 never pass: one of several equal paths drops them"
    ]
    net = Flows(lambda a, r, b, s: (16, 8, 8) if ("n2", 0) in ((a, r), (b, s)) else None)
    (text,) = net.texts()
    assert text.endswith("at n2 rail 0 (eth0 10.1.0.3) never pass: one of several equal paths drops them"), "a bond"


def test_between_rails() -> None:
    """Every pair from rail 0 to rail 1 is bad, its opposite passes, and pairs within rails have one flow."""
    net = Flows(lambda a, r, b, s: (16, 8, 8) if (r, s) == (0, 1) else (16, 16, 0) if r != s else None)
    assert net.texts() == ["96 of 192 flows from rail 0 to rail 1 never pass: one of several equal paths drops them"]


@pytest.mark.parametrize("counts", [(16, 14, 1), (16, 1, 14), (16, 8, 2), (16, 12, 0), (16, 16, 0)])
def test_what_passes_now_and_then_is_no_path_that_drops(counts: tuple[int, int, int]) -> None:
    net = Flows(lambda a, r, b, s: counts if across(a, r, b, s) else None)
    assert "FT209" not in [one.rule.id for one in mesh_findings(net.model())]


def to_n0(counts: tuple[int, int, int]) -> Counts:
    return lambda a, r, b, s: counts if b == "n0" else None


def limited(net: Flows) -> Finding:
    (found,) = net.findings()
    assert found.rule.id == "FT210"
    return found


def test_only_some_connections_pass() -> None:
    net = Flows(tcp=to_n0((16, 1, 13)))
    found = limited(net)
    assert title(found) == "only some connections to n0 pass"
    assert evidence(found) == (
        "48 of 384 connections were accepted, while pings and datagrams pass",
        "24 of the source ports pass at one time and not at another",
        "usual cause: a limit on new connections, in a firewall or in the connection table of n0",
    )
    net.rules = {"n0": ["tcp flags syn / syn,ack limit rate over 2/second drop"]}
    assert f"n0 has the rule: {net.rules['n0'][0]}" in evidence(limited(net))
    net = Flows(tcp=lambda a, r, b, s: (16, 3, 11) if (a, b) == ("n2", "n0") else None)
    assert title(limited(net)) == "only some connections from n2 to n0 pass"
    net = Flows(tcp=lambda a, r, b, s: (16, 3, 11) if a == "n2" else None)
    assert title(limited(net)) == "only some connections from n2 pass"


def test_pairs_that_a_limit_left_nothing_belong_to_it() -> None:
    net = Flows(tcp=lambda a, r, b, s: (16, 0, 16) if (a, b) == ("n1", "n0") else (16, 2, 10) if b == "n0" else None)
    net.filters = lambda a, r, b, s: (a, b) == ("n1", "n0")
    assert title(limited(net)) == "only some connections to n0 pass"
    # The rule shows it, even if no connection passed.
    net = Flows(tcp=to_n0((16, 0, 16)))
    net.filters = lambda a, r, b, s: b == "n0"
    net.rules = {"n0": ["ct state new limit rate over 1/minute burst 1 packets drop"]}
    assert title(limited(net)) == "only some connections to n0 pass"
    net.rules = {"n0": ["ct state new drop"]}
    assert net.texts() == ["n0 blocks incoming TCP from any node on ephemeral ports (ping passes)"]


@pytest.mark.parametrize("flows", [3, {}, {"tried": "x"}, {"tried": 0, "always": 0, "never": 0}, {"tried": -1}])
def test_counts_that_make_no_sense_are_not_used(flows: Any) -> None:
    net = Flows()
    model = net.model()
    for m in net.measured():
        model.addresses.take(replace(m, extra={"flows": flows, "last_hop": 5}))
    assert mesh_findings(model) == []
