import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from fabtui.model.cell_level import ratio
from fabtui.model.layers import Layer
from fabtui.model.measurement import Verdict
from fabtui.presentation.cell_levels import CellStyle, Glyphs, cell_text, style_of, transport_style
from fabtui.presentation.numbers import short_number, short_value
from fabtui_node.parsers.lines import bytes_text


@pytest.mark.parametrize(
    ("value", "three", "four"),
    [
        (351.2, "351", "351"),
        (46.12, "46", "46.1"),
        (9.96, "10", "10.0"),
        (4.5, "4.5", "4.50"),
        (0.5, ".50", ".500"),
        (0.045, ".04", ".045"),
        (0.0, "0.0", "0.00"),
        (999.4, "999", "999"),
        (999.6, "1k", "1000"),
        (12_345, "12k", "12k"),
        (1_500_000, "2M", "2M"),
    ],
)
def test_numbers_keep_as_many_digits_as_fit(value: float, three: str, four: str) -> None:
    assert short_number(value, 3) == three
    assert short_number(value, 4) == four


@pytest.mark.parametrize(
    ("value", "three", "four"),
    [
        (0.0196, "20M", "20M"),
        (0.00196, "2M", "2.0M"),
        (0.00036, ".4M", ".36M"),
        (0.00096, "1M", "1.0M"),
        (0.000096, "96k", "96k"),
        (0.0000196, "20k", "20k"),
        (1e-9, "<1k", "<1k"),
        (0.2, ".20", ".200"),
    ],
)
def test_a_small_rate_names_its_unit(value: float, three: str, four: str) -> None:
    assert (short_value(value, "GB/s", 3), short_value(value, "GB/s", 4)) == (three, four)
    assert short_value(value, "us", 4) == short_number(value, 4), "other units have no letters"


@given(st.floats(min_value=0, max_value=1e3, allow_nan=False), st.sampled_from([3, 4]))
def test_a_rate_fits(value: float, width: int) -> None:
    assert 0 < len(short_value(value, "GB/s", width)) <= width


@given(st.floats(min_value=0, max_value=1e15, allow_nan=False), st.sampled_from([3, 4]))
def test_a_number_fits(value: float, width: int) -> None:
    assert 0 < len(short_number(value, width)) <= width


@given(st.floats(min_value=0.001, max_value=1e8, allow_nan=False))
def test_a_short_number_is_near_its_value(value: float) -> None:
    text = short_number(value, 4)
    if text.startswith("<"):
        return
    scale = {"k": 1e3, "M": 1e6, "G": 1e9}.get(text[-1], 1.0)
    assert float(text.rstrip("kMG")) * scale == pytest.approx(value, rel=0.5, abs=0.0006)


@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize("width", range(1, 6))
def test_every_cell_is_exactly_as_wide_as_it_should_be(width: int, plain: bool) -> None:
    glyphs = Glyphs(plain)
    for slot in glyphs.of_style:
        for number in ("", "351"[: width - 1]):
            text = cell_text(slot, number, width, glyphs)
            assert cell_len(text) == width
            assert not plain or text.isascii()


def test_every_verdict_has_its_own_glyph() -> None:
    for plain in (True, False):
        glyphs = Glyphs(plain)
        slots = {style_of(verdict, None) for verdict in Verdict}
        assert len({glyphs.of_style[slot] for slot in slots}) == len(slots) == len(Verdict)


def test_less_is_better_where_it_is() -> None:
    assert ratio(Layer.P2P, 50, 100) == 0.5
    assert ratio(Layer.LATENCY, 50, 100) == 2
    assert ratio(Layer.PING, 0, 100) == 1
    assert ratio(Layer.P2P, None, 100) is ratio(Layer.P2P, 5, None) is ratio(Layer.P2P, 5, 0) is None


def test_ok_cells_are_graded_and_others_are_not() -> None:
    grades = [style_of(Verdict.OK, share) for share in (1.2, 0.95, 0.9, 0.84, None)]
    assert grades == [CellStyle.GOOD, CellStyle.GOOD, CellStyle.FAIR, CellStyle.LOW, CellStyle.GOOD]
    assert style_of(Verdict.TIMEOUT, 1.0) is CellStyle.TIMEOUT


@pytest.mark.parametrize(
    ("text", "slot", "short"),
    [
        ("P2P/CUMEM", CellStyle.P2P, "P2P"),
        ("SHM/direct/direct", CellStyle.SHM, "SHM"),
        ("NET/IB/0/GDRDMA", CellStyle.RDMA, "GDR"),
        ("NET/IB/0", CellStyle.RDMA, "IB"),
        ("NET/Socket/0", CellStyle.SOCKET, "SOCK"),
        ("gloo tcp", CellStyle.SOCKET, "TCP"),
        ("\x1b[31mpigeon", CellStyle.OTHER, "[31m"),
    ],
)
def test_transports_are_distinct(text: str, slot: CellStyle, short: str) -> None:
    assert transport_style(text) == (slot, short)


def test_sizes() -> None:
    assert [bytes_text(size) for size in (None, 8, 4096, 256 << 20, 3 << 30)] == [
        *("", "8 B", "4 KiB", "256 MiB", "3 GiB"),
    ]
