"""Buffer layout of collectives, with sizes as nccl-tests counts them; test data and its verification."""

from __future__ import annotations

import array
import hashlib
import zlib
from typing import Collection, List, NamedTuple, Optional, Tuple

from fabtui_node.parsers.lines import bytes_text
from fabtui_node.protocol import ErrorKind

#: Bytes after which the pattern repeats: no multiple of NCCL's chunks, so a chunk in the wrong place is noticed.
PERIOD = 16 * 65521
BLOCK = 65536
SAMPLE = 16 * BLOCK
BLANK = 0xA5

_PERIOD = hashlib.shake_128(b"fabtui").digest(PERIOD)
#: Two periods of the pattern and a block, so that any part of it is one slice; never freed.
PATTERN = _PERIOD + _PERIOD + _PERIOD[:BLOCK]
#: Number of values of the all_reduce pattern: small integers, whose sums are exact in float32.
STEPS = 61
KINDS = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast", "sendrecv")
#: Collectives whose result is a sum, not a copy.
ADDING = ("all_reduce", "reduce_scatter")
#: Collectives that do not work in place: they need separate memory for outgoing and incoming data.
TWICE = ("alltoall", "sendrecv")
#: Bytes of a float32 value.
WORD = 4
Blocks = List[Tuple[int, int]]

#: Bytes of a buffer that ``src`` sent to ``dst``.
Piece = NamedTuple("Piece", [("offset", int), ("length", int), ("src", int), ("dst", int)])


class TransferShape(NamedTuple):
    """Sizes of a collective at one rank."""

    kind: str  #: One of ``KINDS``.
    ranks: int  #: Number of ranks.
    values: int  #: Number of values that one rank contributes or receives: one chunk, if the message is split by ranks.
    bytes: int  #: Bytes of the message, the size in nccl-tests.

    @property
    def chunk(self) -> int:
        """Bytes of ``values``."""
        return WORD * self.values


