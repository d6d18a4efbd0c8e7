"""A node's Python that lies: the true node side, behind a proxy that changes its messages and adds others.

    python tests/liar.py MODE ARGUMENT...

The arguments are those of the interpreter that it stands for. It knows what a node can know: the numbers of its own
tests, and other numbers only by guessing. It answers heartbeats, and ends when its input does.
"""

import base64
import json
import os
import random
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "probes"))

from fabtui_node.protocol import Decoder, encode

Message = dict[str, Any]

#: Set behind the proxy: the rank host is started by the same interpreter.
BEHIND = "FABTUI_LYING"
#: Name and address of the liar, and of an honest node, in a lab of three nodes of two ranks.
OWN, OTHER = ("n001", "127.0.60.11"), ("n000", "127.0.60.10")
RANKS, PAIR_OF_OTHERS = range(6), (0, 4)
#: Seconds between two times that it speaks without being asked, and how many messages then: thousands a second.
PAUSE, MANY = 0.01, 50
EXTREME = (-1, 0, 1e99, 2**62, 1e-300, -1e99)
JUNK: list[Any] = [None, True, -1, 2**70, 1e99, "", "x\x1b[2J\u202e[red]", [], [[]], {}, {"a": []}, "n000", [None, {}]]
#: What makes a message one of the protocol.
FRAME = frozenset({"t", "op", "cmd", "q", "n", "id", "key", "peer"})


def inner(message: Message) -> list[Message]:
    carried = message.get("m") if message.get("t") == "rank" else None
    if not isinstance(carried, dict):
        return []
    return list(carried["messages"]) if carried.get("op") == "several" else [carried]


def of_ranks(messages: list[Message]) -> Message:
    return {"t": "rank", "m": {"op": "several", "messages": messages}}


def keys_of(test: str) -> list[str]:
    """Return the keys of the ranks of a test, ``epoch/id/``."""
    ends = [f"{test}{a}>{b}/end/{end}" for a in (0, 1, 4, 5) for b in (2, 3) for end in ("src", "dst")]
    links = [f"{test}link{number}/0/{place}" for number in (1, 2) for place in (0, 1)]
    return [*(f"{test}hello/{rank}" for rank in RANKS), *links, *ends]


#: 464 keys of tests, if their numbers counted up.
GUESSED = [key for number in range(2, 60) for key in keys_of(f"e/{number}/")[:8]]


def store(cmd: str, keys: list[str], **more: Any) -> Message:
    """Return requests to the store, which get no answer."""
    return of_ranks([{"op": "store", "cmd": cmd, "key": key, **more} for key in keys])


class Liar:
    """Messages of a lying node; this one is honest."""

    def __init__(self) -> None:
        self.chance = random.Random(1)
        self.tests: list[str] = []  #: The tests that its ranks take part in.
        self.ready = False  #: Whether its ranks have started.

    def hear(self, message: Message) -> list[Message]:
        sent = self.instead(message)
        for one in inner(message):
            if one.get("op") == "ready" and not self.ready:
                self.ready = True
                sent = [*sent, *self.once()]
            test = "/".join(str(one.get("key")).split("/")[:2]) + "/"
            if one.get("op") == "store" and isinstance(one.get("key"), str) and test not in self.tests:
                self.tests.append(test)
                sent = [*self.at_test(test), *sent]
        return sent

    def instead(self, message: Message) -> list[Message]:
        return [message]

    def once(self) -> list[Message]:
        return []

    def at_test(self, test: str) -> list[Message]:
        return []

    def unasked(self) -> list[Message]:
        return []


class Poison(Liar):
    """Writes keys of tests of others without end."""

    def unasked(self) -> list[Message]:
        return [store("set", self.chance.sample(GUESSED, MANY), value="AAAA")]


class PoisonOnce(Liar):
    """Writes 464 keys of tests of others, once."""

    def once(self) -> list[Message]:
        return [store("set", GUESSED, value="AAAA")]


class Delete(Liar):
    """Deletes keys of tests of others without end."""

    def unasked(self) -> list[Message]:
        return [store("delete", self.chance.sample(GUESSED, MANY))]


class DeleteBursts(Liar):
    """Deletes 464 keys of tests of others, once a second."""

    last = 0.0

    def unasked(self) -> list[Message]:
        if time.monotonic() - self.last < 1.0:
            return []
        self.last = time.monotonic()
        return [store("delete", GUESSED)]


