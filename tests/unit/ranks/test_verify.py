"""The pattern that GPUs send, how a sample is judged, the layout of collectives and of NCCL's config."""

import array
import ctypes

import pytest

from fabtui_node.protocol import ErrorKind
from fabtui_node.ranks import base
from fabtui_node.ranks.measure import groups, verify
from fabtui_node.ranks.measure.verify import KINDS, arrived, shape
from fabtui_node.ranks.nccl import ctypes_nccl

#: Number of the test in progress.
TEST = 7


def differs(data: bytes | bytearray, size: int, *earlier: int) -> verify.DataDifference | None:
    blocks = verify.blocks(size)
    return verify.compare(sample(data, blocks), blocks, size, verify.shift(0, 1, TEST), earlier)


def message(src: int, dst: int, size: int) -> bytearray:
    tile = verify.tile(src, dst, TEST)
    return bytearray((tile * (size // len(tile) + 1))[:size])


def sample(data: bytes | bytearray, blocks: verify.Blocks) -> bytes:
    return b"".join(data[offset : offset + length] for offset, length in blocks)


@pytest.mark.parametrize("size", [1, 3, 65536, 65537, verify.SAMPLE, verify.SAMPLE + 1, 5_000_001])
def test_what_was_sent_passes(size: int) -> None:
    blocks = verify.blocks(size)
    assert blocks[0][0] == 0
    assert sum(blocks[-1]) == size
    assert all(length <= verify.BLOCK for _, length in blocks)
    assert len(sample(bytes(size), blocks)) <= verify.SAMPLE
    assert verify.compare(sample(message(3, 1, size), blocks), blocks, size, verify.shift(3, 1, TEST)) is None


def test_one_wrong_byte_is_named() -> None:
    data = message(0, 1, 1000)
    data[777] ^= 0x10
    text = "1 byte wrong in the 1000 B that were checked, the first at 777"
    assert differs(data, 1000) == (ErrorKind.VERIFY, text)


def test_how_much_was_checked_is_stated() -> None:
    data = message(0, 1, 4 << 20)
    data[:2] = bytes(byte ^ 1 for byte in data[:2])
    found = differs(data, 4 << 20)
    assert found is not None
    assert found.text == "2 bytes wrong in the 1 MiB that were checked (message 4 MiB), the first at 0"


def test_what_another_pair_sent_fails() -> None:
    for src, dst in ((1, 0), (0, 2), (2, 1)):
        assert differs(message(src, dst, 4096), 4096)


@pytest.mark.parametrize("whole", [True, False])
def test_data_of_an_earlier_test_is_no_wrong_data(whole: bool) -> None:
    size = 4 << 20
    tile = verify.tile(2, 1, 3)
    old = (tile * (size // len(tile) + 1))[:size]
    new = message(0, 1, size)
    data = bytearray(old) if whole else new[: size // 2] + old[size // 2 :]
    found = differs(data, size, verify.shift(5, 1, 2), verify.shift(2, 1, 3))
    assert found is not None
    assert found.kind is ErrorKind.STALE
    assert "are data of an earlier test" in found.text
    # One byte that is neither makes it wrong data.
    data[size - 100] ^= 0xFF
    changed = differs(data, size, verify.shift(2, 1, 3))
    assert changed is not None
    assert changed.kind is ErrorKind.VERIFY


def test_a_chunk_in_the_wrong_place_is_wrong_data() -> None:
    size, chunk = 4 << 20, 512 << 10
    data = message(0, 1, size)
    data[0:chunk], data[chunk : 2 * chunk] = data[chunk : 2 * chunk], data[0:chunk]
    found = differs(data, size, verify.shift(2, 1, 3))
    assert found is not None
    assert found.kind is ErrorKind.VERIFY


def test_data_that_never_came_is_reported() -> None:
    found = differs(bytes([verify.BLANK]) * 4096, 4096)
    assert found is not None
    assert found.kind is ErrorKind.BLANK
    assert found.text.startswith("nothing arrived in ")


def test_the_same_pair_sends_other_data_in_each_test() -> None:
    shifts = {verify.shift(0, 1, test) for test in range(1000)}
    assert len(shifts) > 990
    assert all(shift % 16 == 0 and 0 <= shift < verify.PERIOD for shift in shifts)


@pytest.mark.parametrize(("ranks", "rounds"), [(2, 1), (8, 20), (3, 1), (3, 20), (6, 12)])
def test_sums(ranks: int, rounds: int) -> None:
    count = 70_000
    values = [sum((step + TEST) % verify.STEPS + rank for rank in range(ranks)) for step in range(count)]
    grown = [float(value) * float(ranks) ** (rounds - 1) for value in values]
    data = array.array("f", grown).tobytes()
    blocks = verify.blocks(len(data))
    sums, _ = verify.expected_sums("all_reduce", ranks, rounds, 0, TEST)
    assert verify.count_wrong(sample(data, blocks), blocks, sums) == 0
    grown[123] *= 1.01
    data = array.array("f", grown).tobytes()
    assert verify.count_wrong(sample(data, blocks), blocks, sums, 1e-4) == 1
    grown[124] = float("nan")
    data = array.array("f", grown).tobytes()
    assert verify.count_wrong(sample(data, blocks), blocks, sums, 1e-4) == 2


def test_sums_never_overflow() -> None:
    for ranks in (1, 2, 3, 8, 64, 1000, 100_000):
        times = base.max_float32_sums(ranks, 1000)
        assert times >= 1
        assert (61.0 + ranks) * ranks * float(ranks) ** (times - 1) < 3e38


def test_the_config_is_the_one_nccl_2_17_declares() -> None:
    # size_t, two unsigned, four int, one pointer, on a 64-bit machine.
    assert ctypes.sizeof(ctypes_nccl.Config) == 40
    assert ctypes_nccl.Config.blocking.offset == 16
    assert ctypes_nccl.Config.netName.offset == 32
    config = ctypes_nccl.non_blocking()
    assert (config.size, config.magic, config.blocking, config.minCTAs) == (40, 0xCAFEBEEF, 0, -(2**31))
    assert ctypes.sizeof(ctypes_nccl.UniqueId) == 128


def test_versions() -> None:
    assert ctypes_nccl.version_text(22809) == "2.28.9"
    assert ctypes_nccl.version_text(2708) == "2.7.8"


def test_a_given_library_is_the_only_candidate() -> None:
    assert ctypes_nccl.candidates("/opt/lib/libnccl.so.2") == ["/opt/lib/libnccl.so.2"]
    assert ctypes_nccl.candidates(None)[-1] == "libnccl.so.2"


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
