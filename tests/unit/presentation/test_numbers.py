import pytest

from fabtui.model.layers import Layer
from fabtui.model.measurement import Reduced
from fabtui.presentation.numbers import reduced_text, share_text, spoken
from fabtui.presentation.wording import usual_share_text
from tests.conftest import ModelMaker


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (0.0196, "GB/s", (19.6, "MB/s")),
        (0.0994, "GB/s", (99.4, "MB/s")),
        (0.971, "GB/s", (0.971, "GB/s")),
        (0.0, "GB/s", (0.0, "GB/s")),
        (0.02, "us", (0.02, "us")),
    ],
)
def test_small_rates_are_in_megabytes(value: float, unit: str, expected: tuple[float, str]) -> None:
    number, name = spoken(value, unit)
    assert number == pytest.approx(expected[0])
    assert name == expected[1]


def test_both_values_of_a_comparison_have_their_own_unit() -> None:
    assert share_text(0.0196, 0.971, "GB/s") == "19.6 MB/s, 2.0 % of the usual 0.97 GB/s"
    assert share_text(0.0196, 0.05, "GB/s") == "19.6 MB/s, 39 % of the usual 50.0 MB/s"
    assert share_text(27.0, 30.0, "us") == "27.0 us, 90 % of the usual 30.0 us"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.305, "0.3 s"), (43.0, "43 s"), (99.6, "1.7 min"), (110.0, "1.8 min"), (6700.0, "1.9 h"), (90.0 * 3600, "90 h")],
)
def test_a_smaller_message_has_the_time_of_the_requested_one(seconds: float, text: str) -> None:
    assert reduced_text(Reduced(1 << 20, 256 << 20, seconds)) == f"1 MiB; 256 MiB would take {text}"


def test_a_value_alone_in_its_class_has_nothing_to_be_compared_with() -> None:
    maker = ModelMaker().start(["n0"]).endpoints({"n0": 2}).pairs(["n0:0", "n0:1"])
    maker.measured("busbw", "n0", "n0", value=1.0, unit="GB/s", bytes=4 << 20)
    model = maker.model()
    texts = {m.layer: usual_share_text(model, m) for m in model.measurements(Layer.BUSBW, Layer.P2P)}
    assert texts == {Layer.BUSBW: "nothing to compare with", Layer.P2P: "100 % of the usual 2.00"}
