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
    with allowed.spend(["n0", "n1", "n2", "n3"], 1800) as seconds:
        assert seconds == 25
        with (
            pytest.raises(InputError, match=r"0 node seconds are left .* held by tests that still run"),
            allowed.spend(["n4"], 9),
        ):
            pass
    assert 99 < allowed.left <= 100


def test_a_node_is_tested_by_one_call_at_a_time() -> None:
    allowed = Permission(tests=True, budget=100)
    with allowed.spend(["n0", "n1"], 10):
        with pytest.raises(InputError, match="another call tests n1 now"), allowed.spend(["n1", "n2"], 10):
            pass
        with allowed.spend(["n2"], 10) as seconds:
            assert seconds == 10
    with allowed.spend(["n0"], 10):
        pass
