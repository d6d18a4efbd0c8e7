"""Values as JSON has them, taken apart: the numbers that differ from one to the next, and the form that does not."""

from __future__ import annotations

import json
from array import array
from math import copysign
from typing import Any

#: How a value is kept: the place of its number, or a tuple that begins with its type, or with one of the words below.
Node = int | tuple[Any, ...]
_WHOLE, _JSON = "whole", "json"

#: Whole numbers below this are part of the form: they count things, and are much the same everywhere.
_FEW = 1024
_EXACT = 1 << 53
#: What is nested deeper than this is kept as JSON.
_DEEPEST = 6


class Places:
    """Puts the numbers of one value behind those there are; a number that is there twice has one place.

    Args:
        numbers: All numbers. The last of those there are can be referred to, too.
    """

    __slots__ = ("_known", "_numbers", "_start")

    def __init__(self, numbers: array[float]) -> None:
        self._numbers = numbers
        self._start = len(numbers)
        self._known = {numbers[-1]: -1} if numbers else {}

    def place(self, number: float) -> int:
        """Return where a number is, from where the value's own begin."""
        # Zero has two signs, and is equal to itself with the other one.
        at = self._known.get(number) if number else None
        if at is None:
            at = self._known[number] = len(self._numbers) - self._start
            self._numbers.append(number)
        return at


def packed(value: Any, places: Places, few: int = _FEW, depth: int = 0) -> Node:
    """Return the form of a value; its numbers are put away.

    Args:
        value: What JSON can hold.
        places: Takes the numbers.
        few: From here on whole numbers are not part of the form.
        depth: How deep it lies in another one.
    """
    kind = type(value)
    if kind is float:
        if value.is_integer() and -few < value < few and (value or copysign(1.0, value) > 0):
            return (float, value)
        return places.place(value)
    if kind is int:
        if -few < value < few or not -_EXACT < value < _EXACT:
            return (int, value)
        return (_WHOLE, places.place(float(value)))
    if kind is dict:
        if depth >= _DEEPEST:
            return (_JSON, json.dumps(value))
        form: list[Any] = [dict]
        for key, one in value.items():
            form += (key, packed(one, places, few, depth + 1))
        return tuple(form)
    if kind is list or kind is tuple:
        if depth >= _DEEPEST:
            return (_JSON, json.dumps(value))
        return (list, *(packed(one, places, few, depth + 1) for one in value))
    return (kind, value)


def unpacked(node: Node, numbers: array[float], start: int) -> Any:
    """Return the value of a form.

    Args:
        node: The form.
        numbers: Where its numbers are.
        start: Where the value's own begin.
    """
    if isinstance(node, int):
        return numbers[start + node]
    kind = node[0]
    if kind is dict:
        return {node[at]: unpacked(node[at + 1], numbers, start) for at in range(1, len(node), 2)}
    if kind is list:
        return [unpacked(one, numbers, start) for one in node[1:]]
    if kind is _WHOLE:
        return int(numbers[start + node[1]])
    return json.loads(node[1]) if kind is _JSON else node[1]
