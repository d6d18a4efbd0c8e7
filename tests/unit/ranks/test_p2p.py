"""Verdict of two sides: cause and consequence."""

from __future__ import annotations

import pytest

from fabtui_node.protocol import CONSEQUENCES, ErrorKind
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
