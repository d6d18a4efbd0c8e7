"""What GPU ranks send each other and how the receiving side checks it: pure functions of bytes."""

from __future__ import annotations

import array
import hashlib
import threading
from typing import List, Optional, Tuple

PERIOD = 16 * 65521
"""Bytes after which the pattern repeats: no multiple of any chunk NCCL cuts, so a chunk in the wrong place is seen."""

BLOCK = 65536
BLOCKS = 16
SAMPLE = BLOCK * BLOCKS
BLANK = 0xA5

STEPS = 61
"""Values of the all_reduce pattern: small integers, whose sums float32 holds exactly."""

Blocks = List[Tuple[int, int]]

_lock = threading.Lock()
_base = b""


def _pattern() -> bytes:
    """Return two periods of the pattern and a block, so that any cut of it is one slice."""
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


def blocks(size: int) -> Blocks:
    """Return offset and length of what to look at: all of a small message, both ends and strides of a large one."""
    if size <= SAMPLE:
        return [(offset, min(BLOCK, size - offset)) for offset in range(0, size, BLOCK)]
    last = size - BLOCK
    inner = [last * number // (BLOCKS - 1) // 16 * 16 for number in range(BLOCKS - 1)]
    return [(offset, BLOCK) for offset in [*inner, last]]


def compare(sample: bytes, where: Blocks, src: int, dst: int) -> Optional[str]:
    """Return how a sample differs from what was sent, None if it does not."""
    pattern, shift, at = _pattern(), _shift(src, dst), 0
    for offset, length in where:
        start = (offset + shift) % PERIOD
        got, sent = sample[at : at + length], pattern[start : start + length]
        if got != sent:
            wrong = [index for index in range(length) if got[index] != sent[index]]
            blank = all(got[index] == BLANK for index in wrong)
            return "%d of %d bytes looked at around offset %d are wrong, the first at %d%s" % (
                len(wrong),
                length,
                offset,
                offset + wrong[0],
                ": nothing was written there" if blank else "",
            )
        at += length
    return None


def reduce_tile(rank: int) -> bytes:
    """Return one period of what a rank puts into an all_reduce: float32, ``index % STEPS + rank``."""
    return array.array("f", [float(step + rank) for step in range(STEPS)] * 64).tobytes()


def count_wrong(sample: bytes, where: Blocks, ranks: int, rounds: int) -> int:
    """Return how many float32 values of a sample are not what so many sums in a row over all ranks give.

    Args:
        sample: The blocks, one behind the other.
        where: Their offsets and lengths in bytes, multiples of 4.
        ranks: How many ranks took part.
        rounds: How many in-place sums followed each other.
    """
    factor = float(ranks) ** (rounds - 1)
    total = [(step * ranks + ranks * (ranks - 1) // 2) * factor for step in range(STEPS)]
    wanted = array.array("f", total * (BLOCK // 4 // STEPS + 2)).tobytes()
    wrong, at = 0, 0
    for offset, length in where:
        start = offset // 4 % STEPS
        got = sample[at : at + length]
        at += length
        if got == wanted[start * 4 : start * 4 + length]:
            continue
        # Sums over a number of ranks that is no power of two round a little more with each round.
        for index, value in enumerate(array.array("f", got)):
            right = total[(start + index) % STEPS]
            if not abs(value - right) <= 1e-4 * abs(right):
                wrong += 1
    return wrong