def shape(kind: str, size: int, ranks: int) -> TransferShape:
    """Return the shape of a collective for a requested size.

    The size is rounded down to equal chunks of a multiple of 16 bytes, at least one.
    """
    if kind in ("all_reduce", "broadcast", "sendrecv"):
        count = max(1, size // WORD)
        return TransferShape(kind, ranks, count, WORD * count)
    count = max(4, size // WORD // ranks // 4 * 4)
    return TransferShape(kind, ranks, count, WORD * count * ranks)


def arrived(form: TransferShape, me: int) -> List[Piece]:
    """Return the sources of the data that a rank has received; for collectives that copy."""
    if form.kind == "all_gather":
        return [Piece(rank * form.chunk, form.chunk, rank, rank) for rank in range(form.ranks)]
    if form.kind == "alltoall":
        return [Piece(rank * form.chunk, form.chunk, rank, me) for rank in range(form.ranks)]
    if form.kind == "broadcast":
        return [Piece(0, form.bytes, 0, 0)]
    return [Piece(0, form.bytes, (me - 1) % form.ranks, me)]


def tile(src: int, dst: int, test: int) -> bytes:
    """Return one period of what ``src`` sends to ``dst`` in a test."""
    start = shift(src, dst, test)
    return PATTERN[start : start + PERIOD]


def shift(src: int, dst: int, test: int) -> int:
    """Return the offset of the data of a test from ``src`` to ``dst`` in memory that repeats the pattern.

    It is a multiple of 16 below `PERIOD`. Two tests have the same one in 1 of 65,521 cases.
    """
    return zlib.crc32(b"%d>%d/%d" % (src, dst, test)) % (PERIOD // 16) * 16


def blocks(size: int, most: int = SAMPLE) -> Blocks:
    """Return offset and length of the blocks to check: all of a small message, both ends and strides of a large one.

    ``most`` is the maximum number of bytes to check, at least 64.
    """
    block = min(BLOCK, most // 2 // 16 * 16)
    if size <= most:
        return [(offset, min(block, size - offset)) for offset in range(0, size, block)]
    number = most // block
    last = size - block
    inner = [last * turn // (number - 1) // 16 * 16 for turn in range(number - 1)]
    return [(offset, block) for offset in [*inner, last]]


def piece_blocks(pieces: List[Piece]) -> List[Tuple[Piece, Blocks]]:
    """Return the blocks to check of each piece of a message, within one sample in total."""
    most = max(64, SAMPLE // max(1, len(pieces)))
    return [(piece, blocks(piece.length, most)) for piece in pieces]


def words_wrong(sample: bytes, checked: List[Tuple[Piece, Blocks]], test: int) -> int:
    """Return the number of 4-byte values of a sample that differ from the data sent.

    The sample is the blocks of all pieces one behind the other, as ``piece_blocks`` returned them.
    """
    wrong, at = 0, 0
    for piece, where in checked:
        for offset, length in where:
            start = (offset + shift(piece.src, piece.dst, test)) % PERIOD
            got, sent = sample[at : at + length], PATTERN[start : start + length]
            at += length
            if got != sent:
                wrong += sum(got[i : i + 4] != sent[i : i + 4] for i in range(0, length, 4))
    return wrong


class DataDifference(NamedTuple):
    """Difference of received data from what was sent."""

    kind: ErrorKind  #: `ErrorKind.VERIFY`, `ErrorKind.STALE` or `ErrorKind.BLANK`.
    text: str


def checked_text(checked: int, size: int) -> str:
    """Return how much of a message was checked: ``the 1 MiB that were checked (message 256 MiB)``."""
    whole = "" if checked >= size else " (message %s)" % bytes_text(size)
    return "the %s that were checked%s" % (bytes_text(checked), whole)


def compare(
    sample: bytes, where: Blocks, size: int, start: int, earlier: Collection[int] = ()
) -> Optional[DataDifference]:
    """Return how a sample, the blocks of a message one behind the other, differs from what was sent, or None.

    ``start`` is the `shift` of what was sent, ``earlier`` those of other tests whose data this memory may have.
    """
    wrong, first, blank, stale = 0, -1, 0, 0
    at = 0
    for offset, length in where:
        begin = (offset + start) % PERIOD
        got, sent = sample[at : at + length], PATTERN[begin : begin + length]
        at += length
        if got == sent:
            continue
        places = [index for index in range(length) if got[index] != sent[index]]
        first = offset + places[0] if first < 0 else first
        wrong += len(places)
        blank += sum(got[index] == BLANK for index in places)
        stale += len(places) if _is_earlier(got, places, offset, earlier) else 0
    if not wrong:
        return None
    checked = checked_text(at, size)
    if blank == wrong:
        return DataDifference(
            ErrorKind.BLANK, "nothing arrived in %d bytes of %s, from offset %d on" % (wrong, checked, first)
        )
    if stale == wrong:
        text = "%d bytes of %s, from offset %d on, are data of an earlier test" % (wrong, checked, first)
        return DataDifference(ErrorKind.STALE, text)
    text = "%d %s wrong in %s, the first at %d" % (wrong, "byte" if wrong == 1 else "bytes", checked, first)
    return DataDifference(ErrorKind.VERIFY, text)


def _is_earlier(got: bytes, places: List[int], offset: int, earlier: Collection[int]) -> bool:
    """Return True if all wrong bytes of a block are data of one earlier test, or blank."""
    # Most starts fail at the first byte: a whole sample of wrong data costs no seconds.
    begins = [(offset + start) % PERIOD for start in earlier]
    return any(all(got[at] in (PATTERN[begin + at], BLANK) for at in places) for begin in begins)


def steps(test: int) -> List[int]:
    """Return one period of what all ranks of a test add, without their own number: another order in each test."""
    return [(step + test) % STEPS for step in range(STEPS)]


def reduce_tile(rank: int, test: int) -> bytes:
    """Return one period of a rank's contribution to an all_reduce: float32, a step plus the rank's number."""
    return array.array("f", [float(step + rank) for step in steps(test)] * 64).tobytes()


def expected_sums(kind: str, ranks: int, rounds: int, me: int, test: int) -> Tuple[List[float], float]:
    """Return the values of one period after ``rounds`` in-place sums in a row, and the relative error to allow.

    An all_reduce multiplies the sum by the number of ranks in each round; a reduce_scatter adds the other ranks' values
    to this rank's own part.
    """
    ranks_sum = ranks * (ranks - 1) // 2
    if kind == "all_reduce":
        factor = float(ranks) ** (rounds - 1)
        total = [(step * ranks + ranks_sum) * factor for step in steps(test)]
    else:
        total = [float(step + me + rounds * (step * (ranks - 1) + ranks_sum - me)) for step in steps(test)]
    exact = max(total) < 2**24 or ranks & (ranks - 1) == 0
    # Sums over a number of ranks that is not a power of two round a little more with each iteration.
    return total, 0.0 if exact else 2.0**-22 * ranks * rounds


def count_wrong(sample: bytes, where: Blocks, total: List[float], rounding: float = 0.0) -> int:
    """Return the number of wrong float32 values of a sample, the blocks of a buffer one behind the other.

    Offsets and lengths are bytes, multiples of 4. ``total`` are the values of one period of the pattern; ``rounding``
    is the relative error to allow if they are not exact in float32.
    """
    wanted = array.array("f", total * (BLOCK // 4 // STEPS + 2)).tobytes()
    wrong, at = 0, 0
    for offset, length in where:
        start = offset // 4 % STEPS
        got = sample[at : at + length]
        at += length
        if got == wanted[start * 4 : start * 4 + length]:
            continue
        for index, value in enumerate(array.array("f", got)):
            right = total[(start + index) % STEPS]
            if not abs(value - right) <= rounding * abs(right):
                wrong += 1
    return wrong
