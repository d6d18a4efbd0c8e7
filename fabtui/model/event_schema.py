"""What an event of a recording has to look like: a file from elsewhere may hold anything.

The events of a session itself are made of checked values; those of a file are checked here once, so that nobody
behind the model has to. Fields that are not known are left alone, for a newer fabtui may have written them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fabtui.model.events import Kind

Rule = Callable[[Any], bool]

#: What goes wrong when a model takes an event that is none of ours, or that was damaged.
UNFIT = (KeyError, ValueError, TypeError, AttributeError, OverflowError)
#: The end of the year 9999, beyond which no calendar goes, in seconds since the epoch.
_LATEST = 253_402_300_799
#: No quantity reaches it, and it is far from where floats overflow.
_MOST = 1e100
_DEEPEST = 24
_WHOLE_BITS = 63


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -_MOST <= value <= _MOST


def _time(value: Any) -> bool:
    return _number(value) and 0 <= value <= _LATEST


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value.bit_length() <= _WHOLE_BITS


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _object(value: Any) -> bool:
    return isinstance(value, dict) and _plain(value)


def _or_none(rule: Rule) -> Rule:
    return lambda value: value is None or rule(value)


def _list_of(rule: Rule) -> Rule:
    return lambda value: isinstance(value, list) and all(map(rule, value))


def _row_of(rule: Rule, length: int) -> Rule:
    return lambda value: isinstance(value, list) and len(value) == length and all(map(rule, value))


def _mapping_to(rule: Rule) -> Rule:
    return lambda value: isinstance(value, dict) and all(map(rule, value.values()))


def _fields(rules: Mapping[str, Rule]) -> Rule:
    return lambda value: isinstance(value, dict) and _first_bad(value, rules) is None


def _first_bad(value: Mapping[str, Any], rules: Mapping[str, Rule]) -> str | None:
    return next((name for name, rule in rules.items() if name in value and not rule(value[name])), None)


def _plain(value: Any) -> bool:
    """Say whether a value is not nested too deep and has no number that is none."""
    level = [value]
    for _ in range(_DEEPEST):
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
            elif isinstance(item, (int, float)) and not -_MOST <= item <= _MOST:
                return False
        if not below:
            return True
        level = below
    return False


_EXTRA: dict[str, Rule] = {
    **dict.fromkeys(("algorithm", "came_from"), _or_none(_text)),
    **dict.fromkeys(("loss", "rtt_min", "rtt_max", "payload", "path_mtu", "passes"), _or_none(_number)),
    **dict.fromkeys(("no_room", "retransmits", "both_ways"), _or_none(_number)),
    # Bytes of a collective, or datagrams by their size.
    **dict.fromkeys(("sent", "arrived"), lambda value: value is None or _number(value) or _mapping_to(_number)(value)),
    **dict.fromkeys(("algbw", "seconds", "fastest", "wrong", "ranks"), _or_none(_number)),
    "asked_bytes": _or_none(_whole),
    "times": _or_none(_mapping_to(_number)),
}
_MEASUREMENT: dict[str, Rule] = {
    **dict.fromkeys(("layer", "src", "dst", "verdict", "unit", "how"), _text),
    **dict.fromkeys(("transport", "src_addr", "dst_addr", "error", "raw", "arm"), _or_none(_text)),
    "value": _or_none(_number),
    "bytes": _or_none(_whole),
    "attempts": _whole,
    "time": _time,
    "made": _flag,
    "extra": _or_none(_fields(_EXTRA)),
}
_ENDPOINT: dict[str, Rule] = {
    **dict.fromkeys(("number", "index"), _whole),
    **dict.fromkeys(("node", "kind", "name"), _text),
    **dict.fromkeys(("uuid", "bus", "nic", "address"), _or_none(_text)),
    "rail": _or_none(_whole),
}
_RULES: dict[str, dict[str, Rule]] = {
    Kind.START: {
        "version": _text,
        "nodes": _list_of(_text),
        "options": _object,
        **dict.fromkeys(("lab", "synthetic"), _or_none(_text)),
        "faults": _list_of(_text),
    },
    Kind.NODE: {"node": _text, "state": _text, **dict.fromkeys(("text", "hint", "backend"), _or_none(_text))},
    Kind.INVENTORY: {"node": _text, "value": _object},
    Kind.ENDPOINTS: {"endpoints": _list_of(_fields(_ENDPOINT)), "notes": _mapping_to(_text)},
    Kind.LOOK: {"node": _text, "probe": _text, "value": _or_none(_object), "error": _or_none(_text)},
    Kind.PHASE: {"name": _text, "total": _whole},
    Kind.RUNNING: {"pairs": _list_of(_row_of(_text, 2))},
    Kind.MEASURED: {"measurements": _list_of(_fields(_MEASUREMENT))},
    Kind.PLAN: {
        "slow_below": _number,
        "arms": _list_of(_text),
        **dict.fromkeys(("untested", "suspects"), _list_of(_row_of(_text, 3))),
    },
    Kind.COUNTERS: {"node": _text, **dict.fromkeys(("since", "until"), _time), "deltas": _object},
    Kind.LOG: {"level": _text, "node": _or_none(_text), "text": _text},
    Kind.PAUSED: {"on": _flag},
    Kind.WATCH: {"on": _flag},
    Kind.END: {"exit": _or_none(_whole), "text": _text},
}


def check_event(event: dict[str, Any]) -> None:
    """Make sure that an event is one that a model can take and that all who read the model can show.

    Raises:
        ValueError: A field of it is not what it should be.
    """
    if "time" in event and not _time(event["time"]):
        raise ValueError("its time is none")
    kind = event.get("kind")
    bad = _first_bad(event, _RULES.get(kind, {})) if isinstance(kind, str) else "kind"
    if bad is not None:
        raise ValueError(f"{bad!r} is not as it should be")
