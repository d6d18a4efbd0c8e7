"""The store through which ranks meet: the controller answers their requests, so that the nodes open no port for it.

Keys belong to tests, ``epoch/id/...``, and only nodes of a test read and write its keys. Only the node of a rank writes
the keys that name it. An address in such a key is the one that the controller gave that rank; that in an id of NCCL,
which NCCL chooses, is one that the node reported.
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import json
import re
import struct
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Any, NamedTuple

from fabtui.transport.link import LinkLost, Message

#: Maximum size of all keys and values together; a node that fills it gets errors, the controller lives on.
MAX_TOTAL = 32 * 1024 * 1024
#: Cost of a key besides its text.
_A_KEY = 100
#: Maximum number of waiting requests of one node; each of its ranks waits for one key at a time.
MAX_WAITING = 4096
#: Maximum size of what one node writes in one test, and what a rank writes besides a part for each other rank.
_MAX_OWN = MAX_TOTAL // 4
_RANK_SIZE, _PEER_SIZE = 1 << 16, 1 << 10
#: Maximum number of keys that a rank asks for or sets in a test, and that number for each other rank.
_RANK_KEYS, _PEER_KEYS = 256, 8
#: Number of ended tests that are remembered, and for how long (s): their last messages come late, and a kept process
#: group may look for its keys. The fastest sweeps end 360 a second, which is 22 s for all of these: longer than the
#: deadline of a test.
_REMEMBERED, _REMEMBERED_FOR = 8_192, 300.0
#: Maximum number of refused requests of a node, and how many more (1/s) are forgiven; an honest node has a few. Those
#: about its own tests that have just ended are late, and do not count.
MAX_REFUSED = 300
_FORGIVEN = 50.0
#: ``add`` counts ranks.
_MAX_COUNT = 1 << 53
MAX_WAIT = 600.0

Answer = Callable[[Message], object]
#: Keys that name their writer: a rank; the ends of a direction, or of both; the first rank of a communicator of NCCL;
#: the place among the ranks of a process group of gloo.
_OF_RANK = re.compile(r"(?:hello|here)/(\d{1,9})")
_OF_END = re.compile(r"(?:(\d{1,9})>(\d{1,9})|both)/(?:end/(src|dst)|refused)")
_OF_FIRST = re.compile(r"(?:link\d{1,9}|(group))/id")
_ADDRESSES = re.compile(r"(?:link\d{1,9}|group)/0/\d{1,9}")
_OF_PLACE = re.compile(r"(?:link\d{1,9}|(group))/0/(?:rank_)?(\d{1,9})")
#: Keys of communicators: the id that we make, and what torch writes for itself.
_OF_COMMUNICATOR = re.compile(r"(?:link\d{1,9}|group)/.*", re.DOTALL)
#: ``ncclUniqueId``, and where its socket address begins: behind a random number since NCCL 2.16.
_ID_SIZE, _ID_PLACES = 128, (8, 0)
#: ``AF_INET`` and ``AF_INET6``: where the address begins behind the family, and its size.
_IN_SOCKADDR = {2: (4, 4), 10: (8, 16)}
#: ``sockaddr_storage`` and a sequence number.
_GLOO_ADDRESS = 136
_WORD = struct.Struct("<Q")


class StoreMember(NamedTuple):
    """A rank of a test."""

    node: str  #: Its node.
    address: str | None  #: Its data address, which the others get; None if there is none.
    reported: frozenset[str] = frozenset()  #: All addresses that its node reported, in their usual form.


class _Refused(ValueError):
    """A request that an honest node does not send."""


class _Late(Exception):
    """A value for a test that has ended."""


class _Full(Exception):
    """No room for a value."""


class _Test:
    """A pair or group: its ranks, keys and values, and what its nodes may still ask for and write."""

    __slots__ = ("gloo", "left", "members", "open", "room", "values")

    def __init__(self, members: Mapping[int, StoreMember], *, gloo: bool) -> None:
        self.members = members
        self.values: dict[str, str | int] = {}
        self.gloo = gloo
        self.open = True
        ranks = Counter(member.node for member in members.values())
        others = len(members)
        self.left = {node: count * (_RANK_KEYS + _PEER_KEYS * others) for node, count in ranks.items()}
        self.room = {node: min(_MAX_OWN, count * (_RANK_SIZE + _PEER_SIZE * others)) for node, count in ranks.items()}

    def writer(self, name: str) -> int | None:
        """Return the rank that writes a key, None if that is any rank of the test."""
        if found := _OF_RANK.fullmatch(name):
            return int(found[1])
        if found := _OF_END.fullmatch(name):
            src, dst = (int(found[1]), int(found[2])) if found[1] else [*self.members][:2]
            return dst if found[3] == "dst" else src
        found, place = _OF_FIRST.fullmatch(name), 0
        if found is None and self.gloo and (found := _OF_PLACE.fullmatch(name)):
            place = int(found[2])
        if found is None:
            return None
        # The lower rank of a pair is the first.
        order = [*self.members] if found[1] else sorted(self.members)
        return order[place] if place < len(order) else -1

    def check(self, node: str, name: str, value: Any) -> None:
        """Raise `_Refused` if a node may not write a value under a key."""
        if not self.gloo and isinstance(value, str) and _OF_COMMUNICATOR.fullmatch(name):
            self._check_id(node, value)
        rank = self.writer(name)
        if rank is None:
            return
        member = self.members.get(rank)
        if member is None or member.node != node:
            raise _Refused("a key of another rank")
        if not isinstance(value, str):
            return
        # Without an address, a rank host cannot start.
        if name.startswith("hello/"):
            _check_hello(value, member.address)
        elif self.gloo and _ADDRESSES.fullmatch(name):
            _check_gloo(value, member.address or "")

    def _check_id(self, node: str, value: str) -> None:
        """Raise `_Refused` for an id of a communicator that leads the ranks of other nodes elsewhere."""
        own = [member for member in self.members.values() if member.node == node]
        if len(own) == len(self.members) or (found := _address_in(value)) is None:
            return
        known = {str(_ip(member.address)) for member in own if member.address is not None}
        # A lab is on the loopback interface; on other nodes it leads to the reader of the id.
        local = any(_ip(one).is_loopback for one in known)
        if not (local if found.is_loopback else any(str(found) in {*known, *member.reported} for member in own)):
            raise _Refused("an address that is not its own")


def _address_in(value: str) -> IPv4Address | IPv6Address | None:
    """Return the address in an id of NCCL, None if a value is not an id: without one, a rank writes why."""
    try:
        data = base64.b64decode(value, validate=True)
        if len(data) != _ID_SIZE:
            made = json.loads(data)
            if not isinstance(made, dict) or "id" not in made:
                return None
            # As the rank that reads it does.
            data = bytes.fromhex(str(made["id"])).ljust(_ID_SIZE, b"\0")[:_ID_SIZE]
    except (ValueError, RecursionError):
        return None
    for place in _ID_PLACES:
        if (found := _IN_SOCKADDR.get(int.from_bytes(data[place : place + 2], "little"))) is not None:
            start, size = place + found[0], found[1]
            return ipaddress.ip_address(data[start : start + size])
    raise _Refused("an id of NCCL without an address")


def _ip(text: str) -> IPv4Address | IPv6Address:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        raise _Refused("no address of its own") from None


def _check_hello(value: str, address: str | None) -> None:
    try:
        hello = json.loads(base64.b64decode(value, validate=True))
    except (ValueError, RecursionError):
        raise _Refused("a hello that is not JSON") from None
    if not isinstance(hello, dict) or hello.get("address", address) != address:
        raise _Refused("an address that is not its own")


def _check_gloo(value: str, address: str) -> None:
    """Raise `_Refused` for what gloo would read beyond its end, or for an address of another node.

    A value is an address for each other rank. Since 2023 it is the sizes and bytes of a host name and an address, and
    a number for each rank.
    """
    try:
        data = base64.b64decode(value, validate=True)
        own = ipaddress.ip_address(address).packed
    except ValueError:
        raise _Refused("no addresses of gloo") from None
    if len(data) % _GLOO_ADDRESS == 0 and data:
        addresses = [data[at : at + _GLOO_ADDRESS] for at in range(0, len(data), _GLOO_ADDRESS)]
    else:
        name, at = _sized(data, 0)
        one, at = _sized(data, at)
        if len(name) > 256 or len(one) != _GLOO_ADDRESS or (len(data) - at) % _WORD.size:
            raise _Refused("no addresses of gloo")
        addresses = [one]
    start = 4 if len(own) == 4 else 8
    if any(one[start : start + len(own)] != own for one in addresses):
        raise _Refused("an address that is not its own")


def _sized(data: bytes, at: int) -> tuple[bytes, int]:
    """Return the bytes at a place, which begin with their number, and the place behind them."""
    if at + _WORD.size > len(data):
        raise _Refused("no addresses of gloo")
    (size,) = _WORD.unpack_from(data, at)
    at += _WORD.size
    if size > len(data) - at:
        raise _Refused("no addresses of gloo")
    return data[at : at + size], at + size


@dataclass(slots=True, eq=False)
class _Waiting:
    """A request that waits for keys, the last one of which it waits for now."""

    node: str
    number: Any
    answer: Answer
    test: _Test
    keys: list[str]
    returns_value: bool
    timer: asyncio.TimerHandle | None = None


class StoreServer:
    """Keys and values of all ranks; values are opaque base64 texts, or integers made by ``add``."""

    def __init__(self) -> None:
        self._tests: dict[str, _Test] = {}
        #: Times at which tests ended, by prefix, the earliest first.
        self._ended: dict[str, float] = {}
        #: What is remembered of them: one object, as there are thousands.
        self._over = _Test({}, gloo=False)
        self._over.open = False
        #: Refused requests of each node that are not forgiven, and the time of the last one.
        self._refused: dict[str, tuple[float, float]] = {}
        self._keys = self._size = 0
        self._waiting: dict[str, list[_Waiting]] = {}
        self._asking: Counter[str] = Counter()

    def begin(self, prefix: str, members: Mapping[int, StoreMember], *, gloo: bool) -> None:
        """Let the ranks of a test use the keys that begin with ``epoch/id/``, until `forget`."""
        self._tests[prefix] = _Test(members, gloo=gloo)

    def handle(self, node: str, request: Message, answer: Answer) -> None:
        """Answer a ``store`` message of a node, now or when the key it waits for is there.

        A ``set`` without a number gets no answer.

        Raises:
            LinkLost: The node sends what no honest node sends, again and again.
        """
        number = request.get("q")
        try:
            command = request["cmd"]
            test, keys = self._permitted(node, command, request)
            if command in ("swap", "get", "wait"):
                if command == "swap":
                    self._write(node, test, keys[0], request["value"])
                    keys = keys[1:]
                # The first one last.
                if missing := [key for key in reversed(keys) if key not in test.values]:
                    # Without an answer, the rank that asks runs into its own deadline.
                    if self._asking[node] < MAX_WAITING:
                        waiting = _Waiting(node, number, answer, test, missing, command != "wait")
                        self._wait(waiting, _seconds(request.get("timeout")))
                    return
                value = True if command == "wait" else test.values[keys[0]]
            else:
                value = self._do(node, test, command, keys, request)
        except (_Full, _Late) as error:
            answer(_reply(number, error=f"bad request: {error}"))
            return
        except (KeyError, ValueError, TypeError) as error:
            self._count_refusal(node, error)
            answer(_reply(number, error=f"bad request: {error}"))
            return
        if number is not None:
            answer(_reply(number, value))

    def _permitted(self, node: str, command: Any, request: Message) -> tuple[_Test, list[str]]:
        if command == "num_keys":
            return _NO_TEST, []
        given = request["key"]
        keys = [str(one) for one in (given if isinstance(given, list) and command in ("wait", "check") else [given])]
        if command == "swap":
            keys.append(str(request["peer"]))
        prefix = _prefix(keys[0]) if keys else ""
        test = self._tests.get(prefix) or (self._over if prefix in self._ended else None)
        if test is None or node not in test.left or not all(key.startswith(prefix) for key in keys):
            raise _Refused("a test of other nodes")
        test.left[node] -= len(keys)
        if test.left[node] < 0:
            raise _Refused("more requests than a test has")
        return test, keys

    def _count_refusal(self, node: str, error: Exception) -> None:
        now = asyncio.get_running_loop().time()
        count, then = self._refused.get(node, (0.0, now))
        count = max(0.0, count - (now - then) * _FORGIVEN) + 1
        self._refused[node] = (count, now)
        if count > MAX_REFUSED:
            raise LinkLost("protocol", f"its ranks send messages about tests of other nodes, or far too many ({error})")

    def _do(self, node: str, test: _Test, command: str, keys: list[str], request: Message) -> Any:
        if command == "check":
            return all(key in test.values for key in keys)
        if command == "num_keys":
            return self._keys
        key = keys[0]
        if command == "set":
            self._write(node, test, key, request["value"])
            return True
        if command == "add":
            before = test.values.get(key, 0)
            total = int(before) + int(request["value"])
            if abs(total) > _MAX_COUNT:
                raise ValueError("a count out of range")
            self._write(node, test, key, total)
            return total
        if command == "compare_set":
            expected = request.get("expected")
            if (key not in test.values and not expected) or test.values.get(key) == expected:
                self._write(node, test, key, request["value"])
            return test.values.get(key, expected or "")
        if command == "delete":
            test.check(node, key[len(_prefix(key)) :], None)
            return self._delete(test, key)
        raise ValueError(f"unknown command {command!r:.40}")

    def _write(self, node: str, test: _Test, key: str, value: Any) -> None:
        if not test.open:
            raise _Late("the test has ended")
        test.check(node, key[len(_prefix(key)) :], value)
        size = len(key) + (len(value) if isinstance(value, str) else 0)
        if size > test.room[node]:
            raise _Full("the store is full")
        self._set(test, key, value)
        test.room[node] -= size

    def _set(self, test: _Test, key: str, value: Any) -> None:
        if isinstance(value, str):
            size = _A_KEY + len(key) + len(value)
        elif isinstance(value, int):
            size = _A_KEY + len(key)
        else:
            raise ValueError("a value is a text or an integer")
        if self._size + size > MAX_TOTAL:
            raise _Full("the store is full")
        self._delete(test, key)
        test.values[key] = value
        self._keys += 1
        self._size += size
        if key not in self._waiting:
            return
        for waiting in self._waiting.pop(key):
            self._wake(waiting)

    def _delete(self, test: _Test, key: str) -> bool:
        value = test.values.pop(key, None)
        if value is None:
            return False
        self._keys -= 1
        self._size -= _A_KEY + len(key) + (len(value) if isinstance(value, str) else 0)
        return True

    def _wait(self, waiting: _Waiting, seconds: float) -> None:
        self._asking[waiting.node] += 1
        self._waiting.setdefault(waiting.keys[-1], []).append(waiting)
        waiting.timer = asyncio.get_running_loop().call_later(seconds, self._expire, waiting)

    def _wake(self, waiting: _Waiting) -> None:
        """Answer a request whose key is there, or let it wait for the next missing one."""
        key = waiting.keys.pop()
        values = waiting.test.values
        while waiting.keys and waiting.keys[-1] in values:
            key = waiting.keys.pop()
        if waiting.keys:
            self._waiting.setdefault(waiting.keys[-1], []).append(waiting)
            return
        self._end(waiting, values[key] if waiting.returns_value else True)

    def _end(self, waiting: _Waiting, value: Any = None, error: str | None = None) -> None:
        if waiting.timer is not None:
            waiting.timer.cancel()
        self._asking[waiting.node] -= 1
        waiting.answer(_reply(waiting.number, value, error))

    def _expire(self, waiting: _Waiting) -> None:
        left = self._waiting[waiting.keys[-1]]
        left.remove(waiting)
        if not left:
            del self._waiting[waiting.keys[-1]]
        self._end(waiting, error="timeout")

    def forget(self, prefix: str) -> None:
        """Drop all keys that begin with a prefix ``epoch/id/``: their pair or group has ended."""
        if (test := self._tests.pop(prefix, None)) is not None:
            for key in [*test.values]:
                self._delete(test, key)
            for name, count in test.left.items():
                # Its nodes may still ask for as much as it could.
                self._over.left[name] = max(count, self._over.left.get(name, 0))
            now = asyncio.get_running_loop().time()
            # Forget tests that ended long ago, or before very many others.
            while self._ended and (
                now - next(iter(self._ended.values())) >= _REMEMBERED_FOR
                or len(self._ended) + len(self._tests) >= _REMEMBERED
            ):
                del self._ended[next(iter(self._ended))]
            self._ended[prefix] = now

    def close(self) -> None:
        for waiting in [waiting for listed in self._waiting.values() for waiting in listed]:
            if waiting.timer is not None:
                waiting.timer.cancel()
        self._waiting.clear()
        self._asking.clear()


#: What a request without keys is about.
_NO_TEST = _Test({}, gloo=False)


def _prefix(key: str) -> str:
    """Return ``epoch/id/`` of a key; a key without it is a group by itself."""
    end = key.find("/", key.find("/") + 1)
    return key if end < 0 else key[: end + 1]


def _seconds(timeout: Any) -> float:
    # NaN is not greater than 0; it would put the timers of the loop out of order.
    return float(min(timeout, MAX_WAIT)) if isinstance(timeout, (int, float)) and timeout > 0 else 0.0


def _reply(number: Any, value: Any = None, error: str | None = None) -> Message:
    return {"op": "store", "q": number, "value": value, "error": error}
