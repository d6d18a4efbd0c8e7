import asyncio
import base64
import ipaddress
import json
import struct
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from fabtui.session.ranks import rendezvous_store as store_module
from fabtui.session.ranks.rendezvous_store import StoreMember, StoreServer
from fabtui.transport.link import LinkLost


def _store() -> StoreServer:
    store = StoreServer()
    for number in (1, 2, 3):
        members = {4: StoreMember("a", "10.0.0.1"), 5: StoreMember("b", "10.0.0.2"), 6: StoreMember("b", "10.0.0.3")}
        store.begin(f"e/{number}/", members, gloo=True)
    return store


def _whole(key: Any) -> Any:
    if isinstance(key, list):
        return [_whole(one) for one in key]
    return key if key is None or key.startswith("e/") else f"e/1/{key}"


async def _ask(store: StoreServer, node: str = "a", **request: Any) -> dict[str, Any]:
    answers: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    request |= {name: _whole(request[name]) for name in ("key", "peer") if name in request}
    store.handle(node, {"op": "store", "q": 7, **request}, answers.put_nowait)
    async with asyncio.timeout(5):
        return await answers.get()


async def test_a_get_waits_for_its_key() -> None:
    store = _store()
    waiting = asyncio.create_task(_ask(store, cmd="get", key="k", timeout=5))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    await _ask(store, cmd="set", key="k", value="dg==")
    assert await waiting == {"op": "store", "q": 7, "value": "dg==", "error": None}


async def test_a_wait_ends_at_its_deadline() -> None:
    store = _store()
    assert (await _ask(store, cmd="get", key="k", timeout=0.01))["error"] == "timeout"
    assert (await _ask(store, cmd="wait", key=["a", "b"], timeout=0.01))["error"] == "timeout"


async def test_the_other_commands() -> None:
    store = _store()
    assert (await _ask(store, cmd="add", key="n", value=2))["value"] == 2
    assert (await _ask(store, cmd="add", key="n", value=3))["value"] == 5
    assert (await _ask(store, cmd="check", key=["n"]))["value"] is True
    assert (await _ask(store, cmd="check", key=["n", "m"]))["value"] is False
    assert (await _ask(store, cmd="compare_set", key="c", value="a", expected=""))["value"] == "a"
    assert (await _ask(store, cmd="compare_set", key="c", value="b", expected="x"))["value"] == "a"
    assert (await _ask(store, cmd="compare_set", key="c", value="b", expected="a"))["value"] == "b"
    assert (await _ask(store, cmd="num_keys", key=None))["value"] == 2
    assert (await _ask(store, cmd="delete", key="c"))["value"] is True
    assert (await _ask(store, cmd="delete", key="c"))["value"] is False


async def test_bad_requests_are_answered_and_harm_nothing() -> None:
    store = _store()
    for request in (
        {"cmd": "explode"},
        {},
        {"cmd": "set", "key": "e/1/k"},
        {"cmd": "set", "key": "e/1/k", "value": [1]},
    ):
        assert "bad request" in (await _ask(store, **request))["error"]


async def test_a_full_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "MAX_TOTAL", 100_000)
    store = _store()
    big = "x" * 60_000
    assert (await _ask(store, cmd="set", key="a", value=big))["error"] is None
    assert "full" in (await _ask(store, cmd="set", key="e/2/b", value=big))["error"]
    store.forget("e/1/")
    assert (await _ask(store, cmd="set", key="e/2/b", value=big))["error"] is None


async def test_a_node_fills_its_own_part_alone() -> None:
    store = _store()
    big = "x" * 60_000
    assert (await _ask(store, cmd="set", key="x", value=big))["error"] is None
    assert "full" in (await _ask(store, cmd="set", key="y", value=big))["error"]
    assert (await _ask(store, "b", cmd="set", key="z", value=big))["error"] is None


async def test_counts_stay_counts() -> None:
    store = _store()
    assert "out of range" in (await _ask(store, cmd="add", key="n", value=1 << 60))["error"]
    assert "bad request" in (await _ask(store, cmd="add", key="n", value="many"))["error"]
    assert (await _ask(store, cmd="add", key="n", value=1))["value"] == 1


