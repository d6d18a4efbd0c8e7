"""Buffer layout of collectives, with sizes as nccl-tests counts them. Pure functions."""

from __future__ import annotations

from typing import List, NamedTuple

from fabtui_node.ranks.measure.verify import Piece

KINDS = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast", "sendrecv")
ADDING = ("all_reduce", "reduce_scatter")
"""Collectives whose result is a sum, not a copy."""

TWICE = ("alltoall", "sendrecv")
"""Collectives that do not work in place: they need separate memory for outgoing and incoming data."""

WORD = 4
"""Bytes of a float32 value."""


class Shape(NamedTuple):
    """Sizes of a collective at one rank.

    Attributes:
        kind: One of ``KINDS``.
        ranks: Number of ranks.
        values: Number of values that one rank contributes or receives: one chunk, if the message is split by ranks.
        bytes: Bytes of the message, the size in nccl-tests.
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
    """Return the shape of a collective for a requested size.

    The size is rounded down to equal chunks of a multiple of 16 bytes, at least one.

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
    """Return the sources of the data that a rank has received; for collectives that copy."""
    if form.kind == "all_gather":
        return [Piece(rank * form.chunk, form.chunk, rank, rank) for rank in range(form.ranks)]
    if form.kind == "alltoall":
        return [Piece(rank * form.chunk, form.chunk, rank, me) for rank in range(form.ranks)]
    if form.kind == "broadcast":
        return [Piece(0, form.bytes, 0, 0)]
    return [Piece(0, form.bytes, (me - 1) % form.ranks, me)]
