"""Events as they are read: from the lines of a recording and from JSON objects, validated."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

import msgspec

from fabtui.model.endpoints import Endpoint, is_index
from fabtui.model.events import EVENTS, Event, Number, UnknownEvent
from fabtui.model.layers import Layer
from fabtui.model.measurement import UNITS, Measurement

#: Last second of the year 9999, the limit of calendars, in seconds since the epoch.
_MAX_TIME = 253_402_300_799
#: Bound of numbers, far below the overflow of floats.
_MAX_NUMBER = 1e100
_MAX_DEPTH = 24
_MAX_INTEGER_BITS = 63


def _is_number(value: Any) -> bool:
    """Return True if a JSON value is a finite number within bounds."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -_MAX_NUMBER <= value <= _MAX_NUMBER


def _is_time(value: Number) -> bool:
    return 0 <= value <= _MAX_TIME


def _is_integer(value: int) -> bool:
    return value.bit_length() <= _MAX_INTEGER_BITS


def _is_object(value: Any) -> bool:
    """Return True if a JSON object has a bounded depth, and finite numbers."""
    level: list[Any] = [value]
    for _ in range(_MAX_DEPTH):
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
            elif isinstance(item, (int, float)) and not -_MAX_NUMBER <= item <= _MAX_NUMBER:
                return False
        if not below:
            return True
        level = below
    return False


def _is_counts(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_number, value.values()))


#: Rules of values in the extras of a measurement.
_EXTRA: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("algorithm", "came_from", "error_kind", "last_hop"), lambda value: isinstance(value, str)),
    **dict.fromkeys(("loss", "rtt_min", "rtt_max", "payload", "path_mtu", "passes"), _is_number),
    **dict.fromkeys(("no_room", "retransmits", "both_ways"), _is_number),
    # Bytes of a collective, or numbers of datagrams by their size.
    **dict.fromkeys(("sent", "arrived"), lambda value: _is_number(value) or _is_counts(value)),
    **dict.fromkeys(("algbw", "seconds", "fastest", "wrong", "ranks"), _is_number),
    "asked_bytes": lambda value: type(value) is int and _is_integer(value),
    **dict.fromkeys(("times", "flows"), _is_counts),
}


def _is_measurement(one: Measurement) -> bool:
    """Return True if the numbers of a measurement are within bounds, and its extras have the right types.

    Raises:
        ValueError: Its unit does not exist.
    """
    if one.unit not in UNITS:
        raise ValueError("unknown unit")
    return (
        (one.value is None or -_MAX_NUMBER <= one.value <= _MAX_NUMBER)
        and (one.bytes is None or _is_integer(one.bytes))
        and 0 <= one.time <= _MAX_TIME
        and _is_integer(one.attempts)
        and (one.extra is None or all(v is None or _EXTRA.get(k, _is_any)(v) for k, v in one.extra.items()))
    )


def _is_any(_: Any) -> bool:
    return True


def _is_endpoint(one: Endpoint) -> bool:
    return is_index(one.index) and (one.rail is None or is_index(one.rail)) and _is_integer(one.number)


#: Rules of decoded values beyond their types, by the annotation of the field.
_BOUNDS: dict[str, Callable[[Any], bool]] = {
    "int": _is_integer,
    "Number": _is_number,
    "EpochSeconds": _is_time,
    "JsonObject": _is_object,
    "Sequence[Endpoint]": lambda found: all(map(_is_endpoint, found)),
    "Sequence[Measurement]": lambda found: all(map(_is_measurement, found)),
}


@dataclass
class _Head:
    """Kind of an event, read before the rest."""

    kind: str


class _Codec:
    """Decoders of all kinds of events."""

    def __init__(self) -> None:
        self._refusals = msgspec.ValidationError
        self._malformed = msgspec.DecodeError
        self._convert = msgspec.convert
        self._head = msgspec.json.Decoder(_Head)
        known = (*EVENTS.values(), UnknownEvent)
        self._decoders: dict[type[Event], msgspec.json.Decoder[Event]] = {
            one: msgspec.json.Decoder(one, dec_hook=_decoded_layer) for one in known
        }
        bounds = {one: [(each.name, str(each.type).removesuffix(" | None")) for each in fields(one)] for one in known}
        self._bounds = {
            one: [(n, _BOUNDS[kind]) for n, kind in found if kind in _BOUNDS] for one, found in bounds.items()
        }
        self._tuples = {one: [n for n, kind in found if kind.startswith("Sequence")] for one, found in bounds.items()}

    def from_line(self, line: bytes) -> Event:
        kind = ""
        try:
            kind = self._head.decode(line).kind
            return self._checked(self._decoders[EVENTS.get(kind, UnknownEvent)].decode(line))
        except self._refusals as error:
            raise _refusal(kind, str(error)) from None
        except self._malformed:
            # Half of a surrogate pair, which may stand for a byte of a node's output, is not text for msgspec.
            return self.from_object(json.loads(line))

    def from_object(self, value: Any) -> Event:
        kind = value.get("kind") if isinstance(value, dict) else None
        if not isinstance(kind, str):
            raise ValueError("not an event")
        try:
            return self._checked(self._convert(value, EVENTS.get(kind, UnknownEvent), dec_hook=_decoded_layer))
        except self._refusals as error:
            raise _refusal(kind, str(error)) from None

    def _checked(self, event: Event) -> Event:
        for name, rule in self._bounds[type(event)]:
            found = getattr(event, name)
            if found is not None and not rule(found):
                raise ValueError(f"{name!r} is out of bounds")
        for name in self._tuples[type(event)]:
            if (found := getattr(event, name)) is not None:
                setattr(event, name, tuple(found))
        return event


def _decoded_layer(kind: type, name: Any) -> Layer:
    if kind is not Layer or not isinstance(name, str):
        raise ValueError("not a layer")
    return Layer(name)


def _refusal(kind: str, text: str) -> ValueError:
    if not kind:
        return ValueError("not an event")
    if (missing := re.fullmatch(r"Object missing required field `(\w+)`", text)) is not None:
        return ValueError(f"{missing[1]!r} of {kind!r} is missing")
    return ValueError(f"not a measurement: {text}" if "`$.measurements" in text else text)


@cache
def _codec() -> _Codec:
    return _Codec()


def event_from_line(line: bytes) -> Event:
    """Return the event of a line of a recording, validated.

    Raises:
        ValueError: The line is not an event, or a field is missing or invalid.
    """
    return _codec().from_line(line)


def event_from_json(value: Any) -> Event:
    """Return the event of a JSON object, validated; see `event_from_line`."""
    return _codec().from_object(value)
