"""Collectives over a communicator of GPUs, with results that are checked, and links within it."""

from __future__ import annotations

import array
import time
from typing import Callable, Dict, List, Optional

from fabtui_node.ranks import base
from fabtui_node.ranks.base import CONNECT, TRANSFER, Collected, Failed
from fabtui_node.ranks.measure.collective_sizes import ADDING, TWICE, Shape, arrived, shape
from fabtui_node.ranks.nccl import log_capture, log_parser, verify
from fabtui_node.ranks.nccl.communicator import Member
from fabtui_node.ranks.nccl.ctypes_cuda import CudaError
from fabtui_node.ranks.nccl.ctypes_nccl import MIN, NcclError, Transfer
from fabtui_node.ranks.nccl.transfer import NcclLink

BUDGET = 0.3
"""Seconds of timed iterations of one size."""

MOST = 1000
"""Timed iterations at most: their number is agreed upon as a float32."""

HELLO = 64
"""Bytes of the message that makes a connection."""


class NcclGroup(base.Group):
    """A communicator of many ranks."""

    def __init__(self, member: Member, ranks: List[int]) -> None:
        self._member = member
        self._endpoint = member.endpoint
        self._device = member.endpoint.device
        self._ranks = ranks
        self._mark = 0

    def _guard(self, what: str, end: float, work: Callable[[], None], phase: str = TRANSFER) -> None:
        began = time.monotonic()
        try:
            work()
            self._member.wait(end)
        except (NcclError, CudaError) as error:
            raise self._member.failed(phase, what, error, time.monotonic() - began) from None

    # -- links

    def meet(self, peers: List[int], end: float) -> None:
        """Make all connections by one group call: NCCL makes each by itself when it is first used otherwise."""
        try:
            data = self._endpoint.data(HELLO * len(self._ranks))
        except CudaError as error:
            raise Failed(CONNECT, str(error), kind=error.kind) from None
        transfers = []
        for peer in peers:
            other = self._ranks.index(peer)
            transfers.append(Transfer(True, self._endpoint.small, HELLO, other))
            transfers.append(Transfer(False, data + HELLO * other, HELLO, other))
        what = "the connections to %d ranks did not all come about" % len(peers)
        self._guard(what, end, lambda: self._member.comm.together(transfers, self._device.stream, end), CONNECT)
        self._member.survey()

    def link(self, peer: int) -> NcclLink:
        """Return a link to another rank within this communicator."""
        return NcclLink(self._member, peer, self._ranks.index(peer), alone=False)

    # -- collectives

    def collective(self, kind: str, size: int, iters: int, warmup: int, end: float) -> Collected:
        """Check one result exactly, warm up, then time as many as fit the budget and check what they come to."""
        form = shape(kind, size, self._member.size)
        self._mark = self._endpoint.engine.log.mark()
        try:
            data = self._endpoint.data(form.bytes)
            source = self._endpoint.source(form.bytes) if kind in TWICE else 0
        except CudaError as error:
            raise Failed(TRANSFER, str(error), kind=error.kind) from None
        run = self._queue(form, data, source, end)
        self._fill(form, data, end)
        each = max(self._timed(form, 1, run, end))
        wrong = self._wrong(form, data, 1, end)
        for _ in range(warmup - 1):
            each = max(self._timed(form, 1, run, end))
        timed = min(MOST, base.fitting(each, min(BUDGET, base.remaining(end) / 3), iters))
        if kind == "all_reduce":
            # Every sum multiplies by the number of ranks: never so many that it overflows.
            timed = base.bounded_sums(self._member.size, timed + 1) - 1
        timed = max(1, self._least(timed, end))
        self._fill(form, data, end)
        self._least(timed, end)
        # One more goes first, untimed: the first of a row takes longer.
        laps = self._timed(form, timed + 1, run, end)[1:]
        wrong += self._wrong(form, data, timed + 1, end)
        lines = self._endpoint.engine.log.since(self._mark, self._device.ordinal)
        chosen = None if kind in TWICE else log_parser.choice(lines)
        return Collected(form.bytes, sum(laps) / len(laps), min(laps), wrong, self._ways(), chosen)

    def _queue(self, form: Shape, data: int, source: int, end: float) -> Callable[[], None]:
        """Return what queues one iteration."""
        comm, me, stream = self._member.comm, self._member.me, self._device.stream
        if form.kind in TWICE:
            transfers = self._transfers(form, data, source)
            return lambda: comm.together(transfers, stream, end)
        calls: Dict[str, Callable[[], None]] = {
            "all_reduce": lambda: comm.all_reduce(data, form.values, stream, end),
            "all_gather": lambda: comm.all_gather(data, form.values, me, stream, end),
            "reduce_scatter": lambda: comm.reduce_scatter(data, form.values, me, stream, end),
            "broadcast": lambda: comm.broadcast(data, form.values, stream, end),
        }
        return calls[form.kind]

    def _transfers(self, form: Shape, data: int, source: int) -> List[Transfer]:
        me, ranks, chunk = self._member.me, self._member.size, form.chunk
        if form.kind == "sendrecv":
            after, before = (me + 1) % ranks, (me - 1) % ranks
            begin = source + verify.shift(me, after)
            return [Transfer(True, begin, form.bytes, after), Transfer(False, data, form.bytes, before)]
        transfers = []
        for rank in range(ranks):
            # Every rank's chunk lies in memory of its own, at the place where the pattern is the one for that rank.
            offset = rank * chunk
            offset += (verify.shift(me, rank) - offset) % verify.PERIOD
            transfers.append(Transfer(True, source + offset, chunk, rank))
            transfers.append(Transfer(False, data + rank * chunk, chunk, rank))
        return transfers

    def _fill(self, form: Shape, data: int, end: float) -> None:
        """Queue the making of what this rank contributes; the rest is blank."""
        device, me = self._device, self._member.me
        if form.kind in ADDING:
            at, length, tile = data, form.bytes, verify.reduce_tile(me)
        else:
            device.fill(data, verify.BLANK, form.bytes)
            if form.kind == "all_gather":
                at, length, tile = data + me * form.chunk, form.chunk, verify.tile(me, me)
            elif form.kind == "broadcast" and me == 0:
                at, length, tile = data, form.bytes, verify.tile(0, 0)
            else:
                return

        def work() -> None:
            device.upload(at, tile, min(len(tile), length))
            device.spread(at, len(tile), length)

        self._guard("the data could not be made", end, work)

    def _least(self, number: int, end: float) -> int:
        """Return the least of the numbers that all ranks bring; also a barrier."""
        note, small, device = self._endpoint.note, self._endpoint.small, self._device
        note[:4] = array.array("f", [number]).tobytes()

        def work() -> None:
            device.upload(small, note, 4)
            self._member.comm.all_reduce(small, 1, device.stream, end, MIN)
            device.download(note, small, 4)

        self._guard("the ranks did not come together", end, work)
        return int(array.array("f", bytes(note[:4]))[0])

    def _timed(self, form: Shape, times: int, run: Callable[[], None], end: float) -> List[float]:
        """Return the seconds of so many iterations in a row."""
        device = self._device
        events = device.events(times + 1)

        def work() -> None:
            # NCCL takes longer to queue a small message than a GPU to send it.
            release = device.hold() if times > 1 else None
            try:
                if times > 1:
                    # The ranks are not released at one instant; in a ring that would reach those further away only in
                    # later iterations, which count (0.25 ms in each of twenty, on 8 H200s).
                    self._member.comm.all_reduce(self._endpoint.small, 1, device.stream, end, MIN)
                device.record(events[0])
                for event in events[1:]:
                    run()
                    device.record(event)
            finally:
                if release is not None:
                    release()

        self._guard("%s of %d bytes did not finish" % (form.kind, form.bytes), end, work)
        return device.laps(events)

    def _wrong(self, form: Shape, data: int, rounds: int, end: float) -> int:
        """Return how many values are wrong among those looked at, after so many iterations."""
        me, ranks = self._member.me, self._member.size
        if form.kind == "all_reduce":
            where, total = verify.blocks(form.bytes), verify.sums(ranks, rounds)
        elif form.kind == "reduce_scatter":
            inner = verify.blocks(form.chunk)
            where = [(offset + me * form.chunk, length) for offset, length in inner]
            total = verify.scattered(ranks, rounds, me)
        else:
            looked = verify.piece_blocks(arrived(form, me))
            where = [(piece.offset + offset, length) for piece, blocks in looked for offset, length in blocks]
            return verify.words_wrong(self._fetch(data, where, end), looked)
        # Sums over a number of ranks that is no power of two round a little more with each iteration.
        rounding = 0.0 if max(total) < 2**24 or ranks & (ranks - 1) == 0 else 2.0**-22 * ranks * rounds
        return verify.count_wrong(self._fetch(data, where, end), where, total, rounding)

    def _fetch(self, data: int, where: verify.Blocks, end: float) -> bytes:
        def fetch() -> None:
            at = 0
            for offset, length in where:
                self._device.download(self._endpoint.sample, data + offset, length, at)
                at += length

        self._guard("the result could not be read back", end, fetch)
        return bytes(self._endpoint.sample)

    def _ways(self) -> Optional[str]:
        """Return the ways out of this GPU that NCCL named, the worst first."""
        self._member.survey()
        nics = self._endpoint.engine.log.nics()
        me = self._member.me
        found = {via for (src, _, sending), vias in self._member.ways.items() if src == me and sending for via in vias}
        names: List[str] = []
        for via in sorted(found, key=lambda via: (-log_parser.rank_of_way(via), via)):
            name = log_parser.name_way(via, nics)
            if name not in names:
                names.append(name)
        return " + ".join(names) or None

    def log(self) -> Optional[str]:
        """Return NCCL's warnings and connections of this group."""
        return log_capture.summary(self._member.lines()) or None

    def close(self, broken: bool) -> Optional[str]:
        """Let go of the communicator."""
        self._member.leave(broken)
        return None
