"""A rank over torch.distributed, and collectives of many; results are checked completely."""

from __future__ import annotations

import threading
import time
from typing import Any, Callable, Dict, List, Optional

from fabtui_node.protocol import ErrorKind
from fabtui_node.ranks.base import CONNECT, TRANSFER, Failed, Rank, Task
from fabtui_node.ranks.engine import PairLink, RankEndpoint, RankGroup
from fabtui_node.ranks.measure import verify
from fabtui_node.ranks.measure.verify import ADDING, TransferShape, arrived
from fabtui_node.ranks.torch.engine import TorchEngine, failure
from fabtui_node.ranks.torch.transfer import TorchLink

PERIOD = 4099
"""Period (values) of the pattern of copied data: prime."""

TAGS = 1 << 20
"""Tags for the messages of one pair of ranks; torch matches messages by tag."""


class TorchGroup(RankGroup):
    """A process group of many ranks."""

    def __init__(self, engine: TorchEngine, group: Any, rank: int, ranks: List[int]) -> None:
        super().__init__(ranks, ranks.index(rank))
        self._engine = engine
        self._torch, self._dist = engine.torch, engine.dist
        self._group = group
        self._rank, self._size = rank, len(ranks)
        self._links: Dict[int, TorchLink] = {}

    def connect(self, peers: List[int], end: float) -> None:
        """Send each peer a small message and receive one of each, in the order in which both sides reach it."""
        note = self._torch.zeros(8, dtype=self._torch.uint8, device=self._engine.device)
        received = note.clone()
        for turn in range(1, self._size):
            # In turn t every rank sends t ranks up and receives from t ranks down: no ring of ranks that wait.
            to, source = (self._me + turn) % self._size, (self._me - turn) % self._size
            sends, receives = self._ranks[to] in peers, self._ranks[source] in peers
            works = []
            try:
                if sends and receives:
                    works = self._engine.exchange(self._group, note, to, received, source, TAGS - 1)
                elif sends:
                    works = [self._engine.begin(self._group, True, note, to, TAGS - 1, True)]
                elif receives:
                    works = [self._engine.begin(self._group, False, received, source, TAGS - 1, True)]
                for work in works:
                    self._engine.finish(work, end)
            except Exception as error:
                what = "no connection to rank %d or %d" % (self._ranks[to], self._ranks[source])
                raise failure(CONNECT, what, error) from None

    def link(self, peer: int) -> PairLink:
        """Return the link to another rank within this group; both directions share it, and its tags."""
        if peer not in self._links:
            ends, indices = (self._rank, peer), (self._me, self._ranks.index(peer))
            self._links[peer] = TorchLink(self._engine, self._group, ends, indices, inside=True)
        return self._links[peer]

    def _allocate(self, form: TransferShape) -> Any:
        return self._torch.empty(form.bytes // 4, dtype=self._torch.float32, device=self._engine.device)

    def _iteration(self, form: TransferShape, buffer: Any, end: float) -> Callable[[], List[Any]]:
        group, dist, me = self._group, self._dist, self._me
        own = buffer[me * form.values : (me + 1) * form.values]
        if form.kind == "all_reduce":
            return lambda: [group.allreduce([buffer], dist.AllreduceOptions())]
        if form.kind == "all_gather":
            return lambda: [group._allgather_base(buffer, own)]
        if form.kind == "reduce_scatter":
            return lambda: [group._reduce_scatter_base(own, buffer)]
        if form.kind == "broadcast":
            options = dist.BroadcastOptions()
            options.rootRank, options.rootTensor = 0, 0
            return lambda: [group.broadcast([buffer], options)]
        if form.kind == "alltoall":
            out = self._torch.cat([self._copied(me, rank, form.values) for rank in range(self._size)])
            return lambda: [group.alltoall_base(buffer, out, [], [])]
        after, before = (me + 1) % self._size, (me - 1) % self._size
        out = self._copied(me, after, form.values)
        return lambda: self._engine.exchange(group, out, after, buffer, before, TAGS)

    def _timed(self, form: TransferShape, times: int, run: Callable[[], List[Any]], end: float) -> List[float]:
        laps = []
        began = time.monotonic()
        try:
            for _ in range(times):
                start = time.perf_counter()
                for work in run():
                    self._engine.finish(work, end)
                laps.append(time.perf_counter() - start)
        except Exception as error:
            what = "%s of %d bytes did not finish" % (form.kind, form.bytes)
            raise failure(TRANSFER, what, error, time.monotonic() - began) from None
        return laps

    def _minimum(self, number: int, end: float) -> int:
        note = self._torch.tensor([number], dtype=self._torch.int64, device=self._engine.device)
        options = self._dist.AllreduceOptions()
        options.reduceOp = self._dist.ReduceOp.MIN
        try:
            self._engine.finish(self._group.allreduce([note], options), end)
        except Exception as error:
            raise failure(TRANSFER, "not all ranks reached the barrier", error) from None
        return int(note[0])

    def _algorithm(self) -> Optional[str]:
        return self._engine.algorithm()

    def _transports(self) -> Optional[str]:
        return self._engine.transports_of(self._me)

    def _repeated(self, tile: Any, count: int) -> Any:
        return tile.to(self._torch.float32).repeat(count // tile.numel() + 1)[:count]

    def _steps(self, period: int) -> Any:
        return self._torch.arange(period, dtype=self._torch.int64, device=self._engine.device)

    def _copied(self, src: int, dst: int, count: int) -> Any:
        """Return what one rank sends to another: integers that float32 holds, unique per place and pair of ranks."""
        return self._repeated(self._steps(PERIOD) * 1024 + (src * 37 + dst * 101 + 1) % 1024, count)

    def _fill(self, form: TransferShape, buffer: Any, end: float) -> None:
        me, chunk = self._me, form.values
        if form.kind in ADDING:
            buffer.copy_(self._repeated(self._steps(verify.STEPS) + me, buffer.numel()))
            return
        buffer.fill_(-1.0)
        if form.kind == "all_gather":
            buffer[me * chunk : (me + 1) * chunk].copy_(self._copied(me, me, chunk))
        elif form.kind == "broadcast" and me == 0:
            buffer.copy_(self._copied(0, 0, chunk))

    def _wrong(self, form: TransferShape, buffer: Any, rounds: int, end: float) -> int:
        me = self._me
        if form.kind not in ADDING:
            wrong = 0
            for piece in arrived(form, me):
                got = buffer[piece.offset // 4 : (piece.offset + piece.length) // 4]
                wrong += int((got != self._copied(piece.src, piece.dst, got.numel())).sum())
            return wrong
        total, rounding = verify.expected_sums(form.kind, self._size, rounds, me)
        expected = self._repeated(self._torch.tensor(total, device=buffer.device), buffer.numel())
        if form.kind == "reduce_scatter":
            own = slice(me * form.values, (me + 1) * form.values)
            buffer, expected = buffer[own], expected[own]
        if not rounding:
            return int((buffer != expected).sum())
        return int((~self._torch.isclose(buffer, expected, rtol=rounding, atol=0.0)).sum())

    def close(self, broken: bool) -> None:
        """Release the group."""
        self._links.clear()
        group, self._group = self._group, None
        if group is not None:
            self._engine.discard(group, broken)


OVERTIME = 1.0
"""Seconds past its deadline after which a wait in torch is abandoned."""


class TorchEndpoint(RankEndpoint):
    """A rank over torch.distributed."""

    def __init__(self, rank: Rank, engine: TorchEngine) -> None:
        super().__init__(rank)
        self._engine = engine

    def run(self, task: Task, work: Callable[[], Any], phase: str, end: float) -> Any:
        """Return the result of ``work``, or abandon it when the task is cancelled or it hangs past its end.

        Torch's waits are in C++ and cannot be cancelled, so the work runs in a thread of its own (about 50 us each).
        """
        box: List[Any] = []
        done = threading.Event()

        def body() -> None:
            try:
                self._engine.enter()
                box.append((work(), None))
            except BaseException as error:
                box.append((None, error))
            done.set()

        threading.Thread(target=body, daemon=True).start()
        while not done.wait(0.05):
            if task.cancelled:
                raise Failed(phase, "cancelled: a peer is gone", kind=ErrorKind.CANCELLED)
            if time.monotonic() > end + OVERTIME:
                raise Failed(phase, "torch still waits %.0f s after the deadline" % OVERTIME, timeout=True)
        value, error = box[0]
        if error is not None:
            raise error
        return value

    def free_memory(self) -> Optional[int]:
        """Return the free memory of the GPU, as if torch had none for messages."""
        return self._engine.free_memory()

    def release(self, groups: bool) -> Optional[str]:
        """Release process groups."""
        return self._engine.release()

    def connect(
        self, task: Task, peer: int, peer_address: str, attempt: int, end: float, ctas: Optional[int] = None
    ) -> PairLink:
        """Make a process group of two."""
        me = self.rank.rank
        indices = (0, 1) if me < peer else (1, 0)
        group = self._engine.group(task, "link%d/" % attempt, indices[0], 2, end, self.rank.address, ctas)
        return TorchLink(self._engine, group, (me, peer), indices, (self.rank.address, peer_address))

    def join(self, task: Task, ranks: List[int], end: float, channels: Optional[int] = None) -> RankGroup:
        """Make a process group of many."""
        began = time.monotonic()
        own = self.rank.address
        group = self._engine.group(task, "group/", ranks.index(self.rank.rank), len(ranks), end, own)
        try:
            self._engine.joined(group, end)
        except Exception as error:
            self._engine.discard(group, True)
            what = "the communicator of %d ranks was not formed" % len(ranks)
            raise failure(CONNECT, what, error, time.monotonic() - began) from None
        return TorchGroup(self._engine, group, self.rank.rank, ranks)
