"""The collectives as nccl-tests counts them: what one rank's buffer holds, and whose data is where in it. Pure."""

from __future__ import annotations

from typing import List, NamedTuple

from fabtui_node.ranks.measure.verify import Piece

KINDS = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast", "sendrecv")
ADDING = ("all_reduce", "reduce_scatter")
"""Collectives that compute: what arrives is a sum, not a copy."""

TWICE = ("alltoall", "sendrecv")
"""Collectives that do not work in place: they need memory for what goes out and for what comes in."""

WORD = 4
"""Bytes of a value: all of them are float32."""


class Shape(NamedTuple):
    """How much of a collective's message one rank holds.

    Attributes:
        kind: One of ``KINDS``.
        ranks: How many take part.
        values: How many values one rank contributes or receives: a chunk where the message is cut by ranks.
        bytes: Of the whole message, what nccl-tests calls its size.
    """

    kind: str
    ranks: int
    values: int
    bytes: int

    @property
    def chunk(self) -> int:
        """Bytes of ``values``."""
        return WORD * self.values


def shape(kind: str, size: int, ranks: int) -> Shape:
    """Return the shape of a collective for a size that was asked for.

    The size is rounded down to what the ranks divide, in chunks of a multiple of 16 bytes, and never down to nothing.

    Raises:
        ValueError: There is no such collective.
    """
    if kind not in KINDS:
        raise ValueError("no collective %r" % kind)
    if kind in ("all_reduce", "broadcast", "sendrecv"):
        count = max(1, size // WORD)
        return Shape(kind, ranks, count, WORD * count)
    count = max(4, size // WORD // ranks // 4 * 4)
    return Shape(kind, ranks, count, WORD * count * ranks)


def arrived(form: Shape, me: int) -> List[Piece]:
    """Return whose data the message of a rank consists of afterwards; for collectives that copy."""
    if form.kind == "all_gather":
        return [Piece(rank * form.chunk, form.chunk, rank, rank) for rank in range(form.ranks)]
    if form.kind == "alltoall":
        return [Piece(rank * form.chunk, form.chunk, rank, me) for rank in range(form.ranks)]
    if form.kind == "broadcast":
        return [Piece(0, form.bytes, 0, 0)]
    return [Piece(0, form.bytes, (me - 1) % form.ranks, me)]
