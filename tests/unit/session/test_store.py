from __future__ import annotations

import asyncio
from typing import Any

from fabtui.session.store import StoreServer


async def _ask(store: StoreServer, **request: Any) -> dict[str, Any]:
    answers: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    store.handle({"op": "store", "q": 7, **request}, answers.put)
    async with asyncio.timeout(5):
        return await answers.get()


async def test_a_get_waits_for_its_key() -> None:
    store = StoreServer()
    waiting = asyncio.create_task(_ask(store, cmd="get", key="k", timeout=5))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    await _ask(store, cmd="set", key="k", value="dg==")
    assert await waiting == {"op": "store", "q": 7, "value": "dg==", "error": None}


async def test_a_wait_ends_at_its_deadline() -> None:
    store = StoreServer()
    assert (await _ask(store, cmd="get", key="k", timeout=0.01))["error"] == "timeout"
    assert (await _ask(store, cmd="wait", key=["a", "b"], timeout=0.01))["error"] == "timeout"


async def test_the_other_commands() -> None:
    store = StoreServer()
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
    store = StoreServer()
    for request in ({"cmd": "explode"}, {}, {"cmd": "set", "key": "k"}, {"cmd": "set", "key": "k", "value": [1]}):
        assert "bad request" in (await _ask(store, **request))["error"]
    big = "x" * (20 * 1024 * 1024)
    assert (await _ask(store, cmd="set", key="a", value=big))["error"] is None
    assert "full" in (await _ask(store, cmd="set", key="b", value=big))["error"]
    store.forget("a")
    assert (await _ask(store, cmd="set", key="b", value=big))["error"] is None
