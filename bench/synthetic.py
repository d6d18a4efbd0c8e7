"""Synthetic recording of a large fabric: ``python bench/synthetic.py OUT [--nodes 512] [--results 120000]``.

No machine of that size was available. The first event, each measurement and the screen mark the content as synthetic.
It contains a dead NIC, a slow node, a rail without a path to a second one, single bad cables, and a lost node.
"""

import argparse
import itertools
import random
import sys
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fabtui import __version__
from fabtui.model.endpoints import Endpoint
from fabtui.model.events import (
    FORMAT,
    EndpointsAdded,
    Event,
    LogEntry,
    Measured,
    NodeState,
    NodeUpdate,
    PairsStarted,
    PhaseStart,
    SessionEnd,
    SessionStart,
)
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.session.event_pipeline import Journal

BEGAN = 1_700_000_000.0
GPUS = 8
HOW = "synthetic: made up by bench/synthetic.py, no GPU was asked"
#: Events that come at one time.
_ROUND = 64
_CLASSES = {"node": (351.0, "P2P/CUMEM"), "rail": (46.1, "NET/IB/GDRDMA"), "cross": (44.0, "NET/IB")}
#: Up to this many nodes all pairs are tested, beyond it one of each two nodes.
_ALL_UP_TO = 64


class Fabric:
    """A fabric with faults, the same ones each time.

    Args:
        nodes: How many nodes there are, a power of two.
    """

    def __init__(self, nodes: int) -> None:
        self.nodes = nodes
        self.names = [f"n{number:03d}" for number in range(nodes)]
        self._random = random.Random(512)
        self.dead_nic = (nodes * 37 // 512, 3)
        self.slow_node = nodes * 100 // 512 + 1
        self.lost_node = nodes * 200 // 512 + 2
        self.cut_rack = range(nodes * 5 // 8, nodes * 11 // 16)

    def endpoint(self, rank: int) -> str:
        return f"{self.names[rank // GPUS]}:{rank % GPUS}"

    def pairs(self) -> Iterator[tuple[int, int]]:
        """Yield ordered pairs of ranks, those that can run at once together."""
        total = self.nodes * GPUS
        for shift in range(1, GPUS):
            yield from ((rank, rank ^ shift) for rank in range(total))
        if self.nodes <= _ALL_UP_TO:
            for shift, step in itertools.product(range(GPUS), range(1, self.nodes)):
                yield from ((rank, rank ^ (step * GPUS + shift)) for rank in range(total))
        else:
            for step in range(1, self.nodes):
                for node in range(self.nodes):
                    rank = node * GPUS + step % GPUS
                    yield rank, rank ^ (step * GPUS)

    def measure(self, src: int, dst: int, when: float) -> Measurement:
        a, b = divmod(src, GPUS), divmod(dst, GPUS)
        kind = "node" if a[0] == b[0] else "rail" if a[1] == b[1] else "cross"
        value, transport = _CLASSES[kind]
        value *= 1 + self._random.gauss(0, 0.012)
        verdict, error = Verdict.OK, None
        if a[0] != b[0] and self.dead_nic in (a, b):
            verdict, error = Verdict.FAILED, "transfer: ibv_modify_qp failed with 110 Connection timed out"
        elif kind == "cross" and a[0] in self.cut_rack and b[0] not in self.cut_rack:
            verdict, error = Verdict.TIMEOUT, "connect: timed out after 5.0 s"
        elif a[0] != b[0] and self.slow_node in (a[0], b[0]):
            value *= 0.42
        elif self._random.random() < 0.0003:
            verdict, error = Verdict.TIMEOUT, "transfer: timed out after 10.0 s"
        elif self._random.random() < 0.0005:
            value *= 0.3
        return Measurement(
            Layer.P2P,
            self.endpoint(src),
            self.endpoint(dst),
            verdict,
            round(value, 2) if verdict is Verdict.OK else None,
            "GB/s",
            256 << 20,
            when,
            HOW,
            transport=transport if verdict is Verdict.OK else None,
            error=error,
        )


def events_of(fabric: Fabric, results: int | None, rate: float) -> Iterator[Event]:
    """Yield the events of a synthetic session.

    Args:
        fabric: What is tested.
        results: How many results there are, or None for all.
        rate: Results a second.
    """
    yield SessionStart(
        time=BEGAN, format=FORMAT, version=__version__, nodes=fabric.names, options={}, faults=[], synthetic=HOW
    )
    for name in fabric.names:
        yield NodeUpdate(time=BEGAN, node=name, state=NodeState.READY, text="")
    endpoints = [
        Endpoint(
            rank,
            fabric.names[rank // GPUS],
            rank % GPUS,
            name="synthetic GPU",
            nic=f"mlx5_{rank % GPUS}",
            rail=rank % GPUS,
        )
        for rank in range(fabric.nodes * GPUS)
    ]
    yield EndpointsAdded(time=BEGAN + 0.1, endpoints=endpoints, notes={})
    total = fabric.nodes * GPUS * (GPUS - 1)
    total += fabric.nodes * (fabric.nodes - 1) * (GPUS * GPUS if fabric.nodes <= _ALL_UP_TO else 1)
    total = min(total, results or total)
    yield PhaseStart(time=BEGAN + 0.2, name="p2p", total=total)
    when = BEGAN + 0.2
    chosen = itertools.islice(fabric.pairs(), total)
    lost = False
    for number in itertools.count():
        some = list(itertools.islice(chosen, _ROUND))
        if not some:
            break
        yield PairsStarted(time=when, pairs=[(fabric.endpoint(a), fabric.endpoint(b)) for a, b in some])
        when += len(some) / rate
        found = [fabric.measure(*pair, when) for pair in some]
        yield Measured(time=when, measurements=found)
        if number * _ROUND > total * 3 // 4 and not lost:
            lost = True
            name = fabric.names[fabric.lost_node]
            text = "the connection was cut"
            yield NodeUpdate(time=when, node=name, state=NodeState.LOST, text=text)
            yield LogEntry(time=when, level="error", node=name, text=text)
    yield PhaseStart(time=when, name="done", total=0)
    yield SessionEnd(time=when, exit=1, text="")


def write(path: Path, nodes: int = 512, results: int | None = None, rate: float = 2000.0) -> None:
    journal = Journal(path)
    batch: list[Event] = []
    for seq, one in enumerate(events_of(Fabric(nodes), results, rate)):
        batch.append(replace(one, seq=seq))
        if len(batch) >= 50:
            journal.append(batch)
            batch.clear()
    journal.append(batch)
    journal.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="the recording to write (.jsonl.gz)")
    parser.add_argument("--nodes", type=int, default=512, help="nodes of eight GPUs, a power of two (512)")
    parser.add_argument("--results", type=int, help="maximum number of results (all)")
    parser.add_argument("--rate", type=float, default=2000.0, help="results a second (2000)")
    given = parser.parse_args()
    if given.nodes < 2 or given.nodes & (given.nodes - 1):
        parser.error("--nodes: a power of two")
    write(given.out, given.nodes, given.results, given.rate)
    print(f"{given.out}: {given.out.stat().st_size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
