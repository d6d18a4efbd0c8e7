"""Validation and conversion of event fields read from JSON.

Each reader returns the Python value of a JSON value or raises ValueError. Events are validated here once, so that the
model and its readers need no checks of their own. Unknown fields are ignored: a newer fabtui may have written them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from fabtui.model.endpoints import Endpoint
from fabtui.model.measurement import Measurement

Reader = Callable[[Any], Any]
Rule = Callable[[Any], bool]

#: Errors of a model on events of damaged recordings: valid by themselves, they may contradict each other.
APPLY_ERRORS = (KeyError, ValueError, TypeError, AttributeError, OverflowError)
#: Last second of the year 9999, the limit of calendars, in seconds since the epoch.
_MAX_TIME = 253_402_300_799
#: Bound of numbers, far below the overflow of floats.
_MAX_NUMBER = 1e100
_MAX_DEPTH = 24
_MAX_INTEGER_BITS = 63


def is_text(value: Any) -> bool:
    """Return True if a JSON value is a string."""
    return isinstance(value, str)


def is_number(value: Any) -> bool:
    """Return True if a JSON value is a finite number within bounds."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -_MAX_NUMBER <= value <= _MAX_NUMBER


def is_time(value: Any) -> bool:
    """Return True if a JSON value is a time in seconds since the epoch."""
    return is_number(value) and 0 <= value <= _MAX_TIME


def is_integer(value: Any) -> bool:
    """Return True if a JSON value is an integer of 64 bits at most."""
    return isinstance(value, int) and not isinstance(value, bool) and value.bit_length() <= _MAX_INTEGER_BITS


def is_flag(value: Any) -> bool:
    """Return True if a JSON value is a boolean."""
    return isinstance(value, bool)


def is_object(value: Any) -> bool:
    """Return True if a JSON value is an object of bounded depth with finite numbers."""
    if not isinstance(value, dict):
        return False
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


def _or_none(rule: Rule) -> Rule:
    return lambda value: value is None or rule(value)


def _mapping_to(rule: Rule) -> Rule:
    return lambda value: isinstance(value, dict) and all(map(rule, value.values()))


def _first_invalid(value: Mapping[str, Any], rules: Mapping[str, Rule]) -> str | None:
    return next((name for name, rule in rules.items() if name in value and not rule(value[name])), None)


def _matches(rules: Mapping[str, Rule]) -> Rule:
    return lambda value: isinstance(value, dict) and _first_invalid(value, rules) is None


_counts = _mapping_to(is_number)
_EXTRA: dict[str, Rule] = {
    **dict.fromkeys(("algorithm", "came_from", "error_kind"), _or_none(is_text)),
    **dict.fromkeys(("loss", "rtt_min", "rtt_max", "payload", "path_mtu", "passes"), _or_none(is_number)),
    **dict.fromkeys(("no_room", "retransmits", "both_ways"), _or_none(is_number)),
    # Bytes of a collective, or numbers of datagrams by their size.
    **dict.fromkeys(("sent", "arrived"), lambda value: value is None or is_number(value) or _counts(value)),
    **dict.fromkeys(("algbw", "seconds", "fastest", "wrong", "ranks"), _or_none(is_number)),
    "asked_bytes": _or_none(is_integer),
    "times": _or_none(_mapping_to(is_number)),
}
_MEASUREMENT: dict[str, Rule] = {
    **dict.fromkeys(("layer", "src", "dst", "verdict", "unit", "how"), is_text),
    **dict.fromkeys(("transport", "src_addr", "dst_addr", "error", "raw", "arm"), _or_none(is_text)),
    "value": _or_none(is_number),
    "bytes": _or_none(is_integer),
    "attempts": is_integer,
    "time": is_time,
    "made": is_flag,
    "extra": _or_none(_matches(_EXTRA)),
}
_ENDPOINT: dict[str, Rule] = {
    **dict.fromkeys(("number", "index"), is_integer),
    **dict.fromkeys(("node", "kind", "name"), is_text),
    **dict.fromkeys(("uuid", "bus", "nic", "address"), _or_none(is_text)),
    "rail": _or_none(is_integer),
}
_ENDPOINT_FIELDS = tuple(field.name for field in fields(Endpoint))


def checked(rule: Rule) -> Reader:
    """Return a reader that passes on values that satisfy a rule."""

    def read(value: Any) -> Any:
        if not rule(value):
            raise ValueError("invalid value")
        return value

    return read


def optional(reader: Reader) -> Reader:
    """Return a reader that also accepts null."""
    return lambda value: None if value is None else reader(value)


def list_of(reader: Reader) -> Reader:
    """Return a reader of lists."""

    def read(value: Any) -> Any:
        if not isinstance(value, (list, tuple)):
            raise ValueError("not a list")
        return tuple(map(reader, value))

    return read


def row_of_texts(length: int) -> Reader:
    """Return a reader of lists of a fixed number of strings."""

    def read(value: Any) -> tuple[str, ...]:
        if not isinstance(value, (list, tuple)) or len(value) != length or not all(map(is_text, value)):
            raise ValueError("invalid row")
        return tuple(value)

    return read


def read_texts_by_name(value: Any) -> Mapping[str, str]:
    """Return an object of strings."""
    if not isinstance(value, dict) or not all(map(is_text, value.values())):
        raise ValueError("not an object of strings")
    return value


def read_measurement(value: Any) -> Measurement:
    """Return the measurement of a JSON object."""
    if not isinstance(value, dict) or (invalid := _first_invalid(value, _MEASUREMENT)) is not None:
        raise ValueError("not a measurement" if not isinstance(value, dict) else f"{invalid!r} is invalid")
    return Measurement.from_json(value)


def read_endpoint(value: Any) -> Endpoint:
    """Return the endpoint of a JSON object."""
    if not isinstance(value, dict) or _first_invalid(value, _ENDPOINT) is not None:
        raise ValueError("not an endpoint")
    try:
        return Endpoint(**{name: value[name] for name in _ENDPOINT_FIELDS if name in value})
    except TypeError as error:
        raise ValueError(f"not an endpoint: {error}") from None


def read_fields(value: Mapping[str, Any], readers: Mapping[str, Reader]) -> dict[str, Any]:
    """Return the fields of a JSON object that are present, by name.

    Raises:
        ValueError: A field is invalid; the message names it.
    """
    found = {}
    for name, reader in readers.items():
        if name in value:
            try:
                found[name] = reader(value[name])
            except ValueError as error:
                raise ValueError(f"{name!r} is invalid ({error})") from None
    return found
