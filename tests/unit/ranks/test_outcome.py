"""Which side's words tell why a direction failed."""

from __future__ import annotations

import pytest

from fabtui_node.ranks.measure.outcome import consequence


@pytest.mark.parametrize(
    ("mine", "theirs", "yields"),
    [
        ("no data came: Connection closed by peer", "2 bytes are wrong", True),
        ("called off: a peer is gone", "no GPU memory", True),
        ("no GPU memory", "2 bytes are wrong", False),
        ("no GPU memory", "remote error (6)", False),
        ("remote error (6)", "Connection reset by peer", False),
        (None, "anything", False),
    ],
)
def test_who_only_saw_the_other_side_go_yields(mine: str | None, theirs: str, yields: bool) -> None:
    assert consequence(mine, theirs) is yields
