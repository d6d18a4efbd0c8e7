"""Test data of GPU ranks and its verification. Pure functions of bytes."""

from __future__ import annotations

import array
import hashlib
import threading
from typing import List, NamedTuple, Optional, Tuple

PERIOD = 16 * 65521
"""Bytes after which the pattern repeats: no multiple of NCCL's chunks, so a chunk in the wrong place is noticed."""

BLOCK = 65536
SAMPLE = 16 * BLOCK
BLANK = 0xA5

STEPS = 61
"""Number of values of the all_reduce pattern: small integers, whose sums are exact in float32."""

Blocks = List[Tuple[int, int]]

Piece = NamedTuple("Piece", [("offset", int), ("length", int), ("src", int), ("dst", int)])
"""Bytes of a buffer that ``src`` sent to ``dst``."""

_lock = threading.Lock()
_base = b""


def _pattern() -> bytes:
    """Return two periods of the pattern and a block, so that any part of it is one slice."""
    global _base
    with _lock:
        if not _base:
            period = hashlib.shake_128(b"fabtui").digest(PERIOD)
            _base = period + period + period[:BLOCK]
    return _base


def _shift(src: int, dst: int) -> int:
    return (src * 7919 + dst * 104729 + 1) * 16 % PERIOD


def tile(src: int, dst: int) -> bytes:
    """Return one period of what ``src`` sends to ``dst``."""
    start = _shift(src, dst)
    return _pattern()[start : start + PERIOD]


def base() -> bytes:
    """Return bytes that begin with one full period and are never freed.

    In memory that repeats that period, the data from ``src`` to ``dst`` begins at ``shift``.
    """
    return _pattern()


def shift(src: int, dst: int) -> int:
    """Return the offset of a message in the pattern; a multiple of 16."""
    return _shift(src, dst)


def blocks(size: int, most: int = SAMPLE) -> Blocks:
    """Return offset and length of the blocks to check: all of a small message, both ends and strides of a large one.

    Args:
        size: Bytes of the message.
        most: Maximum number of bytes to check; at least 64.
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


def words_wrong(sample: bytes, checked: List[Tuple[Piece, Blocks]]) -> int:
    """Return the number of 4-byte values of a sample that differ from the data sent.

    Args:
        sample: The blocks of all pieces, one behind the other.
        checked: The pieces and their blocks, as ``piece_blocks`` returned them.
    """
    pattern, wrong, at = _pattern(), 0, 0
    for piece, where in checked:
        for offset, length in where:
            start = (offset + _shift(piece.src, piece.dst)) % PERIOD
            got, sent = sample[at : at + length], pattern[start : start + length]
            at += length
            if got != sent:
                wrong += sum(got[i : i + 4] != sent[i : i + 4] for i in range(0, length, 4))
    return wrong


def compare(sample: bytes, where: Blocks, src: int, dst: int) -> Optional[str]:
    """Return how a sample differs from the data sent; None if it does not."""
    pattern, shift, at = _pattern(), _shift(src, dst), 0
    for offset, length in where:
        start = (offset + shift) % PERIOD
        got, sent = sample[at : at + length], pattern[start : start + length]
        if got != sent:
            wrong = [index for index in range(length) if got[index] != sent[index]]
            blank = all(got[index] == BLANK for index in wrong)
            return "%d of %d bytes checked around offset %d are wrong, the first at %d%s" % (
                len(wrong),
                length,
                offset,
                offset + wrong[0],
                ": nothing was written there" if blank else "",
            )
        at += length
    return None


def reduce_tile(rank: int) -> bytes:
    """Return one period of a rank's contribution to an all_reduce: float32, ``index % STEPS + rank``."""
    return array.array("f", [float(step + rank) for step in range(STEPS)] * 64).tobytes()


def sums(ranks: int, rounds: int) -> List[float]:
    """Return the all_reduce pattern after ``rounds`` in-place sums in a row over all ranks."""
    factor = float(ranks) ** (rounds - 1)
    return [(step * ranks + ranks * (ranks - 1) // 2) * factor for step in range(STEPS)]


def expected_sums(kind: str, ranks: int, rounds: int, me: int) -> Tuple[List[float], float]:
    """Return the values of one period after in-place sums, and the relative error to allow.

    Args:
        kind: ``all_reduce`` or ``reduce_scatter``.
        ranks: Number of ranks.
        rounds: Number of sums in a row.
        me: This rank.
    """
    total = sums(ranks, rounds) if kind == "all_reduce" else scattered(ranks, rounds, me)
    exact = max(total) < 2**24 or ranks & (ranks - 1) == 0
    # Sums over a number of ranks that is not a power of two round a little more with each iteration.
    return total, 0.0 if exact else 2.0**-22 * ranks * rounds


def scattered(ranks: int, rounds: int, me: int) -> List[float]:
    """Return a rank's own part after ``rounds`` in-place reduce_scatters in a row."""
    others = [step * (ranks - 1) + ranks * (ranks - 1) // 2 - me for step in range(STEPS)]
    return [float(step + me + rounds * others[step]) for step in range(STEPS)]


def count_wrong(sample: bytes, where: Blocks, total: List[float], rounding: float = 0.0) -> int:
    """Return the number of wrong float32 values of a sample.

    Args:
        sample: The blocks, one behind the other.
        where: Their offsets and lengths in bytes, multiples of 4, within the buffer where the pattern begins.
        total: Expected values of one period of the pattern.
        rounding: Relative error to allow if the values are not exact in float32.
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
