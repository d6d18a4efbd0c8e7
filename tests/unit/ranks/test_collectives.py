"""Buffer layout of collectives: sizes of nccl-tests and sources of the data."""

from __future__ import annotations

import pytest

from fabtui_node.ranks import base
from fabtui_node.ranks.measure import groups, verify
from fabtui_node.ranks.measure.verify import KINDS, arrived, shape


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ranks", [1, 2, 3, 8, 1000])
@pytest.mark.parametrize("size", [1, 8, 1000, 1 << 20, (1 << 20) + 7])
def test_a_size_is_rounded_down_to_what_the_ranks_divide(kind: str, ranks: int, size: int) -> None:
    form = shape(kind, size, ranks)
    cut = kind in ("all_gather", "reduce_scatter", "alltoall")
    assert form.bytes == form.chunk * (ranks if cut else 1)
    assert form.bytes > 0
    if cut:
        assert form.chunk % 16 == 0
    if size >= 16 * ranks:
        assert size - form.bytes < (16 * ranks if cut else 4)
        assert form.bytes <= size


def test_an_unknown_collective() -> None:
    with pytest.raises(ValueError, match="no collective 'gossip'"):
        groups.parse({"kind": "gossip", "ranks": [0, 1], "sizes": [8], "iters": 1, "warmup": 1})


@pytest.mark.parametrize("kind", ["all_gather", "alltoall", "broadcast", "sendrecv"])
def test_what_arrived_covers_the_message(kind: str) -> None:
    form = shape(kind, 1 << 20, 4)
    pieces = arrived(form, 2)
    assert sum(piece.length for piece in pieces) == form.bytes
    assert [piece.offset for piece in pieces] == [number * pieces[0].length for number in range(len(pieces))]
    sources = {"all_gather": [0, 1, 2, 3], "alltoall": [0, 1, 2, 3], "broadcast": [0], "sendrecv": [1]}
    assert [piece.src for piece in pieces] == sources[kind]


def test_every_kind_is_known_once() -> None:
    assert set(verify.TWICE) | set(verify.ADDING) < set(KINDS)
    assert len(set(KINDS)) == 6


def test_times_are_summed_up() -> None:
    assert base.summarize([]) is None
    assert base.summarize([2.0]) == {"count": 1, "min": 2.0, "median": 2.0, "p99": 2.0, "max": 2.0}
    found = base.summarize([float(number) for number in range(1000, 0, -1)])
    assert found == {"count": 1000, "min": 1.0, "median": 500.5, "p99": 990.0, "max": 1000.0}
