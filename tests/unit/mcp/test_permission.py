from __future__ import annotations

import pytest

from fabtui.errors import InputError
from fabtui.mcp.permission import Permission


def test_other_nodes_are_refused_by_name() -> None:
    limited = Permission(["n0", "n1"])
    limited.check(["n1"])
    with pytest.raises(InputError, match=r"nodes: 'n\[2-3\]' not allowed; this server was started for n\[0-1\]"):
        limited.check(["n1", "n2", "n3"])
    Permission().check(["anything"])


def test_tests_spend_their_node_seconds_and_give_back_the_rest() -> None:
    allowed = Permission(tests=True, budget=100)
    with allowed.spend(4, 1800) as seconds:
        assert seconds == 25
        with (
            pytest.raises(InputError, match="the budget of tests is spent: 0 node seconds are left"),
            allowed.spend(1, 9),
        ):
            pass
    assert 99 < allowed.left <= 100
    with pytest.raises(InputError, match="started without --allow-tests"):
        Permission().check_tests()