@pytest.mark.parametrize("seconds", ["nan", [], None, -1, 1e99])
async def test_any_timeout_is_one(seconds: Any) -> None:
    store = _store()
    waiting = asyncio.create_task(_ask(store, cmd="get", key="k", timeout=seconds))
    await _ask(store, cmd="set", key="k", value="dg==")
    assert (await waiting)["error"] in (None, "timeout")


async def test_a_node_that_asks_without_end_keeps_no_other_from_its_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "MAX_WAITING", 10)
    store = _store()
    answers: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    for number in range(30):
        store.handle(
            "b", {"op": "store", "q": number, "cmd": "get", "key": f"e/1/k{number}", "timeout": 600}, answers.put_nowait
        )
    assert (await _ask(store, cmd="set", key="k", value="dg=="))["error"] is None
    await _ask(store, cmd="set", key="k3", value="dg==")
    assert (await answers.get())["q"] == 3
    store.close()
    assert answers.empty()


async def test_keys_that_were_waited_for_in_vain_leave_nothing_behind() -> None:
    store = _store()
    before = {name: len(value) for name, value in vars(store).items() if isinstance(value, (dict, set))}
    for number in range(20):
        assert (await _ask(store, cmd="wait", key=[f"e/1/{number}", "y"], timeout=0.001))["error"] == "timeout"
    await asyncio.sleep(0)
    left = {name: len(value) for name, value in vars(store).items() if isinstance(value, (dict, set))}
    assert left == {**before, "_asking": 1}


async def test_a_swap_sets_a_key_and_waits_for_that_of_the_peer() -> None:
    store = _store()
    first = asyncio.create_task(_ask(store, cmd="swap", key="e/1/a", value="YQ==", peer="e/1/b", timeout=5))
    await asyncio.sleep(0)
    assert (await _ask(store, cmd="swap", key="e/1/b", value="Yg==", peer="e/1/a", timeout=5))["value"] == "YQ=="
    assert (await first)["value"] == "Yg=="
    late = await _ask(store, cmd="swap", key="e/2/a", value="YQ==", peer="e/2/b", timeout=0.01)
    assert late["error"] == "timeout"


async def test_a_set_without_a_number_gets_no_answer() -> None:
    store = _store()
    answers: list[dict[str, Any]] = []
    store.handle("a", {"op": "store", "cmd": "set", "key": "e/1/k", "value": "dg=="}, answers.append)
    assert answers == []
    assert (await _ask(store, cmd="get", key="k", timeout=5))["value"] == "dg=="


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


def _hello(address: str) -> str:
    return _text(json.dumps({"node": "n", "address": address}).encode())


@pytest.mark.parametrize(
    "key", ["hello/5", "here/5", "5>6/end/src", "4>5/end/dst", "5>4/refused", "link1/0/1", "link1/0/2"]
)
@pytest.mark.parametrize("command", ["set", "add", "compare_set", "delete", "swap"])
async def test_a_key_of_another_rank(key: str, command: str) -> None:
    store = _store()
    value = 1 if command == "add" else _hello("10.0.0.1")
    refused = await _ask(store, cmd=command, key=key, value=value, peer="hello/4", expected="", timeout=0.001)
    assert refused["error"] == "bad request: a key of another rank"
    assert (await _ask(store, "b", cmd="check", key=[key]))["value"] is False


async def test_keys_of_ones_own_ranks() -> None:
    store = _store()
    for key in ("hello/5", "hello/6", "5>4/end/src", "4>6/end/dst", "all", "link1/0/rank_1"):
        assert (await _ask(store, "b", cmd="set", key=key, value=_text(b"{}")))["error"] is None, key
    # Both ends of both directions at once; the first rank of a communicator of NCCL.
    assert (await _ask(store, "a", cmd="set", key="both/end/src", value=_text(b"{}")))["error"] is None
    assert "another rank" in (await _ask(store, "b", cmd="set", key="both/end/src", value=_text(b"{}")))["error"]
    assert "another rank" in (await _ask(store, "b", cmd="set", key="group/id", value=_text(b"{}")))["error"]


