"""Faults of single flows: one of two equal paths that drops, connections that are refused or limited."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fabtui.lab.network import Network, missing
from tests.lab.field import QUICK, Outcome, run

pytestmark = [pytest.mark.skipif(missing() is not None, reason=f"no network: {missing()}"), pytest.mark.planted]

#: What a test of addresses alone needs, and what ranks need besides.
ADDRESSES = ("--probes", "ping,udp")
RANKS = ("--probes", "ping,udp,p2p", "--layers", "p2p", *QUICK, "--timeout", "5")


#: Nodes and rails.
NETWORK = (4, 2)


def half_of_the_flows(network: Network, rail: int, one: tuple[str, ...], other: tuple[str, ...]) -> None:
    """Have one of two equal paths between two groups drop; the path is chosen by a hash of addresses and ports."""
    for here, there in ((one, other), (other, one)):
        ends = " ".join(
            f"ip {word} {{ {', '.join(network.address(name, rail) for name in names)} }}"
            for word, names in (("saddr", here), ("daddr", there))
        )
        # As the trial did it: echoes have no ports.
        network.rule(
            f"{ends} meta l4proto {{ tcp, udp }} jhash ip saddr . ip daddr . th sport . th dport mod 2 seed 7 == 0"
        )
        network.rule(f"{ends} ip protocol icmp jhash ip saddr . ip daddr mod 2 seed 7 == 0")


@contextmanager
def firewall(network: Network, name: str, *rules: str) -> Iterator[None]:
    lines = ["add table inet own", "add chain inet own input { type filter hook input priority 0; policy accept; }"]
    lines += [f"add rule inet own input {rule}" for rule in rules]
    network.on(name, "nft", "-f", "-", text="\n".join(lines) + "\n")
    try:
        yield
    finally:
        network.on(name, "nft", "delete", "table", "inet", "own")


def check(outcome: Outcome, *causes: str) -> None:
    """See that only these causes are named, and nothing that follows from them; CPU ranks may be slow by chance."""
    by_chance = ("FT02", "FT031", "FT034")
    named = [found["id"] for found in outcome.saved["findings"] if not found["id"].startswith(by_chance)]
    assert sorted(named) == sorted(causes), outcome.printed
    assert outcome.code == 1
    assert "Traceback" not in outcome.printed
    reported = json.dumps(outcome.saved["findings"])
    for wrong in ("check its process", "check its NIC", "within 0.0 s", "ICMP is dropped", "one-way", "no traffic"):
        assert wrong not in reported


def test_one_of_two_equal_paths_drops(network: Network, tmp_path: Path) -> None:
    half_of_the_flows(network, 0, ("n0", "n1"), ("n2", "n3"))
    outcome = run(network, tmp_path, *RANKS)
    check(outcome, "FT209")
    flows, _, cause = outcome.titles[0].partition(": ")
    match = re.fullmatch(r"(\d+) of (\d+) flows between n\[0-1\] and n\[2-3\] on rail 0 never pass", flows)
    assert match, outcome.titles
    assert cause == "one of several equal paths drops them"
    # A direction of two nodes all of whose first packets passed is not suspect: 16 flows each.
    dropped, tried = map(int, match.groups())
    assert (tried % 16, 64 < tried <= 128, 0.25 < dropped / tried < 0.75) == (0, True, True)
    found = outcome.saved["findings"][0]
    assert found["subject"] == {"kind": "leaf-cut", "name": "n[0-1] - n[2-3] on rail 0"}
    assert "not ok" not in outcome.printed, "the findings explain all"
    assert "blocks" not in json.dumps(outcome.saved["findings"])


def test_ephemeral_ports_are_refused(network: Network, tmp_path: Path) -> None:
    with firewall(network, "n1", "tcp dport >= 30000 reject with tcp reset"):
        outcome = run(network, tmp_path, *RANKS)
    check(outcome, "FT206")
    found = outcome.saved["findings"][0]
    assert found["title"] == "n1 refuses incoming TCP from any node on ephemeral ports (ping passes)"
    assert found["evidence"][0] == "n1 has the rule: tcp dport >= 30000 reject with tcp reset"


def test_connections_are_limited_and_a_router_drops_flows(network: Network, tmp_path: Path) -> None:
    ports = "jhash ip saddr . ip daddr . th sport . th dport mod 2 seed 7 == 0"
    network.rule(f"ip saddr 10.1.0.0/24 ip daddr 10.2.0.0/24 meta l4proto {{ tcp, udp }} {ports}")
    with firewall(network, "n3", "tcp flags & (syn|ack) == syn limit rate over 1/second drop"):
        outcome = run(network, tmp_path, *ADDRESSES)
    check(outcome, "FT209", "FT210")
    path, limit = sorted(outcome.saved["findings"], key=lambda found: found["id"])[:2]
    assert re.fullmatch(
        r"\d+ of \d+ flows from rail 0 to rail 1 never pass: one of several equal paths drops them", path["title"]
    )
    assert "10.1.0.254 is the last router that answers for a flow that is lost" in path["evidence"]
    # Which connections pass is chance: from one node all may.
    assert re.fullmatch(r"only some connections (from n\d )?to n3 pass", limit["title"])
    assert "n3 has the rule: tcp flags syn / syn,ack limit rate over 1/second drop" in limit["evidence"]