class OwnTests(Liar):
    def at_test(self, test: str) -> list[Message]:
        return [store("set", keys_of(test), value="AAAA"), store("delete", keys_of(test))]


class Address(Liar):
    def instead(self, message: Message) -> list[Message]:
        for one in inner(message):
            if "/hello/" in str(one.get("key")) and isinstance(one.get("value"), str):
                hello = json.loads(base64.b64decode(one["value"]))
                one["value"] = base64.b64encode(json.dumps({**hello, "address": OTHER[1]}).encode()).decode()
        return [message]


class Planted(Liar):
    """Asks its peers to kill their own process in a transfer, as a fault of a lab does."""

    def instead(self, message: Message) -> list[Message]:
        for one in inner(message):
            if "/hello/" in str(one.get("key")) and isinstance(one.get("value"), str):
                hello = json.loads(base64.b64decode(one["value"]))
                peer, own = (int(str(one[name]).rpartition("/")[2]) for name in ("peer", "key"))
                faults = [[peer, own, "kill", None]]
                one["value"] = base64.b64encode(json.dumps({**hello, "faults": faults}).encode()).decode()
        return [message]


class Full(Liar):
    """Fills the store, in tests of its own and of others."""

    def at_test(self, test: str) -> list[Message]:
        return [store("set", [f"{test}x{number}"], value="A" * 60_000) for number in range(100)]

    def once(self) -> list[Message]:
        return [store("set", [key], value="A" * 60_000) for key in GUESSED]


class Flood(Liar):
    """Sends thousands of messages that are allowed, a second."""

    def unasked(self) -> list[Message]:
        return [{"t": "log", "text": "flood"}, of_ranks([{"op": "alive", "n": 0}] * MANY)]


class Replayed(Liar):
    def __init__(self) -> None:
        super().__init__()
        self.earlier: list[Message] = []

    def instead(self, message: Message) -> list[Message]:
        self.earlier = [*self.earlier[-300:], message]
        return [message, *self.chance.sample(self.earlier, min(5, len(self.earlier)))]


class Shuffled(Liar):
    def __init__(self) -> None:
        super().__init__()
        self.held: list[Message] = []

    def instead(self, message: Message) -> list[Message]:
        if message.get("t") == "hello":
            return [message]
        self.held.append(message)
        return self.unasked() if len(self.held) >= 8 else []

    def unasked(self) -> list[Message]:
        sent, self.held = self.held, []
        self.chance.shuffle(sent)
        return sent


class Others(Liar):
    """Reports results of tests of others, under the numbers of its own tests and guessed ones."""

    def unasked(self) -> list[Message]:
        src, dst = PAIR_OF_OTHERS
        numbers = [int(test.split("/")[1]) for test in self.tests[-20:] if test.split("/")[1].isdigit()]
        ends = {"src": src, "dst": dst, "ok": False, "error": "a lie", "phase": "transfer", "timeout": False}
        sent: list[Message] = [{"op": "reach", "node": OTHER[0], "ok": False, "timeout": True, "error": "a lie"}]
        for number in (*numbers, *range(1, 20)):
            sent.append({"op": "side", "id": number, "role": "dst", "rank": dst, **ends})
            sent.append(
                {"op": "reduced", "id": number, "rank": src, "ok": False, "error": "a lie", "phase": "transfer"}
            )
            sent.append(
                {"op": "worlded", "id": number, "rank": src, "ok": False, "rows": [[src, dst, 1, 1.0, False, "a lie"]]}
            )
            sent.append({"op": "free", "id": number, "rank": src})
        return [of_ranks(sent)] if self.ready else []


class Rows(Liar):
    def instead(self, message: Message) -> list[Message]:
        if message.get("t") not in ("part", "result"):
            return [message]
        text = json.dumps(message).replace(OWN[0], "n002").replace(OWN[1], "127.0.60.12")
        return [message, {**json.loads(text), "t": "part"}]


class Identity(Liar):
    """Claims to be another node, with its host name and address."""

    def instead(self, message: Message) -> list[Message]:
        if message.get("t") not in ("part", "result", "hello"):
            return [message]
        sent: Message = json.loads(json.dumps(message).replace(OWN[0], OTHER[0]).replace(OWN[1], OTHER[1]))
        return [sent]


