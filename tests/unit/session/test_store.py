from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fabtui.session.ranks import rendezvous_store as store_module
from fabtui.session.ranks.rendezvous_store import StoreServer


async def _ask(store: StoreServer, **request: Any) -> dict[str, Any]:
    answers: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    store.handle("a", {"op": "store", "q": 7, **request}, answers.put_nowait)
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


async def test_counts_stay_counts() -> None:
    store = StoreServer()
    assert "out of range" in (await _ask(store, cmd="add", key="n", value=1 << 60))["error"]
    assert "bad request" in (await _ask(store, cmd="add", key="n", value="many"))["error"]
    assert (await _ask(store, cmd="add", key="n", value=1))["value"] == 1


@pytest.mark.parametrize("seconds", ["nan", [], None, -1, 1e99])
async def test_any_timeout_is_one(seconds: Any) -> None:
    store = StoreServer()
    waiting = asyncio.create_task(_ask(store, cmd="get", key="k", timeout=seconds))
    await _ask(store, cmd="set", key="k", value="dg==")
    assert (await waiting)["error"] in (None, "timeout")


async def test_a_node_that_asks_without_end_keeps_no_other_from_its_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "MAX_WAITING", 10)
    store = StoreServer()
    answers: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    for number in range(30):
        store.handle(
            "b", {"op": "store", "q": number, "cmd": "get", "key": f"k{number}", "timeout": 600}, answers.put_nowait
        )
    assert (await _ask(store, cmd="set", key="k", value="dg=="))["error"] is None
    await _ask(store, cmd="set", key="k3", value="dg==")
    assert (await answers.get())["q"] == 3
    store.close()
    assert answers.empty()


async def test_keys_that_were_waited_for_in_vain_leave_nothing_behind() -> None:
    store = StoreServer()
    before = {name: len(value) for name, value in vars(store).items() if isinstance(value, (dict, set))}
    for number in range(20):
        assert (await _ask(store, cmd="wait", key=[f"e/{number}/x", "y"], timeout=0.001))["error"] == "timeout"
    await asyncio.sleep(0)
    left = {name: len(value) for name, value in vars(store).items() if isinstance(value, (dict, set))}
    assert left == {**before, "_asking": 1}


async def test_a_swap_sets_a_key_and_waits_for_that_of_the_peer() -> None:
    store = StoreServer()
    first = asyncio.create_task(_ask(store, cmd="swap", key="e/1/a", value="YQ==", peer="e/1/b", timeout=5))
    await asyncio.sleep(0)
    assert (await _ask(store, cmd="swap", key="e/1/b", value="Yg==", peer="e/1/a", timeout=5))["value"] == "YQ=="
    assert (await first)["value"] == "Yg=="
    late = await _ask(store, cmd="swap", key="e/2/a", value="YQ==", peer="e/2/b", timeout=0.01)
    assert late["error"] == "timeout"


async def test_a_set_without_a_number_gets_no_answer() -> None:
    store = StoreServer()
    answers: list[dict[str, Any]] = []
    store.handle("a", {"op": "store", "cmd": "set", "key": "k", "value": "dg=="}, answers.append)
    assert answers == []
    assert (await _ask(store, cmd="get", key="k", timeout=5))["value"] == "dg=="
