"""The framing, and messages against their types: what passes, what ends a link, and what a sender refuses."""

import json
import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabtui.transport.framed_link import parse
from fabtui_node.protocol import MAX_DEPTH, MAX_FRAME, Decoder, ProtocolError, decode, encode, loads
from tests.wire import message_types as messages
from tests.wire.message_types import FROM_NODE, FROM_RANKS

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(10**99), 10**99)
    | st.floats(-1e99, 1e99)
    | st.text(st.characters(exclude_categories=["Cs"]))
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)
BAD = {
    "nan": '{"a": NaN}',
    "infinity": '{"a": -Infinity}',
    "infinity as a number": '{"a": 1e999}',
    "a number no quantity reaches": '{"a": [{"b": 1e101}]}',
    "an integer no float holds": '{"a": 1' + "0" * 400 + "}",
    "more digits than Python reads": '{"a": 1' + "0" * 5000 + "}",
    "no object": "[1]",
    "too deep": '{"a":' + "[" * MAX_DEPTH + "]" * MAX_DEPTH + "}",
    "far too deep": '{"a":' + "[" * 100_000,
    "no text": "\xff",
}


@pytest.mark.fuzz
@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), VALUES), st.integers(1, 7))
def test_what_is_encoded_is_decoded_however_it_is_cut(message: dict[str, Any], step: int) -> None:
    decoder = Decoder()
    data = encode(message) * 2
    found = [one for at in range(0, len(data), step) for one in decoder.feed(data[at : at + step])]
    assert found == [json.loads(json.dumps(message))] * 2


@pytest.mark.parametrize("parser", [loads, parse])
@pytest.mark.parametrize("body", BAD.values(), ids=BAD.keys())
def test_a_bad_frame_is_refused(body: str, parser: Callable[[bytes], Any]) -> None:
    with pytest.raises(ProtocolError):
        decode(body.encode("latin-1"), parser)


@pytest.mark.parametrize("parser", [loads, parse])
@pytest.mark.parametrize(
    "body",
    [
        '{"a":[' + ",".join(["{}"] * 200) + "]}",
        '{"a":"' + "[" * 200 + '"}',
        '{"a":"0e99","b":0.1e9,"c":1e99}',
        '{"a":"' + "9" * 200 + '"}',
        r'{"a":"\udcff"}',
    ],
    ids=["many", "brackets in a text", "exponents", "digits in a text", "half of a surrogate pair"],
)
def test_what_only_resembles_a_bad_frame_passes(body: str, parser: Callable[[bytes], Any]) -> None:
    assert decode(body.encode(), parser) == json.loads(body)


def test_a_frame_over_the_limit_is_refused_by_its_length_alone() -> None:
    with pytest.raises(ProtocolError, match="over the limit"):
        Decoder().feed(struct.pack(">I", MAX_FRAME + 1))


@pytest.mark.parametrize(
    "value",
    [float("inf"), float("nan"), 10**400, 1e101, {1, 2}, "x" * (MAX_FRAME + 1)],
    ids=["infinity", "nan", "integer", "float", "set", "size"],
)
def test_a_sender_refuses_what_would_end_the_link(value: Any) -> None:
    with pytest.raises(ProtocolError):
        encode({"t": "result", "value": {"a": [value]}})


def test_a_sender_refuses_what_is_nested_too_deep() -> None:
    value: Any = 1
    for _ in range(MAX_DEPTH):
        value = (value,)
    with pytest.raises(ProtocolError, match="nested"):
        encode({"a": value})


SIDE: dict[str, Any] = {
    **{"op": "side", "id": 1, "src": 0, "dst": 1, "role": "dst", "ok": True, "timeout": False, "phase": "transfer"},
    **dict.fromkeys(("error", "error_kind", "latency", "src_addr", "dst_addr", "raw", "held")),
    **{"made": False, "bytes": 1024, "rate": 1e9, "transport": "P2P/CUMEM", "both_rate": 5},
    "times": {"count": 2, "min": 0.1, "median": 0.1, "p99": 0.2, "max": 0.2},
}


def test_a_valid_message_passes_and_may_have_further_fields() -> None:
    assert messages.mismatch(SIDE, FROM_RANKS["side"]) is None
    assert messages.mismatch({**SIDE, "of_a_newer_release": 1}, FROM_RANKS["side"]) is None


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
    assert messages.mismatch({**SIDE, field: value}, FROM_RANKS["side"]) == field


def test_a_missing_field_is_named() -> None:
    message = {name: value for name, value in SIDE.items() if name != "phase"}
    assert messages.mismatch(message, FROM_RANKS["side"]) == "phase"


def test_lists_objects_and_optional_fields() -> None:
    state = {"rank": 0, "ok": True, "error": None, "error_kind": None}
    ready = {"op": "ready", "engine": "nccl", "version": "", "port": 1, "seconds": {"total": 1}, "ranks": [state]}
    assert messages.mismatch(ready, FROM_RANKS["ready"]) is None
    assert messages.mismatch({**ready, "ranks": [state, {"rank": 1}]}, FROM_RANKS["ready"]) == "ranks"
    assert messages.mismatch({**ready, "seconds": {"total": "1"}}, FROM_RANKS["ready"]) == "seconds"
    assert messages.mismatch({"t": "result", "id": 1, "ok": True}, FROM_NODE["result"]) is None
    failed = {"t": "result", "id": 1, "ok": False, "error": {"kind": "timeout"}}
    assert messages.mismatch(failed, FROM_NODE["result"]) == "error"