class Gpus(Liar):
    """Claims 60,000 GPUs."""

    def instead(self, message: Message) -> list[Message]:
        value = message.get("value")
        if isinstance(value, dict) and "gpus" in value and "pythons" in value:
            value["gpus"] = [{"index": number, "name": "H100", "uuid": f"GPU-{number}"} for number in range(60_000)]
        return [message]


class Twisted(Liar):
    junk: Sequence[Any] = JUNK
    share = 0.05

    def instead(self, message: Message) -> list[Message]:
        return [message] if message.get("t") in ("hello", "hb") else [self._twisted(message)]

    def _twisted(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: one if name in FRAME else self._twisted(one) for name, one in value.items()}
        if isinstance(value, list):
            return [self._twisted(one) for one in value]
        return self.chance.choice(self.junk) if self._hits(value) else value

    def _hits(self, value: Any) -> bool:
        return self.chance.random() < self.share


class Extreme(Twisted):
    junk = EXTREME
    share = 0.3

    def _hits(self, value: Any) -> bool:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and super()._hits(value)


MODES: dict[str, Callable[[], Liar]] = {
    "none": Liar,
    "poison": Poison,
    "poisonf": PoisonOnce,
    "delete": Delete,
    "delete1": DeleteBursts,
    "own": OwnTests,
    "address": Address,
    "planted": Planted,
    "full": Full,
    "flood": Flood,
    "replay": Replayed,
    "shuffle": Shuffled,
    "others": Others,
    "rows": Rows,
    "identity": Identity,
    "gpus": Gpus,
    "numbers": Extreme,
    "types": Twisted,
}

#: Modes that attack the store through which ranks meet.
ON_STORE = ("poison", "poisonf", "delete", "delete1", "own", "address", "full")


def of_others(rows: Iterable[Mapping[str, str]]) -> list[Mapping[str, str]]:
    """Return the rows of a session about honest nodes alone; a communicator of all nodes is the liar's as well."""
    mixed = ("world", "busbw")
    return [row for row in rows if row["layer"] not in mixed and OWN[0] not in (row["src_node"], row["dst_node"])]


def interpreter(path: Path, mode: str) -> Path:
    """Write a command that is Python, and on the liar's node of a lab a Python that lies."""
    python, lie = shlex.quote(sys.executable), shlex.join([sys.executable, str(Path(__file__).resolve()), mode])
    lies = f'if test "$FABTUI_LAB_NODE" = {OWN[0]} && test -z "${BEHIND}"; then exec {lie} "$@"; fi'
    path.write_text(f'#!/bin/sh\n{lies}\nexec {python} "$@"\n')
    path.chmod(0o755)
    return path


class _Mouth:
    def __init__(self) -> None:
        self._lock = threading.Lock()

    def say(self, messages: list[Message]) -> None:
        self.put(b"".join(map(encode, messages)))

    def put(self, data: bytes) -> None:
        with self._lock:
            while data:
                data = data[os.write(1, data) :]


def _listen(true: subprocess.Popen[bytes]) -> None:
    assert true.stdin is not None
    while data := os.read(0, 1 << 16):
        true.stdin.write(data)
        true.stdin.flush()
    true.stdin.close()


def main() -> None:
    """Run the true node side, and lie."""
    liar, mouth = MODES[sys.argv[1]](), _Mouth()
    environment = {**os.environ, BEHIND: "1"}
    true = subprocess.Popen(
        [sys.executable, *sys.argv[2:]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    )
    assert true.stdout is not None
    threading.Thread(target=_listen, args=(true,), daemon=True).start()
    banner = b""
    while b"\x02\n" not in banner and (data := os.read(true.stdout.fileno(), 1)):
        banner += data
    mouth.put(banner)
    turn = threading.Lock()

    def speak() -> None:
        while True:
            time.sleep(PAUSE)
            with turn:
                mouth.say(liar.unasked())

    threading.Thread(target=speak, daemon=True).start()
    decoder = Decoder()
    while data := os.read(true.stdout.fileno(), 1 << 16):
        for message in decoder.feed(data):
            with turn:
                mouth.say(liar.hear(message))
    os._exit(true.wait())


if __name__ == "__main__":
    main()
