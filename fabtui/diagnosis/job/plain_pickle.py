"""Pickles of plain values: dicts, lists, tuples, texts, numbers. No class, no function, no import, no code.

PyTorch writes flight recorder dumps as pickles, and `pickle.load` runs code that a pickle contains. This small
interpreter knows only the opcodes of plain values (`pickletools` describes them) and refuses all others.

Files of strangers and dumps of nodes are read by a child process, `READER`, with limits of time and memory. So this
file is a program as well, and imports nothing of fabtui.
"""

from __future__ import annotations

import contextlib
import json
import pickletools
import resource
import struct
import sys
from collections.abc import Callable
from typing import Any, NoReturn

#: Maximum depth of the values, and maximum number of values where shared ones count each time.
DEEPEST = 32
MOST_VALUES = 5_000_000
#: Maximum number of opcodes, each of which builds a value at most: a dump of 2,000 entries has about 60,000.
MOST_STEPS = 3_000_000
#: Maximum size (characters) of all texts where shared ones count each time, and of the JSON text.
MOST_TEXT = 128 << 20
#: Limits of a process that reads a pickle: CPU time (s) and address space (bytes).
MOST_SECONDS = 20
MOST_MEMORY = 1536 << 20
#: Maximum length (bytes) of an integer.
_LONGEST_INTEGER = 64
#: Integers up to this size are their own hash; larger ones can be made to collide, so that a dict takes quadratic time.
_OWN_HASH = (1 << 61) - 2
#: Maximum number of larger ones among all keys.
_LARGE_KEYS = 1000
_STOP = ord(".")


class NotPlain(Exception):
    """The bytes are not a pickle of plain values; the text is the reason."""


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
    """Raise `NotPlain` for values that are too deep, contain themselves, or are too large if shared ones are copied."""
    left, room = MOST_VALUES, MOST_TEXT
    todo = [(value, 0)]
    while todo:
        one, depth = todo.pop()
        inner = list(one.items()) if isinstance(one, dict) else one if isinstance(one, (list, tuple)) else ()
        left -= len(inner) + 1
        if depth > DEEPEST:
            raise NotPlain(f"its values are nested more than {DEEPEST} deep")
        if left < 0:
            raise NotPlain(f"it stands for more than {MOST_VALUES} values")
        room -= sum(len(item) for item in inner if isinstance(item, str))
        if room < 0:
            raise NotPlain(f"it stands for more than {MOST_TEXT >> 20} MiB of text")
        todo += [(item, depth + 1) for item in inner if isinstance(item, (dict, list, tuple))]


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}
        self._large_keys = 0

    def value(self) -> Any:
        try:
            for _ in range(MOST_STEPS):
                code = self._data[self._at]
                self._at += 1
                if code == _STOP:
                    return self._stack.pop()
                _OPCODES[code](self)
            raise NotPlain(f"it has more than {MOST_STEPS} steps")
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
        keys = items[::2]
        # Before they are hashed: a tuple that contains itself sixty times is hashed for ever, and no signal ends it.
        if not all(isinstance(key, (str, int)) for key in keys):
            raise TypeError
        self._large_keys += sum(isinstance(key, int) and abs(key) > _OWN_HASH for key in keys)
        if self._large_keys > _LARGE_KEYS:
            raise NotPlain(f"more than {_LARGE_KEYS} keys of its dicts are integers of more than 61 bits")
        self._stack[-1].update(zip(keys, items[1::2], strict=True))

    def keep(self, index: int | None = None) -> None:
        self._memo[len(self._memo) if index is None else index] = self._stack[-1]

    def recall(self, index: int) -> None:
        if index not in self._memo:
            raise IndexError
        self.push(self._memo[index])


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


#: Command of a process that writes the value of the pickle at its standard input as JSON, see `json_of`.
READER = (sys.executable, "-I", "-S", __file__)


def json_of(printed: bytes, status: int) -> str:
    """Return the JSON text that a `READER` printed; raise `NotPlain` with its reason if it failed."""
    text = printed.decode("utf-8", "replace")
    if status == 0:
        return text
    # Without a reason it was ended by its limit.
    raise NotPlain(text if status == 1 and text else f"it was not read within {MOST_SECONDS} s of CPU time")


def main() -> int:
    """Write the pickle at standard input as JSON to standard output, or why it cannot be read, with status 1."""
    _limit()
    try:
        text = json.dumps(read_plain(sys.stdin.buffer.read()))
    except NotPlain as refused:
        sys.stdout.write(str(refused))
        return 1
    except MemoryError:
        sys.stdout.write("it needs too much memory")
        return 1
    if len(text) > MOST_TEXT:
        sys.stdout.write(f"it stands for more than {MOST_TEXT >> 20} MiB of text")
        return 1
    sys.stdout.write(text)
    return 0


def _limit() -> None:
    for kind, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_CPU, MOST_SECONDS),
        (resource.RLIMIT_AS, MOST_MEMORY),
    ):
        # A stricter limit of the user stays.
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(kind, (most, most))


if __name__ == "__main__":
    sys.exit(main())