@pytest.mark.parametrize("key", ["e/9/hello/4", "e/1", "", "hello/4", "e/1x/hello/4"])
@pytest.mark.parametrize("command", ["set", "get", "wait", "check", "add", "delete", "swap", "compare_set"])
async def test_a_test_of_other_nodes(key: str, command: str) -> None:
    store = _store()
    store.begin("e/9/", {0: StoreMember("b", None), 1: StoreMember("c", None)}, gloo=False)
    answers: list[dict[str, Any]] = []
    request = {"cmd": command, "key": key, "value": 1, "peer": "e/1/x", "timeout": 5}
    store.handle("a", {"op": "store", "q": 7, **request}, answers.append)
    assert [answer["error"] for answer in answers] == ["bad request: a test of other nodes"]


async def test_an_ended_test_takes_no_values(monkeypatch: pytest.MonkeyPatch) -> None:
    store = _store()
    store.forget("e/1/")
    assert "has ended" in (await _ask(store, cmd="set", key="k", value="dg=="))["error"]
    # A kept process group may look for a key.
    assert (await _ask(store, cmd="check", key=["k"]))["value"] is False
    monkeypatch.setattr(store_module, "_REMEMBERED_FOR", 0.0)
    store.forget("e/2/")
    assert "of other nodes" in (await _ask(store, cmd="check", key=["k"]))["error"]
    monkeypatch.undo()
    monkeypatch.setattr(store_module, "_REMEMBERED", 1)
    store.forget("e/3/")
    assert "of other nodes" in (await _ask(store, cmd="check", key=["e/2/k"]))["error"]


async def test_ended_tests_are_remembered_in_little_memory() -> None:
    """A sweep of a large fabric ends hundreds a second."""
    store = _store()
    tracemalloc.start()
    for number in range(2000):
        prefix = f"epoch/{number}/"
        store.begin(prefix, {0: StoreMember("a", "10.0.0.1"), 1: StoreMember("b", "10.0.0.2")}, gloo=True)
        store.handle("a", {"op": "store", "cmd": "set", "key": f"{prefix}k", "value": "dg=="}, lambda _: None)
        store.forget(prefix)
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert held / 2000 < 200, "bytes for each"
    # What one has asked for does not count for the next.
    for _ in range(3):
        answers: list[dict[str, Any]] = []
        for _ in range(250):
            store.handle("a", {"op": "store", "q": 7, "cmd": "check", "key": ["epoch/7/k"]}, answers.append)
        assert [answer["error"] for answer in answers] == [None] * 250
        store.begin("e/9/", {0: StoreMember("a", None), 1: StoreMember("b", None)}, gloo=True)
        store.forget("e/9/")


def _gloo(address: bytes, family: int = 2, name: bytes = b"host") -> bytes:
    where = struct.pack("<H", family) + (b"\0\0" if family == 2 else bytes(6)) + address
    sizes = struct.pack("<Q", len(name)) + name + struct.pack("<Q", 136)
    return sizes + where.ljust(136, b"\0") + bytes(16)


OWN = bytes((10, 0, 0, 1))


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (_gloo(OWN), None),
        (_gloo(OWN)[12 + 8 : 12 + 8 + 136], None),
        (_gloo(bytes((10, 0, 0, 2))), "bad request: an address that is not its own"),
        (bytes(136), "bad request: an address that is not its own"),
        *((wrong, "bad request: no addresses of gloo") for wrong in (b"\0\0\0", b"", b"\xff" * 200, _gloo(OWN)[:-1])),
        (_gloo(OWN, name=b"x" * 300), "bad request: no addresses of gloo"),
    ],
)
async def test_addresses_are_checked_before_a_library_sees_them(value: bytes, error: str | None) -> None:
    assert (await _ask(_store(), cmd="set", key="link1/0/0", value=_text(value)))["error"] == error


def _id(address: str, place: int = 8) -> bytes:
    """Return an ``ncclUniqueId``: a socket address, before NCCL 2.16 without the random number ahead of it."""
    ip = ipaddress.ip_address(address)
    sockaddr = struct.pack("<H", 2) + b"\x9c\x40" + ip.packed
    if ip.version == 6:
        sockaddr = struct.pack("<H", 10) + b"\x9c\x40" + bytes(4) + ip.packed
    return (bytes([7]) * place + sockaddr).ljust(128, b"\0")


