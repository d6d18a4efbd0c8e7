"""Texts that are long or were cut: read in linear time, and no value that the whole text does not hold."""

import time
from typing import Any

import pytest

from fabtui.importers.catalogue import HEAD, formats
from fabtui.importers.result import read
from fabtui.importers.sources import Source

from ..probes.test_any_text import ends_soon
from .places import REAL, of_text

pytestmark = pytest.mark.fuzz

_OURS = [name for name, form in formats().items() if form.parse.__module__.startswith("fabtui.importers")]


@pytest.mark.parametrize("name", _OURS[::5])
def test_long_lines_end_soon(name: str) -> None:
    """Long lines on the way to a format, which is the same for all; `test_any_text` has the formats themselves."""
    ends_soon(lambda text: of_text(text, name))


@pytest.mark.parametrize("name", formats())
def test_blank_lines_are_passed_in_linear_time(name: str) -> None:
    """The head of a text is searched for a format at once: what skips blanks must stop at line ends."""
    for piece in ("\n", " \n", "\n\t", "\r\n"):
        text = (piece * HEAD)[:HEAD]
        began = time.process_time()
        assert formats()[name].likely(text) == 0.0
        # 2 ms; a pattern that starts again at each line took 9 s.
        assert time.process_time() - began < 0.5, piece


TABLES = {
    "nccl-tests/nii-h100-1x8.txt": "tables",
    "osu/osu-bw-cuda-dd-v72.txt": "tests",
    "perftest/ib-send-lat-client.txt": "rows",
    "all_reduce_bench/ml-eng-8xh200-table.txt": "rows",
    "megatron-log/meg-ds-176b-seconds-spike.txt": "iterations",
    "nvbandwidth/v08-6xa6000-na-diagonal.txt": "tests",
    "p2pBandwidthLatencyTest/4xa100-pcie-two-nvlink-pairs.txt": "matrices",
    "ping/iputils-broadcast-dups.txt": "runs",
}


def numbers(value: Any) -> list[float]:
    if isinstance(value, dict):
        return [number for item in value.values() for number in numbers(item)]
    if isinstance(value, list):
        return [number for item in value for number in numbers(item)]
    return [] if isinstance(value, bool) or not isinstance(value, (int, float)) else [float(value)]


@pytest.mark.skipif(not REAL.is_dir(), reason="no real samples here (FABTUI_REAL_SAMPLES)")
@pytest.mark.parametrize("name", TABLES)
def test_a_cut_is_reported(name: str) -> None:
    """A text cut anywhere is reported as cut, and up to its last line it has no values that the full text lacks."""
    text = (REAL / name).read_text()
    whole = read(Source(name, text))
    known = set(numbers(whole.values))
    for end in range(20, len(text) - 2, 29):
        cut = read(Source(name, text[:end]))
        # Where a line ends, a whole table may have ended as well.
        assert cut.warnings or text[end - 1] == "\n", end
        # Up to the last whole line every number is one of the whole text; counts of what was read so far apart.
        lines = read(Source(name, text[: text.rfind("\n", 0, end) + 1]), whole.kind)
        kept = numbers(lines.values.get(TABLES[name]))
        assert len(set(kept) - known) <= 3, (end, set(kept) - known)
