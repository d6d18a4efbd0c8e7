"""Check of messages from a node against their declared types."""

from __future__ import annotations

from typing import Any

import pytest

from tests.wire import message_types as messages
from tests.wire.message_types import PairReport

SIDE: dict[str, Any] = {
    "op": "side",
    "id": 1,
    "src": 0,
    "dst": 1,
    "role": "dst",
    "ok": True,
    "timeout": False,
    "phase": "transfer",
    "error": None,
    "error_kind": None,
    "made": False,
    "bytes": 1024,
    "rate": 1e9,
    "latency": None,
    "transport": "P2P/CUMEM",
    "src_addr": None,
    "dst_addr": None,
    "raw": None,
    "both_rate": 5,
    "held": None,
    "times": {"count": 2, "min": 0.1, "median": 0.1, "p99": 0.2, "max": 0.2},
}


def test_a_valid_message_passes_and_may_have_further_fields() -> None:
    assert messages.mismatch(SIDE, PairReport) is None
    assert messages.mismatch({**SIDE, "of_a_newer_release": 1}, PairReport) is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id", True),
        ("id", 1.5),
        ("ok", 1),
        ("rate", "fast"),
        ("rate", True),
        ("error", 3),
        ("times", {"count": 2}),
        ("times", {**SIDE["times"], "max": None}),
        ("role", None),
    ],
)
def test_the_first_bad_field_is_named(field: str, value: Any) -> None:
    assert messages.mismatch({**SIDE, field: value}, PairReport) == field


def test_a_missing_field_is_named() -> None:
    message = {name: value for name, value in SIDE.items() if name != "phase"}
    assert messages.mismatch(message, PairReport) == "phase"


def test_lists_objects_and_optional_fields() -> None:
    state = {"rank": 0, "ok": True, "error": None, "error_kind": None}
    ready = {"op": "ready", "engine": "nccl", "version": "", "port": 1, "seconds": {"total": 1}, "ranks": [state]}
    assert messages.mismatch(ready, messages.Ready) is None
    assert messages.mismatch({**ready, "ranks": [state, {"rank": 1}]}, messages.Ready) == "ranks"
    assert messages.mismatch({**ready, "seconds": {"total": "1"}}, messages.Ready) == "seconds"
    assert messages.mismatch({"t": "result", "id": 1, "ok": True}, messages.ProbeResult) is None
    assert (
        messages.mismatch({"t": "result", "id": 1, "ok": False, "error": {"kind": "timeout"}}, messages.ProbeResult)
        == "error"
    )


@pytest.mark.parametrize("table", [messages.FROM_NODE, messages.FROM_RANKS])
def test_every_message_type_documents_its_name(table: dict[str, type[Any]]) -> None:
    for name, kind in table.items():
        assert f"``{name}``" in (kind.__doc__ or "")