@pytest.mark.parametrize("place", [8, 0], ids=["2.16", "2.14"])
@pytest.mark.parametrize(
    ("address", "own"),
    [
        *(("10.0.0.1", True), ("192.168.7.1", True), ("fe80::1", True)),
        *(("10.0.0.2", False), ("8.8.8.8", False), ("fe80::2", False), ("127.0.0.1", False), ("::1", False)),
    ],
)
async def test_an_id_of_nccl_leads_to_its_own_node(address: str, own: bool, place: int) -> None:
    store = StoreServer()
    reported = frozenset({"10.0.0.1", "192.168.7.1", "fe80::1", "127.0.0.1"})
    store.begin("e/1/", {4: StoreMember("a", "10.0.0.1", reported), 5: StoreMember("b", "10.0.0.2")}, gloo=False)
    error = None if own else "bad request: an address that is not its own"
    unique = _id(address, place)
    made = _text(json.dumps({"id": unique.hex()}).encode())
    assert (await _ask(store, cmd="set", key="link1/id", value=made))["error"] == error
    # As torch writes it.
    assert (await _ask(store, cmd="set", key="link1/0/0:1", value=_text(unique)))["error"] == error


async def test_an_id_of_nccl_that_leads_nowhere() -> None:
    store = StoreServer()
    store.begin("e/1/", {4: StoreMember("a", "127.0.0.3"), 5: StoreMember("b", "127.0.0.4")}, gloo=False)
    store.begin("e/2/", {4: StoreMember("a", None), 5: StoreMember("a", None)}, gloo=False)
    for value, error in (
        (_text(b"\xff" * 128), "bad request: an id of NCCL without an address"),
        (_text(b'{"id": "ff"}'), "bad request: an id of NCCL without an address"),
        # Nodes of a lab are on one loopback interface.
        (_text(_id("127.0.0.1")), None),
        # Without an id, a rank writes why; torch has values of other kinds.
        (_text(b'{"error": "no network"}'), None),
        (_text(b"x"), None),
        ("?", None),
    ):
        assert (await _ask(store, cmd="set", key="link1/id", value=value))["error"] == error, value
    # Only the node that wrote it reads it.
    assert (await _ask(store, cmd="set", key="e/2/group/id", value=_text(_id("8.8.8.8"))))["error"] is None


async def test_the_address_of_a_hello() -> None:
    store = _store()
    assert (await _ask(store, cmd="set", key="hello/4", value=_hello("10.0.0.1")))["error"] is None
    for wrong in (_hello("10.0.0.2"), "AAAA", "?", _text(b"[" * 5000), _text(b"[1]")):
        assert "bad request" in (await _ask(store, cmd="set", key="hello/4", value=wrong))["error"]
    assert (await _ask(store, "b", cmd="get", key="hello/4"))["value"] == _hello("10.0.0.1")


@pytest.mark.parametrize(
    "request_of",
    [
        lambda number: {"cmd": "set", "key": f"e/{number}/hello/0", "value": "AAAA"},
        lambda number: {"cmd": "delete", "key": f"e/1/{number}"},
        lambda number: {"cmd": "check", "key": ["e/1/x"] * 50},
        lambda number: {"cmd": number},
    ],
)
async def test_a_node_that_floods_the_store_is_lost(request_of: Callable[[int], dict[str, Any]]) -> None:
    store = _store()

    def flood() -> None:
        for number in range(10, 4000):
            store.handle("a", {"op": "store", **request_of(number)}, lambda answer: None)

    with pytest.raises(LinkLost, match="about tests of other nodes, or far too many"):
        flood()
    # Others notice nothing.
    assert (await _ask(store, "b", cmd="set", key="hello/5", value=_hello("10.0.0.2")))["error"] is None


async def test_messages_about_a_test_that_has_just_ended_are_no_flood() -> None:
    store = _store()
    answers: list[dict[str, Any]] = []
    for test in ("e/1/", "e/2/"):
        store.forget(test)
        for number in range(store_module.MAX_REFUSED - 50):
            request = {"op": "store", "q": 7, "cmd": "set", "key": f"{test}{number}", "value": "AAAA"}
            store.handle("a", request, answers.append)
    assert {answer["error"] for answer in answers} == {"bad request: the test has ended"}
