"""Any text: a format returns a likelihood and a reading; none raises."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabtui.importers import catalogue
from fabtui_node import protocol
from fabtui_node.parsers import base

from ...effort import examples
from .places import REAL, SAMPLES
from .test_any_text import damaged as shuffled
from .test_any_text import ends_soon

pytestmark = pytest.mark.fuzz

FORMATS = catalogue.formats()
_LONGEST = 12_000


@functools.cache
def recorded() -> list[Path]:
    found = [path for path in sorted(SAMPLES.rglob("*.*")) if path.suffix in (".txt", ".net", ".json", ".log")]
    return found + [path for path in sorted(REAL.glob("*/*")) if path.is_file()]


@functools.cache
def text_of(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "replace")[:_LONGEST]


def check(form: base.Format, text: str) -> base.Reading:
    likely = form.likely(text[:65536])
    assert 0.0 <= likely <= 1.0
    try:
        reading = form.parse(text)
        protocol.encode({"value": reading})
    except Exception as error:
        error.add_note(f"{form.name} of {text[:2000]!r}")
        raise
    assert len(reading.warnings) <= base.UNKNOWN_LINES
    assert len(reading.unknown) <= base.UNKNOWN_LINES
    assert all(len(line) <= base.UNKNOWN_WIDTH for line in (*reading.warnings, *reading.unknown))
    return reading


named = pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)


@given(text=st.text())
@settings(max_examples=examples(5))
def test_any_text(text: str) -> None:
    for form in FORMATS.values():
        check(form, text)


@given(text=shuffled())
@settings(max_examples=examples(10))
def test_damaged_outputs(text: str) -> None:
    for form in FORMATS.values():
        check(form, text)


@named
def test_every_output_in_every_format(form: base.Format) -> None:
    for path in recorded():
        check(form, text_of(path))


@named
def test_long_lines_end_soon(form: base.Format) -> None:
    ends_soon(functools.partial(check, form))


@pytest.mark.parametrize(
    "path", [pytest.param(p, id=f"{p.parent.name}/{p.name}") for p in recorded() if p.parent.name == "ibsim"]
)
def test_a_sample_is_known_by_its_command(path: Path) -> None:
    """The first line of a sample names the command."""
    first, _, text = path.read_text().partition("\n")
    if not first.startswith("# SIM_HOST="):
        return
    command = Path(first.partition("libumad2sim.so ")[2].removeprefix("timeout ").lstrip("0123456789 ").split()[0]).name
    if command == "rdma":
        command = "rdma-link"
    if command in ("ibhosts", "ibswitches", "ibnodes"):
        command = "ibnodes"
    if command == "ib_write_bw" or path.name in ("ibstat_l.txt", "ibstat_p.txt", "perfquery_clear.txt"):
        return
    ranked = sorted(((form.likely(text), name) for name, form in FORMATS.items()), reverse=True)
    if "Failed to get IB devices" in text:
        assert ranked[0] == (0.4, "ibv_devinfo")
    else:
        assert ranked[0][1] == command, ranked[:3]
        assert ranked[0][0] > ranked[1][0]


def test_names_and_units() -> None:
    for name, form in FORMATS.items():
        assert name == form.name
        assert form.title
        json.dumps(form.units)
