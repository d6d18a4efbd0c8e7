"""Pickles of plain values: dicts, lists, tuples, texts, numbers. No class, no function, no import, no code.

PyTorch writes flight recorder dumps as pickles, and `pickle.load` runs code that a pickle contains. This small
interpreter knows only the opcodes of plain values (`pickletools` describes them) and refuses all others.
"""

from __future__ import annotations

import pickletools
import struct
from collections.abc import Callable
from typing import Any, NoReturn

#: Maximum depth of the values, and maximum number of values where shared ones count each time.
DEEPEST = 32
MOST_VALUES = 20_000_000
#: Maximum length (bytes) of an integer.
_LONGEST_INTEGER = 64


class NotPlain(Exception):
    """The bytes are no pickle of plain values; the text is the reason."""


def is_pickle(data: bytes) -> bool:
    """Return whether bytes begin like a pickle of protocol 2 to 5."""
    return len(data) > 2 and data[0] == 0x80 and 2 <= data[1] <= 5


def read_plain(data: bytes) -> Any:
    """Return the value of a pickle.

    Raises:
        NotPlain: It is cut off, damaged, too deep or too large, or contains more than plain values.
    """
    value = _Reader(data).value()
    _check(value)
    return value


def _check(value: Any) -> None:
    """Raise `NotPlain` for values that are too deep, contain themselves, or are too many if shared ones are copied."""
    left = MOST_VALUES
    todo = [(value, 0)]
    while todo:
        one, depth = todo.pop()
        inner = list(one.items()) if isinstance(one, dict) else one if isinstance(one, (list, tuple)) else ()
        left -= len(inner) + 1
        if depth > DEEPEST:
            raise NotPlain(f"its values are nested more than {DEEPEST} deep")
        if left < 0:
            raise NotPlain(f"it stands for more than {MOST_VALUES} values")
        todo += [(item, depth + 1) for item in inner if isinstance(item, (dict, list, tuple))]


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}

    def value(self) -> Any:
        try:
            while True:
                code = self._data[self._at]
                self._at += 1
                if code == _STOP:
                    return self._stack.pop()
                _OPCODES[code](self)
        except KeyError:
            self._refuse()
        except (IndexError, struct.error):
            raise NotPlain(f"the pickle is cut off or damaged at byte {self._at}") from None
        except (TypeError, ValueError, AttributeError, UnicodeDecodeError):
            raise NotPlain(f"the pickle is damaged before byte {self._at}") from None

    def _refuse(self) -> NoReturn:
        at = self._at - 1
        known = {ord(opcode.code): opcode.name for opcode in pickletools.opcodes}
        name = known.get(self._data[at], f"0x{self._data[at]:02x}")
        raise NotPlain(f"the pickle contains more than plain values (opcode {name} at byte {at}); it is not run")

    def take(self, size: int) -> bytes:
        piece = self._data[self._at : self._at + size]
        if len(piece) < size:
            raise IndexError
        self._at += size
        return piece

    def number(self, shape: str) -> Any:
        return struct.unpack(shape, self.take(struct.calcsize(shape)))[0]

    def push(self, value: Any) -> None:
        self._stack.append(value)

    def integer(self, size: int) -> None:
        if size > _LONGEST_INTEGER:
            raise ValueError
        self.push(int.from_bytes(self.take(size), "little", signed=True))

    def text(self, size: int) -> None:
        self.push(self.take(size).decode("utf-8", "replace"))

    def mark(self) -> None:
        self._marks.append(len(self._stack))

    def since_mark(self) -> list[Any]:
        """Return what was pushed since the mark, and forget the mark."""
        start = self._marks.pop()
        items = self._stack[start:]
        del self._stack[start:]
        return items

    def last(self, count: int) -> tuple[Any, ...]:
        if len(self._stack) < count:
            raise IndexError
        items = tuple(self._stack[-count:])
        del self._stack[-count:]
        return items

    def extend(self, items: list[Any]) -> None:
        if type(self._stack[-1]) is not list:
            raise TypeError
        self._stack[-1].extend(items)

    def update(self, items: list[Any]) -> None:
        if type(self._stack[-1]) is not dict or len(items) % 2:
            raise TypeError
        self._stack[-1].update(zip(items[::2], items[1::2], strict=True))

    def keep(self, index: int | None = None) -> None:
        self._memo[len(self._memo) if index is None else index] = self._stack[-1]

    def recall(self, index: int) -> None:
        if index not in self._memo:
            raise IndexError
        self.push(self._memo[index])


_STOP = ord(".")
_Step = Callable[[_Reader], Any]
_PLAIN: dict[str, _Step] = {
    "PROTO": lambda r: r.take(1),
    "FRAME": lambda r: r.take(8),
    "MARK": _Reader.mark,
    "NONE": lambda r: r.push(None),
    "NEWTRUE": lambda r: r.push(True),
    "NEWFALSE": lambda r: r.push(False),
    "BININT": lambda r: r.push(r.number("<i")),
    "BININT1": lambda r: r.push(r.number("<B")),
    "BININT2": lambda r: r.push(r.number("<H")),
    "LONG1": lambda r: r.integer(r.number("<B")),
    "BINFLOAT": lambda r: r.push(r.number(">d")),
    "SHORT_BINUNICODE": lambda r: r.text(r.number("<B")),
    "BINUNICODE": lambda r: r.text(r.number("<I")),
    "BINUNICODE8": lambda r: r.text(r.number("<Q")),
    "EMPTY_DICT": lambda r: r.push({}),
    "EMPTY_LIST": lambda r: r.push([]),
    "EMPTY_TUPLE": lambda r: r.push(()),
    "TUPLE1": lambda r: r.push(r.last(1)),
    "TUPLE2": lambda r: r.push(r.last(2)),
    "TUPLE3": lambda r: r.push(r.last(3)),
    "TUPLE": lambda r: r.push(tuple(r.since_mark())),
    "LIST": lambda r: r.push(r.since_mark()),
    "APPEND": lambda r: r.extend(list(r.last(1))),
    "APPENDS": lambda r: r.extend(r.since_mark()),
    "SETITEM": lambda r: r.update(list(r.last(2))),
    "SETITEMS": lambda r: r.update(r.since_mark()),
    "BINPUT": lambda r: r.keep(r.number("<B")),
    "LONG_BINPUT": lambda r: r.keep(r.number("<I")),
    "MEMOIZE": _Reader.keep,
    "BINGET": lambda r: r.recall(r.number("<B")),
    "LONG_BINGET": lambda r: r.recall(r.number("<I")),
}
#: What each opcode does, by its byte.
_OPCODES: dict[int, _Step] = {
    ord(opcode.code): _PLAIN[opcode.name] for opcode in pickletools.opcodes if opcode.name in _PLAIN
}
