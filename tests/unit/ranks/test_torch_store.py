"""Process groups meet through a store in Python, which must outlive the call that made it."""

import gc
import importlib
import importlib.util
import time
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")


class Recorder:
    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}

    def post(self, key: str, value: bytes) -> None:
        self.values[key] = value

    def get(self, key: str, timeout: float, owner: object = None) -> bytes:
        assert timeout > 1
        return self.values[key]

    def cancel(self, owner: object) -> None:
        pass


@pytest.mark.slow
def test_a_group_may_ask_its_store_later() -> None:
    dist: Any = importlib.import_module("torch.distributed")

    from fabtui_node.ranks.base import Task
    from fabtui_node.ranks.torch.engine import GlooEngine

    class Engine(GlooEngine):
        def make(self, store: Any, rank: int, size: int, seconds: float, address: Any) -> Any:
            return dist.PrefixStore("inner", store)

    recorder: Any = Recorder()
    engine = Engine("127.0.0.1", recorder, None)
    engine.load()
    task = Task(7, "e1/7/", 600.0, recorder)
    group = engine.group(task, "link1/", 0, 2, time.monotonic() + 60.0, None)
    gc.collect()
    group.set("id", "abc")
    assert recorder.values == {"e1/7/link1/inner/id": b"abc"}
    assert group.get("id") == b"abc"
    clone = group.clone()
    del group
    gc.collect()
    assert clone.get("id") == b"abc"
