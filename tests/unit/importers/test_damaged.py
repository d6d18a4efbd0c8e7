"""Damaged, cut-off and foreign text: never an exception, and never a value that the whole text does not hold."""

from __future__ import annotations

import functools
import json
import random
import re
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabtui.importers.catalogue import HEAD, formats
from fabtui.importers.result import Result, read
from fabtui.importers.sources import Source
from fabtui.importers.to_model.dispatch import convertible, events, model
from fabtui.report.imported_output import text_of
from fabtui_node.parsers.base import UNKNOWN_LINES, UNKNOWN_WIDTH

from ...effort import examples
from ..probes.test_any_text import ends_soon
from .places import REAL, SAMPLES, of_text

pytestmark = pytest.mark.fuzz

#: Parts that the damaged texts are made in, and texts in a part of them.
_PARTS, _PART = 20, examples(8)
_LONGEST = 4_000
_NUMBER = re.compile(rb"\d+(?:\.\d+)?")


@functools.cache
def samples() -> tuple[bytes, ...]:
    """Return the start of each output that is here."""
    paths: list[Path] = sorted(SAMPLES.rglob("*.*")) + sorted(REAL.glob("*/*"))
    return tuple(path.read_bytes()[:_LONGEST] for path in paths if path.is_file())


def damaged(raw: bytes, chance: random.Random) -> bytes:
    """Return bytes with some of them changed, left out, doubled, moved or cut off."""
    text = bytearray(raw)
    for _ in range(chance.randint(1, 5)):
        if not text:
            break
        at, much = chance.randrange(len(text)), chance.randint(1, 60)
        match chance.randrange(8):
            case 7:
                numbers = [found.span() for found in _NUMBER.finditer(text)]
                start, end = chance.choice(numbers or [(0, 0)])
                text[start:end] = chance.choice([b"1e999", b"nan", b"-7", b"N/A", b"", b"x", b"9" * 30, b"null", b"[]"])
            case 0:
                text[at] = chance.randrange(256)
            case 1:
                del text[at : at + much]
            case 2:
                text[at:at] = text[at : at + much]
            case 3:
                del text[at:]
            case 4:
                text[at:at] = chance.choice(
                    [b"9" * 400, b"\x00", b"\n\n", b"nan", b"-1", b"\xff\xfe", b"1e999", b"|", b"}"]
                )
            case 5:
                text[at : at + much] = bytes(chance.randrange(256) for _ in range(much))
            case _:
                other = chance.choice(samples())
                text[at:at] = other[: chance.randint(1, 400)]
    return bytes(text[: 2 * _LONGEST])


def check(result: Result) -> None:
    json.dumps(result.as_json(), allow_nan=False)
    assert len(result.warnings) <= UNKNOWN_LINES + 2
    assert len(result.unknown) <= UNKNOWN_LINES
    assert all(len(line) <= UNKNOWN_WIDTH for line in (*result.warnings, *result.unknown))


@pytest.mark.parametrize("part", range(_PARTS))
def test_damaged_outputs(part: int) -> None:
    chance = random.Random(20_000 + 1_000 * part)
    first = part * _PART
    kinds = list(formats())
    outputs = samples()
    recognised = 0
    for number in range(first, first + _PART):
        raw = damaged(outputs[number % len(outputs)], chance)
        text = raw.decode("utf-8", "replace")
        # What it is taken for, and every fifth time what it certainly is not.
        kind = None if number % 5 else chance.choice(kinds)
        result = read(Source("damaged", text), kind)
        check(result)
        recognised += result.known
        if number % 10 == 1:
            text_of(result, 100)
        if convertible(result.kind):
            model([result])
    assert recognised > _PART / 3


def test_every_output_with_names_of_other_formats() -> None:
    """Each with three; what every format makes of it is in `test_any_text`."""
    names = list(formats())
    for place, raw in enumerate(samples()):
        for name in names[place % (len(names) // 3) :: len(names) // 3]:
            check(of_text(raw.decode("utf-8", "replace"), name))


@given(text=st.text())
@settings(max_examples=examples(5))
def test_any_text(text: str) -> None:
    check(of_text(text))


@st.composite
def lines_of_samples(draw: st.DrawFn) -> str:
    return draw(st.sampled_from(_lines()))


@functools.cache
def _lines() -> list[str]:
    """Return lines of all formats that only the login node reads; any order, any damage."""
    found = {line for raw in samples() for line in raw.decode("utf-8", "replace").splitlines()[:12]}
    return sorted(line for line in found if line.strip() and len(line) < 300)


_OURS = [name for name, form in formats().items() if form.parse.__module__.startswith("fabtui.importers")]


@given(
    kind=st.sampled_from(_OURS),
    lines=st.lists(lines_of_samples() | st.text(max_size=30), max_size=12),
    end=st.sampled_from(["", "\n"]),
)
@settings(max_examples=examples(10), deadline=None)
def test_lines_of_everything(kind: str, lines: list[str], end: str) -> None:
    result = of_text("\n".join(lines) + end, kind)
    check(result)
    happened = events([result])
    assert [event.seq for event in happened] == list(range(len(happened)))
    model([result])


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
_NAMES = [
    *("nvbandwidth", "testcases", "bandwidth_matrix", "status", "name", "test_info", "results"),
    *("MsgSize", "BW_average"),
]
_NAMES += [
    *("start", "end", "connected", "sum_sent", "bits_per_second", "jobs", "nodes", "Slurm", "meta"),
    *("state", "software"),
]
_NAMES += [
    *("measurements", "endpoints", "layer", "verdict", "src", "dst", "kind", "seq", "time"),
    *("value", "GPU Device list"),
]
shaped = st.recursive(
    json_like | st.just("fabtui 0.1.0"),
    lambda inner: st.dictionaries(st.sampled_from(_NAMES), inner, max_size=6) | st.lists(inner, max_size=3),
    max_leaves=16,
)


@given(kind=st.sampled_from(_OURS), value=shaped, start=st.booleans())
@settings(max_examples=examples(10), deadline=None)
def test_any_json(kind: str, value: Any, start: bool) -> None:
    text = json.dumps(value)
    if start:
        text = '{"kind": "start", "nodes": ["a"], "time": 1}\n' + text
    result = of_text(text, kind)
    check(result)
    model([result])


@pytest.mark.parametrize("name", _OURS[::5])
def test_long_lines_end_soon(name: str) -> None:
    """Long lines on the way to a format, which is the same for all; `test_any_text` has the formats themselves."""
    ends_soon(lambda text: check(of_text(text, name)))


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
    """Return all numbers in a value."""
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
        check(cut)
        # Where a line ends, a whole table may have ended as well.
        assert cut.warnings or text[end - 1] == "\n", end
        # Up to the last whole line every number is one of the whole text; counts of what was read so far apart.
        lines = read(Source(name, text[: text.rfind("\n", 0, end) + 1]), whole.kind)
        kept = numbers(lines.values.get(TABLES[name]))
        assert len(set(kept) - known) <= 3, (end, set(kept) - known)
