from typing import Any

import pytest

from fabtui.lab.faults import Fault, LabSpec, parse_faults, parse_rate
from tests.unit.mistakes import mistakes

SPEC = LabSpec((4, 3, 1))


PAIR, NODE = ("n000:1>n001:2", ("n000", "n001")), ("n001", ("n001",))


@pytest.mark.parametrize(
    ("text", "place", "kind", "where", "value", "variable"),
    [
        ("n000:1>n001:2=drop", "pair", "drop", PAIR, 0.0, None),
        ("n000:1>n000:2=refuse", "pair", "refuse", ("n000:1>n000:2", ("n000", "n000")), 0.0, None),
        ("n002:0>n001:2=slow:10MB", "pair", "slow", ("n002:0>n001:2", ("n002", "n001")), 1e7, None),
        (" n002:0 > n001:02=slow:1.5 MiB/s", *("pair", "slow", ("n002:0>n001:2", ("n002", "n001")), 1.5 * 2**20, None)),
        ("n001=dead-after:3", "node", "dead-after", NODE, 3.0, None),
        ("n001=dead-after:0.5s", "node", "dead-after", NODE, 0.5, None),
        ("n001=down", "node", "down", NODE, 0.0, None),
        ("n001=stop", "node", "stop", NODE, 0.0, None),
        ("n001=hang", "node", "stop", NODE, 0.0, None),
        *((f"n000:1>n001:2={kind}", "pair", kind, PAIR, 0.0, None) for kind in ("absent", "corrupt", "kill", "stop")),
        (
            "n001=env:NCCL_SOCKET_IFNAME=nosuch",
            *("node", "env", ("n001 NCCL_SOCKET_IFNAME", ("n001",)), 0.0, ("NCCL_SOCKET_IFNAME", "nosuch")),
        ),
        ("n001=env:A==b>c", "node", "env", ("n001 A", ("n001",)), 0.0, ("A", "=b>c")),
        ("n001=env:A=", "node", "env", ("n001 A", ("n001",)), 0.0, ("A", "")),
    ],
)
def test_grammar(text: str, place: str, kind: str, where: tuple[str, Any], value: float, variable: object) -> None:
    (fault,) = parse_faults([text], SPEC)
    assert (fault.kind.place, fault.kind.name) == (place, kind)
    assert fault == Fault(text, fault.kind, where[0], where[1], (), value, fault.variable)
    assert fault.variable == variable


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("1B", 1),
        ("10kB", 1e4),
        ("10KB", 1e4),
        ("2MB", 2e6),
        ("3GB", 3e9),
        ("1KiB", 1024),
        ("1MiB", 2**20),
        ("1GiB/s", 2**30),
        ("0.5 MB", 5e5),
    ],
)
def test_rates(text: str, rate: float) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize(("text", "word"), [*mistakes("rank-fault"), ("n001=env:A=" + 1001 * "b", "too long")])
def test_mistakes_say_what_and_where(text: str, word: str) -> None:
    with pytest.raises(ValueError, match=word) as caught:
        parse_faults(["n000:0>n001:0=drop", text], SPEC)
    assert repr(text[:80]) in str(caught.value)
    assert str(caught.value).isprintable()


def test_two_faults_of_one_place_are_refused() -> None:
    with pytest.raises(ValueError, match="already"):
        parse_faults(["n000:1>n001:2=drop", "n000:1>n001:2=refuse"], SPEC)
    with pytest.raises(ValueError, match="already"):
        parse_faults(["n001=down", "n001=hang"], SPEC)
    with pytest.raises(ValueError, match="there is 'n001=env:A=1' already"):
        parse_faults(["n001=env:A=1", "n001=env:A=1"], SPEC)
    assert len(parse_faults(["n000:1>n001:2=drop", "n001:2>n000:1=drop", "n001=down"], SPEC)) == 3
    assert len(parse_faults(["n001=env:A=1", "n001=env:B=1", "n000=env:A=1", "n001=dead-after:3"], SPEC)) == 4
