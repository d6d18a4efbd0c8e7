"""The storage check of a session: who reads when, and what is reported."""

import asyncio
from typing import Any

from fabtui.model.events import ProbeResult
from fabtui.session.measure.storage_read import MOST_ALONE, StorageRead
from fabtui.session.node_client import ProbeFailed


class Pump:
    def __init__(self) -> None:
        self.results: dict[str, ProbeResult] = {}
        self.texts: list[str] = []

    def emit(self, event: Any) -> None:
        if isinstance(event, ProbeResult):
            self.results[event.node] = event

    def log(self, level: str, text: str, node: str | None = None) -> None:
        self.texts.append(text)


class Readers:
    def __init__(self, bad: dict[str, str]) -> None:
        self.bad = bad
        self.reading = 0
        self.seen: dict[str, list[int]] = {}
        self.shares: list[float] = []

    def client(self, name: str) -> Any:
        readers = self

        class Client:
            async def probe(self, probe: str, args: dict[str, Any], deadline: float) -> dict[str, Any]:
                assert (probe, args["path"]) == ("storage", "/s/f")
                assert deadline > args["seconds"]
                readers.reading += 1
                readers.shares.append(args["share"])
                await asyncio.sleep(0.02)
                readers.seen.setdefault(name, []).append(readers.reading)
                readers.reading -= 1
                if name in readers.bad:
                    raise ProbeFailed("failed", readers.bad[name])
                return {"path": "/s/f", "mb_s": 100.0, "how": "O_DIRECT", "filesystem": "nfs4 s:/", "file_bytes": 9}

        return Client()


def read(names: list[str], bad: dict[str, str]) -> tuple[Pump, Readers]:
    pump, readers = Pump(), Readers(bad)
    clients: Any = {name: readers.client(name) for name in names}
    test = StorageRead(pump, clients, "/s/f")  # type: ignore[arg-type]
    asyncio.run(test.run(names))
    return pump, readers


def test_each_node_reads_alone_and_then_all_at_once() -> None:
    pump, readers = read(["a", "b", "c"], {"c": "ValueError: /s/f is a FIFO"})
    assert [counts[0] for counts in readers.seen.values()] == [1, 1, 1]
    assert max(counts[-1] for counts in readers.seen.values()) == 3
    assert len(set(readers.shares)) == len(readers.shares) == 8, "no block is read twice"
    assert (pump.results["a"].value or {})["alone"] == (pump.results["a"].value or {})["together"] == 100.0
    assert (pump.results["c"].value, pump.results["c"].error) == (None, "ValueError: /s/f is a FIFO")
    assert pump.texts == ["storage: 2 nodes read at once: 200 MB/s"]


def test_of_many_nodes_some_read_alone_and_one_node_is_alone_anyway() -> None:
    names = [f"n{number}" for number in range(2 * MOST_ALONE + 3)]
    pump, readers = read(names, {})
    alone = [name for name, counts in readers.seen.items() if len(counts) == 2]
    assert 0 < len(alone) <= MOST_ALONE
    assert "alone" not in (pump.results["n1"].value or {})
    assert pump.texts[0] == f"storage: {len(alone)} of {len(names)} nodes read alone; all read at once"
    pump, _ = read(["a"], {})
    assert "together" not in (pump.results["a"].value or {})
