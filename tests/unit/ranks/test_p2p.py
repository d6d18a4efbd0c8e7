"""Verdicts of two sides, and results of a world that are reported while others are in progress."""

from types import SimpleNamespace
from typing import Any

import pytest

from fabtui_node.protocol import CONSEQUENCES, ErrorKind
from fabtui_node.ranks.measure import groups
from fabtui_node.ranks.measure.p2p import is_consequence


@pytest.mark.parametrize(
    ("mine", "theirs", "yields"),
    [
        (ErrorKind.PEER_LOST, ErrorKind.VERIFY, True),
        (ErrorKind.CANCELLED, ErrorKind.OUT_OF_MEMORY, True),
        (ErrorKind.OUT_OF_MEMORY, ErrorKind.VERIFY, False),
        (ErrorKind.OUT_OF_MEMORY, ErrorKind.PEER_LOST, False),
        (ErrorKind.PEER_LOST, ErrorKind.PEER_LOST, False),
        (None, ErrorKind.FAILED, False),
    ],
)
def test_a_consequence_yields_to_a_cause(mine: ErrorKind | None, theirs: ErrorKind, yields: bool) -> None:
    assert is_consequence(mine, theirs) is yields


def test_every_error_kind_reads_back_from_the_wire_and_has_a_meaning() -> None:
    for kind in ErrorKind:
        assert ErrorKind.of(kind.value) is kind
        assert kind.meaning
    assert ErrorKind.of(None) is None
    assert ErrorKind.of("of a newer release") is ErrorKind.FAILED
    assert ErrorKind.of(["not", "a", "kind"]) is ErrorKind.FAILED
    assert set(CONSEQUENCES) <= set(ErrorKind)


def reports(monkeypatch: pytest.MonkeyPatch, interval: float) -> list[list[int]]:
    """Return the sources in each report of rank 0 of four, and in its end."""
    monkeypatch.setattr(groups, "LEAST_INTERVAL", interval)
    done = {"bytes": 8, "rate": 1.0, "transport": "TCP"}
    link = SimpleNamespace(send=lambda job, end: None, receive=lambda job, end: done, transport=lambda sending: [None])
    group = SimpleNamespace(link=lambda peer: link)
    endpoint = SimpleNamespace(
        rank=SimpleNamespace(rank=0), world_channels=None, run=lambda task, work, phase, end: work()
    )
    transfers = [(1, 0), (0, 1), (2, 0), (3, 0)]
    op = {"ranks": [0, 1, 2, 3], "transfers": transfers, "bytes": 8, "iters": 1, "warmup": 1, "turn": 0.0}
    one = groups.World(op, endpoint, SimpleNamespace(deadline=1.0, id=5))  # type: ignore[arg-type]
    monkeypatch.setattr(one, "_form", lambda end: group)
    monkeypatch.setattr(groups, "close", lambda group, failed: None)
    sent: list[dict[str, Any]] = []
    one.run(sent.append)
    assert [message["op"] for message in sent] == ["rows"] * (len(sent) - 1) + ["worlded"]
    assert all((message["id"], message["rank"]) == (5, 0) for message in sent)
    return [[row[0] for row in message["rows"]] for message in sent]


def test_results_are_reported_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "REPORTS_PER_SECOND", 1e9)
    assert reports(monkeypatch, 0.0) == [[1], [2], [3]]


def test_a_quick_world_is_reported_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    assert reports(monkeypatch, 60.0) == [[1, 2, 3]]
